//! Leadership: of several replicas one works, the others wait, and one that loses its Lease ends at once.
//!
//! Ending, rather than pausing, because the next start heals everything from what is: there is one way in.

use anyhow::{Context, Result, bail};
use kube::Client;
use kube_lease_manager::LeaseManagerBuilder;
use tracing::info;

/// How long a Lease holds after its last renewal, and how much earlier it is renewed.
const DURATION: u64 = 15;
const GRACE: u64 = 10;

/// Waits for the Lease, does the work, and gives the Lease back when the work is done.
pub async fn lead(
    client: Client,
    namespace: &str,
    name: &str,
    identity: &str,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    let manager = LeaseManagerBuilder::new(client, name)
        .with_namespace(namespace)
        .with_identity(identity)
        .with_duration(DURATION)
        .with_grace(GRACE)
        .build()
        .await
        .with_context(|| format!("cannot use the Lease {namespace}/{name}"))?;
    let (mut leading, keeper) = manager.watch().await;
    leading.wait_for(|leads| *leads).await.context("the Lease is no longer kept")?;
    info!(lease = name, "leading");
    let result = tokio::select! {
        result = work => result,
        lost = leading.wait_for(|leads| !*leads) => match lost {
            Ok(_) => bail!("another replica took the Lease {namespace}/{name}"),
            Err(_) => bail!("the Lease {namespace}/{name} is no longer kept"),
        },
    };
    drop(leading);
    keeper.await.context("the keeper of the Lease failed")?.context("cannot give the Lease back")?;
    result
}
