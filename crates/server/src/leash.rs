//! A stream that can be cut from outside: for connections that make room for others, and for those that the SSH library
//! runs in a task of its own, which ends when its stream does.

use crate::watched_reads::{Watch, WatchedReads};
use futures::task::AtomicWaker;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;

/// What cuts a stream.
#[derive(Default)]
pub(crate) struct Leash {
    cut: AtomicBool,
    reader: AtomicWaker,
}

impl Leash {
    /// From now on the stream has ended.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        self.reader.wake();
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }
}

/// A stream on a leash.
pub(crate) type Leashed<S> = WatchedReads<S, Arc<Leash>>;

impl Watch for Arc<Leash> {
    fn before(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.reader.register(cx.waker());
        if self.is_cut() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
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
