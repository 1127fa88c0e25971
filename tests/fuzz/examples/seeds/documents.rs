//! Samples of what is exchanged and stored as JSON, PEM or protobuf: made by the code that makes it in the product.

use anyhow::{Context as _, Result};
use ferro_api::config::Reach;
use ferro_api::proto::gateway::{Acknowledged, Change, Entry, Tunnel, Tunnels};
use ferro_api::proto::ipam::{BelongsRequest, MapRequest, MapResponse};
use ferro_core::auth::{
    Ask, ChallengeKey, ChallengeRequest, Credential, Denial, Endorsement, HttpsUrl, IdentityGrant, JoinToken,
    Pin, Reason, Terms, TokenSecret, TokenStore, UserName,
};
use ferro_core::network::{Answer, Ipam, Naming, Offered, OwnNetworks, default_pools};
use fuzz::{NOW, own_id, private_key, signer};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use prost::Message as _;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};

use crate::Seed;

const KEY: &str = "+CiHH3SJp2CQIj/Hu8jlyDWJOn7P40MQZfHfad0Du0g=";

pub fn seeds() -> Result<Vec<Seed>> {
    Ok([exchange()?, networks()?, messages(), objects()].concat())
}

fn named(user: &UserName) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user.to_string());
    params.not_before = rcgen::date_time_ymd(2027, 1, 15);
    params.not_after = rcgen::date_time_ymd(2027, 1, 16);
    params
}

/// Everything that is said until a cluster is let in.
fn exchange() -> Result<Vec<Seed>> {
    let (signer, provider) = (signer().context("no key")?, own_id().context("no identifier")?);
    let (now, identity) = (Timestamp::from_second(NOW)?, signer.identity());
    let later = now.checked_add(SignedDuration::from_hours(1))?;
    let user = UserName { cluster: identity.id(), generation: 0 };
    let key = KeyPair::try_from(&PrivatePkcs8KeyDer::from(private_key()))?;
    let csr = named(&user).serialize_request(&key)?;
    let certificate = named(&user).self_signed(&key)?;
    let challenge = ChallengeKey::new(&[5; 32]).issue(user, &[6; 16], now);
    let (secret, pin, url) = (TokenSecret::new([3; 32]), Pin([1; 32]), "https://192.0.2.7:30443".parse()?);
    let ask = Ask {
        audience: provider,
        nonce: challenge.nonce,
        csr: csr.pem()?,
        token: Some(secret),
        auth_url: Some("https://192.0.2.7:30443".parse()?),
        return_token: Some(TokenSecret::new([4; 32])),
    };
    let plain = Ask { token: None, auth_url: None, return_token: None, ..ask.clone() };
    let grant = |credential| IdentityGrant {
        namespace: "liqo-tenant-rome-0a1b2c".into(),
        credential,
        api_server_url: HttpsUrl::clone(&url),
        api_server_ca: certificate.pem(),
        expires_at: later,
    };
    let request = ChallengeRequest { cluster_id: identity.id(), public_key: *identity.public_key() };
    let mut store = TokenStore::default();
    store.mint(&secret, Terms { expires_at: later, one_use: true, bound_to: None }, now)?;
    store.mint(
        &TokenSecret::new([8; 32]),
        Terms { expires_at: now, one_use: false, bound_to: Some(provider) },
        now,
    )?;
    let token = JoinToken { auth_url: url.clone(), cluster_id: provider, pin, secret };
    Ok(vec![
        ("challenge_request", "plain", written(&json!(request))),
        ("challenge", "plain", written(&json!(challenge))),
        ("identity_request", "token", written(&json!(ask.sign(signer)))),
        ("identity_request", "plain", written(&json!(plain.sign(signer)))),
        ("identity_grant", "certificate", written(&json!(grant(Credential::Certificate(certificate.pem()))))),
        ("identity_grant", "token", written(&json!(grant(Credential::BearerToken("secret".into()))))),
        ("denial", "token", written(&json!(Denial::from(Reason::InvalidToken)))),
        ("denial", "silent", written(&json!({"reason": "RateLimited"}))),
        ("endorsement", "plain", written(&json!(Endorsement::sign(signer, &pin, None, later)))),
        ("endorsement", "url", written(&json!(Endorsement::sign(signer, &pin, Some(url), later)))),
        ("csr", "pem", csr.pem()?.into_bytes()),
        ("csr", "der", csr.der().to_vec()),
        ("certificate", "pem", certificate.pem().into_bytes()),
        ("certificate", "der", certificate.der().to_vec()),
        ("token_store", "two", written(&store.to_json())),
        ("token_store", "empty", b"{}".to_vec()),
        ("join_token", "plain", token.reveal().into_bytes()),
        ("join_token", "content", content(&token)),
        ("lan_report", "one", report(&provider.to_string())),
    ])
}

/// The bytes of a token before they are sealed: version, identifier, pin, secret, URL.
fn content(token: &JoinToken) -> Vec<u8> {
    [&[1][..], &[0x34; 16], &token.pin.0, &[3; 32], token.auth_url.to_string().as_bytes()].concat()
}

fn report(id: &str) -> Vec<u8> {
    let heard = json!({
        "instance": "rome-0a1b2c3d4e", "id": id, "name": "rome", "url": "https://192.0.2.7:30443", "pin": Pin([1; 32]),
    });
    written(&json!({"expiresAt": "2027-01-15T08:05:00Z", "sightings": [heard]}))
}

fn written(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// What clusters say of networks, and what is stored of it.
fn networks() -> Result<Vec<Seed>> {
    let own = OwnNetworks {
        pod: "10.244.0.0/16".parse()?,
        service: "10.96.0.0/16".parse()?,
        reserved: ["172.18.0.0/24".parse()?].into(),
        pools: default_pools(),
        reach: Reach::Default,
    };
    let mut ipam = Ipam::new(own, 24)?;
    let offered = Offered { pod: "10.244.0.0/16".parse()?, external: Some("192.168.7.0/24".parse()?) };
    let now = Timestamp::from_second(NOW)?;
    ipam.acquire("milan", offered, now)?;
    ipam.agree("milan", Answer { pod: "10.40.0.0/16".parse()?, external: Some(Naming::Kept) })?;
    ipam.map("milan", "172.18.0.3".parse()?, now)?;
    ipam.map("milan", "172.18.0.4".parse()?, now)?;
    ipam.unmap("milan", "172.18.0.4".parse()?, now);
    Ok(vec![
        ("network_config", "whole", written(&config(json!({"externalCIDR": "192.168.7.0/24"})))),
        (
            "network_config",
            "pods",
            written(&config(json!({"clusterID": null, "transitCIDRs": ["10.9.0.0/16"]}))),
        ),
        (
            "network_config",
            "v6",
            written(&config(json!({"podCIDR": "fd00:7::/64", "endpointIP": "2001:db8::7"}))),
        ),
        ("network_answer", "kept", written(&json!({"processed": true, "podCIDRNAT": "None"}))),
        (
            "network_answer",
            "replaced",
            written(
                &json!({"processed": true, "podCIDRNAT": "10.40.0.0/16", "externalCIDRNAT": "192.168.9.0/24"}),
            ),
        ),
        ("ipam_storage", "one-peer", written(&json!(ipam.to_storage()))),
        (
            "gateway_notice",
            "plain",
            written(&json!({
                "publicKey": KEY, "node": "n1", "nodeIP": "172.18.0.2", "endpointIP": "192.0.2.7", "port": "51820",
            })),
        ),
    ])
}

fn config(more: Value) -> Value {
    let mut config = json!({
        "cluster": {"clusterID": "34750f98-bd59-8cfc-946d-a45aaabe933b"},
        "podCIDR": "10.244.0.0/16",
        "endpointIP": "192.0.2.7",
        "backendType": "wireguard",
        "backend_config": {"port": "51820", "publicKey": KEY},
    });
    if let (Some(config), Value::Object(more)) = (config.as_object_mut(), more) {
        config.extend(more);
    }
    config
}

/// The first byte says which message it is.
fn messages() -> Vec<Seed> {
    let entry = |address: &str| Entry {
        cluster_id: "milan".into(),
        endpoint: "172.18.0.3".into(),
        address: address.into(),
    };
    let change = Change {
        epoch: "0a1b2c".into(),
        revision: 7,
        whole: true,
        set: vec![entry("192.168.8.45"), entry("192.168.8.46")],
        removed: vec![entry("192.168.8.47")],
    };
    let tunnel = Tunnel {
        cluster_id: "milan".into(),
        trouble: String::new(),
        pod_cidr: "10.0.40.0/24".into(),
        external_cidr: "192.168.8.0/24".into(),
        views: vec!["10.0.0.0/24".into(), "192.168.7.0/24".into()],
    };
    let acknowledged = Acknowledged {
        epoch: "0a1b2c".into(),
        revision: u64::MAX,
        tunnels: Some(Tunnels { all: vec![tunnel] }),
    };
    let map = MapRequest { cluster_id: "milan".into(), ip: "172.18.0.3".into() };
    let with = |kind: u8, message: Vec<u8>| [vec![kind], message].concat();
    vec![
        ("ipam_message", "map", with(0, map.encode_to_vec())),
        ("ipam_message", "mapped", with(1, MapResponse { ip: "fd00::7".into() }.encode_to_vec())),
        ("ipam_message", "belongs", with(3, BelongsRequest { ip: "10.0.0.5".into() }.encode_to_vec())),
        ("ipam_message", "acknowledged", with(7, acknowledged.encode_to_vec())),
        ("ipam_message", "change", with(8, change.encode_to_vec())),
    ]
}

/// Objects of the API.
fn objects() -> Vec<Seed> {
    let tunnel = json!({
        "apiVersion": "net.liqo.io/v1alpha1", "kind": "TunnelEndpoint",
        "metadata": {"name": "tunnel", "namespace": "liqo-tenant-b"},
        "spec": {
            "clusterID": "b", "podCIDR": "10.244.0.0/24", "externalCIDR": "192.168.0.0/24", "endpointIP": "192.0.2.2",
            "backendType": "wireguard", "backend_config": {"port": "30020", "publicKey": KEY},
        },
        "status": {
            "localPodCIDR": "10.244.0.0/24", "localNATPodCIDR": "10.0.40.0/24", "remoteNATPodCIDR": "10.0.0.0/24",
            "localExternalCIDR": "192.168.0.0/24", "localNATExternalCIDR": "192.168.8.0/24",
            "remoteNATExternalCIDR": "192.168.7.0/24", "gatewayIP": "172.18.0.2",
        },
    });
    let mapping = json!({
        "apiVersion": "net.liqo.io/v1alpha1", "kind": "NatMapping", "metadata": {"name": "natmapping-b"},
        "spec": {"clusterID": "b", "clusterMappings": {"172.18.0.3": "192.168.8.45", "fd00::3": "192.168.8.46"}},
    });
    let offer = json!({
        "clusterId": "34750f98-bd59-8cfc-946d-a45aaabe933b",
        "resourceQuota": {"hard": {"cpu": "1908m", "memory": "2664000000", "brokering.liqo.io/redis": "true"}},
        "labels": {"liqo.io/region": "eu", "kubernetes.io/hostname": "mine", "kubernetes.io/arch": "arm64"},
        "renewTime": "2027-01-15T08:00:00.000000Z",
    });
    let region = json!({"key": "liqo.io/region", "operator": "In", "values": ["eu"]});
    let terms = json!([{"matchExpressions": [region], "matchFields": []}, {"matchExpressions": [region]}]);
    let question = |spec: &Value| {
        written(&json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "namespace": "shop",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec},
            },
        }))
    };
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let affinity = json!({"nodeAffinity": {required: {"nodeSelectorTerms": terms}}});
    let everything = json!({"operator": "Exists"});
    let choosy = json!({"containers": [], "affinity": affinity, "tolerations": [everything]});
    vec![
        ("admission_review", "plain", question(&json!({"containers": []}))),
        ("admission_review", "choosy", question(&choosy)),
        ("tunnels", "one", written(&json!({"tunnels": [tunnel], "mappings": [mapping]}))),
        ("tunnels", "twice", written(&json!({"tunnels": [tunnel, tunnel]}))),
        ("resource_offer", "plain", written(&offer)),
        ("usage", "one", written(&usage())),
    ]
}

/// As the metrics API of a cluster answers.
fn usage() -> Value {
    let used = json!({"cpu": "12345678n", "memory": "20480Ki"});
    json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": [{
        "metadata": {"name": "web", "namespace": "shop-rome"},
        "timestamp": "2026-01-01T00:00:00Z", "window": "15.1s",
        "containers": [{"name": "app", "usage": used}, {"name": "other", "usage": used}],
    }]})
}
