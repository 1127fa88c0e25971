//! One request: whether it is granted, and what is made before it is.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferro_api::common::ClusterIdentity;
use ferro_api::discovery::{DiscoveryType, ForeignCluster, ForeignClusterSpec, TrustMode};
use ferro_api::names::{finalizers, labels};
use ferro_core::auth::{
    Admission, Approved, Denial, Doorstep, Facts, HttpsUrl, Reason, SignedRequest, Standing, UserName, judge,
};
use ferro_core::identity::{ClusterId, Identity};
use ferro_core::names;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tracing::info;

use super::{Approver, Outcome, age};
use crate::keepsake::{self, Keepsake};
use crate::{filing, tenant, tokens};

/// So many clusters that nobody invited may be known at once: each costs a namespace.
const MOST_UNINVITED: usize = 256;
/// How long a peer that was added by its URL may take to say who it is, before it counts as somebody else; and how long
/// one that has rights may take to be seen, before it counts as a stranger.
const INTRODUCTION: Duration = Duration::from_secs(5);

/// What there is of the peer that asks.
#[derive(Clone, Debug, PartialEq)]
enum Peer {
    /// It is not known.
    Unknown,
    /// It may be one that was added by its URL, of which nobody knows yet who it is.
    Unnamed,
    /// It is being removed.
    Going,
    /// It is known, but might still go without a trace.
    NotHeld,
    /// It is known, and held until all that is made for it is gone.
    Held(Arc<ForeignCluster>),
}

impl Approver {
    /// Decides on one request, and makes what whoever is let in needs.
    pub(super) async fn decide(&self, object: &CertificateSigningRequest) -> Result<Outcome> {
        let request = match filing::read(object) {
            Ok(request) => request,
            Err(reason) => return Ok(Outcome::Decided(Err(reason))),
        };
        let peer = find(&self.home.peers.all(), request.claimed_cluster(), request.auth_url());
        let (client, namespace) = (&self.home.client, &self.home.namespace);
        let cluster = *request.claimed_cluster();
        let user = UserName { cluster, generation: tenant::generation(client, namespace, &cluster).await? };
        let bound = tenant::admitted(client, Some(&cluster)).await?;
        let is_early = age(&object.metadata, Timestamp::now()) < INTRODUCTION;
        if is_early && is_overdue(&peer, &bound, &user) {
            return Ok(Outcome::Wait);
        }
        let approved = match self.judge(&request, &user, standing(&peer, &bound, &user)).await? {
            Ok(approved) => approved,
            Err(denial) => return Ok(Outcome::Decided(Err(denial.reason))),
        };
        if self.is_crowded(&peer, &approved) {
            return Ok(Outcome::Decided(Err(Reason::RateLimited)));
        }
        match peer {
            Peer::Going => Ok(Outcome::Decided(Err(Reason::NotApproved))),
            Peer::NotHeld => Ok(Outcome::Wait),
            Peer::Unnamed if is_early => Ok(Outcome::Wait),
            Peer::Unnamed | Peer::Unknown => self.let_in(&approved, None).await,
            Peer::Held(peer) => self.let_in(&approved, Some(&peer)).await,
        }
    }

    async fn judge(
        &self,
        request: &SignedRequest,
        user: &UserName,
        standing: Standing,
    ) -> Result<Result<Approved, Denial>> {
        let doorstep = Doorstep {
            own: self.home.own()?.signer.identity().id(),
            generation: user.generation,
            // The auth service has checked the seal; a second look needs only the time.
            challenges: None,
            now: Timestamp::now(),
        };
        let facts = Facts {
            doorstep,
            allow_empty_token: self.home.settings().auth().allow_empty_token(),
            tokens: &tokens::read(&self.home.client, &self.home.namespace).await?,
            standing,
        };
        Ok(judge(request, &facts))
    }

    /// Where no token is needed, anybody can come under any number of identities.
    fn is_crowded(&self, peer: &Peer, approved: &Approved) -> bool {
        let is_new = matches!(peer, Peer::Unknown | Peer::Unnamed);
        let uninvited =
            |peer: &&Arc<ForeignCluster>| peer.spec.discovery_type() == DiscoveryType::IncomingPeering;
        is_new
            && approved.admission == Admission::EmptyToken
            && self.home.peers.all().iter().filter(uninvited).count() >= MOST_UNINVITED
    }

    /// Uses the token up, then makes what the cluster needs; the rights last.
    async fn let_in(&self, approved: &Approved, peer: Option<&ForeignCluster>) -> Result<Outcome> {
        let client = &self.home.client;
        if let Err(reason) = self.redeem(approved).await? {
            return Ok(Outcome::Decided(Err(reason)));
        }
        let peer = match peer {
            Some(peer) => peer.clone(),
            None => self.make_peer(approved).await?,
        };
        self.learn_address(&peer, approved).await?;
        self.keep_token(&peer, approved).await?;
        let id = approved.identity.id();
        let namespace =
            tenant::ensure_namespace(client, approved.identity.name().as_str(), &id.to_string()).await?;
        tenant::admit(client, &namespace, &approved.user).await?;
        Ok(Outcome::Decided(self.confirm(&peer, &approved.user, &namespace).await?.map(|()| namespace)))
    }

    async fn redeem(&self, approved: &Approved) -> Result<Result<(), Reason>> {
        let Admission::Token(redemption) = approved.admission else { return Ok(Ok(())) };
        tokens::change(&self.home.client, &self.home.namespace, |store| {
            Ok(store.redeem(&redemption, Timestamp::now()))
        })
        .await
    }

    /// Makes the `ForeignCluster`, held from its first moment.
    async fn make_peer(&self, approved: &Approved) -> Result<ForeignCluster> {
        let peer = foreign_cluster(&approved.identity, approved.auth_url.as_ref());
        let name = peer.name_any();
        let peers: Api<ForeignCluster> = Api::all(self.home.client.clone());
        // When there is one already, it is seen in a moment.
        let made = peers.create(&PostParams::default(), &peer).await;
        let made = made.with_context(|| format!("cannot create the ForeignCluster {name}"))?;
        info!(peer = name, "another cluster made itself known");
        Ok(made)
    }

    /// A peer that is known without an address is to be found at the one that it gives.
    async fn learn_address(&self, peer: &ForeignCluster, approved: &Approved) -> Result<()> {
        let (None, Some(url)) = (&peer.spec.auth_url, &approved.auth_url) else { return Ok(()) };
        let peers: Api<ForeignCluster> = Api::all(self.home.client.clone());
        let patch = Patch::Merge(json!({"spec": {"authUrl": url}}));
        let patched = peers.patch(&peer.name_any(), &PatchParams::default(), &patch).await;
        patched.map(drop).with_context(|| format!("cannot note the address of {}", peer.name_any()))
    }

    /// Keeps the token by which this cluster may ask in its turn. Whoever sends one has not let us in, or no longer:
    /// what it granted before is of no use then.
    async fn keep_token(&self, peer: &ForeignCluster, approved: &Approved) -> Result<()> {
        let Some(token) = approved.return_token else { return Ok(()) };
        let (namespace, name) = (&self.home.namespace, peer.name_any());
        let kept = self.home.secrets.get(Some(namespace), &keepsake::name(&name));
        let kept = kept.map(|secret| Keepsake::of(&secret)).unwrap_or_default();
        if kept.token == Some(token) {
            return Ok(());
        }
        let text = keepsake::token_text(&token)?;
        let parts = [(keepsake::TOKEN, Some(text.as_str()))];
        keepsake::put(&self.home.client, namespace, &name, Some(peer), &parts).await
    }

    /// Looks once more, now that the rights are there: whoever removes the peer from here on sees them.
    ///
    /// Had the peer been removed or its certificates revoked just before, the rights must not stay.
    async fn confirm(
        &self,
        peer: &ForeignCluster,
        user: &UserName,
        namespace: &str,
    ) -> Result<Result<(), Reason>> {
        let (client, installation) = (&self.home.client, &self.home.namespace);
        let peers: Api<ForeignCluster> = Api::all(client.clone());
        let present = peers.get_opt(&peer.name_any()).await.context("cannot look at the peer again")?;
        let present = present.filter(|present| present.metadata.uid == peer.metadata.uid);
        let generation = tenant::generation(client, installation, &user.cluster).await?;
        if present.is_none() || generation != user.generation {
            tenant::revoke(client, installation, namespace, &user.cluster).await?;
        }
        match present.as_ref().map(is_held) {
            Some(true) if generation == user.generation => Ok(Ok(())),
            // Its removal takes the rights away in its turn.
            Some(_) => Ok(Err(Reason::NotApproved)),
            None => {
                let namespaces: Api<Namespace> = Api::all(client.clone());
                match namespaces.delete(namespace, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => bail!("cannot delete the namespace {namespace} again: {error}"),
                    Ok(_) => {}
                }
                Ok(Err(Reason::NotApproved))
            }
        }
    }
}

/// The peer of this identifier, among those that are known.
fn find(peers: &[Arc<ForeignCluster>], id: &ClusterId, url: Option<&HttpsUrl>) -> Peer {
    let text = id.to_string();
    let is_it = |peer: &ForeignCluster| {
        peer.spec.cluster_identity.as_ref().is_some_and(|identity| identity.cluster_id == text)
    };
    let mut found: Vec<_> = peers.iter().filter(|peer| is_it(peer)).collect();
    found.sort_by_key(|peer| (peer.metadata.deletion_timestamp.is_some(), peer.name_any()));
    match found.first() {
        Some(peer) if peer.metadata.deletion_timestamp.is_some() => Peer::Going,
        Some(peer) if is_held(peer) => Peer::Held(Arc::clone(peer)),
        Some(_) => Peer::NotHeld,
        None if peers.iter().any(|peer| may_be_at(peer, url)) => Peer::Unnamed,
        None => Peer::Unknown,
    }
}

/// Whether a peer of which nobody knows yet who it is has this address.
fn may_be_at(peer: &ForeignCluster, url: Option<&HttpsUrl>) -> bool {
    let at: Option<HttpsUrl> = peer.spec.auth_url.as_deref().and_then(|url| url.parse().ok());
    peer.spec.cluster_identity.is_none() && at.is_some() && at.as_ref() == url
}

/// Whether a peer stays until all that was made for it is gone.
fn is_held(peer: &ForeignCluster) -> bool {
    peer.metadata.deletion_timestamp.is_none()
        && peer.finalizers().iter().any(|finalizer| finalizer == finalizers::PEERING)
}

/// Whoever has rights under its present name, and is not being removed, was let in before.
fn standing(peer: &Peer, bound: &[UserName], user: &UserName) -> Standing {
    match peer {
        Peer::Held(_) if bound.contains(user) => Standing::LetIn,
        Peer::Held(_) | Peer::Unknown | Peer::Unnamed | Peer::Going | Peer::NotHeld => Standing::Stranger,
    }
}

/// Whether the watch of peers has yet to show one: rights are given only under a `ForeignCluster` that is there.
fn is_overdue(peer: &Peer, bound: &[UserName], user: &UserName) -> bool {
    matches!(peer, Peer::Unknown | Peer::Unnamed) && bound.contains(user)
}

/// A cluster that made itself known.
fn foreign_cluster(identity: &Identity, auth_url: Option<&HttpsUrl>) -> ForeignCluster {
    let (id, name) = (identity.id().to_string(), identity.name().as_str());
    let spec = ForeignClusterSpec {
        auth_url: auth_url.map(ToString::to_string),
        cluster_identity: Some(ClusterIdentity {
            cluster_id: id.clone(),
            cluster_name: Some(name.to_owned()),
        }),
        discovery_type: Some(DiscoveryType::IncomingPeering),
        trust_mode: Some(TrustMode::Unknown),
        ..ForeignClusterSpec::default()
    };
    let mut peer = ForeignCluster::new(&names::foreign_cluster(name, &id), spec);
    labels::PART_OF.put_on(&mut peer.metadata);
    peer.metadata.finalizers = Some(vec![finalizers::PEERING.to_owned()]);
    peer
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferro_core::identity::PublicKey;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn identity() -> Identity {
        let key: PublicKey = serde_json::from_value(json!("A".repeat(43))).unwrap();
        Identity::new("Rome.1".parse().unwrap(), key)
    }

    fn url() -> HttpsUrl {
        "https://192.0.2.7:30443".parse().unwrap()
    }

    fn known() -> ForeignCluster {
        foreign_cluster(&identity(), Some(&url()))
    }

    fn found(peers: Vec<ForeignCluster>) -> Peer {
        let peers: Vec<_> = peers.into_iter().map(Arc::new).collect();
        find(&peers, &identity().id(), Some(&url()))
    }

    #[test]
    fn a_peer_that_made_itself_known_is_held_from_the_beginning() {
        let peer = known();
        assert!(is_held(&peer));
        assert_eq!(peer.spec.discovery_type(), DiscoveryType::IncomingPeering);
        assert!(peer.name_any().starts_with("rome-1-"), "{}", peer.name_any());
        assert_eq!(found(vec![peer.clone()]), Peer::Held(Arc::new(peer)));
    }

    #[test]
    fn a_peer_is_found_by_its_identifier_and_by_nothing_else() {
        let mut other = known();
        other.spec.cluster_identity =
            Some(ClusterIdentity { cluster_id: "another".into(), ..ClusterIdentity::default() });
        assert_eq!(found(vec![other]), Peer::Unknown);
        assert_eq!(found(vec![]), Peer::Unknown);
    }

    #[test]
    fn a_peer_that_goes_or_might_go_is_not_let_in() {
        let mut going = known();
        going.metadata.deletion_timestamp = Some(Time(Timestamp::now()));
        let mut free = known();
        free.metadata.finalizers = None;
        assert_eq!(found(vec![going.clone()]), Peer::Going);
        assert_eq!(found(vec![free]), Peer::NotHeld);
        assert!(matches!(found(vec![going, known()]), Peer::Held(_)));
    }

    #[test]
    fn a_peer_added_by_its_address_may_be_the_one_that_asks() {
        let mut added = known();
        added.spec.cluster_identity = None;
        assert_eq!(found(vec![added.clone()]), Peer::Unnamed);
        added.spec.auth_url = Some("https://192.0.2.8:30443".into());
        assert_eq!(found(vec![added]), Peer::Unknown);
    }

    #[test]
    fn only_rights_of_the_present_generation_spare_a_token() {
        let user = |generation| UserName { cluster: identity().id(), generation };
        let held = found(vec![known()]);
        assert_eq!(standing(&held, &[user(1)], &user(1)), Standing::LetIn);
        assert_eq!(standing(&held, &[user(0)], &user(1)), Standing::Stranger);
        assert_eq!(standing(&held, &[], &user(0)), Standing::Stranger);
        assert_eq!(standing(&Peer::Going, &[user(1)], &user(1)), Standing::Stranger);
    }

    #[test]
    fn whoever_has_rights_is_waited_for_until_the_watch_shows_it() {
        let user = |generation| UserName { cluster: identity().id(), generation };
        assert!(is_overdue(&Peer::Unknown, &[user(1)], &user(1)));
        assert!(!is_overdue(&Peer::Unknown, &[user(0)], &user(1)));
        assert!(!is_overdue(&Peer::Unknown, &[], &user(0)));
        assert!(!is_overdue(&found(vec![known()]), &[user(1)], &user(1)));
    }
}
