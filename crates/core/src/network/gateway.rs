//! What the gateway of this cluster says of itself to the controller, which tells it to peers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The ConfigMap of the installation in which the gateway says it.
pub const CONFIG_MAP: &str = "ferro-gateway";
/// The name of the interface of all tunnels, in the namespace of the gateway.
pub const TUNNEL_INTERFACE: &str = "ferro0";
/// The name of the gateway's end of the link to its node.
pub const VETH_INTERFACE: &str = "ferro.gw";

/// The gateway of this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The public key of its tunnels.
    pub public_key: [u8; 32],
    /// The address of the node on which it runs, for the other nodes.
    pub node_ip: IpAddr,
    /// Where peers reach it.
    pub endpoint: SocketAddr,
}

/// What the gateway said makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} of the ConfigMap {CONFIG_MAP} is missing or cannot be read; the gateway writes it when it starts"
)]
pub struct BadGateway(pub &'static str);

impl Gateway {
    /// From the data of the ConfigMap.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, BadGateway> {
        let key = data.get("publicKey").and_then(|text| STANDARD.decode(text).ok());
        let ip: IpAddr = field(data, "endpointIP")?;
        let port: u16 = field(data, "port")?;
        if ip.is_unspecified() {
            return Err(BadGateway("endpointIP"));
        }
        if port == 0 {
            return Err(BadGateway("port"));
        }
        Ok(Self {
            public_key: key.and_then(|key| key.try_into().ok()).ok_or(BadGateway("publicKey"))?,
            node_ip: field(data, "nodeIP")?,
            endpoint: SocketAddr::new(ip, port),
        })
    }

    /// The public key, as it is written.
    pub fn key_text(&self) -> String {
        STANDARD.encode(self.public_key)
    }
}

fn field<T: FromStr>(data: &BTreeMap<String, String>, name: &'static str) -> Result<T, BadGateway> {
    data.get(name).and_then(|text| text.parse().ok()).ok_or(BadGateway(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_read_whole_or_not_at_all() {
        let whole: BTreeMap<String, String> = [
            ("publicKey", "+CiHH3SJp2CQIj/Hu8jlyDWJOn7P40MQZfHfad0Du0g="),
            ("node", "rome-1"),
            ("nodeIP", "172.18.0.3"),
            ("endpointIP", "192.0.2.1"),
            ("port", "30020"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let read = Gateway::read(&whole).unwrap();
        assert_eq!(read.endpoint, "192.0.2.1:30020".parse().unwrap());
        assert_eq!(read.key_text(), whole["publicKey"]);
        for (name, bad) in
            [("publicKey", "QUJD"), ("nodeIP", "rome"), ("endpointIP", "0.0.0.0"), ("port", "0")]
        {
            let mut changed = whole.clone();
            changed.insert(name.into(), bad.into());
            assert_eq!(Gateway::read(&changed), Err(BadGateway(name)));
            changed.remove(name);
            assert_eq!(Gateway::read(&changed), Err(BadGateway(name)));
        }
    }
}
