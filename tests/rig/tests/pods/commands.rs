//! What people ask of a pod through the API server: logs, commands, files, ports, containers for debugging.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use futures::future::{FutureExt as _, try_join_all};
use kube::ResourceExt as _;
use rig::wait::{GENEROUSLY, eventually};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

use crate::stage::{AWAY, Stage, WEB};
use crate::workloads::shell;

const TALK: &str = "n=0; while true; do n=$((n+1)); echo line $n; sleep 1; done";
const LISTEN: &str = "while read line; do echo heard $line; done";
/// What is copied back and forth.
const BYTES: usize = 300_000;

/// Starts a pod that writes a line every second, and one that answers each line that it is told.
pub async fn start(stage: &Stage) -> Result<()> {
    let listener = shell("listener", "Always", LISTEN);
    let listener = listener.replace("{name: shell,", "{name: shell, stdin: true,");
    stage.rome()?.apply(&[shell("talker", "Always", TALK), listener].join("---")).await?;
    let wait = ["wait", "--for=condition=Ready", "pod/talker", "pod/listener", "--timeout=300s"];
    stage.kubectl(AWAY, &wait).await.map(drop)
}

pub async fn stop(stage: &Stage) -> Result<()> {
    stage.kubectl(AWAY, &["delete", "pod", "talker", "listener", "--timeout=300s"]).await?;
    stage.await_gone("talker").await?;
    stage.await_gone("listener").await
}

/// Everything that can be asked, once, and all at the same time.
pub async fn all_are_answered(stage: &Stage) -> Result<()> {
    let asked = [
        logs(stage).boxed_local(),
        follows(stage).boxed_local(),
        runs(stage).boxed_local(),
        is_a_terminal(stage).boxed_local(),
        attaches(stage).boxed_local(),
        copies(stage).boxed_local(),
        ports(stage).boxed_local(),
        tells_what_is_used(stage).boxed_local(),
    ];
    try_join_all(asked).await.map(drop)
}

async fn logs(stage: &Stage) -> Result<()> {
    eventually("its log has three lines", || async {
        let log = stage.kubectl(AWAY, &["logs", "talker", "--timestamps"]).await?;
        ensure!(log.lines().count() >= 3 && log.contains("Z line 2"), "{log}");
        Ok(())
    })
    .await?;
    let tail = stage.kubectl(AWAY, &["logs", "talker", "--tail=1"]).await?;
    ensure!(tail.lines().count() == 1 && tail.starts_with("line "), "{tail}");
    let since = stage.kubectl(AWAY, &["logs", "talker", "--since=1h"]).await?;
    ensure!(since.starts_with("line 1\n"), "{since}");
    let since = stage.kubectl(AWAY, &["logs", "talker", "--since-time=2099-01-01T00:00:00Z"]).await?;
    ensure!(since.is_empty(), "{since}");
    let none = stage.kubectl(AWAY, &["logs", "talker", "--previous"]).await;
    let none = none.err().context("a container that never was has a log")?;
    ensure!(format!("{none:#}").contains("previous terminated container"), "{none:#}");
    Ok(())
}

/// kubectl with these words, and its output line by line.
fn spoken(stage: &Stage, words: &[&str]) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let mut command = stage.rome()?.kubectl_command();
    command.args(["-n", AWAY]).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    Ok((child, lines))
}

/// The next line; who says nothing more says why.
async fn next(child: &mut Child, lines: &mut Lines<BufReader<ChildStdout>>) -> Result<String> {
    let line = tokio::time::timeout(GENEROUSLY, lines.next_line()).await.context("it is silent")??;
    if let Some(line) = line {
        return Ok(line);
    }
    let mut why = String::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_string(&mut why).await?;
    }
    anyhow::bail!("it ends with {:?}: {why}", child.wait().await?)
}

/// A log that is followed goes on.
async fn follows(stage: &Stage) -> Result<()> {
    let leads = leader(stage).await?;
    let (mut child, mut lines) = spoken(stage, &["logs", "-f", "talker", "--tail=1"])?;
    for _ in 0..4 {
        // It ends with who passes it on.
        let line = next(&mut child, &mut lines).await;
        let line = line.with_context(|| format!("{leads} led when this log was asked for"))?;
        ensure!(line.starts_with("line "), "the log goes on with {line:?}");
    }
    child.kill().await?;
    Ok(())
}

async fn runs(stage: &Stage) -> Result<()> {
    let said = stage.kubectl(AWAY, &["exec", "talker", "--", "sh", "-c", "hostname; exit 0"]).await?;
    ensure!(said.trim() == "talker", "{said}");
    let mut command = stage.rome()?.kubectl_command();
    command.args(["-n", AWAY, "exec", "talker", "--", "sh", "-c", "echo seven >&2; exit 7"]);
    let failed = command.output().await?;
    ensure!(failed.status.code() == Some(7), "the exit code of a command is lost: {failed:?}");
    ensure!(String::from_utf8_lossy(&failed.stderr).contains("seven"), "its complaint is lost: {failed:?}");
    Ok(())
}

/// A shell in the pod has a terminal, as large as that of the user.
async fn is_a_terminal(stage: &Stage) -> Result<()> {
    let kubectl = stage.rome()?.kubectl_command();
    let words = kubectl.as_std().get_args().map(|word| word.to_string_lossy());
    let words = [kubectl.as_std().get_program().to_string_lossy()].into_iter().chain(words);
    let line = format!(
        "stty rows 33 cols 77; exec {} -n {AWAY} exec -it talker -- sh",
        words.collect::<Vec<_>>().join(" ")
    );
    // `script` gives a terminal to whom it runs.
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut stdin = child.stdin.take().context("no input")?;
    let mut stdout = child.stdout.take().context("no output")?;
    // What is typed comes back as well, and must not be taken for the answer; the size may come a moment later.
    stdin
        .write_all(b"until stty size | grep '^33 77$'; do sleep 1; done; test -t 0 && echo sum-$((40+2))\n")
        .await?;
    let mut seen = Vec::new();
    let told = async {
        while !String::from_utf8_lossy(&seen).contains("sum-42") {
            let read = stdout.read_buf(&mut seen).await?;
            ensure!(read > 0, "the shell has ended");
        }
        stdin.write_all(b"exit 5\n").await?;
        Ok(child.wait().await?)
    };
    let ended = tokio::time::timeout(GENEROUSLY, told).await;
    let ended = ended.map_err(anyhow::Error::from).and_then(|told| told);
    let ended = ended.with_context(|| String::from_utf8_lossy(&seen).into_owned())?;
    ensure!(ended.code() == Some(5), "the shell ended with {ended:?}");
    Ok(())
}

/// What a pod is told it hears, and what it says is heard.
async fn attaches(stage: &Stage) -> Result<()> {
    let (mut child, mut lines) = spoken(stage, &["attach", "talker"])?;
    let line = next(&mut child, &mut lines).await?;
    ensure!(line.starts_with("line "), "{line}");
    child.kill().await?;
    let (mut child, mut lines) = spoken(stage, &["attach", "-i", "listener"])?;
    let mut stdin = child.stdin.take().context("no input")?;
    stdin.write_all(b"you\n").await?;
    let line = next(&mut child, &mut lines).await?;
    ensure!(line == "heard you", "{line}");
    child.kill().await?;
    Ok(())
}

/// A file arrives, and comes back, as it was.
async fn copies(stage: &Stage) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("ferro-pods-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (there, back) = (folder.join("there"), folder.join("back"));
    let content: Vec<u8> = (0..=250).cycle().take(BYTES).collect();
    let copied = async {
        std::fs::write(&there, &content)?;
        stage.kubectl(AWAY, &["cp", &there.display().to_string(), "talker:/tmp/file"]).await?;
        let size = stage.kubectl(AWAY, &["exec", "talker", "--", "sh", "-c", "wc -c < /tmp/file"]).await?;
        ensure!(size.trim() == BYTES.to_string(), "{size}");
        stage.kubectl(AWAY, &["cp", "talker:/tmp/file", &back.display().to_string()]).await?;
        ensure!(std::fs::read(&back)? == content, "another file comes back");
        Ok(())
    }
    .await;
    std::fs::remove_dir_all(&folder)?;
    copied
}

/// A port of a pod over there answers at a port here.
async fn ports(stage: &Stage) -> Result<()> {
    let pod = stage.await_ready("web", WEB).await?[0].name_any();
    let (mut child, mut lines) = spoken(stage, &["port-forward", &format!("pod/{pod}"), ":8080"])?;
    let line = next(&mut child, &mut lines).await?;
    let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
    let port = port.with_context(|| line.clone())?;
    for _ in 0..2 {
        let answer = page(&format!("127.0.0.1:{port}")).await?;
        ensure!(answer.contains(&pod), "{pod} answers {answer}");
    }
    child.kill().await?;
    Ok(())
}

/// A page over plain HTTP.
async fn page(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The summary that monitors ask of a node has what its pods use over there.
async fn tells_what_is_used(stage: &Stage) -> Result<()> {
    let pods = stage.await_ready("web", WEB).await?;
    let page = format!("/api/v1/nodes/{}/proxy/stats/summary", stage.node);
    // A pod that is new is measured after a while.
    eventually("the node tells what its pods use", || async {
        let summary: Value = serde_json::from_str(&stage.rome()?.kubectl(&["get", "--raw", &page]).await?)?;
        for pod in &pods {
            let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
            let mut told = summary["pods"].as_array().into_iter().flatten();
            let told = told.find(|told| told["podRef"]["uid"] == uid);
            let told = told.with_context(|| format!("nothing is told of {name}: {summary}"))?;
            ensure!(told["podRef"]["name"] == name && told["podRef"]["namespace"] == AWAY, "{told}");
            ensure!(told["cpu"]["usageCoreNanoSeconds"].as_u64() > Some(0), "{told}");
            ensure!(told["memory"]["workingSetBytes"].as_u64() > Some(0), "{told}");
        }
        Ok(())
    })
    .await
}

/// Containers for debugging join the pod that runs, and see the processes of the one that they are for: with the profile
/// that asks for no rights, and with the one that kubectl uses when it is told none.
pub async fn containers_for_debugging_join_the_pod(stage: &Stage) -> Result<()> {
    let look = ["--quiet", "--", "sh", "-c", "cat /proc/1/cmdline | tr \"\\\\0\" \" \""];
    for (name, profile) in [("probe", Some("--profile=baseline")), ("plain", None)] {
        let how: Vec<&str> = profile.into_iter().chain(look).collect();
        debug(stage, name, &how).await?;
        eventually("it has looked", || async {
            let log = stage.kubectl(AWAY, &["logs", "talker", "-c", name]).await?;
            ensure!(log.contains("echo line"), "{log}");
            Ok(())
        })
        .await?;
        stage.says(AWAY, &["get", "pod", "talker", "-o", &ended(name, "exitCode")], "0").await?;
    }
    is_undisturbed(stage).await
}

/// The profile that newer versions of kubectl use asks for a right that the level of a Tenant does not give: the container
/// ends with the reason of the provider, and the pod runs on.
pub async fn a_container_for_debugging_with_more_rights_is_refused(stage: &Stage) -> Result<()> {
    debug(stage, "mighty", &["--profile=general", "--quiet", "--", "sleep", "1000"]).await?;
    for (field, said) in [("reason", "NotAllowed"), ("exitCode", "128")] {
        stage.says(AWAY, &["get", "pod", "talker", "-o", &ended("mighty", field)], said).await?;
    }
    eventually("the pod says why", || async {
        let described = stage.kubectl(AWAY, &["describe", "pod", "talker"]).await?;
        for said in ["liqo.io/ChangeRefused", "container mighty asks for capabilities"] {
            ensure!(described.contains(said), "nothing of {said}: {described}");
        }
        Ok(())
    })
    .await?;
    is_undisturbed(stage).await
}

/// Asks for a container that is for debugging the talker.
async fn debug(stage: &Stage, name: &str, how: &[&str]) -> Result<()> {
    let container = format!("--container={name}");
    let debug = ["debug", "talker", "--image=rig/busybox:1", "--target=shell", &container];
    stage.kubectl(AWAY, &[&debug[..], how].concat()).await.map(drop)
}

/// How a container for debugging has ended.
fn ended(name: &str, field: &str) -> String {
    format!("jsonpath={{.status.ephemeralContainerStatuses[?(@.name==\"{name}\")].state.terminated.{field}}}")
}

/// The container of the talker is the first one that it had.
async fn is_undisturbed(stage: &Stage) -> Result<()> {
    let restarts =
        "jsonpath={.status.containerStatuses[0].restartCount}/{.status.containerStatuses[0].ready}";
    stage.says(AWAY, &["get", "pod", "talker", "-o", restarts], "0/true").await
}

/// Who leads the controllers of rome.
async fn leader(stage: &Stage) -> Result<String> {
    let holder = ["get", "lease", "ferro-controller", "-o", "jsonpath={.spec.holderIdentity}"];
    stage.kubectl("liqo", &holder).await
}

/// When another replica leads, nodes have its address, and whoever asks then is answered without asking twice.
pub async fn a_new_leader_answers_at_once(stage: &Stage) -> Result<()> {
    let former = leader(stage).await?;
    let begin = Instant::now();
    stage.kubectl("liqo", &["delete", "pod", &former, "--wait=false"]).await?;
    let next = eventually("another one leads", || async {
        let leader = leader(stage).await?;
        ensure!(!leader.is_empty() && leader != former, "{leader:?} leads");
        Ok(leader)
    })
    .await?;
    let led = begin.elapsed();
    let address = ["get", "pod", &next, "-o", "jsonpath={.status.podIP}"];
    // It may lead before its kubelet has said where it is.
    let address = eventually("the leader has an address", || async {
        let address = stage.kubectl("liqo", &address).await?;
        ensure!(!address.is_empty(), "{next} has none yet");
        Ok(address)
    })
    .await?;
    let told = ["get", "node", &stage.node, "-o", "jsonpath={.status.addresses[0].address}"];
    stage.says(AWAY, &told, &address).await?;
    println!("{next} leads after {led:.1?}, and the node says so after {:.1?}", begin.elapsed());
    all_are_answered(stage).await?;
    debug(stage, "later", &["--profile=baseline", "--quiet", "--", "true"]).await?;
    stage.says(AWAY, &["get", "pod", "talker", "-o", &ended("later", "exitCode")], "0").await
}
