//! Any text as the path and query of a request: nothing, or a repository whose name leads to itself again.

#![no_main]

use cuesta_server::http::route::{DumbFile, Route};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(target) = std::str::from_utf8(data) else { return };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let repository = match Route::of(path, query) {
        Some(
            Route::InfoRefs { repository, .. }
            | Route::Rpc { repository, .. }
            | Route::Archive { repository }
            | Route::File { repository, .. },
        ) => repository,
        _ => return,
    };
    let again = Route::of(&format!("/{repository}/HEAD"), None);
    let file = DumbFile::Head;
    assert_eq!(again, Some(Route::File { repository, file }));
});
