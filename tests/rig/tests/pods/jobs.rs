//! What ends: Jobs that fail first, `CronJobs`, and single pods of each restart policy.

use anyhow::{Result, ensure};
use rig::wait::eventually;

use crate::stage::{AWAY, Stage};
use crate::workloads::{job, shell};

/// Fails in the first pod, and works in the second: the controller of Jobs says by an annotation how often it has tried.
const SECOND_POD: &str = r#"if [ "$TRIED" = 0 ]; then echo not yet; exit 1; fi; echo worked"#;
/// Fails in the first container, and works in the second one of the same pod.
const SECOND_CONTAINER: &str = "if [ -e /kept/tried ]; then echo worked; else touch /kept/tried; exit 1; fi";

const TRIED: &str = r#"        env:
        - name: TRIED
          valueFrom:
            fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"}
"#;
const KEPT: &str = "        volumeMounts: [{name: kept, mountPath: /kept}]\n";

fn jobs() -> [String; 3] {
    let by_index = "completions: 1\n  completionMode: Indexed\n  backoffLimitPerIndex: 3";
    let in_place = "restartPolicy: OnFailure\n      volumes: [{name: kept, emptyDir: {}}]";
    [
        job("retried", by_index, "restartPolicy: Never", SECOND_POD) + TRIED,
        job("restarted", "backoffLimit: 4", in_place, SECOND_CONTAINER) + KEPT,
        job("hopeless", "backoffLimit: 1", "restartPolicy: Never", "exit 4"),
    ]
}

/// A `CronJob` that is due every minute.
const CRON_JOB: &str = r"
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick, namespace: away}
spec:
  schedule: '* * * * *'
  jobTemplate:
    spec:
      template:
        metadata: {labels: {app: tick}}
        spec:
          restartPolicy: Never
          containers:
          - {name: shell, image: 'rig/busybox:1', args: [-c, 'echo ticked']}
";

pub async fn jobs_that_fail_first_come_to_their_end(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    rome.apply(CRON_JOB).await?;
    stage.kubectl(AWAY, &["create", "job", "--from=cronjob/tick", "by-hand"]).await?;
    rome.apply(&jobs().join("---")).await?;
    for name in ["by-hand", "retried", "restarted"] {
        let job = format!("job/{name}");
        stage.kubectl(AWAY, &["wait", "--for=condition=complete", &job, "--timeout=300s"]).await?;
    }
    stage.kubectl(AWAY, &["wait", "--for=condition=failed", "job/hopeless", "--timeout=300s"]).await?;
    for (name, succeeded, failed) in [("retried", "1", "1"), ("restarted", "1", ""), ("hopeless", "", "2")] {
        let counts = ["get", "job", name, "-o", "jsonpath={.status.succeeded}/{.status.failed}"];
        let said = stage.kubectl(AWAY, &counts).await?;
        // A number that is none may be said or not.
        ensure!(said.replace('0', "") == format!("{succeeded}/{failed}"), "{name}: {said}");
    }
    let why = "jsonpath={.status.conditions[?(@.type==\"Failed\")].reason}";
    let why = stage.kubectl(AWAY, &["get", "job", "hopeless", "-o", why]).await?;
    ensure!(why == "BackoffLimitExceeded", "{why}");
    for (name, said) in [("by-hand", "ticked"), ("retried", "worked"), ("restarted", "worked")] {
        eventually(&format!("the log of {name} is there"), || async {
            let logs = stage.kubectl(AWAY, &["logs", &format!("job/{name}"), "--all-pods=true"]).await?;
            ensure!(logs.contains(said), "{name} said {logs}");
            Ok(())
        })
        .await?;
    }
    the_clock_fires(stage).await?;
    stage.kubectl(AWAY, &["delete", "cronjobs,jobs", "--all", "--timeout=300s"]).await?;
    for app in ["tick", "retried", "restarted", "hopeless"] {
        stage.await_gone(app).await?;
    }
    Ok(())
}

/// The controller of `CronJobs` makes a Job by itself within a minute, and names it after the `CronJob`.
async fn the_clock_fires(stage: &Stage) -> Result<()> {
    eventually("the CronJob has worked", || async {
        let done = ["get", "jobs", "-o", "jsonpath={.items[?(@.status.succeeded==1)].metadata.name}"];
        let done = stage.kubectl(AWAY, &done).await?;
        ensure!(done.split_whitespace().any(|job| job.starts_with("tick-")), "done is {done}");
        Ok(())
    })
    .await
}

pub async fn single_pods_end_as_they_would_at_home(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    let pods = [
        shell("good", "Never", "echo done"),
        shell("bad", "Never", "exit 3"),
        shell("again", "OnFailure", "echo tried; exit 3"),
        shell("ever", "Always", "echo turned"),
    ];
    rome.apply(&pods.join("---")).await?;
    for (pod, phase) in [("good", "Succeeded"), ("bad", "Failed")] {
        let phase = format!("--for=jsonpath={{.status.phase}}={phase}");
        stage.kubectl(AWAY, &["wait", &phase, &format!("pod/{pod}"), "--timeout=300s"]).await?;
    }
    // That a pod has ended may be known by its ShadowPod before it is known how its containers have.
    let code = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}";
    stage.says(AWAY, &["get", "pod", "bad", "-o", code], "3").await?;
    for pod in ["again", "ever"] {
        eventually(&format!("restarts of {pod} come home"), || async {
            let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
            let count: u32 = stage.kubectl(AWAY, &["get", "pod", pod, "-o", restarts]).await?.parse()?;
            ensure!(count >= 2, "{count} restarts");
            Ok(())
        })
        .await?;
    }
    stage.says(AWAY, &["logs", "good"], "done").await?;
    eventually("the log of the container before is there", || async {
        let before = stage.kubectl(AWAY, &["logs", "again", "--previous"]).await?;
        ensure!(before.trim() == "tried", "{before}");
        Ok(())
    })
    .await?;
    let names = ["pod/good", "pod/bad", "pod/again", "pod/ever"];
    stage.kubectl(AWAY, &[&["delete", "--timeout=300s"], &names[..]].concat()).await?;
    for app in ["good", "bad", "again", "ever"] {
        stage.await_gone(app).await?;
    }
    Ok(())
}
