//! The rights of the roles: each may do its work, and no more.

use anyhow::{Result, bail, ensure};
use http::Request;
use rig::topology::Cluster;
use rig::wait::{block_on, eventually};
use serde_json::{Value, json};

use crate::{cluster, ferro_says};

/// A request as the ServiceAccount of a role, from a pod on that node.
fn as_role(role: &str, node: &str, method: &str, path: &str, body: &Value) -> Result<Request<Vec<u8>>> {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let builder = Request::builder()
        .method(method)
        .uri(path)
        .header("Impersonate-User", format!("system:serviceaccount:liqo:{role}"))
        .header("Impersonate-Extra-authentication.kubernetes.io%2Fnode-name", node)
        .header("Content-Type", content);
    Ok(builder.body(if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? })?)
}

/// Volumes of ours, and claims that stand in for others, and no others.
async fn of_claims(cluster: &Cluster) -> Result<()> {
    let volumes = "/api/v1/persistentvolumes?dryRun=All";
    let volume = |driver: &str| {
        json!({"metadata": {"name": "x"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"}, "csi": {"driver": driver, "volumeHandle": "a/b/c"}}})
    };
    let claims =
        |namespace: &str| format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims?dryRun=All");
    let (own_claims, other_claims) = (claims("liqo"), claims("default"));
    let claim = || {
        json!({"metadata": {"name": "x"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let attempts = [
        ("ferro-controller", "POST", volumes, volume("storage.liqo.io"), true),
        ("ferro-controller", "POST", volumes, volume("another.example"), false),
        ("ferro-controller", "POST", own_claims.as_str(), claim(), true),
        ("ferro-controller", "POST", &other_claims, claim(), false),
    ];
    check_all(cluster, &attempts).await
}

#[test]
fn every_role_may_do_its_work_and_no_more() -> Result<()> {
    block_on(async {
        let (cluster, _turn) = cluster().await?;
        ferro_says(cluster, &["install"]).await?;
        let config_map = |name: &str| json!({"metadata": {"name": name}});
        let maps = "/api/v1/namespaces/liqo/configmaps";
        let identity = "/api/v1/namespaces/liqo/configmaps?fieldSelector=metadata.name%3Dferro-identity";
        let serving = "/api/v1/namespaces/liqo/secrets?fieldSelector=metadata.name%3Dferro-auth-serving";
        let challenge = "/api/v1/namespaces/liqo/secrets?fieldSelector=metadata.name%3Dferro-challenge";
        let issued = "/api/v1/namespaces/liqo/secrets?fieldSelector=metadata.name%3Dferro-issued";
        let tokens = "/api/v1/namespaces/liqo/secrets?fieldSelector=metadata.name%3Dferro-tokens";
        let generations =
            "/api/v1/namespaces/liqo/configmaps?fieldSelector=metadata.name%3Dferro-generations";
        let names = "/apis/net.liqo.io/v1alpha1/ipamstorages?fieldSelector=metadata.name%3Dipam";
        let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings?dryRun=All";
        let binding = |role: &str| {
            json!({"metadata": {"name": "x"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole", "name": role}})
        };
        let accounts = "/api/v1/namespaces/default/serviceaccounts?dryRun=All";
        let account = |name: &str| json!({"metadata": {"name": name}});
        let peer = "34750f98-bd59-8cfc-946d-a45aaabe933b.0";
        cluster.kubectl(&["create", "serviceaccount", peer]).await?;
        let of = |name: &str| format!("/api/v1/namespaces/default/serviceaccounts/{name}");
        let (peers_own, everybodys) = (of(peer), of("default"));
        let (token_of_peer, token_of_other) = (format!("{peers_own}/token"), format!("{everybodys}/token"));
        let token = || json!({"spec": {"audiences": []}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/liqo/leases?dryRun=All";
        let lease = |name: &str| json!({"metadata": {"name": name}});
        let events =
            |namespace: &str| format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events?dryRun=All");
        let (of_nodes, of_ours) = (events("default"), events("liqo"));
        let event = || {
            json!({"metadata": {"name": "x"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Warning",
                "reason": "PeerNotReached", "action": "Route", "reportingController": "ferro-node",
                "reportingInstance": "n1", "regarding": {"kind": "Node", "name": "n1"}})
        };
        let attempts = [
            ("ferro-node", "POST", of_nodes.as_str(), event(), true),
            ("ferro-node", "POST", &of_ours, event(), false),
            ("ferro-node", "POST", leases, lease("another"), false),
            ("ferro-gateway", "POST", leases, lease("another"), false),
            ("ferro-gateway", "POST", leases, lease("ferro-gateway"), true),
            (
                "ferro-controller",
                "GET",
                "/apis/coordination.k8s.io/v1/namespaces/liqo/leases",
                Value::Null,
                true,
            ),
            ("ferro-node", "POST", maps, config_map("ferro-sightings-n1"), true),
            ("ferro-node", "POST", maps, config_map("ferro-sightings-n2"), false),
            ("ferro-node", "POST", maps, config_map("ferro-identity"), false),
            ("ferro-node", "GET", identity, Value::Null, true),
            ("ferro-node", "GET", maps, Value::Null, false),
            ("ferro-node", "GET", "/api/v1/namespaces/liqo/services", Value::Null, true),
            ("ferro-node", "GET", "/api/v1/namespaces/default/services", Value::Null, false),
            ("ferro-node", "GET", "/api/v1/namespaces/liqo/secrets", Value::Null, false),
            ("ferro-node", "GET", "/apis/config.liqo.io/v1alpha1/clusterconfigs", Value::Null, true),
            ("ferro-node", "GET", "/apis/net.liqo.io/v1alpha1/tunnelendpoints", Value::Null, true),
            ("ferro-node", "GET", names, Value::Null, true),
            ("ferro-node", "GET", "/apis/net.liqo.io/v1alpha1/ipamstorages", Value::Null, false),
            ("ferro-node", "GET", "/apis/net.liqo.io/v1alpha1/networkconfigs", Value::Null, false),
            ("ferro-node", "GET", "/api/v1/nodes", Value::Null, true),
            ("ferro-node", "GET", "/apis/apps/v1/namespaces/liqo/daemonsets/ferro-node", Value::Null, true),
            ("ferro-node", "GET", "/apis/apps/v1/namespaces/liqo/daemonsets", Value::Null, false),
            ("ferro-auth", "GET", "/apis/config.liqo.io/v1alpha1/clusterconfigs", Value::Null, true),
            ("ferro-auth", "GET", "/apis/discovery.liqo.io/v1alpha1/foreignclusters", Value::Null, false),
            ("ferro-auth", "GET", "/api/v1/namespaces/liqo/secrets", Value::Null, false),
            ("ferro-auth", "GET", identity, Value::Null, true),
            ("ferro-auth", "GET", maps, Value::Null, false),
            ("ferro-auth", "GET", serving, Value::Null, true),
            ("ferro-auth", "GET", challenge, Value::Null, true),
            ("ferro-auth", "GET", generations, Value::Null, true),
            ("ferro-auth", "GET", issued, Value::Null, true),
            ("ferro-auth", "GET", tokens, Value::Null, false),
            ("ferro-auth", "POST", accounts, account(peer), false),
            ("ferro-auth", "POST", &token_of_peer, token(), false),
            ("ferro-controller", "GET", "/api/v1/namespaces/liqo/secrets", Value::Null, true),
            ("ferro-controller", "GET", "/api/v1/secrets", Value::Null, false),
            ("ferro-controller", "GET", "/api/v1/namespaces/kube-system/secrets", Value::Null, false),
            ("ferro-controller", "GET", "/api/v1/pods", Value::Null, true),
            ("ferro-controller", "POST", bindings, binding("ferro-peer"), true),
            ("ferro-controller", "POST", bindings, binding("cluster-admin"), false),
            ("ferro-controller", "POST", bindings, binding("view"), false),
            ("ferro-controller", "POST", accounts, account("another"), false),
            ("ferro-controller", "POST", &token_of_peer, token(), true),
            ("ferro-controller", "POST", &token_of_other, token(), false),
            ("ferro-controller", "DELETE", &everybodys, Value::Null, false),
            ("ferro-controller", "DELETE", &peers_own, Value::Null, true),
            ("ferro-controller", "POST", accounts, account(peer), true),
        ];
        check_all(cluster, &attempts).await?;
        of_tenants(cluster).await?;
        of_claims(cluster).await?;
        ferro_says(cluster, &["uninstall", "--yes", "--wait"]).await.map(drop)
    })
}

#[test]
fn the_controller_reaches_the_configuration_of_its_webhook_and_no_other() -> Result<()> {
    block_on(async {
        let (cluster, _turn) = cluster().await?;
        ferro_says(cluster, &["install"]).await?;
        let all = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        let watched = format!("{all}?fieldSelector=metadata.name%3Dferro-webhook");
        let own = format!("{all}/ferro-webhook");
        let attempts = [
            ("ferro-controller", "GET", watched.as_str(), Value::Null, true),
            ("ferro-controller", "GET", all, Value::Null, false),
            ("ferro-controller", "DELETE", &own, Value::Null, false),
            ("ferro-auth", "GET", &own, Value::Null, false),
            ("ferro-node", "GET", &own, Value::Null, false),
            ("ferro-gateway", "GET", &own, Value::Null, false),
        ];
        check_all(cluster, &attempts).await?;
        ferro_says(cluster, &["uninstall", "--yes", "--wait"]).await.map(drop)
    })
}

#[test]
fn the_controller_marks_namespaces_and_answers_their_labels_and_nobody_else_does() -> Result<()> {
    block_on(async {
        let (cluster, _turn) = cluster().await?;
        ferro_says(cluster, &["install"]).await?;
        let (namespace, status) =
            ("/api/v1/namespaces/default?dryRun=All", "/api/v1/namespaces/default/status?dryRun=All");
        let mark = || json!({"metadata": {"labels": {"offloading.liqo.io/admitted": "true"}}});
        let answer = || {
            json!({"status": {"conditions": [{"type": "OffloadingRefused", "status": "True", "reason": "NameTooLong",
                "message": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
        };
        let whole = || json!({"metadata": {"name": "default"}});
        let attempts = [
            ("ferro-controller", "PATCH", namespace, mark(), true),
            ("ferro-controller", "PATCH", status, answer(), true),
            ("ferro-controller", "PUT", namespace, whole(), false),
            ("ferro-auth", "PATCH", namespace, mark(), false),
            ("ferro-auth", "PATCH", status, answer(), false),
            ("ferro-node", "PATCH", namespace, mark(), false),
            ("ferro-gateway", "PATCH", namespace, mark(), false),
        ];
        check_all(cluster, &attempts).await?;
        ferro_says(cluster, &["uninstall", "--yes", "--wait"]).await.map(drop)
    })
}

/// Who tries what, and whether it is allowed.
type Attempt<'a> = (&'a str, &'a str, &'a str, Value, bool);

async fn check_all(cluster: &Cluster, attempts: &[Attempt<'_>]) -> Result<()> {
    for (role, method, path, body, is_allowed) in attempts {
        // Rights and policies take effect a moment after they are written.
        let check = || check(cluster, as_role(role, "n1", method, path, body), *is_allowed);
        eventually(&format!("{role}: {method} {path} {body} has the right answer"), check).await?;
    }
    Ok(())
}

/// What the controller may do about Tenants: all of it in their namespaces, and next to nothing elsewhere.
async fn of_tenants(cluster: &Cluster) -> Result<()> {
    let id = "34750f98-bd59-8cfc-946d-a45aaabe933b";
    let namespace = json!({"metadata": {"name": "of-a-tenant", "labels": {"tenancy.liqo.io/tenant": id}}});
    eventually("the controller makes a namespace of a Tenant", || async {
        let request = as_role("ferro-controller", "n1", "POST", "/api/v1/namespaces", &namespace)?;
        match cluster.client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            made => Ok(made.map(drop)?),
        }
    })
    .await?;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let in_namespace = |root: &str, namespace: &str, plural: &str| {
        format!("{root}/namespaces/{namespace}/{plural}?dryRun=All")
    };
    let everywhere = |plural: &str| format!("{rbac}/{plural}?dryRun=All");
    let role_ref =
        |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let binding = |name: &str, role: &str| json!({"metadata": {"name": name}, "roleRef": role_ref(role)});
    let window = |name: &str, resource: &str, of: &str| {
        json!({"metadata": {"name": name}, "rules": [{"apiGroups": ["tenancy.liqo.io"],
            "resources": [resource], "resourceNames": [of], "verbs": ["get", "watch"]}]})
    };
    let own = format!("ferro-tenant-{id}");
    let named = || json!({"metadata": {"name": "x"}});
    let policy = || json!({"metadata": {"name": "x"}, "spec": {"podSelector": {}}});
    let mut attempts = vec![
        (everywhere("clusterroles"), window(&own, "tenants", id), true),
        (everywhere("clusterroles"), window(&own, "tenants", "another"), false),
        (everywhere("clusterroles"), window(&own, "tenantdelegations", id), false),
        (everywhere("clusterroles"), window("ferro-tenant-viewer-2", "tenants", id), false),
        (everywhere("clusterrolebindings"), binding(&own, "cluster-admin"), false),
        (everywhere("clusterrolebindings"), binding(&own, "ferro-tenant-viewer"), false),
        (in_namespace(rbac, "of-a-tenant", "rolebindings"), binding("x", "admin"), false),
    ];
    for (place, is_tenants) in [("of-a-tenant", true), ("default", false), ("kube-system", false)] {
        let networking = "/apis/networking.k8s.io/v1";
        attempts.extend([
            (in_namespace(rbac, place, "rolebindings"), binding("x", "ferro-tenant-peer"), is_tenants),
            (in_namespace(rbac, place, "rolebindings"), binding("x", "ferro-tenant-admin"), is_tenants),
            (in_namespace(networking, place, "networkpolicies"), policy(), is_tenants),
            (in_namespace("/api/v1", place, "resourcequotas"), named(), is_tenants),
            (in_namespace("/api/v1", place, "limitranges"), named(), is_tenants),
            (in_namespace("/api/v1", place, "configmaps"), named(), is_tenants),
        ]);
    }
    for (path, body, is_allowed) in attempts {
        let request = || as_role("ferro-controller", "n1", "POST", &path, &body);
        let what = format!("ferro-controller: POST {path} {body} has the right answer");
        eventually(&what, || check(cluster, request(), is_allowed)).await?;
    }
    for role in ["ferro-node", "ferro-auth"] {
        let request = as_role(role, "n1", "GET", "/apis/tenancy.liqo.io/v1alpha1/tenants", &Value::Null);
        check(cluster, request, false).await?;
    }
    cluster.kubectl(&["delete", "namespace", "of-a-tenant"]).await.map(drop)
}

/// Whether a request is allowed, and is as it should be. What it makes is removed.
async fn check(cluster: &Cluster, request: Result<Request<Vec<u8>>>, is_allowed: bool) -> Result<()> {
    let request = request?;
    let is_dry = request.uri().query().is_some_and(|query| query.contains("dryRun"));
    let makes_map = request.method() == "POST" && request.uri().path().ends_with("/configmaps") && !is_dry;
    let answer = cluster.client.request::<Value>(request).await;
    let was_allowed = match &answer {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 403 || status.code == 422 => false,
        Err(error) => bail!("{error}"),
    };
    if let Ok(made) = answer.as_ref().map(|made| made["metadata"]["name"].as_str().unwrap_or_default())
        && makes_map
    {
        cluster.kubectl(&["delete", "configmap", made, "--namespace", "liqo"]).await?;
    }
    ensure!(was_allowed == is_allowed, "{answer:?}");
    Ok(())
}
