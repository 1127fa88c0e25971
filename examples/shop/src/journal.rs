//! Makes the ledger last: every event is a line of a file, on the disk before anybody is told of it.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::ledger::{Event, Ledger};

/// The name of the file in its folder.
const NAME: &str = "journal";

/// The open file.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// Length of all whole lines.
    length: u64,
}

impl Journal {
    /// Opens the journal of a folder, and gives the ledger as it was.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Ledger)> {
        let path = folder.join(NAME);
        let cannot = || format!("cannot use {}", path.display());
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.with_context(cannot)?,
        };
        let (ledger, whole) = replay(&text)?;
        let file = OpenOptions::new().create(true).append(true).open(&path).with_context(cannot)?;
        // What follows the last whole line was being written when the power went, and nobody was told of it.
        file.set_len(whole).with_context(cannot)?;
        Ok((Self { file, length: whole }, ledger))
    }

    /// Writes an event down for good, or not at all.
    pub(crate) fn write(&mut self, event: &Event) -> Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line).and_then(|()| self.file.sync_data()) {
            self.file.set_len(self.length).context("cannot mend the journal")?;
            return Err(error).context("cannot write the journal; is its disk full?");
        }
        self.length += line.len() as u64;
        Ok(())
    }
}

/// The ledger that a journal tells of, and the length of its whole lines.
fn replay(text: &str) -> Result<(Ledger, u64)> {
    let whole = text.rfind('\n').map_or(0, |last| last + 1);
    let mut ledger = Ledger::default();
    for (number, line) in text[..whole].lines().enumerate() {
        let event = serde_json::from_str(line).with_context(|| {
            format!("line {} of the journal cannot be read; mend or remove it", number + 1)
        })?;
        ledger.apply(event);
    }
    Ok((ledger, whole as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(quantity: u32) -> Event {
        Ledger::default().put("ada", "barometer", quantity).unwrap()
    }

    #[test]
    fn what_was_written_is_there_after_a_restart_and_half_a_line_is_not() {
        let folder = std::env::temp_dir().join(format!("shop-journal-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (mut journal, ledger) = Journal::open(&folder).unwrap();
        assert_eq!(ledger, Ledger::default());
        journal.write(&put(2)).unwrap();
        OpenOptions::new().append(true).open(folder.join(NAME)).unwrap().write_all(b"{\"put\"").unwrap();
        let (mut journal, ledger) = Journal::open(&folder).unwrap();
        assert_eq!(ledger.cart("ada")["barometer"], 2);
        journal.write(&put(3)).unwrap();
        let (_, ledger) = Journal::open(&folder).unwrap();
        assert_eq!(ledger.cart("ada")["barometer"], 3);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_damaged_journal_is_not_taken_for_an_empty_one() {
        let error = format!("{:#}", replay("nonsense\n").unwrap_err());
        assert!(error.contains("line 1"), "{error}");
    }
}
