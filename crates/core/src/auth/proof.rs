//! `GET /ids`: a cluster proves who it is, by an endorsement of the TLS key that its auth service answers with.
//!
//! The controller, which alone holds the identity key, signs the TLS key of the auth service beforehand: so the part
//! that strangers reach need not hold the identity. Whoever completes the TLS handshake with that key is the cluster;
//! somebody in the middle has another key, which the endorsement does not fit. A handshake is always fresh, and the
//! endorsement expires, so that a stolen TLS key is of no use for long.

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{HttpsUrl, Malformed, Pin, read_json};
use crate::identity::{
    ClusterId, Identity, PublicKey, Signature, SigningIdentity, Statement, Unproven, verify,
};
use crate::names::ClusterName;

const PURPOSE: &str = "ferrofluid endorsement v1";
const MAX_ENDORSEMENT: usize = 4 * 1024;

/// Who a cluster is, signed by its identity key for one TLS key and until some moment.
///
/// The signed statement has the purpose `ferrofluid endorsement v1` and the fields SHA-256 of the TLS key,
/// clusterID, clusterName, public key, `apiServerURL`, `expiresAt`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endorsement {
    #[serde(rename = "clusterID")]
    cluster_id: ClusterId,
    cluster_name: ClusterName,
    public_key: PublicKey,
    #[serde(rename = "apiServerURL", default, skip_serializing_if = "Option::is_none")]
    api_server_url: Option<HttpsUrl>,
    expires_at: Timestamp,
    signature: Signature,
}

impl Endorsement {
    /// Endorses an auth service that answers with this TLS key.
    pub fn sign(
        signer: &SigningIdentity,
        tls_key: &Pin,
        api_server_url: Option<HttpsUrl>,
        expires_at: Timestamp,
    ) -> Self {
        let identity = signer.identity();
        let statement = statement(identity, tls_key, api_server_url.as_ref(), expires_at);
        Self {
            cluster_id: identity.id(),
            cluster_name: identity.name().clone(),
            public_key: *identity.public_key(),
            api_server_url,
            expires_at,
            signature: signer.sign(&statement),
        }
    }

    /// Reads an endorsement that came over the network.
    pub fn parse(json: &[u8]) -> Result<Self, Malformed> {
        read_json(json, MAX_ENDORSEMENT)
    }

    /// Who answers with this TLS key, provided it is proved, and is the cluster that was expected, if one was.
    pub fn verify(
        &self,
        tls_key: &Pin,
        expected: Option<&ClusterId>,
        now: Timestamp,
    ) -> Result<Identity, ProofProblem> {
        let identity = Identity::new(self.cluster_name.clone(), self.public_key);
        let statement = statement(&identity, tls_key, self.api_server_url.as_ref(), self.expires_at);
        verify(&self.cluster_id, &self.public_key, &statement, &self.signature)?;
        if now >= self.expires_at {
            return Err(ProofProblem::Expired);
        }
        match expected {
            Some(expected) if *expected != identity.id() => {
                Err(ProofProblem::AnotherCluster { expected: *expected, found: identity.id() })
            }
            Some(_) | None => Ok(identity),
        }
    }

    /// When it expires.
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// Where the API server of the cluster answers, as it says itself.
    pub fn api_server_url(&self) -> Option<&HttpsUrl> {
        self.api_server_url.as_ref()
    }
}

fn statement(
    identity: &Identity,
    tls_key: &Pin,
    api_server_url: Option<&HttpsUrl>,
    expires_at: Timestamp,
) -> Statement {
    Statement::new(PURPOSE)
        .field(tls_key.0)
        .field(identity.id().to_string())
        .field(identity.name().as_str())
        .field(identity.public_key().as_bytes())
        .field(api_server_url.map(ToString::to_string).unwrap_or_default())
        .field(expires_at.to_string())
}

/// The answer does not prove that this is the cluster we want to talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofProblem {
    /// It proves nothing.
    #[error("the cluster at this address does not prove who it is; somebody may stand between")]
    Unproven(#[from] Unproven),
    /// It proved something once.
    #[error(
        "the cluster at this address shows a proof that has expired; check the clocks, and that its controller runs"
    )]
    Expired,
    /// It proves to be somebody else.
    #[error("at this address is the cluster {found}, not {expected}; correct the address")]
    AnotherCluster {
        /// The one that was expected.
        expected: ClusterId,
        /// The one that answered.
        found: ClusterId,
    },
}

#[cfg(test)]
mod tests {
    use super::{Endorsement, ProofProblem};
    use crate::auth::tests::at;
    use crate::auth::{Malformed, Pin};
    use crate::identity::{Unproven, tests::cluster};

    const TLS_KEY: Pin = Pin([1; 32]);

    fn endorsement() -> Endorsement {
        let url = "https://192.0.2.7:6443".parse().unwrap();
        Endorsement::sign(&cluster(1), &TLS_KEY, Some(url), at(100))
    }

    #[test]
    fn an_endorsement_proves_who_answers() {
        let json = serde_json::to_vec(&endorsement()).unwrap();
        let read = Endorsement::parse(&json).unwrap();
        assert_eq!(read, endorsement());
        let id = cluster(1).identity().id();
        assert_eq!(read.verify(&TLS_KEY, Some(&id), at(99)).as_ref(), Ok(cluster(1).identity()));
        assert_eq!(read.verify(&TLS_KEY, None, at(0)).as_ref(), Ok(cluster(1).identity()));
    }

    #[test]
    fn an_endorsement_shown_on_a_connection_with_another_key_proves_nothing() {
        let unproven = Err(ProofProblem::Unproven(Unproven::InvalidSignature));
        assert_eq!(endorsement().verify(&Pin([2; 32]), None, at(0)), unproven);
    }

    #[test]
    fn an_endorsement_ends_at_its_hour() {
        assert_eq!(endorsement().verify(&TLS_KEY, None, at(100)), Err(ProofProblem::Expired));
    }

    #[test]
    fn an_endorsement_in_which_something_was_changed_proves_nothing() {
        let mut renamed = endorsement();
        renamed.cluster_name = "other".parse().unwrap();
        let mut redirected = endorsement();
        redirected.api_server_url = None;
        let mut claimed = endorsement();
        claimed.cluster_id = cluster(2).identity().id();
        let mut prolonged = endorsement();
        prolonged.expires_at = at(200);
        for changed in [renamed, redirected, claimed, prolonged] {
            let verified = changed.verify(&TLS_KEY, None, at(0));
            assert!(matches!(verified, Err(ProofProblem::Unproven(_))), "{verified:?}");
        }
    }

    #[test]
    fn another_cluster_than_the_expected_one_is_named() {
        let (expected, found) = (cluster(2).identity().id(), cluster(1).identity().id());
        let problem = ProofProblem::AnotherCluster { expected, found };
        assert_eq!(endorsement().verify(&TLS_KEY, Some(&expected), at(0)), Err(problem));
    }

    #[test]
    fn overlong_answers_are_not_read() {
        let long = vec![b' '; 5000];
        assert_eq!(Endorsement::parse(&long), Err(Malformed::TooLong { limit: 4096 }));
    }
}
