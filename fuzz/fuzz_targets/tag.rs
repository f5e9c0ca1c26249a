//! Any bytes as a tag, parsed and checked.
#![no_main]

use cuesta_git::fsck::{Checker, Config};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind, TagRef};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let _ = TagRef::parse(format, data);
        let mut checker = Checker::new(format, Arc::new(Config::strict()));
        let _ = checker.check(ObjectKind::Tag, &ObjectId::null(format), data);
    }
});
