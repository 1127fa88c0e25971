//! A small world: people who want a claim and forget it, a scheduler that chooses, the controllers of Kubernetes that bind
//! and release, a peer that is cut off, restored and full, and a controller that is ended after any of its writes.
//! Whatever happens, no data is replaced or deleted that a claim still has, and in the end nothing is left behind.

use ferro_api::names::{annotations, finalizers};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::replication::apply;

const OLD: &str = "2026-01-01T00:00:00Z";

/// What happens outside.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Somebody creates the claim, or deletes it.
    Want,
    Forget,
    /// The scheduler chooses: a node of this cluster, or of the peer.
    Choose {
        here: bool,
    },
    /// The controllers of Kubernetes bind and release.
    Bind,
    /// A real class makes a volume, or cannot.
    Provision {
        works: bool,
    },
    /// Somebody over there deletes the claim, or has one of that name.
    Take,
    Squat,
    /// The class is there, or not.
    Class(bool),
    /// The peer answers, or not; has a namespace, or not; has room, or not.
    Near(bool),
    Mapped(bool),
    Room(bool),
    /// The controller performs so many writes and is ended.
    Work(usize),
}

#[derive(Default)]
struct World {
    class: Option<StorageClass>,
    claim: Option<Value>,
    volume: Option<Value>,
    stand_in: Option<Value>,
    real: Option<Value>,
    there: Option<Value>,
    /// Claims over there whose volume a claim here was bound to.
    used: Vec<String>,
    uids: u32,
    is_cut: bool,
    is_unmapped: bool,
    is_full: bool,
}

fn read<K: serde::de::DeserializeOwned>(value: Option<&Value>) -> Option<K> {
    value.map(|value| serde_json::from_value(value.clone()).unwrap())
}

fn class() -> StorageClass {
    serde_json::from_value(json!({"provisioner": PROVISIONER, "reclaimPolicy": "Delete"})).unwrap()
}

fn uid_of(value: &Value) -> String {
    value["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

impl World {
    fn uid(&mut self) -> String {
        self.uids += 1;
        format!("u{}", self.uids)
    }

    fn made(&mut self, object: &impl serde::Serialize) -> Value {
        let mut object = json!(object);
        object["metadata"]["uid"] = json!(self.uid());
        object
    }

    /// The UID that is looked at: that of the claim, else that of what is left of one.
    fn subject(&self) -> String {
        let of_volume = || self.volume.as_ref()?["spec"]["claimRef"]["uid"].as_str().map(str::to_owned);
        let of_stand_in = || {
            let meta = &self.stand_in.as_ref()?["metadata"];
            meta["annotations"][annotations::ORIGIN_UID.key()].as_str().map(str::to_owned)
        };
        of_volume().or_else(of_stand_in).or_else(|| self.claim.as_ref().map(uid_of)).unwrap_or_default()
    }

    fn plan(&self) -> Vec<Write> {
        let subject = self.subject();
        let claim: Option<PersistentVolumeClaim> =
            read(self.claim.as_ref().filter(|claim| uid_of(claim) == subject));
        let (volume, real): (Option<PersistentVolume>, Option<PersistentVolume>) =
            (read(self.volume.as_ref()), read(self.real.as_ref()));
        let (stand_in, there): (Option<PersistentVolumeClaim>, Option<PersistentVolumeClaim>) =
            (read(self.stand_in.as_ref()), read(self.there.as_ref()));
        let place = claim.as_ref().and_then(selected_node).map(|node| match node {
            "n1" => Place::Here("n1"),
            _ => Place::There("p1"),
        });
        let peer = peer_of(claim.as_ref(), volume.as_ref(), place);
        plan(&Snapshot {
            home: "c1",
            own_namespace: "liqo",
            claim: claim.as_ref(),
            class: self.class.as_ref(),
            volume: volume.as_ref(),
            stand_in: stand_in.as_ref(),
            real: real.as_ref(),
            place,
            peer: peer.as_deref().map(|id| Peer {
                id,
                namespace: (!self.is_unmapped).then_some("shop-c1"),
                is_near: !self.is_cut,
                claim: there.as_ref().filter(|_| !self.is_cut && !self.is_unmapped),
            }),
            now: Timestamp::UNIX_EPOCH,
        })
    }

    /// Performs so many writes; says whether nothing was left to be done.
    fn work(&mut self, most: usize) -> bool {
        let mut done = 0;
        for _ in 0..40 {
            let writes = self.plan();
            if writes.is_empty() {
                return true;
            }
            for write in writes {
                if done == most {
                    return false;
                }
                self.perform(&write);
                done += 1;
            }
        }
        panic!("this is never settled: {:?}", self.plan())
    }

    fn perform(&mut self, write: &Write) {
        match write {
            Write::Hold { peer } => {
                let held = json!({"metadata": {"finalizers": [finalizers::CLAIM],
                    "annotations": {(annotations::HELD_FOR.key()): peer}}});
                apply(self.claim.as_mut().unwrap(), &held);
            }
            Write::LetGo => {
                let free = json!({"metadata": {"finalizers": null,
                    "annotations": {(annotations::HELD_FOR.key()): null}}});
                apply(self.claim.as_mut().unwrap(), &free);
                self.bury();
            }
            Write::GiveBack => self.choose(&Value::Null),
            Write::CreateThere(claim) if self.is_full => self.answer(&Write::CreateThere(claim.clone())),
            Write::CreateThere(claim) => {
                let origin = annotations::ORIGIN_UID.of(&claim.metadata).unwrap();
                assert!(!self.used.iter().any(|used| used == origin), "data is not replaced");
                assert!(self.claim.as_ref().unwrap()["metadata"]["finalizers"].is_array(), "held before");
                assert!(self.there.is_none() && !self.is_unmapped && !self.is_cut);
                self.there = Some(self.made(claim));
            }
            Write::DeleteThere { uid } => {
                assert_eq!(self.there.as_ref().map(uid_of).as_ref(), Some(uid));
                let origin = &self.there.as_ref().unwrap()["metadata"]["annotations"];
                let origin = origin[annotations::ORIGIN_UID.key()].as_str().unwrap();
                let is_alive = self.claim.as_ref().is_some_and(|claim| uid_of(claim) == origin);
                assert!(!(is_alive && self.used.iter().any(|used| used == origin)), "data of a claim stays");
                self.there = None;
            }
            Write::CreateVolume(volume) => {
                assert!(self.volume.is_none(), "one volume for a claim");
                assert!(self.class.is_some(), "it says what becomes of the volume");
                self.volume = Some(self.made(volume));
            }
            Write::DeleteVolume { .. } => {
                self.volume.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!(OLD);
            }
            Write::ReleaseVolume => self.volume = None,
            Write::CreateStandIn(claim) => {
                assert!(self.stand_in.is_none());
                let mut made = self.made(claim);
                made["spec"]["storageClassName"] = json!("standard");
                self.stand_in = Some(made);
            }
            Write::DeleteStandIn { uid } => {
                assert_eq!(self.stand_in.as_ref().map(uid_of).as_ref(), Some(uid));
                // What is bound to it goes with it.
                let is_its = |real: &Value| real["spec"]["claimRef"]["uid"] == json!(uid);
                self.real = self.real.take().filter(|real| !is_its(real));
                self.stand_in = None;
            }
            Write::HandOver { patch, .. } => {
                assert!(self.class.is_some(), "it says what becomes of the volume");
                apply(self.real.as_mut().unwrap(), patch);
            }
            Write::Show(patch) => self.show(patch),
            Write::GrowThere { .. } | Write::GrowVolume(_) => panic!("nobody asked for more"),
            Write::Tell(_) => {}
        }
    }

    fn answer(&mut self, write: &Write) {
        let claim: PersistentVolumeClaim = read(self.claim.as_ref()).unwrap();
        let message = "persistentvolumeclaims is forbidden: exceeded quota: ferro-tenant";
        for write in refused(&claim, write, 403, message, Timestamp::UNIX_EPOCH).unwrap() {
            self.perform(&write);
        }
    }

    fn show(&mut self, patch: &Value) {
        let condition = &patch["status"]["conditions"][0];
        let shown = if condition["$patch"] == "delete" { json!([]) } else { json!([condition]) };
        // One that went with the write before has nobody to show it to.
        if let Some(claim) = &mut self.claim {
            claim["status"]["conditions"] = shown;
        }
    }

    fn choose(&mut self, node: &Value) {
        let chosen = json!({"metadata": {"annotations": {(SELECTED_NODE): node}}});
        if let Some(claim) = &mut self.claim {
            apply(claim, &chosen);
        }
    }

    /// A claim that nobody holds and that is deleted is gone.
    fn bury(&mut self) {
        self.claim = self.claim.take().filter(|claim| {
            claim["metadata"]["deletionTimestamp"].is_null() || claim["metadata"]["finalizers"].is_array()
        });
    }

    /// What the controllers of Kubernetes do about volumes that know their claims.
    fn bind(&mut self) {
        let claim = self.claim.as_ref().map(uid_of).unwrap_or_default();
        for (volume, name) in [(&mut self.volume, "ours"), (&mut self.real, "real")] {
            let Some(volume) = volume else { continue };
            let owner = volume["spec"]["claimRef"]["uid"].as_str().unwrap_or_default().to_owned();
            if owner == claim && !claim.is_empty() {
                self.claim.as_mut().unwrap()["spec"]["volumeName"] = json!(name);
                volume["status"]["phase"] = json!("Bound");
                if name == "ours" {
                    self.used.push(owner);
                }
            } else if self.stand_in.as_ref().map(uid_of) != Some(owner) {
                volume["status"]["phase"] = json!("Released");
            }
        }
        self.real = self.real.take().filter(|real| real["status"]["phase"] != "Released");
    }

    fn provision(&mut self, works: bool) {
        let Some(stand_in) = &mut self.stand_in else { return };
        if self.real.is_some() || stand_in["metadata"]["annotations"][SELECTED_NODE].is_null() {
            return;
        }
        if works {
            stand_in["spec"]["volumeName"] = json!("real");
            let owner = uid_of(stand_in);
            self.real = Some(json!({"metadata": {"name": "real", "uid": "r"},
                "spec": {"claimRef": {"uid": owner, "resourceVersion": "7"}}}));
        } else {
            apply(stand_in, &json!({"metadata": {"annotations": {(SELECTED_NODE): null}}}));
        }
    }

    fn happen(&mut self, deed: Deed) {
        match deed {
            Deed::Want if self.claim.is_none() && self.volume.is_none() && self.stand_in.is_none() => {
                let asked = "volume.kubernetes.io/storage-provisioner";
                let spec = json!({"storageClassName": "liqo", "resources": {"requests": {"storage": "1Gi"}}});
                let claim = json!({"metadata": {"name": "data", "namespace": "shop",
                    "annotations": {asked: PROVISIONER}}, "spec": spec});
                self.claim = Some(self.made(&claim));
            }
            Deed::Want => {}
            Deed::Forget => {
                if let Some(claim) = &mut self.claim {
                    claim["metadata"]["deletionTimestamp"] = json!(OLD);
                }
                self.bury();
            }
            Deed::Choose { here } => {
                let is_open = self.claim.as_ref().is_some_and(|claim| claim["spec"]["volumeName"].is_null());
                if is_open {
                    self.choose(&json!(if here { "n1" } else { "liqo-p1" }));
                }
            }
            Deed::Bind => self.bind(),
            Deed::Provision { works } => self.provision(works),
            Deed::Take => self.there = None,
            Deed::Squat => {
                let foreign = json!({"metadata": {"name": "data", "uid": "foreign"}});
                self.there = self.there.take().or(Some(foreign));
            }
            Deed::Class(is_there) => self.class = is_there.then(class),
            Deed::Near(is_near) => self.is_cut = !is_near,
            Deed::Mapped(is_mapped) => {
                self.is_unmapped = !is_mapped;
                // What is in a namespace goes with it.
                self.there = self.there.take().filter(|_| is_mapped);
            }
            Deed::Room(has_room) => self.is_full = !has_room,
            Deed::Work(most) => _ = self.work(most),
        }
    }

    /// All is well from now on, and everybody does what is to be done.
    fn calm(&mut self) {
        (self.is_cut, self.is_unmapped, self.is_full) = (false, false, false);
        self.class = Some(class());
        self.there = self.there.take().filter(|there| uid_of(there) != "foreign");
        for _ in 0..6 {
            assert!(self.work(usize::MAX), "at rest a plan is empty");
            self.provision(true);
            self.bind();
        }
    }
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        2 => Just(Deed::Want),
        1 => Just(Deed::Forget),
        3 => any::<bool>().prop_map(|here| Deed::Choose { here }),
        4 => Just(Deed::Bind),
        2 => any::<bool>().prop_map(|works| Deed::Provision { works }),
        1 => Just(Deed::Take),
        1 => Just(Deed::Squat),
        1 => any::<bool>().prop_map(Deed::Class),
        1 => any::<bool>().prop_map(Deed::Near),
        1 => any::<bool>().prop_map(Deed::Mapped),
        1 => any::<bool>().prop_map(Deed::Room),
        6 => (0..5_usize).prop_map(Deed::Work),
    ];
    proptest::collection::vec(deed, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_data_is_neither_replaced_nor_left_behind(deeds in deeds(), here in any::<bool>()) {
        let mut world = World { class: Some(class()), ..World::default() };
        for deed in deeds {
            world.happen(deed);
        }
        world.calm();
        // Who wants a claim now gets a volume, wherever the pod goes; unless its data is lost, which is said.
        world.happen(Deed::Want);
        world.happen(Deed::Choose { here });
        world.calm();
        let claim: PersistentVolumeClaim = read(world.claim.as_ref()).unwrap();
        let is_going = claim.metadata.deletion_timestamp.is_some();
        prop_assert!(bound_to(&claim).is_some() || is_going, "{claim:?}");
        let lies_there = world.volume.is_some();
        prop_assert_eq!(is_lost(&claim), lies_there && world.there.is_none());
        world.happen(Deed::Forget);
        world.calm();
        let left = [&world.claim, &world.volume, &world.stand_in, &world.real, &world.there];
        prop_assert!(left.iter().all(|left| left.is_none()), "{left:?}");
    }
}
