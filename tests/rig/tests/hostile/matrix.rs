//! Every request that can be made to an API server: all verbs on all that it says it has, in one place or everywhere.

use std::collections::BTreeSet;

use anyhow::Result;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use http::{Method, Request, StatusCode, header};
use kube::Client;
use kube::client::Body;

/// So many requests are under way at once.
const AT_ONCE: usize = 32;

/// A resource, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thing {
    /// Where its group is served.
    root: String,
    /// Its name, with that of the part after a slash.
    pub name: String,
    namespaced: bool,
}

/// A request that is tried.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// What it is about.
    pub thing: Thing,
    /// What it would do.
    pub verb: &'static str,
    method: Method,
    pub path: String,
}

/// Everything that an API server has, as it tells everybody who is known to it.
pub async fn things(client: &Client) -> Result<BTreeSet<Thing>> {
    let mut roots = vec![("/api/v1".to_owned(), client.list_core_api_resources("v1").await?)];
    for group in client.list_api_groups().await?.groups {
        for version in group.versions {
            let listed = client.list_api_group_resources(&version.group_version).await?;
            roots.push((format!("/apis/{}", version.group_version), listed));
        }
    }
    let all = roots.into_iter().flat_map(|(root, listed)| {
        listed.resources.into_iter().map(move |resource| Thing {
            root: root.clone(),
            name: resource.name,
            namespaced: resource.namespaced,
        })
    });
    Ok(all.collect())
}

impl Thing {
    /// Whether this is the resource of that group and name.
    pub fn is(&self, group: &str, name: &str) -> bool {
        self.root.split('/').nth(2) == Some(group) && self.name == name
    }

    /// Every verb on it in this namespace, or everywhere; none where there is no such place.
    pub fn attempts(&self, namespace: Option<&str>) -> Vec<Attempt> {
        let folder = match namespace {
            Some(namespace) if self.namespaced => format!("{}/namespaces/{namespace}", self.root),
            Some(_) => return Vec::new(),
            None => self.root.clone(),
        };
        let attempt = |verb, method: &Method, path: String| Attempt {
            thing: self.clone(),
            verb,
            method: method.clone(),
            path,
        };
        let (plural, part) = self
            .name
            .split_once('/')
            .map_or((self.name.as_str(), None), |(plural, part)| (plural, Some(part)));
        let every = format!("{folder}/{plural}");
        let one = format!("{every}/x{}", part.map(|part| format!("/{part}")).unwrap_or_default());
        let mut attempts = vec![
            attempt("get", &Method::GET, one.clone()),
            attempt("update", &Method::PUT, one.clone()),
            attempt("patch", &Method::PATCH, one.clone()),
            attempt("delete", &Method::DELETE, one.clone()),
        ];
        match part {
            Some(_) => attempts.push(attempt("create", &Method::POST, one)),
            None => attempts.extend([
                attempt("list", &Method::GET, every.clone()),
                attempt("watch", &Method::GET, format!("{every}?watch=true")),
                attempt("watch", &Method::GET, format!("{every}?watch=true&fieldSelector=metadata.name%3Dx")),
                attempt("create", &Method::POST, every.clone()),
                attempt("deletecollection", &Method::DELETE, every),
            ]),
        }
        attempts
    }
}

/// Makes all requests, and gives those that were let through, with the answer.
pub async fn let_through(client: &Client, attempts: Vec<Attempt>) -> Result<Vec<(Attempt, StatusCode)>> {
    let answers = stream::iter(attempts).map(|attempt| async {
        let status = ask(client, &attempt.method, &attempt.path).await?;
        anyhow::Ok((attempt, status))
    });
    let through = |answer: &(Attempt, StatusCode)| std::future::ready(answer.1 != StatusCode::FORBIDDEN);
    answers.buffer_unordered(AT_ONCE).try_filter(through).try_collect().await
}

/// What an API server answers to a request that says nothing.
pub async fn ask(client: &Client, method: &Method, path: &str) -> Result<StatusCode> {
    let merges = *method == Method::PATCH;
    let content = if merges { "application/merge-patch+json" } else { "application/json" };
    let body = if *method == Method::GET { Vec::new() } else { b"{}".to_vec() };
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content);
    let answer = client.send(request.body(Body::from(body))?).await?;
    let status = answer.status();
    // A refusal is read to its end: answers that are thrown away count as an attack, and end the connection.
    if status == StatusCode::FORBIDDEN {
        answer.into_body().collect_bytes().await?;
    }
    Ok(status)
}
