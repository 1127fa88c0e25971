//! `NatMapping` objects: what the address manager has mapped, for people to read, and what others wrote, for gateways.
//!
//! - Flow: every change marks a sheet of a peer; a sheet is one object, and is applied as a whole, some time later.
//!   What others have in any `NatMapping` goes to the gateways.
//! - Guarantees: entries of others are not touched, also where they contradict ours, nor is an object deleted that has
//!   some: which entries are whose says the API server, which notes who applied them. What nobody needs any
//!   more goes at the next start at the latest.
//! - Assumptions: nobody waits for these objects; what callers were told is in the storage and at the gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_api::net::NatMapping;
use ferro_core::network::{Ipam, Redirections, precedence};
use ferro_runtime::shutdown::Tasks;
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use super::MANAGER;
use super::followers::{Followers, SheetOf};

/// Changes are gathered for so long.
const GATHER: Duration = Duration::from_secs(1);
/// Applying takes at most one part in so many of the time: large sheets are work for the API server.
const SHARE: u32 = 10;
/// When something failed, it is tried again after this long.
const SOON: Duration = Duration::from_secs(5);

/// The name of the object that is a sheet of a peer. Identifiers of clusters have no dot.
fn name((peer, sheet): &SheetOf) -> String {
    if *sheet == 0 { format!("natmapping-{peer}") } else { format!("natmapping-{peer}.{sheet}") }
}

/// The sheet of a peer that has this name.
fn sheet(object: &str, peer: &str) -> Option<u32> {
    let rest = object.strip_prefix("natmapping-")?.strip_prefix(peer)?;
    let number = if rest.is_empty() { 0 } else { rest.strip_prefix('.')?.parse().ok()? };
    (name(&(peer.to_owned(), number)) == object).then_some(number)
}

/// What is known of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    peer: String,
    precedence: (bool, Option<Time>, String),
    /// Whether some of it was applied by us.
    is_ours: bool,
    ours: BTreeMap<IpAddr, IpAddr>,
    others: BTreeMap<IpAddr, IpAddr>,
}

impl Seen {
    fn of(object: &NatMapping) -> Self {
        let managed = object.metadata.managed_fields.as_deref().unwrap_or_default();
        let (ours, theirs): (Vec<_>, Vec<_>) = managed.iter().partition(|entry| is_by_us(entry));
        let [by_us, by_others]: [BTreeSet<&str>; 2] =
            [&ours, &theirs].map(|entries| entries.iter().flat_map(|entry| keys(entry)).collect());
        let mut seen = Self {
            peer: object.spec.cluster_id.clone(),
            precedence: precedence(object),
            is_ours: !ours.is_empty(),
            ..Self::default()
        };
        for (endpoint, address) in &object.spec.cluster_mappings {
            let (Ok(from), Ok(to)) = (endpoint.parse(), address.parse()) else {
                let mapping = object.name_any();
                warn!(mapping, endpoint, address, "an entry is ignored: both must be IP addresses");
                continue;
            };
            if by_us.contains(endpoint.as_str()) {
                seen.ours.insert(from, to);
            }
            // What nobody owns is not ours to take away either.
            if by_others.contains(endpoint.as_str()) || !by_us.contains(endpoint.as_str()) {
                seen.others.insert(from, to);
            }
        }
        seen
    }
}

/// What can be written beside the entries of others.
fn beside(
    others: &BTreeMap<IpAddr, IpAddr>,
    mut wanted: BTreeMap<IpAddr, IpAddr>,
) -> BTreeMap<IpAddr, IpAddr> {
    wanted.retain(|endpoint, address| others.get(endpoint).is_none_or(|present| present == address));
    wanted
}

fn is_by_us(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
}

/// The endpoints that somebody has written.
fn keys(entry: &ManagedFieldsEntry) -> impl Iterator<Item = &str> {
    let fields =
        entry.fields_v1.as_ref().and_then(|fields| fields.0["f:spec"]["f:clusterMappings"].as_object());
    fields.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("f:"))
}

/// All objects, as they were seen last.
#[derive(Clone, Debug, Default)]
struct Sights(Arc<Mutex<BTreeMap<String, Seen>>>);

impl Sights {
    fn get(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What others wrote, by peer; of several objects that name an endpoint or an address the first counts.
    fn others(&self) -> BTreeMap<String, BTreeMap<IpAddr, IpAddr>> {
        let sights = self.get();
        let mut seen: Vec<&Seen> = sights.values().filter(|seen| !seen.others.is_empty()).collect();
        seen.sort_by_key(|seen| &seen.precedence);
        let mut all: BTreeMap<String, Redirections> = BTreeMap::new();
        for seen in seen {
            let of_peer = all.entry(seen.peer.clone()).or_default();
            for (endpoint, address) in &seen.others {
                // Gateways and commands tell of those that are not used.
                _ = of_peer.insert(*endpoint, *address);
            }
        }
        all.into_iter().map(|(peer, of_peer)| (peer, of_peer.entries().collect())).collect()
    }
}

/// Starts to watch what others write, and to write what the address manager has. Returns when it is known what others
/// wrote: a gateway that comes before would take it for gone.
pub(super) async fn start(
    tasks: &Tasks,
    client: &Client,
    followers: &Followers,
    state: &watch::Receiver<Arc<Ipam>>,
) -> Result<()> {
    let api: Api<NatMapping> = Api::all(client.clone());
    let (sights, (told, mut ready)) = (Sights::default(), watch::channel(false));
    tasks.spawn("NatMappings", look(api.clone(), sights.clone(), followers.clone(), told));
    ready.wait_for(|ready| *ready).await.context("the watch of NatMappings has ended")?;
    let keeper = Keeper { api, sights, followers: followers.clone(), state: state.clone() };
    tasks.spawn("NatMapping sheets", keeper.run());
    Ok(())
}

/// Follows all objects.
async fn look(
    api: Api<NatMapping>,
    sights: Sights,
    followers: Followers,
    ready: watch::Sender<bool>,
) -> Result<()> {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => _ = listed.insert(object.name_any(), Seen::of(&object)),
            Ok(Event::InitDone) => {
                *sights.get() = std::mem::take(&mut listed);
                followers.set_others(&sights.others());
                ready.send_replace(true);
            }
            Ok(Event::Apply(object)) => {
                notice(&sights, &followers, &object.name_any(), Some(Seen::of(&object)));
            }
            Ok(Event::Delete(object)) => notice(&sights, &followers, &object.name_any(), None),
            Err(error) => warn!(%error, "the watch of NatMappings broke and is taken up again"),
        }
    }
    Ok(())
}

/// An object has changed, or is gone.
fn notice(sights: &Sights, followers: &Followers, name: &str, now: Option<Seen>) {
    let peer = now.as_ref().map(|seen| seen.peer.clone());
    let now_others = now.as_ref().map(|seen| (seen.precedence.clone(), seen.others.clone()));
    let ours = now.as_ref().map(|seen| seen.ours.clone());
    let before = match now {
        Some(seen) => sights.get().insert(name.to_owned(), seen),
        None => sights.get().remove(name),
    };
    let peer = peer.or_else(|| before.as_ref().map(|seen| seen.peer.clone())).unwrap_or_default();
    let is_same_peer = before.as_ref().is_some_and(|before| before.peer == peer);
    if !is_same_peer || before.map(|before| (before.precedence, before.others)) != now_others {
        followers.set_others(&sights.others());
    }
    // Somebody may have taken away, or over, what we wrote.
    if let Some(sheet) = sheet(name, &peer).map(|number| (peer, number))
        && Some(followers.own(&sheet)) != ours
    {
        followers.touch([sheet].into());
    }
}

/// Writes what the address manager has.
struct Keeper {
    api: Api<NatMapping>,
    sights: Sights,
    followers: Followers,
    state: watch::Receiver<Arc<Ipam>>,
}

impl Keeper {
    async fn run(self) -> Result<()> {
        let mut touched = self.followers.touched();
        // Whatever happened before: everything is looked at once.
        self.followers.touch(self.everything());
        loop {
            let begin = Instant::now();
            let failed = self.pass().await;
            let pause = if failed.is_empty() { (begin.elapsed() * SHARE).max(GATHER) } else { SOON };
            self.followers.touch(failed);
            tokio::time::sleep(pause).await;
            touched.changed().await.context("nobody changes anything any more")?;
        }
    }

    /// All sheets that should be, and all that are.
    fn everything(&self) -> BTreeSet<SheetOf> {
        let mut all = self.followers.sheets();
        all.extend(self.state.borrow().peers().keys().map(|peer| (peer.clone(), 0)));
        let sights = self.sights.get();
        let ours = sights.iter().filter(|(_, seen)| seen.is_ours);
        all.extend(ours.filter_map(|(name, seen)| Some((seen.peer.clone(), sheet(name, &seen.peer)?))));
        all
    }

    /// Brings all sheets that are marked up to date; gives those with which it could not.
    async fn pass(&self) -> BTreeSet<SheetOf> {
        let mut failed = BTreeSet::new();
        for sheet in self.followers.take_touched() {
            if let Err(error) = self.bring_up_to_date(&sheet).await {
                let mapping = name(&sheet);
                warn!(
                    mapping,
                    error = format!("{error:#}"),
                    "a NatMapping could not be written; will be tried again"
                );
                failed.insert(sheet);
            }
        }
        failed
    }

    async fn bring_up_to_date(&self, sheet: &SheetOf) -> Result<()> {
        let name = name(sheet);
        let seen = self.sights.get().get(&name).cloned();
        let own = self.followers.own(sheet);
        let wanted = match &seen {
            Some(seen) => beside(&seen.others, own),
            None => own,
        };
        let is_wanted =
            !wanted.is_empty() || (sheet.1 == 0 && self.state.borrow().peers().contains_key(&sheet.0));
        if let Some(seen) = seen.as_ref().filter(|seen| seen.peer != sheet.0) {
            warn!(
                name,
                of = seen.peer,
                "a NatMapping that others made for another cluster has our name; it is left"
            );
            return Ok(());
        }
        let is_ours = seen.as_ref().is_some_and(|seen| seen.is_ours);
        if seen.as_ref().is_some_and(|seen| is_wanted && seen.is_ours && seen.ours == wanted) {
            return Ok(());
        }
        if !is_wanted && !is_ours {
            return Ok(());
        }
        let applied = self.apply(&name, &sheet.0, &wanted).await?;
        if !is_wanted && applied.spec.cluster_mappings.is_empty() {
            self.delete(&name, &applied).await?;
        }
        Ok(())
    }

    async fn apply(&self, name: &str, peer: &str, wanted: &BTreeMap<IpAddr, IpAddr>) -> Result<NatMapping> {
        let mut spec = json!({"clusterID": peer});
        // Applying an empty map over one with entries would leave a null behind.
        if !wanted.is_empty() {
            spec["clusterMappings"] = json!(wanted);
        }
        let object = json!({
            "apiVersion": "net.liqo.io/v1alpha1", "kind": "NatMapping",
            "metadata": {
                "name": name,
                "labels": {
                    labels::PART_OF.key(): labels::PART_OF.value(),
                    labels::REMOTE_ID.key(): peer,
                },
            },
            "spec": spec,
        });
        // Without force: what somebody else writes at this moment is seen, and left to them, at the next try.
        let by_us = PatchParams::apply(MANAGER);
        self.api.patch(name, &by_us, &Patch::Apply(object)).await.context("cannot apply it")
    }

    /// Deletes an object with nothing in it, unless somebody writes something into it at this moment.
    async fn delete(&self, name: &str, object: &NatMapping) -> Result<()> {
        let exactly = Preconditions { resource_version: object.resource_version(), uid: object.uid() };
        let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
        match self.api.delete(name, &params).await {
            Ok(_) => info!(name, "a NatMapping that nobody needs any more is gone"),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).context("cannot delete it"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sheets_go_together() {
        for (peer, number, text) in [
            ("cluster-1", 0, "natmapping-cluster-1"),
            ("cluster-1", 2, "natmapping-cluster-1.2"),
            ("cluster", 1, "natmapping-cluster.1"),
        ] {
            assert_eq!(name(&(peer.to_owned(), number)), text);
            assert_eq!(sheet(text, peer), Some(number));
        }
        for (text, peer) in [("natmapping-1", "cluster-1"), ("natmapping-c.0", "c"), ("natmapping-cc", "c")] {
            assert_eq!(sheet(text, peer), None, "{text}");
        }
    }

    #[test]
    fn entries_of_others_stay_as_they_are() {
        let entries = |entries: &[(u8, u8)]| -> BTreeMap<IpAddr, IpAddr> {
            entries.iter().map(|(from, to)| ([10, 0, 0, *from].into(), [192, 168, 0, *to].into())).collect()
        };
        let wanted = beside(&entries(&[(1, 9), (2, 2), (4, 4)]), entries(&[(1, 1), (2, 2), (3, 3)]));
        assert_eq!(wanted, entries(&[(2, 2), (3, 3)]));
    }

    #[test]
    fn of_entries_that_contradict_each_other_those_of_the_older_object_count() {
        let object = |name: &str, second: i64, entries: &[(&str, &str)]| -> NatMapping {
            let created = k8s_openapi::jiff::Timestamp::from_second(second).unwrap();
            let entries: BTreeMap<_, _> = entries.iter().copied().collect();
            let object = json!({
                "apiVersion": "net.liqo.io/v1alpha1", "kind": "NatMapping",
                "metadata": {"name": name, "creationTimestamp": created.to_string()},
                "spec": {"clusterID": "rome", "clusterMappings": entries},
            });
            serde_json::from_value(object).unwrap()
        };
        let objects = [
            object("a", 3, &[("10.0.0.1", "192.168.0.1"), ("10.0.0.2", "192.168.0.2")]),
            object("b", 1, &[("10.0.0.1", "192.168.0.9"), ("10.0.0.3", "192.168.0.2")]),
            object("c", 3, &[("10.0.0.2", "192.168.0.4"), ("10.0.0.4", "192.168.0.4")]),
        ];
        let sights = Sights::default();
        sights.get().extend(objects.iter().map(|object| (object.name_any(), Seen::of(object))));
        let expected =
            [("10.0.0.1", "192.168.0.9"), ("10.0.0.2", "192.168.0.4"), ("10.0.0.3", "192.168.0.2")];
        let expected = expected.map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap()));
        assert_eq!(sights.others(), [("rome".to_owned(), BTreeMap::from(expected))].into());
        // As the commands say, and gateways until they hear of it.
        let mut sorted: Vec<_> = objects.iter().collect();
        sorted.sort_by_key(|object| precedence(object));
        assert_eq!(sorted.iter().map(|object| object.name_any()).collect::<Vec<_>>(), ["b", "a", "c"]);
    }

    #[test]
    fn what_others_wrote_is_told_from_what_we_wrote() {
        let fields = |keys: &[&str]| {
            let keys: serde_json::Map<_, _> =
                keys.iter().map(|key| (format!("f:{key}"), json!({}))).collect();
            json!({"f:spec": {"f:clusterID": {}, "f:clusterMappings": keys}})
        };
        let object: NatMapping = serde_json::from_value(json!({
            "apiVersion": "net.liqo.io/v1alpha1", "kind": "NatMapping",
            "metadata": {"name": "natmapping-rome", "managedFields": [
                {"manager": MANAGER, "operation": "Apply", "fieldsV1": fields(&["10.0.0.1", "10.0.0.2"])},
                {"manager": "kubectl", "operation": "Update", "fieldsV1": fields(&["10.0.0.2", "10.0.0.3", "bad"])},
            ]},
            "spec": {"clusterID": "rome", "clusterMappings": {
                "10.0.0.1": "192.168.0.1", "10.0.0.2": "192.168.0.2", "10.0.0.3": "192.168.0.3",
                "10.0.0.4": "192.168.0.4", "bad": "192.168.0.5",
            }},
        }))
        .unwrap();
        let seen = Seen::of(&object);
        let hosts = |entries: &BTreeMap<IpAddr, IpAddr>| {
            entries
                .keys()
                .map(|ip| ip.to_string().split('.').next_back().unwrap().to_owned())
                .collect::<String>()
        };
        assert_eq!((hosts(&seen.ours), hosts(&seen.others)), ("12".into(), "234".into()));
        assert!(seen.is_ours && seen.peer == "rome");
    }
}
