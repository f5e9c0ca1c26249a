//! Packs made by hand: objects that git would not write, and packs that are not right.

use crate::format::Format;
use anyhow::Result;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write;

/// The kinds of pack entries, by their number in the format.
pub(crate) mod kind {
    pub(crate) const COMMIT: u8 = 1;
    pub(crate) const TREE: u8 = 2;
    pub(crate) const BLOB: u8 = 3;
    pub(crate) const TAG: u8 = 4;
    pub(crate) const OFS_DELTA: u8 = 6;
    pub(crate) const REF_DELTA: u8 = 7;
}

/// The oid of an object of a kind.
pub(crate) fn oid(format: Format, kind: u8, content: &[u8]) -> String {
    let name = match kind {
        kind::COMMIT => "commit",
        kind::TREE => "tree",
        kind::BLOB => "blob",
        _ => "tag",
    };
    let header = format!("{name} {}\0", content.len());
    hex(&format.digest(&[header.as_bytes(), content].concat()))
}

/// A commit by the suite's author.
pub(crate) fn commit(tree: &str, parents: &[&str]) -> Vec<u8> {
    let parents: String = parents.iter().map(|parent| format!("parent {parent}\n")).collect();
    format!("tree {tree}\n{parents}author A <a@example.com> 1700000000 +0000\ncommitter C <c@example.com> 1700000000 +0000\n\nm\n").into_bytes()
}

/// A tree of entries as they are given.
pub(crate) fn tree(entries: &[(&str, &str, &str)]) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    for (mode, name, oid) in entries {
        content.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        content.extend_from_slice(&bytes(oid)?);
    }
    Ok(content)
}

/// Collects entries into a pack.
#[derive(Clone)]
pub(crate) struct Pack {
    format: Format,
    entries: Vec<u8>,
    offsets: Vec<usize>,
}

/// Length of a pack's header.
const HEADER_LEN: usize = 12;

impl Pack {
    /// A pack without entries.
    pub(crate) fn new(format: Format) -> Self {
        Self {
            format,
            entries: Vec::new(),
            offsets: Vec::new(),
        }
    }

    /// Adds an object; returns its oid.
    pub(crate) fn object(&mut self, kind: u8, content: &[u8]) -> Result<String> {
        self.entry(kind, content.len(), &[], content)?;
        Ok(oid(self.format, kind, content))
    }

    /// Adds an entry as told, true or not: kind, size, what stands between header and data (a delta's base), data.
    pub(crate) fn entry(&mut self, kind: u8, size: usize, base: &[u8], data: &[u8]) -> Result<()> {
        self.offsets.push(HEADER_LEN + self.entries.len());
        let mut rest = size >> 4;
        let mut byte = (kind << 4) | low_bits(size, 4);
        while rest > 0 {
            self.entries.push(byte | 0x80);
            byte = low_bits(rest, 7);
            rest >>= 7;
        }
        self.entries.push(byte);
        self.entries.extend_from_slice(base);
        let mut encoder = ZlibEncoder::new(&mut self.entries, Compression::fast());
        encoder.write_all(data)?;
        encoder.finish()?;
        Ok(())
    }

    /// Adds an offset delta whose base lies `distance` bytes before.
    pub(crate) fn offset_delta(&mut self, distance: usize, delta: &[u8]) -> Result<()> {
        let mut encoded = vec![low_bits(distance, 7)];
        let mut rest = distance >> 7;
        while rest > 0 {
            rest -= 1;
            encoded.push(low_bits(rest, 7) | 0x80);
            rest >>= 7;
        }
        encoded.reverse();
        self.entry(kind::OFS_DELTA, delta.len(), &encoded, delta)
    }

    /// Adds a delta that names its base.
    pub(crate) fn ref_delta(&mut self, base: &str, delta: &[u8]) -> Result<()> {
        self.entry(kind::REF_DELTA, delta.len(), &bytes(base)?, delta)
    }

    /// Where the next entry will be, counted back from which an offset delta names its base.
    pub(crate) fn next_offset(&self) -> usize {
        HEADER_LEN + self.entries.len()
    }

    /// Where entry `index` begins.
    pub(crate) fn offset(&self, index: usize) -> usize {
        self.offsets.get(index).copied().unwrap_or_default()
    }

    /// The pack.
    pub(crate) fn finish(&self) -> Vec<u8> {
        self.finish_as(2, self.offsets.len())
    }

    /// The pack with a header that says so.
    pub(crate) fn finish_as(&self, version: usize, count: usize) -> Vec<u8> {
        let mut pack = b"PACK".to_vec();
        for number in [version, count] {
            pack.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
        }
        pack.extend_from_slice(&self.entries);
        seal(self.format, &mut pack);
        pack
    }
}

/// Appends the checksum.
pub(crate) fn seal(format: Format, pack: &mut Vec<u8>) {
    let checksum = format.digest(pack);
    pack.extend_from_slice(&checksum);
}

/// A delta that copies all of a base and appends text.
pub(crate) fn appending_delta(base_size: usize, text: &[u8]) -> Vec<u8> {
    let mut delta = Vec::new();
    for size in [base_size, base_size + text.len()] {
        write_size(&mut delta, size);
    }
    delta.extend_from_slice(&[0b1011_0000, low_bits(base_size, 8), low_bits(base_size >> 8, 8)]);
    delta.push(low_bits(text.len(), 7));
    delta.extend_from_slice(text);
    delta
}

/// Appends a size as deltas write it.
pub(crate) fn write_size(delta: &mut Vec<u8>, mut size: usize) {
    while size >= 0x80 {
        delta.push(low_bits(size, 7) | 0x80);
        size >>= 7;
    }
    delta.push(low_bits(size, 7));
}

/// Reads an oid's hex digits.
pub(crate) fn bytes(oid: &str) -> Result<Vec<u8>> {
    let digits = (0..oid.len())
        .step_by(2)
        .map(|at| oid.get(at..at + 2).unwrap_or_default());
    digits.map(|pair| Ok(u8::from_str_radix(pair, 16)?)).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn low_bits(number: usize, count: u32) -> u8 {
    let bits = number & ((1usize << count) - 1);
    u8::try_from(bits).unwrap_or_default()
}
