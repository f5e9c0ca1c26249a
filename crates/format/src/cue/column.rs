//! Columns: arrays of fixed-width little-endian values inside a section.

use crate::{FormatError, Result};
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};

/// One array of a section. Its bounds are fixed when the section's length has been checked; reading past the end gives
/// `None`, never a panic.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Column {
    start: usize,
    count: usize,
}

/// Carves a section into its columns, in order, and insists that they fill it.
pub(crate) struct Carver {
    what: &'static str,
    len: u64,
    at: u64,
}

impl Carver {
    pub(crate) fn new(what: &'static str, section: &[u8]) -> Self {
        Self {
            what,
            len: section.len() as u64,
            at: 0,
        }
    }

    pub(crate) fn column(&mut self, count: u64, width: usize) -> Result<Column> {
        let end = self.at.saturating_add(count.saturating_mul(width as u64));
        let truncated = || FormatError::Truncated {
            what: self.what,
            expected: end,
            got: self.len,
        };
        if end > self.len {
            return Err(truncated());
        }
        let start = usize::try_from(self.at).map_err(|_| truncated())?;
        let count = usize::try_from(count).map_err(|_| truncated())?;
        self.at = end;
        Ok(Column { start, count })
    }

    pub(crate) fn finish(self) -> Result<()> {
        match self.len - self.at {
            0 => Ok(()),
            extra => Err(FormatError::Trailing { what: self.what, extra }),
        }
    }
}

impl Column {
    /// The `width` bytes of item `index`.
    #[inline]
    fn item(self, section: &Bytes, index: usize, width: usize) -> Option<&[u8]> {
        if index >= self.count {
            return None;
        }
        let start = self.start + index * width;
        section.get(start..start + width)
    }

    #[inline]
    pub(crate) fn u8(self, section: &Bytes, index: usize) -> Option<u8> {
        self.item(section, index, 1)?.first().copied()
    }

    #[inline]
    pub(crate) fn u32(self, section: &Bytes, index: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.item(section, index, 4)?.try_into().ok()?))
    }

    #[inline]
    pub(crate) fn u64(self, section: &Bytes, index: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.item(section, index, 8)?.try_into().ok()?))
    }

    #[inline]
    pub(crate) fn i64(self, section: &Bytes, index: usize) -> Option<i64> {
        Some(i64::from_le_bytes(self.item(section, index, 8)?.try_into().ok()?))
    }

    #[inline]
    pub(crate) fn oid_bytes(self, section: &Bytes, index: usize, format: ObjectFormat) -> Option<&[u8]> {
        self.item(section, index, format.width())
    }

    #[inline]
    pub(crate) fn oid(self, section: &Bytes, index: usize, format: ObjectFormat) -> ObjectId {
        self.oid_bytes(section, index, format)
            .and_then(|bytes| ObjectId::from_bytes(format, bytes).ok())
            .unwrap_or(ObjectId::null(format))
    }

    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// Items `index` and `index + 1` of a column of starts, as a range within `0..=max`; empty where there is none.
    #[inline]
    pub(crate) fn range(self, section: &Bytes, index: usize, max: u32) -> std::ops::Range<u32> {
        let start = self.u32(section, index).unwrap_or(max).min(max);
        let end = self.u32(section, index.saturating_add(1)).unwrap_or(start).min(max);
        start..end.max(start)
    }

    /// Which run of a column of ascending starts holds `value`: the last whose start is not above it.
    pub(crate) fn run_of(self, section: &Bytes, value: u32) -> Option<u32> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.u32(section, middle) {
                Some(start) if start <= value => low = middle + 1,
                _ => high = middle,
            }
        }
        // The last start is the end of the last run.
        let run = low.checked_sub(1).filter(|run| run + 1 < self.count)?;
        u32::try_from(run).ok()
    }
}

/// Appends a column of `u32`.
pub(crate) fn push_u32s(out: &mut Vec<u8>, values: &[u32]) {
    values
        .iter()
        .for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
}
