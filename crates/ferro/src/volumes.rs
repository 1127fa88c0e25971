//! The volumes of this cluster that stand for claims on others: what is in them goes with the namespaces over there.

use ferro_api::names::{finalizers, labels};
use ferro_core::claims::Handle;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::calling;
use crate::kube_errors::{Explain as _, found};

/// All of them.
async fn all(client: &Client) -> anyhow::Result<Vec<PersistentVolume>> {
    let ours = ListParams::default().labels(labels::REMOTE_ID.key());
    let listed = found(Api::<PersistentVolume>::all(client.clone()).list(&ours).await);
    let listed = listed.explain(|| "list the volumes that lie on other clusters".into())?;
    let listed = listed.map(|listed| listed.items).unwrap_or_default();
    Ok(listed.into_iter().filter(|volume| Handle::of(volume).is_some()).collect())
}

/// What is lost when a peer is not used any more.
pub(crate) async fn lost_with_peer(client: &Client, cluster_id: &str) -> anyhow::Result<Option<String>> {
    let volumes = all(client).await?;
    Ok(warning(volumes.iter().filter(|volume| labels::REMOTE_ID.of(&volume.metadata) == Some(cluster_id))))
}

/// What is lost when a namespace uses no other cluster any more.
pub(crate) async fn lost_with_namespace(client: &Client, namespace: &str) -> anyhow::Result<Option<String>> {
    let volumes = all(client).await?;
    Ok(warning(volumes.iter().filter(|volume| claim(volume).is_some_and(|(within, _)| within == namespace))))
}

/// Namespace and name of the claim that a volume is for.
fn claim(volume: &PersistentVolume) -> Option<(&str, &str)> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some((claim.namespace.as_deref()?, claim.name.as_deref()?))
}

fn warning<'a>(volumes: impl Iterator<Item = &'a PersistentVolume>) -> Option<String> {
    let told = |volume: &PersistentVolume| {
        let (namespace, name) = claim(volume)?;
        let size = volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?;
        Some(format!("{namespace}/{name} ({})", size.0))
    };
    let names: Vec<String> = volumes.filter_map(told).collect();
    (!names.is_empty()).then(|| {
        format!(
            "These claims have their data over there, and lose it: {}. Copy what is still needed first.",
            calling::cut(names.iter().map(String::as_str))
        )
    })
}

/// Lets go of them all: nobody will be there to do so.
pub(crate) async fn release(client: &Client) -> anyhow::Result<()> {
    let api = Api::<PersistentVolume>::all(client.clone());
    for volume in all(client).await? {
        let name = volume.name_any();
        let others: Vec<&String> =
            volume.finalizers().iter().filter(|held| *held != finalizers::VOLUME).collect();
        let patch = json!({"metadata": {"resourceVersion": volume.resource_version(), "finalizers": others}});
        let patched = api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        found(patched).explain(|| format!("let go of the volume {name}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(namespace: &str, name: &str) -> PersistentVolume {
        serde_json::from_value(json!({"spec": {"capacity": {"storage": "5Gi"},
            "claimRef": {"namespace": namespace, "name": name}}}))
        .unwrap()
    }

    #[test]
    fn it_is_said_which_claims_lose_their_data() {
        let said = warning([volume("shop", "cart-0"), volume("shop", "cart-1")].iter()).unwrap();
        assert!(said.contains("shop/cart-0 (5Gi)") && said.contains("shop/cart-1 (5Gi)"), "{said}");
        assert_eq!(warning([].iter()), None);
    }
}
