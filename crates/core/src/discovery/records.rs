//! The DNS records by which a cluster is found in a domain, as lines of a zone file (RFC 1035).

use std::net::IpAddr;

use super::Announcement;
use crate::auth::Host;
use crate::auth::url::is_dns_name;

/// Where the records are registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone<'a> {
    /// The domain, such as `example.org`.
    pub domain: &'a str,
    /// The service type, such as `_liqo_api._tcp`.
    pub service: &'a str,
    /// How long others may remember the records, in seconds.
    pub ttl: u32,
    /// The addresses of the auth service, where its URL has a name of this domain that is to get them.
    pub addresses: &'a [IpAddr],
}

/// The records to register: PTR, SRV and TXT, and A or AAAA where the host has its name from this domain.
pub fn zone_records(announcement: &Announcement, zone: &Zone<'_>) -> Result<Vec<String>, BadZone> {
    let domain = zone.domain.strip_suffix('.').unwrap_or(zone.domain).to_ascii_lowercase();
    if !is_dns_name(&domain) {
        return Err(BadZone::Domain);
    }
    if !is_service(zone.service) {
        return Err(BadZone::Service);
    }
    let service = format!("{}.{domain}.", zone.service);
    let instance = format!("{}.{service}", announcement.instance());
    let (host, addresses) = host(announcement, &domain, zone.addresses);
    let strings = announcement.properties().map(|(key, value)| format!("\"{key}={value}\"")).join(" ");

    let line = |name: &str, data: String| format!("{name} {} IN {data}", zone.ttl);
    let mut lines = vec![
        line(&service, format!("PTR {instance}")),
        line(&instance, format!("SRV 0 0 {} {host}", announcement.auth_url.port())),
        line(&instance, format!("TXT {strings}")),
    ];
    lines.extend(addresses.into_iter().map(|address| line(&host, address_data(address))));
    Ok(lines)
}

/// The host of the SRV record, and the addresses that this zone has to give it.
fn host(announcement: &Announcement, domain: &str, addresses: &[IpAddr]) -> (String, Vec<IpAddr>) {
    match announcement.auth_url.host() {
        Host::Ip(ip) => (format!("{}.{domain}.", announcement.instance()), vec![*ip]),
        Host::Name(name) if name.strip_suffix(domain).is_some_and(|head| head.ends_with('.')) => {
            (format!("{name}."), addresses.to_vec())
        }
        Host::Name(name) => (format!("{name}."), Vec::new()),
    }
}

fn address_data(address: IpAddr) -> String {
    match address {
        IpAddr::V4(ip) => format!("A {ip}"),
        IpAddr::V6(ip) => format!("AAAA {ip}"),
    }
}

/// Whether the text is a service type of DNS-SD: `_name._tcp` or `_name._udp`.
fn is_service(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let name = text.strip_suffix("._tcp").or_else(|| text.strip_suffix("._udp"));
    let name = name.and_then(|name| name.strip_prefix('_'));
    name.is_some_and(|name| (1..=57).contains(&name.len()) && name.bytes().all(allowed))
}

/// The records cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadZone {
    /// The domain is none.
    #[error("the domain must be a DNS name, such as example.org")]
    Domain,
    /// The service is none.
    #[error("the service must look like _liqo_api._tcp")]
    Service,
}

#[cfg(test)]
mod tests {
    use super::{BadZone, Zone, zone_records};
    use crate::discovery::Announcement;
    use crate::discovery::announcement::tests::announcement;

    const ZONE: Zone<'_> =
        Zone { domain: "Example.org.", service: "_liqo_api._tcp", ttl: 300, addresses: &[] };

    #[test]
    fn a_cluster_known_by_its_address_gets_a_name() {
        let lines = zone_records(&announcement(1, "https://192.0.2.7:30443"), &ZONE).unwrap();
        let pin = "sha256/AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
        assert_eq!(
            lines,
            [
                "_liqo_api._tcp.example.org. 300 IN PTR cluster-1-8077748d43._liqo_api._tcp.example.org.",
                "cluster-1-8077748d43._liqo_api._tcp.example.org. 300 IN SRV 0 0 30443 \
                 cluster-1-8077748d43.example.org.",
                &format!(
                    "cluster-1-8077748d43._liqo_api._tcp.example.org. 300 IN TXT \"v=1\" \
                     \"id=34750f98-bd59-8cfc-946d-a45aaabe933b\" \"name=cluster-1\" \
                     \"url=https://192.0.2.7:30443\" \"pin={pin}\""
                ),
                "cluster-1-8077748d43.example.org. 300 IN A 192.0.2.7",
            ]
        );
    }

    #[test]
    fn a_name_of_the_domain_gets_its_addresses_and_others_do_not() {
        let addresses = ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        let zone = Zone { addresses: &addresses, ..ZONE };
        let lines = zone_records(&announcement(1, "https://auth.example.org"), &zone).unwrap();
        assert!(lines[1].ends_with(" SRV 0 0 443 auth.example.org."), "{}", lines[1]);
        assert_eq!(
            lines[3..],
            ["auth.example.org. 300 IN A 192.0.2.7", "auth.example.org. 300 IN AAAA 2001:db8::7"]
        );
        for url in ["https://auth.example.net", "https://notexample.org"] {
            assert_eq!(zone_records(&announcement(1, url), &zone).unwrap().len(), 3);
        }
    }

    #[test]
    fn what_was_printed_is_understood_when_it_is_found() {
        let announced = announcement(1, "https://auth.example.org:30443/gate");
        let lines = zone_records(&announced, &ZONE).unwrap();
        let strings: Vec<_> = lines[2].split('"').skip(1).step_by(2).map(str::as_bytes).collect();
        assert_eq!(Announcement::parse(strings), Ok(announced));
    }

    #[test]
    fn a_domain_or_service_that_would_break_the_zone_is_refused() {
        let announced = announcement(1, "https://192.0.2.7");
        for domain in ["", "a b", "a\nb", "a;b", "-a"] {
            assert_eq!(
                zone_records(&announced, &Zone { domain, ..ZONE }),
                Err(BadZone::Domain),
                "{domain:?}"
            );
        }
        for service in ["", "_tcp", "_a._sctp", "a._tcp", "_._tcp", "_a b._tcp"] {
            assert_eq!(
                zone_records(&announced, &Zone { service, ..ZONE }),
                Err(BadZone::Service),
                "{service}"
            );
        }
    }
}
