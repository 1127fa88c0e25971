//! A caller against a tiny auth service in the same process, honest and otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferro_api::discovery::TrustMode;
use ferro_core::auth::{ChallengeRequest, Endorsement, HttpsUrl, Pin, ProofProblem, Reason};
use ferro_core::identity::{SigningIdentity, new_private_key};
use k8s_openapi::jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PublicKeyData as _};
use ring::rand::SystemRandom;
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{Caller, ContactError, Limits, MOST, Question, provider};

/// A key, and the certificate that the server shows for it.
struct Serving {
    key: KeyPair,
    certificate: CertificateDer<'static>,
}

impl Serving {
    fn self_signed() -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params().self_signed(&key).unwrap();
        Self { key, certificate: certificate.der().clone() }
    }

    fn pin(&self) -> Pin {
        Pin::of_key(&self.key.subject_public_key_info())
    }
}

fn params() -> CertificateParams {
    CertificateParams::new(["127.0.0.1".to_owned()]).unwrap()
}

/// A server that gives one answer to everybody, after a while.
struct Server {
    url: HttpsUrl,
    /// How many bytes it was sent inside TLS.
    heard: Arc<AtomicUsize>,
}

impl Server {
    async fn start(serving: &Serving, answer: String, delay: Duration) -> Self {
        Self::show(serving.certificate.clone(), serving.key.serialize_der(), answer, delay).await
    }

    async fn show(
        certificate: CertificateDer<'static>,
        key: Vec<u8>,
        answer: String,
        delay: Duration,
    ) -> Self {
        let key = PrivateKeyDer::try_from(key).unwrap();
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let heard = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&heard);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut buffer = [0; 4096];
                count.fetch_add(stream.read(&mut buffer).await.unwrap_or(0), Ordering::SeqCst);
                tokio::time::sleep(delay).await;
                _ = stream.write_all(answer.as_bytes()).await;
                _ = stream.shutdown().await;
            }
        });
        Self { url, heard }
    }

    async fn answering(serving: &Serving, answer: String) -> Self {
        Self::start(serving, answer, Duration::ZERO).await
    }
}

fn response(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

fn cluster() -> SigningIdentity {
    let key = new_private_key(&SystemRandom::new()).unwrap();
    SigningIdentity::from_pkcs8("there".parse().unwrap(), key.as_ref()).unwrap()
}

/// `GET /ids` as the cluster answers it for this TLS key, with an endorsement that ends in so many seconds.
fn ids(cluster: &SigningIdentity, key: &Pin, ends_in: i64) -> String {
    let ends = Timestamp::from_second(Timestamp::now().as_second() + ends_in).unwrap();
    let api_server = Some("https://192.0.2.7:6443".parse().unwrap());
    let endorsement = Endorsement::sign(cluster, key, api_server, ends);
    response("200 OK", &serde_json::to_string(&endorsement).unwrap())
}

fn caller(bundle: Option<&[u8]>) -> Caller {
    let limits = Limits {
        connect: Duration::from_secs(5),
        call: Duration::from_millis(1500),
        ask: Duration::from_millis(1500),
    };
    Caller { limits, ..Caller::new(bundle).unwrap() }
}

fn question(cluster: &SigningIdentity) -> ChallengeRequest {
    let identity = cluster.identity();
    ChallengeRequest { cluster_id: identity.id(), public_key: *identity.public_key() }
}

#[tokio::test]
async fn a_cluster_that_proves_itself_is_met() {
    let (serving, cluster) = (Serving::self_signed(), cluster());
    let server = Server::answering(&serving, ids(&cluster, &serving.pin(), 60)).await;
    for pin in [None, Some(serving.pin())] {
        let met = caller(None).meet(&server.url, pin.as_ref(), None).await.unwrap();
        assert_eq!(met.identity, *cluster.identity());
        assert_eq!((met.pin, met.trust), (serving.pin(), TrustMode::Untrusted));
        assert_eq!(met.api_server_url.unwrap().to_string(), "https://192.0.2.7:6443");
    }
}

#[tokio::test]
async fn a_cluster_whose_authority_is_known_is_trusted() {
    let authority = KeyPair::generate().unwrap();
    let mut of_authority = CertificateParams::default();
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = of_authority.self_signed(&authority).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let certificate = params().signed_by(&key, &Issuer::new(of_authority, authority)).unwrap();
    let serving = Serving { certificate: certificate.der().clone(), key };
    let server = Server::answering(&serving, ids(&cluster(), &serving.pin(), 60)).await;
    let met = caller(Some(root.as_bytes())).meet(&server.url, None, None).await.unwrap();
    assert_eq!(met.trust, TrustMode::Trusted);
    let stranger = caller(None).meet(&server.url, None, None).await.unwrap();
    assert_eq!(stranger.trust, TrustMode::Untrusted);
}

#[tokio::test]
async fn a_server_with_another_key_is_told_nothing() {
    let serving = Serving::self_signed();
    let server = Server::answering(&serving, ids(&cluster(), &serving.pin(), 60)).await;
    let expected = Pin([7; 32]);
    let met = caller(None).meet(&server.url, Some(&expected), None).await;
    let Err(ContactError::Pin(mismatch)) = met else { panic!("{met:?}") };
    assert_eq!((mismatch.expected, mismatch.shown), (expected, serving.pin()));
    let asked = caller(None).challenge(&server.url, &expected, &question(&cluster())).await;
    assert!(matches!(asked, Err(ContactError::Pin(_))), "{asked:?}");
    assert_eq!(server.heard.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_certificate_of_somebody_else_does_not_pass_without_its_key() {
    let (victim, thief) = (Serving::self_signed(), Serving::self_signed());
    let provider = provider();
    let key = PrivateKeyDer::try_from(thief.key.serialize_der()).unwrap();
    let signer = provider.key_provider.load_private_key(key).unwrap();
    // Rustls itself would refuse to serve with a key that does not fit.
    let stolen = rustls::sign::CertifiedKey::new(vec![victim.certificate.clone()], signer);
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let resolver = rustls::sign::SingleCertAndKey::from(stolen);
    let config = config.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: HttpsUrl = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        _ = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
    });
    let met = caller(None).meet(&url, Some(&victim.pin()), None).await;
    assert!(matches!(met, Err(ContactError::Tls(_))), "{met:?}");
}

#[tokio::test]
async fn an_endorsement_that_is_not_for_this_connection_or_expired_proves_nothing() {
    let (serving, cluster) = (Serving::self_signed(), cluster());
    let server = Server::answering(&serving, ids(&cluster, &Pin([7; 32]), 60)).await;
    let met = caller(None).meet(&server.url, None, None).await;
    assert!(matches!(met, Err(ContactError::Proof(ProofProblem::Unproven(_)))), "{met:?}");

    let server = Server::answering(&serving, ids(&cluster, &serving.pin(), -1)).await;
    let met = caller(None).meet(&server.url, None, None).await;
    assert!(matches!(met, Err(ContactError::Proof(ProofProblem::Expired))), "{met:?}");
}

#[tokio::test]
async fn another_cluster_than_the_expected_one_is_named() {
    let (serving, found) = (Serving::self_signed(), cluster());
    let server = Server::answering(&serving, ids(&found, &serving.pin(), 60)).await;
    let expected = cluster().identity().id();
    let met = caller(None).meet(&server.url, None, Some(&expected)).await;
    let Err(ContactError::Proof(problem)) = met else { panic!("{met:?}") };
    assert_eq!(problem, ProofProblem::AnotherCluster { expected, found: found.identity().id() });
}

#[tokio::test]
async fn endless_answers_are_cut_off() {
    let serving = Serving::self_signed();
    let body = response("200 OK", &"x".repeat(MOST + 1));
    let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(MOST));
    for answer in [body, head] {
        let server = Server::answering(&serving, answer).await;
        let met = caller(None).meet(&server.url, None, None).await;
        assert!(matches!(met, Err(ContactError::TooLong | ContactError::Unreadable)), "{met:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_left() {
    let serving = Serving::self_signed();
    let slow = Server::start(&serving, ids(&cluster(), &serving.pin(), 60), Duration::from_mins(1)).await;
    let met = caller(None).meet(&slow.url, None, None).await;
    assert!(matches!(met, Err(ContactError::TimedOut(_))), "{met:?}");

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap()).parse().unwrap();
    let met = caller(None).meet(&url, None, None).await;
    assert!(matches!(met, Err(ContactError::TimedOut(_))), "{met:?}");
    drop(silent);
    let met = caller(None).meet(&url, None, None).await;
    assert!(matches!(met, Err(ContactError::Refused)), "{met:?}");
}

#[tokio::test]
async fn rubbish_is_refused_and_redirects_are_not_followed() {
    let serving = Serving::self_signed();
    for (answer, status) in [
        ("rubbish\r\n\r\n".to_owned(), None),
        (response("200 OK", "{}"), None),
        (response("200 OK", "<html>"), None),
        (response("302 Found\r\nlocation: https://192.0.2.1/ids", ""), Some(302)),
        (response("404 Not Found", ""), Some(404)),
    ] {
        let server = Server::answering(&serving, answer.clone()).await;
        match (caller(None).meet(&server.url, None, None).await, status) {
            (Err(ContactError::Unreadable), None) => {}
            (Err(ContactError::Status(met)), Some(status)) => assert_eq!(met, status),
            (met, _) => panic!("{answer}: {met:?}"),
        }
        let pin = serving.pin();
        let asked = caller(None).challenge(&server.url, &pin, &question(&cluster())).await;
        assert!(matches!(asked, Err(ContactError::Unreadable | ContactError::Status(_))), "{asked:?}");
    }
    let server = Server::answering(&serving, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut".into()).await;
    let met = caller(None).meet(&server.url, None, None).await;
    assert!(matches!(met, Err(ContactError::Cut(_))), "{met:?}");
}

#[tokio::test]
async fn a_denial_is_an_answer() {
    let serving = Serving::self_signed();
    let body = serde_json::to_string(&ferro_core::auth::Denial::from(Reason::RateLimited)).unwrap();
    let server = Server::answering(&serving, response("429 Too Many Requests", &body)).await;
    let asked = caller(None).challenge(&server.url, &serving.pin(), &question(&cluster())).await;
    assert_eq!(asked.unwrap().unwrap_err().reason, Reason::RateLimited);
}

#[tokio::test]
async fn what_has_no_address_is_told_apart_from_what_does_not_answer() {
    let met = caller(None).meet(&"https://there.invalid".parse().unwrap(), None, None).await;
    assert!(matches!(met, Err(ContactError::UnknownHost)), "{met:?}");
}

#[test]
fn a_question_goes_to_the_path_under_the_url() {
    for (url, host, path) in [
        ("https://auth.example.org", "auth.example.org", "/ids"),
        ("https://[fd00::1]:30443/peering/auth/", "[fd00::1]:30443", "/peering/auth/ids"),
    ] {
        let request = Question::ids().at(&url.parse().unwrap()).unwrap();
        assert_eq!(request.uri().path(), path);
        assert_eq!(request.headers()["host"], host);
    }
}
