//! Which network stands for a peer's: its own where that is free, or else the first one of the same size that is.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Networks that are taken: none that overlaps one of them may be handed out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(BTreeSet<IpNet>);

impl Networks {
    /// The first of them that overlaps.
    pub fn overlapping(&self, network: &IpNet) -> Option<&IpNet> {
        self.0.iter().find(|taken| overlap(taken, network))
    }
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        Self(networks.into_iter().map(|network| network.trunc()).collect())
    }
}

/// The networks from which replacements are taken when nobody says otherwise: all that is private.
pub fn default_pools() -> Vec<IpNet> {
    let v4 = |a, b, length| IpNet::from(Ipv4Net::new_assert([a, b, 0, 0].into(), length));
    let v6 = Ipv6Net::new_assert(0xfd00_u128.wrapping_shl(112).into(), 8);
    vec![v4(10, 0, 8), v4(192, 168, 16), v4(172, 16, 12), v6.into()]
}

/// The mask of the largest network that one cluster may have, under its own name or another: otherwise a few peers could
/// take all that is private. Two of these are an eighth of the largest pool.
pub fn shortest_mask(network: &IpNet) -> u8 {
    match network {
        IpNet::V4(_) => 12,
        IpNet::V6(_) => 32,
    }
}

/// The first network of this size in the pools that overlaps nothing that is taken.
pub fn replacement(wanted: &IpNet, pools: &[IpNet], taken: &Networks) -> Option<IpNet> {
    pools.iter().find_map(|pool| first_free(wanted, pool, taken))
}

fn first_free(wanted: &IpNet, pool: &IpNet, taken: &Networks) -> Option<IpNet> {
    if wanted.max_prefix_len() != pool.max_prefix_len() || wanted.prefix_len() < pool.prefix_len() {
        return None;
    }
    let mut candidate = at(bits(pool.network()), wanted)?;
    while pool.contains(&candidate) {
        let Some(obstacle) = taken.overlapping(&candidate) else { return Some(candidate) };
        // Behind whichever of the two ends later; both are aligned, so that the next one is, too.
        let end = bits(obstacle.broadcast()).max(bits(candidate.broadcast()));
        candidate = at(end.checked_add(1)?, wanted)?;
    }
    None
}

/// The network of the wanted size at these bits; none behind the last address of the family.
fn at(bits: u128, wanted: &IpNet) -> Option<IpNet> {
    let ip = match wanted {
        IpNet::V4(_) => IpAddr::V4(u32::try_from(bits).ok()?.into()),
        IpNet::V6(_) => IpAddr::V6(bits.into()),
    };
    IpNet::new(ip, wanted.prefix_len()).ok()
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// Networks never cross: they overlap when one holds the other.
pub(super) fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn networks(texts: &[&str]) -> Networks {
        texts.iter().map(|text| net(text)).collect()
    }

    #[test]
    fn the_first_free_network_of_the_same_size_is_found() {
        for (wanted, taken, found) in [
            ("10.244.0.0/24", &[][..], Some("10.0.0.0/24")),
            ("10.244.0.0/24", &["10.0.0.0/24"], Some("10.0.1.0/24")),
            ("10.244.0.0/16", &["10.0.7.0/24", "10.1.0.0/16"], Some("10.2.0.0/16")),
            ("10.244.0.0/24", &["10.0.0.0/9", "10.128.0.0/9"], Some("192.168.0.0/24")),
            ("10.244.0.0/16", &["10.0.0.0/8", "192.168.3.0/24"], Some("172.16.0.0/16")),
            ("10.0.0.0/8", &["10.0.0.1/32"], None),
            ("10.0.0.0/7", &[], None),
            ("fd00:1::/64", &["fd00::/64"], Some("fd00:0:0:1::/64")),
        ] {
            let found = found.map(net);
            assert_eq!(replacement(&net(wanted), &default_pools(), &networks(taken)), found, "{wanted}");
        }
    }

    #[test]
    fn the_end_of_the_address_space_is_an_end() {
        let pools = [net("255.255.255.0/24")];
        assert_eq!(replacement(&net("10.0.0.0/25"), &pools, &networks(&["255.255.255.0/24"])), None);
        let pools = [net("ff00::/8")];
        assert_eq!(replacement(&net("fd00::/64"), &pools, &networks(&["ff00::/8"])), None);
    }

    proptest! {
        #[test]
        fn what_is_found_is_free_aligned_and_in_a_pool(
            taken in proptest::collection::vec((any::<u32>(), 8_u8..=32), 0..40),
            length in 12_u8..=28,
        ) {
            let in_ten = |bits: u32| IpAddr::V4((0x0a00_0000 | bits & 0x00ff_ffff).into());
            let taken: Networks =
                taken.into_iter().map(|(bits, length)| IpNet::new(in_ten(bits), length).unwrap()).collect();
            let wanted = IpNet::new(in_ten(0), length).unwrap();
            if let Some(found) = replacement(&wanted, &default_pools(), &taken) {
                prop_assert_eq!(found.prefix_len(), length);
                prop_assert_eq!(found, found.trunc());
                prop_assert!(taken.overlapping(&found).is_none());
                prop_assert!(default_pools().iter().any(|pool| pool.contains(&found)));
            }
        }
    }
}
