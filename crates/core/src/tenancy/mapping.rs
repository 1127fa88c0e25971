//! Which namespaces a Tenant has and gets, and which are refused: from the consumer's map and what exists.

use std::collections::{BTreeMap, BTreeSet};

use ferro_api::names::annotations;
use k8s_openapi::api::core::v1::Namespace;

use super::life::is_going;
use super::refusal::Refusal;
use super::{Map, Snapshot, Terms};
use crate::names::{is_dns_label, is_installation, is_reserved_namespace};

/// What becomes of all namespaces of a Tenant.
#[derive(Debug, Default)]
pub(super) struct Mapping<'a> {
    /// What was asked for, in the order of the consumer's names.
    pub(super) entries: Vec<Entry<'a>>,
    /// Namespaces that nobody asks for any more.
    pub(super) leftovers: Vec<&'a Namespace>,
    /// How many entries name no namespace of the consumer, and are passed over.
    pub(super) unreadable: usize,
    /// How many namespaces there are.
    pub(super) used: usize,
}

/// A namespace that was asked for.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    /// The consumer's namespace.
    pub(super) origin: &'a str,
    /// The namespace here.
    pub(super) name: &'a str,
    /// What becomes of it.
    pub(super) verdict: Verdict<'a>,
}

/// What becomes of a namespace that was asked for.
#[derive(Debug)]
pub(super) enum Verdict<'a> {
    /// It exists.
    Keep(&'a Namespace),
    /// It is made.
    Create,
    /// An earlier one of that name is on its way out.
    Wait,
    /// It does not exist, and is not made.
    Refuse(Refusal),
}

impl<'a> Mapping<'a> {
    /// What becomes of all of them.
    pub(super) fn of(snapshot: &'a Snapshot<'a>, terms: &Terms) -> Self {
        let mine: BTreeMap<&str, &Namespace> = snapshot
            .namespaces
            .of_tenant()
            .into_iter()
            .map(|namespace| (name_of(namespace), namespace))
            .collect();
        let (asked, unreadable) = asked(snapshot);
        let winners = winners(&asked, &mine);
        let mut entries: Vec<Entry<'a>> = asked
            .iter()
            .map(|&(origin, name)| {
                let verdict = judge(snapshot, origin, name, &winners, &mine);
                Entry { origin, name, verdict }
            })
            .collect();
        refuse_beyond_quota(&mut entries, terms.namespaces, &mine);
        let kept: BTreeSet<&str> = entries
            .iter()
            .filter(|entry| matches!(entry.verdict, Verdict::Keep(_)))
            .map(|entry| entry.name)
            .collect();
        let is_left = |namespace: &&Namespace| !kept.contains(name_of(namespace));
        Self {
            leftovers: mine.values().copied().filter(is_left).collect(),
            used: mine.len(),
            entries,
            unreadable,
        }
    }
}

/// What the consumer asks for, and how many entries are not even that.
fn asked<'a>(snapshot: &Snapshot<'a>) -> (Vec<(&'a str, &'a str)>, usize) {
    let Map::Present(map) = snapshot.map else { return (Vec::new(), 0) };
    if !snapshot.is_open() {
        return (Vec::new(), 0);
    }
    let entries = map.spec.desired_mapping.iter().map(|(origin, name)| (origin.as_str(), name.as_str()));
    let (readable, rest): (Vec<_>, Vec<_>) = entries.partition(|(origin, _)| is_dns_label(origin));
    (readable, rest.len())
}

/// For each name the namespace of the consumer that has it: the one for which it was made, else the first.
fn winners<'a>(
    asked: &[(&'a str, &'a str)],
    mine: &BTreeMap<&str, &Namespace>,
) -> BTreeMap<&'a str, &'a str> {
    let mut winners = BTreeMap::new();
    for &(origin, name) in asked {
        let has_it = mine.get(name).is_some_and(|namespace| origin_of(namespace) == Some(origin));
        if has_it || !winners.contains_key(name) {
            winners.insert(name, origin);
        }
    }
    winners
}

fn judge<'a>(
    snapshot: &'a Snapshot<'a>,
    origin: &str,
    name: &str,
    winners: &BTreeMap<&str, &str>,
    mine: &BTreeMap<&str, &'a Namespace>,
) -> Verdict<'a> {
    if !is_dns_label(name) {
        return Verdict::Refuse(Refusal::BadName);
    }
    if is_reserved(name, snapshot.installation) {
        return Verdict::Refuse(Refusal::Reserved(name.to_owned()));
    }
    if let Some(winner) = winners.get(name).filter(|winner| **winner != origin) {
        let (winner, loser, name) = ((*winner).to_owned(), origin.to_owned(), name.to_owned());
        return Verdict::Refuse(Refusal::Twice { winner, loser, name });
    }
    match mine.get(name) {
        Some(namespace) if is_going(&namespace.metadata) => Verdict::Wait,
        // What is in it is another namespace's.
        Some(namespace) if origin_of(namespace).is_some_and(|of| of != origin) => Verdict::Wait,
        Some(namespace) => Verdict::Keep(namespace),
        None if snapshot.namespaces.get(name).is_some() => Verdict::Refuse(Refusal::Taken(name.to_owned())),
        None => Verdict::Create,
    }
}

/// Of those that are to be made, the first ones by name have what room there is. One on its way out still counts.
fn refuse_beyond_quota(entries: &mut [Entry<'_>], quota: u32, mine: &BTreeMap<&str, &Namespace>) {
    let most = usize::try_from(quota).unwrap_or(usize::MAX);
    let going = mine.values().filter(|namespace| is_going(&namespace.metadata)).count();
    let mut used = mine.len();
    for entry in entries.iter_mut().filter(|entry| matches!(entry.verdict, Verdict::Create)) {
        if used < most {
            used += 1;
        } else {
            entry.verdict = Verdict::Refuse(Refusal::OverQuota { quota, used, going });
        }
    }
}

fn is_reserved(name: &str, installation: &str) -> bool {
    is_reserved_namespace(name) || is_installation(name, installation)
}

pub(super) fn name_of(namespace: &Namespace) -> &str {
    namespace.metadata.name.as_deref().unwrap_or_default()
}

/// The namespace of the consumer that a namespace here stands for.
pub(super) fn origin_of(namespace: &Namespace) -> Option<&str> {
    annotations::ORIGIN_NAMESPACE.of(&namespace.metadata)
}
