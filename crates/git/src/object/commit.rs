//! Commits, as far as walks need them.

use super::{ObjectError, date::date_of, id_line};
use crate::{ObjectFormat, ObjectId};
use smallvec::SmallVec;

/// What a commit names: its tree, its parents, and when it was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitRef {
    /// The root tree.
    pub tree: ObjectId,
    /// The parents, in their order.
    pub parents: SmallVec<[ObjectId; 2]>,
    /// Seconds since 1970; 0 where the line is missing or broken.
    pub committer_time: i64,
}

impl CommitRef {
    /// Parses as much of a commit as git's own walk does, and refuses only what that refuses.
    pub fn parse(format: ObjectFormat, content: &[u8]) -> Result<Self, ObjectError> {
        let tree_line = b"tree ".len() + format.hex_width();
        if !content.starts_with(b"tree ") || content.get(tree_line) != Some(&b'\n') {
            return Err(ObjectError::BogusCommit);
        }
        let (tree, mut rest) = id_line(format, content, b"tree ").ok_or(ObjectError::BadTreePointer)?;
        let parent_line = b"parent ".len() + format.hex_width();
        let mut parents = SmallVec::new();
        while rest.len() > parent_line && rest.starts_with(b"parent ") {
            let (parent, after) = id_line(format, rest, b"parent ").ok_or(ObjectError::BadParents)?;
            parents.push(parent);
            rest = after;
        }
        Ok(Self {
            tree,
            parents,
            committer_time: committer_time(rest),
        })
    }
}

/// The date of the committer, whose line must be the one after the author's.
fn committer_time(rest: &[u8]) -> i64 {
    if !rest.starts_with(b"author") {
        return 0;
    }
    let mut lines = memchr::memchr_iter(b'\n', rest);
    let (Some(author_end), Some(committer_end)) = (lines.next(), lines.next()) else {
        return 0;
    };
    match rest.get(author_end + 1..committer_end) {
        Some(line) if line.starts_with(b"committer") => date_of(line),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    const PARENT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn parse(text: &str) -> Result<CommitRef, ObjectError> {
        CommitRef::parse(ObjectFormat::Sha1, text.as_bytes())
    }

    #[test]
    fn a_merge() {
        let text = format!(
            "tree {TREE}\nparent {PARENT}\nparent {TREE}\nauthor A <a> 1 +0000\ncommitter C <c> 2 +0000\n\nparent x\n"
        );
        let commit = parse(&text).unwrap();
        assert_eq!(commit.tree.to_string(), TREE);
        assert_eq!(
            commit.parents.iter().map(|p| p.to_string()).collect::<Vec<_>>(),
            [PARENT, TREE]
        );
        assert_eq!(commit.committer_time, 2);
    }

    #[test]
    fn what_git_lets_pass_passes() {
        let table = [
            (format!("tree {TREE}\n"), 0, 0),
            (format!("tree {TREE}\nparent {PARENT}\n"), 1, 0),
            (format!("tree {TREE}\nparent {}", &PARENT[1..]), 0, 0),
            (format!("tree {TREE}\ncommitter C <c> 2 +0000\n"), 0, 0),
            (format!("tree {TREE}\nauthor\ncommitter C <c> 2 +0000\n"), 0, 2),
            (format!("tree {TREE}\nauthor A\ncommitter C <c> 2 +0000"), 0, 0),
            (
                format!("tree {TREE}\nauthor A\nauthor B\ncommitter C <c> 2 +0000\n"),
                0,
                0,
            ),
        ];
        for (text, parents, time) in table {
            let commit = parse(&text).unwrap();
            assert_eq!((commit.parents.len(), commit.committer_time), (parents, time), "{text}");
        }
    }

    #[test]
    fn what_git_refuses_is_refused() {
        let table = [
            (String::new(), ObjectError::BogusCommit),
            (format!("tree {TREE}"), ObjectError::BogusCommit),
            (format!("tree {TREE}x\n"), ObjectError::BogusCommit),
            (format!("tree {}x\n", &TREE[1..]), ObjectError::BadTreePointer),
            (
                format!("tree {TREE}\nparent {}x\n", &PARENT[1..]),
                ObjectError::BadParents,
            ),
            (format!("tree {TREE}\nparent {PARENT}x\n"), ObjectError::BadParents),
        ];
        for (text, error) in table {
            assert_eq!(parse(&text), Err(error), "{text}");
        }
    }
}
