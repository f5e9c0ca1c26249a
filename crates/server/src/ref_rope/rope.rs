//! The rope: chunks in the order of names, which are replaced where refs moved.

use super::Form;
use super::chunk::{Change, Chunk, Writer};
use super::lines::RefLines;
use bytes::Bytes;
use cuesta_git::ObjectFormat;
use cuesta_protocol::advertise::AdvertisedRef;
use imbl::Vector;
use std::ops::Range;
use std::sync::Arc;

/// Memory of a chunk beside its bytes.
const CHUNK_OVERHEAD_BYTES: u64 = 512;

/// Refs as lines. A clone costs a few reference counts; later patches of one do not show in the other.
#[derive(Clone, Debug)]
pub struct Rope {
    format: ObjectFormat,
    chunks: Vector<Arc<Chunk>>,
    /// Bytes in each form.
    lens: [u64; Form::COUNT],
    /// The same of those chunks whose forms differ.
    noted_lens: [u64; Form::COUNT],
}

impl Rope {
    /// A rope of these refs, which are in the order of their names.
    pub(crate) fn new<'a>(format: ObjectFormat, refs: impl IntoIterator<Item = AdvertisedRef<'a>>) -> Self {
        let mut writer = Writer::new(format);
        refs.into_iter().for_each(|shown| writer.push(&shown));
        let mut rope = Self {
            format,
            chunks: Vector::new(),
            lens: [0; Form::COUNT],
            noted_lens: [0; Form::COUNT],
        };
        rope.replace(0..0, writer.finish());
        rope
    }

    /// Makes changes, each name once, in the order of names. Cost: a chunk for each neighbourhood that changes.
    pub(super) fn patch(&mut self, changes: &[Change<'_>]) {
        // From the last to the first, so that the places of those before stay what they are.
        let mut left = changes;
        while let Some(last) = left.last() {
            let place = self.place(last.name);
            let from = match self.chunks.get(place) {
                Some(chunk) if place > 0 => left.partition_point(|change| change.name < chunk.first_name()),
                _ => 0,
            };
            let (before, here) = left.split_at(from);
            self.splice(place, here);
            left = before;
        }
    }

    /// How many bytes all refs have in a form.
    pub fn len(&self, form: Form) -> u64 {
        self.lens.get(form.index()).copied().unwrap_or_default()
    }

    /// Whether it shows no ref.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The first ref.
    pub fn first(&self) -> Option<AdvertisedRef<'_>> {
        self.chunks.front().and_then(|chunk| chunk.first())
    }

    /// Appends the lines of all refs.
    pub fn append_all(&self, form: Form, out: &mut RefLines) {
        out.push_chunks(&self.chunks, 0..self.chunks.len(), form, self.len(form));
    }

    /// Appends the lines of all refs but the first.
    pub fn append_rest(&self, form: Form, out: &mut RefLines) {
        let Some((front, first)) = self.chunks.front().zip(self.first()) else {
            return;
        };
        let mut own = Vec::new();
        form.write(&mut own, &first);
        out.push(
            front
                .bytes(form)
                .get(own.len()..)
                .map_or(Bytes::new(), |rest| front.bytes(form).slice_ref(rest)),
        );
        let left = self.len(form) - u64::from(front.len(form));
        out.push_chunks(&self.chunks, 1..self.chunks.len(), form, left);
    }

    /// Appends the lines of the refs whose names begin with `prefix`.
    pub fn append_prefixed(&self, prefix: &[u8], form: Form, out: &mut RefLines) {
        let end = match after(prefix) {
            Some(name) => self.seek(&name, form),
            None => (self.chunks.len(), 0),
        };
        let from = self.seek(prefix, form);
        if from >= end {
            return;
        }
        let part = |place: usize, from: usize, to: usize| match self.chunks.get(place) {
            Some(chunk) if from < to => chunk.bytes(form).slice(from..to),
            _ => Bytes::new(),
        };
        if from.0 == end.0 {
            return out.push(part(from.0, from.1, end.1));
        }
        let mut whole = from.0..end.0;
        if from.1 > 0 {
            let len = self.chunks.get(from.0).map_or(0, |chunk| chunk.len(form) as usize);
            out.push(part(from.0, from.1, len));
            whole.start += 1;
        }
        let len = self.len_of(&whole, form);
        out.push_chunks(&self.chunks, whole, form, len);
        out.push(part(end.0, 0, end.1));
    }

    /// How many bytes some of the chunks have; from the others where those are fewer.
    fn len_of(&self, places: &Range<usize>, form: Form) -> u64 {
        let sum = |places: Range<usize>| -> u64 {
            let chunks = places.filter_map(|place| self.chunks.get(place));
            chunks.map(|chunk| u64::from(chunk.len(form))).sum()
        };
        if places.len() * 2 < self.chunks.len() {
            sum(places.clone())
        } else {
            self.len(form) - sum(0..places.start) - sum(places.end..self.chunks.len())
        }
    }

    /// Memory, in bytes, when these forms have been asked for.
    pub(super) fn weight(&self, forms: impl Iterator<Item = Form>) -> u64 {
        let others = forms.filter(|form| *form != Form::Plain);
        let noted: u64 = others.filter_map(|form| self.noted_lens.get(form.index())).sum();
        self.len(Form::Plain) + noted + self.chunks.len() as u64 * CHUNK_OVERHEAD_BYTES
    }

    /// Where the first ref is whose name is not below `name`: its chunk, and how far in.
    fn seek(&self, name: &[u8], form: Form) -> (usize, usize) {
        let place = self.place(name);
        let Some(chunk) = self.chunks.get(place) else {
            return (place, 0);
        };
        match chunk.seek(form, name) {
            at if at < chunk.len(form) as usize => (place, at),
            _ => (place + 1, 0),
        }
    }

    /// The chunk that has `name`, or would have it: the last that begins at or before it, or else the first.
    fn place(&self, name: &[u8]) -> usize {
        let found = self.chunks.binary_search_by(|chunk| chunk.first_name().cmp(name));
        found.unwrap_or_else(|next| next.saturating_sub(1))
    }

    /// Makes changes that belong into one chunk.
    fn splice(&mut self, place: usize, changes: &[Change<'_>]) {
        let mut writer = Writer::new(self.format);
        match self.chunks.get(place) {
            Some(chunk) => writer.splice(chunk, changes),
            None => writer.extend(changes),
        }
        let old = place..(place + 1).min(self.chunks.len());
        if !writer.is_small() {
            return self.replace(old, writer.finish());
        }
        // Not to be left with many small ones: it goes to the next, or at the end to the one before.
        if let Some(next) = self.chunks.get(old.end) {
            writer.append(next);
            return self.replace(old.start..old.end + 1, writer.finish());
        }
        let before = old.start.saturating_sub(1);
        let mut joined = Writer::new(self.format);
        let chunk = self.chunks.get(before).filter(|_| before < old.start);
        chunk.iter().for_each(|chunk| joined.append(chunk));
        writer.finish().iter().for_each(|chunk| joined.append(chunk));
        self.replace(before..old.end, joined.finish());
    }

    /// Puts chunks in the place of others.
    fn replace(&mut self, old: Range<usize>, new: Vec<Arc<Chunk>>) {
        let end = old.start + new.len();
        for (place, chunk) in (old.start..).zip(new) {
            self.account(&chunk, |sum, len| *sum += len);
            if place < old.end {
                let gone = self.chunks.set(place, chunk);
                self.account(&gone, |sum, len| *sum = sum.saturating_sub(len));
            } else {
                self.chunks.insert(place, chunk);
            }
        }
        for _ in end..old.end {
            let gone = self.chunks.remove(end);
            self.account(&gone, |sum, len| *sum = sum.saturating_sub(len));
        }
    }

    fn account(&mut self, chunk: &Chunk, change: impl Fn(&mut u64, u64)) {
        for form in Form::ALL {
            let len = u64::from(chunk.len(form));
            if let Some(sum) = self.lens.get_mut(form.index()) {
                change(sum, len);
            }
            if let Some(sum) = self.noted_lens.get_mut(form.index()).filter(|_| !chunk.is_plain()) {
                change(sum, len);
            }
        }
    }

    /// The sizes of the chunks, in bytes of plain lines.
    #[cfg(test)]
    pub(super) fn chunk_lens(&self) -> Vec<usize> {
        self.chunks
            .iter()
            .map(|chunk| chunk.len(Form::Plain) as usize)
            .collect()
    }

    /// How many chunks two ropes share.
    #[cfg(test)]
    pub(super) fn shared_with(&self, other: &Self) -> usize {
        let others: std::collections::HashSet<_> = other.chunks.iter().map(Arc::as_ptr).collect();
        self.chunks
            .iter()
            .filter(|chunk| others.contains(&Arc::as_ptr(chunk)))
            .count()
    }
}

/// The first name above all that begin with `prefix`; `None` if there is none.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut name = prefix.get(..=last)?.to_vec();
    *name.last_mut()? += 1;
    Some(name)
}
