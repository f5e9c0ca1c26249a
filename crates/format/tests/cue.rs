//! Cues: what goes in comes out, for every layer; damage is an error, never a panic.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod model;

use bytes::Bytes;
use cuesta_format::{
    Base, Cue, CueBuilder, CueHeader, Entries, EntryFacts, ErrorKind, FinishedCue, FormatError, Link, Lookup,
    SectionKind,
};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use model::{Layer, layer, layers, oid, small_push};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Ids and sizes where the caller has them.
struct Lent<'a>(&'a [model::Entry]);

impl EntryFacts for Lent<'_> {
    fn oid(&self, entry: u32) -> ObjectId {
        self.0[entry as usize].oid
    }

    fn size(&self, entry: u32) -> u64 {
        self.0[entry as usize].size
    }
}

fn assert_same(read: &Layer, written: &Layer) {
    assert_eq!(format!("{read:#?}"), format!("{written:#?}"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_layer_comes_back(layer in layers(400)) {
        let cue = layer.parse();
        cue.verify().unwrap();
        assert_same(&Layer::read(&cue), &layer);
        let external = |entry: &model::Entry| matches!(entry.base, Base::External(_));
        prop_assert_eq!(cue.header.self_contained, !layer.entries.iter().any(external));
    }

    #[test]
    fn pieces_are_the_whole(layer in layers(2000), piece_len in 1usize..10_000) {
        let whole = layer.encode();
        let pieces = |cue: FinishedCue<'_>| {
            assert_eq!(cue.cue_len(), whole.len() as u64);
            let mut pieces = Vec::new();
            cue.write(piece_len, &mut |piece| { pieces.push(piece); Ok::<(), ()>(()) }).unwrap();
            assert!(pieces.iter().all(|piece| piece.len() < piece_len + 512));
            pieces.concat()
        };
        prop_assert_eq!(&pieces(layer.builder().finish(layer.entries_end).unwrap()), &whole);
        let lent = || layer.fill(CueBuilder::with_lent_facts(layer.format, layer.entries.len()));
        let facts = Lent(&layer.entries);
        let order: Vec<u32> = {
            let map: BTreeMap<ObjectId, u32> = layer.entries.iter().map(|entry| entry.oid).zip(0..).collect();
            map.into_values().collect()
        };
        prop_assert_eq!(&pieces(lent().finish_with(layer.entries_end, &facts, None).unwrap()), &whole);
        prop_assert_eq!(&pieces(lent().finish_with(layer.entries_end, &facts, Some(order.clone())).unwrap()), &whole);
        prop_assert_eq!(&lent().finish_with(layer.entries_end, &facts, Some(order.clone())).unwrap().into_bytes().unwrap(), &whole);
        if order.len() > 1 {
            let short = order[1..].to_vec();
            let wrong = [order.iter().rev().copied().collect(), short.clone(), [&order[..1], &short[1..], &order[..1]].concat()];
            for order in wrong {
                prop_assert!(lent().finish_with(layer.entries_end, &facts, Some(order)).is_err());
            }
        }
    }

    #[test]
    fn lookup_is_a_map(layer in layers(2000), absent in prop::collection::vec(5_000_000u64.., 50)) {
        let cue = layer.parse();
        let map: BTreeMap<ObjectId, u32> = layer.entries.iter().map(|entry| entry.oid).zip(0..).collect();
        let blobs = cue.header.counts.blob_entries();
        // What is no blob comes first.
        let (blob_map, structure): (Vec<_>, Vec<_>) = map.iter().partition(|(_, entry)| blobs.contains(entry));
        for (rank, (oid, entry)) in (0u32..).zip(structure.iter().chain(&blob_map)) {
            prop_assert_eq!(cue.find(oid), Some(**entry));
            prop_assert_eq!(cue.lookup.find_rank(oid), Some(rank));
            prop_assert_eq!(cue.lookup.oid(rank), **oid);
            prop_assert_eq!(cue.lookup.entry(rank), **entry);
            prop_assert_eq!(cue.entries.rank(**entry), rank);
            prop_assert_eq!(cue.lookup.find_structure(oid).is_none(), blobs.contains(entry));
            prop_assert_eq!(cue.lookup.find_blob(oid).is_some(), blobs.contains(entry));
        }
        let ascending: Vec<ObjectId> = cue.lookup.ascending(0).map(|rank| cue.lookup.oid(rank)).collect();
        prop_assert_eq!(&ascending, &map.keys().copied().collect::<Vec<_>>());
        for skip in [1, 2, map.len() / 3, map.len() - map.len().min(1), map.len(), map.len() + 5] {
            let rest: Vec<ObjectId> = cue.lookup.ascending(skip as u32).map(|rank| cue.lookup.oid(rank)).collect();
            prop_assert_eq!(&rest[..], ascending.get(skip..).unwrap_or_default());
        }
        for number in absent {
            let absent = oid(layer.format, number);
            prop_assert_eq!(cue.lookup.find(&absent), map.get(&absent).copied());
            prop_assert_eq!(cue.find(&absent), None);
        }
    }

    #[test]
    fn prefixes_are_ranges_of_the_map(layer in layers(2000), prefix in prop::collection::vec(any::<u8>(), 0..3)) {
        let cue = layer.parse();
        let mut oids: Vec<ObjectId> = layer.entries.iter().map(|entry| entry.oid).collect();
        oids.sort();
        let matching: Vec<ObjectId> =
            oids.iter().copied().filter(|oid| oid.as_bytes().starts_with(&prefix)).collect();
        let ranks = cue.lookup.ranks_with_prefix(&prefix).into_iter().flatten();
        let mut found: Vec<ObjectId> = ranks.map(|rank| cue.lookup.oid(rank)).collect();
        found.sort();
        prop_assert_eq!(&found, &matching);
        let first = oids.partition_point(|oid| oid.as_bytes() < &prefix[..]) as u32;
        prop_assert_eq!(cue.lookup.rows_with_prefix(&prefix), first..first + matching.len() as u32);
        for (row, oid) in (0u32..).zip(&oids) {
            prop_assert_eq!(cue.lookup.rows_with_prefix(oid.as_bytes()), row..row + 1);
        }
    }

    /// What a reader sees who has not loaded the sections of blobs.
    #[test]
    fn structure_is_readable_alone(layer in layers(2000)) {
        let bytes = Bytes::from(layer.encode());
        let header = CueHeader::parse(&bytes).unwrap();
        let section = |kind| {
            let range = header.section(kind);
            bytes.slice(range.start as usize..range.end as usize)
        };
        let entries = Entries::new(&header, section(SectionKind::Entries)).unwrap();
        let lookup = Lookup::new(&header, section(SectionKind::Lookup)).unwrap();
        let structure = header.counts.blob_entries().start;
        prop_assert_eq!((entries.len(), lookup.len(), header.structure_entries()), (structure, structure, structure));
        let end = layer.entries.get(structure as usize).map_or(layer.entries_end, |blob| blob.offset);
        prop_assert_eq!(entries.offset(structure), end);
        for (entry, written) in (0u32..).zip(&layer.entries) {
            let read = (entries.size(entry), entries.base(entry), lookup.find(&written.oid));
            match written.kind {
                ObjectKind::Blob => prop_assert_eq!(read, (0, Base::None, None)),
                _ => prop_assert_eq!(read, (written.size, written.base, Some(entry))),
            }
        }
        let first_blob_section = header.section(SectionKind::BlobEntries).start;
        let structure_end = SectionKind::ALL[..6].iter().map(|kind| header.section(*kind).end).max().unwrap();
        prop_assert!(first_blob_section == 0 || first_blob_section == structure_end, "blobs come last");
    }

    #[test]
    fn every_entry_knows_its_set(layer in layers(400)) {
        let cue = layer.parse();
        let counts = cue.header.counts;
        let mut segment_of = vec![None; layer.entries.len()];
        let mut root_of = vec![None; layer.entries.len()];
        let (mut tree, mut blob) = (counts.tree_entries().start, counts.blob_entries().start);
        for (index, segment) in (0u32..).zip(&layer.segments) {
            segment_of[index as usize] = Some(index);
            claim(&mut segment_of, &mut tree, segment.row.trees, index);
            claim(&mut segment_of, &mut blob, segment.row.blobs, index);
        }
        for (index, root) in (0u32..).zip(&layer.roots) {
            claim(&mut root_of, &mut tree, root.trees, index);
            claim(&mut root_of, &mut blob, root.blobs, index);
        }
        for entry in 0..cue.entries.len() {
            prop_assert_eq!(cue.segments.of_entry(entry), segment_of[entry as usize], "entry {}", entry);
            prop_assert_eq!(cue.roots.of_entry(entry), root_of[entry as usize], "entry {}", entry);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(Cue::parse(Bytes::from(bytes)).is_err());
    }
}

fn claim(owner: &mut [Option<u32>], next: &mut u32, count: u32, set: u32) {
    (*next..*next + count).for_each(|entry| owner[entry as usize] = Some(set));
    *next += count;
}

#[test]
fn the_cue_of_a_small_push_is_small() {
    // docs/format/cue.md, "Sizes", states these.
    assert_eq!(small_push(ObjectFormat::Sha1).encode().len(), 708);
    assert_eq!(small_push(ObjectFormat::Sha256).encode().len(), 840);
}

#[test]
fn an_empty_layer_has_a_cue() {
    let empty = layer(ObjectFormat::Sha1, [0; 4], 1);
    let cue = Cue::parse(Bytes::from(CueBuilder::new(ObjectFormat::Sha1).encode(12).unwrap())).unwrap();
    cue.verify().unwrap();
    assert!(cue.entries.is_empty() && cue.lookup.is_empty() && cue.segments.is_empty() && cue.roots.is_empty());
    assert_eq!(cue.find(&oid(empty.format, 1)), None);
    assert_eq!(cue.entries.offset(0), 12);
}

#[test]
fn past_the_end_answers_are_empty() {
    let cue = small_push(ObjectFormat::Sha1).parse();
    for past in [8, 9, 1 << 31, u32::MAX] {
        assert!(cue.oid(past).is_null() && cue.lookup.oid(past).is_null() && cue.externals.oid(past).is_null());
        assert_eq!((cue.entries.size(past), cue.entries.base(past)), (0, Base::None));
        assert_eq!(cue.entries.stored_len(past), 0);
        assert_eq!(
            (cue.segments.parents(past).len(), cue.segments.links(past).len()),
            (0, 0)
        );
        assert!(cue.segments.trees(past).is_empty() && cue.segments.blobs(past).is_empty());
        assert_eq!((cue.segments.generation(past), cue.segments.commit_time(past)), (0, 0));
        assert_eq!((cue.segments.of_entry(past), cue.roots.of_entry(past)), (None, None));
        assert_eq!(cue.roots.tag_target(past), None);
    }
}

#[test]
fn the_other_object_format_is_never_found() {
    let cue = small_push(ObjectFormat::Sha1).parse();
    assert_eq!(cue.find(&oid(ObjectFormat::Sha256, 0)), None);
}

#[test]
fn the_header_is_within_its_bound_and_finds_the_sections() {
    let bytes = layer(ObjectFormat::Sha1, [200, 3, 200, 300], 5).encode();
    let header = CueHeader::parse(&bytes[..CueHeader::LEN_MAX]).unwrap();
    assert_eq!(header.cue_len(), bytes.len() as u64);
    let sections = SectionKind::ALL.map(|kind| header.section(kind));
    assert_eq!(
        sections[0].start,
        CueHeader::LEN_MAX as u64,
        "all nine sections are there"
    );
    assert!(sections.array_windows().all(|[left, right]| left.end == right.start));
}

#[test]
fn a_cut_or_longer_cue_is_refused() {
    let bytes = small_push(ObjectFormat::Sha1).encode();
    for len in 0..bytes.len() {
        let error = Cue::parse(Bytes::copy_from_slice(&bytes[..len])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{len} bytes: {error}");
    }
    let longer = [&bytes[..], b"\0"].concat();
    assert_eq!(
        Cue::parse(Bytes::from(longer)).unwrap_err(),
        FormatError::Trailing { what: "cue", extra: 1 }
    );
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = small_push(ObjectFormat::Sha256).encode();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(Cue::parse(Bytes::from(damaged)).is_err(), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn what_is_unknown_is_unsupported() {
    let bytes = small_push(ObjectFormat::Sha1).encode();
    // Version, object format, flags, reserved: each with a checksum that holds.
    for (at, value) in [(4, 3), (6, 3), (7, 4), (11, 1), (52, 10)] {
        let mut newer = bytes.clone();
        newer[at] = value;
        reseal_header(&mut newer);
        let error = Cue::parse(Bytes::from(newer)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "byte {at}: {error}");
    }
}

/// What the header says must agree with itself before anybody believes a length in it.
#[test]
fn a_header_that_contradicts_itself_is_malformed() {
    let bytes = small_push(ObjectFormat::Sha1).encode();
    let second_row = 52 + 24;
    let contradictions = [
        ("sections that leave a gap", second_row + 8, 1),
        ("a section longer than its counts say", second_row + 16, 1),
        ("a section twice", second_row, 3),
        ("a fan-out for so few entries", 8, 3),
        ("a fan-out for so few blobs", 10, 3),
        ("more segments than commits", 28, 3),
        ("more blobs than there are columns for", 24, 1),
        ("a trailing section that is not there", 48, 2),
    ];
    for (what, at, flip) in contradictions {
        let mut contradicting = bytes.clone();
        contradicting[at] ^= flip;
        reseal_header(&mut contradicting);
        let error = CueHeader::parse(&contradicting).unwrap_err();
        assert!(matches!(error, FormatError::Malformed { .. }), "{what}: {error}");
    }
}

fn reseal_header(cue: &mut [u8]) {
    let end = 52 + 24 * usize::from(cue[9]);
    let crc = crc32c::crc32c(&cue[..end]);
    cue[end..end + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Damage that the checksums do not tell: every accessor must still be total, and `verify` is what notices.
#[test]
fn values_that_lead_nowhere_do_not_panic() {
    let mut layer = layer(ObjectFormat::Sha1, [30, 3, 30, 30], 11);
    layer.unreachable = true;
    let bytes = layer.encode();
    let header = CueHeader::parse(&bytes).unwrap();
    let start = header.section(SectionKind::Entries).start as usize;
    let last_column = |(kind, count): (SectionKind, usize)| {
        let end = header.section(kind).end as usize;
        end - 4 * count..end
    };
    let indices = [
        (SectionKind::Entries, 63),
        (SectionKind::Lookup, 63),
        (SectionKind::BlobEntries, 30),
        (SectionKind::BlobLookup, 30),
    ];
    let indices = indices.map(last_column);
    for at in start..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        reseal_sections(&mut damaged);
        let cue = Cue::parse(Bytes::from(damaged)).unwrap();
        touch(&cue);
        let verified = cue.verify();
        if indices.iter().any(|range| range.contains(&at)) {
            assert!(verified.is_err(), "byte {at}");
        }
    }
}

fn reseal_sections(cue: &mut [u8]) {
    for row in 0..usize::from(cue[9]) {
        let row = 52 + 24 * row;
        let word = |at: usize| u64::from_le_bytes(cue[at..at + 8].try_into().unwrap()) as usize;
        let (offset, len) = (word(row + 8), word(row + 16));
        let crc = crc32c::crc32c(&cue[offset..offset + len]);
        cue[row + 4..row + 8].copy_from_slice(&crc.to_le_bytes());
    }
    reseal_header(cue);
}

fn touch(cue: &Cue) {
    let _ = cue.lookup.ascending(0).count();
    for entry in 0..cue.entries.len() {
        let _ = (
            cue.oid(entry),
            cue.entries.base(entry),
            cue.entries.stored_len(entry),
            cue.entries.size(entry),
        );
        let _ = (
            cue.segments.of_entry(entry),
            cue.roots.of_entry(entry),
            cue.roots.tag_target(entry),
        );
        let _ = cue.find(&cue.oid(entry));
    }
    for segment in 0..cue.segments.len() {
        let links = cue.segments.links(segment).chain(cue.segments.parents(segment));
        links.for_each(|link| assert_eq!(cue.link_oid(link).format(), ObjectFormat::Sha1));
        assert!(cue.segments.trees(segment).end <= cue.header.counts.tree_entries().end);
        assert!(cue.segments.blobs(segment).end <= cue.header.counts.blob_entries().end);
    }
    for root in 0..cue.roots.len() {
        let _ = (cue.roots.oid(root), cue.roots.kind(root), cue.roots.links(root).count());
    }
}

#[test]
fn at_most_one_in_a_hundred_absent_oids_passes_the_filter() {
    let cue = layer(ObjectFormat::Sha1, [5_000, 0, 20_000, 25_000], 3).parse();
    let blobs = cue.header.counts.blob_entries();
    for (filter, entries) in [(&cue.filter, 0..blobs.start), (&cue.blob_filter, blobs)] {
        let filter = filter.as_ref().unwrap();
        assert!(entries.clone().all(|entry| filter.may_contain(&cue.oid(entry))));
        let passed = (10_000_000..10_100_000)
            .filter(|n| filter.may_contain(&oid(ObjectFormat::Sha1, *n)))
            .count();
        assert!(passed < 1_000, "{passed} of 100,000 passed");
        assert!(
            passed > 300,
            "{passed} of 100,000 passed: fewer than the theory allows, so the probe is wrong"
        );
    }
}

#[test]
fn the_builder_refuses_what_breaks_the_rules() {
    let valid = small_push(ObjectFormat::Sha1);
    type Break = fn(&mut Layer);
    let broken: [(&str, Break); 10] = [
        ("an offset inside the pack's header", |layer| {
            layer.entries[0].offset = 11
        }),
        ("offsets that do not ascend", |layer| {
            layer.entries[3].offset = layer.entries[2].offset
        }),
        ("an end before the last entry", |layer| layer.entries_end = 13),
        ("an object twice", |layer| layer.entries[3].oid = layer.entries[2].oid),
        ("a base that is not there", |layer| {
            layer.entries[2].base = Base::Entry(8)
        }),
        ("a base of another kind", |layer| layer.entries[2].base = Base::Entry(0)),
        ("an external that is not there", |layer| {
            layer.entries[2].base = Base::External(2)
        }),
        ("a parent after its child", |layer| {
            layer.segments[0].parents[0] = Link::Local(0)
        }),
        ("more trees than there are", |layer| layer.segments[0].row.trees = 4),
        ("a link to a commit", |layer| {
            layer.segments[0].links.push(Link::Local(0))
        }),
    ];
    for (what, breaks) in broken {
        let mut layer = valid.clone();
        breaks(&mut layer);
        let result = layer.builder().encode(layer.entries_end);
        assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::Invalid), "{what}");
    }
}

#[test]
fn the_builder_refuses_kinds_out_of_order_and_foreign_oids() {
    let mut builder = CueBuilder::new(ObjectFormat::Sha1);
    let sha1 = |number| oid(ObjectFormat::Sha1, number);
    assert_eq!(builder.entry(&sha1(1), ObjectKind::Tree, 12, 5, Base::None), Ok(0));
    assert!(builder.entry(&sha1(2), ObjectKind::Tag, 20, 5, Base::None).is_err());
    assert!(
        builder
            .entry(&oid(ObjectFormat::Sha256, 3), ObjectKind::Blob, 20, 5, Base::None)
            .is_err()
    );
    assert!(builder.external(&oid(ObjectFormat::Sha256, 3)).is_err());
    assert_eq!(builder.entry(&sha1(2), ObjectKind::Blob, 20, 5, Base::None), Ok(1));
}

#[test]
fn externals_are_kept_once_however_many() {
    let mut builder = CueBuilder::new(ObjectFormat::Sha1);
    for round in 0..2 {
        for number in 0..100u32 {
            let index = builder.external(&oid(ObjectFormat::Sha1, number.into()));
            assert_eq!(index, Ok(number), "round {round}");
        }
    }
}

#[test]
fn verify_notices_a_circle_of_deltas() {
    let mut layer = small_push(ObjectFormat::Sha1);
    layer.entries[4].base = Base::Entry(5);
    layer.entries[5].base = Base::Entry(6);
    layer.parse().verify().unwrap();
    layer.entries[6].base = Base::Entry(4);
    let error = layer.parse().verify().unwrap_err();
    assert_eq!(
        error,
        FormatError::Malformed {
            what: "cue entries",
            reason: "a chain of deltas is a circle"
        }
    );
}
