//! Pods that run on another cluster and look local: two real clusters with the same networks, one the node of the other.

mod commands;
mod faults;
mod stage;
mod workloads;

use anyhow::Result;
use rig::wait::block_on;

use stage::Stage;

#[test]
fn pods_run_on_a_peer_and_look_local_until_the_peering_ends() -> Result<()> {
    block_on(async {
        let stage = Stage::set_up().await?;
        workloads::a_deployment_is_scaled_and_rolled(&stage).await?;
        workloads::whoever_calls_a_pod_by_its_address_gets_it(&stage).await?;
        workloads::jobs_and_single_pods_end_as_they_would_at_home(&stage).await?;
        workloads::what_cannot_travel_waits_with_a_reason(&stage).await?;
        commands::logs_commands_and_ports_are_those_of_the_pod(&stage).await?;
        commands::who_has_no_right_is_refused(&stage).await?;
        faults::a_lost_pod_is_made_again_over_there(&stage).await?;
        faults::pods_run_on_while_the_clusters_are_cut_apart(&stage).await?;
        faults::kills_of_either_controller_leave_nothing_wrong(&stage).await?;
        stage.part().await
    })
}
