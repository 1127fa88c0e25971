//! The other clusters that a cluster knows: finding the one that a person means, changing it, and showing it.

use anyhow::{Context as _, bail};
use clap::Args;
use ferro_api::discovery::ForeignCluster;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use crate::kube_errors::{Explain as _, found};
use crate::output::{self, Format, View};
use crate::table;

/// Who writes, as the API server notes it down.
const MANAGER: &str = "ferro";
/// How much a word must be like another to be meant.
const ALIKE: f64 = 0.75;
/// How many names an error lists.
const LISTED: usize = 10;

/// How a command prints the peer that it was about.
#[derive(Args)]
pub(crate) struct Show {
    /// Print the resulting object, or a table of it
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<View>,
}

impl Show {
    /// Prints the peer as asked for, or else a sentence.
    pub(crate) fn result(&self, peer: &ForeignCluster, sentence: &str) -> anyhow::Result<()> {
        match self.output {
            None => output::line(&output::plain(sentence)),
            Some(View::Json) => output::print_value(&presentable(peer), Format::Json),
            Some(View::Yaml) => output::print_value(&presentable(peer), Format::Yaml),
            Some(View::Wide) => {
                output::print(table::peers(std::slice::from_ref(peer), true, Timestamp::now()).as_bytes())
            }
        }
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

/// The object for people: without the notes of the API server on who wrote which field.
pub(crate) fn presentable(peer: &ForeignCluster) -> ForeignCluster {
    let mut peer = peer.clone();
    peer.metadata.managed_fields = None;
    peer
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

/// The peer that a person means: by the name of the object, the identifier or name of the cluster, or the beginning of
/// one of them.
pub(crate) fn find<'a>(known: &'a [ForeignCluster], wanted: &str) -> anyhow::Result<&'a ForeignCluster> {
    let by_name = |peer: &&ForeignCluster| peer.name_any() == wanted;
    let by_cluster =
        |peer: &&ForeignCluster| cluster_id(peer) == Some(wanted) || cluster_name(peer) == Some(wanted);
    let by_beginning = |peer: &&ForeignCluster| {
        words(peer).iter().any(|word| !wanted.is_empty() && word.starts_with(wanted))
    };
    let matching = |is: &dyn Fn(&&'a ForeignCluster) -> bool| known.iter().filter(is).collect::<Vec<_>>();
    for found in [matching(&by_name), matching(&by_cluster), matching(&by_beginning)] {
        match found.as_slice() {
            [] => {}
            [one] => return Ok(one),
            several => bail!(
                "{wanted} may be one of these: {}; say more of the name",
                listed(several.iter().copied())
            ),
        }
    }
    bail!("{}", unknown(known, wanted))
}

/// The only peer there is, for whoever does not name one.
pub(crate) fn the_only(known: &[ForeignCluster]) -> anyhow::Result<&ForeignCluster> {
    match known {
        [] => bail!("{}", nobody()),
        [one] => Ok(one),
        several => bail!("there are several peers; name one of them: {}", listed(several)),
    }
}

/// What to do when no other cluster is known.
pub(crate) fn nobody() -> &'static str {
    "this cluster knows no other cluster yet; run 'ferro token' on the other one and here what it prints, or 'ferro add \
     ADDRESS'; clusters that announce themselves on the local network are found without that"
}

fn unknown(known: &[ForeignCluster], wanted: &str) -> String {
    if known.is_empty() {
        return format!("there is no peer {wanted}: {}", nobody());
    }
    let all = known.iter().flat_map(words).map(|word| (strsim::jaro_winkler(wanted, word), word));
    let best = all.filter(|(likeness, _)| *likeness >= ALIKE).max_by(|one, other| one.0.total_cmp(&other.0));
    let hint = best.map_or_else(|| ".".to_owned(), |(_, word)| format!("; did you mean {word}?"));
    format!("there is no peer {wanted}{hint} These are known: {}", listed(known))
}

/// Everything by which a peer may be called.
fn words(peer: &ForeignCluster) -> Vec<&str> {
    [peer.metadata.name.as_deref(), cluster_name(peer), cluster_id(peer)].into_iter().flatten().collect()
}

fn listed<'a>(peers: impl IntoIterator<Item = &'a ForeignCluster>) -> String {
    let names: Vec<_> = peers.into_iter().map(ForeignCluster::name_any).collect();
    let rest = names.len().saturating_sub(LISTED);
    let shown = names.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if rest == 0 { shown } else { format!("{shown} and {rest} more") }
}

/// The peer that a person means, or the only one where none is named.
pub(crate) async fn meant(client: &Client, wanted: Option<&str>) -> anyhow::Result<ForeignCluster> {
    let known = list(client).await?;
    wanted.map_or_else(|| the_only(&known), |wanted| find(&known, wanted)).cloned()
}

/// Applies a merge patch, and gives back what came of it.
pub(crate) async fn change(client: &Client, name: &str, patch: &Value) -> anyhow::Result<ForeignCluster> {
    let how = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    api(client).patch(name, &how, &Patch::Merge(patch)).await.explain(|| format!("change the peer {name}"))
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
