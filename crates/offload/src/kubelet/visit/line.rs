//! What a stream needs of its connections: that a dead client is noticed, and that a body keeps alive what it comes from.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use rustix::net::sockopt;
use tokio::net::TcpStream;

/// How often a silent client is tried, and how long what was sent to it may stay unconfirmed.
const TRY: Duration = Duration::from_secs(20);
const TRIES: u32 = 3;
const UNCONFIRMED: u32 = 60_000;

/// Lets the kernel notice a client that is gone without a word. Where it cannot, a stream only ends later.
pub(super) fn keep_alive(stream: &TcpStream) {
    _ = stream.set_nodelay(true);
    _ = sockopt::set_socket_keepalive(stream, true);
    _ = sockopt::set_tcp_keepidle(stream, TRY);
    _ = sockopt::set_tcp_keepintvl(stream, TRY);
    _ = sockopt::set_tcp_keepcnt(stream, TRIES);
    _ = sockopt::set_tcp_user_timeout(stream, UNCONFIRMED);
}

/// A body with what it needs to go on; all of it goes with the body.
pub(super) struct Held<T> {
    body: Incoming,
    _with: T,
}

impl<T> Held<T> {
    pub(super) fn new(body: Incoming, with: T) -> Self {
        Self { body, _with: with }
    }
}

impl<T: Unpin> Body for Held<T> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
