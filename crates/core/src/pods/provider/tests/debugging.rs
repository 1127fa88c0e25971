//! Containers for debugging of which some are refused.

use ferro_api::names::annotations;
use ferro_api::tenancy::TenantSpec;
use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{make, pod_of, shadow, shown, shown_active};
use crate::pods::Refusal;
use crate::pods::provider::plan::plan_with;
use crate::pods::provider::{Snapshot, Step, complaint};

/// Refuses a container for debugging that is called evil. The names of all others are the content.
fn choose(shadow: &ShadowPod, tenant: &str, terms: &TenantSpec) -> Result<Pod, Refusal> {
    let all = shadow.spec.pod.ephemeral_containers.iter().flatten();
    let names: Vec<&str> = all.map(|one| one.name.as_str()).collect();
    if names.contains(&"evil") {
        return Err(Refusal::new("NotAllowed", "not so"));
    }
    let mut pod = make(shadow, tenant, terms)?;
    annotations::POD_CONTENT.put_on(&mut pod.metadata, names.join(" "));
    Ok(pod)
}

/// A wish for a pod that runs, with these containers for debugging.
fn wish(names: &[&str]) -> ShadowPod {
    let mut wish = shadow("s1", "Always", "i");
    wish.status = Some(shown_active(&wish));
    let all: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    wish.spec.pod.ephemeral_containers = serde_json::from_value(Value::Array(all)).unwrap();
    wish
}

fn step(wish: &ShadowPod, pod: Option<&Pod>) -> Step {
    let (terms, now) = (TenantSpec::default(), Timestamp::UNIX_EPOCH);
    plan_with(&Snapshot { shadow: Some(wish), pod, tenant: Some(("c1", &terms)), is_open: true, now }, choose)
}

#[test]
fn one_that_is_allowed_comes_although_others_were_refused() {
    let wish = wish(&["evil", "good", "evil", "better"]);
    let mut pod = pod_of(&wish, "u1", "Running");
    annotations::POD_CONTENT.put_on(&mut pod.metadata, "");
    let Step::Change(wanted) = step(&wish, Some(&pod)) else { panic!() };
    let all = wanted.spec.unwrap().ephemeral_containers.unwrap();
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["good", "better"]);
    pod.metadata.annotations = wanted.metadata.annotations;
    let told = ShadowPod { status: Some(shown(step(&wish, Some(&pod)))), ..wish };
    assert_eq!(complaint(&told).unwrap().why.word, "NotAllowed", "of the other one");
    assert_eq!(step(&told, Some(&pod)), Step::Rest);
}

#[test]
fn a_lost_pod_is_made_again_although_one_was_refused() {
    let wish = wish(&["evil"]);
    let lost = ShadowPod { status: Some(shown(step(&wish, None))), ..wish };
    let Step::Create(created) = step(&lost, None) else { panic!() };
    let mut pod = *created;
    assert_eq!(pod.spec.as_ref().unwrap().ephemeral_containers, None);
    pod.metadata.uid = Some("u2".to_owned());
    let noted = ShadowPod { status: Some(shown(step(&lost, Some(&pod)))), ..lost };
    let told = ShadowPod { status: Some(shown(step(&noted, Some(&pod)))), ..noted };
    assert_eq!(complaint(&told).unwrap().why.word, "NotAllowed");
    assert_eq!(step(&told, Some(&pod)), Step::Rest);
}
