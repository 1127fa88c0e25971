//! The part of Go's template language that the chart uses, rendered strictly.
//!
//! Helm understands much more. Whatever is not understood here is an error with its file and line, so that the
//! chart stays within what `helm install` and `ferro install` render alike:
//!
//! ```text
//! {{ .Values.a.b }}   {{ .Values.a.b | quote }}   {{ toYaml .Values.a | nindent 4 }}
//! {{ if .Values.a }} … {{ else }} … {{ end }}     {{ if ne .Values.a "text" }} … {{ end }}
//! ```
//!
//! Beside `.Values` there are `.Release.Namespace` and `.Chart.AppVersion`. A dash inside the braces takes away
//! the white space on its side.

use serde_json::Value;

use crate::output;

/// Fills in a template. `data` has the roots that paths begin with: `Values`, `Release`, `Chart`.
pub(super) fn render(file: &'static str, text: &str, data: &Value) -> Result<String, TemplateError> {
    let at = |(line, problem)| TemplateError { file, line, problem };
    let pieces = pieces(text).map_err(at)?;
    let nodes = parse(&pieces).map_err(at)?;
    let mut rendered = String::new();
    write(&nodes, data, &mut rendered).map_err(at)?;
    Ok(rendered)
}

/// What is wrong with a template, and where.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub(crate) struct TemplateError {
    file: &'static str,
    line: usize,
    problem: Problem,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("{{{{ without }}}}")]
    Unclosed,
    #[error("{{{{ {0} }}}} is not understood")]
    NotUnderstood(String),
    #[error("if without end")]
    WithoutEnd,
    #[error("{{{{ {0} }}}} without if")]
    WithoutIf(String),
    #[error("{0} has no value")]
    Missing(String),
    #[error("{0} is not a single value; use toYaml")]
    NotScalar(String),
    #[error("{0} cannot be written as YAML")]
    NotYaml(String),
}

type Located<T> = Result<T, (usize, Problem)>;

/// A template is text and actions in turn.
enum Piece<'t> {
    Text(&'t str),
    Action { line: usize, words: Vec<&'t str> },
}

/// A part of a template that is either there as it stands, or depends on the data.
enum Node<'t> {
    Text(&'t str),
    Insert { line: usize, path: Path<'t>, form: Form },
    If { condition: Condition<'t>, then: Vec<Node<'t>>, otherwise: Vec<Node<'t>> },
}

enum Form {
    Plain,
    Quoted,
    Yaml { indent: usize },
}

enum Condition<'t> {
    Set(Path<'t>),
    Differs(Path<'t>, &'t str),
}

/// Where a value lies, such as `.Values.image.tag`.
#[derive(Clone, Copy)]
struct Path<'t>(&'t str);

/// How a sequence of nodes ended: with the template, or with an action on that line.
enum Ended {
    ByElse(usize),
    ByEnd(usize),
    WithText,
}

fn pieces(text: &str) -> Located<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some((before, opened)) = rest.split_once("{{") {
        line += before.matches('\n').count();
        let (action, after) = opened.split_once("}}").ok_or((line, Problem::Unclosed))?;
        let trimmed_left = action.strip_prefix('-').filter(|body| body.starts_with(char::is_whitespace));
        let body = trimmed_left.unwrap_or(action);
        let trimmed_right = body.strip_suffix('-').filter(|body| body.ends_with(char::is_whitespace));

        pieces.push(Piece::Text(if trimmed_left.is_some() { before.trim_end() } else { before }));
        let words = trimmed_right.unwrap_or(body).split_whitespace().collect();
        pieces.push(Piece::Action { line, words });
        line += action.matches('\n').count();
        rest = after;
        if trimmed_right.is_some() {
            rest = after.trim_start();
            line += after[..after.len() - rest.len()].matches('\n').count();
        }
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

fn parse<'t>(pieces: &[Piece<'t>]) -> Located<Vec<Node<'t>>> {
    let mut pieces = pieces.iter();
    match sequence(&mut pieces)? {
        (nodes, Ended::WithText) => Ok(nodes),
        (_, Ended::ByElse(line)) => Err((line, Problem::WithoutIf("else".into()))),
        (_, Ended::ByEnd(line)) => Err((line, Problem::WithoutIf("end".into()))),
    }
}

fn sequence<'t>(pieces: &mut std::slice::Iter<'_, Piece<'t>>) -> Located<(Vec<Node<'t>>, Ended)> {
    let mut nodes = Vec::new();
    while let Some(piece) = pieces.next() {
        let (line, words) = match piece {
            Piece::Text(text) => {
                nodes.push(Node::Text(text));
                continue;
            }
            Piece::Action { line, words } => (*line, words.as_slice()),
        };
        let not_understood = || (line, Problem::NotUnderstood(words.join(" ")));
        let path = |text| Path::parse(text).ok_or_else(not_understood);
        let insert = |text, form| Ok(Node::Insert { line, path: path(text)?, form });
        nodes.push(match *words {
            ["else"] => return Ok((nodes, Ended::ByElse(line))),
            ["end"] => return Ok((nodes, Ended::ByEnd(line))),
            ["if", value] => choice(pieces, line, Condition::Set(path(value)?))?,
            ["if", "ne", value, text] => {
                let text = literal(text).ok_or_else(not_understood)?;
                choice(pieces, line, Condition::Differs(path(value)?, text))?
            }
            [value] => insert(value, Form::Plain)?,
            [value, "|", "quote"] => insert(value, Form::Quoted)?,
            ["toYaml", value, "|", "nindent", columns] => {
                let indent = columns.parse().map_err(|_| not_understood())?;
                insert(value, Form::Yaml { indent })?
            }
            _ => return Err(not_understood()),
        });
    }
    Ok((nodes, Ended::WithText))
}

/// The rest of an `if`, up to its `end`.
fn choice<'t>(
    pieces: &mut std::slice::Iter<'_, Piece<'t>>,
    line: usize,
    condition: Condition<'t>,
) -> Located<Node<'t>> {
    let (then, end) = sequence(pieces)?;
    let (otherwise, end) = match end {
        Ended::ByElse(_) => sequence(pieces)?,
        Ended::ByEnd(_) | Ended::WithText => (Vec::new(), end),
    };
    match end {
        Ended::ByEnd(_) => Ok(Node::If { condition, then, otherwise }),
        Ended::ByElse(line) => Err((line, Problem::WithoutIf("else".into()))),
        Ended::WithText => Err((line, Problem::WithoutEnd)),
    }
}

fn literal(word: &str) -> Option<&str> {
    word.strip_prefix('"')?.strip_suffix('"').filter(|text| !text.contains(['"', '\\']))
}

fn write(nodes: &[Node<'_>], data: &Value, to: &mut String) -> Located<()> {
    for node in nodes {
        match node {
            Node::Text(text) => to.push_str(text),
            Node::Insert { line, path, form } => {
                let inserted = path.value(data).ok_or_else(|| Problem::Missing(path.0.into()));
                let text = inserted.and_then(|value| form.text(value, *path));
                to.push_str(&text.map_err(|problem| (*line, problem))?);
            }
            Node::If { condition, then, otherwise } => {
                write(if condition.holds(data) { then } else { otherwise }, data, to)?;
            }
        }
    }
    Ok(())
}

impl<'t> Path<'t> {
    fn parse(text: &'t str) -> Option<Self> {
        let keys = text.strip_prefix(".Values.");
        let key = |key: &str| !key.is_empty() && key.chars().all(|letter| letter.is_ascii_alphanumeric());
        let known = match keys {
            Some(keys) => keys.split('.').all(key),
            None => [".Release.Namespace", ".Chart.AppVersion"].contains(&text),
        };
        known.then_some(Self(text))
    }

    fn value(self, data: &Value) -> Option<&Value> {
        let found = self.0.split('.').skip(1).try_fold(data, |value, key| value.get(key))?;
        (!found.is_null()).then_some(found)
    }
}

impl Condition<'_> {
    fn holds(&self, data: &Value) -> bool {
        match self {
            Self::Set(path) => path.value(data).is_some_and(is_set),
            Self::Differs(path, text) => path.value(data).and_then(Value::as_str) != Some(text),
        }
    }
}

/// What Go takes for true: everything but false, zero, and what is empty.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

impl Form {
    fn text(&self, value: &Value, path: Path<'_>) -> Result<String, Problem> {
        match self {
            Self::Plain => scalar(value, path),
            Self::Quoted => Ok(Value::String(scalar(value, path)?).to_string()),
            Self::Yaml { indent } => {
                let yaml = output::yaml(value).map_err(|_| Problem::NotYaml(path.0.into()))?;
                let line = |line| format!("\n{:indent$}{line}", "");
                Ok(yaml.trim_end().lines().map(line).collect())
            }
        }
    }
}

fn scalar(value: &Value, path: Path<'_>) -> Result<String, Problem> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(Problem::NotScalar(path.0.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::render;
    use serde_json::json;

    fn rendered(text: &str) -> String {
        let data = json!({
            "Values": {"name": "a", "count": 3, "none": "", "map": {"x": {"k": 1}, "z": [1, 2]}, "empty": {}},
            "Release": {"Namespace": "liqo"},
            "Chart": {"AppVersion": "0.1.0"},
        });
        render("t.yaml", text, &data).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn values_are_put_in_plain_or_quoted() {
        assert_eq!(rendered("n: {{ .Values.name }}-{{.Values.count}}"), "n: a-3");
        assert_eq!(rendered("{{ .Values.count | quote }} {{ .Release.Namespace | quote }}"), r#""3" "liqo""#);
        assert_eq!(rendered("v{{ .Chart.AppVersion }}"), "v0.1.0");
    }

    #[test]
    fn a_dash_takes_the_white_space_on_its_side() {
        assert_eq!(rendered("a \n {{- .Values.name }} \n b"), "aa \n b");
        assert_eq!(rendered("a {{ .Values.name -}} \n b"), "a ab");
    }

    #[test]
    fn a_block_is_indented_on_lines_of_its_own() {
        assert_eq!(
            rendered("m:\n  {{- toYaml .Values.map | nindent 2 }}\n"),
            "m:\n  x:\n    k: 1\n  z:\n  - 1\n  - 2\n"
        );
        assert_eq!(rendered("m:\n  {{- toYaml .Values.empty | nindent 2 }}"), "m:\n  {}");
    }

    #[test]
    fn one_branch_of_a_choice_is_rendered() {
        let choice =
            |condition| rendered(&format!("{{{{ if {condition} }}}}yes{{{{ else }}}}no{{{{ end }}}}"));
        assert_eq!(choice(".Values.name"), "yes");
        for unset in [".Values.none", ".Values.empty", ".Values.missing.deeper"] {
            assert_eq!(choice(unset), "no");
        }
        assert_eq!(choice("ne .Values.name \"b\""), "yes");
        assert_eq!(choice("ne .Values.name \"a\""), "no");
        assert_eq!(
            rendered("{{ if .Values.none }}1{{ else }}{{ if .Values.name }}2{{ end }}3{{ end }}"),
            "23"
        );
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_line() {
        for (template, complaint) in [
            ("\n{{ include \"x\" . }}", "t.yaml:2: {{ include \"x\" . }} is not understood"),
            ("{{ .Values }}", "t.yaml:1: {{ .Values }} is not understood"),
            ("{{ .Release.Name }}", "t.yaml:1: {{ .Release.Name }} is not understood"),
            ("{{ .Values.name | upper }}", "t.yaml:1: {{ .Values.name | upper }} is not understood"),
            ("\n\n{{ .Values.name", "t.yaml:3: {{ without }}"),
            ("{{ if .Values.none }}\n{{ x }}{{ end }}", "t.yaml:2: {{ x }} is not understood"),
            ("\n{{ if .Values.name }}", "t.yaml:2: if without end"),
            ("a\n{{ end }}", "t.yaml:2: {{ end }} without if"),
            ("{{ else }}", "t.yaml:1: {{ else }} without if"),
            ("{{ if .Values.name }}{{ else }}{{ else }}{{ end }}", "t.yaml:1: {{ else }} without if"),
        ] {
            assert_eq!(rendered(template), complaint);
        }
    }

    #[test]
    fn a_value_that_is_not_there_or_not_single_is_an_error() {
        assert_eq!(rendered("\n{{ .Values.missing }}"), "t.yaml:2: .Values.missing has no value");
        assert_eq!(
            rendered("{{ .Values.map | quote }}"),
            "t.yaml:1: .Values.map is not a single value; use toYaml"
        );
    }
}
