//! The end of a peering: nothing is left of a Tenant, in order and by force.

use anyhow::{Result, ensure};
use ferro_api::discovery::PeeringState::None as Unpeered;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use rig::site::ferro;
use rig::wait::eventually;

use crate::stage::{Stage, on_stage};

/// Whether nothing is left of Milan's Tenant.
async fn is_without_milan(stage: &Stage) -> Result<()> {
    let id = &stage.milan.id;
    eventually("nothing is left of the Tenant", || async {
        let left = stage.namespaces_of(&stage.milan).await?;
        ensure!(left.is_empty(), "{left:?}");
        ensure!(stage.tenants().get_opt(id).await?.is_none(), "the Tenant is still there");
        let (admin, name) = (&stage.turin.admin, format!("ferro-tenant-{id}"));
        ensure!(
            Api::<ClusterRole>::all(admin.clone()).get_opt(&name).await?.is_none(),
            "its role is still there"
        );
        let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
        ensure!(bindings.get_opt(&name).await?.is_none(), "its binding is still there");
        Ok(())
    })
    .await
}

#[test]
fn nothing_is_left_of_a_tenant_when_its_peering_ends_in_order_or_by_force() -> Result<()> {
    on_stage(async |stage| {
        // By force: the consumer does not run, and is not asked.
        stage.milan.has([("vault", "vault-of-milan")]).await?;
        let remove = |name: &'static str| ["remove", name, "--force", "--yes", "--wait"];
        ferro(&stage.turin.cluster, &remove("milan")).await?;
        is_without_milan(stage).await?;

        // In order, after the two have met again.
        stage.milan.wake().await?;
        ferro(&stage.milan.site.cluster, &remove("turin")).await?;
        stage.milan.enter_again(&stage.turin).await?;
        stage.milan.has([("vault", "vault-of-milan")]).await?;
        stage.milan.wake().await?;
        ferro(&stage.milan.site.cluster, &["unpeer", "turin", "--yes", "--wait"]).await?;
        is_without_milan(stage).await?;
        stage.turin.reaches(&stage.milan.site, Unpeered, Unpeered).await?;

        stage.milan.enter_again(&stage.turin).await?;
        stage.milan.has([("vault", "vault-of-milan")]).await
    })
}
