//! Objects of a peer that become objects of this cluster.

use ferro_api::discovery::{NetworkState, NetworkStatus};
use ferro_api::sharing::ResourceOfferSpec;
use ferro_core::keepalive::Signal;
use ferro_core::usage::{Lodger, Meter, measurements};
use ferro_core::virtual_node::{Health, VirtualNode};
use k8s_openapi::jiff::Timestamp;

use crate::{NOW, Read, text};

const NAME: &str = "liqo-milan-0a1b2c3d4e";
const PEER: &str = "34750f98-bd59-8cfc-946d-a45aaabe933b";

/// What a peer offers, and the node that it becomes: nothing that it claims takes the place of what we say.
pub fn resource_offer(data: &[u8]) -> Read {
    let offer: ResourceOfferSpec = serde_json::from_slice(data).ok()?;
    let node = VirtualNode {
        name: NAME,
        cluster_id: PEER,
        offer: &offer,
        corrections: None,
        version: "v1.34.0",
        agent: None,
    };
    let network = NetworkStatus { state: NetworkState::Established, ..NetworkStatus::default() };
    let now = Timestamp::from_second(NOW).ok()?;
    let health = Health { signal: Signal::Alive { due: now }, network: &network, ending: false };
    let registered = node.register(&health, now);
    let labels = registered.metadata.labels.clone().unwrap_or_default();
    assert_eq!(labels.get("kubernetes.io/hostname").map(String::as_str), Some(NAME));
    assert_eq!(labels.get("kubernetes.io/os").map(String::as_str), Some("linux"));
    assert!(labels.iter().all(|(key, value)| key.len() <= 317 && value.len() <= 63), "{labels:?}");
    let upkeep = node.upkeep(&registered, &health, now);
    assert_eq!((upkeep.object, upkeep.status), (None, None), "it is as it should be");
    Some(())
}

/// What a peer says its pods use, and the page that follows: it names what is known here, and nothing else.
pub fn usage(data: &[u8]) -> Read {
    let measured = measurements(text(data)?).ok()?;
    let now = Timestamp::from_second(NOW).ok()?;
    let lodger = Lodger {
        namespace: "shop".into(),
        name: "web".into(),
        uid: PEER.into(),
        there: "shop-rome".into(),
        containers: vec!["app".into()],
    };
    let (mut meter, lodgers) = (Meter::default(), [lodger]);
    for measurement in &measured {
        meter.note(&lodgers[0], measurement, now);
    }
    let page = meter.metrics(&lodgers, now);
    let series = page.lines().filter(|line| line.starts_with("container_"));
    for line in series {
        assert!(line.contains(r#"{container="app",namespace="shop",pod="web"} "#), "{line}");
    }
    Some(())
}
