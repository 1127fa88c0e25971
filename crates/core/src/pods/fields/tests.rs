//! The table against the fields that there are, against what is done with them, and against the document.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ferro_api::tenancy::TenantSpec;
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::samples::{get, places, read, sample, schema, with};
use super::{Home, Provider, SECTIONS};
use crate::pods::outward::access::Access;
use crate::pods::{outward, provider};

const DOCUMENT: &str = include_str!("../../../../../docs/PODS.md");

#[test]
fn every_field_of_a_pod_is_in_the_table_and_every_line_of_the_table_is_a_field() {
    for part in SECTIONS {
        let schemas = part.at.iter().map(|at| (at, schema(at)["properties"].as_object()));
        let exist: BTreeSet<&str> = schemas
            .flat_map(|(at, fields)| fields.unwrap_or_else(|| panic!("a pod has no {at}")).keys())
            .map(String::as_str)
            .collect();
        let listed: BTreeSet<&str> = part.fields.iter().map(|field| field.name).collect();
        let unlisted: Vec<_> = exist.difference(&listed).collect();
        assert!(unlisted.is_empty(), "{}: decide what becomes of {unlisted:?}, and list it", part.title);
        let unknown: Vec<_> = listed.difference(&exist).collect();
        assert!(unknown.is_empty(), "{}: there is no {unknown:?}", part.title);
        assert_eq!(listed.len(), part.fields.len(), "{}: something is listed twice", part.title);
        assert!(part.fields.is_sorted_by_key(|field| field.name), "{} is not sorted", part.title);
    }
}

#[test]
fn containers_of_all_kinds_have_the_same_parts() {
    for kind in ["initContainers[]", "ephemeralContainers[]"] {
        for part in ["resources", "securityContext", "livenessProbe", "startupProbe", "lifecycle"] {
            let names =
                |path: String| schema(&path)["properties"].as_object().unwrap().keys().collect::<Vec<_>>();
            assert_eq!(names(format!("{kind}.{part}")), names(format!("containers[].{part}")));
        }
    }
}

/// What became of a field: what was given, and what stands there now; an error where the pod was refused.
type Outcome = Result<Value, String>;

#[test]
fn home_does_with_every_field_what_the_table_says() {
    for (at, field) in places() {
        let outcome = sent(&with(at, field.name), at, field.name);
        let given = sample(at, field.name);
        let is_so = match (&outcome, field.home) {
            (Ok(there), Home::Travels) => *there == given,
            (Ok(there), Home::Translated) => *there != given,
            (Ok(there), Home::Dropped) => there.is_null(),
            (Err(_), Home::Refused) => true,
            (Err(_), Home::Travels | Home::Translated | Home::Dropped) | (Ok(_), Home::Refused) => false,
        };
        assert!(
            is_so,
            "{at} {}: {:?} is in the table, and {given} became {outcome:?}",
            field.name, field.home
        );
    }
}

fn sent(spec: &Value, at: &str, field: &str) -> Outcome {
    let pod = Pod { spec: Some(read(spec)), ..Pod::default() };
    let shadow =
        outward::shadow(&pod, "shop-rome", "rome", &Access::Closed).map_err(|refusal| refusal.message)?;
    Ok(get(&serde_json::to_value(shadow.spec.pod).unwrap(), at, field))
}

#[test]
fn the_provider_does_with_every_field_what_the_table_says() {
    for (at, field) in places() {
        let outcome = made(&with(at, field.name), at, field.name);
        let given = sample(at, field.name);
        let is_so = match (&outcome, field.provider) {
            (Ok(there), Provider::Kept) => *there == given,
            (Ok(there), Provider::Overruled) => !there.is_null() && *there != given,
            (Ok(there), Provider::Dropped) => there.is_null(),
            (Err(_), Provider::Refused) => true,
            (Err(_), Provider::Kept | Provider::Overruled | Provider::Dropped)
            | (Ok(_), Provider::Refused) => false,
        };
        assert!(
            is_so,
            "{at} {}: {:?} is in the table, and {given} became {outcome:?}",
            field.name, field.provider
        );
    }
}

fn made(spec: &Value, at: &str, field: &str) -> Outcome {
    let terms =
        json!({"cluster": {"clusterID": "rome"}, "nodePool": {"pool": "guests"}, "runtimeClassName": "box"});
    let terms: TenantSpec = serde_json::from_value(terms).unwrap();
    let metadata = ObjectMeta::default();
    let shadow = ShadowPod { metadata, spec: ShadowPodSpec { pod: read(spec) }, status: None };
    let pod = provider::pod(&shadow, "rome", &terms).map_err(|refusal| refusal.message)?;
    Ok(get(&serde_json::to_value(pod.spec).unwrap(), at, field))
}

#[test]
fn a_refusal_names_a_word_and_tells_what_to_do() {
    for (at, field) in places().filter(|(_, field)| field.home == Home::Refused) {
        let pod = Pod { spec: Some(read(&with(at, field.name))), ..Pod::default() };
        let refusal = outward::shadow(&pod, "n", "c", &Access::Closed).unwrap_err();
        assert!(refusal.word.chars().all(char::is_alphanumeric), "{refusal:?}");
        assert!(refusal.message.contains("take it out"), "{refusal:?}");
    }
}

#[test]
fn a_sample_is_for_a_field_that_exists() {
    assert!(places().count() > 200, "the schema was not found");
}

#[test]
fn the_document_has_the_table() {
    let mut table = String::new();
    for part in SECTIONS {
        _ = write!(
            table,
            "### {}\n\n| field | from home | on the provider | |\n| --- | --- | --- | --- |\n",
            part.title
        );
        for field in part.fields {
            let (home, there) = (field.home.word(), field.provider.word());
            let line = format!("| `{}` | {home} | {there} | {}", field.name, field.note);
            _ = writeln!(table, "{} |", line.trim_end());
        }
        table.push('\n');
    }
    let table = table.trim_end();
    assert!(DOCUMENT.contains(table), "docs/PODS.md must have this, word for word:\n\n{table}\n");
    let rows = |text: &str| text.lines().filter(|line| line.starts_with("| `")).count();
    let chapter = DOCUMENT.split("\n## Field by field\n").nth(1).unwrap_or_default();
    let chapter = chapter.split("\n## ").next().unwrap_or_default();
    assert_eq!(rows(chapter), rows(table), "docs/PODS.md lists fields that are not in the table");
}
