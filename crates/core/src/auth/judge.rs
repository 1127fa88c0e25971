//! Whether a request for a certificate is granted.
//!
//! Two steps, both pure. [`screen`] is what the auth service can tell by itself: who asks, whether the
//! request is new and meant for this cluster, and whether the CSR asks for no more than it may. [`judge`]
//! does all that again, since the controller does not trust the auth service, and then looks at tokens
//! and policy.
//!
//! - Flow: screen, record the nonce in [`AnsweredChallenges`](super::AnsweredChallenges), file; then judge,
//!   redeem the token and store that, approve, answer.
//! - Guarantees: the same request and facts give the same answer; a request that was approved is approved
//!   again, until its challenge or token expires.
//! - Assumptions: the facts are about the cluster that asks.

use k8s_openapi::jiff::Timestamp;

use super::{
    Bearer, ChallengeKey, Csr, Denial, HttpsUrl, Reason, Redemption, SignedRequest, TokenSecret, TokenStore,
    UserName,
};
use crate::identity::{ClusterId, Identity};

/// What the auth service knows.
#[derive(Clone, Copy)]
pub struct Doorstep<'a> {
    /// This cluster.
    pub own: ClusterId,
    /// The present generation of the cluster that asks.
    pub generation: u32,
    /// The key of the challenges. Without it only their time is checked, which is enough for a second look.
    pub challenges: Option<&'a ChallengeKey>,
    /// The time.
    pub now: Timestamp,
}

/// What the controller knows.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// What the auth service knows, too.
    pub doorstep: Doorstep<'a>,
    /// Whether a cluster that shows no token is let in.
    pub allow_empty_token: bool,
    /// The tokens that were given out.
    pub tokens: &'a TokenStore,
    /// Whether the cluster that asks is known.
    pub standing: Standing,
}

/// Whether a cluster has been let in before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not yet, or its certificates have been revoked since.
    Stranger,
    /// It has, and its certificates of the present generation count. It may renew them without a token.
    LetIn,
}

/// A request that holds by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screened {
    /// Who asks.
    pub identity: Identity,
    /// The user that it becomes.
    pub user: UserName,
    /// What it wants to have signed.
    pub csr: Csr,
}

/// A request that is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approved {
    /// Who asks.
    pub identity: Identity,
    /// The user that it becomes.
    pub user: UserName,
    /// Why it is let in.
    pub admission: Admission,
    /// Where its own auth service is.
    pub auth_url: Option<HttpsUrl>,
    /// The token that lets this cluster in over there.
    pub return_token: Option<TokenSecret>,
}

/// Why a cluster is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It shows a good token, which is to be redeemed first.
    Token(Redemption),
    /// It has been let in before, and renews its certificate.
    Renewal,
    /// No token is needed here.
    EmptyToken,
}

/// Whether the request holds by itself.
pub fn screen(request: &SignedRequest, doorstep: &Doorstep<'_>) -> Result<Screened, Denial> {
    if *request.audience() != doorstep.own {
        return Err(Reason::WrongAudience.into());
    }
    match doorstep.challenges {
        Some(key) => key.check(request.claimed_cluster(), request.nonce(), doorstep.now)?,
        None => request.nonce().check_time(doorstep.now)?,
    }
    let identity = request.verify()?;
    let user = UserName { cluster: identity.id(), generation: doorstep.generation };
    let csr = Csr::from_pem(request.csr()).map_err(|_| Reason::InvalidCsr)?;
    check_subject(&csr, &user)?;
    Ok(Screened { identity, user, csr })
}

/// A name of another generation comes from a challenge before a revocation: a new challenge helps.
fn check_subject(csr: &Csr, user: &UserName) -> Result<(), Reason> {
    match csr.common_name.parse::<UserName>() {
        Ok(asked) if asked == *user => Ok(()),
        Ok(asked) if asked.cluster == user.cluster => Err(Reason::ExpiredChallenge),
        Ok(_) | Err(_) => Err(Reason::InvalidCsr),
    }
}

/// Whether the request is granted.
pub fn judge(request: &SignedRequest, facts: &Facts<'_>) -> Result<Approved, Denial> {
    let Screened { identity, user, csr } = screen(request, &facts.doorstep)?;
    let bearer = Bearer { user, key: csr.key };
    let redemption = request.token().map(|token| Redemption { token, bearer });
    Ok(Approved {
        identity,
        user,
        admission: admit(redemption, facts)?,
        auth_url: request.auth_url().cloned(),
        return_token: request.return_token(),
    })
}

/// A good token is used up even by a cluster that needs none; a bad one does not harm such a cluster.
fn admit(redemption: Option<Redemption>, facts: &Facts<'_>) -> Result<Admission, Reason> {
    let token = redemption.map(|redemption| {
        facts.tokens.check(&redemption, facts.doorstep.now).map(|()| Admission::Token(redemption))
    });
    match (token, facts.standing) {
        (Some(Ok(admission)), Standing::Stranger | Standing::LetIn) => Ok(admission),
        (Some(Err(_)) | None, Standing::LetIn) => Ok(Admission::Renewal),
        (Some(Err(reason)), Standing::Stranger) => Err(reason),
        (None, Standing::Stranger) if facts.allow_empty_token => Ok(Admission::EmptyToken),
        (None, Standing::Stranger) => Err(Reason::EmptyTokenNotAllowed),
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, Approved, Doorstep, Facts, Standing, judge, screen};
    use crate::auth::x509::tests::csr;
    use crate::auth::{
        Ask, ChallengeKey, Denial, IdentityRequest, Reason, SignedRequest, Terms, TokenSecret, TokenStore,
        UserName, tests::at,
    };
    use crate::identity::tests::cluster;

    const REQUESTER: u8 = 1;
    const PROVIDER: u8 = 2;

    fn secret() -> TokenSecret {
        TokenSecret::new([7; 32])
    }

    fn key() -> ChallengeKey {
        ChallengeKey::new(&[3; 32])
    }

    fn user(generation: u32) -> UserName {
        UserName { cluster: cluster(REQUESTER).identity().id(), generation }
    }

    fn ask(token: Option<TokenSecret>) -> Ask {
        Ask {
            audience: cluster(PROVIDER).identity().id(),
            nonce: key().issue(user(0), &[0; 16], at(0)).nonce,
            csr: csr(&user(0).to_string()),
            token,
            auth_url: Some("https://192.0.2.7:30443".parse().unwrap()),
            return_token: Some(TokenSecret::new([8; 32])),
        }
    }

    fn received(ask: Ask) -> SignedRequest {
        let json = serde_json::to_vec(&ask.sign(&cluster(REQUESTER))).unwrap();
        IdentityRequest::receive(&json).unwrap()
    }

    /// A provider with one token that wants tokens, and whose facts a test may change.
    struct Provider {
        tokens: TokenStore,
        challenges: ChallengeKey,
        allow_empty_token: bool,
        standing: Standing,
        generation: u32,
        seconds: u64,
    }

    impl Provider {
        fn new() -> Self {
            let mut tokens = TokenStore::default();
            let terms = Terms { expires_at: at(60), one_use: true, bound_to: None };
            tokens.mint(&secret(), terms, at(0)).unwrap();
            let (allow_empty_token, standing) = (false, Standing::Stranger);
            Self { tokens, challenges: key(), allow_empty_token, standing, generation: 0, seconds: 1 }
        }

        fn facts(&self) -> Facts<'_> {
            let doorstep = Doorstep {
                own: cluster(PROVIDER).identity().id(),
                generation: self.generation,
                challenges: Some(&self.challenges),
                now: at(self.seconds),
            };
            let Self { allow_empty_token, standing, tokens, .. } = self;
            Facts { doorstep, allow_empty_token: *allow_empty_token, tokens, standing: *standing }
        }

        fn judge(&self, ask: Ask) -> Result<Approved, Reason> {
            judge(&received(ask), &self.facts()).map_err(|denial| denial.reason)
        }
    }

    #[test]
    fn a_good_token_lets_a_stranger_in() {
        let mut provider = Provider::new();
        let request = ask(Some(secret()));
        let approved = provider.judge(request.clone()).unwrap();
        assert_eq!(approved.identity, *cluster(REQUESTER).identity());
        assert_eq!(approved.user, user(0));
        assert_eq!(approved.return_token, request.return_token);
        assert_eq!(approved.auth_url, request.auth_url);

        let Admission::Token(redemption) = approved.admission else { panic!("{approved:?}") };
        provider.tokens.redeem(&redemption, at(1)).unwrap();
        assert_eq!(provider.judge(request), Ok(approved), "as after a crash");
        assert_eq!(provider.judge(ask(Some(secret()))), Err(Reason::UsedToken), "with another key");
    }

    #[test]
    fn without_a_good_token_a_stranger_stays_out() {
        let mut provider = Provider::new();
        assert_eq!(provider.judge(ask(None)), Err(Reason::EmptyTokenNotAllowed));
        assert_eq!(provider.judge(ask(Some(TokenSecret::new([9; 32])))), Err(Reason::InvalidToken));
        provider.seconds = 60;
        assert_eq!(provider.judge(ask(Some(secret()))), Err(Reason::ExpiredToken));
    }

    #[test]
    fn where_no_token_is_needed_a_wrong_one_is_still_wrong() {
        let provider = Provider { allow_empty_token: true, ..Provider::new() };
        assert_eq!(provider.judge(ask(None)).unwrap().admission, Admission::EmptyToken);
        assert_eq!(provider.judge(ask(Some(TokenSecret::new([9; 32])))), Err(Reason::InvalidToken));
    }

    #[test]
    fn a_cluster_that_was_let_in_renews_without_a_token() {
        let provider = Provider { standing: Standing::LetIn, ..Provider::new() };
        assert_eq!(provider.judge(ask(None)).unwrap().admission, Admission::Renewal);
        let old = TokenSecret::new([9; 32]);
        assert_eq!(provider.judge(ask(Some(old))).unwrap().admission, Admission::Renewal);
        assert!(matches!(provider.judge(ask(Some(secret()))).unwrap().admission, Admission::Token(_)));
    }

    #[test]
    fn a_request_for_another_cluster_is_refused() {
        let audience = cluster(3).identity().id();
        assert_eq!(Provider::new().judge(Ask { audience, ..ask(None) }), Err(Reason::WrongAudience));
    }

    #[test]
    fn a_challenge_that_is_old_or_of_another_cluster_is_refused() {
        let mut provider = Provider::new();
        let other = UserName { cluster: cluster(3).identity().id(), generation: 0 };
        let stolen = Ask { nonce: key().issue(other, &[0; 16], at(0)).nonce, ..ask(None) };
        assert_eq!(provider.judge(stolen), Err(Reason::ExpiredChallenge));
        provider.seconds = 120;
        assert_eq!(provider.judge(ask(Some(secret()))), Err(Reason::ExpiredChallenge));
    }

    #[test]
    fn without_the_key_of_the_challenges_their_time_still_counts() {
        let provider = Provider::new();
        let request = received(ask(None));
        let doorstep = |seconds| Doorstep { challenges: None, now: at(seconds), ..provider.facts().doorstep };
        assert!(screen(&request, &doorstep(1)).is_ok());
        let expired = Err(Denial::from(Reason::ExpiredChallenge));
        assert_eq!(screen(&request, &doorstep(120)), expired);
    }

    #[test]
    fn a_csr_for_somebody_else_is_refused() {
        let provider = Provider::new();
        let for_name = |name: &str| Ask { csr: csr(name), ..ask(Some(secret())) };
        let other = UserName { cluster: cluster(3).identity().id(), generation: 0 };
        for name in ["system:admin", &other.to_string(), &user(0).cluster.to_string()] {
            assert_eq!(provider.judge(for_name(name)), Err(Reason::InvalidCsr), "{name}");
        }
        let rubbish = Ask { csr: "rubbish".into(), ..ask(Some(secret())) };
        assert_eq!(provider.judge(rubbish), Err(Reason::InvalidCsr));
    }

    #[test]
    fn after_a_revocation_an_old_challenge_is_void() {
        let mut provider = Provider { generation: 1, ..Provider::new() };
        assert_eq!(provider.judge(ask(Some(secret()))), Err(Reason::ExpiredChallenge));
        let renewed = Ask { csr: csr(&user(1).to_string()), ..ask(Some(secret())) };
        assert_eq!(provider.judge(renewed).unwrap().user, user(1));
        provider.generation = 0;
        assert!(provider.judge(ask(Some(secret()))).is_ok());
    }

    #[test]
    fn a_forged_identity_is_refused_before_anything_is_signed() {
        let mut json = received(ask(Some(secret()))).to_json();
        json["publicKey"] = serde_json::json!(cluster(3).identity().public_key());
        let forged = SignedRequest::parse(json.to_string().as_bytes()).unwrap();
        let mismatch = Denial::from(Reason::IdentityMismatch);
        assert_eq!(judge(&forged, &Provider::new().facts()), Err(mismatch));
    }
}
