//! Ends connections that are opened and then say nothing. The time for a request's head counts only from when it is known which
//! HTTP is spoken, and a client that sends no byte never tells; each would keep its place for good.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Bytes that tell which HTTP is spoken: the preface of HTTP/2 (RFC 9113, section 3.4). No request of HTTP/1 for anything that is
/// served here is shorter.
const TELLING_LEN: usize = 24;

/// A stream whose first bytes must come in time.
pub(super) struct Opening<S> {
    stream: S,
    /// Bytes that have to come yet.
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<S> Opening<S> {
    /// Gives `stream` so much time to say what it is.
    pub(super) fn new(stream: S, time_max: Duration) -> Self {
        Self {
            stream,
            missing: TELLING_LEN,
            deadline: Box::pin(tokio::time::sleep(time_max)),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if self.missing == 0 {
            return read;
        }
        if read.is_ready() {
            self.missing = self.missing.saturating_sub(buffer.filled().len() - before);
            return read;
        }
        let late = self.deadline.as_mut().poll(cx);
        late.map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client said nothing")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const TIME_MAX: Duration = Duration::from_secs(60);

    /// Reads one byte from a client that has sent `sent` and goes on after two minutes.
    async fn read_after(sent: usize) -> io::Result<u8> {
        let (near, mut far) = tokio::io::duplex(64);
        let mut opening = Opening::new(near, TIME_MAX);
        far.write_all(&vec![1; sent]).await.unwrap();
        opening.read_exact(&mut vec![0; sent]).await.unwrap();
        let late = async {
            tokio::time::sleep(2 * TIME_MAX).await;
            // Nobody may be there to read it.
            let _ = far.write_all(b"x").await;
        };
        let (read, ()) = tokio::join!(opening.read_u8(), late);
        read
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_given_up_and_who_has_spoken_may_pause() {
        for sent in [0, 1, TELLING_LEN - 1] {
            let error = read_after(sent).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{sent}");
        }
        for sent in [TELLING_LEN, TELLING_LEN + 1] {
            assert_eq!(read_after(sent).await.unwrap(), b'x', "{sent}");
        }
    }
}
