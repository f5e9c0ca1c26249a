//! Ends connections that are opened and then say nothing. The time for a request's head counts only from when it is known which
//! HTTP is spoken, and a client that sends no byte never tells; each would keep its place for good.

use crate::watched_reads::{Watch, WatchedReads};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// Bytes that tell which HTTP is spoken: the preface of HTTP/2 (RFC 9113, section 3.4). No request of HTTP/1 for anything that is
/// served here is shorter.
const TELLING_LEN: usize = 24;

/// Wants the first bytes of a stream in time.
pub(super) struct Opening {
    /// Bytes that have to come yet.
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

impl Opening {
    /// Gives `stream` so much time to say what it is.
    pub(super) fn of<S>(stream: S, time_max: Duration) -> WatchedReads<S, Self> {
        let opening = Self {
            missing: TELLING_LEN,
            deadline: Box::pin(tokio::time::sleep(time_max)),
        };
        WatchedReads::new(stream, opening)
    }
}

impl Watch for Opening {
    fn came(&mut self, len: usize) {
        self.missing = self.missing.saturating_sub(len);
    }

    fn waits(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.missing == 0 {
            return Poll::Pending;
        }
        let late = self.deadline.as_mut().poll(cx);
        late.map(|()| io::Error::new(io::ErrorKind::TimedOut, "the client said nothing"))
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
        let mut opening = Opening::of(near, TIME_MAX);
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
