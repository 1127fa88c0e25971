//! Three clusters: Turin, which is to be harmed; Milan, its honest peer; and Rome, of which nothing but a valid
//! certificate is left, in the hands of somebody else.

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::{AuthState, ForeignCluster, ResourceRequest};
use ferro_peering::keepsake::{self, Keepsake};
use ferro_peering::remote;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use rig::fuse::Fuse;
use rig::site::{NAMESPACE, Site, clusters, ferro, knows_itself};
use rig::topology::Topology;
use rig::wait::{block_on, eventually};
use serde_json::Value;
use tokio::sync::Mutex;

/// One stage for all tests, one test at a time. A test that fails takes the stage along, and the next makes another.
static STAGE: Mutex<Option<Stage>> = Mutex::const_new(None);

/// The three clusters.
pub struct Stage {
    pub turin: Site,
    pub milan: Site,
    rome: Site,
    /// The certificate, if nobody has used it to leave traces.
    intruder: Option<Intruder>,
    _topology: Topology,
}

/// Whoever has Rome's certificate for Turin.
pub struct Intruder {
    pub client: Client,
    /// Its namespace in Turin.
    pub namespace: String,
    /// That of Milan in Turin.
    pub neighbour: String,
    /// Rome, Turin and Milan, as they know each other.
    pub own_id: String,
    pub victim_id: String,
    pub neighbour_id: String,
}

/// Runs a test that leaves in Turin what it finds: that Rome was let in, and nothing else of Rome.
pub fn with_intruder(test: impl AsyncFnOnce(&Stage, &Intruder) -> Result<()>) -> Result<()> {
    on_stage(async |stage, intruder| {
        test(stage, &intruder).await?;
        stage.intruder = Some(intruder);
        Ok(())
    })
}

/// The same for one that leaves traces; the next test begins with another certificate.
pub fn with_spent_intruder(test: impl AsyncFnOnce(&Stage, &Intruder) -> Result<()>) -> Result<()> {
    on_stage(async |stage, intruder| test(stage, &intruder).await)
}

fn on_stage(test: impl AsyncFnOnce(&mut Stage, Intruder) -> Result<()>) -> Result<()> {
    block_on(async {
        let mut shared = STAGE.lock().await;
        let mut stage = match shared.take() {
            Some(stage) => stage,
            None => Stage::start().await?,
        };
        let intruder = match stage.intruder.take() {
            Some(intruder) => intruder,
            None => stage.let_in().await?,
        };
        test(&mut stage, intruder).await?;
        *shared = Some(stage);
        Ok(())
    })
}

impl Stage {
    async fn start() -> Result<Self> {
        let topology = clusters("hostile", &["turin", "milan", "rome"]).await?;
        let (turin, milan, rome) = tokio::try_join!(
            Site::start(topology.cluster("turin")?, &[]),
            Site::start(topology.cluster("milan")?, &[]),
            Site::start(topology.cluster("rome")?, &[]),
        )?;
        for site in [&turin, &milan, &rome] {
            knows_itself(site).await?;
        }
        let remote = turin.cluster.kubeconfig.display().to_string();
        let peer = ["peer", "--remote-kubeconfig", &remote, "--bidirectional", "--wait"];
        ferro(&milan.cluster, &peer).await?;
        Ok(Self { turin, milan, rome, intruder: None, _topology: topology })
    }

    /// Rome is let into Turin for real, and then ends.
    async fn let_in(&mut self) -> Result<Intruder> {
        self.rome.run(Fuse::none()).await?;
        tokio::try_join!(forget(&self.turin, &self.rome), forget(&self.rome, &self.turin))?;
        self.add().await?;
        eventually("both have let each other in", || async {
            is_let_in(&self.rome, &self.turin).await?;
            is_let_in(&self.turin, &self.rome).await
        })
        .await?;
        self.rome.stop().await;
        let (turin, neighbour) = (self.rome.peer(&self.turin).await?, self.turin.peer(&self.milan).await?);
        let secrets: Api<Secret> = Api::namespaced(self.rome.admin.clone(), NAMESPACE);
        let secret = secrets.get(&keepsake::name(&turin.name_any())).await?;
        let (client, grant) = remote::client(&Keepsake::of(&secret))?.context("there is no certificate")?;
        let own: Api<ResourceRequest> = Api::namespaced(client.clone(), &grant.namespace);
        eventually("its rights take effect", || async { Ok(own.list(&ListParams::default()).await?) })
            .await?;
        Ok(Intruder {
            client,
            namespace: grant.namespace,
            neighbour: local_namespace(&neighbour)?,
            own_id: id_of(&self.turin.peer(&self.rome).await?)?,
            victim_id: id_of(&turin)?,
            neighbour_id: id_of(&neighbour)?,
        })
    }

    /// A token of Turin, as one carries it to the other cluster.
    async fn add(&self) -> Result<()> {
        let printed = ferro(&self.turin.cluster, &["token", "--output", "json"]).await?;
        let printed: Value = serde_json::from_str(&printed)?;
        let token = printed["token"].as_str().context("no token was printed")?;
        let file = std::env::temp_dir().join(format!("ferro-hostile-token-{}", std::process::id()));
        std::fs::write(&file, token)?;
        let path = file.display().to_string();
        let added = ferro(&self.rome.cluster, &["add", "--token-file", &path, "--wait"]).await;
        std::fs::remove_file(&file)?;
        added.map(drop)
    }

    /// What Turin says about Rome.
    pub async fn suspect(&self) -> Result<ForeignCluster> {
        self.turin.peer(&self.rome).await
    }

    /// What a person in Turin says about Rome.
    pub async fn change(&self, patch: Value) -> Result<()> {
        self.turin.change(&self.rome, patch).await
    }
}

/// Removes what an earlier test has left of a peer.
async fn forget(site: &Site, other: &Site) -> Result<()> {
    let Ok(peer) = site.peer(other).await else { return Ok(()) };
    ferro(&site.cluster, &["remove", &peer.name_any(), "--force", "--yes", "--wait"]).await.map(drop)
}

async fn is_let_in(site: &Site, other: &Site) -> Result<()> {
    let shown = site.peer(other).await?.status.and_then(|status| status.authentication);
    ensure!(shown.as_ref().is_some_and(|shown| shown.state == AuthState::Accepted), "{shown:?}");
    Ok(())
}

fn id_of(peer: &ForeignCluster) -> Result<String> {
    let identity = peer.spec.cluster_identity.as_ref().context("it is not known who it is")?;
    Ok(identity.cluster_id.clone())
}

fn local_namespace(peer: &ForeignCluster) -> Result<String> {
    let namespaces = peer.status.as_ref().and_then(|status| status.tenant_namespaces.as_ref());
    namespaces.and_then(|namespaces| namespaces.local.clone()).context("there is no namespace for it")
}
