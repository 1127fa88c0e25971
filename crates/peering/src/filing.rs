//! A cluster's request as a Kubernetes object: how the auth service files it, and how the controller reads it again.
//!
//! The object is a `CertificateSigningRequest` with the signed request as an annotation. The answer travels in its
//! conditions: approved with the tenant namespace as message, or denied with the reason as one word.

use std::time::Duration;

use ferro_api::names::{annotations, labels};
use ferro_core::auth::{Csr, Reason, SignedRequest, UserName};
use ferro_core::names::is_dns_label;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::handover::Token;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const USAGE: &str = "client auth";
const PREFIX: &str = "ferro-";
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";
const LET_IN: &str = "LetIn";

/// The name under which a request is filed: the same request has the same name.
pub(crate) fn name(request: &SignedRequest) -> String {
    let hash = digest(&SHA256, request.to_json().to_string().as_bytes());
    hash.as_ref().iter().take(16).fold(PREFIX.to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// The object that files a request for a certificate of that lifetime.
pub(crate) fn object(request: &SignedRequest, lifetime: Duration) -> CertificateSigningRequest {
    let mut metadata = ObjectMeta { name: Some(name(request)), ..ObjectMeta::default() };
    labels::PART_OF.put_on(&mut metadata);
    labels::REMOTE_ID.put_on(&mut metadata, request.claimed_cluster().to_string());
    annotations::REQUEST.put_on(&mut metadata, request.to_json().to_string());
    let spec = CertificateSigningRequestSpec {
        request: ByteString(request.csr().as_bytes().to_vec()),
        signer_name: SIGNER.into(),
        usages: Some(vec![USAGE.into()]),
        expiration_seconds: i32::try_from(lifetime.as_secs()).ok(),
        ..CertificateSigningRequestSpec::default()
    };
    CertificateSigningRequest { metadata, spec, status: None }
}

/// Whether an object was filed by that user for us to decide on. All others are none of our business.
pub(crate) fn is_ours(object: &CertificateSigningRequest, filed_by: &str) -> bool {
    labels::PART_OF.is_on(&object.metadata)
        && object.spec.username.as_deref() == Some(filed_by)
        && object.spec.signer_name == SIGNER
}

/// The request that an object files, provided that the certificate would be for nothing else.
pub(crate) fn read(object: &CertificateSigningRequest) -> Result<SignedRequest, Reason> {
    let json = annotations::REQUEST.of(&object.metadata).ok_or(Reason::Malformed)?;
    let request = SignedRequest::parse(json.as_bytes())?;
    let is_exact = object.spec.signer_name == SIGNER
        && object.spec.usages.as_deref() == Some(&[USAGE.to_owned()])
        && object.spec.request.0 == request.csr().as_bytes();
    if is_exact { Ok(request) } else { Err(Reason::InvalidCsr) }
}

/// What has become of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing yet.
    Undecided,
    /// It is approved, and there is no certificate yet.
    Approved,
    /// It is denied.
    Denied(Reason),
    /// There is a certificate.
    Issued {
        /// The tenant namespace.
        namespace: String,
        /// In PEM.
        certificate: String,
    },
    /// There is a token in the place of a certificate that nobody signed.
    Token(Token),
}

/// What the object itself says of what has become of a request.
pub(crate) fn answer(object: &CertificateSigningRequest) -> Answer {
    let of_type = |type_: &str| condition(object, type_);
    if let Some(denied) = of_type(DENIED) {
        let reason = denied.reason.clone().unwrap_or_default();
        return Answer::Denied(serde_json::from_value(Value::String(reason)).unwrap_or(Reason::Unavailable));
    }
    if of_type(FAILED).is_some() {
        return Answer::Denied(Reason::Unavailable);
    }
    let Some(approved) = of_type(APPROVED) else { return Answer::Undecided };
    let certificate = object.status.as_ref().and_then(|status| status.certificate.as_ref());
    let Some(certificate) = certificate.filter(|certificate| !certificate.0.is_empty()) else {
        return Answer::Approved;
    };
    let namespace = approved.message.clone().filter(|namespace| is_dns_label(namespace));
    match (namespace, String::from_utf8(certificate.0.clone())) {
        (Some(namespace), Ok(certificate)) => Answer::Issued { namespace, certificate },
        // Somebody else approved it, or the signer is not what it should be.
        _ => Answer::Denied(Reason::Unavailable),
    }
}

/// The tenant namespace of a request that we approved and nobody has signed, and since when that is so.
pub(crate) fn unsigned(object: &CertificateSigningRequest) -> Option<(String, Timestamp)> {
    let approved = condition(object, APPROVED).filter(|_| answer(object) == Answer::Approved)?;
    let namespace = approved.message.clone().filter(|namespace| is_dns_label(namespace))?;
    let is_ours = approved.reason.as_deref() == Some(LET_IN);
    approved.last_update_time.as_ref().filter(|_| is_ours).map(|since| (namespace, since.0))
}

/// The user that the certificate would be for.
pub(crate) fn user(object: &CertificateSigningRequest) -> Option<UserName> {
    let csr = std::str::from_utf8(&object.spec.request.0).ok()?;
    Csr::from_pem(csr).ok()?.common_name.parse().ok()
}

fn condition<'a>(
    object: &'a CertificateSigningRequest,
    type_: &str,
) -> Option<&'a CertificateSigningRequestCondition> {
    let conditions = object.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default().iter().find(|condition| condition.type_ == type_)
}

/// The object with our decision on it: the tenant namespace, or why not.
pub(crate) fn decided(
    object: &CertificateSigningRequest,
    decision: &Result<String, Reason>,
) -> CertificateSigningRequest {
    let now = Time(Timestamp::now());
    let (type_, reason, message) = match decision {
        Ok(namespace) => (APPROVED, LET_IN.to_owned(), namespace.clone()),
        Err(reason) => (DENIED, format!("{reason:?}"), reason.advice().to_owned()),
    };
    let condition = CertificateSigningRequestCondition {
        type_: type_.into(),
        status: "True".into(),
        reason: Some(reason),
        message: Some(message),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now),
    };
    let mut object = object.clone();
    object.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferro_core::auth::{Ask, ChallengeKey, IdentityRequest};
    use ferro_core::identity::{SigningIdentity, new_private_key};

    fn request() -> SignedRequest {
        let key = new_private_key(&ring::rand::SystemRandom::new()).unwrap();
        let signer = SigningIdentity::from_pkcs8("rome".parse().unwrap(), key.as_ref()).unwrap();
        let cluster = signer.identity().id();
        let user = UserName { cluster, generation: 0 };
        let ask = Ask {
            audience: cluster,
            nonce: ChallengeKey::new(&[0; 32]).issue(user, &[0; 16], Timestamp::now()).nonce,
            csr: "a request".into(),
            token: None,
            auth_url: None,
            return_token: None,
        };
        IdentityRequest::receive(&serde_json::to_vec(&ask.sign(&signer)).unwrap()).unwrap()
    }

    fn filed(request: &SignedRequest) -> CertificateSigningRequest {
        object(request, Duration::from_hours(1))
    }

    #[test]
    fn a_request_is_read_as_it_was_filed() {
        let (request, other) = (request(), request());
        assert_eq!(read(&filed(&request)), Ok(request.clone()));
        assert_eq!(filed(&request).spec.expiration_seconds, Some(3600));
        assert_eq!(name(&request), name(&request));
        assert_ne!(name(&request), name(&other));
        assert!(is_dns_label(&name(&request)) && name(&request).len() == 38);
    }

    #[test]
    fn an_object_that_asks_for_anything_else_is_refused() {
        let request = request();
        let mut others = vec![filed(&request); 5];
        others[0].spec.usages = Some(vec![USAGE.into(), "server auth".into()]);
        others[1].spec.usages = None;
        others[2].spec.request = ByteString(b"another request".to_vec());
        others[3].spec.signer_name = "kubernetes.io/kubelet-serving".into();
        annotations::REQUEST.put_on(&mut others[4].metadata, "{}");
        for object in &others[..4] {
            assert_eq!(read(object), Err(Reason::InvalidCsr));
        }
        assert_eq!(read(&others[4]), Err(Reason::Malformed));
    }

    #[test]
    fn only_what_the_auth_service_filed_is_ours() {
        let mut object = filed(&request());
        object.spec.username = Some("system:serviceaccount:liqo:ferro-auth".into());
        assert!(is_ours(&object, "system:serviceaccount:liqo:ferro-auth"));
        assert!(!is_ours(&object, "system:serviceaccount:elsewhere:ferro-auth"));
        labels::PART_OF.take_off(&mut object.metadata);
        assert!(!is_ours(&object, "system:serviceaccount:liqo:ferro-auth"));
    }

    #[test]
    fn a_decision_is_read_as_it_was_written() {
        let object = filed(&request());
        assert_eq!(answer(&object), Answer::Undecided);
        assert_eq!(answer(&decided(&object, &Err(Reason::UsedToken))), Answer::Denied(Reason::UsedToken));
        let mut approved = decided(&object, &Ok("liqo-tenant-rome-123456".into()));
        assert_eq!(answer(&approved), Answer::Approved);
        assert_eq!(
            unsigned(&approved).map(|(namespace, _)| namespace).as_deref(),
            Some("liqo-tenant-rome-123456")
        );
        approved.status.get_or_insert_default().certificate = Some(ByteString(b"pem".to_vec()));
        assert_eq!(unsigned(&approved), None);
        let namespace = "liqo-tenant-rome-123456".to_owned();
        assert_eq!(answer(&approved), Answer::Issued { namespace, certificate: "pem".into() });
    }

    #[test]
    fn an_approval_by_somebody_else_is_not_taken_for_ours() {
        let mut approved = decided(&filed(&request()), &Ok("This request was approved by hand".into()));
        approved.status.get_or_insert_default().certificate = Some(ByteString(b"pem".to_vec()));
        assert_eq!(answer(&approved), Answer::Denied(Reason::Unavailable));
    }
}
