//! Manifests of what people run.

use crate::stage::AWAY;

/// A Deployment of echo servers.
pub fn deployment(namespace: &str, name: &str, replicas: usize) -> String {
    format!(
        r"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: echo
        image: rig/testbox:1
        args: [serve]
        env:
        - {{name: CLUSTER, value: '{name}'}}
        - {{name: NAMESPACE, valueFrom: {{fieldRef: {{fieldPath: metadata.namespace}}}}}}
        readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
"
    )
}

/// With so many pods of [`spread`], each of three nodes has one at least.
pub const EACH: usize = 7;

/// The same, with about as many pods on each node, and faster than one by one.
pub fn spread(namespace: &str, name: &str, replicas: usize) -> String {
    let plain = deployment(namespace, name, replicas);
    let strategy = "  strategy: {rollingUpdate: {maxSurge: 50%, maxUnavailable: 25%}}\n  selector:";
    let evenly = format!(
        "      topologySpreadConstraints:
      - maxSkew: 3
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {{matchLabels: {{app: {name}}}}}
      containers:"
    );
    plain.replace("  selector:", strategy).replace("      containers:", &evenly)
}

/// A pod that runs a line of shell.
pub fn shell(name: &str, policy: &str, line: &str) -> String {
    format!(
        r"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {AWAY}, labels: {{app: {name}}}}}
spec:
  restartPolicy: {policy}
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: shell, image: 'rig/busybox:1', args: [-c, '{line}']}}
"
    )
}

/// A Job; `how` is the rest of its spec, and of its pods.
pub fn job(name: &str, how: &str, pod: &str, line: &str) -> String {
    format!(
        r"
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: {AWAY}}}
spec:
  {how}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      {pod}
      terminationGracePeriodSeconds: 1
      containers:
      - name: shell
        image: rig/busybox:1
        args: [-c, '{line}']
"
    )
}
