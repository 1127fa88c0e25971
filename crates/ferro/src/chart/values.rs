//! The values that fill in the chart: its defaults, under values files, under `--set`.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{DEFAULTS, SCHEMA, schema, set};

/// The chart's values with these files and assignments on top, later ones over earlier ones.
pub(crate) fn collect(
    files: &[PathBuf],
    assignments: &[String],
    name: Option<&str>,
) -> anyhow::Result<Value> {
    let mut wishes = json!({});
    for path in files {
        merge(&mut wishes, read(path)?);
    }
    for assignment in assignments {
        set::assign(&mut wishes, assignment)?;
    }
    if let Some(name) = name {
        wishes["clusterName"] = name.into();
    }
    let mut values = serde_saphyr::from_str(DEFAULTS)?;
    merge(&mut values, wishes);
    drop_nulls(&mut values);
    check(&values)?;
    Ok(values)
}

/// Gives the cluster this name, unless the values have one already.
pub(crate) fn name_by_default(values: &mut Value, name: String) {
    if cluster_name(values).is_none() {
        values["clusterName"] = name.into();
    }
}

/// The name that the values give to the cluster.
pub(crate) fn cluster_name(values: &Value) -> Option<&str> {
    let places = [&values["clusterName"], &values["discovery"]["config"]["name"]];
    places.into_iter().filter_map(Value::as_str).find(|name| !name.is_empty())
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let values: Option<Value> =
        serde_saphyr::from_str(&text).with_context(|| format!("{} is not YAML", path.display()))?;
    let values = values.unwrap_or_else(|| json!({}));
    ensure!(values.is_object(), "{} does not hold values, which are a map of settings", path.display());
    Ok(values)
}

/// Maps are merged, everything else is replaced.
fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

/// A null takes a default away, as with Helm.
fn drop_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(drop_nulls);
    }
}

fn check(values: &Value) -> anyhow::Result<()> {
    let problems = schema::problems(values, &serde_json::from_str(SCHEMA)?);
    ensure!(
        problems.is_empty(),
        "the values are not right; 'ferro install --show-values' prints all there are:\n  {}",
        problems.join("\n  ")
    );
    let given = |place: &Value| place.as_str().is_some_and(|name| !name.is_empty());
    ensure!(
        !(given(&values["clusterName"]) && given(&values["discovery"]["config"]["name"])),
        "the cluster has two names: leave out clusterName or discovery.config.name"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{cluster_name, collect, name_by_default};
    use std::fs;
    use std::path::PathBuf;

    fn set(assignments: &[&str]) -> anyhow::Result<serde_json::Value> {
        let assignments: Vec<_> = assignments.iter().map(|&text| text.to_owned()).collect();
        collect(&[], &assignments, None)
    }

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ferro-values-{}-{name}.yaml", std::process::id()));
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn the_defaults_are_fine_as_they_are() {
        let values = set(&[]).unwrap();
        assert_eq!(values["image"]["repository"], "ferro");
        assert_eq!(cluster_name(&values), None);
    }

    #[test]
    fn assignments_win_over_later_files_and_those_over_earlier_ones() {
        let files = [
            file("first", "logLevel: debug\nimage: {tag: one, repository: mirror/ferro}\n"),
            file("second", "image: {tag: two}\ncontroller: {replicas: 2}\n"),
            file("empty", "# nothing\n"),
        ];
        let values = collect(&files, &["controller.replicas=3".into()], Some("milan")).unwrap();
        for path in &files {
            fs::remove_file(path).unwrap();
        }
        assert_eq!(values["logLevel"], "debug");
        assert_eq!(values["image"]["tag"], "two");
        assert_eq!(values["image"]["repository"], "mirror/ferro");
        assert_eq!(values["image"]["pullPolicy"], "IfNotPresent");
        assert_eq!(values["controller"]["replicas"], 3);
        assert_eq!(cluster_name(&values), Some("milan"));
    }

    #[test]
    fn null_takes_a_default_away() {
        let values = set(&["resources.limits=null"]).unwrap();
        assert!(values["resources"].get("limits").is_none());
    }

    #[test]
    fn a_key_that_is_not_known_is_refused_with_the_nearest_one() {
        let error = set(&["controler.replicas=2", "auth.service.typ=NodePort"]).unwrap_err().to_string();
        assert!(error.contains("controler: there is no such setting; did you mean controller?"), "{error}");
        assert!(error.contains("did you mean auth.service.type?"), "{error}");
    }

    #[test]
    fn a_cluster_has_one_name_and_keeps_the_one_it_was_given() {
        assert!(set(&["clusterName=a", "discovery.config.name=b"]).is_err());
        let mut values = set(&["discovery.config.name=b"]).unwrap();
        name_by_default(&mut values, "c".into());
        assert_eq!(cluster_name(&values), Some("b"));
        let mut values = set(&[]).unwrap();
        name_by_default(&mut values, "c".into());
        assert_eq!(cluster_name(&values), Some("c"));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let missing = collect(&["missing.yaml".into()], &[], None).unwrap_err().to_string();
        assert!(missing.contains("missing.yaml"), "{missing}");
        let list = file("list", "- a\n");
        let error = collect(std::slice::from_ref(&list), &[], None).unwrap_err().to_string();
        fs::remove_file(list).unwrap();
        assert!(error.contains("a map of settings"), "{error}");
    }
}
