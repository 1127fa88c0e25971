//! What holds for every custom resource definition.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::{BTreeMap, BTreeSet};

use ferro_api::{CATEGORY, crds};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// The short names of the kinds that every cluster has.
const TAKEN: [&str; 28] = [
    "cm", "cs", "ep", "ev", "limits", "ns", "no", "pvc", "pv", "po", "rc", "quota", "sa", "svc", "crd",
    "crds", "deploy", "ds", "rs", "sts", "hpa", "cj", "csr", "ing", "netpol", "pdb", "pc", "sc",
];

fn schema(crd: &CustomResourceDefinition) -> &JSONSchemaProps {
    crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()
}

/// Calls `look` with each schema of a tree and its path.
fn walk<'a>(path: &str, schema: &'a JSONSchemaProps, look: &mut impl FnMut(&str, &'a JSONSchemaProps)) {
    look(path, schema);
    for (name, property) in schema.properties.iter().flatten() {
        walk(&format!("{path}.{name}"), property, look);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
        walk(&format!("{path}[]"), item, look);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
        walk(&format!("{path}{{}}"), value, look);
    }
}

fn paths_where(mut wrong: impl FnMut(&str, &JSONSchemaProps) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for crd in crds() {
        walk(&crd.spec.names.kind, schema(&crd), &mut |path, schema| {
            if wrong(path, schema) {
                found.push(path.to_owned());
            }
        });
    }
    found
}

#[test]
fn all_kinds_are_there_once() {
    let names: BTreeSet<_> = crds().into_iter().map(|crd| crd.spec.names.kind).collect();
    assert_eq!(names.len(), 15, "{names:?}");
}

#[test]
fn every_field_is_described() {
    let of_element = |path: &str| path.ends_with([']', '}']);
    let bare = paths_where(|path, schema| {
        !of_element(path) && schema.description.as_ref().is_none_or(|text| text.trim().is_empty())
    });
    assert_eq!(bare, Vec::<String>::new());
}

#[test]
fn a_field_speaks_for_itself_and_not_for_its_type() {
    let generic = paths_where(|_, schema| {
        schema.description.as_ref().is_some_and(|text| text.starts_with("Auto-generated"))
    });
    assert_eq!(generic, Vec::<String>::new());
}

#[test]
fn nothing_but_times_may_be_null() {
    let nullable = paths_where(|_, schema| {
        schema.nullable == Some(true) && schema.format.as_deref() != Some("date-time")
    });
    assert_eq!(nullable, Vec::<String>::new());
}

#[test]
fn integers_have_a_format_that_kubernetes_knows() {
    let odd = paths_where(|_, schema| {
        schema.type_.as_deref() == Some("integer")
            && !matches!(schema.format.as_deref(), Some("int32" | "int64"))
    });
    assert_eq!(odd, Vec::<String>::new());
}

#[test]
fn what_a_peer_may_write_is_bounded() {
    let written_by_peers =
        ["NetworkConfig", "ResourceRequest", "ResourceOffer", "NamespaceMap", "TenantDelegation"];
    let unbounded = paths_where(|path, schema| {
        let of_peer = written_by_peers.iter().any(|kind| path.starts_with(&format!("{kind}.")));
        let bounded = match schema.type_.as_deref() {
            Some("array") => schema.max_items.is_some(),
            Some("object") => schema.additional_properties.is_none() || schema.max_properties.is_some(),
            Some("string") => {
                schema.max_length.is_some()
                    || schema.enum_.is_some()
                    || schema.format.as_deref() == Some("date-time")
            }
            _ => true,
        };
        of_peer && !bounded
    });
    assert_eq!(unbounded, Vec::<String>::new());
}

#[test]
fn every_kind_is_in_the_category_and_has_useful_columns() {
    for crd in crds() {
        let kind = &crd.spec.names.kind;
        assert_eq!(crd.spec.names.categories, Some(vec![CATEGORY.to_owned()]), "{kind}");
        let columns = crd.spec.versions[0].additional_printer_columns.as_ref().unwrap();
        assert!(columns.len() >= 2, "{kind} shows nothing of itself");
        assert_eq!(columns.last().unwrap().name, "Age", "{kind}");
    }
}

#[test]
fn short_names_clash_neither_with_each_other_nor_with_those_of_kubernetes() {
    let mut owners: BTreeMap<String, String> =
        TAKEN.map(|name| (name.to_owned(), "Kubernetes".to_owned())).into();
    for crd in crds() {
        let short = crd.spec.names.short_names.unwrap_or_default();
        assert!(!short.is_empty(), "{} has none", crd.spec.names.kind);
        for name in short {
            let kind = crd.spec.names.kind.clone();
            if let Some(owner) = owners.insert(name.clone(), kind.clone()) {
                panic!("{name} belongs to {owner} and to {kind}");
            }
        }
    }
}

#[test]
fn status_is_a_subresource_wherever_there_is_one() {
    for crd in crds() {
        let has_status = schema(&crd).properties.as_ref().unwrap().contains_key("status");
        let subresource = crd.spec.versions[0]
            .subresources
            .as_ref()
            .is_some_and(|subresources| subresources.status.is_some());
        assert_eq!(has_status, subresource, "{}", crd.spec.names.kind);
        assert_eq!(has_status, !["IpamStorage", "NatMapping"].contains(&crd.spec.names.kind.as_str()));
    }
}
