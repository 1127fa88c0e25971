//! What a cluster announces of itself, as the TXT record of DNS-SD (RFC 6763).
//!
//! The keys are `v` (the version, 1), `id`, `name`, `url` of the auth service, and `pin` of its key. Keys
//! that are not known are skipped, so that later versions may add some.

use crate::auth::{HttpsUrl, Pin};
use crate::identity::{ClusterId, sha256};
use crate::names::{ClusterName, foreign_cluster};

const VERSION: &str = "1";
const MAX_STRINGS: usize = 32;
const MAX_STRING: usize = 255;

/// What a cluster announces of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Its identifier.
    pub id: ClusterId,
    /// Its name.
    pub name: ClusterName,
    /// Where its auth service is.
    pub auth_url: HttpsUrl,
    /// The key that its auth service shows.
    pub pin: Pin,
}

impl Announcement {
    /// The keys and values of the TXT record.
    pub fn properties(&self) -> [(&'static str, String); 5] {
        [
            ("v", VERSION.to_owned()),
            ("id", self.id.to_string()),
            ("name", self.name.to_string()),
            ("url", self.auth_url.to_string()),
            ("pin", self.pin.to_string()),
        ]
    }

    /// The name of the service instance: one DNS label, different for different clusters.
    pub fn instance(&self) -> String {
        foreign_cluster(self.name.as_str(), &self.id.to_string())
    }

    /// The name under which one node of the cluster announces it: several may do so on one LAN.
    pub fn instance_on(&self, node: &str) -> String {
        let [a, b, c, ..] = sha256(node.as_bytes());
        format!("{}-{a:02x}{b:02x}{c:02x}", self.instance())
    }

    /// Reads the strings of a TXT record, each `key=value`.
    pub fn parse<'a>(strings: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, NotAnAnnouncement> {
        let properties = Properties::read(strings)?;
        if properties.get("v")? != VERSION {
            return Err(NotAnAnnouncement::Version);
        }
        let announcement = Self {
            id: properties.read_with("id", |text| text.parse().ok())?,
            name: properties.read_with("name", |text| text.parse().ok())?,
            auth_url: properties.read_with("url", |text| text.parse().ok())?,
            pin: properties.read_with("pin", |text| text.parse().ok())?,
        };
        announcement.checked()
    }

    /// The announcement, if it may be one of another cluster.
    pub(super) fn checked(self) -> Result<Self, NotAnAnnouncement> {
        if ClusterId::derived(&self.id.to_string()).is_err() {
            Err(NotAnAnnouncement::Invalid { key: "id" })
        } else if self.auth_url.is_elsewhere() {
            Ok(self)
        } else {
            Err(NotAnAnnouncement::Invalid { key: "url" })
        }
    }
}

/// The strings of a TXT record, of which the first with a key counts. Keys are in any case.
struct Properties<'a>(Vec<&'a str>);

impl<'a> Properties<'a> {
    fn read(strings: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, NotAnAnnouncement> {
        let mut texts = Vec::new();
        for string in strings {
            if texts.len() == MAX_STRINGS || string.len() > MAX_STRING {
                return Err(NotAnAnnouncement::TooLong);
            }
            texts.push(std::str::from_utf8(string).unwrap_or_default());
        }
        Ok(Self(texts))
    }

    fn get(&self, key: &'static str) -> Result<&'a str, NotAnAnnouncement> {
        let pairs = self.0.iter().filter_map(|text| text.split_once('='));
        let mut values = pairs.filter(|(found, _)| found.eq_ignore_ascii_case(key)).map(|(_, value)| value);
        values.next().ok_or(NotAnAnnouncement::Missing { key })
    }

    fn read_with<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, NotAnAnnouncement> {
        read(self.get(key)?).ok_or(NotAnAnnouncement::Invalid { key })
    }
}

/// The record is not an announcement that we understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAnnouncement {
    /// There is more of it than any announcement has.
    #[error("the TXT record is too long")]
    TooLong,
    /// It was made by a program that we do not know.
    #[error("the announcement is of another version than {VERSION}")]
    Version,
    /// A key is not there.
    #[error("the announcement has no {key}")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// The value of a key is not what it should be.
    #[error("the announcement has an invalid {key}")]
    Invalid {
        /// The key.
        key: &'static str,
    },
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Announcement, NotAnAnnouncement};
    use crate::auth::Pin;
    use crate::identity::tests::cluster;
    use proptest::prelude::*;

    pub(in crate::discovery) fn announcement(number: u8, url: &str) -> Announcement {
        let identity = cluster(number);
        let identity = identity.identity();
        Announcement {
            id: identity.id(),
            name: identity.name().clone(),
            auth_url: url.parse().unwrap(),
            pin: Pin([number; 32]),
        }
    }

    fn strings(announcement: &Announcement) -> Vec<String> {
        announcement.properties().map(|(key, value)| format!("{key}={value}")).into()
    }

    fn parse(strings: &[String]) -> Result<Announcement, NotAnAnnouncement> {
        Announcement::parse(strings.iter().map(String::as_bytes))
    }

    #[test]
    fn what_is_announced_is_understood() {
        let announced = announcement(1, "https://192.0.2.7:30443");
        let strings = strings(&announced);
        assert!(strings.iter().all(|string| string.len() <= 255));
        assert_eq!(parse(&strings), Ok(announced.clone()));
        assert_eq!(announced.instance(), "cluster-1-8077748d43");
    }

    #[test]
    fn the_order_and_case_of_keys_and_what_is_unknown_do_not_matter() {
        let announced = announcement(1, "https://192.0.2.7:30443");
        let mut strings = strings(&announced);
        strings.reverse();
        strings[4] = "V=1".into();
        strings.insert(0, "colour=blue".into());
        strings.insert(0, "flag".into());
        strings.insert(0, "=x".into());
        strings.push("name=second".into());
        assert_eq!(parse(&strings), Ok(announced));
    }

    #[test]
    fn rubbish_is_refused_by_its_key() {
        use NotAnAnnouncement::{Invalid, Missing, TooLong, Version};
        let long = format!("x={}", "y".repeat(254));
        for (string, problem) in [
            ("v=2", Version),
            ("id=cluster-1", Invalid { key: "id" }),
            ("id=d14e610e-4c1b-402c-a5f1-5ef6f39c0490", Invalid { key: "id" }),
            ("name=a\nb", Invalid { key: "name" }),
            ("name=", Invalid { key: "name" }),
            ("url=http://192.0.2.7", Invalid { key: "url" }),
            ("url=https://user@192.0.2.7", Invalid { key: "url" }),
            ("url=https://127.0.0.1", Invalid { key: "url" }),
            ("pin=sha256/x", Invalid { key: "pin" }),
            (&long, TooLong),
        ] {
            let mut strings = strings(&announcement(1, "https://192.0.2.7:30443"));
            strings.insert(0, string.into());
            assert_eq!(parse(&strings), Err(problem), "{string}");
        }
        for (place, key) in ["v", "id", "name", "url", "pin"].into_iter().enumerate() {
            let mut strings = strings(&announcement(1, "https://192.0.2.7:30443"));
            strings.remove(place);
            assert_eq!(parse(&strings), Err(Missing { key }));
        }
        assert_eq!(parse(&vec!["a=b".into(); 33]), Err(TooLong));
    }

    proptest! {
        #[test]
        fn any_strings_are_read_or_refused(
            strings in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..40),
            tail in "[ -~]{0,100}",
        ) {
            prop_assert!(Announcement::parse(strings.iter().map(Vec::as_slice)).is_err());
            for place in 0..5 {
                let mut strings = self::strings(&announcement(1, "https://192.0.2.7:30443"));
                let key = strings[place].split('=').next().unwrap().to_owned();
                strings[place] = format!("{key}={tail}");
                _ = parse(&strings);
            }
        }
    }
}
