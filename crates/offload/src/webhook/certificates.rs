//! The certificates of the webhook, kept by whoever leads: all in one Secret, and whom to trust in the configuration that
//! API servers read. When which is made is [`ferro_core::admission::keys`].
//!
//! Everybody who serves follows the Secret, so that nothing has to be started anew.

mod ring;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferro_core::admission::keys::{Step, next};
use ferro_runtime::certificates::store;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::watch::Watched;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tracing::{info, warn};

use self::ring::Ring;
use super::{NAME, WEBHOOK, named};

/// Under this name we write.
const MANAGER: &str = "ferro-webhook";
/// How often it is looked at, and how soon when something failed.
const LOOK: Duration = Duration::from_hours(1);
const SOON: Duration = Duration::from_secs(5);
/// More steps than any way to rest has: who still finds one has somebody working against it.
const STEPS: usize = 8;

/// Keeps the certificates as they should be, for ever. Call it only while this process leads.
pub async fn keep(tasks: Tasks, client: Client, namespace: String) -> Result<()> {
    let secrets = Api::namespaced(client.clone(), &namespace);
    let keeper = Keeper { secrets, configurations: Api::all(client), namespace };
    let api = keeper.secrets.clone();
    let mut secret = Watched::start(&tasks, "certificates of the webhook", api, named(NAME));
    let api = keeper.configurations.clone();
    let mut configuration = Watched::start(&tasks, "configuration of the webhook", api, named(NAME));
    loop {
        let failed = keeper.settle().await.inspect_err(|error| {
            let error = format!("{error:#}");
            warn!(error, "the certificates of the webhook are not up to date; will be tried again");
        });
        if failed.is_err() {
            tokio::time::sleep(SOON).await;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            changed = secret.changed() => changed?,
            changed = configuration.changed() => changed?,
        }
    }
}

struct Keeper {
    secrets: Api<Secret>,
    configurations: Api<MutatingWebhookConfiguration>,
    namespace: String,
}

impl Keeper {
    /// Takes one step after the other, until there is nothing to do.
    async fn settle(&self) -> Result<()> {
        for _ in 0..STEPS {
            let present =
                self.secrets.get_opt(NAME).await.context("cannot read the Secret of the webhook")?;
            let ring = Ring::of(present.as_ref());
            let now = Timestamp::now();
            let changed = match next(&ring.keys(self.trusted().await?), now) {
                Step::Rest => return Ok(()),
                Step::Trust(authorities) => {
                    self.trust(&authorities).await?;
                    continue;
                }
                Step::MakeAuthority => ring.with_authority(now)?,
                Step::Sign(place) => ring.signed(place, &names(&self.namespace), now)?,
                Step::Forget => ring.without_old(),
            };
            match store(&self.secrets, NAME, present, changed.into_data()).await {
                // Somebody else led a moment ago: what is there now counts.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                stored => {
                    stored.context("cannot write the Secret of the webhook")?;
                    info!("the webhook has other certificates");
                }
            }
        }
        bail!("somebody else changes the Secret or the configuration {NAME} all the time")
    }

    /// What API servers trust; none where no configuration says whom to ask.
    async fn trusted(&self) -> Result<Option<String>> {
        let present = self.configurations.get_opt(NAME).await;
        let present = present.context("cannot read the configuration of the webhook")?;
        let webhooks = present.and_then(|configuration| configuration.webhooks).unwrap_or_default();
        let webhook = webhooks.into_iter().find(|webhook| webhook.name == WEBHOOK);
        Ok(webhook.map(|webhook| {
            let bundle = webhook.client_config.ca_bundle.map(|bundle| bundle.0).unwrap_or_default();
            String::from_utf8(bundle).unwrap_or_default()
        }))
    }

    async fn trust(&self, authorities: &str) -> Result<()> {
        let bundle = k8s_openapi::ByteString(authorities.as_bytes().to_vec());
        // Webhooks are told apart by their names, and all else of this one stays as the chart has it.
        let patch = json!({"webhooks": [{"name": WEBHOOK, "clientConfig": {"caBundle": bundle}}]});
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let patched = self.configurations.patch(NAME, &params, &Patch::Strategic(patch)).await;
        patched.map(drop).context("cannot tell API servers whom to trust")
    }
}

/// What the webhook is called by those who ask it.
fn names(namespace: &str) -> [String; 2] {
    [NAME.to_owned(), format!("{NAME}.{namespace}.svc")]
}
