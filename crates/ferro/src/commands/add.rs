//! `ferro add`: makes another cluster known, by its address or by a token that it gave out.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use ferro_core::auth::JoinToken;
use kube::ResourceExt as _;

use crate::ask;
use crate::complete;
use crate::introduction::Introduction;
use crate::kube_args::KubeArgs;
use crate::output::Show;
use crate::progress::{self, Goal, Patience, Watched};
use crate::this_cluster::ThisCluster;
use crate::wait::Deadline;

/// Make another cluster known to this one
///
/// With a token, which 'ferro token' gives out on the other cluster, nothing else is needed. Without one, the other
/// cluster must let clusters in that show none. Add a cluster again to give it a new token.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  With a token (what 'ferro token' prints on the other cluster does just this):
    ferro add --token-stdin < token

  By the address of its auth service:
    ferro add auth.example.org --name milan

  A new token for a cluster that is known already, until it is let in:
    ferro add milan --token-file token --wait")]
pub(crate) struct Args {
    /// A URL, a host, or the name of a peer that gets a new token; with a token, instead of the URL in it
    #[arg(required_unless_present_any = ["token_stdin", "token_file"], add = complete::peer_names())]
    address: Option<String>,

    /// Read the token from the standard input, never from the command line, where others could see it
    #[arg(long, conflicts_with = "token_file")]
    token_stdin: bool,

    /// Read the token from a file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// What to call the peer [default: made from its address]
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    name: Option<String>,

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    patience: Patience,

    #[command(flatten)]
    kube: KubeArgs,
}

/// Adds a cluster.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let token = token(args)?;
    super::block_on(add(args, token.as_ref()))
}

async fn add(args: &Args, token: Option<&JoinToken>) -> anyhow::Result<()> {
    let deadline = Deadline::after(args.patience.timeout);
    let own = ThisCluster::find(args.kube.client().await?).await?;
    let introduction = Introduction {
        address: args.address.as_deref(),
        token,
        name: args.name.as_deref(),
        ..Introduction::default()
    };
    let introduced = introduction.perform(&own).await?;
    let name = introduced.peer.name_any();
    if !args.patience.wait {
        let next = format!("{name} is known; to use its resources, run: ferro peer {name}");
        return args.show.result(&introduced.peer, &next);
    }
    let earlier = introduced.before.as_ref().filter(|_| token.is_some()).and_then(progress::refusal);
    let goal = Goal { let_in: true, earlier, ..Goal::default() };
    let peer = Watched::new(&own.client, &name).reach(&goal, deadline).await?;
    args.show.result(
        &peer,
        &format!("{name} has let this cluster in; to use its resources, run: ferro peer {name}"),
    )
}

fn token(args: &Args) -> anyhow::Result<Option<JoinToken>> {
    let text = match &args.token_file {
        Some(path) => {
            let cannot = || format!("cannot read the token from {}", path.display());
            ask::first_line(BufReader::new(File::open(path).with_context(cannot)?)).with_context(cannot)?
        }
        None if args.token_stdin => {
            ask::secret_line("Paste the token that 'ferro token' printed on the other cluster:")
                .context("cannot read the token from the standard input")?
        }
        None => {
            let is_token =
                args.address.as_deref().is_some_and(|address| address.trim().starts_with("ferro_"));
            ensure!(
                !is_token,
                "a token on the command line can be seen by others; give it by --token-stdin or --token-file, and best \
                 make a new one: ferro token"
            );
            return Ok(None);
        }
    };
    let token = text
        .parse()
        .context("cannot use this token; 'ferro token' on the other cluster gives out a new one")?;
    Ok(Some(token))
}

/// A name that Kubernetes allows, and short enough for a label.
fn object_name(text: &str) -> Result<String, &'static str> {
    let is_part = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let is_name = text.len() <= 63 && text.split('.').all(is_part);
    is_name.then(|| text.to_owned()).ok_or("use up to 63 small letters, digits, '-' and '.', such as milan-1")
}

#[cfg(test)]
mod tests {
    use super::{Args, object_name, token};
    use clap::Parser;
    use ferro_core::auth::{JoinToken, Pin, TokenSecret};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn read(words: &[&str]) -> Result<Args, String> {
        let words = std::iter::once(&"add").chain(words);
        Line::try_parse_from(words).map(|line| line.args).map_err(|error| error.to_string())
    }

    fn secret() -> JoinToken {
        JoinToken {
            auth_url: "https://192.0.2.7:30443".parse().unwrap(),
            cluster_id: "d14e610e-4c1b-802c-a5f1-5ef6f39c0490".parse().unwrap(),
            pin: Pin([2; 32]),
            secret: TokenSecret::new([0x41; 32]),
        }
    }

    #[test]
    fn an_address_or_a_token_is_needed() {
        assert!(read(&[]).err().unwrap().contains("ADDRESS"));
        assert!(read(&["milan"]).is_ok() && read(&["--token-stdin"]).is_ok());
        assert!(read(&["--token-file", "t"]).is_ok() && read(&["milan", "--token-stdin"]).is_ok());
        assert!(read(&["--token-stdin", "--token-file", "t"]).is_err());
    }

    #[test]
    fn a_token_is_read_from_a_file_and_refused_on_the_command_line() {
        let path = std::env::temp_dir().join(format!("ferro-add-token-{}", std::process::id()));
        std::fs::write(&path, format!("{}\n", secret().reveal())).unwrap();
        let from_file = token(&read(&["--token-file", path.to_str().unwrap()]).unwrap());
        std::fs::write(&path, "nonsense").unwrap();
        let nonsense = token(&read(&["--token-file", path.to_str().unwrap()]).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(from_file.unwrap(), Some(secret()));
        let nonsense = format!("{:#}", nonsense.unwrap_err());
        assert!(nonsense.contains("not a token") && nonsense.contains("'ferro token'"), "{nonsense}");
        let shown = token(&read(&[&secret().reveal()]).unwrap()).unwrap_err().to_string();
        assert!(shown.contains("--token-stdin") && !shown.contains("ferro_"), "{shown}");
        assert_eq!(token(&read(&["milan"]).unwrap()).unwrap(), None);
    }

    #[test]
    fn a_name_is_one_that_an_object_may_have() {
        assert!(object_name("milan-1.edge").is_ok());
        for name in ["", "Milan", "-a", "a-", "a..b", "a b", &"a".repeat(64)] {
            assert!(object_name(name).is_err(), "{name}");
        }
    }
}
