//! Gives memory back that only a start or a burst of work has needed.
//!
//! The kernel counts two things to a process that it could do without: pages of the program that ran once, since a page of
//! a file stays mapped until somebody is short of memory, and pages of the heap that are free but lie between others that
//! are not. Flow: when work is followed by rest, both are given back, once; the next is due after as much work again.
//! Guarantees: nothing is lost. Pages of the program stay in the page cache, and the next call that needs one finds it
//! there, in a microsecond; pages with anything of the process's own are not touched. Assumptions: none; where the kernel
//! refuses, everything stays as it is.

use std::fs::read_to_string;
use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};
use tracing::debug;

/// How often is looked whether the process rests.
const LOOK: Duration = Duration::from_secs(20);
/// Who has worked for less than this since the last look rests.
const REST: Duration = Duration::from_millis(400);
/// After so much work it is worth it again. A start is always followed by it, however fast the machine is.
const WORTH: Duration = Duration::from_millis(250);

/// Gives back what is not needed, for ever.
pub async fn give_back() -> Result<()> {
    let mut work = Work::default();
    loop {
        tokio::time::sleep(LOOK).await;
        if work.is_followed_by_rest(worked()) {
            let programs =
                read_to_string("/proc/self/smaps").map(|text| untouched(&text)).unwrap_or_default();
            programs.into_iter().for_each(kernel::unmap);
            kernel::trim();
            debug!("memory that is not needed was given back");
        }
    }
}

/// Processor time of this process so far.
fn worked() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Processor time when it was last looked, and when memory was last given back.
#[derive(Debug, Default)]
struct Work {
    looked: Duration,
    gave: Option<Duration>,
}

impl Work {
    /// Whether enough was done since memory was last given back, and hardly anything since the last look.
    fn is_followed_by_rest(&mut self, now: Duration) -> bool {
        let rests = now.saturating_sub(self.looked) < REST;
        self.looked = now;
        let is_due = rests && self.gave.is_none_or(|gave| now.saturating_sub(gave) >= WORTH);
        if is_due {
            self.gave = Some(now);
        }
        is_due
    }
}

/// The mappings of files that cannot be written to, and of which no page is the process's own: what they show is in the
/// files. Relocated tables are mapped from a file as well, and have such pages.
fn untouched(smaps: &str) -> Vec<Range<usize>> {
    let (mut found, mut present) = (Vec::new(), None);
    for line in smaps.lines() {
        if let Some((range, is_candidate)) = mapping(line) {
            present = is_candidate.then_some(range);
        } else if line.strip_prefix("Anonymous:").is_some_and(|size| size.trim() == "0 kB") {
            found.extend(present.take());
        }
    }
    found
}

/// The first line of a mapping: `start-end rights offset device inode path`.
fn mapping(line: &str) -> Option<(Range<usize>, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |word| usize::from_str_radix(word, 16).ok();
    let range = address(start)?..address(end)?;
    let rights = words.next()?;
    let is_of_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
    Some((range, is_of_file && rights.ends_with('p') && !rights.contains('w')))
}

/// The two calls that the kernel and the C library have for it.
mod kernel {
    #![allow(unsafe_code, reason = "no safe function gives memory back; each call says why it is sound")]

    use std::ffi::c_int;
    use std::ops::Range;
    use std::ptr::with_exposed_provenance_mut;

    use rustix::mm::{Advice, madvise};

    /// Takes clean pages of a file out of the process. When one is needed, the kernel maps it again.
    pub(super) fn unmap(range: Range<usize>) {
        let (start, size) = (with_exposed_provenance_mut(range.start), range.end.saturating_sub(range.start));
        // SAFETY: the mapping is private, is not writable and has no page of the process's own, so that every page has the
        // same content before and after; nobody can have changed that meanwhile, since nobody can write there.
        _ = unsafe { madvise(start, size, Advice::LinuxDontNeed) };
    }

    unsafe extern "C" {
        /// Of the C library: gives the pages of the heap back that are free, and keeps so many bytes at its end.
        safe fn malloc_trim(keep: usize) -> c_int;
    }

    /// Gives the free pages of the heap back.
    pub(super) fn trim() {
        malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
00400000-00500000 r--p 00000000 fe:00 42                         /ferro
Rss:                1024 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
00500000-02000000 r-xp 00100000 fe:00 42                         /ferro
Rss:               20480 kB
Anonymous:             0 kB
02000000-02100000 r--p 01c00000 fe:00 42                         /ferro
Anonymous:           812 kB
02100000-02110000 rw-p 01d00000 fe:00 42                         /ferro
Anonymous:             0 kB
02110000-02200000 rw-p 00000000 00:00 0                          [heap]
Anonymous:           640 kB
7f0000000000-7f0000001000 r--s 00000000 fe:00 43                 /shared
Anonymous:             0 kB
7fff00000000-7fff00002000 r-xp 00000000 00:00 0                  [vdso]
Anonymous:             0 kB
";

    #[test]
    fn only_what_can_be_read_again_from_a_file_is_given_back() {
        assert_eq!(untouched(SMAPS), [0x0040_0000..0x0050_0000, 0x0050_0000..0x0200_0000]);
    }

    #[test]
    fn the_program_runs_on_when_its_pages_are_taken() {
        let own = read_to_string("/proc/self/smaps").unwrap();
        let programs = untouched(&own);
        assert!(!programs.is_empty(), "a test is a program of a file");
        programs.into_iter().for_each(kernel::unmap);
        kernel::trim();
        assert!(read_to_string("/proc/self/smaps").unwrap().contains("Anonymous:"));
    }

    #[test]
    fn a_start_is_followed_by_it_however_fast_it_was() {
        let mut work = Work::default();
        let mut at = |millis| work.is_followed_by_rest(Duration::from_millis(millis));
        assert!(at(40), "what a start has mapped is not needed any more");
        assert!(!at(45), "once");
    }

    #[test]
    fn memory_is_given_back_once_when_work_is_followed_by_rest() {
        let mut work = Work::default();
        let mut at = |millis| work.is_followed_by_rest(Duration::from_millis(millis));
        assert!(!at(900), "it works");
        assert!(at(1000), "it rests");
        assert!(!at(1010), "nothing was done since");
        assert!(!at(9000), "a burst");
        assert!(at(9100), "after the burst");
        assert!(!at(9200));
        assert!(at(9350), "many small things are a burst as well");
    }
}
