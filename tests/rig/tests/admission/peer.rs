//! A cluster that asks to be let in, and the few lines of HTTPS that it needs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::ResourceRequest;
use ferro_api::names::labels;
use ferro_core::auth::{Ask, Challenge, Credential, Denial, IdentityGrant, Reason, TokenSecret};
use ferro_core::identity::{ClusterId, SigningIdentity, new_private_key};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use ring::rand::SystemRandom;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;

use crate::provider::{Provider, provider};

/// A cluster that wants to be let in.
pub(crate) struct Peer {
    pub(crate) provider: &'static Provider,
    pub(crate) signer: SigningIdentity,
    pub(crate) key: KeyPair,
    /// Requests are counted by where they come from, so every peer comes from elsewhere.
    pub(crate) source: Ipv4Addr,
}

impl Peer {
    pub(crate) async fn new(number: u8) -> Result<Self> {
        Self::of(provider().await?, number)
    }

    /// A cluster that asks this provider.
    pub(crate) fn of(provider: &'static Provider, number: u8) -> Result<Self> {
        let key = new_private_key(&SystemRandom::new())?;
        Ok(Self {
            provider,
            signer: SigningIdentity::from_pkcs8("rome".parse()?, key.as_ref())?,
            key: KeyPair::generate()?,
            source: Ipv4Addr::new(127, 0, 1, number),
        })
    }

    pub(crate) fn id(&self) -> ClusterId {
        self.signer.identity().id()
    }

    pub(crate) async fn post(&self, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>)> {
        let (status, _, body) = post(self.provider.address, self.source, path, body).await?;
        Ok((status, body))
    }

    pub(crate) async fn challenge(&self) -> Result<Challenge> {
        let request = json!({"clusterID": self.id(), "publicKey": self.signer.identity().public_key()});
        let (status, body) = self.post("/challenge", &serde_json::to_vec(&request)?).await?;
        ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(&body));
        Ok(Challenge::parse(&body)?)
    }

    pub(crate) fn ask(&self, challenge: &Challenge, token: Option<TokenSecret>) -> Result<Ask> {
        Ok(Ask {
            audience: self.provider.id,
            nonce: challenge.nonce,
            csr: csr(&challenge.common_name.to_string(), &self.key)?,
            token,
            auth_url: Some("https://192.0.2.7:30443".parse()?),
            return_token: Some(TokenSecret::new([8; 32])),
        })
    }

    pub(crate) async fn send(&self, ask: Ask) -> Result<Result<IdentityGrant, (u16, Reason)>> {
        self.send_json(&serde_json::to_value(ask.sign(&self.signer))?).await
    }

    pub(crate) async fn send_json(&self, request: &Value) -> Result<Result<IdentityGrant, (u16, Reason)>> {
        let (status, body) = self.post("/identity", &serde_json::to_vec(request)?).await?;
        if status == 200 {
            return Ok(Ok(IdentityGrant::parse(&body)?));
        }
        let denial = Denial::parse(&body).with_context(|| String::from_utf8_lossy(&body).into_owned())?;
        Ok(Err((status, denial.reason)))
    }

    /// The whole exchange.
    pub(crate) async fn enter(
        &self,
        token: Option<TokenSecret>,
    ) -> Result<Result<IdentityGrant, (u16, Reason)>> {
        let challenge = self.challenge().await?;
        self.send(self.ask(&challenge, token)?).await
    }

    pub(crate) async fn let_in(&self, token: Option<TokenSecret>) -> Result<IdentityGrant> {
        self.enter(token).await?.map_err(|(status, reason)| anyhow::anyhow!("{status} {reason:?}"))
    }

    /// A client that shows what a grant gives.
    pub(crate) async fn client(&self, grant: &IdentityGrant) -> Result<Client> {
        use base64::Engine as _;
        let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let user = match &grant.credential {
            Credential::Certificate(certificate) => json!({"client-certificate-data": base64(certificate),
                "client-key-data": base64(&self.key.serialize_pem())}),
            Credential::BearerToken(token) => json!({"token": token}),
        };
        let config: Kubeconfig = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "peer",
            "clusters": [{"name": "peer", "cluster": {"server": grant.api_server_url,
                "certificate-authority-data": base64(&grant.api_server_ca)}}],
            "users": [{"name": "peer", "user": user}],
            "contexts": [{"name": "peer", "context": {"cluster": "peer", "user": "peer"}}],
        }))?;
        Ok(Client::try_from(Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?)?)
    }

    /// A copy as the replicator of this peer makes one.
    pub(crate) fn copy(&self, name: &str) -> Result<ResourceRequest> {
        let labels = json!({labels::REPLICATED.key(): "true", labels::ORIGIN_ID.key(): self.id(),
            labels::REMOTE_ID.key(): self.provider.id});
        Ok(serde_json::from_value(json!({
            "apiVersion": "discovery.liqo.io/v1alpha1", "kind": "ResourceRequest",
            "metadata": {"name": name, "labels": labels}, "spec": {"authUrl": "https://192.0.2.7:30443"},
        }))?)
    }
}

pub(crate) fn csr(name: &str, key: &KeyPair) -> Result<String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params.serialize_request(key)?.pem()?)
}

/// A connection to the auth service, from this address.
pub(crate) async fn connect(to: SocketAddr, from: Ipv4Addr) -> Result<TlsStream<TcpStream>> {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let stream = socket.connect(to).await?;
    let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
    Ok(tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

/// Status, head and body of the answer to one request over a connection of its own.
pub(crate) async fn post(
    to: SocketAddr,
    from: Ipv4Addr,
    path: &str,
    body: &[u8],
) -> Result<(u16, String, Vec<u8>)> {
    let mut stream = connect(to, from).await?;
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    answer(stream).await
}

/// Status, head and body of what comes until the other side closes.
pub(crate) async fn answer(mut stream: TlsStream<TcpStream>) -> Result<(u16, String, Vec<u8>)> {
    let mut answer = Vec::new();
    // A server that has answered and read enough may close without ceremony.
    let read = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8(answer)?;
    let (head, body) =
        text.split_once("\r\n\r\n").with_context(|| format!("the answer is not HTTP: {text} {read:?}"))?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, head.to_lowercase(), body.as_bytes().to_vec()))
}

/// Takes every certificate: these tests are about the other direction.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
