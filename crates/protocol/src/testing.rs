//! What tests of several modules need.

use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};
use proptest::prelude::*;

use crate::pktline::{Decoder, Packet};

/// Each text one packet; `0000`, `0001`, `0002` are the special ones.
pub(crate) fn packets(lines: &[&str]) -> Vec<Packet> {
    lines
        .iter()
        .map(|line| match *line {
            "0000" => Packet::Flush,
            "0001" => Packet::Delim,
            "0002" => Packet::ResponseEnd,
            line => Packet::Data(Bytes::copy_from_slice(line.as_bytes())),
        })
        .collect()
}

/// The packets of these bytes as texts, the special ones by their digits.
pub(crate) fn texts(wire: &[u8]) -> Vec<String> {
    let mut decoder = Decoder::new();
    decoder.push(wire);
    let mut texts = Vec::new();
    while let Some(packet) = decoder.poll().unwrap() {
        texts.push(match packet {
            Packet::Flush => "0000".to_owned(),
            Packet::Delim => "0001".to_owned(),
            Packet::ResponseEnd => "0002".to_owned(),
            Packet::Data(data) => String::from_utf8(data.to_vec()).unwrap(),
        });
    }
    decoder.finish().unwrap();
    texts
}

/// The sha1 id whose every byte is `n`.
pub(crate) fn oid(n: u8) -> ObjectId {
    ObjectId::from_bytes(ObjectFormat::Sha1, &[n; 20]).unwrap()
}

/// The hex of [`oid`].
pub(crate) fn hex(n: u8) -> String {
    oid(n).to_string()
}

/// Cuts `wire` at these places.
pub(crate) fn cut<'a>(wire: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len() + 1)).collect();
    cuts.extend([0, wire.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &wire[pair[0]..pair[1]]).collect()
}

/// Up to ten places to cut at.
pub(crate) fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    proptest::collection::vec(any::<prop::sample::Index>(), 0..10)
}

/// All events a parser gives for these chunks, and the error that ended them.
pub(crate) fn drive<T, E>(chunks: &[&[u8]], mut handle: impl FnMut(&Packet) -> Result<T, E>) -> (Vec<T>, Option<E>)
where
    E: From<crate::ProtocolError>,
{
    let mut decoder = Decoder::new();
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        loop {
            match decoder.poll() {
                Ok(None) => break,
                Err(error) => return (events, Some(error.into())),
                Ok(Some(packet)) => match handle(&packet) {
                    Ok(event) => events.push(event),
                    Err(error) => return (events, Some(error)),
                },
            }
        }
    }
    (events, None)
}
