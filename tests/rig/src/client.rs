//! The client's side: finds the supervisor of a rig, or starts it, and asks it one thing at a time.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt::socket_peercred;

use crate::cgroups::Group;
use crate::protocol::{ClusterStatus, Reply, Request};
use crate::supervisor::socket;
use crate::tools::{Tools, require_room};

/// Where all rigs of this machine keep their state; on disk, and nobody else's.
const HOME: &str = "/var/cache/ferrofluid/rig";
/// Room for the images and logs of a few clusters.
const RUN_GIB: u64 = 3;
const NOT_RUNNING: &str = "no rig is running; start one with rig up";
const START: Duration = Duration::from_secs(30);

/// A rig of this machine; several may run side by side under different names.
#[derive(Clone, Debug)]
pub struct Rig {
    instance: PathBuf,
    /// The `rig` program, which is also the supervisor.
    program: PathBuf,
}

impl Rig {
    /// The rig of that name, served by that program.
    pub fn new(name: &str, program: PathBuf) -> Result<Self> {
        let plain = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        ensure!(plain, "\"{name}\" cannot name a rig: use lower-case letters, digits and dashes");
        let home = std::env::var_os("RIG_HOME").map_or_else(|| HOME.into(), PathBuf::from);
        Ok(Self { instance: home.join(name), program })
    }

    /// Asks a running rig; an error when none runs.
    pub fn ask(&self, request: &Request, on_step: impl FnMut(&str, &str)) -> Result<Vec<ClusterStatus>> {
        require_root()?;
        let stream = self.connect().context(NOT_RUNNING)?;
        converse(stream, request, on_step)?.context(NOT_RUNNING)
    }

    /// Starts the rig where it does not run yet, and asks it.
    pub fn ask_or_start(
        &self,
        request: &Request,
        mut on_step: impl FnMut(&str, &str),
    ) -> Result<Vec<ClusterStatus>> {
        loop {
            let stream = self.connect_or_start()?;
            let supervisor = peer(&stream);
            if let Some(clusters) = converse(stream, request, &mut on_step)? {
                return Ok(clusters);
            }
            await_end(supervisor);
        }
    }

    /// Keeps the rig alive exactly as long as the returned connection is open.
    pub fn lease(&self) -> Result<UnixStream> {
        loop {
            let stream = self.connect_or_start()?;
            if converse(stream.try_clone()?, &Request::Lease, |_, _| {})?.is_some() {
                return Ok(stream);
            }
            await_end(peer(&stream));
        }
    }

    /// Ends clusters, or with no name the whole rig, and sweeps up what a killed one left.
    pub fn down(&self, names: &[String]) -> Result<()> {
        require_root()?;
        let mut asked = None;
        if let Ok(stream) = self.connect() {
            let supervisor = peer(&stream);
            asked = converse(stream, &Request::Down(names.to_vec()), |_, _| {})?;
            if asked.as_ref().is_some_and(|left| !left.is_empty()) {
                return Ok(());
            }
            await_end(supervisor);
        }
        ensure!(
            asked.is_some() || names.is_empty(),
            "no rig is running, so there is no cluster {}",
            names.join(", ")
        );
        self.sweep()
    }

    /// The supervisor's pid as this process sees it.
    pub fn supervisor(&self) -> Result<u32> {
        let stream = self.connect().context(NOT_RUNNING)?;
        peer(&stream).context("the rig does not say who it is")
    }

    fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(socket(&self.instance))
    }

    fn connect_or_start(&self) -> Result<UnixStream> {
        require_root()?;
        if let Ok(stream) = self.connect() {
            return Ok(stream);
        }
        Tools::cache()?.check()?;
        self.sweep()?;
        self.create_folder()?;
        require_room(&self.instance, RUN_GIB)?;
        let mut supervisor = self.start()?;
        let begin = Instant::now();
        while begin.elapsed() < START {
            if let Ok(stream) = self.connect() {
                return Ok(stream);
            }
            if supervisor.try_wait()?.is_some() {
                let said = fs::read_to_string(self.log()).unwrap_or_default();
                self.sweep()?;
                bail!(
                    "the rig did not start: {}",
                    said.trim().trim_start_matches("rig: ").replace('\n', "; ")
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = supervisor.kill();
        self.sweep()?;
        bail!("the rig did not start within {} s", START.as_secs())
    }

    /// Makes the rig's folder; tries again when another rig that ends takes the common home away at just that moment.
    fn create_folder(&self) -> Result<()> {
        let mut made = fs::create_dir_all(&self.instance);
        for _ in 0..10 {
            if !made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                break;
            }
            made = fs::create_dir_all(&self.instance);
        }
        made.with_context(|| format!("cannot create {}", self.instance.display()))
    }

    /// Starts the supervisor as init of its own PID and mount namespace, apart from this terminal.
    fn start(&self) -> Result<Child> {
        let log = fs::File::create(self.log())?;
        Command::new("unshare")
            .args(["--pid", "--mount", "--fork", "--kill-child=KILL", "--mount-proc"])
            .arg(&self.program)
            .arg("supervise")
            .arg(&self.instance)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("cannot start unshare; is util-linux installed?")
    }

    fn log(&self) -> PathBuf {
        self.instance.join("supervisor.log")
    }

    /// Removes the files and cgroups of a rig whose processes are gone.
    fn sweep(&self) -> Result<()> {
        let name = self.instance.file_name().unwrap_or_default();
        let begin = Instant::now();
        while let Err(error) = Group::new(name).sweep() {
            // The kernel may still be ending the processes of a killed rig.
            ensure!(begin.elapsed() < START, "{error:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
        remove_if_there(&self.instance)?;
        remove_empty_home();
        Ok(())
    }
}

fn require_root() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the rig makes namespaces and mounts and needs root: use sudo"
    );
    Ok(())
}

fn peer(stream: &UnixStream) -> Option<u32> {
    let credentials = socket_peercred(stream).ok()?;
    u32::try_from(credentials.pid.as_raw_nonzero().get()).ok()
}

fn await_end(pid: Option<u32>) {
    let Some(pid) = pid else { return };
    let begin = Instant::now();
    while Path::new(&format!("/proc/{pid}")).exists() && begin.elapsed() < START {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn remove_if_there(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// `HOME` and its parent go with the last rig; `remove_dir` leaves what is not empty.
pub(crate) fn remove_empty_home() {
    for folder in Path::new(HOME).ancestors().take(2) {
        let _ = fs::remove_dir(folder);
    }
}

/// Asks one thing and waits for the answer; none comes from a supervisor that was ending when it was asked.
fn converse(
    mut stream: UnixStream,
    request: &Request,
    mut on_step: impl FnMut(&str, &str),
) -> Result<Option<Vec<ClusterStatus>>> {
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    if stream.write_all(line.as_bytes()).is_err() {
        return Ok(None);
    }
    let mut begun = false;
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        begun = true;
        match serde_json::from_str(&line)? {
            Reply::Progress { cluster, step } => on_step(&cluster, &step),
            Reply::Done(clusters) => return Ok(Some(clusters)),
            Reply::Failed(why) => bail!(why),
        }
    }
    ensure!(!begun, "the rig ended before it was done");
    Ok(None)
}
