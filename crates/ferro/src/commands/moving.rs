//! `ferro move`: moves a Deployment, or a pod, to another cluster or home.

mod found;
mod wait;

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ferro_api::names::labels;
use ferro_api::virtualkubelet::{CurrentMapping, NamespaceMap};
use ferro_core::moving::{Belonging, Destination, again, check, outage, patch};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, PodTemplateSpec};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;

use crate::kube_args::KubeArgs;
use crate::kube_errors::Explain as _;
use crate::output::Show;
use crate::wait::{Deadline, duration};
use crate::{ask, complete, listing, offloading, peers, table};
use found::{Found, Named};

/// The word for this cluster.
const HOME: &str = "home";

/// Move a Deployment or a pod to another cluster, or home
///
/// A Deployment is updated as for a new image: new pods are made where it is moved to, and old ones end as new ones are
/// ready, so that somebody always serves where its strategy allows that. Its pods belong there from then on, also when it is
/// scaled. The NamespaceOffloading of its namespace counts as for any pod. Claims that hold data are not moved: the
/// command says so, and changes nothing.
///
/// A pod without an owner is ended, and made again there.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ferro move web --to milan -n shop

  And home again:
    ferro move web --to home -n shop

  A pod that nobody owns, although it does not serve meanwhile:
    ferro move pod/debug --to milan --yes")]
pub(crate) struct Args {
    /// What to move: the name of a Deployment or a pod; deployment/NAME or pod/NAME says which
    #[arg(value_name = "DEPLOYMENT|POD")]
    what: Named,

    /// Where to: a peer, by its name, the name or ID of its cluster, or the beginning of one; or home
    #[arg(long, value_name = "PEER|home", add = complete::peer_names())]
    to: String,

    /// The namespace [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Do not ask, also where nobody serves for a while
    #[arg(short, long)]
    yes: bool,

    /// How long to wait at most until all is moved
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    timeout: Duration,

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Moves it.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(async {
        let client = args.kube.client().await?;
        let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let mover =
            Mover { place: Place::find(&client, &args.to, &namespace).await?, client, namespace, args };
        match found::find(&mover.client, &mover.namespace, &args.what).await? {
            Found::Deployment(deployment) => mover.deployment(*deployment).await,
            Found::Pod(pod) => mover.pod(&pod).await,
        }
    })
}

/// Where to, as it was found.
struct Place {
    name: String,
    /// The nodes of this cluster, where pods are to come home and whoever asks may see them.
    nodes: Option<Vec<Node>>,
    peer: Option<(Node, Option<CurrentMapping>)>,
}

impl Place {
    async fn find(client: &Client, to: &str, namespace: &str) -> anyhow::Result<Self> {
        if to == HOME {
            let nodes = listing::if_allowed(client, "nodes", &ListParams::default()).await?;
            return Ok(Self { name: HOME.to_owned(), nodes, peer: None });
        }
        let known = peers::list(client).await?;
        let peer = peers::find(&known, to)?;
        let name = peer.name_any();
        let unused =
            || format!("{name} has no node, so that nothing can run there; begin with: ferro peer {name}");
        let id = peers::cluster_id(peer).with_context(unused)?;
        let which = ListParams::default().labels(&labels::REMOTE_ID.selector(id));
        let nodes: Vec<Node> = listing::labelled(client, "nodes", &which).await?;
        let node = nodes.into_iter().find(|node| labels::TYPE_VIRTUAL_NODE.is_on(&node.metadata));
        let maps: Vec<NamespaceMap> =
            listing::labelled(client, "namespaces on other clusters", &which).await?;
        let ours = maps.into_iter().find(|map| !labels::REPLICATED.is_on(&map.metadata));
        let mapping = ours.and_then(|map| map.status?.current_mapping.remove(namespace));
        Ok(Self { peer: Some((node.with_context(unused)?, mapping)), nodes: None, name })
    }

    fn destination(&self) -> Destination<'_> {
        match &self.peer {
            Some((node, mapping)) => Destination::Peer { node, mapping: mapping.as_ref() },
            None => Destination::Home { nodes: self.nodes.as_deref() },
        }
    }
}

struct Mover<'a> {
    client: Client,
    namespace: String,
    place: Place,
    args: &'a Args,
}

impl Mover<'_> {
    async fn deployment(&self, deployment: Deployment) -> anyhow::Result<()> {
        let name = deployment.name_any();
        let spec = deployment.spec.clone().unwrap_or_default();
        ensure!(
            spec.paused != Some(true),
            "the Deployment {name} is paused; resume it first: kubectl --namespace {} rollout resume deployment {name}",
            self.namespace
        );
        let former = Belonging::of(&deployment.metadata);
        self.check(&name, &spec.template, former.as_ref()).await?;
        let affinity = spec.template.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
        let belonging = self.place.destination().belonging();
        let patch = patch(affinity, former.as_ref(), &belonging);
        if let Some(why) = outage(&deployment).filter(|_| patch.is_some()) {
            self.confirm(&format!("Nobody serves for a while when {name} is moved: {why}."))?;
        }
        let deadline = Deadline::after(self.args.timeout);
        if let Some(patch) = patch {
            let api: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
            let how = PatchParams { field_manager: Some(peers::MANAGER.into()), ..PatchParams::default() };
            let patched = api.patch(&name, &how, &Patch::Merge(patch)).await;
            patched.explain(|| format!("change the Deployment {name}"))?;
        }
        let moved = wait::deployment(&self.client, &self.namespace, &name, deadline).await?;
        self.tell(&moved, &format!("{name} is moved: its pods run {}", self.there()))
    }

    async fn pod(&self, pod: &Pod) -> anyhow::Result<()> {
        let name = pod.name_any();
        if let Some(owner) = found::owner(pod) {
            bail!("{owner}");
        }
        if self.is_there(pod)? {
            return self.tell(pod, &format!("{name} runs {} already", self.there()));
        }
        let template = PodTemplateSpec { metadata: Some(pod.metadata.clone()), spec: pod.spec.clone() };
        self.check(&name, &template, Belonging::of(&pod.metadata).as_ref()).await?;
        let next = again(pod, &self.place.destination());
        self.confirm(&format!(
            "{name} has no owner: it is ended, and made again {}; what it has in memory and in volumes of its own is lost.",
            self.there()
        ))?;
        let deadline = Deadline::after(self.args.timeout);
        let moved = wait::pod(&self.client, pod, &next, deadline).await?;
        self.tell(&moved, &format!("{name} is moved: it runs {}", self.there()))
    }

    fn tell<K: Resource + Clone + Serialize>(&self, moved: &K, sentence: &str) -> anyhow::Result<()> {
        let head = ["NAMESPACE", "NAME", "TO"].map(str::to_owned).to_vec();
        let row = vec![self.namespace.clone(), moved.name_any(), self.place.name.clone()];
        self.args.show.object(moved, || table::aligned(&[head, row]), sentence)
    }

    fn is_there(&self, pod: &Pod) -> anyhow::Result<bool> {
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) else { return Ok(false) };
        if let Some((there, _)) = &self.place.peer {
            return Ok(there.name_any() == *node);
        }
        let nodes = self.place.nodes.as_ref().with_context(|| {
            "cannot see whether the pod is at home already; ask an administrator for the right to list nodes"
        })?;
        let is_its_own =
            |other: &Node| other.name_any() == *node && labels::TYPE_VIRTUAL_NODE.is_on(&other.metadata);
        Ok(!nodes.iter().any(is_its_own))
    }

    fn there(&self) -> String {
        if self.place.peer.is_some() { format!("on {}", self.place.name) } else { "at home".to_owned() }
    }

    fn confirm(&self, question: &str) -> anyhow::Result<()> {
        if self.args.yes {
            return Ok(());
        }
        ask::confirm(question, "nothing is moved")
    }

    /// Refuses what would not run there, with the reason.
    async fn check(
        &self,
        name: &str,
        template: &PodTemplateSpec,
        former: Option<&Belonging>,
    ) -> anyhow::Result<()> {
        let offloading = offloading::get(&self.client, &self.namespace).await?;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &self.namespace);
        let claims = claims.list(&ListParams::default()).await;
        let claims = claims.explain(|| format!("list the claims of {}", self.namespace))?.items;
        let to = self.place.destination();
        check(&self.namespace, template, former, offloading.as_ref(), &to, &claims)
            .with_context(|| format!("{name} cannot be moved to {}", self.place.name))
    }
}
