//! Entries and checkpoints: what goes in comes out, in the same bytes; damage is an error, never a panic.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod values;

use bytes::Bytes;
use cuesta_format::{
    AccountChange, AccountsCheckpoint, AccountsEntry, Checkpoint, DirectoryCheckpoint, DirectoryEntry,
    ENTRY_OVERHEAD_BYTES, EditId, Entry, ErrorKind, FormatError, LayerPlace, ListEdit, ListEntry, Result,
    SettingChange, account_change_len_max, edit_len_max,
};
use cuesta_git::{ObjectFormat, ObjectId, RefName};
use proptest::prelude::*;
use values::{
    abandoning_directory_entry, accounts_checkpoints, accounts_entries, checkpoints, collected_entry,
    directory_checkpoints, directory_entries, entries, full_accounts_checkpoint, full_accounts_entry, full_checkpoint,
    full_directory_checkpoint, full_directory_entry, full_entry,
};

proptest! {
    #[test]
    fn entries_come_back(entry in entries()) {
        let bytes = Bytes::from(entry.encode().unwrap());
        prop_assert_eq!(Entry::decode(&bytes).unwrap(), entry);
    }

    #[test]
    fn an_entry_is_no_longer_than_foretold(entry in entries()) {
        let foretold = ENTRY_OVERHEAD_BYTES + entry.edits.iter().map(edit_len_max).sum::<usize>();
        prop_assert!(entry.encode().unwrap().len() <= foretold);
    }

    #[test]
    fn checkpoints_come_back(checkpoint in checkpoints()) {
        let bytes = Bytes::from(checkpoint.encode().unwrap());
        prop_assert_eq!(Checkpoint::decode(&bytes).unwrap(), checkpoint);
    }

    #[test]
    fn accounts_entries_come_back(entry in accounts_entries()) {
        let bytes = Bytes::from(entry.encode().unwrap());
        let texts: usize = entry.edits.iter().map(|edit| edit.actor.len()).sum();
        let changes: usize = entry.edits.iter().flat_map(|edit| &edit.changes).map(account_change_len_max).sum();
        prop_assert!(bytes.len() <= 24 + 32 * entry.edits.len() + texts + changes);
        prop_assert_eq!(AccountsEntry::decode(&bytes), Ok(entry));
    }

    #[test]
    fn accounts_checkpoints_come_back(checkpoint in accounts_checkpoints()) {
        let bytes = Bytes::from(checkpoint.encode().unwrap());
        prop_assert_eq!(AccountsCheckpoint::decode(&bytes), Ok(checkpoint));
    }

    #[test]
    fn directory_entries_come_back(entry in directory_entries()) {
        let bytes = Bytes::from(entry.encode().unwrap());
        prop_assert_eq!(DirectoryEntry::decode(&bytes).unwrap(), entry);
    }

    #[test]
    fn directory_checkpoints_come_back(checkpoint in directory_checkpoints()) {
        let bytes = Bytes::from(checkpoint.encode().unwrap());
        prop_assert_eq!(DirectoryCheckpoint::decode(&bytes).unwrap(), checkpoint);
    }

    /// Whatever is accepted is the one way to write what it says.
    #[test]
    fn damage_that_checksums_do_not_tell_never_panics(entry in entries(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = entry.encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        check_all(&reseal(bytes));
    }

    #[test]
    fn damaged_checkpoints_never_panic(checkpoint in checkpoints(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = checkpoint.encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        check_all(&reseal(bytes));
    }

    #[test]
    fn random_bodies_never_panic(magic in 0usize..6, version in 1u8..3, body in prop::collection::vec(any::<u8>(), 0..300)) {
        let magic = [b"CLE\0", b"CKP\0", b"CDE\0", b"CDC\0", b"CAE\0", b"CAC\0"][magic];
        check_all(&reseal([&magic[..], &[version, 0, 0, 0], &body, &[0; 4]].concat()));
    }
}

fn reseal(mut bytes: Vec<u8>) -> Bytes {
    let end = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    Bytes::from(bytes)
}

fn check_all(bytes: &Bytes) {
    let again = [
        Entry::decode(bytes).and_then(|value| value.encode()),
        Checkpoint::decode(bytes).and_then(|value| value.encode()),
        DirectoryEntry::decode(bytes).and_then(|value| value.encode()),
        DirectoryCheckpoint::decode(bytes).and_then(|value| value.encode()),
        AccountsEntry::decode(bytes).and_then(|value| value.encode()),
        AccountsCheckpoint::decode(bytes).and_then(|value| value.encode()),
    ];
    // What an old version has is written as the newest has it.
    let is_old = matches!(&bytes[..6], b"CKP\0\x01\0" | b"CDC\0\x01\0");
    for again in again.into_iter().flatten() {
        assert!(is_old || again == *bytes);
    }
}

type Decode = fn(&Bytes) -> Result<()>;

/// Bytes of each format, and what reads them.
fn samples() -> Vec<(&'static str, Vec<u8>, Decode)> {
    let sha1 = ObjectFormat::Sha1;
    vec![
        ("entry", full_entry(sha1).encode().unwrap(), |bytes| {
            Entry::decode(bytes).map(drop)
        }),
        ("collector's entry", collected_entry().encode().unwrap(), |bytes| {
            Entry::decode(bytes).map(drop)
        }),
        (
            "abandoning directory entry",
            abandoning_directory_entry().encode().unwrap(),
            |bytes| DirectoryEntry::decode(bytes).map(drop),
        ),
        ("checkpoint", full_checkpoint(sha1).encode().unwrap(), |bytes| {
            Checkpoint::decode(bytes).map(drop)
        }),
        ("directory entry", full_directory_entry().encode().unwrap(), |bytes| {
            DirectoryEntry::decode(bytes).map(drop)
        }),
        (
            "directory checkpoint",
            full_directory_checkpoint().encode().unwrap(),
            |bytes| DirectoryCheckpoint::decode(bytes).map(drop),
        ),
        ("accounts entry", full_accounts_entry().encode().unwrap(), |bytes| {
            AccountsEntry::decode(bytes).map(drop)
        }),
        (
            "accounts checkpoint",
            full_accounts_checkpoint().encode().unwrap(),
            |bytes| AccountsCheckpoint::decode(bytes).map(drop),
        ),
    ]
}

#[test]
fn every_flipped_bit_is_noticed() {
    for (what, bytes, decode) in samples() {
        assert_eq!(decode(&Bytes::from(bytes.clone())), Ok(()), "{what}");
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(decode(&Bytes::from(damaged)).is_err(), "{what}: byte {at} bit {bit}");
        }
    }
}

#[test]
fn cut_and_longer_bytes_are_corrupt() {
    for (what, bytes, decode) in samples() {
        for len in 0..bytes.len() {
            let cut = Bytes::copy_from_slice(&bytes[..len]);
            assert_eq!(
                decode(&cut).map_err(|error| error.kind()),
                Err(ErrorKind::Corrupt),
                "{what}: {len} bytes"
            );
            if len >= 12 {
                let sealed = reseal(bytes[..len].to_vec());
                assert!(
                    decode(&sealed).is_err(),
                    "{what}: {len} bytes with a checksum that holds"
                );
            }
        }
        let longer = reseal([&bytes[..bytes.len() - 4], &[0; 5]].concat());
        assert!(
            matches!(decode(&longer), Err(FormatError::Trailing { extra: 1, .. })),
            "{what}"
        );
    }
}

#[test]
fn what_is_unknown_is_unsupported() {
    for (what, bytes, decode) in samples() {
        for (field, at) in [("version", 4), ("reserved", 6)] {
            let mut newer = bytes.clone();
            newer[at] ^= 0x80;
            let kind = decode(&reseal(newer)).map_err(|error| error.kind());
            assert_eq!(kind, Err(ErrorKind::Unsupported), "{what}: {field}");
        }
    }
    // Cause, object format, flags, reserved of an entry's first edit.
    let entry = full_entry(ObjectFormat::Sha1).encode().unwrap();
    for at in [20 + 24, 20 + 25, 20 + 26, 20 + 27, 20 + 30] {
        let mut newer = entry.clone();
        newer[at] ^= 0x80;
        let error = Entry::decode(&reseal(newer)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "byte {at}: {error}");
    }
}

#[test]
fn counts_that_cannot_be_cost_nothing() {
    let entry = full_entry(ObjectFormat::Sha1).encode().unwrap();
    // The number of edits, then the six counts of the first edit.
    for at in [16].into_iter().chain((0..6).map(|count| 20 + 32 + 4 * count)) {
        let mut huge = entry.clone();
        huge[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = Entry::decode(&reseal(huge)).unwrap_err();
        assert!(matches!(error, FormatError::Truncated { .. }), "byte {at}: {error}");
    }
}

fn is_malformed<T>(result: Result<T>) -> bool {
    matches!(result, Err(FormatError::Malformed { .. }))
}

#[test]
fn there_is_one_way_to_write_an_edit() {
    let mut entry = full_entry(ObjectFormat::Sha1);
    entry.edits.remove(0);
    let mut bytes = entry.encode().unwrap();
    bytes[20 + 25] = 1;
    assert!(
        is_malformed(Entry::decode(&reseal(bytes))),
        "an object format that nothing in the edit has"
    );
    let edit = &mut entry.edits[0];
    edit.settings = vec![SettingChange {
        name: "a".to_owned(),
        value: Some("b".to_owned()),
    }];
    edit.removed.clear();
    let mut bytes = entry.encode().unwrap();
    bytes[20 + 56 + 2] = 0;
    assert!(
        is_malformed(Entry::decode(&reseal(bytes))),
        "a value in a setting that has none"
    );
}

#[test]
fn names_share_all_they_can() {
    let mut checkpoint = full_checkpoint(ObjectFormat::Sha1);
    let target = checkpoint.refs[0].1;
    checkpoint.refs = ["refs/heads/a", "refs/heads/b"]
        .map(|name| (RefName::new(name.as_bytes()).unwrap(), target))
        .to_vec();
    let mut bytes = checkpoint.encode().unwrap();
    let second = 64 + 5 + 12 + 20;
    assert_eq!(bytes[second..second + 6], [11, 0, 1, 0, 0, b'b']);
    bytes.splice(second..second + 6, [10, 0, 2, 0, 0, b'/', b'b']);
    assert!(is_malformed(Checkpoint::decode(&reseal(bytes))));
}

#[test]
fn inline_layers_are_not_copied() {
    let bytes = Bytes::from(full_entry(ObjectFormat::Sha1).encode().unwrap());
    let buffer = bytes.as_ptr_range();
    let entry = Entry::decode(&bytes).unwrap();
    let LayerPlace::Inline { pack, cue } = &entry.edits[0].added[1].place else {
        panic!("not inline")
    };
    assert!(buffer.contains(&pack.as_ptr()) && buffer.contains(&cue.as_ptr()));
}

/// The shortest change there is must not be taken for a count that cannot be.
#[test]
fn fingerprints_have_a_byte_or_more() {
    let entry = |fingerprint: &'static [u8]| ListEntry {
        number: 0,
        edits: vec![ListEdit {
            id: EditId(0),
            time_ms: 0,
            actor: String::new(),
            changes: vec![AccountChange::RemoveOpenPgpKey(Bytes::from_static(fingerprint))],
        }],
    };
    let shortest = entry(b"x");
    let mut bytes = shortest.encode().unwrap();
    assert_eq!(AccountsEntry::decode(&Bytes::from(bytes.clone())), Ok(shortest));
    assert_eq!(
        entry(b"").encode().map_err(|error| error.kind()),
        Err(ErrorKind::Invalid)
    );
    let len_at = bytes.len() - 4 - 2;
    bytes[len_at] = 0;
    assert!(
        is_malformed(AccountsEntry::decode(&reseal(bytes))),
        "an empty fingerprint"
    );
}

#[test]
fn encoding_refuses_what_decoding_would() {
    let foreign = ObjectId::null(ObjectFormat::Sha256);
    let mut entry = full_entry(ObjectFormat::Sha1);
    entry.edits[0].refs[0].old = Some(foreign);
    assert_eq!(
        entry.encode().map_err(|error| error.kind()),
        Err(ErrorKind::Invalid),
        "mixed formats"
    );
    let mut entry = full_entry(ObjectFormat::Sha1);
    entry.edits[0].added[1].meta.pack_bytes += 1;
    assert_eq!(
        entry.encode().map_err(|error| error.kind()),
        Err(ErrorKind::Invalid),
        "sizes that do not fit"
    );
    let mut entry = full_entry(ObjectFormat::Sha1);
    entry.edits[0].actor = "x".repeat(65_536);
    assert!(
        matches!(
            entry.encode(),
            Err(FormatError::Limit {
                max: 65_535,
                got: 65_536,
                ..
            })
        ),
        "a long actor"
    );
    entry.edits[0].actor.pop();
    assert!(entry.encode().is_ok(), "an actor of the greatest length");
    let mut checkpoint = full_checkpoint(ObjectFormat::Sha1);
    checkpoint.refs.swap(0, 1);
    assert_eq!(
        checkpoint.encode().map_err(|error| error.kind()),
        Err(ErrorKind::Invalid),
        "refs out of order"
    );
    let mut checkpoint = full_directory_checkpoint();
    checkpoint.names.swap(0, 1);
    assert_eq!(
        checkpoint.encode().map_err(|error| error.kind()),
        Err(ErrorKind::Invalid),
        "names out of order"
    );
    let mut checkpoint = full_directory_checkpoint();
    checkpoint.abandoned.swap(0, 1);
    assert_eq!(
        checkpoint.encode().map_err(|error| error.kind()),
        Err(ErrorKind::Invalid),
        "abandoned logs out of order"
    );
}
