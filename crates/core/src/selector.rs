//! Which nodes a NodeSelector means, read exactly as the scheduler reads it, so that what we select is where pods can go.
//!
//! - Terms are alternatives; within a term everything must hold. No term, or an empty one, selects nothing.
//! - `NotIn` and `DoesNotExist` hold for a node without the label; every other operator does not.
//! - `Gt` and `Lt` compare integers, and do not hold for a label that is none.
//! - The only field is `metadata.name`, with `In` or `NotIn` and one value.
//!
//! A selector with one wrong requirement is refused as a whole. The scheduler would ignore the term that holds it;
//! whoever wrote it means something else.

mod requirement;
pub mod text;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use self::requirement::Requirement;

/// A selector that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    terms: Vec<Term>,
}

/// A selector that was not understood: which requirement, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nodeSelectorTerms[{term}].{list}[{place}] ({key} {operator}): {problem}")]
pub struct SelectorError {
    term: usize,
    list: &'static str,
    place: usize,
    key: String,
    operator: String,
    problem: Problem,
}

/// What is wrong with one requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("the operator must be In, NotIn, Exists, DoesNotExist, Gt or Lt")]
    Operator,
    #[error("the key cannot be the key of a label")]
    Key,
    #[error("a value cannot be the value of a label")]
    Value,
    #[error("In and NotIn need at least one value")]
    NoValue,
    #[error("Exists and DoesNotExist have no values")]
    NeedlessValue,
    #[error("Gt and Lt need one value, an integer")]
    NotAnInteger,
    #[error("the only field is metadata.name")]
    Field,
    #[error("a field is compared by In or NotIn, with one value")]
    FieldComparison,
}

impl Selector {
    /// Understands a selector, or says which requirement is wrong.
    pub fn parse(selector: &NodeSelector) -> Result<Self, SelectorError> {
        let terms = selector.node_selector_terms.iter().enumerate();
        let terms = terms.map(|(place, term)| Term::parse(place, term)).collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }

    /// Whether a node of that name and with those labels is selected.
    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.terms.iter().any(|term| term.matches(name, labels))
    }

    /// For each term, why it does not select that node; empty when one of them does.
    pub fn explain(&self, name: &str, labels: &BTreeMap<String, String>) -> Vec<String> {
        if self.matches(name, labels) {
            return Vec::new();
        }
        if self.terms.is_empty() {
            return vec!["the selector has no term, and so selects nothing".to_owned()];
        }
        self.terms.iter().map(|term| term.explain(name, labels)).collect()
    }
}

/// Requirements that must all hold; without any, the term selects nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    requirements: Vec<Requirement>,
}

impl Term {
    fn parse(term: usize, text: &NodeSelectorTerm) -> Result<Self, SelectorError> {
        let all = |list, texts: &Option<Vec<NodeSelectorRequirement>>, parse: Parse| {
            let texts = texts.iter().flatten().enumerate();
            texts
                .map(|(place, text)| parse(text).map_err(|problem| wrong(term, list, place, text, problem)))
                .collect::<Result<Vec<_>, _>>()
        };
        let mut requirements = all("matchExpressions", &text.match_expressions, Requirement::on_label)?;
        requirements.extend(all("matchFields", &text.match_fields, Requirement::on_field)?);
        Ok(Self { requirements })
    }

    fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        !self.requirements.is_empty() && self.requirements.iter().all(|one| one.holds(name, labels))
    }

    fn explain(&self, name: &str, labels: &BTreeMap<String, String>) -> String {
        let broken = self.requirements.iter().filter(|one| !one.holds(name, labels));
        let broken: Vec<_> = broken.map(|one| one.explain(name, labels)).collect();
        if broken.is_empty() {
            "the term is empty, and so selects nothing".to_owned()
        } else {
            broken.join("; ")
        }
    }
}

type Parse = fn(&NodeSelectorRequirement) -> Result<Requirement, Problem>;

fn wrong(
    term: usize,
    list: &'static str,
    place: usize,
    text: &NodeSelectorRequirement,
    problem: Problem,
) -> SelectorError {
    let NodeSelectorRequirement { key, operator, .. } = text.clone();
    SelectorError { term, list, place, key, operator, problem }
}

#[cfg(test)]
mod tests;
