//! A stream there and back, both ways at once, with a checksum: every byte arrives as it was sent, and in order.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ring::digest::{Context as Sum, Digest, SHA256};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::fetch::{connect, is_success};

const PIECE: usize = 64 * 1024;

/// Sends so many bytes to a mirror and compares what comes back; prints how many, and their checksum.
pub(crate) async fn compare(url: &str, length: usize, timeout: Duration) -> Result<()> {
    let exchanged = tokio::time::timeout(timeout, exchange(url, length));
    let sum = exchanged.await.with_context(|| format!("{url}: not all came back in time"))??;
    println!("{length} bytes came back, {sum:?}");
    Ok(())
}

async fn exchange(url: &str, length: usize) -> Result<Digest> {
    let (mut stream, authority, path) = connect(url).await?;
    let head = format!(
        "POST /{path} HTTP/1.0\r\nHost: {authority}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let (from, to) = stream.split();
    let (sent, (came, returned)) = tokio::try_join!(send(to, &head, length), receive(from))?;
    ensure!(came == length, "{came} of {length} bytes came back");
    ensure!(sent.as_ref() == returned.as_ref(), "what came back is not what was sent");
    Ok(sent)
}

/// Random bytes, so that none of them can stand for another.
async fn send(mut to: WriteHalf<'_>, head: &str, length: usize) -> Result<Digest> {
    to.write_all(head.as_bytes()).await?;
    let (random, mut sum) = (SystemRandom::new(), Sum::new(&SHA256));
    let (mut piece, mut left) = (vec![0; PIECE], length);
    while left > 0 {
        piece.truncate(left);
        random.fill(&mut piece).ok().context("this machine gives no random bytes")?;
        sum.update(&piece);
        to.write_all(&piece).await?;
        left -= piece.len();
    }
    Ok(sum.finish())
}

async fn receive(from: ReadHalf<'_>) -> Result<(usize, Digest)> {
    let mut from = BufReader::with_capacity(PIECE, from);
    let mut line = String::new();
    from.read_line(&mut line).await?;
    ensure!(is_success(&line), "the mirror says {}", line.trim());
    while !line.trim().is_empty() {
        line.clear();
        from.read_line(&mut line).await?;
    }
    let (mut piece, mut sum, mut came) = (vec![0; PIECE], Sum::new(&SHA256), 0);
    loop {
        match from.read(&mut piece).await? {
            0 => return Ok((came, sum.finish())),
            read => {
                sum.update(&piece[..read]);
                came += read;
            }
        }
    }
}
