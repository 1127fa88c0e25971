//! What is read of certificates and of requests for them: the subject, the key, the time.
//!
//! A request is accepted only in the one form that ours have: a subject of one common name, no attribute and
//! so no extension, an Ed25519 or elliptic-curve key, signed by that key. What is not there cannot grant
//! anything.

use k8s_openapi::jiff::Timestamp;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_KEY_TYPE_EC_PUBLIC_KEY, OID_SIG_ED25519};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

use super::{Pin, between, later};

const MAX_CSR: usize = 8 * 1024;
const MAX_CERTIFICATE: usize = 64 * 1024;
const CSR: &str = "CERTIFICATE REQUEST";
const CERTIFICATE: &str = "CERTIFICATE";

/// What a certificate signing request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Csr {
    /// The common name, which is the whole subject.
    pub common_name: String,
    /// The key that is to be certified.
    pub key: Pin,
}

impl Csr {
    /// Reads a request in PEM, and verifies that whoever made it has the key.
    pub fn from_pem(pem: &str) -> Result<Self, BadCsr> {
        let der = single_block(pem, CSR, MAX_CSR)?;
        let Ok(([], csr)) = X509CertificationRequest::from_der(&der) else {
            return Err(BadPem::Unreadable.into());
        };
        let info = &csr.certification_request_info;
        let common_name = only_common_name(&info.subject).ok_or(BadCsr::Subject)?;
        if !info.attributes().is_empty() {
            return Err(BadCsr::Attributes);
        }
        let algorithm = &info.subject_pki.algorithm.algorithm;
        if *algorithm != OID_SIG_ED25519 && *algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY {
            return Err(BadCsr::Key);
        }
        csr.verify_signature().map_err(|_| BadCsr::Signature)?;
        Ok(Self { common_name: common_name.to_owned(), key: Pin::of_key(info.subject_pki.raw) })
    }
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The common name, which is the whole subject.
    pub common_name: String,
    /// The key that is certified.
    pub key: Pin,
    /// When it begins to be valid.
    pub issued_at: Timestamp,
    /// When it ends to be valid.
    pub expires_at: Timestamp,
}

impl Issued {
    /// Reads the first certificate in PEM; those of authorities may follow.
    pub fn from_pem(pem: &str) -> Result<Self, BadPem> {
        let (der, _) = first_block(pem, CERTIFICATE, MAX_CERTIFICATE)?;
        Self::from_der(&der)
    }

    /// Whether half of its time is over: then it is made anew.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= later(self.issued_at, between(self.issued_at, self.expires_at) / 2)
    }

    /// Reads a certificate in DER.
    pub fn from_der(der: &[u8]) -> Result<Self, BadPem> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| BadPem::Unreadable)?;
        let validity = certificate.validity();
        let moment = |seconds| Timestamp::from_second(seconds).map_err(|_| BadPem::Unreadable);
        Ok(Self {
            common_name: only_common_name(certificate.subject()).ok_or(BadPem::Unreadable)?.to_owned(),
            key: Pin::of_key(certificate.public_key().raw),
            issued_at: moment(validity.not_before.timestamp())?,
            expires_at: moment(validity.not_after.timestamp())?,
        })
    }
}

/// The pin of the key in a certificate in DER.
pub(super) fn certificate_key(der: &[u8]) -> Result<Pin, BadPem> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| BadPem::Unreadable)?;
    Ok(Pin::of_key(certificate.public_key().raw))
}

/// The content of a text that is one PEM block and nothing else, so that all readers find the same.
fn single_block(pem: &str, label: &'static str, limit: usize) -> Result<Vec<u8>, BadPem> {
    let (der, rest) = first_block(pem, label, limit)?;
    let ends = pem.trim_end().ends_with(&format!("\n-----END {label}-----"));
    if ends && rest.trim_ascii().is_empty() { Ok(der) } else { Err(BadPem::NotOneBlock { label }) }
}

/// The content of the PEM block with which the text begins, and what follows.
fn first_block<'a>(pem: &'a str, label: &'static str, limit: usize) -> Result<(Vec<u8>, &'a [u8]), BadPem> {
    if pem.len() > limit {
        return Err(BadPem::TooLong { limit });
    }
    if !pem.starts_with(&format!("-----BEGIN {label}-----\n")) {
        return Err(BadPem::NotOneBlock { label });
    }
    let (rest, block) = parse_x509_pem(pem.as_bytes()).map_err(|_| BadPem::NotOneBlock { label })?;
    Ok((block.contents, rest))
}

/// The common name of a subject that consists of it.
fn only_common_name<'a>(subject: &'a X509Name<'_>) -> Option<&'a str> {
    let mut names = subject.iter_common_name();
    let (name, None) = (names.next()?, names.next()) else { return None };
    (subject.iter_attributes().count() == 1).then(|| name.as_str().ok()).flatten()
}

/// The text does not hold what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPem {
    /// It is longer than anything of its sort.
    #[error("more than {limit} bytes")]
    TooLong {
        /// The most that is read.
        limit: usize,
    },
    /// It is not PEM, or of another kind, or more than that.
    #[error("not one PEM block of kind {label}")]
    NotOneBlock {
        /// The kind it should be.
        label: &'static str,
    },
    /// The content of the block is broken, or has another form.
    #[error("the content of the PEM block is not of the expected form")]
    Unreadable,
}

/// The certificate signing request is not one that we sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCsr {
    /// It cannot be read.
    #[error(transparent)]
    Pem(#[from] BadPem),
    /// The subject is not one common name alone.
    #[error("the subject is not a single common name")]
    Subject,
    /// It asks for names, usages or anything else.
    #[error("it has attributes; it may have none, and no extension")]
    Attributes,
    /// The key is of another kind.
    #[error("the key is neither Ed25519 nor on an elliptic curve")]
    Key,
    /// It was not made by the owner of the key.
    #[error("its own signature is not valid")]
    Signature,
}

#[cfg(test)]
pub(super) mod tests {
    use super::{BadCsr, BadPem, Csr, Issued};
    use crate::auth::{Pin, tests::at};
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData};

    fn with_subject(parts: &[(DnType, &str)]) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params
    }

    fn request(params: &CertificateParams, key: &KeyPair) -> String {
        params.serialize_request(key).unwrap().pem().unwrap()
    }

    /// A request as ours are, for this name and a new key.
    pub(in crate::auth) fn csr(common_name: &str) -> String {
        request(&with_subject(&[(DnType::CommonName, common_name)]), &KeyPair::generate().unwrap())
    }

    #[test]
    fn a_plain_request_is_read() {
        for algorithm in
            [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384]
        {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let pem = request(&with_subject(&[(DnType::CommonName, "me:1")]), &key);
            let read = Csr { common_name: "me:1".into(), key: Pin::of_key(&key.subject_public_key_info()) };
            assert_eq!(Csr::from_pem(&pem), Ok(read));
        }
    }

    #[test]
    fn a_request_for_more_than_a_name_is_refused() {
        let key = KeyPair::generate().unwrap();
        let name = || (DnType::CommonName, "me:1");
        for subject in [
            vec![],
            vec![(DnType::OrganizationName, "system:masters")],
            vec![name(), (DnType::OrganizationName, "system:masters")],
        ] {
            assert_eq!(Csr::from_pem(&request(&with_subject(&subject), &key)), Err(BadCsr::Subject));
        }
        let mut for_a_server = with_subject(&[name()]);
        for_a_server.subject_alt_names.push(rcgen::SanType::DnsName("kubernetes".try_into().unwrap()));
        assert_eq!(Csr::from_pem(&request(&for_a_server, &key)), Err(BadCsr::Attributes));
    }

    #[test]
    fn a_request_that_somebody_changed_is_refused() {
        let pem = csr("me:1");
        let der = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap().1.contents;
        let mut changed = der.clone();
        let place = changed.windows(4).position(|bytes| bytes == b"me:1").unwrap();
        changed[place] = b'w';
        assert_eq!(Csr::from_pem(&encode(&changed)), Err(BadCsr::Signature));
        assert_eq!(Csr::from_pem(&encode(&[&der[..], &[0]].concat())), Err(BadPem::Unreadable.into()));
    }

    #[test]
    fn only_one_block_of_the_right_kind_is_read() {
        let pem = csr("me:1");
        let label = "CERTIFICATE REQUEST";
        for text in [
            String::new(),
            format!("x\n{pem}"),
            format!("{pem}{pem}"),
            format!("{pem}x"),
            pem.replace("END CERTIFICATE REQUEST", "END CERTIFICATE"),
            pem.replace(label, "NEW CERTIFICATE REQUEST"),
        ] {
            assert_eq!(Csr::from_pem(&text), Err(BadPem::NotOneBlock { label }.into()), "{text}");
        }
        let long = format!("{pem}{}", "\n".repeat(9000));
        assert_eq!(Csr::from_pem(&long), Err(BadPem::TooLong { limit: 8192 }.into()));
    }

    #[test]
    fn a_certificate_tells_whose_it_is_and_how_long_it_holds() {
        let key = KeyPair::generate().unwrap();
        let mut params = with_subject(&[(DnType::CommonName, "me:1")]);
        params.not_before = rcgen::date_time_ymd(2027, 1, 15);
        params.not_after = rcgen::date_time_ymd(2027, 1, 16);
        let pem = params.self_signed(&key).unwrap().pem();
        let issued = Issued::from_pem(&format!("{pem}{pem}")).unwrap();
        assert_eq!(issued.common_name, "me:1");
        assert_eq!(issued.key, Pin::of_key(&key.subject_public_key_info()));
        assert!(issued.issued_at < at(0) && at(0) < issued.expires_at);
        assert!(Issued::from_pem(&csr("me:1")).is_err());
    }

    fn encode(der: &[u8]) -> String {
        use base64::Engine;
        let body = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_without_a_panic(
            text in ".{0,200}",
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            place: prop::sample::Index,
            value: u8,
        ) {
            prop_assert!(Csr::from_pem(&text).is_err());
            prop_assert!(Csr::from_pem(&encode(&bytes)).is_err());
            prop_assert!(Pin::of_certificate(&bytes).is_err());
            let mut der = x509_parser::pem::parse_x509_pem(csr("me:1").as_bytes()).unwrap().1.contents;
            let place = place.index(der.len());
            der[place] = value;
            if let Ok(read) = Csr::from_pem(&encode(&der)) {
                prop_assert_eq!(read.common_name, "me:1");
            }
        }
    }
}
