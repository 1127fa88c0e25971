//! Writes the valid samples of the corpus, always the same: `cargo run -p fuzz --example seeds`.
//!
//! It is needed when a form changes, or for a new target. Files that came from findings stay as they are.

mod documents;
mod packets;
mod texts;

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// The name of a target, that of a file, and what is in it.
pub type Seed = (&'static str, &'static str, Vec<u8>);

fn main() -> anyhow::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let all = [texts::seeds(), documents::seeds()?, packets::seeds()?].concat();
    for (target, name, content) in &all {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), content).with_context(|| format!("cannot write {target}/{name}"))?;
    }
    println!("{} files", all.len());
    Ok(())
}
