//! Container images from static binaries: an OCI archive is a tar of three small documents and one layer.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// What an image holds.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// `name:tag`.
    pub name: String,
    /// Files, from this machine's path to the image's.
    pub files: Vec<(PathBuf, String)>,
    /// Symbolic links: name to target.
    pub links: Vec<(String, String)>,
    /// What starts when nothing else is said.
    pub entrypoint: Vec<String>,
    /// User to run as, `uid:gid`; root when empty.
    pub user: String,
}

impl Image {
    /// An image of one program that is also what starts.
    pub fn program(name: &str, binary: &Path, place: &str) -> Self {
        Self {
            name: name.into(),
            files: vec![(binary.into(), place.into())],
            entrypoint: vec![format!("/{place}")],
            ..Self::default()
        }
    }

    /// Writes the archive; a half-written one never has the final name.
    pub fn write(&self, path: &Path) -> Result<()> {
        let layer = self.layer()?;
        let layer_digest = digest(&layer);
        let config = self.config(&layer_digest).to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        })
        .to_string()
        .into_bytes();
        let mut reference = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        let qualified = qualified(&self.name);
        reference["annotations"] = json!({
            "io.containerd.image.name": qualified,
            "org.opencontainers.image.ref.name": self.name.rsplit(':').next(),
        });
        let index = json!({"schemaVersion": 2, "manifests": [reference]}).to_string().into_bytes();
        let mut entries = BTreeMap::from([
            ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            ("index.json".to_owned(), index),
        ]);
        for blob in [layer, config, manifest] {
            entries.insert(format!("blobs/sha256/{}", digest(&blob)), blob);
        }
        store(path, &entries).with_context(|| format!("cannot write the image {}", path.display()))
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut layer = tar::Builder::new(Vec::new());
        for place in ["tmp/", "etc/"] {
            let mut header = header(tar::EntryType::Directory, if place == "tmp/" { 0o1777 } else { 0o755 });
            layer.append_data(&mut header, place, std::io::empty())?;
        }
        for (from, to) in &self.files {
            let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
            let mut header = header(tar::EntryType::Regular, 0o755);
            header.set_size(content.len() as u64);
            layer.append_data(&mut header, to, content.as_slice())?;
        }
        for (name, target) in &self.links {
            layer.append_link(&mut header(tar::EntryType::Symlink, 0o777), name, target)?;
        }
        Ok(layer.into_inner()?)
    }

    fn config(&self, layer: &str) -> Value {
        json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "User": self.user, "Env": ["PATH=/bin:/usr/bin:/sbin"]},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
        })
    }
}

/// The full name by which a node knows an image: kubelets add what a short name leaves out.
pub fn qualified(name: &str) -> String {
    let first = name.split('/').next().unwrap_or_default();
    if name.contains('/') && (first.contains('.') || first.contains(':')) {
        name.to_owned()
    } else if name.contains('/') {
        format!("docker.io/{name}")
    } else {
        format!("docker.io/library/{name}")
    }
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": format!("sha256:{}", digest(content)), "size": content.len()})
}

/// SHA-256 in hexadecimal.
pub fn digest(content: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// No time, no owner: the same files always make the same archive.
fn header(kind: tar::EntryType, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_size(0);
    header
}

fn store(path: &Path, entries: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    let folder = path.parent().context("an image needs a folder")?;
    fs::create_dir_all(folder)?;
    let unfinished = path.with_extension("unfinished");
    let mut archive = tar::Builder::new(File::create(&unfinished)?);
    for (name, content) in entries {
        let mut header = header(tar::EntryType::Regular, 0o644);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, content.as_slice())?;
    }
    archive.into_inner()?;
    Ok(fs::rename(unfinished, path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_same_files_make_the_same_archive_with_everything_it_refers_to() {
        let folder = std::env::temp_dir().join(format!("rig-image-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("program"), "content").unwrap();
        let image = Image::program("rig/test:1", &folder.join("program"), "bin/program");
        image.write(&folder.join("one.tar")).unwrap();
        image.write(&folder.join("two.tar")).unwrap();
        assert_eq!(fs::read(folder.join("one.tar")).unwrap(), fs::read(folder.join("two.tar")).unwrap());
        let mut names = Vec::new();
        let mut index = String::new();
        let mut archive = tar::Archive::new(File::open(folder.join("one.tar")).unwrap());
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            names.push(entry.path().unwrap().display().to_string());
            if names.last().is_some_and(|name| name == "index.json") {
                entry.read_to_string(&mut index).unwrap();
            }
        }
        let index: Value = serde_json::from_str(&index).unwrap();
        let manifest = index["manifests"][0]["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
        assert!(names.contains(&manifest), "{names:?}");
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "docker.io/rig/test:1");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn short_names_are_completed_as_a_kubelet_does() {
        for (short, full) in [
            ("ferro:0.1.0", "docker.io/library/ferro:0.1.0"),
            ("rig/pause:1", "docker.io/rig/pause:1"),
            ("registry.example/x/y:2", "registry.example/x/y:2"),
            ("localhost:5000/y:2", "localhost:5000/y:2"),
        ] {
            assert_eq!(qualified(short), full);
        }
    }
}
