//! Contents of the push's entries, made from their delta chains.

use super::entries::{Entries, Stored};
use super::error::{IntakeError, ObjectFault};
use super::known::Known;
use super::source::EntrySource;
use super::spool::Spool;
use bytes::Bytes;
use cuesta_git::{ObjectId, delta};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Entry(u32),
    Outside(ObjectId),
}

#[derive(Clone)]
struct Weight;

impl quick_cache::Weighter<Key, Bytes> for Weight {
    fn weight(&self, _key: &Key, content: &Bytes) -> u64 {
        content.len() as u64 + 128
    }
}

/// Makes contents and keeps those made last, for they are the bases of what is asked for next.
pub(crate) struct Contents<'a> {
    source: EntrySource<'a>,
    known: &'a dyn Known,
    cache: quick_cache::unsync::Cache<Key, Bytes, Weight>,
    /// Deltas still to be applied, the nearest to the base last.
    chain: Vec<u32>,
    delta: Vec<u8>,
}

impl<'a> Contents<'a> {
    /// Keeps at most `bytes_max`.
    pub(crate) fn new(spool: &'a Spool, entries: &'a Entries, known: &'a dyn Known, bytes_max: usize) -> Self {
        Self {
            source: EntrySource::new(spool, entries),
            known,
            cache: quick_cache::unsync::Cache::with_weighter(cache_items(entries, bytes_max), bytes_max as u64, Weight),
            chain: Vec::new(),
            delta: Vec::new(),
        }
    }

    pub(crate) fn entries(&self) -> &'a Entries {
        self.source.entries()
    }

    /// The content of an entry. What is made on the way is kept: packs lead from newer objects to older ones, and the
    /// older are asked for first.
    pub(crate) fn content(&mut self, entry: u32) -> Result<Bytes, IntakeError> {
        let entries = self.source.entries();
        self.chain.clear();
        let mut content = self.nearest(entry)?;
        while let Some(at) = self.chain.pop() {
            self.source.inflate(at, &mut self.delta)?;
            let applied = delta::apply(&content, &self.delta);
            let applied = applied.map_err(|error| entries.fault(at, ObjectFault::Delta(error.to_string())))?;
            content = Bytes::from(applied);
            self.cache.insert(Key::Entry(at), content.clone());
        }
        Ok(content)
    }

    /// The nearest content at hand on the way from an entry to its base; the deltas between go to `chain`.
    fn nearest(&mut self, entry: u32) -> Result<Bytes, IntakeError> {
        let entries = self.source.entries();
        let mut at = entry;
        loop {
            if let Some(kept) = self.cache.get(&Key::Entry(at)) {
                return Ok(kept.clone());
            }
            match entries.stored(at) {
                Stored::Delta(base) => {
                    self.chain.push(at);
                    at = base;
                }
                Stored::Named(number) => {
                    self.chain.push(at);
                    return self.outside(entries.named_base(number));
                }
                Stored::Whole => {
                    let mut whole = Vec::new();
                    self.source.inflate(at, &mut whole)?;
                    let whole = Bytes::from(whole);
                    self.cache.insert(Key::Entry(at), whole.clone());
                    return Ok(whole);
                }
            }
        }
    }

    fn outside(&mut self, oid: ObjectId) -> Result<Bytes, IntakeError> {
        if let Some(kept) = self.cache.get(&Key::Outside(oid)) {
            return Ok(kept.clone());
        }
        let object = self.known.objects(&[oid])?.pop().flatten();
        let (_, bytes) = object.ok_or(IntakeError::Internal("a thin base is gone"))?;
        self.cache.insert(Key::Outside(oid), bytes.clone());
        Ok(bytes)
    }
}

/// How many items a cache of some bytes should be ready for: a small push must not pay for a large table.
pub(crate) fn cache_items(entries: &Entries, bytes_max: usize) -> usize {
    const ITEM_LEN: usize = 8192;
    (bytes_max / ITEM_LEN).min(2 * entries.len() as usize) + 16
}
