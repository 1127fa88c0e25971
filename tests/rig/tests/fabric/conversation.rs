//! A connection between two clusters that stays open, whatever happens meanwhile.

use std::net::IpAddr;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rig::pods::{Caller, PORT};
use rig::wait::GENEROUSLY;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::pair::Pair;

/// From a pod to a server, over one TCP connection. It ends with this value.
pub struct Conversation {
    _program: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// How the caller is known where the server is.
    known_as: IpAddr,
    what: String,
}

impl Conversation {
    /// One in each direction between two clusters, both begun.
    pub async fn both_ways(pair: &Pair<'_>) -> Result<Vec<Self>> {
        let mut begun = Vec::new();
        for (here, there) in pair.ways() {
            let (caller, server) = (here.callers().await?, there.echoes().await?);
            let (caller, server) = caller.first().zip(server.first()).context("there is nobody")?;
            let mut one = Self::begin(caller, here.name_of(server.ip)?, there.name_of(caller.ip)?)?;
            one.goes_on().await?;
            begun.push(one);
        }
        Ok(begun)
    }

    fn begin(caller: &Caller<'_>, address: IpAddr, known_as: IpAddr) -> Result<Self> {
        let mut program = caller.pipe(address, PORT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = program.stdin.take().context("no input")?;
        let output = program.stdout.take().context("no output")?;
        Ok(Self { _program: program, input, output, known_as, what: format!("{caller} and {address}") })
    }

    /// Asks once more over the same connection, and gets the answer.
    pub async fn goes_on(&mut self) -> Result<()> {
        let asked = timeout(GENEROUSLY, self.ask()).await;
        let said = asked.with_context(|| format!("{}: silence", self.what))?;
        let said = said.with_context(|| format!("{}: the connection is lost", self.what))?;
        let expected = format!("\"caller\":\"{}\"", self.known_as);
        ensure!(said.starts_with("HTTP/1.1 200") && said.contains(&expected), "{}: {said}", self.what);
        Ok(())
    }

    async fn ask(&mut self) -> Result<String> {
        self.input.write_all(b"GET / HTTP/1.1\r\nHost: echo\r\n\r\n").await?;
        self.input.flush().await?;
        let mut said = Vec::new();
        // The answer is one object without others inside.
        while said.last() != Some(&b'}') {
            ensure!(self.output.read_buf(&mut said).await? > 0, "it ended");
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}
