//! `--set a.b=c,d[0]=e`: values on the command line, written as Helm has them.
//!
//! A value is a number, a boolean, null (which takes a default away), a list in braces, or else a string. A
//! backslash takes the meaning from the next character: `clusterLabels.liqo\.io/region=eu`.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Value};

/// Longer lists are surely a mistake, and an index is cheap to write.
const LONGEST_LIST: usize = 1000;

/// Why an assignment cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SetError {
    #[error("--set {0}: no value; write it as {0}=VALUE")]
    NoValue(String),
    #[error("--set {0}: a key is empty")]
    EmptyKey(String),
    #[error("--set {0}: an index is a number from 0 to {max}, as in list[0]", max = LONGEST_LIST - 1)]
    BadIndex(String),
    #[error("--set {0}: a list has no closing brace")]
    OpenList(String),
    #[error("--set {0}: the path goes through a value that is neither a map nor a list")]
    NoWayThrough(String),
}

/// One step on the way to a value.
#[derive(Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// Makes the assignments of one `--set` in the values.
pub(super) fn assign(values: &mut Value, text: &str) -> Result<(), SetError> {
    let mut rest = text.chars().peekable();
    while rest.peek().is_some() {
        let path = path(text, &mut rest)?;
        let value = value(text, &mut rest)?;
        put(text, values, &path, value)?;
    }
    Ok(())
}

fn path(text: &str, rest: &mut Peekable<Chars<'_>>) -> Result<Vec<Step>, SetError> {
    let mut steps = Vec::new();
    loop {
        let (word, end) = word(rest, &['.', '=', '[', ',']);
        let after_index = matches!(steps.last(), Some(Step::Index(_))) && word.is_empty();
        if !after_index {
            if word.is_empty() {
                return Err(SetError::EmptyKey(text.into()));
            }
            steps.push(Step::Key(word));
        }
        match end {
            Some('.') => {}
            Some('[') => steps.push(index(text, rest)?),
            Some('=') => return Ok(steps),
            _ => return Err(SetError::NoValue(text.into())),
        }
    }
}

fn index(text: &str, rest: &mut Peekable<Chars<'_>>) -> Result<Step, SetError> {
    let (digits, end) = word(rest, &[']']);
    let number = digits.parse().ok().filter(|number| end.is_some() && *number < LONGEST_LIST);
    // After an index comes another step or the value; a dot between them is only for the eye.
    rest.next_if_eq(&'.');
    number.map(Step::Index).ok_or_else(|| SetError::BadIndex(text.into()))
}

fn value(text: &str, rest: &mut Peekable<Chars<'_>>) -> Result<Value, SetError> {
    if rest.next_if_eq(&'{').is_none() {
        return Ok(typed(&word(rest, &[',']).0));
    }
    let mut items = Vec::new();
    loop {
        let (item, end) = word(rest, &[',', '}']);
        if !(item.is_empty() && items.is_empty() && end == Some('}')) {
            items.push(typed(&item));
        }
        match end {
            Some(',') => {}
            Some(_) => break,
            None => return Err(SetError::OpenList(text.into())),
        }
    }
    rest.next_if_eq(&',');
    Ok(items.into())
}

/// The characters up to one of these ends, and which end it was.
fn word(rest: &mut Peekable<Chars<'_>>, ends: &[char]) -> (String, Option<char>) {
    let mut word = String::new();
    while let Some(character) = rest.next() {
        match character {
            '\\' => word.extend(rest.next()),
            end if ends.contains(&end) => return (word, Some(end)),
            other => word.push(other),
        }
    }
    (word, None)
}

fn typed(word: &str) -> Value {
    let number = || word.parse::<i64>().ok().filter(|number| number.to_string() == word);
    match word {
        "true" => true.into(),
        "false" => false.into(),
        "null" => Value::Null,
        _ => number().map_or_else(|| word.into(), Value::from),
    }
}

fn put(text: &str, values: &mut Value, path: &[Step], value: Value) -> Result<(), SetError> {
    let mut place = values;
    for step in path {
        place = descend(place, step).ok_or_else(|| SetError::NoWayThrough(text.into()))?;
    }
    *place = value;
    Ok(())
}

/// The place one step further in, made when it is not there yet.
fn descend<'v>(place: &'v mut Value, step: &Step) -> Option<&'v mut Value> {
    match step {
        Step::Key(key) => {
            if place.is_null() {
                *place = Map::new().into();
            }
            Some(place.as_object_mut()?.entry(key).or_insert(Value::Null))
        }
        Step::Index(index) => {
            if place.is_null() {
                *place = Vec::<Value>::new().into();
            }
            let items = place.as_array_mut()?;
            if items.len() <= *index {
                items.resize(index + 1, Value::Null);
            }
            items.get_mut(*index)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SetError, assign};
    use serde_json::{Value, json};

    fn set(texts: &[&str]) -> Result<Value, SetError> {
        let mut values = json!({});
        texts.iter().try_for_each(|text| assign(&mut values, text))?;
        Ok(values)
    }

    #[test]
    fn values_have_the_type_that_they_look_like() {
        assert_eq!(
            set(&["a=1,b=true,c=null,d=x,e=,f=007,g=1.5"]).unwrap(),
            json!({"a": 1, "b": true, "c": null, "d": "x", "e": "", "f": "007", "g": "1.5"})
        );
    }

    #[test]
    fn paths_go_through_maps_and_lists() {
        assert_eq!(
            set(&["a.b.c=1", "a.b.d=2", "l[1].x=y", "l[0]=z", "m[0][1]=w"]).unwrap(),
            json!({"a": {"b": {"c": 1, "d": 2}}, "l": ["z", {"x": "y"}], "m": [[null, "w"]]})
        );
    }

    #[test]
    fn braces_make_a_list() {
        assert_eq!(set(&["a={x,2},b={},c=3"]).unwrap(), json!({"a": ["x", 2], "b": [], "c": 3}));
    }

    #[test]
    fn a_backslash_takes_the_meaning_from_a_character() {
        assert_eq!(
            set(&[r"labels.liqo\.io/region=eu\,north", "url=https://h:1/?a=b"]).unwrap(),
            json!({"labels": {"liqo.io/region": "eu,north"}, "url": "https://h:1/?a=b"})
        );
    }

    #[test]
    fn a_later_assignment_wins() {
        assert_eq!(set(&["a=1", "a=2"]).unwrap(), json!({"a": 2}));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        assert_eq!(set(&["a"]), Err(SetError::NoValue("a".into())));
        assert_eq!(set(&["a,b=1"]), Err(SetError::NoValue("a,b=1".into())));
        assert_eq!(set(&["a..b=1"]), Err(SetError::EmptyKey("a..b=1".into())));
        assert_eq!(set(&["=1"]), Err(SetError::EmptyKey("=1".into())));
        assert_eq!(set(&["a[x]=1"]), Err(SetError::BadIndex("a[x]=1".into())));
        assert_eq!(set(&["a[9999999]=1"]), Err(SetError::BadIndex("a[9999999]=1".into())));
        assert_eq!(set(&["a={1,2"]), Err(SetError::OpenList("a={1,2".into())));
        assert_eq!(set(&["a=1", "a.b=2"]), Err(SetError::NoWayThrough("a.b=2".into())));
    }
}
