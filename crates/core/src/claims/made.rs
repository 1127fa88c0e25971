//! The claims and volumes that are made for a claim.

use std::collections::BTreeMap;

use ferro_api::names::{annotations, finalizers, labels};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec,
    VolumeNodeAffinity, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::read::{SELECTED_NODE, STORAGE, amount, asked, given};
use super::{CLASS_HERE, CLASS_THERE, Handle, PROVISIONER, Peer, Snapshot};
use crate::pods::Refusal;
use crate::pods::outward::keys;

/// Where Kubernetes looks who made a volume, and hence who deletes it.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const USUAL_POLICY: &str = "Delete";

/// The name of our volume for a claim.
pub fn volume_name(uid: &str) -> String {
    format!("pvc-{uid}")
}

/// The name of the stand-in for a claim.
pub fn stand_in_name(uid: &str) -> String {
    format!("ferro-{uid}")
}

/// Whether a claim asks for nothing but a new volume.
pub(super) fn can_be_had(claim: &PersistentVolumeClaim) -> Result<(), Refusal> {
    let Some(spec) = &claim.spec else { return Ok(()) };
    let asked = [
        ("dataSource", spec.data_source.is_some() || spec.data_source_ref.is_some()),
        ("selector", spec.selector.is_some()),
        ("volumeAttributesClassName", spec.volume_attributes_class_name.is_some()),
    ];
    match asked.into_iter().find(|(_, is_asked)| *is_asked) {
        None => Ok(()),
        Some((field, _)) => Err(Refusal::new(
            "ClaimNotPortable",
            format!(
                "a claim of this StorageClass cannot have a {field}; leave it out, or name a class of this cluster"
            ),
        )),
    }
}

/// The claim over there.
pub(super) fn there(
    snapshot: &Snapshot<'_>,
    claim: &PersistentVolumeClaim,
    namespace: &str,
) -> PersistentVolumeClaim {
    let given = &claim.metadata;
    let kept = given.labels.iter().flatten().filter(|(key, value)| keys::label_is_kept(key, value));
    let mut metadata = ObjectMeta {
        name: given.name.clone(),
        namespace: Some(namespace.to_owned()),
        labels: Some(kept.map(|(key, value)| (key.clone(), value.clone())).collect()),
        ..ObjectMeta::default()
    };
    labels::ORIGIN_ID.put_on(&mut metadata, snapshot.home);
    put_origin_on(&mut metadata, claim);
    PersistentVolumeClaim {
        metadata,
        spec: Some(wish(claim, parameter(snapshot, CLASS_THERE))),
        status: None,
    }
}

/// The claim that gets a volume of this cluster.
pub(super) fn stand_in(
    snapshot: &Snapshot<'_>,
    claim: &PersistentVolumeClaim,
    node: &str,
) -> PersistentVolumeClaim {
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    let mut metadata = ObjectMeta {
        name: Some(stand_in_name(&uid)),
        namespace: Some(snapshot.own_namespace.to_owned()),
        annotations: Some([(SELECTED_NODE.to_owned(), node.to_owned())].into()),
        ..ObjectMeta::default()
    };
    labels::STAND_IN.put_on(&mut metadata);
    labels::PART_OF.put_on(&mut metadata);
    put_origin_on(&mut metadata, claim);
    annotations::STANDS_FOR.put_on(&mut metadata, claim.metadata.name.clone().unwrap_or_default());
    PersistentVolumeClaim { metadata, spec: Some(wish(claim, parameter(snapshot, CLASS_HERE))), status: None }
}

fn put_origin_on(metadata: &mut ObjectMeta, claim: &PersistentVolumeClaim) {
    annotations::ORIGIN_UID.put_on(metadata, claim.metadata.uid.clone().unwrap_or_default());
    annotations::ORIGIN_NAMESPACE.put_on(metadata, claim.metadata.namespace.clone().unwrap_or_default());
}

fn parameter(snapshot: &Snapshot<'_>, name: &str) -> Option<String> {
    let parameters = snapshot.class.and_then(|class| class.parameters.as_ref());
    parameters.and_then(|parameters| parameters.get(name)).filter(|class| !class.is_empty()).cloned()
}

/// What the claim asks for, of a class that is known where it is asked.
fn wish(claim: &PersistentVolumeClaim, class: Option<String>) -> PersistentVolumeClaimSpec {
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = asked(claim).map(|size| BTreeMap::from([(STORAGE.to_owned(), size.clone())]));
    PersistentVolumeClaimSpec {
        access_modes: spec.access_modes,
        resources: Some(VolumeResourceRequirements { requests, limits: None }),
        storage_class_name: class,
        volume_mode: spec.volume_mode,
        ..PersistentVolumeClaimSpec::default()
    }
}

/// The volume that stands for the claim over there; none for a claim that is not there yet.
pub(super) fn volume(
    snapshot: &Snapshot<'_>,
    claim: &PersistentVolumeClaim,
    peer: &Peer<'_>,
    there: &PersistentVolumeClaim,
) -> Option<PersistentVolume> {
    let namespace = peer.namespace?.to_owned();
    let handle = Handle { peer: peer.id.to_owned(), namespace, uid: there.metadata.uid.clone()? };
    let mut metadata = ObjectMeta {
        name: Some(volume_name(claim.metadata.uid.as_deref()?)),
        annotations: Some([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())].into()),
        finalizers: Some(vec![finalizers::VOLUME.to_owned()]),
        ..ObjectMeta::default()
    };
    labels::REMOTE_ID.put_on(&mut metadata, peer.id);
    let wish = claim.spec.clone().unwrap_or_default();
    let size = given(there).filter(|has| amount(Some(has)) > amount(asked(claim))).or_else(|| asked(claim));
    let csi = CSIPersistentVolumeSource {
        driver: PROVISIONER.to_owned(),
        volume_handle: handle.to_string(),
        ..CSIPersistentVolumeSource::default()
    };
    let spec = PersistentVolumeSpec {
        access_modes: wish.access_modes,
        capacity: size.map(|size| BTreeMap::from([(STORAGE.to_owned(), size.clone())])),
        claim_ref: Some(reference(claim)),
        csi: Some(csi),
        node_affinity: Some(only_on(labels::REMOTE_ID.key(), "In", peer.id)),
        persistent_volume_reclaim_policy: Some(policy(snapshot)),
        storage_class_name: wish.storage_class_name,
        volume_mode: wish.volume_mode,
        ..PersistentVolumeSpec::default()
    };
    Some(PersistentVolume { metadata, spec: Some(spec), status: None })
}

/// What makes a volume of the stand-in one of the claim. One that every node could use would draw pods onto virtual nodes,
/// where it cannot be had.
pub(super) fn handed_over(
    snapshot: &Snapshot<'_>,
    claim: &PersistentVolumeClaim,
    real: &PersistentVolume,
) -> Value {
    let mut spec = json!({
        "claimRef": reference(claim),
        "persistentVolumeReclaimPolicy": policy(snapshot),
    });
    // A merge would leave in the reference what it does not name: the version of the stand-in.
    spec["claimRef"]["resourceVersion"] = Value::Null;
    if real.spec.as_ref().is_some_and(|spec| spec.node_affinity.is_none()) {
        let mark = labels::TYPE_VIRTUAL_NODE;
        spec["nodeAffinity"] = json!(only_on(mark.key(), "NotIn", mark.value()));
    }
    json!({"metadata": {"resourceVersion": real.metadata.resource_version}, "spec": spec})
}

fn policy(snapshot: &Snapshot<'_>) -> String {
    let policy = snapshot.class.and_then(|class| class.reclaim_policy.clone());
    policy.unwrap_or_else(|| USUAL_POLICY.to_owned())
}

fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    let meta = &claim.metadata;
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        ..ObjectReference::default()
    }
}

fn only_on(key: &str, operator: &str, value: &str) -> VolumeNodeAffinity {
    let requirement = NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(vec![value.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
    VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
}
