//! The API server of this cluster as far as it is asked: who has a token, who may do what, and requests for certificates.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower_service::Service;

type Answer = dyn Fn(&str, &Value) -> Option<Value> + Send + Sync;

/// Answers by a function of method with path, and body; what has no answer is an error of the server.
#[derive(Clone)]
pub(in super::super) struct FakeHome {
    answer: Arc<Answer>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl FakeHome {
    pub(in super::super) fn new(
        answer: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        Self { answer: Arc::new(answer), asked: Arc::default() }
    }

    /// `good` is the token of "tester", who may do all but what `forbidden` names: a verb, or a node. The user of a
    /// certificate has to be "apiserver" of the group "admins".
    pub(in super::super) fn reviews(forbidden: &'static str) -> Self {
        Self::new(move |call, body| match call {
            "POST /apis/authentication.k8s.io/v1/tokenreviews" => {
                Some(match body["spec"]["token"].as_str() {
                    Some("good") => {
                        let user = json!({"username": "tester", "groups": ["system:authenticated"]});
                        json!({"metadata": {}, "spec": {}, "status": {"authenticated": true, "user": user}})
                    }
                    _ => json!({"metadata": {}, "spec": {}, "status": {"authenticated": false, "user": {}}}),
                })
            }
            "POST /apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                let spec = &body["spec"];
                let groups = spec["groups"].as_array().unwrap();
                let known = match spec["user"].as_str().unwrap() {
                    "apiserver" => groups.contains(&json!("admins")),
                    user => user == "tester",
                };
                let what = &spec["resourceAttributes"];
                let right = what["resource"] == "nodes" && groups.contains(&json!("system:authenticated"));
                let allowed =
                    known && right && what["verb"] != forbidden && what["name"].as_str() != Some(forbidden);
                Some(json!({"metadata": {}, "spec": {}, "status": {"allowed": allowed}}))
            }
            _ => None,
        })
    }

    pub(in super::super) fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "liqo")
    }

    pub(in super::super) fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().unwrap().clone()
    }
}

impl Service<Request<Body>> for FakeHome {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let home = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let call = format!("{} {}", parts.method, parts.uri.path());
            home.asked.lock().unwrap().push((call.clone(), body.clone()));
            let (code, answer) = match (home.answer)(&call, &body) {
                Some(answer) => (200, answer),
                None => (500, json!({"kind": "Status", "status": "Failure", "message": "no", "code": 500})),
            };
            Ok(Response::builder().status(code).body(Full::new(answer.to_string().into())).unwrap())
        })
    }
}
