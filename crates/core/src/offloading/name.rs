//! What a namespace is called on other clusters, and which names it cannot have there.

use ferro_api::offloading::{NamespaceMappingStrategy, NamespaceOffloadingSpec, PodOffloadingStrategy};

use crate::names::{is_beyond_the_webhook, is_installation, is_reserved_namespace};

/// As long as the name of a namespace may be.
const MOST: usize = 63;

/// The name that a namespace of this cluster has on others.
///
/// The identifier of the home cluster makes a default name unique among all consumers of a provider. Under its own name a
/// namespace could be taken for one that a provider's own parts live in, so those names are out of the question.
pub fn remote_name(
    strategy: NamespaceMappingStrategy,
    namespace: &str,
    own_cluster_id: &str,
) -> Result<String, NameError> {
    match strategy {
        NamespaceMappingStrategy::DefaultName => {
            let most = MOST.saturating_sub(own_cluster_id.len() + 1);
            if namespace.len() > most {
                return Err(NameError::TooLong { namespace: namespace.to_owned(), most });
            }
            Ok(format!("{namespace}-{own_cluster_id}"))
        }
        NamespaceMappingStrategy::EnforceSameName if is_reserved_namespace(namespace) => {
            Err(NameError::Reserved { namespace: namespace.to_owned() })
        }
        NamespaceMappingStrategy::EnforceSameName => Ok(namespace.to_owned()),
    }
}

/// The name that a namespace of this cluster has on others, if it can be offloaded to them at all.
///
/// Pods of some namespaces are never shown to the webhook: nothing could keep them where they may be, so that only
/// their Services are for others.
pub(super) fn offloaded_name(
    spec: &NamespaceOffloadingSpec,
    namespace: &str,
    own_cluster_id: &str,
    installation: &str,
) -> Result<String, NameError> {
    let remote = remote_name(spec.namespace_mapping_strategy(), namespace, own_cluster_id)?;
    if is_installation(&remote, installation) {
        return Err(NameError::Reserved { namespace: namespace.to_owned() });
    }
    if !is_enforced(spec, namespace, installation) {
        return Err(NameError::Unguarded { namespace: namespace.to_owned() });
    }
    Ok(remote)
}

/// Whether the webhook can keep the pods of a namespace where they may be.
pub(super) fn is_enforced(spec: &NamespaceOffloadingSpec, namespace: &str, installation: &str) -> bool {
    spec.pod_offloading_strategy() == PodOffloadingStrategy::Local
        || !is_beyond_the_webhook(namespace, installation)
}

/// Why a namespace cannot be offloaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// With the identifier of this cluster it is too long.
    #[error(
        "with DefaultName the name of a namespace has at most {most} characters, since the identifier of this cluster is \
         added to it, and {namespace} has {}; use a namespace with a shorter name, or EnforceSameName", namespace.len()
    )]
    TooLong {
        /// The namespace.
        namespace: String,
        /// How long its name may be.
        most: usize,
    },
    /// Every cluster needs it for itself.
    #[error(
        "the name {namespace} is one that every cluster needs for itself, and so cannot be enforced on another one; use \
         DefaultName, or another namespace"
    )]
    Reserved {
        /// The namespace.
        namespace: String,
    },
    /// Its pods are not shown to the webhook.
    #[error(
        "pods of {namespace} are never shown to the webhook, since clusters depend on them, and so could not be kept where \
         they may be; use podOffloadingStrategy Local, with which only its Services are for other clusters, or another \
         namespace"
    )]
    Unguarded {
        /// The namespace.
        namespace: String,
    },
}

impl NameError {
    /// One word, as in a condition.
    pub fn word(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "NameTooLong",
            Self::Reserved { .. } => "NameReserved",
            Self::Unguarded { .. } => "PodsUnguarded",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NameError, offloaded_name, remote_name};
    use ferro_api::offloading::NamespaceMappingStrategy::{DefaultName, EnforceSameName};
    use serde_json::json;

    const HOME: &str = "d14e610e-4c1b-402c-a5f1-5ef6f39c0490";

    #[test]
    fn a_default_name_ends_with_the_identifier_of_the_home_cluster() {
        let name = remote_name(DefaultName, "ns-test", HOME);
        assert_eq!(name, Ok("ns-test-d14e610e-4c1b-402c-a5f1-5ef6f39c0490".to_owned()));
    }

    #[test]
    fn a_name_of_26_characters_fits_and_one_of_27_is_refused_with_the_number() {
        let fits = remote_name(DefaultName, &"a".repeat(26), HOME).unwrap();
        assert_eq!(fits.len(), 63);
        let error = remote_name(DefaultName, &"a".repeat(27), HOME).unwrap_err();
        assert_eq!(error.word(), "NameTooLong");
        assert!(error.to_string().contains("at most 26 characters"), "{error}");
        assert_eq!(remote_name(EnforceSameName, &"a".repeat(63), HOME), Ok("a".repeat(63)));
    }

    #[test]
    fn pods_that_no_webhook_sees_stay_at_home() {
        let with = |pods: &str| serde_json::from_value(json!({"podOffloadingStrategy": pods})).unwrap();
        for name in ["kube-system", "mine"] {
            for pods in ["LocalAndRemote", "Remote"] {
                let error = offloaded_name(&with(pods), name, HOME, "mine").unwrap_err();
                assert_eq!(
                    (error.word(), error),
                    ("PodsUnguarded", NameError::Unguarded { namespace: name.into() })
                );
            }
            assert_eq!(offloaded_name(&with("Local"), name, HOME, "mine"), Ok(format!("{name}-{HOME}")));
        }
        assert!(offloaded_name(&with("Remote"), "mine-keys", HOME, "mine").is_ok());
    }

    #[test]
    fn names_that_every_cluster_needs_are_enforced_on_none() {
        for name in ["default", "kube-system", "kube-public", "liqo", "liqo-keys", "liqo-tenant-x-1"] {
            let error = remote_name(EnforceSameName, name, HOME);
            assert_eq!(error, Err(NameError::Reserved { namespace: name.into() }));
            assert!(remote_name(DefaultName, name, HOME).is_ok());
        }
        for name in ["kubeflow", "defaults", "liquid", "liqonet"] {
            assert!(remote_name(EnforceSameName, name, HOME).is_ok(), "{name}");
        }
    }
}
