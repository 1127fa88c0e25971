//! Waiting until what is moved has arrived, and what to do when it does not.

use anyhow::{Context as _, anyhow, bail};
use ferro_core::moving::{Progress, Standing, progress};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use tokio::signal::unix::{Signal, SignalKind, signal};

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
    // Whoever ends this command from here on would have no pod at all, and nothing to make it from.
    let mut signals = Signals::listen()?;
    let made = tokio::select! {
        made = replaced(&api, present, next, deadline) => made?,
        () = signals.told_to_end() => {
            return Err(with_manifest(&format!("interrupted while {name} is being replaced"), next));
        }
    };
    tokio::select! {
        ready = ready(&api, &made, deadline) => ready,
        () = signals.any() => bail!("interrupted; {name} is made again, and is not waited for"),
    }
}

/// What ends a command, unless it listens.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals such as Ctrl-C");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits until somebody wants an end. Who only closes the terminal could not read what is lost: that waits.
    async fn told_to_end(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits for any of them.
    async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

/// Ends a pod, and makes the next one. As long as there is none, what passes is waited for, and any other error has what
/// the pod is to be made from.
async fn replaced(api: &Api<Pod>, present: &Pod, next: &Pod, deadline: Deadline) -> anyhow::Result<Pod> {
    end(api, present, next, deadline).await?;
    output::note(&format!("{}: is being ended", present.name_any()));
    let renewed = async {
        gone(api, present, deadline).await?;
        make(api, next, deadline).await
    };
    renewed.await.map_err(|error| with_manifest(&error.to_string(), next))
}

/// Asks for the end of a pod.
async fn end(api: &Api<Pod>, present: &Pod, next: &Pod, deadline: Deadline) -> anyhow::Result<()> {
    let name = present.name_any();
    let same = Preconditions { uid: present.uid(), resource_version: None };
    let how = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
    // What was not answered may have been done.
    let mut is_open = false;
    let ended = deadline
        .until(async || match found(api.delete(&name, &how).await) {
            Err(error) if is_passing(&error) => {
                is_open = true;
                Ok(None)
            }
            ended => ended.explain(|| format!("end the pod {name}")).map(|_| Some(())),
        })
        .await;
    match ended {
        Ok(Some(())) => Ok(()),
        Ok(None) => {
            Err(with_manifest(&format!("the API server does not say whether {name} is being ended"), next))
        }
        Err(error) if is_open => Err(with_manifest(&error.to_string(), next)),
        Err(error) => Err(error),
    }
}

/// Waits until a pod is gone.
async fn gone(api: &Api<Pod>, present: &Pod, deadline: Deadline) -> anyhow::Result<()> {
    let name = present.name_any();
    let gone = deadline
        .until(async || match found(api.get(&name).await) {
            Err(error) if is_passing(&error) => Ok(None),
            seen => {
                let seen = seen.explain(|| format!("read the pod {name}"))?;
                Ok(seen.is_none_or(|seen| seen.uid() != present.uid()).then_some(()))
            }
        })
        .await?;
    gone.with_context(|| format!("{name} does not end in time"))
}

/// Makes a pod.
async fn make(api: &Api<Pod>, next: &Pod, deadline: Deadline) -> anyhow::Result<Pod> {
    let name = next.name_any();
    let mut is_open = false;
    let made = deadline
        .until(async || match api.create(&PostParams::default(), next).await {
            Err(error) if is_passing(&error) => {
                is_open = true;
                Ok(None)
            }
            // It was made, and only the answer was lost.
            Err(error) if is_open && is_taken(&error) => match found(api.get(&name).await) {
                Err(error) if is_passing(&error) => Ok(None),
                seen => seen.explain(|| format!("read the pod {name}")),
            },
            // A quota that somebody else was counted in meanwhile.
            Err(error) if is_conflict(&error) && !is_taken(&error) => Ok(None),
            made => made.explain(|| format!("make the pod {name}")).map(Some),
        })
        .await?;
    made.with_context(|| format!("{name} could not be made in time"))
}

/// Whether there is something of that name already.
fn is_taken(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// An error by which nothing is lost: it has what the pod is to be made from.
fn with_manifest(why: &str, next: &Pod) -> anyhow::Error {
    match output::yaml(next) {
        Ok(manifest) => anyhow!("{why}; when it is gone, make it again from this:\n{manifest}"),
        Err(error) => error.context(why.to_owned()),
    }
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
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use http::{Method, Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use kube::client::{Body, ClientBuilder};
    use serde_json::json;

    use super::{Progress, Standing, replaced, told, undo};
    use crate::wait::Deadline;

    fn pod(uid: &str) -> Pod {
        let metadata = json!({"name": "web", "namespace": "shop", "uid": uid});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    /// What comes of a pod that is replaced by an API server that gives these answers, and what that is asked.
    async fn replaced_by(answers: &'static [u16]) -> (anyhow::Result<Pod>, Vec<Method>) {
        let asked: Arc<Mutex<Vec<Method>>> = Arc::default();
        let noted = Arc::clone(&asked);
        let answer = tower::service_fn(move |request: Request<Body>| {
            let mut noted = noted.lock().unwrap();
            let code = answers.get(noted.len()).copied().unwrap_or(500);
            noted.push(request.method().clone());
            let reason = if code == 409 { "AlreadyExists" } else { "No" };
            let refused = json!({"kind": "Status", "status": "Failure", "message": "no", "reason": reason, "code": code});
            let body = if code < 300 { json!(pod("2")) } else { refused };
            let body = Body::from(body.to_string().into_bytes());
            std::future::ready(Response::builder().status(code).body(body))
        });
        let api = Api::namespaced(ClientBuilder::new(answer, "shop").build(), "shop");
        let deadline = Deadline::after(Duration::from_secs(30));
        let made = replaced(&api, &pod("1"), &pod("2"), deadline).await;
        let asked = asked.lock().unwrap().clone();
        (made, asked)
    }

    #[tokio::test]
    async fn a_pod_is_not_lost_by_an_api_server_that_is_restarted_meanwhile() {
        let (made, asked) = replaced_by(&[503, 200, 500, 404, 500, 409, 200]).await;
        assert_eq!(made.unwrap().metadata.uid.as_deref(), Some("2"));
        let wanted = ["DELETE", "DELETE", "GET", "GET", "POST", "POST", "GET"];
        assert_eq!(asked.iter().map(Method::as_str).collect::<Vec<_>>(), wanted);
    }

    #[tokio::test]
    async fn a_pod_that_cannot_be_made_again_is_handed_back() {
        let (kept, asked) = replaced_by(&[403]).await;
        let kept = kept.unwrap_err().to_string();
        assert!(kept.contains("cannot end the pod web") && !kept.contains("from this"), "{kept}");
        assert_eq!(asked, [Method::DELETE]);
        let (lost, _) = replaced_by(&[200, 404, 403]).await;
        let lost = lost.unwrap_err().to_string();
        assert!(lost.contains("make it again from this:") && lost.contains("name: web"), "{lost}");
    }

    #[test]
    fn it_is_told_how_far_it_is_and_how_to_take_it_back() {
        let progress = |ready, old| Progress { ready, wanted: 3, old, standing: Standing::UnderWay };
        assert_eq!(told(&progress(1, 2)), "1 of 3 moved, 2 to end");
        assert_eq!(told(&progress(3, 0)), "3 of 3 moved");
        assert!(undo("shop", "web").ends_with("kubectl --namespace shop rollout undo deployment web"));
    }
}
