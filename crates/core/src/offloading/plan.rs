//! From what has changed to the wanted writes.

use std::collections::BTreeMap;
use std::mem::take;

use ferro_api::names::{annotations, finalizers};
use ferro_api::offloading::{NamespaceOffloading, NamespaceOffloadingSpec, PodOffloadingStrategy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::index::{Home, Index, Offloading};
use super::judgement::{Outlook, Wanted, outlook};
use super::maps::Entries;
use super::report::Report;
use super::{Notice, OFFLOADING, Write, refusal};

impl Index {
    /// What is to be written because of all that has changed since the last plan, in order. Whoever cannot perform one
    /// of the writes says so with [`Index::again`].
    pub fn plan(&mut self, now: Timestamp) -> Vec<Write> {
        let (namespaces, mut clusters) = (take(&mut self.unsettled), take(&mut self.unsettled_clusters));
        let (mut writes, mut entries) = (Vec::new(), BTreeMap::new());
        for namespace in &namespaces {
            writes.extend(self.plan_namespace(namespace, now));
            self.collect_entries(namespace, &mut entries);
        }
        clusters.extend(entries.keys().cloned());
        for id in &clusters {
            writes.extend(self.plan_map(id, entries.remove(id).unwrap_or_default()));
        }
        writes.sort_by_key(Write::stage);
        writes
    }

    fn plan_namespace(&self, namespace: &str, now: Timestamp) -> Vec<Write> {
        let home = self.namespaces.get(namespace).filter(|home| !home.going);
        match self.offloadings.get(namespace) {
            None => home.map(|home| self.follow_label(namespace, home, now)).unwrap_or_default(),
            Some(offloading) if offloading.is_going() => {
                let dismissal = home.and_then(|home| home.dismissal(namespace));
                dismissal.into_iter().chain(self.part(namespace, offloading, now)).collect()
            }
            // First, so that nothing is left behind by a deletion.
            Some(offloading) if !offloading.is_held() => vec![Write::Hold(namespace.to_owned())],
            Some(offloading) => {
                let here = home.map(|home| keep(namespace, home, offloading)).unwrap_or_default();
                here.into_iter().chain(self.show(namespace, offloading, now)).collect()
            }
        }
    }

    /// A namespace without an offloading: the label may ask for one.
    fn follow_label(&self, namespace: &str, home: &Home, now: Timestamp) -> Vec<Write> {
        let refusal = refusal::of_label(namespace, &self.own, &self.installation).filter(|_| home.enabled);
        let told = match (&refusal, &home.refusal) {
            (Some(why), told) if told.as_deref() != Some(why.word()) => {
                Some(refusal::tell(namespace, why, now))
            }
            (None, Some(_)) => Some(refusal::take_back(namespace)),
            (Some(_), _) | (None, None) => None,
        };
        let made =
            (home.enabled && refusal.is_none()).then(|| Write::Create(Box::new(made_by_label(namespace))));
        home.dismissal(namespace).into_iter().chain(told).chain(made).collect()
    }

    /// The conditions go before the finalizer, and the finalizer when nothing is left over there.
    fn part(&self, namespace: &str, offloading: &Offloading, now: Timestamp) -> Option<Write> {
        if !offloading.is_held() {
            return None;
        }
        let awaited = self.waits_for(namespace);
        let status = offloading.object.status.as_ref();
        let is_clear = status.is_none_or(|status| status.remote_namespaces_conditions.is_empty());
        if offloading.is_forced() || (awaited.is_empty() && is_clear) {
            return Some(Write::LetGo(namespace.to_owned()));
        }
        let outlooks =
            if awaited.is_empty() { BTreeMap::new() } else { self.outlooks(namespace, offloading) };
        Report::of_end(namespace, offloading, &outlooks, &awaited).write(now)
    }

    fn show(&self, namespace: &str, offloading: &Offloading, now: Timestamp) -> Option<Write> {
        let outlooks = self.outlooks(namespace, offloading);
        Report::of_use(namespace, offloading, &outlooks).write(now)
    }

    /// How a namespace fares on each cluster that has to do with it, by the cluster's name and identifier.
    fn outlooks(&self, namespace: &str, offloading: &Offloading) -> BTreeMap<String, (String, Outlook)> {
        let on = |(id, cluster): (&String, _)| {
            let wanted = self.wanted(namespace, offloading, cluster);
            let outlook = outlook(namespace, id, cluster, &wanted)?;
            Some((id.clone(), (cluster.name(id).to_owned(), outlook)))
        };
        self.clusters.iter().filter_map(on).collect()
    }

    /// The entries of a namespace that are not in the maps as they should be, by cluster.
    fn collect_entries(&self, namespace: &str, entries: &mut BTreeMap<String, Entries>) {
        let offloading = self.offloadings.get(namespace);
        // It is held first: nothing is asked for that would not be taken back, and nothing is taken back meanwhile.
        if offloading.is_some_and(|offloading| !offloading.is_held() && !offloading.is_going()) {
            return;
        }
        let offloading = offloading.filter(|offloading| offloading.is_held());
        for (id, cluster) in &self.clusters {
            let wanted =
                offloading.map_or(Wanted::Nothing, |offloading| self.wanted(namespace, offloading, cluster));
            let lingers = offloading.is_some_and(|offloading| offloading.lingers(namespace, cluster));
            if wanted == Wanted::Nothing && lingers {
                continue;
            }
            if wanted.entry() != cluster.desired(namespace) {
                let entry = wanted.entry().map(str::to_owned);
                entries.entry(id.clone()).or_default().insert(namespace.to_owned(), entry);
            }
        }
    }
}

impl Home {
    fn dismissal(&self, namespace: &str) -> Option<Write> {
        self.admitted.then(|| Write::Dismiss(namespace.to_owned()))
    }
}

/// What a namespace needs that is offloaded; what the label has made goes with it.
fn keep(namespace: &str, home: &Home, offloading: &Offloading) -> Vec<Write> {
    if offloading.is_made_by_label() && !home.enabled {
        return vec![Write::Delete(namespace.to_owned())];
    }
    let marking = match (offloading.enforced, home.admitted) {
        (true, false) => Some(Write::Admit(namespace.to_owned(), restart(namespace, offloading))),
        (false, true) => Some(Write::Dismiss(namespace.to_owned())),
        (true, true) | (false, false) => None,
    };
    let taken_back = home.refusal.is_some().then(|| refusal::take_back(namespace));
    marking.into_iter().chain(taken_back).collect()
}

/// Pods are told where they may run only when they are created.
fn restart(namespace: &str, offloading: &Offloading) -> Option<Notice> {
    let note = format!(
        "pods that exist already stay as they are; those that shall use other clusters, too, have to be restarted, as by: \
         kubectl rollout restart deployment --namespace {namespace}"
    );
    match offloading.object.spec.pod_offloading_strategy() {
        PodOffloadingStrategy::Local => None,
        PodOffloadingStrategy::LocalAndRemote | PodOffloadingStrategy::Remote => {
            Some(Notice { warning: false, reason: "RestartPods".to_owned(), note })
        }
    }
}

/// The offloading that the label stands for: everything is spelt out, for people to see and to change.
fn made_by_label(namespace: &str) -> NamespaceOffloading {
    let spec = NamespaceOffloadingSpec::default();
    let mut metadata = ObjectMeta {
        name: Some(OFFLOADING.to_owned()),
        namespace: Some(namespace.to_owned()),
        finalizers: Some(vec![finalizers::OFFLOADING.to_owned()]),
        ..ObjectMeta::default()
    };
    annotations::CREATED_BY_LABEL.put_on(&mut metadata, "true");
    let spec = NamespaceOffloadingSpec {
        namespace_mapping_strategy: Some(spec.namespace_mapping_strategy()),
        pod_offloading_strategy: Some(spec.pod_offloading_strategy()),
        cluster_selector: Some(spec.cluster_selector()),
    };
    NamespaceOffloading { metadata, spec, status: None }
}
