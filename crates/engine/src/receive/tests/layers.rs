//! Layers kept in memory and read back by plain means: what a push may lean on, in tests.

use crate::layer_builder::Built;
use crate::receive::error::IntakeError;
use crate::receive::intake::Intake;
use crate::receive::known::{Described, Known, KnownCommit};
use crate::receive::options::IntakeOptions;
use crate::receive::tips::Tip;
use bytes::Bytes;
use cuesta_format::{Base, Cue, Link};
use cuesta_git::pack::EntryHeader;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind, delta, object_id, zlib};
use std::collections::{BTreeSet, HashSet};

pub(super) struct Layer {
    pub(super) pack: Bytes,
    pub(super) cue: Cue,
}

#[derive(Default)]
pub(super) struct Layers {
    pub(super) layers: Vec<Layer>,
    pub(super) format: ObjectFormat,
}

impl Layers {
    pub(super) fn find(&self, oid: &ObjectId) -> Option<(&Layer, u32)> {
        self.layers.iter().find_map(|layer| Some((layer, layer.cue.find(oid)?)))
    }

    pub(super) fn object(&self, oid: &ObjectId) -> Option<(ObjectKind, Vec<u8>)> {
        let (layer, entry) = self.find(oid)?;
        Some((layer.cue.entries.kind(entry), self.content(layer, entry)))
    }

    fn content(&self, layer: &Layer, entry: u32) -> Vec<u8> {
        let range = layer.cue.entries.range(entry);
        let raw = &layer.pack[range.start as usize..range.end as usize];
        let (header, len) = EntryHeader::decode(self.format, raw).unwrap().unwrap();
        let (own, consumed) = zlib::inflate_exact(&raw[len..], header.size as usize).unwrap();
        assert_eq!(
            len + consumed,
            raw.len(),
            "an entry holds its header and stream and nothing else"
        );
        match layer.cue.entries.base(entry) {
            Base::None => own,
            Base::Entry(base) => delta::apply(&self.content(layer, base), &own).unwrap(),
            Base::External(base) => {
                delta::apply(&self.object(&layer.cue.externals.oid(base)).unwrap().1, &own).unwrap()
            }
        }
    }

    /// Adds a layer after checking all that must hold of it.
    pub(super) fn add(&mut self, built: Built) {
        let cue = Cue::parse(built.cue).unwrap();
        cue.verify().unwrap();
        let pack = Bytes::from(built.pack.expect("a small layer"));
        assert_eq!(pack.len() as u64, built.pack_bytes);
        assert_eq!(cue.header.self_contained, built.self_contained);
        self.layers.push(Layer { pack, cue });
        let layer = self.layers.last().unwrap();
        self.check_layer(layer);
    }

    /// Every entry of every layer can be read and is what its id says.
    pub(super) fn check_contents(&self) {
        self.layers.iter().for_each(|layer| self.check_layer(layer));
    }

    fn check_layer(&self, layer: &Layer) {
        for entry in 0..layer.cue.entries.len() {
            let content = self.content(layer, entry);
            assert_eq!(content.len() as u64, layer.cue.entries.size(entry));
            let kind = layer.cue.entries.kind(entry);
            assert_eq!(object_id(self.format, kind, &content).unwrap(), layer.cue.oid(entry));
        }
    }

    /// Takes a pack in as a push of these values, and adds its layer.
    pub(super) fn push(&mut self, pack: &[u8], values: &[ObjectId]) -> Result<Vec<Tip>, IntakeError> {
        self.push_with(options(self.format), pack, values)
    }

    pub(super) fn push_with(
        &mut self,
        options: IntakeOptions,
        pack: &[u8],
        values: &[ObjectId],
    ) -> Result<Vec<Tip>, IntakeError> {
        let mut intake = Intake::new(options);
        intake.feed(pack)?;
        intake.finish_pack()?;
        let settled = intake.settle(self)?;
        let reached = settled.reach(self, &HashSet::new(), values)?;
        let tips = reached.tips.clone();
        if !reached.is_empty() {
            let mut built = settled.build(self, &reached, 1 << 30, &mut |_| panic!("a small layer"))?;
            // As for the bucket, so that stock git reads it.
            built.seal();
            self.add(built);
        }
        Ok(tips)
    }

    /// Everything that the segments of a commit and its ancestors name.
    pub(super) fn closure(&self, tip: &ObjectId) -> BTreeSet<ObjectId> {
        let mut closure = BTreeSet::new();
        let mut left = vec![*tip];
        while let Some(oid) = left.pop() {
            if closure.insert(oid) {
                let (layer, entry) = self.find(&oid).unwrap();
                let segment = layer.cue.segments.of_entry(entry).unwrap();
                closure.extend(self.segment(layer, segment));
                left.extend(parents(layer, segment));
            }
        }
        closure
    }

    /// What a segment names beside its commit.
    pub(super) fn segment(&self, layer: &Layer, segment: u32) -> Vec<ObjectId> {
        let segments = &layer.cue.segments;
        let own = segments
            .trees(segment)
            .chain(segments.blobs(segment))
            .map(|entry| layer.cue.oid(entry));
        own.chain(segments.links(segment).map(|link| layer.cue.link_oid(link)))
            .collect()
    }
}

pub(super) fn parents(layer: &Layer, segment: u32) -> Vec<ObjectId> {
    let parents = layer.cue.segments.parents(segment);
    parents
        .map(|parent| match parent {
            Link::Local(parent) => layer.cue.oid(parent),
            Link::External(external) => layer.cue.externals.oid(external),
        })
        .collect()
}

pub(super) fn options(format: ObjectFormat) -> IntakeOptions {
    IntakeOptions::new(format, Default::default(), cuesta_git::fsck::Config::strict())
}

impl Known for Layers {
    fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    fn describe(&self, oids: &[ObjectId]) -> Result<Vec<Option<Described>>, IntakeError> {
        let describe = |oid| {
            let (layer, entry): (&Layer, u32) = self.find(oid)?;
            Some(Described {
                kind: layer.cue.entries.kind(entry),
                size: layer.cue.entries.size(entry),
            })
        };
        Ok(oids.iter().map(describe).collect())
    }

    fn objects(&self, oids: &[ObjectId]) -> Result<Vec<Option<(ObjectKind, Bytes)>>, IntakeError> {
        let object = |oid| self.object(oid).map(|(kind, content)| (kind, Bytes::from(content)));
        Ok(oids.iter().map(object).collect())
    }

    fn commit(&self, oid: &ObjectId) -> Result<Option<KnownCommit>, IntakeError> {
        Ok(self.find(oid).and_then(|(layer, entry)| {
            let segment = layer.cue.segments.of_entry(entry)?;
            let segments = &layer.cue.segments;
            Some(KnownCommit {
                generation: segments.generation(segment),
                tree: segments.root_tree(segment),
            })
        }))
    }
}
