//! The two pages of a kubelet: `/metrics/resource` for metrics-server, and `/stats/summary`.

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Counter, Lodger, Meter, Used};

/// The series of a page, in the order of a kubelet.
const SERIES: [(&str, &str, &str); 8] = [
    ("container_cpu_usage_seconds_total", "counter", "CPU time that the container has used, in core-seconds"),
    ("container_memory_working_set_bytes", "gauge", "Working set of the container in bytes"),
    ("container_start_time_seconds", "gauge", "Since when the container is counted, in seconds since 1970"),
    ("node_cpu_usage_seconds_total", "counter", "CPU time that pods on the node have used, in core-seconds"),
    ("node_memory_working_set_bytes", "gauge", "Working set of the pods on the node in bytes"),
    ("pod_cpu_usage_seconds_total", "counter", "CPU time that the pod has used, in core-seconds"),
    ("pod_memory_working_set_bytes", "gauge", "Working set of the pod in bytes"),
    ("resource_scrape_error", "gauge", "1 if there was an error while getting the figures, 0 otherwise"),
];

/// Lines of each series.
#[derive(Default)]
struct Lines([String; SERIES.len()]);

impl Lines {
    fn add(&mut self, series: usize, labels: &str, value: &str, at: Option<Timestamp>) {
        let (Some(lines), Some((name, _, _))) = (self.0.get_mut(series), SERIES.get(series)) else { return };
        let at = at.map(|at| format!(" {}", at.as_millisecond())).unwrap_or_default();
        // Writing to a string cannot fail.
        _ = writeln!(lines, "{name}{labels} {value}{at}");
    }

    fn page(self) -> String {
        let mut page = String::new();
        for ((name, kind, help), lines) in SERIES.iter().zip(self.0) {
            if !lines.is_empty() {
                _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
            }
        }
        page
    }
}

fn seconds(nanoseconds: u128) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

fn since(counter: &Counter) -> String {
    let milliseconds = counter.since.as_millisecond().max(0);
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

impl Meter {
    /// What these pods use, in the text format of Prometheus.
    pub fn metrics(&self, lodgers: &[Lodger], now: Timestamp) -> String {
        let (mut lines, told) = (Lines::default(), self.told(lodgers, now));
        for (lodger, used) in &told {
            let Lodger { namespace, name, .. } = lodger;
            for (container, one) in &used.containers {
                let labels =
                    format!("{{container=\"{container}\",namespace=\"{namespace}\",pod=\"{name}\"}}");
                let at = Some(one.counter.at);
                lines.add(0, &labels, &seconds(one.counter.nanoseconds), at);
                lines.add(1, &labels, &one.memory.to_string(), at);
                lines.add(2, &labels, &since(&one.counter), None);
            }
            let labels = format!("{{namespace=\"{namespace}\",pod=\"{name}\"}}");
            lines.add(5, &labels, &seconds(used.counter.nanoseconds), Some(used.counter.at));
            lines.add(6, &labels, &used.memory().to_string(), Some(used.counter.at));
        }
        if let Some(counter) = self.counter.as_ref().filter(|_| !told.is_empty()) {
            lines.add(3, "", &seconds(counter.nanoseconds), Some(counter.at));
            lines.add(4, "", &memory(&told).to_string(), Some(counter.at));
        }
        lines.add(7, "", if self.has_failed { "1" } else { "0" }, None);
        lines.page()
    }

    /// The same as the summary of a kubelet.
    pub fn summary(&self, node: &str, lodgers: &[Lodger], now: Timestamp) -> Value {
        let told = self.told(lodgers, now);
        let rate = told.iter().fold(0_u128, |sum, (_, used)| sum.saturating_add(used.rate()));
        let mut of_node = json!({"nodeName": node});
        if let Some(counter) = self.counter.as_ref().filter(|_| !told.is_empty()) {
            of_node["startTime"] = json!(counter.since.to_string());
            put(&mut of_node, counter, rate, memory(&told));
        }
        let pods: Vec<Value> = told.iter().map(|(lodger, used)| pod(lodger, used)).collect();
        json!({"node": of_node, "pods": pods})
    }
}

fn memory(told: &[(&Lodger, &Used)]) -> u64 {
    told.iter().fold(0, |sum, (_, used)| sum.saturating_add(used.memory()))
}

fn pod(lodger: &Lodger, used: &Used) -> Value {
    let containers = used.containers.iter().map(|(name, one)| {
        let mut value = json!({"name": name, "startTime": one.counter.since.to_string()});
        put(&mut value, &one.counter, one.rate, one.memory);
        value
    });
    let mut value = json!({
        "podRef": {"namespace": lodger.namespace, "name": lodger.name, "uid": lodger.uid},
        "startTime": used.counter.since.to_string(),
        "containers": containers.collect::<Vec<_>>(),
    });
    put(&mut value, &used.counter, used.rate(), used.memory());
    value
}

fn put(value: &mut Value, counter: &Counter, rate: u128, memory: u64) {
    let number = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    let time = counter.at.to_string();
    value["cpu"] = json!({
        "time": time,
        "usageNanoCores": number(rate),
        "usageCoreNanoSeconds": number(counter.nanoseconds),
    });
    value["memory"] = json!({"time": time, "usageBytes": memory, "workingSetBytes": memory});
}
