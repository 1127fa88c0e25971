//! Rome, at home, with two providers: Turin, over wires that can be cut, and Milan.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use ferro_api::names::labels;
use ferro_api::offloading::{NamespaceOffloading, OffloadingPhase};
use ferro_api::virtualkubelet::NamespaceMap;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rig::audit::{Asked, Audit};
use rig::objects::{await_same, everything};
use rig::site::{Site, Wired, audited_clusters, ferro, knows_itself};
use rig::topology::Topology;
use rig::wait::{block_on, eventually};
use rig::wire::Wire;
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// One stage for all tests, one test at a time. A test that fails takes the stage along, and the next makes another.
static STAGE: Mutex<Option<Stage>> = Mutex::const_new(None);

/// The three clusters.
pub struct Stage {
    pub rome: Wired,
    pub turin: Wired,
    pub milan: Site,
    /// The identifier of Rome.
    pub id: String,
    pub audit: Audit,
    before: [BTreeSet<String>; 3],
    _topology: Topology,
}

/// Runs a test on the stage; afterwards nothing may be left of it, but for maps that are empty.
pub fn on_stage(test: impl AsyncFnOnce(&Stage) -> Result<()>) -> Result<()> {
    block_on(async {
        let mut shared = STAGE.lock().await;
        let stage = match shared.take() {
            Some(stage) => stage,
            None => Stage::start().await?,
        };
        test(&stage).await?;
        stage.is_as_before().await?;
        *shared = Some(stage);
        Ok(())
    })
}

impl Stage {
    async fn start() -> Result<Self> {
        let topology = audited_clusters("namespaces", &["rome", "turin", "milan"]).await?;
        let often = ["advertisement.keepaliveRetryTime=1", "advertisement.keepaliveThreshold=3"];
        let (rome, turin, milan) = tokio::try_join!(
            Wired::start(topology.cluster("rome")?),
            Wired::start(topology.cluster("turin")?),
            Site::start(topology.cluster("milan")?, &often),
        )?;
        knows_itself(&milan).await?;
        for provider in [&turin.site, &milan] {
            let remote = provider.cluster.kubeconfig.display().to_string();
            ferro(&rome.cluster, &["peer", "--remote-kubeconfig", &remote]).await?;
            rome.reaches(provider, Established, Unpeered).await?;
        }
        let (id, audit) = (rome.id().await?, Audit::of(&rome.cluster)?);
        let nothing = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
        let mut stage = Self { rome, turin, milan, id, audit, before: nothing, _topology: topology };
        // The maps are made with the first entry, and stay as long as the peering does.
        stage.make("first").await?;
        stage.offload("first", &json!({})).await?;
        stage.comes_to("first", Some(OffloadingPhase::Ready)).await?;
        stage.unoffload("first").await?;
        stage.unmake("first").await?;
        stage.settles().await?;
        for (before, site) in stage.before.iter_mut().zip([&stage.rome.site, &stage.turin.site, &stage.milan])
        {
            *before = everything(&site.cluster).await?;
        }
        Ok(stage)
    }

    /// What belongs to a provider is gone there when the map says so; what Rome shows may be a moment behind.
    async fn settles(&self) -> Result<()> {
        for provider in [&self.turin.site, &self.milan] {
            eventually("nothing is left at the provider", || async {
                ensure!(self.current(provider).await?.is_empty(), "{} has some", provider.name);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    async fn is_as_before(&self) -> Result<()> {
        self.settles().await?;
        let [rome, turin, milan] = &self.before;
        tokio::try_join!(
            await_same(&self.rome.cluster, rome),
            await_same(&self.turin.site.cluster, turin),
            await_same(&self.milan.cluster, milan),
        )
        .map(drop)
    }

    /// What becomes of all that Rome and Turin send to each other. Milan does not reach Rome then either.
    pub fn between_rome_and_turin(&self, wire: Wire) {
        self.rome.set(wire);
        self.turin.set(wire);
    }

    // ---- namespaces and offloadings of Rome ----

    pub async fn make(&self, name: &str) -> Result<()> {
        make_namespace(&self.rome, name).await
    }

    /// Deletes a namespace, and waits until it is gone.
    pub async fn unmake(&self, name: &str) -> Result<()> {
        self.discard(name).await?;
        namespace_goes(&self.rome, name).await
    }

    /// Deletes a namespace at the end of a test, after which all that is left is waited for.
    pub async fn discard(&self, name: &str) -> Result<()> {
        discard_namespace(&self.rome, name).await
    }

    pub fn offloadings(&self, namespace: &str) -> Api<NamespaceOffloading> {
        Api::namespaced(self.rome.admin.clone(), namespace)
    }

    pub async fn offload(&self, namespace: &str, spec: &Value) -> Result<()> {
        let object = serde_json::from_value(json!({
            "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading"}, "spec": spec,
        }))?;
        self.offloadings(namespace).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    pub async fn patch(&self, namespace: &str, patch: &Value) -> Result<()> {
        self.offloadings(namespace)
            .patch("offloading", &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    pub async fn delete(&self, namespace: &str) -> Result<()> {
        self.offloadings(namespace).delete("offloading", &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn is_gone(&self, namespace: &str) -> Result<()> {
        eventually(&format!("the offloading of {namespace} is gone"), || async {
            let left = self.offloadings(namespace).get_opt("offloading").await?;
            ensure!(left.is_none(), "{:?}", left.and_then(|left| left.status));
            Ok(())
        })
        .await
    }

    /// Deletes the offloading of a namespace, and waits until it is gone.
    pub async fn unoffload(&self, namespace: &str) -> Result<()> {
        self.delete(namespace).await?;
        self.is_gone(namespace).await
    }

    pub async fn offloading(&self, namespace: &str) -> Result<NamespaceOffloading> {
        Ok(self.offloadings(namespace).get("offloading").await?)
    }

    /// Waits until an offloading is in a phase, with a status for its present spec.
    pub async fn comes_to(
        &self,
        namespace: &str,
        phase: Option<OffloadingPhase>,
    ) -> Result<NamespaceOffloading> {
        eventually(&format!("{namespace} comes to {phase:?}"), || async {
            let offloading = self.offloading(namespace).await?;
            let status = offloading.status.clone().unwrap_or_default();
            ensure!(
                status.offloading_phase == phase
                    && status.observed_generation == offloading.metadata.generation,
                "{status:?}"
            );
            Ok(offloading)
        })
        .await
    }

    /// Waits until an offloading is not ready for this reason, and gives the message.
    pub async fn fails(&self, namespace: &str, reason: &str) -> Result<String> {
        eventually(&format!("{namespace} fails with {reason}"), || async {
            let status = self.offloading(namespace).await?.status.unwrap_or_default();
            let ready = condition(&status.conditions, "Ready")?;
            ensure!(ready.status == "False" && ready.reason == reason, "{ready:?}");
            Ok(ready.message.clone())
        })
        .await
    }

    // ---- maps ----

    /// The namespace in Rome that is kept for a provider.
    pub async fn tenant(&self, provider: &Site) -> Result<String> {
        let status = self.rome.peer(provider).await?.status.unwrap_or_default();
        status
            .tenant_namespaces
            .and_then(|namespaces| namespaces.local)
            .context("there is no namespace for it")
    }

    pub async fn map(&self, provider: &Site) -> Result<Option<NamespaceMap>> {
        let maps: Api<NamespaceMap> = Api::namespaced(self.rome.admin.clone(), &self.tenant(provider).await?);
        Ok(maps.get_opt(&self.id).await?)
    }

    pub async fn desired(&self, provider: &Site) -> Result<BTreeMap<String, String>> {
        Ok(self.map(provider).await?.map(|map| map.spec.desired_mapping).unwrap_or_default())
    }

    pub async fn current(&self, provider: &Site) -> Result<BTreeMap<String, Value>> {
        let status = self.map(provider).await?.and_then(|map| map.status).unwrap_or_default();
        Ok(serde_json::from_value(json!(status.current_mapping))?)
    }

    /// Waits until a namespace is asked for at exactly these providers.
    pub async fn is_asked_for(&self, namespace: &str, at: &[&Site]) -> Result<()> {
        let names: Vec<&str> = at.iter().map(|site| site.name.as_str()).collect();
        eventually(&format!("{namespace} is asked for at {names:?}"), || async {
            for provider in [&self.turin.site, &self.milan] {
                let is = self.desired(provider).await?.contains_key(namespace);
                let should_be = names.contains(&provider.name.as_str());
                ensure!(is == should_be, "{}: {is}", provider.name);
            }
            Ok(())
        })
        .await
    }

    /// The map of a provider, as it is called in the audit log.
    pub async fn map_name(&self, provider: &Site) -> Result<String> {
        Ok(format!("{}/{}", self.tenant(provider).await?, self.id))
    }

    /// The labels that the node of a provider gets in Rome, in place of those that it got before. Waits until it has them:
    /// a selector that is judged before would select others.
    pub async fn label_node(&self, provider: &Site, set: &Value) -> Result<()> {
        let before = json!(self.rome.peer(provider).await?.spec)["nodeLabels"]["set"].clone();
        // A merge patch leaves labels that it does not name.
        self.rome.change(provider, json!({"spec": {"nodeLabels": {"set": null}}})).await?;
        self.rome.change(provider, json!({"spec": {"nodeLabels": {"set": set}}})).await?;
        let of_provider = labels::REMOTE_ID.selector(&provider.id().await?);
        let nodes: Api<Node> = Api::all(self.rome.admin.clone());
        eventually(&format!("the node of {} has the labels {set}", provider.name), || async {
            let node = nodes.list(&ListParams::default().labels(&of_provider)).await?.items.pop();
            let present = json!(node.context("there is no node")?.metadata.labels);
            for (key, _) in [&before, set].into_iter().filter_map(Value::as_object).flatten() {
                ensure!(present[key] == set[key], "{key} is {}", present[key]);
            }
            Ok(())
        })
        .await
    }
}

/// Writes of the controller that is tested, without those of the replicator.
pub fn by_us(asked: &[Asked]) -> Vec<Asked> {
    let ours = |one: &&Asked| one.manager.as_deref() == Some("ferro-offloading") && one.is_write();
    asked.iter().filter(ours).cloned().collect()
}

pub fn condition<'a>(conditions: &'a [Condition], type_: &str) -> Result<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_).context("there is no such condition")
}

pub async fn namespace(site: &Site, name: &str) -> Result<Option<Namespace>> {
    Ok(Api::<Namespace>::all(site.admin.clone()).get_opt(name).await?)
}

pub async fn make_namespace(site: &Site, name: &str) -> Result<()> {
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Api::all(site.admin.clone()).create(&PostParams::default(), &object).await?;
    Ok(())
}

pub async fn discard_namespace(site: &Site, name: &str) -> Result<()> {
    Api::<Namespace>::all(site.admin.clone()).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

pub async fn namespace_goes(site: &Site, name: &str) -> Result<()> {
    eventually(&format!("the namespace {name} of {} is gone", site.name), || async {
        let left = namespace(site, name).await?;
        ensure!(left.is_none(), "{:?}", left.map(|left| (left.name_any(), left.status)));
        Ok(())
    })
    .await
}
