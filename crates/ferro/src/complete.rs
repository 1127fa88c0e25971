//! What a shell is told while somebody types: the program answers by itself, and asks the cluster for names.
//!
//! A shell must not hang and must not be shown errors, so the cluster has a moment to answer, and no answer means no
//! names.

use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use ferro_api::discovery::ForeignCluster;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use crate::cli::Cli;
use crate::commands::block_on;
use crate::kube_args::KubeArgs;
use crate::{listing, offloading, peers, tenants};

/// The variable by which a shell asks.
pub(crate) const VARIABLE: &str = "FERRO_COMPLETE";
/// How long a person waits for a key.
const MOMENT: Duration = Duration::from_secs(2);

/// What can be typed next.
type Candidates = anyhow::Result<Vec<CompletionCandidate>>;

/// Answers a shell, if one asks, and ends the process then.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// For an argument that names a peer.
pub(crate) fn peer_names() -> ArgValueCandidates {
    async fn ask(client: Client) -> Candidates {
        let candidate = |peer: &_| CompletionCandidate::new(peers::name(peer)).help(described(peer));
        Ok(peers::list(&client).await?.iter().map(candidate).collect())
    }
    ArgValueCandidates::new(|| asked(ask).unwrap_or_default())
}

/// For an argument that names a namespace.
pub(crate) fn namespaces() -> ArgValueCandidates {
    async fn ask(client: Client) -> Candidates {
        let all = listing::all::<Namespace>(&client, "namespaces").await?;
        Ok(all.iter().map(|namespace| CompletionCandidate::new(namespace.name_any())).collect())
    }
    ArgValueCandidates::new(|| asked(ask).unwrap_or_default())
}

/// For an argument that names a namespace which uses other clusters.
pub(crate) fn offloaded_namespaces() -> ArgValueCandidates {
    async fn ask(client: Client) -> Candidates {
        let all = offloading::list(&client).await?;
        Ok(all.iter().map(|offloading| CompletionCandidate::new(offloading::name(offloading))).collect())
    }
    ArgValueCandidates::new(|| asked(ask).unwrap_or_default())
}

/// For an argument that names a pod of the namespace that the command line so far says.
pub(crate) fn pods() -> ArgValueCandidates {
    async fn ask(client: Client) -> Candidates {
        let namespace = namespace_of(&words()).unwrap_or_else(|| client.default_namespace().to_owned());
        let pods = Api::<Pod>::namespaced(client, &namespace).list(&ListParams::default()).await?;
        Ok(pods.iter().map(|pod| CompletionCandidate::new(pod.name_any())).collect())
    }
    ArgValueCandidates::new(|| asked(ask).unwrap_or_default())
}

/// For an argument that names a Tenant.
pub(crate) fn tenant_names() -> ArgValueCandidates {
    async fn ask(client: Client) -> Candidates {
        let all = tenants::list(&client).await?;
        Ok(all.iter().map(|tenant| CompletionCandidate::new(tenants::consumer(tenant))).collect())
    }
    ArgValueCandidates::new(|| asked(ask).unwrap_or_default())
}

/// Asks the cluster that the command line so far names.
fn asked(ask: impl AsyncFnOnce(Client) -> Candidates) -> Candidates {
    let kube = KubeArgs::of_words(&words());
    block_on(async { tokio::time::timeout(MOMENT, async { ask(kube.client().await?).await }).await? })
}

/// The command line so far: it comes after the mark.
fn words() -> Vec<String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.skip_while(|word| word != "--").skip(1).collect()
}

/// The namespace that is named, in any of the forms `-n a`, `-na`, `--namespace a`, `--namespace=a`.
fn namespace_of(words: &[String]) -> Option<String> {
    words.iter().enumerate().rev().find_map(|(place, word)| {
        match word.strip_prefix("--namespace").or_else(|| word.strip_prefix("-n"))? {
            "" => words.get(place + 1).cloned(),
            rest => Some(rest.strip_prefix('=').unwrap_or(rest).to_owned()),
        }
    })
}

fn described(peer: &ForeignCluster) -> Option<clap::builder::StyledStr> {
    let identity = peer.spec.cluster_identity.as_ref()?;
    let name = identity.cluster_name.as_deref().unwrap_or(&identity.cluster_id);
    (name != peer.name_any()).then(|| name.to_owned().into())
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use clap::CommandFactory as _;
    use clap_complete::engine::ArgValueCandidates;

    fn completes(path: &[&str]) -> bool {
        let cli = Cli::command();
        let command = path.iter().try_fold(&cli, |command, name| command.find_subcommand(name)).unwrap();
        let argument = command.get_positionals().next().unwrap();
        argument.get::<ArgValueCandidates>().is_some()
    }

    #[test]
    fn every_command_that_takes_a_peer_completes_its_name() {
        for name in ["add", "peer", "unpeer", "remove", "accept", "refuse"] {
            assert!(completes(&[name]), "{name}");
        }
        assert!(completes(&["network", "rules"]));
    }

    #[test]
    fn pods_are_completed_in_the_namespace_that_is_named() {
        assert!(completes(&["trace"]));
        for (words, namespace) in [
            (vec!["ferro", "trace", "-n", "shop", "w"], Some("shop")),
            (vec!["ferro", "trace", "--namespace=shop", ""], Some("shop")),
            (vec!["ferro", "-nshop", "trace"], Some("shop")),
            (vec!["ferro", "trace", "--namespace", "a", "--namespace", "shop"], Some("shop")),
            (vec!["ferro", "trace", "-n"], None),
            (vec!["ferro", "trace", "web-n"], None),
        ] {
            let words: Vec<_> = words.into_iter().map(str::to_owned).collect();
            assert_eq!(super::namespace_of(&words).as_deref(), namespace, "{words:?}");
        }
    }

    #[test]
    fn every_command_that_takes_a_namespace_or_a_tenant_completes_its_name() {
        for name in ["offload", "unoffload", "explain"] {
            assert!(completes(&[name]), "{name}");
        }
        for name in ["show", "set", "delegate"] {
            assert!(completes(&["tenant", name]), "{name}");
        }
    }
}
