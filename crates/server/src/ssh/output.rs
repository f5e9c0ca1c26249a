//! What a session channel sends: the service's bytes, lines for the user, and how it ended.

use crate::service::conversation::{Gone, Outlet};
use bytes::{Buf, Bytes};
use russh::ChannelWriteHalf;
use russh::server::Msg;
use std::time::Duration;

/// How long a client may take nothing of what is sent.
const STALL_MAX: Duration = Duration::from_secs(120);
/// Bytes handed over at once.
const CHUNK_LEN_MAX: usize = 64 << 10;
/// The stream for messages (RFC 4254, section 5.2).
const STDERR: u32 = 1;

/// The sending half of a channel.
pub(super) struct Output(ChannelWriteHalf<Msg>);

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    /// The status: 0 if all went well.
    pub(super) code: u32,
    /// What the user is told; empty if nothing.
    pub(super) message: String,
    /// Whether the client may still be sending, and should get to read what it is told before the channel is closed.
    pub(super) lingers: bool,
}

/// The status of git's commands when they give up.
const DIED: u32 = 128;

impl Exit {
    pub(super) const SUCCESS: Self = Self {
        code: 0,
        message: String::new(),
        lingers: true,
    };

    /// Something is wrong with the request, or with us, as git says it.
    pub(super) fn fatal(why: &str) -> Self {
        Self {
            code: DIED,
            message: format!("fatal: {}\n", printable(why)),
            lingers: false,
        }
    }

    /// What hosts say of a repository that is not there or not for this user.
    pub(super) fn no_repository() -> Self {
        Self {
            code: DIED,
            message: "ERROR: Repository not found.\n".to_owned(),
            lingers: false,
        }
    }

    /// What one may not do.
    pub(super) fn refused(why: &str) -> Self {
        Self {
            code: DIED,
            message: format!("ERROR: {}\n", printable(why)),
            lingers: false,
        }
    }

    /// The client was told already.
    pub(super) fn told() -> Self {
        Self {
            code: DIED,
            message: String::new(),
            lingers: true,
        }
    }
}

/// Text without control characters: it goes to a terminal.
fn printable(text: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(plain).collect()
}

impl Output {
    pub(super) fn new(half: ChannelWriteHalf<Msg>) -> Self {
        Self(half)
    }

    /// Shows the user a text.
    pub(super) async fn tell(&mut self, text: String) -> Result<(), Gone> {
        in_time(self.0.extended_data_bytes(STDERR, Bytes::from(text))).await
    }

    /// Says how the command ended, and that nothing more comes.
    pub(super) async fn finish(&mut self, exit: Exit) -> Result<(), Gone> {
        if !exit.message.is_empty() {
            self.tell(exit.message).await?;
        }
        in_time(self.0.exit_status(exit.code)).await?;
        in_time(self.0.eof()).await
    }

    /// Closes the channel.
    pub(super) async fn close(self) {
        // Whoever has gone needs no farewell.
        let _ = in_time(self.0.close()).await;
    }
}

impl Outlet for Output {
    async fn send(&mut self, bytes: &mut (impl Buf + Send)) -> Result<(), Gone> {
        while bytes.has_remaining() {
            let chunk = bytes.copy_to_bytes(bytes.remaining().min(CHUNK_LEN_MAX));
            in_time(self.0.data_bytes(chunk)).await?;
        }
        Ok(())
    }
}

async fn in_time(sent: impl Future<Output = Result<(), russh::Error>>) -> Result<(), Gone> {
    match tokio::time::timeout(STALL_MAX, sent).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Gone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_not_sent() {
        assert_eq!(Exit::fatal("a\x1b[31m\nb").message, "fatal: a [31m b\n");
    }
}
