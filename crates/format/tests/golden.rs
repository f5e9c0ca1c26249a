//! Files of every version of every format, kept for good: they must decode to the same values and, as long as their
//! version is the one written, encode to the same bytes.
//!
//! A new version adds files beside these; these never change. `cargo test -p cuesta-format --test golden -- --ignored`
//! writes those that are missing.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod model;
mod values;

use bytes::Bytes;
use cuesta_format::{AccountsCheckpoint, AccountsEntry, Checkpoint, Cue, DirectoryCheckpoint, DirectoryEntry, Entry};
use cuesta_git::ObjectFormat;
use model::Layer;
use std::path::{Path, PathBuf};

const FORMATS: [ObjectFormat; 2] = [ObjectFormat::Sha1, ObjectFormat::Sha256];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn golden(name: &str) -> Bytes {
    Bytes::from(std::fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// The file of a value, and what the value encodes to now.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files = vec![
        (
            "directory-entry.v1".to_owned(),
            values::full_directory_entry().encode().unwrap(),
        ),
        (
            "directory-checkpoint.v2".to_owned(),
            values::full_directory_checkpoint().encode().unwrap(),
        ),
        (
            "accounts-entry.v1".to_owned(),
            values::full_accounts_entry().encode().unwrap(),
        ),
        (
            "accounts-checkpoint.v2".to_owned(),
            values::full_accounts_checkpoint().encode().unwrap(),
        ),
    ];
    let openpgp = values::openpgp_accounts_entry().encode().unwrap();
    files.push(("accounts-entry-openpgp.v1".to_owned(), openpgp));
    files.push(("entry-note.v1".to_owned(), values::noted_entry().encode().unwrap()));
    files.push(("entry-signed.v1".to_owned(), values::signed_entry().encode().unwrap()));
    let collected = values::collected_entry().encode().unwrap();
    files.push(("entry-collection.v1".to_owned(), collected));
    let abandoning = values::abandoning_directory_entry().encode().unwrap();
    files.push(("directory-entry-abandon.v1".to_owned(), abandoning));
    files.push(("entry-bases.v1".to_owned(), values::compacted_entry().encode().unwrap()));
    for format in FORMATS {
        files.push((format!("cue-small-{format}.v2"), model::small_push(format).encode()));
        files.push((format!("cue-large-{format}.v2"), large(format).encode()));
        files.push((format!("cue-huge-{format}.v2"), huge(format).encode()));
        files.push((
            format!("entry-{format}.v1"),
            values::full_entry(format).encode().unwrap(),
        ));
        files.push((
            format!("checkpoint-{format}.v2"),
            values::full_checkpoint(format).encode().unwrap(),
        ));
    }
    files
}

/// A layer whose cue has all nine sections.
fn huge(format: ObjectFormat) -> Layer {
    model::layer(format, [70, 5, 190, 260], 6)
}

/// A layer whose cue had all six sections of version 1.
fn large(format: ObjectFormat) -> Layer {
    let layer = model::layer(format, [70, 5, 90, 110], 4);
    assert!(!layer.segments.is_empty() && !layer.roots.is_empty() && !layer.externals.is_empty());
    layer
}

#[test]
fn what_is_written_now_is_what_was_written() {
    for (name, bytes) in files() {
        assert!(
            golden(&name) == bytes,
            "'{name}' encodes to other bytes: that needs a new version"
        );
    }
}

#[test]
fn cues_decode_to_the_same() {
    for format in FORMATS {
        let layers = [
            ("small", 1, model::small_push(format)),
            ("small", 2, model::small_push(format)),
            ("large", 1, large(format)),
            ("large", 2, large(format)),
            ("huge", 2, huge(format)),
        ];
        for (name, version, layer) in layers {
            let cue = Cue::parse(golden(&format!("cue-{name}-{format}.v{version}"))).unwrap();
            cue.verify().unwrap();
            assert_eq!(format!("{:#?}", Layer::read(&cue)), format!("{layer:#?}"));
            let filters = (cue.filter.is_some(), cue.blob_filter.is_some());
            let expected = (name == "huge" || (name, version) == ("large", 1), name == "huge");
            assert_eq!(filters, expected, "{name}, version {version}");
            for (entry, written) in (0u32..).zip(&layer.entries) {
                assert_eq!(cue.find(&written.oid), Some(entry));
            }
            // In version 1 blobs are part of the structure.
            let blobs = if version == 1 { 0 } else { cue.header.counts.blobs };
            assert_eq!(cue.header.structure_entries(), cue.header.counts.entries() - blobs);
        }
    }
}

#[test]
fn entries_and_checkpoints_decode_to_the_same() {
    for format in FORMATS {
        let entry = Entry::decode(&golden(&format!("entry-{format}.v1")));
        assert_eq!(entry, Ok(values::full_entry(format)));
        let checkpoint = Checkpoint::decode(&golden(&format!("checkpoint-{format}.v2")));
        assert_eq!(checkpoint, Ok(values::full_checkpoint(format)));
        let checkpoint = Checkpoint::decode(&golden(&format!("checkpoint-{format}.v1")));
        assert_eq!(checkpoint, Ok(values::old_checkpoint(format)));
    }
    let entry = Entry::decode(&golden("entry-note.v1"));
    assert_eq!(entry, Ok(values::noted_entry()));
    let entry = Entry::decode(&golden("entry-signed.v1"));
    assert_eq!(entry, Ok(values::signed_entry()));
    let entry = Entry::decode(&golden("entry-bases.v1"));
    assert_eq!(entry, Ok(values::compacted_entry()));
    let entry = DirectoryEntry::decode(&golden("directory-entry.v1"));
    assert_eq!(entry, Ok(values::full_directory_entry()));
    let entry = DirectoryEntry::decode(&golden("directory-entry-abandon.v1"));
    assert_eq!(entry, Ok(values::abandoning_directory_entry()));
    let entry = Entry::decode(&golden("entry-collection.v1"));
    assert_eq!(entry, Ok(values::collected_entry()));
    let checkpoint = DirectoryCheckpoint::decode(&golden("directory-checkpoint.v2"));
    assert_eq!(checkpoint, Ok(values::full_directory_checkpoint()));
    let checkpoint = DirectoryCheckpoint::decode(&golden("directory-checkpoint.v1"));
    assert_eq!(checkpoint, Ok(values::old_directory_checkpoint()));
    let entry = AccountsEntry::decode(&golden("accounts-entry.v1"));
    assert_eq!(entry, Ok(values::full_accounts_entry()));
    let entry = AccountsEntry::decode(&golden("accounts-entry-openpgp.v1"));
    assert_eq!(entry, Ok(values::openpgp_accounts_entry()));
    let checkpoint = AccountsCheckpoint::decode(&golden("accounts-checkpoint.v2"));
    assert_eq!(checkpoint, Ok(values::full_accounts_checkpoint()));
    let checkpoint = AccountsCheckpoint::decode(&golden("accounts-checkpoint.v1"));
    assert_eq!(checkpoint, Ok(values::old_accounts_checkpoint()));
}

#[test]
#[ignore = "writes golden files that are missing"]
fn write_missing() {
    for (name, bytes) in files() {
        if !path(&name).exists() {
            std::fs::write(path(&name), bytes).unwrap();
        }
    }
}
