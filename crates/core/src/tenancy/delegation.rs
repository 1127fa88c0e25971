//! Whom the consumer lets into its namespaces: which delegations count, and which of their subjects.

use std::collections::BTreeSet;

use ferro_api::tenancy::{DelegationLevel, Subject, SubjectKind, TenantDelegation};
use k8s_openapi::api::rbac::v1::Subject as Bound;

use super::Snapshot;
use super::life::is_going;
use super::mapping::name_of;
use crate::auth::UserName;
use crate::replication::inbound;

/// How many delegations a consumer may have: `<clusterID>-0` and so on.
pub const MOST: usize = 16;
/// The prefix of what Kubernetes keeps for itself.
const SYSTEM: &str = "system:";
const RBAC: &str = "rbac.authorization.k8s.io";

/// A delegation, as far as it counts.
#[derive(Clone, Debug)]
pub(super) struct Delegated<'a> {
    pub(super) object: &'a TenantDelegation,
    /// The last part of its name.
    pub(super) number: usize,
    pub(super) subjects: Vec<Bound>,
    /// What of it does not count, and why.
    pub(super) problems: Vec<String>,
}

impl Delegated<'_> {
    /// Whether it holds in a namespace of the Tenant.
    pub(super) fn reaches(&self, namespace: &str) -> bool {
        let only = &self.object.spec.namespaces;
        !self.subjects.is_empty() && (only.is_empty() || only.iter().any(|name| name == namespace))
    }
}

/// All delegations of the consumer, in the order of their numbers.
pub(super) fn delegated<'a>(snapshot: &Snapshot<'a>) -> Vec<Delegated<'a>> {
    let consumer = snapshot.consumer.cluster_id.as_str();
    let present: BTreeSet<&str> = snapshot.namespaces.of_tenant().into_iter().map(name_of).collect();
    let taken = inbound(snapshot.us, consumer, MOST, snapshot.delegations.iter().copied()).taken;
    let numbered = taken.into_iter().filter_map(|object| Some((number(object, consumer)?, object)));
    let there = numbered.filter(|(_, object)| !is_going(&object.metadata));
    let mut delegated: Vec<Delegated<'a>> =
        there.map(|(number, object)| judge(object, number, &present)).collect();
    delegated.sort_by_key(|delegated| delegated.number);
    delegated
}

/// The number in a delegation's name; none for other names, of which there could be any number.
fn number(delegation: &TenantDelegation, consumer: &str) -> Option<usize> {
    let name = delegation.metadata.name.as_deref()?;
    let number = name.strip_prefix(consumer)?.strip_prefix('-')?;
    (0..MOST).find(|candidate| candidate.to_string() == number)
}

fn judge<'a>(object: &'a TenantDelegation, number: usize, present: &BTreeSet<&str>) -> Delegated<'a> {
    let (mut subjects, mut problems) = (Vec::new(), Vec::new());
    for subject in &object.spec.subjects {
        match refusal(subject, present) {
            None => subjects.push(bound(subject)),
            Some(why) => problems.push(format!("{} is refused: {why}", subject.name)),
        }
    }
    let absent = object.spec.namespaces.iter().filter(|name| !present.contains(name.as_str()));
    problems.extend(absent.map(|name| format!("the Tenant has no namespace {name}")));
    Delegated { object, number, subjects, problems }
}

/// Rights are for people and programs that the consumer answers for, not for parts of this cluster or for other clusters.
fn refusal(subject: &Subject, present: &BTreeSet<&str>) -> Option<&'static str> {
    match subject.kind {
        SubjectKind::User | SubjectKind::Group if subject.name.starts_with(SYSTEM) => {
            Some("names that begin with system: are Kubernetes' own")
        }
        SubjectKind::User if subject.name.parse::<UserName>().is_ok() => {
            Some("it is a cluster; the Tenant's own has all rights, and no other may have any")
        }
        SubjectKind::ServiceAccount => {
            let namespace = subject.namespace.as_deref().unwrap_or_default();
            let is_own = present.contains(namespace);
            (!is_own).then_some("a service account must be in a namespace of the Tenant")
        }
        SubjectKind::User | SubjectKind::Group => None,
    }
}

/// As a `RoleBinding` has it.
pub(super) fn bound(subject: &Subject) -> Bound {
    let (kind, is_account) = match subject.kind {
        SubjectKind::User => ("User", false),
        SubjectKind::Group => ("Group", false),
        SubjectKind::ServiceAccount => ("ServiceAccount", true),
    };
    Bound {
        api_group: (!is_account).then(|| RBAC.to_owned()),
        kind: kind.to_owned(),
        name: subject.name.clone(),
        namespace: subject.namespace.clone().filter(|_| is_account),
    }
}

/// The `ClusterRole` that a level stands for.
pub(super) fn role(level: DelegationLevel) -> &'static str {
    match level {
        DelegationLevel::Viewer => "ferro-tenant-viewer",
        DelegationLevel::Editor => "ferro-tenant-editor",
        DelegationLevel::Admin => "ferro-tenant-admin",
    }
}
