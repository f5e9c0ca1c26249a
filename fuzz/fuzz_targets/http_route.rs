//! Any text as the path and query of a request: nothing, or a repository whose name leads to itself again.

#![no_main]

use cuesta_server::http::route::Route;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(target) = std::str::from_utf8(data) else { return };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let (repository, again) = match Route::of(path, query) {
        Some(Route::InfoRefs { repository, .. }) => (repository, "info/refs".to_owned()),
        Some(Route::Rpc { repository, service }) => (repository, service.name().to_owned()),
        _ => return,
    };
    match Route::of(&format!("/{repository}/{again}"), None) {
        Some(Route::InfoRefs { repository: name, .. } | Route::Rpc { repository: name, .. }) => {
            assert_eq!(name, repository);
        }
        other => panic!("'{repository}' leads to {other:?}"),
    }
});
