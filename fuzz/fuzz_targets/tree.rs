//! Any bytes as a tree: entries that add up to what was read.
#![no_main]

use cuesta_git::{ObjectFormat, TreeIter};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        for entry in TreeIter::new(format, data).flatten() {
            assert!(!entry.name.is_empty() && !entry.name.contains(&0));
            assert!(entry.mode.is_tree() ^ entry.mode.is_blob() ^ entry.mode.is_gitlink());
        }
    }
});
