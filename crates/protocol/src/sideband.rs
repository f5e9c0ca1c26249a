//! side-band: data, text and a fatal message multiplexed in one stream (gitprotocol-capabilities, `side-band`).

use bytes::Bytes;

use crate::pktline::{self, PACKET_MAX};

/// The empty band-1 packet that keeps an idle side-band stream alive.
pub const KEEP_ALIVE: &[u8; 5] = b"0005\x01";

/// The empty band-2 packet: keeps a stream alive whose reader waits for lines on band 1.
pub const EMPTY_TEXT: &[u8; 5] = b"0005\x02";

/// What a side-band packet carries; the value is its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Band {
    /// The pack, or the report of a push.
    Data = 1,
    /// Text for the user, shown behind `remote: `.
    Text = 2,
    /// The reason why the stream ends here.
    Fatal = 3,
}

impl Band {
    /// The band of that byte.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Data),
            2 => Some(Self::Text),
            3 => Some(Self::Fatal),
            _ => None,
        }
    }
}

/// The side-band that a client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SideBand {
    /// `side-band`: packets of at most 1,000 bytes.
    Small,
    /// `side-band-64k`, and v2: packets of at most 65,520 bytes.
    Large,
}

/// One side-band packet in two pieces, so that its payload need not be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The length digits and the band.
    pub header: [u8; 5],
    /// What follows them.
    pub payload: Bytes,
}

impl SideBand {
    /// Bytes of payload in the longest packet.
    pub const fn payload_max(self) -> usize {
        match self {
            Self::Small => 1_000 - FRAMING,
            Self::Large => PACKET_MAX - FRAMING,
        }
    }

    /// Appends band-1 packets with all of `data`; none if it is empty.
    pub fn data(self, out: &mut Vec<u8>, data: &[u8]) {
        self.write(out, Band::Data, data);
    }

    /// Appends band-2 packets: text for the user, whose lines end in LF or, to be overwritten, in CR.
    /// Other control bytes are left out, so that no peer's text can drive a terminal.
    pub fn text(self, out: &mut Vec<u8>, text: &str) {
        self.write(out, Band::Text, &plain(text));
    }

    /// Appends a band-3 packet: why the stream ends here. Plain as in [`text`](Self::text); cut at the packet's length.
    pub fn fatal(self, out: &mut Vec<u8>, text: &str) {
        let text = plain(text);
        self.write(out, Band::Fatal, text.get(..self.payload_max()).unwrap_or(&text));
    }

    /// The band-1 packets of `data`, none copied.
    pub fn frames(self, mut data: Bytes) -> impl Iterator<Item = Frame> {
        std::iter::from_fn(move || {
            if data.is_empty() {
                return None;
            }
            let payload = data.split_to(data.len().min(self.payload_max()));
            Some(Frame {
                header: header(Band::Data, payload.len()),
                payload,
            })
        })
    }

    fn write(self, out: &mut Vec<u8>, band: Band, data: &[u8]) {
        for payload in data.chunks(self.payload_max()) {
            out.extend_from_slice(&header(band, payload.len()));
            out.extend_from_slice(payload);
        }
    }
}

fn header(band: Band, payload_size: usize) -> [u8; FRAMING] {
    let [a, b, c, d] = pktline::length_digits(payload_size + 1);
    [a, b, c, d, band as u8]
}

/// The text without control bytes that do more than end a line or a column.
fn plain(text: &str) -> Vec<u8> {
    text.chars()
        .filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\r' | '\t'))
        .collect::<String>()
        .into_bytes()
}

/// The length digits and the band.
const FRAMING: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_stay_within_both_limits() {
        for (band, packet_max) in [(SideBand::Small, 1_000), (SideBand::Large, 65_520)] {
            let data = vec![7; 3 * packet_max];
            let mut out = Vec::new();
            band.data(&mut out, &data);
            let mut decoder = pktline::Decoder::new();
            decoder.push(&out);
            let mut joined = Vec::new();
            while let Some(packet) = decoder.poll().unwrap() {
                assert!(packet.wire_size() <= packet_max);
                let pktline::Packet::Data(payload) = packet else {
                    panic!("no data")
                };
                assert_eq!(payload[0], 1);
                joined.extend_from_slice(&payload[1..]);
            }
            assert_eq!(joined, data);
            let framed: Vec<u8> = band
                .frames(data.into())
                .flat_map(|frame| [&frame.header[..], &frame.payload].concat())
                .collect();
            assert_eq!(framed, out);
        }
    }

    #[test]
    fn text_holds_no_control_bytes_but_line_ends() {
        let mut out = Vec::new();
        SideBand::Large.text(&mut out, "a\x1b[2Jb\r\n\0\x7f\u{9b}c\t");
        assert_eq!(out, b"000e\x02a[2Jb\r\nc\t");
    }

    #[test]
    fn a_fatal_message_is_one_packet() {
        let mut out = Vec::new();
        SideBand::Small.fatal(&mut out, &"x".repeat(5_000));
        assert_eq!(out.len(), 1_000);
        assert_eq!(&out[..5], b"03e8\x03");
    }

    #[test]
    fn nothing_is_written_for_no_data() {
        let mut out = Vec::new();
        SideBand::Large.data(&mut out, b"");
        assert_eq!(out, b"");
        assert_eq!(SideBand::Large.frames(Bytes::new()).count(), 0);
    }
}
