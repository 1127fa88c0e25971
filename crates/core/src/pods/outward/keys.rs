//! Which labels and annotations of a pod travel, and which of those a provider keeps.
//!
//! Labels are what Services select pods by, so all go but ours. Annotations are also how pods talk to the machinery of a
//! cluster, some of it with more rights than a pod has: what is known to listen is not told anything.

use ferro_api::names::{annotations, labels};

/// The domain of all our keys.
const OURS: &str = "liqo.io";
/// Where at home a pod runs; set by its API server.
const PLACE: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Those of pods that a kubelet makes from files.
const STATIC: &str = "kubernetes.io/config.";

/// Domains of Kubernetes in which annotations tell nothing to anybody but users.
const HARMLESS: [&str; 4] =
    ["app.kubernetes.io", "apps.kubernetes.io", "batch.kubernetes.io", "kubectl.kubernetes.io"];
/// Domains whose annotations are read by schedulers, autoscalers, networks, meshes, runtimes, clouds, load balancers and
/// controllers of Ingresses.
const HEARD: [&str; 24] = [
    OURS,
    "amazonaws.com",
    "antrea.io",
    "azure.com",
    "cilium.io",
    "cncf.io",
    "gke.io",
    "google.com",
    "haproxy.org",
    "istio.io",
    "k8s.io",
    "konghq.com",
    "kubernetes.io",
    "linkerd.io",
    "metallb.io",
    "metallb.universe.tf",
    "nginx.com",
    "nginx.org",
    "nri.io",
    "openshift.io",
    "projectcalico.org",
    "projectcontour.io",
    "traefik.io",
    "workload.identity",
];
/// How keys begin that container runtimes read, some of them as orders.
const RUNTIMES: [&str; 6] = [
    "com.github.containers.",
    "io.containerd.",
    "io.katacontainers.",
    "io.kubernetes.",
    "org.systemd.",
    "run.oci.",
];

/// Whether a label leaves home.
pub fn label_travels(key: &str) -> bool {
    !is_in(key, OURS) && !PLACE.contains(&key)
}

/// Whether a provider keeps a label.
pub fn label_is_kept(key: &str, value: &str) -> bool {
    let is_of_an_installation = key == labels::PART_OF.key() && value == labels::PART_OF.value();
    label_travels(key) && !is_of_an_installation
}

/// Whether an annotation leaves home.
pub fn annotation_travels(key: &str) -> bool {
    !is_in(key, OURS) && key != LAST_APPLIED && !key.starts_with(STATIC)
}

/// Whether a provider keeps an annotation.
pub fn annotation_is_kept(key: &str, value: &str) -> bool {
    if [annotations::ORIGIN_UID, annotations::ORIGIN_NAMESPACE].iter().any(|own| own.key() == key) {
        return is_plain(value);
    }
    // Keys of annotations need not be in small letters.
    let key = key.to_ascii_lowercase();
    let is_heard = HEARD.iter().any(|domain| is_in(&key, domain))
        || RUNTIMES.iter().any(|beginning| key.starts_with(beginning));
    annotation_travels(&key) && (!is_heard || HARMLESS.iter().any(|domain| domain_of(&key) == *domain))
}

/// Whether a text can only be the name of a namespace, or a UID.
fn is_plain(value: &str) -> bool {
    value.len() <= 63 && value.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
}

/// Whether a key is of this domain or of one below.
fn is_in(key: &str, domain: &str) -> bool {
    domain_of(key).strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn domain_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_stays_at_home_and_what_only_looks_so_travels() {
        for key in ["liqo.io/x", "offloading.liqo.io/admitted", "a.b.liqo.io/x"] {
            assert!(!label_travels(key) && !annotation_travels(key), "{key}");
        }
        for key in ["app", "app.kubernetes.io/name", "notliqo.io/x", "liqo.io.example.org/x", "liqo.io"] {
            assert!(label_travels(key) && annotation_travels(key), "{key}");
        }
        for key in [LAST_APPLIED, "kubernetes.io/config.hash", "kubernetes.io/config.source"] {
            assert!(!annotation_travels(key), "{key}");
        }
    }

    #[test]
    fn services_of_a_consumer_find_its_pods_by_every_label_but_the_marks_of_an_installation() {
        for key in
            ["app", "app.kubernetes.io/part-of", "statefulset.kubernetes.io/pod-name", "pod-template-hash"]
        {
            assert!(label_is_kept(key, "shop"), "{key}");
        }
        assert!(!label_is_kept("app.kubernetes.io/part-of", "ferrofluid"));
        assert!(!label_is_kept("virtualkubelet.liqo.io/shadowed", "true"));
    }

    #[test]
    fn annotations_that_the_machinery_of_a_provider_listens_to_are_not_kept() {
        for key in [
            "liqo.io/x",
            "Liqo.IO/x",
            "cluster-autoscaler.kubernetes.io/safe-to-evict",
            "container.apparmor.security.beta.kubernetes.io/main",
            "k8s.v1.cni.cncf.io/networks",
            "cni.projectcalico.org/ipAddrs",
            "iam.amazonaws.com/role",
            "io.kubernetes.cri-o.Devices",
            "io.katacontainers.config.hypervisor.path",
            "run.oci.hooks.stdin",
            LAST_APPLIED,
        ] {
            assert!(!annotation_is_kept(key, "x"), "{key}");
        }
        for key in ["note", "example.org/owner", "prometheus.io/scrape", "kubectl.kubernetes.io/restartedAt"]
        {
            assert!(annotation_is_kept(key, "x"), "{key}");
        }
        assert!(annotation_is_kept("batch.kubernetes.io/job-completion-index", "3"));
    }

    /// The domains that the policy of providers forbids.
    fn forbidden() -> Vec<String> {
        let policy = include_str!("../../../../../deploy/chart/templates/reflection-policy.yaml");
        let (_, rest) = policy.split_once(r#"!key.matches("(?i)^([^/]*[.])?("#).unwrap();
        let (domains, _) = rest.split_once(r#")/""#).unwrap();
        domains.split('|').map(|domain| domain.replace("[.]", ".")).collect()
    }

    #[test]
    fn what_a_provider_refuses_at_a_service_or_an_ingress_is_not_sent_there() {
        let forbidden = forbidden();
        assert!(forbidden.contains(&"metallb.universe.tf".to_owned()), "{forbidden:?}");
        for domain in forbidden {
            assert!(domain.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '.'), "{domain}");
            for key in [format!("{domain}/x"), format!("a.{domain}/x"), format!("A.{domain}/x")] {
                assert!(!annotation_is_kept(&key, "x"), "{key}");
            }
        }
    }

    #[test]
    fn where_a_pod_comes_from_is_kept_as_long_as_it_is_a_name() {
        assert!(annotation_is_kept(annotations::ORIGIN_NAMESPACE.key(), "shop"));
        assert!(annotation_is_kept(annotations::ORIGIN_UID.key(), "b2f1-77"));
        assert!(!annotation_is_kept(annotations::ORIGIN_NAMESPACE.key(), "a b"));
        assert!(!annotation_is_kept(annotations::ORIGIN_UID.key(), &"a".repeat(64)));
    }
}
