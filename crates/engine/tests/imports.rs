//! Git directories imported: what stock git made must be there, whole, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod support;

use cuesta_engine::import::ImportError;
use cuesta_git::{ObjectFormat, ObjectId};
use std::fs;
use support::source::{Source, Target, git_in};

#[tokio::test(flavor = "multi_thread")]
async fn loose_packed_and_mixed_repositories_come_over_whole() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let source = Source::filled(format);
        let loose = Target::new().await;
        let report = loose.import(source.path()).await;
        assert_eq!((report.refs_created, report.refs_deleted), (7, 0));
        loose.equals(&source).await;

        source.git(&["pack-refs", "--all"]);
        source.git(&["repack", "-q", "-a", "-d"]);
        let packed = Target::new().await;
        packed.import(&source.git_dir()).await;
        packed.equals(&source).await;

        source.commit("later", "later\n");
        source.git(&["update-ref", "refs/heads/side", "HEAD"]);
        let mixed = Target::new().await;
        mixed.import(source.path()).await;
        mixed.equals(&source).await;
        assert_eq!(mixed.head().await, "refs/heads/main");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_import_reads_only_what_is_new() {
    let source = Source::filled(ObjectFormat::Sha1);
    source.git(&["repack", "-q", "-a", "-d"]);
    let target = Target::new().await;
    target.import(source.path()).await;
    let again = target.import(source.path()).await;
    assert_eq!((again.number, again.objects_read), (None, 0));
    source.commit("new", "new\n");
    let more = target.import(source.path()).await;
    assert_eq!((more.refs_updated, more.objects_read, more.layers), (1, 3, 1));
    target.equals(&source).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_import_leaves_other_refs_and_head() {
    let (one, other) = (Source::filled(ObjectFormat::Sha1), Source::new(ObjectFormat::Sha1));
    other.git(&["checkout", "-q", "-b", "trunk"]);
    other.commit("x", "x\n");
    let target = Target::new().await;
    target.import(one.path()).await;
    target.import(other.path()).await;
    assert_eq!(target.head().await, "refs/heads/main");
    let mut expected = [one.refs(), other.refs()].concat();
    expected.sort_by_key(|line| line.split(' ').nth(1).unwrap().to_owned());
    assert_eq!(target.refs().await, expected);
    // A rewound branch is forced back.
    one.git(&["reset", "-q", "--hard", "HEAD~2"]);
    target.import(one.path()).await;
    assert!(
        target
            .refs()
            .await
            .contains(&format!("{} refs/heads/main", one.oid("HEAD")))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exact_import_takes_everything_over_and_prunes() {
    let source = Source::filled(ObjectFormat::Sha1);
    let target = Target::new().await;
    target.import_exact(source.path()).await;
    target.equals(&source).await;
    source.git(&["tag", "-d", "v1", "v1-again"]);
    source.git(&["branch", "-q", "-D", "side"]);
    source.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main"]);
    source.git(&["config", "receive.denyDeletes", "true"]);
    source.git(&["config", "core.bare", "false"]);
    source.git(&["checkout", "-q", "--detach"]);
    let detached = source.commit("detached", "detached\n");
    let report = target.import_exact(source.path()).await;
    assert_eq!(report.refs_deleted, 3);
    assert_eq!(target.head().await, detached.to_string());
    let mut expected = source.refs();
    expected.retain(|line| !line.contains("origin/HEAD"));
    let symbolic = format!("{} refs/remotes/origin/HEAD", source.oid("main"));
    expected.push(symbolic);
    expected.sort_by_key(|line| line.split(' ').nth(1).unwrap().to_owned());
    assert_eq!(target.refs().await, expected);
    let settings = |view: cuesta_engine::View| {
        view.state()
            .settings()
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        settings(target.repository().await.view().await.unwrap()),
        ["receive.denydeletes=true"]
    );

    source.git(&["checkout", "-q", "main"]);
    source.git(&["symbolic-ref", "-d", "refs/remotes/origin/HEAD"]);
    source.git(&["config", "--unset", "receive.denyDeletes"]);
    target.import_exact(source.path()).await;
    target.equals(&source).await;
    assert_eq!(target.head().await, "refs/heads/main");
    assert!(settings(target.repository().await.view().await.unwrap()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_and_directories_of_refs_change_places() {
    let source = Source::filled(ObjectFormat::Sha1);
    source.git(&["branch", "a"]);
    let target = Target::new().await;
    target.import_exact(source.path()).await;
    source.git(&["branch", "-m", "a", "a/b"]);
    let refused = target.try_import(source.path(), |_| ()).await.unwrap_err();
    assert!(matches!(refused, ImportError::Ref { .. }), "{refused}");
    target.import_exact(source.path()).await;
    target.equals(&source).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_directory_costs_no_entry_and_no_object() {
    let source = Source::filled(ObjectFormat::Sha1);
    source.git(&["repack", "-q", "-a", "-d"]);
    let blob = source.path().join("loose");
    fs::write(&blob, "never added\n").unwrap();
    let blob = source.git(&["hash-object", "-w", "loose"]);
    let blob = ObjectId::from_hex(ObjectFormat::Sha1, blob.trim().as_bytes()).unwrap();
    let target = Target::new().await;
    let first = target.import_exact(source.path()).await;
    assert_eq!((first.number.is_some(), first.layers), (true, 2));
    assert!(target.has(blob).await, "unreachable objects are kept");
    for _ in 0..3 {
        let again = target.import_exact(source.path()).await;
        assert_eq!((again.number, again.objects_read, again.layers), (None, 0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_unreachable_can_become_reachable() {
    let source = Source::filled(ObjectFormat::Sha1);
    let orphan = source.git(&["commit-tree", "-m", "orphan", "-p", "HEAD", "HEAD^{tree}"]);
    let target = Target::new().await;
    target.import_exact(source.path()).await;
    let oid = ObjectId::from_hex(ObjectFormat::Sha1, orphan.trim().as_bytes()).unwrap();
    assert!(target.has(oid).await);
    source.git(&["update-ref", "refs/heads/found", orphan.trim()]);
    target.import_exact(source.path()).await;
    target.equals(&source).await;
    // And back: nothing is stored twice.
    source.git(&["update-ref", "-d", "refs/heads/found"]);
    let back = target.import_exact(source.path()).await;
    assert_eq!((back.refs_deleted, back.objects_read, back.layers), (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_in_an_unreachable_and_in_another_layer_is_known() {
    let source = Source::filled(ObjectFormat::Sha1);
    let orphan = source.git(&["commit-tree", "-m", "orphan", "HEAD^{tree}"]);
    let target = Target::new().await;
    target.import_exact(source.path()).await;
    // It becomes reachable by a layer that is too large for the ledger, where the unreachable one still is.
    source.git(&["update-ref", "refs/heads/found", orphan.trim()]);
    let noise: String = std::iter::repeat_with(fastrand::alphanumeric).take(2 << 20).collect();
    source.commit("noise", &noise);
    target.import_exact(source.path()).await;
    let child = source.git(&["commit-tree", "-m", "child", "-p", orphan.trim(), "HEAD^{tree}"]);
    source.git(&["update-ref", "refs/heads/found", child.trim()]);
    let report = target.import(source.path()).await;
    assert_eq!((report.objects_read, report.refs_updated), (1, 1));
    target.equals(&source).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shallow_repository_and_its_boundary_come_over() {
    let origin = Source::filled(ObjectFormat::Sha1);
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", origin.path().display());
    git_in(dir.path(), &["clone", "-q", "--bare", "--depth=2", &url, "shallow.git"]);
    let shallow = dir.path().join("shallow.git");
    let boundary = || {
        let mut lines: Vec<String> = fs::read_to_string(shallow.join("shallow"))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    let target = Target::new().await;
    let ours = |view: cuesta_engine::View| {
        view.state()
            .shallow()
            .iter()
            .map(ObjectId::to_string)
            .collect::<Vec<_>>()
    };
    target.import_exact(&shallow).await;
    assert_eq!(ours(target.repository().await.view().await.unwrap()), boundary());
    assert!(!boundary().is_empty());
    git_in(&shallow, &["fetch", "-q", "--unshallow", "origin", "main"]);
    target.import_exact(&shallow).await;
    assert_eq!(ours(target.repository().await.view().await.unwrap()), boundary());
    assert!(boundary().is_empty());
    // The whole history is there now, with generations that fit.
    let view = target.repository().await.view().await.unwrap();
    let graph = view.graph().await.unwrap();
    let tip = graph.commit(&origin.oid("main")).unwrap();
    assert_eq!(graph.generation(tip), 4);
    target.clone_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_or_damaged_changes_nothing() {
    let source = Source::filled(ObjectFormat::Sha1);
    let target = Target::new().await;
    let tree = source.git(&["rev-parse", "HEAD:dir0"]);
    let file = source.git_dir().join("objects").join(&tree[..2]).join(tree[2..].trim());
    let content = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let error = target.try_import(source.path(), |_| ()).await.unwrap_err();
    assert!(
        matches!(&error, ImportError::Incomplete { others, .. } if *others > 0),
        "{error}"
    );
    assert!(
        target.engine.repository(&target.name).await.unwrap().is_none(),
        "no empty repository stays"
    );

    // The content of another object under its name.
    let other = source.git(&["rev-parse", "HEAD:dir1"]);
    let other = source
        .git_dir()
        .join("objects")
        .join(&other[..2])
        .join(other[2..].trim());
    fs::copy(&other, &file).unwrap();
    let error = target.try_import(source.path(), |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("hash mismatch"), "{error}");

    // Bytes cut off.
    fs::remove_file(&file).unwrap();
    fs::write(&file, &content[..content.len() - 5]).unwrap();
    let error = target.try_import(source.path(), |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("loose object is corrupt"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_pack_is_named() {
    let source = Source::filled(ObjectFormat::Sha1);
    source.git(&["repack", "-q", "-a", "-d"]);
    let packs = source.git_dir().join("objects/pack");
    let pack = fs::read_dir(packs).unwrap().map(|entry| entry.unwrap().path());
    let pack = pack
        .into_iter()
        .find(|path| path.extension().is_some_and(|extension| extension == "pack"))
        .unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(&pack).unwrap();
    fs::write(&pack, bytes).unwrap();
    let error = Target::new().await.try_import(source.path(), |_| ()).await.unwrap_err();
    assert!(error.to_string().contains(&pack.display().to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn symbolic_links_and_unasked_alternates_are_not_followed() {
    let origin = Source::filled(ObjectFormat::Sha1);
    let dir = tempfile::tempdir().unwrap();
    git_in(
        dir.path(),
        &[
            "clone",
            "-q",
            "--bare",
            "--shared",
            &origin.path().display().to_string(),
            "borrower",
        ],
    );
    let borrower = dir.path().join("borrower");
    let target = Target::new().await;
    let error = target.try_import(&borrower, |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("--alternates"), "{error}");
    target
        .try_import(&borrower, |options| options.alternates = true)
        .await
        .unwrap();
    target.clone_all().await;

    let objects = origin.git_dir().join("objects");
    fs::rename(&objects, origin.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", &objects).unwrap();
    let error = target.try_import(origin.path(), |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("symbolic links are not followed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fsck_rules_bind_unless_lifted() {
    let source = Source::filled(ObjectFormat::Sha1);
    let commit = format!(
        "tree {}\nauthor A <a@example.com> 1 +0000\ncommitter C 2 +0000\n\nodd\n",
        source.oid("HEAD^{tree}")
    );
    fs::write(source.path().join("commit"), commit).unwrap();
    let oid = source.git(&["hash-object", "--literally", "-t", "commit", "-w", "commit"]);
    source.git(&["update-ref", "refs/heads/odd", oid.trim()]);
    let target = Target::new().await;
    let error = target.try_import(source.path(), |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("missingEmail"), "{error}");
    target
        .try_import(source.path(), |options| options.strict = false)
        .await
        .unwrap();
    assert_eq!(target.refs().await, source.refs());
}

#[tokio::test(flavor = "multi_thread")]
async fn large_loose_blobs_stream() {
    let source = Source::new(ObjectFormat::Sha1);
    let text: String = (0..700_000).map(|n| format!("{n}\n")).collect();
    source.commit("large", &text);
    let target = Target::new().await;
    target.import(source.path()).await;
    target.equals(&source).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_formats_and_other_things_are_refused() {
    let target = Target::new().await;
    target.import(Source::filled(ObjectFormat::Sha1).path()).await;
    let error = target
        .try_import(Source::filled(ObjectFormat::Sha256).path(), |_| ())
        .await
        .unwrap_err();
    assert!(matches!(error, ImportError::ObjectFormat { .. }), "{error}");
    let error = target
        .try_import(tempfile::tempdir().unwrap().path(), |_| ())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("not a git repository"), "{error}");
    let reftable = tempfile::tempdir().unwrap();
    git_in(reftable.path(), &["init", "-q", "--ref-format=reftable"]);
    let error = target.try_import(reftable.path(), |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("import its URL"), "{error}");
}
