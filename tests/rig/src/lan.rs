//! The wire that joins all clusters: a bridge in a network namespace of its own, and the faults one can put on it.
//!
//! Faults are nftables rules on the bridge, computed anew from the list of all faults and loaded in one transaction:
//! what is cut is always exactly what the list says.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::plan::{ClusterPlan, Lan, NodePlan};
use crate::run::{run, run_with_input};

/// Name of the wire's namespace, and of the bridge in it.
const NAME: &str = "lan";

/// One direction between two nodes, by bridge port.
pub type Path = (String, String);

/// What happens to frames on a path: this percentage is lost; 100 is a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Loss(u8);

impl Loss {
    /// Nothing passes.
    pub const CUT: Self = Self(100);

    /// Reads `7%` or `7`.
    pub fn parse(text: &str) -> Result<Self> {
        let percent: u8 = text
            .trim_end_matches('%')
            .parse()
            .ok()
            .filter(|percent| (1..=100).contains(percent))
            .with_context(|| format!("loss \"{text}\" is not a percentage from 1% to 100%"))?;
        Ok(Self(percent))
    }
}

/// The faults on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults(BTreeMap<Path, Loss>);

impl Faults {
    /// Adds a fault from each of `from` to each of `to`; unless one-way, also back.
    pub fn add(&mut self, from: &[String], to: &[String], loss: Loss, oneway: bool) {
        for path in paths(from, to, oneway) {
            self.0.insert(path, loss);
        }
    }

    /// Takes away every fault between the two, in both directions.
    pub fn heal(&mut self, from: &[String], to: &[String]) {
        for path in paths(from, to, false) {
            self.0.remove(&path);
        }
    }

    /// Forgets the faults of ports that are gone.
    pub fn forget(&mut self, ports: &[String]) {
        self.0.retain(|(from, to), _| !ports.contains(from) && !ports.contains(to));
    }

    /// The ruleset that makes exactly these faults.
    fn ruleset(&self) -> String {
        let mut text = String::from("table bridge rig {}\ndelete table bridge rig\ntable bridge rig {\n");
        text.push_str("  chain forward {\n    type filter hook forward priority filter; policy accept;\n");
        for ((from, to), loss) in &self.0 {
            let whole = *loss == Loss::CUT && self.0.get(&(to.clone(), from.clone())) == Some(&Loss::CUT);
            // Unless both ways are cut, addresses must still be found, or one lost way would soon be two.
            let what = if whole { "" } else { " ether type != arp" };
            let chance =
                if loss.0 == 100 { String::new() } else { format!(" numgen random mod 100 < {}", loss.0) };
            let _ = writeln!(text, "    iifname \"{from}\" oifname \"{to}\"{what}{chance} drop");
        }
        text.push_str("  }\n}\n");
        text
    }

    /// Loads the ruleset into the kernel.
    pub async fn apply(&self) -> Result<()> {
        in_lan_with_input(&["nft", "-f", "-"], &self.ruleset())
            .await
            .context("cannot put faults on the LAN")?;
        Ok(())
    }
}

fn paths(from: &[String], to: &[String], oneway: bool) -> Vec<Path> {
    let forth = from.iter().flat_map(|a| to.iter().map(move |b| (a.clone(), b.clone())));
    let back = to.iter().flat_map(|a| from.iter().map(move |b| (a.clone(), b.clone()))).filter(|_| !oneway);
    forth.chain(back).collect()
}

/// Makes the wire and this machine's place on it, on the first index that no other rig uses.
pub async fn create() -> Result<Lan> {
    run("ip", &["netns", "add", NAME]).await.context("cannot make a network namespace")?;
    let lan = claim().await?;
    let commands = format!(
        "link set lo up\n\
         link add {NAME} type bridge mcast_snooping 0\n\
         link set host master {NAME}\nlink set host up\nlink set {NAME} up\n\
         addr add {}/{} dev {NAME}\n",
        lan.gateway(),
        lan.network().prefix_len()
    );
    in_lan_with_input(&["ip", "-batch", "-"], &commands)
        .await
        .context("cannot make the LAN; does this kernel have bridges?")?;
    // The wire is a switch: frames on it are no business of the machine's IP filters.
    let _ = run("modprobe", &["br_netfilter"]).await;
    in_lan(&[
        "sh",
        "-c",
        "cd /proc/sys/net/bridge && echo 0 > bridge-nf-call-iptables && echo 0 > bridge-nf-call-ip6tables",
    ])
    .await
    .context("does this kernel have br_netfilter?")?;
    Faults::default().apply().await.context("does this kernel have nftables for bridges?")?;
    Ok(lan)
}

/// Takes an index by making the interface that carries it: making it is atomic, so two rigs never share one.
async fn claim() -> Result<Lan> {
    for index in 0..=u8::MAX {
        let lan = Lan { index };
        let link = lan.host_link();
        match run("ip", &["link", "add", &link, "type", "veth", "peer", "name", "host", "netns", NAME]).await
        {
            Ok(_) => {
                let address = format!("{}/{}", lan.host(), lan.network().prefix_len());
                run("ip", &["addr", "add", &address, "dev", &link]).await?;
                run("ip", &["link", "set", &link, "up"]).await?;
                return Ok(lan);
            }
            Err(error) if error.to_string().contains("File exists") => {}
            Err(error) => return Err(error).context("cannot make a veth pair; does this kernel have veth?"),
        }
    }
    bail!("256 rigs run on this machine already; end one with rig down")
}

/// Hangs a node on the wire: namespace, address, routes to the pods of the other nodes, forwarding, masquerade.
pub async fn attach(plan: &ClusterPlan, node: &NodePlan) -> Result<()> {
    let name = &node.name;
    run("ip", &["netns", "add", name]).await?;
    let card = card(node);
    let peer = ["peer", "name", "eth0", "address", &card, "netns", name];
    in_lan(&[&["ip", "link", "add", name, "type", "veth"], &peer[..]].concat()).await?;
    in_lan_with_input(
        &["ip", "-batch", "-"],
        &format!("link set {name} master {NAME}\nlink set {name} up\n"),
    )
    .await?;
    let mut commands = format!(
        "link set lo up\nlink set eth0 up\naddr add {}/{} dev eth0\nroute add default via {}\n",
        node.address,
        plan.lan.network().prefix_len(),
        plan.lan.gateway()
    );
    for other in plan.nodes.iter().filter(|other| other.number != node.number) {
        let _ = writeln!(commands, "route add {} via {}", other.pod_cidr, other.address);
    }
    in_namespace(name, &["ip", "-batch", "-"], Some(&commands)).await?;
    in_namespace(name, &["nft", "-f", "-"], Some(&masquerade(plan))).await?;
    in_namespace(name, &["sh", "-c", KERNEL_SETTINGS], None).await?;
    Ok(())
}

/// The address of a node's network card, which it keeps over a reboot.
fn card(node: &NodePlan) -> String {
    let [a, b, c, d] = node.address.octets();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Takes this machine off the wire at once; the kernel would do it a moment after the wire is gone.
pub async fn destroy(lan: Lan) {
    let _ = run("ip", &["link", "del", &lan.host_link()]).await;
}

/// Takes a node off the wire; one that never got onto it, or only half, is no error.
pub async fn detach(node: &NodePlan) {
    let _ = in_lan(&["ip", "link", "del", &node.name]).await;
    let _ = run("ip", &["netns", "del", &node.name]).await;
}

/// Settings of a node's own network namespace; the machine's are not touched.
const KERNEL_SETTINGS: &str = "cd /proc/sys/net && echo 1 > ipv4/ip_forward && echo 0 > ipv4/conf/all/rp_filter \
    && echo 0 > ipv4/conf/default/rp_filter && echo 1 > bridge/bridge-nf-call-iptables";

/// Pods leave their cluster with the node's address and reach each other with their own, as with any common network.
fn masquerade(plan: &ClusterPlan) -> String {
    let pods = plan.pod_cidr;
    format!(
        "table ip rig {{\n  chain postrouting {{\n    type nat hook postrouting priority srcnat; policy accept;\n    \
         ip saddr {pods} ip daddr != {{ {pods}, 224.0.0.0/4 }} masquerade\n  }}\n}}\n"
    )
}

async fn in_lan(command: &[&str]) -> Result<String> {
    in_namespace(NAME, command, None).await
}

async fn in_lan_with_input(command: &[&str], input: &str) -> Result<String> {
    in_namespace(NAME, command, Some(input)).await
}

/// Runs a command in a network namespace. Not `ip netns exec`, which remounts /sys and hides the cgroups.
async fn in_namespace(name: &str, command: &[&str], input: Option<&str>) -> Result<String> {
    let namespace = format!("--net=/run/netns/{name}");
    let arguments: Vec<&str> = std::iter::once(namespace.as_str()).chain(command.iter().copied()).collect();
    match input {
        Some(input) => run_with_input("nsenter", &arguments, input).await,
        None => run("nsenter", &arguments).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_cut_works_both_ways_and_one_way_only_forth() {
        let mut faults = Faults::default();
        faults.add(&ports(&["a-1", "a-2"]), &ports(&["b-1"]), Loss::CUT, false);
        assert_eq!(faults.ruleset().matches(" drop").count(), 4);
        let mut faults = Faults::default();
        faults.add(&ports(&["a-1"]), &ports(&["b-1"]), Loss::CUT, true);
        let rules = faults.ruleset();
        assert!(
            rules.contains("iifname \"a-1\" oifname \"b-1\" ether type != arp drop")
                && !rules.contains("iifname \"b-1\""),
            "{rules}"
        );
    }

    #[test]
    fn loss_drops_that_share_and_a_later_word_replaces_an_earlier_one() {
        let mut faults = Faults::default();
        faults.add(&ports(&["a-1"]), &ports(&["b-1"]), Loss::CUT, true);
        faults.add(&ports(&["a-1"]), &ports(&["b-1"]), Loss::parse("7%").unwrap(), true);
        let rules = faults.ruleset();
        assert_eq!(rules.matches(" drop").count(), 1);
        assert!(rules.contains("numgen random mod 100 < 7 drop"), "{rules}");
    }

    #[test]
    fn healing_undoes_both_directions_and_nothing_else() {
        let mut faults = Faults::default();
        faults.add(&ports(&["a-1"]), &ports(&["b-1"]), Loss::CUT, true);
        faults.add(&ports(&["a-1"]), &ports(&["c-1"]), Loss::CUT, false);
        faults.heal(&ports(&["b-1"]), &ports(&["a-1"]));
        let rules = faults.ruleset();
        assert!(!rules.contains("b-1") && rules.matches("c-1").count() == 2, "{rules}");
    }

    #[test]
    fn a_loss_that_is_no_percentage_is_refused() {
        for text in ["", "0", "101%", "-3", "half"] {
            let error = Loss::parse(text).expect_err(text).to_string();
            assert!(error.contains("1% to 100%"), "{error}");
        }
    }
}
