//! Two connections made into one: bytes are copied both ways, and nobody looks at them.
//!
//! Where one side has said all, the other may finish what it was saying; silence after that ends both. Each byte is passed
//! on at once, and no more is read than the other side takes.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// How long one side may be silent when the other has ended.
pub(super) const LINGER: Duration = Duration::from_secs(10);
const BUFFER: usize = 16 * 1024;

/// Copies until both have ended, or one is broken, or one is silent for too long after the other has ended.
pub(super) async fn splice<A, B>(near: A, far: B, linger: Duration) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (mut near_reads, mut near_writes) = tokio::io::split(near);
    let (mut far_reads, mut far_writes) = tokio::io::split(far);
    let moved = AtomicU64::new(0);
    let mut there = std::pin::pin!(pour(&mut near_reads, &mut far_writes, &moved));
    let mut back = std::pin::pin!(pour(&mut far_reads, &mut near_writes, &moved));
    tokio::select! {
        done = &mut there => {
            done?;
            rest(back.as_mut(), &moved, linger).await
        }
        done = &mut back => {
            done?;
            rest(there.as_mut(), &moved, linger).await
        }
    }
}

async fn rest(
    mut way: impl Future<Output = io::Result<()>> + Unpin,
    moved: &AtomicU64,
    linger: Duration,
) -> io::Result<()> {
    loop {
        let before = moved.load(Ordering::Relaxed);
        match tokio::time::timeout(linger, &mut way).await {
            Ok(done) => return done,
            Err(_) if moved.load(Ordering::Relaxed) == before => return Ok(()),
            Err(_) => {}
        }
    }
}

async fn pour(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    moved: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
        to.flush().await?;
        moved.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_has_said_all_still_hears_the_rest() {
        let (mut client, near) = tokio::io::duplex(64);
        let (far, mut server) = tokio::io::duplex(64);
        let joint = tokio::spawn(splice(near, far, LINGER));
        let mut heard = Vec::new();
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        server.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"question");
        let answer = vec![7; 100_000];
        let tell = async {
            server.write_all(&answer).await.unwrap();
            server.shutdown().await.unwrap();
        };
        let mut told = Vec::new();
        let (read, ()) = tokio::join!(client.read_to_end(&mut told), tell);
        assert_eq!((read.unwrap(), told == answer), (answer.len(), true));
        joint.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn who_is_silent_after_the_other_has_left_is_not_waited_for() {
        let (client, near) = tokio::io::duplex(64);
        let (far, mut server) = tokio::io::duplex(64);
        drop(client);
        tokio::time::timeout(Duration::from_secs(20), splice(near, far, Duration::from_millis(20)))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_byte_is_passed_on_at_once() {
        let (mut client, near) = tokio::io::duplex(64);
        let (far, mut server) = tokio::io::duplex(64);
        let joint = tokio::spawn(splice(near, far, LINGER));
        for byte in 0..3 {
            client.write_all(&[byte]).await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), byte);
            server.write_all(&[byte + 1]).await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), byte + 1);
        }
        joint.abort();
    }
}
