//! How a cluster is let in, on a real API server: a token becomes a certificate that is good for one namespace, and
//! everybody else is refused with the reason.

mod peer;
mod provider;
mod unsigned;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferro_api::discovery::{ForeignCluster, ResourceRequest};
use ferro_api::names::{finalizers, labels};
use ferro_core::auth::{Ask, Denial, Reason, TokenSecret};
use ferro_peering::tenant;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rcgen::KeyPair;
use rig::wait::{block_on, eventually};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use self::peer::{Peer, answer, connect, csr, post};
use self::provider::NAMESPACE;

fn is_forbidden<T>(result: kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 403 || status.code == 422)
}

#[test]
fn a_token_lets_a_cluster_into_its_own_namespace_and_nowhere_else() -> Result<()> {
    block_on(async {
        let peer = Peer::new(1).await?;
        let admin = &peer.provider.client;
        let grant = peer.let_in(Some(peer.provider.token().await?)).await?;
        ensure!(grant.expires_at > Timestamp::now() + Duration::from_hours(29 * 24), "{grant:?}");

        let client = peer.client(&grant).await?;
        let everything = ListParams::default();
        let own = Api::<ResourceRequest>::namespaced(client.clone(), &grant.namespace);
        eventually("the rights take effect", || async { Ok(own.list(&everything).await?) }).await?;
        let other = Api::<ResourceRequest>::namespaced(client.clone(), "default");
        ensure!(is_forbidden(other.list(&everything).await), "it sees other namespaces");
        ensure!(
            is_forbidden(Api::<ResourceRequest>::all(client.clone()).list(&everything).await),
            "all of them"
        );
        let secrets = Api::<Secret>::namespaced(client.clone(), &grant.namespace);
        ensure!(is_forbidden(secrets.list(&everything).await), "it sees Secrets");
        ensure!(is_forbidden(Api::<ForeignCluster>::all(client).list(&everything).await), "it sees peers");

        let made = peer.provider.made_for(&peer).await?;
        ensure!(made.len() == 2 && made.contains(&grant.namespace), "{made:?}");
        let clusters = Api::<ForeignCluster>::all(admin.clone());
        let known = clusters.get(&made[0]).await?;
        ensure!(known.finalizers() == [finalizers::PEERING], "{known:?}");
        let kept = Api::<Secret>::namespaced(admin.clone(), NAMESPACE);
        let kept = kept.get(&format!("ferro-peer-{}", made[0])).await?;
        ensure!(kept.data.is_some_and(|data| data.contains_key("token")), "the return token is not kept");
        let requests = Api::<CertificateSigningRequest>::all(admin.clone());
        let of_peer = everything.labels(&labels::REMOTE_ID.selector(&peer.id().to_string()));
        // What the auth service could not clear away, the controller does later.
        eventually("no request is left", || async {
            let left = requests.list(&of_peer).await?;
            ensure!(left.items.is_empty(), "requests are left: {:?}", left.items);
            Ok(())
        })
        .await
    })
}

#[test]
fn a_peer_writes_copies_of_its_own_objects_and_nothing_else() -> Result<()> {
    block_on(async {
        let peer = Peer::new(2).await?;
        let grant = peer.let_in(Some(peer.provider.token().await?)).await?;
        let own = Api::<ResourceRequest>::namespaced(peer.client(&grant).await?, &grant.namespace);
        let ours = Api::<ResourceRequest>::namespaced(peer.provider.client.clone(), &grant.namespace);
        let how = PostParams::default();
        eventually("the rights take effect", || async { Ok(own.list(&ListParams::default()).await?) })
            .await?;

        let name = peer.id().to_string();
        let mut plain = peer.copy(&name)?;
        plain.metadata.labels = None;
        let mut forged = peer.copy(&name)?;
        labels::ORIGIN_ID.put_on(&mut forged.metadata, peer.provider.id.to_string());
        let mut held = peer.copy(&name)?;
        held.metadata.finalizers = Some(vec!["example.org/for-ever".into()]);
        for wrong in [plain.clone(), forged, held, peer.copy("another")?] {
            eventually("the policy takes effect", || async {
                let created = own.create(&how, &wrong).await;
                if created.is_ok() {
                    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                    ours.patch(&wrong.name_any(), &PatchParams::default(), &patch).await?;
                    ours.delete(&wrong.name_any(), &DeleteParams::default()).await?;
                }
                ensure!(is_forbidden(created), "{} was created", wrong.name_any());
                Ok(())
            })
            .await?;
        }

        own.create(&how, &peer.copy(&name)?).await?;
        let change = |patch: Value| {
            let (own, name) = (own.clone(), name.clone());
            async move { own.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await }
        };
        change(json!({"spec": {"authUrl": "https://192.0.2.8:30443"}})).await?;
        let finalizers = json!({"metadata": {"finalizers": [finalizers::VIRTUAL_NODE]}});
        ours.patch(&name, &PatchParams::default(), &Patch::Merge(finalizers)).await?;
        for wrong in [
            json!({"metadata": {"finalizers": null}}),
            json!({"metadata": {"labels": {labels::REPLICATED.key(): null}}}),
            json!({"metadata": {"labels": {labels::ORIGIN_ID.key(): peer.provider.id}}}),
            json!({"metadata": {"labels": {labels::REMOTE_ID.key(): peer.id()}}}),
        ] {
            ensure!(is_forbidden(change(wrong.clone()).await), "{wrong}");
        }
        let status = Patch::Merge(json!({"status": {"offerState": "Created"}}));
        ensure!(is_forbidden(own.patch_status(&name, &PatchParams::default(), &status).await), "status");
        change(json!({"spec": {"authUrl": "https://192.0.2.9:30443"}})).await?;
        own.delete(&name, &DeleteParams::default()).await?;
        ensure!(
            is_forbidden(change(json!({"metadata": {"finalizers": null}})).await),
            "it took our finalizer off"
        );

        plain.metadata.name = Some("plain".into());
        ours.create(&how, &plain).await?;
        ensure!(is_forbidden(own.delete("plain", &DeleteParams::default()).await), "it deleted one of ours");
        let patch = Patch::Merge(json!({"metadata": {"labels": peer.copy("plain")?.metadata.labels}}));
        ensure!(
            is_forbidden(own.patch("plain", &PatchParams::default(), &patch).await),
            "it took one of ours"
        );
        Ok(())
    })
}

#[test]
fn a_certificate_is_renewed_without_a_token_until_it_is_revoked() -> Result<()> {
    block_on(async {
        let mut peer = Peer::new(3).await?;
        let provider = peer.provider;
        let used = provider.token().await?;
        let first = peer.let_in(Some(used)).await?;
        let old = Api::<ResourceRequest>::namespaced(peer.client(&first).await?, &first.namespace);
        peer.key = KeyPair::generate()?;
        let renewed = peer.let_in(None).await?;
        ensure!(renewed.namespace == first.namespace, "{renewed:?}");
        let new = Api::<ResourceRequest>::namespaced(peer.client(&renewed).await?, &renewed.namespace);
        let everything = ListParams::default();
        eventually("both are good", || async {
            old.list(&everything).await?;
            Ok(new.list(&everything).await?)
        })
        .await?;

        let challenge = peer.challenge().await?;
        for _ in 0..2 {
            tenant::revoke(&provider.client, NAMESPACE, &first.namespace, &peer.id()).await?;
        }
        ensure!(tenant::generation(&provider.client, NAMESPACE, &peer.id()).await? == 1, "raised once");
        eventually("both are void", || async {
            ensure!(
                is_forbidden(old.list(&everything).await) && is_forbidden(new.list(&everything).await),
                "not yet"
            );
            Ok(())
        })
        .await?;
        eventually("the auth service knows of it", || async {
            let now = peer.challenge().await?.common_name;
            ensure!(now.generation == challenge.common_name.generation + 1, "{now:?}");
            Ok(())
        })
        .await?;
        let late = peer.send(peer.ask(&challenge, Some(provider.token().await?))?).await?;
        ensure!(late == Err((403, Reason::ExpiredChallenge)), "{late:?}");
        let again = peer.enter(None).await?;
        ensure!(again == Err((403, Reason::EmptyTokenNotAllowed)), "{again:?}");
        let again = peer.enter(Some(used)).await?;
        ensure!(again == Err((403, Reason::UsedToken)), "{again:?}");

        let back = peer.let_in(Some(provider.token().await?)).await?;
        let client = Api::<ResourceRequest>::namespaced(peer.client(&back).await?, &back.namespace);
        eventually("it is back", || async { Ok(client.list(&everything).await?) }).await?;
        ensure!(is_forbidden(new.list(&everything).await), "the old certificate is good again");
        Ok(())
    })
}

#[test]
fn whoever_has_no_right_is_refused_with_the_reason_and_nothing_is_made() -> Result<()> {
    block_on(async {
        let peer = Peer::new(4).await?;
        let provider = peer.provider;
        ensure!(peer.enter(None).await? == Err((403, Reason::EmptyTokenNotAllowed)), "no token");
        let wrong = peer.enter(Some(TokenSecret::new([9; 32]))).await?;
        ensure!(wrong == Err((403, Reason::InvalidToken)), "{wrong:?}");

        let challenge = peer.challenge().await?;
        let elsewhere = Ask { audience: peer.id(), ..peer.ask(&challenge, None)? };
        ensure!(peer.send(elsewhere).await? == Err((403, Reason::WrongAudience)), "foreign audience");
        let admin = Ask { csr: csr("system:admin", &peer.key)?, ..peer.ask(&challenge, None)? };
        ensure!(peer.send(admin).await? == Err((403, Reason::InvalidCsr)), "a CSR for somebody else");

        let victim = Peer::new(5).await?;
        let mut forged = serde_json::to_value(peer.ask(&challenge, None)?.sign(&peer.signer))?;
        forged["clusterID"] = json!(victim.id());
        // The challenge was for another cluster.
        ensure!(peer.send_json(&forged).await? == Err((403, Reason::ExpiredChallenge)), "forged clusterID");
        let theirs = victim.challenge().await?;
        let mut forged = serde_json::to_value(peer.ask(&theirs, None)?.sign(&peer.signer))?;
        forged["clusterID"] = json!(victim.id());
        ensure!(peer.send_json(&forged).await? == Err((403, Reason::IdentityMismatch)), "forged clusterID");
        let request = json!({"clusterID": victim.id(), "publicKey": peer.signer.identity().public_key()});
        let (status, body) = peer.post("/challenge", &serde_json::to_vec(&request)?).await?;
        ensure!(
            (status, Denial::parse(&body)?.reason) == (403, Reason::IdentityMismatch),
            "forged clusterID"
        );

        for body in [b"{}".to_vec(), vec![b'x'; 17 * 1024]] {
            let (status, answer) = peer.post("/identity", &body).await?;
            ensure!((status, Denial::parse(&answer)?.reason) == (400, Reason::Malformed), "{status}");
        }
        ensure!(provider.made_for(&peer).await?.is_empty(), "something was made for it");
        ensure!(provider.made_for(&victim).await?.is_empty(), "something was made for it");
        Ok(())
    })
}

#[test]
fn neither_a_token_nor_a_request_counts_twice() -> Result<()> {
    block_on(async {
        let (peer, thief) = (Peer::new(6).await?, Peer::new(7).await?);
        let token = peer.provider.token().await?;
        let challenge = peer.challenge().await?;
        let request = serde_json::to_value(peer.ask(&challenge, Some(token))?.sign(&peer.signer))?;
        peer.send_json(&request).await?.map_err(|refused| anyhow::anyhow!("{refused:?}"))?;
        ensure!(thief.send_json(&request).await? == Err((403, Reason::Replayed)), "the request counts twice");
        let stolen = thief.enter(Some(token)).await?;
        ensure!(stolen == Err((403, Reason::UsedToken)), "{stolen:?}");
        ensure!(peer.provider.made_for(&thief).await?.is_empty(), "something was made for the thief");
        Ok(())
    })
}

#[test]
fn whoever_dawdles_is_not_waited_for() -> Result<()> {
    block_on(async {
        let slow = Peer::new(10).await?;
        let mut stream = connect(slow.provider.address, slow.source).await?;
        stream.write_all(b"POST /identity HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{").await?;
        let answered = tokio::time::timeout(Duration::from_secs(20), answer(stream)).await;
        let (status, _, body) = answered.context("it is waited for")??;
        ensure!((status, Denial::parse(&body)?.reason) == (400, Reason::Malformed), "{status}");
        Ok(())
    })
}

#[test]
fn whoever_asks_too_often_is_told_to_wait_and_others_are_not() -> Result<()> {
    block_on(async {
        let (greedy, patient) = (Peer::new(8).await?, Peer::new(9).await?);
        let mut limited = None;
        for _ in 0..200 {
            let answer = post(greedy.provider.address, greedy.source, "/challenge", b"{}").await?;
            if answer.0 == 429 {
                limited = Some(answer);
                break;
            }
        }
        let (_, head, body) = limited.context("nobody stops it")?;
        ensure!(head.contains("retry-after: "), "{head}");
        ensure!(Denial::parse(&body)?.reason == Reason::RateLimited, "another reason");
        patient.challenge().await?;
        Ok(())
    })
}
