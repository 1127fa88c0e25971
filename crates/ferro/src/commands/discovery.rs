//! `ferro discovery`: what makes this cluster findable.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use clap::{Subcommand, ValueEnum};
use ferro_api::config::{ClusterConfig, DiscoveryConfig};
use ferro_core::discovery::{Announcement, Zone, zone_records};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use serde::Serialize;

use crate::inventory::Installation;
use crate::kube_args::KubeArgs;
use crate::kube_errors::{Explain as _, found};
use crate::output;

/// What makes this cluster findable for others
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Records(Records),
}

/// Print the DNS records by which other clusters find this one
///
/// Add them to the zone of a domain. Clusters with a SearchDomain for that domain then find this one. Print them anew
/// when the address, the name or the certificate key of this cluster changes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  Print the lines for the zone file of a domain:
    ferro discovery records --domain example.org

  With addresses for the name that the URL of this cluster has in that domain:
    ferro discovery records --domain example.org --address 192.0.2.7

  For a program that fills in a web form:
    ferro discovery records --domain example.org -o json

  In another cluster, look for those that are registered:
    kubectl apply -f - <<END
    apiVersion: discovery.liqo.io/v1alpha1
    kind: SearchDomain
    metadata: {name: example}
    spec: {domain: example.org}
    END")]
struct Records {
    /// The domain to register in [default: discoveryConfig.domain, unless that is the local network's]
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// How long others may remember the records, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    ttl: u32,

    /// An address of the auth service, where its URL has a name of the domain; may be given several times
    #[arg(long, value_name = "IP")]
    address: Vec<IpAddr>,

    /// The format to print in
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,

    #[command(flatten)]
    kube: KubeArgs,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Form {
    /// Lines of a zone file
    #[default]
    Zone,
    /// A YAML list
    Yaml,
    /// A JSON list
    Json,
}

/// One record, for programs.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Record<'a> {
    name: &'a str,
    ttl: u32,
    #[serde(rename = "type")]
    type_: &'a str,
    data: &'a str,
}

/// Does what was asked for.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Records(args) => super::block_on(records(args)),
    }
}

async fn records(args: &Records) -> anyhow::Result<()> {
    let client = args.kube.client().await?;
    let installation = Installation::find(&client).await?;
    let namespace = installation
        .context("Ferrofluid is not installed in this cluster; install it with 'ferro install'")?
        .namespace;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let identity = found(maps.get(ferro_peering::identity::NAME).await);
    let identity = identity.explain(|| "read the identity of this cluster".into())?;
    let configs = Api::<ClusterConfig>::all(client).list(&ListParams::default()).await;
    let config = configs.explain(|| "read the configuration".into())?.items.into_iter().next();
    let announcement = announcement(identity.as_ref(), config.as_ref())?;
    let settings = config.map(|config| config.spec.discovery()).unwrap_or_default();
    output::print(print(args, &announcement, &settings)?.as_bytes())
}

/// What this cluster has to say about itself.
fn announcement(
    identity: Option<&ConfigMap>,
    config: Option<&ClusterConfig>,
) -> anyhow::Result<Announcement> {
    let identity = identity
        .context("this cluster has no identity yet; wait until its controller runs, and try again")?;
    let url = config.and_then(|config| config.status.as_ref()?.auth_url.as_deref()).context(
        "it is not known where others reach this cluster; set authConfig.url in the ClusterConfig, or wait until its \
         controller has found out",
    )?;
    ferro_peering::lan::announcement(identity, url).with_context(|| {
        let name = ferro_peering::identity::NAME;
        format!("the ConfigMap {name} or the URL {url} is damaged; restart the controller, and try again")
    })
}

fn print(args: &Records, announcement: &Announcement, settings: &DiscoveryConfig) -> anyhow::Result<String> {
    let domain = match &args.domain {
        Some(domain) => domain,
        None if settings.domain() != "local." => settings.domain(),
        None => bail!("name the domain in which to register this cluster with --domain, such as example.org"),
    };
    let zone = Zone { domain, service: settings.service(), ttl: args.ttl, addresses: &args.address };
    let lines = zone_records(announcement, &zone).context("cannot print the records")?;
    let records = || lines.iter().filter_map(|line| record(line, args.ttl)).collect::<Vec<_>>();
    match args.output {
        Form::Zone => Ok(lines.join("\n") + "\n"),
        Form::Yaml => output::yaml(&records()),
        Form::Json => output::json(&records()),
    }
}

/// The parts of a line of a zone file.
fn record(line: &str, ttl: u32) -> Option<Record<'_>> {
    let mut parts = line.splitn(5, ' ');
    let (name, _ttl, _class) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Record { name, ttl, type_: parts.next()?, data: parts.next()? })
}

#[cfg(test)]
mod tests {
    use super::{Form, Records, announcement, print};
    use crate::kube_args::KubeArgs;
    use clap::{Args as _, FromArgMatches as _};
    use ferro_api::config::{ClusterConfig, ClusterConfigSpec, ClusterConfigStatus, DiscoveryConfig};
    use k8s_openapi::api::core::v1::ConfigMap;
    use std::collections::BTreeMap;

    fn args(domain: Option<&str>, output: Form) -> Records {
        let kube = KubeArgs::augment_args(clap::Command::new("ferro")).get_matches_from(["ferro"]);
        let kube = KubeArgs::from_arg_matches(&kube).unwrap();
        Records { domain: domain.map(str::to_owned), ttl: 300, address: Vec::new(), output, kube }
    }

    fn identity() -> ConfigMap {
        let data = [
            ("clusterID", "34750f98-bd59-8cfc-946d-a45aaabe933b"),
            ("clusterName", "milan"),
            ("pin", "sha256/AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="),
        ];
        let data: BTreeMap<_, _> = data.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    fn config(auth_url: Option<&str>) -> ClusterConfig {
        let auth_url = auth_url.map(str::to_owned);
        let mut config = ClusterConfig::new("liqo-configuration", ClusterConfigSpec::default());
        config.status = Some(ClusterConfigStatus { auth_url, ..ClusterConfigStatus::default() });
        config
    }

    #[test]
    fn the_records_can_be_pasted_into_a_zone_file() {
        let announced =
            announcement(Some(&identity()), Some(&config(Some("https://192.0.2.7:30443")))).unwrap();
        let text =
            print(&args(Some("example.org"), Form::Zone), &announced, &DiscoveryConfig::default()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].starts_with("_liqo_api._tcp.example.org. 300 IN PTR milan-"), "{text}");
        assert!(lines[3].ends_with(".example.org. 300 IN A 192.0.2.7"), "{text}");
    }

    #[test]
    fn programs_get_the_parts() {
        let announced = announcement(Some(&identity()), Some(&config(Some("https://192.0.2.7")))).unwrap();
        let json =
            print(&args(Some("example.org"), Form::Json), &announced, &DiscoveryConfig::default()).unwrap();
        let records: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(records[3]["type"], "A");
        assert_eq!((&records[3]["data"], &records[3]["ttl"]), (&"192.0.2.7".into(), &300.into()));
        assert!(records[2]["data"].as_str().unwrap().contains("\"name=milan\""));
    }

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let announced = announcement(Some(&identity()), Some(&config(Some("https://192.0.2.7")))).unwrap();
        let print = |domain, settings| print(&args(domain, Form::Zone), &announced, &settings);
        let local = print(None, DiscoveryConfig::default()).unwrap_err().to_string();
        assert!(local.contains("--domain"), "{local}");
        let own = DiscoveryConfig { domain: Some("lab.example.org".into()), ..DiscoveryConfig::default() };
        assert!(print(None, own).unwrap().contains("_liqo_api._tcp.lab.example.org."));
        let bad = format!("{:#}", print(Some("a b"), DiscoveryConfig::default()).unwrap_err());
        assert!(bad.contains("must be a DNS name"), "{bad}");
        for (identity, config, hint) in [
            (None, config(Some("https://192.0.2.7")), "wait until its controller runs"),
            (Some(identity()), config(None), "set authConfig.url"),
            (Some(ConfigMap::default()), config(Some("https://192.0.2.7")), "is damaged"),
        ] {
            let error = announcement(identity.as_ref(), Some(&config)).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }
}
