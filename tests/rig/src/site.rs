//! A cluster with ferro, whose roles run in this process: under their own service accounts, so that their rights are
//! tested too, and with clients that can be made to fail.

mod wired;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::{ForeignCluster, PeeringState};
use ferro_api::net::TunnelEndpoint;
use ferro_fabric::ipam::Handle;
use ferro_offload::claims::{self, Ledger};
use ferro_offload::occupancy::Occupancy;
use ferro_offload::pods::{self, Around};
use ferro_offload::reflection::{self, Reflection};
use ferro_offload::tokens::Issuer;
use ferro_peering::home::Home;
use ferro_peering::metrics::Metrics;
use ferro_runtime::health::Readiness;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use http::{Method, Request};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::sync::watch;

use crate::fuse::Fuse;
pub use crate::installation::ferro;
use crate::plan::ClusterSpec;
use crate::topology::{Cluster, Topology};
use crate::wait::{GLANCE, eventually};
pub use wired::Wired;

/// The namespace of an installation.
pub const NAMESPACE: &str = "liqo";
/// What is logged unless `FERRO_LOG` says more: roles that failed, which is seldom what a test is about.
const FAILURES: &str = "ferro_runtime::shutdown=error";
/// The ports at which the auth services of this process listen; each takes the next.
static NEXT_PORT: AtomicU16 = AtomicU16::new(40_000);

/// The loopback address of this process: suites that run side by side do not take each other's ports, nor does anything
/// that connects to somewhere.
fn loopback() -> Ipv4Addr {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 128 | a, b, c)
}

/// Whether nobody listens there. Who has listened may do so for a moment after its end: a program that this process has
/// just begun to start holds all that is open here until it runs.
fn is_free(listen: SocketAddr) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(listen).with_context(|| format!("{listen} is taken"))
}

/// Bare clusters of these names.
pub async fn clusters(name: &str, names: &[&str]) -> Result<Topology> {
    bare(name, names, false).await
}

/// Bare clusters of these names that write down what they are asked for.
pub async fn audited_clusters(name: &str, names: &[&str]) -> Result<Topology> {
    bare(name, names, true).await
}

async fn bare(name: &str, names: &[&str], audited: bool) -> Result<Topology> {
    let spec = |name: &&str| ClusterSpec { bare: true, audited, ..ClusterSpec::named(*name) };
    let directives = std::env::var("FERRO_LOG").unwrap_or_else(|_| FAILURES.to_owned());
    ferro_runtime::logs::start(&directives);
    Topology::up(name, names.iter().map(spec).collect()).await
}

/// A cluster with ferro.
pub struct Site {
    /// Its name.
    pub name: String,
    /// For an administrator.
    pub admin: Client,
    /// The cluster itself.
    pub cluster: Cluster,
    listen: SocketAddr,
    roles: Option<Tasks>,
    restarted: bool,
}

/// What goes to the nodes of peers: pods, and what these need.
fn run_pods(tasks: &Tasks, home: &Home, occupancy: Occupancy, asked: watch::Receiver<Option<Handle>>) {
    let offloadings = Api::all(home.client.clone());
    let offloadings = Watched::start(tasks, "offloadings", offloadings, watcher::Config::default());
    let issuer = Issuer::start(tasks, home, asked.clone());
    let around = Around {
        offloadings,
        occupancy,
        reflection: Reflection::new(tasks, home, asked),
        ledger: Ledger::start(tasks, &home.client),
        issuer,
    };
    tasks.spawn("rights of reflection", reflection::rights::keep(tasks.clone(), home.clone()));
    tasks.spawn("silence", reflection::silence::run(tasks.clone(), home.clone()));
    let stations = pods::Stations::default();
    let claims = claims::run(tasks.clone(), home.clone(), around.ledger.clone(), stations.clone());
    tasks.spawn("claims", claims);
    tasks.spawn("pods", pods::run(tasks.clone(), home.clone(), around, stations));
}

/// Stands in for the gateway, which is not here: what is to go is let go.
async fn let_tunnels_go(admin: Client) -> Result<()> {
    let tunnels: Api<TunnelEndpoint> = Api::all(admin.clone());
    loop {
        let present = tunnels.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        for tunnel in present.iter().filter(|tunnel| tunnel.metadata.deletion_timestamp.is_some()) {
            let namespace = tunnel.namespace().unwrap_or_default();
            let api: Api<TunnelEndpoint> = Api::namespaced(admin.clone(), &namespace);
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            _ = api.patch(&tunnel.name_any(), &PatchParams::default(), &free).await;
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// Nobody goes on working for a cluster that is gone: one of the same name and address may follow it.
impl Drop for Site {
    fn drop(&mut self) {
        if let (Some(tasks), Ok(runtime)) = (self.roles.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { tasks.end().await });
        }
    }
}

impl Site {
    /// Installs ferro in a bare cluster, where no pod can start, and runs its roles here.
    pub async fn start(cluster: &Cluster, settings: &[&str]) -> Result<Self> {
        let name = cluster.plan.name.clone();
        let listen = SocketAddr::from((loopback(), NEXT_PORT.fetch_add(1, Ordering::SeqCst)));
        let url = format!("auth.config.url=https://{listen}");
        let mut arguments = vec!["install", "--cluster-name", &name, "--set", &url];
        for setting in settings {
            arguments.extend(["--set", setting]);
        }
        ferro(cluster, &arguments).await?;
        let mut site = Self {
            name,
            admin: cluster.client.clone(),
            cluster: cluster.clone(),
            listen,
            roles: None,
            restarted: false,
        };
        site.run(Fuse::none()).await?;
        Ok(site)
    }

    /// Runs the roles; what ran before ends first, at whatever point it is.
    pub async fn run(&mut self, fuse: Fuse) -> Result<()> {
        self.stop().await;
        self.restarted = false;
        eventually("nobody listens any more", || async { is_free(self.listen) }).await?;
        let tasks = Tasks::default();
        let auth = self.client_of("ferro-auth", Fuse::none()).await?;
        let readiness = Readiness::default();
        tasks.spawn(
            "auth",
            ferro_peering::auth::serve(
                tasks.clone(),
                auth,
                NAMESPACE.into(),
                self.listen,
                readiness.pending("auth"),
            ),
        );
        let controller = self.client_of("ferro-controller", fuse.clone()).await?;
        let config =
            Watched::start(&tasks, "configuration", Api::all(controller.clone()), watcher::Config::default());
        let mut home = ferro_peering::controller::home(&tasks, controller, NAMESPACE.into(), config);
        if fuse.is_everywhere {
            home.between = Some(Arc::new(move |client| fuse.before(client, is_counted)));
        }
        tasks.spawn("stand-in for the gateway", let_tunnels_go(self.admin.clone()));
        let figures = ferro_fabric::ipam::Metrics::default();
        let (told, asked) = watch::channel(None);
        let networks = ferro_fabric::manager::run::<Handle>(tasks.clone(), home.clone(), figures, told);
        tasks.spawn("networks", networks);
        let occupancy = Occupancy::awaited();
        run_pods(&tasks, &home, occupancy.clone(), asked);
        tasks.spawn("namespaces", ferro_offload::namespaces::run(tasks.clone(), home.clone(), occupancy));
        tasks.spawn("tenants", ferro_offload::tenants::run(tasks.clone(), home.clone()));
        tasks.spawn("shadows", ferro_offload::shadows::run(tasks.clone(), home.clone()));
        let work = ferro_peering::controller::run(tasks.clone(), home, Metrics::default());
        tasks.spawn("controller", work);
        self.roles = Some(tasks);
        Ok(())
    }

    /// Runs the roles anew, after a fuse broke.
    pub async fn restart(&mut self) -> Result<()> {
        self.run(Fuse::none()).await?;
        self.restarted = true;
        Ok(())
    }

    /// Runs the roles anew if one of them has failed, as Kubernetes would.
    pub async fn revive(&mut self) -> Result<()> {
        if self.has_failed() {
            println!("{}: the roles failed and are started again", self.name);
            self.run(Fuse::none()).await?;
        }
        Ok(())
    }

    /// Whether one of the roles has failed, and so all of them have ended.
    pub fn has_failed(&self) -> bool {
        self.roles.as_ref().is_some_and(Tasks::have_ended)
    }

    /// Whether the roles run without a fuse since one broke.
    pub fn was_restarted(&self) -> bool {
        self.restarted
    }

    /// Ends the roles, as a kill would: at whatever point they are.
    pub async fn stop(&mut self) {
        if let Some(tasks) = self.roles.take() {
            tasks.end().await;
        }
    }

    /// A client with the rights of a role, of the writes of which the fuse knows.
    async fn client_of(&self, role: &str, fuse: Fuse) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.cluster.kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.auth_info.impersonate = Some(format!("system:serviceaccount:{NAMESPACE}:{role}"));
        config.auth_info.impersonate_groups = Some(vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{NAMESPACE}"),
            "system:authenticated".into(),
        ]);
        fuse.client(config, is_counted)
    }

    /// The other clusters that it knows.
    pub fn peers(&self) -> Api<ForeignCluster> {
        Api::all(self.admin.clone())
    }

    /// The `ForeignCluster` of another site.
    pub async fn peer(&self, other: &Self) -> Result<ForeignCluster> {
        let all = self.peers().list(&ListParams::default()).await?;
        let of_other = |peer: &ForeignCluster| {
            peer.spec.cluster_identity.as_ref().and_then(|identity| identity.cluster_name.as_deref())
                == Some(&other.name)
        };
        all.items
            .into_iter()
            .find(of_other)
            .with_context(|| format!("{} does not know {}", self.name, other.name))
    }

    /// Applies a merge patch to the `ForeignCluster` of another site.
    pub async fn change(&self, other: &Self, patch: Value) -> Result<()> {
        let name = self.peer(other).await?.name_any();
        self.peers().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Deletes the `ForeignCluster` of another site.
    pub async fn remove(&self, other: &Self) -> Result<()> {
        let name = self.peer(other).await?.name_any();
        self.peers().delete(&name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until both directions of the peering with another site are in these states.
    pub async fn reaches(&self, other: &Self, outgoing: PeeringState, incoming: PeeringState) -> Result<()> {
        let what = format!("{} is {outgoing:?}/{incoming:?} with {}", self.name, other.name);
        eventually(&what, || self.is(other, outgoing, incoming)).await
    }

    /// Whether both directions are in these states.
    pub async fn is(&self, other: &Self, outgoing: PeeringState, incoming: PeeringState) -> Result<()> {
        let status = self.peer(other).await?.status.unwrap_or_default();
        let (to, from) = (status.outgoing.unwrap_or_default(), status.incoming.unwrap_or_default());
        ensure!(
            to.state == outgoing && from.state == incoming,
            "{}: {:?} ({:?}) / {:?} ({:?}), {:?}",
            self.name,
            to.state,
            to.message,
            from.state,
            from.message,
            status.authentication
        );
        Ok(())
    }

    /// Its identifier.
    pub async fn id(&self) -> Result<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let map = maps.get(ferro_peering::identity::NAME).await?;
        map.data.and_then(|mut data| data.remove("clusterID")).context("it does not know itself yet")
    }

    /// Whether it knows no other cluster.
    pub async fn is_alone(&self) -> Result<()> {
        let peers = self.peers().list(&ListParams::default()).await?.items;
        ensure!(peers.is_empty(), "{} still knows {:?}", self.name, peers.first().map(|peer| &peer.status));
        Ok(())
    }
}

/// Waits until a site can give out tokens.
pub async fn knows_itself(site: &Site) -> Result<()> {
    eventually("the cluster knows itself", || async { ferro(&site.cluster, &["token"]).await.map(drop) })
        .await
}

/// Writes, except those that come with time and not with a decision.
fn is_counted(request: &Request<Body>) -> bool {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let is_timed = path.contains("/leases") || query.contains("fieldManager=ferro-keepalive");
    request.method() != Method::GET && !is_timed && !path.contains("/events")
}
