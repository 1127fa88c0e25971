//! The chart without a cluster: what `ferro install` would apply is what Helm renders.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use rig::wait::block_on;
use serde_json::Value;

use crate::{chart_folder, ferro, helm, said};

/// Objects by kind, namespace and name.
type Objects = BTreeMap<[String; 3], Value>;

fn by_name(objects: Vec<Value>) -> Result<Objects> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut named = Objects::new();
    for object in objects {
        let meta = &object["metadata"];
        let key = [text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"])];
        ensure!(named.insert(key.clone(), object).is_none(), "{key:?} is there twice");
    }
    Ok(named)
}

async fn rendered_by_helm(arguments: &[&str]) -> Result<Objects> {
    let mut helm = helm()?;
    helm.args(["template", "liqo"]).arg(chart_folder()).args(["--kube-version", "1.34.0"]).args(arguments);
    by_name(serde_saphyr::from_multiple(&said(&helm.output().await?)?)?)
}

async fn rendered_by_ferro(arguments: &[&str]) -> Result<Objects> {
    let printed =
        said(&ferro()?.args(["install", "--dry-run", "--output", "json"]).args(arguments).output().await?)?;
    let list: Value = serde_json::from_str(&printed)?;
    let mut objects = by_name(list["items"].as_array().context("a list")?.clone())?;
    // Helm leaves these two to its own flags.
    let is_left = |kind: &str, name: &str| {
        kind == "CustomResourceDefinition" || kind == "Namespace" && !name.ends_with("-keys")
    };
    objects.retain(|[kind, _, name], _| !is_left(kind, name));
    Ok(objects)
}

/// Values that reach every branch and every block of the chart.
const VALUES: [&str; 4] = [
    "",
    r#"
clusterName: milan
clusterLabels: {liqo.io/region: eu, liqo.io/provider: "007", "yes": "on"}
image: {repository: registry.example.org/ferro, tag: "1.0", pullPolicy: Always}
controller: {replicas: 3}
auth: {config: {allowEmptyToken: true, servingCertificate: {name: own-tls}}, service: {type: LoadBalancer}}
advertisement: {drainDelaySeconds: 31536000, keepaliveThreshold: 1}
logLevel: ferro_peering=debug,info
"#,
    r#"
apiServer: {url: "https://192.0.2.7:6443", ca: cGVt}
auth: {service: {type: ClusterIP}}
advertisement:
  config:
    resourceSharingPercentage: 50
    resourceQuota: {hard: {cpu: 2, memory: 1Gi}}
    prices: {cpu: "0.5"}
    properties: {currency: EUR, note: "two\nlines: and 'quotes' \"both\"\n", empty: "", number: "1e3"}
    autoJoin: {discoveryTypes: [LAN, WAN], trustModes: [Trusted]}
  ingoingConfig: {acceptPolicy: Manual}
networkManager: {config: {mode: external, reservedCIDRs: [10.9.0.0/16], mtu: 1400}}
tenancy: {config: {namespaceQuota: 5, podSecurity: restricted, templates: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]}}
discovery: {config: {announce: false, ttl: 30, dnsServer: "192.0.2.53:53"}}
resources: {limits: null}
"#,
    "
apiServer: {ca: cGVt}
auth: {service: {nodePort: 0}}
dispatcher: {config: {resourcesToReplicate: null}}
discovery: {config: {name: given-there}}
resources: null
",
];

#[test]
fn the_embedded_chart_renders_as_helm_renders_it() -> Result<()> {
    block_on(async {
        let folder = std::env::temp_dir().join(format!("ferro-install-values-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        for (index, values) in VALUES.iter().enumerate() {
            let file = folder.join(format!("{index}.yaml"));
            std::fs::write(&file, values)?;
            let file = file.display().to_string();
            let set = r"clusterLabels.example\.org/by=hand,controller.replicas=2";
            for arguments in [
                vec!["--values", &file, "--namespace", "liqo"],
                vec!["--values", &file, "--set", set, "--namespace", "elsewhere"],
            ] {
                let (helm, ferro) =
                    (rendered_by_helm(&arguments).await?, rendered_by_ferro(&arguments).await?);
                ensure!(
                    helm.keys().eq(ferro.keys()),
                    "{arguments:?}: Helm {:?}, ferro {:?}",
                    helm.keys(),
                    ferro.keys()
                );
                for (name, object) in &helm {
                    ensure!(*object == ferro[name], "{name:?}\nHelm: {object:#}\nferro: {:#}", ferro[name]);
                }
            }
        }
        Ok(std::fs::remove_dir_all(folder)?)
    })
}

#[test]
fn what_helm_refuses_is_refused_by_name() -> Result<()> {
    block_on(async {
        for (wrong, name) in [
            ("controler.replicas=2", "controler"),
            ("auth.service.typ=NodePort", "typ"),
            ("auth.service.type=Sideways", "type"),
            ("controller.replicas=many", "replicas"),
            ("controller.replicas=-1", "replicas"),
            ("clusterName=7", "clusterName"),
        ] {
            let helm = rendered_by_helm(&["--set", wrong]).await.err().context("Helm takes it")?.to_string();
            let ferro =
                rendered_by_ferro(&["--set", wrong]).await.err().context("ferro takes it")?.to_string();
            ensure!(helm.contains(name) && ferro.contains(name), "{wrong}\nHelm: {helm}\nferro: {ferro}");
        }
        Ok(())
    })
}
