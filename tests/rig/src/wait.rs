//! Waiting for a state, generously and never by sleeping and hoping; and one runtime for all tests of a process.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::runtime::Runtime;

/// How long a test waits for what should take seconds: the machines are shared, and slowness is not a failure.
pub const GENEROUSLY: Duration = Duration::from_mins(5);
/// How long it waits between two looks at least; looking oftener takes the time of what it waits for.
pub const GLANCE: Duration = Duration::from_millis(200);

/// Clients of a shared topology must outlive the test that made them, so all tests run on this one.
static RUNTIME: LazyLock<std::io::Result<Runtime>> = LazyLock::new(Runtime::new);

/// Runs a test's future on the runtime that all tests of the process share.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    match &*RUNTIME {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => bail!("cannot start a runtime: {error}"),
    }
}

/// Tries until the check succeeds; when time is up, the last reason why it did not is the error. Checks take half the time
/// at most: who looks at much does so less often.
pub async fn eventually<T, F: Future<Output = Result<T>>>(what: &str, check: impl Fn() -> F) -> Result<T> {
    let begin = Instant::now();
    loop {
        let look = Instant::now();
        match check().await {
            Ok(value) => return Ok(value),
            Err(error) if begin.elapsed() > GENEROUSLY => {
                return Err(error.context(format!("{what}: not within {} s", GENEROUSLY.as_secs())));
            }
            Err(_) => tokio::time::sleep(GLANCE.max(look.elapsed())).await,
        }
    }
}
