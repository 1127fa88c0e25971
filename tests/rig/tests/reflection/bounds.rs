//! What a consumer may not have in its namespaces over there, whatever its rights say: asked as its own identity.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rig::wait::eventually;
use serde_json::{Value, json};

use crate::stage::{CLASS, Stage, on_stage};

/// Somebody whom the provider lets in as an owner.
const OWNER: &str = "somebody";
/// Where endpoints of a Tenant may lie, as it is written on its namespaces.
const NETWORKS: &str = "tenancy.liqo.io/networks";
/// So often somebody tries before the annotation is written anew: the controller is about to put it back.
const TRIES: usize = 20;

/// A client for somebody who is nothing else.
async fn client_of(stage: &Stage, user: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(&stage.turin.cluster.kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.auth_info.impersonate = Some(user.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:authenticated".into()]);
    Ok(Client::try_from(config)?)
}

/// Why something may not be there; nothing if it may.
async fn try_to(stage: &Stage, client: &Client, kind: &str, object: Value) -> Result<Option<String>> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let api = Api::namespaced_with(client.clone(), &stage.there, &crate::stage::resource(kind));
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&dry, &object).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}

#[test]
fn a_consumer_keeps_to_itself() -> Result<()> {
    on_stage(async |stage| {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "owner", "namespace": stage.there},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ferro-tenant-peer"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OWNER}],
        });
        stage.turin.cluster.apply(&binding.to_string()).await?;
        let client = client_of(stage, OWNER).await?;
        let service = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec});
        let slice = |type_: &str, address: &str| json!({"metadata": {"name": "a"}, "addressType": type_, "endpoints": [{"addresses": [address]}]});
        let plain = service(json!({"ports": [{"port": 80}]}));
        // Rights take effect a moment after they are written.
        eventually("it may have a Service", || async {
            let refused = try_to(stage, &client, "Service", plain.clone()).await?;
            ensure!(refused.is_none(), "{refused:?}");
            Ok(())
        })
        .await?;
        for (kind, object, word) in [
            (
                "Service",
                service(json!({"type": "NodePort", "ports": [{"port": 80}]})),
                "ClusterIP or ExternalName",
            ),
            (
                "Service",
                service(json!({"type": "LoadBalancer", "ports": [{"port": 80}]})),
                "ClusterIP or ExternalName",
            ),
            (
                "Service",
                service(json!({"externalIPs": ["192.0.2.1"], "ports": [{"port": 80}]})),
                "externalIPs",
            ),
            (
                "Service",
                service(json!({"type": "ExternalName", "externalName": "metadata.google.internal"})),
                "a machine of this cluster",
            ),
            ("EndpointSlice", slice("FQDN", "example.org"), "are addresses"),
            (
                "Ingress",
                json!({"metadata": {"name": "a", "annotations": {"nginx.ingress.kubernetes.io/server-snippet": "x"}},
                "spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}}),
                "annotations",
            ),
            ("Ingress", classy(json!({})), "no class"),
            ("ConfigMap", held(), "finalizers"),
            ("Secret", held(), "finalizers"),
            // Who wants nobody to write down what it has said.
            ("Ingress", classy(json!({"managedFields": [{}]})), "no class"),
        ] {
            let refused = try_to(stage, &client, kind, object.clone()).await?;
            ensure!(refused.as_ref().is_some_and(|why| why.contains(word)), "{object}: {refused:?}");
        }
        endpoints_keep_to_the_networks(stage, &client).await
    })
}

/// What would keep its namespace from ever going.
fn held() -> Value {
    json!({"metadata": {"name": "a", "finalizers": ["example.org/held"]}})
}

/// An Ingress that chooses its class, though it be the one that it would be given.
fn classy(mut metadata: Value) -> Value {
    metadata["name"] = "a".into();
    let backend = json!({"service": {"name": "a", "port": {"number": 80}}});
    json!({"metadata": metadata, "spec": {"ingressClassName": CLASS, "defaultBackend": backend}})
}

/// Somebody else joins these networks. Where we do, endpoints lie in the networks of the consumer.
async fn endpoints_keep_to_the_networks(stage: &Stage, client: &Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(stage.turin.admin.clone());
    let slice = |address: &str| json!({"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [{"addresses": [address]}]});
    let before = networks(stage, &namespaces).await?;
    ensure!(before.is_some(), "nobody says where endpoints may lie");
    let narrow = json!({"metadata": {"annotations": {NETWORKS: "10.9.0.0/16"}}});
    eventually("endpoints elsewhere are refused", || async {
        namespaces.patch(&stage.there, &PatchParams::default(), &Patch::Merge(&narrow)).await?;
        let mut others = None;
        for _ in 0..TRIES {
            others = try_to(stage, client, "EndpointSlice", slice("10.8.7.5")).await?;
            if others.is_some() {
                break;
            }
        }
        ensure!(others.as_ref().is_some_and(|why| why.contains("10.9.0.0/16")), "{others:?}");
        let own = try_to(stage, client, "EndpointSlice", slice("10.9.7.5")).await?;
        ensure!(own.is_none(), "{own:?}");
        Ok(())
    })
    .await?;
    eventually("the annotation is as it was", || async {
        let present = networks(stage, &namespaces).await?;
        ensure!(present == before, "{present:?}");
        Ok(())
    })
    .await
}

async fn networks(stage: &Stage, namespaces: &Api<Namespace>) -> Result<Option<String>> {
    let annotations = namespaces.get(&stage.there).await?.metadata.annotations.unwrap_or_default();
    Ok(annotations.get(NETWORKS).cloned())
}
