//! The table of the contract: what is added under each strategy, crossed with what users ask for themselves.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use rig::wait::eventually;
use serde_json::{Value, json};

use super::stage::{EAST, Stage, WEST, terms};

pub const STRATEGIES: [&str; 3] = ["LocalAndRemote", "Local", "Remote"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// What a user asks for, and where the pod may be under each strategy.
pub struct Wish {
    name: &'static str,
    spec: Value,
    /// The user's own terms, each with its expressions.
    own: Option<Vec<Vec<Value>>>,
    /// Under each of [`STRATEGIES`].
    places: [&'static [Place]; 3],
}

/// Where a pod may be put; nowhere means that it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Home,
    West,
}

use Place::{Home, West};

fn expression(key: &str, operator: &str, value: &str) -> Value {
    json!({"key": key, "operator": operator, "values": [value]})
}

fn is_remote() -> Value {
    expression("liqo.io/type", "In", "virtual-node")
}

fn is_local() -> Value {
    expression("liqo.io/type", "NotIn", "virtual-node")
}

fn in_region(region: &str) -> Value {
    expression("liqo.io/region", "In", region)
}

fn list(terms: &[Vec<Value>]) -> Value {
    terms.iter().map(|expressions| json!({"matchExpressions": expressions})).collect()
}

/// A user with terms of its own.
fn with_terms(name: &'static str, own: Vec<Vec<Value>>, places: [&'static [Place]; 3]) -> Wish {
    let spec = json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(&own)}}}});
    Wish { name, spec, own: Some(own), places }
}

fn without_terms(name: &'static str, spec: Value, places: [&'static [Place]; 3]) -> Wish {
    Wish { name, spec, own: None, places }
}

/// Everything that users may ask for. Home has an ssd and is in the west; West and East have nvme.
pub fn wishes() -> Vec<Wish> {
    let nvme = || expression("disk", "In", "nvme");
    let preferred = json!([{"weight": 100, "preference": {"matchExpressions": [in_region("us-east-1")]}}]);
    let preferred =
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}});
    vec![
        without_terms("none", json!({}), [&[Home, West], &[Home], &[West]]),
        with_terms("narrowing", vec![vec![nvme()]], [&[West], &[], &[West]]),
        with_terms("contradicting", vec![vec![in_region("us-east-1")]], [&[], &[], &[]]),
        with_terms("several", vec![vec![nvme()], vec![in_region("us-east-1")]], [&[West], &[], &[West]]),
        without_terms("preferred", preferred, [&[Home, West], &[Home], &[West]]),
        without_terms("selector", json!({"nodeSelector": {"disk": "ssd"}}), [&[Home], &[Home], &[]]),
        without_terms(
            "wildcard",
            json!({"tolerations": [{"operator": "Exists"}]}),
            [&[Home, West], &[Home], &[West]],
        ),
    ]
}

/// The terms that a namespace adds to a pod, as the contract prints them.
fn policy(strategy: &str, is_tolerant: bool) -> Option<Vec<Vec<Value>>> {
    let west = || in_region("us-west-1");
    match strategy {
        "LocalAndRemote" => Some(vec![vec![west()], vec![is_local()]]),
        "Remote" => Some(vec![vec![west(), is_remote()]]),
        _ => is_tolerant.then(|| vec![vec![is_local()]]),
    }
}

/// The terms that a pod has in the end: every one of the user with every one of the policy.
fn wanted(own: Option<&[Vec<Value>]>, policy: Option<Vec<Vec<Value>>>) -> Value {
    match (own, policy) {
        (None, None) => Value::Null,
        (Some(own), None) => list(own),
        (None, Some(policy)) => list(&policy),
        (Some(own), Some(policy)) => {
            let both = |one: &Vec<Value>| {
                policy.iter().map(|other| [one.as_slice(), other].concat()).collect::<Vec<_>>()
            };
            list(&own.iter().flat_map(both).collect::<Vec<_>>())
        }
    }
}

/// Creates the pod of one cell of the table, and looks at what was added and where it is put.
pub async fn check(stage: &Stage, strategy: &str, wish: &Wish) -> Result<()> {
    let cell = format!("{} under {strategy}", wish.name);
    let namespace = strategy.to_lowercase();
    let created = stage.create(&namespace, wish.name, &wish.spec).await?;
    let is_tolerant = wish.name == "wildcard";
    let (found, wanted) = (terms(&created)?, wanted(wish.own.as_deref(), policy(strategy, is_tolerant)));
    ensure!(found == wanted, "{cell}: the terms are {found:#} and not {wanted:#}");
    ensure!(tolerates(&created) == (strategy != "Local" && !is_tolerant), "{cell}: {:?}", created.spec);
    ensure!(
        has_kept(&created, &wish.spec)?,
        "{cell}: not all that the user said is there: {:?}",
        created.spec
    );

    let index = STRATEGIES.iter().position(|known| *known == strategy).context("an unknown strategy")?;
    let places = wish.places[index];
    eventually(&format!("{cell} is put where it may be"), || async {
        is_put(stage, &stage.pods(&namespace)?.get(wish.name).await?, places)
    })
    .await
}

/// Whether our toleration was added.
fn tolerates(pod: &Pod) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
    let ours = ferro_api::names::taints::tolerates_not_allowed();
    tolerations.into_iter().flatten().any(|toleration| *toleration == ours)
}

/// Whether what the user said beside required terms is still there.
fn has_kept(pod: &Pod, spec: &Value) -> Result<bool> {
    let pod = serde_json::to_value(pod)?;
    let preferred = "/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
    let same = |place: &str| {
        let wish = spec.pointer(place);
        wish.is_none() || pod["spec"].pointer(place) == wish
    };
    Ok(same(preferred) && same("/nodeSelector") && same("/tolerations/0") && same("/nodeName"))
}

/// Whether a pod is on one of these nodes; or waits, with the scheduler's reason, where there is none.
fn is_put(stage: &Stage, pod: &Pod, places: &[Place]) -> Result<()> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    if let Some(node) = node {
        let home = stage.home()?;
        let names = places.iter().map(|place| match place {
            Home => home,
            West => WEST,
        });
        ensure!(names.into_iter().any(|name| name == node), "it is on {node}, and may be on {places:?}");
        return Ok(());
    }
    ensure!(places.is_empty(), "it is not on a node yet");
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let scheduled = conditions.into_iter().flatten().find(|condition| condition.type_ == "PodScheduled");
    let why = scheduled
        .and_then(|condition| condition.message.as_deref())
        .context("the scheduler has not said why")?;
    ensure!(why.contains("didn't match Pod's node affinity/selector"), "the scheduler says: {why}");
    Ok(())
}

/// A pod that names its node comes past the scheduler, but not past the webhook.
#[test]
fn a_pod_that_names_its_node_carries_the_policy_all_the_same() -> Result<()> {
    rig::wait::block_on(async {
        let (stage, _turn) = super::stage().await?;
        for strategy in STRATEGIES {
            let created = stage.create(&strategy.to_lowercase(), "named", &json!({"nodeName": EAST})).await?;
            let (found, wanted) = (terms(&created)?, wanted(None, policy(strategy, false)));
            ensure!(found == wanted, "{strategy}: the terms are {found:#} and not {wanted:#}");
        }
        Ok(())
    })
}
