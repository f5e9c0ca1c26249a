//! Loose objects as a pack: each file is one zlib stream of a header and the content (gitformat-loose).

use super::error::ImportError;
use super::objects::LooseObject;
use cuesta_git::pack::{EntryHeader, EntryKind, PackHeader};
use cuesta_git::zlib::{Inflater, StreamDeflater};
use cuesta_git::{Checksum, ObjectFormat, ObjectKind};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Longer than any header: a kind, a size of 20 digits, a NUL.
const HEADER_LEN_MAX: usize = 32;
const STEP_LEN: usize = 64 << 10;
/// As git's default.
const DEFLATE_LEVEL: u32 = 6;

/// Gives the bytes of a pack of these objects to `feed`, one after another: memory does not grow with their sizes.
pub(super) fn feed(
    objects: &[LooseObject],
    format: ObjectFormat,
    feed: &mut dyn FnMut(&[u8]) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let count = u32::try_from(objects.len()).unwrap_or(u32::MAX);
    let mut pack = Pack {
        checksum: Checksum::new(format),
        buffer: PackHeader::new(count).encode().to_vec(),
        feed,
    };
    for object in objects {
        pack.object(&object.path)?;
    }
    pack.flush()?;
    let trailer = pack.checksum.finish();
    (pack.feed)(trailer.as_bytes())
}

struct Pack<'a> {
    checksum: Checksum,
    buffer: Vec<u8>,
    feed: &'a mut dyn FnMut(&[u8]) -> Result<(), ImportError>,
}

impl Pack<'_> {
    fn object(&mut self, path: &Path) -> Result<(), ImportError> {
        let mut loose = LooseReader::open(path)?;
        let (kind, size) = loose.header()?;
        let kind = EntryKind::Object(kind);
        EntryHeader { kind, size }.encode(&mut self.buffer);
        let mut deflater = StreamDeflater::new(DEFLATE_LEVEL);
        let failed = |_| ImportError::source(path, "deflating failed");
        let mut left = size;
        while let Some(piece) = loose.next()? {
            left = left
                .checked_sub(piece.len() as u64)
                .ok_or_else(|| loose_fault(path, "longer than its header says"))?;
            deflater.deflate(piece, &mut self.buffer).map_err(failed)?;
            if self.buffer.len() >= STEP_LEN {
                self.flush()?;
            }
        }
        if left > 0 {
            return Err(loose_fault(path, "shorter than its header says"));
        }
        deflater.finish(&mut self.buffer).map_err(failed)
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        self.checksum.update(&self.buffer);
        (self.feed)(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

fn loose_fault(path: &Path, what: &str) -> ImportError {
    ImportError::source(path, format!("loose object is corrupt: {what}"))
}

/// Inflates one loose object.
struct LooseReader<'a> {
    path: &'a Path,
    file: File,
    inflater: Inflater,
    input: Vec<u8>,
    /// What of the input is not inflated yet starts here.
    taken: usize,
    output: Vec<u8>,
    /// What of the output is not given yet: header bytes are taken off its front.
    ready: std::ops::Range<usize>,
    done: bool,
}

impl<'a> LooseReader<'a> {
    fn open(path: &'a Path) -> Result<Self, ImportError> {
        Ok(Self {
            path,
            file: File::open(path).map_err(ImportError::read(path))?,
            inflater: Inflater::new(),
            input: Vec::new(),
            taken: 0,
            output: vec![0; STEP_LEN],
            ready: 0..0,
            done: false,
        })
    }

    /// The kind and size that the object says it has.
    fn header(&mut self) -> Result<(ObjectKind, u64), ImportError> {
        let mut header = Vec::new();
        loop {
            let Some(piece) = self.next()? else {
                return Err(loose_fault(self.path, "no header"));
            };
            let piece_len = piece.len();
            let end = piece.iter().take(HEADER_LEN_MAX).position(|byte| *byte == 0);
            header.extend_from_slice(piece.get(..end.unwrap_or(piece_len)).unwrap_or_default());
            if let Some(end) = end {
                // What follows is content.
                self.ready.start = self.ready.end - piece_len + end + 1;
                break;
            }
            if header.len() > HEADER_LEN_MAX {
                return Err(loose_fault(self.path, "no header"));
            }
        }
        let mut words = header.splitn(2, |byte| *byte == b' ');
        let kind = words.next().and_then(ObjectKind::from_name);
        let size = words
            .next()
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        kind.zip(size).ok_or_else(|| loose_fault(self.path, "bad header"))
    }

    /// The next inflated bytes, or the end.
    fn next(&mut self) -> Result<Option<&[u8]>, ImportError> {
        while self.ready.is_empty() {
            if self.done {
                return Ok(None);
            }
            self.step()?;
        }
        let ready = std::mem::replace(&mut self.ready, 0..0);
        self.ready = ready.end..ready.end;
        Ok(self.output.get(ready))
    }

    fn step(&mut self) -> Result<(), ImportError> {
        if self.taken == self.input.len() {
            self.input.resize(STEP_LEN, 0);
            let read = self.file.read(&mut self.input).map_err(ImportError::read(self.path))?;
            self.input.truncate(read);
            self.taken = 0;
        }
        let input = self.input.get(self.taken..).unwrap_or_default();
        let step = self
            .inflater
            .inflate(input, &mut self.output)
            .map_err(|error| loose_fault(self.path, &error.to_string()))?;
        if step.produced == 0 && step.consumed == 0 && !step.done {
            return Err(loose_fault(self.path, "cut short"));
        }
        self.taken += step.consumed;
        self.ready = 0..step.produced;
        self.done = step.done;
        if self.done && self.taken < self.input.len() {
            return Err(loose_fault(self.path, "garbage at end"));
        }
        Ok(())
    }
}
