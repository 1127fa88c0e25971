//! One application on three real clusters with the same networks: whoever asks for a Service by its name gets it, at home
//! and on a peer, whatever sort of Service it is and wherever its endpoints are.

mod churn;
mod many;
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
        Box::pin(churn::whoever_asks_notices_no_more_than_inside_one_cluster(&stage)).await?;
        a_cluster_that_is_cut_off_is_asked_no_more(&stage).await?;
        many::all_of_many_namespaces_are_reflected(&stage).await?;
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
        // As the pods of a StatefulSet are asked for one by one.
        is_answered_by(stage, asker, &format!("http://{other}.web-headless.shop:8080/"), &[other]).await?;
    }
    all_are_known(stage, asker, "web-sticky").await?;
    // Who is slow to answer is asked anew; as soon as all ten times have an answer, those count.
    let ten_times = || stage.ask(asker, "http://web-sticky.shop/", 10);
    let sticky = eventually(&format!("web-sticky answers {asker} ten times"), ten_times).await?;
    ensure!(sticky.len() == 1, "{asker} was not kept with one: {sticky:?}");
    Ok(())
}

/// Waits until a cluster knows of an endpoint on each: to be kept with the only one would be no wonder.
async fn all_are_known(stage: &Stage, cluster: &str, service: &str) -> Result<()> {
    let of_it = format!("kubernetes.io/service-name={service}");
    let ready = "jsonpath={.items[*].endpoints[*].conditions.ready}";
    eventually(&format!("{cluster} knows all endpoints of {service}"), || async {
        let slices = ["get", "endpointslices", "-n", "shop", "-l", &of_it, "-o", ready];
        let said = stage.topology().cluster(cluster)?.kubectl(&slices).await?;
        let count = said.split_whitespace().filter(|ready| *ready == "true").count();
        ensure!(count == CLUSTERS.len(), "{said}");
        Ok(())
    })
    .await
}

/// Asks from everywhere until these have answered, and nobody else.
async fn all_are_answered_by(stage: &Stage, url: &str, who: &[&str]) -> Result<()> {
    try_join_all(CLUSTERS.map(|asker| is_answered_by(stage, asker, url, who))).await.map(drop)
}

/// From one peer to another, through home: 10 MB, and back. It may be slow, but none of it may be lost or another.
async fn much_goes_from_one_peer_to_another(stage: &Stage) -> Result<()> {
    for (asker, other) in [("turin", "milan"), ("milan", "turin")] {
        let (from, to) = (format!("deployment/web-{asker}"), format!("http://web-{other}.shop:8888/mirror"));
        stage.kubectl(&["exec", &from, "--", "/testbox", "mirror", "-T", "300", &to]).await?;
    }
    Ok(())
}

/// The address at home of the pod that answers on a cluster.
async fn address_of(stage: &Stage, cluster: &str) -> Result<String> {
    let (of_it, address) = (format!("app=web,at={cluster}"), "jsonpath={.items[0].status.podIP}");
    let said = stage.kubectl(&["get", "pods", "-l", &of_it, "-o", address]).await?;
    Ok(said.trim().to_owned())
}

/// Services without a selector: the endpoint of one is a pod, that of the other no pod at all.
async fn endpoints_that_somebody_wrote_down_answer(stage: &Stage) -> Result<()> {
    let pod = address_of(stage, "rome").await?;
    let address = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}";
    let node = ["get", "nodes", "-l", "liqo.io/type!=virtual-node", "-o", address];
    let node = stage.rome()?.kubectl(&node).await?;
    let written =
        [stage::by_hand("direct", 8080, &[&pod]), stage::by_hand("kubelets", 10250, &[node.trim()])];
    stage.rome()?.apply(&written.join("---")).await?;
    try_join_all(CLUSTERS.map(|asker| a_process_on_a_node_answers(stage, asker))).await?;
    all_are_answered_by(stage, "http://direct.shop:8080/", &["rome"]).await?;
    a_cluster_lacks_its_own_endpoints_and_no_others(stage, &pod).await
}

/// Of pods here and in turin, turin itself is told of those here, and whoever wrote them down is told why.
async fn a_cluster_lacks_its_own_endpoints_and_no_others(stage: &Stage, here: &str) -> Result<()> {
    let there = address_of(stage, "turin").await?;
    stage.rome()?.apply(&stage::by_hand("mixed", 8080, &[here, &there])).await?;
    let url = "http://mixed.shop:8080/";
    for asker in ["rome", "milan"] {
        is_answered_by(stage, asker, url, &["rome", "turin"]).await?;
    }
    is_answered_by(stage, "turin", url, &["rome"]).await?;
    let words = "jsonpath={.items[*].message}";
    eventually("it is told what is left out in turin", || async {
        let left_out = ["get", "events", "--field-selector", "reason=EndpointLeftOut", "-o", words];
        let told = stage.kubectl(&left_out).await?;
        ensure!(told.contains("liqo-turin") && told.contains(&there), "{told}");
        ensure!(!told.contains("liqo-milan"), "{told}");
        Ok(())
    })
    .await
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
    let there = secrets(stage).await?;
    ensure!(there.contains("secret/keys") && !there.contains("unused"), "{there}");
    a_secret_goes_with_the_last_pod_that_needs_it(stage).await
}

/// The Secrets that turin has.
async fn secrets(stage: &Stage) -> Result<String> {
    stage.turin()?.kubectl(&["get", "secrets", "-n", "shop", "-o", "name"]).await
}

async fn a_secret_goes_with_the_last_pod_that_needs_it(stage: &Stage) -> Result<()> {
    stage.rome()?.apply(&stage::brief(&stage.place("turin").await?)).await?;
    stage.kubectl(&["wait", "--for=condition=Ready", "pod/brief", "--timeout=300s"]).await?;
    ensure!(secrets(stage).await?.contains("secret/brief"), "the pod runs without its Secret");
    stage.kubectl(&["delete", "pod", "brief", "--timeout=300s"]).await?;
    eventually("its Secret has left turin", || async {
        let there = secrets(stage).await?;
        ensure!(!there.contains("brief"), "{there}");
        Ok(())
    })
    .await
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
