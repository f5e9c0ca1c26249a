//! The framing of a pack: its header, and the header of each entry (gitformat-pack).
//!
//! Only bytes: inflating an entry is [`crate::zlib`], resolving its delta is [`crate::delta`].

use crate::{ErrorKind, ObjectFormat, ObjectId, ObjectKind};

/// Bytes in a pack's header.
pub const PACK_HEADER_LEN: usize = 12;

/// The most bytes an [`EntryHeader`] takes: kind and size, then the base's id.
pub const ENTRY_HEADER_LEN_MAX: usize = VARINT_LEN_MAX + 32;

/// A 64-bit number, 7 bits a byte.
const VARINT_LEN_MAX: usize = 10;

/// Bytes that are no pack, or an entry no pack may hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The first four bytes are not `PACK`.
    #[error("protocol error (pack signature mismatch detected): got {0:02x?}")]
    Signature([u8; 4]),
    /// Neither version 2 nor 3.
    #[error("pack version {0} unsupported")]
    Version(u32),
    /// Kind 0 or 5, which gitformat-pack reserves.
    #[error("unknown object type {0}")]
    EntryKind(u8),
    /// The size takes more than 64 bits.
    #[error("object size overflows 64 bits")]
    SizeOverflow,
    /// The distance to the base is zero or takes more than 64 bits.
    #[error("offset value out of bound for delta base object")]
    BaseDistance,
}

impl PackError {
    /// What sort of failure this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Version(_) => ErrorKind::Unsupported,
            _ => ErrorKind::Corrupt,
        }
    }
}

/// The first [`PACK_HEADER_LEN`] bytes of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackHeader {
    /// 2 or 3; they differ in nothing.
    pub version: u32,
    /// Entries that follow.
    pub count: u32,
}

impl PackHeader {
    /// A header of version 2, the one git writes.
    pub const fn new(count: u32) -> Self {
        Self { version: 2, count }
    }

    /// Reads the header; refuses versions git does not read.
    pub fn decode(bytes: &[u8; PACK_HEADER_LEN]) -> Result<Self, PackError> {
        let [s0, s1, s2, s3, v0, v1, v2, v3, c0, c1, c2, c3] = *bytes;
        if [s0, s1, s2, s3] != *b"PACK" {
            return Err(PackError::Signature([s0, s1, s2, s3]));
        }
        let version = u32::from_be_bytes([v0, v1, v2, v3]);
        if version != 2 && version != 3 {
            return Err(PackError::Version(version));
        }
        Ok(Self {
            version,
            count: u32::from_be_bytes([c0, c1, c2, c3]),
        })
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; PACK_HEADER_LEN] {
        let [v0, v1, v2, v3] = self.version.to_be_bytes();
        let [c0, c1, c2, c3] = self.count.to_be_bytes();
        [b'P', b'A', b'C', b'K', v0, v1, v2, v3, c0, c1, c2, c3]
    }
}

/// What an entry's zlib stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// An object, whole.
    Object(ObjectKind),
    /// A delta whose base is an earlier entry of the same pack.
    OfsDelta {
        /// Bytes from the start of the base's entry to the start of this one; never zero.
        distance: u64,
    },
    /// A delta whose base is named, in this pack or (thin packs) elsewhere.
    RefDelta {
        /// The base.
        base: ObjectId,
    },
}

const OFS_DELTA: u8 = 6;
const REF_DELTA: u8 = 7;

/// What stands before an entry's zlib stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryHeader {
    /// Object or delta, and the delta's base.
    pub kind: EntryKind,
    /// Inflated bytes of the entry's own stream: of the delta, for a delta.
    pub size: u64,
}

impl EntryHeader {
    /// Reads the header at the start of `bytes`, and how many bytes it takes; `None` if it goes on past their end.
    pub fn decode(format: ObjectFormat, bytes: &[u8]) -> Result<Option<(Self, usize)>, PackError> {
        let Some((kind, size, size_len)) = decode_kind_and_size(bytes)? else {
            return Ok(None);
        };
        let rest = bytes.get(size_len..).unwrap_or_default();
        let (kind, base_len) = match kind {
            1 => (EntryKind::Object(ObjectKind::Commit), 0),
            2 => (EntryKind::Object(ObjectKind::Tree), 0),
            3 => (EntryKind::Object(ObjectKind::Blob), 0),
            4 => (EntryKind::Object(ObjectKind::Tag), 0),
            OFS_DELTA => match decode_distance(rest)? {
                Some((distance, len)) => (EntryKind::OfsDelta { distance }, len),
                None => return Ok(None),
            },
            REF_DELTA => match rest
                .get(..format.width())
                .and_then(|raw| ObjectId::from_bytes(format, raw).ok())
            {
                Some(base) => (EntryKind::RefDelta { base }, format.width()),
                None => return Ok(None),
            },
            other => return Err(PackError::EntryKind(other)),
        };
        Ok(Some((Self { kind, size }, size_len + base_len)))
    }

    /// Appends the header's bytes to `out`, at most [`ENTRY_HEADER_LEN_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            EntryKind::Object(kind) => kind as u8,
            EntryKind::OfsDelta { .. } => OFS_DELTA,
            EntryKind::RefDelta { .. } => REF_DELTA,
        };
        encode_kind_and_size(kind, self.size, out);
        match &self.kind {
            EntryKind::Object(_) => {}
            EntryKind::OfsDelta { distance } => encode_distance(*distance, out),
            EntryKind::RefDelta { base } => out.extend_from_slice(base.as_bytes()),
        }
    }
}

/// gitformat-pack, "size encoding", with the kind in three bits of the first byte: (kind, size, bytes taken).
fn decode_kind_and_size(bytes: &[u8]) -> Result<Option<(u8, u64, usize)>, PackError> {
    let Some(&first) = bytes.first() else {
        return Ok(None);
    };
    let kind = first >> 4 & 7;
    let mut size = u64::from(first & 15);
    if first & 0x80 == 0 {
        return Ok(Some((kind, size, 1)));
    }
    let mut shift = 4;
    for (index, &byte) in bytes.iter().enumerate().skip(1) {
        let bits = u64::from(byte & 0x7f);
        if shift >= u64::BITS || bits > u64::MAX >> shift {
            return Err(PackError::SizeOverflow);
        }
        size |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(Some((kind, size, index + 1)));
        }
        shift += 7;
    }
    Ok(None)
}

fn encode_kind_and_size(kind: u8, size: u64, out: &mut Vec<u8>) {
    let mut byte = kind << 4 | (size & 15) as u8;
    let mut rest = size >> 4;
    while rest != 0 {
        out.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    out.push(byte);
}

/// gitformat-pack, "offset encoding": big-endian base 128, where each continuation also adds one.
fn decode_distance(bytes: &[u8]) -> Result<Option<(u64, usize)>, PackError> {
    let mut distance = 0u64;
    for (index, &byte) in bytes.iter().enumerate() {
        if distance > u64::MAX >> 7 {
            return Err(PackError::BaseDistance);
        }
        distance = distance << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return if distance == 0 {
                Err(PackError::BaseDistance)
            } else {
                Ok(Some((distance, index + 1)))
            };
        }
        distance += 1;
    }
    Ok(None)
}

fn encode_distance(distance: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; VARINT_LEN_MAX];
    let mut rest = distance;
    let mut more = 0;
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = (rest & 0x7f) as u8 | more;
        used += 1;
        rest >>= 7;
        if rest == 0 {
            break;
        }
        rest -= 1;
        more = 0x80;
    }
    out.extend(digits.iter().skip(VARINT_LEN_MAX - used));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: ObjectFormat = ObjectFormat::Sha1;

    fn encoded(header: EntryHeader) -> Vec<u8> {
        let mut out = Vec::new();
        header.encode(&mut out);
        out
    }

    fn any_header() -> impl Strategy<Value = EntryHeader> {
        let kind = prop_oneof![
            Just(EntryKind::Object(ObjectKind::Commit)),
            Just(EntryKind::Object(ObjectKind::Tree)),
            Just(EntryKind::Object(ObjectKind::Blob)),
            Just(EntryKind::Object(ObjectKind::Tag)),
            (0..64u32)
                .prop_flat_map(|bits| 1..=u64::MAX >> bits)
                .prop_map(|distance| EntryKind::OfsDelta { distance }),
            any::<[u8; 20]>().prop_map(|raw| EntryKind::RefDelta {
                base: ObjectId::Sha1(raw)
            }),
        ];
        let size = (0..64u32).prop_flat_map(|bits| 0..=u64::MAX >> bits);
        (kind, size).prop_map(|(kind, size)| EntryHeader { kind, size })
    }

    proptest! {
        #[test]
        fn entry_headers_round_trip_and_every_prefix_asks_for_more(header in any_header(), tail in any::<[u8; 3]>()) {
            let mut bytes = encoded(header);
            let len = bytes.len();
            prop_assert!(len <= ENTRY_HEADER_LEN_MAX);
            for cut in 0..len {
                prop_assert_eq!(EntryHeader::decode(FORMAT, &bytes[..cut]), Ok(None));
            }
            bytes.extend(tail);
            prop_assert_eq!(EntryHeader::decode(FORMAT, &bytes), Ok(Some((header, len))));
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some((_, len))) = EntryHeader::decode(FORMAT, &bytes) {
                prop_assert!(len <= bytes.len());
            }
        }
    }

    #[test]
    fn known_bytes() {
        let table: [(EntryKind, u64, &[u8]); 5] = [
            (EntryKind::Object(ObjectKind::Commit), 0, &[0x10]),
            (EntryKind::Object(ObjectKind::Blob), 15, &[0x3f]),
            (EntryKind::Object(ObjectKind::Blob), 16, &[0xb0, 0x01]),
            (EntryKind::OfsDelta { distance: 127 }, 1, &[0x61, 0x7f]),
            (EntryKind::OfsDelta { distance: 128 }, 1, &[0x61, 0x80, 0x00]),
        ];
        for (kind, size, bytes) in table {
            assert_eq!(encoded(EntryHeader { kind, size }), bytes);
        }
    }

    #[test]
    fn refusals() {
        assert_eq!(EntryHeader::decode(FORMAT, &[0x00]), Err(PackError::EntryKind(0)));
        assert_eq!(EntryHeader::decode(FORMAT, &[0x51]), Err(PackError::EntryKind(5)));
        assert_eq!(EntryHeader::decode(FORMAT, &[0x61, 0x00]), Err(PackError::BaseDistance));
        let mut endless = vec![0x61];
        endless.resize(20, 0xff);
        assert_eq!(EntryHeader::decode(FORMAT, &endless), Err(PackError::BaseDistance));
        assert_eq!(EntryHeader::decode(FORMAT, &[0xff; 20]), Err(PackError::SizeOverflow));
    }

    #[test]
    fn pack_headers() {
        let header = PackHeader::new(7);
        assert_eq!(header.encode(), *b"PACK\0\0\0\x02\0\0\0\x07");
        assert_eq!(PackHeader::decode(&header.encode()), Ok(header));
        assert_eq!(
            PackHeader::decode(b"PACK\0\0\0\x04\0\0\0\x07"),
            Err(PackError::Version(4))
        );
        assert_eq!(
            PackHeader::decode(b"KCAP\0\0\0\x02\0\0\0\x07"),
            Err(PackError::Signature(*b"KCAP"))
        );
    }
}
