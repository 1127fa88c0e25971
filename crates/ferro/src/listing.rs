//! All objects of a kind, in the order in which every command shows them.

use kube::api::{Api, ListParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::kube_errors::{Explain as _, allowed, found};

/// All objects of a kind, by namespace and name; none where the cluster does not know it.
pub(crate) async fn all<K>(client: &Client, what: &str) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    labelled(client, what, &ListParams::default()).await
}

/// The same of those that match.
pub(crate) async fn labelled<K>(client: &Client, what: &str, which: &ListParams) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    fetch(client, which).await.explain(|| format!("list the {what}"))
}

/// The same, or nothing for who may not see them.
pub(crate) async fn if_allowed<K>(
    client: &Client,
    what: &str,
    which: &ListParams,
) -> anyhow::Result<Option<Vec<K>>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    allowed(fetch(client, which).await).explain(|| format!("list the {what}"))
}

async fn fetch<K>(client: &Client, which: &ListParams) -> kube::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let all = found(Api::<K>::all(client.clone()).list(which).await)?;
    let mut all = all.map(|list| list.items).unwrap_or_default();
    all.sort_by_key(|object| (object.meta().namespace.clone(), object.meta().name.clone()));
    Ok(all)
}
