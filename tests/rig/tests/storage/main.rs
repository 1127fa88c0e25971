//! Applications with state, and those that ask their API server, on another cluster: two real clusters, one the node of the
//! other.

mod claims;
mod stage;
mod tokens;

use anyhow::Result;
use rig::wait::block_on;

use stage::Stage;

#[test]
fn claims_lie_where_their_pods_run_and_tokens_come_along() -> Result<()> {
    block_on(async {
        let stage = Stage::set_up().await?;
        tokens::a_pod_over_there_lists_the_pods_of_its_namespace(&stage).await?;
        claims::a_stateful_set_keeps_its_data_through_restarts(&stage).await?;
        claims::a_claim_that_grows_says_why_it_cannot(&stage).await?;
        claims::a_claim_beyond_the_quota_says_so(&stage).await?;
        claims::a_pod_at_home_has_a_volume_of_home(&stage).await?;
        claims::a_claim_of_another_class_keeps_its_pod_off(&stage).await?;
        claims::what_is_lost_over_there_is_not_replaced(&stage).await?;
        claims::who_parts_is_told_what_is_lost(&stage).await?;
        claims::nothing_is_left_of_a_claim_that_is_deleted(&stage).await
    })
}
