//! What a peer writes into its namespace: copies of its own objects, which decide nothing by themselves.

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::{ForeignCluster, PeeringState, ResourceRequest};
use ferro_api::names::labels;
use ferro_api::sharing::ResourceOffer;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use rig::site::ferro;
use rig::wait::eventually;
use serde_json::{Value, json};

use crate::stage::{Intruder, with_intruder, with_spent_intruder};

const FLOOD: usize = 300;
/// So many of them are under way at a time: an API server takes a hundred on one connection.
const AT_ONCE: usize = 64;
/// A finalizer that no controller here takes off.
const OURS: &str = "example.org/ours";

/// A copy as the peer's replicator makes it.
fn copy(intruder: &Intruder, api_version: &str, kind: &str, spec: &Value) -> Value {
    let marks = json!({
        labels::REPLICATED.key(): labels::REPLICATED.value(),
        labels::ORIGIN_ID.key(): intruder.own_id,
        labels::REMOTE_ID.key(): intruder.victim_id,
    });
    let metadata = json!({"name": intruder.own_id, "namespace": intruder.namespace, "labels": marks});
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
}

pub fn request(intruder: &Intruder) -> Value {
    copy(intruder, "discovery.liqo.io/v1alpha1", "ResourceRequest", &json!({}))
}

pub fn offer(intruder: &Intruder) -> Value {
    let quota = json!({"hard": {"cpu": "4", "memory": "8Gi", "pods": "10"}});
    let spec = json!({"clusterId": intruder.own_id, "resourceQuota": quota});
    copy(intruder, "sharing.liqo.io/v1alpha1", "ResourceOffer", &spec)
}

/// One of each kind that a peer may write.
fn all(intruder: &Intruder) -> [Value; 4] {
    let network = json!({"cluster": {"clusterID": intruder.victim_id}, "backendType": "wireguard",
        "backend_config": {}, "endpointIP": "192.0.2.7", "podCIDR": "10.42.0.0/16"});
    [
        request(intruder),
        offer(intruder),
        copy(intruder, "net.liqo.io/v1alpha1", "NetworkConfig", &network),
        copy(intruder, "virtualkubelet.liqo.io/v1alpha1", "NamespaceMap", &json!({})),
    ]
}

/// Where objects like this one are.
fn api(client: &Client, object: &Value) -> Result<Api<DynamicObject>> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("it is not whole");
    let (group, version) =
        object["apiVersion"].as_str().and_then(|text| text.split_once('/')).context("no group")?;
    let kind = GroupVersionKind::gvk(group, version, &text(&object["kind"])?);
    let namespace = text(&object["metadata"]["namespace"])?;
    Ok(Api::namespaced_with(client.clone(), &namespace, &ApiResource::from_gvk(&kind)))
}

/// Creates an object as the peer.
pub async fn put(intruder: &Intruder, object: &Value) -> Result<DynamicObject> {
    create(&intruder.client, object).await?.context("it is refused")
}

/// Creates an object; nothing when the policy refuses it.
async fn create(client: &Client, object: &Value) -> Result<Option<DynamicObject>> {
    let parsed: DynamicObject = serde_json::from_value(object.clone())?;
    unless_refused(api(client, object)?.create(&PostParams::default(), &parsed).await)
}

/// Nothing when the policy refuses it; anything else that goes wrong is an error.
fn unless_refused<T>(answer: kube::Result<T>) -> Result<Option<T>> {
    match answer {
        Err(kube::Error::Api(status))
            if status.message.contains("ValidatingAdmissionPolicy 'ferro-peer'") =>
        {
            Ok(None)
        }
        answer => Ok(Some(answer?)),
    }
}

fn changed(object: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut object = object.clone();
    change(&mut object["metadata"]);
    object
}

#[test]
fn a_peer_writes_only_copies_of_its_own_objects() -> Result<()> {
    with_intruder(async |stage, intruder| {
        for object in all(intruder) {
            let label =
                |key: &str, value: Value| changed(&object, |metadata| metadata["labels"][key] = value);
            for (what, wrong) in [
                ("no marks", changed(&object, |metadata| metadata["labels"] = json!({}))),
                ("not a copy", label(labels::REPLICATED.key(), json!("false"))),
                ("of another", label(labels::ORIGIN_ID.key(), json!(intruder.neighbour_id))),
                ("to be copied on", label(labels::REPLICATION.key(), json!("true"))),
                ("another name", changed(&object, |metadata| metadata["name"] = json!("x"))),
                (
                    "held",
                    changed(&object, |metadata| metadata["finalizers"] = json!(["example.org/for-ever"])),
                ),
            ] {
                ensure!(create(&intruder.client, &wrong).await?.is_none(), "{what}: {wrong}");
            }

            put(intruder, &object).await?;
            let (own, ours) = (api(&intruder.client, &object)?, api(&stage.turin.admin, &object)?);
            let how = PatchParams::default();
            let hold = json!({"metadata": {"finalizers": [OURS]}});
            ours.patch(&intruder.own_id, &how, &Patch::Merge(hold)).await?;
            for wrong in [
                json!({"labels": {labels::REPLICATED.key(): null}}),
                json!({"labels": {labels::ORIGIN_ID.key(): intruder.neighbour_id}}),
                json!({"labels": {labels::REMOTE_ID.key(): intruder.neighbour_id}}),
                json!({"labels": {labels::REPLICATION.key(): "true"}}),
                json!({"finalizers": null}),
                json!({"finalizers": [OURS, "example.org/for-ever"]}),
            ] {
                let patch = Patch::Merge(json!({"metadata": wrong}));
                let answer = own.patch(&intruder.own_id, &how, &patch).await;
                ensure!(unless_refused(answer)?.is_none(), "{wrong} on a {}", object["kind"]);
            }
            let free = json!({"metadata": {"finalizers": null}});
            ours.patch(&intruder.own_id, &how, &Patch::Merge(free)).await?;
            own.delete(&intruder.own_id, &DeleteParams::default()).await?;
            goes(&ours, &intruder.own_id).await?;

            // An original of Turin is Turin's, also when it has the peer's name.
            let original = changed(&object, |metadata| {
                metadata["labels"] = json!({labels::REPLICATION.key(): "false"});
            });
            create(&stage.turin.admin, &original).await?.context("it is refused")?;
            let answer = own.delete(&intruder.own_id, &DeleteParams::default()).await;
            ensure!(unless_refused(answer)?.is_none(), "it deletes what is not its own");
            let patch = Patch::Merge(json!({"metadata": {"labels": object["metadata"]["labels"]}}));
            let answer = own.patch(&intruder.own_id, &how, &patch).await;
            ensure!(unless_refused(answer)?.is_none(), "it takes what is not its own");
            ours.delete(&intruder.own_id, &DeleteParams::default()).await?;
            goes(&ours, &intruder.own_id).await?;
        }
        Ok(())
    })
}

/// Waits until an object is gone: a controller may have held it meanwhile, and the next one has the same name.
async fn goes(objects: &Api<DynamicObject>, name: &str) -> Result<()> {
    eventually("the object is gone", || async {
        let left = objects.get_opt(name).await?;
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await
}

fn state(peer: &ForeignCluster) -> Option<(PeeringState, PeeringState)> {
    let status = peer.status.as_ref()?;
    Some((status.outgoing.as_ref()?.state, status.incoming.as_ref()?.state))
}

async fn nodes_of(client: &Client, id: &str) -> Result<Vec<Node>> {
    let of_peer = ListParams::default().labels(&labels::REMOTE_ID.selector(id));
    Ok(Api::<Node>::all(client.clone()).list(&of_peer).await?.items)
}

#[test]
fn a_peer_cannot_answer_for_others_nor_make_its_node_what_it_is_not() -> Result<()> {
    with_spent_intruder(async |stage, intruder| {
        let manual = json!({"requests": "Manual", "offers": "Manual"});
        stage.change(json!({"spec": {"join": true, "policy": manual}})).await?;
        let accepted = json!([{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2030-01-01T00:00:00Z"}]);
        let mut request = request(intruder);
        request["status"] = json!({"offerState": "Created", "conditions": accepted});
        let mut offer = offer(intruder);
        offer["status"] =
            json!({"phase": "Accepted", "virtualKubeletStatus": "Created", "conditions": accepted});
        offer["spec"]["labels"] = json!({
            "node-role.kubernetes.io/control-plane": "", "liqo.io/type": "physical", "kubernetes.io/hostname": "turin",
            "topology.kubernetes.io/region": "eu", "liqo.io/remoteID": intruder.neighbour_id, "no key!": "x",
            "example.org/colour": "red",
        });
        offer["spec"]["resourceQuota"]["hard"]["no name!"] = json!("5");
        offer["spec"]["resourceQuota"]["hard"]["a/b/c"] = json!("5");
        for object in [&request, &offer] {
            let made = put(intruder, object).await?;
            ensure!(made.data.get("status").is_none(), "a peer's own word is an answer: {made:?}");
        }

        let turin = &stage.turin;
        eventually("a person has to decide on both", || async {
            let peer = stage.suspect().await?;
            ensure!(
                state(&peer) == Some((PeeringState::Pending, PeeringState::Pending)),
                "{:?}",
                peer.status
            );
            let conditions = peer.status.map(|status| status.conditions).unwrap_or_default();
            let waits = conditions.iter().filter(|condition| condition.reason == "WaitsForDecision").count();
            ensure!(waits == 2, "{conditions:?}");
            Ok(())
        })
        .await?;
        ensure!(nodes_of(&turin.admin, &intruder.own_id).await?.is_empty(), "there is a node");
        let offers: Api<ResourceOffer> = Api::namespaced(turin.admin.clone(), &intruder.namespace);
        let offers = offers.list(&ListParams::default()).await?.items;
        ensure!(
            offers.iter().all(|offer| labels::REPLICATED.is_on(&offer.metadata)),
            "there is an offer for it"
        );

        ferro(&turin.cluster, &["accept", &stage.suspect().await?.name_any(), "--offer"]).await?;
        let node = eventually("the node is registered", || async {
            nodes_of(&turin.admin, &intruder.own_id).await?.pop().context("there is none")
        })
        .await?;
        let name = node.name_any();
        for (key, expected) in [
            ("node-role.kubernetes.io/control-plane", None),
            ("no key!", None),
            ("liqo.io/type", Some("virtual-node")),
            ("liqo.io/remoteID", Some(intruder.own_id.as_str())),
            ("kubernetes.io/hostname", Some(name.as_str())),
            ("topology.kubernetes.io/region", Some(name.as_str())),
            ("example.org/colour", Some("red")),
        ] {
            let value = node.labels().get(key).map(String::as_str);
            ensure!(value == expected, "{key} is {value:?}");
        }
        let capacity = node.status.and_then(|status| status.capacity).unwrap_or_default();
        let names: Vec<&str> = capacity.keys().map(String::as_str).collect();
        ensure!(names == ["cpu", "memory", "pods"], "{names:?}");
        ensure!(
            nodes_of(&turin.admin, &intruder.neighbour_id).await?.len() == 1,
            "the node of another is gone"
        );
        Ok(())
    })
}

#[test]
fn a_flood_is_kept_out_and_disturbs_nobody() -> Result<()> {
    with_spent_intruder(async |stage, intruder| {
        let named = |object: &Value, number: usize| {
            changed(object, |metadata| metadata["name"] = json!(format!("flood-{number:03}")))
        };
        let (request, offer) = (request(intruder), offer(intruder));
        put(intruder, &request).await?;
        put(intruder, &offer).await?;
        let flood: Vec<Value> =
            (0..FLOOD).flat_map(|number| [named(&request, number), named(&offer, number)]).collect();
        let created = stream::iter(&flood).map(|object| create(&intruder.client, object));
        let created: Vec<_> = created.buffer_unordered(AT_ONCE).try_collect().await?;
        ensure!(created.iter().all(Option::is_none), "{} got in", created.iter().flatten().count());

        // Should they get in all the same, the oldest counts. Meanwhile Milan parts from Turin and comes back.
        let waves = async {
            let created = stream::iter(&flood).map(|object| create(&stage.turin.admin, object));
            let _: Vec<_> = created.buffer_unordered(AT_ONCE).try_collect().await?;
            let own = api(&intruder.client, &offer)?;
            for number in 0..FLOOD {
                let patch = json!({"spec": {"properties": {"number": number.to_string()}}});
                own.patch(&intruder.own_id, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            anyhow::Ok(())
        };
        let neighbour = async {
            ferro(&stage.milan.cluster, &["unpeer", "turin", "--wait"]).await?;
            ferro(&stage.milan.cluster, &["peer", "turin", "--wait"]).await
        };
        let (flooded, undisturbed) = tokio::join!(waves, neighbour);
        flooded?;
        undisturbed?;

        let requests: Api<ResourceRequest> = Api::namespaced(stage.turin.admin.clone(), &intruder.namespace);
        let count = requests.list(&ListParams::default()).await?.items.len();
        ensure!(count == FLOOD + 1, "{count} requests");
        eventually("only the oldest is answered", || async {
            let requests = requests.list(&ListParams::default()).await?.items;
            let answered = requests.iter().filter(|request| request.status.is_some());
            let answered: Vec<String> = answered.map(ResourceRequest::name_any).collect();
            ensure!(answered == [intruder.own_id.as_str()], "{answered:?}");
            Ok(())
        })
        .await
    })
}
