//! What can be wrong with what a peer sent.

use std::fmt::Write as _;

use cuesta_git::ObjectId;

/// A fault of the peer, with the text stock git gives for it where git has one.
///
/// Nothing here is a fault of this side: writers cannot fail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Bytes that are no pkt-line, or a line outside the grammar of the request.
    #[error("{0}")]
    Malformed(String),
    /// A well-formed request for something that was not advertised or is not allowed.
    #[error("{0}")]
    Refused(String),
    /// A want for an object that is absent, or that this client may not have.
    #[error("upload-pack: not our ref {0}")]
    NotOurRef(ObjectId),
    /// More of something than [`Limits`](crate::Limits) allows.
    #[error("too many {what}: the limit is {max}")]
    Limit {
        /// What there was too much of, as a plural: `wants`, `bytes in a request`.
        what: &'static str,
        /// The limit, in units of `what`.
        max: u64,
    },
    /// The bytes ended inside a packet, or where a packet was due.
    #[error("the remote end hung up unexpectedly")]
    Truncated,
    /// The other side said so, by an `ERR` packet or on band 3.
    #[error("remote error: {0}")]
    Remote(String),
}

/// The classes of [`ProtocolError`], for status codes and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The peer does not speak the protocol.
    Malformed,
    /// The peer asked for what is not offered.
    Refused,
    /// The peer asked for too much.
    Limit,
    /// The peer went away.
    Truncated,
    /// The peer refused.
    Remote,
}

impl ProtocolError {
    /// The class of the error.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed(_) => ErrorKind::Malformed,
            Self::Refused(_) | Self::NotOurRef(_) => ErrorKind::Refused,
            Self::Limit { .. } => ErrorKind::Limit,
            Self::Truncated => ErrorKind::Truncated,
            Self::Remote(_) => ErrorKind::Remote,
        }
    }

    pub(crate) fn malformed(what: &str, line: &[u8]) -> Self {
        Self::Malformed(format!("{what}'{}'", quote(line)))
    }

    pub(crate) fn refused(what: &str, line: &[u8]) -> Self {
        Self::Refused(format!("{what}'{}'", quote(line)))
    }
}

/// Refuses the `max + 1`th of something.
pub(crate) fn within(count: usize, max: usize, what: &'static str) -> Result<(), ProtocolError> {
    if count > max {
        let max = u64::try_from(max).unwrap_or(u64::MAX);
        return Err(ProtocolError::Limit { what, max });
    }
    Ok(())
}

/// A peer's bytes made fit for a message: printable, and short.
pub(crate) fn quote(bytes: &[u8]) -> String {
    let shown = bytes.get(..QUOTE_MAX).unwrap_or(bytes);
    let mut text = String::with_capacity(shown.len());
    for chunk in shown.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() {
                text.extend(letter.escape_default());
            } else {
                text.push(letter);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    if shown.len() < bytes.len() {
        text.push_str("...");
    }
    text
}

/// Bytes of a peer's line that an error message repeats.
const QUOTE_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_lines_hold_no_control_bytes_and_end() {
        assert_eq!(quote(b"want \x1b[31m\0\n"), "want \\u{1b}[31m\\u{0}\\n");
        assert_eq!(quote(b"\xff\xc3\xa9"), "\\xff\u{e9}");
        let long = vec![b'x'; 5000];
        assert_eq!(quote(&long).len(), QUOTE_MAX + 3);
    }

    #[test]
    fn limits_refuse_only_what_is_above_them() {
        assert_eq!(within(3, 3, "wants"), Ok(()));
        let error = within(4, 3, "wants").unwrap_err();
        assert_eq!(error.to_string(), "too many wants: the limit is 3");
        assert_eq!(error.kind(), ErrorKind::Limit);
    }
}
