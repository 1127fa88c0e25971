//! What pods show when the tunnel to them is lost: at once, since whoever works on them may be waiting for an answer of the
//! peer that does not come, and clients are sent to them meanwhile.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ferro_core::pods::home::plan;
use tracing::debug;

use super::{AT_ONCE, Key, Station};
use crate::pods::outlook::Outlook;

/// Pause after something that failed.
const RETRY: Duration = Duration::from_millis(500);

impl Station {
    /// Lets all pods show it that cannot be reached any more.
    pub(super) fn show_silence(&self, before: &Outlook, now: &Outlook) {
        if before.tunnel_is_up && !now.tunnel_is_up {
            self.pods.all().iter().for_each(|pod| self.silenced.push(super::key(pod)));
        }
    }

    /// Shows it, for ever.
    pub(super) async fn work_on_silence(self: Arc<Self>) -> Result<()> {
        self.silenced.work(AT_ONCE, |key| self.fall_silent(key)).await;
        Ok(())
    }

    /// Writes what is to be shown of a pod, and nothing else. Whoever works on it besides comes to the same.
    async fn fall_silent(&self, key: Key) -> Option<Duration> {
        let pod = self.pods.get(Some(&key.0), &key.1)?;
        let room = self.room(&key.0);
        let plan = self.decide(Some(&pod), room.as_deref(), &key, plan);
        let show = plan.shown()?;
        let written = self.hand.perform(&self.desk(&key, Some(&pod), room.as_deref()), show).await;
        let error = written.err()?;
        let (namespace, pod) = &key;
        debug!(namespace, pod, error = format!("{error:#}"), "it is not shown yet that it cannot be reached");
        Some(RETRY)
    }
}
