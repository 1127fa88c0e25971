//! What people are shown of an offloading: its phase, how each cluster fares, and what to do about it.

use std::collections::BTreeMap;

use ferro_api::offloading::{NamespaceOffloadingStatus, OffloadingPhase, condition as type_of};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::cluster::Cluster;
use super::index::Offloading;
use super::judgement::{Fate, Outlook, PODS_GO};
use super::{Notice, OFFLOADING, Write};
use crate::peering::condition;
use crate::policy::Reason;
use crate::replication::difference;

/// How a namespace fares, by the identifier of the cluster, with the name that people have for it.
pub(super) type Outlooks = BTreeMap<String, (String, Outlook)>;

/// So many clusters are named in one sentence.
const MOST_NAMED: usize = 3;

/// What is to be shown.
pub(super) struct Report<'a> {
    namespace: &'a str,
    offloading: &'a Offloading,
    outlooks: &'a Outlooks,
    /// None until every cluster has answered.
    phase: Option<OffloadingPhase>,
    reason: Reason,
}

impl<'a> Report<'a> {
    /// Of an offloading that is in force.
    pub(super) fn of_use(namespace: &'a str, offloading: &'a Offloading, outlooks: &'a Outlooks) -> Self {
        let (phase, reason) = match &offloading.selector {
            Err(why) => {
                let text = format!("spec.clusterSelector cannot be understood: {why}");
                (Some(OffloadingPhase::NoClusterSelected), Reason::new("SelectorInvalid", text))
            }
            Ok(_) => summary(namespace, outlooks),
        };
        Self { namespace, offloading, outlooks, phase, reason }
    }

    /// Of one that goes, and waits for these clusters.
    pub(super) fn of_end(
        namespace: &'a str,
        offloading: &'a Offloading,
        outlooks: &'a Outlooks,
        awaited: &[(&str, &Cluster)],
    ) -> Self {
        let reason = ending(namespace, awaited);
        Self { namespace, offloading, outlooks, phase: Some(OffloadingPhase::Terminating), reason }
    }

    /// The write that brings the status up to date, if it is not.
    pub(super) fn write(&self, now: Timestamp) -> Option<Write> {
        let before = self.offloading.object.status.clone().unwrap_or_default();
        let is_ready = self.phase == Some(OffloadingPhase::Ready);
        let after = NamespaceOffloadingStatus {
            offloading_phase: self.phase,
            remote_namespaces_conditions: self.clusters(&before, now),
            observed_generation: self.offloading.object.metadata.generation,
            conditions: condition(&before.conditions, type_of::READY, is_ready, &self.reason, now),
        };
        let patch = difference(&json!({"status": before}), &json!({"status": after}))?;
        Some(Write::Show(self.namespace.to_owned(), patch, self.notice(&before.conditions)))
    }

    fn clusters(
        &self,
        before: &NamespaceOffloadingStatus,
        now: Timestamp,
    ) -> BTreeMap<String, Vec<Condition>> {
        let conditions = |(id, (_, outlook)): (&String, &(String, Outlook))| {
            let before = before.remote_namespaces_conditions.get(id).map(Vec::as_slice).unwrap_or_default();
            (id.clone(), outlook.conditions(before, now))
        };
        self.outlooks.iter().map(conditions).collect()
    }

    /// For each other reason, except for beginnings with nothing to tell.
    fn notice(&self, before: &[Condition]) -> Option<Notice> {
        let known = before.iter().find(|condition| condition.type_ == type_of::READY);
        if known.is_some_and(|known| known.reason == self.reason.word) || self.reason.word == WAITS {
            return None;
        }
        let warning = match self.phase {
            Some(OffloadingPhase::SomeFailed | OffloadingPhase::AllFailed) => true,
            Some(OffloadingPhase::NoClusterSelected) => self.offloading.selector.is_err(),
            Some(OffloadingPhase::Ready | OffloadingPhase::Terminating) | None => false,
        };
        Some(Notice { warning, reason: self.reason.word.to_owned(), note: self.reason.text.clone() })
    }
}

impl Outlook {
    fn conditions(&self, before: &[Condition], now: Timestamp) -> Vec<Condition> {
        let (is_ready, reason) = match &self.fate {
            Fate::Created(reason) => (true, reason),
            Fate::Awaited(reason) | Fate::Failed(reason) | Fate::Going(reason) => (false, reason),
        };
        let required = if self.required {
            Reason::new("Selected", "spec.clusterSelector matches the node of this cluster")
        } else {
            Reason::new("NotSelected", "the namespace is not to be on this cluster any more")
        };
        let conditions = condition(before, type_of::READY, is_ready, reason, now);
        condition(&conditions, type_of::OFFLOADING_REQUIRED, self.required, &required, now)
    }
}

const WAITS: &str = "WaitsForPeers";

/// What all clusters together come to.
fn summary(namespace: &str, outlooks: &Outlooks) -> (Option<OffloadingPhase>, Reason) {
    let required: Vec<_> = outlooks.values().filter(|(_, outlook)| outlook.required).collect();
    let of = |pick: fn(&Fate) -> Option<&Reason>| -> Vec<(&str, &Reason)> {
        let picked =
            required.iter().filter_map(|(name, outlook)| Some((name.as_str(), pick(&outlook.fate)?)));
        picked.collect()
    };
    let failed = of(|fate| if let Fate::Failed(reason) = fate { Some(reason) } else { None });
    let awaited = of(|fate| if let Fate::Awaited(reason) = fate { Some(reason) } else { None });
    if required.is_empty() {
        (Some(OffloadingPhase::NoClusterSelected), nothing_selected(namespace))
    } else if let Some((_, first)) = failed.first() {
        let phase = if failed.len() == required.len() {
            OffloadingPhase::AllFailed
        } else {
            OffloadingPhase::SomeFailed
        };
        (Some(phase), Reason::new(first.word, told(&failed)))
    } else if awaited.is_empty() {
        let text = format!("the namespace exists on all selected clusters ({})", required.len());
        (Some(OffloadingPhase::Ready), Reason::new("Ready", text))
    } else {
        (None, Reason::new(WAITS, told(&awaited)))
    }
}

fn nothing_selected(namespace: &str) -> Reason {
    let text = format!(
        "no cluster whose resources are in use matches spec.clusterSelector; to see why, run: ferro explain {namespace}"
    );
    Reason::new("NoClusterSelected", text)
}

fn told(reasons: &[(&str, &Reason)]) -> String {
    let sentences =
        reasons.iter().take(MOST_NAMED).map(|(name, reason)| format!("on {name}: {}", reason.text));
    let more = reasons.len().saturating_sub(MOST_NAMED);
    let more = (more > 0).then(|| format!("and so on {more} more"));
    sentences.chain(more).collect::<Vec<_>>().join("; ")
}

fn ending(namespace: &str, awaited: &[(&str, &Cluster)]) -> Reason {
    let names: Vec<&str> = awaited.iter().take(MOST_NAMED).map(|(id, cluster)| cluster.name(id)).collect();
    let Some(first) = names.first() else {
        return Reason::new("NothingLeft", "nothing is left on other clusters");
    };
    let more = awaited.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let is_silent = awaited.iter().any(|(_, cluster)| cluster.is_silent());
    let is_occupied = awaited.iter().any(|(_, cluster)| cluster.is_occupied(namespace));
    let (word, then) = if is_silent {
        ("PeerUnreachable", ", and not all of them answer")
    } else if is_occupied {
        (PODS_GO, ", which happens when its pods there are gone")
    } else {
        ("RemoteNamespacesGo", "")
    };
    let text = format!(
        "waits until the namespace is removed on {}{more}{then}; if a cluster is gone for good, end the peering (ferro \
         unpeer {first} --force), or leave behind what is there: kubectl annotate namespaceoffloading {OFFLOADING} \
         --namespace {namespace} liqo.io/force=true",
        names.join(", ")
    );
    Reason::new(word, text)
}
