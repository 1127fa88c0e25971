//! Rome, at home, and Turin, its provider, with the namespace `shop` offloaded. Somebody else joins their networks, so that
//! endpoints have the same addresses everywhere.

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use ferro_api::offloading::{NamespaceOffloading, OffloadingPhase};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use rig::audit::Audit;
use rig::site::{Site, audited_clusters, ferro, knows_itself};
use rig::topology::Topology;
use rig::wait::{block_on, eventually};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// One stage for all tests, one test at a time. A test that fails takes the stage along, and the next makes another.
static STAGE: Mutex<Option<Stage>> = Mutex::const_new(None);

/// Kinds of an administrator's own, in the singular.
const OWN_KINDS: [&str; 2] = ["Menu", "Plate"];

/// The definition of one of them.
fn definition(kind: &str) -> String {
    let singular = kind.to_lowercase();
    format!(
        r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {singular}s.example.org}}
spec:
  group: example.org
  scope: Namespaced
  names: {{plural: {singular}s, singular: {singular}, kind: {kind}, listKind: {kind}List}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}}}
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"
    )
}

/// The class that Turin gives to Ingresses that have none.
pub const CLASS: &str = "public";
const CLASSES: &str = r#"
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: public, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}
spec: {controller: example.org/nobody}
"#;

/// The setting of the chart by which controllers, or consumers, may do this with those kinds.
fn rights(whose: &str, verbs: &str) -> String {
    let rule = format!("{whose}.rules[0]");
    format!("{rule}.apiGroups={{example.org}},{rule}.resources={{menus,plates}},{rule}.verbs={{{verbs}}}")
}

/// The two clusters.
pub struct Stage {
    pub rome: Site,
    pub turin: Site,
    /// The namespace over there, and the node that stands for Turin.
    pub there: String,
    pub node: String,
    pub audit: Audit,
    _topology: Topology,
}

/// Runs a test on the stage; afterwards nothing may be left of it over there.
pub fn on_stage(test: impl AsyncFnOnce(&mut Stage) -> Result<()>) -> Result<()> {
    block_on(async {
        let mut shared = STAGE.lock().await;
        let mut stage = match shared.take() {
            Some(stage) => stage,
            None => Stage::start().await?,
        };
        test(&mut stage).await?;
        *shared = Some(stage);
        Ok(())
    })
}

impl Stage {
    async fn start() -> Result<Self> {
        let topology = audited_clusters("reflection", &["rome", "turin"]).await?;
        let (home, away) = (topology.cluster("rome")?, topology.cluster("turin")?);
        let joined = "networkManager.config.mode=external";
        let reads = rights("reflection", "get,list,watch");
        let writes = rights("tenancy", "get,list,watch,create,update,patch,delete");
        let (of_rome, of_turin) = ([joined, &reads], [joined, &writes]);
        let definitions = OWN_KINDS.map(definition).join("---");
        let (rome, turin, ..) = tokio::try_join!(
            Site::start(home, &of_rome),
            Site::start(away, &of_turin),
            home.apply(&definitions),
            away.apply(&definitions),
            away.apply(CLASSES)
        )?;
        for site in [&rome, &turin] {
            knows_itself(site).await?;
        }
        let remote = turin.cluster.kubeconfig.display().to_string();
        ferro(&rome.cluster, &["peer", "--remote-kubeconfig", &remote]).await?;
        rome.reaches(&turin, Established, Unpeered).await?;
        let nodes: Api<Node> = Api::all(rome.admin.clone());
        let nodes = nodes.list(&ListParams::default().labels("liqo.io/type=virtual-node")).await?.items;
        let node = nodes.first().map(ResourceExt::name_any).context("Rome has no virtual node")?;
        let there = format!("shop-{}", rome.id().await?);
        let audit = Audit::of(&turin.cluster)?;
        let stage = Self { rome, turin, there, node, audit, _topology: topology };
        stage.prepare().await?;
        Ok(stage)
    }

    /// Before the namespace is offloaded, since nobody answers for its pods afterwards.
    async fn prepare(&self) -> Result<()> {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "shop"}}))?;
        Api::all(self.rome.admin.clone()).create(&PostParams::default(), &namespace).await?;
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "reader"}, "spec": {
            "nodeName": self.node, "tolerations": [{"operator": "Exists"}], "automountServiceAccountToken": false,
            "containers": [{"name": "reader", "image": "reader", "envFrom": [{"configMapRef": {"name": "settings"}}]}],
            "volumes": [{"name": "keys", "secret": {"secretName": "keys"}}],
        }}))?;
        let pods: Api<Pod> = Api::namespaced(self.rome.admin.clone(), "shop");
        eventually("the pod is there", || async { Ok(pods.create(&PostParams::default(), &pod).await?) })
            .await?;
        let offloading: NamespaceOffloading = serde_json::from_value(json!({
            "apiVersion": "offloading.liqo.io/v1alpha1", "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading"}, "spec": {},
        }))?;
        let offloadings: Api<NamespaceOffloading> = Api::namespaced(self.rome.admin.clone(), "shop");
        offloadings.create(&PostParams::default(), &offloading).await?;
        eventually("shop is offloaded", || async {
            let status = offloadings.get("offloading").await?.status.unwrap_or_default();
            ensure!(status.offloading_phase == Some(OffloadingPhase::Ready), "{status:?}");
            Ok(())
        })
        .await
    }

    /// Objects of a kind at home.
    pub fn here(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.rome.admin.clone(), "shop", &resource(kind))
    }

    /// Objects of a kind over there.
    pub fn there(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.turin.admin.clone(), &self.there, &resource(kind))
    }

    /// Makes an object at home.
    pub async fn make(&self, kind: &str, name: &str, mut object: Value) -> Result<()> {
        object["metadata"]["name"] = name.into();
        let object = serde_json::from_value(object)?;
        self.here(kind).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Changes one.
    pub async fn change(&self, kind: &str, name: &str, patch: &Value) -> Result<()> {
        self.here(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Deletes some.
    pub async fn unmake(&self, kind: &str, names: &[&str]) -> Result<()> {
        for name in names {
            self.here(kind).delete(name, &DeleteParams::default()).await?;
            self.stays_away(kind, name).await?;
        }
        Ok(())
    }

    /// Waits until a copy is as this.
    pub async fn arrives(&self, kind: &str, name: &str, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(&format!("{kind} {name} arrives"), || async {
            let copy = json!(self.there(kind).get(name).await?);
            ensure!(is_it(&copy), "{copy}");
            Ok(copy)
        })
        .await
    }

    /// Waits until there is no copy.
    pub async fn stays_away(&self, kind: &str, name: &str) -> Result<()> {
        eventually(&format!("{kind} {name} is not there"), || async {
            let left = self.there(kind).get_opt(name).await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await
    }

    /// Waits until there is a copy, or until there is none.
    pub async fn goes(&self, kind: &str, name: &str, does: bool) -> Result<()> {
        if does {
            self.arrives(kind, name, |_| true).await.map(drop)
        } else {
            self.stays_away(kind, name).await
        }
    }

    /// Changes what the configuration of Rome says of reflection.
    pub async fn configure(&self, reflection: &Value) -> Result<()> {
        let patch = json!({"spec": {"reflectionConfig": reflection}}).to_string();
        let set = ["patch", "clusterconfig", "liqo-configuration", "--type=merge", "--patch", &patch];
        self.rome.cluster.kubectl(&set).await.map(drop)
    }

    /// Waits until everything that was done before has arrived: what is done after it does, and takes its turn behind.
    pub async fn settles(&self) -> Result<()> {
        self.make(
            "Service",
            "last",
            json!({"spec": {"type": "ExternalName", "externalName": "last.example.org"}}),
        )
        .await?;
        self.arrives("Service", "last", |_| true).await?;
        self.unmake("Service", &["last"]).await
    }

    /// Waits until an Event about an object at home has this reason.
    pub async fn is_told(&self, name: &str, reason: &str) -> Result<String> {
        eventually(&format!("{reason} is told about {name}"), || async {
            let told = self.rome.cluster.kubectl(&["events", "--namespace=shop", "--output=json"]).await?;
            let told: Value = serde_json::from_str(&told)?;
            let events = told["items"].as_array().context("there are none")?;
            let is_it = |event: &&Value| event["involvedObject"]["name"] == name && event["reason"] == reason;
            let event = events.iter().find(is_it).with_context(|| format!("{} others", events.len()))?;
            Ok(event["message"].as_str().unwrap_or_default().to_owned())
        })
        .await
    }
}

pub fn resource(kind: &str) -> ApiResource {
    let (group, plural) = match kind {
        "Service" => ("", "services"),
        "EndpointSlice" => ("discovery.k8s.io", "endpointslices"),
        "ConfigMap" => ("", "configmaps"),
        "Secret" => ("", "secrets"),
        "Menu" => ("example.org", "menus"),
        "Plate" => ("example.org", "plates"),
        _ => ("networking.k8s.io", "ingresses"),
    };
    let gvk = kube::core::GroupVersionKind::gvk(group, "v1", kind);
    ApiResource::from_gvk_with_plural(&gvk, plural)
}
