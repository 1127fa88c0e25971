//! The answer to a request that is granted: how the requester gets at the provider's API server.

use std::fmt;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{BadPem, HttpsUrl, Issued, Malformed, Pin, UserName, read_json};
use crate::names::is_dns_label;

const MAX_GRANT: usize = 128 * 1024;

/// What a requester needs to use its tenant namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityGrant {
    /// The tenant namespace that the provider keeps for the requester.
    pub namespace: String,
    /// What the requester shows to the API server.
    #[serde(flatten)]
    pub credential: Credential,
    /// Where the API server is.
    #[serde(rename = "apiServerURL")]
    pub api_server_url: HttpsUrl,
    /// The authorities by which the API server is known, in PEM.
    #[serde(rename = "apiServerCA")]
    pub api_server_ca: String,
    /// When the credential expires.
    pub expires_at: Timestamp,
}

/// What a requester shows to the API server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Credential {
    /// A certificate for the key of its request, in PEM.
    Certificate(String),
    /// A token of a service account, from a provider that cannot sign certificates.
    BearerToken(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(pem) => to.debug_tuple("Certificate").field(pem).finish(),
            Self::BearerToken(_) => to.write_str("BearerToken(..)"),
        }
    }
}

impl IdentityGrant {
    /// Reads an answer that came over the network.
    pub fn parse(json: &[u8]) -> Result<Self, BadGrant> {
        let grant: Self = read_json(json, MAX_GRANT)?;
        if is_dns_label(&grant.namespace) { Ok(grant) } else { Err(BadGrant::Namespace) }
    }

    /// What the certificate says, if it is one: it must be for this user and this key.
    pub fn issued(&self, user: &UserName, key: &Pin) -> Result<Option<Issued>, BadGrant> {
        let Credential::Certificate(pem) = &self.credential else { return Ok(None) };
        let issued = Issued::from_pem(pem)?;
        if issued.common_name == user.to_string() && issued.key == *key {
            Ok(Some(issued))
        } else {
            Err(BadGrant::ForSomebodyElse)
        }
    }
}

/// The answer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadGrant {
    /// It cannot be read.
    #[error("the other cluster's answer cannot be read")]
    Malformed(#[from] Malformed),
    /// The namespace cannot be one.
    #[error("the other cluster names a namespace that cannot exist")]
    Namespace,
    /// The certificate cannot be read.
    #[error("the certificate that the other cluster gave cannot be read")]
    Certificate(#[from] BadPem),
    /// The certificate is for another user or key.
    #[error("the certificate that the other cluster gave is not for this cluster")]
    ForSomebodyElse,
}

#[cfg(test)]
mod tests {
    use super::{BadGrant, Credential, IdentityGrant};
    use crate::auth::{Pin, UserName, tests::at};
    use crate::identity::tests::cluster;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData};

    fn grant(credential: Credential) -> IdentityGrant {
        IdentityGrant {
            namespace: "liqo-tenant-home-123456".into(),
            credential,
            api_server_url: "https://192.0.2.7:6443".parse().unwrap(),
            api_server_ca: "an authority".into(),
            expires_at: at(600),
        }
    }

    fn user(generation: u32) -> UserName {
        UserName { cluster: cluster(1).identity().id(), generation }
    }

    fn certificate(key: &KeyPair) -> Credential {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user(1).to_string());
        Credential::Certificate(params.self_signed(key).unwrap().pem())
    }

    #[test]
    fn a_grant_is_read_as_it_was_sent() {
        let token = Credential::BearerToken("abc".into());
        for credential in [certificate(&KeyPair::generate().unwrap()), token] {
            let json = serde_json::to_vec(&grant(credential.clone())).unwrap();
            assert_eq!(IdentityGrant::parse(&json), Ok(grant(credential)));
        }
    }

    #[test]
    fn a_certificate_is_taken_only_for_the_user_and_key_it_was_asked_for() {
        let key = KeyPair::generate().unwrap();
        let pin = Pin::of_key(&key.subject_public_key_info());
        let grant = grant(certificate(&key));
        assert_eq!(grant.issued(&user(1), &pin).unwrap().unwrap().key, pin);
        assert_eq!(grant.issued(&user(2), &pin), Err(BadGrant::ForSomebodyElse));
        assert_eq!(grant.issued(&user(1), &Pin([0; 32])), Err(BadGrant::ForSomebodyElse));
    }

    #[test]
    fn a_namespace_that_is_none_is_refused() {
        let mut grant = grant(Credential::BearerToken("abc".into()));
        grant.namespace = "../kube-system".into();
        let json = serde_json::to_vec(&grant).unwrap();
        assert_eq!(IdentityGrant::parse(&json), Err(BadGrant::Namespace));
        assert!(IdentityGrant::parse(b"{}").is_err());
    }

    #[test]
    fn a_bearer_token_is_not_printed() {
        assert!(!format!("{:?}", grant(Credential::BearerToken("abc".into()))).contains("abc"));
    }
}
