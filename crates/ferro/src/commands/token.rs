//! `ferro token`: gives out a token, and prints the one command that uses it on the other side.

use std::time::Duration;

use ferro_core::auth::JoinToken;
use ferro_core::names;
use k8s_openapi::jiff::{Timestamp, Unit};
use serde::Serialize;

use crate::invitation::{self, Invitation, Wanted};
use crate::kube_args::KubeArgs;
use crate::output::{self, Format};
use crate::this_cluster::ThisCluster;
use crate::wait;

/// Give out a token that lets another cluster in
///
/// Prints one command to run on the other cluster. The token in it is a secret: whoever shows it first is let in.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  Let one cluster in, within the next hour:
    ferro token

  Carry the command to the other cluster without showing it:
    ferro token --context milan | ssh rome bash

  For many clusters, during a day:
    ferro token --reusable --lifetime 24h")]
pub(crate) struct Args {
    /// How long the token is good for, such as 1h [default: authConfig.tokenLifetimeSeconds, or an hour]
    #[arg(long, value_name = "DURATION", value_parser = wait::duration)]
    lifetime: Option<Duration>,

    /// Let in every cluster that shows the token, instead of the first one only
    #[arg(long)]
    reusable: bool,

    /// Print token and terms, for programs
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,

    #[command(flatten)]
    kube: KubeArgs,
}

/// What programs get.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Printed {
    token: String,
    expires_at: Timestamp,
    reusable: bool,
    auth_url: String,
    #[serde(rename = "clusterID")]
    cluster_id: String,
    command: String,
}

/// Gives out a token.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::block_on(give_out(args))
}

async fn give_out(args: &Args) -> anyhow::Result<()> {
    let cluster = ThisCluster::find(args.kube.client().await?).await?;
    let wanted = Wanted { lifetime: args.lifetime, reusable: args.reusable, bound_to: None };
    let invitation = invitation::give_out(&cluster, wanted).await?;
    if let Some(format) = args.output {
        return output::print_value(&printed(&cluster.identity.name, &invitation), format);
    }
    output::note(&explanation(&cluster.identity.name, &invitation, Timestamp::now()));
    output::print(command(&cluster.identity.name, &invitation.token).as_bytes())
}

fn printed(name: &str, invitation: &Invitation) -> Printed {
    let Invitation { token, terms } = invitation;
    Printed {
        token: token.reveal(),
        expires_at: terms.expires_at,
        reusable: !terms.one_use,
        auth_url: token.auth_url.to_string(),
        cluster_id: token.cluster_id.to_string(),
        command: command(name, token),
    }
}

/// The secret comes by the standard input: what stands on a command line can be seen by every process. The name is the
/// one that the other side would also give to this cluster when it found it.
fn command(name: &str, token: &JoinToken) -> String {
    let name = names::foreign_cluster(name, &token.cluster_id.to_string());
    format!("ferro add --name {name} --token-stdin <<'EOF'\n{}\nEOF\n", token.reveal())
}

fn explanation(name: &str, invitation: &Invitation, now: Timestamp) -> String {
    let left = invitation.terms.expires_at.duration_since(now).round(Unit::Second);
    let left = left.map_or_else(|_| "a while".to_owned(), |left| format!("{left:#}"));
    let whom = if invitation.terms.one_use {
        "whoever shows it first is let in"
    } else {
        "everybody who shows it is let in"
    };
    format!(
        "Run this on the cluster that shall use resources of {name}. It is good for {left}. It holds a secret: {whom}."
    )
}

#[cfg(test)]
mod tests {
    use super::{command, explanation, printed};
    use crate::invitation::Invitation;
    use ferro_core::auth::{JoinToken, Pin, Terms, TokenSecret};
    use k8s_openapi::jiff::Timestamp;

    fn invitation(one_use: bool) -> Invitation {
        Invitation {
            token: JoinToken {
                auth_url: "https://192.0.2.7:30443".parse().unwrap(),
                cluster_id: "d14e610e-4c1b-802c-a5f1-5ef6f39c0490".parse().unwrap(),
                pin: Pin([2; 32]),
                secret: TokenSecret::new([0x41; 32]),
            },
            terms: Terms { expires_at: "2030-01-01T01:00:00Z".parse().unwrap(), one_use, bound_to: None },
        }
    }

    #[test]
    fn the_command_carries_the_token_beside_the_command_line() {
        let token = invitation(true).token;
        let command = command("milan", &token);
        let lines: Vec<_> = command.lines().collect();
        let [first, secret, last] = lines[..] else { panic!("{command}") };
        assert!(first.starts_with("ferro add --name milan-") && first.ends_with(" --token-stdin <<'EOF'"));
        assert_eq!(last, "EOF");
        assert_eq!(secret.parse(), Ok(token));
    }

    #[test]
    fn it_is_said_how_long_the_token_is_good_and_for_whom() {
        let now: Timestamp = "2030-01-01T00:00:00.3Z".parse().unwrap();
        let said = explanation("milan", &invitation(true), now);
        assert!(said.contains("resources of milan") && said.contains("good for 1h."), "{said}");
        assert!(said.contains("whoever shows it first"), "{said}");
        assert!(!said.contains("ferro_"), "{said}");
        assert!(explanation("milan", &invitation(false), now).contains("everybody"));
    }

    #[test]
    fn programs_get_the_token_with_its_terms() {
        let printed = serde_json::to_value(printed("milan", &invitation(true))).unwrap();
        assert_eq!(printed["expiresAt"], "2030-01-01T01:00:00Z");
        assert_eq!(printed["clusterID"], "d14e610e-4c1b-802c-a5f1-5ef6f39c0490");
        assert_eq!(printed["reusable"], false);
        assert!(printed["token"].as_str().unwrap().starts_with("ferro_"));
    }
}
