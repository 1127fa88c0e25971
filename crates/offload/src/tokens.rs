//! Tokens for pods that run on peers: asked for at home, written before their ShadowPods, renewed in time; and the way by
//! which these pods reach the API server of home.
//!
//! The way is found out when the first pod wants it, so that where none does nothing is published to a peer.

mod access;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::annotations;
use ferro_api::virtualkubelet::ShadowPod;
use ferro_core::pods::outward::access::Access;
use ferro_core::pods::tokens::{
    AUTHORITIES, Issued, Snapshot, Step, Wanted, is_left_over, plan, secret, secret_name, wanted,
};
use ferro_fabric::ipam::Handle;
use ferro_peering::home::Home;
use ferro_runtime::queue::Queue;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;

use crate::pods::hand::{number, only, seen, unless_gone};
use access::Ways;

const MANAGER: &str = "ferro-tokens";
/// What Kubernetes keeps in every namespace: the authorities of its API server.
const ROOT_CA: &str = "kube-root-ca.crt";
/// The account of pods that name none.
const USUAL_ACCOUNT: &str = "default";
/// No API server gives a token that lives for a shorter time, in seconds.
const SHORTEST: i64 = 600;

/// What all virtual nodes need for this. Clones are the same.
#[derive(Clone)]
pub struct Issuer {
    client: Client,
    namespace: String,
    authorities: Watched<ConfigMap>,
    /// Where the API server of this cluster is.
    servers: Watched<EndpointSlice>,
    /// Whom to ask for the addresses of endpoints.
    asked: watch::Receiver<Option<Handle>>,
}

impl Issuer {
    /// Begins to watch; `asked` says whom to ask for addresses.
    pub fn start(tasks: &Tasks, home: &Home, asked: watch::Receiver<Option<Handle>>) -> Self {
        let (client, namespace) = (home.client.clone(), home.namespace.clone());
        let named = watcher::Config::default().fields(&format!("metadata.name={ROOT_CA}"));
        let maps = Api::namespaced(client.clone(), &namespace);
        let authorities = Watched::start(tasks, "authorities", maps, named);
        let of_server = watcher::Config::default().labels("kubernetes.io/service-name=kubernetes");
        let slices = Api::namespaced(client.clone(), "default");
        let servers = Watched::start(tasks, "API servers", slices, of_server);
        Self { client, namespace, authorities, servers, asked }
    }

    /// Waits until all is known.
    pub(crate) async fn ready(&self) -> Result<()> {
        self.authorities.ready().await?;
        self.servers.ready().await
    }

    fn authorities(&self) -> Result<String> {
        let map = self.authorities.get(Some(&self.namespace), ROOT_CA);
        let found = map.and_then(|map| map.data.as_ref()?.get(AUTHORITIES).cloned());
        found.with_context(|| format!("the ConfigMap {ROOT_CA} has no {AUTHORITIES}"))
    }

    /// A token at home, which ends with the pod.
    async fn issue(&self, pod: &Pod, wanted: &Wanted) -> Result<Issued> {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let account = account.filter(|name| !name.is_empty()).unwrap_or_else(|| USUAL_ACCOUNT.to_owned());
        let bound = BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        };
        let spec = TokenRequestSpec {
            audiences: wanted.audience.iter().cloned().collect(),
            bound_object_ref: Some(bound),
            expiration_seconds: Some(wanted.lifetime.max(SHORTEST)),
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> =
            Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let made = accounts.create_token_request(&account, &PostParams::default(), &request).await;
        let made = made.with_context(|| format!("cannot get a token of the service account {account}"))?;
        let status = made.status.context("the API server gave no token")?;
        Ok(Issued { key: wanted.key.clone(), token: status.token, until: status.expiration_timestamp.0 })
    }
}

/// The tokens of the pods on one virtual node.
pub(crate) struct Tokens {
    issuer: Issuer,
    own: String,
    ways: Arc<Ways>,
}

impl Tokens {
    /// Begins to look after them. When the way to our API server is another one, pods that wait for it are looked at again.
    pub(crate) fn start(
        tasks: &Tasks,
        home: &Home,
        issuer: &Issuer,
        own: &str,
        peer: &str,
        queue: &Queue<(String, String)>,
    ) -> Self {
        let ways = Ways::start(tasks, home, issuer, peer, queue);
        Self { issuer: issuer.clone(), own: own.to_owned(), ways }
    }

    /// Whether a pod has any.
    pub(crate) fn are_wanted(pod: &Pod) -> bool {
        !wanted(pod).is_empty()
    }

    /// Whether a pod reaches our API server.
    pub(crate) fn access(&self, pod: &Pod) -> Access {
        if Self::are_wanted(pod) { self.ways.want(pod) } else { Access::Closed }
    }

    /// Brings the Secret of a pod that runs over there, or is about to, to how it should be.
    pub(crate) async fn keep(&self, pod: &Pod, there: &Place<'_>) -> Result<Kept> {
        if !Self::are_wanted(pod) {
            return Ok(Kept::Until(None));
        }
        if !there.secrets.is_ready() {
            return Ok(Kept::NotYet);
        }
        let name = secret_name(pod.metadata.uid.as_deref().unwrap_or_default());
        let present = there.secrets.get(Some(there.namespace), &name);
        let now = Timestamp::now();
        match plan(&Snapshot { pod, secret: present.as_deref(), now }) {
            Step::Rest => Ok(Kept::Until(None)),
            Step::Wait(pause) => Ok(Kept::Until(Some(pause))),
            Step::Issue => {
                let mut issued = Vec::new();
                for wanted in wanted(pod) {
                    issued.push(self.issuer.issue(pod, &wanted).await?);
                }
                let authorities = self.issuer.authorities()?;
                let secret = secret(pod, there.namespace, &self.own, &authorities, &issued, now);
                there.write(&secret, present.is_some()).await?;
                // The watch will show it, and when to look again.
                Ok(Kept::Until(None))
            }
        }
    }
}

/// Whether a pod has its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is not known yet what there is. Who is looked at again then.
    NotYet,
    /// It has all that it wants, until so much time has passed.
    Until(Option<Duration>),
}

/// A namespace over there, and the Secrets with tokens in it.
pub(crate) struct Place<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) secrets: &'a Watched<Secret>,
    pub(crate) remote: &'a Client,
}

impl Place<'_> {
    /// Takes away what is left over of pods of this name.
    pub(crate) async fn clear(
        &self,
        name: &str,
        pod: Option<&Pod>,
        shadow: Option<&ShadowPod>,
    ) -> Result<()> {
        let is_its = |secret: &&Arc<Secret>| annotations::ORIGIN_POD.of(&secret.metadata) == Some(name);
        let api: Api<Secret> = Api::namespaced(self.remote.clone(), self.namespace);
        for secret in self.secrets.all().iter().filter(is_its) {
            if let Some(uid) = secret.uid().filter(|_| is_left_over(secret, pod, shadow)) {
                unless_gone(api.delete(&secret.name_any(), &only(&uid, None)).await)
                    .context("cannot take away the tokens of a pod that is gone")?;
            }
        }
        Ok(())
    }

    /// Writes a Secret, and waits until the watch has seen it.
    async fn write(&self, secret: &Secret, is_there: bool) -> Result<()> {
        let name = secret.name_any();
        let api: Api<Secret> = Api::namespaced(self.remote.clone(), self.namespace);
        let written = if is_there {
            let how = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
            let content = json!({"metadata": secret.metadata, "data": secret.data});
            unless_gone(api.patch(&name, &how, &Patch::Merge(content)).await)
                .context("cannot renew the tokens")?
        } else {
            let how = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
            unless_gone(api.create(&how, secret).await).context("cannot write the tokens")?
        };
        let Some(written) = written else { return Ok(()) };
        let version = number(written.resource_version());
        seen(self.secrets, |secrets| {
            let present = secrets.get(Some(self.namespace), &name);
            present.is_some_and(|secret| number(secret.resource_version()) >= version)
        })
        .await;
        Ok(())
    }
}
