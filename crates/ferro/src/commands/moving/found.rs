//! What is to be moved, as a person names it and as it is found.

use std::str::FromStr;

use anyhow::bail;
use ferro_core::names::is_dns_subdomain;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _};

use crate::kube_errors::{Explain as _, found};

/// A name, and the kind where that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    kind: Option<Kind>,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Deployment,
    Pod,
}

/// What has that name.
pub(super) enum Found {
    Deployment(Box<Deployment>),
    Pod(Box<Pod>),
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = match text.split_once('/') {
            Some(("deployment" | "deployments" | "deploy" | "deployment.apps", name)) => {
                (Some(Kind::Deployment), name)
            }
            Some(("pod" | "pods" | "po", name)) => (Some(Kind::Pod), name),
            Some(_) => return Err("only Deployments and pods are moved: deployment/NAME or pod/NAME".into()),
            None => (None, text),
        };
        if !is_dns_subdomain(name) {
            return Err("it has to be the name of a Deployment or a pod".into());
        }
        Ok(Self { kind, name: name.to_owned() })
    }
}

/// Looks for a Deployment of that name, and then for a pod.
pub(super) async fn find(client: &Client, namespace: &str, named: &Named) -> anyhow::Result<Found> {
    let Named { kind, name } = named;
    if *kind != Some(Kind::Pod) {
        let deployment = Api::<Deployment>::namespaced(client.clone(), namespace).get(name).await;
        let deployment = found(deployment).explain(|| format!("read the Deployment {namespace}/{name}"))?;
        if let Some(deployment) = deployment {
            return Ok(Found::Deployment(Box::new(deployment)));
        }
    }
    if *kind != Some(Kind::Deployment) {
        let pod = Api::<Pod>::namespaced(client.clone(), namespace).get(name).await;
        if let Some(pod) = found(pod).explain(|| format!("read the pod {namespace}/{name}"))? {
            return Ok(Found::Pod(Box::new(pod)));
        }
    }
    let what = match kind {
        Some(Kind::Deployment) => "Deployment",
        Some(Kind::Pod) => "pod",
        None => "Deployment or pod",
    };
    bail!("there is no {what} {namespace}/{name}; name another namespace with -n")
}

/// Why a pod is not to be moved by itself: whoever owns it would make another one in its place.
pub(super) fn owner(pod: &Pod) -> Option<String> {
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    let (name, kind) = (pod.name_any(), &owner.kind);
    let hash = pod.labels().get("pod-template-hash");
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(&format!("-{hash}")));
    Some(match deployment.filter(|_| kind == "ReplicaSet") {
        Some(deployment) => format!(
            "the pod {name} belongs to the Deployment {deployment}, which would make another one in its place; move that \
             one: ferro move deployment/{deployment}"
        ),
        None => format!(
            "the pod {name} belongs to the {kind} {}, which would make another one in its place; change the node affinity \
             in that one's template instead",
            owner.name
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::{Kind, Named, owner};
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    #[test]
    fn a_name_may_say_of_which_kind_it_is() {
        let named = |kind, name: &str| Ok(Named { kind, name: name.into() });
        assert_eq!("web".parse(), named(None, "web"));
        assert_eq!("deploy/web".parse(), named(Some(Kind::Deployment), "web"));
        assert_eq!("pod/web-1".parse(), named(Some(Kind::Pod), "web-1"));
        for wrong in ["", "statefulset/db", "pod/", "a/b/c", "Web"] {
            assert!(wrong.parse::<Named>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pod_with_an_owner_is_left_to_that() {
        let pod = |owner: &Value| -> Pod {
            serde_json::from_value(json!({"metadata": {
                "name": "web-5f-x", "labels": {"pod-template-hash": "5f"}, "ownerReferences": owner,
            }}))
            .unwrap()
        };
        let of = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": true}]);
        assert!(owner(&pod(&of("ReplicaSet", "web-5f"))).unwrap().contains("ferro move deployment/web"));
        assert!(owner(&pod(&of("StatefulSet", "db"))).unwrap().contains("the StatefulSet db"));
        assert_eq!(owner(&pod(&json!([]))), None);
    }
}
