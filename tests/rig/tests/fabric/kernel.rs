//! What the kernels of a cluster's nodes have: links, routes, rules, neighbours, nftables and network namespaces.
//!
//! They are compared exactly, both ways, but for what Kubernetes itself changes meanwhile: each such exception is here,
//! with its reason.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use rig::topology::Cluster;
use rig::wait::eventually;

/// Of all nodes, each line with the name of its node.
pub type Kernels = BTreeSet<String>;

/// By this a line is known that is there because the gateway runs.
pub const OF_GATEWAY: [&str; 2] = ["ferro.host", "another network namespace"];

/// Tells all of it, each part behind a line with its name. Namespaces that are named are those of pods; another one is
/// known only by a process in it, or one that holds it open.
const SCRIPT: &str = r#"
echo "== link"; ip -brief link
echo "== route"; ip -4 route show table all
echo "== route6"; ip -6 route show table all
echo "== rule"; ip rule
echo "== rule6"; ip -6 rule
echo "== neighbour"; ip neighbour show nud all
echo "== fdb"; bridge fdb show
echo "== nft"; nft --stateless list ruleset
echo "== namespace"
of_pods=$(stat --dereference --format=net:[%i] /run/netns/* /proc/1/ns/net 2>/dev/null)
find /proc/[0-9]*/ns/net /proc/[0-9]*/fd -lname 'net:*' -printf '%l\n' 2>/dev/null | sort -u | while read -r space; do
    case "$of_pods" in *"$space"*) ;; *) echo "another network namespace" ;; esac
done
"#;

/// What they have now.
pub async fn kernels(cluster: &Cluster) -> Result<Kernels> {
    let nodes = cluster.plan.nodes.iter().map(|node| async move {
        let said = cluster.on_node(node.number, &["bash", "-c", SCRIPT]).await?;
        Ok::<_, anyhow::Error>(lines(&said).into_iter().map(|line| format!("{}: {line}", node.name)))
    });
    Ok(try_join_all(nodes).await?.into_iter().flatten().collect())
}

/// What they have once it does not change any more: whatever starts with a node has started.
pub async fn at_rest(cluster: &Cluster) -> Result<Kernels> {
    eventually(&format!("the kernels of {} are at rest", cluster.plan.name), || async {
        let (first, second) = (kernels(cluster).await?, kernels(cluster).await?);
        ensure!(first == second, "they change: {:#?}", difference(&first, &second));
        Ok(second)
    })
    .await
}

/// Waits until they have what they had, no more and no less, but for what may stay.
pub async fn await_same(cluster: &Cluster, before: &Kernels, may_stay: &[&str]) -> Result<()> {
    eventually(&format!("the kernels of {} are as before", cluster.plan.name), || async {
        let mut now = kernels(cluster).await?;
        now.retain(|line| before.contains(line) || !may_stay.iter().any(|part| line.contains(part)));
        ensure!(now == *before, "they are not: {:#?}", difference(before, &now));
        Ok(())
    })
    .await
}

fn difference(before: &Kernels, now: &Kernels) -> Vec<String> {
    let more = now.difference(before).map(|line| format!("+ {line}"));
    let less = before.difference(now).map(|line| format!("- {line}"));
    more.chain(less).collect()
}

/// Every line that counts, with the part that it is of.
fn lines(said: &str) -> Vec<String> {
    let (mut part, mut inside, mut found) = ("", Vec::new(), Vec::new());
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            part = name;
        } else if part == "nft" {
            found.extend(in_nftables(line, &mut inside));
        } else {
            found.extend(counting(part, line.trim()).map(|line| format!("{part} {line}")));
        }
    }
    found
}

fn counting<'a>(part: &str, line: &'a str) -> Option<&'a str> {
    // Each pod has a link and routes over it. The bridge of pods comes with the first one, and stays.
    if line.contains("veth") || line.contains("cni0") {
        return None;
    }
    match part {
        // Its name is enough: the rest is its state.
        "link" => line.split([' ', '@']).next(),
        // Whom a node talks to, it finds by itself. On our links there is nothing but what we have put there.
        "neighbour" | "fdb" => line.contains("ferro").then_some(line),
        _ => Some(line),
    }
}

/// The tables that iptables keeps. They, and their chains, are there as soon as a kubelet or a network plugin has looked
/// at them, which may be with the first pod of a node; what counts is what they say.
const OF_IPTABLES: [&str; 5] = ["nat {", "filter {", "mangle {", "raw {", "security {"];

/// A line of nftables with all that it is inside of.
fn in_nftables(line: &str, inside: &mut Vec<String>) -> Option<String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let table = inside.first().cloned().unwrap_or_else(|| line.to_owned());
    let place = inside.iter().map(String::as_str).chain([line]).collect::<Vec<_>>().join(" ");
    let is_frame = line.ends_with('{') || line == "}" || line.starts_with("type ");
    if line == "}" {
        inside.pop();
    } else if line.ends_with('{') {
        inside.push(line.to_owned());
    }
    // Rules for Services, which come and go, also long after they went.
    let of_services = table.contains("kube-proxy");
    // Rules of the network plugin for each pod.
    let of_pods = place.contains("CNI-");
    let of_iptables = OF_IPTABLES.iter().any(|name| table.ends_with(name)) && is_frame;
    (!of_services && !of_pods && !of_iptables).then(|| format!("nft {place}"))
}

#[test]
fn what_is_compared_is_all_but_what_pods_and_services_change() {
    let said = "\
== link
lo               UNKNOWN        00:00:00:00:00:00 <LOOPBACK,UP,LOWER_UP>
veth1a2b@if3     UP             aa:bb:cc:dd:ee:ff <BROADCAST>
ferro.vxlan      UNKNOWN        02:fe:00:00:00:01 <BROADCAST>
== route
10.244.2.0/23 via 198.18.0.3 dev eth0
10.244.0.7 dev veth1a2b scope host
== fdb
02:fe:00:00:00:02 dev ferro.vxlan dst 198.18.0.3 self permanent
33:33:00:00:00:01 dev eth0 self permanent
== nft
table ip kube-proxy {
\tchain services {
\t\tip daddr 10.96.0.1 accept
\t}
}
table ip nat {
\tchain POSTROUTING {
\t\ttype nat hook postrouting priority srcnat; policy accept;
\t\tip saddr 10.244.0.7 counter jump CNI-1234
\t\tip saddr 10.9.0.0/16 masquerade
\t}
}
table ip ferro {
\tchain keep {
\t\ttype nat hook postrouting priority srcnat - 1; policy accept;
\t}
}
== namespace
another network namespace
";
    assert_eq!(
        lines(said),
        [
            "link lo",
            "link ferro.vxlan",
            "route 10.244.2.0/23 via 198.18.0.3 dev eth0",
            "fdb 02:fe:00:00:00:02 dev ferro.vxlan dst 198.18.0.3 self permanent",
            "nft table ip nat { chain POSTROUTING { ip saddr 10.9.0.0/16 masquerade",
            "nft table ip ferro {",
            "nft table ip ferro { chain keep {",
            "nft table ip ferro { chain keep { type nat hook postrouting priority srcnat - 1; policy accept;",
            "nft table ip ferro { chain keep { }",
            "nft table ip ferro { }",
            "namespace another network namespace",
        ]
    );
}
