//! What is shown: to the consumer in the status of its map, to everybody concerned in that of the Tenant.
//!
//! A consumer decides how many entries its map has, and with that how much is written here: beyond a number of refusals
//! one word has to do for each.

use std::collections::{BTreeMap, BTreeSet};

use ferro_api::common::ResourceQuota;
use ferro_api::tenancy::condition::READY;
use ferro_api::tenancy::{TenantNamespace, TenantNamespacePhase, TenantStatus};
use ferro_api::virtualkubelet::{CurrentMapping, MappingPhase, NamespaceMap, NamespaceMapStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use serde_json::{Value, json};

use super::delegation::Delegated;
use super::furniture::{self, Kind, NAME, bad_templates};
use super::mapping::{Entry, Mapping, Verdict, name_of, origin_of};
use super::plan::Room;
use super::terms::as_offered;
use super::{Map, Notice, Snapshot, Terms, Write};
use crate::names::is_dns_label;
use crate::peering::condition;
use crate::policy::Reason;
use crate::replication::difference;
use crate::resources::ResourceMap;

/// So many refusals are explained in full, and listed on the Tenant.
const MOST_EXPLAINED: usize = 256;
/// As much as a message may have.
const MOST_TEXT: usize = 1000;

/// Everything that is shown.
pub(super) struct Report<'a> {
    pub(super) snapshot: &'a Snapshot<'a>,
    pub(super) terms: &'a Terms,
    pub(super) mapping: &'a Mapping<'a>,
    pub(super) rooms: &'a BTreeMap<String, Room>,
    pub(super) delegated: &'a [Delegated<'a>],
}

/// How far a namespace has come, with a word on why.
enum State {
    Accepted(Option<String>),
    Failed(String),
    Terminating(String),
    /// It is being made: what was said before still holds.
    Underway,
}

impl Report<'_> {
    pub(super) fn shown(&self) -> (Vec<Write>, Vec<Notice>) {
        let states: Vec<State> = self.mapping.entries.iter().map(|entry| self.state(entry)).collect();
        let reason = self.reason(&states);
        let map = match self.snapshot.map {
            Map::Present(map) => self.map(map, &states, &reason).map(Write::ShowMap),
            Map::Absent | Map::Unusable => None,
        };
        let (tenant, notice) = self.tenant(&states, &reason);
        let delegations = self.delegated.iter().filter_map(|delegated| self.delegation(delegated));
        (map.into_iter().chain(tenant).chain(delegations).collect(), notice.into_iter().collect())
    }

    fn state(&self, entry: &Entry<'_>) -> State {
        let trouble = self.snapshot.troubles.get(entry.name).cloned();
        let is_complete = self.rooms.get(entry.name).is_some_and(|room| room.is_complete);
        match (&entry.verdict, trouble) {
            (Verdict::Keep(_), trouble) if is_complete => State::Accepted(trouble),
            (Verdict::Keep(_) | Verdict::Create, Some(trouble)) => State::Failed(trouble),
            (Verdict::Keep(_) | Verdict::Create, None) => State::Underway,
            (Verdict::Wait, _) => {
                let text = format!(
                    "an earlier namespace {} is still being removed; it is made anew then",
                    entry.name
                );
                State::Terminating(text)
            }
            (Verdict::Refuse(refusal), _) => State::Failed(refusal.to_string()),
        }
    }

    // ---- the map ----

    fn map(&self, map: &NamespaceMap, states: &[State], reason: &(bool, Reason)) -> Option<Value> {
        let before = map.status.clone().unwrap_or_default();
        let (is_ready, reason) = reason;
        let after = NamespaceMapStatus {
            current_mapping: self.current_mapping(&before, states),
            observed_generation: map.metadata.generation,
            conditions: condition(&before.conditions, READY, *is_ready, reason, self.snapshot.now),
        };
        changed(&before, &after)
    }

    fn current_mapping(
        &self,
        before: &NamespaceMapStatus,
        states: &[State],
    ) -> BTreeMap<String, CurrentMapping> {
        let mut mapping = BTreeMap::new();
        for namespace in &self.mapping.leftovers {
            // Nobody but us writes it, and who changed it all the same is not repeated.
            let Some(origin) = origin_of(namespace).filter(|origin| is_dns_label(origin)) else { continue };
            let frozen = self.rooms.get(name_of(namespace)).is_some_and(|room| room.is_complete);
            let entry = before.current_mapping.get(origin).filter(|_| frozen).cloned();
            let going =
                || current(MappingPhase::Terminating, name_of(namespace), Some("it is being removed".into()));
            mapping.insert(origin.to_owned(), entry.unwrap_or_else(going));
        }
        let mut explained = 0;
        for (entry, state) in self.mapping.entries.iter().zip(states) {
            let next = match state {
                State::Accepted(trouble) => current(MappingPhase::Accepted, entry.name, trouble.clone()),
                State::Terminating(why) => current(MappingPhase::Terminating, entry.name, Some(why.clone())),
                State::Failed(why) => {
                    explained += 1;
                    let text = if explained > MOST_EXPLAINED { word(entry) } else { why.clone() };
                    current(MappingPhase::CreationLoopBackOff, entry.name, Some(text))
                }
                State::Underway => match before.current_mapping.get(entry.origin) {
                    Some(before) => before.clone(),
                    None => continue,
                },
            };
            mapping.insert(entry.origin.to_owned(), next);
        }
        mapping
    }

    // ---- the Tenant ----

    fn tenant(&self, states: &[State], reason: &(bool, Reason)) -> (Option<Write>, Option<Notice>) {
        let Some(tenant) = self.snapshot.tenant else { return (None, None) };
        let before = tenant.status.clone().unwrap_or_default();
        let (is_ready, reason) = reason;
        let after = TenantStatus {
            namespaces: self.namespaces(states),
            namespaces_used: u32::try_from(self.mapping.used).ok(),
            namespace_quota: Some(self.terms.namespaces),
            resource_quota: self
                .terms
                .quota
                .clone()
                .map(|quota| ResourceQuota { hard: ResourceMap::read(&quota.hard).quantities() }),
            used: self.used().quantities(),
            observed_generation: tenant.metadata.generation,
            conditions: condition(&before.conditions, READY, *is_ready, reason, self.snapshot.now),
        };
        let patch = changed(&before, &after);
        let notice = patch.is_some().then(|| notice(&before.conditions, *is_ready, reason)).flatten();
        (patch.map(Write::ShowTenant), notice)
    }

    fn namespaces(&self, states: &[State]) -> Vec<TenantNamespace> {
        let left = self.mapping.leftovers.iter().map(|namespace| TenantNamespace {
            name: name_of(namespace).to_owned(),
            origin_namespace: origin_of(namespace).filter(|origin| is_dns_label(origin)).map(str::to_owned),
            phase: TenantNamespacePhase::Terminating,
            message: None,
        });
        let mut refused = 0;
        let asked = self.mapping.entries.iter().zip(states).filter_map(|(entry, state)| {
            let (phase, message) = match state {
                State::Accepted(trouble) => (TenantNamespacePhase::Active, trouble.clone()),
                State::Failed(why) => {
                    refused += 1;
                    (TenantNamespacePhase::Refused, Some(why.clone()))
                }
                // It is among those that are left.
                State::Terminating(_) | State::Underway => return None,
            };
            let is_shown = refused <= MOST_EXPLAINED || phase != TenantNamespacePhase::Refused;
            (is_shown && is_dns_label(entry.name)).then(|| TenantNamespace {
                name: entry.name.to_owned(),
                origin_namespace: Some(entry.origin.to_owned()),
                phase,
                message: message.map(|text| clipped(&text)),
            })
        });
        let mut all: Vec<TenantNamespace> = left.chain(asked).collect();
        all.sort_by(|one, other| {
            (&one.name, &one.origin_namespace).cmp(&(&other.name, &other.origin_namespace))
        });
        all
    }

    /// What all namespaces use together, as Kubernetes counts it in each.
    fn used(&self) -> ResourceMap {
        let mut sum = ResourceMap::default();
        let is_ours = |object: &kube::core::DynamicObject| object.metadata.name.as_deref() == Some(NAME);
        for (kind, object) in self.snapshot.furniture {
            if *kind == Kind::ResourceQuota && is_ours(object) {
                let used = furniture::used(object);
                let names: BTreeSet<&str> = used.names().collect();
                sum.add(&names.into_iter().map(|name| (as_offered(name), used.get(name))).collect());
            }
        }
        sum
    }

    // ---- in one sentence ----

    fn reason(&self, states: &[State]) -> (bool, Reason) {
        let (snapshot, mapping) = (self.snapshot, self.mapping);
        let failed = || states.iter().filter(|state| matches!(state, State::Failed(_))).count();
        let quota = usize::try_from(self.terms.namespaces).unwrap_or(usize::MAX);
        let (word, text) = if snapshot.tenant.is_none() {
            ("NoTenant", "there is no Tenant, since the peering is not established".to_owned())
        } else if !snapshot.is_open() {
            ("Ending", format!("the peering is over, and {} namespaces are being removed", mapping.used))
        } else if matches!(snapshot.map, Map::Unusable) {
            let text =
                "the NamespaceMap of the consumer is not one that it may write, and is ignored; delete it";
            ("MapUnusable", text.to_owned())
        } else if let Some((name, why)) = snapshot.troubles.iter().next() {
            ("NotFurnished", format!("{} namespaces are in trouble; {name}: {why}", snapshot.troubles.len()))
        } else if let Some(why) = bad_templates(snapshot) {
            ("BadTemplate", why)
        } else if let Some((name, why)) = self.first_failure(states) {
            ("NamespacesRefused", format!("{} namespaces are refused; {name}: {why}", failed()))
        } else if mapping.unreadable > 0 {
            let text = format!(
                "{} entries of the NamespaceMap name no namespace, and are ignored",
                mapping.unreadable
            );
            ("MapUnreadable", text)
        } else if mapping.used > quota {
            let text =
                format!("there are {} namespaces, and the quota is {quota}; none is added", mapping.used);
            ("OverQuota", text)
        } else {
            return (true, Reason::new("Complete", format!("all {} namespaces are in place", mapping.used)));
        };
        (false, Reason::new(word, clipped(&text)))
    }

    fn first_failure<'s>(&'s self, states: &'s [State]) -> Option<(&'s str, &'s str)> {
        let mut pairs = self.mapping.entries.iter().zip(states);
        pairs.find_map(|(entry, state)| match state {
            State::Failed(why) => Some((entry.origin, why.as_str())),
            State::Accepted(_) | State::Terminating(_) | State::Underway => None,
        })
    }

    fn delegation(&self, delegated: &Delegated<'_>) -> Option<Write> {
        let object = delegated.object;
        let before = object.status.clone().unwrap_or_default();
        let problems = &delegated.problems;
        let reason = if problems.is_empty() {
            Reason::new("Granted", "the rights hold in the Tenant's namespaces")
        } else {
            Reason::new("PartlyRefused", clipped(&problems.join("; ")))
        };
        let mut after = before.clone();
        after.observed_generation = object.metadata.generation;
        after.conditions =
            condition(&before.conditions, READY, problems.is_empty(), &reason, self.snapshot.now);
        let patch = changed(&before, &after)?;
        Some(Write::ShowDelegation(object.metadata.name.clone()?, patch))
    }
}

/// What makes one status of another. Most looks find nothing new, and need not write all of it down to see that.
fn changed<S: PartialEq + Serialize>(before: &S, after: &S) -> Option<Value> {
    if before == after {
        return None;
    }
    difference(&json!({"status": before}), &json!({"status": after}))
}

fn current(phase: MappingPhase, name: &str, message: Option<String>) -> CurrentMapping {
    let message = message.map(|text| clipped(&text));
    CurrentMapping { phase, remote_namespace: is_dns_label(name).then(|| name.to_owned()), message }
}

fn word(entry: &Entry<'_>) -> String {
    match &entry.verdict {
        Verdict::Refuse(refusal) => refusal.word().to_owned(),
        Verdict::Keep(_) | Verdict::Create | Verdict::Wait => "NotFurnished".to_owned(),
    }
}

/// An Event for a new reason, except that all is as it should be from the beginning.
fn notice(before: &[Condition], is_ready: bool, reason: &Reason) -> Option<Notice> {
    let known = before.iter().find(|condition| condition.type_ == READY);
    let is_news = known.map_or(!is_ready, |known| known.reason != reason.word);
    is_news.then(|| Notice {
        warning: !is_ready && reason.word != "Ending",
        reason: reason.word.to_owned(),
        note: reason.text.clone(),
    })
}

fn clipped(text: &str) -> String {
    text.chars().take(MOST_TEXT).collect()
}
