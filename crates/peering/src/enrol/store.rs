//! All writes of a peer's task: into its `ForeignCluster`, its Secret, and the tokens that let it in here.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferro_api::discovery::{DiscoveryType, ForeignCluster};
use ferro_api::names::labels;
use ferro_core::auth::{IdentityGrant, Pin, Terms, TokenSecret};
use ferro_core::names::tenant_namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::View;
use super::peer::Peer;
use super::report::{Report, spec_patch};
use crate::contact::Met;
use crate::identity::Own;
use crate::keepsake::{self, GRANT, KEY, Keepsake, NEXT_KEY, TOKEN};
use crate::tokens;

/// What lets a peer into its tenant namespace here.
const ADMISSION: &str = "ferro-peer";
/// How long our own write may take to come back to us.
const ECHO: Duration = Duration::from_secs(10);
/// A token that we made is not shown any more when so little of its time is left.
const NEAR_END: Duration = Duration::from_mins(1);
const MANAGER: &str = "ferro-enrol";

fn how() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

impl Peer {
    fn peers(&self) -> Api<ForeignCluster> {
        Api::all(self.home.client.clone())
    }

    /// Writes what a meeting found out into the spec; nothing when somebody else was faster and has to be seen first.
    pub(super) async fn write_down(&self, peer: &ForeignCluster) -> Result<Option<ForeignCluster>> {
        let met = self.met.as_ref().map(|(.., met)| met);
        let Some(patch) = met.and_then(|met| spec_patch(peer, met)) else { return Ok(Some(peer.clone())) };
        match self.peers().patch(&self.name, &how(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            patched => patched
                .map(Some)
                .with_context(|| format!("cannot write who the ForeignCluster {} is", self.name)),
        }
    }

    /// Writes down that the peer has another key now.
    pub(super) async fn follow_key(&self, peer: &ForeignCluster, pin: &Pin) -> Result<()> {
        let version = &peer.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"authPin": pin}});
        match self.peers().patch(&self.name, &how(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            patched => {
                patched
                    .with_context(|| format!("cannot write the new key of ForeignCluster {}", self.name))?;
                info!(peer = self.name, %pin, "the peer has a new key, and vouches for it");
            }
        }
        Ok(())
    }

    /// Writes what is to be shown, if it is not shown already.
    pub(super) async fn report(&mut self, peer: &ForeignCluster, report: &Report) -> Result<()> {
        let Some(patch) = report.patch(peer) else { return Ok(()) };
        let patch: Patch<Value> = Patch::Merge(patch);
        match self.peers().patch_status(&self.name, &how(), &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            patched => {
                patched
                    .with_context(|| format!("cannot write the status of ForeignCluster {}", self.name))?;
            }
        }
        if report.seen.is_some() {
            self.seen = None;
        }
        Ok(())
    }

    /// The key of the request in flight; with it, a token that is good for one use is good again after a cut.
    pub(super) async fn ensure_key(&mut self, peer: &ForeignCluster) -> Result<KeyPair> {
        let stored = self.kept.keepsake.next_key.as_ref();
        if let Some(key) = stored.and_then(|pem| KeyPair::from_pem(pem).ok()) {
            return Ok(key);
        }
        let key = KeyPair::generate().context("cannot make a key")?;
        let pem = key.serialize_pem();
        self.put(peer, &[(NEXT_KEY, Some(&pem))]).await?;
        // With it shows what others stored before: a token, perhaps, since watches are not equally fast.
        self.until_seen(|kept| kept.next_key.as_ref() == Some(&pem)).await?;
        Ok(key)
    }

    /// What is stored now, as far as our own view shows it.
    pub(super) fn stored(&self) -> Keepsake {
        kept(&self.view.borrow())
    }

    /// Waits until our own view shows what was stored.
    async fn until_seen(&mut self, is_stored: impl Fn(&Keepsake) -> bool) -> Result<()> {
        match tokio::time::timeout(ECHO, self.view.wait_for(|view| is_stored(&kept(view)))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => bail!("the Secret for the peer was written, but does not come back"),
        }
    }

    /// Stores what was granted in one step, and waits until our own view shows it.
    pub(super) async fn keep(
        &mut self,
        peer: &ForeignCluster,
        key: &KeyPair,
        token: Option<TokenSecret>,
        grant: &IdentityGrant,
    ) -> Result<()> {
        let (json, pem) = (serde_json::to_string(grant)?, key.serialize_pem());
        let mut parts = vec![(GRANT, Some(json.as_str())), (KEY, Some(pem.as_str())), (NEXT_KEY, None)];
        // A token that came meanwhile is not the one that was used.
        if token.is_some() && self.stored().token == token {
            parts.push((TOKEN, None));
        }
        self.put(peer, &parts).await?;
        self.until_seen(|kept| kept.grant.as_ref() == Some(grant)).await
    }

    async fn put(&self, peer: &ForeignCluster, parts: &[(&str, Option<&str>)]) -> Result<()> {
        keepsake::put(&self.home.client, &self.home.namespace, &self.name, Some(peer), parts).await
    }

    /// Whether the peer should get a token with which it can ask this cluster in its turn, as it must to send offers.
    /// Only a peer that somebody wants gets one: whoever merely announces itself must not be let in for that.
    fn invites(&self, peer: &ForeignCluster, own: &Own) -> bool {
        let wanted = peer.spec.join() || peer.spec.discovery_type() == DiscoveryType::Manual;
        wanted && own.reach.auth.is_some() && !self.home.settings().auth().allow_empty_token()
    }

    /// Whether a peer that has let us in still lacks that token, since it was not wanted before or none could be made.
    pub(super) async fn must_invite(&mut self, peer: &ForeignCluster, own: &Own) -> Result<bool> {
        let Some((.., met)) = self.met.clone() else { return Ok(false) };
        if Timestamp::now() < self.invited
            || self.kept.held.is_none()
            || self.setback.is_some()
            || !self.invites(peer, own)
        {
            return Ok(false);
        }
        Ok(self.ensure_token(peer, &met).await?.is_some())
    }

    /// The token for the peer, if it should get one. Without it a person can give it one, so failing to make it does
    /// not stop our own request.
    pub(super) async fn return_token(
        &mut self,
        peer: &ForeignCluster,
        met: &Met,
        own: &Own,
    ) -> Option<TokenSecret> {
        if !self.invites(peer, own) {
            return None;
        }
        self.ensure_token(peer, met).await.unwrap_or_else(|error| {
            warn!(peer = self.name, error = format!("{error:#}"), "the peer gets no token from us yet");
            None
        })
    }

    /// The same token in every try; none for a peer that is let in.
    async fn ensure_token(&mut self, peer: &ForeignCluster, met: &Met) -> Result<Option<TokenSecret>> {
        let now = Timestamp::now();
        if let Some((token, _)) = self.return_token.filter(|(_, end)| now < *end) {
            return Ok(Some(token));
        }
        if self.is_let_in(peer, met).await? {
            self.invited = now + self.home.settings().auth().token_lifetime();
            return Ok(None);
        }
        let (token, lifetime) = (tokens::new_secret()?, self.home.settings().auth().token_lifetime());
        let terms = Terms { expires_at: now + lifetime, one_use: true, bound_to: Some(met.identity.id()) };
        tokens::change(&self.home.client, &self.home.namespace, |store| {
            store.sweep(now);
            Ok(store.mint(&token, terms.clone(), now)?)
        })
        .await?;
        self.return_token = Some((token, now + lifetime.saturating_sub(NEAR_END)));
        Ok(Some(token))
    }

    /// Whether the peer has rights here already, and so needs no token.
    async fn is_let_in(&self, peer: &ForeignCluster, met: &Met) -> Result<bool> {
        let id = met.identity.id().to_string();
        let kept = peer.status.as_ref().and_then(|status| status.tenant_namespaces.as_ref()?.local.clone());
        let name = peer.spec.cluster_identity.as_ref().and_then(|identity| identity.cluster_name.clone());
        let namespace = kept.unwrap_or_else(|| tenant_namespace(name.as_deref().unwrap_or_default(), &id));
        let bindings: Api<RoleBinding> = Api::namespaced(self.home.client.clone(), &namespace);
        let binding = bindings.get_opt(ADMISSION).await;
        let binding =
            binding.with_context(|| format!("cannot read the RoleBinding {namespace}/{ADMISSION}"))?;
        Ok(binding.is_some_and(|binding| labels::REMOTE_ID.of(&binding.metadata) == Some(id.as_str())))
    }
}

fn kept(view: &View) -> Keepsake {
    view.secret.as_deref().map(Keepsake::of).unwrap_or_default()
}
