//! The part of ClusterConfig about identities: which tokens count, how long certificates live, whom to trust.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::ObjectRef;
use crate::schema;

const TOKEN_LIFETIME: u32 = 60 * 60;
const CERTIFICATE_LIFETIME: u32 = 30 * 24 * 60 * 60;
const BUNDLE_KEY: &str = "ca.crt";

/// How peers prove who they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthConfig {
    /// Whether a cluster that shows no token is let in. Its identity is verified all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub allow_empty_token: Option<bool>,

    /// How long a token may be used after it was made, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_536_000), extend("default" = TOKEN_LIFETIME))]
    pub token_lifetime_seconds: Option<u32>,

    /// How long the certificate of a peer is valid, in seconds. It is renewed well before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 600, max = 31_536_000), extend("default" = CERTIFICATE_LIFETIME))]
    pub certificate_lifetime_seconds: Option<u32>,

    /// Authorities to trust beside those of the system. A peer whose certificate comes from one of them is
    /// Trusted.
    #[serde(rename = "trustedCA", skip_serializing_if = "Option::is_none")]
    pub trusted_ca: Option<BundleRef>,

    /// The Secret of type kubernetes.io/tls with the certificate of this cluster's auth service.
    /// When left out, a self-signed one is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving_certificate: Option<ObjectRef>,

    /// The URL of this cluster's auth service, as announced to others. When left out, it is found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::https_url)]
    pub url: Option<String>,
}

impl AuthConfig {
    /// Whether a cluster that shows no token is let in.
    pub fn allow_empty_token(&self) -> bool {
        self.allow_empty_token.unwrap_or(false)
    }

    /// How long a token may be used after it was made.
    pub fn token_lifetime(&self) -> Duration {
        Duration::from_secs(self.token_lifetime_seconds.unwrap_or(TOKEN_LIFETIME).into())
    }

    /// How long the certificate of a peer is valid.
    pub fn certificate_lifetime(&self) -> Duration {
        Duration::from_secs(self.certificate_lifetime_seconds.unwrap_or(CERTIFICATE_LIFETIME).into())
    }
}

/// Certificates kept in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleRef {
    /// The namespace of the ConfigMap.
    #[schemars(transform = schema::namespace)]
    pub namespace: String,

    /// The name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The key that holds the certificates, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("default" = BUNDLE_KEY))]
    pub key: Option<String>,
}

impl BundleRef {
    /// The key that holds the certificates.
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or(BUNDLE_KEY)
    }
}
