//! What the Secret of the webhook holds: authorities with their keys, and what is served with.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use ferro_core::admission::keys::{Keys, Serving};
use ferro_runtime::certificates::Authority;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;

/// The name of the authorities.
const NAME: &str = "ferro-webhook-ca";
/// Certificate and key of each authority, the newest first.
const NEW: (&str, &str) = ("ca.crt", "ca.key");
const OLD: (&str, &str) = ("old.crt", "old.key");
/// What is served with, and the authority that signed it.
const SERVING: (&str, &str, &str) = ("tls.crt", "tls.key", "signer.crt");

/// The parts of the Secret, as text.
#[derive(Clone, Default)]
pub(super) struct Ring(BTreeMap<String, String>);

impl Ring {
    /// What is in a Secret; parts that are no text are not there.
    pub(super) fn of(secret: Option<&Secret>) -> Self {
        let data = secret.and_then(|secret| secret.data.as_ref());
        let text = |(key, bytes): (&String, &ByteString)| {
            Some((key.clone(), String::from_utf8(bytes.0.clone()).ok()?))
        };
        Self(data.into_iter().flatten().filter_map(text).collect())
    }

    /// The content of a Secret.
    pub(super) fn into_data(self) -> BTreeMap<String, ByteString> {
        self.0.into_iter().map(|(key, text)| (key, ByteString(text.into_bytes()))).collect()
    }

    /// What there is to decide on.
    pub(super) fn keys(&self, trusted: Option<String>) -> Keys {
        let usable = |place| self.authority(place).ok().map(|authority| authority.pem().to_owned());
        let (certificate, key, signer) = SERVING;
        let serving = match (self.0.get(certificate), self.0.get(key), self.0.get(signer)) {
            (Some(certificate), Some(_), Some(authority)) => {
                Some(Serving { certificate: certificate.clone(), authority: authority.clone() })
            }
            _ => None,
        };
        Keys { authorities: [NEW, OLD].into_iter().map_while(usable).collect(), serving, trusted }
    }

    /// The same with a new authority, and the one that was new as the old one.
    pub(super) fn with_authority(&self, now: Timestamp) -> Result<Self> {
        let mut next = self.without_old();
        if self.authority(NEW).is_ok() {
            for (new, old) in [(NEW.0, OLD.0), (NEW.1, OLD.1)] {
                next.0.extend(self.0.get(new).map(|text| (old.to_owned(), text.clone())));
            }
        }
        let (certificate, key) = Authority::make(NAME, now)?;
        next.0.extend([(NEW.0.to_owned(), certificate), (NEW.1.to_owned(), key)]);
        Ok(next)
    }

    /// The same with a certificate for these names, by the authority at that place.
    pub(super) fn signed(&self, place: usize, names: &[String], now: Timestamp) -> Result<Self> {
        let identity = self.authority(if place == 0 { NEW } else { OLD })?.server(names, now)?;
        let (certificate, key, signer) = SERVING;
        let mut next = self.clone();
        let parts = [(certificate, identity.certificate), (key, identity.key), (signer, identity.ca)];
        next.0.extend(parts.map(|(key, text)| (key.to_owned(), text)));
        Ok(next)
    }

    /// The same without the old authority.
    pub(super) fn without_old(&self) -> Self {
        let mut next = self.clone();
        next.0.retain(|key, _| ![OLD.0, OLD.1].contains(&key.as_str()));
        next
    }

    fn authority(&self, (certificate, key): (&str, &str)) -> Result<Authority> {
        let part = |key: &str| self.0.get(key).with_context(|| format!("the Secret has no {key}"));
        Authority::new(NAME, part(certificate)?.clone(), part(key)?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ferro_core::admission::keys::{SETTLING, Step, next};
    use ferro_runtime::tls;

    use super::*;

    /// Takes all steps that are to be taken at a moment; what API servers trust is the second value.
    fn settle(ring: Ring, trusted: &mut String, now: Timestamp) -> (Ring, Vec<&'static str>) {
        let (mut ring, mut steps) = (ring, Vec::new());
        loop {
            let names = ["ferro-webhook".to_owned(), "ferro-webhook.liqo.svc".to_owned()];
            let (changed, step) = match next(&ring.keys(Some(trusted.clone())), now) {
                Step::Rest => return (ring, steps),
                Step::Trust(authorities) => {
                    *trusted = authorities;
                    (ring, "trust")
                }
                Step::MakeAuthority => (ring.with_authority(now).unwrap(), "make"),
                Step::Sign(place) => (ring.signed(place, &names, now).unwrap(), "sign"),
                Step::Forget => (ring.without_old(), "forget"),
            };
            ring = changed;
            steps.push(step);
            assert!(steps.len() < 9, "{steps:?}");
        }
    }

    #[test]
    fn keys_are_made_kept_and_made_anew_one_after_the_other() {
        let (now, mut trusted) = (Timestamp::now(), String::new());
        let (ring, steps) = settle(Ring::default(), &mut trusted, now);
        assert_eq!(steps, ["make", "trust", "sign"]);
        let secret = Secret { data: Some(ring.clone().into_data()), ..Secret::default() };
        assert!(tls::configure(&secret).is_ok(), "it can be served with");
        let (ring, steps) = settle(Ring::of(Some(&secret)), &mut trusted, now);
        assert_eq!(steps, [""; 0]);

        let due = now + Duration::from_hours(24 * 1826);
        let (ring, steps) = settle(ring, &mut trusted, due);
        assert_eq!(steps, ["make", "trust", "sign"]);
        assert_eq!(trusted.matches("BEGIN CERTIFICATE").count(), 2);
        let (ring, steps) = settle(ring, &mut trusted, due + SETTLING);
        assert_eq!(steps, ["sign"]);
        let (ring, steps) = settle(ring, &mut trusted, due + SETTLING * 2);
        assert_eq!(steps, ["forget", "trust"]);
        assert_eq!(trusted, ring.0[NEW.0]);
        assert_eq!(ring.0.len(), 5);
    }

    #[test]
    fn a_secret_that_was_damaged_is_mended() {
        let (now, mut trusted) = (Timestamp::now(), String::new());
        let (ring, _) = settle(Ring::default(), &mut trusted, now);
        for (lost, steps) in
            [("ca.key", &["make", "trust", "sign"][..]), ("tls.key", &["sign"]), ("signer.crt", &["sign"])]
        {
            let mut damaged = ring.clone();
            damaged.0.remove(lost);
            assert_eq!(settle(damaged, &mut trusted.clone(), now).1, steps, "{lost}");
        }
    }
}
