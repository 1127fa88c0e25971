//! The body of a watch: one event a line, of which none may be too long. All of them may be, since nobody keeps them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use super::Problem;

/// A body whose lines are bounded.
pub(super) struct Lines<B> {
    body: B,
    longest: usize,
    /// How long the present line is so far.
    length: usize,
}

impl<B> Lines<B> {
    pub(super) fn new(body: B, longest: usize) -> Self {
        Self { body, longest, length: 0 }
    }

    fn count(&mut self, data: &[u8]) -> Result<(), Problem> {
        for (index, piece) in data.split(|byte| *byte == b'\n').enumerate() {
            let before = if index == 0 { self.length } else { 0 };
            self.length = before + piece.len();
            if self.length > self.longest {
                return Err(format!("an event is longer than {} bytes", self.longest).into());
            }
        }
        Ok(())
    }
}

impl<B> Body for Lines<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Problem>,
{
    type Data = Bytes;
    type Error = Problem;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        let lines = self.get_mut();
        let frame = ready!(Pin::new(&mut lines.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(Into::into)?;
            frame.data_ref().map_or(Ok(()), |data| lines.count(data))?;
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    async fn read(pieces: &[&'static str]) -> Result<Bytes, Problem> {
        let frames =
            pieces.iter().map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from_static(piece.as_bytes()))));
        let body = StreamBody::new(stream::iter(frames.collect::<Vec<_>>()));
        Ok(Lines::new(body, 4).collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn any_number_of_lines_may_come_but_none_that_is_too_long() {
        for pieces in
            [&["1234\n1234\n", "12", "34\n", "\n1234"][..], &["12", "34", "\n", "1234"], &["", "1234"]]
        {
            assert_eq!(read(pieces).await.unwrap(), pieces.concat());
        }
        for pieces in [&["12345\n"][..], &["12", "345"], &["1\n12", "34", "5"], &["1\n12345\n1"]] {
            assert!(read(pieces).await.is_err(), "{pieces:?}");
        }
    }
}
