//! The question of an API server about a pod, and the answer: `AdmissionReview` of `admission.k8s.io/v1`.
//!
//! Whoever can reach the webhook can ask, so it is read strictly: one form, one kind of object, one operation. Fields that
//! are of no use here are ignored, since API servers add new ones.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Addition, Refusal};
use crate::auth::{Malformed, read_json};
use crate::names::is_dns_label;

/// The longest question that is read: pods have a hundredth of that, and an API server stores none of much more.
pub const LARGEST: usize = 1024 * 1024;

const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// As long as a UID is, with room for other forms of it.
const LONGEST_UID: usize = 128;

/// A pod that somebody wants to create.
#[derive(Clone, Debug, PartialEq)]
pub struct Review {
    /// What the answer must repeat.
    uid: String,
    /// The namespace of the pod.
    pub namespace: String,
    /// The pod.
    pub pod: Pod,
}

/// The question is not one that is answered here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReview {
    /// It cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It is of another kind.
    #[error("only an AdmissionReview of admission.k8s.io/v1 with a request is answered")]
    NotAReview,
    /// It is about something else.
    #[error("only the creation of pods is reviewed")]
    NotAPod,
    /// It has an identifier or a namespace that none has.
    #[error("the request has no proper uid or namespace")]
    Unnamed,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    api_version: String,
    kind: String,
    request: Option<Request>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    resource: Resource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    namespace: String,
    operation: String,
    object: Option<Pod>,
}

#[derive(Deserialize)]
struct Resource {
    group: String,
    version: String,
    #[serde(rename = "resource")]
    plural: String,
}

impl Review {
    /// Reads a question.
    pub fn parse(body: &[u8]) -> Result<Self, BadReview> {
        let envelope: Envelope = read_json(body, LARGEST)?;
        let is_review = envelope.api_version == VERSION && envelope.kind == KIND;
        let request = envelope.request.filter(|_| is_review).ok_or(BadReview::NotAReview)?;
        let Resource { group, version, plural } = &request.resource;
        let of_pods = (group.as_str(), version.as_str(), plural.as_str()) == ("", "v1", "pods");
        if !of_pods || !request.sub_resource.is_empty() || request.operation != "CREATE" {
            return Err(BadReview::NotAPod);
        }
        let is_uid = (1..=LONGEST_UID).contains(&request.uid.len())
            && request.uid.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_uid || !is_dns_label(&request.namespace) {
            return Err(BadReview::Unnamed);
        }
        let pod = request.object.ok_or(BadReview::NotAPod)?;
        Ok(Self { uid: request.uid, namespace: request.namespace, pod })
    }

    /// The answer: let it be, with these additions.
    pub fn allow(&self, additions: &[Addition]) -> Value {
        let mut response = json!({"uid": self.uid, "allowed": true});
        if !additions.is_empty() {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(json!(additions).to_string()));
        }
        answer(&response)
    }

    /// The answer: no, and why.
    pub fn refuse(&self, refusal: &Refusal) -> Value {
        self.deny(403, refusal.word(), &refusal.to_string())
    }

    /// The answer: not now, since the policy cannot be read.
    pub fn postpone(&self, why: &str) -> Value {
        self.deny(503, "ServiceUnavailable", why)
    }

    fn deny(&self, code: u16, reason: &str, message: &str) -> Value {
        let status = json!({"code": code, "reason": reason, "message": message});
        answer(&json!({"uid": self.uid, "allowed": false, "status": status}))
    }
}

fn answer(response: &Value) -> Value {
    json!({"apiVersion": VERSION, "kind": KIND, "response": response})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(change: impl FnOnce(&mut Value)) -> Result<Review, BadReview> {
        let mut review = json!({
            "apiVersion": VERSION, "kind": KIND,
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "namespace": "shop", "operation": "CREATE",
                "userInfo": {"username": "admin"},
                "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": []}},
                "oldObject": null, "dryRun": false,
            },
        });
        change(&mut review);
        Review::parse(review.to_string().as_bytes())
    }

    #[test]
    fn a_question_is_answered_under_its_own_identifier() {
        let review = review(|_| ()).unwrap();
        assert_eq!(review.namespace, "shop");
        let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
        assert_eq!(
            review.allow(&[]),
            json!({"apiVersion": VERSION, "kind": KIND, "response": {"uid": uid, "allowed": true}})
        );
        let addition = Addition { path: "/spec/affinity", value: json!({}) };
        let changed = review.allow(&[addition]);
        let patch = STANDARD.decode(changed["response"]["patch"].as_str().unwrap()).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch, json!([{"op": "add", "path": "/spec/affinity", "value": {}}]));
        assert_eq!(changed["response"]["patchType"], "JSONPatch");
        let refused = review.refuse(&Refusal::TooLarge);
        assert_eq!(refused["response"]["allowed"], false);
        assert_eq!(refused["response"]["status"]["reason"], "AffinityTooLarge");
    }

    #[test]
    fn only_the_creation_of_pods_is_reviewed() {
        assert_eq!(review(|it| it["request"]["operation"] = json!("UPDATE")), Err(BadReview::NotAPod));
        assert_eq!(review(|it| it["request"]["subResource"] = json!("binding")), Err(BadReview::NotAPod));
        assert_eq!(
            review(|it| it["request"]["resource"]["resource"] = json!("nodes")),
            Err(BadReview::NotAPod)
        );
        assert_eq!(review(|it| it["request"]["object"] = json!(null)), Err(BadReview::NotAPod));
        for (field, wrong) in [("spec", json!([])), ("kind", json!("Node"))] {
            let unlike = review(|it| it["request"]["object"][field] = wrong);
            assert!(matches!(unlike, Err(BadReview::Malformed(Malformed::Unexpected { .. }))), "{unlike:?}");
        }
        assert_eq!(
            review(|it| it["apiVersion"] = json!("admission.k8s.io/v1beta1")),
            Err(BadReview::NotAReview)
        );
        assert_eq!(review(|it| it["kind"] = json!("Review")), Err(BadReview::NotAReview));
        assert_eq!(review(|it| it["request"] = json!(null)), Err(BadReview::NotAReview));
        for namespace in ["", "Shop", "a/b"] {
            assert_eq!(review(|it| it["request"]["namespace"] = json!(namespace)), Err(BadReview::Unnamed));
        }
        assert_eq!(review(|it| it["request"]["uid"] = json!("a".repeat(129))), Err(BadReview::Unnamed));
        let too_long = vec![b' '; LARGEST + 1];
        assert_eq!(
            Review::parse(&too_long),
            Err(BadReview::Malformed(Malformed::TooLong { limit: LARGEST }))
        );
        assert!(matches!(Review::parse(b"{"), Err(BadReview::Malformed(Malformed::Unexpected { .. }))));
    }
}
