//! `cuesta collect` beside a running server.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use support::{Server, Work};

/// A file that was written so long ago.
// Files on disk have the system's time.
#[allow(clippy::disallowed_methods)]
fn old_file(path: &Path, age: Duration) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, "of a push that was cut off").unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

fn id_of(server: &Server, name: &str) -> String {
    let shown = server.cuesta(&["repo", "show", name]);
    let line = shown.lines().find_map(|line| line.strip_prefix("id "));
    line.unwrap().trim().to_owned()
}

#[test]
fn what_nothing_names_is_told_and_then_deleted() {
    let (work, server) = (Work::new(), Server::start());
    let tree = work.repository("tree", "sha1");
    work.git_in(&tree, &["push", "-q", &server.url("ann/x"), "main"]);
    let bucket = server.data().join("bucket/repos");
    let layers = bucket.join(id_of(&server, "ann/x")).join("layers");
    let day = Duration::from_secs(24 * 60 * 60);
    let name = |number: u8| format!("{number:032x}.pack");
    let (orphan, fresh) = (layers.join(name(1)), layers.join(name(2)));
    let nameless: PathBuf = bucket.join(format!("{:032x}", 3)).join("layers").join(name(4));
    old_file(&orphan, day + Duration::from_secs(60));
    old_file(&fresh, day - Duration::from_secs(600));
    old_file(&nameless, day + Duration::from_secs(60));

    let told = server.cuesta(&["collect", "--dry-run"]);
    assert!(
        told.contains(&name(1)) && told.contains("(layer in no entry)"),
        "{told}"
    );
    assert!(
        told.contains(&name(4)) && told.contains("(log without a name)"),
        "{told}"
    );
    assert!(!told.contains(&name(2)) && told.contains("would delete"), "{told}");
    assert!(orphan.exists() && nameless.exists(), "a dry run deletes nothing");

    let done = server.cuesta(&["collect", "ann/x"]);
    assert!(done.contains(&name(1)) && !done.contains(&name(4)), "{done}");
    assert!(!orphan.exists() && fresh.exists() && nameless.exists());
    server.cuesta(&["collect"]);
    assert!(!nameless.exists() && fresh.exists());
    let again = server.cuesta(&["collect", "-n"]);
    assert!(again.contains("0 payloads"), "{again}");

    work.git(&["clone", "-q", &server.url("ann/x"), "clone"]);
    work.git_in(&work.path("clone"), &["fsck", "--full"]);
    server.cuesta(&["fsck", "ann/x"]);
}

#[test]
fn a_deleted_repository_waits_for_its_grace_period() {
    let (work, server) = (Work::new(), Server::start());
    let tree = work.repository("tree", "sha1");
    work.git_in(&tree, &["push", "-q", &server.url("ann/x"), "main"]);
    server.cuesta(&["repo", "delete", "ann/x"]);
    let told = server.cuesta(&["collect", "-n"]);
    assert!(told.contains("0 repositories") && told.contains("1 wait"), "{told}");
    work.git_in(&tree, &["push", "-q", &server.url("ann/x"), "main"]);
    work.git(&["clone", "-q", &server.url("ann/x"), "clone"]);
}
