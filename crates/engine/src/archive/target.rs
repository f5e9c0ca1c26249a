//! From an object and a path to the tree that is archived.

use super::missing;
use super::walk::{DEPTH_MAX, EntryCount, HELD_BYTES_MAX, find_entry};
use crate::{EngineError, View};
use bytes::Bytes;
use cuesta_git::{CommitRef, ObjectId, ObjectKind, TagRef};

/// Tags of tags that are followed.
const TAG_DEPTH_MAX: usize = 1_000;

/// What is archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The tree.
    pub tree: ObjectId,
    /// The commit it is the tree of, if it was named by one.
    pub commit: Option<ObjectId>,
    /// When that was committed, in seconds since 1970.
    pub commit_time: Option<i64>,
}

/// The tree that `oid` stands for, through tags and a commit; with a path, the tree of that path in it. `None` if there is
/// no such path.
pub async fn resolve(view: &View, oid: &ObjectId, path: Option<&[u8]>) -> Result<Option<Target>, EngineError> {
    let target = peel(view, oid).await?;
    let Some(path) = path else { return Ok(Some(target)) };
    let Some(tree) = tree_at_path(view, target.tree, path).await? else {
        return Ok(None);
    };
    let (commit, commit_time) = (None, None);
    Ok(Some(Target {
        tree,
        commit,
        commit_time,
    }))
}

async fn peel(view: &View, oid: &ObjectId) -> Result<Target, EngineError> {
    let (format, mut at) = (view.object_format(), *oid);
    for _ in 0..TAG_DEPTH_MAX {
        // The content of a tree or blob is not needed here, whatever its size.
        let (kind, _) = view.kind_and_size(&at).await?.ok_or_else(|| missing(&at))?;
        match kind {
            ObjectKind::Tag => {
                let content = content(view, &at).await?;
                at = TagRef::parse(format, &content)
                    .map_err(|error| broken(&at, &error))?
                    .target;
            }
            ObjectKind::Commit => {
                let content = content(view, &at).await?;
                let commit = CommitRef::parse(format, &content).map_err(|error| broken(&at, &error))?;
                let (tree, time) = (commit.tree, commit.committer_time);
                return Ok(Target {
                    tree,
                    commit: Some(at),
                    commit_time: Some(time),
                });
            }
            ObjectKind::Tree => {
                return Ok(Target {
                    tree: at,
                    commit: None,
                    commit_time: None,
                });
            }
            ObjectKind::Blob => return Err(not_a_tree(oid)),
        }
    }
    Err(EngineError::limit("nested tags", TAG_DEPTH_MAX as u64))
}

/// The object at a path in the tree that `oid` stands for (gitrevisions, `<rev>:<path>`); `None` if there is nothing there.
pub async fn at_path(view: &View, oid: &ObjectId, path: &[u8]) -> Result<Option<ObjectId>, EngineError> {
    let tree = peel(view, oid).await?.tree;
    Ok(entry_at_path(view, tree, path).await?.map(|(oid, _)| oid))
}

/// The tree at a path; `None` if there is nothing there.
async fn tree_at_path(view: &View, root: ObjectId, path: &[u8]) -> Result<Option<ObjectId>, EngineError> {
    match entry_at_path(view, root, path).await? {
        Some((oid, false)) => Err(not_a_tree(&oid)),
        found => Ok(found.map(|(oid, _)| oid)),
    }
}

/// What is at a path, and whether it is a tree.
async fn entry_at_path(view: &View, root: ObjectId, path: &[u8]) -> Result<Option<(ObjectId, bool)>, EngineError> {
    let (mut tree, mut visited) = (root, EntryCount::default());
    let names: Vec<&[u8]> = path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .collect();
    for (depth, name) in names.iter().enumerate() {
        if depth >= DEPTH_MAX {
            return Err(EngineError::Refused("exceeded maximum allowed tree depth".to_owned()));
        }
        let (kind, size) = view.kind_and_size(&tree).await?.ok_or_else(|| missing(&tree))?;
        if kind != ObjectKind::Tree {
            return Err(not_a_tree(&tree));
        }
        if size > HELD_BYTES_MAX {
            return Err(EngineError::limit("bytes of nested trees", HELD_BYTES_MAX));
        }
        let content = content(view, &tree).await?;
        match find_entry((view.object_format(), &content), name, &mut visited)? {
            Some(entry) if entry.mode.is_tree() => tree = entry.oid,
            Some(entry) if depth + 1 == names.len() => return Ok(Some((entry.oid, false))),
            Some(entry) => return Err(not_a_tree(&entry.oid)),
            None => return Ok(None),
        }
    }
    Ok(Some((tree, true)))
}

async fn content(view: &View, oid: &ObjectId) -> Result<Bytes, EngineError> {
    Ok(view.object(oid).await?.ok_or_else(|| missing(oid))?.1)
}

fn not_a_tree(oid: &ObjectId) -> EngineError {
    EngineError::Refused(format!("not a tree object: {oid}"))
}

fn broken(oid: &ObjectId, error: &cuesta_git::ObjectError) -> EngineError {
    EngineError::Refused(format!("object {oid} cannot be read: {error}"))
}
