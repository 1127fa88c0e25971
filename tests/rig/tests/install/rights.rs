//! The rights of the roles: each may do its work, and no more.

use anyhow::{Result, ensure};
use http::Request;
use rig::wait::{block_on, eventually};
use serde_json::{Value, json};

use crate::{cluster, ferro_says};

/// A request as the ServiceAccount of a role, from a pod on that node.
fn as_role(role: &str, node: &str, method: &str, path: &str, body: &Value) -> Result<Request<Vec<u8>>> {
    let builder = Request::builder()
        .method(method)
        .uri(path)
        .header("Impersonate-User", format!("system:serviceaccount:liqo:{role}"))
        .header("Impersonate-Extra-authentication.kubernetes.io%2Fnode-name", node)
        .header("Content-Type", "application/json");
    Ok(builder.body(if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? })?)
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
        let attempts = [
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
        for (role, method, path, body, is_allowed) in attempts {
            let what = format!("{role}: {method} {path} {body}");
            let check = || async {
                let answer = cluster.client.request::<Value>(as_role(role, "n1", method, path, &body)?).await;
                let was_allowed = match &answer {
                    Ok(_) => true,
                    Err(kube::Error::Api(status)) if status.code == 403 || status.code == 422 => false,
                    Err(error) => anyhow::bail!("{what}: {error}"),
                };
                if was_allowed && method == "POST" && path == maps {
                    let name = body["metadata"]["name"].as_str().unwrap_or_default();
                    cluster.kubectl(&["delete", "configmap", name, "--namespace", "liqo"]).await?;
                }
                ensure!(was_allowed == is_allowed, "{what}: {answer:?}");
                Ok(())
            };
            // Rights and policies take effect a moment after they are written.
            eventually("the right takes effect", check).await?;
        }
        ferro_says(cluster, &["uninstall", "--yes", "--wait"]).await.map(drop)
    })
}
