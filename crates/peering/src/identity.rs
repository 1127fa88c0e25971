//! The identity of this cluster in its own API: made once, kept in a Secret, shown to the other roles in a ConfigMap.
//!
//! Flow: the controller makes what is missing, endorses the auth service's TLS key, publishes both, and does so again
//! when the configuration changes or the endorsement ages. Guarantees: a key that exists is never replaced, whoever
//! runs this and however often; nothing is written that is already so. Only the controller reads the private key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferro_api::common::ObjectRef;
use ferro_api::config::{ClusterConfig, ClusterConfigStatus};
use ferro_api::names::{annotations, labels};
use ferro_core::auth::{Endorsement, Pin};
use ferro_core::identity::{SigningIdentity, new_private_key};
use ferro_core::names::ClusterName;
use ferro_core::peering::condition;
use ferro_core::policy::Reason;
use ferro_runtime::shutdown::Tasks;
use ferro_runtime::tls;
use ferro_runtime::watch::Watched;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use ring::rand::SystemRandom;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::reach::{self, Reach};

/// The Secret with the private key, and the ConfigMap with what others may know.
pub const NAME: &str = "ferro-identity";
/// The Secret with the certificate of the auth service.
pub const SERVING: &str = "ferro-auth-serving";
/// The key of the ConfigMap that holds the identifier of this cluster.
pub const CLUSTER_ID: &str = "clusterID";
/// The key of the ConfigMap that holds the endorsement.
pub const ENDORSEMENT: &str = "endorsement.json";

/// The key of the ConfigMap that holds the authorities of the API server, in PEM.
pub const API_SERVER_CA: &str = "apiServerCA";

const KEY: &str = "identity.p8";
const MANAGER: &str = "ferro-controller";
/// An endorsement is valid this long, and renewed at half of it.
const VALIDITY: Duration = Duration::from_hours(24);
/// When something is missing, it is looked at again after this long.
const SOON: Duration = Duration::from_secs(5);

/// Who this cluster is, and where others reach it.
#[derive(Debug)]
pub struct Own {
    /// The identity, with the key to sign in its name.
    pub signer: SigningIdentity,
    /// The API server and the auth service.
    pub reach: Reach,
}

/// Keeps the identity and its endorsement as they should be, for ever, and tells who this cluster is.
pub async fn keep(
    client: Client,
    namespace: String,
    mut config: Watched<ClusterConfig>,
    mut certificates: Watched<Secret>,
    own: watch::Sender<Option<Arc<Own>>>,
) -> Result<()> {
    config.ready().await?;
    certificates.ready().await?;
    let keeper = Keeper { client, namespace };
    loop {
        let again = match keeper.reconcile(config.all().first().map(AsRef::as_ref)).await {
            // Where the auth service is may show later, as with a load balancer.
            Ok(now) => {
                let again = if now.reach.auth.is_some() { VALIDITY / 4 } else { SOON };
                own.send_replace(Some(Arc::new(now)));
                again
            }
            Err(error) => {
                warn!(error = format!("{error:#}"), "the identity is not up to date; will be tried again");
                SOON
            }
        };
        tokio::select! {
            changed = config.changed() => changed?,
            changed = certificates.changed() => changed?,
            () = tokio::time::sleep(again) => {}
        }
    }
}

/// The certificates of this namespace, of which the configuration may name one for the auth service.
pub fn certificates(tasks: &Tasks, client: Client, namespace: &str) -> Watched<Secret> {
    let of_type = watcher::Config::default().fields("type=kubernetes.io/tls");
    Watched::start(tasks, "certificates", Api::namespaced(client, namespace), of_type)
}

struct Keeper {
    client: Client,
    namespace: String,
}

impl Keeper {
    async fn reconcile(&self, config: Option<&ClusterConfig>) -> Result<Own> {
        let key = self.ensure_key().await?;
        let wanted = config.and_then(|config| config.spec.discovery().name.clone());
        let signer = signer(&key, wanted.as_deref())?;
        let mut problem = self.serving(config).await.err();
        let serving =
            Pin::of_certificate(&self.ensure_serving().await?).context("the auth service's certificate")?;
        let reach = match reach::find(&self.client, &self.namespace, config.map(|config| &config.spec)).await
        {
            Ok(reach) => {
                self.publish(&signer, &serving, &reach).await?;
                reach
            }
            // What was published before stays; a cluster whose address is not known can still end its peerings.
            Err(error) => {
                problem = Some(error);
                Reach::default()
            }
        };
        if let Some(problem) = &problem {
            warn!(problem = format!("{problem:#}"), "the configuration cannot be followed");
        }
        if let Some(config) = config {
            self.show(config, &signer, &reach, problem.as_ref()).await?;
        }
        Ok(Own { signer, reach })
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The private key; made if there is none.
    async fn ensure_key(&self) -> Result<Vec<u8>> {
        let secret = self.ensure_secret(NAME, "Opaque", || {
            let key = new_private_key(&SystemRandom::new())?;
            info!("made the identity of this cluster");
            Ok(BTreeMap::from([(KEY.to_owned(), ByteString(key.as_ref().to_vec()))]))
        });
        part(&secret.await?, KEY)
    }

    /// Brings the certificate of the auth service up to date: a copy of the one in the configuration, or our own.
    ///
    /// The auth role reads the copy only, so that its rights need not change with the configuration.
    async fn serving(&self, config: Option<&ClusterConfig>) -> Result<()> {
        let wanted = config.and_then(|config| config.spec.auth().serving_certificate);
        let present = self.secrets().get_opt(SERVING).await.context("cannot read the certificate")?;
        let copied = present.as_ref().and_then(|secret| annotations::COPIED_FROM.of(&secret.metadata));
        match (wanted, copied) {
            (Some(source), _) => self.copy_serving(&source, present.as_ref()).await?,
            (None, Some(_)) => {
                let deleted = self.secrets().delete(SERVING, &DeleteParams::default()).await;
                deleted.map(drop).context("cannot replace the certificate of the auth service")?;
            }
            (None, None) => {}
        }
        Ok(())
    }

    async fn copy_serving(&self, source: &ObjectRef, present: Option<&Secret>) -> Result<()> {
        ensure!(
            source.namespace.as_ref().is_none_or(|namespace| *namespace == self.namespace),
            "authConfig.servingCertificate must name a Secret in the namespace {}",
            self.namespace
        );
        let cannot = || format!("cannot use the Secret {} of authConfig.servingCertificate", source.name);
        let secret = self.secrets().get(&source.name).await.with_context(cannot)?;
        tls::configure(&secret).with_context(cannot)?;
        let part = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).cloned();
        let data = json!({"tls.crt": part("tls.crt"), "tls.key": part("tls.key")});
        if present.is_some_and(|present| {
            annotations::COPIED_FROM.of(&present.metadata) == Some(&source.name)
                && json!(present.data) == data
        }) {
            return Ok(());
        }
        let copy = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {
                "name": SERVING, "labels": {labels::PART_OF.key(): labels::PART_OF.value()},
                "annotations": {annotations::COPIED_FROM.key(): source.name},
            },
            "data": data,
        });
        self.secrets()
            .patch(SERVING, &PatchParams::apply(MANAGER).force(), &Patch::Apply(copy))
            .await
            .with_context(cannot)?;
        info!(secret = source.name, "the auth service has another certificate");
        Ok(())
    }

    /// The certificate of the auth service in DER; a self-signed one is made if there is none.
    async fn ensure_serving(&self) -> Result<Vec<u8>> {
        let secret = self.ensure_secret(SERVING, "kubernetes.io/tls", || {
            let made = rcgen::generate_simple_self_signed(vec!["ferro-auth".to_owned()])?;
            let key = made.signing_key.serialize_pem();
            Ok(BTreeMap::from([
                ("tls.crt".to_owned(), ByteString(made.cert.pem().into_bytes())),
                ("tls.key".to_owned(), ByteString(key.into_bytes())),
            ]))
        });
        let pem = part(&secret.await?, "tls.crt")?;
        Ok(CertificateDer::from_pem_slice(&pem)
            .with_context(|| format!("the Secret {SERVING} holds no certificate"))?
            .to_vec())
    }

    /// A Secret as it is, or as it is made now; of two who make it at once, one wins and both get that.
    async fn ensure_secret(
        &self,
        name: &str,
        kind: &str,
        make: impl FnOnce() -> Result<BTreeMap<String, ByteString>> + Send,
    ) -> Result<Secret> {
        let cannot = || format!("cannot use the Secret {}/{name}", self.namespace);
        if let Some(secret) = self.secrets().get_opt(name).await.with_context(cannot)? {
            return Ok(secret);
        }
        let mut metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        // What is part of the installation goes with it.
        labels::PART_OF.put_on(&mut metadata);
        let secret = Secret { metadata, type_: Some(kind.into()), data: Some(make()?), ..Secret::default() };
        match self.secrets().create(&PostParams::default(), &secret).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.secrets().get(name).await.with_context(cannot)
            }
            created => created.with_context(cannot),
        }
    }

    /// Shows what others may know, unless it is shown already and will be valid for long enough.
    async fn publish(&self, signer: &SigningIdentity, serving: &Pin, reach: &Reach) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let now = Timestamp::now();
        let shown = maps.get_opt(NAME).await.with_context(|| format!("cannot read the ConfigMap {NAME}"))?;
        if shown.is_some_and(|shown| is_current(&shown, signer, serving, reach, now)) {
            return Ok(());
        }
        let endorsement = Endorsement::sign(signer, serving, reach.api_server.clone(), now + VALIDITY);
        let identity = signer.identity();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "labels": {labels::PART_OF.key(): labels::PART_OF.value()}},
            "data": {
                CLUSTER_ID: identity.id(), "clusterName": identity.name(), "pin": serving.to_string(),
                ENDORSEMENT: serde_json::to_string(&endorsement)?, API_SERVER_CA: reach.api_server_ca,
            },
        });
        maps.patch(NAME, &PatchParams::apply(MANAGER).force(), &Patch::Apply(map))
            .await
            .with_context(|| format!("cannot write the ConfigMap {NAME}"))?;
        info!(cluster = %identity.id(), "endorsed the auth service");
        Ok(())
    }

    /// Writes the cluster's identifier where a person looks for it.
    async fn show(
        &self,
        config: &ClusterConfig,
        signer: &SigningIdentity,
        reach: &Reach,
        problem: Option<&anyhow::Error>,
    ) -> Result<()> {
        let conditions = config.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let reason = match problem {
            None => Reason::new("Followed", "the configuration is followed"),
            Some(problem) => Reason::new("CannotFollow", format!("{problem:#}")),
        };
        let next = ClusterConfigStatus {
            cluster_id: Some(signer.identity().id().to_string()),
            auth_url: reach.auth.as_ref().map(ToString::to_string),
            observed_generation: config.metadata.generation,
            conditions: condition(&conditions, "Configured", problem.is_none(), &reason, Timestamp::now()),
        };
        if config.status.as_ref() == Some(&next) {
            return Ok(());
        }
        let patch = json!({"status": next});
        Api::<ClusterConfig>::all(self.client.clone())
            .patch_status(&config.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("cannot write the status of the ClusterConfig")?;
        Ok(())
    }
}

/// The identity under the configured name, or under one made from its own number.
fn signer(key: &[u8], wanted: Option<&str>) -> Result<SigningIdentity> {
    let nameless = SigningIdentity::from_pkcs8("cluster".parse()?, key)?;
    let name = match wanted {
        Some(name) => name
            .parse()
            .with_context(|| format!("{name} cannot name a cluster; change discoveryConfig.name"))?,
        None => ClusterName::of(&nameless.identity().id()),
    };
    Ok(SigningIdentity::from_pkcs8(name, key)?)
}

fn is_current(
    shown: &ConfigMap,
    signer: &SigningIdentity,
    serving: &Pin,
    reach: &Reach,
    now: Timestamp,
) -> bool {
    let part = |name: &str| shown.data.as_ref().and_then(|data| data.get(name));
    let text = part(ENDORSEMENT);
    let Some(Ok(endorsement)) = text.map(|text| Endorsement::parse(text.as_bytes())) else { return false };
    let proved = endorsement.verify(serving, Some(&signer.identity().id()), now);
    proved.is_ok_and(|identity| identity == *signer.identity())
        && endorsement.api_server_url() == reach.api_server.as_ref()
        && part(API_SERVER_CA) == Some(&reach.api_server_ca)
        && endorsement.expires_at() > now + VALIDITY / 2
}

fn part(secret: &Secret, key: &str) -> Result<Vec<u8>> {
    let value = secret.data.iter().flatten().find(|(name, _)| *name == key).map(|(_, value)| value.0.clone());
    value.with_context(|| {
        format!("the Secret {} has no {key}; remove it, and it is made anew", secret.name_any())
    })
}
