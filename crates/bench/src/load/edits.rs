//! Realistic commits: a few lines of a few files of a real repository change, and all trees above them; every changed
//! object travels as a delta on the version before (a thin pack).

use super::history::{CHAIN_LENGTH_MAX, LEVEL, commit, end_pack, object_id, random_of};
use anyhow::{Context, Result, bail, ensure};
use cuesta_git::pack::{EntryHeader, EntryKind, PackHeader};
use cuesta_git::zlib::Deflater;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Files to choose from, spread over the whole tree.
const FILES_MAX: usize = 64;
/// Bytes of a file that is chosen: larger ones would make the generator slower than the server.
const FILE_BYTES: Range<u64> = 200..32 << 10;
/// Bytes that one edit removes, and inserts.
const EDIT_BYTES: RangeInclusive<usize> = 20..=120;

/// The head of a bare repository, and some of its files with all trees above them.
pub(super) struct Base {
    /// The commit.
    pub(super) commit: ObjectId,
    files: Vec<BaseFile>,
    trees: HashMap<String, Object>,
}

struct BaseFile {
    /// Its directory, `""` at the top, and its name there.
    directory: String,
    name: String,
    blob: Object,
}

#[derive(Clone)]
struct Object {
    oid: ObjectId,
    content: Arc<[u8]>,
}

impl Base {
    /// Reads what is needed of the repository at `path`.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let git = |arguments: &[&str]| -> Result<Vec<u8>> {
            let output = Command::new("git").arg("-C").arg(path).args(arguments).output()?;
            ensure!(
                output.status.success(),
                "git {}: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(output.stdout)
        };
        let head = git(&["rev-parse", "HEAD"])?;
        let commit = ObjectId::from_hex(ObjectFormat::Sha1, head.trim_ascii()).context("not a sha1 repository")?;
        let listed = String::from_utf8_lossy(&git(&["ls-tree", "-r", "-l", "-z", "HEAD"])?).into_owned();
        let paths: Vec<&str> = listed.split('\0').filter_map(suitable).collect();
        ensure!(!paths.is_empty(), "no file of '{}' is suitable", path.display());
        let step = paths.len().div_ceil(FILES_MAX);
        let mut objects = Objects::open(path)?;
        let (mut files, mut trees) = (Vec::new(), HashMap::new());
        for path in paths.into_iter().step_by(step) {
            let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
            let blob = objects.read(&format!("HEAD:{path}"))?;
            for directory in ancestors(directory) {
                if !trees.contains_key(directory) {
                    trees.insert(directory.to_owned(), objects.read(&format!("HEAD:{directory}"))?);
                }
            }
            files.push(BaseFile {
                directory: directory.to_owned(),
                name: name.to_owned(),
                blob,
            });
        }
        Ok(Self { commit, files, trees })
    }
}

/// The path of a line of `ls-tree -l`, if the file may be edited.
fn suitable(line: &str) -> Option<&str> {
    let (about, path) = line.split_once('\t')?;
    let fields: Vec<&str> = about.split_whitespace().collect();
    let [mode, "blob", _, size] = fields[..] else {
        return None;
    };
    let size: u64 = size.parse().ok()?;
    let is_file = matches!(mode, "100644" | "100755");
    // One that was not text was changed by being made text here.
    let has_plain_name = !path.contains(['\n', char::REPLACEMENT_CHARACTER]);
    (is_file && has_plain_name && FILE_BYTES.contains(&size)).then_some(path)
}

/// A directory and all above it.
fn ancestors(directory: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(directory), |directory| parent(directory).map(|(parent, _)| parent))
}

/// The directory that a directory is in, and its name there; `None` for the top.
fn parent(directory: &str) -> Option<(&str, &str)> {
    let inner = (!directory.is_empty()).then_some(directory)?;
    Some(inner.rsplit_once('/').unwrap_or(("", inner)))
}

/// `git cat-file --batch`.
struct Objects {
    child: std::process::Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Objects {
    fn open(path: &Path) -> Result<Self> {
        let mut command = Command::new("git");
        command.arg("-C").arg(path).args(["cat-file", "--batch"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, output })
    }

    fn read(&mut self, name: &str) -> Result<Object> {
        let input = self.child.stdin.as_mut().context("no input")?;
        writeln!(input, "{name}")?;
        input.flush()?;
        let mut head = String::new();
        self.output.read_line(&mut head)?;
        let fields: Vec<&str> = head.split_whitespace().collect();
        let [oid, _, size] = fields[..] else {
            bail!("cannot read '{name}': {head}")
        };
        let mut content = vec![0; size.parse()?];
        self.output.read_exact(&mut content)?;
        self.output.read_exact(&mut [0])?;
        Ok(Object {
            oid: ObjectId::from_hex(ObjectFormat::Sha1, oid.as_bytes())?,
            content: content.into(),
        })
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A chain of edits of a base, which the server must have.
pub(super) struct Edits {
    name: String,
    base: Arc<Base>,
    files_per_commit: RangeInclusive<usize>,
    random: fastrand::Rng,
    deflater: Deflater,
    parent: ObjectId,
    chained: u32,
    made: u64,
    files: HashMap<usize, Object>,
    trees: HashMap<String, Object>,
}

impl Edits {
    /// Edits of that many files a commit, other ones for every `name`.
    pub(super) fn new(name: &str, base: Arc<Base>, files_per_commit: RangeInclusive<usize>) -> Self {
        Self {
            name: name.to_owned(),
            files_per_commit,
            random: random_of(name),
            deflater: Deflater::new(LEVEL),
            parent: base.commit,
            base,
            chained: 0,
            made: 0,
            files: HashMap::new(),
            trees: HashMap::new(),
        }
    }

    /// Makes the next commit a child of the base again.
    pub(super) fn restart(&mut self) {
        self.parent = self.base.commit;
        self.chained = 0;
        self.files.clear();
        self.trees.clear();
    }

    /// Makes the next commit and appends the thin pack that holds it and every blob and tree that changed.
    pub(super) fn write_next(&mut self, out: &mut Vec<u8>) -> Result<ObjectId> {
        if self.chained == CHAIN_LENGTH_MAX {
            self.restart();
        }
        let start = out.len();
        out.extend_from_slice(&PackHeader::new(0).encode());
        let changed = self.edit_files(out)?;
        let blobs = changed.values().map(Vec::len).sum::<usize>();
        let (root, trees) = self.edit_trees(changed, out)?;
        let commit = commit(&root, Some(&self.parent), &self.name, self.made)?;
        let (kind, size) = (EntryKind::Object(ObjectKind::Commit), commit.len() as u64);
        EntryHeader { kind, size }.encode(out);
        self.deflater.deflate(&commit, out)?;
        let header = PackHeader::new(u32::try_from(blobs + trees + 1)?).encode();
        let place = out.get_mut(start..start + header.len());
        place.context("no pack")?.copy_from_slice(&header);
        end_pack(out, start);
        self.parent = object_id(ObjectKind::Commit, &commit);
        self.chained += 1;
        self.made += 1;
        Ok(self.parent)
    }

    /// Changes some files; answers what is new in which directory.
    fn edit_files(&mut self, out: &mut Vec<u8>) -> Result<Changes> {
        let base = Arc::clone(&self.base);
        let count = self
            .random
            .usize(self.files_per_commit.clone())
            .clamp(1, base.files.len());
        let mut changed = Changes::new();
        for index in self.random.choose_multiple(0..base.files.len(), count) {
            let Some(file) = base.files.get(index) else { continue };
            let old = self.files.get(&index).unwrap_or(&file.blob).clone();
            let len = old.content.len();
            let from = self.random.usize(..=len);
            let to = len.min(from + self.random.usize(EDIT_BYTES));
            let count = self.random.usize(EDIT_BYTES);
            let inserted: String = std::iter::repeat_with(|| self.random.alphanumeric())
                .take(count)
                .collect();
            let new = self.write(ObjectKind::Blob, &old, &[(from..to, inserted.as_bytes())], out)?;
            let place = changed.entry(Reverse(depth(&file.directory))).or_default();
            place.push((file.directory.clone(), file.name.clone(), new.oid));
            self.files.insert(index, new);
        }
        Ok(changed)
    }

    /// Changes the trees above, the deepest first; answers the root and how many trees changed.
    fn edit_trees(&mut self, mut changed: Changes, out: &mut Vec<u8>) -> Result<(ObjectId, usize)> {
        let mut count = 0;
        while let Some((Reverse(level), entries)) = changed.pop_first() {
            let mut by_directory: BTreeMap<String, Vec<(String, ObjectId)>> = BTreeMap::new();
            for (directory, name, oid) in entries {
                by_directory.entry(directory).or_default().push((name, oid));
            }
            for (directory, children) in by_directory {
                let old = self.trees.get(&directory).or_else(|| self.base.trees.get(&directory));
                let old = old.context("a tree is missing")?.clone();
                let mut splices = Vec::new();
                for (name, oid) in &children {
                    let place = oid_of(&old.content, name).with_context(|| format!("'{name}' is not in its tree"))?;
                    splices.push((place, oid.as_bytes()));
                }
                splices.sort_by_key(|(place, _)| place.start);
                let new = self.write(ObjectKind::Tree, &old, &splices, out)?;
                count += 1;
                if level == 0 {
                    return Ok((new.oid, count));
                }
                let (above, name) = parent(&directory).context("a directory without parent")?;
                let place = changed.entry(Reverse(level - 1)).or_default();
                place.push((above.to_owned(), name.to_owned(), new.oid));
                self.trees.insert(directory, new);
            }
        }
        bail!("nothing changed")
    }

    /// Writes a new version of an object as a delta on the old one.
    fn write(&mut self, kind: ObjectKind, old: &Object, splices: &[Splice<'_>], out: &mut Vec<u8>) -> Result<Object> {
        let (content, delta) = splice(&old.content, splices);
        let (base, size) = (EntryKind::RefDelta { base: old.oid }, delta.len() as u64);
        EntryHeader { kind: base, size }.encode(out);
        self.deflater.deflate(&delta, out)?;
        Ok(Object {
            oid: object_id(kind, &content),
            content: content.into(),
        })
    }
}

/// By depth, deepest first: directory, name in it, new object.
type Changes = BTreeMap<Reverse<usize>, Vec<(String, String, ObjectId)>>;
/// A range of the old version, and what comes in its place.
type Splice<'a> = (Range<usize>, &'a [u8]);

/// How many directories lead to one.
fn depth(directory: &str) -> usize {
    ancestors(directory).count() - 1
}

/// Where the id of a tree's entry stands.
fn oid_of(tree: &[u8], name: &str) -> Option<Range<usize>> {
    let width = ObjectFormat::Sha1.width();
    let mut at = 0;
    loop {
        let rest = tree.get(at..)?;
        let space = memchr::memchr(b' ', rest)?;
        let end = memchr::memchr(0, rest)?;
        let oid = at + end + 1..at + end + 1 + width;
        if rest.get(space + 1..end) == Some(name.as_bytes()) {
            return Some(oid);
        }
        at = oid.end;
    }
}

/// The new version and the delta that makes it of the old one (gitformat-pack, "Deltified representation"). Splices
/// ascend and do not touch.
fn splice(old: &[u8], splices: &[Splice<'_>]) -> (Vec<u8>, Vec<u8>) {
    let (mut new, mut instructions) = (Vec::with_capacity(old.len() + 256), Vec::new());
    let mut at = 0;
    for (range, inserted) in splices {
        copy(old, at..range.start, &mut new, &mut instructions);
        new.extend_from_slice(inserted);
        for part in inserted.chunks(INSERT_MAX) {
            instructions.push(part.len() as u8);
            instructions.extend_from_slice(part);
        }
        at = range.end;
    }
    copy(old, at..old.len(), &mut new, &mut instructions);
    let mut delta = Vec::with_capacity(instructions.len() + 8);
    push_size(old.len(), &mut delta);
    push_size(new.len(), &mut delta);
    delta.extend_from_slice(&instructions);
    (new, delta)
}

/// Bytes of one insertion.
const INSERT_MAX: usize = 127;
/// Bytes of one copy: what two bytes can say.
const COPY_MAX: usize = 0xffff;

fn copy(old: &[u8], range: Range<usize>, new: &mut Vec<u8>, instructions: &mut Vec<u8>) {
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(COPY_MAX);
        let fields = [at, at >> 8, at >> 16, at >> 24, len, len >> 8].map(|field| (field & 0xff) as u8);
        let present = fields.iter().enumerate().filter(|(_, byte)| **byte > 0);
        instructions.push(present.clone().fold(0x80, |code, (bit, _)| code | 1 << bit));
        instructions.extend(present.map(|(_, byte)| *byte));
        at += len;
    }
    new.extend_from_slice(old.get(range).unwrap_or_default());
}

fn push_size(mut size: usize, out: &mut Vec<u8>) {
    while size > 0x7f {
        out.push((size & 0x7f) as u8 | 0x80);
        size >>= 7;
    }
    out.push(size as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_make_what_was_spliced() {
        let mut random = fastrand::Rng::with_seed(5);
        for len in [0usize, 1, 200, 65_535, 65_536, 200_000] {
            let old: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
            let inserted = vec![7; 300];
            let cases: [&[Splice<'_>]; 4] = [
                &[],
                &[(0..0, &inserted)],
                &[(len / 3..len / 2, b"x"), (len..len, &inserted)],
                &[(0..len, b"")],
            ];
            for splices in cases {
                let (new, delta) = splice(&old, splices);
                if !delta.is_empty() && !new.is_empty() {
                    assert_eq!(
                        cuesta_git::delta::apply(&old, &delta).unwrap(),
                        new,
                        "{len} {splices:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn directories_lead_to_the_top() {
        assert_eq!(ancestors("a/b").collect::<Vec<_>>(), ["a/b", "a", ""]);
        assert_eq!((depth(""), depth("a"), depth("a/b")), (0, 1, 2));
    }
}
