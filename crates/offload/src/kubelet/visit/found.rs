//! Which pod is meant: whoever leads since a moment ago is given time to list the pods of the node.
//!
//! A port is told before that, and that no pod is known yet must not be taken for that there is none.

use std::time::Duration;

use hyper::StatusCode;
use tokio::time::Instant;

use super::super::question::Ask;
use super::super::refusal::Refusal;
use super::super::{Directory, Target};

/// How long the pods of a node may take to be listed, and how often it is looked.
const LISTED: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

/// The pod that is asked about, at the port of a node; nothing if there is none of that name.
pub(super) async fn find(
    directory: &dyn Directory,
    node: &str,
    ask: &Ask,
) -> Result<Option<Target>, Refusal> {
    let until = Instant::now() + LISTED;
    loop {
        // In this order: a pod that is listed in between is not missed.
        let has_listed = directory.has_listed(node);
        let found = directory.find(&ask.namespace, &ask.pod);
        if found.is_some() || has_listed {
            return Ok(found);
        }
        if Instant::now() >= until {
            let message = format!("the pods of node {node} are not known yet; try again in a moment");
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message));
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use hyper::Method;

    use super::super::super::Site;
    use super::super::super::question::Question;
    use super::*;

    /// Has the pod web on the node liqo-turin, and lists it when it has been looked for so often.
    struct Late {
        looks: AtomicU32,
        enough: u32,
    }

    impl Directory for Late {
        fn find(&self, _: &str, pod: &str) -> Option<Target> {
            let is_known = self.looks.fetch_add(1, Ordering::Relaxed) >= self.enough;
            (is_known && pod == "web").then(|| Target {
                node: "liqo-turin".into(),
                uid: "0a-1".into(),
                keepsake: Arc::default(),
                namespace: None,
                pod: pod.to_owned(),
                here: Arc::default(),
            })
        }

        fn site(&self, _: &str) -> Option<Site> {
            None
        }

        fn has_listed(&self, node: &str) -> bool {
            node == "liqo-turin" && self.looks.load(Ordering::Relaxed) >= self.enough
        }
    }

    async fn found(pod: &str, enough: u32) -> Result<Option<String>, Refusal> {
        let path = format!("/containerLogs/shop/{pod}/app");
        let Ok(Question::Pod(ask)) = Question::parse(&Method::GET, &path, "") else {
            panic!("{path} is about no pod")
        };
        let late = Late { looks: AtomicU32::new(0), enough };
        Ok(find(&late, "liqo-turin", &ask).await?.map(|target| target.pod))
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_not_listed_yet_is_waited_for() {
        for enough in [0, 3] {
            assert_eq!(found("web", enough).await, Ok(Some("web".to_owned())));
            assert_eq!(found("other", enough).await, Ok(None), "there is none");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_before_pods_are_listed_is_not_told_that_there_is_none() {
        let Err(refusal) = found("web", u32::MAX).await else { panic!("nobody knows of it") };
        assert_eq!(refusal.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refusal.message.contains("liqo-turin") && refusal.message.contains("not known yet"));
    }
}
