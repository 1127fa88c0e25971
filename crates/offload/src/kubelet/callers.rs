//! Who asks, and whether it may: the API server of this cluster decides both, as it does for any kubelet.
//!
//! A certificate was verified with the connection, by the authorities that the API server names; a token is reviewed. Then
//! the right on the node is reviewed. What is answered holds for some seconds. Nobody is let in because the API server
//! does not answer, and few questions are put to it at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;
use tracing::warn;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::cache::Cache;
use super::refusal::Refusal;

/// How long an answer of the API server holds.
const HOLDS: Duration = Duration::from_secs(10);
/// So many of them are kept.
const KEPT: usize = 1024;
/// So many questions at once, and how long one may take.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(10);
/// Whom the API server counts everybody to be who has said who it is.
const AUTHENTICATED: &str = "system:authenticated";

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    name: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Caller {
    /// The subject of a certificate that was verified: its name and its organisations.
    pub(super) fn of_certificate(der: &[u8]) -> Option<Self> {
        let ([], certificate) = X509Certificate::from_der(der).ok()? else { return None };
        let subject = certificate.subject();
        let name =
            subject.iter_common_name().last()?.as_str().ok().filter(|name| !name.is_empty())?.to_owned();
        let groups = subject.iter_organization().map(|group| group.as_str().map(str::to_owned));
        let mut groups = groups.collect::<Result<Vec<_>, _>>().ok()?;
        groups.push(AUTHENTICATED.to_owned());
        Some(Self { name, uid: None, groups, extra: BTreeMap::new() })
    }

    fn of_review(user: UserInfo) -> Option<Self> {
        let name = user.username.filter(|name| !name.is_empty())?;
        let (groups, extra) = (user.groups.unwrap_or_default(), user.extra.unwrap_or_default());
        Some(Self { name, uid: user.uid, groups, extra })
    }
}

/// What one has to be allowed to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Right {
    pub(super) verb: &'static str,
    /// One of these parts of the node is enough.
    pub(super) subresources: &'static [&'static str],
    /// The node; without a name, all of them.
    pub(super) node: String,
}

/// Asks the API server of this cluster.
pub(super) struct Callers {
    client: Client,
    /// By the hash of the token.
    tokens: Cache<Vec<u8>, Option<Arc<Caller>>>,
    rights: Cache<(Arc<Caller>, Right), bool>,
    places: Semaphore,
}

impl Callers {
    pub(super) fn new(client: Client) -> Self {
        let (tokens, rights) = (Cache::new(KEPT, HOLDS), Cache::new(KEPT, HOLDS));
        Self { client, tokens, rights, places: Semaphore::new(AT_ONCE) }
    }

    /// Who asks, by a certificate that was verified or else by a token.
    pub(super) async fn identify(
        &self,
        certificate: Option<&[u8]>,
        headers: &HeaderMap,
    ) -> Result<Arc<Caller>, Refusal> {
        if let Some(certificate) = certificate {
            return Caller::of_certificate(certificate).map(Arc::new).ok_or_else(Refusal::unauthorized);
        }
        let token = bearer(headers).ok_or_else(Refusal::unauthorized)?;
        let hash = digest(&SHA256, token.as_bytes()).as_ref().to_vec();
        let known = if let Some(known) = self.tokens.get(&hash, Instant::now()) {
            known
        } else {
            let known = self.review_token(token).await?.map(Arc::new);
            self.tokens.put(hash, known.clone(), Instant::now());
            known
        };
        known.ok_or_else(Refusal::unauthorized)
    }

    /// Whether it may.
    pub(super) async fn allow(&self, caller: &Arc<Caller>, right: Right) -> Result<(), Refusal> {
        let key = (Arc::clone(caller), right);
        let allowed = if let Some(allowed) = self.rights.get(&key, Instant::now()) {
            allowed
        } else {
            let allowed = self.review_right(caller, &key.1).await?;
            self.rights.put(key.clone(), allowed, Instant::now());
            allowed
        };
        if allowed {
            return Ok(());
        }
        let Right { verb, subresources, node } = key.1;
        let (user, parts) = (&caller.name, subresources.join(" or "));
        let on = if node.is_empty() { "all nodes".to_owned() } else { format!("node {node}") };
        let message = format!("Forbidden: user {user:?} needs the right to {verb} nodes/{parts} of {on}");
        Err(Refusal::new(StatusCode::FORBIDDEN, message))
    }

    async fn review_token(&self, token: &str) -> Result<Option<Caller>, Refusal> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = self.ask(&review).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        Ok(user.and_then(Caller::of_review))
    }

    async fn review_right(&self, caller: &Caller, right: &Right) -> Result<bool, Refusal> {
        for subresource in right.subresources {
            let attributes = ResourceAttributes {
                verb: Some(right.verb.into()),
                version: Some("v1".into()),
                resource: Some("nodes".into()),
                subresource: Some((*subresource).into()),
                name: Some(right.node.clone()).filter(|node| !node.is_empty()),
                ..ResourceAttributes::default()
            };
            let spec = SubjectAccessReviewSpec {
                user: Some(caller.name.clone()),
                uid: caller.uid.clone(),
                groups: Some(caller.groups.clone()),
                extra: Some(caller.extra.clone()).filter(|extra| !extra.is_empty()),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            };
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            if self.ask(&review).await?.status.is_some_and(|status| status.allowed) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn ask<K>(&self, review: &K) -> Result<K, Refusal>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
        K: k8s_openapi::serde::Serialize + k8s_openapi::serde::de::DeserializeOwned,
    {
        let unknown = |error: String| {
            // The error is about the question, and does not repeat it.
            warn!(kind = %K::kind(&()), error, "cannot ask the API server who may use a virtual node");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "cannot find out whether this is allowed")
        };
        let answer = async {
            let _place = self.places.acquire().await.map_err(|error| error.to_string())?;
            let api: Api<K> = Api::all(self.client.clone());
            api.create(&PostParams::default(), review).await.map_err(|error| error.to_string())
        };
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(answer) => answer.map_err(unknown),
            Err(_) => Err(unknown("it does not answer".to_owned())),
        }
    }
}

/// The token of a request that has one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?.to_str().ok()?, values.next()) else { return None };
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
