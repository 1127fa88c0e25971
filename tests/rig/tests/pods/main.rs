//! Pods that run on other clusters and look local: three real clusters with the same networks, two of them nodes of the
//! first. All tests share them, one at a time.

mod bound;
mod changes;
mod commands;
mod deployments;
mod dropped;
mod faults;
mod graces;
mod jobs;
mod rejected;
mod rights;
mod stage;
mod workloads;

use std::time::Duration;

use anyhow::{Result, ensure};
use rig::census;
use rig::wait::eventually;

use stage::on_stage;

/// Over so long, each program may use so many seconds of a processor: one that turns in circles uses all it gets.
const REST: Duration = Duration::from_secs(6);
const MOST: f64 = 1.5;

#[test]
fn twenty_pods_run_on_three_clusters_and_follow_their_deployment() -> Result<()> {
    on_stage(async |stage| {
        deployments::twenty_pods_run_on_three_clusters_and_follow_their_deployment(stage).await
    })
}

#[test]
fn whoever_calls_a_pod_by_its_address_gets_it_and_what_cannot_travel_waits_with_a_reason() -> Result<()> {
    on_stage(async |stage| {
        deployments::whoever_calls_a_pod_by_its_address_gets_it(stage).await?;
        deployments::what_cannot_travel_waits_with_a_reason(stage).await
    })
}

#[test]
fn what_the_provider_rejects_is_told_at_home_and_for_want_of_room_runs_elsewhere() -> Result<()> {
    on_stage(async |stage| {
        rejected::what_the_provider_does_not_allow_is_told_at_home(stage).await?;
        rejected::a_pod_without_room_makes_way_for_one_elsewhere(stage).await
    })
}

#[test]
fn pods_of_a_daemon_set_and_pods_bound_by_hand_wait_on_the_node_with_a_reason() -> Result<()> {
    on_stage(async |stage| bound::pods_that_must_not_leave_wait_on_the_node_with_a_reason(stage).await)
}

#[test]
fn jobs_and_single_pods_end_as_they_would_at_home() -> Result<()> {
    on_stage(async |stage| {
        // Side by side, since a CronJob takes its minute.
        tokio::try_join!(
            jobs::jobs_that_fail_first_come_to_their_end(stage),
            jobs::single_pods_end_as_they_would_at_home(stage),
        )
        .map(drop)
    })
}

#[test]
fn logs_commands_files_and_ports_are_those_of_the_pod_whoever_leads() -> Result<()> {
    on_stage(async |stage| {
        commands::start(stage).await?;
        commands::all_are_answered(stage).await?;
        commands::containers_for_debugging_join_the_pod(stage).await?;
        commands::a_container_for_debugging_with_more_rights_is_refused(stage).await?;
        commands::a_new_leader_answers_at_once(stage).await?;
        commands::stop(stage).await
    })
}

#[test]
fn programs_that_have_nothing_to_do_do_nothing() -> Result<()> {
    on_stage(async |_| {
        eventually("all programs rest", || async {
            let before = census::used("/ferro");
            ensure!(!before.is_empty(), "no program of ours runs");
            tokio::time::sleep(REST).await;
            let after = census::used("/ferro");
            let busy = |(pid, used): (&u32, &f64)| used - before.get(pid).unwrap_or(used) > MOST;
            let busy: Vec<_> = after.iter().filter(|one| busy(*one)).collect();
            ensure!(busy.is_empty(), "busy: {busy:?}");
            Ok(())
        })
        .await
    })
}

#[test]
fn who_has_no_right_is_refused() -> Result<()> {
    on_stage(async |stage| rights::who_has_no_right_is_refused(stage).await)
}

#[test]
fn pods_are_evicted_resized_and_gated_as_they_would_be_at_home() -> Result<()> {
    on_stage(async |stage| {
        changes::pods_leave_a_node_that_is_drained(stage).await?;
        changes::a_pod_is_resized_in_place(stage).await?;
        changes::a_readiness_gate_counts_at_home(stage).await
    })
}

#[test]
fn who_deletes_a_pod_says_how_long_it_may_take() -> Result<()> {
    on_stage(async |stage| graces::who_deletes_a_pod_says_how_long_it_may_take(stage).await)
}

#[test]
fn a_lost_pod_is_made_again_where_its_policy_allows_whether_or_not_home_is_there() -> Result<()> {
    on_stage(async |stage| {
        faults::a_lost_pod_is_made_again_where_its_policy_allows(stage).await?;
        faults::pods_are_kept_alive_while_the_controller_of_home_is_away(stage).await
    })
}

#[test]
fn pods_run_on_while_the_clusters_are_cut_apart() -> Result<()> {
    on_stage(async |stage| faults::pods_run_on_while_the_clusters_are_cut_apart(stage).await)
}

#[test]
fn nothing_restarts_while_the_api_server_of_the_provider_is_down() -> Result<()> {
    on_stage(async |stage| faults::nothing_restarts_while_the_api_server_of_the_provider_is_down(stage).await)
}

#[test]
fn a_dead_kubelet_of_the_provider_is_seen_at_home() -> Result<()> {
    on_stage(async |stage| faults::a_dead_kubelet_of_the_provider_is_seen_at_home(stage).await)
}

#[test]
fn kills_of_either_controller_leave_nothing_wrong() -> Result<()> {
    on_stage(async |stage| faults::kills_of_either_controller_leave_nothing_wrong(stage).await)
}

#[test]
fn a_namespace_leaves_a_cluster_after_its_pods() -> Result<()> {
    on_stage(async |stage| dropped::a_namespace_leaves_a_cluster_after_its_pods(stage).await)
}

#[test]
fn pods_come_home_when_the_peering_ends() -> Result<()> {
    on_stage(async |stage| deployments::pods_come_home_when_the_peering_ends(stage).await)
}
