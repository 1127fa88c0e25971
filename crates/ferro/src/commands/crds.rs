//! `ferro crds`: the custom resource definitions, for an API server or for the chart.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ferro_api::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::output::{self, Format};

/// Print the custom resource definitions
#[derive(clap::Args)]
#[command(after_help = "Examples:
  Install or update them in a cluster:
    ferro crds | kubectl apply --server-side -f -

  Write one file for each into a folder:
    ferro crds --directory deploy/chart/crds")]
pub(crate) struct Args {
    /// The format to print in
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,

    /// Write one YAML file for each definition into this folder, instead of printing them
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    directory: Option<PathBuf>,
}

/// Prints the definitions, or writes them to files.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.directory {
        Some(directory) => write_files(directory),
        None => output::print(output::manifests(&crds(), args.output)?.as_bytes()),
    }
}

fn write_files(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create the folder {}", directory.display()))?;
    for crd in crds() {
        let path = directory.join(file_name(&crd));
        fs::write(&path, output::document(&crd)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Group first, so that kinds of one group stand together.
fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

#[cfg(test)]
mod tests {
    use super::file_name;
    use crate::output::document;
    use std::collections::BTreeMap;
    use std::fs;

    const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart/crds");

    #[test]
    fn the_chart_holds_what_the_generator_prints() {
        let generated: BTreeMap<_, _> =
            ferro_api::crds().iter().map(|crd| (file_name(crd), document(crd).unwrap())).collect();
        let in_chart: BTreeMap<_, _> = fs::read_dir(CHART)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap())
            })
            .collect();

        let differing: Vec<_> = generated
            .keys()
            .chain(in_chart.keys())
            .filter(|name| generated.get(*name) != in_chart.get(*name))
            .collect();
        assert!(differing.is_empty(), "out of date in deploy/chart/crds: {differing:?}; run 'make crds'");
    }

    #[test]
    fn the_definitions_are_the_same_each_time() {
        let all = || ferro_api::crds().iter().map(|crd| document(crd).unwrap()).collect::<String>();
        assert_eq!(all(), all());
    }

    #[test]
    fn a_document_reads_back_as_it_was() {
        for crd in ferro_api::crds() {
            let read: serde_json::Value = serde_saphyr::from_str(&document(&crd).unwrap()).unwrap();
            assert_eq!(read, serde_json::to_value(&crd).unwrap(), "{}", file_name(&crd));
        }
    }
}
