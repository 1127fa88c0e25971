//! A token for another cluster: made, recorded, and wrapped into the one string that a person carries there.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use ferro_core::auth::{HttpsUrl, JoinToken, Terms};
use ferro_core::identity::ClusterId;
use ferro_peering::tokens;
use k8s_openapi::jiff::Timestamp;

use crate::kube_errors;
use crate::this_cluster::{self, ThisCluster};

/// As long as the configuration allows, too.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// What a token is wanted for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// How long it is good for; as configured when nothing is said.
    pub(crate) lifetime: Option<Duration>,
    /// Whether any number of clusters may use it.
    pub(crate) reusable: bool,
    /// The only cluster that may use it.
    pub(crate) bound_to: Option<ClusterId>,
}

/// A token that was given out.
pub(crate) struct Invitation {
    /// The token, with its secret.
    pub(crate) token: JoinToken,
    /// What it is good for.
    pub(crate) terms: Terms,
}

/// Makes a token of this cluster, and has the cluster remember it.
pub(crate) async fn give_out(cluster: &ThisCluster, wanted: Wanted) -> anyhow::Result<Invitation> {
    let config = this_cluster::config(&cluster.client).await?;
    let lifetime = wanted.lifetime.unwrap_or_else(|| config.spec.auth().token_lifetime());
    ensure!(
        !lifetime.is_zero() && lifetime <= LONGEST,
        "a token is good for at least 1s and at most a year (8760h)"
    );
    let auth_url: HttpsUrl = config
        .status
        .and_then(|status| status.auth_url)
        .context(
            "it is not known where other clusters reach the auth service of this one; set authConfig.url in the \
             ClusterConfig, or give the Service ferro-auth an address",
        )?
        .parse()
        .context("the URL of the auth service is not usable; correct authConfig.url in the ClusterConfig")?;
    let now = Timestamp::now();
    let terms = Terms {
        expires_at: now.saturating_add(lifetime).context("the lifetime is too long")?,
        one_use: !wanted.reusable,
        bound_to: wanted.bound_to,
    };
    let secret = tokens::new_secret()?;
    tokens::change(&cluster.client, &cluster.namespace, |store| {
        store.sweep(now);
        Ok(store.mint(&secret, terms.clone(), now)?)
    })
    .await
    .map_err(kube_errors::in_words)?;
    let (cluster_id, pin) = (cluster.identity.id, cluster.identity.pin);
    Ok(Invitation { token: JoinToken { auth_url, cluster_id, pin, secret }, terms })
}
