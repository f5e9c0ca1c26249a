//! pkt-lines: the framing of everything (gitprotocol-common, `pkt-line format`).

use bytes::{Buf as _, Bytes, BytesMut};

use crate::ProtocolError;
use crate::error::quote;

/// Bytes of the longest packet, its four length digits included.
pub const PACKET_MAX: usize = 65_520;
/// Bytes of data in the longest packet.
pub const DATA_MAX: usize = PACKET_MAX - LENGTH_DIGITS;
/// The flush packet, which ends a list or a message.
pub const FLUSH: &[u8; 4] = b"0000";
/// The delim packet, which separates sections of a v2 message.
pub const DELIM: &[u8; 4] = b"0001";
/// The response-end packet, which a v2 proxy to a stateless connection puts behind a whole answer.
pub const RESPONSE_END: &[u8; 4] = b"0002";

/// One packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// `0000`.
    Flush,
    /// `0001`.
    Delim,
    /// `0002`.
    ResponseEnd,
    /// The data of any other packet. May be empty (`0004`). Shares memory with the input around it: copy what is kept.
    Data(Bytes),
}

impl Packet {
    /// Bytes of the packet on the wire.
    pub fn wire_size(&self) -> usize {
        match self {
            Self::Flush | Self::Delim | Self::ResponseEnd => LENGTH_DIGITS,
            Self::Data(data) => LENGTH_DIGITS + data.len(),
        }
    }

    /// Appends the packet to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Flush => out.extend_from_slice(FLUSH),
            Self::Delim => out.extend_from_slice(DELIM),
            Self::ResponseEnd => out.extend_from_slice(RESPONSE_END),
            Self::Data(data) => encode(out, &[data]),
        }
    }
}

/// A text line without the LF that may end it; only one LF is taken off.
pub fn text(data: &[u8]) -> &[u8] {
    data.strip_suffix(b"\n").unwrap_or(data)
}

/// Appends one packet whose data is the concatenation of `parts`.
///
/// Data past [`DATA_MAX`] is cut off, so that no packet is ever longer than a peer must take. Everything with a length
/// of its own (ref names, ids, capabilities) is far below that; only free text can be cut.
pub fn encode(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let size = parts.iter().map(|part| part.len()).sum::<usize>().min(DATA_MAX);
    out.reserve(LENGTH_DIGITS + size);
    out.extend_from_slice(&length_digits(size));
    let mut left = size;
    for part in parts {
        let taken = part.get(..left).unwrap_or(part);
        out.extend_from_slice(taken);
        left -= taken.len();
    }
}

/// Appends an `ERR` packet: the only way to show text to a client in an advertisement, an `ls-refs` answer or a
/// negotiation (it prints `fatal: remote error: <text>`). Control bytes become spaces.
///
/// Inside a side-band stream it is a protocol error; use [`SideBand::fatal`](crate::sideband::SideBand::fatal) there.
pub fn encode_error(out: &mut Vec<u8>, text: &str) {
    let text: String = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    encode(out, &[b"ERR ", text.as_bytes()]);
}

/// The four length digits of a packet with `data_size` bytes of data; at most [`DATA_MAX`].
pub(crate) fn length_digits(data_size: usize) -> [u8; LENGTH_DIGITS] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let length = data_size.min(DATA_MAX) + LENGTH_DIGITS;
    [12, 8, 4, 0].map(|shift| DIGITS[length >> shift & 15])
}

/// Cuts a byte stream into packets, however it is split into chunks.
///
/// Holds what was pushed and not yet polled: poll until `None` after each push, and memory stays within one chunk and
/// one packet.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// A decoder at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next packet, or `None` until more bytes are pushed. After an error the stream is lost.
    pub fn poll(&mut self) -> Result<Option<Packet>, ProtocolError> {
        let Some(digits) = self.buffer.first_chunk::<LENGTH_DIGITS>() else {
            return Ok(None);
        };
        let length = packet_length(digits)?;
        let special = match length {
            0 => Packet::Flush,
            1 => Packet::Delim,
            2 => Packet::ResponseEnd,
            LENGTH_DIGITS..=PACKET_MAX => return Ok(self.data(length)),
            _ => {
                return Err(ProtocolError::Malformed(format!(
                    "protocol error: bad line length {length}"
                )));
            }
        };
        self.buffer.advance(LENGTH_DIGITS);
        Ok(Some(special))
    }

    /// Says that the stream has ended: an error if it ended inside a packet.
    pub fn finish(&self) -> Result<(), ProtocolError> {
        if self.buffer.is_empty() {
            Ok(())
        } else {
            Err(ProtocolError::Truncated)
        }
    }

    /// The bytes pushed and not yet taken as packets, such as the start of a pack behind a push's commands.
    pub fn into_rest(self) -> Bytes {
        self.buffer.freeze()
    }

    fn data(&mut self, length: usize) -> Option<Packet> {
        if self.buffer.len() < length {
            return None;
        }
        self.buffer.advance(LENGTH_DIGITS);
        Some(Packet::Data(self.buffer.split_to(length - LENGTH_DIGITS).freeze()))
    }
}

fn packet_length(digits: &[u8; LENGTH_DIGITS]) -> Result<usize, ProtocolError> {
    digits.iter().try_fold(0, |length, digit| {
        let value = char::from(*digit)
            .to_digit(16)
            .and_then(|value| usize::try_from(value).ok());
        match value {
            Some(value) => Ok(length << 4 | value),
            None => {
                let text = format!("protocol error: bad line length character: {}", quote(digits));
                Err(ProtocolError::Malformed(text))
            }
        }
    })
}

const LENGTH_DIGITS: usize = 4;

#[cfg(test)]
#[path = "pktline_tests.rs"]
mod tests;
