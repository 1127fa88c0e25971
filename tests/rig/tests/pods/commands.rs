//! What people ask of a pod through the API server: logs, commands, files, ports.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use http::Request;
use rig::wait::eventually;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::stage::{AWAY, Stage};
use crate::workloads::shell;

pub async fn logs_commands_and_ports_are_those_of_the_pod(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    rome.apply(&shell("talker", "Always", "n=0; while true; do n=$((n+1)); echo line $n; sleep 1; done"))
        .await?;
    stage.kubectl(AWAY, &["wait", "--for=condition=Ready", "pod/talker", "--timeout=180s"]).await?;
    eventually("its log has three lines", || async {
        let log = stage.kubectl(AWAY, &["logs", "talker", "--timestamps"]).await?;
        ensure!(log.lines().count() >= 3 && log.contains("line 2"), "{log}");
        Ok(())
    })
    .await?;
    let tail = stage.kubectl(AWAY, &["logs", "talker", "--tail=1"]).await?;
    ensure!(tail.lines().count() == 1, "{tail}");
    follows(stage).await?;

    let said = stage.kubectl(AWAY, &["exec", "talker", "--", "sh", "-c", "hostname; exit 0"]).await?;
    ensure!(said.trim() == "talker", "{said}");
    let failed = stage.kubectl(AWAY, &["exec", "talker", "--", "sh", "-c", "exit 7"]).await;
    ensure!(format!("{:?}", failed.err()).contains('7'), "the exit code of a command is lost");

    let file = std::env::temp_dir().join(format!("ferro-pods-{}", std::process::id()));
    std::fs::write(&file, vec![b'x'; 300_000])?;
    let name = file.display().to_string();
    let copied = async {
        let mut command = rome.kubectl_command();
        command.args([
            "-n",
            AWAY,
            "exec",
            "-i",
            "talker",
            "--",
            "sh",
            "-c",
            "cat > /tmp/file; wc -c < /tmp/file",
        ]);
        let output = command.stdin(Stdio::from(std::fs::File::open(&name)?)).output().await?;
        ensure!(String::from_utf8_lossy(&output.stdout).trim() == "300000", "{output:?}");
        anyhow::Ok(())
    }
    .await;
    std::fs::remove_file(&file)?;
    copied?;
    ports(stage).await?;
    stage.kubectl(AWAY, &["delete", "pod", "talker", "--grace-period=1", "--timeout=180s"]).await?;
    stage.await_gone("talker").await
}

/// A log that is followed goes on.
async fn follows(stage: &Stage) -> Result<()> {
    let mut command = stage.rome()?.kubectl_command();
    command.args(["-n", AWAY, "logs", "-f", "talker", "--tail=1"]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    for _ in 0..4 {
        let line = tokio::time::timeout(rig::wait::GENEROUSLY, lines.next_line()).await??;
        ensure!(line.as_ref().is_some_and(|line| line.starts_with("line ")), "the log goes on with {line:?}");
    }
    child.kill().await?;
    Ok(())
}

/// A port of a pod over there answers at a port here.
async fn ports(stage: &Stage) -> Result<()> {
    let pods = stage.await_ready("web", 2).await?;
    let pod = pods.first().and_then(|pod| pod.metadata.name.clone()).context("there is no pod")?;
    let mut command = stage.rome()?.kubectl_command();
    command.args(["-n", AWAY, "port-forward", &format!("pod/{pod}"), ":8080"]);
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let line = tokio::time::timeout(rig::wait::GENEROUSLY, lines.next_line()).await??.unwrap_or_default();
    let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).context("no port")?;
    let answer = reqwest(&format!("127.0.0.1:{port}")).await?;
    ensure!(answer.contains(&pod), "{pod} answers {answer}");
    child.kill().await?;
    Ok(())
}

/// A page over plain HTTP.
async fn reqwest(address: &str) -> Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The port of the virtual node answers only to whom the API server would let through.
pub async fn who_has_no_right_is_refused(stage: &Stage) -> Result<()> {
    let rome = stage.rome()?;
    let address = "jsonpath={.items[0].status.addresses[0].address}";
    let address = rome.kubectl(&["get", "nodes", "-l", "liqo.io/type=virtual-node", "-o", address]).await?;
    let pod = stage.await_ready("web", 2).await?[0].metadata.name.clone().unwrap_or_default();
    let (kubectl, server) = (rome.program_on_node("kubectl"), format!("--server=https://{address}:10250"));
    let page = format!("/containerLogs/{AWAY}/{pod}/echo");
    let ask = [
        &kubectl,
        "--kubeconfig=/dev/null",
        &server,
        "--insecure-skip-tls-verify",
        "--token=made-up",
        "get",
        "--raw",
        &page,
    ];
    let refused = rome.on_node(1, &ask).await.err().context("whoever is nobody gets a log")?;
    ensure!(format!("{refused:#}").contains("must be logged in"), "{refused:#}");
    let request = Request::builder()
        .uri(format!("/api/v1/namespaces/{AWAY}/pods/{pod}/log"))
        .header("Impersonate-User", "somebody")
        .body(Vec::new())?;
    let refused = rome.client.request_text(request).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403), "{refused:?}");
    Ok(())
}
