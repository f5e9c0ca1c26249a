//! A stream that can be cut from outside: the SSH library runs a connection in a task of its own, which ends when its
//! stream does.

use futures::task::AtomicWaker;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What cuts a stream.
#[derive(Default)]
pub(super) struct Leash {
    cut: AtomicBool,
    reader: AtomicWaker,
}

impl Leash {
    /// From now on the stream has ended.
    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        self.reader.wake();
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }
}

/// A stream on a leash.
pub(super) struct Leashed<S> {
    stream: S,
    leash: Arc<Leash>,
}

impl<S> Leashed<S> {
    pub(super) fn new(stream: S, leash: Arc<Leash>) -> Self {
        Self { stream, leash }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Leashed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.leash.reader.register(cx.waker());
        if self.leash.is_cut() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Leashed<S> {
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

    #[tokio::test]
    async fn a_waiting_reader_is_cut_off() {
        let (near, mut far) = tokio::io::duplex(16);
        let leash = Arc::new(Leash::default());
        let mut leashed = Leashed::new(near, leash.clone());
        far.write_all(b"x").await.unwrap();
        assert_eq!(leashed.read_u8().await.unwrap(), b'x');
        let (read, ()) = tokio::join!(leashed.read_u8(), async { leash.cut() });
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }
}
