//! Every way in which networks of two clusters can be equal, but for "none" and "all": each is installed anew, and takes
//! its external network where it is told.

use anyhow::{Context, Result, ensure};
use rig::installation::ferro;
use rig::topology::Cluster;

use crate::pair::Pair;
use crate::{install_with, remove};

/// Where nobody else takes a network.
const APART: &str = "172.16.0.0/12";
/// Where all take the first one.
const ALIKE: &str = "10.0.0.0/8";

/// Two clusters, each with where it takes its external network, and which networks get other names by this: pods and
/// external, of the second and then of the first.
struct Case<'a> {
    what: &'a str,
    clusters: [(&'a Cluster, &'a str); 2],
    renamed: [bool; 4],
}

/// Tries all ways. The pods of the first two have the same network, those of the third have their own.
pub async fn try_equal_networks([rome, turin, paris]: [&Cluster; 3]) -> Result<()> {
    let [of_rome, of_paris] = [rome, paris].map(|cluster| cluster.plan.pod_cidr.to_string());
    let case = |what, a, b, renamed| Case { what, clusters: [a, b], renamed };
    for case in [
        case("pods are equal", (rome, ALIKE), (turin, APART), [true, false, true, false]),
        case("external networks are equal", (rome, ALIKE), (paris, ALIKE), [false, true, false, true]),
        case("pods here, external there", (rome, ALIKE), (paris, &of_rome), [false, true, true, false]),
        case("external here, pods there", (rome, &of_paris), (paris, APART), [true, false, false, true]),
        case("both, crossed", (rome, &of_paris), (paris, &of_rome), [true; 4]),
    ] {
        println!("fabric: {}", case.what);
        case.works().await.context(case.what.to_owned())?;
    }
    Ok(())
}

impl Case<'_> {
    async fn works(&self) -> Result<()> {
        let [(a, from_a), (b, from_b)] = self.clusters;
        tokio::try_join!(install_anew(a, from_a), install_anew(b, from_b))?;
        let pair = Pair::join(a, b).await?;
        ensure!(pair.renamed()? == self.renamed, "renamed are {:?}", pair.renamed()?);
        pair.works().await?;
        pair.part().await?;
        remove(a, b).await
    }
}

/// Installs ferro again, with an external network of this pool.
async fn install_anew(cluster: &Cluster, pool: &str) -> Result<()> {
    ferro(cluster, &["uninstall", "--yes", "--wait"]).await?;
    let pools = format!("networkManager.config.pools={{{pool},{APART},{ALIKE}}}");
    install_with(cluster, &["--set", &pools]).await
}
