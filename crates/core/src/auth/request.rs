//! `POST /identity`: the signed request for a certificate, as it is made, sent, filed and read again.
//!
//! What is signed holds only the hash of the token; the token itself travels beside it. So the auth service
//! can file the whole signed request where others may read it, and the token goes no further.

use serde::{Deserialize, Serialize};

use super::{ChallengeNonce, HttpsUrl, Reason, TokenHash, TokenSecret, read_json};
use crate::identity::{
    ClusterId, Identity, PublicKey, Signature, SigningIdentity, Statement, Unproven, verify,
};
use crate::names::ClusterName;

const PURPOSE: &str = "ferrofluid identity request v1";
const MAX_REQUEST: usize = 16 * 1024;

/// What a requester asks of a provider.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The provider.
    pub audience: ClusterId,
    /// The nonce of the provider's challenge.
    pub nonce: ChallengeNonce,
    /// The certificate signing request, in PEM, for the common name of the challenge.
    pub csr: String,
    /// The token, if there is one.
    pub token: Option<TokenSecret>,
    /// Where the requester's own auth service is, if others reach it.
    pub auth_url: Option<HttpsUrl>,
    /// A token that the requester has made for the provider, so that it can ask in its turn.
    pub return_token: Option<TokenSecret>,
}

impl Ask {
    /// The request in the name of this cluster.
    pub fn sign(self, signer: &SigningIdentity) -> IdentityRequest {
        let identity = signer.identity();
        let content = Content {
            cluster_id: identity.id(),
            cluster_name: identity.name().clone(),
            public_key: *identity.public_key(),
            audience: self.audience,
            nonce: self.nonce,
            csr: self.csr,
            token_hash: self.token.map(|token| token.hash()),
            auth_url: self.auth_url,
            return_token: self.return_token,
        };
        let signature = signer.sign(&content.statement());
        IdentityRequest { signed: SignedRequest { content, signature }, token: self.token }
    }
}

/// What is sent: the signed request, and the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityRequest {
    #[serde(flatten)]
    signed: SignedRequest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<TokenSecret>,
}

impl IdentityRequest {
    /// Reads a request that came over the network. The token fits its hash, and is dropped.
    pub fn receive(json: &[u8]) -> Result<SignedRequest, Reason> {
        let request: Self = read_json(json, MAX_REQUEST).map_err(|_| Reason::Malformed)?;
        if request.token.map(|token| token.hash()) == request.signed.content.token_hash {
            Ok(request.signed)
        } else {
            Err(Reason::InvalidToken)
        }
    }
}

/// What is signed, filed and judged.
///
/// The signed statement has the purpose `ferrofluid identity request v1` and the fields clusterID,
/// clusterName, public key, audience, nonce, CSR, SHA-256 of the token, `authURL`, return token. Identifiers,
/// name, CSR and URL are as text, the rest as bytes. The return token is in it as it is: it is bound to the
/// provider, and so of no use to others who read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedRequest {
    #[serde(flatten)]
    content: Content,
    signature: Signature,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    #[serde(rename = "clusterID")]
    cluster_id: ClusterId,
    cluster_name: ClusterName,
    public_key: PublicKey,
    audience: ClusterId,
    nonce: ChallengeNonce,
    csr: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_hash: Option<TokenHash>,
    #[serde(rename = "authURL", default, skip_serializing_if = "Option::is_none")]
    auth_url: Option<HttpsUrl>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    return_token: Option<TokenSecret>,
}

impl SignedRequest {
    /// Reads a request as it was filed.
    pub fn parse(json: &[u8]) -> Result<Self, Reason> {
        read_json(json, MAX_REQUEST).map_err(|_| Reason::Malformed)
    }

    /// The request as it is filed.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!(self)
    }

    /// Who asks, provided that the signature proves it.
    pub fn verify(&self) -> Result<Identity, Reason> {
        let Content { cluster_id, cluster_name, public_key, .. } = &self.content;
        match verify(cluster_id, public_key, &self.content.statement(), &self.signature) {
            Ok(()) => Ok(Identity::new(cluster_name.clone(), *public_key)),
            Err(Unproven::IdentityMismatch) => Err(Reason::IdentityMismatch),
            Err(Unproven::InvalidSignature) => Err(Reason::InvalidSignature),
        }
    }

    /// Who says that it asks; nothing proves it.
    pub fn claimed_cluster(&self) -> &ClusterId {
        &self.content.cluster_id
    }

    /// The cluster that is asked.
    pub fn audience(&self) -> &ClusterId {
        &self.content.audience
    }

    /// The nonce of the challenge that this answers.
    pub fn nonce(&self) -> &ChallengeNonce {
        &self.content.nonce
    }

    /// The certificate signing request, in PEM.
    pub fn csr(&self) -> &str {
        &self.content.csr
    }

    /// The token that was shown, if one was.
    pub fn token(&self) -> Option<TokenHash> {
        self.content.token_hash
    }

    /// Where the requester's own auth service is.
    pub fn auth_url(&self) -> Option<&HttpsUrl> {
        self.content.auth_url.as_ref()
    }

    /// The token that lets the provider in at the requester's.
    pub fn return_token(&self) -> Option<TokenSecret> {
        self.content.return_token
    }
}

impl Content {
    fn statement(&self) -> Statement {
        Statement::new(PURPOSE)
            .field(self.cluster_id.to_string())
            .field(self.cluster_name.as_str())
            .field(self.public_key.as_bytes())
            .field(self.audience.to_string())
            .field(self.nonce.as_bytes())
            .field(&self.csr)
            .field(self.token_hash.as_ref().map_or(&[][..], TokenHash::as_bytes))
            .field(self.auth_url.as_ref().map(ToString::to_string).unwrap_or_default())
            .field(self.return_token.as_ref().map_or(&[][..], TokenSecret::as_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::{Ask, IdentityRequest, SignedRequest};
    use crate::auth::{ChallengeKey, Reason, TokenSecret, UserName, tests::at};
    use crate::identity::tests::cluster;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn request() -> IdentityRequest {
        let user = UserName { cluster: cluster(1).identity().id(), generation: 0 };
        let ask = Ask {
            audience: cluster(2).identity().id(),
            nonce: ChallengeKey::new(&[0; 32]).issue(user, &[0; 16], at(0)).nonce,
            csr: "a request".into(),
            token: Some(TokenSecret::new([0x41; 32])),
            auth_url: Some("https://192.0.2.7:30443".parse().unwrap()),
            return_token: Some(TokenSecret::new([0x42; 32])),
        };
        ask.sign(&cluster(1))
    }

    fn receive(json: &Value) -> Result<SignedRequest, Reason> {
        IdentityRequest::receive(json.to_string().as_bytes())
    }

    #[test]
    fn a_request_proves_who_asks_also_after_it_was_filed() {
        let received = receive(&json!(request())).unwrap();
        assert_eq!(received.verify().as_ref(), Ok(cluster(1).identity()));
        let filed = SignedRequest::parse(received.to_json().to_string().as_bytes()).unwrap();
        assert_eq!(filed, received);
        assert_eq!(filed.verify().as_ref(), Ok(cluster(1).identity()));
    }

    #[test]
    fn the_token_goes_no_further_than_the_auth_service() {
        let token = json!(TokenSecret::new([0x41; 32]));
        let token = token.as_str().unwrap();
        let sent = json!(request()).to_string();
        let filed = receive(&json!(request())).unwrap().to_json().to_string();
        assert!(sent.contains(token) && !filed.contains(token), "{filed}");
        assert!(!format!("{:?}", request()).contains(token));
    }

    #[test]
    fn a_change_to_any_field_is_noticed() {
        let other = |field: &str| match field {
            "clusterID" | "audience" => json!(cluster(3).identity().id()),
            "publicKey" => json!(cluster(3).identity().public_key()),
            "clusterName" => json!("other"),
            "authURL" => json!("https://192.0.2.8"),
            "csr" => json!("another request"),
            "signature" => json!(cluster(3).sign(&crate::identity::Statement::new(""))),
            "nonce" => json!("A".repeat(75)),
            _ => json!("A".repeat(43)),
        };
        let sent = json!(request());
        let fields: Vec<_> = sent.as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields.len(), 11, "{fields:?}");
        for field in fields {
            let mut changed = sent.clone();
            changed[&field] = other(&field);
            assert!(receive(&changed).and_then(|request| request.verify()).is_err(), "{field}");
            let mut without = sent.clone();
            without.as_object_mut().unwrap().remove(&field);
            assert!(receive(&without).and_then(|request| request.verify()).is_err(), "{field}");
        }
    }

    #[test]
    fn a_token_that_was_not_signed_is_refused() {
        let mut sent = json!(request());
        sent["token"] = json!(TokenSecret::new([9; 32]));
        assert_eq!(receive(&sent), Err(Reason::InvalidToken));
    }

    #[test]
    fn overlong_requests_are_not_read() {
        let mut sent = json!(request());
        sent["csr"] = json!("x".repeat(20_000));
        assert_eq!(receive(&sent), Err(Reason::Malformed));
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(IdentityRequest::receive(&bytes), Err(Reason::Malformed));
            prop_assert_eq!(SignedRequest::parse(&bytes), Err(Reason::Malformed));
        }
    }
}
