//! Where the pods of an offloaded namespace run, decided by the scheduler of a real cluster: the policy of the namespace
//! holds whatever a pod asks for, and nothing of ours is in the way of any other pod.

mod daemons;
mod policies;
mod stage;
mod table;
mod webhook;

use anyhow::{Result, ensure};
use rig::wait::block_on;

use self::stage::stage;

#[test]
fn without_an_offloaded_namespace_no_pod_is_shown_to_the_webhook() -> Result<()> {
    block_on(async {
        let (stage, _turn) = stage().await?;
        ensure!(stage.calls_at_first == 0, "{} pods were shown to it", stage.calls_at_first);
        ensure!(stage.asked_at_first == 0, "the API server asked it {} times", stage.asked_at_first);
        // By now there are some, and pods were tried in them.
        ensure!(stage.asked().await? > 0, "the API server does not count how often it asks");
        Ok(())
    })
}

#[test]
fn every_pod_runs_where_both_its_namespace_and_its_user_allow() -> Result<()> {
    block_on(async {
        let (stage, _turn) = stage().await?;
        for strategy in table::STRATEGIES {
            for wish in table::wishes() {
                table::check(stage, strategy, &wish).await?;
            }
        }
        Ok(())
    })
}
