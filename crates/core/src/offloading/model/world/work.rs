//! The controller that is tested: what it sees, plans and writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferro_api::names::{annotations, finalizers, labels};
use ferro_api::offloading::NamespaceOffloading;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{HOME, INSTALLATION, World, tenant};
use crate::offloading::{Index, Occupants, REFUSED, Stage, Write};
use crate::replication::apply;

impl World {
    /// Another controller takes over, which knows nothing.
    pub(in crate::offloading) fn restart(&mut self) {
        self.index = Index::new(HOME, INSTALLATION);
        self.touch_everything();
    }

    /// Everything is seen again, in another version.
    pub(in crate::offloading) fn touch_everything(&mut self) {
        for name in self.namespaces.keys().cloned().collect::<Vec<_>>() {
            self.bump('n', &name);
        }
        for name in self.offloadings.keys().cloned().collect::<Vec<_>>() {
            self.bump('o', &name);
        }
        for id in self.maps.keys().cloned().collect::<Vec<_>>() {
            self.bump('m', &id);
        }
        for id in self.clusters.keys().cloned().collect::<Vec<_>>() {
            self.see_cluster(&id);
        }
        self.see_pods();
    }

    /// What the controller would do now.
    pub(in crate::offloading) fn plan(&mut self) -> Vec<Write> {
        self.plan_told(&self.occupants())
    }

    fn plan_told(&mut self, told: &BTreeMap<String, Occupants>) -> Vec<Write> {
        for (kind, name) in std::mem::take(&mut self.unseen) {
            match kind {
                'n' => self.index.set_namespace(&name, self.namespaces.get(&name)),
                'o' => self.index.set_offloading(&name, self.offloadings.get(&name).cloned().map(Arc::new)),
                'm' => self.index.set_map(&tenant(&name), HOME, self.maps.get(&name).cloned().map(Arc::new)),
                'p' => {}
                _ => {
                    let peer = self.clusters.get(&name);
                    self.index.set_peer(&name, peer.map(|peer| peer.object(&name)).as_ref());
                    let node = peer.and_then(|peer| peer.node(&name));
                    self.index.set_node(&format!("liqo-{name}"), node.as_ref());
                }
            }
        }
        self.index.set_occupants(told, &Occupants::Unknown);
        self.index.plan(self.now)
    }

    /// What it would do before the agent has looked at the pods of a cluster.
    pub(in crate::offloading) fn plan_unlooked(&mut self, id: &str) -> Vec<Write> {
        let mut told = self.occupants();
        told.remove(id);
        self.plan_told(&told)
    }

    /// What the agent says of pods.
    fn occupants(&self) -> BTreeMap<String, Occupants> {
        let manned = self.clusters.iter().filter(|(_, peer)| peer.node("").is_some());
        manned.map(|(id, peer)| (id.clone(), Occupants::Of(Arc::new(peer.pods.clone())))).collect()
    }

    /// It does so many writes of its plan.
    pub(in crate::offloading) fn work(&mut self, most: usize) -> usize {
        let writes = self.plan();
        let mut maps = BTreeSet::new();
        for write in &writes {
            if let Write::PatchMap(id, _) = write {
                assert!(maps.insert(id.clone()), "two patches for one map: {writes:?}");
            }
        }
        let done = writes.len().min(most);
        for (n, write) in writes.into_iter().enumerate() {
            if n < most {
                self.perform(write);
            } else {
                self.index.again(write.subject());
            }
        }
        done
    }

    /// It plans and writes, but cannot write maps; what failed it tries again later.
    pub(in crate::offloading) fn fail_at_maps(&mut self) {
        let mut failed = Vec::new();
        loop {
            let (maps, others): (Vec<_>, Vec<_>) =
                self.plan().into_iter().partition(|write| write.stage() == Stage::There);
            failed.extend(maps);
            if others.is_empty() {
                break;
            }
            for write in others {
                self.perform(write);
            }
        }
        for write in failed {
            self.index.again(write.subject());
        }
    }

    /// The world after these writes.
    pub(in crate::offloading) fn after(mut self, writes: Vec<Write>) -> Self {
        for write in writes {
            self.perform(write);
        }
        self
    }

    /// Everybody works until nobody has anything left to do; returns what the controller wrote.
    pub(in crate::offloading) fn settle(&mut self) -> Vec<Write> {
        let mut all = Vec::new();
        for _ in 0..60 {
            let writes = self.plan();
            let before =
                (self.offloadings.clone(), self.maps.clone(), self.clusters.clone(), self.namespaces.clone());
            let is_idle = writes.is_empty();
            for write in writes {
                all.push(write.clone());
                self.perform(write);
            }
            self.others();
            let after =
                (self.offloadings.clone(), self.maps.clone(), self.clusters.clone(), self.namespaces.clone());
            if is_idle && before == after && self.unseen.is_empty() {
                return all;
            }
        }
        panic!("it never comes to rest: {self:#?}\n{all:#?}");
    }

    fn perform(&mut self, write: Write) {
        match write {
            Write::Hold(namespace) => {
                let meta = &mut self.offloadings.get_mut(&namespace).unwrap().metadata;
                meta.finalizers.get_or_insert_default().push(finalizers::OFFLOADING.into());
                self.bump('o', &namespace);
            }
            Write::Create(mut offloading) => {
                let namespace = offloading.metadata.namespace.clone().unwrap();
                assert!(self.namespaces[&namespace].metadata.deletion_timestamp.is_none());
                let meta = self.new_meta("offloading", Some(&namespace));
                (offloading.metadata.uid, offloading.metadata.creation_timestamp) =
                    (meta.uid, meta.creation_timestamp);
                assert!(self.offloadings.insert(namespace.clone(), *offloading).is_none(), "overwritten");
                self.bump('o', &namespace);
            }
            Write::Delete(namespace) => {
                let made_by_label = annotations::CREATED_BY_LABEL.of(&self.offloadings[&namespace].metadata);
                assert!(made_by_label.is_some(), "what a person made is deleted");
                self.delete(&namespace);
            }
            Write::Admit(namespace, _) => {
                assert!(self.is_held(&namespace), "admitted before it is held");
                labels::OFFLOADED.put_on(&mut self.namespaces.get_mut(&namespace).unwrap().metadata);
                self.bump('n', &namespace);
            }
            Write::Dismiss(namespace) => {
                labels::OFFLOADED.take_off(&mut self.namespaces.get_mut(&namespace).unwrap().metadata);
                self.bump('n', &namespace);
            }
            Write::Refuse(namespace, patch, _) => self.refuse(&namespace, &patch),
            Write::CreateMap(mut map) => {
                let id = labels::REMOTE_ID.of(&map.metadata).unwrap().to_owned();
                map.metadata.uid = Some(self.new_uid());
                assert!(map.spec.desired_mapping.keys().all(|namespace| self.is_held(namespace)));
                assert!(self.maps.insert(id.clone(), *map).is_none(), "created twice");
                self.bump('m', &id);
            }
            Write::PatchMap(id, patch) => {
                let map = self.maps.get_mut(&id).unwrap();
                let before = map.spec.desired_mapping.clone();
                patched(map, &patch);
                let added: Vec<_> = map
                    .spec
                    .desired_mapping
                    .keys()
                    .filter(|name| !before.contains_key(*name))
                    .cloned()
                    .collect();
                let dropped = before.into_keys().filter(|name| !map.spec.desired_mapping.contains_key(name));
                let dropped: Vec<_> = dropped.collect();
                assert!(added.iter().all(|namespace| self.is_held(namespace)), "asked for before it is held");
                assert!(
                    dropped.iter().all(|name| self.may_be_dropped(name, &id)),
                    "its pods are still there"
                );
                self.bump('m', &id);
            }
            Write::DeleteMap(id) => self.delete_map(&id),
            Write::LetGoMap(id) => self.finalize_map(&id, finalizers::NAMESPACE_MAP),
            Write::AbandonMap(id) => self.finalize_map(&id, finalizers::REPLICATION),
            Write::Show(namespace, patch, _) => {
                patched(self.offloadings.get_mut(&namespace).unwrap(), &patch);
                self.bump('o', &namespace);
            }
            Write::LetGo(namespace) => self.let_go(&namespace),
        }
        self.sweep();
    }

    /// Whether nothing of a namespace runs on a cluster, or nobody waits for that.
    fn may_be_dropped(&self, namespace: &str, id: &str) -> bool {
        let is_forced =
            |offloading: &NamespaceOffloading| annotations::FORCE.of(&offloading.metadata).is_some();
        let waits = self.offloadings.get(namespace).is_some_and(|offloading| !is_forced(offloading));
        let peer = &self.clusters[id];
        !(waits && peer.peered && peer.pods.contains(namespace))
    }

    fn let_go(&mut self, namespace: &str) {
        let meta = &self.offloadings[namespace].metadata;
        assert!(meta.deletion_timestamp.is_some());
        if annotations::FORCE.of(meta).is_none() {
            for (id, _) in self.clusters.iter().filter(|(_, peer)| peer.peered) {
                let left = (&self.desired(id)[namespace], &self.current(id)[namespace]);
                assert_eq!(left, (&json!(null), &json!(null)), "{namespace} goes before it is gone on {id}");
            }
        }
        let meta = &mut self.offloadings.get_mut(namespace).unwrap().metadata;
        meta.finalizers.get_or_insert_default().retain(|name| name != finalizers::OFFLOADING);
        self.bump('o', namespace);
    }

    fn refuse(&mut self, namespace: &str, patch: &Value) {
        let condition = &patch["status"]["conditions"][0];
        let status = self.namespaces.get_mut(namespace).unwrap().status.get_or_insert_default();
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|present| present.type_ != REFUSED);
        if condition["$patch"] != json!("delete") {
            conditions.push(serde_json::from_value(condition.clone()).unwrap());
        }
        self.bump('n', namespace);
    }
}

fn patched<K: Serialize + DeserializeOwned>(object: &mut K, patch: &Value) {
    let mut value = json!(object);
    apply(&mut value, patch);
    *object = serde_json::from_value(value).unwrap();
}
