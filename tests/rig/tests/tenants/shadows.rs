//! ShadowPods as a hostile consumer writes them: whatever it wishes for, it gets what its Tenant allows, or a reason.
//!
//! Nothing runs here, since there are no nodes: what would run is what there are pods for.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use ferro_api::names::labels;
use ferro_api::virtualkubelet::{ShadowPod, ShadowPodPhase, ShadowPodStatus};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rig::wait::eventually;
use serde_json::{Value, json};

use crate::parsed;
use crate::stage::{Consumer, Stage, on_stage, refused};

const SHOP: &str = "shop-of-rome";
/// Another one of rome.
const SHED: &str = "shed-of-rome";
const VAULT: &str = "vault-of-milan";

impl Consumer {
    fn shadows(&self, namespace: &str) -> Api<ShadowPod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// A ShadowPod with a small pod, of which some fields are others.
    fn shadow(&self, name: &str, fields: &Value) -> Result<ShadowPod> {
        let mut pod = json!({"restartPolicy": "Always", "containers": [container(&json!({}))]});
        for (field, value) in fields.as_object().into_iter().flatten() {
            pod[field] = value.clone();
        }
        parsed(json!({
            "apiVersion": "virtualkubelet.liqo.io/v1alpha1", "kind": "ShadowPod",
            "metadata": {"name": name, "labels": {"liqo.io/originID": self.id}}, "spec": {"pod": pod},
        }))
    }

    /// Wishes for a pod, and gives the answer.
    async fn wish(&self, namespace: &str, name: &str, fields: &Value) -> Result<ShadowPodStatus> {
        let shadows = self.shadows(namespace);
        shadows.create(&PostParams::default(), &self.shadow(name, fields)?).await?;
        eventually(&format!("{name} is answered"), || async {
            let status = shadows.get(name).await?.status.context("it is not answered yet")?;
            ensure!(status.phase.unwrap_or_default() != ShadowPodPhase::Pending, "{status:?}");
            Ok(status)
        })
        .await
    }
}

/// A container, of which some fields are others.
fn container(fields: &Value) -> Value {
    let mut container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}});
    for (field, value) in fields.as_object().into_iter().flatten() {
        container[field] = value.clone();
    }
    container
}

/// Both consumers have a namespace, and room for some pods.
async fn furnish(stage: &Stage) -> Result<()> {
    let room = json!({"resourceQuota": {"hard": {"cpu": "1", "memory": "1Gi", "pods": "5"}}});
    stage.set(&stage.rome, &room).await?;
    stage.set(&stage.milan, &room).await?;
    stage.rome.has([("shop", SHOP)]).await?;
    stage.milan.has([("vault", VAULT)]).await
}

/// All pods that were made for peers, as they are.
async fn pods(stage: &Stage) -> Result<BTreeSet<(String, String, String)>> {
    let pods: Api<Pod> = Api::all(stage.turin.admin.clone());
    let about = |pod: Pod| {
        let (namespace, version) = (pod.namespace().unwrap_or_default(), pod.resource_version());
        (namespace, pod.name_any(), version.unwrap_or_default())
    };
    let made = pods.list(&ListParams::default().labels(&labels::SHADOWED.selector())).await?;
    Ok(made.items.into_iter().map(about).collect())
}

/// What is wished for, and how it is refused: by which word, and with what in the sentence.
fn wishes() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let with = |fields: Value| json!({"containers": [container(&fields)]});
    let secured = |context: Value| with(json!({"securityContext": context}));
    let volume = |source: Value| json!({"volumes": [source]});
    let token = json!({"sources": [{"serviceAccountToken": {"path": "t"}}]});
    let long = "x".repeat(300 * 1024);
    vec![
        ("privileged", secured(json!({"privileged": true})), "NotAllowed", "asks for privileged"),
        ("capable", secured(json!({"capabilities": {"add": ["SYS_ADMIN"]}})), "NotAllowed", "capabilities"),
        ("rooted", volume(json!({"name": "v", "hostPath": {"path": "/"}})), "NotAllowed", "hostPath"),
        ("known", volume(json!({"name": "v", "projected": token})), "NotAllowed", "serviceAccountToken"),
        ("hosted", json!({"hostNetwork": true}), "NotAllowed", "hostNetwork"),
        ("nosy", json!({"hostPID": true}), "NotAllowed", "hostPID"),
        ("ported", with(json!({"ports": [{"containerPort": 1, "hostPort": 1}]})), "NotAllowed", "hostPort"),
        ("long", with(json!({"env": [{"name": "E", "value": long}]})), "TooLarge", "more than 131072 bytes"),
        ("wrong", with(json!({"name": "No Name"})), "Invalid", "does not take the pod"),
        ("greedy", with(json!({"resources": {"requests": {"cpu": "901m"}}})), "QuotaExceeded", "cpu"),
    ]
}

#[test]
fn what_no_pod_of_a_peer_gets_is_refused_with_a_reason_and_nobody_is_disturbed() -> Result<()> {
    on_stage(async |stage| {
        furnish(stage).await?;
        for (consumer, namespace) in [(&stage.rome, SHOP), (&stage.milan, VAULT)] {
            let honest = consumer.wish(namespace, "honest", &json!({})).await?;
            ensure!(honest.phase == Some(ShadowPodPhase::Active), "{honest:?}");
        }
        let before = pods(stage).await?;
        ensure!(before.len() == 2, "{before:?}");
        for (name, fields, word, part) in wishes() {
            let answer = stage.rome.wish(SHOP, name, &fields).await?;
            ensure!(answer.phase == Some(ShadowPodPhase::Rejected), "{name}: {answer:?}");
            ensure!(answer.reason.as_deref() == Some(word), "{name}: {answer:?}");
            ensure!(
                answer.message.as_ref().is_some_and(|message| message.contains(part)),
                "{name}: {answer:?}"
            );
            ensure!(answer.pod_uid.is_none(), "{name}: {answer:?}");
        }
        ensure!(pods(stage).await? == before, "other pods are there than before");
        let next = stage.rome.wish(SHOP, "next", &json!({})).await?;
        ensure!(
            next.phase == Some(ShadowPodPhase::Active),
            "who asks for what is left does not get it: {next:?}"
        );
        Ok(())
    })
}

#[test]
fn no_shadow_pod_is_taken_that_is_not_the_consumers_or_is_too_large() -> Result<()> {
    on_stage(async |stage| {
        furnish(stage).await?;
        let (rome, params) = (&stage.rome, PostParams::default());
        for elsewhere in [VAULT, "default", "kube-system", "liqo", &rome.control] {
            let why = refused(rome.shadows(elsewhere).create(&params, &rome.shadow("a", &json!({}))?).await)?;
            ensure!(why.contains("cannot create resource \"shadowpods\""), "{elsewhere}: {why}");
        }
        let shop = rome.shadows(SHOP);
        let mut forged = rome.shadow("forged", &json!({}))?;
        forged.labels_mut().insert("liqo.io/originID".to_owned(), stage.milan.id.clone());
        let why = refused(shop.create(&params, &forged).await)?;
        ensure!(why.contains("liqo.io/originID"), "{why}");
        let mut lasting = rome.shadow("lasting", &json!({}))?;
        lasting.finalizers_mut().push("example.org/for-ever".to_owned());
        let why = refused(shop.create(&params, &lasting).await)?;
        ensure!(why.contains("finalizers"), "{why}");

        // As many labels as an API server reads, and then more.
        let many = |count: usize| (0..count).map(|number| (format!("l{number}"), String::new()));
        let mut labelled = rome.shadow("labelled", &json!({}))?;
        labelled.labels_mut().extend(many(50_000));
        let why = refused(shop.create(&params, &labelled).await)?;
        ensure!(why.contains("at most 128 labels"), "{why:.300}");
        labelled.labels_mut().extend(many(1_000_000));
        ensure!(shop.create(&params, &labelled).await.is_err(), "a million labels are taken");

        // It answers its own wishes as little as those of others.
        let honest = rome.wish(SHOP, "honest", &json!({})).await?;
        ensure!(honest.phase == Some(ShadowPodPhase::Active), "{honest:?}");
        let boast = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        refused(shop.patch_status("honest", &PatchParams::default(), &boast).await)?;
        ensure!(pods(stage).await?.len() == 1, "there are other pods");
        Ok(())
    })
}

#[test]
fn where_and_as_what_a_pod_runs_is_what_the_tenant_says_and_not_the_consumer() -> Result<()> {
    on_stage(async |stage| {
        furnish(stage).await?;
        stage.set(&stage.rome, &json!({"nodePool": {"pool": "guests"}})).await?;
        let pods: Api<Pod> = Api::namespaced(stage.turin.admin.clone(), SHOP);
        let sly = json!({
            "nodeName": "turin-1", "nodeSelector": {"pool": "ours", "disk": "fast"}, "runtimeClassName": "unknown",
            "priorityClassName": "system-node-critical", "serviceAccountName": "admin",
            "automountServiceAccountToken": true, "schedulerName": "theirs",
            "tolerations": [{"operator": "Exists"}],
        });
        let answer = stage.rome.wish(SHOP, "sly", &sly).await?;
        ensure!(answer.phase == Some(ShadowPodPhase::Active), "{answer:?}");
        let spec = pods.get("sly").await?.spec.context("a pod has a spec")?;
        let pool = BTreeMap::from([("pool".to_owned(), "guests".to_owned())]);
        ensure!(spec.node_selector == Some(pool), "{:?}", spec.node_selector);
        ensure!(spec.node_name.is_none() && spec.runtime_class_name.is_none(), "{spec:?}");
        ensure!(spec.priority.unwrap_or_default() == 0, "{spec:?}");
        ensure!(spec.service_account_name.as_deref() == Some("default"), "{spec:?}");
        ensure!(spec.automount_service_account_token == Some(false), "{spec:?}");
        ensure!(spec.scheduler_name.as_deref() == Some("default-scheduler"), "{spec:?}");
        let tolerates_all = |all: &Vec<k8s_openapi::api::core::v1::Toleration>| {
            all.iter().any(|one| one.key.as_deref().unwrap_or_default().is_empty())
        };
        ensure!(!spec.tolerations.as_ref().is_some_and(tolerates_all), "{:?}", spec.tolerations);

        stage.set(&stage.rome, &json!({"runtimeClassName": "sandbox"})).await?;
        eventually("the Tenant's RuntimeClass counts", || async {
            let name = format!("boxed-{}", k8s_openapi::jiff::Timestamp::now().as_millisecond());
            let answer = stage.rome.wish(SHOP, &name, &json!({})).await?;
            stage.rome.shadows(SHOP).delete(&name, &DeleteParams::default()).await?;
            ensure!(answer.phase == Some(ShadowPodPhase::Rejected), "{answer:?}");
            let message = answer.message.unwrap_or_default();
            ensure!(message.contains("RuntimeClass \"sandbox\" not found"), "{message}");
            Ok(())
        })
        .await
    })
}

#[test]
fn a_limit_is_charged_as_the_request_that_kubernetes_makes_of_it() -> Result<()> {
    on_stage(async |stage| {
        furnish(stage).await?;
        let room = json!({"cpu": "1", "memory": "1Gi", "pods": "5", "example.org/gpu": "1"});
        stage.set(&stage.rome, &json!({"resourceQuota": {"hard": room}})).await?;
        stage.rome.has([("shop", SHOP), ("shed", SHED)]).await?;
        let limits = json!({"resources": {"limits": {"example.org/gpu": "1"}}});
        let gpu = json!({"containers": [container(&limits)]});
        let first = stage.rome.wish(SHOP, "first", &gpu).await?;
        ensure!(first.phase == Some(ShadowPodPhase::Active), "{first:?}");
        let second = stage.rome.wish(SHED, "second", &gpu).await?;
        ensure!(second.phase == Some(ShadowPodPhase::Rejected), "{second:?}");
        ensure!(second.reason.as_deref() == Some("QuotaExceeded"), "{second:?}");
        ensure!(second.message.as_ref().is_some_and(|why| why.contains("example.org/gpu")), "{second:?}");
        Ok(())
    })
}

#[test]
fn of_a_hundred_pods_that_want_the_last_place_exactly_one_has_it() -> Result<()> {
    on_stage(async |stage| {
        furnish(stage).await?;
        stage.set(&stage.rome, &json!({"resourceQuota": {"hard": {"pods": "2"}}})).await?;
        let first = stage.rome.wish(SHOP, "first", &json!({})).await?;
        ensure!(first.phase == Some(ShadowPodPhase::Active), "{first:?}");
        let shadows = stage.rome.shadows(SHOP);
        let params = PostParams::default();
        let all = (0..100).map(|number| stage.rome.shadow(&format!("n-{number}"), &json!({})));
        let all = all.collect::<Result<Vec<_>>>()?;
        try_join_all(all.iter().map(|shadow| shadows.create(&params, shadow))).await?;
        let answers = eventually("all hundred are answered", || async {
            let all = shadows.list(&ListParams::default()).await?.items;
            let answers: Vec<_> = all.into_iter().map(|shadow| shadow.status.unwrap_or_default()).collect();
            let left =
                answers.iter().filter(|answer| answer.phase.unwrap_or_default() == ShadowPodPhase::Pending);
            let left = left.count();
            ensure!(answers.len() == 101 && left == 0, "{left} of {} are left", answers.len());
            Ok(answers)
        })
        .await?;
        let (active, others): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| answer.phase == Some(ShadowPodPhase::Active));
        ensure!(active.len() == 2 && pods(stage).await?.len() == 2, "{} run", active.len());
        for answer in others {
            ensure!(answer.reason.as_deref() == Some("QuotaExceeded"), "{answer:?}");
            let says = "1 of pods were asked for, 2 of 2 are in use";
            ensure!(answer.message.as_ref().is_some_and(|message| message.contains(says)), "{answer:?}");
        }
        // A place that is given back goes to who asks next.
        shadows.delete("first", &DeleteParams::default()).await?;
        eventually("its pod is gone", || async {
            ensure!(pods(stage).await?.len() == 1, "it is there");
            Ok(())
        })
        .await?;
        let next = stage.rome.wish(SHOP, "next", &json!({})).await?;
        ensure!(next.phase == Some(ShadowPodPhase::Active), "{next:?}");
        Ok(())
    })
}
