//! A model of two clusters that tell each other their networks: whatever happens and wherever the work is cut off, they
//! end up with tunnels that match, or with nothing.

use std::sync::Arc;

use ferro_api::names::finalizers;
use ferro_api::net::{NetworkConfig, TunnelEndpoint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt as _};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::tests::{at, gateway, ipam};
use super::{Snapshot, Wish, Write, plan};
use crate::identity::tests::cluster;
use crate::identity::{ClusterId, SigningIdentity};
use crate::network::gateway::Gateway;
use crate::network::{Ipam, Naming};
use crate::replication::{self, Link, Write as Replication, apply, inbound, mark, rules};

const PODS: [&str; 4] = ["10.244.0.0/16", "10.42.0.0/16", "100.64.0.0/12", "192.168.8.0/21"];

#[derive(Clone, Debug)]
struct Cluster {
    number: u8,
    signer: Arc<SigningIdentity>,
    id: String,
    peer: ClusterId,
    wish: Wish,
    lost: bool,
    gateway: Option<Gateway>,
    is_silent: bool,
    ipam: Ipam,
    configs: Vec<NetworkConfig>,
    tunnel: Option<TunnelEndpoint>,
    made: u32,
}

impl Cluster {
    fn new(number: u8, pods: &str, neighbour: Option<&str>) -> Self {
        let signer = Arc::new(cluster(number));
        Self {
            number,
            id: signer.identity().id().to_string(),
            signer,
            peer: cluster(3 - number).identity().id(),
            wish: Wish::Part,
            lost: false,
            gateway: Some(gateway(number)),
            is_silent: false,
            ipam: with_neighbour(pods, neighbour),
            configs: Vec::new(),
            tunnel: None,
            made: 0,
        }
    }

    fn ours(&self) -> Option<usize> {
        self.configs.iter().position(|config| config.name_any() == self.id)
    }

    fn theirs(&self) -> Option<usize> {
        let taken = inbound(&self.id, &self.peer.to_string(), 1, &self.configs).taken.first()?.name_any();
        self.configs.iter().position(|config| config.name_any() == taken)
    }

    fn plan(&self) -> Vec<Write> {
        plan(&Snapshot {
            us: &self.signer,
            peer: self.peer,
            peer_name: Some("other"),
            wish: self.wish,
            lost: self.lost,
            forced: false,
            gateway: self.gateway.as_ref(),
            is_gateway_silent: self.is_silent,
            ipam: &self.ipam,
            ours: self.ours().map(|index| &self.configs[index]),
            theirs: self.theirs().map(|index| &self.configs[index]),
            tunnel: self.tunnel.as_ref(),
            holder_of: &|_| None,
            now: at(0),
        })
    }

    fn meta(&mut self, name: String, finalizer: Option<&str>) -> ObjectMeta {
        self.made += 1;
        ObjectMeta {
            name: Some(name),
            uid: Some(format!("{}-{}", self.number, self.made)),
            generation: Some(1),
            finalizers: finalizer.map(|finalizer| vec![finalizer.to_owned()]),
            ..ObjectMeta::default()
        }
    }

    fn perform(&mut self, write: Write) {
        let (ours, theirs) = (self.ours(), self.theirs());
        let peer = self.peer.to_string();
        match write {
            Write::CreateConfig(spec) => {
                assert_eq!(ours, None, "created twice");
                let mut metadata = self.meta(self.id.clone(), Some(finalizers::ADDRESSES));
                mark(&mut metadata, &peer);
                self.configs.push(NetworkConfig { metadata, spec: *spec, status: None });
            }
            Write::PatchConfig(patch) => change(&mut self.configs[ours.unwrap()], &patch),
            Write::DeleteConfig => delete(&mut self.configs, ours.unwrap()),
            Write::HoldConfig => {
                let held = self.configs[ours.unwrap()].metadata.finalizers.get_or_insert_default();
                held.push(finalizers::ADDRESSES.into());
            }
            Write::LetGoConfig => finalize(&mut self.configs, ours.unwrap(), finalizers::ADDRESSES),
            Write::AbandonConfig => finalize(&mut self.configs, ours.unwrap(), finalizers::REPLICATION),
            Write::Acquire(offered) => {
                assert!(ours.is_some(), "names are kept for nothing");
                assert!(self.tunnel.is_none(), "a tunnel uses other names");
                self.ipam.acquire(&peer, offered, at(0)).unwrap();
            }
            Write::Agree(answer) => self.ipam.agree(&peer, answer).unwrap(),
            Write::Release => {
                assert!(self.tunnel.is_none(), "the tunnel outlives its names");
                self.ipam.release(&peer, at(0));
            }
            Write::Answer(patch) => change(&mut self.configs[theirs.unwrap()], &patch),
            Write::CreateTunnel(spec) => {
                let metadata = self.meta(peer, Some(finalizers::TUNNEL));
                let tunnel = TunnelEndpoint { metadata, spec: *spec, status: None };
                assert_eq!(self.tunnel.replace(tunnel), None, "created twice");
            }
            Write::PatchTunnel(patch) | Write::ShowTunnel(patch) => {
                change(self.tunnel.as_mut().unwrap(), &patch);
            }
            Write::DeleteTunnel => {
                let meta = &mut self.tunnel.as_mut().unwrap().metadata;
                meta.deletion_timestamp.get_or_insert(Time(at(0)));
            }
            Write::AbandonTunnel => unreachable!("nobody uses force"),
        }
    }
}

impl Cluster {
    /// The gateway forwards nothing any more by a tunnel that is to go.
    fn let_go(&mut self) -> usize {
        let is_going = |tunnel: &mut TunnelEndpoint| tunnel.metadata.deletion_timestamp.is_some();
        usize::from(self.tunnel.take_if(is_going).is_some())
    }
}

fn with_neighbour(pods: &str, neighbour: Option<&str>) -> Ipam {
    let mut ipam = ipam(pods);
    if let Some(network) = neighbour {
        let offered = crate::network::Offered { pod: network.parse().unwrap(), external: None };
        ipam.acquire("neighbour", offered, at(0)).unwrap();
    }
    ipam
}

/// As an API server does it: the generation counts the versions of the spec.
fn change<K: Resource + Serialize + DeserializeOwned>(object: &mut K, patch: &Value) {
    let mut value = json!(object);
    apply(&mut value, patch);
    *object = serde_json::from_value(value).unwrap();
    if patch.get("spec").is_some() {
        object.meta_mut().generation = object.meta().generation.map(|generation| generation + 1);
    }
}

fn delete(configs: &mut Vec<NetworkConfig>, index: usize) {
    let meta = &mut configs[index].metadata;
    if meta.finalizers.as_ref().is_none_or(Vec::is_empty) {
        configs.remove(index);
    } else {
        meta.deletion_timestamp.get_or_insert(Time(at(0)));
    }
}

fn finalize(configs: &mut Vec<NetworkConfig>, index: usize, finalizer: &str) {
    let meta = &mut configs[index].metadata;
    meta.finalizers.get_or_insert_default().retain(|present| present != finalizer);
    if meta.deletion_timestamp.is_some() {
        delete(configs, index);
    }
}

#[derive(Clone, Debug)]
struct World {
    clusters: [Cluster; 2],
    cut: bool,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Wish(usize, Wish),
    /// Another key, port and address; or the gateway has said nothing, or no longer.
    Gateway(usize, Option<u8>),
    /// The cluster is set up anew, or corrects its network.
    Renumber(usize, usize),
    Manage(usize, usize),
    LetGo(usize),
    Replicate(usize, usize),
    Cut(bool),
}

impl World {
    fn new(pods: [usize; 2], neighbours: [Option<usize>; 2]) -> Self {
        let new = |side: usize| {
            let neighbour = neighbours[side].map(|index| PODS[index]);
            Cluster::new(u8::try_from(side).unwrap() + 1, PODS[pods[side]], neighbour)
        };
        Self { clusters: [new(0), new(1)], cut: false }
    }

    fn happen(&mut self, one: Move) -> usize {
        match one {
            Move::Wish(side, wish) => self.clusters[side].wish = wish,
            Move::Gateway(side, number) => self.clusters[side].gateway = number.map(gateway),
            Move::Renumber(side, pods) => self.clusters[side].ipam = ipam(PODS[pods]),
            Move::Cut(cut) => self.cut = cut,
            Move::Manage(side, most) => {
                let writes = self.clusters[side].plan();
                let done = writes.len().min(most);
                writes.into_iter().take(most).for_each(|write| self.clusters[side].perform(write));
                return done;
            }
            Move::LetGo(side) => return self.clusters[side].let_go(),
            Move::Replicate(side, most) => return self.replicate(side, most),
        }
        0
    }

    fn replicate(&mut self, side: usize, most: usize) -> usize {
        if self.cut {
            return 0;
        }
        let rule = rules(&[]).into_iter().find(|rule| rule.resource.resource == "networkconfigs").unwrap();
        let [a, b] = &mut self.clusters;
        let (us, them) = if side == 0 { (a, b) } else { (b, a) };
        let (from, to) = (us.id.clone(), them.id.clone());
        let link = Link { us: &from, peer: &to, namespace: "liqo-tenant" };
        let plan = replication::plan(&link, &rule, &dynamic(&us.configs), &dynamic(&them.configs));
        assert_eq!(plan.problems, []);
        let done = plan.writes.len().min(most);
        let find = |configs: &[NetworkConfig], name: &str| {
            configs.iter().position(|config| config.name_any() == name).unwrap()
        };
        for write in plan.writes.into_iter().take(most) {
            match write {
                Replication::Hold(name) => {
                    let index = find(&us.configs, &name);
                    let held = us.configs[index].metadata.finalizers.get_or_insert_default();
                    held.push(finalizers::REPLICATION.into());
                }
                Replication::Release(name) => {
                    let index = find(&us.configs, &name);
                    finalize(&mut us.configs, index, finalizers::REPLICATION);
                }
                Replication::CreateRemote(copy) => {
                    let mut copy: NetworkConfig = serde_json::from_value(json!(copy)).unwrap();
                    copy.metadata.uid = them.meta(String::new(), None).uid;
                    them.configs.push(copy);
                }
                Replication::PatchRemote(name, patch) => {
                    let index = find(&them.configs, &name);
                    change(&mut them.configs[index], &patch);
                }
                Replication::DeleteRemote(name, _) => {
                    let index = find(&them.configs, &name);
                    delete(&mut them.configs, index);
                }
                Replication::PatchLocalStatus(name, patch) => {
                    let index = find(&us.configs, &name);
                    change(&mut us.configs[index], &patch);
                }
            }
        }
        done
    }

    fn settle(&mut self) {
        self.cut = false;
        for _ in 0..60 {
            let mut done = 0;
            for side in [0, 1] {
                done += self.happen(Move::Manage(side, usize::MAX));
                done += self.happen(Move::LetGo(side));
                done += self.happen(Move::Replicate(side, usize::MAX));
            }
            if done == 0 {
                return;
            }
        }
        panic!("it never comes to rest: {self:#?}");
    }

    fn wish(&mut self, wish: Wish) {
        for side in [0, 1] {
            self.happen(Move::Wish(side, wish));
        }
    }

    /// Both have a tunnel, and what one says of itself the other says of it.
    fn assert_joined(&self) {
        let [a, b] = &self.clusters;
        for (us, them) in [(a, b), (b, a)] {
            let (here, there) = (us.tunnel.as_ref().unwrap(), them.tunnel.as_ref().unwrap());
            let (mine, yours) = (here.status.as_ref().unwrap(), there.status.as_ref().unwrap());
            assert_eq!(mine.local_pod_cidr.as_ref(), Some(&there.spec.pod_cidr));
            assert_eq!(mine.local_external_cidr, there.spec.external_cidr);
            assert_eq!(mine.local_nat_pod_cidr(), yours.remote_nat_pod_cidr());
            assert_eq!(mine.local_nat_external_cidr(), yours.remote_nat_external_cidr());
            assert_eq!(mine.local_endpoint_ip, yours.remote_endpoint_ip);
            let key = us.gateway.unwrap().key_text();
            assert_eq!(there.spec.backend_config.get("publicKey"), Some(&key));
            let port = us.gateway.unwrap().endpoint.port().to_string();
            assert_eq!(there.spec.backend_config.get("port"), Some(&port));
            assert_eq!(mine.gateway_ip, us.gateway.map(|gateway| gateway.node_ip.to_string()));
            assert_eq!(us.plan(), [], "at rest there is nothing to write");
            // What is named is free here.
            let view: Naming = mine.remote_nat_pod_cidr().parse().unwrap();
            let own = us.ipam.own().pod;
            let view = match view {
                Naming::Kept => here.spec.pod_cidr.parse().unwrap(),
                Naming::Replaced(view) => view,
            };
            assert!(!own.contains(&view) && !view.contains(&own), "{own} and {view} overlap");
        }
    }

    fn assert_parted(&self) {
        for cluster in &self.clusters {
            let peers: Vec<_> = cluster.ipam.peers().keys().filter(|peer| *peer != "neighbour").collect();
            assert!(peers.is_empty() && cluster.tunnel.is_none(), "{cluster:#?}");
            assert_eq!(cluster.configs, []);
        }
    }
}

fn dynamic(configs: &[NetworkConfig]) -> Vec<DynamicObject> {
    configs.iter().map(|config| serde_json::from_value(json!(config)).unwrap()).collect()
}

#[test]
fn two_clusters_with_any_networks_come_to_tunnels_that_match() {
    for (a, b) in (0..PODS.len()).flat_map(|a| (0..PODS.len()).map(move |b| (a, b))) {
        let mut world = World::new([a, b], [None, Some(a)]);
        world.wish(Wish::Join);
        world.settle();
        world.assert_joined();
        world.wish(Wish::Part);
        world.settle();
        world.assert_parted();
    }
}

#[test]
fn another_key_or_address_keeps_the_names() {
    let mut world = World::new([0, 0], [None, None]);
    world.wish(Wish::Join);
    world.settle();
    let names = |world: &World| world.clusters.clone().map(|cluster| cluster.ipam.peers().clone());
    let before = names(&world);
    world.happen(Move::Gateway(0, Some(7)));
    world.settle();
    world.assert_joined();
    assert_eq!(names(&world), before);
}

#[test]
fn a_tunnel_of_a_silent_gateway_is_not_connected() {
    let mut world = World::new([0, 0], [None, None]);
    world.wish(Wish::Join);
    world.settle();
    let connection = json!({"status": "connected", "statusMessage": "packets get through",
        "peerConfiguration": {"endpoint": "192.0.2.2:30002"}, "probe": {"lostPerThousand": 1}});
    let here = &mut world.clusters[0];
    let tunnel = here.tunnel.as_mut().unwrap();
    change(tunnel, &json!({"status": {"connection": connection}}));
    assert_eq!(here.plan(), [], "how it fares is the gateway's to say");
    here.is_silent = true;
    let writes = here.plan();
    let [Write::ShowTunnel(patch)] = &writes[..] else { panic!("{writes:?}") };
    let shown = &patch["status"]["connection"];
    assert_eq!((&shown["status"], &shown["probe"]), (&json!("connecting"), &json!(null)));
    assert!(shown["statusMessage"].as_str().unwrap().contains("ferro-gateway"), "{shown}");
    for write in writes {
        here.perform(write);
    }
    assert_eq!(here.plan(), [], "it is said once");
    here.is_silent = false;
    assert_eq!(here.plan(), [], "and the gateway takes it back");
}

#[test]
fn another_network_is_negotiated_from_the_beginning() {
    let mut world = World::new([0, 0], [None, None]);
    world.wish(Wish::Join);
    world.settle();
    world.happen(Move::Renumber(0, 1));
    world.settle();
    world.assert_joined();
    let tunnel = world.clusters[1].tunnel.as_ref().unwrap();
    assert_eq!(tunnel.spec.pod_cidr, PODS[1]);
    assert_eq!(tunnel.status.as_ref().unwrap().remote_nat_pod_cidr(), "None");
}

#[test]
fn who_wants_no_network_has_none_and_the_other_waits() {
    let mut world = World::new([0, 0], [None, None]);
    world.wish(Wish::Join);
    world.settle();
    world.happen(Move::Wish(1, Wish::Part));
    world.settle();
    let [a, b] = &world.clusters;
    assert!(a.tunnel.is_none() && b.tunnel.is_none() && b.ipam.peers().is_empty());
    assert!(a.ours().is_some() && b.ours().is_none());
    world.happen(Move::Wish(1, Wish::Join));
    world.settle();
    world.assert_joined();
}

#[test]
fn a_copy_that_nobody_can_remove_is_not_waited_for() {
    let mut world = World::new([0, 1], [None, None]);
    world.wish(Wish::Join);
    world.settle();
    world.cut = true;
    world.happen(Move::Wish(0, Wish::Part));
    let work = |world: &mut World| {
        for _ in 0..9 {
            world.happen(Move::Manage(0, usize::MAX));
            world.happen(Move::LetGo(0));
        }
    };
    work(&mut world);
    assert!(world.clusters[0].ours().is_some(), "without force it waits");
    assert!(world.clusters[0].ipam.peers().is_empty(), "what is here does not wait");
    world.clusters[0].lost = true;
    work(&mut world);
    assert!(world.clusters[0].ours().is_none());
}

fn moves() -> impl Strategy<Value = Move> {
    let side = 0_usize..2;
    let wish = proptest::sample::select(vec![Wish::Join, Wish::Join, Wish::Keep, Wish::Part]);
    prop_oneof![
        3 => (side.clone(), wish).prop_map(|(side, wish)| Move::Wish(side, wish)),
        1 => (side.clone(), proptest::option::of(10_u8..20)).prop_map(|(side, number)| {
            // The two never have the same key.
            Move::Gateway(side, number.map(|number| number * 2 + u8::try_from(side).unwrap()))
        }),
        1 => (side.clone(), 0..PODS.len()).prop_map(|(side, pods)| Move::Renumber(side, pods)),
        8 => (side.clone(), 0_usize..4).prop_map(|(side, most)| Move::Manage(side, most)),
        2 => side.clone().prop_map(Move::LetGo),
        8 => (side, 0_usize..4).prop_map(|(side, most)| Move::Replicate(side, most)),
        1 => any::<bool>().prop_map(Move::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Random deeds, every plan cut off after a random number of writes, and a link that comes and goes: left in peace,
    /// the two end up joined, and parted with nothing left.
    #[test]
    fn whatever_happens_they_end_up_right(
        pods in [0..PODS.len(), 0..PODS.len()],
        neighbours in [proptest::option::of(0..PODS.len()), proptest::option::of(0..PODS.len())],
        moves in proptest::collection::vec(moves(), 0..80),
    ) {
        let mut world = World::new(pods, neighbours);
        for one in moves {
            world.happen(one);
        }
        for side in [0, 1] {
            let number = u8::try_from(side).unwrap() + 1;
            world.happen(Move::Gateway(side, Some(number)));
        }
        world.wish(Wish::Join);
        world.settle();
        world.assert_joined();
        world.wish(Wish::Part);
        world.settle();
        world.assert_parted();
    }
}
