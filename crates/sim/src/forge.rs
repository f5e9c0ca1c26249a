//! Histories of git objects made from nothing but random numbers, and packs of them, both ways: what a client would do.

use bytes::Bytes;
use cuesta_git::pack::{EntryHeader, EntryKind, PACK_HEADER_LEN, PackHeader};
use cuesta_git::zlib::{Deflater, inflate_exact};
use cuesta_git::{Checksum, ObjectFormat, ObjectId, ObjectKind, delta, object_id};
use std::collections::{BTreeMap, BTreeSet};

/// The object format of simulated repositories.
pub const FORMAT: ObjectFormat = ObjectFormat::Sha1;

/// One object, and the objects it names.
#[derive(Clone)]
pub struct Object {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its content.
    pub content: Bytes,
    links: Vec<ObjectId>,
}

/// The files of a commit: path and blob.
type Files = BTreeMap<String, ObjectId>;

/// Every object that was ever made.
#[derive(Default)]
pub struct Forge {
    objects: BTreeMap<ObjectId, Object>,
    commits: BTreeMap<ObjectId, Files>,
    made: u64,
}

impl Forge {
    /// The object, if it was made here.
    pub fn object(&self, oid: &ObjectId) -> Option<&Object> {
        self.objects.get(oid)
    }

    /// Whether it is a commit made here.
    pub fn is_commit(&self, oid: &ObjectId) -> bool {
        self.commits.contains_key(oid)
    }

    /// A new commit: the files of `parents` with a few of them changed, one of them by `noise` random bytes.
    pub fn commit(&mut self, random: &mut fastrand::Rng, parents: &[ObjectId], noise: usize) -> ObjectId {
        let mut files: Files = parents
            .iter()
            .rev()
            .filter_map(|parent| self.commits.get(parent).cloned())
            .flatten()
            .collect();
        for _ in 0..random.usize(1..4) {
            self.change(random, &mut files);
        }
        if noise > 0 {
            let mut bytes = vec![0; noise];
            random.fill(&mut bytes);
            files.insert("f9".to_owned(), self.add(ObjectKind::Blob, bytes, Vec::new()));
        }
        let tree = self.tree(
            &files
                .iter()
                .map(|(path, oid)| (path.as_str(), *oid))
                .collect::<Vec<_>>(),
        );
        self.made += 1;
        let mut text = format!("tree {tree}\n");
        parents.iter().for_each(|parent| text += &format!("parent {parent}\n"));
        let who = format!("A <a@example.com> {} +0000", 1_000_000_000 + self.made);
        text += &format!("author {who}\ncommitter {who}\n\nnumber {}\n", self.made);
        let mut links = parents.to_vec();
        links.push(tree);
        let oid = self.add(ObjectKind::Commit, text.into_bytes(), links);
        self.commits.insert(oid, files);
        oid
    }

    /// A new annotated tag of a commit.
    pub fn tag(&mut self, target: ObjectId) -> ObjectId {
        self.made += 1;
        let text = format!(
            "object {target}\ntype commit\ntag t{0}\ntagger A <a@example.com> {0} +0000\n\ntag\n",
            self.made
        );
        self.add(ObjectKind::Tag, text.into_bytes(), vec![target])
    }

    /// All that the objects reach, themselves included.
    pub fn closure(&self, tips: &[ObjectId]) -> BTreeSet<ObjectId> {
        let mut closure = BTreeSet::new();
        let mut open = tips.to_vec();
        while let Some(oid) = open.pop() {
            if closure.insert(oid) {
                let object = self.objects.get(&oid).unwrap_or_else(|| panic!("{oid} was never made"));
                open.extend(&object.links);
            }
        }
        closure
    }

    /// A pack of `oids` in random order, some of them deltas, some of those on a base among `known` (a thin pack).
    pub fn pack(&self, random: &mut fastrand::Rng, oids: &BTreeSet<ObjectId>, known: &BTreeSet<ObjectId>) -> Bytes {
        let mut order: Vec<ObjectId> = oids.iter().copied().collect();
        random.shuffle(&mut order);
        let mut bytes = PackHeader::new(u32::try_from(order.len()).unwrap()).encode().to_vec();
        let mut deflater = Deflater::new(1);
        for (at, oid) in order.iter().enumerate() {
            let object = &self.objects[oid];
            let earlier = order[..at].iter();
            let bases: Vec<&ObjectId> = earlier
                .chain(known.iter().filter(|base| !oids.contains(base)))
                .filter(|base| self.objects[base].kind == object.kind)
                .collect();
            let base = random.choice(bases).filter(|_| random.u8(0..3) == 0);
            let as_delta = base.and_then(|base| {
                let delta = delta::diff(&self.objects[base].content, &object.content)?;
                Some((EntryKind::RefDelta { base: *base }, delta))
            });
            let (kind, content) = as_delta.unwrap_or_else(|| (EntryKind::Object(object.kind), object.content.to_vec()));
            let size = content.len() as u64;
            EntryHeader { kind, size }.encode(&mut bytes);
            deflater.deflate(&content, &mut bytes).unwrap();
        }
        let mut checksum = Checksum::new(FORMAT);
        checksum.update(&bytes);
        bytes.extend_from_slice(checksum.finish().as_bytes());
        Bytes::from(bytes)
    }

    /// The ids of the objects of a pack that a client who has `known` was sent. Every object must be one that was made
    /// here: what a server sends that nobody pushed is a violation, as is a pack that cannot be read.
    pub fn unpack(&self, pack: &[u8], known: &BTreeSet<ObjectId>) -> BTreeSet<ObjectId> {
        let header: &[u8; PACK_HEADER_LEN] = pack.first_chunk().expect("the pack has a header");
        let count = PackHeader::decode(header).expect("the pack's header can be read").count;
        let end = pack.len() - FORMAT.width();
        let mut checksum = Checksum::new(FORMAT);
        checksum.update(&pack[..end]);
        assert_eq!(
            checksum.finish().as_bytes(),
            &pack[end..],
            "the pack's checksum is right"
        );
        let mut entries = BTreeMap::new();
        let mut at = PACK_HEADER_LEN;
        for _ in 0..count {
            let (header, len) = EntryHeader::decode(FORMAT, &pack[at..end])
                .unwrap()
                .expect("an entry follows");
            let (content, taken) = inflate_exact(&pack[at + len..end], usize::try_from(header.size).unwrap()).unwrap();
            entries.insert(at as u64, (header.kind, content));
            at += len + taken;
        }
        assert_eq!(at, end, "nothing follows the last entry");
        self.resolve(entries, known)
    }

    fn resolve(&self, mut open: BTreeMap<u64, (EntryKind, Vec<u8>)>, known: &BTreeSet<ObjectId>) -> BTreeSet<ObjectId> {
        let mut by_offset: BTreeMap<u64, ObjectId> = BTreeMap::new();
        let mut sent = BTreeSet::new();
        while !open.is_empty() {
            let before = open.len();
            for (offset, (kind, content)) in std::mem::take(&mut open) {
                let base = match kind {
                    EntryKind::Object(_) => None,
                    EntryKind::OfsDelta { distance } => Some(by_offset.get(&(offset - distance)).copied()),
                    EntryKind::RefDelta { base } => Some(Some(base).filter(|b| known.contains(b) || sent.contains(b))),
                };
                let (kind, content) = match (base, kind) {
                    (Some(None), _) => {
                        open.insert(offset, (kind, content));
                        continue;
                    }
                    (Some(Some(base)), _) => {
                        let base = &self.objects[&base];
                        (
                            base.kind,
                            delta::apply(&base.content, &content).expect("the delta fits its base"),
                        )
                    }
                    (None, EntryKind::Object(kind)) => (kind, content),
                    (None, _) => unreachable!("a delta has a base"),
                };
                let oid = object_id(FORMAT, kind, &content).unwrap();
                assert!(
                    self.objects.contains_key(&oid),
                    "{kind} {oid} was sent, but never pushed"
                );
                by_offset.insert(offset, oid);
                sent.insert(oid);
            }
            assert!(
                open.len() < before,
                "{} deltas have no base that the client has",
                open.len()
            );
        }
        sent
    }

    /// Adds, changes, moves or removes a file.
    fn change(&mut self, random: &mut fastrand::Rng, files: &mut Files) {
        let path = random_path(random);
        let old = files.get(&path).copied();
        match (random.u8(0..8), old) {
            (0, Some(_)) => drop(files.remove(&path)),
            (1, Some(oid)) => {
                files.remove(&path);
                files.insert(random_path(random), oid);
            }
            (_, old) => {
                let mut text = old.map_or_else(Vec::new, |oid| self.objects[&oid].content.to_vec());
                text.truncate(4_000);
                for _ in 0..random.usize(1..10) {
                    text.extend_from_slice(format!("line {}\n", random.u32(..)).as_bytes());
                }
                files.insert(path, self.add(ObjectKind::Blob, text, Vec::new()));
            }
        }
    }

    /// The tree of sorted files. Names are such that git's order is that of the paths' bytes.
    fn tree(&mut self, files: &[(&str, ObjectId)]) -> ObjectId {
        let (mut content, mut links) = (Vec::new(), Vec::new());
        let mut at = 0;
        while let Some((path, oid)) = files.get(at) {
            let (mode, name, oid) = match path.split_once('/') {
                None => {
                    at += 1;
                    ("100644", *path, *oid)
                }
                Some((name, _)) => {
                    let below: Vec<(&str, ObjectId)> = files[at..]
                        .iter()
                        .map_while(|(path, oid)| Some((path.strip_prefix(name)?.strip_prefix('/')?, *oid)))
                        .collect();
                    at += below.len();
                    ("40000", name, self.tree(&below))
                }
            };
            content.extend_from_slice(format!("{mode} {name}\0").as_bytes());
            content.extend_from_slice(oid.as_bytes());
            links.push(oid);
        }
        self.add(ObjectKind::Tree, content, links)
    }

    fn add(&mut self, kind: ObjectKind, content: Vec<u8>, links: Vec<ObjectId>) -> ObjectId {
        let oid = object_id(FORMAT, kind, &content).unwrap();
        let content = Bytes::from(content);
        self.objects.insert(oid, Object { kind, content, links });
        oid
    }
}

/// Directories begin with `d`, files with `f`, and both have one digit: no name begins another.
fn random_path(random: &mut fastrand::Rng) -> String {
    let mut path = String::new();
    for _ in 0..random.usize(0..3) {
        path += &format!("d{}/", random.u8(0..3));
    }
    path + &format!("f{}", random.u8(0..4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_come_back_whole() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut forge = Forge::default();
        let mut tips = vec![forge.commit(&mut random, &[], 0)];
        for _ in 0..30 {
            let parents = [tips[random.usize(..tips.len())], tips[random.usize(..tips.len())]];
            let count = if parents[0] == parents[1] { 1 } else { 2 };
            tips.push(forge.commit(&mut random, &parents[..count], 100));
        }
        let all = forge.closure(&tips);
        let known = forge.closure(&tips[..10]);
        let new: BTreeSet<ObjectId> = all.difference(&known).copied().collect();
        let pack = forge.pack(&mut random, &new, &known);
        assert_eq!(forge.unpack(&pack, &known), new);
    }
}
