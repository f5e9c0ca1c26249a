//! Objects larger than what is held: blobs go through files, others are refused above their limit.

use super::layers::{Layers, options};
use super::packs::{blob, delta, entry, oid, pack_of};
use crate::receive::error::{IntakeError, ObjectFault, PackFault};
use crate::receive::options::{IntakeOptions, ReceiveOptions};
use cuesta_git::pack::EntryKind;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};

fn with(change: impl FnOnce(&mut ReceiveOptions)) -> IntakeOptions {
    let mut options = options(ObjectFormat::Sha1);
    change(&mut options.limits);
    options
}

fn refusal(options: IntakeOptions, pack: &[u8]) -> PackFault {
    match Layers::default().push_with(options, pack, &[]) {
        Err(IntakeError::Pack(fault)) => fault,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn delta_entry(base: &[u8], kind: ObjectKind, copied: u8, new: &[u8]) -> Vec<u8> {
    let base_oid = oid(kind, base);
    entry(EntryKind::RefDelta { base: base_oid }, &delta(base.len(), copied, new))
}

/// A binary tree of deltas, seven levels deep, and all contents in it, the root first.
fn bush() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let root = vec![b'r'; 100];
    let (mut entries, mut all) = (vec![blob(&root)], vec![root.clone()]);
    let mut level = vec![root];
    for depth in 0..6u8 {
        let mut next = Vec::new();
        for (n, base) in level.iter().enumerate() {
            for child in 0..2u8 {
                let new = [depth, n as u8, child, b'x'];
                entries.push(delta_entry(base, ObjectKind::Blob, 90 + child, &new));
                next.push([&base[..90 + usize::from(child)], &new].concat());
            }
        }
        all.extend(next.iter().cloned());
        level = next;
    }
    (entries, all)
}

#[test]
fn blobs_come_out_the_same_through_files() {
    let (entries, contents) = bush();
    let pack = pack_of(&entries);
    let oids: Vec<ObjectId> = contents.iter().map(|content| oid(ObjectKind::Blob, content)).collect();
    for held_object_bytes_max in [0, 93, 94, 95, 99, 1 << 20] {
        for spill_bytes_max in [0, 250, 1 << 20] {
            let options = with(|limits| {
                limits.held_object_bytes_max = held_object_bytes_max;
                limits.spill_bytes_max = spill_bytes_max;
                limits.base_bytes_max = 150;
            });
            let mut layers = Layers::default();
            layers.push_with(options, &pack, &oids).unwrap();
            for (oid, content) in oids.iter().zip(&contents) {
                assert_eq!(layers.object(oid), Some((ObjectKind::Blob, content.clone())));
            }
        }
    }
}

#[test]
fn a_large_blob_whose_base_is_left_out_is_stored_whole() {
    let (entries, contents) = bush();
    let leaf = contents.last().unwrap();
    for held_object_bytes_max in [0, 96, 1 << 20] {
        let options = with(|limits| limits.held_object_bytes_max = held_object_bytes_max);
        let mut layers = Layers::default();
        let leaf_oid = oid(ObjectKind::Blob, leaf);
        layers.push_with(options, &pack_of(&entries), &[leaf_oid]).unwrap();
        assert_eq!(layers.object(&leaf_oid), Some((ObjectKind::Blob, leaf.clone())));
        assert_eq!(layers.object(&oid(ObjectKind::Blob, &contents[0])), None);
    }
}

#[test]
fn broken_deltas_of_large_blobs_are_refused() {
    let root = vec![b'r'; 100];
    let base = oid(ObjectKind::Blob, &root);
    let broken: [&[u8]; 4] = [
        &[99, 4, 4, b'a', b'b', b'c', b'd'],
        &[100, 9, 0x91, 95, 9],
        &[100, 5, 4, b'a', b'b', b'c', b'd'],
        &[100, 4, 0, 0],
    ];
    for delta in broken {
        let pack = pack_of(&[blob(&root), entry(EntryKind::RefDelta { base }, delta)]);
        let told = |held_object_bytes_max| {
            let options = with(|limits| limits.held_object_bytes_max = held_object_bytes_max);
            refusal(options, &pack)
        };
        assert!(matches!(
            told(0),
            PackFault::BadObject {
                fault: ObjectFault::Delta(_),
                ..
            }
        ));
        assert_eq!(told(0), told(1 << 20));
    }
}

#[test]
fn deltas_of_blobs_have_a_limit_at_which_they_are_refused() {
    let root = vec![b'r'; 100];
    let pack = pack_of(&[blob(&root), delta_entry(&root, ObjectKind::Blob, 90, b"new")]);
    let limited = |delta_bytes_max| with(|limits| limits.delta_bytes_max = delta_bytes_max);
    Layers::default().push_with(limited(100), &pack, &[]).unwrap();
    let fault = refusal(limited(99), &pack);
    assert!(
        fault
            .to_string()
            .contains("delta result of 100 bytes is too large (the limit is 99)"),
        "{fault}"
    );
}

/// A tree of many entries with one id: `entries` times the same file under other names.
fn tree(entries: u8) -> Vec<u8> {
    let file = oid(ObjectKind::Blob, b"x");
    let entry = |n| [format!("100644 f{n:03}\0").as_bytes(), file.as_bytes()].concat();
    (0..entries).flat_map(entry).collect()
}

#[test]
fn trees_have_a_limit_of_their_own() {
    // 32 bytes an entry.
    let (small, large) = (tree(2), tree(3));
    let whole = pack_of(&[entry(EntryKind::Object(ObjectKind::Tree), &large)]);
    let added = delta_entry(&small, ObjectKind::Tree, 64, &large[64..]);
    let grown = pack_of(&[entry(EntryKind::Object(ObjectKind::Tree), &small), added]);
    for held_object_bytes_max in [0, 64, 96, 1 << 20] {
        for pack in [&whole, &grown] {
            let limited = |structure_bytes_max| {
                with(|limits| {
                    limits.structure_bytes_max = structure_bytes_max;
                    limits.held_object_bytes_max = held_object_bytes_max;
                })
            };
            Layers::default().push_with(limited(96), pack, &[]).unwrap();
            let fault = refusal(limited(95), pack);
            let what = "tree";
            let expected = ObjectFault::TooLarge {
                what,
                size: 96,
                size_max: 95,
            };
            assert!(
                matches!(&fault, PackFault::BadObject { fault, .. } if *fault == expected),
                "{fault}"
            );
        }
    }
}

#[test]
fn a_thin_base_that_cannot_be_held_is_refused_with_advice() {
    let root = vec![b'r'; 100];
    let root_oid = oid(ObjectKind::Blob, &root);
    let thin = pack_of(&[delta_entry(&root, ObjectKind::Blob, 90, b"new")]);
    let mut layers = Layers::default();
    layers.push(&pack_of(&[blob(&root)]), &[root_oid]).unwrap();
    let mut push = |structure_bytes_max| {
        let options = with(|limits| limits.structure_bytes_max = structure_bytes_max);
        layers.push_with(options, &thin, &[]).map(drop)
    };
    push(100).unwrap();
    let refused = push(99).unwrap_err();
    assert!(
        refused.to_string().ends_with("(the limit is 99); push with --no-thin"),
        "{refused}"
    );
}
