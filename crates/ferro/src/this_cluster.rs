//! The cluster that a command talks to, as an installation of ours: who it is, and where its objects lie.

use anyhow::{Context as _, bail};
use ferro_api::config::ClusterConfig;
use ferro_api::names::labels;
use ferro_core::auth::{Endorsement, HttpsUrl, Pin};
use ferro_core::identity::ClusterId;
use ferro_peering::identity;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, ObjectList};

use crate::inventory::Installation;
use crate::kube_errors::{Explain as _, allowed, found};

/// What is done to learn who a cluster is.
const READING: &str = "read the configuration";
/// What to do about a cluster without us.
const NOT_INSTALLED: &str = "Ferrofluid is not installed in this cluster; run 'ferro install --wait', or choose \
                             another with --context";

/// A cluster with an installation and an identity.
pub(crate) struct ThisCluster {
    /// To its API server.
    pub(crate) client: Client,
    /// The namespace of the installation.
    pub(crate) namespace: String,
    /// Who it is.
    pub(crate) identity: Identity,
}

/// What a cluster shows of its identity.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Its identifier.
    pub(crate) id: ClusterId,
    /// Its name.
    pub(crate) name: String,
    /// The key that its auth service shows.
    pub(crate) pin: Pin,
    /// Where others reach its API server.
    pub(crate) api_server: Option<HttpsUrl>,
}

impl ThisCluster {
    /// Looks for it.
    pub(crate) async fn find(client: Client) -> anyhow::Result<Self> {
        let namespace = namespace(&client).await?;
        let identity = identity(&client, &namespace).await?;
        let identity = identity.context(
            "this cluster has no identity yet: its controller makes one; is it running? See 'ferro status'",
        )?;
        Ok(Self { client, namespace, identity })
    }
}

/// The namespace of the installation: where its controller is, or at least what that has made.
pub(crate) async fn namespace(client: &Client) -> anyhow::Result<String> {
    if let Some(installation) = Installation::find(client).await? {
        return Ok(installation.namespace);
    }
    let ours = ListParams::default().labels(&labels::PART_OF.selector());
    let maps = Api::<ConfigMap>::all(client.clone()).list(&ours).await;
    let maps = maps.explain(|| "look for an installation".into())?;
    match maps.items.into_iter().find(|map| map.name_any() == identity::NAME) {
        Some(map) => map.namespace().context(NOT_INSTALLED),
        None => bail!(NOT_INSTALLED),
    }
}

/// Who the cluster is, if its controller has found out.
pub(crate) async fn identity(client: &Client, namespace: &str) -> anyhow::Result<Option<Identity>> {
    let map = Api::<ConfigMap>::namespaced(client.clone(), namespace).get(identity::NAME).await;
    let map = found(map).explain(|| format!("read the ConfigMap {namespace}/{}", identity::NAME))?;
    map.as_ref().map(read).transpose()
}

fn read(map: &ConfigMap) -> anyhow::Result<Identity> {
    let part = |key: &str| {
        let part = map.data.as_ref().and_then(|data| data.get(key));
        part.with_context(|| {
            format!("the ConfigMap {} has no {key}; is the controller running?", identity::NAME)
        })
    };
    let damaged = || format!("the ConfigMap {} is damaged; remove it, and it is made anew", identity::NAME);
    let endorsement = Endorsement::parse(part(identity::ENDORSEMENT)?.as_bytes()).with_context(damaged)?;
    Ok(Identity {
        id: part("clusterID")?.parse().with_context(damaged)?,
        name: part("clusterName")?.clone(),
        pin: part("pin")?.parse().with_context(damaged)?,
        api_server: endorsement.api_server_url().cloned(),
    })
}

/// How the cluster is configured.
pub(crate) async fn config(client: &Client) -> anyhow::Result<ClusterConfig> {
    let configs = found(configs(client).await).explain(|| READING.into())?.context(NOT_INSTALLED)?;
    Ok(configs.items.into_iter().next().unwrap_or_default())
}

/// The same, or nothing for who may not see it.
pub(crate) async fn config_if_allowed(client: &Client) -> anyhow::Result<Option<ClusterConfig>> {
    let Some(configs) = allowed(found(configs(client).await)).explain(|| READING.into())? else {
        return Ok(None);
    };
    Ok(Some(configs.context(NOT_INSTALLED)?.items.into_iter().next().unwrap_or_default()))
}

async fn configs(client: &Client) -> kube::Result<ObjectList<ClusterConfig>> {
    Api::<ClusterConfig>::all(client.clone()).list(&ListParams::default()).await
}
