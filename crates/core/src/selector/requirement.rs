//! One requirement on a node: what it is about, and the comparison that must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;

use super::Problem;
use crate::names::{is_label_key, is_label_value};

/// The one field of a node that can be asked for.
const NAME: &str = "metadata.name";

/// What must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    subject: Subject,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Label(String),
    Name,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
}

impl Requirement {
    /// One of `matchExpressions`.
    pub(super) fn on_label(written: &NodeSelectorRequirement) -> Result<Self, Problem> {
        if !is_label_key(&written.key) {
            return Err(Problem::Key);
        }
        let test = Test::parse(written)?;
        // Also the integers of Gt and Lt must be values that a label can have: the scheduler takes no negative ones.
        if !values(written).iter().all(|value| is_label_value(value)) {
            return Err(Problem::Value);
        }
        Ok(Self { subject: Subject::Label(written.key.clone()), test })
    }

    /// One of `matchFields`.
    pub(super) fn on_field(written: &NodeSelectorRequirement) -> Result<Self, Problem> {
        if written.key != NAME {
            return Err(Problem::Field);
        }
        let test = Test::parse(written)?;
        match (&test, values(written)) {
            (Test::In(_) | Test::NotIn(_), [_]) => Ok(Self { subject: Subject::Name, test }),
            _ => Err(Problem::FieldComparison),
        }
    }

    /// Whether it holds for a node.
    pub(super) fn holds(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.test.holds(self.subject.of(name, labels))
    }

    /// Why it does not hold for a node.
    pub(super) fn explain(&self, name: &str, labels: &BTreeMap<String, String>) -> String {
        let Self { subject, test } = self;
        match subject.of(name, labels) {
            Some(value) => format!("{subject} is {value:?}, and must be {test}"),
            None => format!("{subject} is not set, and must be {test}"),
        }
    }
}

impl Subject {
    fn of<'a>(&self, name: &'a str, labels: &'a BTreeMap<String, String>) -> Option<&'a str> {
        match self {
            Self::Label(key) => labels.get(key).map(String::as_str),
            Self::Name => Some(name),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(key) => to.write_str(key),
            Self::Name => to.write_str(NAME),
        }
    }
}

impl Test {
    fn parse(written: &NodeSelectorRequirement) -> Result<Self, Problem> {
        let values = values(written);
        let some = || match values {
            [] => Err(Problem::NoValue),
            values => Ok(values.iter().cloned().collect()),
        };
        let none = |test| if values.is_empty() { Ok(test) } else { Err(Problem::NeedlessValue) };
        let integer = || match values {
            [one] => one.parse().map_err(|_| Problem::NotAnInteger),
            _ => Err(Problem::NotAnInteger),
        };
        match written.operator.as_str() {
            "In" => some().map(Self::In),
            "NotIn" => some().map(Self::NotIn),
            "Exists" => none(Self::Exists),
            "DoesNotExist" => none(Self::DoesNotExist),
            "Gt" => integer().map(Self::Gt),
            "Lt" => integer().map(Self::Lt),
            _ => Err(Problem::Operator),
        }
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let integer = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Gt(bound) => integer().is_some_and(|value| value > *bound),
            Self::Lt(bound) => integer().is_some_and(|value| value < *bound),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(", ");
        match self {
            Self::In(values) if values.len() == 1 => to.write_str(&listed(values)),
            Self::In(values) => write!(to, "one of {}", listed(values)),
            Self::NotIn(values) if values.len() == 1 => write!(to, "other than {}", listed(values)),
            Self::NotIn(values) => write!(to, "none of {}", listed(values)),
            Self::Exists => to.write_str("set"),
            Self::DoesNotExist => to.write_str("absent"),
            Self::Gt(bound) => write!(to, "an integer greater than {bound}"),
            Self::Lt(bound) => write!(to, "an integer less than {bound}"),
        }
    }
}

fn values(written: &NodeSelectorRequirement) -> &[String] {
    written.values.as_deref().unwrap_or_default()
}
