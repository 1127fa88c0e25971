//! How values are printed, the same in every command.

use std::io::{self, Write};

use clap::ValueEnum;
use kube::Resource;
use serde::Serialize;

/// The formats that machines read.
#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum Format {
    /// YAML documents
    #[default]
    Yaml,
    /// One JSON document
    Json,
}

/// The formats of a command that people read unless they ask for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// A table with all columns
    Wide,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// How a command prints the object that it was about.
#[derive(clap::Args)]
pub(crate) struct Show {
    /// Print the resulting object, or a table of it
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<View>,
}

impl Show {
    /// Prints the object as asked for, or else a sentence.
    pub(crate) fn object<K: Resource + Clone + Serialize>(
        &self,
        object: &K,
        table: impl FnOnce() -> String,
        sentence: &str,
    ) -> anyhow::Result<()> {
        match self.output {
            None => line(&plain(sentence)),
            Some(View::Json) => print_value(&presentable(object), Format::Json),
            Some(View::Yaml) => print_value(&presentable(object), Format::Yaml),
            Some(View::Wide) => print(table().as_bytes()),
        }
    }
}

/// Prints objects as a list for programs, or else as a table; a note where there are none.
pub(crate) fn objects<K: Resource + Clone + Serialize>(
    objects: &[K],
    view: Option<View>,
    table: impl FnOnce(bool) -> String,
    none: &str,
) -> anyhow::Result<()> {
    let items = || objects.iter().map(presentable).collect::<Vec<_>>();
    let list = || serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items()});
    match view {
        Some(View::Json) => print_value(&list(), Format::Json),
        Some(View::Yaml) => print_value(&list(), Format::Yaml),
        Some(View::Wide) | None if objects.is_empty() => {
            note(none);
            Ok(())
        }
        Some(View::Wide) => print(table(true).as_bytes()),
        None => print(table(false).as_bytes()),
    }
}

/// What is wrong, as lines below a table.
pub(crate) fn below(wrong: &[String]) -> String {
    let lines: String = wrong.iter().map(|line| plain(line) + "\n").collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// Prints a value for programs, or else a text.
pub(crate) fn value(
    value: &impl Serialize,
    text: impl FnOnce(bool) -> String,
    view: Option<View>,
) -> anyhow::Result<()> {
    match view {
        Some(View::Json) => print_value(value, Format::Json),
        Some(View::Yaml) => print_value(value, Format::Yaml),
        Some(View::Wide) => print(text(true).as_bytes()),
        None => print(text(false).as_bytes()),
    }
}

/// The object for people: without the notes of the API server on who wrote which field.
pub(crate) fn presentable<K: Resource + Clone>(object: &K) -> K {
    let mut object = object.clone();
    object.meta_mut().managed_fields = None;
    object
}

/// A value as one document.
pub(crate) fn print_value(value: &impl Serialize, format: Format) -> anyhow::Result<()> {
    let text = match format {
        Format::Yaml => yaml(value)?,
        Format::Json => json(value)?,
    };
    print(text.as_bytes())
}

/// A value as a YAML document. Strings that an older YAML would take for something else are quoted.
pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(value)?)
}

/// A value as an indented JSON document.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Objects as manifests: a YAML document for each, or one JSON list.
pub(crate) fn manifests(objects: &[impl Serialize], format: Format) -> anyhow::Result<String> {
    match format {
        Format::Json => json(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects})),
        Format::Yaml => objects.iter().map(document).collect(),
    }
}

/// An object as one YAML document of several.
pub(crate) fn document(object: &impl Serialize) -> anyhow::Result<String> {
    Ok(format!("---\n{}", yaml(object)?))
}

/// Tells about progress.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    print(format!("{text}\n").as_bytes())
}

/// Tells about progress where the result may be for a machine: beside the standard output.
pub(crate) fn note(text: &str) {
    // Nobody can be told that nobody can be told.
    _ = writeln!(io::stderr().lock(), "{}", plain(text));
}

/// A text without anything that could upset a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { ' ' } else { letter }).collect()
}

/// Writes to the standard output. A reader that has gone away is an error, unlike with `print!`, which
/// panics.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    Ok(out.flush()?)
}

/// Whether this is the error of a reader that had seen enough, as in `ferro crds | head`.
pub(crate) fn reader_is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
