//! Texts of a peer, cut to what is shown: nobody's status is to grow because a peer talks much.

/// As many characters as kubelets allow to the message of a container that has ended.
const LONGEST_TEXT: usize = 4096;
const LONGEST_WORD: usize = 128;

/// A sentence of a peer, cut.
pub(crate) fn text(text: &str) -> String {
    cut(text, LONGEST_TEXT)
}

/// A word of a peer: no more than one line, cut.
pub(in crate::pods) fn word(word: &str) -> String {
    cut(word.lines().next().unwrap_or_default(), LONGEST_WORD)
}

/// A text, cut between characters.
pub(in crate::pods) fn cut(text: &str, most: usize) -> String {
    let end = text.floor_char_boundary(most.min(text.len()));
    text[..end].to_owned()
}

/// Whether API servers take this for the type of a condition: a name, with or without a domain before it.
pub(super) fn is_type(type_: &str) -> bool {
    let (domain, name) = type_.split_once('/').map_or((None, type_), |(domain, name)| (Some(domain), name));
    let is_edge = |character: Option<char>| character.is_some_and(|edge| edge.is_ascii_alphanumeric());
    let is_inner =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    let is_name = name.len() <= 63
        && name.chars().all(is_inner)
        && is_edge(name.chars().next())
        && is_edge(name.chars().next_back());
    is_name && domain.is_none_or(is_domain)
}

fn is_domain(domain: &str) -> bool {
    domain.len() <= 253 && domain.split('.').all(crate::names::is_dns_label)
}

#[cfg(test)]
mod tests {
    use super::{is_type, text, word};

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(text(&"é".repeat(5000)).len(), 4096);
        assert_eq!(text(&format!("a{}", "é".repeat(5000))).len(), 4095);
        assert_eq!(text("short"), "short");
    }

    #[test]
    fn a_word_is_one_line() {
        assert_eq!(word("Evicted\nby a stranger"), "Evicted");
        assert_eq!(word(""), "");
    }

    #[test]
    fn types_of_conditions_are_names() {
        for good in ["Ready", "example.com/is-ready", "a.b.c/X_1"] {
            assert!(is_type(good), "{good}");
        }
        for bad in ["", "a b", "/x", "x/", "Upper.Case/x", "a/b/c", "-x", "x-", &"x".repeat(64)] {
            assert!(!is_type(bad), "{bad}");
        }
    }
}
