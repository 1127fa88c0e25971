//! Which of several objects a person means, by any of its names or by the beginning of one, and what was perhaps meant.

use anyhow::bail;

/// How much a word must be like another to be meant.
const ALIKE: f64 = 0.75;
/// How many names an error lists.
const LISTED: usize = 10;

/// Something that has a name, and is called otherwise as well.
pub(crate) trait Called {
    /// What it is, in one word.
    const WHAT: &str;

    /// The name of the object.
    fn name(&self) -> &str;

    /// What else it is called.
    fn others(&self) -> Vec<&str>;

    /// What to do when there are none at all.
    fn none() -> &'static str;
}

/// The one that a person means. The name of an object comes before what it is called otherwise, and a whole name before
/// the beginning of one.
pub(crate) fn find<'a, T: Called>(known: &'a [T], wanted: &str) -> anyhow::Result<&'a T> {
    let by_name = |one: &&T| one.name() == wanted;
    let by_another = |one: &&T| one.others().contains(&wanted);
    let by_beginning = |one: &&T| !wanted.is_empty() && words(*one).any(|word| word.starts_with(wanted));
    let matching = |is: &dyn Fn(&&'a T) -> bool| known.iter().filter(is).collect::<Vec<_>>();
    for found in [matching(&by_name), matching(&by_another), matching(&by_beginning)] {
        match found.as_slice() {
            [] => {}
            [one] => return Ok(one),
            several => bail!(
                "{wanted} may be one of these: {}; say more of the name",
                listed(several.iter().copied())
            ),
        }
    }
    bail!("{}", unknown(known, wanted))
}

fn unknown<T: Called>(known: &[T], wanted: &str) -> String {
    if known.is_empty() {
        return format!("there is no {} {wanted}: {}", T::WHAT, T::none());
    }
    let all = known.iter().flat_map(words).map(|word| (strsim::jaro_winkler(wanted, word), word));
    let best = all.filter(|(likeness, _)| *likeness >= ALIKE).max_by(|one, other| one.0.total_cmp(&other.0));
    let hint = best.map_or_else(|| ".".to_owned(), |(_, word)| format!("; did you mean {word}?"));
    format!("there is no {} {wanted}{hint} These are known: {}", T::WHAT, listed(known))
}

/// Everything by which it may be called.
fn words<T: Called>(one: &T) -> impl Iterator<Item = &str> {
    std::iter::once(one.name()).chain(one.others())
}

/// Their names, of which a long list is cut.
pub(crate) fn listed<'a, T: Called + 'a>(several: impl IntoIterator<Item = &'a T>) -> String {
    cut(several.into_iter().map(Called::name))
}

/// A list of names, which is cut when it is long.
pub(crate) fn cut<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().collect();
    let rest = names.len().saturating_sub(LISTED);
    let shown = names.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
    if rest == 0 { shown } else { format!("{shown} and {rest} more") }
}
