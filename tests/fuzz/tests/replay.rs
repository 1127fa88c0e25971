//! The corpus of each target, and a bounded number of mutations of it: always the same ones.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fuzz::Read;

/// How many mutations are tried of each target, and of those in which keys are multiplied.
const MUTATIONS: usize = 1000;
const COSTLY: usize = 20;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The files of a target, in the order of their names.
fn files(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |entry: fs::DirEntry| (entry.path(), fs::read(entry.path()).unwrap());
    let mut files: Vec<_> =
        fs::read_dir(corpus().join(name)).unwrap().map(|entry| read(entry.unwrap())).collect();
    files.sort();
    files
}

/// Numbers that look random and are always the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 32).unwrap() % sides.max(1)
    }

    fn byte(&mut self) -> u8 {
        let interesting = [0, 1, 0x7f, 0x80, 0xff];
        if self.roll(2) == 0 {
            interesting[self.roll(interesting.len())]
        } else {
            self.roll(256).try_into().unwrap()
        }
    }

    /// One change: a bit, a byte, a part taken out, doubled, or taken from another file.
    fn mutate(&mut self, data: &mut Vec<u8>, other: &[u8]) {
        let at = self.roll(data.len());
        let length = 1 + self.roll(8.min(data.len() - at.min(data.len())));
        let end = (at + length).min(data.len());
        match self.roll(6) {
            0 if at < data.len() => data[at] ^= 1 << self.roll(8),
            1 if at < data.len() => data[at] = self.byte(),
            2 => drop(data.drain(at..end)),
            3 => drop(data.splice(at..at, data[at..end].to_vec())),
            4 => data.truncate(at),
            _ => {
                let from = self.roll(other.len());
                let until = (from + 1 + self.roll(16)).min(other.len());
                data.splice(at..end, other[from..until].iter().copied());
            }
        }
    }
}

fn replay(name: &str, target: fn(&[u8]) -> Read) {
    let files = files(name);
    let mut read = 0;
    for (path, data) in &files {
        // Shown where it fails.
        println!("{}", path.display());
        read += usize::from(target(data).is_some());
    }
    assert!(read > 0, "no file in the corpus of {name} is read to the end any more");
    let mut dice = Dice(0x5eed);
    for _ in 0..if name.starts_with("wireguard_") && name != "wireguard_message" { COSTLY } else { MUTATIONS }
    {
        let mut data = files[dice.roll(files.len())].1.clone();
        for _ in 0..=dice.roll(4) {
            let other = &files[dice.roll(files.len())].1;
            dice.mutate(&mut data, other);
        }
        println!("{}", data.escape_ascii());
        target(&data);
    }
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name), fuzz::$name);
        })*
    };
}
fuzz::with_targets!(tests);

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let present: BTreeSet<String> = fs::read_dir(corpus())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(present, fuzz::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect());
}
