//! Clusters that do not exist, announced on the LAN faster than anybody can look after them.

use std::net::{Ipv4Addr, UdpSocket};

use anyhow::Result;
use ferro_core::auth::Pin;
use ferro_core::discovery::Announcement;
use ferro_core::identity::{Bytes, ClusterId, PublicKey};
use rustix::net::sockopt::{set_ip_multicast_if, set_ip_multicast_ttl};

const GROUP: (Ipv4Addr, u16) = (Ipv4Addr::new(224, 0, 0, 251), 5353);
const KIND: &str = "_liqo_api._tcp.local";

/// Announces so many clusters, each by one datagram with the four records that a real one would send.
pub fn announce(from: Ipv4Addr, count: u32) -> Result<()> {
    let socket = UdpSocket::bind((from, 0))?;
    set_ip_multicast_if(&socket, &from)?;
    set_ip_multicast_ttl(&socket, 255)?;
    for number in 0..count {
        socket.send_to(&datagram(from, number)?, GROUP)?;
    }
    Ok(())
}

fn datagram(from: Ipv4Addr, number: u32) -> Result<Vec<u8>> {
    let (instance, host) = (format!("bogus-{number}.{KIND}"), format!("bogus-{number}.local"));
    let txt: Vec<u8> = announcement(from, number)?
        .properties()
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .flat_map(|text| label(&text))
        .collect();
    let srv = [&[0; 4][..], &443_u16.to_be_bytes(), &name(&host)].concat();
    let records = [
        record(KIND, 12, &name(&instance)),
        record(&instance, 33, &srv),
        record(&instance, 16, &txt),
        record(&host, 1, &from.octets()),
    ];
    Ok([&[0, 0, 0x84, 0, 0, 0, 0, 4, 0, 0, 0, 0][..], &records.concat()].concat())
}

/// Well formed, with an address at which nobody listens: only the proof is missing.
fn announcement(from: Ipv4Addr, number: u32) -> Result<Announcement> {
    let mut key = [7; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    Ok(Announcement {
        id: ClusterId::of(&PublicKey(Bytes(key))),
        name: format!("bogus-{number}").parse()?,
        auth_url: format!("https://{from}:1").parse()?,
        pin: Pin(key),
    })
}

fn record(of: &str, kind: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap_or(u16::MAX);
    let fields = [&kind.to_be_bytes()[..], &1_u16.to_be_bytes(), &4500_u32.to_be_bytes()].concat();
    [&name(of)[..], &fields, &length.to_be_bytes(), data].concat()
}

fn name(text: &str) -> Vec<u8> {
    text.split('.').flat_map(label).chain([0]).collect()
}

fn label(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    [&[length][..], text.as_bytes()].concat()
}
