//! Any bytes as a tree, checked: a broken tree is refused, a strict check refuses whatever a lenient one does.
#![no_main]

use cuesta_git::fsck::{Checker, Config};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind, TreeIter};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

const FORMAT: ObjectFormat = ObjectFormat::Sha1;

fn accepts(config: Config, data: &[u8]) -> bool {
    let mut checker = Checker::new(FORMAT, Arc::new(config));
    checker.check(ObjectKind::Tree, &ObjectId::null(FORMAT), data).is_ok()
}

fuzz_target!(|data: &[u8]| {
    let (strict, lenient) = (accepts(Config::strict(), data), accepts(Config::lenient(), data));
    assert!(lenient || !strict);
    if TreeIter::new(FORMAT, data).any(|entry| entry.is_err()) {
        assert!(!lenient);
    }
});
