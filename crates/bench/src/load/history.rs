//! The commits an agent pushes: real ids, one pack each; files at random, or edits of a real repository.

use super::edits::Edits;
use anyhow::Result;
use cuesta_git::pack::{EntryHeader, EntryKind, PackHeader};
use cuesta_git::zlib::Deflater;
use cuesta_git::{Checksum, ObjectFormat, ObjectId, ObjectKind};
use std::io::Write as _;
use std::ops::RangeInclusive;

/// After so many commits an agent starts again from a root, so that histories stay short.
pub(super) const CHAIN_LENGTH_MAX: u32 = 128;
pub(super) const LEVEL: u32 = 6;

/// What each commit holds.
#[derive(Clone, Debug)]
pub struct Shape {
    /// How many files; each commit replaces all of them.
    pub files: RangeInclusive<usize>,
    /// Bytes of each file.
    pub file_bytes: usize,
}

/// Where an agent's commits come from.
pub(super) enum History {
    /// Files of random bytes.
    Random(RandomFiles),
    /// Changes to files of a real repository, as thin packs.
    Edits(Edits),
}

impl History {
    /// Makes the next commit and appends the pack that holds it.
    pub(super) fn write_next(&mut self, out: &mut Vec<u8>) -> Result<ObjectId> {
        match self {
            Self::Random(files) => files.write_next(out),
            Self::Edits(edits) => edits.write_next(out),
        }
    }

    /// Makes the next commit build on nothing but what the server is known to have.
    pub(super) fn restart(&mut self) {
        match self {
            Self::Random(files) => files.restart(),
            Self::Edits(edits) => edits.restart(),
        }
    }
}

/// A chain of commits of random files: one commit, one tree and the files in each pack.
pub(super) struct RandomFiles {
    name: String,
    shape: Shape,
    random: fastrand::Rng,
    deflater: Deflater,
    parent: Option<ObjectId>,
    chained: u32,
    made: u64,
    content: Vec<u8>,
}

impl RandomFiles {
    /// A history whose objects differ from those of every other `name`, and are the same for the same one.
    pub(super) fn new(name: &str, shape: Shape) -> Self {
        Self {
            name: name.to_owned(),
            shape,
            random: random_of(name),
            deflater: Deflater::new(LEVEL),
            parent: None,
            chained: 0,
            made: 0,
            content: Vec::new(),
        }
    }

    /// Makes the next commit a root: the server may not have the last.
    pub(super) fn restart(&mut self) {
        self.parent = None;
        self.chained = 0;
    }

    /// Makes the next commit and appends the pack that holds it, its tree and its files; a thin pack never.
    pub(super) fn write_next(&mut self, out: &mut Vec<u8>) -> Result<ObjectId> {
        if self.chained == CHAIN_LENGTH_MAX {
            self.restart();
        }
        let count = self.random.usize(self.shape.files.clone());
        let start = out.len();
        out.extend_from_slice(&PackHeader::new(u32::try_from(count)? + 2).encode());
        let tree = self.write_files(count, out);
        let tree = self.write_compressed(ObjectKind::Tree, &tree, out)?;
        let commit = self.commit(&tree)?;
        let commit = self.write_compressed(ObjectKind::Commit, &commit, out)?;
        end_pack(out, start);
        self.parent = Some(commit);
        self.chained += 1;
        self.made += 1;
        Ok(commit)
    }

    /// Appends the files and returns the tree that names them.
    fn write_files(&mut self, count: usize, out: &mut Vec<u8>) -> Vec<u8> {
        let mut content = std::mem::take(&mut self.content);
        content.resize(self.shape.file_bytes, 0);
        let mut tree = Vec::with_capacity(count * 50);
        for index in 0..count {
            self.random.fill(&mut content);
            let oid = object_id(ObjectKind::Blob, &content);
            write_header(ObjectKind::Blob, &content, out);
            write_stored(&content, out);
            tree.extend_from_slice(format!("100644 file-{index:04}.txt\0").as_bytes());
            tree.extend_from_slice(oid.as_bytes());
        }
        self.content = content;
        tree
    }

    fn write_compressed(&mut self, kind: ObjectKind, content: &[u8], out: &mut Vec<u8>) -> Result<ObjectId> {
        write_header(kind, content, out);
        self.deflater.deflate(content, out)?;
        Ok(object_id(kind, content))
    }

    fn commit(&self, tree: &ObjectId) -> Result<Vec<u8>> {
        commit(tree, self.parent.as_ref(), &self.name, self.made)
    }
}

/// Other random numbers for every name, and the same for the same one.
pub(super) fn random_of(name: &str) -> fastrand::Rng {
    let seed = name.bytes().fold(1u64, |seed, byte| {
        seed.wrapping_mul(1_000_003).wrapping_add(byte.into())
    });
    fastrand::Rng::with_seed(seed)
}

/// The commit number `made` of an agent.
pub(super) fn commit(tree: &ObjectId, parent: Option<&ObjectId>, name: &str, made: u64) -> Result<Vec<u8>> {
    let mut commit = Vec::with_capacity(320);
    writeln!(commit, "tree {tree}")?;
    if let Some(parent) = parent {
        writeln!(commit, "parent {parent}")?;
    }
    let seconds = 1_700_000_000 + made;
    for role in ["author", "committer"] {
        writeln!(commit, "{role} Agent <agent@bench.invalid> {seconds} +0000")?;
    }
    writeln!(commit, "\n{name}: commit {made}")?;
    Ok(commit)
}

/// Appends the checksum of the pack that begins at `start`.
pub(super) fn end_pack(out: &mut Vec<u8>, start: usize) {
    let mut checksum = Checksum::new(ObjectFormat::Sha1);
    checksum.update(out.get(start..).unwrap_or_default());
    out.extend_from_slice(checksum.finish().as_bytes());
}

fn write_header(kind: ObjectKind, content: &[u8], out: &mut Vec<u8>) {
    let size = content.len() as u64;
    let kind = EntryKind::Object(kind);
    EntryHeader { kind, size }.encode(out);
}

/// The id without a search for collision attacks, which would cost more than all else here.
pub(crate) fn object_id(kind: ObjectKind, content: &[u8]) -> ObjectId {
    let mut hasher = Checksum::new(ObjectFormat::Sha1);
    hasher.update(format!("{} {}\0", kind.name(), content.len()).as_bytes());
    hasher.update(content);
    hasher.finish()
}

/// The most a stored block holds (RFC 1951, 3.2.4).
const STORED_BYTES_MAX: usize = 65_535;

/// Appends a zlib stream of stored blocks: what every compressor makes of random bytes, without the attempt.
fn write_stored(content: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x78, 0x01]);
    let mut blocks = content.chunks(STORED_BYTES_MAX).peekable();
    if content.is_empty() {
        out.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out.push(u8::from(blocks.peek().is_none()));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&adler32(content).to_be_bytes());
}

/// RFC 1950's checksum. Sums stay below 2^32 for this many bytes between two reductions.
const ADLER_RUN: usize = 5552;

fn adler32(content: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut low, mut high) = (1u32, 0u32);
    for run in content.chunks(ADLER_RUN) {
        for byte in run {
            low += u32::from(*byte);
            high += low;
        }
        low %= MODULUS;
        high %= MODULUS;
    }
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_git::zlib::inflate_exact;

    #[test]
    fn stored_streams_inflate() {
        let mut random = fastrand::Rng::with_seed(7);
        for size in [0, 1, 2048, 5552, 5553, 65_535, 65_536, 200_000] {
            let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(size).collect();
            let mut stream = Vec::new();
            write_stored(&content, &mut stream);
            assert_eq!(
                inflate_exact(&stream, size).unwrap(),
                (content, stream.len()),
                "{size} bytes"
            );
        }
    }

    #[test]
    fn a_file_takes_eleven_bytes_more_than_it_has() {
        let mut stream = Vec::new();
        write_stored(&[9; 2048], &mut stream);
        assert_eq!(stream.len(), 2048 + 11);
    }

    #[test]
    fn chains_are_cut() {
        let shape = Shape {
            files: 1..=10,
            file_bytes: 2048,
        };
        let mut history = RandomFiles::new("agent", shape);
        let mut roots = 0;
        for _ in 0..=CHAIN_LENGTH_MAX {
            roots += u32::from(history.parent.is_none() || history.chained == CHAIN_LENGTH_MAX);
            history.write_next(&mut Vec::new()).unwrap();
        }
        assert_eq!((roots, history.chained), (2, 1));
    }
}
