//! Objects that git would not write: the same verdict, for the same reason, as `transfer.fsckObjects=true`.

use super::Scenario;
use crate::packs::{Pack, kind, oid, tree};
use crate::session::Session;
use crate::wire::{Command, push};
use anyhow::{Context, Result};
use std::collections::BTreeSet;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("strict::commits", commits),
        Scenario::new("strict::trees", trees),
        Scenario::new("strict::tags", tags),
        Scenario::new("strict::modules", modules),
        Scenario::new("strict::overrides", overrides),
    ]
}

const AUTHOR: &str = "A <a@example.com> 1700000000 +0000";

/// Mode, name, oid.
type TreeEntry<'a> = (&'a str, &'a str, &'a str);

/// Pushes a pack whose tip is to become a ref, and records the verdict and, if it is refused, why.
fn try_pack(session: &Session<'_>, what: &str, name: &str, tip: &str, pack: &Pack) -> Result<()> {
    let format = session.format();
    let command = Command {
        old: format.zero(),
        new: tip,
        name,
    };
    let report = push(session, format.push_capabilities(), &[command], &pack.finish())?;
    session.record(&format!("{what}\n{}", report.refs_verdict()));
    if report.refs.values().any(Option::is_some) {
        session.complain(&message_ids(&format!("{}\n{}", report.messages, report.unpack)));
    }
    Ok(())
}

/// Git complains of an object as `object <oid>: <id>: <text>`. Its warnings are no reason to refuse.
fn message_ids(said: &str) -> BTreeSet<String> {
    let complaints = said.lines().filter(|line| !line.contains("warning: "));
    complaints
        .filter_map(|line| line.split_once("object ")?.1.split_once(": "))
        .filter_map(|(_, rest)| rest.split_once(':'))
        .map(|(id, _)| id.to_owned())
        .filter(|id| id.chars().all(char::is_alphanumeric))
        .collect()
}

fn commits(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    session.create()?;
    session.set_head("refs/heads/none")?;
    let tree = format!("tree {}\n", oid(format, kind::TREE, b""));
    let parent = format.absent();
    let author = format!("author {AUTHOR}\n");
    let committer = format!("committer {AUTHOR}\n");
    let by = |author: &str| format!("{tree}author {author}\n{committer}\nm\n");
    let cases = [
        ("good", format!("{tree}{author}{committer}\nm\n")),
        ("no tree", format!("{author}{committer}\nm\n")),
        ("bad tree", format!("tree 123\n{author}{committer}\nm\n")),
        (
            "tree of capitals",
            format!(
                "{}{author}{committer}\nm\n",
                tree.to_uppercase().replace("TREE", "tree")
            ),
        ),
        ("bad parent", format!("{tree}parent 123\n{author}{committer}\nm\n")),
        (
            "parent with a space",
            format!("{tree}parent  {parent}\n{author}{committer}\nm\n"),
        ),
        ("no author", format!("{tree}{committer}\nm\n")),
        ("two authors", format!("{tree}{author}{author}{committer}\nm\n")),
        ("no committer", format!("{tree}{author}\nm\n")),
        ("two committers", format!("{tree}{author}{committer}{committer}\nm\n")),
        ("nothing", String::new()),
        ("no message", format!("{tree}{author}{committer}")),
        ("no end of line", format!("{tree}{author}committer {AUTHOR}")),
        (
            "zero byte in the header",
            format!("{tree}{author}{committer}odd \0\n\nm\n"),
        ),
        ("zero byte in the message", format!("{tree}{author}{committer}\nm\0m\n")),
        ("no mail address", by("A 1700000000 +0000")),
        ("no name", by("<a@example.com> 1700000000 +0000")),
        ("empty name", by(" <a@example.com> 1700000000 +0000")),
        ("bad name", by("A> <a@example.com> 1700000000 +0000")),
        ("bad mail", by("A <a<b@example.com> 1700000000 +0000")),
        ("no space before mail", by("A<a@example.com> 1700000000 +0000")),
        ("no space before date", by("A <a@example.com>1700000000 +0000")),
        ("no date", by("A <a@example.com>")),
        ("date of zeros", by("A <a@example.com> 01700000000 +0000")),
        ("date of zero", by("A <a@example.com> 0 +0000")),
        ("bad date", by("A <a@example.com> yesterday +0000")),
        ("date before 1970", by("A <a@example.com> -1 +0000")),
        ("date too large", by("A <a@example.com> 18446744073709551617 +0000")),
        ("bad time zone", by("A <a@example.com> 1700000000 0000")),
        ("short time zone", by("A <a@example.com> 1700000000 +00")),
        ("no time zone", by("A <a@example.com> 1700000000")),
        ("odd time zone", by("A <a@example.com> 1700000000 +9999")),
        ("two spaces before date", by("A <a@example.com>  1700000000 +0000")),
        ("carriage return", by("A <a@example.com> 1700000000 +0000\r")),
        (
            "other headers",
            format!("{tree}{author}{committer}encoding x\ngpgsig a\n b\n\nm\n"),
        ),
        (
            "header before author",
            format!("{tree}encoding x\n{author}{committer}\nm\n"),
        ),
        ("tree twice", format!("{tree}{tree}{author}{committer}\nm\n")),
        (
            "parent after author",
            format!("{tree}{author}parent {parent}\n{committer}\nm\n"),
        ),
    ];
    for (number, (what, content)) in cases.iter().enumerate() {
        let mut pack = Pack::new(format);
        pack.object(kind::TREE, b"")?;
        let tip = pack.object(kind::COMMIT, content.as_bytes())?;
        try_pack(session, what, &format!("refs/heads/c{number}"), &tip, &pack)?;
    }
    Ok(())
}

fn trees(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    session.create()?;
    session.set_head("refs/heads/none")?;
    let blob = oid(format, kind::BLOB, b"x\n");
    let subtree = oid(format, kind::TREE, b"");
    let zero = format.zero();
    let file = ("100644", "a", blob.as_str());
    let named = |name| vec![("100644", name, blob.as_str())];
    let of_mode = |mode| vec![(mode, "a", blob.as_str())];
    let cases: Vec<(&str, Vec<TreeEntry<'_>>)> = vec![
        ("good", vec![file, ("40000", "b", &subtree)]),
        ("dot", named(".")),
        ("dot dot", named("..")),
        ("dot git", named(".git")),
        ("dot git in capitals", named(".GIT")),
        ("dot git for ntfs", named("git~1")),
        ("dot git with a dot", named(".git.")),
        ("dot git with a space", named(".git ")),
        ("dot git with a stream", named(".git::$INDEX_ALLOCATION")),
        ("dot git for hfs", named(".g\u{200c}it")),
        ("dot git with a backslash", named(".git\\x")),
        ("a slash", named("a/b")),
        ("no name", named("")),
        ("a backslash", named("a\\b")),
        ("twice", vec![file, file]),
        ("twice, once a tree", vec![file, ("40000", "a", &subtree)]),
        (
            "twice apart",
            vec![file, ("100644", "a-", &blob), ("40000", "a", &subtree)],
        ),
        (
            "twice far apart",
            vec![
                ("100644", "x", &blob),
                ("100644", "x-", &blob),
                ("100644", "x.a", &blob),
                ("40000", "x", &subtree),
            ],
        ),
        ("not sorted", vec![("100644", "b", &blob), file]),
        (
            "tree not sorted as a tree",
            vec![("40000", "a", &subtree), ("100644", "a.b", &blob)],
        ),
        ("no object", vec![("100644", "a", zero)]),
        ("mode with zeros", of_mode("0100644")),
        ("tree mode with zeros", vec![("040000", "a", &subtree)]),
        ("group may write", of_mode("100664")),
        ("odd mode", of_mode("100600")),
        ("executable", of_mode("100755")),
        ("a link", of_mode("120000")),
        ("a mode of its own", of_mode("100645")),
        ("mode zero", of_mode("0")),
        ("no mode", of_mode("")),
        ("mode of letters", of_mode("abc")),
        ("a module", vec![("160000", "a", format.absent())]),
        ("a linked modules file", vec![("120000", ".gitmodules", &blob)]),
        ("a linked ignore file", vec![("120000", ".gitignore", &blob)]),
        ("a linked attributes file", vec![("120000", ".gitattributes", &blob)]),
        ("a linked mail map", vec![("120000", ".mailmap", &blob)]),
        ("a modules tree", vec![("40000", ".gitmodules", &subtree)]),
        ("a linked modules file for ntfs", vec![("120000", "gitmod~1", &blob)]),
    ];
    for (number, (what, entries)) in cases.iter().enumerate() {
        let content = tree(entries)?;
        try_tree(session, what, number, &content)?;
    }
    let whole = tree(&[file])?;
    let cut = whole.get(..whole.len() - 3).context("a short tree")?;
    try_tree(session, "cut in an oid", cases.len(), cut)?;
    try_tree(session, "cut in a name", cases.len() + 1, b"100644 abc")?;
    let long = "n".repeat(5000);
    try_tree(session, "a long name", cases.len() + 2, &tree(&named(&long))?)
}

fn try_tree(session: &Session<'_>, what: &str, number: usize, content: &[u8]) -> Result<()> {
    let format = session.format();
    let mut pack = Pack::new(format);
    pack.object(kind::BLOB, b"x\n")?;
    pack.object(kind::TREE, b"")?;
    if !content.is_empty() {
        pack.object(kind::TREE, content)?;
    }
    let tree = oid(format, kind::TREE, content);
    let tip = pack.object(kind::COMMIT, &crate::packs::commit(&tree, &[]))?;
    try_pack(session, what, &format!("refs/heads/t{number}"), &tip, &pack)
}

fn tags(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    session.create()?;
    let object = format!("object {}\n", oid(format, kind::TREE, b""));
    let tagger = format!("tagger {AUTHOR}\n");
    let cases = [
        ("good", format!("{object}type tree\ntag t\n{tagger}\nm\n")),
        ("no tagger", format!("{object}type tree\ntag t\n\nm\n")),
        ("no object", format!("type tree\ntag t\n{tagger}\nm\n")),
        ("bad object", format!("object 123\ntype tree\ntag t\n{tagger}\nm\n")),
        ("no type", format!("{object}tag t\n{tagger}\nm\n")),
        ("bad type", format!("{object}type twig\ntag t\n{tagger}\nm\n")),
        ("another type", format!("{object}type commit\ntag t\n{tagger}\nm\n")),
        ("no name", format!("{object}type tree\n{tagger}\nm\n")),
        ("bad name", format!("{object}type tree\ntag a..b\n{tagger}\nm\n")),
        ("empty name", format!("{object}type tree\ntag \n{tagger}\nm\n")),
        (
            "bad tagger",
            format!("{object}type tree\ntag t\ntagger A 1 +0000\n\nm\n"),
        ),
        (
            "other headers",
            format!("{object}type tree\ntag t\n{tagger}odd x\n\nm\n"),
        ),
        ("no message", format!("{object}type tree\ntag t\n{tagger}")),
        ("zero byte", format!("{object}type tree\ntag t\n{tagger}\nm\0\n")),
        ("nothing", String::new()),
    ];
    for (number, (what, content)) in cases.iter().enumerate() {
        let mut pack = Pack::new(format);
        pack.object(kind::TREE, b"")?;
        let tip = pack.object(kind::TAG, content.as_bytes())?;
        try_pack(session, what, &format!("refs/tags/t{number}"), &tip, &pack)?;
    }
    Ok(())
}

fn modules(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    session.create()?;
    session.set_head("refs/heads/none")?;
    let section = |name: &str, rest: &str| format!("[submodule \"{name}\"]\n{rest}\n");
    let url = |url: &str| section("m", &format!("\tpath = m\n\turl = {url}"));
    let cases = [
        ("good", url("https://example.com/m.git")),
        ("relative", url("../m.git")),
        ("a url that is an option", url("-u./payload")),
        ("a url with a newline", url("\"https://example.com/%0aattack\"")),
        ("a url without a host", url("https:///path")),
        (
            "a relative url out of the host",
            url("../../../../:localhost:8080/m.git"),
        ),
        ("a path that is an option", section("m", "\tpath = -x\n\turl = ./x")),
        ("a name that climbs", section("../m", "\tpath = m\n\turl = ./x")),
        (
            "a name that climbs within",
            section("a/../m", "\tpath = m\n\turl = ./x"),
        ),
        ("an update command", section("m", "\turl = ./x\n\tupdate = !touch x")),
        ("an update word", section("m", "\turl = ./x\n\tupdate = rebase")),
        ("no settings file", "[bad\n".to_owned()),
        ("nothing", String::new()),
    ];
    for (number, (what, content)) in cases.iter().enumerate() {
        let mut pack = Pack::new(format);
        let blob = pack.object(kind::BLOB, content.as_bytes())?;
        try_modules(session, what, &format!("refs/heads/m{number}"), pack, &blob)?;
    }
    // The file's content may have come long before its name.
    let mut early = Pack::new(format);
    let bad = early.object(kind::BLOB, url("-u./other").as_bytes())?;
    try_pack(session, "bad content, other name", "refs/tags/early", &bad, &early)?;
    try_modules(
        session,
        "bad content came before",
        "refs/heads/late",
        Pack::new(format),
        &bad,
    )?;
    let absent = oid(format, kind::BLOB, b"absent");
    try_modules(session, "no content", "refs/heads/absent", Pack::new(format), &absent)
}

/// Pushes a commit whose `.gitmodules` is `blob`.
fn try_modules(session: &Session<'_>, what: &str, name: &str, mut pack: Pack, blob: &str) -> Result<()> {
    let tree = pack.object(kind::TREE, &tree(&[("100644", ".gitmodules", blob)])?)?;
    let tip = pack.object(kind::COMMIT, &crate::packs::commit(&tree, &[]))?;
    try_pack(session, what, name, &tip, &pack)
}

/// Severities that a repository's settings change.
fn overrides(session: &Session<'_>) -> Result<()> {
    let format = session.format();
    session.create()?;
    session.set_head("refs/heads/none")?;
    let content = format!(
        "tree {}\nauthor A <a@example.com> 01700000000 +0000\ncommitter {AUTHOR}\n\nm\n",
        oid(format, kind::TREE, b"")
    );
    let mut pack = Pack::new(format);
    pack.object(kind::TREE, b"")?;
    let tip = pack.object(kind::COMMIT, content.as_bytes())?;
    try_pack(session, "as it is", "refs/heads/one", &tip, &pack)?;
    session.set("receive.fsck.zeroPaddedDate", "ignore")?;
    try_pack(session, "ignored", "refs/heads/two", &tip, &pack)?;
    // Gone again, for whoever clones does not ignore it.
    let command = Command {
        old: &tip,
        new: format.zero(),
        name: "refs/heads/two",
    };
    let report = push(session, format.push_capabilities(), &[command], b"")?;
    session.record(&report.verdict());
    Ok(())
}
