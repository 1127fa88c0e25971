//! Figures of pods that run elsewhere, beside those of pods at home: on the same clusters, in turns, in the same run.

mod crowd;
pub mod echo;
mod round;
mod stage;

use std::time::Duration;

use anyhow::{Context, Result};

use self::crowd::Crowd;
use self::round::Round;
use self::stage::{Place, Stage};
use crate::processes::{self, Memory, Usage};

/// How many pods, and how often.
const SIZES: [(usize, usize); 4] = [(10, 3), (50, 3), (100, 2), (200, 2)];
/// So many pods are on a virtual node when it is looked how much memory that takes.
const CROWD: usize = 1000;
/// So long nothing is done before it is looked how much memory is held.
const REST: Duration = Duration::from_mins(1);
/// Requests that are made for fewer pods than one of so many are not listed.
const RARE: f64 = 0.2;

/// Prints all figures of pods.
pub async fn run() -> Result<()> {
    let stage = Stage::up().await?;
    tokio::time::sleep(REST).await;
    at_rest()?;
    rounds(&stage).await?;
    crowd(&stage).await?;
    stage.end().await;
    Ok(())
}

/// What everything of ours holds on both sides, with one peer and nothing to do.
fn at_rest() -> Result<()> {
    let usages = processes::roles()?;
    for role in processes::ROLES {
        let memory = total(usages.iter().filter(|usage| usage.role == role));
        println!(
            "pods.memory.{role} {:.1} MB on both sides ({:.1} anonymous)",
            mb(memory.resident),
            mb(memory.anonymous)
        );
    }
    let memory = total(&usages);
    println!(
        "pods.memory.resident {:.1} MB for all {} processes (goal 60; best existing system 532)",
        mb(memory.resident),
        usages.len()
    );
    println!("pods.memory.share {:.1} MB (the same with what they share counted once)", mb(memory.share));
    println!("pods.memory.anonymous {:.1} MB (of it in no file)", mb(memory.anonymous));
    Ok(())
}

/// All sizes, in turns here and there.
async fn rounds(stage: &Stage) -> Result<()> {
    let (mut each, mut conflicts) = (Vec::new(), 0);
    for (count, times) in SIZES {
        let (mut local, mut offloaded) = (Vec::new(), Vec::new());
        for time in 0..times {
            // Neither is always the first.
            let both = [Place::Local, Place::Offloaded];
            let order = if time.is_multiple_of(2) { both } else { [both[1], both[0]] };
            for place in order {
                let app = format!("{}-{count}-{time}", place.name());
                let round = round::run(stage, place, count, &app).await?;
                eprintln!("{app}: {:.2} s, {:.2} s of CPU", round.took.as_secs_f64(), round.cpu);
                conflicts += round.requests.conflicts;
                match place {
                    Place::Local => local.push(round),
                    Place::Offloaded => offloaded.push(round),
                }
            }
        }
        times_of(count, &local, &offloaded);
        lags(count, &offloaded)?;
        each.push((count, local, offloaded));
    }
    let (most, local, offloaded) = each.last().context("no sizes")?;
    let (fewer, _, small) = &each[1];
    let of_each =
        |rounds: &[Round], count: &usize| mean(rounds, |round| round.took.as_secs_f64()) / float(*count);
    let growth = of_each(offloaded, most) / of_each(small, fewer);
    println!("pods.offloaded.linear {growth:.2} of the time for each pod at {fewer} (1 is linear)");
    costs(*most, local, offloaded);
    println!("pods.conflicts {conflicts} writes of ours that met another one (goal 0)");
    Ok(())
}

fn times_of(count: usize, local: &[Round], offloaded: &[Round]) {
    let took = |rounds: &[Round]| mean(rounds, |round| round.took.as_secs_f64());
    let seed = |rounds: &[Round]| mean(rounds, |round| round.seed.as_secs_f64());
    println!("pods.{count}.local {:.2} s until all are ready", took(local));
    println!("pods.{count}.offloaded {:.2} s until all are ready", took(offloaded));
    let ratio = took(offloaded) / took(local);
    println!("pods.{count}.ratio {ratio:.2} times local (goal 1.25; best existing system 1.9 to 2.1)");
    let (here, there) = (seed(local), seed(offloaded));
    println!("pods.{count}.seed {there:.1} s from the first Initialized to the last Ready ({here:.1} local)");
}

/// How long home takes to show what is ready, beyond what a write and a watch take at the same time.
fn lags(count: usize, rounds: &[Round]) -> Result<()> {
    let mut lags: Vec<Duration> = rounds.iter().flat_map(|round| round.lags.iter().copied()).collect();
    let mut echoes: Vec<Duration> = rounds.iter().flat_map(|round| round.echoes.iter().copied()).collect();
    lags.sort();
    echoes.sort();
    for (name, percent, goal) in [("p50", 50, ""), ("p99", 99, " (goal 100)")] {
        let (lag, echo) = (percentile(&lags, percent)?, percentile(&echoes, percent)?);
        println!("pods.{count}.lag.{name} {lag:.0} ms from ready over there to ready at home");
        println!("pods.{count}.echo.{name} {echo:.0} ms for a bare write and watch meanwhile");
        println!("pods.{count}.beyond.{name} {:.0} ms{goal}", lag - echo);
    }
    Ok(())
}

/// Requests and processor time for each pod.
fn costs(count: usize, local: &[Round], offloaded: &[Round]) {
    for (place, rounds) in [(Place::Local, local), (Place::Offloaded, offloaded)] {
        let name = place.name();
        let each = |of: fn(&Round) -> f64| mean(rounds, of) / float(count);
        let goal = if place == Place::Offloaded { " (goal 30; best existing system 53 to 59)" } else { "" };
        println!(
            "pods.requests.{name} {:.1} for each pod{goal}",
            each(|round| float(round.requests.total()))
        );
        println!("pods.requests.{name}.ours {:.1} of them", each(|round| float(round.requests.ours)));
        println!("pods.requests.{name}.events {:.1} beside them", each(|round| float(round.requests.events)));
        let goal = if place == Place::Offloaded { " (goal 0.015; best existing system 0.06)" } else { "" };
        println!("pods.cpu.{name} {:.4} s of all our processes for each pod{goal}", each(|round| round.cpu));
        let last = rounds.last().map(|round| &round.requests.all);
        for (what, requests) in last.into_iter().flatten() {
            let each = float(*requests) / float(count);
            if each >= RARE {
                eprintln!("{name}: {each:.2} {what}");
            }
        }
    }
}

/// What a thousand pods take, and what is given back when they are gone.
async fn crowd(stage: &Stage) -> Result<()> {
    let of = |usages: &[Usage], cluster: &str| total(usages.iter().filter(|usage| usage.cluster == cluster));
    let sides = ["rome", "turin"];
    let before = processes::roles()?;
    let crowd = Crowd::gather(stage, CROWD).await?;
    tokio::time::sleep(REST).await;
    let with = processes::roles()?;
    crowd.disperse().await?;
    tokio::time::sleep(REST).await;
    let after = processes::roles()?;
    for side in sides {
        let [before, with, after] = [&before, &with, &after].map(|usages| of(usages, side));
        let goal = " (goal 80)";
        println!("pods.memory.{CROWD}.{side} {:.1} MB with {CROWD} pods{goal}", mb(with.resident));
        println!("pods.memory.{CROWD}.{side}.anonymous {:.1} MB of it", mb(with.anonymous));
        println!(
            "pods.memory.{CROWD}.{side}.after {:.1} MB when they are gone ({:.1} before; {:.1} and {:.1} anonymous)",
            mb(after.resident),
            mb(before.resident),
            mb(after.anonymous),
            mb(before.anonymous)
        );
    }
    Ok(())
}

fn total<'a>(usages: impl IntoIterator<Item = &'a Usage>) -> Memory {
    usages.into_iter().map(|usage| usage.memory).sum()
}

/// Megabytes, as the goals have them.
fn mb(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) * 1024.0 / 1e6
}

fn mean(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    rounds.iter().map(of).sum::<f64>() / float(rounds.len())
}

/// In milliseconds, of what is in ascending order.
pub fn percentile(sorted: &[Duration], percent: usize) -> Result<f64> {
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    Ok(sorted.get(place).context("nothing was measured")?.as_secs_f64() * 1000.0)
}

#[allow(clippy::cast_precision_loss, reason = "thousands, to a few digits")]
pub fn float(count: usize) -> f64 {
    count as f64
}
