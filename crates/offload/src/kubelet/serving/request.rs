//! A request for the certificate of virtual nodes, as the object by which a cluster signs those of kubelets.

use anyhow::{Result, bail};
use ferro_api::names::labels;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use ring::digest::{SHA256, digest};

const SIGNER: &str = "kubernetes.io/kubelet-serving";
/// Just these: the signer wants no other for a key of this sort.
const USAGES: [&str; 2] = ["digital signature", "server auth"];
const PREFIX: &str = "ferro-kubelet-";
/// A new leader makes its own, so none has to last long.
const LIFETIME: i32 = 30 * 24 * 3600;

/// The object that asks for it.
pub(super) fn object(request: &str) -> CertificateSigningRequest {
    let hash = digest(&SHA256, request.as_bytes());
    let name = hash.as_ref().iter().take(8).fold(PREFIX.to_owned(), |name, byte| format!("{name}{byte:02x}"));
    let mut metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
    labels::PART_OF.put_on(&mut metadata);
    let spec = CertificateSigningRequestSpec {
        request: ByteString(request.as_bytes().to_vec()),
        signer_name: SIGNER.into(),
        usages: Some(USAGES.map(str::to_owned).to_vec()),
        expiration_seconds: Some(LIFETIME),
        ..CertificateSigningRequestSpec::default()
    };
    CertificateSigningRequest { metadata, spec, status: None }
}

/// The object with our approval.
pub(super) fn approved(mut object: CertificateSigningRequest) -> CertificateSigningRequest {
    let now = Time(Timestamp::now());
    let condition = CertificateSigningRequestCondition {
        type_: "Approved".into(),
        status: "True".into(),
        reason: Some("VirtualNodes".into()),
        message: Some("The controller serves the kubelet API of virtual nodes at this address.".into()),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now),
    };
    object.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
    object
}

/// The certificate, as soon as there is one.
pub(super) fn certificate(object: &CertificateSigningRequest) -> Result<Option<Vec<u8>>> {
    let Some(status) = &object.status else { return Ok(None) };
    for condition in status.conditions.iter().flatten() {
        if matches!(condition.type_.as_str(), "Denied" | "Failed") {
            let message = condition.message.as_deref().unwrap_or_default();
            bail!("the signer {SIGNER} refuses: {} {message}", condition.type_);
        }
    }
    Ok(status.certificate.as_ref().map(|pem| pem.0.clone()).filter(|pem| !pem.is_empty()))
}
