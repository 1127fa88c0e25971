//! Runs one target: over files, as to look into a finding; or, built by `scripts/fuzz`, under libFuzzer.

#![cfg_attr(libfuzzer, no_main)]

#[cfg(libfuzzer)]
mod engine {
    use std::sync::LazyLock;

    use libfuzzer_sys::{Corpus, fuzz_target};

    /// The engine has the command line for itself.
    static TARGET: LazyLock<fn(&[u8]) -> fuzz::Read> = LazyLock::new(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        fuzz::target(&name).unwrap_or_else(|| {
            eprintln!("fuzz: FUZZ_TARGET is {name:?}, which is no target");
            std::process::exit(2)
        })
    });

    fuzz_target!(|data: &[u8]| -> Corpus {
        _ = TARGET(data);
        Corpus::Keep
    });
}

#[cfg(not(libfuzzer))]
fn main() -> anyhow::Result<()> {
    use anyhow::Context as _;

    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        for (name, _) in fuzz::TARGETS {
            println!("{name}");
        }
        return Ok(());
    };
    let target = fuzz::target(&name).with_context(|| format!("{name} is no target"))?;
    for path in arguments {
        let data = std::fs::read(&path).with_context(|| format!("cannot read {path}"))?;
        let read = if target(&data).is_some() { "read to the end" } else { "refused" };
        println!("{path}: {read}");
    }
    Ok(())
}
