//! Trees of the push and of the repository, parsed and kept while the walk may need them again.

use super::entries::{Entries, Index, Stored};
use super::error::{IntakeError, ObjectFault};
use super::known::Known;
use super::source::EntrySource;
use super::spool::Spool;
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind, TreeEntry, TreeIter, delta};
use std::sync::Arc;

/// A tree, with the offset of each of its entries.
pub(crate) struct Tree {
    format: ObjectFormat,
    bytes: Bytes,
    /// Where each entry starts, and where the last one ends.
    starts: Vec<u32>,
}

impl Tree {
    /// Parses a tree. Malformed ones, which only a lenient fsck lets through, are `None`.
    fn parse(format: ObjectFormat, bytes: Bytes) -> Option<Self> {
        let mut starts = Vec::with_capacity(bytes.len() / (format.width() + 16) + 2);
        let mut iter = TreeIter::new(format, &bytes);
        loop {
            starts.push(u32::try_from(bytes.len() - iter.rest().len()).ok()?);
            match iter.next() {
                Some(Ok(_)) => {}
                Some(Err(_)) => return None,
                None => break,
            }
        }
        Some(Self { format, bytes, starts })
    }

    /// How many entries it has.
    pub(crate) fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// One entry.
    pub(crate) fn entry(&self, index: usize) -> Option<TreeEntry<'_>> {
        TreeIter::new(self.format, self.raw(index)?).next()?.ok()
    }

    /// The bytes of one entry.
    pub(crate) fn raw(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = (*self.starts.get(index)?, *self.starts.get(index + 1)?);
        self.bytes.get(start as usize..end as usize)
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The last entry that starts at or before an offset.
    pub(crate) fn at_or_before(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start as usize <= offset).saturating_sub(1)
    }

    /// Whether an entry starts at an offset, or the tree ends there.
    pub(crate) fn starts_at(&self, offset: usize) -> Option<usize> {
        let offset = u32::try_from(offset).ok()?;
        self.starts.binary_search(&offset).ok()
    }

    /// Where an entry starts; for the number of entries, where the tree ends.
    pub(crate) fn start(&self, index: usize) -> usize {
        self.starts.get(index).map_or(self.bytes.len(), |start| *start as usize)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Entry(u32),
    Outside(ObjectId),
}

/// What is kept of a tree: its bytes, which may be the base of another, and its parsed form once somebody asked.
#[derive(Clone)]
enum Kept {
    Bytes(Bytes),
    Tree(Arc<Tree>),
}

impl Kept {
    fn bytes(&self) -> &Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Tree(tree) => &tree.bytes,
        }
    }
}

#[derive(Clone)]
struct Weight;

impl quick_cache::Weighter<Key, Kept> for Weight {
    fn weight(&self, _key: &Key, kept: &Kept) -> u64 {
        let parsed = if let Kept::Tree(tree) = kept { tree.starts.len() * 4 } else { 0 };
        (kept.bytes().len() + parsed + 128) as u64
    }
}

/// Gives trees by id, first from the push and then from the repository.
pub(crate) struct Trees<'a> {
    source: EntrySource<'a>,
    index: &'a Index,
    known: &'a dyn Known,
    cache: quick_cache::unsync::Cache<Key, Kept, Weight>,
    /// Entries still to be applied, nearest first.
    chain: Vec<u32>,
    delta: Vec<u8>,
}

impl<'a> Trees<'a> {
    pub(crate) fn new(
        spool: &'a Spool,
        entries: &'a Entries,
        index: &'a Index,
        known: &'a dyn Known,
        bytes_max: usize,
    ) -> Self {
        let items = bytes_max / 8192 + 16;
        Self {
            source: EntrySource::new(spool, entries),
            index,
            known,
            cache: quick_cache::unsync::Cache::with_weighter(items, bytes_max as u64, Weight),
            chain: Vec::new(),
            delta: Vec::new(),
        }
    }

    /// Trees by id, in the order of the ids; `None` where there is no such tree. All that must come from the repository
    /// are asked for at once.
    pub(crate) fn load(&mut self, oids: &[ObjectId]) -> Result<Vec<Option<Arc<Tree>>>, IntakeError> {
        let mut trees = Vec::with_capacity(oids.len());
        let mut missing = Vec::new();
        for oid in oids {
            let found = self.local(oid)?;
            if found.is_none() {
                missing.push(*oid);
            }
            trees.push(found);
        }
        if missing.is_empty() || self.known.is_empty() {
            return Ok(trees);
        }
        missing.sort_unstable();
        missing.dedup();
        let objects = self.known.objects(&missing)?;
        let format = self.source.entries().format();
        let parsed: Vec<Option<Arc<Tree>>> = objects
            .into_iter()
            .map(|object| match object {
                Some((ObjectKind::Tree, bytes)) => Tree::parse(format, bytes).map(Arc::new),
                _ => None,
            })
            .collect();
        for (oid, tree) in missing.iter().zip(&parsed) {
            if let Some(tree) = tree {
                self.cache.insert(Key::Outside(*oid), Kept::Tree(tree.clone()));
            }
        }
        for (oid, tree) in oids.iter().zip(&mut trees) {
            if tree.is_none()
                && let Ok(found) = missing.binary_search(oid)
            {
                *tree = parsed.get(found).cloned().flatten();
            }
        }
        Ok(trees)
    }

    /// A tree that is at hand without asking the repository.
    fn local(&mut self, oid: &ObjectId) -> Result<Option<Arc<Tree>>, IntakeError> {
        let entries = self.source.entries();
        match self.index.find(entries, oid) {
            Some(entry) if entries.kind(entry) == Some(ObjectKind::Tree) => self.parsed(entry),
            Some(_) => Ok(None),
            None => Ok(match self.cache.get(&Key::Outside(*oid)) {
                Some(Kept::Tree(tree)) => Some(tree.clone()),
                // The base of a tree's delta, and so a tree.
                Some(Kept::Bytes(bytes)) => Tree::parse(entries.format(), bytes.clone()).map(Arc::new),
                None => None,
            }),
        }
    }

    fn parsed(&mut self, entry: u32) -> Result<Option<Arc<Tree>>, IntakeError> {
        if let Some(Kept::Tree(tree)) = self.cache.get(&Key::Entry(entry)) {
            return Ok(Some(tree.clone()));
        }
        let bytes = self.content(entry)?;
        let Some(tree) = Tree::parse(self.source.entries().format(), bytes).map(Arc::new) else {
            return Ok(None);
        };
        self.cache.insert(Key::Entry(entry), Kept::Tree(tree.clone()));
        Ok(Some(tree))
    }

    /// The content of an entry, made from its nearest base at hand. What is made on the way is kept: packs lead from
    /// newer trees to older ones, which is how the next ones will be needed.
    fn content(&mut self, entry: u32) -> Result<Bytes, IntakeError> {
        let entries = self.source.entries();
        self.chain.clear();
        let mut at = entry;
        let mut content = loop {
            if let Some(kept) = self.cache.get(&Key::Entry(at)) {
                break kept.bytes().clone();
            }
            match entries.stored(at) {
                Stored::Delta(base) => {
                    self.chain.push(at);
                    at = base;
                }
                Stored::Named(number) => {
                    self.chain.push(at);
                    break self.outside_base(entries.named_base(number))?;
                }
                Stored::Whole => {
                    let mut whole = Vec::new();
                    self.source.inflate(at, &mut whole)?;
                    let whole = Bytes::from(whole);
                    self.cache.insert(Key::Entry(at), Kept::Bytes(whole.clone()));
                    break whole;
                }
            }
        };
        while let Some(at) = self.chain.pop() {
            self.source.inflate(at, &mut self.delta)?;
            let applied = delta::apply(&content, &self.delta);
            let applied = applied.map_err(|error| entries.fault(at, ObjectFault::Delta(error.to_string())))?;
            content = Bytes::from(applied);
            self.cache.insert(Key::Entry(at), Kept::Bytes(content.clone()));
        }
        Ok(content)
    }

    fn outside_base(&mut self, oid: ObjectId) -> Result<Bytes, IntakeError> {
        if let Some(kept) = self.cache.get(&Key::Outside(oid)) {
            return Ok(kept.bytes().clone());
        }
        let object = self.known.objects(&[oid])?.pop().flatten();
        let (_, bytes) = object.ok_or(IntakeError::Internal("a thin base is gone"))?;
        self.cache.insert(Key::Outside(oid), Kept::Bytes(bytes.clone()));
        Ok(bytes)
    }
}
