//! The inflated stream of an entry of the spool.

use super::entries::Entries;
use super::error::{IntakeError, ObjectFault};
use super::spool::{Spool, SpoolReader};
use cuesta_git::delta::{DELTA_HEADER_LEN_MAX, DeltaHeader};
use cuesta_git::pack::{ENTRY_HEADER_LEN_MAX, EntryHeader};
use cuesta_git::zlib::{Inflater, WholeInflater};

/// Bytes of a stream that are held at once.
const PIECE_LEN: u64 = 1 << 20;
/// Bytes of a stream that surely inflate to a delta's header.
const HEAD_STREAM_LEN: u64 = 4 << 10;
/// Bytes inflated at once of what is not held.
const INFLATED_LEN: usize = 256 << 10;

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

    /// Inflates an entry's own stream, of any size, in pieces of bounded length.
    pub(crate) fn inflate_in_pieces(
        &mut self,
        entry: u32,
        mut take: impl FnMut(&[u8]) -> Result<(), IntakeError>,
    ) -> Result<(), IntakeError> {
        let entries = self.entries;
        let mut inflater = Inflater::new();
        let mut room = vec![0; INFLATED_LEN];
        self.stream(entry, |mut input| {
            loop {
                let step = inflater.inflate(input, &mut room);
                let step = step.map_err(|error| entries.fault(entry, ObjectFault::Inflate(error.to_string())))?;
                take(room.get(..step.produced).unwrap_or_default())?;
                input = input.get(step.consumed..).unwrap_or_default();
                let is_stuck = step.consumed == 0 && step.produced == 0;
                if step.done || is_stuck || (input.is_empty() && step.produced < INFLATED_LEN) {
                    return Ok(());
                }
            }
        })
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

    /// The largest of the sizes that a delta speaks of: its own, its base's and its result's.
    pub(crate) fn delta_size_max(&mut self, entry: u32) -> Result<u64, IntakeError> {
        let entries = self.entries;
        let own_size = self.own_size(entry)?;
        let mut head = [0; DELTA_HEADER_LEN_MAX];
        let span = entries.span(entry);
        let start = span.start + entries.header_len(entry) as u64;
        let stream = self.reader.read(start..span.end.min(start + HEAD_STREAM_LEN))?;
        let step = Inflater::new().inflate(stream, &mut head);
        let step = step.map_err(|error| entries.fault(entry, ObjectFault::Inflate(error.to_string())))?;
        let header = DeltaHeader::decode(head.get(..step.produced).unwrap_or_default());
        let (header, _) = header.map_err(|error| entries.fault(entry, ObjectFault::Delta(error.to_string())))?;
        Ok(own_size.max(header.base_size).max(header.result_size))
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
