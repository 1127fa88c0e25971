//! The end of a process: one token that every task watches, and a bounded wait for them to finish.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

/// How long tasks may take to finish; Kubernetes kills after 30 s.
const GRACE: Duration = Duration::from_secs(20);

/// The tasks of a process, and the word that ends them.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    token: CancellationToken,
    tracker: TaskTracker,
}

impl Tasks {
    /// Tasks that end when the process is told to.
    pub fn until_signal() -> Result<Self> {
        let tasks = Self::default();
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
        let token = tasks.token.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            info!("told to end");
            token.cancel();
        });
        Ok(tasks)
    }

    /// Tasks that end with these, or before them.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { token: self.token.child_token(), tracker: TaskTracker::new() }
    }

    /// Starts a task that is dropped at the end, at whatever point it waits.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = Result<()>> + Send + 'static) {
        let token = self.token.clone();
        self.tracker.spawn(async move {
            match token.run_until_cancelled(task).await {
                // At the end tasks fail because others have ended before them.
                Some(Err(error)) if token.is_cancelled() => {
                    tracing::debug!(task = name, error = format!("{error:#}"), "a task ended in mid-way");
                }
                Some(Err(error)) => {
                    // A task that fails takes its process along: Kubernetes starts it again from what is.
                    tracing::error!(task = name, error = format!("{error:#}"), "a task failed");
                    token.cancel();
                }
                Some(Ok(())) => tracing::debug!(task = name, "a task is done"),
                None => {}
            }
        });
    }

    /// Tells all tasks to end and waits for them, but not for ever.
    pub async fn end(&self) {
        self.token.cancel();
        self.tracker.close();
        if tokio::time::timeout(GRACE, self.tracker.wait()).await.is_err() {
            warn!(waiting = self.tracker.len(), "tasks did not finish in time");
        }
    }

    /// Whether the end was said, by somebody or by a task that failed.
    pub fn have_ended(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until the end is said.
    pub async fn ended(&self) {
        self.token.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failed_task_ends_the_others() {
        let tasks = Tasks::default();
        tasks.spawn("waits", std::future::pending());
        tasks.spawn("fails", async { anyhow::bail!("it cannot") });
        tasks.ended().await;
        tasks.end().await;
    }

    #[tokio::test]
    async fn the_end_of_a_child_leaves_its_parent_alone() {
        let parent = Tasks::default();
        let child = parent.child();
        child.spawn("waits", std::future::pending());
        child.end().await;
        assert!(!parent.token.is_cancelled());
        let other = parent.child();
        parent.end().await;
        other.ended().await;
    }
}
