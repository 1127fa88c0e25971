//! `ferro network rules` beside a gateway that runs: the table that it shows is the one by which packets went.

use anyhow::{Result, ensure};
use rig::installation::ferro;
use rig::pods::Echo;
use rig::tunnels::view;
use rig::wait::eventually;

use crate::addresses::Addresses;
use crate::pair::{NODES, Pair};

/// The second of two shows under the printed name what it does to packets of the first.
pub async fn are_shown(pair: &Pair<'_>) -> Result<()> {
    let [here, there] = &pair.0;
    let addresses = Addresses::of(there.cluster).await?;
    let mut expected = vec![format!("Chain LIQO-PRRT-MAP-CLS-{} ({}", here.id, here.cluster.plan.name)];
    for number in NODES {
        let node = Echo::process_of(there.cluster, number).ip;
        let address = addresses.map(&here.id, node).await?;
        expected.push(format!("-d {address} -j DNAT --to-destination {node}"));
        expected.push(format!("-s {node} -j SNAT --to-source {address}"));
    }
    let (named, pods) = (view(&here.tunnel)?.to_string(), &here.tunnel.spec.pod_cidr);
    let kept = if named == *pods { "ACCEPT".to_owned() } else { format!("NETMAP --to {pods}") };
    expected.push(format!("-d {named} -j {kept}"));
    // What is written down trails by a second.
    eventually("all rules are shown", || async {
        let said = ferro(there.cluster, &["network", "rules", &here.cluster.plan.name]).await?;
        for line in &expected {
            ensure!(said.contains(line.as_str()), "{line:?} is not in {said}");
        }
        ensure!(!said.contains("What is not used"), "{said}");
        Ok(())
    })
    .await
}
