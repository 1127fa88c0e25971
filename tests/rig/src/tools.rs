//! The programs a cluster is made of, built from Go modules and cached by version outside the sources.
//!
//! A cache folder's name holds the version and a hash of the module's files: it exists only when whole, so a second
//! run, or a second clone, builds nothing, and a build that is cut off leaves nothing that counts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock, statvfs};

use crate::images::{Image, digest};
use crate::node::PROGRAMS;
use crate::topology::built;

/// A Go module of the rig and the programs it gives.
struct Module {
    name: &'static str,
    /// The module whose version counts.
    dependency: &'static str,
    /// Program and package; `.` is the module itself.
    programs: &'static [(&'static str, &'static str)],
}

const MODULES: [Module; 6] = [
    Module {
        name: "kubernetes",
        dependency: "k8s.io/kubernetes",
        programs: &[
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
            ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ],
    },
    Module { name: "etcd", dependency: "go.etcd.io/etcd/server/v3", programs: &[("etcd", ".")] },
    Module { name: "helm", dependency: "helm.sh/helm/v3", programs: &[("helm", "helm.sh/helm/v3/cmd/helm")] },
    Module { name: "coredns", dependency: "github.com/coredns/coredns", programs: &[("coredns", ".")] },
    Module {
        name: "metrics-server",
        dependency: "sigs.k8s.io/metrics-server",
        programs: &[("metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server")],
    },
    Module {
        name: "wireguard",
        dependency: "golang.zx2c4.com/wireguard",
        programs: &[("wireguard", "golang.zx2c4.com/wireguard")],
    },
];

/// Room that a cold build needs: modules, Go's own cache, and the programs.
const BUILD_GIB: u64 = 8;
/// Room for the images and logs of a few clusters.
pub const RUN_GIB: u64 = 3;
/// How long an archive that is not used any more is kept.
const KEEP_IMAGES: Duration = Duration::from_hours(24);
/// Programs of the machine that a cluster needs, each with its Debian package.
const MACHINE: [(&str, &str); 11] = [
    ("/usr/bin/containerd", "containerd"),
    ("/usr/sbin/runc", "runc"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("/usr/sbin/nft", "nftables"),
    ("/usr/sbin/iptables", "iptables"),
    ("/usr/sbin/conntrack", "conntrack"),
    ("/bin/busybox", "busybox-static"),
    ("/bin/bash-static", "bash-static"),
    ("/sbin/ip", "iproute2"),
    ("/usr/bin/nsenter", "util-linux"),
    ("/usr/bin/unshare", "util-linux"),
];

/// The built programs and the archives that every node loads.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    paths: BTreeMap<&'static str, PathBuf>,
    /// The folder of all programs.
    pub folder: PathBuf,
    /// The archives.
    pub images: Vec<PathBuf>,
}

impl Programs {
    /// Where a program lies; one that the rig did not build is looked for on the PATH.
    pub fn path(&self, name: &str) -> PathBuf {
        self.paths.get(name).cloned().unwrap_or_else(|| name.into())
    }

    /// Where a node finds a program.
    pub fn path_on_node(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        path.strip_prefix(&self.folder).map_or_else(|_| path.clone(), |below| Path::new(PROGRAMS).join(below))
    }
}

/// The cache of built programs and images.
#[derive(Clone, Debug)]
pub struct Tools {
    cache: PathBuf,
}

impl Tools {
    /// The cache of this user; nothing is built yet.
    pub fn cache() -> Result<Self> {
        let base = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
            .context("neither XDG_CACHE_HOME nor HOME is set, so there is no place for built programs")?;
        Ok(Self { cache: base.join("ferrofluid").join("rig") })
    }

    /// Where a program lies.
    pub fn path(&self, program: &str) -> Result<PathBuf> {
        let module = MODULES
            .iter()
            .find(|module| module.programs.iter().any(|(name, _)| *name == program))
            .with_context(|| format!("the rig has no program {program}"))?;
        Ok(self.folder(module)?.join(program))
    }

    /// Builds whatever is missing, saying what it does.
    pub fn build(&self, say: &dyn Fn(&str)) -> Result<()> {
        let _lock = self.lock()?;
        for module in &MODULES {
            let folder = self.folder(module)?;
            if !folder.exists() {
                self.build_module(module, &folder, say)?;
            }
        }
        self.build_images(say)
    }

    /// As long as it is held, nobody else builds anything.
    fn lock(&self) -> Result<File> {
        fs::create_dir_all(&self.cache).with_context(|| format!("cannot create {}", self.cache.display()))?;
        let lock =
            File::create(self.cache.join("lock")).context("cannot lock the cache of built programs")?;
        flock(&lock, FlockOperation::LockExclusive).context("cannot lock the cache of built programs")?;
        Ok(lock)
    }

    /// Everything a cluster needs, or what is missing of it.
    pub fn check(&self) -> Result<Programs> {
        let missing: Vec<&str> = MACHINE
            .iter()
            .filter(|(path, _)| !Path::new(path).exists())
            .map(|(_, package)| *package)
            .collect();
        ensure!(
            missing.is_empty(),
            "missing on this machine: {}; install with: apt-get install {}",
            missing.join(", "),
            missing.join(" ")
        );
        let mut programs = Programs { folder: self.cache.clone(), ..Programs::default() };
        for module in &MODULES {
            let folder = self.folder(module)?;
            ensure!(folder.exists(), "{} is not built yet; run rig build", module.name);
            programs.paths.extend(module.programs.iter().map(|(name, _)| (*name, folder.join(name))));
        }
        for (path, image) in self.image_list()? {
            ensure!(path.exists(), "the image {} is not made yet; run rig build", image.name);
            programs.images.push(path);
        }
        Ok(programs)
    }

    fn folder(&self, module: &Module) -> Result<PathBuf> {
        let sources = sources(module);
        let version = version(&sources.join("go.mod"), module.dependency)?;
        let mut content = Vec::new();
        for file in sorted_files(&sources)? {
            content.extend(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
        }
        Ok(self.cache.join(format!("{}-{version}-{}", module.name, &digest(&content)[..8])))
    }

    fn build_module(&self, module: &Module, folder: &Path, say: &dyn Fn(&str)) -> Result<()> {
        require_go()?;
        require_room(&self.cache, BUILD_GIB)?;
        let version = version(&sources(module).join("go.mod"), module.dependency)?;
        say(&format!("building {} {version} (once; minutes)", module.name));
        let unfinished = folder.with_extension("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished)?;
        let output = Command::new("go")
            .args(["build", "-trimpath", "-ldflags", &link_flags(&version), "-o"])
            .arg(&unfinished)
            .args(module.programs.iter().map(|(_, package)| package))
            .current_dir(sources(module))
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-buildvcs=false -mod=readonly")
            .output()
            .context("cannot start go")?;
        if !output.status.success() {
            let _ = fs::remove_dir_all(&unfinished);
            bail!("building {} failed: {}", module.name, last_line(&output.stderr));
        }
        // Go names a program after the last part of its package.
        for (name, package) in module.programs {
            ensure!(unfinished.join(name).exists(), "{package} does not give a program {name}");
        }
        fs::rename(&unfinished, folder).with_context(|| format!("cannot put {} in place", folder.display()))
    }

    /// A program of a crate by others; built unless that is done.
    pub fn install(&self, name: &str, version: &str, say: &dyn Fn(&str)) -> Result<PathBuf> {
        let folder = self.cache.join(format!("{name}-{version}"));
        let _lock = self.lock()?;
        if !folder.exists() {
            say(&format!("building {name} {version} (once; a minute)"));
            let unfinished = folder.with_extension("unfinished");
            let output = Command::new("cargo")
                .args([
                    "install",
                    "--quiet",
                    "--locked",
                    "--no-track",
                    "--force",
                    "--version",
                    version,
                    "--root",
                ])
                .args([unfinished.as_os_str(), name.as_ref()])
                .output()
                .context("cannot start cargo")?;
            ensure!(output.status.success(), "building {name} failed: {}", last_line(&output.stderr));
            fs::rename(&unfinished, &folder)?;
        }
        Ok(folder.join("bin").join(name))
    }

    fn image_list(&self) -> Result<Vec<(PathBuf, Image)>> {
        let testbox = stripped("testbox");
        let mut images = [
            Image {
                entrypoint: vec!["/testbox".into(), "pause".into()],
                ..Image::program("rig/pause:1", &testbox, "testbox")
            },
            Image::program("rig/testbox:1", &testbox, "testbox"),
            busybox(&testbox),
            Image::program("rig/coredns:1", &self.path("coredns")?, "coredns"),
            Image {
                user: "65534:65534".into(),
                ..Image::program("rig/metrics-server:1", &self.path("metrics-server")?, "metrics-server")
            },
        ];
        let libraries = libraries(&testbox)?;
        for image in images.iter_mut().filter(|image| image.files.iter().any(|(file, _)| *file == testbox)) {
            image.files.extend(libraries.clone());
        }
        images.into_iter().map(|image| Ok((self.image_path(&image)?, image))).collect()
    }

    /// An image's archive is named after what goes into it, so that a rebuilt program gives a new archive. A file of
    /// the cache says by its path what it is; others are read.
    fn image_path(&self, image: &Image) -> Result<PathBuf> {
        let mut inputs = format!("{image:?}");
        for (file, _) in image.files.iter().filter(|(file, _)| !file.starts_with(&self.cache)) {
            let content = fs::read(file)
                .with_context(|| format!("{} is not there yet; run rig build", file.display()))?;
            inputs.push_str(&digest(&content));
        }
        let name = image.name.replace(['/', ':'], "-");
        Ok(self.cache.join("images").join(format!("{name}-{}.tar", &digest(inputs.as_bytes())[..8])))
    }

    fn build_images(&self, say: &dyn Fn(&str)) -> Result<()> {
        strip("testbox")?;
        let list = self.image_list()?;
        for (path, image) in list.iter().filter(|(path, _)| !path.exists()) {
            say(&format!("making the image {}", image.name));
            image.write(path)?;
        }
        sweep_old_images(&self.cache.join("images"), &list)
    }
}

/// A busybox with all its links but two: bash is `sh`, since busybox's own drops variables whose names have a dash,
/// and testbox is `wget`, since busybox's own crashes when it resolves a name.
fn busybox(testbox: &Path) -> Image {
    let applets =
        Command::new("/bin/busybox").arg("--list").output().map(|output| output.stdout).unwrap_or_default();
    let applets = String::from_utf8_lossy(&applets).into_owned();
    let others = applets.lines().filter(|name| !matches!(*name, "sh" | "wget" | "busybox"));
    let links = others.map(|name| (format!("bin/{name}"), "busybox".into()));
    Image {
        name: "rig/busybox:1".into(),
        files: vec![
            ("/bin/busybox".into(), "bin/busybox".into()),
            ("/bin/bash-static".into(), "bin/bash".into()),
            (testbox.into(), "bin/testbox".into()),
        ],
        links: links
            .chain([("bin/sh".into(), "bash".into()), ("bin/wget".into(), "testbox".into())])
            .collect(),
        entrypoint: vec!["/bin/sh".into()],
        user: String::new(),
    }
}

/// Removes archives that this clone does not use and that no other clone has made lately.
fn sweep_old_images(folder: &Path, current: &[(PathBuf, Image)]) -> Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        let unused = current.iter().all(|(path, _)| *path != entry.path());
        let age =
            entry.metadata().and_then(|about| about.modified()).ok().and_then(|made| made.elapsed().ok());
        if unused && age.is_some_and(|age| age > KEEP_IMAGES) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Root of the workspace that this program was built from.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(module: &Module) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("go").join(module.name)
}

const TRIPLE: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };

/// An image with a package of this workspace as users get it: optimised, one static program and nothing else.
pub fn release_image(package: &str, name: &str, say: &dyn Fn(&str)) -> Result<Image> {
    let target = workspace().join("target").join("static");
    let program = target.join(TRIPLE).join("release").join(package);
    if !program.exists() {
        say(&format!("building {package} as a static program (minutes)"));
    }
    let output = Command::new("cargo")
        .args(["build", "--quiet", "--release", "--package", package, "--target", TRIPLE, "--target-dir"])
        .arg(target)
        .current_dir(workspace())
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "building {package} failed: {}", last_line(&output.stderr));
    Ok(Image { user: NOBODY.into(), ..Image::program(name, &program, package) })
}

/// An image with a package of this workspace as it was built last: tests need no second build of everything.
pub fn present_image(package: &str, name: &str) -> Result<Image> {
    strip(package)?;
    let program = stripped(package);
    let mut image = Image { user: NOBODY.into(), ..Image::program(name, &program, package) };
    image.files.extend(libraries(&program)?);
    Ok(image)
}

/// The user of images that need no rights.
const NOBODY: &str = "65532:65532";

/// As this program was built, so are those that it takes.
const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// Where a program lies once `strip` has taken its symbols. The supervisor of a rig runs from elsewhere, and finds it, too.
fn stripped(program: &str) -> PathBuf {
    workspace().join("target").join("stripped").join(PROFILE).join(program)
}

/// Takes the symbols from a program as it was built last, unless that is done: nodes unpack what is left faster.
fn strip(program: &str) -> Result<()> {
    let (from, to) = (built(program)?, stripped(program));
    let made = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok();
    if made(&to) > made(&from) {
        return Ok(());
    }
    let unfinished = to.with_extension(std::process::id().to_string());
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    let output = Command::new("strip").arg("-o").args([&unfinished, &from]).output();
    let output = output.context("cannot start strip, of the Debian package binutils")?;
    ensure!(output.status.success(), "stripping {program} failed: {}", last_line(&output.stderr));
    Ok(fs::rename(unfinished, to)?)
}

/// The shared libraries of a program, each with the place in an image where it will be looked for.
fn libraries(program: &Path) -> Result<Vec<(PathBuf, String)>> {
    let output = Command::new("ldd").arg(program).output().context("cannot start ldd")?;
    ensure!(output.status.success(), "{} is not there yet; run rig build", program.display());
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = listed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(|path| (path.into(), path.trim_start_matches('/').to_owned())).collect())
}

fn version(go_mod: &Path, dependency: &str) -> Result<String> {
    let text = fs::read_to_string(go_mod).with_context(|| format!("cannot read {}", go_mod.display()))?;
    let line = text.lines().map(|line| line.trim().trim_start_matches("require ")).find_map(|line| {
        let (name, version) = line.split_once(' ')?;
        (name == dependency).then(|| version.split(' ').next().unwrap_or(version).to_owned())
    });
    line.with_context(|| format!("{} does not require {dependency}", go_mod.display()))
}

/// Kubernetes shows its version only when the linker is told; without it nodes say `v0.0.0-master`.
fn link_flags(version: &str) -> String {
    let key = "k8s.io/component-base/version";
    let minor = version.split('.').nth(1).unwrap_or_default();
    format!(
        "-s -w -X {key}.gitVersion={version} -X {key}.gitMajor=1 -X {key}.gitMinor={minor} -X {key}.gitTreeState=clean"
    )
}

fn sorted_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

fn require_go() -> Result<()> {
    let found = Command::new("go").arg("version").output();
    ensure!(
        found.is_ok_and(|output| output.status.success()),
        "Go is missing; install Go 1.26 or newer and put it on the PATH"
    );
    Ok(())
}

/// Refuses to begin what would fill the disk.
pub fn require_room(folder: &Path, gib: u64) -> Result<()> {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let disk = statvfs(there).with_context(|| format!("cannot look at the disk of {}", folder.display()))?;
    let free = disk.f_bavail * disk.f_frsize / (1 << 30);
    ensure!(
        free >= gib,
        "only {free} GiB free at {}; {gib} GiB are needed, so make room first",
        folder.display()
    );
    Ok(())
}

fn last_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines
        .iter()
        .find(|line| line.contains("error"))
        .or(lines.last())
        .map_or_else(|| "no reason given".into(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_names_its_version() {
        for module in &MODULES {
            let version = version(&sources(module).join("go.mod"), module.dependency).unwrap();
            assert!(version.starts_with('v'), "{}: {version}", module.name);
        }
    }

    #[test]
    fn kubernetes_is_told_its_version() {
        assert!(
            link_flags("v1.34.4").contains("gitVersion=v1.34.4")
                && link_flags("v1.34.4").contains("gitMinor=34")
        );
    }

    #[test]
    fn a_full_disk_is_refused_before_anything_is_made() {
        let error = require_room(Path::new("/"), u64::MAX >> 30).unwrap_err().to_string();
        assert!(error.contains("make room first"), "{error}");
    }
}
