//! A `NetworkConfig` as a promise of the cluster that it describes: signed by it, and read strictly.
//!
//! The signature covers for whom it is, so that it can be passed on by others but not to others.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferro_api::net::{NetworkConfigSpec, Signature as Signed};
use ipnet::IpNet;

use super::Offered;
use crate::identity::{Bytes, ClusterId, PublicKey, Signature, SigningIdentity, Statement, Unproven, verify};

/// The technology of our tunnels, and what it needs to know.
pub const BACKEND: &str = "wireguard";
/// The key of `backend_config` under which the port of the tunnel stands.
pub const PORT: &str = "port";
/// The key of `backend_config` under which the public key of the tunnel stands.
pub const PUBLIC_KEY: &str = "publicKey";
const PURPOSE: &str = "ferrofluid network config 1";

/// What a cluster says of its networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its networks.
    pub offered: Offered,
    /// Networks of others that are reached through it.
    pub transit: Vec<IpNet>,
    /// Where its tunnel ends.
    pub endpoint: SocketAddr,
    /// The public key of its tunnel.
    pub public_key: [u8; 32],
}

impl Described {
    /// The public key, as it is written.
    pub fn key_text(&self) -> String {
        STANDARD.encode(self.public_key)
    }
}

/// Why a `NetworkConfig` is not believed or cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadConfig {
    /// Nobody has signed it.
    #[error("it is not signed")]
    Unsigned,
    /// The cluster that it describes has not signed it.
    #[error("it is not signed by the cluster that it describes: {0}")]
    Unproven(#[from] Unproven),
    /// It is meant for another cluster.
    #[error("it is meant for another cluster")]
    AnotherReceiver,
    /// The tunnel is of a kind that we do not have.
    #[error("its tunnels are of the kind \"{0}\", and ours are {BACKEND}")]
    AnotherBackend(String),
    /// A field cannot be read.
    #[error("{field} is \"{value}\", which is not {expected}")]
    Unreadable {
        /// Which.
        field: &'static str,
        /// The beginning of what it says, without characters that do something.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

/// Signs what a cluster says of its own networks.
pub fn sign(spec: &mut NetworkConfigSpec, signer: &SigningIdentity) {
    let signature = signer.sign(&statement(spec));
    spec.signature = Some(Signed {
        public_key: STANDARD.encode(signer.identity().public_key().as_bytes()),
        value: STANDARD.encode(signature.0.0),
    });
}

/// Reads what a cluster says of its networks to another one.
pub fn read(
    spec: &NetworkConfigSpec,
    sender: &ClusterId,
    receiver: &ClusterId,
) -> Result<Described, BadConfig> {
    let signed = spec.signature.as_ref().ok_or(BadConfig::Unsigned)?;
    let key = PublicKey(Bytes(bytes("signature.publicKey", &signed.public_key)?));
    let signature = Signature(Bytes(bytes("signature.value", &signed.value)?));
    verify(sender, &key, &statement(spec), &signature)?;
    if spec.receiver().is_none_or(|meant| meant.id != receiver.to_string()) {
        return Err(BadConfig::AnotherReceiver);
    }
    if spec.backend_type != BACKEND {
        return Err(another_backend(&spec.backend_type));
    }
    let network =
        |field, text: &String| parse::<IpNet>(field, text, "a network").map(|network| network.trunc());
    Ok(Described {
        offered: Offered {
            pod: network("podCIDR", &spec.pod_cidr)?,
            external: spec.external_cidr.as_ref().map(|text| network("externalCIDR", text)).transpose()?,
        },
        transit: spec
            .transit_cidrs
            .iter()
            .map(|text| network("transitCIDRs", text))
            .collect::<Result<_, _>>()?,
        endpoint: endpoint(spec.endpoint().unwrap_or_default(), &spec.backend_config)?,
        public_key: public_key(&spec.backend_config)?,
    })
}

/// Where a tunnel ends.
pub(super) fn endpoint(text: &str, options: &BTreeMap<String, String>) -> Result<SocketAddr, BadConfig> {
    const EXPECTED: &str = "the address of a host";
    let ip: IpAddr = parse("endpointIP", text, EXPECTED)?;
    if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
        return Err(unreadable("endpointIP", text, EXPECTED));
    }
    let text = option(options, PORT);
    match parse("backend_config.port", text, "a port")? {
        0 => Err(unreadable("backend_config.port", text, "a port")),
        port => Ok(SocketAddr::new(ip, port)),
    }
}

/// The public key of a tunnel.
pub(super) fn public_key(options: &BTreeMap<String, String>) -> Result<[u8; 32], BadConfig> {
    bytes("backend_config.publicKey", option(options, PUBLIC_KEY))
}

fn option<'a>(options: &'a BTreeMap<String, String>, key: &str) -> &'a str {
    options.get(key).map(String::as_str).unwrap_or_default()
}

/// What a field says, or which one cannot be read.
pub(super) fn parse<T: std::str::FromStr>(
    field: &'static str,
    text: &str,
    expected: &'static str,
) -> Result<T, BadConfig> {
    text.parse().map_err(|_| unreadable(field, text, expected))
}

fn bytes<const N: usize>(field: &'static str, text: &str) -> Result<[u8; N], BadConfig> {
    let bytes = STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| unreadable(field, text, "of the right length in base64"))
}

fn unreadable(field: &'static str, value: &str, expected: &'static str) -> BadConfig {
    BadConfig::Unreadable { field, value: start(value), expected }
}

/// Says of which kind the tunnels are that we do not have.
pub(super) fn another_backend(kind: &str) -> BadConfig {
    BadConfig::AnotherBackend(start(kind))
}

/// As much of a text as is shown: it comes from somebody else, and ends up in a condition. What stands for one character
/// may be as long as ten others, so that is counted which is shown.
fn start(text: &str) -> String {
    text.chars().flat_map(char::escape_debug).take(64).collect()
}

/// Everything that is said, in a fixed order; whichever form was used for it.
fn statement(spec: &NetworkConfigSpec) -> Statement {
    let receiver = spec.receiver().map(|receiver| receiver.id).unwrap_or_default();
    let mut statement = Statement::new(PURPOSE)
        .field(receiver)
        .field(&spec.pod_cidr)
        .field(spec.external_cidr.as_deref().unwrap_or_default())
        .field(spec.endpoint().unwrap_or_default())
        .field(&spec.backend_type)
        .field(spec.transit_cidrs.len().to_string());
    for transit in &spec.transit_cidrs {
        statement = statement.field(transit);
    }
    for (key, value) in &spec.backend_config {
        statement = statement.field(key).field(value);
    }
    statement
}

#[cfg(test)]
mod tests {
    use ferro_api::common::ClusterIdentity;

    use super::*;
    use crate::identity::tests::cluster;

    fn config(receiver: &ClusterId) -> NetworkConfigSpec {
        let to = ClusterIdentity { cluster_id: receiver.to_string(), cluster_name: None };
        NetworkConfigSpec {
            pod_cidr: "10.42.0.0/16".into(),
            external_cidr: Some("10.43.0.0/16".into()),
            endpoint_ip: Some("194.116.77.110".into()),
            backend_type: BACKEND.into(),
            backend_config: [
                (PORT.to_owned(), "30020".to_owned()),
                (PUBLIC_KEY.into(), "+CiHH3SJp2CQIj/Hu8jlyDWJOn7P40MQZfHfad0Du0g=".into()),
            ]
            .into(),
            ..NetworkConfigSpec::for_cluster(to)
        }
    }

    fn ids() -> [ClusterId; 2] {
        [1, 2].map(|number| cluster(number).identity().id())
    }

    fn signed(change: impl Fn(&mut NetworkConfigSpec)) -> Result<Described, BadConfig> {
        let [sender, receiver] = ids();
        let mut spec = config(&receiver);
        change(&mut spec);
        sign(&mut spec, &cluster(1));
        read(&spec, &sender, &receiver)
    }

    #[test]
    fn what_was_signed_is_read() {
        let read = signed(|_| {}).unwrap();
        assert_eq!(read.endpoint, "194.116.77.110:30020".parse().unwrap());
        assert_eq!(read.offered.pod, "10.42.0.0/16".parse().unwrap());
        assert_eq!(read.public_key[..2], [0xf8, 0x28]);
        assert!(read.transit.is_empty());
        let untidy = signed(|spec| spec.pod_cidr = "10.42.7.9/16".into()).unwrap();
        assert_eq!(untidy.offered, read.offered);
    }

    #[test]
    fn a_change_by_anybody_else_is_seen() {
        let [sender, receiver] = ids();
        let mut spec = config(&receiver);
        assert_eq!(read(&spec, &sender, &receiver), Err(BadConfig::Unsigned));
        sign(&mut spec, &cluster(1));
        let changes: [fn(&mut NetworkConfigSpec); 6] = [
            |spec| spec.pod_cidr = "10.0.0.0/16".into(),
            |spec| spec.external_cidr = None,
            |spec| spec.endpoint_ip = Some("192.0.2.1".into()),
            |spec| spec.transit_cidrs = vec!["10.9.0.0/16".into()],
            |spec| drop(spec.backend_config.insert(PORT.into(), "1".into())),
            |spec| drop(spec.backend_config.insert("more".into(), "1".into())),
        ];
        for change in changes {
            let mut other = spec.clone();
            change(&mut other);
            let error = read(&other, &sender, &receiver);
            assert_eq!(error, Err(BadConfig::Unproven(Unproven::InvalidSignature)));
        }
        let claimed = read(&spec, &receiver, &sender);
        assert_eq!(claimed, Err(BadConfig::Unproven(Unproven::IdentityMismatch)));
    }

    #[test]
    fn what_is_meant_for_others_is_not_taken() {
        let [sender, _] = ids();
        let mut spec = config(&cluster(3).identity().id());
        sign(&mut spec, &cluster(1));
        assert_eq!(read(&spec, &sender, &ids()[1]), Err(BadConfig::AnotherReceiver));
    }

    #[test]
    fn the_older_forms_are_signed_and_read_alike() {
        let newer = signed(|_| {});
        let older = signed(|spec| {
            spec.cluster_id = spec.cluster.take().map(|cluster| cluster.cluster_id);
            spec.endpoint_ip_old = spec.endpoint_ip.take();
        });
        assert_eq!(older, newer);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let field = |change: fn(&mut NetworkConfigSpec)| match signed(change) {
            Err(BadConfig::Unreadable { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(field(|spec| spec.pod_cidr = "10.42".into()), "podCIDR");
        assert_eq!(field(|spec| spec.external_cidr = Some(String::new())), "externalCIDR");
        assert_eq!(field(|spec| spec.endpoint_ip = Some("224.0.0.1".into())), "endpointIP");
        assert_eq!(field(|spec| spec.endpoint_ip = None), "endpointIP");
        assert_eq!(
            field(|spec| drop(spec.backend_config.insert(PORT.into(), "0".into()))),
            "backend_config.port"
        );
        let short =
            |spec: &mut NetworkConfigSpec| drop(spec.backend_config.insert(PUBLIC_KEY.into(), "QUJD".into()));
        assert_eq!(field(short), "backend_config.publicKey");
        let other = signed(|spec| spec.backend_type = "ipsec".into());
        assert_eq!(other, Err(BadConfig::AnotherBackend("ipsec".into())));
    }
}
