//! The CEL rules, evaluated as an API server does: who breaks one is told which field is wrong.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ferro_api::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_cel::Validator;
use serde_json::{Value, json};

/// The schemas by kind, made once: a debug build takes its time over the embedded pods.
static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let schema = |crd: &CustomResourceDefinition| {
        let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        serde_json::to_value(schema).unwrap()
    };
    crds().iter().map(|crd| (crd.spec.names.kind.clone(), schema(crd))).collect()
});

/// What an API server would object to, as `path: message` lines.
fn objections(kind: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
    match Validator::new().validate_with_defaults(&SCHEMAS[kind], object, old) {
        Ok(()) => Vec::new(),
        Err(errors) => {
            errors.iter().map(|error| format!("{}: {}", error.field_path, error.message)).collect()
        }
    }
}

fn named(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

fn network_config(changes: &Value) -> Value {
    let mut spec = json!({
        "clusterID": "c1",
        "podCIDR": "10.0.0.0/24",
        "endpointIP": "192.0.2.7",
        "backendType": "wireguard",
    });
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let set = spec.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
    named("a", &set.map(|(key, value)| (key.clone(), value.clone())).collect())
}

#[test]
fn both_forms_of_a_network_config_are_accepted() {
    for changes in [
        json!({}),
        json!({"clusterID": null, "cluster": {"clusterID": "c1", "clusterName": "one"}}),
        json!({"cluster": {"clusterID": "c1"}}),
        json!({"endpointIP": null, "EndpointIP": "192.0.2.7"}),
        json!({"podCIDR": "fd00:1::/64", "endpointIP": "2001:db8::7", "transitCIDRs": ["10.5.0.0/24"]}),
    ] {
        assert_eq!(
            objections("NetworkConfig", &network_config(&changes), None),
            Vec::<String>::new(),
            "{changes}"
        );
    }
}

#[test]
fn a_network_config_that_contradicts_itself_is_refused() {
    for (changes, expected) in [
        (json!({"clusterID": null}), "cluster.clusterID or clusterID must be given"),
        (json!({"cluster": {"clusterID": "c2"}}), "cluster.clusterID and clusterID must be equal"),
        (json!({"endpointIP": null}), "endpointIP must be given"),
        (json!({"EndpointIP": "192.0.2.8"}), "endpointIP and EndpointIP must be equal"),
    ] {
        let objections = objections("NetworkConfig", &network_config(&changes), None);
        assert!(
            objections.len() == 1 && objections[0].starts_with(&format!("spec: {expected}")),
            "{objections:?}"
        );
    }
}

#[test]
fn a_bad_network_or_address_is_refused_by_the_name_of_its_field() {
    for (changes, field) in [
        (json!({"podCIDR": "10.0.0.0/33"}), "spec.podCIDR"),
        (json!({"podCIDR": "10.0.0.5/24"}), "spec.podCIDR"),
        (json!({"externalCIDR": "None"}), "spec.externalCIDR"),
        (json!({"transitCIDRs": ["10.0.0.0/24", "ten"]}), "spec.transitCIDRs[1]"),
        (json!({"endpointIP": "192.0.2"}), "spec.endpointIP"),
    ] {
        let objections = objections("NetworkConfig", &network_config(&changes), None);
        assert!(
            objections.len() == 1 && objections[0].starts_with(&format!("{field}: must be ")),
            "{objections:?}"
        );
    }
}

#[test]
fn a_network_that_is_not_remapped_is_none() {
    let with_answer = |answer: &str| {
        let mut object = network_config(&json!({}));
        object["status"] = json!({"podCIDRNAT": answer});
        objections("NetworkConfig", &object, None)
    };
    assert_eq!(with_answer("None"), Vec::<String>::new());
    assert_eq!(with_answer("10.45.0.0/16"), Vec::<String>::new());
    assert_eq!(
        with_answer("none"),
        ["status.podCIDRNAT: must be None or a network in CIDR notation, such as 10.45.0.0/16"]
    );
}

#[test]
fn a_foreign_cluster_says_which_cluster_is_meant() {
    let of = |spec| objections("ForeignCluster", &named("a", &spec), None);
    assert_eq!(of(json!({"authUrl": "auth.example.org"})), Vec::<String>::new());
    assert_eq!(of(json!({"authUrl": "https://192.0.2.7:31466"})), Vec::<String>::new());
    assert_eq!(of(json!({"clusterIdentity": {"clusterID": "c1"}})), Vec::<String>::new());
    assert!(of(json!({}))[0].starts_with("spec: authUrl or clusterIdentity must be given"));
    assert!(
        of(json!({"authUrl": "http://auth.example.org"}))[0]
            .starts_with("spec.authUrl: must be an https URL")
    );
}

#[test]
fn names_that_are_too_long_are_refused() {
    for (kind, limit) in [("ClusterConfig", 63), ("ForeignCluster", 63), ("LiqoDeployment", 52)] {
        let of = |length| objections(kind, &named(&"a".repeat(length), &json!({"authUrl": "a"})), None);
        assert_eq!(of(limit), Vec::<String>::new(), "{kind}");
        let objections = of(limit + 1);
        let expected = format!("metadata.name must have at most {limit} characters");
        assert!(objections.len() == 1 && objections[0].contains(&expected), "{objections:?}");
    }
}

#[test]
fn a_namespace_has_one_offloading() {
    assert_eq!(
        objections("NamespaceOffloading", &named("offloading", &json!({})), None),
        Vec::<String>::new()
    );
    let objections = objections("NamespaceOffloading", &named("other", &json!({})), None);
    assert!(objections[0].contains("metadata.name must be offloading"), "{objections:?}");
}

#[test]
fn the_mapping_strategy_cannot_be_changed_and_the_rest_can() {
    let offloading = |spec| named("offloading", &spec);
    let old =
        offloading(json!({"namespaceMappingStrategy": "DefaultName", "podOffloadingStrategy": "Local"}));
    let pods =
        offloading(json!({"namespaceMappingStrategy": "DefaultName", "podOffloadingStrategy": "Remote"}));
    let mapping = offloading(json!({"namespaceMappingStrategy": "EnforceSameName"}));
    assert_eq!(objections("NamespaceOffloading", &pods, Some(&old)), Vec::<String>::new());
    assert_eq!(
        objections("NamespaceOffloading", &mapping, Some(&old)),
        ["spec.namespaceMappingStrategy: namespaceMappingStrategy cannot be changed"]
    );
}

#[test]
fn a_selector_has_the_values_that_its_operator_needs() {
    let of = |operator: &str, values: Option<Vec<&str>>| {
        let mut requirement = json!({"key": "liqo.io/region", "operator": operator});
        if let Some(values) = values {
            requirement["values"] = json!(values);
        }
        let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]});
        objections("NamespaceOffloading", &named("offloading", &json!({"clusterSelector": selector})), None)
    };
    for good in [
        of("In", Some(vec!["A", "B"])),
        of("NotIn", Some(vec!["A"])),
        of("Exists", None),
        of("DoesNotExist", Some(vec![])),
        of("Gt", Some(vec!["3"])),
    ] {
        assert_eq!(good, Vec::<String>::new());
    }
    for bad in [
        of("In", None),
        of("NotIn", Some(vec![])),
        of("Exists", Some(vec!["A"])),
        of("Lt", Some(vec!["1", "2"])),
        of("Gt", Some(vec!["many"])),
    ] {
        let place = "spec.clusterSelector.nodeSelectorTerms[0].matchExpressions[0]: values must ";
        assert!(bad.len() == 1 && bad[0].starts_with(place), "{bad:?}");
    }
}

#[test]
fn a_selector_means_a_node_by_one_name_and_by_no_other_field() {
    let of = |values: &[&str]| {
        let requirement = json!({"key": "metadata.name", "operator": "In", "values": values});
        let selector = json!({"nodeSelectorTerms": [{"matchFields": [requirement]}]});
        objections("NamespaceOffloading", &named("offloading", &json!({"clusterSelector": selector})), None)
    };
    assert_eq!(of(&["liqo-turin-0123456789"]), Vec::<String>::new());
    assert!(of(&[])[0].contains("values must hold one name"));
}

#[test]
fn a_tenant_is_named_after_its_cluster() {
    let of = |name: &str| {
        objections("Tenant", &named(name, &json!({"cluster": {"clusterID": "cluster-1"}})), None)
    };
    assert_eq!(of("cluster-1"), Vec::<String>::new());
    assert!(of("cluster-2")[0].contains("metadata.name must be the identifier of the cluster"));
}

#[test]
fn only_a_service_account_has_a_namespace() {
    let of = |subject: Value| {
        objections("TenantDelegation", &named("a", &json!({"subjects": [subject], "level": "Editor"})), None)
    };
    assert_eq!(of(json!({"kind": "User", "name": "jane"})), Vec::<String>::new());
    assert_eq!(of(json!({"kind": "ServiceAccount", "name": "ci", "namespace": "a"})), Vec::<String>::new());
    for wrong in [
        json!({"kind": "ServiceAccount", "name": "ci"}),
        json!({"kind": "User", "name": "j", "namespace": "a"}),
    ] {
        let objections = of(wrong);
        assert!(objections[0].contains("namespace must be given for a ServiceAccount"), "{objections:?}");
    }
}

#[test]
fn kinds_of_kubernetes_itself_and_two_versions_of_one_are_not_listed_for_reflection() {
    let listed = |kinds: &[(&str, &str, &str)]| {
        let kind = |(group, version, resource): &(&str, &str, &str)| json!({"group": group, "version": version, "resource": resource});
        let kinds: Vec<Value> = kinds.iter().map(kind).collect();
        objections(
            "ClusterConfig",
            &named("a", &json!({"reflectionConfig": {"customResources": kinds}})),
            None,
        )
    };
    let menus = ("example.org", "v1", "menus");
    assert_eq!(listed(&[menus, ("example.org", "v1", "plates")]), Vec::<String>::new());
    for (kind, expected) in [
        (("", "v1", "secrets"), "kinds of Kubernetes itself"),
        (("networking.k8s.io", "v1", "ingresses"), "kinds of Kubernetes itself"),
        (("example.org", "v2", "menus"), "in one version"),
    ] {
        let objections = listed(&[menus, kind]);
        assert!(objections.len() == 1 && objections[0].contains(expected), "{objections:?}");
    }
}
