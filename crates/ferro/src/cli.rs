//! The command line: which subcommands there are, and what each is called.

use clap::{Parser, Subcommand};
use ferro_api::discovery::Decision;

use crate::commands::{
    add, completion, crds, decide, discovery, explain, install, moving, namespaces, network, offload, peer,
    peers, pods, probe, remove, status, tenant, tenants, token, trace, uninstall, unoffload, unpeer,
};
use crate::roles::{self, Role};

/// Liquid computing: independent Kubernetes clusters that share their spare capacity.
///
/// Clusters, from a laptop to a data centre, find each other, agree to share, and then each one sees its
/// peers' spare capacity as ordinary nodes.
#[derive(Parser)]
#[command(name = "ferro", version, arg_required_else_help = true)]
#[command(after_help = "Run 'ferro help COMMAND' for the options and examples of a command.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Install(install::Args),
    Uninstall(uninstall::Args),
    Status(status::Args),
    Peers(peers::Args),
    Token(token::Args),
    Add(add::Args),
    Peer(peer::Args),
    Unpeer(unpeer::Args),
    Remove(remove::Args),
    /// Accept what a peer asks for or offers
    ///
    /// Without --offer and --request it is about whatever waits for a decision, and about both if nothing does.
    #[command(after_help = decide::ACCEPT_EXAMPLES)]
    Accept(decide::Args),
    /// Refuse what a peer asks for or offers, also if it was accepted before
    ///
    /// Without --offer and --request it is about whatever waits for a decision, and about both if nothing does.
    #[command(after_help = decide::REFUSE_EXAMPLES)]
    Refuse(decide::Args),
    Offload(offload::Args),
    Unoffload(unoffload::Args),
    Namespaces(namespaces::Args),
    Pods(pods::Args),
    Move(moving::Args),
    Explain(explain::Args),
    Tenants(tenants::Args),
    Tenant(tenant::Args),
    Network(network::Args),
    Trace(trace::Args),
    Discovery(discovery::Args),
    Crds(crds::Args),
    Completion(completion::Args),
    /// Run the controllers of a cluster (inside it; 'ferro install' does this)
    Controller(roles::Args),
    /// Run the auth service of a cluster (inside it)
    Auth(roles::Args),
    /// Run the part that every node of a cluster has (inside it)
    Node(roles::Args),
    /// Run the gateway of a cluster, where the tunnels to its peers end (inside it)
    Gateway {
        #[command(flatten)]
        own: roles::GatewayArgs,
        #[command(flatten)]
        args: roles::Args,
    },
    Probe(probe::Args),
}

impl Cli {
    /// Does what was asked for.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Install(args) => install::run(&args),
            Command::Uninstall(args) => uninstall::run(&args),
            Command::Status(args) => status::run(&args),
            Command::Peers(args) => peers::run(&args),
            Command::Token(args) => token::run(&args),
            Command::Add(args) => add::run(&args),
            Command::Peer(args) => peer::run(&args),
            Command::Unpeer(args) => unpeer::run(&args),
            Command::Remove(args) => remove::run(&args),
            Command::Accept(args) => decide::run(&args, Decision::Accept),
            Command::Refuse(args) => decide::run(&args, Decision::Refuse),
            Command::Offload(args) => offload::run(&args),
            Command::Unoffload(args) => unoffload::run(&args),
            Command::Namespaces(args) => namespaces::run(&args),
            Command::Pods(args) => pods::run(&args),
            Command::Move(args) => moving::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Tenants(args) => tenants::run(&args),
            Command::Tenant(args) => tenant::run(&args),
            Command::Network(args) => network::run(&args),
            Command::Trace(args) => trace::run(&args),
            Command::Discovery(args) => discovery::run(&args),
            Command::Crds(args) => crds::run(&args),
            Command::Completion(args) => completion::run(&args),
            Command::Controller(args) => roles::run(Role::Controller, args),
            Command::Auth(args) => roles::run(Role::Auth, args),
            Command::Node(args) => roles::run(Role::Node, args),
            Command::Gateway { own, args } => roles::run(Role::Gateway(own), args),
            Command::Probe(args) => probe::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
