//! Where a pod really runs, however many clusters it was passed on through.
//!
//! Written under `brokering.liqo.io/`; the shorter prefix `broker.liqo.io/` is in use as well and is read,
//! too. An IPv6 address cannot be a label's value, so the address is also an annotation, which counts when
//! the two differ.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::annotations::Annotation;
use super::labels::Label;

const CLUSTER_KEYS: [&str; 2] = ["brokering.liqo.io/root-cid", "broker.liqo.io/root-cid"];
const IP_KEYS: [&str; 2] = ["brokering.liqo.io/root-ip", "broker.liqo.io/root-ip"];

/// The cluster on which a pod really runs, and its address there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The identifier of the cluster.
    pub cluster_id: String,
    /// The address of the pod in that cluster.
    pub ip: IpAddr,
}

impl Root {
    /// The root that this object names, if it names one and the address is one.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let cluster_id = read(meta, CLUSTER_KEYS)?.to_owned();
        let ip = read(meta, IP_KEYS)?.parse().ok()?;
        Some(Self { cluster_id, ip })
    }

    /// Writes the root on this object.
    pub fn put_on(&self, meta: &mut ObjectMeta) {
        Self::take_off(meta);
        Label { key: CLUSTER_KEYS[0] }.put_on(meta, self.cluster_id.clone());
        Annotation { key: IP_KEYS[0] }.put_on(meta, self.ip.to_string());
        if self.ip.is_ipv4() {
            Label { key: IP_KEYS[0] }.put_on(meta, self.ip.to_string());
        }
    }

    /// Takes every form of it off this object.
    pub fn take_off(meta: &mut ObjectMeta) {
        for key in CLUSTER_KEYS.into_iter().chain(IP_KEYS) {
            Label { key }.take_off(meta);
            Annotation { key }.take_off(meta);
        }
    }
}

/// The first annotation there is, else the first label.
fn read<'a>(meta: &'a ObjectMeta, keys: [&'static str; 2]) -> Option<&'a str> {
    let annotation = keys.into_iter().find_map(|key| Annotation { key }.of(meta));
    annotation.or_else(|| keys.into_iter().find_map(|key| Label { key }.of(meta)))
}

#[cfg(test)]
mod tests {
    use super::Root;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn labelled(labels: [(&str, &str); 2]) -> ObjectMeta {
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        ObjectMeta { labels: Some(labels.into()), ..ObjectMeta::default() }
    }

    fn root(ip: &str) -> Root {
        Root { cluster_id: "c1".into(), ip: ip.parse().unwrap() }
    }

    #[test]
    fn both_prefixes_are_read() {
        for prefix in ["brokering", "broker"] {
            let cid = format!("{prefix}.liqo.io/root-cid");
            let ip = format!("{prefix}.liqo.io/root-ip");
            assert_eq!(Root::of(&labelled([(&cid, "c1"), (&ip, "10.0.0.18")])), Some(root("10.0.0.18")));
        }
    }

    #[test]
    fn what_is_written_is_read_back_in_both_address_families() {
        for ip in ["10.0.0.18", "fd00::12"] {
            let mut meta = ObjectMeta::default();
            root(ip).put_on(&mut meta);
            assert_eq!(Root::of(&meta), Some(root(ip)));
            let labels = meta.labels.unwrap();
            assert_eq!(labels.get("brokering.liqo.io/root-cid").map(String::as_str), Some("c1"));
            assert!(labels.values().all(|value| !value.contains(':')), "{labels:?}");
        }
    }

    #[test]
    fn nothing_is_left_when_it_is_taken_off() {
        let mut meta = labelled([("broker.liqo.io/root-cid", "c1"), ("broker.liqo.io/root-ip", "10.0.0.18")]);
        root("10.0.0.19").put_on(&mut meta);
        Root::take_off(&mut meta);
        assert_eq!(Root::of(&meta), None);
        assert!(meta.labels.unwrap().is_empty());
        assert!(meta.annotations.unwrap().is_empty());
    }

    #[test]
    fn an_address_that_is_none_is_not_a_root() {
        let meta = labelled([("brokering.liqo.io/root-cid", "c1"), ("brokering.liqo.io/root-ip", "ten")]);
        assert_eq!(Root::of(&meta), None);
    }
}
