//! `IpamStorage` objects in the API: read by taking them over, and written only from the version that was read.
//!
//! Whoever reads marks each object as its own first. What a former writer, or a write of our own that timed out, has
//! still under way was made from an older version then, and fails. Objects that it may still be about to make are made
//! first.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use ferro_api::names::{annotations, labels};
use ferro_api::net::{IpamStorage, IpamStorageSpec};
use ferro_core::network::layout::{self, Deed, Layout, Wave, Write};
use ferro_core::network::{Ipam, OwnNetworks, Turn};
use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tracing::warn;

use super::{MANAGER, nonce, random};

/// Writes at once.
const AT_ONCE: usize = 8;
/// How long one may take; then nobody knows whether it was done.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why something was not written.
#[derive(Debug)]
pub(super) enum Failure {
    /// Somebody else has written meanwhile.
    Conflict,
    /// Nobody knows how far it came.
    Other(anyhow::Error),
}

/// The objects, and which versions of them are known.
pub(super) struct Store {
    api: Api<IpamStorage>,
    own: OwnNetworks,
    external_length: u8,
    versions: BTreeMap<u32, String>,
}

impl Store {
    pub(super) fn new(client: Client, own: OwnNetworks, external_length: u8) -> Self {
        Self { api: Api::all(client), own, external_length, versions: BTreeMap::new() }
    }

    /// The networks of this cluster, as they are to be read from now on.
    pub(super) fn set_own(&mut self, own: &OwnNetworks) {
        self.own = own.clone();
    }

    /// What is stored, and what must be put right in it.
    pub(super) async fn read(&mut self) -> Result<(Layout, Turn)> {
        let objects = self.take_over().await?;
        let now = Timestamp::now();
        let found = Layout::read(&objects, &self.own, now).context("the IpamStorage ipam")?;
        if let Some(found) = found {
            return Ok(found);
        }
        // Deleting the first object is how a person begins anew.
        for part in objects.into_keys() {
            let deleted = self.api.delete(&layout::name(part), &DeleteParams::default()).await;
            deleted.map(drop).or_else(ignore(404)).context("cannot delete an old IpamStorage")?;
        }
        self.versions.clear();
        let ipam =
            Ipam::new(self.own.clone(), self.external_length).context("cannot choose an external network")?;
        let ipam = ipam.starting_at(u32::from_le_bytes(random()?));
        Ok((Layout::default(), Turn::new(&ipam, now)))
    }

    async fn take_over(&mut self) -> Result<BTreeMap<u32, IpamStorageSpec>> {
        let cannot = "cannot read the IpamStorage";
        let listed = self.api.list_metadata(&ListParams::default()).await.context(cannot)?;
        let parts = listed.items.iter().filter_map(|object| {
            let part = layout::part(&object.name_any());
            if part.is_none() {
                warn!(name = object.name_any(), "this IpamStorage is not ours and is left alone");
            }
            part
        });
        let mark = json!({"metadata": {"annotations": {annotations::WRITER.key(): nonce()?}}});
        let taken: Vec<_> = parts.map(|part| take(self.api.clone(), part, mark.clone())).collect();
        let taken: Vec<_> = stream::iter(taken).buffer_unordered(AT_ONCE).collect().await;
        self.versions.clear();
        let mut objects = BTreeMap::new();
        for (part, object) in taken {
            match object {
                Ok(object) => {
                    self.versions.insert(part, object.resource_version().unwrap_or_default());
                    objects.insert(part, object.spec);
                }
                Err(error) => ignore(404)(error).context(cannot)?,
            }
        }
        for part in layout::missing(&objects).context("the IpamStorage ipam")? {
            let object = new_object(&layout::name(part), &json!({}))?;
            let made = self.api.create(&PostParams::default(), &object).await;
            let made = made.context("cannot take over an IpamStorage that may still be made")?;
            self.versions.insert(part, made.resource_version().unwrap_or_default());
            objects.insert(part, made.spec);
        }
        Ok(objects)
    }

    /// Performs writes, several at a time. When it returns, none is under way any more.
    pub(super) async fn write(&mut self, writes: &[Write]) -> Result<(), Failure> {
        for wave in Wave::ALL {
            let wave = writes.iter().filter(|write| write.wave == wave);
            let wave: Vec<_> = wave.map(|write| self.attempt(write.clone())).collect();
            let written: Vec<_> = stream::iter(wave).buffer_unordered(AT_ONCE).collect().await;
            let mut failed = Ok(());
            for (part, done) in written {
                match (done, &failed) {
                    (Ok(version), _) => _ = self.versions.insert(part, version),
                    (Err(failure), Ok(()) | Err(Failure::Conflict)) => failed = Err(failure),
                    (Err(_), Err(Failure::Other(_))) => {}
                }
            }
            failed?;
        }
        Ok(())
    }

    /// One write, which knows all that it needs.
    fn attempt(&self, write: Write) -> impl Future<Output = (u32, Result<String, Failure>)> + use<> {
        let (api, version) = (self.api.clone(), self.versions.get(&write.part).cloned());
        async move {
            let done = tokio::time::timeout(PATIENCE, perform(&api, &write, version.as_deref())).await;
            (write.part, done.unwrap_or_else(|_| Err(Failure::Other(too_long(write.part)))))
        }
    }
}

/// Marks an object and gives what it holds then.
async fn take(api: Api<IpamStorage>, part: u32, mark: Value) -> (u32, kube::Result<IpamStorage>) {
    (part, api.patch(&layout::name(part), &by_us(), &Patch::Merge(mark)).await)
}

/// Performs one write and gives the version that came of it.
async fn perform(api: &Api<IpamStorage>, write: &Write, version: Option<&str>) -> Result<String, Failure> {
    let name = layout::name(write.part);
    let written = match write.deed {
        Deed::Create => {
            let object = new_object(&name, &write.spec).map_err(Failure::Other)?;
            let created = api.create(&PostParams::default(), &object).await;
            created.map(|object| object.resource_version())
        }
        Deed::Patch => {
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": write.spec});
            let patched = api.patch_metadata(&name, &by_us(), &Patch::Merge(patch)).await;
            patched.map(|object| object.resource_version())
        }
        Deed::Delete => {
            let exactly = Preconditions { resource_version: version.map(str::to_owned), uid: None };
            let how = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
            api.delete(&name, &how).await.map(|_| None)
        }
    };
    match written {
        Ok(version) => Ok(version.unwrap_or_default()),
        // An object that somebody deleted is a conflict, too: it is made again from what is known then.
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Err(Failure::Conflict),
        Err(error) => {
            let error = anyhow::Error::new(error).context(format!("cannot write the IpamStorage {name}"));
            Err(Failure::Other(error))
        }
    }
}

fn new_object(name: &str, spec: &Value) -> Result<IpamStorage> {
    let spec = serde_json::from_value(spec.clone()).context("a new IpamStorage makes no sense")?;
    let mut object = IpamStorage::new(name, spec);
    labels::PART_OF.put_on(&mut object.metadata);
    Ok(object)
}

fn by_us() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}

fn too_long(part: u32) -> anyhow::Error {
    anyhow::anyhow!("writing the IpamStorage {} took too long", layout::name(part))
}

/// What the API says when it is so already is no error.
fn ignore(code: u16) -> impl FnOnce(kube::Error) -> Result<(), kube::Error> {
    move |error| match error {
        kube::Error::Api(status) if status.code == code => Ok(()),
        other => Err(other),
    }
}
