//! Input for the protocol's targets: a stream of packets, cut somewhere.

#![allow(dead_code)] // Each target uses its part.

use bytes::Bytes;
use cuesta_protocol::ProtocolError;
use cuesta_protocol::pktline::{Decoder, Packet};

/// Packets out of any bytes: the first says whether the rest is the stream itself, or lines to be made packets of (empty
/// line: flush; `|`: delim), which gets the fuzzer to the grammar sooner.
pub fn stream(data: &[u8]) -> Vec<u8> {
    match data.split_first() {
        Some((0, wire)) => wire.to_vec(),
        Some((_, text)) => {
            let mut wire = Vec::new();
            for line in text.split(|byte| *byte == b'\n') {
                match line {
                    b"" => Packet::Flush,
                    b"|" => Packet::Delim,
                    _ => Packet::Data(Bytes::copy_from_slice(line.get(..60_000).unwrap_or(line))),
                }
                .encode(&mut wire);
            }
            wire
        }
        None => Vec::new(),
    }
}

/// All that `handle` makes of the stream, cut into chunks of this many bytes.
pub fn drive<T>(
    wire: &[u8],
    chunk: usize,
    mut handle: impl FnMut(&Packet) -> Result<T, ProtocolError>,
) -> (Vec<T>, Option<ProtocolError>) {
    let mut decoder = Decoder::new();
    let mut events = Vec::new();
    for chunk in wire.chunks(chunk.max(1)) {
        decoder.push(chunk);
        loop {
            match decoder.poll().and_then(|packet| packet.map(|packet| handle(&packet)).transpose()) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
    }
    (events, None)
}
