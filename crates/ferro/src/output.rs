//! How values are printed, the same in every command.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// The formats that machines read.
#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum Format {
    /// YAML documents
    #[default]
    Yaml,
    /// One JSON document
    Json,
}

/// The formats of a command that people read unless they ask for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// A table with all columns
    Wide,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// A value as one document.
pub(crate) fn print_value(value: &impl Serialize, format: Format) -> anyhow::Result<()> {
    let text = match format {
        Format::Yaml => yaml(value)?,
        Format::Json => json(value)?,
    };
    print(text.as_bytes())
}

/// A value as a YAML document. Strings that an older YAML would take for something else are quoted.
pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(value)?)
}

/// A value as an indented JSON document.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Objects as manifests: a YAML document for each, or one JSON list.
pub(crate) fn manifests(objects: &[impl Serialize], format: Format) -> anyhow::Result<String> {
    match format {
        Format::Json => json(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects})),
        Format::Yaml => objects.iter().map(document).collect(),
    }
}

/// An object as one YAML document of several.
pub(crate) fn document(object: &impl Serialize) -> anyhow::Result<String> {
    Ok(format!("---\n{}", yaml(object)?))
}

/// Tells about progress.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    print(format!("{text}\n").as_bytes())
}

/// Tells about progress where the result may be for a machine: beside the standard output.
pub(crate) fn note(text: &str) {
    // Nobody can be told that nobody can be told.
    _ = writeln!(io::stderr().lock(), "{}", plain(text));
}

/// A text without anything that could upset a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { ' ' } else { letter }).collect()
}

/// Writes to the standard output. A reader that has gone away is an error, unlike with `print!`, which
/// panics.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    Ok(out.flush()?)
}

/// Whether this is the error of a reader that had seen enough, as in `ferro crds | head`.
pub(crate) fn reader_is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
