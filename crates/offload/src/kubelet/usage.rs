//! What the pods of a virtual node use: asked of its cluster when somebody asks for it, and not more often than that measures.
//!
//! The cluster is asked in its metrics API, for those of our namespaces over there that have pods of the node, in limited
//! time. What it does not answer is as it was, until that is too old.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ferro_core::usage::{Lodger, Measurement, Meter, measurements};
use futures::{StreamExt as _, stream};
use hyper::Request;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::Mutex;
use tracing::{debug, warn};

use super::Site;
use super::question::Page;

/// For so long an answer is taken for the present one: clusters measure every 10 s or less often.
const HOLDS: Duration = Duration::from_secs(5);
/// How long a cluster may take: less than those who scrape kubelets wait.
const PATIENCE: Duration = Duration::from_secs(4);
/// So many namespaces are asked about at once.
const AT_ONCE: usize = 8;

/// Counts what the pods of one node use.
pub(super) struct Counter {
    pub(super) node: String,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    meter: Meter,
    asked: Option<Instant>,
    /// Whether the last answer was none, and somebody was told.
    has_failed: bool,
}

impl Counter {
    pub(super) fn new(node: &str) -> Self {
        Self { node: node.to_owned(), book: Mutex::default() }
    }

    /// What the pods of the node use now, with its media type. Those who come together share one answer of the cluster.
    pub(super) async fn page(&self, site: &Site, page: Page) -> (&'static str, String) {
        let mut book = self.book.lock().await;
        if book.asked.is_none_or(|asked| asked.elapsed() >= HOLDS) {
            self.refresh(&mut book, site).await;
            book.asked = Some(Instant::now());
        }
        let now = Timestamp::now();
        match page {
            Page::Metrics => ("text/plain; version=0.0.4", book.meter.metrics(&site.lodgers, now)),
            Page::Summary => {
                ("application/json", book.meter.summary(&self.node, &site.lodgers, now).to_string())
            }
        }
    }

    async fn refresh(&self, book: &mut Book, site: &Site) {
        book.meter.keep(&site.lodgers);
        let Some(client) = &site.client else {
            book.meter.answered(site.lodgers.is_empty());
            return;
        };
        let namespaces: BTreeSet<String> = site.lodgers.iter().map(|lodger| lodger.there.clone()).collect();
        let questions = namespaces.into_iter().map(|there| {
            let client = client.clone();
            async move {
                let answer = tokio::time::timeout(PATIENCE, ask(&client, &there)).await;
                (there, answer.context("it does not answer in time").flatten())
            }
        });
        let answers: Vec<_> = stream::iter(questions).buffer_unordered(AT_ONCE).collect().await;
        let (now, mut failure) = (Timestamp::now(), None);
        for (there, answer) in answers {
            match answer {
                Ok(measured) => {
                    let of_there = site.lodgers.iter().filter(|lodger| lodger.there == there);
                    note(&mut book.meter, of_there, &measured, now);
                }
                Err(error) => failure = Some(format!("{error:#}")),
            }
        }
        book.meter.answered(failure.is_none());
        self.tell(book, failure);
    }

    /// Says once that there are no figures, and not at every scrape.
    fn tell(&self, book: &mut Book, failure: Option<String>) {
        let node = &self.node;
        match failure {
            Some(error) if !book.has_failed => {
                warn!(
                    node,
                    error, "the cluster of this node does not say what its pods use; has it a metrics API?"
                );
            }
            Some(error) => {
                debug!(node, error, "the cluster of this node still does not say what its pods use");
            }
            None => {
                book.has_failed = false;
                return;
            }
        }
        book.has_failed = true;
    }
}

async fn ask(client: &Client, namespace: &str) -> Result<Vec<Measurement>> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let request = Request::get(path).body(Vec::new())?;
    Ok(measurements(&client.request_text(request).await?)?)
}

fn note<'a>(
    meter: &mut Meter,
    lodgers: impl Iterator<Item = &'a Lodger>,
    measured: &[Measurement],
    now: Timestamp,
) {
    let by_name: BTreeMap<&str, &Measurement> = measured.iter().map(|one| (one.pod.as_str(), one)).collect();
    for lodger in lodgers {
        if let Some(measurement) = by_name.get(lodger.name.as_str()) {
            meter.note(lodger, measurement, now);
        }
    }
}
