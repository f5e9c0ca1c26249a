//! Layers as plain vectors: what a cue must say, kept in the plainest way.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use bytes::Bytes;
use cuesta_format::{Base, Cue, CueBuilder, Link, SegmentRow};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub struct Layer {
    pub format: ObjectFormat,
    pub unreachable: bool,
    pub entries: Vec<Entry>,
    pub entries_end: u64,
    pub segments: Vec<Segment>,
    pub roots: Vec<Root>,
    pub tag_targets: Vec<(ObjectId, ObjectKind)>,
    pub externals: Vec<ObjectId>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub oid: ObjectId,
    pub kind: ObjectKind,
    pub offset: u64,
    pub size: u64,
    pub base: Base,
}

#[derive(Clone, Debug)]
pub struct Segment {
    pub row: SegmentRow,
    pub parents: Vec<Link>,
    pub links: Vec<Link>,
}

#[derive(Clone, Debug)]
pub struct Root {
    pub oid: ObjectId,
    pub kind: ObjectKind,
    pub trees: u32,
    pub blobs: u32,
    pub links: Vec<Link>,
}

impl Layer {
    pub fn builder(&self) -> CueBuilder {
        self.fill(CueBuilder::with_capacity(self.format, self.entries.len()))
    }

    pub fn fill(&self, mut builder: CueBuilder) -> CueBuilder {
        if self.unreachable {
            builder.unreachable();
        }
        for (index, entry) in self.entries.iter().enumerate() {
            let added = builder.entry(&entry.oid, entry.kind, entry.offset, entry.size, entry.base);
            assert_eq!(added, Ok(index as u32));
        }
        for (index, oid) in self.externals.iter().enumerate() {
            assert_eq!(builder.external(oid), Ok(index as u32));
        }
        for segment in &self.segments {
            builder
                .segment(segment.row, segment.parents.clone(), segment.links.clone())
                .unwrap();
        }
        for root in &self.roots {
            builder
                .root(&root.oid, root.kind, root.trees, root.blobs, root.links.clone())
                .unwrap();
        }
        for (oid, kind) in &self.tag_targets {
            builder.tag_target(oid, *kind).unwrap();
        }
        builder
    }

    pub fn encode(&self) -> Vec<u8> {
        self.builder().encode(self.entries_end).unwrap()
    }

    /// Reads everything back out of a cue.
    pub fn read(cue: &Cue) -> Self {
        let links = |links: cuesta_format::Links<'_>| links.collect::<Vec<_>>();
        let entries = (0..cue.entries.len()).map(|entry| Entry {
            oid: cue.oid(entry),
            kind: cue.entries.kind(entry),
            offset: cue.entries.offset(entry),
            size: cue.entries.size(entry),
            base: cue.entries.base(entry),
        });
        let segments = (0..cue.segments.len()).map(|segment| Segment {
            row: SegmentRow {
                generation: cue.segments.generation(segment),
                commit_time: cue.segments.commit_time(segment),
                root_tree: cue.segments.root_tree(segment),
                trees: cue.segments.trees(segment).len() as u32,
                blobs: cue.segments.blobs(segment).len() as u32,
            },
            parents: links(cue.segments.parents(segment)),
            links: links(cue.segments.links(segment)),
        });
        let roots = (0..cue.roots.len()).map(|root| Root {
            oid: cue.roots.oid(root),
            kind: cue.roots.kind(root),
            trees: cue.roots.trees(root).len() as u32,
            blobs: cue.roots.blobs(root).len() as u32,
            links: links(cue.roots.links(root)),
        });
        Self {
            format: cue.header.object_format,
            unreachable: cue.header.unreachable,
            entries: entries.collect(),
            entries_end: cue.entries.offset(cue.entries.len()),
            segments: segments.collect(),
            roots: roots.collect(),
            tag_targets: cue
                .header
                .counts
                .tag_entries()
                .map(|tag| cue.roots.tag_target(tag).unwrap())
                .collect(),
            externals: cue.externals.iter().collect(),
        }
    }

    pub fn parse(&self) -> Cue {
        Cue::parse(Bytes::from(self.encode())).unwrap()
    }
}

/// An oid that a number stands for; different numbers give different oids, spread evenly.
pub fn oid(format: ObjectFormat, number: u64) -> ObjectId {
    let mut state = number;
    let mut bytes = Vec::new();
    while bytes.len() < format.width() {
        // SplitMix64's step is a bijection, so the first eight bytes alone tell numbers apart.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes());
    }
    ObjectId::from_bytes(format, &bytes[..format.width()]).unwrap()
}

pub fn formats() -> impl Strategy<Value = ObjectFormat> {
    prop_oneof![Just(ObjectFormat::Sha1), Just(ObjectFormat::Sha256)]
}

/// Any valid layer of up to `entries_max` entries.
pub fn layers(entries_max: u32) -> impl Strategy<Value = Layer> {
    let counts = prop::array::uniform4(0..=entries_max / 4);
    (formats(), counts, any::<u64>(), any::<bool>()).prop_map(|(format, counts, seed, unreachable)| {
        Maker {
            format,
            counts,
            draw: Draw(seed),
        }
        .layer(unreachable)
    })
}

/// A layer with those counts of commits, tags, trees and blobs.
pub fn layer(format: ObjectFormat, counts: [u32; 4], seed: u64) -> Layer {
    Maker {
        format,
        counts,
        draw: Draw(seed),
    }
    .layer(false)
}

/// The layer of a small push: one commit, its trees and blobs, a parent elsewhere, and deltas against other layers.
pub fn small_push(format: ObjectFormat) -> Layer {
    let mut offset = 12;
    let kinds = [
        vec![ObjectKind::Commit],
        vec![ObjectKind::Tree; 3],
        vec![ObjectKind::Blob; 4],
    ]
    .concat();
    let entries = kinds.into_iter().zip(0..).map(|(kind, number)| {
        let (start, size) = (offset, 150 + number * 31);
        offset += size * 2 / 3;
        let base = if kind == ObjectKind::Tree {
            Base::External(1)
        } else {
            Base::None
        };
        Entry {
            oid: oid(format, number),
            kind,
            offset: start,
            size,
            base,
        }
    });
    let row = SegmentRow {
        generation: 7,
        commit_time: 1_700_000_000,
        root_tree: oid(format, 1),
        trees: 3,
        blobs: 4,
    };
    Layer {
        format,
        unreachable: false,
        entries: entries.collect(),
        entries_end: offset,
        segments: vec![Segment {
            row,
            parents: vec![Link::External(0)],
            links: vec![],
        }],
        roots: vec![],
        tag_targets: vec![],
        externals: vec![oid(format, 100), oid(format, 101)],
    }
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        if bound == 0 {
            0
        } else {
            ((self.0 >> 33) % u64::from(bound)) as u32
        }
    }
}

struct Maker {
    format: ObjectFormat,
    counts: [u32; 4],
    draw: Draw,
}

impl Maker {
    fn layer(mut self, unreachable: bool) -> Layer {
        let externals = self.draw.below(40);
        let [commits, tags, trees, blobs] = self.counts;
        let entries = self.entries(externals);
        let entries_end = 12 + 5_000_000_000 * entries.len() as u64;
        let segments = if commits == 0 { 0 } else { self.draw.below(commits + 1) };
        let (mut trees_left, mut blobs_left) = (trees, blobs);
        let segments: Vec<Segment> = (0..segments)
            .map(|segment| self.segment(segment, externals, &mut trees_left, &mut blobs_left))
            .collect();
        let segments = with_generations(segments);
        let roots = (0..self.draw.below(3))
            .map(|_| self.root(externals, &mut trees_left, &mut blobs_left))
            .collect();
        let kinds = [ObjectKind::Commit, ObjectKind::Tree, ObjectKind::Blob, ObjectKind::Tag];
        let tag_targets = (0..tags).map(|tag| {
            (
                oid(self.format, 3_000_000 + u64::from(tag)),
                kinds[self.draw.below(4) as usize],
            )
        });
        Layer {
            format: self.format,
            unreachable,
            entries,
            entries_end: entries_end.max(13),
            segments,
            roots,
            tag_targets: tag_targets.collect(),
            externals: (0..externals)
                .map(|external| oid(self.format, 2_000_000 + u64::from(external)))
                .collect(),
        }
    }

    fn entries(&mut self, externals: u32) -> Vec<Entry> {
        let [commits, tags, trees, blobs] = self.counts;
        let order = [ObjectKind::Commit, ObjectKind::Tag, ObjectKind::Tree, ObjectKind::Blob];
        let mut entries = Vec::new();
        for (kind, count) in order.into_iter().zip([commits, tags, trees, blobs]) {
            let first = entries.len() as u32;
            for nth in 0..count {
                let number = entries.len() as u64;
                let base = match self.draw.below(3) {
                    0 if nth > 0 => Base::Entry(first + self.draw.below(nth)),
                    1 if externals > 0 => Base::External(self.draw.below(externals)),
                    _ => Base::None,
                };
                let offset = 12 + 5_000_000_000 * number + u64::from(self.draw.below(1000));
                let size = u64::from(self.draw.below(u32::MAX)) << self.draw.below(30);
                entries.push(Entry {
                    oid: oid(self.format, number),
                    kind,
                    offset,
                    size,
                    base,
                });
            }
        }
        entries
    }

    fn segment(&mut self, segment: u32, externals: u32, trees_left: &mut u32, blobs_left: &mut u32) -> Segment {
        let row = SegmentRow {
            generation: 1 + self.draw.below(5),
            commit_time: i64::from(self.draw.below(u32::MAX)) - 1_000_000_000,
            root_tree: oid(self.format, 1_000_000 + u64::from(segment)),
            trees: self.take(trees_left),
            blobs: self.take(blobs_left),
        };
        let parents = (0..self.draw.below(3)).filter_map(|_| match self.draw.below(2) {
            0 if segment > 0 => Some(Link::Local(self.draw.below(segment))),
            _ if externals > 0 => Some(Link::External(self.draw.below(externals))),
            _ => None,
        });
        let parents = parents.collect();
        Segment {
            row,
            parents,
            links: self.links(externals, *trees_left + row.trees, *blobs_left + row.blobs),
        }
    }

    fn root(&mut self, externals: u32, trees_left: &mut u32, blobs_left: &mut u32) -> Root {
        let (trees, blobs) = (self.take(trees_left), self.take(blobs_left));
        Root {
            oid: oid(self.format, 4_000_000 + u64::from(self.draw.below(u32::MAX))),
            kind: [ObjectKind::Tree, ObjectKind::Blob][self.draw.below(2) as usize],
            trees,
            blobs,
            links: self.links(externals, *trees_left + trees, *blobs_left + blobs),
        }
    }

    /// Links into runs of earlier sets, which end where `trees_left` or `blobs_left` entries are to come, or elsewhere.
    fn links(&mut self, externals: u32, trees_left: u32, blobs_left: u32) -> Vec<Link> {
        let [commits, tags, trees, blobs] = self.counts;
        let (before_trees, before_blobs) = (trees - trees_left, blobs - blobs_left);
        let links = (0..self.draw.below(4)).filter_map(|_| match self.draw.below(3) {
            0 if before_trees > 0 => Some(Link::Local(commits + tags + self.draw.below(before_trees))),
            1 if before_blobs > 0 => Some(Link::Local(commits + tags + trees + self.draw.below(before_blobs))),
            _ if externals > 0 => Some(Link::External(self.draw.below(externals))),
            _ => None,
        });
        links.collect()
    }

    fn take(&mut self, left: &mut u32) -> u32 {
        let taken = self.draw.below((*left).min(5) + 1);
        *left -= taken;
        taken
    }
}

fn with_generations(mut segments: Vec<Segment>) -> Vec<Segment> {
    for index in 0..segments.len() {
        let locals = segments[index].parents.iter().filter_map(|parent| match parent {
            Link::Local(parent) => Some(segments[*parent as usize].row.generation),
            Link::External(_) => None,
        });
        segments[index].row.generation += locals.max().unwrap_or(0);
    }
    segments
}
