//! What entries and checkpoints share: an envelope, and fields of explicit width (docs/format/README.md).
//!
//! The envelope is a magic of four bytes, a version, a reserved word, and at the end a CRC-32C of all before it.

use crate::error::{invalid, malformed};
use crate::{FormatError, Result};
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId, RefName};

const ENVELOPE_LEN: usize = 8;
const CRC_LEN: usize = 4;

/// A format that uses the envelope.
#[derive(Clone, Copy)]
pub(crate) struct Envelope {
    pub(crate) what: &'static str,
    pub(crate) magic: [u8; 4],
    pub(crate) version: u16,
}

/// The code of an object format in every format of ours.
pub(crate) const fn object_format_code(format: ObjectFormat) -> u8 {
    match format {
        ObjectFormat::Sha1 => 1,
        ObjectFormat::Sha256 => 2,
    }
}

/// The object format of that code.
pub(crate) fn object_format(code: u8) -> Result<ObjectFormat> {
    match code {
        1 => Ok(ObjectFormat::Sha1),
        2 => Ok(ObjectFormat::Sha256),
        got => Err(FormatError::Unknown {
            what: "object format",
            got: got.into(),
        }),
    }
}

/// Refuses flags that this version does not know.
pub(crate) fn check_flags(what: &'static str, flags: u8, known: u8) -> Result<()> {
    match flags & !known {
        0 => Ok(()),
        _ => Err(FormatError::Unknown {
            what,
            got: flags.into(),
        }),
    }
}

/// Writes fields one after another.
pub(crate) struct Writer {
    what: &'static str,
    out: Vec<u8>,
}

impl Writer {
    /// Starts an envelope, with room for a body of `body_len` bytes.
    pub(crate) fn new(envelope: Envelope, body_len: usize) -> Self {
        let mut out = Vec::with_capacity(ENVELOPE_LEN + body_len + CRC_LEN);
        out.extend_from_slice(&envelope.magic);
        out.extend_from_slice(&envelope.version.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        Self {
            what: envelope.what,
            out,
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let crc = crc32c::crc32c(&self.out);
        self.u32(crc);
        self.out
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.raw(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    pub(crate) fn u128(&mut self, value: u128) {
        self.raw(&value.to_le_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.raw(&value.to_le_bytes());
    }

    /// A number of items, or of bytes, up to 2^32 - 1.
    pub(crate) fn count(&mut self, items: usize) -> Result<()> {
        self.u32(u32::try_from(items).map_err(|_| self.too_long(items, u32::MAX.into()))?);
        Ok(())
    }

    /// The length of a name, up to 65,535 bytes.
    pub(crate) fn name_len(&mut self, name: &[u8]) -> Result<()> {
        self.u16(u16::try_from(name.len()).map_err(|_| self.too_long(name.len(), u16::MAX.into()))?);
        Ok(())
    }

    /// An oid's bytes; a file holds oids of one format only.
    pub(crate) fn oid(&mut self, format: Option<ObjectFormat>, oid: &ObjectId) -> Result<()> {
        if format != Some(oid.format()) {
            return invalid(self.what, "oids of both object formats");
        }
        self.raw(oid.as_bytes());
        Ok(())
    }

    fn too_long(&self, got: usize, max: u64) -> FormatError {
        FormatError::Limit {
            what: self.what,
            max,
            got: got as u64,
        }
    }
}

/// Reads fields one after another. Every length is checked against what is left before anything is allocated.
pub(crate) struct Reader<'a> {
    what: &'static str,
    bytes: &'a Bytes,
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    /// Opens an envelope of the newest version: checks magic, then version, then checksum, and that what is reserved is zero.
    pub(crate) fn new(envelope: Envelope, bytes: &'a Bytes) -> Result<Self> {
        Ok(Self::since(envelope.version, envelope, bytes)?.0)
    }

    /// As [`new`](Self::new), for versions from `oldest` on; answers which it is.
    pub(crate) fn since(oldest: u16, envelope: Envelope, bytes: &'a Bytes) -> Result<(Self, u16)> {
        let what = envelope.what;
        let mut reader = Self {
            what,
            bytes,
            at: 0,
            end: bytes.len(),
        };
        let magic = reader.array::<4>()?;
        if magic != envelope.magic {
            return Err(FormatError::Magic { what, got: magic });
        }
        let version = reader.u16()?;
        if !(oldest..=envelope.version).contains(&version) {
            return Err(FormatError::Version {
                what,
                known: envelope.version,
                got: version,
            });
        }
        reader.check_crc()?;
        reader.reserved::<2>()?;
        Ok((reader, version))
    }

    fn check_crc(&mut self) -> Result<()> {
        let what = self.what;
        let least = (ENVELOPE_LEN + CRC_LEN) as u64;
        let short = FormatError::Truncated {
            what,
            expected: least,
            got: self.bytes.len() as u64,
        };
        if (self.bytes.len() as u64) < least {
            return Err(short);
        }
        let (covered, stored) = self.bytes.split_last_chunk::<CRC_LEN>().ok_or(short)?;
        let (expected, got) = (u32::from_le_bytes(*stored), crc32c::crc32c(covered));
        if expected != got {
            return Err(FormatError::Checksum { what, expected, got });
        }
        self.end = covered.len();
        Ok(())
    }

    /// Insists that everything has been read.
    pub(crate) fn finish(self) -> Result<()> {
        match self.left() {
            0 => Ok(()),
            extra => Err(FormatError::Trailing {
                what: self.what,
                extra: extra as u64,
            }),
        }
    }

    fn left(&self) -> usize {
        self.end.saturating_sub(self.at)
    }

    fn advance(&mut self, len: u64) -> Result<std::ops::Range<usize>> {
        let fits = usize::try_from(len).ok().filter(|len| *len <= self.left());
        let len = fits.ok_or(FormatError::Truncated {
            what: self.what,
            expected: len,
            got: self.left() as u64,
        })?;
        let start = self.at;
        self.at += len;
        Ok(start..self.at)
    }

    /// The next bytes, borrowed.
    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8]> {
        let range = self.advance(len as u64)?;
        Ok(self.bytes.get(range).unwrap_or_default())
    }

    /// The next bytes as a handle on the same buffer.
    pub(crate) fn shared(&mut self, len: u64) -> Result<Bytes> {
        Ok(self.bytes.slice(self.advance(len)?))
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let left = self.left() as u64;
        let cut_short = FormatError::Truncated {
            what: self.what,
            expected: N as u64,
            got: left,
        };
        self.raw(N)?.try_into().map_err(|_| cut_short)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Result<u128> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Bytes that this version has no use for; they must be zero.
    pub(crate) fn reserved<const N: usize>(&mut self) -> Result<()> {
        match self.array::<N>()?.into_iter().find(|byte| *byte != 0) {
            None => Ok(()),
            Some(got) => Err(FormatError::Unknown {
                what: "reserved field",
                got: got.into(),
            }),
        }
    }

    /// `count` items, each at least `item_len_min` bytes long; nothing is allocated for items that cannot be there.
    pub(crate) fn items<T>(
        &mut self,
        count: u32,
        item_len_min: usize,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let expected = u64::from(count).saturating_mul(item_len_min as u64);
        if expected > self.left() as u64 {
            return Err(FormatError::Truncated {
                what: self.what,
                expected,
                got: self.left() as u64,
            });
        }
        let mut items = Vec::with_capacity(count as usize);
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    pub(crate) fn text(&mut self, len: usize) -> Result<String> {
        match std::str::from_utf8(self.raw(len)?) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => malformed(self.what, "text is not utf-8"),
        }
    }

    pub(crate) fn ref_name(&mut self, len: usize) -> Result<RefName> {
        let name = self.raw(len)?;
        self.ref_name_of(name)
    }

    pub(crate) fn ref_name_of(&self, name: &[u8]) -> Result<RefName> {
        let reason = "a name is no ref name";
        RefName::new(name).map_err(|_| FormatError::Malformed {
            what: self.what,
            reason,
        })
    }

    /// An oid of the file's format; where it states none, it may hold none.
    pub(crate) fn oid(&mut self, format: Option<ObjectFormat>) -> Result<ObjectId> {
        let none = FormatError::Malformed {
            what: self.what,
            reason: "an oid, but no object format",
        };
        let format = format.ok_or(none)?;
        let reason = "an oid is cut short";
        let bytes = self.raw(format.width())?;
        ObjectId::from_bytes(format, bytes).map_err(|_| FormatError::Malformed {
            what: self.what,
            reason,
        })
    }
}
