//! Waiting until what is moved has arrived, and what to do when it does not.

use anyhow::bail;
use ferro_core::moving::{Progress, Standing, progress};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};

use crate::kube_errors::{Explain as _, found, is_passing};
use crate::output;
use crate::teller::Teller;
use crate::wait::Deadline;

/// Waits until all pods of a Deployment are new ones.
pub(super) async fn deployment(
    client: &Client,
    namespace: &str,
    name: &str,
    deadline: Deadline,
) -> anyhow::Result<Deployment> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let (mut teller, mut missing) = (Teller::default(), "nothing could be seen of it".to_owned());
    let moved = deadline
        .until(async || {
            let seen = match api.get(name).await {
                Err(error) if is_passing(&error) => return Ok(None),
                seen => seen.explain(|| format!("read the Deployment {name}"))?,
            };
            let progress = progress(&seen);
            missing = told(&progress);
            teller.tell([(name, format!("{name}: {missing}"))]);
            match progress.standing {
                Standing::Done => Ok(Some(seen)),
                Standing::UnderWay => Ok(None),
                Standing::Stuck(why) => bail!("{name} does not get there: {why}; {}", undo(namespace, name)),
            }
        })
        .await?;
    match moved {
        Some(moved) => Ok(moved),
        None => bail!("{name} is not moved in time: {missing}; {}", undo(namespace, name)),
    }
}

fn told(progress: &Progress) -> String {
    let Progress { ready, wanted, old, .. } = progress;
    let left = if *old > 0 { format!(", {old} to end") } else { String::new() };
    format!("{ready} of {wanted} moved{left}")
}

fn undo(namespace: &str, name: &str) -> String {
    format!(
        "old pods go on as far as they are needed; see why with 'ferro pods -n {namespace}' and 'ferro trace POD', and take it \
         back with: kubectl --namespace {namespace} rollout undo deployment {name}"
    )
}

/// Ends a pod, makes the next one in its place, and waits until that one is ready.
pub(super) async fn pod(
    client: &Client,
    present: &Pod,
    next: &Pod,
    deadline: Deadline,
) -> anyhow::Result<Pod> {
    let (namespace, name) = (present.namespace().unwrap_or_default(), present.name_any());
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    // What would be refused is refused before anything is lost.
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let trial = Pod { metadata: trial_name(next), ..next.clone() };
    api.create(&dry, &trial)
        .await
        .explain(|| format!("make the pod {name} again, so it is left as it is"))?;
    let same = Preconditions { uid: present.uid(), resource_version: None };
    let end = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
    found(api.delete(&name, &end).await).explain(|| format!("end the pod {name}"))?;
    output::note(&format!("{name}: is being ended"));
    let gone = deadline
        .until(async || {
            let seen = found(api.get(&name).await).explain(|| format!("read the pod {name}"))?;
            Ok(seen.is_none_or(|seen| seen.uid() != present.uid()).then_some(()))
        })
        .await;
    let made = match gone {
        Ok(Some(())) => {
            api.create(&PostParams::default(), next).await.explain(|| format!("make the pod {name}"))
        }
        Ok(None) => bail!(
            "{name} does not end in time; when it is gone, make it again from this:\n{}",
            output::yaml(next)?
        ),
        Err(error) => Err(error),
    };
    let made = match made {
        Ok(made) => made,
        Err(error) => bail!("{error}; make it again from this:\n{}", output::yaml(next)?),
    };
    ready(&api, &made, deadline).await
}

/// A name that is free, since the other one is not yet.
fn trial_name(next: &Pod) -> ObjectMeta {
    let generate_name = Some("ferro-move-".to_owned());
    ObjectMeta { name: None, generate_name, ..next.metadata.clone() }
}

async fn ready(api: &Api<Pod>, made: &Pod, deadline: Deadline) -> anyhow::Result<Pod> {
    let (namespace, name) = (made.namespace().unwrap_or_default(), made.name_any());
    let mut teller = Teller::default();
    let arrived = deadline
        .until(async || {
            let seen = match api.get(&name).await {
                Err(error) if is_passing(&error) => return Ok(None),
                seen => seen.explain(|| format!("read the pod {name}"))?,
            };
            let status = seen.status.clone().unwrap_or_default();
            let phase = status.phase.unwrap_or_else(|| "Pending".to_owned());
            teller.tell([(&*name, format!("{name}: {phase}"))]);
            let is_ready =
                status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
            Ok((is_ready || phase == "Succeeded").then_some(seen))
        })
        .await?;
    match arrived {
        Some(arrived) => Ok(arrived),
        None => bail!("{name} is not ready in time; see why with: ferro trace {name} -n {namespace}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Progress, Standing, told, undo};

    #[test]
    fn it_is_told_how_far_it_is_and_how_to_take_it_back() {
        let progress = |ready, old| Progress { ready, wanted: 3, old, standing: Standing::UnderWay };
        assert_eq!(told(&progress(1, 2)), "1 of 3 moved, 2 to end");
        assert_eq!(told(&progress(3, 0)), "3 of 3 moved");
        assert!(undo("shop", "web").ends_with("kubectl --namespace shop rollout undo deployment web"));
    }
}
