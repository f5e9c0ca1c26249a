//! The repository: objects made from numbers, so that a change can be made without reading what it changes.

use crate::load::object_id;
use anyhow::{Context, Result};
use cuesta_git::pack::{EntryHeader, EntryKind, PackHeader};
use cuesta_git::zlib::Deflater;
use cuesta_git::{Checksum, ObjectFormat, ObjectId, ObjectKind};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Trees in the root, and leaf trees in each of them.
const FAN: u32 = 256;
const LEAVES: u32 = FAN * FAN;
const LEVEL: u32 = 1;

/// Shape of the repository.
pub(super) struct Features {
    blobs: u64,
}

/// The first commit.
pub(super) struct Base {
    pub(super) tip: ObjectId,
    /// Content of all trees.
    pub(super) tree_bytes: u64,
    leaves: Vec<ObjectId>,
}

/// A commit on top of it.
pub(super) struct Change {
    pub(super) tip: ObjectId,
    pub(super) pack: Vec<u8>,
    /// Content of the trees that it replaces.
    pub(super) old_tree_bytes: u64,
}

/// Writes entries of a pack, and counts the trees' content.
struct PackWriter<W: Write> {
    out: W,
    checksum: Checksum,
    deflater: Deflater,
    entry: Vec<u8>,
    tree_bytes: u64,
}

impl<W: Write> PackWriter<W> {
    fn begin(out: W, objects: u64) -> Result<Self> {
        let mut writer = Self {
            out,
            checksum: Checksum::new(ObjectFormat::Sha1),
            deflater: Deflater::new(LEVEL),
            entry: Vec::new(),
            tree_bytes: 0,
        };
        writer.put(&PackHeader::new(u32::try_from(objects)?).encode())?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.checksum.update(bytes);
        Ok(self.out.write_all(bytes)?)
    }

    fn object(&mut self, kind: ObjectKind, content: &[u8]) -> Result<ObjectId> {
        let mut entry = std::mem::take(&mut self.entry);
        entry.clear();
        let size = content.len() as u64;
        let header = EntryHeader {
            kind: EntryKind::Object(kind),
            size,
        };
        header.encode(&mut entry);
        self.deflater.deflate(content, &mut entry)?;
        self.put(&entry)?;
        self.entry = entry;
        self.tree_bytes += if kind == ObjectKind::Tree { size } else { 0 };
        Ok(object_id(kind, content))
    }

    fn finish(mut self) -> Result<W> {
        let sum = self.checksum.finish();
        self.out.write_all(sum.as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl Features {
    pub(super) fn new(blobs: u64) -> Self {
        Self { blobs }
    }

    /// The first commit. Its pack is written to `path`, unless it is there already.
    pub(super) fn base(&self, path: &Path) -> Result<Base> {
        if path.exists() {
            return self.write_base(std::io::sink());
        }
        let unfinished = path.with_extension("new");
        let base = self.write_base(BufWriter::with_capacity(1 << 20, File::create(&unfinished)?))?;
        std::fs::rename(&unfinished, path)?;
        Ok(base)
    }

    fn write_base(&self, out: impl Write) -> Result<Base> {
        let objects = 2 + u64::from(FAN) + u64::from(LEAVES) + self.blobs;
        let mut pack = PackWriter::begin(out, objects)?;
        let mut leaves = Vec::with_capacity(LEAVES as usize);
        for leaf in 0..LEAVES {
            let mut tree = Vec::new();
            for blob in self.blobs_of(leaf) {
                let oid = pack.object(ObjectKind::Blob, &content(blob, 0))?;
                push_entry(&mut tree, "100644", &name(blob), &oid);
            }
            leaves.push(pack.object(ObjectKind::Tree, &tree)?);
        }
        let root = write_upper(&mut pack, &leaves, None)?;
        let tip = pack.object(ObjectKind::Commit, &commit(&root, None, 0)?)?;
        let tree_bytes = pack.tree_bytes;
        pack.finish()?;
        Ok(Base {
            tip,
            tree_bytes,
            leaves,
        })
    }

    /// A commit that changes one blob in each of so many leaves, spread evenly; versions differ in all they write.
    pub(super) fn change(&self, base: &Base, changed: u32, version: u32) -> Result<Change> {
        let is_changed = |leaf: u32| (u64::from(leaf) * u64::from(changed)) % u64::from(LEAVES) < u64::from(changed);
        let changed: Vec<u32> = (0..LEAVES).filter(|leaf| is_changed(*leaf)).collect();
        let middles = |leaves: &[u32]| {
            let mut middles: Vec<u32> = leaves.iter().map(|leaf| leaf / FAN).collect();
            middles.dedup();
            middles
        };
        let middles = middles(&changed);
        let objects = 2 + middles.len() as u64 + 2 * changed.len() as u64;
        let mut pack = PackWriter::begin(Vec::new(), objects)?;
        let mut leaves = base.leaves.clone();
        for leaf in changed {
            let mut tree = Vec::new();
            for (place, blob) in self.blobs_of(leaf).enumerate() {
                let oid = match place {
                    0 => pack.object(ObjectKind::Blob, &content(blob, version))?,
                    _ => object_id(ObjectKind::Blob, &content(blob, 0)),
                };
                push_entry(&mut tree, "100644", &name(blob), &oid);
            }
            let slot = leaves.get_mut(leaf as usize).context("no such leaf")?;
            *slot = pack.object(ObjectKind::Tree, &tree)?;
        }
        let root = write_upper(&mut pack, &leaves, Some(&middles))?;
        let tip = pack.object(ObjectKind::Commit, &commit(&root, Some(&base.tip), version)?)?;
        // New trees are as long as those that they replace.
        let old_tree_bytes = pack.tree_bytes;
        Ok(Change {
            tip,
            pack: pack.finish()?,
            old_tree_bytes,
        })
    }

    fn blobs_of(&self, leaf: u32) -> std::ops::Range<u64> {
        let first = |leaf: u32| u64::from(leaf) * self.blobs / u64::from(LEAVES);
        first(leaf)..first(leaf + 1)
    }
}

/// Writes the trees above the leaves; of those in the middle only `middles`, if they are given.
fn write_upper(pack: &mut PackWriter<impl Write>, leaves: &[ObjectId], middles: Option<&[u32]>) -> Result<ObjectId> {
    let mut root = Vec::new();
    for (middle, below) in (0..).zip(leaves.chunks(FAN as usize)) {
        let mut tree = Vec::new();
        for (leaf, oid) in below.iter().enumerate() {
            push_entry(&mut tree, "40000", &format!("{leaf:02x}"), oid);
        }
        let is_new = middles.is_none_or(|middles| middles.binary_search(&middle).is_ok());
        let oid = match is_new {
            true => pack.object(ObjectKind::Tree, &tree)?,
            false => object_id(ObjectKind::Tree, &tree),
        };
        push_entry(&mut root, "40000", &format!("{middle:02x}"), &oid);
    }
    pack.object(ObjectKind::Tree, &root)
}

fn push_entry(tree: &mut Vec<u8>, mode: &str, name: &str, oid: &ObjectId) {
    tree.extend_from_slice(mode.as_bytes());
    tree.push(b' ');
    tree.extend_from_slice(name.as_bytes());
    tree.push(0);
    tree.extend_from_slice(oid.as_bytes());
}

/// Names in a leaf ascend.
fn name(blob: u64) -> String {
    format!("feature-{blob:09x}")
}

/// A few tens of bytes, most of which no other blob has.
fn content(blob: u64, version: u32) -> Vec<u8> {
    let noise = blob.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(version % 64);
    format!("{blob} {version} {noise:016x}\n").into_bytes()
}

fn commit(tree: &ObjectId, parent: Option<&ObjectId>, version: u32) -> Result<Vec<u8>> {
    let mut commit = Vec::new();
    writeln!(commit, "tree {tree}")?;
    if let Some(parent) = parent {
        writeln!(commit, "parent {parent}")?;
    }
    let seconds = 1_700_000_000 + u64::from(version);
    for role in ["author", "committer"] {
        writeln!(commit, "{role} Agent <agent@bench.invalid> {seconds} +0000")?;
    }
    writeln!(commit, "\nversion {version}")?;
    Ok(commit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn git(directory: &Path, arguments: &[&str], input: &[u8]) -> String {
        let mut command = Command::new("git");
        command.arg("-C").arg(directory).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn stock_git_finds_all_of_it_sound() {
        let directory = tempfile::tempdir().unwrap();
        git(directory.path(), &["init", "--quiet", "--bare"], b"");
        let pack = directory.path().join("base.pack");
        let features = Features::new(70_000);
        let base = features.base(&pack).unwrap();
        assert_eq!(
            features.base(&pack).unwrap().tip,
            base.tip,
            "also where the pack is there"
        );
        let index = &["index-pack", "--stdin", "--strict"];
        git(directory.path(), index, &std::fs::read(&pack).unwrap());
        let change = features.change(&base, 300, 1).unwrap();
        git(directory.path(), index, &change.pack);
        let counted = git(
            directory.path(),
            &[
                "diff-tree",
                "-r",
                "--name-only",
                &base.tip.to_string(),
                &change.tip.to_string(),
            ],
            b"",
        );
        assert_eq!(counted.lines().count(), 300);
        let listed = git(
            directory.path(),
            &["ls-tree", "-r", "--name-only", &change.tip.to_string()],
            b"",
        );
        assert_eq!(listed.lines().count(), 70_000);
        let missing = git(
            directory.path(),
            &["rev-list", "--objects", "--missing=print", &change.tip.to_string()],
            b"",
        );
        assert!(!missing.contains('?'));
    }
}
