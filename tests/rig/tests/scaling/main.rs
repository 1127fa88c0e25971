//! Pods on a peer as an autoscaler, `ferro trace` and `ferro move` see them: two real clusters with metrics-server.

mod chain;
mod moving;
mod stage;
mod usage;

use anyhow::Result;
use rig::wait::block_on;

use stage::Stage;

#[test]
fn pods_on_a_peer_are_counted_traced_and_moved() -> Result<()> {
    block_on(async {
        let stage = Stage::set_up().await?;
        chain::each_link_is_shown_and_the_broken_one_is_named(&stage).await?;
        tokio::try_join!(
            moving::a_deployment_moves_there_and_home_while_somebody_serves(&stage),
            moving::a_pod_that_nobody_owns_is_ended_and_made_again_there(&stage),
        )?;
        moving::what_may_not_move_is_refused_with_the_reason(&stage).await?;
        tokio::try_join!(
            usage::what_a_pod_on_the_peer_uses_is_told(&stage),
            usage::an_autoscaler_grows_a_deployment_onto_the_peer_and_shrinks_it_again(&stage),
        )?;
        Ok(())
    })
}
