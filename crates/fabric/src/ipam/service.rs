//! The two services over gRPC: requests are checked here, and troubles become codes.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use ferro_api::proto::gateway::gateway_server::Gateway;
use ferro_api::proto::gateway::{Acknowledged, Change};
use ferro_api::proto::ipam::ipam_server::Ipam;
use ferro_api::proto::ipam::{
    BelongsRequest, BelongsResponse, GetHomePodIpRequest, GetHomePodIpResponse, MapRequest, MapResponse,
    UnmapRequest, UnmapResponse,
};
use ferro_core::network::{Asker, MapError, Refusal};
use futures::{Stream, stream};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

use super::followers::Place;
use super::rights::Caller;
use super::{Handle, Trouble};

/// A connection that somebody uses.
#[derive(Clone, Debug)]
pub(super) struct Visit(pub(super) Arc<()>);

/// Longer ones are not written by anybody who means it.
const LONGEST: usize = 253;

/// Both services.
#[derive(Clone, Debug)]
pub(super) struct Services(pub(super) Handle);

#[tonic::async_trait]
impl Ipam for Services {
    async fn map_endpoint_ip(&self, request: Request<MapRequest>) -> Result<Response<MapResponse>, Status> {
        let caller = caller(&request)?;
        let MapRequest { cluster_id, ip } = request.into_inner();
        let endpoint = checked(&caller, &cluster_id, &ip)?;
        let address =
            self.0.map(Asker::Caller, &cluster_id, endpoint).await.map_err(|trouble| status(&trouble))?;
        Ok(Response::new(MapResponse { ip: address.to_string() }))
    }

    async fn unmap_endpoint_ip(
        &self,
        request: Request<UnmapRequest>,
    ) -> Result<Response<UnmapResponse>, Status> {
        let caller = caller(&request)?;
        let UnmapRequest { cluster_id, ip } = request.into_inner();
        let endpoint = checked(&caller, &cluster_id, &ip)?;
        self.0.unmap(Asker::Caller, &cluster_id, endpoint).await.map_err(|trouble| status(&trouble))?;
        Ok(Response::new(UnmapResponse {}))
    }

    async fn belongs_to_pod_cidr(
        &self,
        request: Request<BelongsRequest>,
    ) -> Result<Response<BelongsResponse>, Status> {
        caller(&request)?.may_ask()?;
        let belongs = self.0.belongs_to_pod_cidr(address(&request.into_inner().ip)?);
        Ok(Response::new(BelongsResponse { belongs }))
    }

    async fn get_home_pod_ip(
        &self,
        request: Request<GetHomePodIpRequest>,
    ) -> Result<Response<GetHomePodIpResponse>, Status> {
        let caller = caller(&request)?;
        let GetHomePodIpRequest { cluster_id, ip } = request.into_inner();
        let there = checked(&caller, &cluster_id, &ip)?;
        let home = self.0.home_pod_ip(&cluster_id, there).map_err(|trouble| status(&trouble))?;
        Ok(Response::new(GetHomePodIpResponse { home_ip: home.to_string() }))
    }
}

#[tonic::async_trait]
impl Gateway for Services {
    type FollowStream = Pin<Box<dyn Stream<Item = Result<Change, Status>> + Send>>;

    async fn follow(
        &self,
        request: Request<Streaming<Acknowledged>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        caller(&request)?.may_follow()?;
        let joined = self.0.followers.join();
        let (place, changes) =
            joined.ok_or_else(|| Status::resource_exhausted("too many gateways follow already"))?;
        let visit = request.extensions().get::<Visit>().cloned();
        let said = request.into_inner();
        let following = Following { changes, place, said, is_silent: false, _visit: visit };
        Ok(Response::new(Box::pin(stream::unfold(following, Following::next))))
    }
}

/// One follower: changes go out, and acknowledgements come in, until either ends.
struct Following {
    changes: mpsc::Receiver<Change>,
    place: Place,
    said: Streaming<Acknowledged>,
    /// It says no more; a follower that never acknowledges may still listen.
    is_silent: bool,
    /// Its connection is not idle.
    _visit: Option<Visit>,
}

impl Following {
    async fn next(mut self) -> Option<(Result<Change, Status>, Self)> {
        loop {
            tokio::select! {
                change = self.changes.recv() => {
                    return Some((change.ok_or_else(|| Status::aborted("too slow; follow anew")), self));
                }
                said = self.said.message(), if !self.is_silent => match said {
                    Ok(Some(said)) => self.place.acknowledge(said),
                    Ok(None) => self.is_silent = true,
                    Err(_) => return None,
                },
            }
        }
    }
}

/// Who asks; the server has put it there.
fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| Status::unauthenticated("no certificate was shown"))
}

fn checked(caller: &Caller, peer: &str, ip: &str) -> Result<IpAddr, Status> {
    if peer.is_empty() || peer.len() > LONGEST {
        return Err(Status::invalid_argument("clusterID must name a cluster"));
    }
    caller.may_ask_for(peer)?;
    address(ip)
}

fn address(text: &str) -> Result<IpAddr, Status> {
    let bounded = if text.len() > LONGEST { "a text of that length" } else { text };
    text.parse()
        .map_err(|_| Status::invalid_argument(format!("{bounded:?} is not an IP address, such as 192.0.2.7")))
}

/// The code by which callers tell troubles apart.
fn status(trouble: &Trouble) -> Status {
    let text = trouble.to_string();
    match trouble {
        Trouble::Unmappable(MapError::UnknownPeer(_)) | Trouble::Refused(Refusal::UnknownPeer(_)) => {
            Status::not_found(text)
        }
        Trouble::Unmappable(MapError::NotReady(_) | MapError::PodsOnly(_))
        | Trouble::Refused(Refusal::Mask { .. }) => Status::failed_precondition(text),
        Trouble::Unmappable(MapError::NotAnEndpoint(_) | MapError::TheirOwn(_))
        | Trouble::Refused(Refusal::Unlike(_)) => Status::invalid_argument(text),
        Trouble::Unmappable(MapError::Exhausted(_)) | Trouble::Refused(Refusal::NoRoom(_)) => {
            Status::resource_exhausted(text)
        }
        Trouble::NotYet(_) | Trouble::Storage(_) => Status::unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn troubles_have_the_codes_of_the_contract() {
        let peer = || "rome".to_owned();
        let ip: IpAddr = [10, 0, 0, 1].into();
        let full = ferro_core::network::Exhausted("192.168.0.0/24".parse().unwrap());
        for (trouble, code) in [
            (Trouble::Unmappable(MapError::UnknownPeer(peer())), Code::NotFound),
            (Trouble::Unmappable(MapError::NotReady(peer())), Code::FailedPrecondition),
            (Trouble::Unmappable(MapError::PodsOnly(peer())), Code::FailedPrecondition),
            (Trouble::Unmappable(MapError::NotAnEndpoint(ip)), Code::InvalidArgument),
            (Trouble::Unmappable(MapError::TheirOwn(ip)), Code::InvalidArgument),
            (Trouble::Unmappable(MapError::Exhausted(full)), Code::ResourceExhausted),
            (Trouble::NotYet("no gateway".into()), Code::Unavailable),
            (Trouble::Storage("no API".into()), Code::Unavailable),
        ] {
            assert_eq!(status(&trouble).code(), code, "{trouble}");
        }
    }

    #[test]
    fn only_addresses_are_addresses() {
        for bad in ["", "10.0.0", "10.0.0.5/32", "example.org", &"1".repeat(1000)] {
            let refused = address(bad).unwrap_err();
            assert!(refused.code() == Code::InvalidArgument && refused.message().len() < 400, "{bad}");
        }
        assert!(address("10.0.0.5").is_ok() && address("fd00::5").is_ok());
    }
}
