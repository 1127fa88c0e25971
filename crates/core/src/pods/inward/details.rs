//! What a peer says of a container beside its state: what it got, as whom it runs, and what is mounted in it. As much of it is
//! taken over as pods usually have, and nothing that no API server would take.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerUser, ResourceRequirements, VolumeMountStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::bounds;
use crate::resources::Amount;

/// So many of each are taken over.
const MOST: usize = 32;
/// The longest name of a resource: a domain, a slash and a name.
const LONGEST_NAME: usize = 253 + 1 + 63;
const LONGEST_AMOUNT: usize = 64;
const LONGEST_PATH: usize = 512;

type Amounts = BTreeMap<String, Quantity>;

/// Amounts of resources, by their names.
pub(super) fn amounts(given: Option<&Amounts>) -> Option<Amounts> {
    let is_amount = |amount: &str| amount.len() <= LONGEST_AMOUNT && amount.parse::<Amount>().is_ok();
    let good = given?.iter().filter(|(name, amount)| name.len() <= LONGEST_NAME && is_amount(&amount.0));
    let all: Amounts = good.take(MOST).map(|(name, amount)| (name.clone(), amount.clone())).collect();
    Some(all).filter(|all| !all.is_empty())
}

/// What the container got. Devices are not claimed by pods that travel.
pub(super) fn resources(given: Option<&ResourceRequirements>) -> Option<ResourceRequirements> {
    let given = given?;
    let (limits, requests) = (amounts(given.limits.as_ref()), amounts(given.requests.as_ref()));
    Some(ResourceRequirements { claims: None, limits, requests })
}

/// As whom the container runs.
pub(super) fn user(given: Option<&ContainerUser>) -> Option<ContainerUser> {
    let mut linux = given?.linux.clone()?;
    let is_id = |id: &i64| (0..=i64::from(i32::MAX)).contains(id);
    if let Some(groups) = &mut linux.supplemental_groups {
        groups.retain(is_id);
        groups.truncate(MOST);
    }
    let linux = Some(linux).filter(|linux| is_id(&linux.uid) && is_id(&linux.gid));
    linux.map(|linux| ContainerUser { linux: Some(linux) })
}

/// What is mounted. A path that is cut would be another one.
pub(super) fn mounts(given: Option<&[VolumeMountStatus]>) -> Option<Vec<VolumeMountStatus>> {
    let good = given?.iter().filter(|mount| mount.mount_path.len() <= LONGEST_PATH);
    let all: Vec<VolumeMountStatus> = good.take(MOST).map(bounded).collect();
    Some(all).filter(|all| !all.is_empty())
}

fn bounded(mount: &VolumeMountStatus) -> VolumeMountStatus {
    VolumeMountStatus {
        mount_path: mount.mount_path.clone(),
        name: bounds::word(&mount.name),
        read_only: mount.read_only,
        recursive_read_only: mount.recursive_read_only.as_deref().map(bounds::word),
    }
}
