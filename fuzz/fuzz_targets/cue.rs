//! Any bytes as a cue: refused, or every accessor answers. The checksums are made to hold, so that the fuzzer gets past
//! them.

#![no_main]

use bytes::Bytes;
use cuesta_format::{Cue, CueHeader, SectionKind};
use libfuzzer_sys::fuzz_target;

const SECTION_COUNT_AT: usize = 9;
const TABLE_AT: usize = 52;
const ROW_LEN: usize = 24;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    seal(&mut bytes);
    let _ = CueHeader::parse(&bytes).map(|header| SectionKind::ALL.map(|kind| header.section(kind)));
    let Ok(cue) = Cue::parse(Bytes::from(bytes)) else {
        return;
    };
    touch(&cue);
    let _ = cue.verify();
});

/// Writes checksums that hold, wherever the section table can be followed.
fn seal(bytes: &mut [u8]) {
    let Some(count) = bytes.get(SECTION_COUNT_AT).copied() else {
        return;
    };
    let end = TABLE_AT + ROW_LEN * usize::from(count);
    if bytes.len() < end + 4 {
        return;
    }
    for row in (TABLE_AT..end).step_by(ROW_LEN) {
        let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes) as usize;
        let (offset, len) = (word(row + 8), word(row + 16));
        if let Some(section) = offset.checked_add(len).and_then(|end| bytes.get(offset..end)) {
            let crc = crc32c::crc32c(section);
            bytes[row + 4..row + 8].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..end + 4].copy_from_slice(&crc.to_le_bytes());
}

fn touch(cue: &Cue) {
    assert_eq!(cue.lookup.ascending(0).count(), cue.lookup.len() as usize);
    let middle = cue.lookup.len() / 2;
    let _ = cue.lookup.ascending(middle).next();
    for entry in 0..cue.entries.len().saturating_add(2) {
        let oid = cue.oid(entry);
        let _ = (cue.find(&oid), cue.lookup.find_rank(&oid));
        let _ = (
            cue.lookup.ranks_with_prefix(oid.as_bytes()),
            cue.lookup.rows_with_prefix(oid.as_bytes()),
        );
        let _ = (
            cue.entries.range(entry),
            cue.entries.size(entry),
            cue.entries.base(entry),
            cue.entries.kind(entry),
        );
        let _ = (
            cue.segments.of_entry(entry),
            cue.roots.of_entry(entry),
            cue.roots.tag_target(entry),
        );
    }
    for segment in 0..cue.segments.len().saturating_add(2) {
        for link in cue.segments.links(segment).chain(cue.segments.parents(segment)) {
            let _ = cue.link_oid(link);
        }
        let _ = (
            cue.segments.trees(segment),
            cue.segments.blobs(segment),
            cue.segments.root_tree(segment),
        );
    }
    for root in 0..cue.roots.len().saturating_add(2) {
        let _ = (
            cue.roots.oid(root),
            cue.roots.kind(root),
            cue.roots.trees(root),
            cue.roots.blobs(root),
        );
        cue.roots
            .links(root)
            .for_each(|link| assert_eq!(cue.link_oid(link).format(), cue.header.object_format));
    }
}
