//! Reads the answer to a v2 `fetch` as it arrives, checks it and keeps nothing of it (gitprotocol-v2, `fetch`).

use crate::http::Sink;
use anyhow::{Context, Result, bail, ensure};
use cuesta_git::{Checksum, ObjectFormat};

const PACK_HEADER_LEN: usize = 12;
const CHECKSUM_LEN: usize = 20;
const LENGTH_DIGITS: usize = 4;

/// See the module.
#[derive(Default)]
pub(super) struct PackReader {
    digits: Vec<u8>,
    /// Bytes of the current packet that are still to come.
    left: usize,
    /// A packet before the pack.
    line: Vec<u8>,
    band: Option<u8>,
    in_pack: bool,
    ended: bool,
    fault: Vec<u8>,
    pack: Pack,
}

/// The pack itself.
#[derive(Default)]
struct Pack {
    header: Vec<u8>,
    len: u64,
    /// The last bytes, which may be the checksum.
    tail: Vec<u8>,
    checksum: Option<Checksum>,
}

impl PackReader {
    /// A reader that also checks the pack's checksum: that costs a nanosecond a byte.
    pub(super) fn verifying() -> Self {
        let pack = Pack {
            checksum: Some(Checksum::new(ObjectFormat::Sha1)),
            ..Pack::default()
        };
        Self {
            pack,
            ..Self::default()
        }
    }

    /// Checks that everything came, and answers how many objects did.
    pub(super) fn finish(self) -> Result<u32> {
        ensure!(
            self.fault.is_empty(),
            "remote error: {}",
            String::from_utf8_lossy(&self.fault).trim()
        );
        ensure!(
            self.ended && self.left == 0 && self.digits.is_empty(),
            "the answer is cut short"
        );
        self.pack.finish()
    }

    fn begin_packet(&mut self) -> Result<()> {
        let digits = std::mem::take(&mut self.digits);
        let length = usize::from_str_radix(std::str::from_utf8(&digits)?, 16).context("bad pkt-line")?;
        self.ended = length == 0;
        self.left = length.saturating_sub(LENGTH_DIGITS);
        self.band = None;
        self.line.clear();
        Ok(())
    }

    fn take_data(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.in_pack {
            self.line.extend_from_slice(bytes);
            if self.left == 0 {
                self.in_pack = self.line == b"packfile\n";
                if let Some(fault) = self.line.strip_prefix(b"ERR ") {
                    bail!("remote error: {}", String::from_utf8_lossy(fault).trim());
                }
            }
            return Ok(());
        }
        let (band, data) = match (self.band, bytes.split_first()) {
            (Some(band), _) => (band, bytes),
            (None, Some((band, data))) => (*band, data),
            (None, None) => return Ok(()),
        };
        self.band = Some(band);
        match band {
            1 => self.pack.take(data),
            2 => {}
            _ => self.fault.extend_from_slice(data),
        }
        Ok(())
    }
}

impl Sink for PackReader {
    fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.left == 0 {
                let count = bytes.len().min(LENGTH_DIGITS - self.digits.len());
                let (digits, rest) = bytes.split_at(count);
                self.digits.extend_from_slice(digits);
                bytes = rest;
                if self.digits.len() == LENGTH_DIGITS {
                    self.begin_packet()?;
                }
            } else {
                let (data, rest) = bytes.split_at(bytes.len().min(self.left));
                self.left -= data.len();
                bytes = rest;
                self.take_data(data)?;
            }
        }
        Ok(())
    }
}

impl Pack {
    fn take(&mut self, bytes: &[u8]) {
        let wanted = PACK_HEADER_LEN.saturating_sub(self.header.len());
        self.header.extend_from_slice(bytes.get(..wanted).unwrap_or(bytes));
        self.len += bytes.len() as u64;
        // All but the last bytes are certainly no checksum.
        let certain = (self.tail.len() + bytes.len()).saturating_sub(CHECKSUM_LEN);
        let from_tail = certain.min(self.tail.len());
        let from_bytes = certain - from_tail;
        if let Some(checksum) = &mut self.checksum {
            checksum.update(self.tail.get(..from_tail).unwrap_or_default());
            checksum.update(bytes.get(..from_bytes).unwrap_or_default());
        }
        self.tail.drain(..from_tail);
        self.tail.extend_from_slice(bytes.get(from_bytes..).unwrap_or_default());
    }

    fn finish(self) -> Result<u32> {
        ensure!(
            self.header.starts_with(b"PACK\0\0\0\x02") && self.len >= (PACK_HEADER_LEN + CHECKSUM_LEN) as u64,
            "no pack came"
        );
        if let Some(checksum) = self.checksum {
            ensure!(
                checksum.finish().as_bytes() == self.tail,
                "the pack's checksum is wrong"
            );
        }
        let count = self.header.last_chunk::<4>().context("no pack came")?;
        Ok(u32::from_be_bytes(*count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_protocol::pktline;

    fn answer(damage: bool) -> Vec<u8> {
        let mut pack = b"PACK\0\0\0\x02\0\0\0\x03".to_vec();
        pack.extend([7; 100]);
        let mut checksum = Checksum::new(ObjectFormat::Sha1);
        checksum.update(&pack);
        pack.extend_from_slice(checksum.finish().as_bytes());
        if damage {
            pack[50] = 8;
        }
        let mut out = Vec::new();
        pktline::encode(&mut out, &[b"packfile\n"]);
        pktline::encode(&mut out, &[b"\x02Counting\n"]);
        for part in pack.chunks(37) {
            pktline::encode(&mut out, &[b"\x01", part]);
        }
        out.extend_from_slice(pktline::FLUSH);
        out
    }

    fn read(answer: &[u8], piece: usize) -> Result<u32> {
        let mut reader = PackReader::verifying();
        answer.chunks(piece).try_for_each(|bytes| reader.take(bytes))?;
        reader.finish()
    }

    #[test]
    fn packs_are_checked_however_they_arrive() {
        for piece in [1, 3, 5, 64, 1000] {
            assert_eq!(read(&answer(false), piece).unwrap(), 3);
            let wrong = read(&answer(true), piece).unwrap_err().to_string();
            assert_eq!(wrong, "the pack's checksum is wrong");
        }
        let whole = answer(false);
        assert!(read(&whole[..whole.len() - 4], 64).is_err());
        assert!(read(b"0000", 64).is_err());
    }

    #[test]
    fn errors_are_told() {
        let mut out = Vec::new();
        pktline::encode_error(&mut out, "no such thing");
        assert_eq!(read(&out, 5).unwrap_err().to_string(), "remote error: no such thing");
        let mut out = Vec::new();
        pktline::encode(&mut out, &[b"packfile\n"]);
        pktline::encode(&mut out, &[b"\x03it broke\n"]);
        assert_eq!(read(&out, 7).unwrap_err().to_string(), "remote error: it broke");
    }
}
