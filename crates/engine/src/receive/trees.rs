//! Trees of the push and of the repository, parsed and kept while the walk may need them again.

use super::contents::{Contents, cache_items};
use super::entries::{Entries, Index};
use super::error::IntakeError;
use super::known::Known;
use super::spool::Spool;
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind, TreeEntry, TreeIter};
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
    pub(crate) fn parse(format: ObjectFormat, bytes: Bytes) -> Option<Self> {
        let mut starts = Vec::with_capacity(bytes.len() / (format.width() + 16) + 2);
        let mut at = 0;
        while at < bytes.len() {
            starts.push(u32::try_from(at).ok()?);
            at += entry_len(format, bytes.get(at..)?)?;
        }
        starts.push(u32::try_from(bytes.len()).ok()?);
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
        self.starts
            .partition_point(|start| *start as usize <= offset)
            .saturating_sub(1)
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

/// The length of the entry at the start of `bytes`. Names are not looked at: most entries are only stepped over.
fn entry_len(format: ObjectFormat, bytes: &[u8]) -> Option<usize> {
    const MODE_LEN_MAX: usize = 7;
    let space = bytes
        .iter()
        .take(MODE_LEN_MAX + 1)
        .position(|byte| *byte == b' ')
        .filter(|space| *space > 0)?;
    let is_octal = bytes.iter().take(space).all(|byte| matches!(byte, b'0'..=b'7'));
    let name = bytes.get(space + 1..)?;
    let name_len = memchr::memchr(0, name).filter(|len| *len > 0 && is_octal)?;
    let len = space + 1 + name_len + 1 + format.width();
    (len <= bytes.len()).then_some(len)
}

#[derive(Clone)]
struct Weight;

impl quick_cache::Weighter<ObjectId, Arc<Tree>> for Weight {
    fn weight(&self, _oid: &ObjectId, tree: &Arc<Tree>) -> u64 {
        // The bytes are mostly shared with the contents they were made from.
        (tree.starts.len() * 4 + tree.bytes.len() + 128) as u64
    }
}

/// Gives trees by id, first from the push and then from the repository.
pub(crate) struct Trees<'a> {
    contents: Contents<'a>,
    index: &'a Index,
    known: &'a dyn Known,
    cache: quick_cache::unsync::Cache<ObjectId, Arc<Tree>, Weight>,
}

impl<'a> Trees<'a> {
    /// Keeps at most `bytes_max`: half of it parsed trees, half what they are made from.
    pub(crate) fn new(
        spool: &'a Spool,
        entries: &'a Entries,
        index: &'a Index,
        known: &'a dyn Known,
        bytes_max: usize,
    ) -> Self {
        let half = bytes_max / 2;
        Self {
            contents: Contents::new(spool, entries, known, half),
            index,
            known,
            cache: quick_cache::unsync::Cache::with_weighter(cache_items(entries, half), half as u64, Weight),
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
        if !missing.is_empty() && !self.known.is_empty() {
            missing.sort_unstable();
            missing.dedup();
            let found = self.outside(&missing)?;
            for (oid, tree) in oids.iter().zip(&mut trees).filter(|(_, tree)| tree.is_none()) {
                *tree = missing
                    .binary_search(oid)
                    .ok()
                    .and_then(|at| found.get(at).cloned().flatten());
            }
        }
        Ok(trees)
    }

    /// A tree that is at hand without asking the repository.
    fn local(&mut self, oid: &ObjectId) -> Result<Option<Arc<Tree>>, IntakeError> {
        if let Some(tree) = self.cache.get(oid) {
            return Ok(Some(tree.clone()));
        }
        let entries = self.contents.entries();
        let entry = self.index.find(entries, oid);
        let Some(entry) = entry.filter(|entry| entries.kind(*entry) == Some(ObjectKind::Tree)) else {
            return Ok(None);
        };
        let bytes = self.contents.content(entry)?;
        let tree = Tree::parse(entries.format(), bytes).map(Arc::new);
        if let Some(tree) = &tree {
            self.cache.insert(*oid, tree.clone());
        }
        Ok(tree)
    }

    /// Trees of the repository.
    fn outside(&mut self, oids: &[ObjectId]) -> Result<Vec<Option<Arc<Tree>>>, IntakeError> {
        let format = self.contents.entries().format();
        let mut trees = Vec::with_capacity(oids.len());
        for (oid, object) in oids.iter().zip(self.known.objects(oids)?) {
            let tree = match object {
                Some((ObjectKind::Tree, bytes)) => Tree::parse(format, bytes).map(Arc::new),
                _ => None,
            };
            if let Some(tree) = &tree {
                self.cache.insert(*oid, tree.clone());
            }
            trees.push(tree);
        }
        Ok(trees)
    }
}
