//! A pod's own terms and those of the policy, as one list: an OR of ANDs, each of a term of one and a term of the other.
//!
//! A term that says already what some alternative says is left alone. That is exact, since all that it selects is in that
//! alternative; and it is what makes a second look change nothing.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use super::refusal::Refusal;

/// The most requirements and values that a list may have in all: such a pod is still far from what an API server stores.
pub(super) const MOST: usize = 4096;

/// The terms that select what both a pod's own selector and one of the alternatives select.
pub(super) fn narrowed(
    own: Option<&NodeSelector>,
    alternatives: &[NodeSelectorTerm],
) -> Result<Vec<NodeSelectorTerm>, Refusal> {
    let mut list = List::default();
    let Some(own) = own else {
        alternatives.iter().try_for_each(|term| list.push(weight(term), || term.clone()))?;
        return Ok(list.or_nothing());
    };
    for term in &own.node_selector_terms {
        if is_empty(term) || alternatives.iter().any(|alternative| is_within(term, alternative)) {
            list.push(weight(term), || term.clone())?;
            continue;
        }
        for alternative in alternatives {
            list.push(weight(term) + weight(alternative), || both(term, alternative))?;
        }
    }
    // A selector without terms is refused by the API server, and that is for it to say.
    Ok(if own.node_selector_terms.is_empty() { Vec::new() } else { list.or_nothing() })
}

/// A term that selects what both select; neither may be empty.
pub(super) fn both(one: &NodeSelectorTerm, other: &NodeSelectorTerm) -> NodeSelectorTerm {
    NodeSelectorTerm {
        match_expressions: united(expressions(one), expressions(other)),
        match_fields: united(fields(one), fields(other)),
    }
}

/// Whether a term has no requirement, and so selects nothing.
pub(super) fn is_empty(term: &NodeSelectorTerm) -> bool {
    expressions(term).is_empty() && fields(term).is_empty()
}

/// A list of terms that does not grow beyond what is allowed.
#[derive(Default)]
struct List {
    terms: Vec<NodeSelectorTerm>,
    weight: usize,
}

impl List {
    fn push(&mut self, weight: usize, term: impl FnOnce() -> NodeSelectorTerm) -> Result<(), Refusal> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight > MOST {
            return Err(Refusal::TooLarge);
        }
        self.terms.push(term());
        Ok(())
    }

    /// The terms; a list must have one, and an empty one selects nothing as well.
    fn or_nothing(self) -> Vec<NodeSelectorTerm> {
        if self.terms.is_empty() { vec![NodeSelectorTerm::default()] } else { self.terms }
    }
}

fn is_within(term: &NodeSelectorTerm, alternative: &NodeSelectorTerm) -> bool {
    let has = |all: &[NodeSelectorRequirement], some: &[NodeSelectorRequirement]| {
        some.iter().all(|wanted| all.iter().any(|one| is_same(one, wanted)))
    };
    has(expressions(term), expressions(alternative)) && has(fields(term), fields(alternative))
}

fn united(
    some: &[NodeSelectorRequirement],
    more: &[NodeSelectorRequirement],
) -> Option<Vec<NodeSelectorRequirement>> {
    let further = more.iter().filter(|one| !some.iter().any(|present| is_same(present, one)));
    let all: Vec<_> = some.iter().chain(further).cloned().collect();
    (!all.is_empty()).then_some(all)
}

/// No values and an empty list of them are the same, and either may become the other on its way.
fn is_same(one: &NodeSelectorRequirement, other: &NodeSelectorRequirement) -> bool {
    (&one.key, &one.operator, values(one)) == (&other.key, &other.operator, values(other))
}

fn weight(term: &NodeSelectorTerm) -> usize {
    expressions(term).iter().chain(fields(term)).map(|one| 1 + values(one).len()).sum()
}

fn expressions(term: &NodeSelectorTerm) -> &[NodeSelectorRequirement] {
    term.match_expressions.as_deref().unwrap_or_default()
}

fn fields(term: &NodeSelectorTerm) -> &[NodeSelectorRequirement] {
    term.match_fields.as_deref().unwrap_or_default()
}

fn values(requirement: &NodeSelectorRequirement) -> &[String] {
    requirement.values.as_deref().unwrap_or_default()
}
