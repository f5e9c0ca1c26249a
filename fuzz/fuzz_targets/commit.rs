//! Any bytes as a commit; what fsck accepts, parses.
#![no_main]

use cuesta_git::fsck::{Checker, Config};
use cuesta_git::{CommitRef, ObjectFormat, ObjectId, ObjectKind};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let parsed = CommitRef::parse(format, data);
        let mut checker = Checker::new(format, Arc::new(Config::strict()));
        let checked = checker.check(ObjectKind::Commit, &ObjectId::null(format), data);
        assert!(checked.is_err() || parsed.is_ok());
    }
});
