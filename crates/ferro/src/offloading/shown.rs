//! Offloaded namespaces as a table, with what is wrong below it.

use ferro_api::offloading::{
    NamespaceMappingStrategy, NamespaceOffloading, OffloadingPhase, PodOffloadingStrategy, condition,
};
use ferro_core::selector;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::{Seat, name, seats, state};
use crate::peers::Names;
use crate::{output, table};

/// How many clusters the narrow table names.
const SHOWN: usize = 3;

const NARROW: [&str; 6] = ["NAMESPACE", "MAPPING", "PODS", "PHASE", "READY", "CLUSTERS"];

/// The table of these namespaces.
pub(crate) fn table(
    offloadings: &[NamespaceOffloading],
    names: &Names,
    wide: bool,
    now: Timestamp,
) -> String {
    let more: &[&str] = if wide { &["SELECTOR"] } else { &[] };
    let head = [NARROW.as_slice(), more, &["AGE"]].concat().into_iter().map(str::to_owned).collect();
    let rows = offloadings.iter().map(|offloading| row(offloading, names, wide, now));
    table::aligned(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

fn row(offloading: &NamespaceOffloading, names: &Names, wide: bool, now: Timestamp) -> Vec<String> {
    let (spec, seats) = (&offloading.spec, seats(offloading, names));
    let ready = seats.iter().filter(|seat| seat.is_ready).count();
    let mut row = vec![
        name(offloading),
        mapping(spec.namespace_mapping_strategy()).into(),
        pods(spec.pod_offloading_strategy()).into(),
        state(offloading).map_or(table::NOTHING, phase).into(),
        format!("{ready}/{}", seats.len()),
        clusters(&seats, if wide { usize::MAX } else { SHOWN }),
    ];
    if wide {
        row.push(selector::text::text(&spec.cluster_selector()));
    }
    row.push(table::since(offloading.creation_timestamp().map(|created| created.0), now));
    row.into_iter().map(|cell| output::plain(&cell)).collect()
}

/// The clusters, and of those that are not ready the reason.
fn clusters(seats: &[Seat<'_>], most: usize) -> String {
    let word = |seat: &Seat<'_>| {
        let why = if seat.is_ready { String::new() } else { format!(" ({})", seat.state) };
        format!("{}{why}", seat.cluster)
    };
    let mut words: Vec<_> = seats.iter().take(most).map(word).collect();
    if seats.len() > most {
        words.push(format!("{} more", seats.len() - most));
    }
    if words.is_empty() { table::NOTHING.into() } else { words.join(", ") }
}

/// What is wrong with a namespace, and what to do about it.
pub(crate) fn complaints(offloading: &NamespaceOffloading, names: &Names) -> Vec<String> {
    let namespace = name(offloading);
    let about = |said: &str| format!("{namespace}: {said}");
    match state(offloading) {
        Some(OffloadingPhase::NoClusterSelected | OffloadingPhase::Terminating) => {
            summary(offloading).map(about).into_iter().collect()
        }
        Some(OffloadingPhase::Ready | OffloadingPhase::SomeFailed | OffloadingPhase::AllFailed) | None => {
            let seats = seats(offloading, names);
            seats.iter().filter(|seat| !seat.is_ready).map(|seat| about(&seat.told())).collect()
        }
    }
}

/// What is said of the offloading as a whole, if not all is well.
pub(crate) fn summary(offloading: &NamespaceOffloading) -> Option<&str> {
    let mut conditions = offloading.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.find(|shown| shown.type_ == condition::READY && shown.status != "True");
    ready.map(|ready| ready.message.as_str())
}

/// The word for a phase.
pub(crate) fn phase(phase: OffloadingPhase) -> &'static str {
    match phase {
        OffloadingPhase::Ready => "Ready",
        OffloadingPhase::NoClusterSelected => "NoClusterSelected",
        OffloadingPhase::SomeFailed => "SomeFailed",
        OffloadingPhase::AllFailed => "AllFailed",
        OffloadingPhase::Terminating => "Terminating",
    }
}

/// The word for what a namespace is called on other clusters.
pub(crate) fn mapping(strategy: NamespaceMappingStrategy) -> &'static str {
    match strategy {
        NamespaceMappingStrategy::DefaultName => "DefaultName",
        NamespaceMappingStrategy::EnforceSameName => "EnforceSameName",
    }
}

/// The word for where pods may run.
pub(crate) fn pods(strategy: PodOffloadingStrategy) -> &'static str {
    match strategy {
        PodOffloadingStrategy::LocalAndRemote => "LocalAndRemote",
        PodOffloadingStrategy::Local => "Local",
        PodOffloadingStrategy::Remote => "Remote",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{condition, half, names, offloading};
    use super::{complaints, table};
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    fn now() -> Timestamp {
        "2030-01-01T00:00:42Z".parse().unwrap()
    }

    #[test]
    fn the_table_shows_each_namespace_with_its_clusters() {
        let term = json!({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]});
        let lab = json!({"namespaceMappingStrategy": "EnforceSameName", "podOffloadingStrategy": "Remote",
            "clusterSelector": {"nodeSelectorTerms": [term]}});
        let all = [offloading("lab", &lab, &json!(null)), offloading("shop", &json!({}), &half())];
        assert_eq!(
            table(&all, &names(), false, now()),
            "\
NAMESPACE   MAPPING           PODS             PHASE        READY   CLUSTERS                             AGE
lab         EnforceSameName   Remote           -            0/0     -                                    42s
shop        DefaultName       LocalAndRemote   SomeFailed   1/2     milan (CreationLoopBackOff), turin   42s
"
        );
        let wide = table(&all, &names(), true, now());
        assert!(wide.contains("gpu") && wide.contains("liqo.io/type=virtual-node"), "{wide}");
    }

    #[test]
    fn what_is_wrong_is_told_in_the_words_of_its_condition() {
        let shop = offloading("shop", &json!({}), &half());
        assert_eq!(complaints(&shop, &names()), ["shop: milan has a namespace of that name"]);
        let alone = json!({"offloadingPhase": "NoClusterSelected", "observedGeneration": 1, "conditions": [
            condition("Ready", false, "NoClusterSelected", "no cluster matches the selector"),
        ]});
        assert_eq!(
            complaints(&offloading("lab", &json!({}), &alone), &names()),
            ["lab: no cluster matches the selector"]
        );
    }

    #[test]
    fn many_clusters_are_counted() {
        use super::{Seat, clusters};
        let names: Vec<_> = (0..5).map(|number| format!("c{number}")).collect();
        let seat = |name| Seat { cluster: name, is_ready: true, state: "Ready", message: "" };
        let seats: Vec<_> = names.iter().map(|name| seat(name)).collect();
        assert_eq!(clusters(&seats, 3), "c0, c1, c2, 2 more");
        assert_eq!(clusters(&seats[..2], 3), "c0, c1");
        assert_eq!(clusters(&[], 3), "-");
    }
}
