//! Two clusters with the same networks, and a gateway in each.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use ferro_api::config::Reach;
use ferro_core::network::{
    Agreement, Ours, PeerTable, ProbePair, ReachablePods, Translation, map_to_network,
};
use ferro_fabric::dataplane::{Engine, PeerPlan, Statistics, Tun, Wire};
use ferro_fabric::wireguard::PrivateKey;

use crate::namespace::Namespace;

/// Of the tunnel.
const MTU: u16 = 1420;
const PORT: u16 = 51820;

/// Between the gateways.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outer {
    V4,
    V6,
}

/// One cluster: its gateway, and one pod.
pub struct Side {
    pub namespace: Namespace,
    pub pod: IpAddr,
    pub name: &'static str,
    key: u8,
    outer: IpAddr,
    /// How the other one names our pods and our external network.
    pub views: [&'static str; 2],
    engine: Option<Engine>,
}

impl Side {
    fn new(name: &'static str, key: u8, outer: &str, pod: &str, views: [&'static str; 2]) -> Self {
        let namespace = Namespace::new();
        namespace.ip(&format!("address add {pod}/32 dev lo"));
        let (pod, outer) = (pod.parse().unwrap(), outer.parse().unwrap());
        Self { namespace, pod, name, key, outer, views, engine: None }
    }

    /// Another pod of it; there is no engine here.
    pub fn with_pod(&self, pod: &str) -> Self {
        let (namespace, pod) = (self.namespace.again(), pod.parse().unwrap());
        Self {
            namespace,
            pod,
            name: self.name,
            key: self.key,
            outer: self.outer,
            views: self.views,
            engine: None,
        }
    }

    /// Starts the gateway.
    pub fn start(&mut self) {
        self.start_as(|engine| engine);
    }

    /// The same, made different before it is told anything.
    pub fn start_as(&mut self, made: impl FnOnce(Engine) -> Engine) {
        let key = PrivateKey::new([self.key; 32]);
        let start = || {
            let (tun, wire) = (opened(|| Tun::open("ferro0")), opened(|| Wire::open(PORT)));
            Engine::start(tun, wire, key, MTU).unwrap()
        };
        self.engine = Some(made(self.namespace.run(start)));
        self.namespace.ip(&format!("link set ferro0 up mtu {MTU}"));
        for view in ["10.0.0.0/24", "10.0.40.0/24", "192.168.1.0/24", "192.168.2.0/24"] {
            if !self.views.contains(&view) {
                self.namespace.ip(&format!("route add {view} dev ferro0 src {}", self.pod));
            }
        }
    }

    pub fn stop(&mut self) {
        self.engine.take().unwrap().stop();
    }

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    /// Where the gateway is.
    pub fn endpoint(&self) -> SocketAddr {
        SocketAddr::new(self.outer, PORT)
    }

    /// How the other one names the pod.
    pub fn named(&self) -> IpAddr {
        map_to_network(self.pod, self.views[0].parse().unwrap()).unwrap()
    }

    /// What is wanted of the other one, when our pods are named so there.
    pub fn plan(&self, other: &Self, named: &str, redirections: &BTreeMap<IpAddr, IpAddr>) -> PeerPlan {
        let agreement = Agreement {
            their_pods: translation(other.views[0], "10.244.0.0/24"),
            their_external: Some(translation(other.views[1], "192.168.0.0/24")),
            ours: Some(Ours {
                pods: translation("10.244.0.0/24", named),
                external: Some(translation("192.168.0.0/24", self.views[1])),
            }),
        };
        PeerPlan {
            key: PrivateKey::new([other.key; 32]).public(),
            endpoint: Some(other.endpoint()),
            keepalive: None,
            table: PeerTable::new(&agreement, redirections, Vec::new()).unwrap(),
            probe: Some(ProbePair { ours: first(self.views[1]), theirs: first(other.views[1]) }),
        }
    }

    /// The other one reaches nothing but these endpoints and pods.
    pub fn set_strict(
        &self,
        other: &Self,
        redirections: &BTreeMap<IpAddr, IpAddr>,
        pods: impl IntoIterator<Item = IpAddr>,
    ) {
        let mut plan = self.plan(other, self.views[0], redirections);
        plan.table = plan.table.reaching(ReachablePods::of(Reach::Strict, pods.into_iter().collect()));
        self.engine().set(BTreeMap::from([(other.name.to_owned(), plan)])).unwrap();
    }

    pub fn set(&self, other: &Self, named: &str, redirections: &BTreeMap<IpAddr, IpAddr>) {
        let plan = self.plan(other, named, redirections);
        self.engine().set(BTreeMap::from([(other.name.to_owned(), plan)])).unwrap();
    }
}

fn translation(here: &str, there: &str) -> Translation {
    Translation::new(here.parse().unwrap(), there.parse().unwrap()).unwrap()
}

/// The address of a gateway in its external network.
fn first(network: &str) -> IpAddr {
    network.replace(".0/24", ".1").parse().unwrap()
}

/// Both clusters, joined.
pub struct Pair {
    pub a: Side,
    pub b: Side,
}

impl Pair {
    pub fn new(outer: Outer) -> Self {
        let [a, b] = match outer {
            Outer::V4 => ["192.0.2.1", "192.0.2.2"],
            Outer::V6 => ["2001:db8::1", "2001:db8::2"],
        };
        let mut pair = Self {
            a: Side::new("a", 1, a, "10.244.0.7", ["10.0.40.0/24", "192.168.2.0/24"]),
            b: Side::new("b", 2, b, "10.244.0.5", ["10.0.0.0/24", "192.168.1.0/24"]),
        };
        let to = pair.b.namespace.path();
        pair.a.namespace.ip(&format!("link add outer type veth peer name outer netns {to}"));
        for (side, number) in [(&pair.a, 1), (&pair.b, 2)] {
            side.namespace.ip(&format!("address add 192.0.2.{number}/24 dev outer"));
            side.namespace.ip(&format!("address add 2001:db8::{number}/64 dev outer nodad"));
            side.namespace.ip("link set outer up");
        }
        pair.a.start();
        pair.b.start();
        pair.set();
        pair
    }

    /// What is wanted, as always.
    pub fn set(&self) {
        self.set_with(&BTreeMap::new());
    }

    /// With endpoints of both sides, each under an address that the other one uses.
    pub fn set_with(&self, redirections: &BTreeMap<IpAddr, IpAddr>) {
        self.a.set(&self.b, self.a.views[0], redirections);
        self.b.set(&self.a, self.b.views[0], redirections);
    }

    /// Pods of IPv6 in place of those of IPv4: `fd00:1::/64` in both, named `fd00:b::/64` in A and
    /// `fd00:a::/64` in B.
    pub fn use_inner_v6(&self) {
        for (side, other, named, view, pod) in [
            (&self.a, &self.b, "fd00:a::/64", "fd00:b::/64", "fd00:1::7"),
            (&self.b, &self.a, "fd00:b::/64", "fd00:a::/64", "fd00:1::5"),
        ] {
            side.namespace.ip(&format!("address add {pod}/128 dev lo nodad"));
            side.namespace.ip(&format!("route add {view} dev ferro0 src {pod}"));
            let agreement = Agreement {
                their_pods: translation(view, "fd00:1::/64"),
                their_external: None,
                ours: Some(Ours { pods: translation("fd00:1::/64", named), external: None }),
            };
            let mut plan = side.plan(other, side.views[0], &BTreeMap::new());
            plan.table = PeerTable::new(&agreement, &BTreeMap::new(), Vec::new()).unwrap();
            side.engine().set(BTreeMap::from([(other.name.to_owned(), plan)])).unwrap();
        }
    }

    /// B as A sees it, and A as B does.
    pub fn statistics(&self) -> (Statistics, Statistics) {
        (self.a.engine().statistics()["b"], self.b.engine().statistics()["a"])
    }
}

/// How long anything may take: a first packet that is lost costs seconds, and slowness is not a failure.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for a state.
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "in time: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What the former engine closed is held for some microseconds more by a child of another test, from its fork to its exec.
fn opened<T>(open: impl Fn() -> io::Result<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match open() {
            Err(error) if busy(&error) && Instant::now() < deadline => thread::yield_now(),
            result => return result.unwrap(),
        }
    }
}

fn busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::ResourceBusy)
}
