//! What is heard on the LAN and found in DNS: anybody may have said it.

use ferro_core::discovery::{Announcement, Report, Zone, candidates, zone_records as records};
use ferro_core::names::is_dns_label;
use k8s_openapi::jiff::Timestamp;

use crate::{NOW, Read, text};

const SERVICE: &str = "_liqo_api._tcp";
/// The longest string of a TXT record.
const LONGEST: usize = 255;

/// The strings of a TXT record, as they are on the wire: a byte for the length before each.
fn strings(mut data: &[u8]) -> Vec<&[u8]> {
    let mut strings = Vec::new();
    while let Some((length, rest)) = data.split_first() {
        let (string, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        strings.push(string);
        data = rest;
    }
    strings
}

fn properties(announcement: &Announcement) -> [String; 5] {
    announcement.properties().map(|(key, value)| format!("{key}={value}"))
}

fn check(announcement: &Announcement) {
    let written = properties(announcement);
    assert!(written.iter().all(|string| string.len() <= LONGEST), "{written:?}");
    assert_eq!(Announcement::parse(written.iter().map(String::as_bytes)).as_ref(), Ok(announcement));
    assert!(is_dns_label(&announcement.instance()) && is_dns_label(&announcement.instance_on("node")));
}

/// The announcement of a cluster, in the TXT record of DNS-SD.
pub fn announcement(data: &[u8]) -> Read {
    let announcement = Announcement::parse(strings(data)).ok()?;
    check(&announcement);
    let zone = Zone { domain: "example.org", service: SERVICE, ttl: 60, addresses: &[] };
    check_lines(&records(&announcement, &zone).ok()?);
    Some(())
}

/// What one node tells the controller that it has heard.
pub fn lan_report(data: &[u8]) -> Read {
    let now = Timestamp::from_second(NOW).ok()?;
    let report = Report::parse(data, now).ok()?;
    assert!(report.heard.len() <= Report::MOST);
    assert!(report.expires_at <= now.saturating_add(Report::LEASE).ok()?);
    report.heard.values().for_each(check);
    let written = report.to_json().ok()?;
    assert_eq!(Report::parse(written.as_bytes(), now), Ok(report));
    Some(())
}

/// What a person gives as the address of a cluster.
pub fn cluster_address(data: &[u8]) -> Read {
    let found = candidates(text(data)?, SERVICE).ok()?;
    assert_eq!(found.url.to_string().parse().as_ref(), Ok(&found.url));
    let name = found.srv_name.unwrap_or_default();
    assert!(name.is_empty() || name.starts_with(SERVICE) && name.ends_with('.'));
    Some(())
}

/// Each line is one record of the zone, and nothing that was given can begin another one.
fn check_lines(lines: &[String]) {
    assert!((3..=4).contains(&lines.len()), "{lines:?}");
    for line in lines {
        assert!(line.chars().all(|character| (' '..='~').contains(&character)), "{line:?}");
        let kind = line.split(' ').nth(3).unwrap_or_default();
        assert!(["PTR", "SRV", "TXT", "A", "AAAA"].contains(&kind), "{line:?}");
    }
}

/// The domain and the service of which somebody wants the records.
pub fn zone_records(data: &[u8]) -> Read {
    let (domain, service) = text(data)?.split_once('\n')?;
    let announcement = Announcement {
        id: crate::own_id()?,
        name: "rome".parse().ok()?,
        auth_url: "https://192.0.2.7:30443".parse().ok()?,
        pin: "sha256/AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".parse().ok()?,
    };
    check_lines(&records(&announcement, &Zone { domain, service, ttl: 60, addresses: &[] }).ok()?);
    Some(())
}
