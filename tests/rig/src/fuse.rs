//! A client that fails after so many writes, for tests of what is left when a process ends in mid-way.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Result;
use http::Request;
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::BoxError;
use tower::filter::FilterLayer;

/// How many writes may still be done; less than none means any number.
#[derive(Clone, Debug)]
pub struct Fuse {
    left: Arc<AtomicI64>,
    /// How many were tried.
    pub written: Arc<AtomicI64>,
    /// Whether writes at peers count as well.
    pub is_everywhere: bool,
}

impl Fuse {
    /// Never breaks.
    pub fn none() -> Self {
        Self::after(-1)
    }

    /// Breaks after so many writes.
    pub fn after(writes: i64) -> Self {
        Self { left: Arc::new(AtomicI64::new(writes)), written: Arc::default(), is_everywhere: false }
    }

    /// Counts also what is written at peers.
    #[must_use]
    pub fn everywhere(self) -> Self {
        Self { is_everywhere: true, ..self }
    }

    /// Begins to count anew, and breaks after so many writes from now on.
    pub fn arm(&self, writes: i64) {
        self.written.store(0, Ordering::SeqCst);
        self.left.store(writes, Ordering::SeqCst);
    }

    /// Whether no write is left.
    pub fn is_broken(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    /// A client whose requests are writes that the fuse knows of, as far as they count.
    pub fn client(self, config: Config, counts: fn(&Request<Body>) -> bool) -> Result<Client> {
        let guard = move |request: Request<Body>| -> Result<Request<Body>, BoxError> {
            if counts(&request) && !self.allows() {
                return Err("the fuse is broken".into());
            }
            Ok(request)
        };
        Ok(ClientBuilder::try_from(config)?.with_layer(&FilterLayer::new(guard)).build())
    }

    /// The same for a client that there is already.
    pub fn before(&self, client: Client, counts: fn(&Request<Body>) -> bool) -> Client {
        let (fuse, namespace) = (self.clone(), client.default_namespace().to_owned());
        let guarded = tower::service_fn(move |request: Request<Body>| {
            let (fuse, client) = (fuse.clone(), client.clone());
            async move {
                if counts(&request) && !fuse.allows() {
                    return Err(BoxError::from("the fuse is broken"));
                }
                Ok::<_, BoxError>(client.send(request).await?)
            }
        });
        Client::new(guarded, namespace)
    }

    fn allows(&self) -> bool {
        self.written.fetch_add(1, Ordering::SeqCst);
        let spend = |left: i64| match left {
            0 => None,
            1.. => Some(left - 1),
            _ => Some(left),
        };
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuse_that_is_armed_again_counts_from_the_beginning() {
        let fuse = Fuse::after(1);
        assert!(fuse.allows() && fuse.is_broken() && !fuse.allows());
        fuse.arm(2);
        assert_eq!(fuse.written.load(Ordering::SeqCst), 0);
        assert!(!fuse.is_broken() && fuse.allows() && fuse.allows() && fuse.is_broken());
        fuse.arm(-1);
        assert!((0..9).all(|_| fuse.allows()) && !fuse.is_broken());
    }
}
