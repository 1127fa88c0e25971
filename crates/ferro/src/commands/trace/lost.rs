//! Which of the probes that gateways send each other were lost, as the gateway counts them for Prometheus.

use std::collections::BTreeMap;

/// The figure, and the label by which a peer is known.
const FIGURE: &str = "ferro_tunnel_lost_ratios{cluster_id=\"";
/// One probe of the hundred that are remembered may be lost by chance; more than that are not.
const BY_CHANCE: f64 = 0.015;
/// All of them.
const ALL: f64 = 0.999;

/// The share of the last probes that was lost, by peer.
#[derive(Debug, Default)]
pub(super) struct Lost(BTreeMap<String, f64>);

impl Lost {
    /// Reads the figures of a gateway; what is not there is not known.
    pub(super) fn read(figures: &str) -> Self {
        let share = |line: &str| {
            let (peer, share) = line.strip_prefix(FIGURE)?.split_once("\"} ")?;
            Some((peer.to_owned(), share.trim().parse().ok()?))
        };
        Self(figures.lines().filter_map(share).collect())
    }

    /// Whether probes got through between then and later, which has to be seconds later.
    pub(super) fn is_up(&self, later: &Self, peer: &str) -> Option<bool> {
        let (before, after) = (*self.0.get(peer)?, *later.0.get(peer)?);
        Some(after < ALL && after <= before + BY_CHANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::Lost;

    fn lost(share: &str) -> Lost {
        Lost::read(&format!(
            "# HELP ferro_tunnel_lost_ratios The share\n# TYPE ferro_tunnel_lost_ratios gauge\n\
             ferro_tunnel_lost_ratios{{cluster_id=\"b\"}} {share}\nferro_tunnel_up{{cluster_id=\"b\"}} 1\n"
        ))
    }

    #[test]
    fn a_tunnel_is_down_while_more_is_lost_than_before() {
        let is_up = |before: &str, after: &str| lost(before).is_up(&lost(after), "b");
        assert_eq!(is_up("0.0", "0.0"), Some(true));
        assert_eq!(is_up("0.3", "0.31"), Some(true), "one may be lost");
        assert_eq!(is_up("0.3", "0.1"), Some(true), "it is up again");
        assert_eq!(is_up("0.0", "0.05"), Some(false));
        assert_eq!(is_up("1.0", "1.0"), Some(false));
    }

    #[test]
    fn what_is_not_told_is_not_known() {
        assert_eq!(lost("0.0").is_up(&lost("0.0"), "c"), None);
        assert_eq!(lost("0.0").is_up(&Lost::default(), "b"), None);
        assert_eq!(lost("much").is_up(&lost("0.0"), "b"), None);
    }
}
