//! An API server of a few collections in memory: enough for watches, merge patches and versions.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower_service::Service;

/// The server; clones share what is in it.
#[derive(Clone)]
pub(super) struct FakeApi {
    content: Arc<Mutex<Content>>,
    version: watch::Sender<u64>,
    /// The end of the path of a collection whose watches tell nothing.
    silent: watch::Sender<Option<&'static str>>,
}

#[derive(Default)]
struct Content {
    objects: BTreeMap<String, Value>,
    /// Version, path, kind of change, object.
    events: Vec<(u64, String, &'static str, Value)>,
    /// Every request but lists and watches.
    calls: Vec<String>,
}

impl FakeApi {
    pub(super) fn new() -> Self {
        Self { content: Arc::default(), version: watch::Sender::new(1), silent: watch::Sender::new(None) }
    }

    pub(super) fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "liqo")
    }

    /// The object at this path.
    pub(super) fn get(&self, path: &str) -> Option<Value> {
        self.content.lock().unwrap().objects.get(path).cloned()
    }

    /// Puts an object at this path, whatever was there.
    pub(super) fn put(&self, path: &str, mut object: Value) -> Value {
        let mut content = self.content.lock().unwrap();
        let version = *self.version.borrow() + 1;
        let collection = path.rsplit_once('/').unwrap();
        object["metadata"]["name"] = json!(collection.1);
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{version}"));
            object["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:{:02}Z", version % 60));
        }
        let kind = if content.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
        content.objects.insert(path.to_owned(), object.clone());
        content.events.push((version, path.to_owned(), kind, object.clone()));
        self.version.send_replace(version);
        object
    }

    /// Merges into an object that is there.
    pub(super) fn merge(&self, path: &str, change: &Value) -> Value {
        let mut object = self.get(path).unwrap();
        merge(&mut object, change);
        self.put(path, object)
    }

    /// Lets the watches of one collection tell nothing, until another is named, or none.
    pub(super) fn silence(&self, collection: Option<&'static str>) {
        self.silent.send_replace(collection);
    }

    /// Whether the object at this path was ever like this.
    pub(super) fn was(&self, path: &str, like: impl Fn(&Value) -> bool) -> bool {
        self.content.lock().unwrap().events.iter().any(|(_, at, _, object)| at == path && like(object))
    }

    /// What was asked so far, but for lists and watches.
    pub(super) fn calls(&self) -> Vec<String> {
        self.content.lock().unwrap().calls.clone()
    }

    /// Waits until the object at this path is as wanted.
    pub(super) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let wait = async {
            loop {
                let mut version = self.version.subscribe();
                if let Some(object) = self.get(path).filter(|object| wanted(object)) {
                    return object;
                }
                version.changed().await.unwrap();
            }
        };
        let found = tokio::time::timeout(std::time::Duration::from_secs(20), wait).await;
        found.unwrap_or_else(|_| panic!("{path} stays {:#}", self.get(path).unwrap_or_default()))
    }

    async fn answer(self, request: Request<Body>) -> (u16, String) {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default());
        let collections =
            ["foreignclusters", "secrets", "clusterconfigs", "nodes", "networkconfigs", "tunnelendpoints"];
        let is_collection = collections.iter().any(|all| path.ends_with(all));
        match parts.method {
            Method::GET if query.contains("watch=true") => (200, self.watch(&path, query).await),
            Method::GET if is_collection => (200, self.list(&path)),
            method => {
                self.content.lock().unwrap().calls.push(format!("{method} {path}"));
                self.change(&method, &path, body)
            }
        }
    }

    fn change(&self, method: &Method, path: &str, body: Value) -> (u16, String) {
        let target = path.strip_suffix("/status").unwrap_or(path);
        let present = self.get(target);
        let version = &body["metadata"]["resourceVersion"];
        let stale = present
            .as_ref()
            .is_some_and(|object| !version.is_null() && *version != object["metadata"]["resourceVersion"]);
        match (method.as_str(), present) {
            _ if stale => problem(409),
            ("POST", _) => {
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                if self.get(&path).is_some() {
                    problem(409)
                } else {
                    (201, self.put(&path, body).to_string())
                }
            }
            ("GET", Some(object)) => (200, object.to_string()),
            ("PUT", Some(_)) => (200, self.put(target, body).to_string()),
            ("PATCH", Some(_)) => (200, self.merge(target, &body).to_string()),
            _ => problem(404),
        }
    }

    fn list(&self, path: &str) -> String {
        let content = self.content.lock().unwrap();
        let items: Vec<&Value> =
            content.objects.iter().filter(|(at, _)| at.starts_with(path)).map(|(_, object)| object).collect();
        let version = self.version.borrow().to_string();
        json!({"metadata": {"resourceVersion": version}, "items": items}).to_string()
    }

    /// All changes since a version, once there are any; the watch is taken up again then.
    async fn watch(&self, path: &str, query: &str) -> String {
        let since = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let since: u64 = since.unwrap().parse().unwrap();
        let (mut version, mut silent) = (self.version.subscribe(), self.silent.subscribe());
        loop {
            silent.wait_for(|silent| silent.is_none_or(|end| !path.ends_with(end))).await.unwrap();
            version.borrow_and_update();
            let lines: Vec<String> = self
                .content
                .lock()
                .unwrap()
                .events
                .iter()
                .filter(|(at, of, ..)| *at > since && of.starts_with(path))
                .map(|(_, _, kind, object)| json!({"type": kind, "object": object}).to_string() + "\n")
                .collect();
            if !lines.is_empty() {
                return lines.concat();
            }
            version.changed().await.unwrap();
        }
    }
}

fn problem(code: u16) -> (u16, String) {
    let reason = if code == 404 { "NotFound" } else { "Conflict" };
    let status =
        json!({"kind": "Status", "status": "Failure", "message": "", "reason": reason, "code": code});
    (code, status.to_string())
}

fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(key)),
            Value::Object(_) => merge(&mut object[key.as_str()], value),
            other => object[key.as_str()] = other.clone(),
        }
    }
}

impl Service<Request<Body>> for FakeApi {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move {
            let (code, body) = api.answer(request).await;
            Ok(Response::builder().status(code).body(Full::new(body.into())).unwrap())
        })
    }
}
