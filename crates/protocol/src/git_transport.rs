//! What a client says first over `git://`: one packet that names a program and a path (gitprotocol-pack, `Git Transport`).
//!
//! ```text
//! git-upload-pack /project.git\0host=myserver.com:9418\0\0version=2\0
//! ```
//!
//! Read as git-daemon reads it, but for the host, which may be anything: no repository depends on it here.

use crate::error::quote;
use crate::pktline::Packet;
use crate::{Program, ProtocolError, Version};

/// A request: what is to be run, on what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRequest {
    /// What to run.
    pub program: Program,
    /// The path as the client means it, perhaps empty. Any bytes but NUL.
    pub path: Vec<u8>,
    /// The highest version among the extra parameters that is known; of the service it is for
    /// [`Version::of_service`] to say.
    pub version: Version,
}

impl GitRequest {
    /// Reads the first packet of a connection, which has a bound of its own ([`PACKET_MAX`](crate::pktline::PACKET_MAX)).
    ///
    /// Up to the first NUL it is `<program> <path>`, perhaps with an LF behind. Then comes `host=<host>`, or nothing; after
    /// another NUL extra parameters, each ended by one (the last need not be), of which unknown ones are ignored.
    pub fn parse(packet: &Packet) -> Result<Self, ProtocolError> {
        let Packet::Data(data) = packet else {
            return Err(ProtocolError::Malformed("protocol error: no request".to_owned()));
        };
        let mut parts = data.split(|byte| *byte == 0);
        let line = parts.next().unwrap_or_default();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let (program, path) = Program::ALL
            .into_iter()
            .find_map(|program| Some((program, after_name(line, program)?)))
            .ok_or_else(|| ProtocolError::Malformed(format!("protocol error: '{}'", quote(line))))?;
        let host = parts.next().unwrap_or_default();
        let is_well_formed = host.is_empty() || is_host(host) && parts.next().unwrap_or_default().is_empty();
        if !is_well_formed {
            return Err(ProtocolError::Malformed("invalid request".to_owned()));
        }
        Ok(Self {
            program,
            path: path.to_vec(),
            version: parts.map(Version::requested).max().unwrap_or_default(),
        })
    }
}

/// What follows the program's name and a space.
fn after_name(line: &[u8], program: Program) -> Option<&[u8]> {
    line.strip_prefix(program.name().as_bytes())?.strip_prefix(b" ")
}

fn is_host(part: &[u8]) -> bool {
    const NAME: &[u8] = b"host=";
    part.get(..NAME.len())
        .is_some_and(|name| name.eq_ignore_ascii_case(NAME))
}

#[cfg(test)]
#[path = "git_transport_tests.rs"]
mod tests;
