//! The approver: decides on the requests that the auth service has filed, and believes nothing of what that says.
//!
//! Flow: read what was filed, judge it from the beginning, redeem the token, make sure that the peer is known and can be
//! removed again, give it a namespace and rights, and only then approve. Guarantees: each step may be cut off and
//! repeated; rights are given only under a `ForeignCluster` that is held and not going away; one request that fails
//! is tried again by itself and delays no other for long. Requests are decided one after the other, so that no two
//! of them use one token or make one peer twice. Where nobody signs what was approved, the peer gets a token for a
//! service account of its namespace: it is made here, since the auth service must not be able to make any.

mod admission;
mod step;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::labels;
use ferro_core::auth::Reason;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use self::step::Step;
use crate::auth::{CHALLENGE, CHALLENGE_KEY};
use crate::home::Home;
use crate::tenant::account;
use crate::{filing, handover, tenant, tokens};

/// Pause before a request is looked at again; it waits for seconds only.
const RETRY: Duration = Duration::from_millis(500);
/// The most that one look at a request may take.
const LOOK: Duration = Duration::from_secs(10);
/// How often tokens and generations that have expired are forgotten.
const SWEEP: Duration = Duration::from_hours(1);

/// The user that the auth service is in this cluster, by the namespace of the installation.
pub fn auth_service(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:ferro-auth")
}

/// Decides on the requests that this user files, until the tasks end.
pub async fn run(tasks: Tasks, home: Home, filed_by: String) -> Result<()> {
    ensure_challenge_key(&home.client, &home.namespace).await?;
    tenant::ensure_generations(&home.client, &home.namespace).await?;
    home.ready().await?;
    let api: Api<CertificateSigningRequest> = Api::all(home.client.clone());
    let ours = watcher::Config::default().labels(&labels::PART_OF.selector());
    let mut requests = Watched::start(&tasks, "certificate requests", api.clone(), ours);
    requests.ready().await?;
    let mut secrets = home.secrets.clone();
    let mut approver = Approver { home, api, filed_by, not_before: HashMap::new() };
    let mut swept: Option<Instant> = None;
    loop {
        if swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
            approver.sweep().await;
            swept = Some(Instant::now());
        }
        let wake = approver.look(&requests).await;
        tokio::select! {
            changed = requests.changed() => changed?,
            changed = secrets.changed() => changed?,
            () = tokio::time::sleep(wake) => {}
        }
    }
}

struct Approver {
    home: Home,
    api: Api<CertificateSigningRequest>,
    filed_by: String,
    /// When to look at a request again at the earliest.
    not_before: HashMap<String, Instant>,
}

/// What comes of a look at a request.
enum Outcome {
    /// The tenant namespace of whoever is let in, or why not.
    Decided(Result<String, Reason>),
    /// Not yet; something else must happen first.
    Wait,
}

impl Approver {
    /// Looks at all requests, and says when to do so again without being told.
    async fn look(&mut self, requests: &Watched<CertificateSigningRequest>) -> Duration {
        let mut objects = requests.all();
        objects.retain(|object| filing::is_ours(object, &self.filed_by));
        let names: HashSet<String> = objects.iter().map(|object| object.name_any()).collect();
        self.not_before.retain(|name, _| names.contains(name));
        let mut wake = self.clear_tokens(&names).await;
        for object in &objects {
            let name = object.name_any();
            let step = step::next(object, self.has_token(&name), Timestamp::now());
            let rest = self.not_before.get(&name).map(|at| at.duration_since(Instant::now()));
            let pause = match (step, rest) {
                (Step::Wait(pause), _) => pause,
                (_, Some(rest)) if !rest.is_zero() => rest,
                (step, _) => {
                    let pause = self.take(&name, object, step).await;
                    // Also when all went well: what was written shows in the watch a moment later.
                    self.not_before.insert(name, Instant::now() + pause);
                    pause
                }
            };
            wake = wake.min(pause);
        }
        wake
    }

    /// Takes one step with a request; what fails is tried again after the pause.
    async fn take(&self, name: &str, object: &CertificateSigningRequest, step: Step) -> Duration {
        let work = async {
            match step {
                Step::Decide => self.try_settle(name, object).await,
                Step::Issue(namespace) => self.issue(name, object, &namespace).await,
                Step::ClearAway => self.clear_away(name).await,
                Step::Wait(_) => Ok(()),
            }
        };
        let done = tokio::time::timeout(LOOK, work).await;
        if let Err(error) = done.context("the API server is slow").flatten() {
            warn!(request = name, error = format!("{error:#}"), "will be tried again");
        }
        RETRY
    }

    async fn try_settle(&self, name: &str, object: &CertificateSigningRequest) -> Result<()> {
        let decision = match self.decide(object).await? {
            Outcome::Decided(decision) => decision,
            Outcome::Wait => return Ok(()),
        };
        let decided = filing::decided(object, &decision);
        match self.api.replace_subresource("approval", name, &PostParams::default(), &decided).await {
            Ok(_) => {}
            // Whoever asked has given up.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error).context("cannot write the decision"),
        }
        match decision {
            Ok(namespace) => info!(request = name, namespace, "let a cluster in"),
            Err(reason) => info!(request = name, ?reason, "did not let a cluster in"),
        }
        Ok(())
    }

    /// Makes a token for whoever was let in and gets no certificate, and lays it down for the auth service.
    async fn issue(&self, name: &str, object: &CertificateSigningRequest, namespace: &str) -> Result<()> {
        let (client, installation) = (&self.home.client, &self.home.namespace);
        let user = filing::user(object).context("it was approved for nobody")?;
        let lifetime = self.home.settings().auth().certificate_lifetime();
        let Some(token) = account::issue(client, installation, namespace, &user, lifetime).await? else {
            debug!(request = name, namespace, "its rights were revoked meanwhile");
            return Ok(());
        };
        handover::put(client, installation, name, &token).await?;
        info!(request = name, namespace, "nobody signs certificates here; made a token");
        Ok(())
    }

    fn has_token(&self, name: &str) -> bool {
        self.tokens().is_some_and(|secret| handover::of(&secret, name).is_some())
    }

    fn tokens(&self) -> Option<Arc<Secret>> {
        self.home.secrets.get(Some(&self.home.namespace), handover::NAME)
    }

    /// A token lies about no longer than its request. Says when to look again.
    async fn clear_tokens(&self, filed: &HashSet<String>) -> Duration {
        let Some(present) = self.tokens() else { return SWEEP };
        let (client, namespace) = (&self.home.client, &self.home.namespace);
        let cleared = handover::clear(client, namespace, &present, |name| filed.contains(name));
        let cleared = tokio::time::timeout(LOOK, cleared).await;
        if let Err(error) = cleared.context("the API server is slow").flatten() {
            warn!(error = format!("{error:#}"), "will be tried again");
            return LOOK;
        }
        SWEEP
    }

    /// Removes what an auth service that was ended in mid-way has left.
    async fn clear_away(&self, name: &str) -> Result<()> {
        match self.api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => {
                deleted.context("cannot clear away the request")?;
                debug!(request = name, "cleared away a forgotten request");
                Ok(())
            }
        }
    }

    /// Forgets what has expired. It can wait for the next time when it fails.
    async fn sweep(&self) {
        let (client, namespace) = (&self.home.client, &self.home.namespace);
        if let Err(error) = tokens::sweep(client, namespace).await {
            warn!(error = format!("{error:#}"), "cannot forget expired tokens");
        }
        if let Err(error) = tenant::prune_generations(client, namespace).await {
            warn!(error = format!("{error:#}"), "cannot forget old generations");
        }
    }
}

/// How old an object is.
fn age(metadata: &ObjectMeta, now: Timestamp) -> Duration {
    let created = metadata.creation_timestamp.as_ref().map_or(now, |created| created.0);
    now.duration_since(created).try_into().unwrap_or_default()
}

/// Makes the key by which the auth service knows its challenges, if there is none.
async fn ensure_challenge_key(client: &Client, namespace: &str) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let cannot = || format!("cannot use the Secret {namespace}/{CHALLENGE}");
    if secrets.get_opt(CHALLENGE).await.with_context(cannot)?.is_some() {
        return Ok(());
    }
    let mut key = vec![0; 32];
    SystemRandom::new().fill(&mut key).ok().context("this machine gives no random numbers")?;
    let mut metadata = ObjectMeta { name: Some(CHALLENGE.into()), ..ObjectMeta::default() };
    labels::PART_OF.put_on(&mut metadata);
    let data = Some([(CHALLENGE_KEY.to_owned(), ByteString(key))].into());
    match secrets.create(&PostParams::default(), &Secret { metadata, data, ..Secret::default() }).await {
        // Somebody else made it.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop).with_context(cannot),
    }
}
