//! Tokens of service accounts for pods that run elsewhere: what a kubelet does for its own pods, home does for those.
//!
//! A token is asked for at home, bound to the pod there, so that it ends with it. It lies in a Secret over there, which is
//! written before the ShadowPod, so that no kubelet looks for it in vain, and goes after it. [`super::outward`] makes of
//! every volume with a token one that takes it from this Secret, by the keys that [`wanted`] gives.
//!
//! # Guarantees
//! - A pod that has no volume with a token costs nothing.
//! - A Secret stays while there is its pod, or the ShadowPod of that; one without both is left over ([`is_left_over`]).
//! - A token is renewed when four fifths of its time are over, as kubelets do, by one write for all tokens of a pod.
//! - Nothing is remembered: who is ended between a request and its write asks again, and the former token ends unused.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ferro_api::names::{annotations, labels};
use ferro_api::virtualkubelet::ShadowPod;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccountTokenProjection, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

/// The key of the authorities of the API server at home.
pub const AUTHORITIES: &str = "ca.crt";
/// How long a token lives that says nothing about it, in seconds.
const USUAL_LIFETIME: i64 = 3600;
/// Of how many parts of a token's time it is renewed after how many.
const RENEWAL: (i64, i64) = (4, 5);

/// A token that a pod wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its key in the Secret.
    pub key: String,
    /// For whom it is; nobody named means the API server.
    pub audience: Option<String>,
    /// How long it is to live, in seconds.
    pub lifetime: i64,
}

/// A token that was given.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// Its key in the Secret.
    pub key: String,
    /// The token.
    pub token: String,
    /// Until when it is good.
    pub until: Timestamp,
}

/// Without the token: it is nobody's to read.
impl fmt::Debug for Issued {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Issued").field("key", &self.key).field("until", &self.until).finish_non_exhaustive()
    }
}

/// The tokens that a pod wants, in the order of its volumes.
pub fn wanted(pod: &Pod) -> Vec<Wanted> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let sources = volumes.flat_map(projections);
    let wanted = |(index, source): (usize, &ServiceAccountTokenProjection)| Wanted {
        key: key(index),
        audience: source.audience.clone().filter(|audience| !audience.is_empty()),
        lifetime: source.expiration_seconds.unwrap_or(USUAL_LIFETIME),
    };
    sources.enumerate().map(wanted).collect()
}

/// The tokens in a volume.
pub(super) fn projections(volume: &Volume) -> impl Iterator<Item = &ServiceAccountTokenProjection> {
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    sources.filter_map(|source| source.service_account_token.as_ref())
}

/// The key of the token with this number.
pub(super) fn key(index: usize) -> String {
    format!("token-{index}")
}

/// The name of the Secret with the tokens of the pod of this UID.
pub fn secret_name(uid: &str) -> String {
    format!("ferro-token-{uid}")
}

/// What is known about the tokens of one pod.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The pod at home.
    pub pod: &'a Pod,
    /// The Secret over there: its metadata.
    pub secret: Option<&'a Secret>,
    /// The time.
    pub now: Timestamp,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, until something changes.
    Rest,
    /// Nothing, until so much time has passed.
    Wait(Duration),
    /// Ask for all tokens of the pod, and write the Secret.
    Issue,
}

/// What to do next for a pod that runs over there, or is about to.
pub fn plan(snapshot: &Snapshot<'_>) -> Step {
    // A pod that goes keeps what it has.
    if snapshot.pod.metadata.deletion_timestamp.is_some() || wanted(snapshot.pod).is_empty() {
        return Step::Rest;
    }
    let Some(secret) = snapshot.secret else { return Step::Issue };
    let renewal = annotations::RENEW_AT.of(&secret.metadata).and_then(|at| at.parse::<Timestamp>().ok());
    let left = renewal.map(|at| at.duration_since(snapshot.now));
    match left.and_then(|left| Duration::try_from(left).ok()).filter(|left| !left.is_zero()) {
        Some(left) => Step::Wait(left),
        None => Step::Issue,
    }
}

/// Whether a Secret is of no more use, beside the pod and the ShadowPod that have the name of its pod now.
pub fn is_left_over(secret: &Secret, pod: Option<&Pod>, shadow: Option<&ShadowPod>) -> bool {
    let present = pod.and_then(|pod| pod.metadata.uid.as_deref());
    let shadowed = shadow.and_then(|shadow| annotations::ORIGIN_UID.of(&shadow.metadata));
    let uid = annotations::ORIGIN_UID.of(&secret.metadata);
    uid.is_some() && uid != present && uid != shadowed
}

/// The Secret with these tokens, for a namespace over there; `home` is the identifier of this cluster.
pub fn secret(
    pod: &Pod,
    there: &str,
    home: &str,
    authorities: &str,
    issued: &[Issued],
    now: Timestamp,
) -> Secret {
    let mut metadata = ObjectMeta {
        name: Some(secret_name(pod.metadata.uid.as_deref().unwrap_or_default())),
        namespace: Some(there.to_owned()),
        ..ObjectMeta::default()
    };
    labels::ORIGIN_ID.put_on(&mut metadata, home);
    labels::TOKENS.put_on(&mut metadata);
    annotations::ORIGIN_POD.put_on(&mut metadata, pod.metadata.name.as_deref().unwrap_or_default());
    annotations::ORIGIN_UID.put_on(&mut metadata, pod.metadata.uid.as_deref().unwrap_or_default());
    annotations::RENEW_AT.put_on(&mut metadata, renewal(issued, now).to_string());
    let tokens = issued.iter().map(|issued| (issued.key.clone(), bytes(&issued.token)));
    let data: BTreeMap<String, ByteString> =
        tokens.chain([(AUTHORITIES.to_owned(), bytes(authorities))]).collect();
    Secret { metadata, data: Some(data), type_: Some("Opaque".to_owned()), ..Secret::default() }
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

/// When the first of them is to be renewed.
fn renewal(issued: &[Issued], now: Timestamp) -> Timestamp {
    let after = |issued: &Issued| {
        let (parts, of) = RENEWAL;
        let seconds = issued.until.duration_since(now).as_secs().max(0) / of * parts;
        Timestamp::from_second(now.as_second().saturating_add(seconds)).unwrap_or(now)
    };
    issued.iter().map(after).min().unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(volumes: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
            "spec": {"containers": [], "serviceAccountName": "web", "volumes": volumes}}))
        .unwrap()
    }

    fn with_tokens() -> Pod {
        pod(&json!([
            {"name": "kube-api-access-x", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "kube-root-ca.crt"}}]}},
            {"name": "vault", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 600}}]}}]))
    }

    /// Of the pod with this UID.
    fn shadow(uid: &str) -> ShadowPod {
        let mut shadow = ShadowPod::default();
        annotations::ORIGIN_UID.put_on(&mut shadow.metadata, uid);
        shadow
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn issued() -> [Issued; 2] {
        let issued = |key: &str, until| Issued { key: key.into(), token: "secret".into(), until: at(until) };
        [issued("token-0", 3600), issued("token-1", 600)]
    }

    fn step(pod: &Pod, secret: Option<&Secret>, now: i64) -> Step {
        plan(&Snapshot { pod, secret, now: at(now) })
    }

    #[test]
    fn every_token_of_a_pod_is_wanted_as_its_volume_says() {
        let wanted = wanted(&with_tokens());
        assert_eq!(wanted[0], Wanted { key: "token-0".into(), audience: None, lifetime: 3607 });
        assert_eq!(
            wanted[1],
            Wanted { key: "token-1".into(), audience: Some("vault".into()), lifetime: 600 }
        );
    }

    #[test]
    fn a_pod_without_a_token_costs_nothing() {
        let pod = pod(&json!([{"name": "a", "emptyDir": {}}]));
        assert_eq!(step(&pod, None, 0), Step::Rest);
    }

    #[test]
    fn tokens_are_there_from_the_beginning_and_are_renewed_in_time() {
        let pod = with_tokens();
        assert_eq!(step(&pod, None, 0), Step::Issue);
        let secret = secret(&pod, "shop-c1", "c1", "PEM", &issued(), at(0));
        assert_eq!(secret.metadata.name.as_deref(), Some("ferro-token-u1"));
        assert_eq!(step(&pod, Some(&secret), 100), Step::Wait(Duration::from_secs(380)));
        for now in [480, 481, 1_000_000] {
            assert_eq!(step(&pod, Some(&secret), now), Step::Issue, "{now}");
        }
    }

    #[test]
    fn tokens_stay_until_neither_their_pod_nor_its_shadow_is_there() {
        let pod = with_tokens();
        let secret = secret(&pod, "shop-c1", "c1", "PEM", &issued(), at(0));
        let mut later = pod.clone();
        later.metadata.uid = Some("u2".into());
        assert!(!is_left_over(&secret, Some(&pod), None), "the ShadowPod is about to be made");
        assert!(!is_left_over(&secret, None, Some(&shadow("u1"))));
        assert!(!is_left_over(&secret, Some(&later), Some(&shadow("u1"))), "the former one still ends");
        assert!(is_left_over(&secret, Some(&later), Some(&shadow("u2"))));
        assert!(is_left_over(&secret, None, None));
        assert!(!is_left_over(&Secret::default(), None, None), "it is somebody else's");
    }

    #[test]
    fn nothing_is_asked_for_a_pod_that_goes() {
        let mut pod = with_tokens();
        pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(step(&pod, None, 0), Step::Rest);
    }

    #[test]
    fn a_token_is_shown_to_nobody() {
        assert!(!format!("{:?}", issued()).contains("secret"));
    }

    #[test]
    fn a_time_that_cannot_be_read_is_over() {
        let pod = with_tokens();
        let mut secret = secret(&pod, "shop-c1", "c1", "PEM", &issued(), at(0));
        annotations::RENEW_AT.put_on(&mut secret.metadata, "soon");
        assert_eq!(step(&pod, Some(&secret), 0), Step::Issue);
    }
}
