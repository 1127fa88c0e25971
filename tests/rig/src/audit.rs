//! What an API server was asked for, from its audit log: tests and figures count requests there, where nobody can forget
//! one.
//!
//! Flow: a cluster with `audited` in its spec writes a line when a request comes, before anything is done about it, and
//! another one when it is answered. `Audit::mark` and `Audit::since` each ask for something that does not exist, and find
//! that in the log again. Guarantees: what was answered before the mark does not count; what was answered before the call
//! of `since` does, whoever asked. What was under way at the mark does not count, and what is under way at the end is
//! waited for. Assumptions: the log is not begun anew meanwhile, which is an error then.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde::Deserialize;

use crate::topology::Cluster;
use crate::wait::eventually;

/// Of all markers of this process, so that no two are alike.
static MARKERS: AtomicU32 = AtomicU32::new(0);

/// More than the longest line: what an API server writes at a time may be read before all of it is there.
const TAIL: u64 = 1 << 20;

/// The audit log of a cluster.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
    markers: Api<ConfigMap>,
}

/// A place in an audit log.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Which file, since the log may be begun anew.
    file: u64,
    offset: u64,
}

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Who asked; of somebody in the name of another, the other.
    pub user: String,
    /// The field manager, by which parts of one program are told apart.
    pub manager: Option<String>,
    /// As in a rule of RBAC: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// The plural of the kind.
    pub resource: String,
    /// Such as status.
    pub subresource: Option<String>,
    /// Empty where there is none.
    pub namespace: String,
    /// Empty for lists, and for what was to get a name from the API server.
    pub name: String,
    /// The code of the answer.
    pub code: u16,
    /// How long the API server took for it.
    pub took: Duration,
}

impl Asked {
    /// Whether something was to change, also if it was refused.
    pub fn is_write(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb.as_str())
    }

    /// The object, as `namespace/name`, or just its name.
    pub fn object(&self) -> String {
        match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }
}

/// The length of all whole lines.
fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

/// How often each object of a kind was to be written, by `namespace/name`.
pub fn writes(asked: &[Asked], resource: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for write in asked.iter().filter(|asked| asked.resource == resource && asked.is_write()) {
        *found.entry(write.object()).or_default() += 1;
    }
    found
}

/// An administrator by another name, for who is to be told apart in the log.
pub async fn client_named(cluster: &Cluster, user: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(&cluster.kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.auth_info.impersonate = Some(user.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".into()]);
    Ok(Client::try_from(config)?)
}

impl Audit {
    /// The log of a cluster that has one.
    pub fn of(cluster: &Cluster) -> Result<Self> {
        let path = cluster.audit_log.clone().with_context(|| {
            format!("cluster {} has no audit log; set `audited` in its spec", cluster.plan.name)
        })?;
        Ok(Self { path, markers: Api::namespaced(cluster.client.clone(), "default") })
    }

    /// The present moment.
    pub async fn mark(&self) -> Result<Mark> {
        let before = self.end()?;
        let marker = self.leave_marker().await?;
        eventually("the marker is in the audit log", || async {
            let text = self.read(before)?;
            let offset = after_arrival(&text, &marker)?.context("it is not there")?;
            Ok(Mark { offset: before.offset + offset, ..before })
        })
        .await
    }

    /// Everything that was asked for since a mark, in the order of the answers.
    pub async fn since(&self, mark: Mark) -> Result<Vec<Asked>> {
        let marker = self.leave_marker().await?;
        eventually("the audit log is complete", || async { answered(&self.read(mark)?, &marker) }).await
    }

    /// Asks for what does not exist, and gives its name.
    async fn leave_marker(&self) -> Result<String> {
        let number = MARKERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("audit-marker-{}-{number}", std::process::id());
        ensure!(self.markers.get_opt(&name).await?.is_none(), "there is a ConfigMap {name}");
        Ok(name)
    }

    /// Where the last whole line ends.
    fn end(&self) -> Result<Mark> {
        let mut file =
            File::open(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        let about = file.metadata()?;
        let (mut tail, from) = (Vec::new(), about.len().saturating_sub(TAIL));
        file.seek(SeekFrom::Start(from))?;
        file.read_to_end(&mut tail)?;
        Ok(Mark { file: about.ino(), offset: from + whole_lines(&tail) as u64 })
    }

    /// All whole lines from a mark on.
    fn read(&self, mark: Mark) -> Result<String> {
        let mut file =
            File::open(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        ensure!(file.metadata()?.ino() == mark.file, "the audit log was begun anew since the mark");
        file.seek(SeekFrom::Start(mark.offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        bytes.truncate(whole_lines(&bytes));
        Ok(String::from_utf8(bytes)?)
    }
}

/// One line of the log.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    user: User,
    impersonated_user: Option<User>,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    #[serde(default)]
    request_received_timestamp: String,
    #[serde(default)]
    stage_timestamp: String,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    subresource: Option<String>,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl Event {
    fn parse(line: &str) -> Result<Self> {
        serde_json::from_str(line).with_context(|| format!("not a line of an audit log: {line}"))
    }

    /// Whether the request has just come; the other lines are about its answer, of which a watch has several.
    fn is_arrival(&self) -> bool {
        self.stage == "RequestReceived"
    }

    fn is_about(&self, marker: &str) -> bool {
        self.object_ref.as_ref().is_some_and(|object| object.name == marker)
    }
}

impl From<Event> for Asked {
    fn from(event: Event) -> Self {
        let object = event.object_ref;
        let (mut resource, mut namespace, mut name, mut subresource) = Default::default();
        if let Some(object) = object {
            (resource, namespace, name) = (object.resource, object.namespace, object.name);
            subresource = object.subresource;
        }
        Self {
            user: event.impersonated_user.unwrap_or(event.user).username,
            manager: manager(&event.uri),
            verb: event.verb,
            resource,
            subresource,
            namespace,
            name,
            code: event.response_status.map_or(0, |status| status.code),
            took: between(&event.request_received_timestamp, &event.stage_timestamp),
        }
    }
}

/// The time from one moment to another; none where they are not told.
fn between(from: &str, to: &str) -> Duration {
    let moment = |text: &str| text.parse::<Timestamp>().ok();
    let (Some(from), Some(to)) = (moment(from), moment(to)) else { return Duration::ZERO };
    to.duration_since(from).unsigned_abs()
}

/// The field manager that a request names; ours have plain names.
fn manager(uri: &str) -> Option<String> {
    let (_, query) = uri.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix("fieldManager=")).map(str::to_owned)
}

/// Where the line ends with which a marker came.
fn after_arrival(text: &str, marker: &str) -> Result<Option<u64>> {
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        offset += u64::try_from(line.len())?;
        let event = Event::parse(line)?;
        if event.is_arrival() && event.is_about(marker) {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

/// What came before a marker, once all of it is answered.
fn answered(text: &str, marker: &str) -> Result<Vec<Asked>> {
    let (mut under_way, mut answered, mut ended) = (BTreeSet::new(), Vec::new(), false);
    for line in text.lines() {
        let event = Event::parse(line)?;
        if event.is_arrival() {
            ended |= event.is_about(marker);
            if !ended {
                under_way.insert(event.id);
            }
        } else if under_way.remove(&event.id) {
            answered.push(event.into());
        }
    }
    if !ended {
        bail!("the marker is not there");
    }
    ensure!(under_way.is_empty(), "{} requests are not answered", under_way.len());
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_which_only_a_part_is_written_is_none_yet() {
        let both = [&b"one\ntwo\nthr"[..], b"one"].map(whole_lines);
        assert_eq!(both, [8, 0]);
    }

    /// As an API server writes it, with what nobody reads here.
    fn line(id: &str, stage: &str, verb: &str, name: &str) -> String {
        let code =
            if stage == "RequestReceived" { "" } else { r#""responseStatus":{"metadata":{},"code":200},"# };
        format!(
            r#"{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"{id}","stage":"{stage}","requestURI":"/apis/virtualkubelet.liqo.io/v1alpha1/namespaces/t/namespacemaps/{name}?fieldManager=ferro-offloading&force=true","verb":"{verb}","user":{{"username":"kubernetes-admin","groups":["system:masters"]}},"sourceIPs":["198.18.0.1"],"objectRef":{{"resource":"namespacemaps","namespace":"t","name":"{name}","apiGroup":"virtualkubelet.liqo.io","apiVersion":"v1alpha1"}},{code}"requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z","stageTimestamp":"2026-01-01T00:00:00.250000Z","annotations":{{"authorization.k8s.io/decision":"allow"}}}}
"#
        )
    }

    fn both(id: &str, verb: &str, name: &str) -> String {
        line(id, "RequestReceived", verb, name) + &line(id, "ResponseComplete", verb, name)
    }

    #[test]
    fn a_request_counts_once_with_who_asked_for_what() {
        let log = both("1", "patch", "a") + &both("2", "get", "a") + &both("m", "get", "marker");
        let found = answered(&log, "marker").unwrap();
        let first = Asked {
            user: "kubernetes-admin".into(),
            manager: Some("ferro-offloading".into()),
            verb: "patch".into(),
            resource: "namespacemaps".into(),
            subresource: None,
            namespace: "t".into(),
            name: "a".into(),
            code: 200,
            took: Duration::from_millis(250),
        };
        assert_eq!((found.len(), &found[0]), (2, &first));
        assert_eq!(writes(&found, "namespacemaps"), BTreeMap::from([("t/a".to_owned(), 1)]));
        assert!(writes(&found, "namespaces").is_empty());
    }

    #[test]
    fn what_is_under_way_at_the_end_is_waited_for() {
        let begun = line("1", "RequestReceived", "patch", "a") + &both("m", "get", "marker");
        assert!(answered(&begun, "marker").unwrap_err().to_string().contains("1 requests are not answered"));
        let later = begun + &both("2", "patch", "b") + &line("1", "ResponseComplete", "patch", "a");
        assert_eq!(writes(&answered(&later, "marker").unwrap(), "namespacemaps").len(), 1);
    }

    #[test]
    fn what_was_under_way_at_the_mark_does_not_count() {
        let log = line("1", "RequestReceived", "patch", "a") + &line("m", "RequestReceived", "get", "marker");
        let mark = usize::try_from(after_arrival(&log, "marker").unwrap().unwrap()).unwrap();
        assert_eq!(mark, log.len());
        let log = log
            + &line("m", "ResponseComplete", "get", "marker")
            + &line("1", "ResponseComplete", "patch", "a")
            + &both("n", "get", "next");
        assert_eq!(answered(&log[mark..], "next").unwrap(), []);
    }

    #[test]
    fn a_watch_counts_when_it_begins() {
        let watch = line("1", "RequestReceived", "watch", "") + &line("1", "ResponseStarted", "watch", "");
        let log = watch + &both("m", "get", "marker") + &line("1", "ResponseComplete", "watch", "");
        let found = answered(&log, "marker").unwrap();
        assert_eq!((found.len(), found[0].is_write()), (1, false));
    }

    #[test]
    fn without_the_marker_the_log_is_not_complete() {
        let log = both("1", "patch", "a");
        assert_eq!(after_arrival(&log, "marker").unwrap(), None);
        assert!(answered(&log, "marker").is_err());
        assert!(answered("{}", "marker").unwrap_err().to_string().contains("not a line of an audit log"));
    }

    #[test]
    fn who_is_impersonated_is_who_asks() {
        let text = both("1", "patch", "a") + &both("m", "get", "marker");
        let text = text.replace(r#""sourceIPs""#, r#""impersonatedUser":{"username":"bench"},"sourceIPs""#);
        assert_eq!(answered(&text, "marker").unwrap()[0].user, "bench");
    }
}
