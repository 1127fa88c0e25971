//! What an installation did, told as it happens and summed up at the end.

use kube::api::DynamicObject;

use super::apply::Outcome;
use crate::chart;
use crate::inventory::Item;
use crate::output;

/// How many objects became what.
#[derive(Default)]
pub(super) struct Tally {
    created: usize,
    changed: usize,
    unchanged: usize,
    removed: usize,
}

impl Tally {
    /// An object was applied.
    pub(super) fn applied(&mut self, object: &DynamicObject, outcome: Outcome) -> anyhow::Result<()> {
        let item = Item::described(object)?;
        match outcome {
            Outcome::Created => {
                self.created += 1;
                output::line(&format!("{item} created"))
            }
            Outcome::Changed => {
                self.changed += 1;
                output::line(&format!("{item} changed"))
            }
            Outcome::Unchanged => {
                self.unchanged += 1;
                Ok(())
            }
        }
    }

    /// An object was removed.
    pub(super) fn removed(&mut self, item: &Item) -> anyhow::Result<()> {
        self.removed += 1;
        output::line(&format!("{item} removed"))
    }

    /// The sum of it all.
    pub(super) fn finish(&self, namespace: &str, name: Option<&str>) -> anyhow::Result<()> {
        let cluster = name.map_or_else(String::new, |name| format!(", as cluster {name}"));
        let Self { created, changed, unchanged, removed } = self;
        let done = if created + changed + removed == 0 {
            "nothing to change".to_owned()
        } else {
            format!("{created} created, {changed} changed, {removed} removed, {unchanged} as they were")
        };
        let version = chart::VERSION;
        output::line(&format!(
            "Ferrofluid {version} is installed in the namespace {namespace}{cluster}: {done}"
        ))
    }
}
