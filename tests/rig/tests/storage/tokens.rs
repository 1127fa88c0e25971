//! A pod over there, and the API server of home.

use anyhow::{Result, ensure};
use rig::wait::eventually;

use crate::stage::{AWAY, Stage};

const PODS: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: lister, namespace: away}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: lister, namespace: away}
rules: [{apiGroups: [''], resources: [pods], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: lister, namespace: away}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: lister}
subjects: [{kind: ServiceAccount, name: lister, namespace: away}]
---
apiVersion: v1
kind: Pod
metadata: {name: lister, namespace: away}
spec:
  serviceAccountName: lister
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: 'rig/testbox:1', args: [serve]}]
---
apiVersion: v1
kind: Pod
metadata: {name: mute, namespace: away}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: 'rig/testbox:1', args: [serve]}]
";

/// It does so by the variables, the token and the authorities that any library takes; one that has no token costs nothing.
pub async fn a_pod_over_there_lists_the_pods_of_its_namespace(stage: &Stage) -> Result<()> {
    stage.rome()?.apply(PODS).await?;
    stage
        .kubectl(AWAY, &["wait", "--for=condition=Ready", "pod/lister", "pod/mute", "--timeout=300s"])
        .await?;
    eventually("the pod lists those of its namespace", || async {
        let names = stage.kubectl(AWAY, &["exec", "lister", "--", "/testbox", "neighbours"]).await?;
        ensure!(names.lines().any(|name| name == "mute"), "{names}");
        Ok(())
    })
    .await?;
    let secrets = ["get", "secrets", "-l", "virtualkubelet.liqo.io/tokens", "-o", "name"];
    let there = stage.kubectl_there(&secrets).await?;
    ensure!(there.lines().count() == 1, "only one pod has a token: {there}");
    stage.kubectl(AWAY, &["delete", "pod", "lister", "mute", "--timeout=300s"]).await?;
    eventually("the token is gone", || async {
        let there = stage.kubectl_there(&secrets).await?;
        ensure!(there.is_empty(), "{there}");
        Ok(())
    })
    .await
}
