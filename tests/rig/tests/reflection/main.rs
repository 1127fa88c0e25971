//! Reflection between two real API servers: what goes over, what does not, what becomes of it there, and what it costs.

mod bounds;
mod crashes;
mod crowded;
mod custom;
mod modes;
mod stage;
mod volume;

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use stage::{CLASS, Stage, on_stage};

fn endpoints(slice: &Value) -> Vec<&str> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    endpoints.filter_map(|endpoint| endpoint["addresses"][0].as_str()).collect()
}

#[test]
fn services_of_every_type_are_over_there_what_they_mean_there() -> Result<()> {
    on_stage(async |stage| {
        let ports = json!([{"name": "web", "port": 80, "targetPort": "http"}, {"name": "tls", "port": 443}]);
        for (name, spec) in [
            ("balanced", json!({"type": "LoadBalancer", "selector": {"app": "a"}, "ports": ports})),
            (
                "nodes",
                json!({"type": "NodePort", "selector": {"app": "a"}, "ports": ports, "sessionAffinity": "ClientIP"}),
            ),
            ("headless", json!({"clusterIP": "None", "selector": {"app": "a"}, "ports": ports})),
            ("external", json!({"type": "ExternalName", "externalName": "db.example.org"})),
            ("open", json!({"ports": [{"port": 80}]})),
        ] {
            stage.make("Service", name, json!({"spec": spec, "metadata": {"labels": {"app": "a"}}})).await?;
        }
        let own = stage.here("Service").get("balanced").await?.data;
        let copy = stage.arrives("Service", "balanced", |_| true).await?;
        let spec = &copy["spec"];
        ensure!(spec["type"] == "ClusterIP" && spec["selector"] == json!({"app": "a"}), "{copy}");
        ensure!(
            spec["ports"][0].get("nodePort").is_none() && spec["ports"][0]["targetPort"] == "http",
            "{copy}"
        );
        ensure!(copy["metadata"]["labels"]["app"] == "a", "{copy}");
        ensure!(own["spec"]["type"] == "LoadBalancer", "the original stays as it is");
        stage.arrives("Service", "nodes", |copy| copy["spec"]["sessionAffinity"] == "ClientIP").await?;
        stage.arrives("Service", "headless", |copy| copy["spec"]["clusterIP"] == "None").await?;
        stage.arrives("Service", "external", |copy| copy["spec"]["externalName"] == "db.example.org").await?;
        stage.arrives("Service", "open", |copy| copy["spec"].get("selector").is_none()).await?;
        // Fields that never change in the life of a Service change with a new one of the same name.
        stage.here("Service").delete("headless", &DeleteParams::default()).await?;
        stage.make("Service", "headless", json!({"spec": {"ports": ports}})).await?;
        stage.arrives("Service", "headless", |copy| copy["spec"]["clusterIP"] != "None").await?;
        stage.unmake("Service", &["balanced", "nodes", "headless", "external", "open"]).await
    })
}

#[test]
fn endpoints_are_told_but_for_those_over_there() -> Result<()> {
    on_stage(async |stage| {
        let service = json!({"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
        stage.make("Service", "web", service).await?;
        let slice = json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "ports": [{"port": 8080}],
            "endpoints": [
                {"addresses": ["10.9.0.5"], "nodeName": "rome-1", "hostname": "web-0", "conditions": {"ready": true}},
                {"addresses": ["10.9.0.6"], "nodeName": stage.node},
                {"addresses": ["192.0.2.7"]},
            ],
        });
        stage.make("EndpointSlice", "web-1", slice).await?;
        let copy = stage.arrives("EndpointSlice", "web-1", |_| true).await?;
        ensure!(endpoints(&copy) == ["10.9.0.5", "192.0.2.7"], "{copy}");
        let first = &copy["endpoints"][0];
        ensure!(first.get("nodeName").is_none() && first["hostname"] == "web-0", "{copy}");
        let labels = &copy["metadata"]["labels"];
        ensure!(labels["endpointslice.kubernetes.io/managed-by"] == "reflection.liqo.io", "{copy}");
        // Without a selector nobody over there finds its own.
        stage.change("Service", "web", &json!({"spec": {"selector": null}})).await?;
        let all = ["10.9.0.5", "10.9.0.6", "192.0.2.7"];
        stage.arrives("EndpointSlice", "web-1", |copy| endpoints(copy) == all).await?;
        let fewer = json!({"endpoints": [{"addresses": ["192.0.2.8"], "conditions": {"ready": false}}]});
        stage.change("EndpointSlice", "web-1", &fewer).await?;
        stage.arrives("EndpointSlice", "web-1", |copy| endpoints(copy) == ["192.0.2.8"]).await?;
        // Slices follow their Service.
        stage
            .change("Service", "web", &json!({"metadata": {"annotations": {"liqo.io/reflect": "false"}}}))
            .await?;
        stage.stays_away("EndpointSlice", "web-1").await?;
        stage.stays_away("Service", "web").await?;
        stage
            .change("Service", "web", &json!({"metadata": {"annotations": {"liqo.io/reflect": null}}}))
            .await?;
        stage.arrives("EndpointSlice", "web-1", |copy| endpoints(copy) == ["192.0.2.8"]).await?;
        stage.here("EndpointSlice").delete("web-1", &DeleteParams::default()).await?;
        stage.unmake("Service", &["web"]).await
    })
}

#[test]
fn configuration_goes_where_a_pod_or_an_ingress_refers_to_it_and_nowhere_else() -> Result<()> {
    on_stage(async |stage| {
        stage.make("ConfigMap", "settings", json!({"data": {"a": "1"}})).await?;
        stage.make("Secret", "keys", json!({"stringData": {"a": "1"}})).await?;
        stage.make("Secret", "unused", json!({"stringData": {"a": "1"}})).await?;
        stage.make("Secret", "release", json!({"type": "helm.sh/release.v1", "metadata": {"annotations": {"liqo.io/reflect": "true"}}})).await?;
        stage
            .make(
                "ConfigMap",
                "asked",
                json!({"metadata": {"annotations": {"liqo.io/reflect": "true"}}, "data": {"a": "1"}}),
            )
            .await?;
        stage.arrives("ConfigMap", "settings", |copy| copy["data"]["a"] == "1").await?;
        stage
            .arrives("Secret", "keys", |copy| copy["data"]["a"] == "MQ==" && copy["type"] == "Opaque")
            .await?;
        stage.arrives("ConfigMap", "asked", |_| true).await?;
        stage.change("ConfigMap", "settings", &json!({"data": {"a": "2"}})).await?;
        stage.arrives("ConfigMap", "settings", |copy| copy["data"]["a"] == "2").await?;
        stage
            .make(
                "Secret",
                "proof",
                json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": "a", "tls.key": "b"}}),
            )
            .await?;
        let ingress = json!({"spec": {"ingressClassName": "own", "tls": [{"hosts": ["shop.example.org"], "secretName": "proof"}],
            "rules": [{"host": "shop.example.org", "http": {"paths": [{"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]}});
        stage.make("Ingress", "front", ingress).await?;
        stage.arrives("Ingress", "front", |copy| copy["spec"]["ingressClassName"] == CLASS).await?;
        what_is_theirs_stays_when_an_ingress_changes(stage).await?;
        stage.arrives("Secret", "proof", |copy| copy["type"] == "kubernetes.io/tls").await?;
        stage.settles().await?;
        for (kind, name) in [("Secret", "unused"), ("Secret", "release")] {
            ensure!(stage.there(kind).get_opt(name).await?.is_none(), "{name} has left home");
        }
        stage.unmake("Ingress", &["front"]).await?;
        stage.stays_away("Secret", "proof").await?;
        stage.unmake("Secret", &["keys", "unused", "release", "proof"]).await?;
        stage.unmake("ConfigMap", &["settings", "asked"]).await
    })
}

/// Its class is given over there, and by a finalizer a controller there holds it.
async fn what_is_theirs_stays_when_an_ingress_changes(stage: &Stage) -> Result<()> {
    let there = stage.there("Ingress");
    let hold = |by: Value| json!({"metadata": {"finalizers": by}});
    let balancer = json!(["example.org/balancer"]);
    there.patch("front", &PatchParams::default(), &Patch::Merge(hold(balancer.clone()))).await?;
    let backend = json!({"service": {"name": "other", "port": {"number": 80}}});
    stage.change("Ingress", "front", &json!({"spec": {"defaultBackend": backend}})).await?;
    let copy = stage.arrives("Ingress", "front", |copy| copy["spec"]["defaultBackend"] == backend).await?;
    ensure!(copy["spec"]["ingressClassName"] == CLASS, "{copy}");
    ensure!(copy["metadata"]["finalizers"] == balancer, "{copy}");
    there.patch("front", &PatchParams::default(), &Patch::Merge(hold(Value::Null))).await?;
    Ok(())
}

#[test]
fn a_copy_that_somebody_changes_or_deletes_is_as_it_was_and_what_is_theirs_is_left_alone() -> Result<()> {
    on_stage(async |stage| {
        let (here, there) = (stage.here("Service"), stage.there("Service"));
        stage
            .make("Service", "web", json!({"spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}}))
            .await?;
        let copy = stage.arrives("Service", "web", |_| true).await?;
        let meddled =
            json!({"spec": {"selector": {"app": "theirs"}}, "metadata": {"labels": {"theirs": "x"}}});
        there.patch("web", &PatchParams::default(), &Patch::Merge(meddled)).await?;
        stage.arrives("Service", "web", |copy| copy["spec"]["selector"] == json!({"app": "a"})).await?;
        there.delete("web", &DeleteParams::default()).await?;
        stage.arrives("Service", "web", |made| made["metadata"]["uid"] != copy["metadata"]["uid"]).await?;

        let theirs = json!({"metadata": {"name": "clash"}, "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 1}]}});
        there.create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
        stage.make("Service", "clash", json!({"spec": {"ports": [{"port": 80}]}})).await?;
        let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": "clash"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.9.0.5"]}]});
        stage.make("EndpointSlice", "clash-1", slice).await?;
        let told = stage.is_told("clash", "NameTaken").await?;
        ensure!(told.contains(&stage.there) && told.contains("delete it there"), "{told}");
        stage.settles().await?;
        let left = there.get("clash").await?;
        ensure!(left.data["spec"]["selector"] == json!({"app": "theirs"}), "{left:?}");
        ensure!(stage.there("EndpointSlice").get_opt("clash-1").await?.is_none(), "it got our endpoints");
        for name in ["clash", "web"] {
            here.delete(name, &DeleteParams::default()).await?;
        }
        stage.stays_away("Service", "web").await?;
        stage.here("EndpointSlice").delete("clash-1", &DeleteParams::default()).await?;
        stage.settles().await?;
        ensure!(there.get_opt("clash").await?.is_some(), "what is theirs went with what is ours");
        there.delete("clash", &DeleteParams::default()).await?;
        Ok(())
    })
}

#[test]
fn a_copy_of_any_kind_that_somebody_changes_or_deletes_comes_back() -> Result<()> {
    on_stage(async |stage| {
        stage.make("Service", "web", json!({"spec": {"ports": [{"port": 80}]}})).await?;
        let told = |address: &str| json!([{"addresses": [address]}]);
        let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "endpoints": told("10.9.0.5")});
        let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
        let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
        let rules = |host: &str| json!({"spec": {"rules": [{"host": host, "http": {"paths": paths}}]}});
        let unlabelled = json!({"metadata": {"labels": {"reflection.liqo.io/reflected": null}}});
        for (kind, name, field, object, meddled) in [
            ("EndpointSlice", "web-1", "/endpoints", slice, json!({"endpoints": told("10.9.0.6")})),
            ("ConfigMap", "settings", "/data", json!({"data": {"a": "1"}}), json!({"data": {"a": "2"}})),
            ("Secret", "keys", "/data", json!({"stringData": {"a": "1"}}), json!({"stringData": {"a": "2"}})),
            (
                "ConfigMap",
                "settings",
                "/data",
                json!({"data": {"a": "1"}}),
                json!({"data": {"a": "2"}, "immutable": true}),
            ),
            ("ConfigMap", "settings", "/metadata/labels", json!({"data": {"a": "1"}}), unlabelled.clone()),
            ("Service", "other", "/metadata/labels", json!({"spec": {"ports": [{"port": 80}]}}), unlabelled),
            ("Ingress", "front", "/spec", rules("shop.example.org"), rules("theirs.example.org")),
        ] {
            stage.make(kind, name, object).await?;
            let copy = stage.arrives(kind, name, |_| true).await?;
            let is_as_before = |present: &Value| present.pointer(field) == copy.pointer(field);
            let there = stage.there(kind);
            let meddled = there.patch(name, &PatchParams::default(), &Patch::Merge(meddled)).await?;
            ensure!(!is_as_before(&json!(meddled)), "{kind} {name} was not changed: {meddled:?}");
            stage.arrives(kind, name, is_as_before).await?;
            there.delete(name, &DeleteParams::default()).await?;
            let is_another = |present: &Value| present["metadata"]["uid"] != copy["metadata"]["uid"];
            stage.arrives(kind, name, |present| is_another(present) && is_as_before(present)).await?;
            stage.unmake(kind, &[name]).await?;
        }
        stage.unmake("Service", &["web"]).await
    })
}

#[test]
fn a_selector_chooses_clusters_and_the_configuration_kinds() -> Result<()> {
    on_stage(async |stage| {
        let to = |selector: &str| json!({"metadata": {"annotations": {"liqo.io/reflect-to": selector}}});
        stage.make("Service", "web", json!({"spec": {"ports": [{"port": 80}]}})).await?;
        stage.arrives("Service", "web", |_| true).await?;
        stage.change("Service", "web", &to("liqo.io/type!=virtual-node")).await?;
        stage.stays_away("Service", "web").await?;
        stage.change("Service", "web", &to(&format!("metadata.name={}", stage.node))).await?;
        stage.arrives("Service", "web", |_| true).await?;
        stage.change("Service", "web", &to("region is eu")).await?;
        stage.is_told("web", "BadSelector").await?;
        stage.stays_away("Service", "web").await?;
        stage.change("Service", "web", &json!({"metadata": {"annotations": null}})).await?;
        stage.arrives("Service", "web", |_| true).await?;
        for (mode, is_there) in [("OptIn", false), ("Auto", true), ("Never", false), ("Auto", true)] {
            stage.configure(&json!({"services": mode})).await?;
            stage.goes("Service", "web", is_there).await?;
            if mode == "OptIn" {
                who_opts_in_goes_with_its_endpoints(stage).await?;
            }
        }
        stage.unmake("Service", &["web"]).await
    })
}

/// Nobody copies the annotations of a Service to its slices.
async fn who_opts_in_goes_with_its_endpoints(stage: &Stage) -> Result<()> {
    let asked = json!({"liqo.io/reflect": "true"});
    let service = json!({"metadata": {"annotations": asked}, "spec": {"ports": [{"port": 80}]}});
    stage.make("Service", "asked", service).await?;
    let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": "asked"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.9.0.5"]}]});
    stage.make("EndpointSlice", "asked-1", slice).await?;
    stage.arrives("Service", "asked", |_| true).await?;
    stage.arrives("EndpointSlice", "asked-1", |copy| endpoints(copy) == ["10.9.0.5"]).await?;
    stage.unmake("EndpointSlice", &["asked-1"]).await?;
    stage.unmake("Service", &["asked"]).await
}
