//! The roles on a real cluster: installed by one command, they make an identity, prove it, and announce it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferro_api::config::ClusterConfig;
use ferro_core::auth::{Endorsement, Pin};
use ferro_core::discovery::Announcement;
use ferro_core::identity::ClusterId;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use mdns_sd::{IfKind, ServiceDaemon, ServiceEvent};
use rig::installation::{self, ferro};
use rig::plan::ClusterSpec;
use rig::topology::{Cluster, Topology};
use rig::wait::{block_on, eventually};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const AUTH_PORT: u16 = 30443;

/// A cluster of two nodes with ferro installed as a user would.
async fn installed() -> Result<Topology> {
    let topology = Topology::up("roles", vec![ClusterSpec { nodes: 2, ..ClusterSpec::named("a") }]).await?;
    installation::load(&topology).await?;
    ferro(topology.cluster("a")?, &["install", "--cluster-name", "rome", "--wait", "--timeout", "300s"])
        .await?;
    Ok(topology)
}

/// The identifier that the cluster shows to its users.
async fn cluster_id(cluster: &Cluster) -> Result<ClusterId> {
    let configs: Api<ClusterConfig> = Api::all(cluster.client.clone());
    eventually("the cluster has an identity", || async {
        let config =
            configs.list(&kube::api::ListParams::default()).await?.items.pop().context("no ClusterConfig")?;
        let id = config.status.and_then(|status| status.cluster_id).context("no clusterID yet")?;
        Ok(ClusterId::derived(&id)?)
    })
    .await
}

#[test]
fn an_installed_cluster_has_an_identity_proves_it_and_announces_it() -> Result<()> {
    block_on(async {
        let topology = installed().await?;
        let cluster = topology.cluster("a")?;
        let id = cluster_id(cluster).await?;

        let (pin, endorsement) = eventually("the auth service answers", || ids(cluster)).await?;
        let identity = endorsement.verify(&pin, Some(&id), Timestamp::now())?;
        ensure!(identity.name().as_str() == "rome", "it is called {}", identity.name());
        ensure!(
            endorsement
                .api_server_url()
                .is_some_and(|url| url.to_string().contains(&cluster.plan.control_plane().to_string())),
            "{endorsement:?}"
        );
        ensure!(
            endorsement.verify(&Pin([7; 32]), Some(&id), Timestamp::now()).is_err(),
            "it proves itself to a middleman"
        );

        let heard = hear(cluster).await?;
        ensure!(heard.len() == 2, "each node announces: {heard:?}");
        for announcement in &heard {
            ensure!(
                announcement.id == id && announcement.pin == pin && announcement.auth_url.port() == AUTH_PORT,
                "{announcement:?}"
            );
        }

        // A new controller is the same cluster. The one before is gone by then, so that it is not the one that answers.
        cluster
            .kubectl(&[
                "-n",
                "liqo",
                "delete",
                "pod",
                "-l",
                "app.kubernetes.io/name=ferro-controller",
                "--timeout=300s",
            ])
            .await?;
        cluster
            .kubectl(&["-n", "liqo", "rollout", "status", "deployment/ferro-controller", "--timeout=300s"])
            .await?;
        let (again, _) = eventually("the auth service answers", || ids(cluster)).await?;
        ensure!(again == pin && cluster_id(cluster).await? == id, "it has become another cluster");

        ferro(cluster, &["uninstall", "--yes", "--wait", "--timeout", "300s"]).await?;
        let left = cluster.kubectl(&["get", "namespaces", "-o", "name"]).await?;
        ensure!(!left.contains("namespace/liqo"), "{left}");
        Ok(())
    })
}

/// Asks the auth service who it is, and tells with which key it answered.
async fn ids(cluster: &Cluster) -> Result<(Pin, Endorsement)> {
    let shown = Arc::new(Shown::default());
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&shown) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    let address = cluster.plan.nodes[1].address;
    let stream = tokio::net::TcpStream::connect((address, AUTH_PORT)).await?;
    let name = ServerName::IpAddress(std::net::IpAddr::V4(address).into());
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET /ids HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let text = String::from_utf8(answer)?;
    let (head, body) = text.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    let pin = shown.0.lock().ok().and_then(|shown| *shown).context("no certificate was shown")?;
    Ok((pin, Endorsement::parse(body.as_bytes())?))
}

/// Takes every certificate and remembers its key: the endorsement is what is checked.
#[derive(Debug, Default)]
struct Shown(Mutex<Option<Pin>>);

impl ServerCertVerifier for Shown {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pin =
            Pin::of_certificate(certificate).map_err(|error| rustls::Error::General(error.to_string()))?;
        *self.0.lock().map_err(|_| rustls::Error::General("poisoned".into()))? = Some(pin);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Listens on the rig's LAN, and on no other, until every node has been heard.
async fn hear(cluster: &Cluster) -> Result<Vec<Announcement>> {
    let daemon = ServiceDaemon::new()?;
    daemon.disable_interface(IfKind::All)?;
    daemon.enable_interface(IfKind::Name(cluster.plan.lan.host_link()))?;
    let events = daemon.browse("_liqo_api._tcp.local.")?;
    let heard = Mutex::new(std::collections::BTreeMap::new());
    let result = eventually("the nodes are heard", || async {
        while let Ok(Ok(event)) = tokio::time::timeout(Duration::from_secs(2), events.recv_async()).await {
            if let ServiceEvent::ServiceResolved(found) = event {
                let strings: Vec<String> = found
                    .txt_properties
                    .iter()
                    .map(|property| format!("{}={}", property.key(), property.val_str()))
                    .collect();
                let announcement = Announcement::parse(strings.iter().map(String::as_bytes))?;
                heard.lock().ok().map(|mut heard| heard.insert(found.fullname.clone(), announcement));
            }
        }
        let heard = heard.lock().map(|heard| heard.values().cloned().collect::<Vec<_>>()).unwrap_or_default();
        ensure!(heard.len() >= cluster.plan.nodes.len(), "only {heard:?}");
        Ok(heard)
    })
    .await;
    daemon.shutdown()?;
    result
}
