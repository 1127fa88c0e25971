//! When the authority and the certificate of the webhook are made anew, so that an API server trusts whoever answers at
//! every moment.
//!
//! - Flow: [`next`] looks at what is and names one step; it is asked again after each, until there is nothing to do.
//!   A new authority is trusted from the moment that it is made, beside the one before, and signs only when every API
//!   server has surely heard of it; the one before goes when nobody serves with a certificate of it any more.
//! - Guarantees: no step makes a certificate untrusted that somebody serves with; a step that was cut off is named again.
//! - Assumptions: whoever serves follows the Secret, and API servers the configuration, both within [`SETTLING`].

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::auth::{Issued, later};

/// How long before it is made a certificate begins to be valid: clocks differ a little.
pub const BACKDATED: Duration = Duration::from_hours(24);
/// How long it takes at most until everybody has seen a change.
pub const SETTLING: Duration = Duration::from_hours(1);

/// What there is, each certificate in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The authorities with their keys at hand, the newest first.
    pub authorities: Vec<String>,
    /// What is served with.
    pub serving: Option<Serving>,
    /// What API servers trust; none where there is nothing to tell them.
    pub trusted: Option<String>,
}

/// A certificate that is served with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// The certificate.
    pub certificate: String,
    /// The authority that signed it.
    pub authority: String,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make an authority, and keep the newest one beside it.
    MakeAuthority,
    /// Let API servers trust these, and no others.
    Trust(String),
    /// Sign a certificate to serve with, by the authority with this place in the list.
    Sign(usize),
    /// Forget all authorities but the newest.
    Forget,
    /// Nothing.
    Rest,
}

/// The next step.
pub fn next(keys: &Keys, now: Timestamp) -> Step {
    let Some(newest) = keys.authorities.first() else { return Step::MakeAuthority };
    let Some(issued) = in_force(newest, now) else { return Step::MakeAuthority };
    if issued.is_due(now) {
        return Step::MakeAuthority;
    }
    let older = keys.authorities.get(1).filter(|older| in_force(older, now).is_some());
    let trusted: String = [Some(newest), older].into_iter().flatten().map(String::as_str).collect();
    if keys.trusted.as_ref().is_some_and(|present| *present != trusted) {
        return Step::Trust(trusted);
    }
    let known = later(issued.issued_at, BACKDATED + SETTLING);
    let (place, signer) = match older {
        Some(older) if now < known => (1, older),
        Some(_) | None => (0, newest),
    };
    if !keys.serving.as_ref().is_some_and(|serving| serving.is_good(signer, now)) {
        return Step::Sign(place);
    }
    if keys.authorities.len() > 1 && now >= later(known, SETTLING) { Step::Forget } else { Step::Rest }
}

impl Serving {
    fn is_good(&self, signer: &str, now: Timestamp) -> bool {
        self.authority == signer && in_force(&self.certificate, now).is_some_and(|issued| !issued.is_due(now))
    }
}

/// What a certificate says, if it can be read and is valid now.
fn in_force(pem: &str, now: Timestamp) -> Option<Issued> {
    Issued::from_pem(pem).ok().filter(|issued| issued.issued_at <= now && now < issued.expires_at)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::jiff::Timestamp;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::{BACKDATED, Keys, SETTLING, Serving, Step, next};
    use crate::auth::later;
    use crate::auth::tests::at;

    const DAY: Duration = Duration::from_hours(24);

    /// A certificate made at that moment, for so many days.
    fn certificate(made: Timestamp, days: u32) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "webhook");
        let moment = |moment: Timestamp| {
            let seconds = u64::try_from(moment.as_second()).unwrap();
            rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
        };
        params.not_before = moment(made.saturating_sub(BACKDATED).unwrap());
        params.not_after = moment(later(made, DAY * days));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    /// Does what is named, as the controller does, until nothing is left; and tells what it was.
    fn settle(keys: &mut Keys, now: Timestamp) -> Vec<Step> {
        let mut done = Vec::new();
        loop {
            let step = next(keys, now);
            let trusted_before = keys.trusted.clone();
            match &step {
                Step::MakeAuthority => {
                    keys.authorities.truncate(1);
                    keys.authorities.insert(0, certificate(now, 3650));
                }
                Step::Trust(trusted) => keys.trusted = Some(trusted.clone()),
                Step::Sign(place) => {
                    let authority = keys.authorities[*place].clone();
                    keys.serving = Some(Serving { certificate: certificate(now, 30), authority });
                }
                Step::Forget => keys.authorities.truncate(1),
                Step::Rest => return done,
            }
            if let (Some(serving), Some(_), Some(trusted)) = (&keys.serving, trusted_before, &keys.trusted) {
                assert!(trusted.contains(&serving.authority), "after {step:?} nobody trusts who answers");
            }
            done.push(step);
            assert!(done.len() < 10, "{done:?}");
        }
    }

    fn words(steps: &[Step]) -> Vec<&'static str> {
        let word = |step: &Step| match step {
            Step::MakeAuthority => "make",
            Step::Trust(_) => "trust",
            Step::Sign(0) => "sign",
            Step::Sign(_) => "sign by the old",
            Step::Forget => "forget",
            Step::Rest => "rest",
        };
        steps.iter().map(word).collect()
    }

    #[test]
    fn all_is_made_at_the_beginning_and_then_there_is_nothing_to_do() {
        let mut keys = Keys { trusted: Some(String::new()), ..Keys::default() };
        assert_eq!(words(&settle(&mut keys, at(0))), ["make", "trust", "sign"]);
        assert_eq!(words(&settle(&mut keys, later(at(0), DAY * 13))), [""; 0]);
    }

    #[test]
    fn a_certificate_is_signed_anew_at_half_of_its_time_and_the_authority_stays() {
        let mut keys = Keys { trusted: Some(String::new()), ..Keys::default() };
        settle(&mut keys, at(0));
        let authority = keys.authorities.clone();
        assert_eq!(words(&settle(&mut keys, later(at(0), DAY * 15))), ["sign"]);
        assert_eq!(keys.authorities, authority);
    }

    #[test]
    fn a_new_authority_is_trusted_before_it_signs_and_the_old_one_until_nobody_needs_it() {
        let mut keys = Keys { trusted: Some(String::new()), ..Keys::default() };
        settle(&mut keys, at(0));
        let due = later(at(0), DAY * 1825);
        settle(&mut keys, due.saturating_sub(DAY * 3).unwrap());
        let old = keys.authorities[0].clone();
        assert_eq!(words(&settle(&mut keys, due)), ["make", "trust"]);
        assert!(keys.trusted.as_ref().unwrap().contains(&old));
        assert_eq!(words(&settle(&mut keys, later(due, SETTLING / 2))), [""; 0]);
        assert_eq!(words(&settle(&mut keys, later(due, SETTLING))), ["sign"]);
        assert!(keys.trusted.as_ref().unwrap().contains(&old));
        assert_eq!(words(&settle(&mut keys, later(due, SETTLING * 2))), ["forget", "trust"]);
        assert!(!keys.trusted.as_ref().unwrap().contains(&old));
    }

    #[test]
    fn a_certificate_that_is_due_before_the_new_authority_is_known_is_signed_by_the_old_one() {
        let mut keys = Keys { trusted: Some(String::new()), ..Keys::default() };
        settle(&mut keys, at(0));
        assert_eq!(words(&settle(&mut keys, later(at(0), DAY * 1825))), ["make", "trust", "sign by the old"]);
    }

    #[test]
    fn after_a_long_sleep_everything_is_made_anew() {
        let mut keys = Keys { trusted: Some(String::new()), ..Keys::default() };
        settle(&mut keys, at(0));
        keys.serving = None;
        assert_eq!(words(&settle(&mut keys, later(at(0), DAY * 4000))), ["make", "trust", "sign"]);
    }

    #[test]
    fn what_was_damaged_or_taken_away_comes_back_and_who_has_nobody_to_tell_still_serves() {
        let mut keys = Keys::default();
        assert_eq!(words(&settle(&mut keys, at(0))), ["make", "sign"]);
        keys.trusted = Some("nonsense".into());
        assert_eq!(words(&settle(&mut keys, at(1))), ["trust"]);
        keys.serving.as_mut().unwrap().certificate = "nonsense".into();
        assert_eq!(words(&settle(&mut keys, at(2))), ["sign"]);
        keys.authorities[0] = "nonsense".into();
        keys.serving = None;
        assert_eq!(words(&settle(&mut keys, at(3))), ["make", "trust", "sign"]);
    }
}
