//! Looking for a peer: at its address, or where the DNS of its domain says; with the authorities as configured.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::config::{BundleRef, ClusterConfigSpec};
use ferro_core::auth::enrolment::Target;
use ferro_core::auth::{Host, HttpsUrl, Pin};
use ferro_core::discovery::candidates;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use hickory_resolver::proto::rr::rdata::SRV;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::sync::Mutex;
use tracing::{debug, warn};

use super::problem::Problem;
use crate::contact::{Caller, ContactError, Met};

/// How long the DNS may take.
const LOOKUP: Duration = Duration::from_secs(5);
/// So many servers of a domain are tried.
const SERVERS: usize = 4;

/// Callers that trust the authorities of the configuration, made again only when these change.
pub(super) struct Callers {
    client: Client,
    last: Mutex<Option<(Option<Vec<u8>>, Caller)>>,
}

impl Callers {
    pub(super) fn new(client: Client) -> Self {
        Self { client, last: Mutex::new(None) }
    }

    /// A caller for the present configuration. Without its authorities nobody is trusted who should not be.
    pub(super) async fn get(&self, settings: &ClusterConfigSpec) -> Result<Caller> {
        let bundle = match &settings.auth().trusted_ca {
            Some(reference) => match self.read(reference).await {
                Ok(bundle) => Some(bundle),
                Err(error) => {
                    warn!(error = format!("{error:#}"), "authConfig.trustedCA is not used");
                    None
                }
            },
            None => None,
        };
        let mut last = self.last.lock().await;
        if let Some((_, caller)) = last.as_ref().filter(|(of, _)| *of == bundle) {
            return Ok(caller.clone());
        }
        let caller = match Caller::new(bundle.as_deref()) {
            Ok(caller) => caller,
            Err(error) => {
                warn!(error = format!("{error:#}"), "authConfig.trustedCA is not used");
                Caller::new(None)?
            }
        };
        *last = Some((bundle, caller.clone()));
        Ok(caller)
    }

    async fn read(&self, reference: &BundleRef) -> Result<Vec<u8>> {
        let BundleRef { namespace, name, .. } = reference;
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let map = maps.get(name).await;
        let map = map.with_context(|| format!("cannot read the ConfigMap {namespace}/{name}"))?;
        let text = map.data.as_ref().and_then(|data| data.get(reference.key())).map(String::as_bytes);
        text.map(<[u8]>::to_vec)
            .with_context(|| format!("the ConfigMap {namespace}/{name} has no {}", reference.key()))
    }
}

/// What comes of looking for a peer.
pub(super) enum Found {
    /// It is there, and proved itself.
    Met(HttpsUrl, Box<Met>),
    /// It has another key than the one that is known, and the cluster that is known vouches for it.
    NewKey(Pin),
}

/// Finds the peer and lets it prove itself.
pub(super) async fn look(
    caller: &Caller,
    target: &Target,
    settings: &ClusterConfigSpec,
) -> Result<Found, Problem> {
    let discovery = settings.discovery();
    let found = candidates(&target.address, discovery.service())
        .map_err(|error| Problem::in_spec("authUrl", &error))?;
    let visit = async |url: &HttpsUrl| caller.meet(url, target.pin.as_ref(), target.cluster.as_ref()).await;
    let mut problem = match visit(&found.url).await {
        Ok(met) => return Ok(Found::Met(found.url, Box::new(met))),
        Err(error @ ContactError::Pin(_)) => {
            let renewed = new_key(caller, &found.url, target).await;
            return renewed.map(Found::NewKey).ok_or_else(|| Problem::contact(&found.url, &error));
        }
        // Somebody is there, but the wrong one: there is no need to look further.
        Err(error @ ContactError::Proof(_)) => return Err(Problem::contact(&found.url, &error)),
        Err(error) => Problem::contact(&found.url, &error),
    };
    let Some(name) = found.srv_name else { return Err(problem) };
    for url in servers(&name, discovery.dns_server.as_deref()).await {
        match visit(&url).await {
            Ok(met) => return Ok(Found::Met(url, Box::new(met))),
            Err(error) => problem = Problem::contact(&url, &error),
        }
    }
    Err(problem)
}

/// The key that is there, if the very cluster that is expected has signed it: certificates are renewed with new keys,
/// and the identity behind them stays. Where nobody knows yet who it is, the pin is all there is.
async fn new_key(caller: &Caller, url: &HttpsUrl, target: &Target) -> Option<Pin> {
    let met = caller.meet(url, None, Some(target.cluster.as_ref()?)).await;
    met.ok().map(|met| met.pin)
}

/// The servers that the SRV records of this name tell of, the preferred ones first; none when there is no answer.
async fn servers(name: &str, dns_server: Option<&str>) -> Vec<HttpsUrl> {
    match tokio::time::timeout(LOOKUP, lookup(name, dns_server)).await {
        Ok(Ok(servers)) => servers,
        Ok(Err(error)) => {
            debug!(name, error = format!("{error:#}"), "no SRV records");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

async fn lookup(name: &str, dns_server: Option<&str>) -> Result<Vec<HttpsUrl>> {
    let resolver = resolver(dns_server)?;
    let answer = resolver.srv_lookup(name).await?;
    let mut records: Vec<&SRV> = answer
        .answers()
        .iter()
        .filter_map(|record| match &record.data {
            RData::SRV(srv) => Some(srv).filter(|srv| srv.port != 0),
            _ => None,
        })
        .collect();
    records.sort_by_key(|srv| (srv.priority, u16::MAX - srv.weight));
    let mut servers = Vec::new();
    for srv in records.into_iter().take(SERVERS) {
        let mut host = srv.target.to_utf8().parse::<Host>();
        // A server that was configured may know names that this machine does not.
        if dns_server.is_some()
            && let Ok(found) = resolver.lookup_ip(srv.target.clone()).await
            && let Some(ip) = found.iter().next()
        {
            host = Ok(Host::Ip(ip));
        }
        servers.extend(host.map(|host| HttpsUrl::new(host, srv.port)));
    }
    Ok(servers)
}

/// The configured DNS server, or those of this machine.
fn resolver(dns_server: Option<&str>) -> Result<TokioResolver> {
    let Some(server) = dns_server else { return Ok(TokioResolver::builder_tokio()?.build()?) };
    let address = dns_address(server)
        .with_context(|| format!("{server} is no DNS server; correct discoveryConfig.dnsServer"))?;
    let at_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let connections = vec![at_port(ConnectionConfig::udp()), at_port(ConnectionConfig::tcp())];
    let servers = vec![NameServerConfig::new(address.ip(), true, connections)];
    let config = ResolverConfig::from_name_servers(servers);
    Ok(TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).build()?)
}

/// An address, or an address and a port.
fn dns_address(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, 53)))
}

#[cfg(test)]
mod tests {
    use super::dns_address;

    #[test]
    fn a_dns_server_has_an_address_and_perhaps_a_port() {
        for (text, address) in [
            ("192.0.2.53", Some("192.0.2.53:53")),
            ("192.0.2.53:5353", Some("192.0.2.53:5353")),
            ("fd00::35", Some("[fd00::35]:53")),
            ("[fd00::35]:5353", Some("[fd00::35]:5353")),
            ("dns.example.org", None),
        ] {
            assert_eq!(dns_address(text), address.map(|address| address.parse().unwrap()));
        }
    }
}
