//! What the auth service does with a request: looks at it, files it for the controller, and hands the answer out.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::config::ClusterConfig;
use ferro_core::auth::{
    AnsweredChallenges, Challenge, ChallengeKey, ChallengeRequest, Credential, Denial, Doorstep, Endorsement,
    Generations, HttpsUrl, IdentityGrant, IdentityRequest, Issued, RateLimiter, RateLimits, Reason, Screened,
    SignedRequest, UserName, screen,
};
use ferro_core::identity::ClusterId;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::watcher;
use kube::{Api, Client};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::Semaphore;
use tracing::{debug, info, warn};

use super::{CHALLENGE, CHALLENGE_KEY};
use crate::filing::{self, Answer};
use crate::handover::{self, Token};
use crate::identity::{API_SERVER_CA, CLUSTER_ID, ENDORSEMENT, NAME};
use crate::tenant::GENERATIONS;

/// Requests that wait for the controller at once.
const MOST_FILED: usize = 64;
/// How long the controller may take to decide.
const DECISION: Duration = Duration::from_secs(15);
/// How long the signer may take after that, or the controller when it sees that there is none.
const SIGNATURE: Duration = Duration::from_secs(10);

/// The desk at which strangers ask.
pub(super) struct Desk {
    requests: Api<CertificateSigningRequest>,
    identity: Watched<ConfigMap>,
    generations: Watched<ConfigMap>,
    challenge: Watched<Secret>,
    issued: Watched<Secret>,
    config: Watched<ClusterConfig>,
    limiter: Mutex<RateLimiter>,
    answered: Mutex<AnsweredChallenges>,
    places: Semaphore,
}

/// Where this cluster's API server is, for those who are let in.
struct Gate {
    url: HttpsUrl,
    authorities: String,
}

impl Desk {
    /// Starts the watches that it needs.
    pub(super) fn open(tasks: &Tasks, client: Client, namespace: &str) -> Self {
        let maps = || Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let secrets = || Api::<Secret>::namespaced(client.clone(), namespace);
        let configs = Api::all(client.clone());
        Self {
            identity: Watched::start(tasks, "identity", maps(), named(NAME)),
            generations: Watched::start(tasks, "generations", maps(), named(GENERATIONS)),
            challenge: Watched::start(tasks, "challenge key", secrets(), named(CHALLENGE)),
            issued: Watched::start(tasks, "issued tokens", secrets(), named(handover::NAME)),
            config: Watched::start(tasks, "configuration", configs, watcher::Config::default()),
            requests: Api::all(client),
            limiter: Mutex::new(RateLimiter::new(RateLimits::default())),
            answered: Mutex::default(),
            places: Semaphore::new(MOST_FILED),
        }
    }

    /// Whether somebody may ask now, or else when.
    pub(super) fn admit(&self, source: IpAddr) -> Result<(), Duration> {
        lock(&self.limiter).admit(source, Timestamp::now())
    }

    /// Who this cluster is, as the controller has put it.
    pub(super) fn endorsement(&self) -> Option<String> {
        self.told(ENDORSEMENT)
    }

    /// `POST /challenge`.
    pub(super) fn challenge(&self, body: &[u8]) -> Result<Challenge, Denial> {
        let request = ChallengeRequest::parse(body)?;
        let generation = available(self.generation(&request.cluster_id))?;
        let key = available(self.key())?;
        let mut random = [0; 16];
        available(
            SystemRandom::new().fill(&mut random).ok().context("this machine gives no random numbers"),
        )?;
        let user = UserName { cluster: request.cluster_id, generation };
        Ok(key.issue(user, &random, Timestamp::now()))
    }

    /// `POST /identity`.
    pub(super) async fn identity(&self, body: &[u8]) -> Result<IdentityGrant, Denial> {
        let request = IdentityRequest::receive(body)?;
        let _place = self.places.try_acquire().map_err(|_| Reason::RateLimited)?;
        let gate = available(self.gate())?;
        let screened = self.screen(&request)?;
        let answer = available(self.decided(&request).await)?;
        let grant = match answer {
            Answer::Issued { namespace, certificate } => {
                available(grant(&screened, gate, namespace, certificate))
            }
            Answer::Token(token) => Ok(token_grant(gate, token)),
            Answer::Denied(reason) => Err(reason.into()),
            Answer::Undecided => Err(Reason::NotApproved.into()),
            Answer::Approved => {
                warn!("an approved request got neither certificate nor token; the controller's log says why");
                Err(Reason::Unavailable.into())
            }
        };
        let peer = screened.user;
        match &grant {
            Ok(grant) => info!(%peer, namespace = grant.namespace, "gave a credential"),
            Err(denial) => info!(%peer, reason = ?denial.reason, "denied a credential"),
        }
        grant
    }

    /// Whether the request holds by itself and is new.
    fn screen(&self, request: &SignedRequest) -> Result<Screened, Denial> {
        let now = Timestamp::now();
        let key = available(self.key())?;
        let doorstep = Doorstep {
            own: available(self.own())?,
            generation: available(self.generation(request.claimed_cluster()))?,
            challenges: Some(&key),
            now,
        };
        let screened = screen(request, &doorstep)?;
        lock(&self.answered).record(request.nonce(), now)?;
        Ok(screened)
    }

    /// Files the request, waits for what becomes of it, and clears it away.
    async fn decided(&self, request: &SignedRequest) -> Result<Answer> {
        let name = filing::name(request);
        let filed =
            self.requests.create(&PostParams::default(), &filing::object(request, self.lifetime())).await;
        match filed {
            // The same request, from before a restart: its answer is the answer.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            filed => drop(filed.with_context(|| format!("cannot file the request {name}"))?),
        }
        let answer = self.answer(&name).await;
        match self.requests.delete(&name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => debug!(name, %error, "cannot delete a request; the controller does so later"),
        }
        answer
    }

    async fn answer(&self, name: &str) -> Result<Answer> {
        let decided = self.wait(name, DECISION, |answer| *answer != Answer::Undecided).await?;
        if decided != Answer::Approved {
            return Ok(decided);
        }
        let signed = self.wait(name, SIGNATURE, |answer| *answer != Answer::Approved);
        let answer = tokio::select! {
            signed = signed => signed?,
            token = self.token(name) => Answer::Token(token?),
        };
        Ok(if answer == Answer::Undecided { Answer::Approved } else { answer })
    }

    /// The token that the controller makes for a request, where nobody signs.
    async fn token(&self, name: &str) -> Result<Token> {
        let mut issued = self.issued.clone();
        loop {
            if let Some(token) = issued.all().first().and_then(|secret| handover::of(secret, name)) {
                return Ok(token);
            }
            issued.changed().await?;
        }
    }

    /// What has become of a request when it is enough, or when time is up.
    async fn wait(&self, name: &str, patience: Duration, is_enough: fn(&Answer) -> bool) -> Result<Answer> {
        let of = |object: Option<&CertificateSigningRequest>| {
            object.map_or(Answer::Denied(Reason::NotApproved), filing::answer)
        };
        let enough = |object: Option<&CertificateSigningRequest>| is_enough(&of(object));
        match tokio::time::timeout(patience, await_condition(self.requests.clone(), name, enough)).await {
            Ok(Ok(object)) => Ok(of(object.as_ref())),
            Ok(Err(error)) => Err(error).with_context(|| format!("cannot watch the request {name}")),
            Err(_) => Ok(Answer::Undecided),
        }
    }

    fn told(&self, part: &str) -> Option<String> {
        self.identity.all().first()?.data.as_ref()?.get(part).cloned()
    }

    fn own(&self) -> Result<ClusterId> {
        let id = self.told(CLUSTER_ID).context("the controller has not said yet who this cluster is")?;
        id.parse().with_context(|| format!("the ConfigMap {NAME} has no clusterID"))
    }

    fn gate(&self) -> Result<Gate> {
        let endorsement =
            self.endorsement().context("the controller has not said yet who this cluster is")?;
        let endorsement = Endorsement::parse(endorsement.as_bytes())?;
        let url = endorsement.api_server_url().cloned();
        Ok(Gate {
            url: url.context("nobody knows where this cluster's API server is; set apiServerConfig.url")?,
            authorities: self.told(API_SERVER_CA).unwrap_or_default(),
        })
    }

    /// Without the ConfigMap nothing is known: that is not the same as never revoked.
    fn generation(&self, peer: &ClusterId) -> Result<u32> {
        let map = self.generations.all().into_iter().next();
        let map = map.with_context(|| format!("there is no ConfigMap {GENERATIONS} yet"))?;
        Ok(Generations::stored(map.data.clone().unwrap_or_default()).of(peer)?)
    }

    fn key(&self) -> Result<ChallengeKey> {
        let secret = self.challenge.all().into_iter().next();
        let secret = secret.with_context(|| format!("there is no Secret {CHALLENGE} yet"))?;
        let key = secret.data.as_ref().and_then(|data| data.get(CHALLENGE_KEY));
        let key = key.and_then(|key| <&[u8; 32]>::try_from(key.0.as_slice()).ok());
        Ok(ChallengeKey::new(key.with_context(|| format!("the Secret {CHALLENGE} is damaged; remove it"))?))
    }

    fn lifetime(&self) -> Duration {
        let config = self.config.all().first().map(|config| config.spec.auth());
        config.unwrap_or_default().certificate_lifetime()
    }
}

/// Watches one object by its name: the rights of this role are by name.
pub(super) fn named(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

/// What is handed out, provided that the certificate is what was asked for.
fn grant(screened: &Screened, gate: Gate, namespace: String, certificate: String) -> Result<IdentityGrant> {
    let issued =
        Issued::from_pem(&certificate).context("the signer gave something that is no certificate")?;
    let grant = IdentityGrant {
        namespace,
        credential: Credential::Certificate(certificate),
        api_server_url: gate.url,
        api_server_ca: gate.authorities,
        expires_at: issued.expires_at,
    };
    grant.issued(&screened.user, &screened.csr.key).context("the signer gave another certificate")?;
    Ok(grant)
}

/// What is handed out where nobody signs.
fn token_grant(gate: Gate, token: Token) -> IdentityGrant {
    IdentityGrant {
        namespace: token.namespace,
        credential: Credential::BearerToken(token.text),
        api_server_url: gate.url,
        api_server_ca: gate.authorities,
        expires_at: token.expires_at,
    }
}

/// What does not work on our side is no fault of whoever asks; it is said here, and not to strangers.
fn available<T>(result: Result<T>) -> Result<T, Denial> {
    result.map_err(|error| {
        warn!(error = format!("{error:#}"), "cannot answer a request now");
        Reason::Unavailable.into()
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
