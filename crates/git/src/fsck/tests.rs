//! What the comparison with git (`tests/fsck_oracle.rs`) does not reach: settings, and what spans objects.

use super::*;
use crate::object_id;

const FORMAT: ObjectFormat = ObjectFormat::Sha1;
const COMMIT: &[u8] = b"tree 1111111111111111111111111111111111111111\n\
    author A <a@b> 1 +0000\ncommitter C <c@d> 2 +0000\n\nmessage\n";

fn checker(settings: &[(&str, &str)]) -> Checker {
    let mut config = Config::strict();
    for (id, value) in settings {
        config.set(id, value).unwrap();
    }
    Checker::new(FORMAT, Arc::new(config))
}

fn id(kind: ObjectKind, content: &[u8]) -> ObjectId {
    object_id(FORMAT, kind, content).unwrap()
}

fn check(checker: &mut Checker, kind: ObjectKind, content: &[u8]) -> Vec<MessageId> {
    ids(checker.check(kind, &id(kind, content), content))
}

fn ids(outcome: Result<(), Refusal>) -> Vec<MessageId> {
    match outcome {
        Ok(()) => Vec::new(),
        Err(refusal) => std::iter::once(refusal.first)
            .chain(refusal.rest)
            .map(|finding| finding.id)
            .collect(),
    }
}

fn tree(name: &str, oid: &ObjectId) -> Vec<u8> {
    [b"100644 ", name.as_bytes(), b"\0", oid.as_bytes()].concat()
}

/// COMMIT with a piece replaced.
fn commit_with(from: &str, to: &str) -> Vec<u8> {
    String::from_utf8(COMMIT.to_vec())
        .unwrap()
        .replace(from, to)
        .into_bytes()
}

#[test]
fn a_refusal_reads_as_git_writes_it() {
    let content = commit_with("> 2", ">2");
    let oid = id(ObjectKind::Commit, &content);
    let refusal = checker(&[]).check(ObjectKind::Commit, &oid, &content).unwrap_err();
    let expected =
        format!("object {oid}: missingSpaceBeforeDate: invalid author/committer line - missing space before date");
    assert_eq!(refusal.to_string(), expected);
}

#[test]
fn a_demoted_finding_is_a_warning_and_checking_goes_on() {
    let content = commit_with("author A <a@b> 1", "author A <a@b> 01");
    let mut lax = checker(&[("zeroPaddedDate", "warn")]);
    assert_eq!(check(&mut lax, ObjectKind::Commit, &content), []);
    assert_eq!(
        lax.take_warnings().first().map(|finding| finding.id),
        Some(MessageId::ZeroPaddedDate)
    );
    assert_eq!(
        check(&mut checker(&[]), ObjectKind::Commit, &content),
        [MessageId::ZeroPaddedDate]
    );
    let worse = commit_with("author A <a@b> 1 +0000\ncommitter", "author A <a@b> 01 +0000\ncommuter");
    assert_eq!(
        check(&mut lax, ObjectKind::Commit, &worse),
        [MessageId::MissingCommitter]
    );
}

#[test]
fn demoted_ids_and_dates_are_skipped_as_git_skips_them() {
    let table = [
        (
            commit_with("1111\nauthor", "1111 x\nauthor"),
            "badTreeSha1",
            vec![MessageId::MissingAuthor],
        ),
        (commit_with("tree 1", "tree z"), "badTreeSha1", vec![]),
        (commit_with("> 1 ", "> 9223372036854775808 "), "badDateOverflow", vec![]),
        (
            commit_with("> 1 ", "> 111111111111111111111111 "),
            "badDateOverflow",
            vec![MessageId::BadDate],
        ),
    ];
    for (content, demoted, expected) in table {
        let found = check(&mut checker(&[(demoted, "warn")]), ObjectKind::Commit, &content);
        assert_eq!(found, expected, "{}", content.escape_ascii());
    }
}

#[test]
fn an_ignored_finding_leaves_no_trace_and_a_raised_one_refuses() {
    let mut checker = checker(&[
        ("hasDot", "ignore"),
        ("badFilemode", "error"),
        ("extraHeaderEntry", "error"),
    ]);
    let oid = ObjectId::Sha1([7; 20]);
    assert_eq!(check(&mut checker, ObjectKind::Tree, &tree(".", &oid)), []);
    assert_eq!(checker.take_warnings(), []);
    let odd = [&b"100600 a\0"[..], &[7; 20]].concat();
    assert_eq!(check(&mut checker, ObjectKind::Tree, &odd), [MessageId::BadFilemode]);
    let tag = format!("object {oid}\ntype blob\ntag t\ntagger A <a@b> 1 +0000\nextra x\n\nm\n");
    assert_eq!(
        check(&mut checker, ObjectKind::Tag, tag.as_bytes()),
        [MessageId::ExtraHeaderEntry]
    );
}

#[test]
fn skipped_objects_pass() {
    let content = commit_with("author", "autor");
    let oid = id(ObjectKind::Commit, &content);
    let mut config = Config::strict();
    config.skip(oid);
    let mut checker = Checker::new(FORMAT, Arc::new(config));
    assert_eq!(checker.check(ObjectKind::Commit, &oid, &content), Ok(()));
    assert!(
        checker
            .check(ObjectKind::Commit, &ObjectId::null(FORMAT), &content)
            .is_err()
    );
}

#[test]
fn the_longest_name_is_a_setting() {
    let mut checker = checker(&[("largePathname", "error:3")]);
    let oid = ObjectId::Sha1([7; 20]);
    assert_eq!(check(&mut checker, ObjectKind::Tree, &tree("abc", &oid)), []);
    assert_eq!(
        check(&mut checker, ObjectKind::Tree, &tree("abcd", &oid)),
        [MessageId::LargePathname]
    );
}

#[test]
fn a_bad_tagger_refuses_a_tag_even_if_what_follows_is_fine() {
    let tag = b"object 1111111111111111111111111111111111111111\ntype blob\ntag t\ntagger A\nextra x\n\nm\n";
    assert_eq!(
        check(&mut checker(&[]), ObjectKind::Tag, tag),
        [MessageId::MissingEmail]
    );
}

#[test]
fn special_blobs_must_be_given_once() {
    let mut checker = checker(&[]);
    let (blob, other) = (b"[submodule \"a\"]\nurl = -x\n", ObjectId::Sha1([9; 20]));
    let oid = id(ObjectKind::Blob, blob);
    for (name, oid) in [
        (".gitmodules", &oid),
        (".gitattributes", &oid),
        (".gitattributes", &other),
    ] {
        assert_eq!(check(&mut checker, ObjectKind::Tree, &tree(name, oid)), []);
    }
    let mut pending: Vec<_> = checker.special_blobs().collect();
    pending.sort();
    let mut expected = [oid, other];
    expected.sort();
    assert_eq!(pending, expected);
    assert_eq!(
        ids(checker.check_special_blob(&oid, ObjectKind::Blob, Some(blob))),
        [MessageId::GitmodulesUrl]
    );
    assert_eq!(checker.special_blobs().collect::<Vec<_>>(), [other]);
    assert_eq!(ids(checker.finish()), [MessageId::GitattributesMissing]);
    assert_eq!(
        ids(checker.check_special_blob(&other, ObjectKind::Blob, Some(b"* text\n"))),
        []
    );
    assert_eq!(ids(checker.finish()), []);
}

#[test]
fn special_blobs_of_every_wrong_sort() {
    let oid = ObjectId::Sha1([9; 20]);
    let table = [
        (
            ".gitmodules",
            ObjectKind::Tree,
            Some(&b""[..]),
            MessageId::GitmodulesBlob,
        ),
        (".gitmodules", ObjectKind::Blob, None, MessageId::GitmodulesLarge),
        (
            ".gitattributes",
            ObjectKind::Commit,
            Some(b""),
            MessageId::GitattributesBlob,
        ),
        (".gitattributes", ObjectKind::Blob, None, MessageId::GitattributesLarge),
    ];
    for (name, kind, content, expected) in table {
        let mut checker = checker(&[]);
        assert_eq!(check(&mut checker, ObjectKind::Tree, &tree(name, &oid)), []);
        assert_eq!(ids(checker.check_special_blob(&oid, kind, content)), [expected]);
    }
    let ordinary = checker(&[]).check_special_blob(&oid, ObjectKind::Blob, Some(b"[submodule \"..\"]\nurl = -x"));
    assert_eq!(ordinary, Ok(()));
}

#[test]
fn gitattributes_have_a_size() {
    let oid = ObjectId::Sha1([9; 20]);
    let line = b"* text\n";
    let content = line.repeat((100 << 20) / line.len() + 1);
    for (len, expected) in [
        (100 << 20, vec![]),
        ((100 << 20) + 1, vec![MessageId::GitattributesLarge]),
    ] {
        let mut checker = checker(&[]);
        assert_eq!(check(&mut checker, ObjectKind::Tree, &tree(".gitattributes", &oid)), []);
        assert_eq!(
            ids(checker.check_special_blob(&oid, ObjectKind::Blob, Some(&content[..len]))),
            expected
        );
    }
}

#[test]
fn checkers_join_what_they_know() {
    let (mut left, mut right) = (checker(&[]), checker(&[]));
    let oid = ObjectId::Sha1([9; 20]);
    assert_eq!(check(&mut right, ObjectKind::Tree, &tree(".gitmodules", &oid)), []);
    let odd = [&b"100600 a\0"[..], &[7; 20]].concat();
    for _ in 0..=WARNINGS_MAX {
        assert_eq!(check(&mut right, ObjectKind::Tree, &odd), []);
    }
    left.absorb(right);
    assert_eq!(left.special_blobs().collect::<Vec<_>>(), [oid]);
    assert_eq!(left.take_warnings().len(), WARNINGS_MAX);
}

#[test]
fn ids_are_as_wide_as_the_format() {
    let wide = commit_with(&"1".repeat(40), &"1".repeat(64));
    let mut checker = Checker::new(ObjectFormat::Sha256, Arc::new(Config::strict()));
    let oid = ObjectId::null(ObjectFormat::Sha256);
    assert_eq!(ids(checker.check(ObjectKind::Commit, &oid, &wide)), []);
    assert_eq!(
        ids(checker.check(ObjectKind::Commit, &oid, COMMIT)),
        [MessageId::BadTreeSha1]
    );
    let tree = [&b"100644 a\0"[..], &[7; 32], b"40000 b\0", &[8; 32]].concat();
    assert_eq!(ids(checker.check(ObjectKind::Tree, &oid, &tree)), []);
    assert_eq!(
        ids(checker.check(ObjectKind::Tree, &oid, &tree[..tree.len() - 12])),
        [MessageId::BadTree]
    );
}
