//! Where a push waits while it is checked: its pack entries back to back, in memory up to a bound, then in a file.
//!
//! The spool holds entries only, without the headers and trailers of the packs they came in, so that an entry ends where
//! the next one starts. The file is unlinked as soon as it is made: whatever happens to the process, nothing stays.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// Bytes gathered before each write to the file.
const WRITE_BUFFER_LEN: usize = 1 << 20;
/// Bytes of the file that are read and remembered at once.
const BLOCK_LEN: u64 = 64 << 10;
/// Blocks that one reader remembers.
const BLOCKS: usize = 64;

/// The bytes of the entries of one push, in the order in which they came.
pub(crate) struct Spool {
    /// The whole content while there is no file; after that what is not yet written.
    memory: Vec<u8>,
    file: Option<File>,
    /// Bytes already in the file.
    written: u64,
    memory_bytes_max: usize,
    directory: PathBuf,
}

impl Spool {
    /// An empty spool that stays in memory up to `memory_bytes_max` and then moves to a nameless file in `directory`.
    pub(crate) fn new(directory: PathBuf, memory_bytes_max: usize) -> Self {
        Self {
            memory: Vec::new(),
            file: None,
            written: 0,
            memory_bytes_max,
            directory,
        }
    }

    /// Bytes spooled so far.
    pub(crate) fn len(&self) -> u64 {
        self.written + self.memory.len() as u64
    }

    /// Makes room for so many bytes, as far as they would stay in memory.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        if self.file.is_none() {
            self.memory.reserve(bytes.min(self.memory_bytes_max));
        }
    }

    /// Adds bytes at the end.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.memory.extend_from_slice(bytes);
        let held_max = if self.file.is_some() {
            WRITE_BUFFER_LEN
        } else {
            self.memory_bytes_max
        };
        if self.memory.len() > held_max {
            self.write_out()?;
        }
        Ok(())
    }

    /// Ends the writing: from here on the spool is only read.
    pub(crate) fn seal(&mut self) -> io::Result<()> {
        if self.file.is_some() {
            self.write_out()?;
            self.memory = Vec::new();
        }
        Ok(())
    }

    /// Everything, if it stayed in memory.
    pub(crate) fn in_memory(&self) -> Option<&[u8]> {
        self.file.is_none().then_some(&self.memory)
    }

    /// Everything, if it stayed in memory; else the spool as it was.
    pub(crate) fn into_memory(self) -> Result<Vec<u8>, Self> {
        if self.file.is_none() {
            Ok(self.memory)
        } else {
            Err(self)
        }
    }

    fn write_out(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(&self.directory)?),
        };
        file.write_all(&self.memory)?;
        self.written += self.memory.len() as u64;
        self.memory = Vec::with_capacity(WRITE_BUFFER_LEN);
        Ok(())
    }
}

/// Reads ranges of a sealed spool; each thread has its own, with a few blocks remembered.
pub(crate) struct SpoolReader<'a> {
    spool: &'a Spool,
    /// Slot `n % BLOCKS` may hold block `n`.
    blocks: Vec<Option<Block>>,
    /// Holds ranges that cross blocks.
    assembled: Vec<u8>,
}

struct Block {
    number: u64,
    bytes: Vec<u8>,
}

impl<'a> SpoolReader<'a> {
    pub(crate) fn new(spool: &'a Spool) -> Self {
        let slots = if spool.in_memory().is_some() { 0 } else { BLOCKS };
        Self {
            spool,
            blocks: (0..slots).map(|_| None).collect(),
            assembled: Vec::new(),
        }
    }

    /// A reader for ranges here and there, which remembers nothing: each read takes what it asks for.
    pub(crate) fn scattered(spool: &'a Spool) -> Self {
        Self {
            spool,
            blocks: Vec::new(),
            assembled: Vec::new(),
        }
    }

    /// The bytes of a range, which must lie inside the spool.
    pub(crate) fn read(&mut self, range: Range<u64>) -> io::Result<&[u8]> {
        let len = usize_len(&range)?;
        let Some(file) = &self.spool.file else {
            let start = usize::try_from(range.start).map_err(|_| outside())?;
            return self.spool.memory.get(start..start + len).ok_or_else(outside);
        };
        if range.end > self.spool.written {
            return Err(outside());
        }
        let first = range.start / BLOCK_LEN;
        if !self.blocks.is_empty() && range.end <= (first + 1) * BLOCK_LEN {
            let within = usize::try_from(range.start % BLOCK_LEN).map_err(|_| outside())?;
            let block = load(&mut self.blocks, file, self.spool.written, first)?;
            return block.get(within..within + len).ok_or_else(outside);
        }
        self.assembled.resize(len, 0);
        file.read_exact_at(&mut self.assembled, range.start)?;
        Ok(&self.assembled)
    }
}

fn load<'b>(blocks: &'b mut [Option<Block>], file: &File, file_len: u64, number: u64) -> io::Result<&'b [u8]> {
    let slot_number = usize::try_from(number % BLOCKS as u64).map_err(|_| outside())?;
    let slot = blocks.get_mut(slot_number).ok_or_else(outside)?;
    let held = slot.get_or_insert_with(|| Block {
        number: u64::MAX,
        bytes: Vec::new(),
    });
    if held.number != number {
        let start = number * BLOCK_LEN;
        let len = usize_len(&(start..file_len.min(start + BLOCK_LEN)))?;
        held.number = u64::MAX;
        held.bytes.resize(len, 0);
        file.read_exact_at(&mut held.bytes, start)?;
        held.number = number;
    }
    Ok(&held.bytes)
}

fn usize_len(range: &Range<u64>) -> io::Result<usize> {
    let len = range.end.checked_sub(range.start).ok_or_else(outside)?;
    usize::try_from(len).map_err(|_| outside())
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "range outside the spool")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(memory_bytes_max: usize, len: usize) -> (Spool, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|n| (n / 3 % 251) as u8).collect();
        let mut spool = Spool::new(std::env::temp_dir(), memory_bytes_max);
        for chunk in bytes.chunks(1000) {
            spool.append(chunk).unwrap();
        }
        spool.seal().unwrap();
        (spool, bytes)
    }

    #[test]
    fn ranges_come_back_from_memory_and_from_file() {
        for memory_bytes_max in [10_000_000, 100] {
            let (spool, bytes) = filled(memory_bytes_max, 5_000_000);
            assert_eq!(spool.in_memory().is_some(), memory_bytes_max > 5_000_000);
            assert_eq!(spool.len(), 5_000_000);
            let (mut reader, mut scattered) = (SpoolReader::new(&spool), SpoolReader::scattered(&spool));
            for range in [
                0..10,
                65_530..65_540,
                65_536..131_072,
                4_999_990..5_000_000,
                7..300_000,
                4_259_840..4_259_850,
            ] {
                let expected = &bytes[range.start as usize..range.end as usize];
                assert_eq!(reader.read(range.clone()).unwrap(), expected);
                assert_eq!(scattered.read(range).unwrap(), expected);
            }
        }
    }

    #[test]
    fn ranges_outside_are_errors() {
        for memory_bytes_max in [10_000, 10] {
            let (spool, _) = filled(memory_bytes_max, 5000);
            let mut reader = SpoolReader::new(&spool);
            assert!(reader.read(4999..5001).is_err());
            assert!(reader.read(70_000..70_001).is_err());
        }
    }
}
