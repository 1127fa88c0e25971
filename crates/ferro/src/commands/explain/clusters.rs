//! One cluster and one namespace: whether the selector means it, why, and what to do about what is missing.

use ferro_api::discovery::{ForeignCluster, PeeringState};
use ferro_api::names::labels;
use ferro_api::offloading::{NamespaceOffloading, condition};
use ferro_core::selector::Selector;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use serde::Serialize;

use super::use_of;
use crate::offloading::{self, Seat};
use crate::{output, peers, table};

/// One cluster.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfCluster {
    cluster: String,
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    cluster_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    pub(super) selection: Selection,
    /// How the namespace fares there, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// Why it is so, and what to do.
    why: Vec<String>,
}

/// Whether a namespace means a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Selection {
    /// Its node matches the selector.
    Selected,
    /// Its node does not.
    NotSelected,
    /// There is no node to select.
    NoNode,
    /// The namespace selects none, because it is not offloaded.
    NotOffloaded,
}

/// All clusters that are known: those with a node by what the selector makes of that, then the others.
pub(super) fn all(
    offloading: Option<&NamespaceOffloading>,
    nodes: &[Node],
    peers: &[ForeignCluster],
) -> Vec<OfCluster> {
    let mut all: Vec<_> = peers.iter().map(|peer| one(offloading, nodes, peer)).collect();
    all.sort_by_key(|cluster| cluster.selection == Selection::NoNode);
    all
}

/// The clusters that an offloading speaks of, and what it says of each.
pub(super) fn told(offloading: Option<&NamespaceOffloading>, names: &peers::Names) -> Vec<OfCluster> {
    let status = offloading.and_then(|offloading| offloading.status.as_ref());
    let all = status.iter().flat_map(|status| &status.remote_namespaces_conditions);
    let mut all: Vec<_> = all
        .filter_map(|(id, conditions)| {
            let name = names.get(id).unwrap_or(id);
            let seat = offloading::seat_on(offloading?, id, name)?;
            let is_required =
                |one: &Condition| one.type_ == condition::OFFLOADING_REQUIRED && one.status == "True";
            let is_selected = conditions.iter().any(is_required);
            let why =
                if seat.is_ready { use_of(offloading?.spec.pod_offloading_strategy()) } else { seat.message };
            Some(OfCluster {
                cluster: name.clone(),
                cluster_id: Some(id.clone()),
                node: None,
                selection: if is_selected { Selection::Selected } else { Selection::NotSelected },
                state: Some(seat.state.to_owned()),
                why: vec![why.to_owned()],
            })
        })
        .collect();
    all.sort_by(|one, other| one.cluster.cmp(&other.cluster));
    all
}

fn one(offloading: Option<&NamespaceOffloading>, nodes: &[Node], peer: &ForeignCluster) -> OfCluster {
    let id = peers::cluster_id(peer);
    let node = nodes.iter().find(|node| id.is_some() && labels::REMOTE_ID.of(&node.metadata) == id);
    let name = peer.name_any();
    let seat = offloading.zip(id).and_then(|(offloading, id)| offloading::seat_on(offloading, id, &name));
    let (selection, why) = match (offloading, node) {
        (_, None) => (Selection::NoNode, vec![unused(peer)]),
        (None, Some(_)) => (Selection::NotOffloaded, Vec::new()),
        (Some(offloading), Some(node)) => judged(offloading, node, seat.as_ref()),
    };
    let left = seat.as_ref().filter(|_| selection != Selection::Selected).map(|seat| seat.message.to_owned());
    OfCluster {
        cluster_id: id.map(str::to_owned),
        node: node.map(Node::name_any),
        selection,
        state: seat.as_ref().map(|seat| seat.state.to_owned()),
        why: why.into_iter().chain(left).filter(|why| !why.is_empty()).collect(),
        cluster: name,
    }
}

/// What the selector makes of a node, and what became of it.
fn judged(
    offloading: &NamespaceOffloading,
    node: &Node,
    seat: Option<&Seat<'_>>,
) -> (Selection, Vec<String>) {
    let selector = match Selector::parse(&offloading.spec.cluster_selector()) {
        Ok(selector) => selector,
        Err(error) => return (Selection::NotSelected, vec![format!("the selector is wrong: {error}")]),
    };
    let name = node.name_any();
    if !selector.matches(&name, node.labels()) {
        return (Selection::NotSelected, selector.explain(&name, node.labels()));
    }
    let why = match seat {
        Some(seat) if seat.is_ready => use_of(offloading.spec.pod_offloading_strategy()).to_owned(),
        Some(seat) => seat.message.to_owned(),
        None => "the controller has not looked at it yet; is it running? See 'ferro status'".into(),
    };
    (Selection::Selected, vec![why])
}

/// Why a peer has no node, and how it gets one.
fn unused(peer: &ForeignCluster) -> String {
    let name = peer.name_any();
    let outgoing = peer.status.as_ref().and_then(|status| status.outgoing.as_ref());
    match outgoing.map_or(PeeringState::None, |outgoing| outgoing.state) {
        PeeringState::None => format!("this cluster does not use {name}; to do so: ferro peer {name}"),
        state => {
            let said =
                outgoing.and_then(|outgoing| outgoing.message.as_deref()).unwrap_or("see 'ferro peers'");
            format!("the peering is {}: {said}", table::state(state))
        }
    }
}

impl OfCluster {
    /// The rows of a table: one for each reason.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let nothing = || table::NOTHING.to_owned();
        let selected = match self.selection {
            Selection::Selected => "yes",
            Selection::NotSelected => "no",
            Selection::NoNode | Selection::NotOffloaded => table::NOTHING,
        };
        let first = [
            self.cluster.clone(),
            self.node.clone().unwrap_or_else(nothing),
            selected.to_owned(),
            self.state.clone().unwrap_or_else(nothing),
        ];
        let reasons = if self.why.is_empty() { vec![nothing()] } else { self.why.clone() };
        let row = |(number, why): (usize, String)| {
            let cells = if number == 0 { first.clone() } else { Default::default() };
            cells.into_iter().chain([why]).map(|cell| output::plain(&cell)).collect()
        };
        reasons.into_iter().enumerate().map(row).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Selection, all, told};
    use crate::offloading::tests::{MILAN, TURIN, half, offloading};
    use crate::peers::tests::peer;
    use ferro_api::discovery::ForeignCluster;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    const OSLO: &str = "0bbbbbbb-4c1b-802c-a5f1-5ef6f39c0490";
    const PARIS: &str = "0ccccccc-4c1b-802c-a5f1-5ef6f39c0490";

    /// Three peers with nodes, and one that is not used.
    pub(crate) fn peers() -> Vec<ForeignCluster> {
        let peer =
            |name, id, status: Value| peer(name, &json!({"clusterIdentity": {"clusterID": id}}), &status);
        vec![
            peer("milan", MILAN, json!({"outgoing": {"state": "Established"}})),
            peer("paris", PARIS, json!({})),
            peer("turin", TURIN, json!({"outgoing": {"state": "Established"}})),
            peer("oslo", OSLO, json!({"outgoing": {"state": "Established"}})),
        ]
    }

    pub(crate) fn nodes() -> Vec<Node> {
        let node = |name: &str, id: &str, region: &str| {
            let labels =
                json!({"liqo.io/type": "virtual-node", "liqo.io/remoteID": id, "liqo.io/region": region});
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
        };
        vec![node("liqo-milan", MILAN, "eu"), node("liqo-oslo", OSLO, "no"), node("liqo-turin", TURIN, "eu")]
    }

    #[test]
    fn each_cluster_is_told_apart_by_what_the_selector_makes_of_its_node() {
        let region = json!({"key": "liqo.io/region", "operator": "In", "values": ["eu"]});
        let gpu = json!({"key": "gpu", "operator": "Exists"});
        let terms = json!([{"matchExpressions": [region]}, {"matchExpressions": [gpu]}]);
        let shop = offloading("shop", &json!({"clusterSelector": {"nodeSelectorTerms": terms}}), &half());
        let all = all(Some(&shop), &nodes(), &peers());
        let told: Vec<_> =
            all.iter().map(|one| (one.cluster.as_str(), one.selection, one.why.len())).collect();
        assert_eq!(
            told,
            [
                ("milan", Selection::Selected, 1),
                ("turin", Selection::Selected, 1),
                ("oslo", Selection::NotSelected, 2),
                ("paris", Selection::NoNode, 1),
            ]
        );
        assert_eq!(all[0].why, ["milan has a namespace of that name"]);
        assert_eq!(all[1].why, ["pods may run there and here"]);
        assert_eq!(all[3].why, ["this cluster does not use paris; to do so: ferro peer paris"]);
        let rows = all[2].rows();
        assert_eq!((rows.len(), rows[0][0].as_str(), rows[1][0].as_str()), (2, "oslo", ""));
    }

    #[test]
    fn who_may_not_see_the_clusters_is_told_what_the_offloading_says() {
        let shop = offloading("shop", &json!({}), &half());
        let names = [(TURIN.to_owned(), "turin".to_owned())].into();
        let all = told(Some(&shop), &names);
        let turin = all.iter().find(|one| one.cluster == "turin").unwrap();
        assert_eq!(
            (turin.selection, turin.why[0].as_str()),
            (Selection::Selected, "pods may run there and here")
        );
        let milan = all.iter().find(|one| one.cluster == MILAN).unwrap();
        assert_eq!(milan.why, ["milan has a namespace of that name"]);
        assert!(told(None, &names).is_empty());
    }

    #[test]
    fn a_cluster_that_is_left_says_both_why_and_how_far_it_is() {
        let status = json!({"remoteNamespacesConditions": {(OSLO): [
            {"type": "OffloadingRequired", "status": "False", "reason": "NotSelected", "message": "",
                "lastTransitionTime": "2030-01-01T00:00:00Z"},
            {"type": "Ready", "status": "False", "reason": "Terminating", "message": "it is being removed from oslo",
                "lastTransitionTime": "2030-01-01T00:00:00Z"},
        ]}});
        let region = json!({"key": "liqo.io/region", "operator": "In", "values": ["eu"]});
        let spec = json!({"clusterSelector": {"nodeSelectorTerms": [{"matchExpressions": [region]}]}});
        let all = all(Some(&offloading("shop", &spec, &status)), &nodes(), &peers());
        let oslo = all.iter().find(|one| one.cluster == "oslo").unwrap();
        assert_eq!((oslo.state.as_deref(), oslo.why.len()), (Some("Terminating"), 2));
    }
}
