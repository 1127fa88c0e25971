//! One application on three real clusters with the same networks: whoever asks for a Service by its name gets it, at home
//! and on a peer, whatever sort of Service it is and wherever its endpoints are.

mod churn;
mod stage;
mod strategies;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use rig::lan::Loss;
use rig::wait::{block_on, eventually};

use stage::{CLUSTERS, Stage};

#[test]
fn a_service_answers_by_its_name_on_every_cluster() -> Result<()> {
    block_on(async {
        let stage = Stage::set_up().await?;
        tokio::try_join!(
            services_answer_from_all_clusters_to_all_clusters(&stage),
            strategies::services_answer_across_namespaces(&stage),
        )?;
        a_service_goes_to_the_clusters_that_it_names(&stage).await?;
        much_goes_from_one_peer_to_another(&stage).await?;
        endpoints_that_somebody_wrote_down_answer(&stage).await?;
        configuration_follows_the_pods(&stage).await?;
        an_endpoint_that_goes_is_asked_no_more(&stage).await?;
        churn::whoever_asks_notices_no_more_than_inside_one_cluster(&stage).await?;
        a_cluster_that_is_cut_off_is_asked_no_more(&stage).await?;
        stage.part().await
    })
}

/// Asks until everybody who should has answered, and nobody else.
async fn is_answered_by(stage: &Stage, asker: &str, url: &str, who: &[&str]) -> Result<()> {
    let expected: BTreeSet<String> = who.iter().map(|name| (*name).to_owned()).collect();
    eventually(&format!("{asker} gets {url} from {who:?}"), || async {
        let answered = stage.ask(asker, url, 20).await?;
        ensure!(answered == expected, "{answered:?}");
        Ok(())
    })
    .await
}

async fn services_answer_from_all_clusters_to_all_clusters(stage: &Stage) -> Result<()> {
    try_join_all(CLUSTERS.map(|asker| services_answer(stage, asker))).await.map(drop)
}

async fn services_answer(stage: &Stage, asker: &str) -> Result<()> {
    for name in ["web", "web.shop", "web-nodes.shop.svc", "web-balanced.shop.svc.cluster.local", "alias.shop"]
    {
        is_answered_by(stage, asker, &format!("http://{name}/"), &CLUSTERS).await?;
    }
    // The second port of the one, and the port of the pods themselves.
    for name in ["web.shop", "web-headless"] {
        is_answered_by(stage, asker, &format!("http://{name}:8080/"), &CLUSTERS).await?;
    }
    for other in CLUSTERS {
        is_answered_by(stage, asker, &format!("http://web-{other}.shop:8888/"), &[other]).await?;
    }
    let sticky = stage.ask(asker, "http://web-sticky.shop/", 10).await?;
    ensure!(sticky.len() == 1, "{asker} was not kept with one: {sticky:?}");
    Ok(())
}

/// Asks from everywhere until these have answered, and nobody else.
async fn all_are_answered_by(stage: &Stage, url: &str, who: &[&str]) -> Result<()> {
    try_join_all(CLUSTERS.map(|asker| is_answered_by(stage, asker, url, who))).await.map(drop)
}

/// From one peer to another, through home: 10 MB, and back.
async fn much_goes_from_one_peer_to_another(stage: &Stage) -> Result<()> {
    for (asker, other) in [("turin", "milan"), ("milan", "turin")] {
        let (from, to) = (format!("deployment/web-{asker}"), format!("http://web-{other}.shop:8888/mirror"));
        stage.kubectl(&["exec", &from, "--", "/testbox", "mirror", &to]).await?;
    }
    Ok(())
}

/// Services without a selector: the endpoint of one is a pod, that of the other no pod at all.
async fn endpoints_that_somebody_wrote_down_answer(stage: &Stage) -> Result<()> {
    let address = "jsonpath={.items[0].status.podIP}";
    let pod = stage.kubectl(&["get", "pods", "-l", "app=web,at=rome", "-o", address]).await?;
    let address = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}";
    let node = ["get", "nodes", "-l", "liqo.io/type!=virtual-node", "-o", address];
    let node = stage.rome()?.kubectl(&node).await?;
    let written =
        [stage::by_hand("direct", 8080, pod.trim()), stage::by_hand("kubelets", 10250, node.trim())];
    stage.rome()?.apply(&written.join("---")).await?;
    try_join_all(CLUSTERS.map(|asker| a_process_on_a_node_answers(stage, asker))).await?;
    all_are_answered_by(stage, "http://direct.shop:8080/", &["rome"]).await
}

/// A kubelet tells whoever speaks no TLS so: an answer nobody else would give.
async fn a_process_on_a_node_answers(stage: &Stage, asker: &str) -> Result<()> {
    eventually(&format!("a kubelet answers to {asker}"), || async {
        let said = stage.exec(asker, &["sh", "-c", "wget http://kubelets.shop:10250/ 2>&1 || true"]).await?;
        ensure!(said.contains("400") || said.contains("HTTPS"), "{said}");
        Ok(())
    })
    .await
}

/// Its annotation names turin, and not milan. Other Services that were made after it are on milan.
async fn a_service_goes_to_the_clusters_that_it_names(stage: &Stage) -> Result<()> {
    let url = "http://web-chosen.shop/";
    for asker in ["rome", "turin"] {
        is_answered_by(stage, asker, url, &CLUSTERS).await?;
    }
    let there = ["get", "services,endpointslices", "-n", "shop", "-o", "name"];
    let there = stage.milan()?.kubectl(&there).await?;
    ensure!(there.contains("service/web-sticky") && !there.contains("web-chosen"), "{there}");
    ensure!(stage.ask("milan", url, 1).await.is_err(), "milan gets {url}, too");
    Ok(())
}

/// A change reaches the files of a running pod; what nobody refers to stays at home.
async fn configuration_follows_the_pods(stage: &Stage) -> Result<()> {
    let read = ["cat", "/etc/settings/word", "/etc/keys/word"];
    ensure!(stage.exec("turin", &read).await?.trim() == "onetwo", "it has other words");
    stage.kubectl(&["patch", "configmap", "settings", "--patch", r#"{"data":{"word":"three"}}"#]).await?;
    stage.kubectl(&["patch", "secret", "keys", "--patch", r#"{"stringData":{"word":"four"}}"#]).await?;
    eventually("a change arrives in the files", || async {
        let words = stage.exec("turin", &read).await?;
        ensure!(words.trim() == "threefour", "{words}");
        Ok(())
    })
    .await?;
    let there = stage.turin()?.kubectl(&["get", "secrets", "-n", "shop", "-o", "name"]).await?;
    ensure!(there.contains("secret/keys") && !there.contains("unused"), "{there}");
    Ok(())
}

async fn an_endpoint_that_goes_is_asked_no_more(stage: &Stage) -> Result<()> {
    stage.kubectl(&["scale", "deployment/web-rome", "--replicas=0"]).await?;
    all_are_answered_by(stage, "http://web.shop/", &["turin", "milan"]).await?;
    stage.kubectl(&["scale", "deployment/web-rome", "--replicas=1"]).await?;
    all_are_answered_by(stage, "http://web.shop/", &CLUSTERS).await
}

/// Turin cannot hear Rome: it takes Rome's endpoints out of use by itself, and its own go on answering.
async fn a_cluster_that_is_cut_off_is_asked_no_more(stage: &Stage) -> Result<()> {
    stage.topology().cut("rome", "turin", Loss::CUT, false).await?;
    let slices = [
        "get",
        "endpointslices",
        "-n",
        "shop",
        "-l",
        "endpointslice.kubernetes.io/managed-by=reflection.liqo.io",
        "-o",
        "jsonpath={.items[*].endpoints[*].conditions.ready}",
    ];
    eventually("nothing of Rome is in use on Turin", || async {
        let ready = stage.turin()?.kubectl(&slices).await?;
        ensure!(!ready.is_empty() && !ready.contains("true"), "{ready}");
        Ok(())
    })
    .await?;
    stage.topology().heal("rome", "turin").await?;
    all_are_answered_by(stage, "http://web.shop/", &CLUSTERS).await
}
