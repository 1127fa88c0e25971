//! The cluster that lets others in: bare, with the parts of a controller and an auth service in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferro_api::crds;
use ferro_api::discovery::ForeignCluster;
use ferro_api::names::labels;
use ferro_core::auth::{Terms, TokenSecret};
use ferro_core::identity::{ClusterId, SigningIdentity, new_private_key};
use ferro_peering::home::Home;
use ferro_peering::{approver, auth, identity, tokens};
use ferro_runtime::health::Readiness;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use rig::plan::ClusterSpec;
use rig::topology::Topology;
use rig::wait::eventually;
use ring::rand::SystemRandom;
use serde_json::json;
use tokio::sync::OnceCell;

use crate::peer::{Peer, post};

pub(crate) const NAMESPACE: &str = "liqo";
/// The user of the rig's kubeconfigs, which files requests here as the auth service does elsewhere.
const ADMIN: &str = "kubernetes-admin";
/// Where nobody comes from whose requests are counted in a test.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 250);
const TENANT_ROLES: &str = include_str!("../../../../deploy/chart/templates/tenant-rbac.yaml");
const TENANT_POLICY: &str = include_str!("../../../../deploy/chart/templates/tenant-policy.yaml");

static PROVIDER: OnceCell<Provider> = OnceCell::const_new();
static UNSIGNED: OnceCell<Provider> = OnceCell::const_new();

/// A bare cluster in which the controller's and the auth service's parts run, in this process.
pub(crate) struct Provider {
    _topology: Topology,
    pub(crate) client: Client,
    pub(crate) address: SocketAddr,
    pub(crate) id: ClusterId,
}

pub(crate) async fn provider() -> Result<&'static Provider> {
    let spec = ClusterSpec { bare: true, ..ClusterSpec::named("a") };
    PROVIDER.get_or_try_init(|| Provider::start("admission", spec)).await
}

/// The same where nobody signs certificates.
pub(crate) async fn provider_without_signer() -> Result<&'static Provider> {
    let spec = ClusterSpec { bare: true, signs: false, ..ClusterSpec::named("a") };
    UNSIGNED.get_or_try_init(|| Provider::start("admission-unsigned", spec)).await
}

impl Provider {
    async fn start(name: &str, spec: ClusterSpec) -> Result<Self> {
        let topology = Topology::up(name, vec![spec]).await?;
        let cluster = topology.cluster("a")?;
        let client = cluster.client.clone();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in crds() {
            let how = PatchParams::apply("test");
            definitions.patch(&definition.name_any(), &how, &Patch::Apply(&definition)).await?;
        }
        cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=300s"]).await?;
        cluster.kubectl(&["create", "namespace", NAMESPACE]).await?;
        for template in [TENANT_ROLES, TENANT_POLICY] {
            // Rules that an administrator adds are between lines of their own, and there are none.
            let lines: Vec<&str> = template.lines().filter(|line| !line.starts_with("{{")).collect();
            cluster.apply(&lines.join("\n").replace("{{ .Chart.AppVersion | quote }}", "test")).await?;
        }
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        eventually("the namespace has its authorities", || async { Ok(maps.get("kube-root-ca.crt").await?) })
            .await?;
        let address = run_roles(&client)?;
        let id = eventually("the cluster has an identity", || async {
            let map = maps.get(identity::NAME).await?;
            let id = map.data.and_then(|mut data| data.remove("clusterID")).context("no clusterID")?;
            Ok(ClusterId::derived(&id)?)
        })
        .await?;
        eventually("the auth service answers", || is_open(address)).await?;
        Ok(Self { _topology: topology, client, address, id })
    }

    /// A token as `ferro token` makes one.
    pub(crate) async fn token(&self) -> Result<TokenSecret> {
        let secret = tokens::new_secret()?;
        let expires_at = Timestamp::now() + Duration::from_mins(10);
        tokens::change(&self.client, NAMESPACE, |store| {
            let terms = Terms { expires_at, one_use: true, bound_to: None };
            Ok(store.mint(&secret, terms, Timestamp::now())?)
        })
        .await?;
        Ok(secret)
    }

    /// The names of all that was made for a cluster.
    pub(crate) async fn made_for(&self, peer: &Peer) -> Result<Vec<String>> {
        let id = peer.id().to_string();
        let of_peer = ListParams::default().labels(&labels::REMOTE_ID.selector(&id));
        let namespaces = Api::<Namespace>::all(self.client.clone()).list(&of_peer).await?;
        let clusters = Api::<ForeignCluster>::all(self.client.clone()).list(&ListParams::default()).await?;
        let is_it = |cluster: &ForeignCluster| {
            cluster.spec.cluster_identity.as_ref().is_some_and(|identity| identity.cluster_id == id)
        };
        let clusters = clusters.into_iter().filter(is_it).map(|cluster| cluster.name_any());
        Ok(clusters.chain(namespaces.into_iter().map(|namespace| namespace.name_any())).collect())
    }
}

/// Whether an auth service gives challenges to whoever asks: it does when it has a certificate, and what it seals with.
async fn is_open(address: SocketAddr) -> Result<()> {
    let key = new_private_key(&SystemRandom::new())?;
    let stranger = SigningIdentity::from_pkcs8("stranger".parse()?, key.as_ref())?;
    let (id, public_key) = (stranger.identity().id(), stranger.identity().public_key());
    let request = serde_json::to_vec(&json!({"clusterID": id, "publicKey": public_key}))?;
    let (status, _, body) = post(address, STRANGER, "/challenge", &request).await?;
    ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(&body));
    Ok(())
}

/// Starts what a controller and an auth service are made of.
fn run_roles(client: &Client) -> Result<SocketAddr> {
    let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let tasks = Tasks::default();
    let config =
        Watched::start(&tasks, "configuration", Api::all(client.clone()), watcher::Config::default());
    let (told, own) = tokio::sync::watch::channel(None);
    let home = Home::start(&tasks, client.clone(), NAMESPACE.into(), config.clone(), own);
    let certificates = identity::certificates(&tasks, client.clone(), NAMESPACE);
    tasks.spawn("identity", identity::keep(client.clone(), NAMESPACE.into(), config, certificates, told));
    tasks.spawn("approver", approver::run(tasks.clone(), home, ADMIN.into()));
    let pending = Readiness::default().pending("certificate");
    let serve = auth::serve(tasks.clone(), client.clone(), NAMESPACE.into(), address, pending);
    tasks.spawn("auth", serve);
    Ok(address)
}
