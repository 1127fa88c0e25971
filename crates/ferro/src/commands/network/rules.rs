//! The gateway's table, peer by peer.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use ferro_core::network::{Rules, Table, tables};
use serde::Serialize;

use crate::network::Network;
use crate::output::{self, View};
use crate::peers;

/// What is done to the packets of one peer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OfPeer {
    peer: String,
    #[serde(rename = "clusterID")]
    cluster_id: String,
    #[serde(flatten)]
    rules: Rules,
}

#[derive(Debug, Serialize)]
struct Shown {
    items: Vec<OfPeer>,
    /// What of the resources is not used.
    problems: Vec<String>,
}

/// Prints the table of one peer, or of all.
pub(super) fn show(network: &Network, wanted: Option<&str>, view: Option<View>) -> anyhow::Result<()> {
    let shown = Shown::of(network, wanted)?;
    if shown.items.is_empty() && !matches!(view, Some(View::Json | View::Yaml)) {
        output::note("There is no tunnel to any peer yet; 'ferro network' says what is missing.");
    }
    output::value(&shown, |_| shown.text(), view)
}

impl Shown {
    fn of(network: &Network, wanted: Option<&str>) -> anyhow::Result<Self> {
        let (table, problems) = tables(&network.endpoints, &network.mappings, network.reach);
        let only = wanted.map(|wanted| meant(network, wanted)).transpose()?;
        let is_meant = |id: &str| only.as_ref().is_none_or(|only| only == id);
        let problems: Vec<_> =
            problems.iter().filter(|problem| is_meant(&problem.peer)).map(ToString::to_string).collect();
        let items: Vec<_> =
            of(network, &table).into_iter().filter(|item| is_meant(&item.cluster_id)).collect();
        if let (Some(wanted), true) = (wanted, items.is_empty()) {
            match problems.first() {
                Some(problem) => bail!("there is no tunnel to {wanted}: {problem}"),
                None => bail!("there is no tunnel to {wanted} yet; 'ferro network' says what is missing"),
            }
        }
        Ok(Self { items, problems })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for item in &self.items {
            if !text.is_empty() {
                text.push('\n');
            }
            item.write(&mut text);
        }
        if !self.problems.is_empty() {
            text.push_str("\nWhat is not used:\n");
        }
        for problem in &self.problems {
            // Writing to a string cannot fail.
            _ = writeln!(text, "- {}", output::plain(problem));
        }
        text
    }
}

fn of(network: &Network, table: &Table) -> Vec<OfPeer> {
    let names = network.names();
    let shown = table.peers.iter().map(|(id, table)| OfPeer {
        peer: names.get(id).unwrap_or(id).clone(),
        cluster_id: id.clone(),
        rules: Rules::of(id, table),
    });
    let mut shown: Vec<_> = shown.collect();
    shown.sort_by(|one, other| one.peer.cmp(&other.peer));
    shown
}

/// The identifier of the peer that a person means.
fn meant(network: &Network, wanted: &str) -> anyhow::Result<String> {
    let peer = peers::find(&network.peers, wanted)?;
    let id = peers::cluster_id(peer);
    Ok(id
        .with_context(|| format!("it is not known yet which cluster {wanted} is; see 'ferro peers'"))?
        .to_owned())
}

impl OfPeer {
    fn write(&self, text: &mut String) {
        let views: Vec<_> = self.rules.views.iter().map(ToString::to_string).collect();
        let views = views.join(", ");
        let line = |text: &mut String, line: &str| {
            // Writing to a string cannot fail.
            _ = writeln!(text, "{line}");
        };
        line(text, &output::plain(&format!("Chain {} ({})", self.rules.chain, self.peer)));
        line(text, &format!("  out of the tunnel, from {views}:"));
        self.rules.inbound.iter().for_each(|rule| line(text, &format!("    {rule}")));
        line(text, &format!("  into the tunnel, to {views}:"));
        self.rules.outbound.iter().for_each(|rule| line(text, &format!("    {rule}")));
    }
}

#[cfg(test)]
mod tests {
    use super::Shown;
    use crate::network::tests::{TURIN, connected, joined};
    use serde_json::json;

    #[test]
    fn the_table_of_a_peer_reads_as_the_contract_prints_it() {
        let network = joined(&connected());
        let text = Shown::of(&network, Some("tur")).unwrap().text();
        assert_eq!(
            text,
            format!(
                "\
Chain LIQO-PRRT-MAP-CLS-{TURIN} (turin)
  out of the tunnel, from 10.0.0.0/24, 192.168.7.0/24:
    -d 192.168.8.45 -j DNAT --to-destination 172.18.0.3
    -d 10.0.40.0/24 -j NETMAP --to 10.244.0.0/24
  into the tunnel, to 10.0.0.0/24, 192.168.7.0/24:
    -s 10.244.0.0/24 -j NETMAP --to 10.0.40.0/24
    -s 172.18.0.3 -j SNAT --to-source 192.168.8.45
"
            )
        );
        assert_eq!(Shown::of(&network, None).unwrap().text(), text);
    }

    #[test]
    fn programs_get_the_same() {
        let value = serde_json::to_value(Shown::of(&joined(&connected()), None).unwrap()).unwrap();
        let item = &value["items"][0];
        assert_eq!((&item["peer"], &item["clusterID"]), (&json!("turin"), &json!(TURIN)));
        assert_eq!(item["views"], json!(["10.0.0.0/24", "192.168.7.0/24"]));
        assert_eq!(item["inbound"][0], "-d 192.168.8.45 -j DNAT --to-destination 172.18.0.3");
    }

    #[test]
    fn what_is_not_used_is_told() {
        let mut network = joined(&connected());
        network.mappings[0].spec.cluster_mappings.insert("10.244.0.9".into(), "192.168.8.46".into());
        let text = Shown::of(&network, None).unwrap().text();
        assert!(
            text.ends_with(
                "\nWhat is not used:\n- NatMapping natmapping-turin: 10.244.0.9 is a pod of this cluster; only 10.0.40.9, \
                 its name there, can stand for it\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_peer_without_a_tunnel_is_told_what_is_missing() {
        let mut network = joined(&connected());
        let error = |network: &_, wanted| Shown::of(network, Some(wanted)).unwrap_err().to_string();
        assert!(
            error(&network, "milan").starts_with("there is no peer milan"),
            "{}",
            error(&network, "milan")
        );
        network.endpoints[0].status = None;
        assert_eq!(
            error(&network, "turin"),
            "there is no tunnel to turin: TunnelEndpoint liqo-tenant-turin/turin: it is not processed yet: \
             status.localPodCIDR is missing"
        );
        network.endpoints.clear();
        assert!(error(&network, "turin").contains("'ferro network' says what is missing"));
    }
}
