//! Which clusters a namespace uses: every operator, several terms, fields, labels that change, nodes that come and go. Each
//! map that changes is written once, and no other.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use ferro_api::config::ClusterConfig;
use ferro_api::discovery::PeeringState::{Established, None as Unpeered};
use ferro_api::offloading::OffloadingPhase;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rig::audit::{Asked, Mark, writes};
use rig::site::{Site, ferro};
use rig::wait::eventually;
use serde_json::{Value, json};

use crate::stage::{Stage, by_us, on_stage};

fn one(key: &str, operator: &str, values: &[&str]) -> Value {
    if values.is_empty() {
        json!({"key": key, "operator": operator})
    } else {
        json!({"key": key, "operator": operator, "values": values})
    }
}

fn terms(terms: &[&[Value]]) -> Value {
    let terms: Vec<Value> =
        terms.iter().map(|expressions| json!({"matchExpressions": expressions})).collect();
    json!({"nodeSelectorTerms": terms})
}

/// What a cluster says of itself.
async fn describe(site: &Site, labels: &Value) -> Result<()> {
    let configs: Api<ClusterConfig> = Api::all(site.admin.clone());
    let patch = json!({"spec": {"clusterLabels": labels}});
    configs.patch("liqo-configuration", &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// What we did to one map since a mark, in order. A deletion names no field manager.
async fn verbs(stage: &Stage, since: Mark, map: &str) -> Result<Vec<String>> {
    let ours = |one: &Asked| one.manager.as_deref() == Some("ferro-offloading") || one.verb == "delete";
    let asked = stage.audit.since(since).await?.into_iter();
    let of_map = asked.filter(|one| one.resource == "namespacemaps" && one.object() == map && ours(one));
    Ok(of_map.filter(Asked::is_write).map(|one| one.verb).collect())
}

/// How often each map was written by us since a mark.
async fn written(stage: &Stage, since: Mark) -> Result<BTreeMap<String, usize>> {
    Ok(writes(&by_us(&stage.audit.since(since).await?), "namespacemaps"))
}

#[test]
fn every_selector_means_what_the_scheduler_reads_in_it_and_each_changed_map_is_written_once() -> Result<()> {
    on_stage(async |stage| {
        let (turin, milan) = (&stage.turin.site, &stage.milan);
        stage.label_node(turin, &json!({"security-policy": "strict", "tier": "10"})).await?;
        stage.label_node(milan, &json!({"tier": "2"})).await?;
        let node = stage
            .rome
            .peer(milan)
            .await?
            .status
            .unwrap_or_default()
            .outgoing
            .unwrap_or_default()
            .virtual_node;
        let node = node.map(|node| node.name).unwrap_or_default();
        let field = json!({"nodeSelectorTerms": [{"matchFields": [one("metadata.name", "In", &[&node])]}]});
        let rows: [(Value, &[&Site]); 12] = [
            (terms(&[&[one("security-policy", "In", &["strict", "other"])]]), &[turin]),
            (terms(&[&[one("security-policy", "NotIn", &["strict"])]]), &[milan]),
            (terms(&[&[one("tier", "Exists", &[])]]), &[turin, milan]),
            (terms(&[&[one("security-policy", "DoesNotExist", &[])]]), &[milan]),
            (terms(&[&[one("tier", "Gt", &["5"])]]), &[turin]),
            (terms(&[&[one("tier", "Lt", &["5"])]]), &[milan]),
            (
                terms(&[&[one("tier", "Lt", &["5"])], &[one("security-policy", "Exists", &[])]]),
                &[turin, milan],
            ),
            (terms(&[&[one("tier", "Exists", &[]), one("security-policy", "Exists", &[])]]), &[turin]),
            (field, &[milan]),
            (json!({"nodeSelectorTerms": []}), &[]),
            (terms(&[&[]]), &[]),
            (terms(&[&[one("liqo.io/type", "In", &["virtual-node"])]]), &[turin, milan]),
        ];
        stage.make("picky").await?;
        stage.offload("picky", &json!({"clusterSelector": {"nodeSelectorTerms": []}})).await?;
        stage.comes_to("picky", Some(OffloadingPhase::NoClusterSelected)).await?;
        let (mark, mut expected) = (stage.audit.mark().await?, BTreeMap::new());
        let mut before: Vec<&str> = Vec::new();
        for (selector, at) in &rows {
            stage.patch("picky", &json!({"spec": {"clusterSelector": selector}})).await?;
            stage.is_asked_for("picky", at).await?;
            let after: Vec<&str> = at.iter().map(|site| site.name.as_str()).collect();
            for site in [turin, milan] {
                if before.contains(&site.name.as_str()) != after.contains(&site.name.as_str()) {
                    *expected.entry(stage.map_name(site).await?).or_insert(0) += 1;
                }
            }
            before = after;
        }
        stage.comes_to("picky", Some(OffloadingPhase::Ready)).await?;
        let counted = written(stage, mark).await?;
        ensure!(counted == expected, "written {counted:?}, expected {expected:?}");
        stage.unoffload("picky").await?;
        stage.discard("picky").await?;
        stage.label_node(turin, &json!({})).await?;
        stage.label_node(milan, &json!({})).await
    })
}

/// Waits until the conditions of a cluster have gone with what was there.
async fn is_on_one_cluster(stage: &Stage, name: &str) -> Result<()> {
    eventually(&format!("{name} is on one cluster only"), || async {
        let status = stage.offloading(name).await?.status.unwrap_or_default();
        ensure!(status.remote_namespaces_conditions.len() == 1, "{status:?}");
        Ok(())
    })
    .await
}

#[test]
fn maps_follow_labels_and_nodes_that_come_and_go() -> Result<()> {
    on_stage(async |stage| {
        let (turin, milan) = (&stage.turin.site, &stage.milan);
        stage.label_node(turin, &json!({"region": "north"})).await?;
        for name in ["one", "two"] {
            stage.make(name).await?;
            let north = terms(&[&[one("region", "In", &["north"])]]);
            stage.offload(name, &json!({"clusterSelector": north})).await?;
            stage.is_asked_for(name, &[turin]).await?;
            stage.comes_to(name, Some(OffloadingPhase::Ready)).await?;
        }

        // A label that a cluster says of itself: from its configuration by the offer to the node.
        let mark = stage.audit.mark().await?;
        describe(milan, &json!({"region": "north"})).await?;
        for name in ["one", "two"] {
            stage.is_asked_for(name, &[turin, milan]).await?;
            stage.comes_to(name, Some(OffloadingPhase::Ready)).await?;
        }
        let counted = written(stage, mark).await?;
        ensure!(counted == BTreeMap::from([(stage.map_name(milan).await?, 1)]), "a label came: {counted:?}");

        let (mark, map) = (stage.audit.mark().await?, stage.map_name(milan).await?);
        ferro(&stage.rome.cluster, &["unpeer", "milan"]).await?;
        stage.rome.reaches(milan, Unpeered, Unpeered).await?;
        ensure!(stage.map(milan).await?.is_none(), "the map outlives the peering");
        for name in ["one", "two"] {
            is_on_one_cluster(stage, name).await?;
            stage.comes_to(name, Some(OffloadingPhase::Ready)).await?;
        }
        // All entries at once; and then the map goes, which is a deletion and the end of its finalizer.
        let verbs = verbs(stage, mark, &map).await?;
        ensure!(verbs == ["patch", "delete", "patch"], "a node left: {verbs:?}");
        let counted = written(stage, mark).await?;
        ensure!(counted.len() == 1, "a node left, and the map of another was written: {counted:?}");

        let mark = stage.audit.mark().await?;
        ferro(&stage.rome.cluster, &["peer", "milan"]).await?;
        stage.rome.reaches(milan, Established, Unpeered).await?;
        for name in ["one", "two"] {
            stage.is_asked_for(name, &[turin, milan]).await?;
            stage.comes_to(name, Some(OffloadingPhase::Ready)).await?;
        }
        let counted = written(stage, mark).await?;
        ensure!(counted == BTreeMap::from([(map, 1)]), "a node joined: {counted:?}");

        let (mark, map) = (stage.audit.mark().await?, stage.map_name(turin).await?);
        stage.rome.change(turin, json!({"spec": {"nodeLabels": {"set": {"region": "south"}}}})).await?;
        for name in ["one", "two"] {
            stage.is_asked_for(name, &[milan]).await?;
            is_on_one_cluster(stage, name).await?;
        }
        let counted = written(stage, mark).await?;
        ensure!(counted == BTreeMap::from([(map, 1)]), "a label changed: {counted:?}");

        tokio::try_join!(stage.unoffload("one"), stage.unoffload("two"))?;
        for name in ["one", "two"] {
            stage.discard(name).await?;
        }
        stage.label_node(turin, &json!({})).await?;
        describe(milan, &Value::Null).await
    })
}
