//! WireGuard as others wrote it, each in a room of its own: to hold ours against. All take their settings in the same
//! words.

use std::fmt::{self, Write as _};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::room::Room;
use crate::tools::Tools;

/// Where it listens for its settings, by the name of the interface.
const CONTROL: &str = "/var/run/wireguard";
/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// The other end of its tunnel.
pub struct Other {
    /// Its public key.
    pub key: [u8; 32],
    /// Where it is, if this side may begin.
    pub endpoint: Option<SocketAddr>,
    /// What it may send.
    pub allowed: Vec<String>,
}

/// The crate of boringtun's program.
const BORINGTUN: (&str, &str) = ("boringtun-cli", "0.7.1");

/// A program that somebody else wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// wireguard-go.
    Go,
    /// boringtun.
    Boringtun {
        /// Whether it may get another address. Where it may not it is faster.
        moves: bool,
    },
}

impl fmt::Display for Program {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Go => "wireguard-go",
            Self::Boringtun { .. } => "boringtun",
        })
    }
}

impl Program {
    /// Where it lies. Only some need boringtun, so that it is built when it is wanted.
    fn path(self) -> Result<PathBuf> {
        let tools = Tools::cache()?;
        match self {
            Self::Go => {
                let path = tools.path("wireguard")?;
                ensure!(path.exists(), "wireguard-go is not built; run 'rig build'");
                Ok(path)
            }
            Self::Boringtun { .. } => tools.install(BORINGTUN.0, BORINGTUN.1, &|step| eprintln!("{step}")),
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Go => &["--foreground"],
            Self::Boringtun { moves: false } => &["--foreground", "--disable-drop-privileges"],
            Self::Boringtun { moves: true } => {
                &["--foreground", "--disable-drop-privileges", "--disable-connected-udp"]
            }
        }
    }
}

/// How many were started by this process.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// One that runs. It ends with this.
pub struct Wireguard {
    /// The name of its interface.
    pub interface: String,
    program: Program,
    process: Child,
    control: PathBuf,
}

impl Wireguard {
    /// Starts it in a room.
    pub fn start(program: Program, room: &Room) -> Result<Self> {
        let path = program.path()?;
        // Their sockets for settings are named after interfaces, and are seen from all rooms.
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let interface = format!("wg{}x{number}", std::process::id());
        let start = || {
            Command::new(&path)
                .args(program.arguments())
                .arg(&interface)
                .env("LOG_LEVEL", "error")
                // Without its advice to use a kernel that has WireGuard.
                .env("WG_PROCESS_FOREGROUND", "1")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
        };
        let process = room.run(start).with_context(|| format!("cannot start {}", path.display()))?;
        let control = PathBuf::from(CONTROL).join(format!("{interface}.sock"));
        let mut started = Self { interface, program, process, control };
        started.await_start()?;
        Ok(started)
    }

    fn await_start(&mut self) -> Result<()> {
        let begin = Instant::now();
        while UnixStream::connect(&self.control).is_err() {
            if let Some(status) = self.process.try_wait()? {
                bail!("{} ended at once: {status}", self.program);
            }
            ensure!(begin.elapsed() < PATIENCE, "{} does not listen", self.program);
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Gives it a key, a port and one peer.
    pub fn configure(&self, private_key: &[u8; 32], port: u16, other: &Other) -> Result<()> {
        let mut text =
            format!("set=1\nprivate_key={}\nlisten_port={port}\nreplace_peers=true\n", hex(private_key));
        writeln!(text, "public_key={}\nreplace_allowed_ips=true", hex(&other.key))?;
        if let Some(endpoint) = other.endpoint {
            writeln!(text, "endpoint={endpoint}")?;
        }
        for allowed in &other.allowed {
            writeln!(text, "allowed_ip={allowed}")?;
        }
        text.push('\n');
        let answer = self.ask(&text)?;
        ensure!(answer.iter().any(|line| line == "errno=0"), "{} refuses: {answer:?}", self.program);
        Ok(())
    }

    /// User and system time that it has used, in seconds.
    pub fn cpu_seconds(&self) -> Result<f64> {
        cpu_seconds(&format!("/proc/{}/stat", self.process.id()))
    }

    fn ask(&self, text: &str) -> Result<Vec<String>> {
        let mut stream = UnixStream::connect(&self.control)
            .with_context(|| format!("{} does not answer", self.program))?;
        stream.write_all(text.as_bytes())?;
        let lines = BufReader::new(stream)
            .lines()
            .take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty()));
        Ok(lines.collect::<Result<_, _>>()?)
    }
}

impl Drop for Wireguard {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        _ = std::fs::remove_file(&self.control);
    }
}

/// User and system time of the process or thread with this file, in seconds.
pub fn cpu_seconds(stat: &str) -> Result<f64> {
    let text = std::fs::read_to_string(stat).with_context(|| format!("cannot read {stat}"))?;
    let (_, rest) = text.rsplit_once(") ").context("a process has no name")?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || -> Result<f64> { Ok(fields.next().context("a process has no times")?.parse()?) };
    Ok((next()? + next()?) / 100.0)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        _ = write!(text, "{byte:02x}");
        text
    })
}
