//! Samples of short texts.

use crate::Seed;

const ID: &str = "34750f98-bd59-8cfc-946d-a45aaabe933b";
const PIN: &str = "sha256/AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

pub fn seeds() -> Vec<Seed> {
    let texts: &[(&str, &str, &str)] = &[
        ("cluster_id", "derived", ID),
        ("cluster_id", "by-hand", "3f2b6a0e-1c4d-4e5f-9a7b-0c1d2e3f4a5b"),
        ("cluster_name", "plain", "rome"),
        ("cluster_name", "mixed", "Rome_2.eu-south"),
        ("cluster_selector", "labels", "liqo.io/region=eu,tier!=edge,gpu,!slow"),
        ("cluster_selector", "lists", "zone in (a, b),room notin (c,d)"),
        ("cluster_selector", "alternatives", "cores>8,age<3; metadata.name=liqo-turin-dbdb6870cb"),
        (
            "kubelet_question",
            "log",
            "GET /containerLogs/shop/web/app?follow=true&tailLines=9&stream=Stderr&sinceTime=2026-01-01T00%3A00%3A00%2B01%3A00",
        ),
        (
            "kubelet_question",
            "exec",
            "POST /exec/shop/web/0a-1/app?input=1&output=1&tty=1&command=sh&command=-c&command=a+%26+b%3D",
        ),
        ("kubelet_question", "attach", "GET /attach/shop/web/app?error=true"),
        ("kubelet_question", "ports", "POST /portForward/shop/web?port=80,81&port=82"),
        ("kubelet_question", "shadow", "GET /shadowPod/shop/web"),
        ("user_name", "first", "34750f98-bd59-8cfc-946d-a45aaabe933b:0"),
        ("user_name", "last", "34750f98-bd59-8cfc-946d-a45aaabe933b:4294967295"),
        ("pin", "ones", PIN),
        ("https_url", "name", "https://auth.example.org"),
        ("https_url", "port", "https://192.0.2.7:30443"),
        ("https_url", "path", "https://Auth.Example.org.:443/clusters/rome/"),
        ("https_url", "v6", "https://[2001:db8::7]:6443"),
        ("https_url", "mapped", "https://[::ffff:192.0.2.7]:6443/a"),
        ("quantity", "milli", "1500m"),
        ("quantity", "binary", "1.5Gi"),
        ("quantity", "exponent", "129e6"),
        ("quantity", "finest", "0.000000001"),
        ("quantity", "most", "9223372036854775807E"),
        ("local_name", "plain", "rome\n34750f98-bd59-8cfc-946d-a45aaabe933b"),
        ("local_name", "strange", "--R\u{f6}m..e/../\u{1f30b} of the very long name of a city--\nx"),
        ("cluster_address", "name", "example.org"),
        ("cluster_address", "port", "example.org:30443"),
        ("cluster_address", "v6", "2001:db8::7"),
        ("cluster_address", "brackets", " [2001:db8::7]:30443 "),
        ("cluster_address", "url", "https://auth.example.org:30443/"),
        ("zone_records", "plain", "example.org\n_liqo_api._tcp"),
        ("zone_records", "dot", "Example.org.\n_liqo_api._udp"),
        ("generation", "third", "3 2027-01-15T08:00:00Z"),
        ("generation", "last", "4294967295 2027-01-15T08:00:00Z"),
    ];
    let texts = texts.iter().map(|(target, name, text)| (*target, *name, text.as_bytes().to_vec()));
    texts.chain([announcement(&[("more", "unknown")]), announcement(&[])]).collect()
}

/// A TXT record as it is on the wire.
fn announcement(more: &[(&str, &str)]) -> Seed {
    let known = [("v", "1"), ("ID", ID), ("name", "rome"), ("url", "https://192.0.2.7:30443"), ("pin", PIN)];
    let mut record = Vec::new();
    for (key, value) in more.iter().chain(&known) {
        let string = format!("{key}={value}");
        record.push(u8::try_from(string.len()).unwrap_or_default());
        record.extend(string.into_bytes());
    }
    ("announcement", if more.is_empty() { "plain" } else { "more" }, record)
}
