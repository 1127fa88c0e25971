//! The end of a process: one token that every task watches, and a bounded wait for them to finish.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::FutureExt as _;
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

    /// Starts a task that is dropped at the end, at whatever point it waits. One that panics has failed.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = Result<()>> + Send + 'static) {
        let token = self.token.clone();
        // What it leaves half done is used by nobody: those that have it in common with it end as well.
        let task = AssertUnwindSafe(task).catch_unwind();
        self.tracker.spawn(async move {
            let ended = token.run_until_cancelled(task).await;
            match ended.map(|ended| ended.unwrap_or_else(|panic| Err(panicked(&*panic)))) {
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

    /// Tells all tasks to end and waits for none. It is said before whatever they work with is let go, so that nobody takes
    /// that for a failure.
    pub fn dismiss(&self) {
        self.token.cancel();
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

/// What a task has said when it panicked.
fn panicked(panic: &(dyn Any + Send)) -> anyhow::Error {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    anyhow!("it panicked: {}", said.unwrap_or("nobody knows why"))
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
    async fn a_task_that_panics_has_failed_and_ends_those_that_were_started_with_it() {
        let parent = Tasks::default();
        let child = parent.child();
        child.spawn("waits", std::future::pending());
        child.spawn("panics", async { panic!("it cannot") });
        child.ended().await;
        child.end().await;
        assert!(child.tracker.is_empty() && !parent.have_ended());
    }

    #[tokio::test]
    async fn who_is_dismissed_knows_it_before_anything_else_happens() {
        let tasks = Tasks::default();
        let (held, mut letting_go) = tokio::sync::watch::channel(());
        tasks.spawn("waits", async move { Ok(letting_go.changed().await?) });
        tasks.dismiss();
        drop(held);
        assert!(tasks.have_ended());
        tasks.end().await;
        assert!(tasks.tracker.is_empty());
    }

    #[test]
    fn what_a_task_says_when_it_panics_is_told() {
        let words: [Box<dyn Any + Send>; 3] = [Box::new("one"), Box::new("two".to_owned()), Box::new(3)];
        let told = words.map(|word| panicked(&*word).to_string());
        assert_eq!(told, ["it panicked: one", "it panicked: two", "it panicked: nobody knows why"]);
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
