//! What this cluster keeps for a peer that it lets in: a namespace, and the peer's rights there.
//!
//! Rights are bound to the peer's user of the present generation, and to the service account that it is where nobody
//! signs certificates. To take them away, the generation is counted up first: from then on no certificate or token of
//! before can come to rights again, whatever happens next.

pub(crate) mod account;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use ferro_api::names::labels;
use ferro_core::auth::{Generations, UserName};
use ferro_core::identity::ClusterId;
use ferro_core::names;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tracing::info;

/// The `RoleBinding` in a tenant namespace, and the `ClusterRole` that it gives to the peer.
pub const BINDING: &str = "ferro-peer";
/// The ConfigMap with the generations.
pub const GENERATIONS: &str = "ferro-generations";

const RBAC: &str = "rbac.authorization.k8s.io";
/// So often somebody else may be faster.
const TRIES: usize = 10;

/// The namespace that this cluster keeps for a peer; made if there is none.
///
/// One that is being deleted is an error: it is gone soon, and can be made then.
pub async fn ensure_namespace(client: &Client, peer_name: &str, cluster_id: &str) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let of_peer = format!("{},{}", labels::PART_OF.selector(), labels::REMOTE_ID.selector(cluster_id));
    let found = namespaces.list(&ListParams::default().labels(&of_peer)).await;
    let found = found.with_context(|| format!("cannot look for the namespace of {cluster_id}"))?;
    if let Some(namespace) = found.items.iter().min_by_key(|namespace| namespace.name_any()) {
        return usable(namespace);
    }
    let name = names::tenant_namespace(peer_name, cluster_id);
    let namespace = Namespace { metadata: of_ours(&name, cluster_id), ..Namespace::default() };
    match namespaces.create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let present = namespaces.get(&name).await;
            let present = present.with_context(|| format!("cannot read the namespace {name}"))?;
            names::adopt(&name, recorded(&present.metadata), cluster_id)?;
            usable(&present)
        }
        created => {
            created.with_context(|| format!("cannot create the namespace {name}"))?;
            info!(namespace = name, peer = cluster_id, "made the namespace of a peer");
            Ok(name)
        }
    }
}

fn usable(namespace: &Namespace) -> Result<String> {
    let name = namespace.name_any();
    ensure!(
        namespace.metadata.deletion_timestamp.is_none(),
        "the namespace {name} is still being deleted; a new one is made when it is gone"
    );
    Ok(name)
}

/// Gives the peer its rights in its namespace, as this user and no other.
pub async fn admit(client: &Client, tenant_namespace: &str, user: &UserName) -> Result<()> {
    let bindings = bindings(client, tenant_namespace);
    let cannot = || format!("cannot give {} its rights in {tenant_namespace}", user.cluster);
    let wanted = binding(tenant_namespace, user);
    let Some(present) = bindings.get_opt(BINDING).await.with_context(cannot)? else {
        bindings.create(&PostParams::default(), &wanted).await.with_context(cannot)?;
        return Ok(());
    };
    names::adopt(BINDING, recorded(&present.metadata), &user.cluster.to_string()).with_context(cannot)?;
    if present.role_ref != wanted.role_ref {
        // What a binding binds to cannot be changed.
        bindings.delete(BINDING, &DeleteParams::default()).await.with_context(cannot)?;
        bindings.create(&PostParams::default(), &wanted).await.with_context(cannot)?;
    } else if present.subjects != wanted.subjects {
        let patch = Patch::Merge(json!({"subjects": wanted.subjects}));
        bindings.patch(BINDING, &PatchParams::default(), &patch).await.with_context(cannot)?;
    }
    Ok(())
}

/// Takes away the peer's rights, and makes sure that its certificates and tokens are never good for any again.
///
/// Repeating it changes nothing: where nobody has rights, nothing is to be revoked.
pub async fn revoke(
    client: &Client,
    installation_namespace: &str,
    tenant_namespace: &str,
    id: &ClusterId,
) -> Result<()> {
    let bindings = bindings(client, tenant_namespace);
    let cannot = || format!("cannot take away the rights of {id} in {tenant_namespace}");
    let Some(present) = bindings.get_opt(BINDING).await.with_context(cannot)? else { return Ok(()) };
    if !is_for(&present, id) {
        return Ok(());
    }
    let bound = user_of(&present).map(|user| user.generation);
    change_generations(client, installation_namespace, |generations| {
        // When it was raised before, and only what follows was cut off, once is enough.
        let is_raised = bound.is_some_and(|bound| generations.of(id).is_ok_and(|present| bound < present));
        if !is_raised {
            generations.raise(id, Timestamp::now())?;
        }
        Ok(())
    })
    .await
    .with_context(cannot)?;
    account::forget(client, tenant_namespace, id).await?;
    match bindings.delete(BINDING, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        deleted => drop(deleted.with_context(cannot)?),
    }
    info!(peer = %id, namespace = tenant_namespace, "revoked the rights of a peer");
    Ok(())
}

/// The present generation of a peer.
pub async fn generation(client: &Client, installation_namespace: &str, id: &ClusterId) -> Result<u32> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), installation_namespace);
    let map = maps.get(GENERATIONS).await;
    let map = map.with_context(|| format!("cannot read the ConfigMap {GENERATIONS}"))?;
    Ok(Generations::stored(map.data.unwrap_or_default()).of(id)?)
}

/// The users that have rights in some namespace of a peer: all, or those of one peer.
pub async fn admitted(client: &Client, peer: Option<&ClusterId>) -> Result<Vec<UserName>> {
    let which = match peer {
        Some(peer) => labels::REMOTE_ID.selector(&peer.to_string()),
        None => labels::REMOTE_ID.key().to_owned(),
    };
    let which = ListParams::default().labels(&format!("{},{which}", labels::PART_OF.selector()));
    let found = Api::<RoleBinding>::all(client.clone()).list(&which).await;
    let found = found.context("cannot list the rights of peers")?;
    Ok(found.items.iter().filter_map(user_of).collect())
}

/// Makes the ConfigMap with the generations, if there is none.
pub(crate) async fn ensure_generations(client: &Client, namespace: &str) -> Result<()> {
    change_generations(client, namespace, |_| Ok(())).await
}

/// Forgets generations that no longer matter.
pub(crate) async fn prune_generations(client: &Client, namespace: &str) -> Result<()> {
    let admitted = admitted(client, None).await?;
    let is_let_in = |peer: &ClusterId| admitted.iter().any(|user| user.cluster == *peer);
    change_generations(client, namespace, |generations| {
        generations.prune(is_let_in, Timestamp::now());
        Ok(())
    })
    .await
}

/// Every write names the version that it was made from, and is done again from the next when somebody was faster.
async fn change_generations(
    client: &Client,
    namespace: &str,
    change: impl Fn(&mut Generations) -> Result<()>,
) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let cannot = || format!("cannot use the ConfigMap {namespace}/{GENERATIONS}");
    for _ in 0..TRIES {
        let present = maps.get_opt(GENERATIONS).await.with_context(cannot)?;
        let before = present.as_ref().and_then(|map| map.data.clone()).unwrap_or_default();
        let mut generations = Generations::stored(before.clone());
        change(&mut generations)?;
        let data = generations.into_data();
        let written = match present {
            Some(_) if data == before => return Ok(()),
            Some(map) => {
                let map = ConfigMap { data: Some(data), ..map };
                maps.replace(GENERATIONS, &PostParams::default(), &map).await
            }
            None => maps.create(&PostParams::default(), &map_of(data)).await,
        };
        match written {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).with_context(cannot),
        }
    }
    bail!("the ConfigMap {namespace}/{GENERATIONS} is changed by others all the time; it is tried again")
}

fn map_of(data: BTreeMap<String, String>) -> ConfigMap {
    let mut metadata = ObjectMeta { name: Some(GENERATIONS.into()), ..ObjectMeta::default() };
    labels::PART_OF.put_on(&mut metadata);
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

fn bindings(client: &Client, namespace: &str) -> Api<RoleBinding> {
    Api::namespaced(client.clone(), namespace)
}

fn of_ours(name: &str, cluster_id: &str) -> ObjectMeta {
    let mut metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    labels::PART_OF.put_on(&mut metadata);
    labels::REMOTE_ID.put_on(&mut metadata, cluster_id);
    metadata
}

/// The peer that an object of ours was made for; none for what we did not make.
fn recorded(metadata: &ObjectMeta) -> Option<&str> {
    labels::PART_OF.is_on(metadata).then(|| labels::REMOTE_ID.of(metadata)).flatten()
}

fn binding(namespace: &str, user: &UserName) -> RoleBinding {
    let metadata = of_ours(BINDING, &user.cluster.to_string());
    RoleBinding {
        metadata: ObjectMeta { namespace: Some(namespace.into()), ..metadata },
        role_ref: RoleRef { api_group: RBAC.into(), kind: "ClusterRole".into(), name: BINDING.into() },
        subjects: Some(subjects(namespace, user)),
    }
}

/// All that a peer can be. Its account is named before there is one, so that nobody need decide between the two.
fn subjects(namespace: &str, user: &UserName) -> Vec<Subject> {
    let name = Subject {
        api_group: Some(RBAC.into()),
        kind: "User".into(),
        name: user.to_string(),
        ..Subject::default()
    };
    let account = Subject {
        kind: "ServiceAccount".into(),
        name: user.account(),
        namespace: Some(namespace.into()),
        ..Subject::default()
    };
    vec![name, account]
}

/// Whether a binding was made for this peer, or gives rights to it.
fn is_for(binding: &RoleBinding, id: &ClusterId) -> bool {
    let user = |subject: &Subject| subject.name.parse().ok().or_else(|| UserName::of_account(&subject.name));
    recorded(&binding.metadata) == Some(id.to_string().as_str())
        || binding.subjects.iter().flatten().filter_map(user).any(|user| user.cluster == *id)
}

/// All that a peer is, by the binding that lets it in; nothing if that is not as we made it.
pub fn identity_of(binding: &RoleBinding) -> Vec<Subject> {
    let (namespace, user) = (binding.metadata.namespace.as_deref(), user_of(binding));
    namespace.zip(user).map(|(namespace, user)| subjects(namespace, &user)).unwrap_or_default()
}

/// The user that a binding of ours gives rights to.
fn user_of(binding: &RoleBinding) -> Option<UserName> {
    let present = binding.subjects.as_deref()?;
    let user: UserName = present.first()?.name.parse().ok()?;
    let namespace = binding.metadata.namespace.as_deref()?;
    // A binding of an earlier version names the user alone.
    let is_whole = subjects(namespace, &user).starts_with(present)
        && binding.metadata.name.as_deref() == Some(BINDING)
        && binding.metadata.deletion_timestamp.is_none()
        && recorded(&binding.metadata) == Some(user.cluster.to_string().as_str());
    is_whole.then_some(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> UserName {
        "34750f98-bd59-8cfc-946d-a45aaabe933b:3".parse().unwrap()
    }

    #[test]
    fn a_binding_tells_whom_it_is_for() {
        let binding = binding("tenant", &user());
        assert_eq!(user_of(&binding), Some(user()));
        assert_eq!(binding.role_ref.name, BINDING);
    }

    #[test]
    fn a_binding_of_an_earlier_version_counts_and_one_for_an_account_elsewhere_does_not() {
        let mut earlier = binding("tenant", &user());
        earlier.subjects.iter_mut().for_each(|subjects| subjects.truncate(1));
        assert_eq!(user_of(&earlier), Some(user()));
        let mut elsewhere = binding("tenant", &user());
        elsewhere.subjects = Some(subjects("another", &user()));
        assert_eq!(user_of(&elsewhere), None);
        elsewhere.metadata.labels = None;
        elsewhere.subjects.iter_mut().for_each(|subjects| drop(subjects.remove(0)));
        assert!(is_for(&elsewhere, &user().cluster), "the account is the peer's");
    }

    #[test]
    fn a_binding_that_somebody_changed_lets_nobody_in() {
        let mut others = vec![binding("tenant", &user()); 4];
        others[0].metadata.labels = None;
        labels::REMOTE_ID.put_on(&mut others[1].metadata, "another");
        others[2].subjects.iter_mut().flatten().for_each(|subject| subject.kind = "Group".into());
        others[3].subjects = None;
        assert!(others.iter().all(|binding| user_of(binding).is_none()));
        assert!(others.iter().all(|binding| is_for(binding, &user().cluster)), "and is revoked all the same");
    }

    #[test]
    fn what_we_did_not_make_is_not_for_a_peer() {
        let mut metadata = of_ours("x", "peer");
        assert_eq!(recorded(&metadata), Some("peer"));
        labels::PART_OF.take_off(&mut metadata);
        assert_eq!(recorded(&metadata), None);
    }
}
