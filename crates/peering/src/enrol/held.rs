//! What is kept for a peer, read once for each version of its Secret, and whether the credential in it is ours.

use ferro_core::auth::enrolment::Held;
use ferro_core::auth::{Credential, IdentityGrant, Issued, Pin, UserName};
use ferro_core::identity::ClusterId;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use rcgen::{KeyPair, PublicKeyData as _};

use crate::keepsake::Keepsake;

/// What is kept for a peer.
#[derive(Default)]
pub(super) struct Kept {
    /// As it is stored.
    pub(super) keepsake: Keepsake,
    /// The credential in it, if it can be used.
    pub(super) held: Option<Held>,
    version: Option<String>,
    /// The grant, and when it was first seen.
    seen: Option<(IdentityGrant, Timestamp)>,
    /// When the first look was: what was there is older.
    began: Option<Timestamp>,
}

impl Kept {
    /// Reads the Secret, unless that version has been read.
    pub(super) fn look_at(&mut self, secret: Option<&Secret>, own: &ClusterId) {
        let version = secret.and_then(Secret::resource_version);
        if version.is_some() && version == self.version {
            return;
        }
        self.version = version;
        self.read(secret.map(Keepsake::of).unwrap_or_default(), own, Timestamp::now());
    }

    fn read(&mut self, keepsake: Keepsake, own: &ClusterId, now: Timestamp) {
        self.seen = match (keepsake.grant.as_ref(), self.seen.take()) {
            (Some(grant), Some((seen, at))) if seen == *grant => Some((seen, at)),
            (Some(grant), _) => Some((grant.clone(), now)),
            (None, _) => None,
        };
        let began = *self.began.get_or_insert(now);
        self.held = self.seen.as_ref().and_then(|(grant, seen)| {
            let granted_at = Some(*seen).filter(|seen| *seen > began);
            held(&keepsake, grant, own, *seen).map(|held| Held { granted_at, ..held })
        });
        self.keepsake = keepsake;
    }
}

/// The credential, provided that it is for this cluster and its key is there.
fn held(keepsake: &Keepsake, grant: &IdentityGrant, own: &ClusterId, seen: Timestamp) -> Option<Held> {
    let (issued_at, expires_at) = match &grant.credential {
        Credential::Certificate(pem) => {
            let issued = Issued::from_pem(pem).ok()?;
            let user: UserName = issued.common_name.parse().ok()?;
            let key = KeyPair::from_pem(keepsake.key.as_deref()?).ok()?;
            if user.cluster != *own || issued.key != Pin::of_key(&key.subject_public_key_info()) {
                return None;
            }
            (issued.issued_at, issued.expires_at)
        }
        // A token does not say when it was made: its renewal counts from when it was first seen.
        Credential::BearerToken(_) => (seen, grant.expires_at),
    };
    Some(Held { issued_at, expires_at, api_server: grant.api_server_url.clone(), granted_at: None })
}

#[cfg(test)]
mod tests {
    use super::Kept;
    use crate::keepsake::Keepsake;
    use ferro_core::auth::{Credential, IdentityGrant, UserName};
    use ferro_core::identity::{Bytes, ClusterId, PublicKey};
    use k8s_openapi::jiff::Timestamp;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn id(number: u8) -> ClusterId {
        ClusterId::of(&PublicKey(Bytes([number; 32])))
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn kept(credential: Credential, key: Option<&KeyPair>) -> Keepsake {
        let grant = IdentityGrant {
            namespace: "liqo-tenant-home-123456".into(),
            credential,
            api_server_url: "https://192.0.2.7:6443".parse().unwrap(),
            api_server_ca: String::new(),
            expires_at: at(600),
        };
        Keepsake { grant: Some(grant), key: key.map(KeyPair::serialize_pem), ..Keepsake::default() }
    }

    fn certificate(cluster: ClusterId, key: &KeyPair) -> Credential {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, UserName { cluster, generation: 1 }.to_string());
        Credential::Certificate(params.self_signed(key).unwrap().pem())
    }

    #[test]
    fn a_certificate_counts_with_its_key_and_for_this_cluster() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        for (cluster, kept_key, counts) in
            [(1, Some(&key), true), (2, Some(&key), false), (1, Some(&other), false), (1, None, false)]
        {
            let mut read = Kept::default();
            read.read(kept(certificate(id(cluster), &key), kept_key), &id(1), at(0));
            assert_eq!(read.held.is_some(), counts);
        }
    }

    #[test]
    fn a_token_counts_from_when_it_was_first_seen() {
        let mut read = Kept::default();
        let token = |text: &str| kept(Credential::BearerToken(text.into()), None);
        read.read(token("a"), &id(1), at(0));
        read.read(token("a"), &id(1), at(5));
        let held = read.held.as_ref().unwrap();
        assert_eq!((held.issued_at, held.granted_at), (at(0), None), "it was there before us");
        read.read(token("b"), &id(1), at(6));
        let held = read.held.as_ref().unwrap();
        assert_eq!((held.issued_at, held.granted_at), (at(6), Some(at(6))));
        read.read(Keepsake::default(), &id(1), at(7));
        assert_eq!(read.held, None);
    }
}
