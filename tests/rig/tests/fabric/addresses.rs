//! Asks the address manager of a cluster as a controller there would: at its Service, from a pod, with a certificate.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;

use anyhow::{Context, Result};
use ferro_api::proto::ipam::ipam_client::IpamClient;
use ferro_api::proto::ipam::{BelongsRequest, GetHomePodIpRequest, MapRequest, UnmapRequest};
use ferro_fabric::ipam::PORT;
use ferro_fabric::ipam::client::{self, Channel};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use rig::pods::Caller;
use rig::topology::Cluster;
use rig::wait::eventually;
use tokio::io::{copy_bidirectional, join};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::NAMESPACE;

/// The address manager of a cluster. The way to it ends with this value.
pub struct Addresses {
    client: IpamClient<Channel>,
    way: JoinHandle<Result<()>>,
}

impl Drop for Addresses {
    fn drop(&mut self) {
        self.way.abort();
    }
}

impl Addresses {
    pub async fn of(cluster: &Cluster) -> Result<Self> {
        let services: Api<Service> = Api::namespaced(cluster.client.clone(), NAMESPACE);
        let service = services.get("ferro-ipam").await?.spec.and_then(|spec| spec.cluster_ip);
        let service = service.context("the address manager has no Service")?.parse()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let origin = format!("https://{}", listener.local_addr()?).parse()?;
        let way = tokio::spawn(lead(listener, cluster.clone(), service));
        let identity = client::issue(&cluster.client, NAMESPACE, "controller").await?;
        Ok(Self { client: client::ipam(&identity, origin)?, way })
    }

    /// The address at which a peer reaches an endpoint of this cluster. It may be told to ask again.
    pub async fn map(&self, peer: &str, endpoint: IpAddr) -> Result<IpAddr> {
        let request = MapRequest { cluster_id: peer.to_owned(), ip: endpoint.to_string() };
        eventually(&format!("{endpoint} is mapped"), || async {
            Ok(self.client.clone().map_endpoint_ip(request.clone()).await?.into_inner().ip.parse()?)
        })
        .await
    }

    /// Gives up that address. It may be told to ask again, too, as may whoever asks for anything.
    pub async fn unmap(&self, peer: &str, endpoint: IpAddr) -> Result<()> {
        let request = UnmapRequest { cluster_id: peer.to_owned(), ip: endpoint.to_string() };
        eventually(&format!("{endpoint} is given up"), || async {
            Ok(self.client.clone().unmap_endpoint_ip(request.clone()).await.map(drop)?)
        })
        .await
    }

    /// Where a pod of a peer, by the address that it has there, is reached from this cluster.
    pub async fn home_of(&self, peer: &str, pod: IpAddr) -> Result<IpAddr> {
        let request = GetHomePodIpRequest { cluster_id: peer.to_owned(), ip: pod.to_string() };
        eventually(&format!("it is told where {pod} is"), || async {
            Ok(self.client.clone().get_home_pod_ip(request.clone()).await?.into_inner().home_ip.parse()?)
        })
        .await
    }

    /// Whether an address is that of a pod of this cluster.
    pub async fn is_pod(&self, ip: IpAddr) -> Result<bool> {
        let request = BelongsRequest { ip: ip.to_string() };
        eventually(&format!("it is told whose {ip} is"), || async {
            Ok(self.client.clone().belongs_to_pod_cidr(request.clone()).await?.into_inner().belongs)
        })
        .await
    }
}

/// Leads every connection to the Service, by way of a pod.
async fn lead(listener: TcpListener, cluster: Cluster, service: IpAddr) -> Result<()> {
    let caller = Caller::on(&cluster, 1).await?;
    let mut visits = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await?;
        let mut pipe = caller.pipe(service, PORT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (pipe.stdin.take(), pipe.stdout.take());
        let mut inside = join(from.context("no output")?, to.context("no input")?);
        visits.spawn(async move {
            let passed = copy_bidirectional(&mut stream, &mut inside).await;
            // It ends with the connection.
            drop(pipe);
            passed
        });
    }
}
