//! The Helm chart, embedded: from values to the objects that an installation consists of.
//!
//! `helm install` on `deploy/chart` gives the same objects. The custom resource definitions, which the chart
//! has as a copy, come from their source.

mod schema;
mod set;
mod template;
pub(crate) mod values;

use anyhow::{Context, ensure};
use ferro_api::config::ClusterConfig;
use kube::api::DynamicObject;
use kube::core::TypeMeta;
use serde_json::{Value, json};

/// The values of the chart, with their explanation.
pub(crate) const DEFAULTS: &str = include_str!("../../../deploy/chart/values.yaml");
const SCHEMA: &str = include_str!("../../../deploy/chart/values.schema.json");
const CONFIGURATION: &str = include_str!("../../../deploy/chart/crds/config.liqo.io_clusterconfigs.yaml");

/// The version of the chart and of everything in it.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The role that works on all objects; while none of it runs, nobody removes finalizers.
pub(crate) const CONTROLLER: &str = "ferro-controller";
/// The role that strangers talk to.
pub(crate) const AUTH: &str = "ferro-auth";
/// The role that looks around on the local network.
pub(crate) const NODE: &str = "ferro-node";
/// The role with the tunnels to peers.
pub(crate) const GATEWAY: &str = "ferro-gateway";

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../deploy/chart/templates/", $name)))),*]
    };
}

const TEMPLATES: [(&str, &str); 19] = templates![
    "auth-rbac.yaml",
    "auth.yaml",
    "clusterconfig.yaml",
    "controller-rbac.yaml",
    "controller.yaml",
    "gateway-rbac.yaml",
    "gateway.yaml",
    "node-rbac.yaml",
    "node.yaml",
    "offloading-policy.yaml",
    "offloading-rbac.yaml",
    "pods-policy.yaml",
    "reflection-policy.yaml",
    "reflection-rbac.yaml",
    "storage.yaml",
    "tenancy-policy.yaml",
    "tenant-policy.yaml",
    "tenant-rbac.yaml",
    "webhook.yaml",
];

/// The objects of the chart, filled in with these values.
pub(crate) fn objects(values: &Value, namespace: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let data = json!({
        "Values": values,
        "Release": {"Namespace": namespace},
        "Chart": {"AppVersion": VERSION},
    });
    let mut objects = Vec::new();
    for (file, text) in TEMPLATES {
        let rendered = template::render(file, text, &data)?;
        let documents: Vec<DynamicObject> = serde_saphyr::from_multiple(&rendered)
            .with_context(|| format!("{file} gives no objects with these values"))?;
        objects.extend(documents);
    }
    objects.iter().try_for_each(check)?;
    Ok(objects)
}

/// The custom resource definitions.
pub(crate) fn definitions() -> anyhow::Result<Vec<DynamicObject>> {
    ferro_api::crds().iter().map(|crd| Ok(serde_json::from_value(serde_json::to_value(crd)?)?)).collect()
}

/// What values can break: the configuration, most of which they hold as it is.
fn check(object: &DynamicObject) -> anyhow::Result<()> {
    if object.types != Some(TypeMeta::resource::<ClusterConfig>()) {
        return Ok(());
    }
    let definition: Value = serde_saphyr::from_str(CONFIGURATION)?;
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let problems = schema::problems(&object.data["spec"], &schema["properties"]["spec"]);
    ensure!(
        problems.is_empty(),
        "the values give a configuration that is not right; see 'kubectl explain clusterconfig.spec':\n  {}",
        problems.join("\n  ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    mod rights;

    use super::{TEMPLATES, VERSION, definitions, objects, values};
    use ferro_api::config::ClusterConfig;
    use ferro_api::names::labels;
    use kube::ResourceExt as _;
    use kube::api::DynamicObject;
    use serde_json::{Value, json};
    use std::collections::BTreeSet;
    use std::fs;

    const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart");

    fn chart(assignments: &[&str]) -> anyhow::Result<Vec<DynamicObject>> {
        let assignments: Vec<_> = assignments.iter().map(|&text| text.to_owned()).collect();
        objects(&values::collect(&[], &assignments, Some("milan"))?, "liqo")
    }

    fn find(objects: &[DynamicObject], kind: &str, name: &str) -> Value {
        let found = objects
            .iter()
            .find(|object| object.types.as_ref().unwrap().kind == kind && object.name_any() == name)
            .unwrap_or_else(|| panic!("no {kind} {name}"));
        serde_json::to_value(found).unwrap()
    }

    #[test]
    fn every_template_of_the_chart_is_embedded() {
        let embedded: BTreeSet<_> = TEMPLATES.iter().map(|(name, _)| (*name).to_owned()).collect();
        let on_disk: BTreeSet<_> = fs::read_dir(format!("{CHART}/templates"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "NOTES.txt")
            .collect();
        assert_eq!(embedded, on_disk);
    }

    #[test]
    fn chart_and_program_have_one_version() {
        let chart: Value =
            serde_saphyr::from_str(&fs::read_to_string(format!("{CHART}/Chart.yaml")).unwrap()).unwrap();
        assert_eq!(chart["version"], VERSION);
        assert_eq!(chart["appVersion"], VERSION);
    }

    #[test]
    fn every_object_is_marked_as_ours() {
        for object in chart(&[]).unwrap().iter().chain(&definitions().unwrap()) {
            assert!(labels::PART_OF.is_on(&object.metadata), "{}", object.name_any());
        }
    }

    #[test]
    fn the_configuration_reads_as_its_type_and_loses_nothing() {
        let objects = chart(&[
            "clusterLabels.liqo\\.io/region=eu",
            "apiServer.url=https://192.0.2.7:6443",
            "apiServer.ca=cGVt",
            "advertisement.config.resourceSharingPercentage=50",
            "networkManager.config.mode=external",
        ])
        .unwrap();
        let written = find(&objects, "ClusterConfig", "liqo-configuration");
        let read: ClusterConfig = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read.spec).unwrap(), written["spec"]);
        assert_eq!(read.spec.discovery().name.as_deref(), Some("milan"));
        assert_eq!(read.spec.advertisement().outgoing().resource_sharing_percentage(), 50);
        assert_eq!(read.spec.dashboard().namespace.as_deref(), Some("liqo"));
    }

    #[test]
    fn a_configuration_that_no_server_would_take_is_refused_by_its_field() {
        for (wrong, complaint) in [
            ("advertisement.ingoingConfig.acceptPolicy=Auto", "ingoingConfig.acceptPolicy: must be one of"),
            ("advertisement.config.price=1", "did you mean advertisementConfig.outgoingConfig.prices?"),
            ("apiServer.url=http://here", "apiServerConfig.url"),
            ("discovery.config.ttl=0", "discoveryConfig.ttl: must be at least 1"),
        ] {
            let error = chart(&[wrong]).unwrap_err().to_string();
            assert!(error.contains(complaint), "{wrong}: {error}");
        }
    }

    #[test]
    fn the_image_follows_the_version_unless_a_tag_is_given() {
        let image = |objects: &[DynamicObject]| {
            find(objects, "Deployment", "ferro-auth")["spec"]["template"]["spec"]["containers"][0]["image"]
                .clone()
        };
        assert_eq!(image(&chart(&[]).unwrap()), format!("ferro:{VERSION}"));
        assert_eq!(image(&chart(&["image.repository=r/f", "image.tag=x"]).unwrap()), "r/f:x");
    }

    #[test]
    fn a_node_port_is_asked_for_only_where_it_may_be() {
        let port = |assignments: &[&str]| {
            find(&chart(assignments).unwrap(), "Service", "ferro-auth")["spec"]["ports"][0]["nodePort"]
                .clone()
        };
        assert_eq!(port(&[]), 30443);
        assert_eq!(port(&["auth.service.type=LoadBalancer", "auth.service.nodePort=0"]), Value::Null);
        assert_eq!(port(&["auth.service.type=ClusterIP"]), Value::Null);
    }

    #[test]
    fn the_gateway_is_put_where_the_values_say() {
        let gateway = |assignments: &[&str]| {
            find(&chart(assignments).unwrap(), "Deployment", super::GATEWAY)["spec"]["template"]["spec"]
                .clone()
        };
        let endpoint = |pod: &Value| {
            let variables = pod["containers"][0]["env"].as_array().unwrap().clone();
            variables.into_iter().find(|variable| variable["name"] == "FERRO_GATEWAY_ENDPOINT")
        };
        let plain = gateway(&[]);
        for field in ["priorityClassName", "nodeSelector", "tolerations"] {
            assert_eq!(plain[field], Value::Null, "{field}");
        }
        assert_eq!(endpoint(&plain), None);
        let set = gateway(&[
            "gateway.priorityClassName=system-cluster-critical",
            "gateway.nodeSelector.edge=rome",
            "gateway.tolerations[0].key=edge",
            "gateway.tolerations[0].operator=Exists",
            "gateway.endpointIP=203.0.113.7",
        ]);
        assert_eq!(set["priorityClassName"], "system-cluster-critical");
        assert_eq!(set["nodeSelector"], json!({"edge": "rome"}));
        assert_eq!(set["tolerations"], json!([{"key": "edge", "operator": "Exists"}]));
        assert_eq!(endpoint(&set).unwrap()["value"], "203.0.113.7");
        // Wherever it is put, never on a node that stands for a peer.
        assert_eq!(set["affinity"], plain["affinity"]);
        assert!(chart(&["gateway.tolerations=edge"]).is_err());
    }

    #[test]
    fn the_storage_class_is_there_unless_somebody_does_without() {
        let objects = chart(&["storage.classHere=fast", "storage.reclaimPolicy=Retain"]).unwrap();
        let class = find(&objects, "StorageClass", "liqo");
        assert_eq!(class["provisioner"], ferro_core::claims::PROVISIONER);
        assert_eq!(class["volumeBindingMode"], "WaitForFirstConsumer");
        assert_eq!(class["reclaimPolicy"], "Retain");
        let parameters = json!({ferro_core::claims::CLASS_HERE: "fast", ferro_core::claims::CLASS_THERE: ""});
        assert_eq!(class["parameters"], parameters);
        let without = chart(&["storage.enabled=false"]).unwrap();
        assert!(!without.iter().any(|object| object.types.as_ref().unwrap().kind == "StorageClass"));
        assert!(chart(&["storage.reclaimPolicy=Recycle"]).is_err());
    }

    #[test]
    fn every_pod_is_hardened() {
        for object in chart(&[]).unwrap() {
            let pod = &object.data["spec"]["template"]["spec"];
            let container = &pod["containers"][0]["securityContext"];
            // The gateway makes a network of its own, and a device that only privileged containers get.
            if pod.is_null() || object.metadata.name.as_deref() == Some(super::GATEWAY) {
                assert!(pod.is_null() || container["readOnlyRootFilesystem"] == json!(true));
                continue;
            }
            // Only who changes the network of a node needs a capability, and so root.
            let is_node = object.metadata.name.as_deref() == Some(super::NODE);
            let (is_not_root, capabilities) = if is_node {
                (Value::Null, json!({"drop": ["ALL"], "add": ["NET_ADMIN"]}))
            } else {
                (json!(true), json!({"drop": ["ALL"]}))
            };
            assert_eq!(pod["securityContext"]["runAsNonRoot"], is_not_root);
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            let container = &pod["containers"][0];
            let wanted = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": capabilities});
            assert_eq!(container["securityContext"], wanted);
            assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
            assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
            assert!(container["resources"]["limits"]["memory"].is_string());
        }
    }
}
