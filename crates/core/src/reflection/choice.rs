//! Whether an object goes to a cluster: what is needed there does, unless a person says otherwise.

use ferro_api::config::{ReflectionConfig, ReflectionMode};
use ferro_api::names::annotations;
use kube::core::DynamicObject;

use super::Kind;
use super::kind::kept_type;
use crate::admission::Place;
use crate::selector::{Selector, text};

/// Types of Secrets that mean something to their own cluster alone.
const OWN_TYPES: [&str; 3] =
    ["bootstrap.kubernetes.io/token", "helm.sh/release.v1", "kubernetes.io/service-account-token"];
/// Every namespace has one of these, by which its pods know their own API server.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Whether an object goes to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It does.
    Goes,
    /// It does not.
    Stays,
    /// It does not, since nobody knows to which it should: why.
    Unreadable(String),
}

/// Whether an object goes to the cluster of this node. What may be confidential does when it is needed there.
pub fn choose(
    kind: &Kind,
    original: &DynamicObject,
    config: &ReflectionConfig,
    is_needed: bool,
    node: Place<'_>,
) -> Choice {
    let meta = &original.metadata;
    if meta.deletion_timestamp.is_some() || is_its_clusters_own(kind, original) {
        return Choice::Stays;
    }
    let asked = annotations::REFLECT.of(meta);
    // A slice follows its Service, which is asked beside it: who makes slices copies no annotations to them.
    let follows = *kind == Kind::EndpointSlice && asked != Some("false");
    let goes = match mode(kind, config) {
        ReflectionMode::Never => false,
        ReflectionMode::OptIn => asked == Some("true") || follows,
        ReflectionMode::Auto => asked == Some("true") || (is_needed && asked != Some("false")),
    };
    match annotations::REFLECT_TO.of(meta) {
        _ if !goes => Choice::Stays,
        None => Choice::Goes,
        Some(to) => match text::parse(to).map(|selector| Selector::parse(&selector)) {
            Ok(Ok(selector)) if selector.matches(node.name, node.labels) => Choice::Goes,
            Ok(Ok(_)) => Choice::Stays,
            Ok(Err(problem)) => unreadable(&problem.to_string()),
            Err(problem) => unreadable(&problem),
        },
    }
}

fn unreadable(problem: &str) -> Choice {
    Choice::Unreadable(format!("the annotation {}: {problem}", annotations::REFLECT_TO.key()))
}

fn mode(kind: &Kind, config: &ReflectionConfig) -> ReflectionMode {
    match kind {
        Kind::Service | Kind::EndpointSlice => config.services(),
        Kind::ConfigMap => config.config_maps(),
        Kind::Secret => config.secrets(),
        Kind::Ingress => config.ingresses(),
        Kind::Custom(listed) if config.custom_resources.contains(listed) => ReflectionMode::Auto,
        Kind::Custom(_) => ReflectionMode::Never,
    }
}

/// What every cluster has of its own under this name, or as this type, whatever its annotations say.
fn is_its_clusters_own(kind: &Kind, original: &DynamicObject) -> bool {
    let name = original.metadata.name.as_deref();
    match kind {
        Kind::Service => {
            name == Some("kubernetes") && original.metadata.namespace.as_deref() == Some("default")
        }
        Kind::ConfigMap => name == Some(ROOT_CA),
        Kind::Secret => OWN_TYPES.contains(&kept_type(original)),
        Kind::EndpointSlice | Kind::Ingress | Kind::Custom(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn chosen(kind: &Kind, object: Value, config: Value, is_needed: bool) -> Choice {
        let mut object: DynamicObject = serde_json::from_value(object).unwrap();
        kind.keep_original()(&mut object);
        let labels = BTreeMap::from([("region".to_owned(), "eu".to_owned())]);
        let config = serde_json::from_value(config).unwrap();
        choose(kind, &object, &config, is_needed, Place { name: "liqo-turin", labels: &labels })
    }

    fn annotated(key: &str, value: &str) -> Value {
        json!({"metadata": {"name": "a", "namespace": "shop", "annotations": {key: value}}})
    }

    #[test]
    fn what_is_needed_goes_unless_it_opts_out_and_what_opts_in_goes_anyway() {
        let plain = json!({"metadata": {"name": "a"}});
        for (object, mode, is_needed, goes) in [
            (plain.clone(), "Auto", true, true),
            (plain.clone(), "Auto", false, false),
            (annotated("liqo.io/reflect", "false"), "Auto", true, false),
            (annotated("liqo.io/reflect", "true"), "Auto", false, true),
            (annotated("liqo.io/reflect", "true"), "OptIn", false, true),
            (plain.clone(), "OptIn", true, false),
            (annotated("liqo.io/reflect", "true"), "Never", true, false),
        ] {
            let config = json!({"configMaps": mode});
            let chosen = chosen(&Kind::ConfigMap, object.clone(), config, is_needed);
            assert_eq!(chosen == Choice::Goes, goes, "{object} {mode} {is_needed}");
        }
    }

    #[test]
    fn where_services_opt_in_a_slice_need_not_but_may_opt_out() {
        let (plain, config) = (json!({"metadata": {"name": "a"}}), json!({"services": "OptIn"}));
        for (kind, object, expected) in [
            (Kind::Service, plain.clone(), Choice::Stays),
            (Kind::Service, annotated("liqo.io/reflect", "true"), Choice::Goes),
            (Kind::EndpointSlice, plain.clone(), Choice::Goes),
            (Kind::EndpointSlice, annotated("liqo.io/reflect", "false"), Choice::Stays),
        ] {
            assert_eq!(chosen(&kind, object.clone(), config.clone(), true), expected, "{kind:?} {object}");
        }
        assert_eq!(chosen(&Kind::EndpointSlice, plain, json!({"services": "Never"}), true), Choice::Stays);
    }

    #[test]
    fn some_never_leave_home_whatever_somebody_asks_for() {
        let root =
            json!({"metadata": {"name": "kube-root-ca.crt", "annotations": {"liqo.io/reflect": "true"}}});
        assert_eq!(chosen(&Kind::ConfigMap, root, json!({}), true), Choice::Stays);
        for type_ in OWN_TYPES {
            let mut secret = annotated("liqo.io/reflect", "true");
            secret["type"] = type_.into();
            assert_eq!(chosen(&Kind::Secret, secret, json!({}), true), Choice::Stays, "{type_}");
        }
        let api_server = json!({"metadata": {"name": "kubernetes", "namespace": "default"}});
        assert_eq!(chosen(&Kind::Service, api_server, json!({}), true), Choice::Stays);
        let going = json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(chosen(&Kind::Service, going, json!({}), true), Choice::Stays);
    }

    #[test]
    fn a_selector_chooses_among_clusters_and_one_that_nobody_understands_chooses_none() {
        let to =
            |selector| chosen(&Kind::Service, annotated("liqo.io/reflect-to", selector), json!({}), true);
        assert_eq!(to("region=eu"), Choice::Goes);
        assert_eq!(to("region in (us); metadata.name=liqo-turin"), Choice::Goes);
        assert_eq!(to("region!=eu"), Choice::Stays);
        assert!(matches!(to("region is eu"), Choice::Unreadable(why) if why.contains("liqo.io/reflect-to")));
    }
}
