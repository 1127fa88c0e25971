//! The heads of an upgrade, there and back: only what the two protocols need, and nothing by which anybody is known.

use hyper::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use hyper::{Method, StatusCode};

use super::refusal::Refusal;

/// A client's choice of protocols, and that of a server.
const ASKED: [&str; 4] =
    ["x-stream-protocol-version", "sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions"];
const ANSWERED: [&str; 4] = [
    "x-stream-protocol-version",
    "sec-websocket-accept",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
];
const SUBPROTOCOL: &str = "sec-websocket-protocol";
/// Under this name a browser sends a token, which is for this cluster only.
const TOKEN: &str = "base64url.bearer.authorization.k8s.io.";
/// The most that is passed on of one sort.
const MOST: usize = 16;

/// Whether anything else than an answer is wished.
pub(super) fn is_wished(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE)
}

/// An upgrade that is wished.
#[derive(Debug)]
pub(super) struct Upgrade {
    protocol: HeaderValue,
    /// How to ask for it. Streams of the older protocol begin with a POST; that of browsers is only for GET.
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
}

impl Upgrade {
    /// What a request wishes.
    pub(super) fn of(wished: &HeaderMap) -> Result<Self, Refusal> {
        let mut protocols = wished.get_all(UPGRADE).iter();
        let (Some(protocol), None) = (protocols.next(), protocols.next()) else {
            return Err(Refusal::bad("Upgrade request required"));
        };
        let says_so = wished
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|option| option.trim().eq_ignore_ascii_case("upgrade"));
        let method = match protocol.as_bytes().to_ascii_lowercase().as_slice() {
            b"spdy/3.1" => Method::POST,
            b"websocket" => Method::GET,
            _ => return Err(Refusal::bad("the upgrade is neither to SPDY/3.1 nor to websocket")),
        };
        if !says_so {
            return Err(Refusal::bad("Upgrade request required"));
        }
        let mut headers = picked(wished, &ASKED);
        let subprotocols = subprotocols(wished);
        if !subprotocols.is_empty() {
            let value = HeaderValue::from_str(&subprotocols.join(", "));
            let value = value.map_err(|_| Refusal::bad("the protocols cannot be read"))?;
            headers.insert(HeaderName::from_static(SUBPROTOCOL), value);
        }
        put_upgrade(&mut headers, protocol.clone());
        Ok(Self { protocol: protocol.clone(), method, headers })
    }

    /// How the answer of the other side is passed on; it must be to just what was asked for.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Result<HeaderMap, Refusal> {
        let granted = headers.get(UPGRADE).map(|granted| granted.as_bytes().to_ascii_lowercase());
        if granted.as_deref() != Some(self.protocol.as_bytes().to_ascii_lowercase().as_slice()) {
            let message = "the other cluster turns the connection into something that was not asked for";
            return Err(Refusal::new(StatusCode::BAD_GATEWAY, message));
        }
        let mut answer = picked(headers, &ANSWERED);
        put_upgrade(&mut answer, self.protocol.clone());
        Ok(answer)
    }
}

fn put_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, protocol);
}

fn picked(from: &HeaderMap, names: &[&'static str]) -> HeaderMap {
    let mut picked = HeaderMap::new();
    for name in names {
        for value in from.get_all(*name).iter().take(MOST) {
            picked.append(HeaderName::from_static(name), value.clone());
        }
    }
    picked
}

fn subprotocols(from: &HeaderMap) -> Vec<&str> {
    let values = from.get_all(SUBPROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let all = values.flat_map(|value| value.split(',')).map(str::trim);
    all.filter(|one| !one.is_empty() && !one.starts_with(TOKEN)).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn only_what_the_protocol_needs_is_passed_on() {
        let wished = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("x-stream-protocol-version", "v3.channel.k8s.io"),
            ("authorization", "Bearer secret"),
            ("x-forwarded-for", "192.0.2.1"),
            ("impersonate-user", "admin"),
        ]);
        let upgrade = Upgrade::of(&wished).unwrap();
        assert_eq!(upgrade.method, Method::POST);
        assert_eq!(upgrade.headers.len(), 4, "{:?}", upgrade.headers);
        assert_eq!(upgrade.headers.get_all("x-stream-protocol-version").iter().count(), 2);
        let answer = upgrade.answer(&headers(&[
            ("connection", "Upgrade"),
            ("upgrade", "spdy/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("set-cookie", "a=b"),
        ]));
        let answer = answer.unwrap();
        assert_eq!(answer["x-stream-protocol-version"], "v4.channel.k8s.io");
        assert_eq!(
            (&answer["upgrade"], &answer["connection"], answer.len()),
            (&HeaderValue::from_static("SPDY/3.1"), &HeaderValue::from_static("Upgrade"), 3)
        );
        assert_eq!(upgrade.answer(&headers(&[("upgrade", "websocket")])).unwrap_err().status.as_u16(), 502);
        assert!(upgrade.answer(&HeaderMap::new()).is_err());
    }

    #[test]
    fn the_token_of_a_browser_stays_in_this_cluster() {
        let wished = headers(&[
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "x"),
            ("sec-websocket-protocol", "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0"),
        ]);
        let upgrade = Upgrade::of(&wished).unwrap();
        assert_eq!(upgrade.method, Method::GET);
        assert_eq!(upgrade.headers["sec-websocket-protocol"], "v4.channel.k8s.io");
    }

    #[test]
    fn other_upgrades_are_refused() {
        for wished in [
            headers(&[]),
            headers(&[("upgrade", "SPDY/3.1")]),
            headers(&[("connection", "upgrade")]),
            headers(&[("connection", "upgrade"), ("upgrade", "h2c")]),
            headers(&[("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "SPDY/3.1")]),
        ] {
            assert_eq!(Upgrade::of(&wished).unwrap_err().status.as_u16(), 400, "{wished:?}");
        }
    }
}
