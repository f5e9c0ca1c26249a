//! Streams whose reads are watched, and may be ended, by something beside them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What watches the reads of a stream.
pub(crate) trait Watch {
    /// Asked before each read: an error takes its place. Has to remember the waker where it wants to end a read that waits.
    fn before(&mut self, _cx: &mut Context<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Told of a read that brought so many bytes (none at the end).
    fn came(&mut self, _len: usize) {}

    /// Asked where a read waits.
    fn waits(&mut self, _cx: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Pending
    }
}

/// A stream with its watch. Writes go straight through.
pub(crate) struct WatchedReads<S, W> {
    stream: S,
    watch: W,
}

impl<S, W> WatchedReads<S, W> {
    /// Has `watch` watch the reads of `stream`.
    pub(crate) fn new(stream: S, watch: W) -> Self {
        Self { stream, watch }
    }
}

impl<S: AsyncRead + Unpin, W: Watch + Unpin> AsyncRead for WatchedReads<S, W> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.watch.before(cx)?;
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Pending => self.watch.waits(cx).map(Err),
            read => {
                self.watch.came(buffer.filled().len() - before);
                read
            }
        }
    }
}

impl<S: AsyncWrite + Unpin, W: Unpin> AsyncWrite for WatchedReads<S, W> {
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
