use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + seconds).unwrap()
}

fn web() -> Lodger {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u1"},
        "spec": {"containers": [{"name": "app"}, {"name": "side"}]}, "status": {"phase": "Running"},
    }))
    .unwrap();
    Lodger::of(&pod, "shop-rome").unwrap()
}

/// What a cluster says of web at a moment.
fn says(stamp: &str, app: &str, memory: &str) -> Measurement {
    let list = json!({"kind": "PodMetricsList", "items": [{
        "metadata": {"name": "web", "namespace": "shop-rome"}, "timestamp": stamp, "window": "15s",
        "containers": [{"name": "app", "usage": {"cpu": app, "memory": memory}},
            {"name": "made-up", "usage": {"cpu": "1", "memory": "1Gi"}}],
    }]});
    measurements(&list.to_string()).unwrap().remove(0)
}

/// The value of a series of which there is one.
fn value(page: &str, series: &str) -> f64 {
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with(series)).collect();
    let [line] = lines.as_slice() else { panic!("{series} is there {} times: {page}", lines.len()) };
    line.rsplit_once("} ")
        .or_else(|| line.split_once(' '))
        .unwrap()
        .1
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn the_rate_that_is_computed_of_two_scrapes_is_the_one_that_was_measured() {
    let (mut meter, lodgers) = (Meter::default(), [web()]);
    meter.note(&lodgers[0], &says("a", "100m", "20Mi"), at(0));
    let before = meter.metrics(&lodgers, at(0));
    meter.note(&lodgers[0], &says("b", "250m", "30Mi"), at(20));
    let after = meter.metrics(&lodgers, at(25));
    for series in ["container_cpu_usage", "pod_cpu_usage", "node_cpu_usage"] {
        let rate = (value(&after, series) - value(&before, series)) / 20.0;
        assert!((rate - 0.25).abs() < 1e-9, "{series} {rate}");
    }
    assert!(value(&before, "container_cpu_usage") > 0.0, "nobody believes one that used nothing");
    assert!((value(&after, "container_memory") - f64::from(30 << 20)).abs() < 1.0);
    let wanted = "\
# HELP container_cpu_usage_seconds_total CPU time that the container has used, in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container=\"app\",namespace=\"shop\",pod=\"web\"} 5.001000000 1900000020000
";
    assert!(after.starts_with(wanted), "{after}");
    assert!(after.contains(
        "container_start_time_seconds{container=\"app\",namespace=\"shop\",pod=\"web\"} 1899999999.000\n"
    ));
    assert!(after.ends_with("resource_scrape_error 0\n"));
}

#[test]
fn a_question_without_an_answer_is_an_error_until_there_is_one() {
    let (mut meter, lodgers) = (Meter::default(), [web()]);
    meter.note(&lodgers[0], &says("a", "1", "20Mi"), at(0));
    for (all, error) in [(false, "1"), (false, "1"), (true, "0")] {
        meter.answered(all);
        let page = meter.metrics(&lodgers, at(10));
        assert!(page.ends_with(&format!("resource_scrape_error {error}\n")), "{page}");
        assert!(page.contains("node_memory"), "what was known before is told all the same");
    }
}

#[test]
fn the_same_measurement_counts_once() {
    let (mut meter, lodgers) = (Meter::default(), [web()]);
    meter.note(&lodgers[0], &says("a", "1", "20Mi"), at(0));
    meter.note(&lodgers[0], &says("b", "1", "20Mi"), at(10));
    let page = meter.metrics(&lodgers, at(10));
    meter.note(&lodgers[0], &says("b", "1", "20Mi"), at(15));
    assert_eq!(meter.metrics(&lodgers, at(15)), page);
}

#[test]
fn names_that_a_peer_makes_up_are_not_told() {
    let (mut meter, lodgers) = (Meter::default(), [web()]);
    meter.note(&lodgers[0], &says("a", "1", "20Mi"), at(0));
    assert!(!meter.metrics(&lodgers, at(0)).contains("made-up"));
    assert!(!meter.summary("liqo-turin", &lodgers, at(0)).to_string().contains("made-up"));
}

#[test]
fn a_pod_of_the_same_name_starts_anew_and_the_node_goes_on() {
    let (mut meter, mut lodgers) = (Meter::default(), [web()]);
    meter.note(&lodgers[0], &says("a", "1", "20Mi"), at(0));
    meter.note(&lodgers[0], &says("b", "1", "20Mi"), at(10));
    let before = meter.metrics(&lodgers, at(10));
    lodgers[0].uid = "u2".into();
    meter.keep(&lodgers);
    assert_eq!(meter.pods.len(), 0);
    meter.note(&lodgers[0], &says("c", "1", "20Mi"), at(20));
    let after = meter.metrics(&lodgers, at(20));
    assert!(value(&after, "container_cpu_usage") < value(&before, "container_cpu_usage"));
    assert!(value(&after, "container_start_time") > value(&before, "container_start_time"));
    assert!(value(&after, "node_cpu_usage") >= value(&before, "node_cpu_usage"));
}

#[test]
fn what_is_old_is_not_told() {
    let (mut meter, lodgers) = (Meter::default(), [web()]);
    meter.note(&lodgers[0], &says("a", "1", "20Mi"), at(0));
    assert!(meter.metrics(&lodgers, at(60)).contains("node_memory"));
    assert!(!meter.metrics(&lodgers, at(61)).contains("_bytes"));
    assert_eq!(
        meter.summary("liqo-turin", &lodgers, at(61)),
        json!({"node": {"nodeName": "liqo-turin"}, "pods": []})
    );
}

#[test]
fn the_summary_says_the_same() {
    let (mut meter, lodgers) = (Meter::default(), [web()]);
    meter.note(&lodgers[0], &says("a", "1", "20Mi"), at(0));
    meter.note(&lodgers[0], &says("b", "500m", "30Mi"), at(10));
    let summary = meter.summary("liqo-turin", &lodgers, at(10));
    assert_eq!(summary["node"]["nodeName"], "liqo-turin");
    assert_eq!(summary["node"]["memory"]["workingSetBytes"], 30 << 20);
    let pod = &summary["pods"][0];
    assert_eq!(pod["podRef"], json!({"namespace": "shop", "name": "web", "uid": "u1"}));
    let cpu = json!({"time": at(10).to_string(), "usageNanoCores": 500_000_000, "usageCoreNanoSeconds": 5_001_000_000_u64});
    assert_eq!(pod["containers"][0]["cpu"], cpu);
    assert_eq!(pod["cpu"], cpu);
}

#[test]
fn what_does_not_run_is_no_lodger() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u1"},
        "spec": {"containers": [{"name": "app"}]}, "status": {"phase": "Pending"},
    }))
    .unwrap();
    assert_eq!(Lodger::of(&pod, "shop-rome"), None);
}

#[test]
fn what_cannot_be_understood_is_refused_and_what_was_not_measured_is_left_out() {
    for text in ["", "[]", "{}", r#"{"items": [{}]}"#, r#"{"items": 1}"#] {
        assert_eq!(measurements(text), Err(Unreadable), "{text}");
    }
    let much =
        json!({"items": [{"metadata": {"name": "web"}, "timestamp": "t".repeat(65), "containers": []}]});
    assert_eq!(measurements(&much.to_string()), Err(Unreadable));
    assert!(says("a", "-1", "20Mi").containers.keys().eq(["made-up"]));
    assert_eq!(measurements(r#"{"items": []}"#), Ok(Vec::new()));
}

proptest! {
    #[test]
    fn no_counter_ever_goes_back(steps in proptest::collection::vec((0_u8..3, 0_i64..100, 0_u64..u64::MAX), 1..30)) {
        let (mut meter, lodgers, mut last) = (Meter::default(), [web()], (0, 0));
        for (stamp, seconds, cpu) in steps {
            // The clock at home may be set back as well.
            let now = at(seconds);
            meter.note(&lodgers[0], &says(&stamp.to_string(), &format!("{cpu}n"), "1Mi"), now);
            let container = meter.pods["u1"].containers["app"].counter.nanoseconds;
            let node = meter.counter.clone().unwrap().nanoseconds;
            prop_assert!(container >= last.0 && node >= last.1);
            last = (container, node);
        }
    }
}
