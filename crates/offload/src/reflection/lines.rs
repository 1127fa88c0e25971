//! Connections to the API server of one peer: it takes a hundred requests at once on each, and a watch is one that never
//! ends. So namespaces share lines, as many as fit, and what is written has a line to itself.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::{Context, Result};
use ferro_peering::keepsake::Keepsake;
use ferro_peering::remote::{self, Between};
use kube::Client;

/// So many watches are on one line: an API server takes 100 requests, and some room is left for lists.
const MOST: usize = 80;

/// The lines to a peer.
pub(super) struct Lines {
    keepsake: Arc<Keepsake>,
    between: Option<Between>,
    open: Mutex<Vec<Weak<Client>>>,
}

impl Lines {
    pub(super) fn new(keepsake: Arc<Keepsake>, between: Option<Between>) -> Self {
        Self { keepsake, between, open: Mutex::default() }
    }

    /// A line that nobody else has.
    pub(super) fn own(&self) -> Result<Client> {
        let (client, _) = remote::client(&self.keepsake)?.context("the peer does not let us in")?;
        Ok(self.between.as_ref().map_or(client.clone(), |between| between(client)))
    }

    /// A line with room for so many watches; they are on it as long as somebody has it.
    pub(super) fn shared(&self, watches: usize) -> Result<Arc<Client>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|line| line.strong_count() > 0);
        let has_room = |line: &&Weak<Client>| (line.strong_count() + 1) * watches <= MOST;
        if let Some(line) = open.iter().find(has_room).and_then(Weak::upgrade) {
            return Ok(line);
        }
        let line = Arc::new(self.own()?);
        open.push(Arc::downgrade(&line));
        Ok(line)
    }
}
