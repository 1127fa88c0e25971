//! What a shell is told while somebody types: the program answers by itself, and asks the cluster for names of peers.
//!
//! A shell must not hang and must not be shown errors, so the cluster has a moment to answer, and no answer means no
//! names.

use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use kube::ResourceExt as _;

use crate::cli::Cli;
use crate::commands::block_on;
use crate::kube_args::KubeArgs;
use crate::peers;

/// The variable by which a shell asks.
pub(crate) const VARIABLE: &str = "FERRO_COMPLETE";
/// How long a person waits for a key.
const MOMENT: Duration = Duration::from_secs(2);

/// Answers a shell, if one asks, and ends the process then.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// For an argument that names a peer.
pub(crate) fn peer_names() -> ArgValueCandidates {
    ArgValueCandidates::new(|| known().unwrap_or_default())
}

fn known() -> anyhow::Result<Vec<CompletionCandidate>> {
    // The command line so far comes after the mark, and may name a cluster.
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<_> = words.skip_while(|word| word != "--").skip(1).collect();
    let kube = KubeArgs::of_words(&words);
    let peers = block_on(async {
        tokio::time::timeout(MOMENT, async { peers::list(&kube.client().await?).await }).await?
    })?;
    let candidate = |peer: &_| CompletionCandidate::new(peers::name(peer)).help(described(peer));
    Ok(peers.iter().map(candidate).collect())
}

fn described(peer: &ferro_api::discovery::ForeignCluster) -> Option<clap::builder::StyledStr> {
    let identity = peer.spec.cluster_identity.as_ref()?;
    let name = identity.cluster_name.as_deref().unwrap_or(&identity.cluster_id);
    (name != peer.name_any()).then(|| name.to_owned().into())
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use clap::CommandFactory as _;
    use clap_complete::engine::ArgValueCandidates;

    #[test]
    fn every_command_that_takes_a_peer_completes_its_name() {
        let cli = Cli::command();
        for name in ["add", "peer", "unpeer", "remove", "accept", "refuse"] {
            let command = cli.find_subcommand(name).unwrap();
            let argument = command.get_positionals().next().unwrap();
            assert!(argument.get::<ArgValueCandidates>().is_some(), "{name}");
        }
        let rules =
            cli.find_subcommand("network").and_then(|network| network.find_subcommand("rules")).unwrap();
        let argument = rules.get_positionals().next().unwrap();
        assert!(argument.get::<ArgValueCandidates>().is_some());
    }
}
