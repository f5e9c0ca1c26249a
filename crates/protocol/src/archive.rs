//! upload-archive: what a client asks of `git archive --remote` (git-upload-archive(1)).
//!
//! The request is a list of `argument` packets, which are the command line of git-archive(1), and a flush. The answer is
//! `ACK` and a flush, always, and then a side-band: the archive on band 1, messages on band 2, and on band 3 the reason
//! if it ends early. What a remote client may not say (`--add-file`, `--output`, `--worktree-attributes`) is refused here.

mod options;

pub use options::{ArchiveCommand, ArchiveName, ArchiveOptions};

use crate::pktline::{self, FLUSH, Packet};
use crate::sideband::SideBand;
use crate::{Limits, ProtocolError};
use bytes::Bytes;

/// Arguments of one request, as in git.
pub const ARGUMENTS_MAX: usize = 64;

/// Where an answer begins: whatever is wrong with the request is said after it.
pub const ACKNOWLEDGMENT: &[u8] = b"0008ACK\n0000";

/// Takes in the packets of a request.
#[derive(Debug)]
pub struct RequestParser {
    arguments: Vec<Bytes>,
    bytes: usize,
    limits: Limits,
    ended: bool,
}

/// What a packet led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The request goes on.
    More,
    /// The request is whole: its arguments, in order, as they came.
    Request(Vec<Bytes>),
}

impl RequestParser {
    /// A parser at the start of a request.
    pub fn new(limits: Limits) -> Self {
        Self {
            arguments: Vec::new(),
            bytes: 0,
            limits,
            ended: false,
        }
    }

    /// Takes in the next packet.
    pub fn handle(&mut self, packet: &Packet) -> Result<Event, ProtocolError> {
        self.bytes += packet.wire_size();
        crate::error::within(self.bytes, self.limits.request_bytes_max, "bytes in a request")?;
        match packet {
            Packet::Flush => {
                self.ended = true;
                Ok(Event::Request(std::mem::take(&mut self.arguments)))
            }
            Packet::Data(line) => {
                if self.arguments.len() >= ARGUMENTS_MAX {
                    let text = format!("Too many options (>{})", ARGUMENTS_MAX - 1);
                    return Err(ProtocolError::Refused(text));
                }
                let line = pktline::text(line);
                let argument = line.strip_prefix(b"argument ").ok_or_else(unexpected)?;
                self.arguments.push(Bytes::copy_from_slice(argument));
                Ok(Event::More)
            }
            Packet::Delim | Packet::ResponseEnd => Err(unexpected()),
        }
    }

    /// Says that nothing more comes.
    pub fn finish(&self) -> Result<(), ProtocolError> {
        if self.ended {
            Ok(())
        } else {
            Err(ProtocolError::Truncated)
        }
    }
}

fn unexpected() -> ProtocolError {
    ProtocolError::Malformed("'argument' token or flush expected".to_owned())
}

/// Reads a request that is all there. Bytes after its flush are passed over.
pub fn read_request(bytes: &[u8], limits: Limits) -> Result<Vec<Bytes>, ProtocolError> {
    let (mut decoder, mut parser) = (pktline::Decoder::new(), RequestParser::new(limits));
    decoder.push(bytes);
    while let Some(packet) = decoder.poll()? {
        if let Event::Request(arguments) = parser.handle(&packet)? {
            return Ok(arguments);
        }
    }
    Err(ProtocolError::Truncated)
}

/// Appends how an answer ends that failed: why, and that nothing follows.
pub fn write_failure(out: &mut Vec<u8>, text: &str) {
    SideBand::Large.text(out, &format!("fatal: {text}\n"));
    SideBand::Large.fatal(out, "git upload-archive: archiver died with error");
}

/// Appends the end of an answer.
pub fn write_end(out: &mut Vec<u8>) {
    out.extend_from_slice(FLUSH);
}

#[cfg(test)]
#[path = "archive/tests.rs"]
mod tests;
