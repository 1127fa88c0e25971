//! Our data plane against others, as real programs: whoever begins, with new keys, in bad weather, on the move, and under a
//! flood. Always against wireguard-go; the soak tries more, for longer, and against boringtun, too.

mod ahead;
mod flood;
mod theirs;
mod tunnel;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rig::relay::{Relay, Weather};
use rig::room::{Room, join};
use rig::wireguard::Program;

use ahead::Ahead;
use theirs::PORT;
use tunnel::{Begins, Tunnel};

const MEGABYTE: usize = 1 << 20;
/// Who began a session makes another one when it is so old.
const REKEY_AFTER_TIME: Duration = Duration::from_mins(2);
const REKEYS: u32 = 3;
/// Who is asked for a cookie shows it with the next try, five seconds later.
const ASKED: Duration = Duration::from_secs(4);
/// So many handshakes are begun until one of them is asked.
const HANDSHAKES: u32 = 5;

fn is_soak() -> bool {
    std::env::var_os("SOAK").is_some()
}

fn others() -> Vec<Program> {
    let boringtun = is_soak().then_some(Program::Boringtun { moves: true });
    [Program::Go].into_iter().chain(boringtun).collect()
}

/// Tries the same with all others.
fn with_others(test: impl Fn(Program) -> Result<()>) -> Result<()> {
    others().into_iter().try_for_each(|program| test(program).with_context(|| format!("with {program}")))
}

#[test]
fn many_megabytes_go_both_ways_whoever_begins() -> Result<()> {
    let (many, some) =
        if is_soak() { (1024 * MEGABYTE, 100 * MEGABYTE) } else { (50 * MEGABYTE, 5 * MEGABYTE) };
    with_others(|program| {
        let ours = Tunnel::direct(program, Begins::Us)?;
        ours.send(many)?;
        ours.receive(many)?;
        let theirs = Tunnel::direct(program, Begins::Them)?;
        theirs.receive(some)?;
        theirs.send(some)
    })
}

#[test]
fn a_connection_outlives_keys_that_they_replace() -> Result<()> {
    with_others(|program| {
        let tunnel = Tunnel::direct(program, Begins::Them)?;
        let connection = tunnel.to_us()?;
        connection.echo()?;
        for sequence in 1..=REKEYS {
            let since = tunnel.session_since();
            tunnel.theirs.begin_anew()?;
            connection.echo().with_context(|| format!("with new keys, for the {sequence}. time"))?;
            ensure!(tunnel.session_since() != since, "the session is the same");
        }
        Ok(())
    })
}

#[test]
fn keys_that_grow_old_are_replaced() -> Result<()> {
    with_others(|program| {
        let mut ours = Ahead::of(program)?;
        ours.begin()?;
        ours.ping(0)?;
        for sequence in 1..=REKEYS {
            ours.pass(REKEY_AFTER_TIME);
            ours.renew().with_context(|| format!("new keys, for the {sequence}. time"))?;
            ours.ping(u16::try_from(sequence)?)?;
        }
        ensure!(ours.drops().is_empty(), "dropped: {:?}", ours.drops());
        Ok(())
    })
}

/// The same in real time: minutes, all at once.
#[test]
fn in_the_soak_who_began_replaces_keys_in_time_and_nothing_is_lost() -> Result<()> {
    if !is_soak() {
        return Ok(());
    }
    thread::scope(|scope| {
        let mut all = Vec::new();
        for program in others() {
            for begins in [Begins::Us, Begins::Them] {
                let talk = move || {
                    talk_for_some_sessions(program, begins)
                        .with_context(|| format!("with {program}; who begins: {begins:?}"))
                };
                all.push(scope.spawn(talk));
            }
        }
        all.into_iter().try_for_each(|talk| talk.join().map_err(|_| anyhow!("a talk panicked"))?)
    })
}

/// Talks on one connection until keys have been replaced some times.
fn talk_for_some_sessions(program: Program, begins: Begins) -> Result<()> {
    let tunnel = Tunnel::direct(program, begins)?;
    if begins == Begins::Them {
        tunnel.receive(MEGABYTE)?;
    }
    let connection = tunnel.to_them()?;
    let (begin, mut since, mut renewed) = (Instant::now(), tunnel.session_since(), 0);
    while renewed < REKEYS {
        connection.echo()?;
        let now = tunnel.session_since();
        renewed += u32::from(now != since);
        since = now;
        ensure!(begin.elapsed() < (REKEYS + 1) * REKEY_AFTER_TIME, "only {renewed} sessions followed");
        // The pace of the talk.
        thread::sleep(Duration::from_millis(50));
    }
    // The first session may be a bit older than the talk.
    let soonest = (REKEYS * REKEY_AFTER_TIME).saturating_sub(Duration::from_secs(20));
    ensure!(begin.elapsed() > soonest, "keys were replaced after {:?} already", begin.elapsed());
    tunnel.send(MEGABYTE)
}

#[test]
fn loss_doubles_delay_and_disorder_are_borne() -> Result<()> {
    let length = if is_soak() { 50 * MEGABYTE } else { 5 * MEGABYTE };
    with_others(|program| {
        let [ours, middle, theirs] = [Room::new()?, Room::new()?, Room::new()?];
        join(&ours, &middle, "left", ["192.0.2.1/25", "192.0.2.2/25"])?;
        join(&middle, &theirs, "right", ["192.0.2.129/25", "192.0.2.130/25"])?;
        let address = |text: &str| -> Result<SocketAddr> { Ok(SocketAddr::new(text.parse()?, PORT)) };
        let (delay, jitter) = (Duration::from_millis(2), Duration::from_millis(2));
        let weather = Weather { lost: 97, doubled: 53, late: 31, delay, jitter };
        let listen = [address("192.0.2.2")?, address("192.0.2.129")?];
        let to = [address("192.0.2.1")?, address("192.0.2.130")?];
        let relay = Relay::start(&middle, listen, to, weather)?;
        let addresses = ["192.0.2.129".parse()?, "192.0.2.2".parse()?];
        let tunnel = Tunnel::between(program, [ours, theirs], addresses, Begins::Us)?;
        tunnel.send(length)?;
        tunnel.receive(length)?;
        ensure!(relay.passed() > 1_000, "only {} datagrams went through the weather", relay.passed());
        let drops = tunnel.engine.drops();
        let doubles = drops.get("a message that came before");
        ensure!(doubles.is_some_and(|count| *count > 0), "no double was seen: {drops:?}");
        Ok(())
    })
}

#[test]
fn who_moves_is_found_again() -> Result<()> {
    with_others(|program| {
        let tunnel = Tunnel::direct(program, Begins::Us)?;
        tunnel.send(MEGABYTE)?;
        // In this order: with the first address of a network the kernel takes away the others.
        tunnel.theirs.room.ip("address del 192.0.2.2/24 dev outer")?;
        tunnel.theirs.room.ip("address add 192.0.2.9/24 dev outer")?;
        tunnel.receive(MEGABYTE)?;
        tunnel.send(MEGABYTE)?;
        tunnel.ours.ip("address del 192.0.2.1/24 dev outer")?;
        tunnel.ours.ip("address add 192.0.2.17/24 dev outer")?;
        tunnel.send(MEGABYTE)?;
        tunnel.receive(MEGABYTE)
    })
}

#[test]
fn a_flood_of_forged_handshakes_is_asked_for_cookies_and_disturbs_nobody() -> Result<()> {
    let length = if is_soak() { 20 * MEGABYTE } else { 5 * MEGABYTE };
    with_others(|program| {
        let tunnel = Tunnel::direct(program, Begins::Us)?;
        tunnel.send(MEGABYTE)?;
        let cookies = flood::during(&tunnel, || tunnel.send(length).and_then(|()| tunnel.receive(length)))?;
        ensure!(cookies > 0, "nobody was asked for a cookie");
        tunnel.send(MEGABYTE)
    })
}

/// They have to show the cookie that ours sends them, from the very address of who floods.
#[test]
fn in_a_flood_of_forged_handshakes_an_honest_one_is_answered() -> Result<()> {
    with_others(|program| {
        let tunnel = Tunnel::direct(program, Begins::Them)?;
        let connection = tunnel.to_us()?;
        connection.echo()?;
        let cookies = flood::during(&tunnel, || {
            // Now and then our end looks at a message without asking, to see whether the flood goes on.
            for _ in 0..HANDSHAKES {
                let (begin, since) = (Instant::now(), tunnel.session_since());
                tunnel.theirs.begin_anew()?;
                connection.echo().context("the handshake is not answered")?;
                ensure!(tunnel.session_since() != since, "the session is the same");
                if begin.elapsed() > ASKED {
                    return Ok(());
                }
            }
            bail!("they were never asked for a cookie")
        })?;
        ensure!(cookies > 0, "nobody was asked for a cookie");
        connection.echo()
    })
}
