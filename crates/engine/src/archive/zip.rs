//! Zip as git writes it: Unix modes for links and executables, times in UTC, the commit's id as the file's comment.
//!
//! Own code for the same reason as tar's; only deflated bytes may differ from stock git's. What is too large to be held
//! comes as a stream: its sizes follow it in a data descriptor.

use super::walk::Item;
use crate::EngineError;
use cuesta_git::ObjectId;
use cuesta_git::calendar::Utc;
use cuesta_git::zlib::{Crc32, StreamDeflater};

/// Bytes of the directory at the end, which has to be held until then: room for over half a million files.
pub(super) const DIRECTORY_BYTES_MAX: usize = 64 << 20;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
const EXTRA_TIME: u16 = 0x5455;
const EXTRA_64: u16 = 0x0001;
const FLAG_STREAM: u16 = 1 << 3;
const FLAG_UTF8: u16 = 1 << 11;
const STORE: u16 = 0;
const DEFLATE: u16 = 8;
const CREATOR_UNIX: u16 = 0x0317;
const NONE: u32 = 0xffff_ffff;
/// From this size on a stream may turn out longer than 4 GiB when compressed.
const STREAM_64_MIN: u64 = 0x7fff_ffff;

pub(super) struct Zip {
    level: Option<u32>,
    time: u32,
    dos_date: u16,
    dos_time: u16,
    offset: u64,
    directory: Vec<u8>,
    entries: u64,
    creator: u16,
    comment: Vec<u8>,
    streaming: Option<Streaming>,
}

/// A file whose content is on its way.
struct Streaming {
    record: Record,
    deflater: Option<StreamDeflater>,
    crc: Crc32,
    is_text: Option<bool>,
}

/// What the directory says of a file.
#[derive(Clone, Default)]
struct Record {
    path: Vec<u8>,
    flags: u16,
    method: u16,
    version: u16,
    creator: u16,
    crc: u32,
    stored: u64,
    size: u64,
    attributes: u32,
    offset: u64,
    is_text: bool,
}

impl Zip {
    pub(super) fn new(time: i64, level: Option<u32>, commit: Option<&ObjectId>) -> Self {
        let utc = Utc::of(time);
        let (hour, minute, second) = (
            utc.second_of_day / 3_600,
            utc.second_of_day / 60 % 60,
            utc.second_of_day % 60,
        );
        let date = i64::from(utc.day) + i64::from(utc.month) * 32 + (utc.year - 1980) * 512;
        Self {
            level,
            time: low32(time),
            dos_date: low16(date),
            dos_time: low16(second / 2 + minute * 32 + hour * 2_048),
            offset: 0,
            directory: Vec::new(),
            entries: 0,
            creator: 0,
            comment: commit.map(|oid| oid.to_string().into_bytes()).unwrap_or_default(),
            streaming: None,
        }
    }

    /// Appends a directory.
    pub(super) fn directory(&mut self, out: &mut Vec<u8>, path: &[u8]) -> Result<(), EngineError> {
        let record = Record {
            attributes: 16,
            ..self.record(path, STORE)
        };
        self.header(out, &record, false);
        self.finish(record)
    }

    /// Appends a file or symbolic link whose content is at hand.
    pub(super) fn whole(
        &mut self,
        out: &mut Vec<u8>,
        path: &[u8],
        item: &Item,
        content: &[u8],
    ) -> Result<(), EngineError> {
        let mut record = self.blob(path, item, content.len() as u64);
        let mut crc = Crc32::new();
        crc.update(content);
        record.crc = crc.value();
        record.is_text = item.text.unwrap_or_else(|| !is_binary(content));
        let mut deflated = Vec::new();
        if record.method == DEFLATE {
            let mut deflater = StreamDeflater::raw(self.level.unwrap_or(super::sink::LEVEL_DEFAULT));
            deflater
                .deflate(content, &mut deflated)
                .and_then(|()| deflater.finish(&mut deflated))
                .map_err(failed)?;
        }
        if record.method == STORE || deflated.len() >= content.len() {
            record.method = STORE;
        }
        let stored = if record.method == STORE { content } else { &deflated };
        record.stored = stored.len() as u64;
        self.header(
            out,
            &record,
            record.size > u64::from(NONE) || record.stored > u64::from(NONE),
        );
        self.append(out, stored);
        self.finish(record)
    }

    /// Begins a file whose content follows by [`Zip::piece`] and ends by [`Zip::end_stream`].
    pub(super) fn stream(&mut self, out: &mut Vec<u8>, path: &[u8], item: &Item, size: u64) {
        let mut record = self.blob(path, item, size);
        record.flags |= FLAG_STREAM;
        record.stored = if record.method == STORE { size } else { 0 };
        self.header(out, &record, size > STREAM_64_MIN);
        let level = self.level.unwrap_or(super::sink::LEVEL_DEFAULT);
        let deflater = (record.method == DEFLATE).then(|| StreamDeflater::raw(level));
        record.stored = 0;
        self.streaming = Some(Streaming {
            record,
            deflater,
            crc: Crc32::new(),
            is_text: item.text,
        });
    }

    pub(super) fn piece(&mut self, out: &mut Vec<u8>, content: &[u8]) -> Result<(), EngineError> {
        let Some(mut file) = self.streaming.take() else {
            return Err(LOST);
        };
        file.crc.update(content);
        file.is_text.get_or_insert_with(|| !is_binary(content));
        let start = out.len();
        match &mut file.deflater {
            Some(deflater) => deflater.deflate(content, out).map_err(failed)?,
            None => out.extend_from_slice(content),
        }
        file.record.stored += self.advance(out, start);
        self.streaming = Some(file);
        Ok(())
    }

    pub(super) fn end_stream(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let Some(Streaming {
            mut record,
            deflater,
            crc,
            is_text,
        }) = self.streaming.take()
        else {
            return Err(LOST);
        };
        let start = out.len();
        if let Some(deflater) = deflater {
            deflater.finish(out).map_err(failed)?;
        }
        record.stored += self.advance(out, start);
        (record.crc, record.is_text) = (crc.value(), is_text.unwrap_or(true));
        let start = out.len();
        put32(out, DESCRIPTOR);
        put32(out, record.crc);
        if record.size >= u64::from(NONE) || record.stored >= u64::from(NONE) {
            put64(out, record.stored);
            put64(out, record.size);
        } else {
            put32(out, clamp32(record.stored));
            put32(out, clamp32(record.size));
        }
        self.advance(out, start);
        self.finish(record)
    }

    /// Appends the directory and the end.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        let directory = std::mem::take(&mut self.directory);
        let (at, len) = (self.offset, directory.len() as u64);
        out.extend_from_slice(&directory);
        if self.entries > 0xffff || at > u64::from(NONE) {
            self.end64(out, at, len);
        }
        put32(out, END);
        put16(out, 0);
        put16(out, 0);
        put16(out, clamp16(self.entries));
        put16(out, clamp16(self.entries));
        put32(out, clamp32(len));
        put32(out, clamp32(at));
        put16(out, clamp16(self.comment.len() as u64));
        out.extend_from_slice(&self.comment);
    }

    fn end64(&self, out: &mut Vec<u8>, at: u64, len: u64) {
        put32(out, END64);
        put64(out, 44);
        put16(out, self.creator);
        put16(out, 45);
        put32(out, 0);
        put32(out, 0);
        put64(out, self.entries);
        put64(out, self.entries);
        put64(out, len);
        put64(out, at);
        put32(out, LOCATOR64);
        put32(out, 0);
        put64(out, at + len);
        put32(out, 1);
    }

    fn record(&self, path: &[u8], method: u16) -> Record {
        let utf8 = !path.is_ascii() && std::str::from_utf8(path).is_ok();
        let flags = if utf8 { FLAG_UTF8 } else { 0 };
        Record {
            path: path.to_vec(),
            flags,
            method,
            version: 10,
            offset: self.offset,
            ..Record::default()
        }
    }

    fn blob(&self, path: &[u8], item: &Item, size: u64) -> Record {
        let (mode, is_link) = (item.mode.0, item.mode.is_symlink());
        let compress = !is_link && size > 0 && self.level != Some(0);
        let mut record = self.record(path, if compress { DEFLATE } else { STORE });
        record.size = size;
        if is_link {
            record.attributes = (mode | 0o777) << 16;
        } else if mode & 0o111 != 0 {
            record.attributes = mode << 16;
        }
        if record.attributes != 0 {
            record.creator = CREATOR_UNIX;
        }
        record
    }

    /// Appends what stands before a file. `wide` gives it room for sizes beyond 4 GiB.
    fn header(&mut self, out: &mut Vec<u8>, record: &Record, wide: bool) {
        let start = out.len();
        put32(out, LOCAL);
        put16(out, if wide { 45 } else { record.version });
        put16(out, record.flags);
        put16(out, record.method);
        put16(out, self.dos_time);
        put16(out, self.dos_date);
        put32(out, record.crc);
        put32(out, if wide { NONE } else { clamp32(record.stored) });
        put32(out, if wide { NONE } else { clamp32(record.size) });
        put16(out, clamp16(record.path.len() as u64));
        put16(out, if wide { 9 + 20 } else { 9 });
        out.extend_from_slice(&record.path);
        self.time_field(out);
        if wide {
            put16(out, EXTRA_64);
            put16(out, 16);
            put64(out, record.size);
            put64(out, record.stored);
        }
        self.advance(out, start);
    }

    fn time_field(&self, out: &mut Vec<u8>) {
        put16(out, EXTRA_TIME);
        put16(out, 5);
        out.push(1);
        put32(out, self.time);
    }

    /// Enters a finished file in the directory.
    fn finish(&mut self, record: Record) -> Result<(), EngineError> {
        let mut wide = Vec::new();
        let large = |number: u64| number >= u64::from(NONE);
        for number in [record.size, record.stored, record.offset]
            .into_iter()
            .filter(|number| large(*number))
        {
            put64(&mut wide, number);
        }
        let mut out = std::mem::take(&mut self.directory);
        put32(&mut out, CENTRAL);
        put16(&mut out, record.creator);
        put16(&mut out, if wide.is_empty() { record.version } else { 45 });
        put16(&mut out, record.flags);
        put16(&mut out, record.method);
        put16(&mut out, self.dos_time);
        put16(&mut out, self.dos_date);
        put32(&mut out, record.crc);
        put32(&mut out, clamp32(record.stored));
        put32(&mut out, clamp32(record.size));
        put16(&mut out, clamp16(record.path.len() as u64));
        let wide_len = if wide.is_empty() { 0 } else { 4 + wide.len() };
        put16(&mut out, clamp16(9 + wide_len as u64));
        put16(&mut out, 0);
        put16(&mut out, 0);
        put16(&mut out, u16::from(record.is_text));
        put32(&mut out, record.attributes);
        put32(&mut out, clamp32(record.offset));
        out.extend_from_slice(&record.path);
        self.time_field(&mut out);
        if !wide.is_empty() {
            put16(&mut out, EXTRA_64);
            put16(&mut out, clamp16(wide.len() as u64));
            out.extend_from_slice(&wide);
        }
        self.directory = out;
        self.entries += 1;
        self.creator = self.creator.max(record.creator);
        match self.directory.len() {
            0..=DIRECTORY_BYTES_MAX => Ok(()),
            _ => Err(EngineError::limit(
                "bytes of a zip file's directory",
                DIRECTORY_BYTES_MAX as u64,
            )),
        }
    }

    fn append(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        out.extend_from_slice(bytes);
        self.offset += bytes.len() as u64;
    }

    /// Counts what was appended to `out` since `start`.
    fn advance(&mut self, out: &[u8], start: usize) -> u64 {
        let count = (out.len() - start) as u64;
        self.offset += count;
        count
    }
}

const LOST: EngineError = EngineError::Internal("a file of a zip was never begun");

fn failed(_: cuesta_git::zlib::ZlibError) -> EngineError {
    EngineError::Internal("zlib could not compress")
}

/// Git's measure: a NUL near the start.
fn is_binary(content: &[u8]) -> bool {
    content.iter().take(8_000).any(|byte| *byte == 0)
}

fn put16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn clamp16(number: u64) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn clamp32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The low bits, as a C assignment keeps them.
fn low16(number: i64) -> u16 {
    u16::try_from(number & 0xffff).unwrap_or(0)
}

fn low32(number: i64) -> u32 {
    u32::try_from(number & 0xffff_ffff).unwrap_or(0)
}
