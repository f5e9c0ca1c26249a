//! The inflated stream of an entry of the spool.

use super::entries::Entries;
use super::error::{IntakeError, ObjectFault};
use super::spool::{Spool, SpoolReader};
use cuesta_git::pack::{ENTRY_HEADER_LEN_MAX, EntryHeader};
use cuesta_git::zlib::WholeInflater;

/// Bytes of a stream that are held at once.
const PIECE_LEN: u64 = 1 << 20;

/// Inflates entries of a spool; each thread has its own.
pub(crate) struct EntrySource<'a> {
    entries: &'a Entries,
    reader: SpoolReader<'a>,
    inflater: WholeInflater,
}

impl<'a> EntrySource<'a> {
    pub(crate) fn new(spool: &'a Spool, entries: &'a Entries) -> Self {
        Self {
            entries,
            reader: SpoolReader::new(spool),
            inflater: WholeInflater::new(),
        }
    }

    pub(crate) fn entries(&self) -> &'a Entries {
        self.entries
    }

    /// Inflates an entry's own stream into `out`: a whole object, or a delta. The caller has seen that it fits memory.
    pub(crate) fn inflate(&mut self, entry: u32, out: &mut Vec<u8>) -> Result<(), IntakeError> {
        let raw = self.reader.read(self.entries.span(entry))?;
        let header = EntryHeader::decode(self.entries.format(), raw);
        let Ok(Some((header, header_len))) = header else {
            return Err(IntakeError::Internal("a spooled entry has no header"));
        };
        let size = usize::try_from(header.size).map_err(|_| IntakeError::Internal("an entry is larger than memory"))?;
        let stream = raw.get(header_len..).unwrap_or_default();
        let inflated = self.inflater.inflate(stream, size, out);
        inflated.map_err(|error| self.entries.fault(entry, ObjectFault::Inflate(error.to_string())))?;
        Ok(())
    }

    /// The size in an entry's header: of the delta, for a delta.
    pub(crate) fn own_size(&mut self, entry: u32) -> Result<u64, IntakeError> {
        let span = self.entries.span(entry);
        let head = span.start..span.end.min(span.start + ENTRY_HEADER_LEN_MAX as u64);
        match EntryHeader::decode(self.entries.format(), self.reader.read(head)?) {
            Ok(Some((header, _))) => Ok(header.size),
            _ => Err(IntakeError::Internal("a spooled entry has no header")),
        }
    }

    /// Gives an entry's zlib stream as it was sent, in pieces of bounded length.
    pub(crate) fn stream(
        &mut self,
        entry: u32,
        mut take: impl FnMut(&[u8]) -> Result<(), IntakeError>,
    ) -> Result<(), IntakeError> {
        let span = self.entries.span(entry);
        let mut at = span.start + self.entries.header_len(entry) as u64;
        while at < span.end {
            let end = span.end.min(at + PIECE_LEN);
            take(self.reader.read(at..end)?)?;
            at = end;
        }
        Ok(())
    }
}
