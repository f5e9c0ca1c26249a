//! Push certificates: signed commands (gitprotocol-pack, `Push Certificate`).

use bytes::Bytes;
use cuesta_git::ObjectFormat;

use super::Command;
use crate::error::{quote, within};
use crate::{Limits, ProtocolError};

/// A push certificate as it came, and what it says. Nothing of it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The text that was signed.
    pub payload: Bytes,
    /// The signature behind it; empty if there is none.
    pub signature: Bytes,
    /// Who pushes, as the certificate has it.
    pub pusher: Option<Bytes>,
    /// The URL pushed to.
    pub pushee: Option<Bytes>,
    /// The nonce that the server advertised, or so the client says.
    pub nonce: Option<Bytes>,
    /// The push options in the certificate; they must be those of the push.
    pub push_options: Vec<Bytes>,
}

impl Certificate {
    /// The certificate as it came: what was signed, and the signature.
    pub fn text(&self) -> Bytes {
        [&self.payload[..], &self.signature].concat().into()
    }

    /// Takes apart what stood between `push-cert` and `push-cert-end`, and the commands in it.
    pub(super) fn parse(
        text: &[u8],
        format: ObjectFormat,
        limits: &Limits,
    ) -> Result<(Self, Vec<Command>), ProtocolError> {
        let malformed = || ProtocolError::Malformed(format!("malformed push certificate {}", quote(text)));
        let (payload, signature) = text.split_at_checked(signature_start(text)).ok_or_else(malformed)?;
        let blank = payload
            .windows(2)
            .position(|pair| pair == b"\n\n")
            .ok_or_else(malformed)?;
        let (header, body) = payload.split_at_checked(blank + 2).ok_or_else(malformed)?;
        let mut commands = Vec::new();
        for line in lines(body) {
            commands.push(Command::parse(line, format, limits)?);
            within(commands.len(), limits.commands_max, "commands")?;
        }
        let value = |key: &[u8]| values(header, key).next();
        let push_options: Vec<Bytes> = values(header, b"push-option ").collect();
        within(push_options.len(), limits.push_options_max, "push options")?;
        let certificate = Self {
            payload: Bytes::copy_from_slice(payload),
            signature: Bytes::copy_from_slice(signature),
            pusher: value(b"pusher "),
            pushee: value(b"pushee "),
            nonce: value(b"nonce "),
            push_options,
        };
        Ok((certificate, commands))
    }
}

/// Where the last signature starts, at a line of its own (git's `parse_signed_buffer`); the end if there is none.
fn signature_start(text: &[u8]) -> usize {
    const STARTS: [&[u8]; 4] = [
        b"-----BEGIN PGP SIGNATURE-----",
        b"-----BEGIN PGP MESSAGE-----",
        b"-----BEGIN SIGNED MESSAGE-----",
        b"-----BEGIN SSH SIGNATURE-----",
    ];
    let mut start = text.len();
    let mut offset = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if STARTS.iter().any(|prefix| line.starts_with(prefix)) {
            start = offset;
        }
        offset += line.len();
    }
    start
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

fn values<'a>(header: &'a [u8], key: &'a [u8]) -> impl Iterator<Item = Bytes> + 'a {
    lines(header)
        .filter_map(move |line| line.strip_prefix(key))
        .map(Bytes::copy_from_slice)
}
