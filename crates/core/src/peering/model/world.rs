//! Two clusters, a link between them that can be cut, and everything that happens to them.

use std::time::Duration;

use ferro_api::discovery::{Decision, ForeignCluster, ForeignClusterSpec};
use ferro_api::names::{annotations, finalizers};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::core::DynamicObject;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cluster::{Cluster, Namespace, Objects, create, delete, finalize};
use crate::network::exchange::is_lost;
use crate::offloading::{Wish, wish};
use crate::peering::Standing;
use crate::replication::{self, Link, Write, apply, rules};

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) clusters: [Cluster; 2],
    pub(super) cut: bool,
    pub(super) now: Timestamp,
}

/// Something that people do to one of the clusters, or the weather to both.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Add,
    Join(bool),
    Incoming(Decision),
    Offer(Decision),
    Remove,
    Force,
    DeleteRequestByHand,
    StartPod,
    Cut(bool),
    Wait(u64),
}

/// Who works, and on what.
#[derive(Clone, Copy, Debug)]
pub(super) enum Worker {
    Authenticator,
    Controller,
    RequestReplicator,
    OfferReplicator,
    Namespaces,
    Housekeeping,
}

pub(super) const WORKERS: [Worker; 6] = [
    Worker::Authenticator,
    Worker::Controller,
    Worker::RequestReplicator,
    Worker::OfferReplicator,
    Worker::Namespaces,
    Worker::Housekeeping,
];

impl World {
    pub(super) fn new() -> Self {
        let clusters = [Cluster::new("a", "b"), Cluster::new("b", "a")];
        Self { clusters, cut: false, now: Timestamp::from_second(1_700_000_000).unwrap() }
    }

    pub(super) fn happen(&mut self, side: usize, event: Event) {
        let (now, cluster) = (self.now, &mut self.clusters[side]);
        match (event, &mut cluster.peer) {
            (Event::Cut(cut), _) => self.cut = cut,
            (Event::Wait(seconds), _) => self.now += Duration::from_secs(seconds),
            (Event::StartPod, _) => {
                if let Some(node) = cluster.node.as_mut().filter(|node| !node.draining) {
                    node.pods += 1;
                }
            }
            (Event::DeleteRequestByHand, _) => {
                let name = cluster.request_name();
                if cluster.requests.contains_key(&name) {
                    delete(&mut cluster.requests, &name, now);
                }
            }
            (Event::Add, peer @ None) => {
                *peer = Some(ForeignCluster::new(cluster.other, ForeignClusterSpec::default()));
            }
            (Event::Add, Some(_)) | (_, None) => {}
            (Event::Join(join), Some(peer)) => peer.spec.join = Some(join),
            (Event::Incoming(decision), Some(peer)) => peer.spec.incoming = Some(decision),
            (Event::Offer(decision), Some(peer)) => peer.spec.offer = Some(decision),
            (Event::Force, Some(peer)) => annotations::FORCE.put_on(&mut peer.metadata, "true"),
            (Event::Remove, Some(peer)) if peer.metadata.finalizers.is_none() => cluster.peer = None,
            (Event::Remove, Some(peer)) => _ = peer.metadata.deletion_timestamp.get_or_insert(Time(now)),
        }
    }

    pub(super) fn happen_to_both(&mut self, event: Event) {
        self.happen(0, event);
        self.happen(1, event);
    }

    /// Lets everybody in a cluster work once, each on no more than so many writes.
    pub(super) fn everybody_works(&mut self, side: usize, most: usize) {
        for worker in WORKERS {
            self.work(side, worker, most);
        }
    }

    /// Lets one worker of a cluster do up to so many writes of its plan. Returns how many it did.
    pub(super) fn work(&mut self, side: usize, worker: Worker, most: usize) -> usize {
        let done = match worker {
            Worker::Authenticator => self.authenticate(side),
            Worker::Controller => self.control(side, most),
            Worker::RequestReplicator => {
                self.replicate(side, "resourcerequests", |cluster| &mut cluster.requests, most)
            }
            Worker::OfferReplicator => {
                self.replicate(side, "resourceoffers", |cluster| &mut cluster.offers, most)
            }
            Worker::Namespaces => self.map(side),
            Worker::Housekeeping => self.keep_house(side),
        };
        self.clusters.iter().for_each(Cluster::assert_sound);
        done
    }

    /// The peer lets in whom it knows and will not forget. Whoever is turned away learns it when it tries.
    fn authenticate(&mut self, side: usize) -> usize {
        let connected = !self.cut;
        let (us, them) = self.sides(side);
        let is_known = |peer: &Option<ForeignCluster>| {
            let known = peer.as_ref().map(|peer| &peer.metadata);
            known.is_some_and(|meta| meta.deletion_timestamp.is_none() && meta.finalizers.is_some())
        };
        if connected && is_known(&us.peer) && is_known(&them.peer) {
            (us.identity_kept, them.peer_admitted) = (true, true);
        }
        if connected {
            us.standing = match (us.identity_kept, them.peer_admitted) {
                (true, true) => Standing::Accepted,
                (true, false) => Standing::Rejected,
                (false, _) => Standing::Pending,
            };
        }
        0
    }

    fn control(&mut self, side: usize, most: usize) -> usize {
        let Some(plan) = self.clusters[side].plan(self.now) else { return 0 };
        let writes = plan.writes.clone();
        let done = writes.len().min(most);
        for write in writes.into_iter().take(most) {
            self.clusters[side].perform(write, self.now);
        }
        if done < most {
            self.clusters[side].write_status(&plan);
        }
        done
    }

    fn replicate<K>(
        &mut self,
        side: usize,
        resource: &str,
        objects: impl Fn(&mut Cluster) -> &mut Objects<K>,
        most: usize,
    ) -> usize
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let now = self.now;
        let rule = rules(&[]).into_iter().find(|rule| rule.resource.resource == resource).unwrap();
        let connected = !self.cut;
        let (us, them) = self.sides(side);
        let both = us.namespace.is_some() && them.namespace == Some(Namespace::Present);
        if !connected || !us.identity_kept || !them.peer_admitted || !both {
            return 0;
        }
        let link = Link { us: us.id, peer: them.id, namespace: "liqo-tenant" };
        let plan = replication::plan(&link, &rule, &dynamic(objects(us)), &dynamic(objects(them)));
        assert_eq!(plan.problems, []);
        let done = plan.writes.len().min(most);
        for write in plan.writes.into_iter().take(most) {
            match write {
                Write::Hold(name) => {
                    let meta = objects(us).get_mut(&name).unwrap().meta_mut();
                    meta.finalizers.get_or_insert_default().push(finalizers::REPLICATION.into());
                }
                Write::Release(name) => finalize(objects(us), &name, finalizers::REPLICATION),
                Write::CreateRemote(copy) => {
                    let mut copy: K = serde_json::from_value(json!(copy)).unwrap();
                    copy.meta_mut().uid = Some(them.new_uid());
                    create(objects(them), copy);
                }
                Write::PatchRemote(name, patch) => patched(objects(them), &name, &patch),
                Write::DeleteRemote(name, uid) => {
                    assert_eq!(objects(them)[&name].meta().uid, uid);
                    delete(objects(them), &name, now);
                }
                Write::PatchLocalStatus(name, patch) => patched(objects(us), &name, &patch),
            }
        }
        done
    }

    /// The controller of namespaces, and the peer which removes them: something is offloaded wherever it can be.
    fn map(&mut self, side: usize) -> usize {
        let connected = !self.cut;
        let (us, them) = self.sides(side);
        let Some(peer) = &us.peer else { return 0 };
        let can_remove = connected && us.identity_kept && them.peer_admitted;
        let mapped = match wish(peer) {
            Wish::Map => us.mapped || us.node.is_some(),
            Wish::Keep => us.mapped,
            Wish::Part => us.mapped && !is_lost(peer) && !can_remove,
        };
        assert!(us.namespace.is_some() || !mapped, "the map has no namespace to lie in");
        us.mapped = mapped;
        0
    }

    /// Pods leave a draining node, namespaces empty, and peers that can reach each other are heard.
    fn keep_house(&mut self, side: usize) -> usize {
        let (now, connected) = (self.now, !self.cut);
        let (us, them) = self.sides(side);
        if let Some(node) = us.node.as_mut().filter(|node| node.draining) {
            node.pods = 0;
        }
        us.empty_namespace(now);
        if connected && us.peer_admitted && them.offers.contains_key(&them.offer_name()) {
            us.heard = Some(now);
        }
        0
    }

    fn sides(&mut self, side: usize) -> (&mut Cluster, &mut Cluster) {
        let [a, b] = &mut self.clusters;
        if side == 0 { (a, b) } else { (b, a) }
    }

    /// Lets everybody work until nobody has anything left to do.
    pub(super) fn settle(&mut self) {
        self.cut = false;
        for _ in 0..40 {
            let before = self.clusters.clone();
            self.everybody_works(0, usize::MAX);
            self.everybody_works(1, usize::MAX);
            if self.clusters == before {
                return;
            }
        }
        panic!("it never comes to rest: {:#?}", self.clusters);
    }
}

fn dynamic<K: Serialize>(objects: &Objects<K>) -> Vec<DynamicObject> {
    objects.values().map(|object| serde_json::from_value(json!(object)).unwrap()).collect()
}

fn patched<K: Resource + Serialize + DeserializeOwned>(objects: &mut Objects<K>, name: &str, patch: &Value) {
    let object = objects.get_mut(name).unwrap();
    let mut value = json!(object);
    apply(&mut value, patch);
    *object = serde_json::from_value(value).unwrap();
}
