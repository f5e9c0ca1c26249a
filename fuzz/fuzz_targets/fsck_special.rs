//! Any bytes as `.gitmodules` and `.gitattributes`.
#![no_main]

use cuesta_git::fsck::{Checker, Config};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let format = ObjectFormat::Sha1;
    let mut checker = Checker::new(format, Arc::new(Config::strict()));
    let blob = ObjectId::Sha1([1; 20]);
    let entry = |name: &str| [b"100644 ", name.as_bytes(), b"\0", blob.as_bytes()].concat();
    let tree = [entry(".gitattributes"), entry(".gitmodules")].concat();
    assert!(checker.check(ObjectKind::Tree, &ObjectId::Sha1([2; 20]), &tree).is_ok());
    let _ = checker.check_special_blob(&blob, ObjectKind::Blob, Some(data));
    assert!(checker.finish().is_ok());
});
