//! What an API server asks of a kubelet, and how the same is asked of the API server of a peer.
//!
//! Pure. Paths are those of a kubelet; parameters that are known are read strictly, others are left out, as a kubelet
//! does with what a newer API server may add.

use ferro_core::names::{is_dns_label, is_dns_subdomain};
use form_urlencoded::Serializer;
use hyper::Method;
use hyper::StatusCode;
use k8s_openapi::jiff::Timestamp;

use super::refusal::Refusal;

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Whether it lives.
    Health,
    /// What the pods of the node use.
    Usage(Page),
    /// Something about a pod.
    Pod(Ask),
}

/// In which form usage is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Metrics,
    Summary,
}

impl Page {
    /// The part of a node of which one has to have the right to read.
    pub(super) fn subresources(self) -> &'static [&'static str] {
        match self {
            Self::Metrics => &["metrics"],
            Self::Summary => &["stats"],
        }
    }
}

/// What is asked about a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) what: What,
    /// The pod as it is named here.
    pub(super) namespace: String,
    pub(super) pod: String,
    /// Its container, where one is asked about.
    pub(super) container: Option<String>,
    /// Only the pod with this identifier is meant.
    pub(super) uid: Option<String>,
    /// The parameters for an API server.
    query: String,
    /// It may take long until there is anything to answer.
    pub(super) may_be_silent: bool,
}

/// The part of a pod that is wished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Log,
    Exec,
    Attach,
    PortForward,
    /// The ShadowPod and the pod over there, as they are: what no other kubelet is asked.
    Shadow,
    Remote,
}

impl What {
    fn path(self, namespace: &str, pod: &str) -> String {
        let pods = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
        match self {
            Self::Log => pods + "/log",
            Self::Exec => pods + "/exec",
            Self::Attach => pods + "/attach",
            Self::PortForward => pods + "/portforward",
            Self::Shadow => {
                format!("/apis/virtualkubelet.liqo.io/v1alpha1/namespaces/{namespace}/shadowpods/{pod}")
            }
            Self::Remote => pods,
        }
    }

    /// Whether it only looks.
    fn is_read(self) -> bool {
        match self {
            Self::Log | Self::Shadow | Self::Remote => true,
            Self::Exec | Self::Attach | Self::PortForward => false,
        }
    }
}

impl Question {
    /// Reads a request. Where only some methods make sense, others are refused.
    pub(super) fn parse(method: &Method, path: &str, query: &str) -> Result<Self, Refusal> {
        let mut parts = path.strip_prefix('/').unwrap_or_default().split('/');
        let first = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        let of_node = match (first, rest.as_slice()) {
            ("healthz", []) => Some(Self::Health),
            ("metrics", ["resource"]) => Some(Self::Usage(Page::Metrics)),
            ("stats", ["summary"]) => Some(Self::Usage(Page::Summary)),
            _ => None,
        };
        if let Some(of_node) = of_node {
            return if method == Method::GET { Ok(of_node) } else { Err(wrong_method()) };
        }
        let what = match (first, rest.as_slice()) {
            ("containerLogs", [_, _, _]) => What::Log,
            ("exec", [_, _, _] | [_, _, _, _]) => What::Exec,
            ("attach", [_, _, _] | [_, _, _, _]) => What::Attach,
            ("portForward", [_, _] | [_, _, _]) => What::PortForward,
            ("shadowPod", [_, _]) => What::Shadow,
            ("remotePod", [_, _]) => What::Remote,
            _ => return Err(Refusal::new(StatusCode::NOT_FOUND, "404 page not found")),
        };
        let fits = *method == Method::GET || (*method == Method::POST && !what.is_read());
        if !fits {
            return Err(wrong_method());
        }
        Ask::parse(what, &rest, query).map(Self::Pod)
    }
}

impl Ask {
    fn parse(what: What, path: &[&str], query: &str) -> Result<Self, Refusal> {
        let (uid, container) = match (what, path) {
            (What::PortForward | What::Shadow | What::Remote, [_, _]) => (None, None),
            (What::PortForward, [_, _, uid]) => (Some(*uid), None),
            (_, [_, _, container]) => (None, Some(*container)),
            (_, [_, _, uid, container]) => (Some(*uid), Some(*container)),
            _ => return Err(Refusal::bad("the path is not one of a pod")),
        };
        let [namespace, pod, ..] = path else { return Err(Refusal::bad("the path is not one of a pod")) };
        let named = is_dns_label(namespace)
            && is_dns_subdomain(pod)
            && container.is_none_or(is_dns_label)
            && uid.is_none_or(is_uid);
        if !named {
            return Err(Refusal::bad("the path has a name that no namespace, pod or container can have"));
        }
        let given = Given::parse(query)?;
        let mut out = Serializer::new(String::new());
        if let Some(container) = container {
            out.append_pair("container", container);
        }
        let may_be_silent = match what {
            What::Log => log(&given, &mut out)?,
            What::Exec | What::Attach => {
                streams(&given, &mut out)?;
                if what == What::Exec {
                    command(&given, &mut out)?;
                }
                false
            }
            What::PortForward => ports(&given, &mut out).map(|()| false)?,
            What::Shadow | What::Remote => false,
        };
        let (namespace, pod) = ((*namespace).to_owned(), (*pod).to_owned());
        let (container, uid) = (container.map(str::to_owned), uid.map(str::to_owned));
        Ok(Self { what, namespace, pod, container, uid, query: out.finish(), may_be_silent })
    }

    /// Path and query for the API server of a peer, where the pod has this name.
    pub(super) fn at_peer(&self, namespace: &str, pod: &str) -> String {
        let base = self.what.path(namespace, pod);
        if self.query.is_empty() { base } else { format!("{base}?{}", self.query) }
    }

    /// What must be allowed on the node. Who runs a command needs the right to create, whatever the method: a right to read
    /// is none to act.
    pub(super) fn verb(&self) -> &'static str {
        if self.what.is_read() { "get" } else { "create" }
    }
}

fn wrong_method() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this cannot be asked by that method")
}

fn is_uid(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The parameters as they came.
struct Given(Vec<(String, String)>);

impl Given {
    fn parse(query: &str) -> Result<Self, Refusal> {
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        // What is not text is replaced by a mark while it is decoded; nobody means that.
        let broken = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
        if pairs.iter().any(|(key, value)| broken(key) || broken(value)) {
            return Err(Refusal::bad("the parameters are not text"));
        }
        Ok(Self(pairs))
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(is, _)| is == key).map(|(_, value)| value.as_str())
    }

    fn one(&self, key: &str) -> Result<Option<&str>, Refusal> {
        let mut all = self.0.iter().filter(|(is, _)| is == key).map(|(_, value)| value.as_str());
        match (all.next(), all.next()) {
            (first, None) => Ok(first),
            (_, Some(_)) => Err(Refusal::bad(format!("the parameter {key} is given twice"))),
        }
    }

    fn flag(&self, key: &str) -> Result<bool, Refusal> {
        match self.one(key)? {
            Some("true" | "1") => Ok(true),
            None | Some("false" | "0") => Ok(false),
            Some(_) => Err(Refusal::bad(format!("the parameter {key} is neither true nor false"))),
        }
    }
}

type Out = Serializer<'static, String>;

/// Whether the log is followed.
fn log(given: &Given, out: &mut Out) -> Result<bool, Refusal> {
    let follow = given.flag("follow")?;
    for key in ["follow", "previous", "timestamps"] {
        if given.flag(key)? {
            out.append_pair(key, "true");
        }
    }
    for key in ["sinceSeconds", "tailLines", "limitBytes"] {
        if let Some(number) = given.one(key)? {
            let number: Option<i64> = number.parse().ok().filter(|number| *number >= 0);
            let number =
                number.ok_or_else(|| Refusal::bad(format!("the parameter {key} is not a number")))?;
            out.append_pair(key, &number.to_string());
        }
    }
    if let Some(since) = given.one("sinceTime")? {
        since.parse::<Timestamp>().map_err(|_| Refusal::bad("the parameter sinceTime is not a time"))?;
        out.append_pair("sinceTime", since);
    }
    match given.one("stream")? {
        // What is the default need not be known over there.
        None | Some("All") => {}
        Some(stream @ ("Stdout" | "Stderr")) => _ = out.append_pair("stream", stream),
        Some(_) => return Err(Refusal::bad("the parameter stream is not one of All, Stdout, Stderr")),
    }
    Ok(follow)
}

/// A kubelet calls them otherwise than an API server does.
fn streams(given: &Given, out: &mut Out) -> Result<(), Refusal> {
    let names = [("input", "stdin"), ("output", "stdout"), ("error", "stderr"), ("tty", "tty")];
    let mut some = false;
    for (here, there) in names {
        if given.flag(here)? {
            out.append_pair(there, "true");
            some |= here != "tty";
        }
    }
    if some { Ok(()) } else { Err(Refusal::bad("you must specify at least 1 of stdin, stdout, stderr")) }
}

fn command(given: &Given, out: &mut Out) -> Result<(), Refusal> {
    let mut words = given.all("command").peekable();
    if words.peek().is_none() {
        return Err(Refusal::bad("there is no command"));
    }
    for word in words {
        out.append_pair("command", word);
    }
    Ok(())
}

fn ports(given: &Given, out: &mut Out) -> Result<(), Refusal> {
    for port in given.all("port").flat_map(|ports| ports.split(',')) {
        let number: Option<u16> = port.parse().ok().filter(|port| *port > 0);
        let number = number.ok_or_else(|| Refusal::bad("the parameter port is not a port"))?;
        out.append_pair("ports", &number.to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(path: &str) -> Result<Ask, u16> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let acts = ["/exec", "/attach", "/portForward"].iter().any(|act| path.starts_with(act));
        let method = if acts { Method::POST } else { Method::GET };
        match Question::parse(&method, path, query) {
            Ok(Question::Pod(ask)) => Ok(ask),
            Ok(Question::Health | Question::Usage(_)) => panic!("{path} is about no pod"),
            Err(refusal) => Err(refusal.status.as_u16()),
        }
    }

    fn asked(path: &str) -> String {
        ask(path).unwrap().at_peer("over-there", "web-1")
    }

    #[test]
    fn what_is_asked_of_a_kubelet_is_asked_of_an_api_server_in_its_words() {
        let base = "/api/v1/namespaces/over-there/pods/web-1";
        for (here, there) in [
            ("/containerLogs/shop/web/app", "log?container=app"),
            (
                "/containerLogs/shop/web/app?follow=true&previous=true&timestamps=true",
                "log?container=app&follow=true&previous=true&timestamps=true",
            ),
            (
                "/containerLogs/shop/web/app?sinceSeconds=5&tailLines=0&limitBytes=100&stream=Stderr",
                "log?container=app&sinceSeconds=5&tailLines=0&limitBytes=100&stream=Stderr",
            ),
            (
                "/containerLogs/shop/web/app?sinceTime=2026-01-01T00%3A00%3A00%2B01%3A00&stream=All&new=1",
                "log?container=app&sinceTime=2026-01-01T00%3A00%3A00%2B01%3A00",
            ),
            ("/containerLogs/shop/web/app?follow=false", "log?container=app"),
            (
                "/exec/shop/web/app?input=1&output=1&error=1&tty=1&command=sh&command=-c&command=a+%26+b%3D",
                "exec?container=app&stdin=true&stdout=true&stderr=true&tty=true&command=sh&command=-c&command=a+%26+b%3D",
            ),
            ("/exec/shop/web/0a-1/app?output=1&command=ls", "exec?container=app&stdout=true&command=ls"),
            ("/attach/shop/web/app?input=1&command=ls", "attach?container=app&stdin=true"),
            ("/portForward/shop/web", "portforward"),
            ("/portForward/shop/web/0a-1?port=80,81&port=82", "portforward?ports=80&ports=81&ports=82"),
        ] {
            assert_eq!(asked(here), format!("{base}/{there}"), "{here}");
        }
        assert_eq!(asked("/remotePod/shop/web"), base);
        let shadow = "/apis/virtualkubelet.liqo.io/v1alpha1/namespaces/over-there/shadowpods/web-1";
        assert_eq!(asked("/shadowPod/shop/web?pretty=true"), shadow);
    }

    #[test]
    fn what_no_kubelet_is_asked_is_refused() {
        for (path, status) in [
            ("/", 404),
            ("/pods", 404),
            ("/run/shop/web/app?cmd=ls", 404),
            ("/exec/shop/web", 404),
            ("/containerLogs/shop/web/0a/app", 404),
            ("/containerLogs/shop/../app", 400),
            ("/containerLogs/shop/web%2F..%2Fx/app", 400),
            ("/containerLogs/shop//app", 400),
            ("/containerLogs/shop/web/app?follow=yes", 400),
            ("/containerLogs/shop/web/app?follow=true&follow=false", 400),
            ("/containerLogs/shop/web/app?tailLines=-1", 400),
            ("/containerLogs/shop/web/app?sinceTime=yesterday", 400),
            ("/containerLogs/shop/web/app?stream=all", 400),
            ("/exec/shop/web/app?command=ls", 400),
            ("/exec/shop/web/app?output=1", 400),
            ("/exec/shop/web/app?output=1&command=%FF", 400),
            ("/exec/shop/web/a b/app?output=1&command=ls", 400),
            ("/attach/shop/web/app?tty=1", 400),
            ("/portForward/shop/web?port=0", 400),
            ("/shadowPod/shop", 404),
            ("/remotePod/shop/..", 400),
            ("/portForward/shop/web?port=65536", 400),
        ] {
            assert_eq!(ask(path).map(drop), Err(status), "{path}");
        }
        let refused = Question::parse(&Method::POST, "/containerLogs/shop/web/app", "").unwrap_err();
        assert_eq!(refused.status.as_u16(), 405);
        let refused = Question::parse(&Method::POST, "/remotePod/shop/web", "").unwrap_err();
        assert_eq!(refused.status.as_u16(), 405);
        let refused = Question::parse(&Method::DELETE, "/exec/shop/web/app", "output=1").unwrap_err();
        assert_eq!(refused.status.as_u16(), 405);
    }

    #[test]
    fn who_acts_needs_more_than_the_right_to_read() {
        assert_eq!(ask("/containerLogs/shop/web/app").unwrap().verb(), "get");
        assert_eq!(ask("/shadowPod/shop/web").unwrap().verb(), "get");
        let exec = Question::parse(&Method::GET, "/exec/shop/web/app", "output=1&command=ls");
        let Ok(Question::Pod(exec)) = exec else { panic!("this is a command") };
        assert_eq!(exec.verb(), "create");
    }

    #[test]
    fn what_pods_use_is_only_read() {
        let asked =
            |method, path| Question::parse(&method, path, "").map_err(|refusal| refusal.status.as_u16());
        assert_eq!(asked(Method::GET, "/metrics/resource"), Ok(Question::Usage(Page::Metrics)));
        assert_eq!(asked(Method::GET, "/stats/summary"), Ok(Question::Usage(Page::Summary)));
        assert_eq!(asked(Method::POST, "/stats/summary"), Err(405));
        assert_eq!(asked(Method::GET, "/metrics"), Err(404));
        assert_eq!(asked(Method::GET, "/metrics/cadvisor"), Err(404));
    }

    #[test]
    fn only_a_log_that_is_followed_may_be_silent() {
        assert!(ask("/containerLogs/shop/web/app?follow=true").unwrap().may_be_silent);
        assert!(!ask("/containerLogs/shop/web/app").unwrap().may_be_silent);
        assert!(!ask("/attach/shop/web/app?output=1").unwrap().may_be_silent);
    }
}
