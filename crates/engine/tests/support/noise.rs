//! Large layers that are made in no time: their structure is right, their contents are noise.

use super::Rng;
use super::layers::Built;
use bytes::Bytes;
use cuesta_format::{Base, CueBuilder, LayerId, LayerMeta, Link, SegmentRow};
use cuesta_git::pack::{EntryHeader, EntryKind, PackHeader};
use cuesta_git::{Checksum, ObjectFormat, ObjectId, ObjectKind};

/// The id of an object of a layer.
pub fn oid(layer: u64, number: u32) -> ObjectId {
    let mut rng = Rng(layer << 32 | u64::from(number));
    let bytes: Vec<u8> = (0..3).flat_map(|_| rng.next().to_be_bytes()).take(20).collect();
    ObjectId::from_bytes(ObjectFormat::Sha1, &bytes).unwrap()
}

/// Commits with a tree and a blob each; trees are deltas on the tree before. Streams are noise: nothing inflates them.
pub fn layer(number: u64, commits: u32, blob_bytes: usize) -> Built {
    let mut rng = Rng(number + 77);
    let noise: Vec<u8> = (0..blob_bytes.max(200)).map(|_| rng.next() as u8).collect();
    let count = commits * 3;
    let mut pack = PackHeader::new(count).encode().to_vec();
    let mut cue = CueBuilder::new(ObjectFormat::Sha1);
    let mut last = 0;
    for entry in 0..count {
        let offset = pack.len() as u64;
        let (kind, len) = match entry / commits {
            0 => (ObjectKind::Commit, 200),
            1 => (ObjectKind::Tree, 100),
            _ => (ObjectKind::Blob, blob_bytes),
        };
        let delta = kind == ObjectKind::Tree && entry % 16 != 0 && entry > commits;
        let stored = if delta {
            EntryKind::OfsDelta {
                distance: offset - last,
            }
        } else {
            EntryKind::Object(kind)
        };
        EntryHeader {
            kind: stored,
            size: len as u64,
        }
        .encode(&mut pack);
        pack.extend(&noise[..len]);
        let base = if delta { Base::Entry(entry - 1) } else { Base::None };
        cue.entry(&oid(number, entry), kind, offset, len as u64, base).unwrap();
        last = offset;
    }
    for segment in 0..commits {
        let mut parents: Vec<Link> = segment.checked_sub(1).map(Link::Local).into_iter().collect();
        if segment > 50 && segment % 5 == 0 {
            parents.push(Link::Local(segment - 1 - rng.below(40) as u32));
        }
        let root_tree = oid(number, commits + segment);
        let row = SegmentRow {
            generation: segment + 1,
            commit_time: 0,
            root_tree,
            trees: 1,
            blobs: 1,
        };
        cue.segment(row, parents, []).unwrap();
    }
    let cue = cue.encode(pack.len() as u64).unwrap();
    let mut checksum = Checksum::new(ObjectFormat::Sha1);
    checksum.update(&pack);
    pack.extend(checksum.finish().as_bytes());
    let meta = LayerMeta {
        id: LayerId(u128::from(number) + 1),
        pack_bytes: pack.len() as u64,
        cue_bytes: cue.len() as u64,
        objects: count,
        segments: commits,
        level: 0,
        self_contained: true,
        unreachable: false,
        bases_chosen: false,
    };
    Built {
        pack: Bytes::from(pack),
        cue: Bytes::from(cue),
        meta,
        inline: false,
        oids: Vec::new(),
    }
}
