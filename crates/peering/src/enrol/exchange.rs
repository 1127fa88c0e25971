//! One request for a certificate: challenge, CSR, answer; nothing of the answer is taken that was not asked for.

use ferro_core::auth::{Ask, ChallengeRequest, HttpsUrl, IdentityGrant, Pin, TokenSecret, UserName};
use ferro_core::identity::ClusterId;
use k8s_openapi::jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};

use super::problem::Problem;
use crate::contact::Caller;
use crate::identity::Own;
use crate::keepsake::Keepsake;
use crate::remote;

/// What a request consists of.
pub(super) struct Exchange<'a> {
    pub(super) caller: &'a Caller,
    pub(super) own: &'a Own,
    /// Where the peer's auth service is, and its key.
    pub(super) url: &'a HttpsUrl,
    pub(super) pin: &'a Pin,
    /// The peer.
    pub(super) audience: ClusterId,
    /// The key to be certified.
    pub(super) key: &'a KeyPair,
    pub(super) token: Option<TokenSecret>,
    pub(super) return_token: Option<TokenSecret>,
    /// Whether there is a credential from before.
    pub(super) holds_credential: bool,
}

impl Exchange<'_> {
    /// Asks, and checks the answer.
    pub(super) async fn run(&self) -> Result<IdentityGrant, Problem> {
        let identity = self.own.signer.identity();
        let request = ChallengeRequest { cluster_id: identity.id(), public_key: *identity.public_key() };
        let challenge = self.caller.challenge(self.url, self.pin, &request).await;
        let challenge = challenge
            .map_err(|error| Problem::contact(self.url, &error))?
            .map_err(|denial| Problem::denied(denial, self.holds_credential))?;
        let user = challenge.common_name;
        if user.cluster != identity.id() {
            return Err(Problem::unusable(
                "the other cluster's challenge is for another cluster than this one",
            ));
        }
        let ask = Ask {
            audience: self.audience,
            nonce: challenge.nonce,
            csr: csr(&user, self.key).map_err(|error| Problem::unusable(&error.to_string()))?,
            token: self.token,
            auth_url: self.own.reach.auth.clone(),
            return_token: self.return_token,
        };
        let answer = self.caller.ask(self.url, self.pin, &ask.sign(&self.own.signer)).await;
        let grant = answer
            .map_err(|error| Problem::contact(self.url, &error))?
            .map_err(|denial| Problem::denied(denial, self.holds_credential))?;
        self.check(&grant, &user, Timestamp::now())?;
        Ok(grant)
    }

    /// Whether the grant is for this cluster and key, in time, and leads to an API server.
    fn check(&self, grant: &IdentityGrant, user: &UserName, now: Timestamp) -> Result<(), Problem> {
        let issued = grant.issued(user, &Pin::of_key(&self.key.subject_public_key_info()))?;
        let expires_at = issued.map_or(grant.expires_at, |issued| issued.expires_at);
        if expires_at <= now {
            return Err(Problem::unusable(
                "the certificate that the other cluster gave has expired; check the clocks of both",
            ));
        }
        if !grant.api_server_url.is_elsewhere() {
            let url = &grant.api_server_url;
            return Err(Problem::unusable(&format!(
                "the other cluster says that its API server is at {url}, where only itself reaches it; set \
                 apiServerConfig.url there"
            )));
        }
        let key = Some(self.key.serialize_pem());
        let kept = Keepsake { key, grant: Some(grant.clone()), ..Keepsake::default() };
        remote::client(&kept).map(drop).map_err(|error| Problem::unusable(&format!("{error:#}")))
    }
}

/// A request for this user and nothing else.
fn csr(user: &UserName, key: &KeyPair) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user.to_string());
    params.serialize_request(key)?.pem()
}

#[cfg(test)]
mod tests {
    use super::csr;
    use ferro_core::auth::{Csr, Pin, UserName};
    use ferro_core::identity::{Bytes, ClusterId, PublicKey};
    use rcgen::{KeyPair, PublicKeyData as _};

    #[test]
    fn our_requests_ask_for_what_a_provider_signs() {
        let user = UserName { cluster: ClusterId::of(&PublicKey(Bytes([1; 32]))), generation: 3 };
        let key = KeyPair::generate().unwrap();
        let read = Csr::from_pem(&csr(&user, &key).unwrap()).unwrap();
        assert_eq!(read.common_name, user.to_string());
        assert_eq!(read.key, Pin::of_key(&key.subject_public_key_info()));
    }
}
