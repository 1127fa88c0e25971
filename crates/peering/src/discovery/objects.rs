//! The `ForeignCluster`s of clusters that were found: made from what a cluster has proved, never from what was said.

use anyhow::{Context, Result, ensure};
use ferro_api::common::ClusterIdentity;
use ferro_api::discovery::{DiscoveryType, ForeignCluster, ForeignClusterSpec};
use ferro_api::names::{annotations, labels};
use ferro_core::discovery::Address;
use ferro_core::names::{adopt, foreign_cluster};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tracing::info;

use crate::contact::Met;

const MANAGER: &str = "ferro-controller";

pub(super) struct Objects(Api<ForeignCluster>);

impl Objects {
    pub(super) fn new(client: Client) -> Self {
        Self(Api::all(client))
    }

    /// Makes the object of a cluster; `join` is what its search domain says about asking it for resources.
    pub(super) async fn create(
        &self,
        found_as: DiscoveryType,
        address: &Address,
        met: &Met,
        join: Option<bool>,
    ) -> Result<()> {
        let object = object(found_as, address, met, join.filter(|_| found_as == DiscoveryType::Wan));
        let name = object.name_any();
        let cannot = || format!("cannot make the ForeignCluster {name}");
        let how = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
        match self.0.create(&how, &object).await {
            Ok(_) => {
                info!(name, found_as = ?found_as, url = %address.auth_url, "found a cluster");
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let present = self.0.get_opt(&name).await.with_context(cannot)?;
                let Some(present) = present else { return Ok(()) };
                let recorded = present.spec.cluster_identity.as_ref().map(|one| one.cluster_id.as_str());
                adopt(&name, recorded, &met.identity.id().to_string()).with_context(cannot)
            }
            Err(error) => Err(error).with_context(cannot),
        }
    }

    /// Writes where the cluster is now, and how it was found; not if somebody else has just changed the object.
    pub(super) async fn update(
        &self,
        object: &ForeignCluster,
        found_as: DiscoveryType,
        address: &Address,
        met: &Met,
    ) -> Result<()> {
        let name = object.name_any();
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let id = met.identity.id().to_string();
        let recorded = object.spec.cluster_identity.as_ref().map(|identity| &identity.cluster_id);
        ensure!(recorded == Some(&id), "the ForeignCluster {name} has become another cluster");
        let patch = json!({
            "metadata": {"resourceVersion": object.metadata.resource_version},
            "spec": {
                "authUrl": address.auth_url, "authPin": met.pin, "discoveryType": found_as,
                "trustMode": met.trust,
            },
        });
        let how = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        match self.0.patch(&name, &how, &Patch::Merge(patch)).await {
            Ok(_) => {
                info!(name, found_as = ?found_as, url = %address.auth_url, "found a cluster at another address");
                Ok(())
            }
            // The watch brings what it has become, and the plan is made anew.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot change the ForeignCluster {name}")),
        }
    }

    /// Removes the object of a cluster that is no longer there, if nobody has changed it since.
    pub(super) async fn remove(&self, object: &ForeignCluster) -> Result<()> {
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let name = object.name_any();
        let preconditions = Preconditions {
            uid: object.metadata.uid.clone(),
            resource_version: object.metadata.resource_version.clone(),
        };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.0.delete(&name, &how).await {
            Ok(_) => {
                info!(name, "a cluster is no longer on the LAN");
                Ok(())
            }
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot remove the ForeignCluster {name}")),
        }
    }
}

fn object(found_as: DiscoveryType, address: &Address, met: &Met, join: Option<bool>) -> ForeignCluster {
    let (id, name) = (met.identity.id().to_string(), met.identity.name());
    let spec = ForeignClusterSpec {
        auth_url: Some(address.auth_url.to_string()),
        cluster_identity: Some(ClusterIdentity {
            cluster_id: id.clone(),
            cluster_name: Some(name.to_string()),
        }),
        discovery_type: Some(found_as),
        join: join.filter(|join| *join),
        trust_mode: Some(met.trust),
        auth_pin: Some(met.pin.to_string()),
        ..ForeignClusterSpec::default()
    };
    let mut object = ForeignCluster::new(&foreign_cluster(name.as_str(), &id), spec);
    labels::PART_OF.put_on(&mut object.metadata);
    if join.is_some() {
        // Its search domain has decided, one way or the other; the general configuration does not decide again.
        annotations::AUTO_JOINED.put_on(&mut object.metadata, "true");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::object;
    use crate::contact::Met;
    use ferro_api::discovery::{DiscoveryType, TrustMode};
    use ferro_api::names::annotations;
    use ferro_core::auth::Pin;
    use ferro_core::discovery::Address;
    use ferro_core::identity::{SigningIdentity, new_private_key};
    use ring::rand::SystemRandom;

    fn met() -> (Address, Met) {
        let key = new_private_key(&SystemRandom::new()).unwrap();
        let signer = SigningIdentity::from_pkcs8("milan".parse().unwrap(), key.as_ref()).unwrap();
        let address = Address { auth_url: "https://192.0.2.7:30443".parse().unwrap(), pin: None };
        let identity = signer.identity().clone();
        (address, Met { identity, pin: Pin([1; 32]), trust: TrustMode::Untrusted, api_server_url: None })
    }

    #[test]
    fn an_object_says_what_was_proved() {
        let (address, met) = met();
        let made = object(DiscoveryType::Lan, &address, &met, None);
        let spec = &made.spec;
        assert!(made.metadata.name.as_deref().unwrap().starts_with("milan-"));
        assert_eq!(spec.cluster_identity.as_ref().unwrap().cluster_id, met.identity.id().to_string());
        assert_eq!(spec.auth_pin.as_deref(), Some(met.pin.to_string().as_str()));
        assert_eq!((spec.discovery_type(), spec.trust_mode()), (DiscoveryType::Lan, TrustMode::Untrusted));
        assert_eq!((spec.join, annotations::AUTO_JOINED.of(&made.metadata)), (None, None));
    }

    #[test]
    fn a_search_domain_decides_about_joining_for_good() {
        let (address, met) = met();
        for (join, wanted) in [(true, Some(true)), (false, None)] {
            let made = object(DiscoveryType::Wan, &address, &met, Some(join));
            assert_eq!(made.spec.join, wanted);
            assert!(annotations::AUTO_JOINED.of(&made.metadata).is_some());
        }
    }
}
