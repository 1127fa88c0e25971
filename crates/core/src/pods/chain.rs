//! The chain from a pod at home to its containers over there: how each link fares, and the first that is broken.
//!
//! A pod and its node suffer from whatever breaks behind them. So these two are called broken only where nothing behind
//! them is, and what is named is where somebody can do something.

mod containers;
mod home;
mod peer;
mod there;

use std::fmt;

use ferro_api::discovery::ForeignCluster;
use ferro_api::net::TunnelEndpoint;
use ferro_api::virtualkubelet::{CurrentMapping, ShadowPod};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

/// What was found where one has looked.
#[derive(Clone, Debug, PartialEq)]
pub enum Found<T> {
    /// This.
    Some(T),
    /// There is none.
    None,
    /// It could not be looked at, for this reason.
    Unknown(String),
}

impl<T> Found<T> {
    /// What is there, as far as one can see.
    pub fn seen(&self) -> Option<&T> {
        match self {
            Self::Some(found) => Some(found),
            Self::None | Self::Unknown(_) => None,
        }
    }
}

/// Everything that is known about a pod.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The pod at home.
    pub pod: Pod,
    /// The node that it is bound to.
    pub node: Found<Node>,
    /// The cluster that the node stands for.
    pub peer: Found<ForeignCluster>,
    /// What became of its namespace over there.
    pub mapping: Found<CurrentMapping>,
    /// What its cluster answers.
    pub there: There,
    /// The tunnel to the cluster.
    pub tunnel: Found<TunnelEndpoint>,
    /// The time.
    pub now: Timestamp,
}

/// What the cluster of a pod answers when it is asked.
#[derive(Clone, Debug)]
pub enum There {
    /// What it has under the name of the pod.
    Answers(Box<Objects>),
    /// It was asked, and did not answer as it should.
    Fails(String),
    /// It could not be asked.
    Unknown(String),
}

/// What there is over there under the name of a pod.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// The ShadowPod.
    pub shadow: Option<ShadowPod>,
    /// The pod.
    pub pod: Option<Pod>,
}

/// What a link is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Link {
    /// The pod at home.
    Pod,
    /// The node that it is bound to.
    Node,
    /// What the two clusters have agreed on.
    Peering,
    /// The API server of the other cluster.
    ApiServer,
    /// The namespace over there.
    Namespace,
    /// The object over there that asks for a pod.
    ShadowPod,
    /// The pod over there.
    RemotePod,
    /// One of its containers.
    Container,
    /// The tunnel between the two clusters.
    Tunnel,
    /// The address of the pod, there and here.
    Address,
}

impl fmt::Display for Link {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Pod => "pod",
            Self::Node => "node",
            Self::Peering => "peering",
            Self::ApiServer => "API server",
            Self::Namespace => "namespace",
            Self::ShadowPod => "ShadowPod",
            Self::RemotePod => "pod over there",
            Self::Container => "container",
            Self::Tunnel => "tunnel",
            Self::Address => "address",
        })
    }
}

/// How a link fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should.
    Good,
    /// It waits for something that comes by itself, or for a link that is named.
    Waiting,
    /// Somebody has to do something.
    Broken,
    /// That cannot be seen.
    Unknown,
}

/// One link of the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What it is about.
    pub link: Link,
    /// Which one.
    pub name: String,
    /// How it fares.
    pub state: State,
    /// What it shows, in a few words.
    pub shows: String,
    /// Of one that is broken: why, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl Step {
    fn new(link: Link, name: impl Into<String>, state: State, shows: impl Into<String>) -> Self {
        Self { link, name: name.into(), state, shows: shows.into(), fault: None }
    }

    fn broken(
        link: Link,
        name: impl Into<String>,
        shows: impl Into<String>,
        fault: impl Into<String>,
    ) -> Self {
        Self { fault: Some(fault.into()), ..Self::new(link, name, State::Broken, shows) }
    }

    fn is(&self, state: State) -> bool {
        self.state == state
    }
}

/// The links of the chain, from the pod at home on. One that runs at home, or nowhere yet, has no further ones.
pub fn chain(snapshot: &Snapshot) -> Vec<Step> {
    let Some(node) = home::node_name(&snapshot.pod) else { return vec![home::unbound(&snapshot.pod)] };
    if snapshot.node.seen().is_some_and(|node| !home::is_virtual(node)) {
        return vec![home::at_home(&snapshot.pod, node)];
    }
    let beyond = beyond(snapshot);
    let node = home::node(snapshot, node, &beyond);
    let pod = home::pod(&snapshot.pod, &node, &beyond);
    [pod, node].into_iter().chain(beyond).collect()
}

/// The first link that is broken.
pub fn broken(chain: &[Step]) -> Option<&Step> {
    chain.iter().find(|step| step.is(State::Broken))
}

/// What is behind the node.
fn beyond(snapshot: &Snapshot) -> Vec<Step> {
    let mut steps = vec![peer::peering(snapshot), peer::api_server(snapshot), peer::namespace(snapshot)];
    steps.extend(there::shadow(snapshot));
    steps.extend(there::pod(snapshot));
    steps.extend(containers::all(snapshot));
    if !has_ended(&snapshot.pod) {
        steps.push(peer::tunnel(snapshot));
        steps.push(peer::address(snapshot));
    }
    steps
}

fn has_ended(pod: &Pod) -> bool {
    super::inward::Ending::of(pod).is_some()
}

/// One word and a sentence, as far as there are any.
fn said(word: Option<&str>, sentence: Option<&str>) -> Option<String> {
    let filled = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
    match (filled(word), filled(sentence)) {
        (Some(word), Some(sentence)) => Some(format!("{word}: {sentence}")),
        (word, sentence) => word.or(sentence),
    }
}

/// How kubectl is told which pod is meant.
fn kubectl(pod: &Pod) -> (String, String) {
    let meta = &pod.metadata;
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests;
