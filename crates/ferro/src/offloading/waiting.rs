//! Waiting for a namespace to arrive on other clusters, or to be gone from them, and telling how it goes on each.

use anyhow::bail;
use ferro_api::offloading::{NamespaceOffloading, OffloadingPhase};
use ferro_core::offloading::OFFLOADING;
use kube::{Client, ResourceExt as _};

use super::shown::complaints;
use super::{is_current, seats, state};
use crate::kube_errors::{Explain as _, is_passing};
use crate::output;
use crate::peers::Names;
use crate::teller::Teller;
use crate::wait::Deadline;

/// What to say while nobody has looked at it.
const UNSEEN: &str = "the controller has not looked at it yet; is it running? See 'ferro status'";

/// How it looks now.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Reached,
    InVain(String),
    NotYet(String),
}

/// A namespace that is waited for.
pub(crate) struct Watched<'a> {
    client: &'a Client,
    namespace: &'a str,
    names: &'a Names,
    teller: Teller,
}

impl<'a> Watched<'a> {
    /// The namespace of that name.
    pub(crate) fn new(client: &'a Client, namespace: &'a str, names: &'a Names) -> Self {
        Self { client, namespace, names, teller: Teller::default() }
    }

    /// Waits until it exists on every selected cluster.
    pub(crate) async fn ready(&mut self, deadline: Deadline) -> anyhow::Result<NamespaceOffloading> {
        let mut missing = UNSEEN.to_owned();
        let reached = deadline
            .until(async || {
                let Some(seen) = self.look().await? else { return Ok(None) };
                let Some(offloading) = seen else {
                    bail!("the offloading of {} was removed meanwhile", self.namespace)
                };
                self.teller.tell(news(&offloading, self.names));
                match judge(&offloading, self.names) {
                    Verdict::Reached => return Ok(Some(offloading)),
                    Verdict::InVain(why) => bail!("{why}"),
                    Verdict::NotYet(why) => missing = why,
                }
                Ok(None)
            })
            .await?;
        match reached {
            Some(offloading) => Ok(offloading),
            None => bail!("{} is not on all clusters in time: {missing}", self.namespace),
        }
    }

    /// Waits until the object with this identity is gone.
    pub(crate) async fn gone(&mut self, uid: Option<&str>, deadline: Deadline) -> anyhow::Result<()> {
        let mut missing = UNSEEN.to_owned();
        let gone = deadline
            .until(async || {
                let Some(seen) = self.look().await? else { return Ok(None) };
                let Some(offloading) = seen.filter(|seen| seen.uid().as_deref() == uid) else {
                    return Ok(Some(()));
                };
                self.teller.tell(news(&offloading, self.names));
                let said = complaints(&offloading, self.names);
                if state(&offloading) == Some(OffloadingPhase::Terminating) && !said.is_empty() {
                    missing = said.join("; ");
                }
                Ok(None)
            })
            .await?;
        match gone {
            Some(()) => Ok(()),
            None => {
                bail!("{} is not gone from all clusters in time: {}", self.namespace, output::plain(&missing))
            }
        }
    }

    /// Looks once; nothing when the server is away for a moment.
    async fn look(&self) -> anyhow::Result<Option<Option<NamespaceOffloading>>> {
        match super::api(self.client, self.namespace).get_opt(OFFLOADING).await {
            Err(error) if is_passing(&error) => Ok(None),
            seen => seen.explain(|| format!("read the offloading of {}", self.namespace)).map(Some),
        }
    }
}

fn judge(offloading: &NamespaceOffloading, names: &Names) -> Verdict {
    if !is_current(offloading) {
        return Verdict::NotYet(UNSEEN.into());
    }
    match state(offloading) {
        Some(OffloadingPhase::Ready) => Verdict::Reached,
        Some(OffloadingPhase::NoClusterSelected) => Verdict::InVain(complaints(offloading, names).join("; ")),
        Some(OffloadingPhase::Terminating) => Verdict::InVain("it is being removed".into()),
        Some(OffloadingPhase::SomeFailed | OffloadingPhase::AllFailed) | None => {
            let said = complaints(offloading, names);
            let said = if said.is_empty() { UNSEEN.into() } else { said.join("; ") };
            Verdict::NotYet(output::plain(&said))
        }
    }
}

/// What is to be told, by subject.
fn news(offloading: &NamespaceOffloading, names: &Names) -> Vec<(String, String)> {
    if !is_current(offloading) {
        return Vec::new();
    }
    let seats = seats(offloading, names);
    seats.iter().map(|seat| (seat.cluster.to_owned(), seat.told())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{condition, half, names, offloading};
    use super::{Verdict, judge, news};
    use serde_json::json;

    #[test]
    fn it_is_reached_when_every_selected_cluster_has_the_namespace() {
        let ready = json!({"offloadingPhase": "Ready", "observedGeneration": 1});
        assert_eq!(judge(&offloading("shop", &json!({}), &ready), &names()), Verdict::Reached);
        let old = json!({"offloadingPhase": "Ready", "observedGeneration": 0});
        assert!(matches!(judge(&offloading("shop", &json!({}), &old), &names()), Verdict::NotYet(_)));
    }

    #[test]
    fn what_a_cluster_refuses_may_still_come_and_is_told() {
        let half = offloading("shop", &json!({}), &half());
        let missing = "shop: milan has a namespace of that name";
        assert_eq!(judge(&half, &names()), Verdict::NotYet(missing.into()));
        let told: Vec<_> = news(&half, &names()).into_iter().map(|(_, text)| text).collect();
        assert_eq!(told, ["milan has a namespace of that name", "turin: it exists"]);
    }

    #[test]
    fn where_no_cluster_is_selected_waiting_is_in_vain() {
        let alone = json!({"offloadingPhase": "NoClusterSelected", "observedGeneration": 1, "conditions": [
            condition("Ready", false, "NoClusterSelected", "no cluster matches the selector"),
        ]});
        let said = "shop: no cluster matches the selector";
        assert_eq!(judge(&offloading("shop", &json!({}), &alone), &names()), Verdict::InVain(said.into()));
    }
}
