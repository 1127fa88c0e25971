//! Another cluster's auth service, with the rules of `ferro_core` and certificates of an authority of its own.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferro_core::auth::{
    Admission, ChallengeKey, ChallengeRequest, Credential, Denial, Doorstep, Endorsement, Facts, HttpsUrl,
    IdentityGrant, IdentityRequest, Pin, SignedRequest, Standing, Terms, TokenSecret, TokenStore, UserName,
    judge,
};
use ferro_core::identity::{SigningIdentity, new_private_key};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, PublicKeyData,
    SignatureAlgorithm,
};
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateSigningRequestDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

use crate::contact::provider;

/// A cluster that can be asked.
pub(super) struct Provider {
    pub(super) url: HttpsUrl,
    pub(super) pin: Pin,
    pub(super) signer: SigningIdentity,
    tokens: Mutex<TokenStore>,
    challenges: ChallengeKey,
    /// So many answers to requests get lost on the way.
    pub(super) cuts: AtomicUsize,
    /// Whether no token is needed.
    pub(super) forgive: AtomicBool,
    /// Requests that were granted.
    pub(super) granted: Mutex<Vec<SignedRequest>>,
    authority: Issuer<'static, KeyPair>,
    authority_pem: String,
}

pub(super) fn cluster(name: &str) -> SigningIdentity {
    let [cluster, _] = twins(name);
    cluster
}

/// One cluster, twice.
pub(super) fn twins(name: &str) -> [SigningIdentity; 2] {
    let key = new_private_key(&ring::rand::SystemRandom::new()).unwrap();
    [(); 2].map(|()| SigningIdentity::from_pkcs8(name.parse().unwrap(), key.as_ref()).unwrap())
}

impl Provider {
    pub(super) async fn start(signer: SigningIdentity) -> Arc<Self> {
        let serving = rcgen::generate_simple_self_signed(vec!["ferro-auth".to_owned()]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority_pem = params.self_signed(&key).unwrap().pem();
        let this = Arc::new(Self {
            url: format!("https://{}", listener.local_addr().unwrap()).parse().unwrap(),
            pin: Pin::of_key(&serving.signing_key.subject_public_key_info()),
            signer,
            tokens: Mutex::default(),
            challenges: ChallengeKey::new(&[3; 32]),
            cuts: AtomicUsize::new(0),
            forgive: AtomicBool::new(false),
            granted: Mutex::default(),
            authority: Issuer::new(params, key),
            authority_pem,
        });
        let key = PrivateKeyDer::try_from(serving.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![serving.cert.der().clone()], key).unwrap());
        tokio::spawn(Arc::clone(&this).serve(listener, TlsAcceptor::from(config)));
        this
    }

    /// A token that lets one cluster in.
    pub(super) fn token(&self, number: u8) -> TokenSecret {
        let (token, now) = (TokenSecret::new([number; 32]), Timestamp::now());
        let terms = Terms { expires_at: now + Duration::from_mins(5), one_use: true, bound_to: None };
        self.tokens.lock().unwrap().mint(&token, terms, now).unwrap();
        token
    }

    async fn serve(self: Arc<Self>, listener: TcpListener, acceptor: TlsAcceptor) {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let this = Arc::clone(&self);
            let service = service_fn(move |request| Arc::clone(&this).answer(request));
            let server = hyper::server::conn::http1::Builder::new();
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let now = Timestamp::now();
        let answer = match path.as_str() {
            "/ids" => {
                let url = Some("https://192.0.2.7:6443".parse().unwrap());
                let endorsement =
                    Endorsement::sign(&self.signer, &self.pin, url, now + Duration::from_mins(5));
                Ok(serde_json::to_vec(&endorsement).unwrap())
            }
            "/challenge" => {
                let request = ChallengeRequest::parse(&body).unwrap();
                let user = UserName { cluster: request.cluster_id, generation: 4 };
                Ok(serde_json::to_vec(&self.challenges.issue(user, &[9; 16], now)).unwrap())
            }
            _ => self.grant(&body, now).map(|grant| serde_json::to_vec(&grant).unwrap()),
        };
        let cut = |cuts: usize| cuts.checked_sub(1);
        if path == "/identity" && self.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, cut).is_ok() {
            return Ok(Response::builder().status(502).body(Full::default()).unwrap());
        }
        let (status, body) = match answer {
            Ok(body) => (200, body),
            Err(denial) => (403, serde_json::to_vec(&denial).unwrap()),
        };
        Ok(Response::builder().status(status).body(Full::new(body.into())).unwrap())
    }

    fn grant(&self, body: &[u8], now: Timestamp) -> Result<IdentityGrant, Denial> {
        let request = IdentityRequest::receive(body)?;
        let mut tokens = self.tokens.lock().unwrap();
        let own = self.signer.identity().id();
        let doorstep = Doorstep { own, generation: 4, challenges: Some(&self.challenges), now };
        let standing = Standing::Stranger;
        let allow_empty_token = self.forgive.load(Ordering::SeqCst);
        let facts = Facts { doorstep, allow_empty_token, tokens: &tokens, standing };
        let approved = judge(&request, &facts)?;
        if let Admission::Token(redemption) = approved.admission {
            tokens.redeem(&redemption, now)?;
        }
        let certificate = self.sign(request.csr(), &approved.user);
        self.granted.lock().unwrap().push(request);
        Ok(IdentityGrant {
            namespace: "liqo-tenant-home-123456".into(),
            credential: Credential::Certificate(certificate),
            api_server_url: "https://192.0.2.7:6443".parse().unwrap(),
            api_server_ca: self.authority_pem.clone(),
            expires_at: now + Duration::from_mins(10),
        })
    }

    fn sign(&self, csr: &str, user: &UserName) -> String {
        let der = CertificateSigningRequestDer::from_pem_slice(csr.as_bytes()).unwrap();
        let (_, csr) = X509CertificationRequest::from_der(&der).unwrap();
        let key = Key(csr.certification_request_info.subject_pki.subject_public_key.data.to_vec());
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user.to_string());
        params.signed_by(&key, &self.authority).unwrap().pem()
    }
}

/// The public key of a request.
struct Key(Vec<u8>);

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}
