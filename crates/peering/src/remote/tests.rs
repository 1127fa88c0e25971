//! Clients for peers, of what was granted; and one API server that counts connections.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferro_core::auth::{Credential, IdentityGrant};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::jiff::Timestamp;
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::client;
use crate::contact::provider;
use crate::keepsake::Keepsake;

fn grant(credential: Credential) -> IdentityGrant {
    IdentityGrant {
        namespace: "liqo-tenant-home-123456".into(),
        credential,
        api_server_url: "https://192.0.2.7:6443".parse().unwrap(),
        api_server_ca: String::new(),
        expires_at: Timestamp::MAX,
    }
}

fn kept(credential: Credential, key: Option<String>) -> Keepsake {
    Keepsake { grant: Some(grant(credential)), key, ..Keepsake::default() }
}

#[tokio::test]
async fn what_was_granted_makes_a_client() {
    let made = rcgen::generate_simple_self_signed(vec!["me".to_owned()]).unwrap();
    let certificate = || Credential::Certificate(made.cert.pem());
    let keepsake = kept(certificate(), Some(made.signing_key.serialize_pem()));
    let (client_, granted) = client(&keepsake).unwrap().unwrap();
    assert_eq!(client_.default_namespace(), granted.namespace);
    assert!(client(&kept(Credential::BearerToken("abc".into()), None)).unwrap().is_some());
    assert!(client(&kept(certificate(), None)).unwrap().is_none(), "without the key it is of no use");
    assert!(client(&Keepsake::default()).unwrap().is_none());
}

#[tokio::test]
async fn what_does_not_fit_together_makes_none() {
    let made = rcgen::generate_simple_self_signed(vec!["me".to_owned()]).unwrap();
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let certificate = Credential::Certificate(made.cert.pem());
    assert!(client(&kept(certificate, Some(other))).is_err());
    assert!(client(&kept(Credential::BearerToken("a\nb".into()), None)).is_err());
    for authority in ["rubbish", "-----BEGIN CERTIFICATE-----\nrubbish\n-----END CERTIFICATE-----\n"] {
        let mut kept = kept(Credential::BearerToken("abc".into()), None);
        kept.grant.as_mut().unwrap().api_server_ca = authority.into();
        assert!(client(&kept).is_err(), "{authority}");
    }
}

/// Answers what it was asked, and with which token.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let token = request.headers().get(header::AUTHORIZATION).map(|token| token.to_str().unwrap().to_owned());
    let body = serde_json::json!({"path": request.uri().path(), "token": token}).to_string();
    Ok(Response::new(Full::new(body.into())))
}

#[tokio::test]
async fn all_requests_share_one_connection() {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let mut config =
        config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let stream = TlsAcceptor::from(Arc::new(config.clone())).accept(stream).await.unwrap();
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service_fn(echo)));
        }
    });

    let mut kept = kept(Credential::BearerToken("abc".into()), None);
    let grant = kept.grant.as_mut().unwrap();
    grant.api_server_url = format!("https://{address}/clusters/7").parse().unwrap();
    grant.api_server_ca = made.cert.pem();
    let (client, _) = client(&kept).unwrap().unwrap();
    let get = || client.request::<serde_json::Value>(Request::get("/version").body(Vec::new()).unwrap());
    let answer = get().await.unwrap();
    assert_eq!(answer, serde_json::json!({"path": "/clusters/7/version", "token": "Bearer abc"}));
    let (one, two) = tokio::join!(get(), get());
    assert_eq!((one.unwrap(), two.unwrap()), (answer.clone(), answer));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}
