//! A chunk: the lines of neighbouring refs, and what turns chunks into others.

use super::Form;
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::advertise::{self, AdvertisedRef};
use cuesta_protocol::pktline;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A chunk with more bytes of plain lines is cut in two: each change copies a chunk, each answer walks all of them.
pub(super) const CHUNK_LEN_MAX: usize = 16 << 10;
/// Digits before each line (gitprotocol-common, `pkt-line format`).
const LENGTH_DIGITS: usize = 4;
/// Bytes of a line beside names: digits, two ids, names of attributes.
const LINE_OVERHEAD_MAX: usize = 256;

/// The bytes of some neighbouring refs, in every form. Never empty, never changes.
#[derive(Debug)]
pub(super) struct Chunk {
    format: ObjectFormat,
    /// In [`Form::Plain`].
    lines: Bytes,
    /// What other forms tell, in order.
    notes: Box<[Note]>,
    lens: [u32; Form::COUNT],
    /// The other forms, written when they are first asked for.
    written: [OnceLock<Bytes>; Form::COUNT],
}

/// What a ref has beside its name and value.
#[derive(Clone, Debug)]
struct Note {
    /// Where its plain line begins.
    at: usize,
    peeled: Option<ObjectId>,
    target: Option<Box<[u8]>>,
}

/// What becomes of a ref.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) name: &'a [u8],
    /// `None` if it is not shown any more.
    pub(super) now: Option<AdvertisedRef<'a>>,
}

/// A plain line.
struct Line<'a> {
    range: Range<usize>,
    name: &'a [u8],
}

impl Chunk {
    fn new(format: ObjectFormat, lines: &[u8], notes: Vec<Note>) -> Self {
        let mut chunk = Self {
            format,
            lines: Bytes::copy_from_slice(lines),
            notes: notes.into(),
            lens: [0; Form::COUNT],
            written: Default::default(),
        };
        chunk.lens = Form::ALL.map(|form| u32::try_from(chunk.count_len(form)).unwrap_or(u32::MAX));
        chunk
    }

    /// The name of the first ref.
    pub(super) fn first_name(&self) -> &[u8] {
        self.walk().next().map_or(&[], |line| line.name)
    }

    /// The first ref.
    pub(super) fn first(&self) -> Option<AdvertisedRef<'_>> {
        self.shown().next()
    }

    /// How many bytes it has in a form.
    pub(super) fn len(&self, form: Form) -> u32 {
        self.lens.get(form.index()).copied().unwrap_or_default()
    }

    /// Whether all forms are the same.
    pub(super) fn is_plain(&self) -> bool {
        self.notes.is_empty()
    }

    /// The bytes in a form. Written at the first call if they differ from those of simpler forms.
    pub(super) fn bytes(&self, form: Form) -> &Bytes {
        if self.is_plain() {
            return &self.lines;
        }
        let has_peeled = self.notes.iter().any(|note| note.peeled.is_some());
        let has_targets = self.notes.iter().any(|note| note.target.is_some());
        match form.simplest(has_peeled, has_targets) {
            Form::Plain => &self.lines,
            form => match self.written.get(form.index()) {
                Some(written) => written.get_or_init(|| self.write(form)),
                None => &self.lines,
            },
        }
    }

    /// Where in a form the first ref begins whose name is not below `name`.
    pub(super) fn seek(&self, form: Form, name: &[u8]) -> usize {
        let bytes = self.bytes(form);
        let mut at = 0;
        while let Some(line) = line_at(bytes, at) {
            let behind_oid = bytes.get(at + self.name_start()..line.end).unwrap_or_default();
            // No name holds any of these; `^` begins the suffix of a peeled line.
            let end = behind_oid.iter().position(|byte| matches!(byte, b' ' | b'\n' | b'^'));
            if behind_oid.get(..end.unwrap_or(behind_oid.len())) >= Some(name) {
                break;
            }
            at = line.end;
        }
        at
    }

    fn write(&self, form: Form) -> Bytes {
        let mut out = Vec::with_capacity(self.len(form) as usize);
        self.shown().for_each(|shown| form.write(&mut out, &shown));
        debug_assert_eq!(out.len(), self.len(form) as usize);
        out.into()
    }

    /// The refs, read back from the lines.
    fn shown(&self) -> impl Iterator<Item = AdvertisedRef<'_>> {
        let mut notes = self.notes.iter().peekable();
        self.walk().filter_map(move |line| {
            let digits = self.lines.get(line.range.start + LENGTH_DIGITS..)?;
            let oid = ObjectId::from_hex(self.format, digits.get(..self.format.hex_width())?).ok()?;
            let note = notes.next_if(|note| note.at == line.range.start);
            Some(AdvertisedRef {
                name: line.name,
                oid,
                peeled: note.and_then(|note| note.peeled),
                symref_target: note.and_then(|note| note.target.as_deref()),
            })
        })
    }

    fn walk(&self) -> impl Iterator<Item = Line<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let range = line_at(&self.lines, at)?;
            at = range.end;
            let name = self.lines.get(range.start + self.name_start()..range.end - 1)?;
            Some(Line { range, name })
        })
    }

    /// From the start of a line to its name.
    fn name_start(&self) -> usize {
        LENGTH_DIGITS + self.format.hex_width() + 1
    }

    fn count_len(&self, form: Form) -> usize {
        let more = self.notes.iter().map(|note| {
            let peeled = note.peeled.map_or(0, |_| self.format.hex_width());
            let line = line_at(&self.lines, note.at).map_or(0, |line| line.len());
            let attribute = if peeled > 0 { b" peeled:".len() + peeled } else { 0 };
            let target = note
                .target
                .as_ref()
                .map_or(0, |name| b" symref-target:".len() + name.len());
            match form {
                Form::Plain => 0,
                Form::PeeledLines if peeled > 0 => line + b"^{}".len(),
                Form::PeeledLines => 0,
                Form::Peeled => attribute,
                Form::Targets => target,
                Form::PeeledTargets => attribute + target,
            }
        });
        self.lines.len() + more.sum::<usize>()
    }
}

/// The line that begins at `at`; `None` at the end.
fn line_at(lines: &[u8], at: usize) -> Option<Range<usize>> {
    let digits = lines.get(at..at + LENGTH_DIGITS)?;
    let len = digits.iter().try_fold(0, |len, digit| {
        Some(len << 4 | (char::from(*digit).to_digit(16)? as usize))
    })?;
    // Not shorter than its own digits: a walk gets on.
    (len >= LENGTH_DIGITS && at + len <= lines.len()).then_some(at..at + len)
}

/// Writes lines, old and new ones, and cuts them into chunks.
pub(super) struct Writer {
    format: ObjectFormat,
    lines: Vec<u8>,
    notes: Vec<Note>,
    done: Vec<Arc<Chunk>>,
}

impl Writer {
    pub(super) fn new(format: ObjectFormat) -> Self {
        Self {
            format,
            lines: Vec::with_capacity(CHUNK_LEN_MAX + LINE_OVERHEAD_MAX),
            notes: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Whether all that was written fits in a quarter of a chunk.
    pub(super) fn is_small(&self) -> bool {
        self.done.is_empty() && self.lines.len() < CHUNK_LEN_MAX / 4
    }

    /// Appends a ref. One whose lines no packet holds is left out.
    pub(super) fn push(&mut self, shown: &AdvertisedRef<'_>) {
        let target = shown.symref_target.unwrap_or_default();
        if shown.name.len() + target.len() + LINE_OVERHEAD_MAX > pktline::DATA_MAX {
            return;
        }
        if shown.peeled.is_some() || shown.symref_target.is_some() {
            self.notes.push(Note {
                at: self.lines.len(),
                peeled: shown.peeled,
                target: shown.symref_target.map(Box::from),
            });
        }
        advertise::write_ref(&mut self.lines, shown.name, &shown.oid, None);
        self.cut();
    }

    /// Appends a whole chunk.
    pub(super) fn append(&mut self, chunk: &Chunk) {
        self.copy(chunk, 0..chunk.lines.len());
    }

    /// Appends a chunk with changes made to it, which are in the order of their names.
    pub(super) fn splice(&mut self, chunk: &Chunk, changes: &[Change<'_>]) {
        let mut changes = changes.iter().peekable();
        let mut copied = 0;
        for line in chunk.walk() {
            while let Some(change) = changes.next_if(|change| change.name <= line.name) {
                self.copy(chunk, copied..line.range.start);
                let is_replaced = change.name == line.name;
                copied = if is_replaced { line.range.end } else { line.range.start };
                change.now.iter().for_each(|shown| self.push(shown));
            }
            if changes.peek().is_none() {
                break;
            }
        }
        self.copy(chunk, copied..chunk.lines.len());
        self.extend(changes);
    }

    /// Appends what changes show.
    pub(super) fn extend<'a>(&mut self, changes: impl IntoIterator<Item = &'a Change<'a>>) {
        let shown = changes.into_iter().filter_map(|change| change.now);
        shown.for_each(|shown| self.push(&shown));
    }

    /// Everything as chunks.
    pub(super) fn finish(mut self) -> Vec<Arc<Chunk>> {
        if !self.lines.is_empty() {
            self.close(self.lines.len());
        }
        self.done
    }

    fn copy(&mut self, chunk: &Chunk, range: Range<usize>) {
        let Some(lines) = chunk.lines.get(range.clone()).filter(|lines| !lines.is_empty()) else {
            return;
        };
        let first = chunk.notes.partition_point(|note| note.at < range.start);
        let notes = chunk.notes.iter().skip(first).take_while(|note| note.at < range.end);
        let to = self.lines.len();
        self.notes.extend(notes.map(|note| Note {
            at: note.at - range.start + to,
            ..note.clone()
        }));
        self.lines.extend_from_slice(lines);
        self.cut();
    }

    /// Cuts off half a chunk as long as there is more than a whole one: what is left is never very small.
    fn cut(&mut self) {
        while self.lines.len() > CHUNK_LEN_MAX {
            let mut end = 0;
            while let Some(line) = line_at(&self.lines, end).filter(|_| end < CHUNK_LEN_MAX / 2) {
                end = line.end;
            }
            self.close(if end == 0 { self.lines.len() } else { end });
        }
    }

    /// Makes a chunk of everything before `end`, which is the end of a line.
    fn close(&mut self, end: usize) {
        let later = self.notes.partition_point(|note| note.at < end);
        let later = self.notes.split_off(later);
        let notes = std::mem::take(&mut self.notes);
        self.notes = later
            .into_iter()
            .map(|note| Note {
                at: note.at - end,
                ..note
            })
            .collect();
        let lines = self.lines.get(..end).unwrap_or_default();
        self.done.push(Arc::new(Chunk::new(self.format, lines, notes)));
        self.lines.drain(..end);
    }
}
