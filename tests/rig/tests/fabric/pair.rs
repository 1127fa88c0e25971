//! Two clusters that are peers, and everything that one of them must reach in the other.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use ferro_api::net::{IpamStorage, TunnelEndpoint};
use futures::future::try_join_all;
use kube::Api;
use rig::installation::ferro;
use rig::pods::{Answer, Caller, Echo};
use rig::topology::Cluster;
use rig::tunnels::{connected, external_view, identifier, renames, seen, tunnel, view};
use rig::wait::eventually;

use crate::addresses::Addresses;
use crate::services;

/// The numbers of the nodes that every cluster has.
pub const NODES: [usize; 2] = [1, 2];

/// Two peers.
pub struct Pair<'a>(pub [Side<'a>; 2]);

/// One of them.
pub struct Side<'a> {
    pub cluster: &'a Cluster,
    /// By which the other one knows it.
    pub id: String,
    /// To the other one.
    pub tunnel: TunnelEndpoint,
}

/// From a pod of one to a server of the other.
struct Path<'a> {
    caller: Caller<'a>,
    /// How the caller is called where the server is.
    known_as: IpAddr,
    server: Echo,
    /// How the server is called where the caller is.
    address: IpAddr,
}

impl<'a> Pair<'a> {
    /// Makes two clusters peers, and waits until there are tunnels.
    pub async fn join(here: &'a Cluster, there: &'a Cluster) -> Result<Self> {
        let remote = there.kubeconfig.to_string_lossy().into_owned();
        ferro(here, &["peer", "--remote-kubeconfig", &remote, "--bidirectional", "--wait"]).await?;
        Ok(Self([Side::of(here, there).await?, Side::of(there, here).await?]))
    }

    /// Ends the peering, and waits until neither knows of the networks of the other.
    pub async fn part(self) -> Result<()> {
        let [here, there] = &self.0;
        ferro(here.cluster, &["unpeer", &there.cluster.plan.name, "--bidirectional", "--wait"]).await?;
        for (here, there) in self.ways() {
            here.has_forgotten(there).await?;
        }
        Ok(())
    }

    /// Both ways: who calls, and who is called.
    pub fn ways(&self) -> [(&Side<'a>, &Side<'a>); 2] {
        let [a, b] = &self.0;
        [(a, b), (b, a)]
    }

    /// Which networks have another name where the other one is: pods and external, of the second and then of the first.
    pub fn renamed(&self) -> Result<[bool; 4]> {
        let [[a, b], [c, d]] = [renames(&self.0[0].tunnel)?, renames(&self.0[1].tunnel)?];
        Ok([a, b, c, d])
    }

    /// Pods reach pods, Services and processes of nodes in all ways.
    pub async fn works(&self) -> Result<()> {
        self.is_open().await?;
        // Not beside what must not be lost: a full queue is no fault.
        for (here, there) in self.ways() {
            let paths = here.paths_to(there).await?;
            try_join_all(paths.iter().map(|path| path.caller.mirror(path.address))).await?;
            services::reached(here, there).await?;
        }
        Ok(())
    }

    /// From and to every node, packets of all kinds get through to pods and to processes, both ways at once.
    pub async fn is_open(&self) -> Result<()> {
        let ways = self.ways().map(|(here, there)| async move {
            let paths = here.paths_to(there).await?;
            try_join_all(paths.iter().map(Path::is_open)).await?;
            let of_pods = paths.chunk_by(|one, next| one.caller.ip == next.caller.ip);
            try_join_all(of_pods.map(Path::let_pings_through)).await
        });
        try_join_all(ways).await.map(drop)
    }
}

impl<'a> Side<'a> {
    async fn of(cluster: &'a Cluster, peer: &Cluster) -> Result<Self> {
        Ok(Self { cluster, id: identifier(cluster).await?, tunnel: connected(cluster, peer).await? })
    }

    /// The pods from which to call.
    pub async fn callers(&self) -> Result<Vec<Caller<'a>>> {
        try_join_all(NODES.map(|number| Caller::on(self.cluster, number))).await
    }

    /// The servers in pods.
    pub async fn echoes(&self) -> Result<Vec<Echo>> {
        try_join_all(NODES.map(|number| Echo::on(self.cluster, number))).await
    }

    /// How an address of the other one's pods is called here.
    pub fn name_of(&self, pod: IpAddr) -> Result<IpAddr> {
        seen(pod, view(&self.tunnel)?)
    }

    /// From every pod here to every server there.
    async fn paths_to(&self, there: &Self) -> Result<Vec<Path<'a>>> {
        let mut servers = Vec::new();
        for echo in there.echoes().await? {
            servers.push((self.name_of(echo.ip)?, echo));
        }
        servers.extend(self.processes_of(there).await?);
        let mut paths = Vec::new();
        for number in NODES {
            for (address, server) in servers.clone() {
                let caller = Caller::on(self.cluster, number).await?;
                let known_as = there.name_of(caller.ip)?;
                paths.push(Path { caller, known_as, server, address });
            }
        }
        Ok(paths)
    }

    /// The processes of the other one's nodes, by the addresses that its address manager gives for them.
    async fn processes_of(&self, there: &Self) -> Result<BTreeMap<IpAddr, Echo>> {
        let (addresses, external) = (Addresses::of(there.cluster).await?, external_view(&self.tunnel)?);
        let mut processes = BTreeMap::new();
        for number in NODES {
            let process = Echo::process_of(there.cluster, number);
            let address = addresses.map(&self.id, process.ip).await?;
            ensure!(external.contains(&address), "{address} is not in {external}");
            let other = processes.insert(address, process);
            ensure!(other.is_none(), "{address} stands for two nodes");
        }
        Ok(processes)
    }

    async fn has_forgotten(&self, there: &Self) -> Result<()> {
        let storages: Api<IpamStorage> = Api::all(self.cluster.client.clone());
        eventually(&format!("{} forgets a peer", self.cluster.plan.name), || async {
            ensure!(tunnel(self.cluster, there.cluster).await?.is_none(), "it still has a tunnel");
            let subnets = storages.get("ipam").await?.spec.cluster_subnets;
            ensure!(!subnets.contains_key(&there.id), "it still has names for its networks");
            Ok(())
        })
        .await
    }
}

impl Path<'_> {
    /// TCP and UDP get through, to the right server, which knows the caller by its name there.
    async fn is_open(&self) -> Result<()> {
        self.caller.get(self.address).await?;
        for answer in self.caller.ask(self.address, 2).await? {
            self.is_right(&answer)?;
        }
        self.is_right(&self.caller.ask_by_datagram(self.address).await?)
    }

    /// Pings of one pod get through. One at a time: each gets the answers to all, and busybox gives it so little room that
    /// a long one keeps out the one that it waits for.
    async fn let_pings_through(paths: &[Self]) -> Result<()> {
        for Self { caller, address, .. } in paths {
            for size in [56, 9_000] {
                let pinged = caller.ping(*address, size).await;
                pinged.with_context(|| format!("{caller} pings {address} with {size} bytes"))?;
            }
        }
        Ok(())
    }

    fn is_right(&self, answer: &Answer) -> Result<()> {
        let Self { caller, known_as, server, address } = self;
        ensure!(answer.is_of(server), "{caller} asked {server:?} at {address}: {answer:?}");
        ensure!(answer.is_to(*known_as), "{caller} is not known as {known_as}: {answer:?}");
        Ok(())
    }
}
