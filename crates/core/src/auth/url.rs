//! The URL of an auth service or API server: the strict part of the syntax that such a URL needs.
//!
//! It may come from anybody, and decides where we connect to. So there is only https, a host and a port, and
//! perhaps a plain path; no user, query or fragment, and none of the forms that programs read differently.
//! Two URLs are equal when they mean the same place.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::identity::serde_as_text;
use crate::names::is_dns_label;

/// Fits into one string of a TXT record, with its key.
const MAX_LENGTH: usize = 250;
/// A host fits into a URL with every port.
const MAX_HOST: usize = MAX_LENGTH - "https://:65535".len();
const HTTPS_PORT: u16 = 443;

/// An https URL without anything that an auth service or API server has no use for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpsUrl {
    host: Host,
    port: u16,
    /// Empty, or a slash and more; never with a slash at the end.
    path: String,
}

impl HttpsUrl {
    /// The root of this host at this port.
    pub fn new(host: Host, port: u16) -> Self {
        Self { host, port, path: String::new() }
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether another machine could mean this: not one of the addresses that every machine has for itself.
    pub fn is_elsewhere(&self) -> bool {
        match &self.host {
            Host::Ip(ip) => is_of_another_machine(ip.to_canonical()),
            Host::Name(name) => name != "localhost" && !name.ends_with(".localhost"),
        }
    }
}

impl FromStr for HttpsUrl {
    type Err = NotAnHttpsUrl;

    fn from_str(text: &str) -> Result<Self, NotAnHttpsUrl> {
        if text.len() > MAX_LENGTH {
            return Err(NotAnHttpsUrl::TooLong);
        }
        let rest = text.strip_prefix("https://").ok_or(NotAnHttpsUrl::Scheme)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = split_port(authority).ok_or(NotAnHttpsUrl::Host)?;
        let host = host.parse()?;
        let port = port.map_or(Some(HTTPS_PORT), read_port).ok_or(NotAnHttpsUrl::Port)?;
        let path = path.trim_end_matches('/');
        if !is_plain_path(path) {
            return Err(NotAnHttpsUrl::Path);
        }
        let url = Self { host, port, path: path.to_owned() };
        // Some addresses take more room as they are written here.
        if url.to_string().len() > MAX_LENGTH { Err(NotAnHttpsUrl::TooLong) } else { Ok(url) }
    }
}

impl fmt::Display for HttpsUrl {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "https://{}", self.host)?;
        if self.port != HTTPS_PORT {
            write!(to, ":{}", self.port)?;
        }
        to.write_str(&self.path)
    }
}

serde_as_text!(HttpsUrl);

/// The host part of a URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A DNS name in lower case, without the dot at the end.
    Name(String),
}

impl FromStr for Host {
    type Err = NotAnHttpsUrl;

    /// Reads a host as it stands in a URL: an IPv6 address in brackets.
    fn from_str(text: &str) -> Result<Self, NotAnHttpsUrl> {
        if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            let ip = inner.parse::<Ipv6Addr>().map_err(|_| NotAnHttpsUrl::Host)?;
            return Ok(Self::Ip(ip.into()));
        }
        if let Ok(ip) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Ip(ip.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if is_dns_name(&name) && name.len() <= MAX_HOST {
            Ok(Self::Name(name))
        } else {
            Err(NotAnHttpsUrl::Host)
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V4(ip)) => ip.fmt(to),
            Self::Ip(IpAddr::V6(ip)) => write!(to, "[{ip}]"),
            Self::Name(name) => to.write_str(name),
        }
    }
}

fn is_of_another_machine(ip: IpAddr) -> bool {
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST)
}

/// Whether the text is a DNS name in lower case, and not a number, which some programs take for an address.
pub(crate) fn is_dns_name(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    text.len() <= 253 && !number && text.split('.').all(is_dns_label)
}

/// Splits `host`, `host:port`, `[v6]` and `[v6]:port`; nothing when there is a user or a stray colon.
pub(crate) fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    let brackets = if authority.starts_with('[') { authority.find(']')? + 1 } else { 0 };
    let Some(colon) = authority[brackets..].find(':') else { return Some((authority, None)) };
    let (host, port) = authority.split_at(brackets + colon);
    let port = &port[1..];
    (!port.contains([':', '@'])).then_some((host, Some(port)))
}

/// A port in plain digits.
pub(crate) fn read_port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

fn is_plain_path(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    let step = |segment: &str| !segment.is_empty() && segment != "." && segment != "..";
    path.is_empty() || (path.bytes().all(plain) && path.split('/').skip(1).all(step))
}

/// The text is not a URL of the sort that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnHttpsUrl {
    /// It is too long.
    #[error("a URL may have at most {MAX_LENGTH} characters")]
    TooLong,
    /// It is not https.
    #[error("the URL must start with https://")]
    Scheme,
    /// There is no host, or not a proper one.
    #[error("the URL must name a host: a DNS name or an IP address, and no user")]
    Host,
    /// The port is none.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// There is more than a plain path.
    #[error("the URL may have a plain path, but no query, fragment or escape")]
    Path,
}

#[cfg(test)]
mod tests {
    use super::{HttpsUrl, NotAnHttpsUrl};
    use proptest::prelude::*;

    fn read(text: &str) -> Result<HttpsUrl, NotAnHttpsUrl> {
        text.parse()
    }

    #[test]
    fn one_place_has_one_form() {
        for (text, canonical) in [
            ("https://auth.example.org", "https://auth.example.org"),
            ("https://Auth.Example.ORG.:443/", "https://auth.example.org"),
            ("https://192.0.2.7:31466/", "https://192.0.2.7:31466"),
            ("https://[FD00:0::1]:30443", "https://[fd00::1]:30443"),
            ("https://gate.example.org/peering/auth/", "https://gate.example.org/peering/auth"),
            ("https://a:0443", "https://a"),
        ] {
            assert_eq!(read(text).unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn what_could_lead_elsewhere_is_refused() {
        use NotAnHttpsUrl::{Host, Path, Port, Scheme, TooLong};
        let long = format!("https://{}", "a.".repeat(130));
        for (text, problem) in [
            ("http://auth.example.org", Scheme),
            ("ftp://auth.example.org", Scheme),
            ("auth.example.org", Scheme),
            ("https://", Host),
            ("https://user@auth.example.org", Host),
            ("https://user:pass@auth.example.org", Host),
            ("https://auth.example.org\\@evil", Host),
            ("https://a b", Host),
            ("https://a\u{0}", Host),
            ("https://żółw.example.org", Host),
            ("https://1.2.3", Host),
            ("https://0x7f000001", Host),
            ("https://010.0.0.1", Host),
            ("https://fd00::1", Host),
            ("https://[fd00::1%25eth0]", Host),
            ("https://[fd00::1]x:1", Host),
            ("https://a?x", Host),
            ("https://a:", Port),
            ("https://a:0", Port),
            ("https://a:+1", Port),
            ("https://a:65536", Port),
            ("https://a/x?y", Path),
            ("https://a/x#y", Path),
            ("https://a/../b", Path),
            ("https://a//b", Path),
            ("https://a/%2e", Path),
            (&long, TooLong),
        ] {
            assert_eq!(read(text), Err(problem), "{text}");
        }
    }

    #[test]
    fn the_machine_itself_is_not_elsewhere() {
        for text in
            ["127.0.0.1", "[::1]", "0.0.0.0", "[::]", "224.0.0.251", "localhost", "[::ffff:127.0.0.1]"]
        {
            assert!(!read(&format!("https://{text}")).unwrap().is_elsewhere(), "{text}");
        }
        for text in ["192.0.2.7", "[fd00::1]", "169.254.3.4", "home.local", "auth.example.org"] {
            assert!(read(&format!("https://{text}")).unwrap().is_elsewhere(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,300}", tail in "[ -~]{0,60}") {
            _ = read(&text);
            _ = read(&format!("https://{tail}"));
        }

        #[test]
        fn clients_understand_the_url_as_we_do(tail in r"[a-z0-9\.\[\]:_~/-]{1,40}") {
            if let Ok(url) = read(&format!("https://{tail}")) {
                let text = url.to_string();
                prop_assert_eq!(read(&text), Ok(url.clone()));
                let uri: http::Uri = text.parse().unwrap();
                prop_assert_eq!(uri.host().unwrap(), url.host().to_string());
                prop_assert_eq!(uri.port_u16().unwrap_or(443), url.port());
            }
        }
    }
}
