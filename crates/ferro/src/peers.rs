//! The other clusters that a cluster knows: finding the one that a person means, changing it, and showing it.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use ferro_api::discovery::ForeignCluster;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use crate::calling::{self, Called};
use crate::kube_errors::{Explain as _, found};
use crate::output::Show;
use crate::table;

/// Who writes, as the API server notes it down.
pub(crate) const MANAGER: &str = "ferro";

impl Show {
    /// Prints the peer as asked for, or else a sentence.
    pub(crate) fn result(&self, peer: &ForeignCluster, sentence: &str) -> anyhow::Result<()> {
        self.object(peer, || table::peers(std::slice::from_ref(peer), true, Timestamp::now()), sentence)
    }
}

/// Access to the objects that stand for other clusters.
pub(crate) fn api(client: &Client) -> Api<ForeignCluster> {
    Api::all(client.clone())
}

/// All other clusters that are known, by name.
pub(crate) async fn list(client: &Client) -> anyhow::Result<Vec<ForeignCluster>> {
    let peers = found(api(client).list(&ListParams::default()).await).explain(|| "list the peers".into())?;
    let mut peers = peers
        .context("this cluster does not know what a peer is; install Ferrofluid with 'ferro install --wait'")?
        .items;
    peers.sort_by_key(ForeignCluster::name_any);
    Ok(peers)
}

/// What each peer is called, by the identifier of its cluster.
pub(crate) type Names = BTreeMap<String, String>;

/// What these peers are called.
pub(crate) fn names<'a>(peers: impl IntoIterator<Item = &'a ForeignCluster>) -> Names {
    let named = |peer: &ForeignCluster| Some((cluster_id(peer)?.to_owned(), peer.name_any()));
    peers.into_iter().filter_map(named).collect()
}

/// What all peers are called. Whoever may not list them sees the identifiers of their clusters instead.
pub(crate) async fn known_names(client: &Client) -> anyhow::Result<Names> {
    match api(client).list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Names::default()),
        peers => Ok(names(found(peers).explain(|| "list the peers".into())?.iter().flatten())),
    }
}

/// The name of the object.
pub(crate) fn name(peer: &ForeignCluster) -> String {
    peer.name_any()
}

/// The identifier of the cluster, once it is known.
pub(crate) fn cluster_id(peer: &ForeignCluster) -> Option<&str> {
    peer.spec.cluster_identity.as_ref().map(|identity| identity.cluster_id.as_str())
}

fn cluster_name(peer: &ForeignCluster) -> Option<&str> {
    peer.spec.cluster_identity.as_ref()?.cluster_name.as_deref()
}

/// A condition of the peer.
pub(crate) fn condition<'a>(peer: &'a ForeignCluster, type_: &str) -> Option<&'a Condition> {
    peer.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}

impl Called for ForeignCluster {
    const WHAT: &str = "peer";

    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn others(&self) -> Vec<&str> {
        [cluster_name(self), cluster_id(self)].into_iter().flatten().collect()
    }

    fn none() -> &'static str {
        nobody()
    }
}

/// The peer that a person means.
pub(crate) fn find<'a>(known: &'a [ForeignCluster], wanted: &str) -> anyhow::Result<&'a ForeignCluster> {
    calling::find(known, wanted)
}

/// The only peer there is, for whoever does not name one.
pub(crate) fn the_only(known: &[ForeignCluster]) -> anyhow::Result<&ForeignCluster> {
    match known {
        [] => bail!("{}", nobody()),
        [one] => Ok(one),
        several => bail!("there are several peers; name one of them: {}", calling::listed(several)),
    }
}

/// What to do when no other cluster is known.
pub(crate) fn nobody() -> &'static str {
    "this cluster knows no other cluster yet; run 'ferro token' on the other one and here what it prints, or 'ferro add \
     ADDRESS'; clusters that announce themselves on the local network are found without that"
}

/// The peer that a person means, or the only one where none is named.
pub(crate) async fn meant(client: &Client, wanted: Option<&str>) -> anyhow::Result<ForeignCluster> {
    let known = list(client).await?;
    wanted.map_or_else(|| the_only(&known), |wanted| find(&known, wanted)).cloned()
}

/// Applies a merge patch, and gives back what came of it.
pub(crate) async fn change(client: &Client, name: &str, patch: &Value) -> anyhow::Result<ForeignCluster> {
    api(client).patch(name, &how(), &Patch::Merge(patch)).await.explain(|| format!("change the peer {name}"))
}

/// How a person changes a peer.
pub(crate) fn how() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{find, the_only};
    use ferro_api::discovery::ForeignCluster;
    use serde_json::{Value, json};

    /// A peer with this spec and status.
    pub(crate) fn peer(name: &str, spec: &Value, status: &Value) -> ForeignCluster {
        serde_json::from_value(json!({
            "apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ForeignCluster",
            "metadata": {"name": name, "creationTimestamp": "2030-01-01T00:00:00Z"},
            "spec": spec, "status": status,
        }))
        .unwrap()
    }

    fn known() -> Vec<ForeignCluster> {
        let named = |object, id, name| {
            let identity = json!({"clusterIdentity": {"clusterID": id, "clusterName": name}});
            peer(object, &identity, &json!({}))
        };
        vec![
            named("milan-9b173a94ba", "d14e610e-4c1b-802c-a5f1-5ef6f39c0490", "milan"),
            named("milan-edge-0123456789", "d14e7000-4c1b-802c-a5f1-5ef6f39c0490", "edge"),
            named("rome", "0aaaaaaa-4c1b-802c-a5f1-5ef6f39c0490", "home"),
            named("home", "0bbbbbbb-4c1b-802c-a5f1-5ef6f39c0490", "away"),
        ]
    }

    fn found(wanted: &str) -> String {
        find(&known(), wanted).map_or_else(|error| error.to_string(), super::name)
    }

    #[test]
    fn a_peer_is_found_by_any_of_its_names_and_by_the_beginning_of_one() {
        for (wanted, name) in [
            ("rome", "rome"),
            ("milan", "milan-9b173a94ba"),
            ("d14e610e-4c1b-802c-a5f1-5ef6f39c0490", "milan-9b173a94ba"),
            ("d14e7", "milan-edge-0123456789"),
            ("milan-e", "milan-edge-0123456789"),
            ("ro", "rome"),
        ] {
            assert_eq!(found(wanted), name, "{wanted}");
        }
    }

    #[test]
    fn the_name_of_the_object_comes_before_what_a_cluster_calls_itself() {
        assert_eq!(found("home"), "home");
    }

    #[test]
    fn what_may_mean_several_is_told_which() {
        assert_eq!(
            found("mil"),
            "mil may be one of these: milan-9b173a94ba, milan-edge-0123456789; say more of the name"
        );
        assert!(found("d14e").starts_with("d14e may be one of these: "));
    }

    #[test]
    fn an_unknown_name_is_told_the_one_that_was_perhaps_meant() {
        let all = "These are known: milan-9b173a94ba, milan-edge-0123456789, rome, home";
        assert_eq!(found("mialn"), format!("there is no peer mialn; did you mean milan? {all}"));
        assert_eq!(found("xyz"), format!("there is no peer xyz. {all}"));
        assert_eq!(found(""), format!("there is no peer . {all}"));
        let nobody = find(&[], "milan").unwrap_err().to_string();
        assert!(nobody.contains("'ferro token'") && nobody.contains("'ferro add ADDRESS'"), "{nobody}");
    }

    #[test]
    fn only_where_there_is_one_it_need_not_be_named() {
        assert_eq!(super::name(the_only(&known()[..1]).unwrap()), "milan-9b173a94ba");
        assert!(the_only(&known()).unwrap_err().to_string().contains("rome"));
        assert!(the_only(&[]).unwrap_err().to_string().contains("'ferro token'"));
    }
}
