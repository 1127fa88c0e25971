//! One network that stands for another: the network part is exchanged, the host part stays.

use std::net::IpAddr;

use ipnet::IpNet;

/// Two networks that cannot stand for each other, address by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// One has addresses of IPv4, the other of IPv6.
    #[error("{0} and {1} are not of the same family")]
    Family(IpNet, IpNet),
    /// Hosts of the larger one would share addresses in the smaller one.
    #[error("{0} and {1} are not of the same size")]
    Size(IpNet, IpNet),
}

/// The address with its network part exchanged; none when the families differ.
pub fn map_to_network(ip: IpAddr, network: IpNet) -> Option<IpAddr> {
    match (ip, network) {
        (IpAddr::V4(ip), IpNet::V4(network)) => {
            let host = ip.to_bits() & network.hostmask().to_bits();
            Some(IpAddr::V4((network.network().to_bits() | host).into()))
        }
        (IpAddr::V6(ip), IpNet::V6(network)) => {
            let host = ip.to_bits() & network.hostmask().to_bits();
            Some(IpAddr::V6((network.network().to_bits() | host).into()))
        }
        (IpAddr::V4(_), IpNet::V6(_)) | (IpAddr::V6(_), IpNet::V4(_)) => None,
    }
}

/// A network and the one that stands for it somewhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Translation {
    here: IpNet,
    there: IpNet,
}

impl Translation {
    /// Lets a network stand for another one of the same size.
    pub fn new(here: IpNet, there: IpNet) -> Result<Self, Unlike> {
        if here.max_prefix_len() != there.max_prefix_len() {
            return Err(Unlike::Family(here, there));
        }
        if here.prefix_len() != there.prefix_len() {
            return Err(Unlike::Size(here, there));
        }
        Ok(Self { here: here.trunc(), there: there.trunc() })
    }

    /// A network that keeps its name.
    pub fn identity(network: IpNet) -> Self {
        Self { here: network.trunc(), there: network.trunc() }
    }

    /// The network as it is named here.
    pub fn here(&self) -> IpNet {
        self.here
    }

    /// The network as it is named there.
    pub fn there(&self) -> IpNet {
        self.there
    }

    /// Whether it has the same name on both sides.
    pub fn is_identity(&self) -> bool {
        self.here == self.there
    }

    /// An address of here in the name of there; none for an address of another network.
    pub fn outward(&self, ip: IpAddr) -> Option<IpAddr> {
        if self.here.contains(&ip) { map_to_network(ip, self.there) } else { None }
    }

    /// An address of there in the name of here; none for an address of another network.
    pub fn inward(&self, ip: IpAddr) -> Option<IpAddr> {
        if self.there.contains(&ip) { map_to_network(ip, self.here) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn the_network_part_is_exchanged_and_the_host_part_stays() {
        for (old, network, new) in [
            ("10.1.0.5", "10.0.0.0/24", "10.0.0.5"),
            ("10.244.0.5", "10.0.0.0/24", "10.0.0.5"),
            ("192.168.0.45", "192.168.1.0/24", "192.168.1.45"),
            ("10.1.37.200", "172.16.80.0/20", "172.16.85.200"),
            ("10.96.1.7", "10.128.0.0/10", "10.160.1.7"),
            ("10.42.3.9", "10.45.0.0/16", "10.45.3.9"),
            ("192.168.0.200", "10.3.0.0/25", "10.3.0.72"),
            ("fd00:1::5", "fd00:2::/64", "fd00:2::5"),
            ("10.1.0.5", "0.0.0.0/0", "10.1.0.5"),
            ("10.1.0.5", "10.9.9.9/32", "10.9.9.9"),
        ] {
            let mapped = map_to_network(old.parse().unwrap(), net(network)).unwrap();
            assert_eq!(mapped.to_string(), new, "{old} in {network}");
        }
        assert_eq!(map_to_network("10.1.0.5".parse().unwrap(), net("fd00::/64")), None);
    }

    #[test]
    fn networks_of_unequal_size_or_family_do_not_stand_for_each_other() {
        let (a, b, c) = (net("192.168.0.0/24"), net("10.3.0.0/25"), net("fd00::/120"));
        assert_eq!(Translation::new(a, b), Err(Unlike::Size(a, b)));
        assert_eq!(Translation::new(a, c), Err(Unlike::Family(a, c)));
    }

    #[test]
    fn addresses_of_other_networks_are_not_touched() {
        let translation = Translation::new(net("10.244.0.0/24"), net("10.0.40.0/24")).unwrap();
        assert_eq!(translation.outward("10.244.1.7".parse().unwrap()), None);
        assert_eq!(translation.inward("10.244.0.7".parse().unwrap()), None);
        assert_eq!(translation.outward("10.244.0.7".parse().unwrap()), "10.0.40.7".parse().ok());
    }

    proptest! {
        #[test]
        fn there_and_back_is_where_it_was(ip: u32, here: u32, there: u32, length in 0_u8..=32) {
            let of = |bits: u32| IpNet::new(IpAddr::V4(bits.into()), length).unwrap();
            let translation = Translation::new(of(here), of(there)).unwrap();
            let ip = map_to_network(IpAddr::V4(ip.into()), of(here)).unwrap();
            let out = translation.outward(ip).unwrap();
            prop_assert!(translation.there().contains(&out));
            prop_assert_eq!(translation.inward(out), Some(ip));
        }
    }
}
