//! Turin, which provides, and two consumers of which nothing runs: what they do in Turin, tests do with their credentials.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use ferro_api::names::labels;
use ferro_api::tenancy::{Tenant, TenantSpec};
use ferro_api::virtualkubelet::{CurrentMapping, MappingPhase, NamespaceMap};
use ferro_peering::keepsake::{self, Keepsake};
use ferro_peering::remote;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use rig::audit::Audit;
use rig::fuse::Fuse;
use rig::site::{NAMESPACE, Site, audited_clusters, ferro, knows_itself};
use rig::topology::Topology;
use rig::wait::{block_on, eventually};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// One stage for all tests, one test at a time. A test that fails takes the stage along, and the next makes another.
static STAGE: Mutex<Option<Stage>> = Mutex::const_new(None);

/// The three clusters.
pub struct Stage {
    pub turin: Site,
    pub rome: Consumer,
    pub milan: Consumer,
    pub audit: Audit,
    _topology: Topology,
}

/// A cluster that has namespaces in Turin, and what it is there.
pub struct Consumer {
    pub site: Site,
    pub client: Client,
    pub id: String,
    /// Its namespace in Turin, through which the two talk.
    pub control: String,
    provider: String,
}

/// Runs a test on the stage; afterwards the consumers have nothing, and their Tenants say nothing.
pub fn on_stage(test: impl AsyncFnOnce(&mut Stage) -> Result<()>) -> Result<()> {
    block_on(async {
        let mut shared = STAGE.lock().await;
        let mut stage = match shared.take() {
            Some(stage) => stage,
            None => Stage::start().await?,
        };
        test(&mut stage).await?;
        stage.clear().await?;
        *shared = Some(stage);
        Ok(())
    })
}

impl Stage {
    async fn start() -> Result<Self> {
        let topology = audited_clusters("tenants", &["turin", "rome", "milan"]).await?;
        let (turin, rome, milan) = tokio::try_join!(
            Site::start(topology.cluster("turin")?, &[]),
            Site::start(topology.cluster("rome")?, &[]),
            Site::start(topology.cluster("milan")?, &[]),
        )?;
        for site in [&turin, &rome, &milan] {
            knows_itself(site).await?;
        }
        let (rome, milan) = tokio::try_join!(Consumer::enter(rome, &turin), Consumer::enter(milan, &turin))?;
        let audit = Audit::of(&turin.cluster)?;
        Ok(Self { turin, rome, milan, audit, _topology: topology })
    }

    async fn clear(&self) -> Result<()> {
        for consumer in [&self.rome, &self.milan] {
            consumer.ask(&BTreeMap::new()).await?;
            // The controller shows something in it meanwhile.
            eventually("the Tenant says nothing", || self.silence(consumer)).await?;
        }
        for consumer in [&self.rome, &self.milan] {
            eventually("its namespaces are gone", || async {
                let left = self.namespaces_of(consumer).await?;
                ensure!(left.is_empty(), "{left:?}");
                Ok(())
            })
            .await?;
            self.shows_nothing_of(consumer).await?;
        }
        Ok(())
    }

    /// Waits until nothing is said of what a consumer had: the status of its Tenant is held back for some seconds, and the
    /// next test would take what is said of the former one for its own.
    async fn shows_nothing_of(&self, consumer: &Consumer) -> Result<()> {
        eventually("nothing is said of its namespaces", || async {
            let answers = consumer.answers().await?;
            ensure!(answers.is_empty(), "{answers:?}");
            let tenant = self.tenant(consumer).await?;
            let status = tenant.status.unwrap_or_default();
            ensure!(status.namespaces.is_empty(), "{:?}", status.namespaces);
            let (seen, present) = (status.observed_generation, tenant.metadata.generation);
            ensure!(seen == present, "{seen:?} of {present:?} is known");
            Ok(())
        })
        .await
    }

    /// Takes back what an administrator has set for a consumer.
    async fn silence(&self, consumer: &Consumer) -> Result<()> {
        let tenant = self.tenant(consumer).await?;
        let spec = TenantSpec { cluster: tenant.spec.cluster.clone(), ..TenantSpec::default() };
        let nothing = Tenant { spec, ..tenant };
        self.tenants().replace(&consumer.id, &PostParams::default(), &nothing).await?;
        Ok(())
    }

    pub fn tenants(&self) -> Api<Tenant> {
        Api::all(self.turin.admin.clone())
    }

    pub async fn tenant(&self, consumer: &Consumer) -> Result<Tenant> {
        Ok(self.tenants().get(&consumer.id).await?)
    }

    /// What an administrator of Turin sets for a consumer, once the controller knows.
    pub async fn set(&self, consumer: &Consumer, spec: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        let set = self.tenants().patch(&consumer.id, &PatchParams::default(), &patch).await?;
        eventually("the controller knows", || async {
            let seen = self.tenant(consumer).await?.status.and_then(|status| status.observed_generation);
            ensure!(seen >= set.metadata.generation, "{seen:?}");
            Ok(())
        })
        .await
    }

    /// The names of a consumer's namespaces.
    pub async fn namespaces_of(&self, consumer: &Consumer) -> Result<Vec<String>> {
        let namespaces: Api<Namespace> = Api::all(self.turin.admin.clone());
        let found =
            namespaces.list(&ListParams::default().labels(&labels::TENANT.selector(&consumer.id))).await?;
        Ok(found.items.iter().map(Namespace::name_any).collect())
    }

    /// Turin as somebody else, who has no rights but those that the controller gives.
    pub async fn client_of(&self, user: &str) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.turin.cluster.kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.auth_info.impersonate = Some(user.to_owned());
        config.auth_info.impersonate_groups = Some(vec!["system:authenticated".into()]);
        Ok(Client::try_from(config)?)
    }
}

impl Consumer {
    async fn enter(mut site: Site, turin: &Site) -> Result<Self> {
        let (client, control) = join(&mut site, turin).await?;
        let (id, provider) = (site.id().await?, turin.id().await?);
        Ok(Self { site, client, id, control, provider })
    }

    /// Runs again, as what it was.
    pub async fn wake(&mut self) -> Result<()> {
        self.site.run(Fuse::none()).await
    }

    /// Peers again, and goes on with whatever credentials it gets now.
    pub async fn enter_again(&mut self, turin: &Site) -> Result<()> {
        self.wake().await?;
        (self.client, self.control) = join(&mut self.site, turin).await?;
        Ok(())
    }

    pub fn maps(&self) -> Api<NamespaceMap> {
        Api::namespaced(self.client.clone(), &self.control)
    }

    /// The labels of what a consumer writes in Turin.
    pub fn marks(&self) -> Value {
        json!({"liqo.io/replicated": "true", "liqo.io/originID": self.id, "liqo.io/remoteID": self.provider})
    }

    /// Asks for just these namespaces, as the replicator would.
    pub async fn ask(&self, desired: &BTreeMap<String, String>) -> Result<()> {
        let map: NamespaceMap = serde_json::from_value(json!({
            "apiVersion": "virtualkubelet.liqo.io/v1alpha1", "kind": "NamespaceMap",
            "metadata": {"name": self.id, "labels": self.marks()}, "spec": {"desiredMapping": desired},
        }))?;
        loop {
            let asked = match self.maps().get_opt(&self.id).await? {
                None => self.maps().create(&PostParams::default(), &map).await,
                Some(present) => {
                    let map = NamespaceMap { spec: map.spec.clone(), ..present };
                    self.maps().replace(&self.id, &PostParams::default(), &map).await
                }
            };
            match asked {
                // Turin has shown something in it meanwhile.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                asked => return asked.map(drop).map_err(Into::into),
            }
        }
    }

    /// Asks for these namespaces, and waits until all of them may be used: an API server knows rights a moment after they
    /// were written.
    pub async fn has<const N: usize>(&self, entries: [(&str, &str); N]) -> Result<()> {
        self.ask(&entries.map(|(origin, name)| (origin.to_owned(), name.to_owned())).into()).await?;
        for (origin, name) in entries {
            let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), name);
            eventually(&format!("{origin} is accepted"), || async {
                let answer = self.answer(origin).await?;
                ensure!(answer.phase == MappingPhase::Accepted, "{answer:?}");
                maps.list(&ListParams::default().limit(1)).await?;
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// What Turin says to all entries.
    pub async fn answers(&self) -> Result<BTreeMap<String, CurrentMapping>> {
        Ok(self.maps().get(&self.id).await?.status.unwrap_or_default().current_mapping)
    }

    pub async fn answer(&self, origin: &str) -> Result<CurrentMapping> {
        self.answers().await?.remove(origin).context("it is not answered yet")
    }

    /// Why an entry is refused.
    pub async fn refusal(&self, origin: &str) -> Result<String> {
        eventually(&format!("{origin} is refused"), || async {
            let answer = self.answer(origin).await?;
            ensure!(answer.phase == MappingPhase::CreationLoopBackOff, "{answer:?}");
            answer.message.context("it is not said why")
        })
        .await
    }
}

/// Peers with the provider for real, has its Tenant there, and then ends; gives what it is there, and its namespace.
async fn join(site: &mut Site, turin: &Site) -> Result<(Client, String)> {
    let remote = turin.cluster.kubeconfig.display().to_string();
    ferro(&site.cluster, &["peer", "--remote-kubeconfig", &remote]).await?;
    site.reaches(turin, Established, Unpeered).await?;
    turin.reaches(site, Unpeered, Established).await?;
    let (tenants, id) = (Api::<Tenant>::all(turin.admin.clone()), site.id().await?);
    eventually("it has its Tenant", || async { Ok(tenants.get(&id).await?) }).await?;
    site.stop().await;
    let secrets: Api<Secret> = Api::namespaced(site.admin.clone(), NAMESPACE);
    let secret = secrets.get(&keepsake::name(&site.peer(turin).await?.name_any())).await?;
    let (client, grant) = remote::client(&Keepsake::of(&secret))?.context("there is no certificate")?;
    Ok((client, grant.namespace))
}

/// The reason for which a request is refused.
pub fn refused<T: std::fmt::Debug>(answer: kube::Result<T>) -> Result<String> {
    match answer {
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => Ok(status.message.clone()),
        answer => bail!("it is not refused: {answer:?}"),
    }
}
