//! What a person may give as the address of a cluster, and where to look for its auth service then.
//!
//! A URL is taken as it is, and so is a host with a port. A bare host is tried at the usual port, and if
//! there is nothing, its domain may say by an SRV record where to go.

use std::net::Ipv6Addr;

use crate::auth::url::{read_port, split_port};
use crate::auth::{Host, HttpsUrl, NotAnHttpsUrl};

/// The port of an auth service where nothing else is said: one that Kubernetes may open on every node.
pub const AUTH_PORT: u16 = 30443;

/// Where an auth service may be, in the order in which to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// The URL to try first.
    pub url: HttpsUrl,
    /// The name whose SRV records tell of others, if the URL does not answer.
    pub srv_name: Option<String>,
}

/// Where to look for the auth service of a cluster at this address; `service` is the type of DNS-SD.
pub fn candidates(address: &str, service: &str) -> Result<Candidates, BadAddress> {
    let address = address.trim();
    if address.contains("://") {
        return Ok(Candidates { url: address.parse()?, srv_name: None });
    }
    if let Ok(ip) = address.parse::<Ipv6Addr>() {
        return Ok(Candidates { url: HttpsUrl::new(Host::Ip(ip.into()), AUTH_PORT), srv_name: None });
    }
    let (host, port) = split_port(address).ok_or(BadAddress::NeitherHostNorUrl)?;
    let host: Host = host.parse().map_err(|_| BadAddress::NeitherHostNorUrl)?;
    let srv_name = match &host {
        Host::Name(name) if port.is_none() => Some(format!("{service}.{name}.")),
        Host::Name(_) | Host::Ip(_) => None,
    };
    let port = port.map_or(Some(AUTH_PORT), read_port).ok_or(NotAnHttpsUrl::Port)?;
    Ok(Candidates { url: HttpsUrl::new(host, port), srv_name })
}

/// The text is not the address of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// It is a URL, but not a proper one.
    #[error(transparent)]
    Url(#[from] NotAnHttpsUrl),
    /// It is something else.
    #[error("give a host name, an IP address, or a URL such as https://auth.example.org:30443")]
    NeitherHostNorUrl,
}

#[cfg(test)]
mod tests {
    use super::{BadAddress, candidates};
    use crate::auth::NotAnHttpsUrl;
    use proptest::prelude::*;

    const SERVICE: &str = "_liqo_api._tcp";

    #[test]
    fn every_form_of_an_address_leads_to_an_auth_service() {
        let srv = Some("_liqo_api._tcp.auth.example.org.");
        for (address, url, srv_name) in [
            ("https://auth.example.org", "https://auth.example.org", None),
            (" https://192.0.2.7:31466/x ", "https://192.0.2.7:31466/x", None),
            ("auth.example.org", "https://auth.example.org:30443", srv),
            ("Auth.Example.org.", "https://auth.example.org:30443", srv),
            ("auth.example.org:443", "https://auth.example.org", None),
            ("192.0.2.7", "https://192.0.2.7:30443", None),
            ("192.0.2.7:6443", "https://192.0.2.7:6443", None),
            ("fd00::7", "https://[fd00::7]:30443", None),
            ("[fd00::7]", "https://[fd00::7]:30443", None),
            ("[fd00::7]:443", "https://[fd00::7]", None),
        ] {
            let found = candidates(address, SERVICE).unwrap();
            assert_eq!((found.url.to_string().as_str(), found.srv_name.as_deref()), (url, srv_name));
        }
    }

    #[test]
    fn what_is_no_address_is_told_what_would_be_one() {
        for (address, problem) in [
            ("", BadAddress::NeitherHostNorUrl),
            ("auth example", BadAddress::NeitherHostNorUrl),
            ("auth.example.org/path", BadAddress::NeitherHostNorUrl),
            ("user@auth.example.org", BadAddress::NeitherHostNorUrl),
            ("auth.example.org:0", BadAddress::Url(NotAnHttpsUrl::Port)),
            ("http://auth.example.org", BadAddress::Url(NotAnHttpsUrl::Scheme)),
        ] {
            assert_eq!(candidates(address, SERVICE), Err(problem), "{address}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,100}") {
            if let Ok(found) = candidates(&text, SERVICE) {
                prop_assert_eq!(found.url.to_string().parse(), Ok(found.url));
            }
        }
    }
}
