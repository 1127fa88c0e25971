//! What is asked at the port of a virtual node's kubelet, which everybody in the cluster can reach.

use ferro_offload::kubelet::asked_there;

use crate::{Read, text};

/// How the pod is called over there, and what can be asked of it.
const NAMESPACE: &str = "over-there";
const POD: &str = "web-1";
const ITS_PATH: &str = "/api/v1/namespaces/over-there/pods/web-1";
const ITS_SHADOW: &str = "/apis/virtualkubelet.liqo.io/v1alpha1/namespaces/over-there/shadowpods/web-1";
const PARAMETERS: [&str; 15] = [
    "command",
    "container",
    "follow",
    "limitBytes",
    "ports",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "stderr",
    "stdin",
    "stdout",
    "stream",
    "tailLines",
    "timestamps",
    "tty",
];

/// A method, and behind a space what it is about. Whatever is asked, the cluster of the pod is asked about that pod, in a
/// way that we know and by parameters that we know; and who only reads does nothing else.
pub fn kubelet_question(data: &[u8]) -> Read {
    let (method, about) = text(data)?.split_once(' ')?;
    let there = asked_there(method, about, NAMESPACE, POD)?;
    let (path, query) = there.split_once('?').unwrap_or((there.as_str(), ""));
    let acts = match path.strip_prefix(ITS_PATH) {
        Some("" | "/log") => false,
        Some("/attach" | "/exec" | "/portforward") => true,
        _ => {
            assert_eq!(path, ITS_SHADOW);
            false
        }
    };
    assert!(method == "GET" || (method == "POST" && acts), "{method} {there}");
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or_default();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "*-._+%".contains(letter);
        assert!(PARAMETERS.contains(&key) && value.chars().all(is_plain), "{there}");
    }
    Some(())
}
