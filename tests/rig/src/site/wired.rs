//! A cluster with ferro that others reach only over wires which a test cuts and heals.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;

use anyhow::{Context, Result};
use ferro_api::config::ClusterConfig;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{Site, knows_itself};
use crate::topology::Cluster;
use crate::wire::{Relay, Wire};

const API_SERVER: u16 = 6443;

/// A cluster with ferro, and the wires to it.
pub struct Wired {
    /// The cluster.
    pub site: Site,
    api: Relay,
    auth: Relay,
}

impl Wired {
    /// Installs ferro in a bare cluster, and runs its roles here; a silence is noticed after three seconds.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let server = SocketAddr::from((cluster.plan.control_plane(), API_SERVER));
        let api = Relay::start(cluster.plan.lan.host(), server).await?;
        let url = format!("apiServer.url=https://{}", api.address);
        let settings = [&url, "advertisement.keepaliveRetryTime=1", "advertisement.keepaliveThreshold=3"];
        let site = Site::start(cluster, &settings).await?;
        let auth = relay_auth(&site).await?;
        knows_itself(&site).await?;
        Ok(Self { site, api, auth })
    }

    /// What happens to all that others send here.
    pub fn set(&self, wire: Wire) {
        self.api.set(wire);
        self.auth.set(wire);
    }
}

impl Deref for Wired {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

/// Puts a relay before the auth service.
async fn relay_auth(site: &Site) -> Result<Relay> {
    let configs: Api<ClusterConfig> = Api::all(site.admin.clone());
    let config = configs.get("liqo-configuration").await?;
    let url = config.spec.auth().url.context("the auth service has no URL")?;
    let address = url.strip_prefix("https://").context("it is not HTTPS")?.parse()?;
    let relay = Relay::start(Ipv4Addr::LOCALHOST, address).await?;
    let patch = json!({"spec": {"authConfig": {"url": format!("https://{}", relay.address)}}});
    configs.patch("liqo-configuration", &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(relay)
}
