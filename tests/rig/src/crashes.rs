//! Sites whose controllers end after their n-th write, in every step of a scenario.
//!
//! Each step comes to a state that is verified, and so the next one begins as it would have begun without any end.
//! Therefore all steps of one cycle have an end, and n runs to the most writes of a step, not to those of all.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};

use crate::fuse::Fuse;
use crate::site::Site;

/// Less than none: it does not end.
const NEVER: i64 = -1;

/// By step and site: how many writes there were, or after how many the site ends. Who is not named does not end.
pub type Writes = BTreeMap<(usize, usize), i64>;

/// The fuses of sites on their way through a scenario.
#[derive(Debug)]
pub struct Fuses<'a> {
    make: fn(i64) -> Fuse,
    ends: &'a Writes,
    step: usize,
    /// With which the sites went into the step.
    armed: Vec<Fuse>,
    /// Of the processes that run now.
    present: Vec<Fuse>,
    /// What each wrote in the steps before.
    written: Writes,
}

impl<'a> Fuses<'a> {
    /// Runs the sites anew, so that what they write when they start is of the first step.
    pub async fn begin<const SITES: usize>(
        sites: [&mut Site; SITES],
        make: fn(i64) -> Fuse,
        ends: &'a Writes,
    ) -> Result<Self> {
        let mut armed = Vec::new();
        for (place, site) in sites.into_iter().enumerate() {
            let fuse = make(end_of(ends, 0, place));
            site.run(fuse.clone()).await?;
            armed.push(fuse);
        }
        Ok(Self { make, ends, step: 0, present: armed.clone(), armed, written: Writes::new() })
    }

    /// Starts again who has ended, and who has failed, as Kubernetes would. It does not end a second time before the next
    /// step.
    pub async fn restart<const SITES: usize>(&mut self, sites: [&mut Site; SITES]) -> Result<()> {
        for (place, site) in sites.into_iter().enumerate() {
            self.restart_one(place, site).await?;
        }
        Ok(())
    }

    async fn restart_one(&mut self, place: usize, site: &mut Site) -> Result<()> {
        if self.present[place].is_broken() || site.has_failed() {
            let fuse = (self.make)(NEVER);
            site.run(fuse.clone()).await?;
            self.present[place] = fuse;
        }
        Ok(())
    }

    /// Begins the next step. Who has ended in the one before, be it with its last write, starts again first.
    pub async fn step<const SITES: usize>(&mut self, sites: [&mut Site; SITES]) -> Result<()> {
        for (place, site) in sites.into_iter().enumerate() {
            self.restart_one(place, site).await?;
            self.note(place);
            self.present[place].arm(end_of(self.ends, self.step + 1, place));
            self.armed[place] = self.present[place].clone();
        }
        self.step += 1;
        Ok(())
    }

    /// How many writes each site tried in each step, up to its end there.
    pub fn written(mut self) -> Writes {
        for place in 0..self.armed.len() {
            self.note(place);
        }
        self.written
    }

    fn note(&mut self, place: usize) {
        self.written.insert((self.step, place), self.armed[place].written.load(Ordering::SeqCst));
    }
}

fn end_of(ends: &Writes, step: usize, site: usize) -> i64 {
    ends.get(&(step, site)).copied().unwrap_or(NEVER)
}

/// The most writes of a site in one step.
pub fn most(writes: &Writes) -> i64 {
    writes.values().copied().max().unwrap_or_default()
}

/// The writes of a site in all steps.
pub fn all_of(writes: &Writes, site: usize) -> i64 {
    writes.iter().filter(|((_, other), _)| *other == site).map(|(_, writes)| writes).sum()
}

/// Ends sites after their n-th write, for all these n: on all sides and in all steps of one cycle. Whoever did not come so
/// far there, since an end has spared it a write, has its own afterwards, while the other sites live. In the long form
/// every end has a cycle of its own. The cycle gets the ends, and gives what was written.
pub async fn end_after(
    numbers: impl IntoIterator<Item = i64>,
    writes: &Writes,
    mut cycle: impl AsyncFnMut(&Writes) -> Result<Writes>,
) -> Result<()> {
    let is_soak = std::env::var_os("SOAK").is_some();
    let told = |ends: &Writes| format!("ended after {ends:?} of {writes:?} writes, by step and site");
    let mut left = Vec::new();
    for n in numbers {
        let ends = ends_after(n, writes);
        if is_soak {
            left.extend(ends.into_iter().map(|end| Writes::from([end])));
            continue;
        }
        let written = cycle(&ends).await.with_context(|| told(&ends))?;
        for end in missed(&ends, &written) {
            put(&mut left, end);
        }
    }
    println!("{} cycles are left, in which one site ends", left.len());
    for ends in &left {
        cycle(ends).await.with_context(|| told(ends))?;
    }
    Ok(())
}

/// The n-th write of every step that has so many.
fn ends_after(n: i64, writes: &Writes) -> Writes {
    writes.iter().filter(|(_, writes)| n <= **writes).map(|(place, _)| (*place, n)).collect()
}

/// The ends that did not come about.
fn missed(ends: &Writes, written: &Writes) -> Writes {
    let is_missed = |place: &(usize, usize), n: i64| written.get(place).is_none_or(|written| *written < n);
    ends.iter().filter(|(place, n)| is_missed(place, **n)).map(|(place, n)| (*place, *n)).collect()
}

/// Puts an end into the first cycle in which no other site ends, nor the same one in the same step.
fn put(cycles: &mut Vec<Writes>, ((step, site), n): ((usize, usize), i64)) {
    let fits = |cycle: &&mut Writes| cycle.keys().all(|other| other.0 != step && other.1 == site);
    if let Some(cycle) = cycles.iter_mut().find(fits) {
        cycle.insert((step, site), n);
    } else {
        cycles.push(Writes::from([((step, site), n)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_that_has_so_many_writes_has_an_end() {
        let writes = Writes::from([((0, 0), 3), ((0, 1), 1), ((1, 0), 2)]);
        assert_eq!(ends_after(2, &writes), Writes::from([((0, 0), 2), ((1, 0), 2)]));
        assert_eq!((most(&writes), all_of(&writes, 0), all_of(&writes, 1)), (3, 5, 1));
        let all = (1..=most(&writes)).map(|n| ends_after(n, &writes).len()).sum::<usize>();
        assert_eq!(all, 6);
    }

    #[test]
    fn who_did_not_come_so_far_has_missed_its_end() {
        let ends = Writes::from([((0, 0), 2), ((0, 1), 2), ((1, 0), 2)]);
        let written = Writes::from([((0, 0), 2), ((0, 1), 1), ((1, 0), 3)]);
        assert_eq!(missed(&ends, &written), Writes::from([((0, 1), 2)]));
    }

    #[test]
    fn missed_ends_of_one_site_share_a_cycle_but_not_a_step() {
        let mut left = Vec::new();
        for end in [((0, 0), 2), ((1, 0), 2), ((0, 1), 2), ((0, 0), 3)] {
            put(&mut left, end);
        }
        let expected = [
            Writes::from([((0, 0), 2), ((1, 0), 2)]),
            Writes::from([((0, 1), 2)]),
            Writes::from([((0, 0), 3)]),
        ];
        assert_eq!(left, expected);
    }
}
