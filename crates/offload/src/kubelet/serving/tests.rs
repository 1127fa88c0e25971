//! Certificates that the cluster signs, and those that nobody does.

use std::sync::Mutex;

use rcgen::SignatureAlgorithm;
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{GeneralName, ParsedExtension};

use super::*;
use crate::kubelet::tests::FakeHome;
use crate::kubelet::tests::keys::{Authority, HERE};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

impl Certificate {
    /// For tests of who serves with it.
    pub(in super::super) fn of(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { chain, key, due: Timestamp::MAX }
    }
}

/// The key of a request.
struct Asked(Vec<u8>);

impl rcgen::PublicKeyData for Asked {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// The request in an object.
fn request_of(object: &Value) -> Vec<u8> {
    let object: CertificateSigningRequest = serde_json::from_value(object.clone()).unwrap();
    parse_x509_pem(&object.spec.request.0).unwrap().1.contents
}

/// A cluster that keeps one request, and signs it as soon as it is approved, if it signs at all.
fn cluster(signs: bool) -> FakeHome {
    let (present, authority) = (Mutex::new(Value::Null), Authority::new());
    FakeHome::new(move |call, body| {
        let mut present = present.lock().unwrap();
        let (method, path) = call.split_once(' ').unwrap();
        match method {
            "POST" if path == REQUESTS => *present = body.clone(),
            "PUT" if path.ends_with("/approval") => {
                *present = body.clone();
                assert_eq!(present["status"]["conditions"][0]["type"], "Approved");
                if signs {
                    let der = request_of(&present);
                    let (_, request) = X509CertificationRequest::from_der(&der).unwrap();
                    let info = &request.certification_request_info;
                    let key = Asked(info.subject_pki.subject_public_key.data.to_vec());
                    let pem = authority.sign_for(&key).into_bytes();
                    present["status"]["certificate"] = json!(k8s_openapi::ByteString(pem));
                }
            }
            "GET" if path.starts_with(REQUESTS) => {}
            "DELETE" if path.starts_with(REQUESTS) => {
                return Some(json!({"kind": "Status", "status": "Success", "metadata": {}}));
            }
            _ => return None,
        }
        Some(present.clone())
    })
}

/// The certificate that is told first, and what the cluster was asked.
async fn first(home: &FakeHome) -> std::sync::Arc<Certificate> {
    let (tell, mut told) = watch::channel(None);
    tokio::select! {
        kept = keep(home.client(), HERE, tell) => panic!("{kept:?}"),
        first = told.wait_for(Option::is_some) => first.unwrap().clone().unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_cluster_signs_what_it_signs_for_kubelets_and_the_request_is_gone() {
    let home = cluster(true);
    let certificate = first(&home).await;
    assert!(certificate.due > Timestamp::now());
    crate::kubelet::door::configure(&certificate, "").unwrap();
    let asked = home.asked();
    let calls: Vec<&str> = asked.iter().map(|(call, _)| call.split_once(' ').unwrap().0).collect();
    assert_eq!(calls, ["POST", "PUT", "DELETE"]);
    let object = &asked[0].1;
    let name = object["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("ferro-kubelet-"), "{name}");
    assert_eq!(asked[2].0, format!("DELETE {REQUESTS}/{name}"));
    assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/part-of"], "ferrofluid");
    assert_eq!(object["spec"]["signerName"], "kubernetes.io/kubelet-serving");
    assert_eq!(object["spec"]["usages"], json!(["digital signature", "server auth"]));

    let der = request_of(object);
    let (_, request) = X509CertificationRequest::from_der(&der).unwrap();
    request.verify_signature().unwrap();
    let subject = &request.certification_request_info.subject;
    let texts = |names: Vec<&x509_parser::x509::AttributeTypeAndValue<'_>>| {
        names.iter().map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(subject.iter_organization().collect()), [ORGANIZATION]);
    assert_eq!(texts(subject.iter_common_name().collect()), [NAME]);
    let names: Vec<GeneralName<'_>> = request
        .requested_extensions()
        .unwrap()
        .filter_map(|extension| match extension {
            ParsedExtension::SubjectAlternativeName(names) => Some(names.general_names.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(names, [GeneralName::IPAddress(&[127, 0, 0, 1])]);
}

#[tokio::test(start_paused = true)]
async fn where_nobody_signs_there_is_one_of_our_own_and_the_request_is_gone() {
    let home = cluster(false);
    let before = tokio::time::Instant::now();
    let certificate = first(&home).await;
    assert!(before.elapsed() <= SIGN * 3, "{:?}", before.elapsed());
    crate::kubelet::door::configure(&certificate, "").unwrap();
    assert!(home.asked().last().unwrap().0.starts_with("DELETE"));
}

#[tokio::test(start_paused = true)]
async fn where_nobody_may_even_ask_there_is_one_of_our_own() {
    let certificate = first(&FakeHome::new(|_, _| None)).await;
    crate::kubelet::door::configure(&certificate, "").unwrap();
}

#[test]
fn a_certificate_for_another_key_is_not_taken() {
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let pem = Authority::new().sign_for(&other);
    let chain = vec![CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
    assert!(read(chain.clone(), &key).is_err());
    assert!(read(chain, &other).is_ok());
    assert!(read(Vec::new(), &key).is_err());
}

#[test]
fn what_the_signer_refuses_is_an_error() {
    let mut object = request::object("a request");
    assert_eq!(request::certificate(&object).unwrap(), None);
    object = request::approved(object);
    assert_eq!(request::certificate(&object).unwrap(), None);
    let conditions = object.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions[0].type_ = "Failed".into();
    assert!(request::certificate(&object).is_err());
}
