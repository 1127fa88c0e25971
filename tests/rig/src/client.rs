//! The client's side: finds the supervisor of a rig, or starts it, and asks it one thing at a time.
//!
//! A lock file says whether a supervisor lives: it holds the lock from its first to its last moment. Whoever gets the
//! lock may sweep up and start anew; whoever does not waits for the socket or for the lock.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;

use crate::cgroups::Group;
use crate::plan;
use crate::protocol::{ClusterStatus, Reply, Request};
use crate::supervisor::socket;
use crate::tools::Tools;

/// Where all rigs of this machine keep their state; on disk, and nobody else's.
pub(crate) const HOME: &str = "/var/cache/ferrofluid/rig";
const NOT_RUNNING: &str = "no rig is running; start one with rig up";
/// How long a supervisor may take to start or to end.
const PATIENCE: Duration = Duration::from_mins(1);
const GLANCE: Duration = Duration::from_millis(10);

/// A rig of this machine; several may run side by side under different names.
#[derive(Clone, Debug)]
pub struct Rig {
    instance: PathBuf,
    /// The `rig` program, which is also the supervisor.
    program: PathBuf,
}

/// What a client finds.
enum Found {
    /// A supervisor that listens.
    Running(UnixStream),
    /// None, and the right to start one or to sweep up.
    Nothing(File),
}

impl Rig {
    /// The rig of that name, served by that program.
    pub fn new(name: &str, program: PathBuf) -> Result<Self> {
        let plain = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        ensure!(plain, "\"{name}\" cannot name a rig: use lower-case letters, digits and dashes");
        Ok(Self { instance: Path::new(HOME).join(name), program })
    }

    /// Asks a running rig; an error when none runs.
    pub fn ask(&self, request: &Request, on_step: impl FnMut(&str, &str)) -> Result<Vec<ClusterStatus>> {
        match self.find()? {
            Found::Running(stream) => converse(stream, request, on_step)?.context(NOT_RUNNING),
            Found::Nothing(lock) => {
                self.sweep(lock)?;
                bail!(NOT_RUNNING)
            }
        }
    }

    /// Starts the rig where it does not run yet, and asks it.
    pub fn ask_or_start(
        &self,
        request: &Request,
        mut on_step: impl FnMut(&str, &str),
    ) -> Result<Vec<ClusterStatus>> {
        if let Request::Up(specs) = request {
            plan::check(specs)?;
        }
        loop {
            let stream = self.find_or_start()?;
            if let Some(clusters) = converse(stream, request, &mut on_step)? {
                return Ok(clusters);
            }
        }
    }

    /// Keeps the rig alive exactly as long as the returned connection is open.
    pub fn lease(&self) -> Result<UnixStream> {
        loop {
            let stream = self.find_or_start()?;
            if converse(stream.try_clone()?, &Request::Lease, |_, _| {})?.is_some() {
                return Ok(stream);
            }
        }
    }

    /// Ends clusters, or with no name the whole rig, and sweeps up what killed rigs left.
    pub fn down(&self, names: &[String]) -> Result<()> {
        let mut asked = false;
        loop {
            match self.find()? {
                Found::Running(stream) => {
                    let names = if asked { &[] } else { names };
                    let left = converse(stream, &Request::Down(names.to_vec()), |_, _| {})?;
                    asked |= left.is_some();
                    if left.is_some_and(|left| !left.is_empty()) {
                        return Ok(());
                    }
                }
                Found::Nothing(lock) => {
                    self.sweep(lock)?;
                    ensure!(
                        asked || names.is_empty(),
                        "no rig is running, so there is no cluster {}",
                        names.join(", ")
                    );
                    return Ok(());
                }
            }
        }
    }

    /// The supervisor's pid as this process sees it.
    pub fn supervisor(&self) -> Result<u32> {
        let stream = UnixStream::connect(socket(&self.instance)).context(NOT_RUNNING)?;
        let credentials = socket_peercred(&stream).context("the rig does not say who it is")?;
        Ok(u32::try_from(credentials.pid.as_raw_nonzero().get())?)
    }

    /// Waits until the rig either listens or is certain not to live.
    fn find(&self) -> Result<Found> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "the rig makes namespaces and mounts and needs root: use sudo"
        );
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Ok(stream) = UnixStream::connect(socket(&self.instance)) {
                return Ok(Found::Running(stream));
            }
            if let Some(lock) = lock(&self.instance)? {
                return Ok(Found::Nothing(lock));
            }
            std::thread::sleep(GLANCE);
        }
        bail!("a rig is starting or ending and does not come to an end; see {}", self.instance.display())
    }

    fn find_or_start(&self) -> Result<UnixStream> {
        loop {
            match self.find()? {
                Found::Running(stream) => return Ok(stream),
                Found::Nothing(lock) => self.start(lock)?,
            }
        }
    }

    /// Starts the supervisor and waits until it listens, or says why it did not come to that.
    fn start(&self, lock: File) -> Result<()> {
        if let Err(error) = self.prepare() {
            self.sweep(lock)?;
            return Err(error);
        }
        let log = self.instance.join("supervisor.log");
        let output = File::create(&log)?;
        // Opened now: when the supervisor has ended, whoever starts another rig may sweep the folder.
        let mut said = File::open(&log)?;
        // The lock becomes the supervisor's standard input: it is held as long as the supervisor lives.
        let mut supervisor = Command::new("unshare")
            .args(["--pid", "--mount", "--fork", "--kill-child=KILL", "--mount-proc"])
            .arg(self.instance.join("rig"))
            .arg("supervise")
            .arg(&self.instance)
            .stdin(Stdio::from(lock))
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .context("cannot start unshare; is util-linux installed?")?;
        let begin = Instant::now();
        while UnixStream::connect(socket(&self.instance)).is_err() {
            if supervisor.try_wait()?.is_some() {
                let mut text = String::new();
                said.read_to_string(&mut text)?;
                self.down(&[])?;
                bail!(
                    "the rig did not start: {}",
                    text.trim().trim_start_matches("rig: ").replace('\n', "; ")
                );
            }
            ensure!(begin.elapsed() < PATIENCE, "the rig does not start; see {}", log.display());
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Makes the rig's folder, closed to others, with a program in it that stays when this one is built anew.
    fn prepare(&self) -> Result<()> {
        Tools::cache()?.check()?;
        crate::tools::require_room(Path::new(HOME), crate::tools::RUN_GIB)?;
        sweep_dead();
        remove_folder(&self.instance)?;
        let cannot = || format!("cannot create {}", self.instance.display());
        DirBuilder::new().mode(0o700).create(&self.instance).with_context(cannot)?;
        let kept = self.instance.join("rig");
        fs::hard_link(&self.program, &kept)
            .or_else(|_| fs::copy(&self.program, &kept).map(drop))
            .with_context(cannot)
    }

    fn sweep(&self, lock: File) -> Result<()> {
        sweep_dead();
        sweep_instance(&self.instance, lock)
    }
}

/// Takes the lock of a rig, if no supervisor holds it.
fn lock(instance: &Path) -> Result<Option<File>> {
    let path = instance.with_extension("lock");
    fs::create_dir_all(HOME).with_context(|| format!("cannot create {HOME}"))?;
    let Ok(file) = File::options().create(true).truncate(false).write(true).open(&path) else {
        return Ok(None);
    };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    // The file may have been removed, and made anew by somebody else, between opening and locking it.
    let same = fs::metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|mine| mine.ino() == now.ino()));
    Ok(same.then_some(file))
}

/// Removes the files and cgroups of a rig whose lock we hold, and last the lock.
fn sweep_instance(instance: &Path, lock: File) -> Result<()> {
    let name = instance.file_name().unwrap_or_default();
    let begin = Instant::now();
    while let Err(error) = Group::new(name).sweep() {
        // The kernel may still be ending the processes of a killed rig.
        ensure!(begin.elapsed() < PATIENCE, "{error:#}");
        std::thread::sleep(GLANCE);
    }
    remove_folder(instance)?;
    forget(instance);
    drop(lock);
    Ok(())
}

/// Sweeps up after every rig that was killed, whatever its name.
fn sweep_dead() {
    for entry in fs::read_dir(HOME).into_iter().flatten().flatten() {
        // A rig has a folder and a lock; one that was killed very early has only the lock.
        let instance = entry.path().with_extension("");
        if let Ok(Some(lock)) = lock(&instance) {
            let _ = sweep_instance(&instance, lock);
        }
    }
}

/// Removes the lock file of a rig that is gone; `HOME` and its parent go with the last one.
pub(crate) fn forget(instance: &Path) {
    let _ = fs::remove_file(instance.with_extension("lock"));
    for folder in Path::new(HOME).ancestors().take(2) {
        let _ = fs::remove_dir(folder);
    }
}

/// Removes a folder with all that is in it; one that is not there is no error.
pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
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
