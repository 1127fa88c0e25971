//! A provider in which nobody signs certificates: whoever is let in gets a token, which is worth the same.

use std::time::Duration;

use anyhow::{Result, ensure};
use ferro_api::discovery::ResourceRequest;
use ferro_api::names::labels;
use ferro_core::auth::{Credential, IdentityGrant, Reason};
use ferro_peering::tenant;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, PostParams};
use rig::wait::{block_on, eventually};

use crate::is_forbidden;
use crate::peer::Peer;
use crate::provider::{NAMESPACE, provider_without_signer};

/// What a peer has in its namespace, by what was granted.
async fn own(peer: &Peer, grant: &IdentityGrant) -> Result<Api<ResourceRequest>> {
    ensure!(matches!(grant.credential, Credential::BearerToken(_)), "{grant:?}");
    Ok(Api::namespaced(peer.client(grant).await?, &grant.namespace))
}

/// The service accounts that were made for a peer.
async fn accounts(peer: &Peer) -> Result<Vec<ServiceAccount>> {
    let of_peer = ListParams::default().labels(&labels::REMOTE_ID.selector(&peer.id().to_string()));
    Ok(Api::all(peer.provider.client.clone()).list(&of_peer).await?.items)
}

#[test]
fn where_nobody_signs_a_token_lets_a_cluster_in_until_it_is_revoked() -> Result<()> {
    block_on(async {
        let peer = Peer::of(provider_without_signer().await?, 11)?;
        let admin = &peer.provider.client;
        let first = peer.let_in(Some(peer.provider.token().await?)).await?;
        ensure!(first.expires_at > Timestamp::now() + Duration::from_hours(29 * 24), "{first:?}");
        let old = own(&peer, &first).await?;
        it_writes_its_own_copy_and_reaches_nothing_else(&peer, &first, &old).await?;
        let issued = Api::<Secret>::namespaced(admin.clone(), NAMESPACE);
        eventually("the token is not kept", || async {
            ensure!(issued.get_opt("ferro-issued").await?.is_none(), "it lies about");
            Ok(())
        })
        .await?;

        let renewed = peer.let_in(None).await?;
        ensure!(
            renewed.namespace == first.namespace && renewed.credential != first.credential,
            "{renewed:?}"
        );
        let new = own(&peer, &renewed).await?;
        let everything = ListParams::default();
        old.list(&everything).await?;
        new.list(&everything).await?;
        ensure!(accounts(&peer).await?.len() == 1, "one account for both");

        for _ in 0..2 {
            tenant::revoke(admin, NAMESPACE, &first.namespace, &peer.id()).await?;
        }
        ensure!(accounts(&peer).await?.is_empty(), "the account is left");
        eventually("both tokens are void", || async {
            for api in [&old, &new] {
                let listed = api.list(&everything).await;
                let is_unknown = matches!(&listed, Err(kube::Error::Api(status)) if status.code == 401);
                ensure!(is_unknown, "{listed:?}");
            }
            Ok(())
        })
        .await?;
        let again = peer.enter(None).await?;
        ensure!(again == Err((403, Reason::EmptyTokenNotAllowed)), "{again:?}");
        let back = peer.let_in(Some(peer.provider.token().await?)).await?;
        let client = own(&peer, &back).await?;
        eventually("it is back", || async { Ok(client.list(&everything).await?) }).await?;
        ensure!(old.list(&everything).await.is_err(), "the old token is good again");
        Ok(())
    })
}

async fn it_writes_its_own_copy_and_reaches_nothing_else(
    peer: &Peer,
    grant: &IdentityGrant,
    own: &Api<ResourceRequest>,
) -> Result<()> {
    let (client, everything) = (own.clone().into_client(), ListParams::default());
    eventually("the rights take effect", || async { Ok(own.list(&everything).await?) }).await?;
    let elsewhere = Api::<ResourceRequest>::namespaced(client.clone(), "default");
    ensure!(is_forbidden(elsewhere.list(&everything).await), "it sees other namespaces");
    ensure!(
        is_forbidden(elsewhere.create(&PostParams::default(), &peer.copy("a")?).await),
        "it writes elsewhere"
    );
    let secrets = Api::<Secret>::namespaced(client.clone(), &grant.namespace);
    ensure!(is_forbidden(secrets.list(&everything).await), "it sees Secrets");
    let accounts = Api::<ServiceAccount>::namespaced(client, &grant.namespace);
    ensure!(is_forbidden(accounts.list(&everything).await), "it sees accounts");

    let name = peer.id().to_string();
    let mut forged = peer.copy(&name)?;
    labels::ORIGIN_ID.put_on(&mut forged.metadata, peer.provider.id.to_string());
    for wrong in [forged, peer.copy("another")?] {
        eventually("the policy takes effect", || async {
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            ensure!(is_forbidden(own.create(&dry, &wrong).await), "{wrong:?}");
            Ok(())
        })
        .await?;
    }
    own.create(&PostParams::default(), &peer.copy(&name)?).await?;
    Ok(())
}
