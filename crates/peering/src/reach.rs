//! Where other clusters reach this one: its API server and its auth service, as configured or as found out.

use anyhow::{Context, Result};
use ferro_api::config::ClusterConfigSpec;
use ferro_core::auth::{Host, HttpsUrl};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};

/// The Service through which other clusters reach the auth service.
pub(crate) const AUTH_SERVICE: &str = "ferro-auth";
/// What Kubernetes keeps in every namespace: the authorities of its API server.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Where other clusters reach this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The API server, if it is known.
    pub api_server: Option<HttpsUrl>,
    /// The authorities of the API server, in PEM; empty for those that every machine knows.
    pub api_server_ca: String,
    /// The auth service, if others can reach it.
    pub auth: Option<HttpsUrl>,
}

/// Finds out where others reach this cluster.
pub(crate) async fn find(
    client: &Client,
    namespace: &str,
    config: Option<&ClusterConfigSpec>,
) -> Result<Reach> {
    let api = config.and_then(|config| config.api_server_config.clone()).unwrap_or_default();
    let auth = config.and_then(|config| config.auth().url);
    let url = match api.url {
        Some(url) => Some(url),
        None => own_endpoint(client).await?,
    };
    let api_server = url
        .map(|url| {
            url.parse().with_context(|| format!("{url} cannot be an API server; set apiServerConfig.url"))
        })
        .transpose()?;
    let api_server_ca = match api.ca_bundle {
        Some(bundle) => String::from_utf8(bundle.0).context("apiServerConfig.caBundle is not PEM")?,
        None => own_authorities(client, namespace).await?,
    };
    let auth = match auth {
        Some(url) => Some(
            url.parse()
                .with_context(|| format!("{url} cannot be an auth service; correct authConfig.url"))?,
        ),
        None => service_url(client, namespace).await?,
    };
    Ok(Reach { api_server, api_server_ca, auth })
}

async fn own_endpoint(client: &Client) -> Result<Option<String>> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let of_kubernetes = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let slices = slices.list(&of_kubernetes).await.context("cannot find this cluster's API server")?;
    Ok(slices.items.iter().find_map(endpoint))
}

async fn own_authorities(client: &Client, namespace: &str) -> Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = maps.get(ROOT_CA).await.with_context(|| format!("cannot read the ConfigMap {ROOT_CA}"))?;
    map.data
        .and_then(|mut data| data.remove("ca.crt"))
        .with_context(|| format!("the ConfigMap {ROOT_CA} has no ca.crt; set apiServerConfig.caBundle"))
}

/// What a load balancer gives to the auth service, or else its port on a node.
async fn service_url(client: &Client, namespace: &str) -> Result<Option<HttpsUrl>> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let cannot = || format!("cannot read the Service {AUTH_SERVICE}");
    let Some(service) = services.get_opt(AUTH_SERVICE).await.with_context(cannot)? else { return Ok(None) };
    if let Some(url) = balanced(&service) {
        return Ok(Some(url));
    }
    let Some(port) = node_port(&service) else { return Ok(None) };
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.context("cannot list the nodes")?;
    let hosts = nodes.items.iter().filter(|node| !is_virtual(node)).filter_map(address);
    Ok(hosts
        .min_by_key(|(outside, host)| (!outside, host.to_string()))
        .map(|(_, host)| HttpsUrl::new(host, port)))
}

fn is_virtual(node: &Node) -> bool {
    ferro_api::names::labels::TYPE_VIRTUAL_NODE.is_on(&node.metadata)
}

fn balanced(service: &Service) -> Option<HttpsUrl> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?;
    let host: Host = ingress.hostname.as_ref().or(ingress.ip.as_ref())?.parse().ok()?;
    let port = service.spec.as_ref()?.ports.as_ref()?.first()?.port;
    Some(HttpsUrl::new(host, u16::try_from(port).ok()?))
}

/// The port of the Service on every node.
pub(crate) fn node_port(service: &Service) -> Option<u16> {
    let port = service.spec.as_ref()?.ports.as_ref()?.iter().find_map(|port| port.node_port)?;
    u16::try_from(port).ok()
}

/// The address of a node, and whether it is meant for the outside.
fn address(node: &Node) -> Option<(bool, Host)> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let of_type = |type_: &str| addresses.iter().find(|address| address.type_ == type_);
    let (outside, found) = match of_type("ExternalIP") {
        Some(found) => (true, found),
        None => (false, of_type("InternalIP")?),
    };
    Some((outside, found.address.parse().ok()?))
}

fn endpoint(slice: &EndpointSlice) -> Option<String> {
    let address = slice.endpoints.iter().find_map(|endpoint| endpoint.addresses.first())?;
    let port = slice.ports.iter().flatten().find_map(|port| port.port)?;
    Some(if address.contains(':') {
        format!("https://[{address}]:{port}")
    } else {
        format!("https://{address}:{port}")
    })
}
