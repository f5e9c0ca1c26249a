//! Trees, entry by entry, without allocating.

use super::ObjectError;
use crate::{ObjectFormat, ObjectId};

/// The mode of a tree entry as its octal digits say, not canonicalised.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TreeMode(pub u32);

const TYPE_MASK: u32 = 0o170_000;
const TYPE_REGULAR: u32 = 0o100_000;
const TYPE_SYMLINK: u32 = 0o120_000;
const TYPE_TREE: u32 = 0o040_000;

impl TreeMode {
    /// A file.
    pub const FILE: Self = Self(0o100_644);
    /// An executable file.
    pub const EXECUTABLE: Self = Self(0o100_755);
    /// A symbolic link.
    pub const SYMLINK: Self = Self(0o120_000);
    /// A tree.
    pub const TREE: Self = Self(0o040_000);
    /// A commit of another repository.
    pub const GITLINK: Self = Self(0o160_000);

    /// Whether the entry is a tree.
    pub const fn is_tree(self) -> bool {
        self.0 & TYPE_MASK == TYPE_TREE
    }

    /// Whether the entry is a symbolic link, whose blob holds its target.
    pub const fn is_symlink(self) -> bool {
        self.0 & TYPE_MASK == TYPE_SYMLINK
    }

    /// Whether the entry is a blob: a file or a symbolic link.
    pub const fn is_blob(self) -> bool {
        self.0 & TYPE_MASK == TYPE_REGULAR || self.is_symlink()
    }

    /// Whether the entry names nothing in this repository: 160000, and as in git every mode that is no other.
    pub const fn is_gitlink(self) -> bool {
        !self.is_tree() && !self.is_blob()
    }
}

impl std::fmt::Debug for TreeMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:06o}", self.0)
    }
}

/// One entry of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeEntry<'a> {
    /// What it is.
    pub mode: TreeMode,
    /// Its name: not empty, no NUL.
    pub name: &'a [u8],
    /// The object it names.
    pub oid: ObjectId,
}

/// The entries of a tree, in the order it has them; ends after the first error.
#[derive(Debug, Clone)]
pub struct TreeIter<'a> {
    format: ObjectFormat,
    rest: &'a [u8],
}

impl<'a> TreeIter<'a> {
    /// Iterates over a tree's content.
    pub const fn new(format: ObjectFormat, content: &'a [u8]) -> Self {
        Self { format, rest: content }
    }

    /// The bytes not yet read; empty after an error.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    fn decode(&mut self) -> Result<TreeEntry<'a>, ObjectError> {
        // As git: some later entry's id must stand at the very end, which also bounds the search for the NUL.
        let width = self.format.width();
        match self
            .rest
            .len()
            .checked_sub(width + 1)
            .map(|nul| (nul, self.rest.get(nul)))
        {
            Some((2.., Some(0))) => {}
            _ => return Err(ObjectError::ShortTree),
        }
        let (mode, named) = decode_mode(self.rest)?;
        let name_len = memchr::memchr(0, named).ok_or(ObjectError::ShortTree)?;
        if name_len == 0 {
            return Err(ObjectError::EmptyFilename);
        }
        let (name, rest) = named.split_at_checked(name_len).ok_or(ObjectError::ShortTree)?;
        let (raw, rest) = rest
            .get(1..)
            .and_then(|rest| rest.split_at_checked(width))
            .ok_or(ObjectError::ShortTree)?;
        self.rest = rest;
        let oid = ObjectId::from_bytes(self.format, raw).map_err(|_| ObjectError::ShortTree)?;
        Ok(TreeEntry { mode, name, oid })
    }
}

impl<'a> Iterator for TreeIter<'a> {
    type Item = Result<TreeEntry<'a>, ObjectError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.decode();
        if entry.is_err() {
            self.rest = &[];
        }
        Some(entry)
    }
}

/// Octal digits and a space; git keeps the low 16 bits of more.
#[inline]
fn decode_mode(bytes: &[u8]) -> Result<(TreeMode, &[u8]), ObjectError> {
    let mut mode = 0u32;
    for (index, &byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'7' => mode = mode << 3 | u32::from(byte - b'0'),
            b' ' if index > 0 => return Ok((TreeMode(mode & 0xffff), bytes.get(index + 1..).unwrap_or_default())),
            _ => break,
        }
    }
    Err(ObjectError::MalformedMode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries(content: &[u8]) -> Vec<Result<TreeEntry<'_>, ObjectError>> {
        TreeIter::new(ObjectFormat::Sha1, content).collect()
    }

    fn encoded(mode: &str, name: &[u8], id: u8) -> Vec<u8> {
        [mode.as_bytes(), b" ", name, b"\0", &[id; 20]].concat()
    }

    #[test]
    fn mode_classes() {
        let table = [
            (TreeMode::FILE, "blob"),
            (TreeMode::EXECUTABLE, "blob"),
            (TreeMode(0o100_664), "blob"),
            (TreeMode::SYMLINK, "symlink"),
            (TreeMode::TREE, "tree"),
            (TreeMode::GITLINK, "gitlink"),
            (TreeMode(0), "gitlink"),
            (TreeMode(0o010_000), "gitlink"),
        ];
        for (mode, class) in table {
            let got = match mode {
                m if m.is_symlink() => "symlink",
                m if m.is_tree() => "tree",
                m if m.is_gitlink() => "gitlink",
                _ => "blob",
            };
            assert_eq!(got, class, "{mode:?}");
            assert_eq!(mode.is_blob(), class == "blob" || class == "symlink");
        }
    }

    #[test]
    fn broken_entries_end_the_tree() {
        let good = encoded("100644", b"a", 1);
        let table = [
            (encoded("10064x", b"b", 2), ObjectError::MalformedMode),
            (encoded("", b"b", 2), ObjectError::MalformedMode),
            (encoded("100644", b"", 2), ObjectError::EmptyFilename),
            (encoded("100644", b"b", 2)[..20].to_vec(), ObjectError::ShortTree),
            (b"100644 b\0".to_vec(), ObjectError::ShortTree),
        ];
        for (bad, error) in table {
            let content = [encoded("100644", b"a", 1), bad].concat();
            let got = entries(&content);
            let expected_first = TreeEntry {
                mode: TreeMode::FILE,
                name: b"a",
                oid: ObjectId::Sha1([1; 20]),
            };
            // A truncated tail shows at once: git looks for the last id before it reads the first entry.
            if got.len() == 2 {
                assert_eq!(got, [Ok(expected_first), Err(error)]);
            } else {
                assert_eq!(got, [Err(ObjectError::ShortTree)]);
            }
        }
        assert_eq!(entries(&good).len(), 1);
    }

    proptest! {
        #[test]
        fn entries_round_trip(list in proptest::collection::vec((0..=0xffffu32, "[^\0/]{1,30}", any::<u8>()), 0..20)) {
            let content: Vec<u8> = list.iter().flat_map(|(mode, name, id)| encoded(&format!("{mode:o}"), name.as_bytes(), *id)).collect();
            let got: Vec<_> = TreeIter::new(ObjectFormat::Sha1, &content).map(Result::unwrap).collect();
            prop_assert_eq!(got.len(), list.len());
            for (entry, (mode, name, id)) in got.iter().zip(&list) {
                prop_assert_eq!((entry.mode.0, entry.name, entry.oid), (*mode, name.as_bytes(), ObjectId::Sha1([*id; 20])));
            }
        }

        #[test]
        fn any_bytes_are_an_answer(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = TreeIter::new(ObjectFormat::Sha256, &content).count();
        }
    }
}
