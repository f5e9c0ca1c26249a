//! Cuts layers from a history the naive way, with any deltas that the format allows.

use super::Rng;
use super::history::History;
use bytes::Bytes;
use cuesta_format::{
    AddedLayer, Base, CueBuilder, CueHeader, LayerId, LayerMeta, LayerPlace, Link, LogId, SegmentRow, layer_cue_key,
    layer_pack_key,
};
use cuesta_git::pack::{EntryHeader, EntryKind, PackHeader};
use cuesta_git::zlib::Deflater;
use cuesta_git::{Checksum, ObjectId, ObjectKind};
use cuesta_store::Bucket;
use std::collections::{BTreeMap, BTreeSet};

/// What a layer is to hold.
#[derive(Default, Clone)]
pub struct Spec {
    /// Commits, parents before children.
    pub commits: Vec<usize>,
    /// Tags, by number.
    pub tags: Vec<usize>,
    /// Trees and blobs that refs or tags name.
    pub roots: Vec<ObjectId>,
    /// Keeps the objects and vouches for nothing: no segments, and in the bucket.
    pub unreachable: bool,
    /// Leaves nothing to chance.
    pub exact: Option<Exact>,
}

/// How a layer is to be stored.
#[derive(Default, Clone)]
pub struct Exact {
    /// From delta to base.
    pub deltas: BTreeMap<ObjectId, ObjectId>,
    /// Objects to be stored although an earlier layer has them.
    pub again: BTreeSet<ObjectId>,
}

pub struct Built {
    pub pack: Bytes,
    pub cue: Bytes,
    pub meta: LayerMeta,
    pub inline: bool,
    pub oids: Vec<ObjectId>,
}

impl Built {
    pub async fn store(self, bucket: &Bucket, log: LogId) -> AddedLayer {
        if self.inline {
            return AddedLayer {
                meta: self.meta,
                place: LayerPlace::Inline {
                    pack: self.pack,
                    cue: self.cue,
                },
            };
        }
        bucket.put(&layer_pack_key(log, self.meta.id), self.pack).await.unwrap();
        bucket.put(&layer_cue_key(log, self.meta.id), self.cue).await.unwrap();
        AddedLayer {
            meta: self.meta,
            place: LayerPlace::Bucket,
        }
    }
}

/// Trees and blobs of one segment or root set.
#[derive(Default)]
struct Set {
    trees: Vec<ObjectId>,
    blobs: Vec<ObjectId>,
    links: Vec<ObjectId>,
}

/// Builds a layer over what `earlier` layers hold.
pub fn build(history: &History, spec: &Spec, earlier: &BTreeSet<ObjectId>, rng: &mut Rng) -> Built {
    let mut placed = BTreeSet::new();
    let mut cut = |objects: BTreeSet<ObjectId>, rng: &mut Rng| {
        let mut set = Set::default();
        for oid in objects {
            let again = match &spec.exact {
                Some(exact) => exact.again.contains(&oid),
                None => rng.one_in(3),
            };
            let elsewhere = earlier.contains(&oid) && !again;
            if placed.contains(&oid) || elsewhere {
                set.links.push(oid);
                continue;
            }
            placed.insert(oid);
            match history.objects[&oid].0 {
                ObjectKind::Tree => set.trees.push(oid),
                _ => set.blobs.push(oid),
            }
        }
        set
    };
    let segments: Vec<Set> = spec
        .commits
        .iter()
        .map(|commit| cut(history.segment(*commit), rng))
        .collect();
    let roots: Vec<Set> = spec.roots.iter().map(|root| cut(history.below(root), rng)).collect();
    let commits = spec.commits.iter().map(|commit| history.commits[*commit].oid);
    let tags = spec.tags.iter().map(|tag| history.tags[*tag].oid);
    let sets = || segments.iter().chain(&roots);
    let oids: Vec<ObjectId> = commits
        .chain(tags)
        .chain(sets().flat_map(|set| set.trees.clone()))
        .chain(sets().flat_map(|set| set.blobs.clone()))
        .collect();
    let entry_of: BTreeMap<ObjectId, u32> = oids.iter().copied().zip(0..).collect();
    let mut cue = CueBuilder::new(history.format);
    let entries = write_pack(history, spec, &oids, earlier, &mut cue, rng);
    let link = |cue: &mut CueBuilder, oid: &ObjectId| match entry_of.get(oid) {
        Some(entry) => Link::Local(*entry),
        None => Link::External(cue.external(oid).unwrap()),
    };
    if spec.unreachable {
        cue.unreachable();
        return finish(history, spec, entries, cue, oids, rng);
    }
    for (number, set) in spec.commits.iter().zip(&segments) {
        let commit = &history.commits[*number];
        let parents: Vec<Link> = commit
            .parents
            .iter()
            .map(|parent| link(&mut cue, &history.commits[*parent].oid))
            .collect();
        let links: Vec<Link> = set.links.iter().map(|oid| link(&mut cue, oid)).collect();
        let row = SegmentRow {
            generation: commit.generation,
            commit_time: commit.time,
            root_tree: commit.tree,
            trees: set.trees.len() as u32,
            blobs: set.blobs.len() as u32,
        };
        cue.segment(row, parents, links).unwrap();
    }
    for (oid, set) in spec.roots.iter().zip(&roots) {
        let links: Vec<Link> = set.links.iter().map(|oid| link(&mut cue, oid)).collect();
        let kind = history.objects[oid].0;
        cue.root(oid, kind, set.trees.len() as u32, set.blobs.len() as u32, links)
            .unwrap();
    }
    for tag in &spec.tags {
        cue.tag_target(&history.tags[*tag].target, history.tags[*tag].kind)
            .unwrap();
    }
    finish(history, spec, entries, cue, oids, rng)
}

fn finish(
    history: &History,
    spec: &Spec,
    mut pack: Vec<u8>,
    cue: CueBuilder,
    oids: Vec<ObjectId>,
    rng: &mut Rng,
) -> Built {
    let cue = cue.encode(pack.len() as u64).unwrap();
    let id = LayerId(u128::from(rng.next()) << 64 | u128::from(rng.next()));
    let inline = !spec.unreachable && (spec.exact.is_some() || rng.one_in(2));
    if !inline {
        let mut checksum = Checksum::new(history.format);
        checksum.update(&pack);
        pack.extend(checksum.finish().as_bytes());
    }
    let meta = LayerMeta {
        id,
        pack_bytes: pack.len() as u64,
        cue_bytes: cue.len() as u64,
        objects: oids.len() as u32,
        segments: if spec.unreachable { 0 } else { spec.commits.len() as u32 },
        level: 0,
        self_contained: CueHeader::parse(&cue).unwrap().self_contained,
        unreachable: spec.unreachable,
        bases_chosen: false,
    };
    Built {
        pack: pack.into(),
        cue: cue.into(),
        meta,
        inline,
        oids,
    }
}

fn write_pack(
    history: &History,
    spec: &Spec,
    oids: &[ObjectId],
    earlier: &BTreeSet<ObjectId>,
    cue: &mut CueBuilder,
    rng: &mut Rng,
) -> Vec<u8> {
    let mut pack = PackHeader::new(oids.len() as u32).encode().to_vec();
    // A delta's base must have a lower priority number: so deltas never run in a circle, yet point both ways.
    let priorities: Vec<u64> = oids.iter().map(|_| rng.next()).collect();
    let mut offsets = Vec::new();
    let mut deflater = Deflater::new(6);
    for (entry, oid) in oids.iter().enumerate() {
        let (kind, content) = &history.objects[oid];
        let offset = pack.len() as u64;
        offsets.push(offset);
        let same_kind = |other: &&ObjectId| history.objects[*other].0 == *kind && *other != oid;
        let local: Vec<usize> = (0..oids.len())
            .filter(|other| priorities[*other] < priorities[entry] && same_kind(&&oids[*other]))
            .collect();
        let outside: Vec<&ObjectId> = earlier.iter().filter(same_kind).collect();
        let outside: Vec<ObjectId> = outside.into_iter().copied().filter(|oid| !oids.contains(oid)).collect();
        let (base, base_oid) = match rng.below(4) {
            _ if spec.exact.is_some() => {
                let base = spec.exact.as_ref().and_then(|exact| exact.deltas.get(oid));
                let local = base.and_then(|base| oids.iter().position(|oid| oid == base));
                match (base, local) {
                    (Some(base), Some(local)) => (Base::Entry(local as u32), Some(*base)),
                    (Some(base), None) => (Base::External(cue.external(base).unwrap()), Some(*base)),
                    _ => (Base::None, None),
                }
            }
            0 | 1 if !local.is_empty() => {
                let base = *rng.pick(&local);
                (Base::Entry(base as u32), Some(oids[base]))
            }
            2 if !outside.is_empty() => {
                let base = *rng.pick(&outside);
                (Base::External(cue.external(&base).unwrap()), Some(base))
            }
            _ => (Base::None, None),
        };
        // Git takes no delta shorter than one that inserts a byte.
        let (base, base_oid) = if content.is_empty() {
            (Base::None, None)
        } else {
            (base, base_oid)
        };
        let data = match base_oid {
            Some(base) => delta(&history.objects[&base].1, content),
            None => content.clone(),
        };
        let kind_stored = match (base, base_oid) {
            (Base::Entry(base), _) if (base as usize) < entry && !rng.one_in(4) => EntryKind::OfsDelta {
                distance: offset - offsets[base as usize],
            },
            (_, Some(base)) => EntryKind::RefDelta { base },
            _ => EntryKind::Object(*kind),
        };
        EntryHeader {
            kind: kind_stored,
            size: data.len() as u64,
        }
        .encode(&mut pack);
        deflater.deflate(&data, &mut pack).unwrap();
        cue.entry(oid, *kind, offset, content.len() as u64, base).unwrap();
    }
    pack
}

/// A plain delta: the common start, what is new, the common end.
fn delta(base: &[u8], target: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    cuesta_git::delta::DeltaHeader {
        base_size: base.len() as u64,
        result_size: target.len() as u64,
    }
    .encode(&mut out);
    let start = base.iter().zip(target).take_while(|(a, b)| a == b).count();
    let most = base.len().min(target.len()) - start;
    let end = base
        .iter()
        .rev()
        .zip(target.iter().rev())
        .take(most)
        .take_while(|(a, b)| a == b)
        .count();
    copy(0, start, &mut out);
    for piece in target[start..target.len() - end].chunks(127) {
        out.push(piece.len() as u8);
        out.extend(piece);
    }
    copy(base.len() - end, end, &mut out);
    out
}

fn copy(offset: usize, len: usize, out: &mut Vec<u8>) {
    for start in (0..len).step_by(0xff_ff) {
        let (offset, len) = (offset + start, (len - start).min(0xff_ff));
        out.push(0b1011_1111);
        out.extend([
            offset as u8,
            (offset >> 8) as u8,
            (offset >> 16) as u8,
            (offset >> 24) as u8,
        ]);
        out.extend([len as u8, (len >> 8) as u8]);
    }
}
