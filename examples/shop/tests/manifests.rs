//! The manifests are for this program, complete, and for any Kubernetes.

use anyhow::{Context, Result, ensure};
use clap::Parser as _;
use serde_json::Value;
use shop::cli::Arguments;

const MANIFESTS: [&str; 2] = [include_str!("../shop.yaml"), include_str!("../load.yaml")];

fn objects() -> Result<Vec<Value>> {
    let documents = MANIFESTS.map(serde_saphyr::from_multiple::<Value>);
    Ok(documents.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

fn of_kind(kind: &str) -> Result<Vec<Value>> {
    Ok(objects()?.into_iter().filter(|object| object["kind"] == kind).collect())
}

fn container(workload: &Value) -> Result<&Value> {
    let containers = workload["spec"]["template"]["spec"]["containers"].as_array();
    containers.and_then(|all| all.first()).with_context(|| format!("{workload} has no container"))
}

#[test]
fn every_container_is_this_program_in_a_role_that_it_has() -> Result<()> {
    for workload in [of_kind("Deployment")?, of_kind("StatefulSet")?].concat() {
        let container = container(&workload)?;
        ensure!(container["image"] == concat!("shop:", env!("CARGO_PKG_VERSION")), "{}", container["image"]);
        let arguments = container["args"].as_array().context("no arguments")?;
        let words = arguments.iter().filter_map(Value::as_str);
        Arguments::try_parse_from(std::iter::once("shop").chain(words))?;
    }
    Ok(())
}

#[test]
fn every_part_of_the_shop_can_be_found_probed_and_placed_anywhere() -> Result<()> {
    let services: Vec<_> =
        of_kind("Service")?.iter().map(|service| service["metadata"]["name"].clone()).collect();
    let parts = [of_kind("Deployment")?, of_kind("StatefulSet")?].concat();
    let parts: Vec<_> = parts.iter().filter(|part| part["metadata"]["labels"]["app"] == "shop").collect();
    ensure!(parts.len() >= 6 && services.len() == parts.len(), "{} parts, {services:?}", parts.len());
    for part in parts {
        let (name, container) = (&part["metadata"]["name"], container(part)?);
        ensure!(services.contains(name), "{name} has no Service");
        for field in ["readinessProbe", "livenessProbe", "resources"] {
            ensure!(container[field].is_object(), "{name} has no {field}");
        }
        // Server-side apply knows constraints by what they are about, and takes no two of a kind.
        let spread = part["spec"]["template"]["spec"]["topologySpreadConstraints"].as_array().map(Vec::len);
        ensure!(name == "cart" || (part["spec"]["replicas"] == 2 && spread == Some(1)), "{name} can be lost");
    }
    ensure!(of_kind("StatefulSet")?[0]["spec"]["volumeClaimTemplates"].is_array(), "nothing lasts");
    Ok(())
}

#[test]
fn they_know_nothing_of_where_they_run() {
    for word in ["liqo", "ferro", "nodeSelector", "storageClassName", "tolerations"] {
        assert!(MANIFESTS.iter().all(|text| !text.contains(word)), "{word}");
    }
}
