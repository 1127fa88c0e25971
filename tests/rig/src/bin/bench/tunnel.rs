//! What a tunnel costs and how fast it is: ours beside others and beside none, in interleaved rounds, so that all meet
//! the same machine.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rig::wireguard::Program;

use crate::pair::{CALLED, Pair, Times};

const ROUNDS: usize = 5;
const FLOOD: Duration = Duration::from_secs(4);
/// Between two turns.
const REST: Duration = Duration::from_secs(1);
const PINGS: usize = 2_000;
const STREAMS: [usize; 2] = [1, 4];
/// How long a datagram may be under way.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing may come through a tunnel that is flooded.
const SILENCE: Duration = Duration::from_mins(1);
/// What ends an echo.
const OVER: &[u8] = b"over";

const GO: &str = "wireguard-go";
const OURS: &str = "ours";
const TRANSLATED: &str = "translated";

/// Ours must not need more of what wireguard-go needs.
const GOAL: f64 = 0.5;
const STRETCH: f64 = 0.4;
/// Nor more of what it needs without translation.
const TRANSLATION: f64 = 1.03;

/// One round of one pair; of two figures the first is of one stream, and the second of several.
#[derive(Clone, Copy, Default)]
struct Figures {
    gateways: [Option<f64>; 2],
    all: [f64; 2],
    gigabits: [f64; 2],
    /// Half of all, and all but one in a hundred, are back within so many microseconds.
    round_trip: [f64; 2],
}

/// All rounds, by pair.
struct Rounds(BTreeMap<&'static str, Vec<Figures>>);

/// Measures all, and prints medians and ratios.
pub fn run() -> Result<()> {
    let pairs = [
        (GO, Pair::other(Program::Go)?),
        (OURS, Pair::ours(false)?),
        (TRANSLATED, Pair::ours(true)?),
        ("boringtun", Pair::other(Program::Boringtun { moves: false })?),
        ("vxlan", Pair::vxlan()?),
    ];
    let mut rounds = Rounds(BTreeMap::new());
    for round in 0..ROUNDS {
        for place in order(round, pairs.len()) {
            let (name, pair) = &pairs[place];
            // Whoever was before may still put its memory in order.
            thread::sleep(REST);
            let figures = measure(pair).with_context(|| format!("round {round} of {name}"))?;
            rounds.0.entry(*name).or_default().push(figures);
        }
    }
    rounds.print(&pairs.map(|(name, _)| name));
    Ok(())
}

/// In which order pairs have their turn. Of a prime number of them, nobody comes after the same one twice until all have
/// been before it.
fn order(round: usize, pairs: usize) -> impl Iterator<Item = usize> {
    let stride = 1 + round % (pairs - 1);
    (0..pairs).map(move |turn| (round + turn * stride) % pairs)
}

impl Rounds {
    fn print(&self, names: &[&str]) {
        for name in names {
            for (index, streams) in STREAMS.into_iter().enumerate() {
                let streams = format!("tunnel.{name}.tcp{streams}");
                let cpu = |figures: &Figures| figures.gateways[index].unwrap_or(f64::NAN);
                if self.of(name, &cpu).is_finite() {
                    let goal = self.goal(name, &cpu, "s/GB");
                    println!("{streams}.cpu {:.2} s/GB of both gateways{goal}", self.of(name, &cpu));
                }
                let all = self.of(name, &|figures| figures.all[index]);
                println!("{streams}.cpu.all {all:.2} s/GB with sender and receiver");
                let gigabits = self.of(name, &|figures| figures.gigabits[index]);
                println!("{streams}.throughput {gigabits:.2} Gbit/s");
            }
            for (index, share) in ["p50", "p99"].into_iter().enumerate() {
                let trip = |figures: &Figures| figures.round_trip[index];
                let goal = self.goal(name, &trip, "us");
                println!("tunnel.{name}.roundtrip.{share} {:.0} us{goal}", self.of(name, &trip));
            }
        }
        self.compare();
    }

    /// The ratios on which goals are, each of the same rounds.
    fn compare(&self) {
        for (index, streams) in STREAMS.into_iter().enumerate() {
            let cpu = |figures: &Figures| figures.gateways[index].unwrap_or(f64::NAN);
            let (ratio, translated) = (self.ratio(OURS, GO, &cpu), self.ratio(TRANSLATED, OURS, &cpu));
            println!("tunnel.tcp{streams}.cpu.ratio {ratio:.2} of {GO} (goal {GOAL}, stretch {STRETCH})");
            println!("tunnel.tcp{streams}.translation.ratio {translated:.3} of without (goal {TRANSLATION})");
        }
        for (index, share) in ["p50", "p99"].into_iter().enumerate() {
            let ratio = self.ratio(OURS, GO, &|figures| figures.round_trip[index]);
            println!("tunnel.roundtrip.{share}.ratio {ratio:.2} of {GO} (goal {GOAL})");
        }
    }

    fn of(&self, name: &str, pick: &dyn Fn(&Figures) -> f64) -> f64 {
        median(self.0.get(name).into_iter().flatten().map(pick))
    }

    fn ratio(&self, of: &str, to: &str, pick: &dyn Fn(&Figures) -> f64) -> f64 {
        let [of, to] = [of, to].map(|name| self.0.get(name).into_iter().flatten());
        median(of.zip(to).map(|(of, to)| pick(of) / pick(to)))
    }

    /// What ours should come to, given what wireguard-go needed.
    fn goal(&self, name: &str, pick: &dyn Fn(&Figures) -> f64, unit: &str) -> String {
        match name {
            OURS | TRANSLATED => format!(" (goal {:.2} {unit})", self.of(GO, pick) * GOAL),
            _ => String::new(),
        }
    }
}

fn measure(pair: &Pair) -> Result<Figures> {
    let mut figures = Figures { round_trip: pings(pair)?, ..Figures::default() };
    for (index, streams) in STREAMS.into_iter().enumerate() {
        let (before, begin) = (pair.times()?, Instant::now());
        let bytes = floods(pair, streams)?;
        let (took, after) = (begin.elapsed().as_secs_f64(), pair.times()?);
        #[allow(clippy::cast_precision_loss, reason = "gigabytes, to two digits")]
        let gigabytes = bytes as f64 / 1e9;
        let Times { gateways, all } = before;
        let used = after.gateways.zip(gateways).map(|(after, before)| after - before);
        figures.gateways[index] = used.map(|used| used / gigabytes);
        figures.all[index] = (after.all - all) / gigabytes;
        figures.gigabits[index] = gigabytes * 8.0 / took;
    }
    Ok(figures)
}

/// Sends by so many connections at once, and says how much came.
fn floods(pair: &Pair, streams: usize) -> Result<u64> {
    thread::scope(|scope| {
        let all: Vec<_> = (0..streams).map(|_| scope.spawn(|| flood(pair))).collect();
        all.into_iter().map(|one| one.join().map_err(|_| anyhow!("a flood panicked"))?).sum()
    })
}

/// Sends by one connection for a while, and says how much came.
fn flood(pair: &Pair) -> Result<u64> {
    let listener = pair.rooms[1].run(|| TcpListener::bind("0.0.0.0:0"))?;
    let target: SocketAddr = (CALLED.parse::<IpAddr>()?, listener.local_addr()?.port()).into();
    let mut sender = pair.rooms[0].run(|| TcpStream::connect_timeout(&target, PATIENCE))?;
    let (mut receiver, _) = listener.accept()?;
    // Of a tunnel that breaks down nobody would ever hear again.
    receiver.set_read_timeout(Some(SILENCE))?;
    sender.set_write_timeout(Some(SILENCE))?;
    let sending = thread::spawn(move || -> std::io::Result<()> {
        let (begin, bytes) = (Instant::now(), vec![7; 1 << 17]);
        while begin.elapsed() < FLOOD {
            sender.write_all(&bytes)?;
        }
        Ok(())
    });
    let (mut buffer, mut total) = (vec![0; 1 << 18], 0);
    loop {
        match receiver.read(&mut buffer).context("a stream broke")? {
            0 => break,
            length => total += length as u64,
        }
    }
    sending.join().map_err(|_| anyhow!("a sender panicked"))?.context("a stream broke")?;
    Ok(total)
}

/// Small datagrams there and back, one after the other.
fn pings(pair: &Pair) -> Result<[f64; 2]> {
    let open = |side: usize| -> Result<UdpSocket> {
        let socket = pair.rooms[side].run(|| UdpSocket::bind("0.0.0.0:0"))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    };
    let (here, there) = (open(0)?, open(1)?);
    here.connect((CALLED.parse::<IpAddr>()?, there.local_addr()?.port()))?;
    let echo = thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((length, from)) = there.recv_from(&mut buffer)
            && buffer[..length] != *OVER
        {
            _ = there.send_to(&buffer[..length], from);
        }
    });
    let mut trips = Vec::with_capacity(PINGS);
    let mut buffer = [0; 64];
    for _ in 0..PINGS {
        let begin = Instant::now();
        here.send(b"ping")?;
        here.recv(&mut buffer).context("a datagram did not come back")?;
        trips.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    here.send(OVER)?;
    echo.join().map_err(|_| anyhow!("an echo panicked"))?;
    trips.sort_by(f64::total_cmp);
    Ok([trips[PINGS / 2], trips[PINGS * 99 / 100]])
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_four_rounds_nobody_comes_after_the_same_one_twice() {
        let mut neighbours: Vec<_> = (0..4)
            .flat_map(|round| {
                let turns: Vec<_> = order(round, 5).collect();
                turns.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>()
            })
            .collect();
        neighbours.sort_unstable();
        neighbours.dedup();
        assert_eq!(neighbours.len(), 16);
    }
}
