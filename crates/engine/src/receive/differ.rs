//! How one tree differs from another.
//!
//! Most trees differ from their parent's in one entry, so what is equal at both ends is skipped by comparing bytes.

use super::trees::Tree;
use cuesta_git::{ObjectId, TreeEntry};
use std::cmp::Ordering;

/// An entry that the old tree does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Its number in the new tree.
    pub(crate) index: u32,
    /// What has its name in the old tree, where both are trees or both blobs.
    pub(crate) pair: Option<ObjectId>,
}

/// An object that only the old tree names at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) oid: ObjectId,
    pub(crate) is_tree: bool,
    /// Whether the new tree has a tree of the same name.
    pub(crate) paired: bool,
}

/// Lists what `new` has and `old` has not, in `new`'s order, and the other way round. Gitlinks name nothing here and are
/// left out.
pub(crate) fn differ(new: &Tree, old: &Tree, changed: &mut Vec<Changed>, gone: &mut Vec<Gone>) {
    let first = common_start(new, old);
    let (new_end, old_end) = common_end(new, old, first);
    let (mut at_new, mut at_old) = (first, first);
    loop {
        let left = new.entry(at_new).filter(|_| at_new < new_end);
        let right = old.entry(at_old).filter(|_| at_old < old_end);
        let order = match (&left, &right) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => name_order(left, right),
        };
        match (order, left, right) {
            (Ordering::Equal, Some(left), Some(right)) => {
                compare(at_new, &left, &right, changed, gone);
                at_new += 1;
                at_old += 1;
            }
            (Ordering::Less, Some(left), _) => {
                change(at_new, &left, None, changed);
                at_new += 1;
            }
            (_, _, Some(right)) => {
                go(&right, false, gone);
                at_old += 1;
            }
            _ => return,
        }
    }
}

/// Lists all of a tree as changed.
pub(crate) fn all(new: &Tree, changed: &mut Vec<Changed>) {
    for index in 0..new.len() {
        if let Some(entry) = new.entry(index) {
            change(index, &entry, None, changed);
        }
    }
}

fn compare(index: usize, new: &TreeEntry, old: &TreeEntry, changed: &mut Vec<Changed>, gone: &mut Vec<Gone>) {
    let same_kind = new.mode.is_tree() == old.mode.is_tree() && new.mode.is_gitlink() == old.mode.is_gitlink();
    if new.oid == old.oid && same_kind {
        return;
    }
    let both_trees = new.mode.is_tree() && old.mode.is_tree();
    let both_blobs = new.mode.is_blob() && old.mode.is_blob();
    change(index, new, (both_trees || both_blobs).then_some(old.oid), changed);
    go(old, both_trees, gone);
}

fn change(index: usize, entry: &TreeEntry, pair: Option<ObjectId>, changed: &mut Vec<Changed>) {
    if let Ok(index) = u32::try_from(index)
        && !entry.mode.is_gitlink()
    {
        changed.push(Changed { index, pair });
    }
}

fn go(entry: &TreeEntry, paired: bool, gone: &mut Vec<Gone>) {
    if !entry.mode.is_gitlink() {
        gone.push(Gone {
            oid: entry.oid,
            is_tree: entry.mode.is_tree(),
            paired,
        });
    }
}

/// Git's order of entries: names by their bytes, trees as if they ended in a slash. Equal names are equal whatever they
/// name, so that a file that became a tree of the same name is not taken for a pair but met apart.
fn name_order(left: &TreeEntry, right: &TreeEntry) -> Ordering {
    let common = left.name.len().min(right.name.len());
    let bytes = left.name.iter().take(common).cmp(right.name.iter().take(common));
    let next = |entry: &TreeEntry| match entry.name.get(common) {
        Some(byte) => *byte,
        None if entry.mode.is_tree() => b'/',
        None => 0,
    };
    bytes
        .then_with(|| next(left).cmp(&next(right)))
        .then_with(|| left.name.len().cmp(&right.name.len()))
}

/// How many entries at the start are equal, byte for byte.
fn common_start(new: &Tree, old: &Tree) -> usize {
    let offset = common_prefix(new.bytes(), old.bytes());
    if offset == new.bytes().len() || offset == old.bytes().len() {
        // One tree is the start of the other, unless it ends inside what looks like an entry of the other.
        let shorter = if new.bytes().len() <= old.bytes().len() {
            new
        } else {
            old
        };
        let longer = if new.bytes().len() <= old.bytes().len() {
            old
        } else {
            new
        };
        return longer.starts_at(offset).unwrap_or(shorter.len().saturating_sub(1));
    }
    // The entry that holds the first byte that differs starts at the same place in both.
    new.at_or_before(offset).min(old.at_or_before(offset))
}

/// Where, in each tree, the equal entries at the end start; not before `first`.
fn common_end(new: &Tree, old: &Tree, first: usize) -> (usize, usize) {
    let new_rest = new.bytes().get(new.start(first)..).unwrap_or_default();
    let old_rest = old.bytes().get(old.start(first)..).unwrap_or_default();
    let len = common_suffix(new_rest, old_rest);
    // Equal bytes are equal entries from a place on where an entry starts in both.
    let mut index = new.at_or_before(new.bytes().len() - len).max(first);
    while index < new.len() {
        let from_end = new.bytes().len() - new.start(index);
        if from_end <= len
            && let Some(old_index) = old.starts_at(old.bytes().len() - from_end)
        {
            return (index, old_index);
        }
        index += 1;
    }
    (new.len(), old.len())
}

const STEP: usize = 32;

fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let steps = left.as_chunks::<STEP>().0.iter().zip(right.as_chunks::<STEP>().0);
    let equal = steps.take_while(|(left, right)| left == right).count() * STEP;
    let (left, right) = (
        left.get(equal..).unwrap_or_default(),
        right.get(equal..).unwrap_or_default(),
    );
    equal + left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

fn common_suffix(left: &[u8], right: &[u8]) -> usize {
    let steps = left
        .as_rchunks::<STEP>()
        .1
        .iter()
        .rev()
        .zip(right.as_rchunks::<STEP>().1.iter().rev());
    let equal = steps.take_while(|(left, right)| left == right).count() * STEP;
    let left = left.get(..left.len() - equal).unwrap_or_default();
    let right = right.get(..right.len() - equal).unwrap_or_default();
    equal
        + left
            .iter()
            .rev()
            .zip(right.iter().rev())
            .take_while(|(left, right)| left == right)
            .count()
}
