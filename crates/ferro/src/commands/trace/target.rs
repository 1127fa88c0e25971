//! To whom a packet is sent, as a person writes it.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// An address, or a Service by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Address(IpAddr),
    Service { name: String, namespace: Option<String>, port: Option<String> },
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Address(ip));
        }
        // All ports of an address have the same way.
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::Address(address.ip()));
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let mut labels = host.splitn(3, '.');
        let (name, namespace, rest) = (labels.next().unwrap_or_default(), labels.next(), labels.next());
        let is_service = rest.is_none_or(|rest| rest == "svc" || rest.starts_with("svc."));
        let all = [Some(name), namespace, port];
        if !is_service || !all.into_iter().flatten().all(ferro_core::names::is_dns_label) {
            return Err("it has to be an address such as 10.0.0.5, or a Service such as web.shop:80".into());
        }
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Ok(Self::Service { name: name.into(), namespace: owned(namespace), port: owned(port) })
    }
}

#[cfg(test)]
mod tests {
    use super::Wanted;

    fn service(name: &str, namespace: Option<&str>, port: Option<&str>) -> Wanted {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Wanted::Service { name: name.into(), namespace: owned(namespace), port: owned(port) }
    }

    #[test]
    fn an_address_or_a_service_is_understood() {
        for (text, wanted) in [
            ("10.0.0.5", Wanted::Address("10.0.0.5".parse().unwrap())),
            ("10.0.0.5:80", Wanted::Address("10.0.0.5".parse().unwrap())),
            ("fd00::5", Wanted::Address("fd00::5".parse().unwrap())),
            ("[fd00::5]:80", Wanted::Address("fd00::5".parse().unwrap())),
            ("web", service("web", None, None)),
            ("web:http", service("web", None, Some("http"))),
            ("web.shop:80", service("web", Some("shop"), Some("80"))),
            ("web.shop.svc.cluster.local", service("web", Some("shop"), None)),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in ["", "web.", ".shop", "10.0.0.256", "example.org.", "a.b.c", "web:", "Web", "web:80:90"] {
            let error = text.parse::<Wanted>().unwrap_err();
            assert!(error.contains("web.shop:80"), "{text}");
        }
    }
}
