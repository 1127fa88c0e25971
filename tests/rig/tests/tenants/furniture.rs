//! What belongs into a Tenant's namespaces: it comes back when it is taken away, and follows what an administrator says.

use anyhow::{Result, ensure};
use ferro_api::config::ClusterConfig;
use ferro_api::net::TunnelEndpoint;
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Namespace, ResourceQuota, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use rig::wait::eventually;
use serde_json::{Value, json};

use crate::parsed;
use crate::stage::{Stage, on_stage, refused};

const NAME: &str = "ferro-tenant";

fn quotas(client: &Client, namespace: &str) -> Api<ResourceQuota> {
    Api::namespaced(client.clone(), namespace)
}

/// Deletes an object and waits until another one is there.
async fn heals<K>(api: &Api<K>) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let before = api.get(NAME).await?;
    api.delete(NAME, &DeleteParams::default()).await?;
    eventually("it is made anew", || async {
        let after = api.get(NAME).await?;
        ensure!(after.uid() != before.uid(), "it is still there");
        Ok(())
    })
    .await
}

#[test]
fn what_somebody_takes_away_or_changes_comes_back() -> Result<()> {
    on_stage(async |stage| {
        // A cluster without nodes offers nothing, to which nothing could be limited.
        stage.set(&stage.rome, &json!({"namespaceCeiling": {"hard": {"cpu": "2"}}})).await?;
        stage.rome.has([("shop", "shop-of-rome")]).await?;
        let admin = &stage.turin.admin;
        eventually("its quota is there", || async { Ok(quotas(admin, "shop-of-rome").get(NAME).await?) })
            .await?;
        heals(&quotas(admin, "shop-of-rome")).await?;
        heals(&Api::<NetworkPolicy>::namespaced(admin.clone(), "shop-of-rome")).await?;
        heals(&Api::<RoleBinding>::namespaced(admin.clone(), "shop-of-rome")).await?;
        let quota = quotas(admin, "shop-of-rome");
        let before = quota.get(NAME).await?.spec;
        let more = Patch::Merge(json!({"spec": {"hard": {"cpu": "100000"}}}));
        quota.patch(NAME, &PatchParams::default(), &more).await?;
        eventually("it says what it said", || async {
            ensure!(quota.get(NAME).await?.spec == before);
            Ok(())
        })
        .await?;
        // A whole namespace is made anew as well.
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        let uid = namespaces.get("shop-of-rome").await?.uid();
        namespaces.delete("shop-of-rome", &DeleteParams::default()).await?;
        eventually("there is another one", || async {
            ensure!(namespaces.get("shop-of-rome").await?.uid() != uid, "it is still there");
            Ok(())
        })
        .await?;
        stage.rome.has([("shop", "shop-of-rome")]).await
    })
}

#[test]
fn what_a_tenant_says_holds_in_all_its_namespaces_as_soon_as_it_says_so() -> Result<()> {
    on_stage(async |stage| {
        stage.rome.has([("shop", "shop-of-rome"), ("back", "back-of-rome")]).await?;
        let settings = json!({
            "namespaceCeiling": {"hard": {"cpu": "500m", "example.org/gpu": "1"}}, "podSecurity": "restricted",
            "counts": {"persistentvolumeclaims": 3, "widgets.example.org": 5}, "isolation": false,
            "limitRange": {"limits": [{"type": "Container", "max": {"cpu": "0.25"}}]},
            "owners": [{"kind": "Group", "name": "romans"}],
        });
        stage.set(&stage.rome, &settings).await?;
        let admin = &stage.turin.admin;
        for namespace in ["shop-of-rome", "back-of-rome"] {
            eventually("it is as the Tenant says", || async {
                let hard = quotas(admin, namespace).get(NAME).await?.spec.and_then(|spec| spec.hard);
                let hard = serde_json::to_value(hard)?;
                let wanted = json!({"cpu": "500m", "requests.example.org/gpu": "1",
                    "count/persistentvolumeclaims": "3", "count/widgets.example.org": "5"});
                ensure!(hard == wanted, "{hard}");
                let labels = Api::<Namespace>::all(admin.clone()).get(namespace).await?.labels().clone();
                ensure!(labels["pod-security.kubernetes.io/enforce"] == "restricted", "{labels:?}");
                let limits: Api<LimitRange> = Api::namespaced(admin.clone(), namespace);
                let limits = serde_json::to_value(limits.get(NAME).await?.spec)?;
                let most = json!({"cpu": "250m"});
                let said = &limits["limits"][0];
                ensure!(said["type"] == "Container" && said["max"] == most, "{limits}");
                let policies: Api<NetworkPolicy> = Api::namespaced(admin.clone(), namespace);
                ensure!(policies.get_opt(NAME).await?.is_none(), "it is still isolated");
                let binding = Api::<RoleBinding>::namespaced(admin.clone(), namespace).get(NAME).await?;
                let subjects = binding.subjects.unwrap_or_default();
                ensure!(subjects.iter().any(|subject| subject.name == "romans"), "{subjects:?}");
                Ok(())
            })
            .await?;
        }
        rests(stage).await
    })
}

/// Makes a Secret as a consumer would.
async fn keep(client: &Client, namespace: &str, name: &str) -> kube::Result<Secret> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    secrets.create(&PostParams::default(), &Secret { metadata, ..Secret::default() }).await
}

#[test]
fn beyond_a_count_objects_are_refused_in_each_namespace() -> Result<()> {
    on_stage(async |stage| {
        stage.set(&stage.rome, &json!({"counts": {"secrets": 1}})).await?;
        stage.rome.has([("shop", "shop-of-rome"), ("back", "back-of-rome")]).await?;
        let client = &stage.rome.client;
        for namespace in ["shop-of-rome", "back-of-rome"] {
            // Kubernetes has to count what there is before it lets anything in, and may not know of the quota before that.
            eventually("what there is has been counted", || async {
                let status = quotas(client, namespace).get(NAME).await?.status;
                let used = status.and_then(|status| status.used).unwrap_or_default();
                ensure!(used.contains_key("count/secrets"), "{used:?}");
                Ok(())
            })
            .await?;
            let first = || async { Ok(keep(client, namespace, "first").await?) };
            eventually("one is let in", first).await?;
            let why = refused(keep(client, namespace, "second").await)?;
            ensure!(why.contains("exceeded quota: ferro-tenant") && why.contains("count/secrets=1"), "{why}");
        }
        Ok(())
    })
}

#[test]
fn the_network_policy_opens_the_tenant_itself_the_consumers_networks_and_dns() -> Result<()> {
    on_stage(async |stage| {
        stage.rome.has([("shop", "shop-of-rome")]).await?;
        let (admin, id) = (&stage.turin.admin, stage.rome.id.as_str());
        let tunnels: Api<TunnelEndpoint> = Api::namespaced(admin.clone(), &stage.rome.control);
        let policies: Api<NetworkPolicy> = Api::namespaced(admin.clone(), "shop-of-rome");
        let own = json!({"namespaceSelector": {"matchLabels": {"tenancy.liqo.io/tenant": id}}});
        opens(&policies, &json!([own])).await?;
        // What the network manager writes once the two have agreed: one network of Rome is known by another name here.
        let tunnel = json!({
            "apiVersion": "net.liqo.io/v1alpha1", "kind": "TunnelEndpoint",
            "metadata": {"name": id, "labels": {"app.kubernetes.io/part-of": "ferrofluid"}},
            "spec": {"clusterID": id, "podCIDR": "10.42.0.0/16", "externalCIDR": "10.43.0.0/16",
                "endpointIP": "192.0.2.1", "backendType": "wireguard"},
        });
        tunnels.create(&PostParams::default(), &parsed(tunnel)?).await?;
        let names = json!({"remoteNATPodCIDR": "10.61.0.0/16", "remoteNATExternalCIDR": "None",
            "localPodCIDR": "198.18.64.0/18"});
        let names = Patch::Merge(json!({"status": names}));
        tunnels.patch_status(id, &PatchParams::default(), &names).await?;
        let block = |cidr: &str| json!({"ipBlock": {"cidr": cidr}});
        let egress = opens(&policies, &json!([own, block("10.61.0.0/16"), block("10.43.0.0/16")])).await?;
        let dns = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}});
        ensure!(egress[1]["to"] == json!([dns, block("169.254.20.10/32")]), "{egress}");
        let ports = [json!({"port": 53, "protocol": "UDP"}), json!({"port": 53, "protocol": "TCP"})];
        ensure!(egress[1]["ports"] == json!(ports), "{egress}");
        let except = egress[2]["to"][0]["ipBlock"]["except"].as_array().cloned().unwrap_or_default();
        for private in ["10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "198.18.64.0/18"] {
            ensure!(except.contains(&json!(private)), "{private} is open: {egress}");
        }
        tunnels.delete(id, &DeleteParams::default()).await?;
        opens(&policies, &json!([own])).await.map(drop)
    })
}

/// Waits until pods of a namespace may talk to these in both ways, and gives all whom they may talk to.
async fn opens(policies: &Api<NetworkPolicy>, peers: &Value) -> Result<Value> {
    eventually("the policy is as it should be", || async {
        let spec = serde_json::to_value(policies.get(NAME).await?.spec)?;
        ensure!(spec["ingress"] == json!([{"from": peers}]), "{spec}");
        ensure!(spec["egress"][0] == json!({"to": peers}), "{spec}");
        ensure!(spec["egress"].as_array().is_some_and(|all| all.len() == 3), "{spec}");
        ensure!(spec["policyTypes"] == json!(["Ingress", "Egress"]), "{spec}");
        Ok(spec["egress"].clone())
    })
    .await
}

#[test]
fn templates_of_the_configuration_are_in_every_namespace_and_follow_it() -> Result<()> {
    on_stage(async |stage| {
        stage.rome.has([("shop", "shop-of-rome")]).await?;
        let maps: Api<ConfigMap> = Api::namespaced(stage.turin.admin.clone(), "shop-of-rome");
        let with = |text: &str| {
            json!({"templates": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "welcome"},
                "data": {"text": text}}]})
        };
        for text in ["hello", "good day"] {
            configure(stage, with(text)).await?;
            eventually("the template is there", || async {
                let data = maps.get("welcome").await?.data.unwrap_or_default();
                ensure!(data.get("text").is_some_and(|present| present == text), "{data:?}");
                Ok(())
            })
            .await?;
        }
        rests(stage).await?;
        configure(stage, Value::Null).await?;
        eventually("it is gone", || async {
            ensure!(maps.get_opt("welcome").await?.is_none(), "it is still there");
            Ok(())
        })
        .await
    })
}

async fn configure(stage: &Stage, tenancy: Value) -> Result<()> {
    let configs: Api<ClusterConfig> = Api::all(stage.turin.admin.clone());
    let patch = Patch::Merge(json!({"spec": {"tenancyConfig": tenancy}}));
    configs.patch("liqo-configuration", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Whether nothing more is written once all is as it should be.
async fn rests(stage: &Stage) -> Result<()> {
    eventually("the Tenant is ready", || async {
        let status = stage.tenant(&stage.rome).await?.status.unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        ensure!(ready.is_some_and(|ready| ready.status == "True"), "{ready:?}");
        Ok(())
    })
    .await?;
    // Longer than the status of a Tenant may be held back: what comes late has come.
    eventually("nothing is written any more", || async {
        let mark = stage.audit.mark().await?;
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
        let asked = stage.audit.since(mark).await?;
        let written: Vec<_> =
            asked.iter().filter(|asked| asked.manager.as_deref() == Some("ferro-tenancy")).collect();
        ensure!(written.is_empty(), "{written:?}");
        Ok(())
    })
    .await
}
