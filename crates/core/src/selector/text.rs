//! Which clusters are meant, as people type it: `region=eu,!edge;gpu>2`, and the same back from an object.
//!
//! The words are those of kubectl's label selectors, so that nobody learns a second language. Two things are added that
//! only node selectors have: numbers are compared with `>` and `<`, and `;` stands between alternatives.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use super::Selector;

/// The one field of a node that can be asked for; all else are labels.
const NAME: &str = "metadata.name";
const HOW: &str = "write KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY, !KEY, KEY>N or KEY<N, with commas \
                   between what must all hold, and ; between alternatives";

/// Reads a selector.
pub fn parse(text: &str) -> Result<NodeSelector, String> {
    let node_selector_terms = text.split(';').map(term).collect::<Result<_, _>>()?;
    let selector = NodeSelector { node_selector_terms };
    Selector::parse(&selector).map_err(|error| error.to_string())?;
    Ok(selector)
}

fn term(text: &str) -> Result<NodeSelectorTerm, String> {
    let requirements = parts(text).into_iter().map(requirement).collect::<Result<Vec<_>, _>>()?;
    let (fields, labels): (Vec<_>, Vec<_>) =
        requirements.into_iter().partition(|requirement| requirement.key == NAME);
    let some = |requirements: Vec<_>| (!requirements.is_empty()).then_some(requirements);
    Ok(NodeSelectorTerm { match_expressions: some(labels), match_fields: some(fields) })
}

/// What lies between the commas that are not within parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut is_within = false;
    let is_between = |letter| {
        is_within = letter == '(' || is_within && letter != ')';
        letter == ',' && !is_within
    };
    text.split(is_between).collect()
}

fn requirement(text: &str) -> Result<NodeSelectorRequirement, String> {
    const SIGNS: [(&str, &str); 5] = [("!=", "NotIn"), ("==", "In"), ("=", "In"), (">", "Gt"), ("<", "Lt")];
    let of = |key: &str, operator: &str, values: Option<Vec<String>>| {
        let key = key.trim();
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
        let values_are_words = values.iter().flatten().all(|value| value.chars().all(is_word));
        if key.is_empty() || !key.chars().all(is_word) || !values_are_words {
            return Err(unreadable(text));
        }
        Ok(NodeSelectorRequirement { key: key.to_owned(), operator: operator.to_owned(), values })
    };
    if let Some((head, list)) = text.trim().split_once('(') {
        let list = list.strip_suffix(')').filter(|list| !list.trim().is_empty());
        let list = list.ok_or_else(|| unreadable(text))?;
        let values = Some(list.split(',').map(|value| value.trim().to_owned()).collect());
        return match head.split_whitespace().collect::<Vec<_>>().as_slice() {
            [key, "in"] => of(key, "In", values),
            [key, "notin"] => of(key, "NotIn", values),
            _ => Err(unreadable(text)),
        };
    }
    for (sign, operator) in SIGNS {
        if let Some((key, value)) = text.split_once(sign) {
            return of(key, operator, Some(vec![value.trim().to_owned()]));
        }
    }
    match text.trim().strip_prefix('!') {
        Some(key) => of(key, "DoesNotExist", None),
        None => of(text, "Exists", None),
    }
}

fn unreadable(text: &str) -> String {
    format!("'{}' cannot be understood; {HOW}", text.trim())
}

/// A selector in the same words.
pub fn text(selector: &NodeSelector) -> String {
    if selector.node_selector_terms.is_empty() {
        return "none, so that no cluster matches".into();
    }
    selector.node_selector_terms.iter().map(term_text).collect::<Vec<_>>().join("; ")
}

fn term_text(term: &NodeSelectorTerm) -> String {
    let requirements = term.match_expressions.iter().flatten().chain(term.match_fields.iter().flatten());
    let requirements: Vec<_> = requirements.map(requirement_text).collect();
    if requirements.is_empty() { "nothing".into() } else { requirements.join(", ") }
}

fn requirement_text(requirement: &NodeSelectorRequirement) -> String {
    let key = &requirement.key;
    let values = requirement.values.as_deref().unwrap_or_default();
    match (requirement.operator.as_str(), values) {
        ("In", [value]) => format!("{key}={value}"),
        ("NotIn", [value]) => format!("{key}!={value}"),
        ("In", values) => format!("{key} in ({})", values.join(",")),
        ("NotIn", values) => format!("{key} notin ({})", values.join(",")),
        ("Exists", _) => key.clone(),
        ("DoesNotExist", _) => format!("!{key}"),
        ("Gt", values) => format!("{key}>{}", values.join(",")),
        ("Lt", values) => format!("{key}<{}", values.join(",")),
        (operator, values) => format!("{key} {operator} ({})", values.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, text};
    use k8s_openapi::api::core::v1::NodeSelector;
    use serde_json::json;

    #[test]
    fn every_operator_is_written_as_kubectl_writes_it() {
        let typed = "liqo.io/region=eu,tier!=edge,zone in (a, b),room notin (c,d),gpu,!slow,cores>8,age<3";
        let expression = |key, operator, values: &[&str]| match values {
            [] => json!({"key": key, "operator": operator}),
            values => json!({"key": key, "operator": operator, "values": values}),
        };
        assert_eq!(
            serde_json::to_value(parse(typed).unwrap()).unwrap(),
            json!({"nodeSelectorTerms": [{"matchExpressions": [
                expression("liqo.io/region", "In", &["eu"]),
                expression("tier", "NotIn", &["edge"]),
                expression("zone", "In", &["a", "b"]),
                expression("room", "NotIn", &["c", "d"]),
                expression("gpu", "Exists", &[]),
                expression("slow", "DoesNotExist", &[]),
                expression("cores", "Gt", &["8"]),
                expression("age", "Lt", &["3"]),
            ]}]})
        );
    }

    #[test]
    fn alternatives_are_terms_and_the_name_of_the_node_is_a_field() {
        let selector = parse("a = b ; metadata.name=liqo-turin,c").unwrap();
        assert_eq!(
            serde_json::to_value(selector).unwrap(),
            json!({"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
                {
                    "matchExpressions": [{"key": "c", "operator": "Exists"}],
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["liqo-turin"]}],
                },
            ]})
        );
    }

    #[test]
    fn what_is_printed_can_be_typed_again() {
        for typed in [
            "a=b",
            "a==b,c=",
            "liqo.io/region in (eu,us),!slow; cores>8, metadata.name!=liqo-milan",
            "zone notin (a,b),tier!=edge; gpu; age<3",
        ] {
            let selector = parse(typed).unwrap();
            assert_eq!(parse(&text(&selector)).unwrap(), selector, "{typed}");
        }
        assert_eq!(text(&parse("a==b,c in (d);!e").unwrap()), "a=b, c=d; !e");
    }

    #[test]
    fn what_cannot_be_understood_is_named_with_the_words_that_can() {
        for typed in [
            "",
            "a,",
            ",a",
            "a;;b",
            "=b",
            "a in b",
            "a in (b",
            "a (b)",
            "a in (b))",
            "a is (b)",
            "a b",
            "!",
            "a=b=c",
            "a>",
            "a>b",
            "a in ()",
            "a=b c",
            "((",
        ] {
            assert!(parse(typed).is_err(), "{typed}");
        }
        let said = parse("a is (b)").unwrap_err();
        assert!(said.starts_with("'a is (b)' cannot be understood; write KEY=VALUE"), "{said}");
    }

    #[test]
    fn a_selector_without_terms_selects_nothing() {
        assert_eq!(text(&NodeSelector::default()), "none, so that no cluster matches");
    }
}
