//! Pushes by stock git.

use super::Scenario;
use crate::client::Client;
use crate::format::Format;
use crate::session::Session;
use anyhow::{Result, ensure};

const VERSIONS: [&str; 3] = ["0", "1", "2"];
/// A history whose pack is large enough for chunked bodies and for index-pack rather than unpack-objects.
const LARGE_COMMITS: u32 = 150;

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        Scenario::new("push::update", update),
        Scenario::new("push::delete", delete),
        Scenario::new("push::delete_current", delete_current),
        Scenario::new("push::force", force),
        Scenario::new("push::lease", lease),
        Scenario::new("push::many_refs", many_refs),
        Scenario::new("push::atomic", atomic),
        Scenario::new("push::tags", tags),
        Scenario::new("push::odd_targets", odd_targets),
        Scenario::new("push::mirror", mirror),
        Scenario::new("push::prune", prune),
        Scenario::new("push::deltas", deltas),
        Scenario::new("push::no_thin", no_thin),
        Scenario::new("push::quiet_and_porcelain", quiet_and_porcelain),
        Scenario::new("push::chunked", chunked).over_http(),
        Scenario::new("push::expect", expect).over_http(),
        Scenario::new("push::negotiate", negotiate),
        Scenario::new("push::deny_non_fast_forwards", deny_non_fast_forwards),
        Scenario::new("push::deny_deletes", deny_deletes),
        Scenario::new("push::hidden", hidden),
        Scenario::new("push::name_conflicts", name_conflicts),
        Scenario::new("push::options", options),
        // Signatures by keys of SSH.
        Scenario::new("push::signed", signed).since(|_| (2, 34)),
        Scenario::new("push::everyday", everyday).clones_over("0"),
        Scenario::new("push::wrong_format", wrong_format),
        Scenario::new("push::tangle", tangle),
        Scenario::new("push::returns", returns),
        Scenario::new("push::shallow_client", shallow_client),
    ];
    all.extend(VERSIONS.map(|version| Scenario::new(format!("push::create_v{version}"), create(version))));
    all
}

fn create(version: &'static str) -> impl Fn(&Session<'_>) -> Result<()> {
    move |session| {
        let client = session.init("client")?;
        client.commit("main", "a", "1\n")?;
        let setting = format!("protocol.version={version}");
        client.succeed(&["-c", &setting, "push", "-u", "origin", "main"])?;
        client.succeed(&["-c", &setting, "push", "origin", "main"])?;
        client.commit("main", "b/c", "2\n")?;
        client.succeed(&["-c", &setting, "push", "origin", "main:side", "main"])
    }
}

fn update(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    for number in 0..4 {
        client.commit("main", "file", &format!("{number}\n"))?;
        client.succeed(&["push", "origin", "main"])?;
    }
    client.git(&["branch", "side", "main~2"])?;
    client.succeed(&[
        "push",
        "origin",
        "side",
        "side:refs/heads/deep/er/name",
        "main:refs/notes/x",
    ])?;
    client.commit("side", "other", "5\n")?;
    client.succeed(&["push", "origin", "side"])?;
    // Another client did not see that.
    let stale = session.clone("stale", &["--quiet"])?;
    client.commit("main", "file", "newer\n")?;
    client.succeed(&["push", "origin", "main"])?;
    stale.commit("main", "file", "other\n")?;
    stale.refused(&["push", "origin", "main"])
}

fn delete(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.succeed(&["push", "origin", "main", "main:one", "main:two", "main:refs/tags/t"])?;
    client.succeed(&["push", "origin", ":one"])?;
    client.succeed(&["push", "--delete", "origin", "two", "refs/tags/t"])?;
    client.refused(&["push", "origin", "--delete", "two"])?;
    client.succeed(&["push", "origin", ":refs/heads/never"])?;
    client.commit("main", "a", "2\n")?;
    client.succeed(&["push", "origin", "main:three", "main"])?;
    client.succeed(&["push", "origin", ":three", "main:four"])
}

fn delete_current(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.succeed(&["push", "origin", "main", "main:other"])?;
    client.refused(&["push", "origin", ":main"])?;
    session.set("receive.denyDeleteCurrent", "ignore")?;
    client.succeed(&["push", "origin", ":main"])
}

fn force(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.commit("main", "a", "2\n")?;
    client.succeed(&["push", "origin", "main"])?;
    client.git(&["update-ref", "refs/heads/main", "main~1"])?;
    client.refused(&["push", "origin", "main"])?;
    client.commit("main", "a", "3\n")?;
    client.refused(&["push", "origin", "main"])?;
    client.succeed(&["push", "--force", "origin", "main"])?;
    client.succeed(&["push", "origin", "+main~1:main"])
}

fn lease(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    let first = client.commit("main", "a", "1\n")?;
    client.succeed(&["push", "origin", "main"])?;
    let other = session.clone("other", &["--quiet"])?;
    other.commit("main", "a", "theirs\n")?;
    other.succeed(&["push", "origin", "main"])?;
    client.commit("main", "a", "mine\n")?;
    client.refused(&["push", &format!("--force-with-lease=main:{first}"), "origin", "main"])?;
    client.git(&["fetch", "origin"])?;
    client.succeed(&["push", "--force-with-lease", "origin", "main"])
}

fn many_refs(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    let tip = client.commit("main", "a", "1\n")?;
    let refs: String = (0..1000)
        .map(|number| format!("create refs/heads/many/{}/{number} {tip}\n", number % 7))
        .collect();
    client.feed(&["update-ref", "--stdin"], refs.as_bytes())?;
    client.succeed(&[
        "push",
        "--quiet",
        "origin",
        "main",
        "refs/heads/many/*:refs/heads/many/*",
    ])?;
    client.succeed(&[
        "push",
        "--quiet",
        "--atomic",
        "origin",
        "refs/heads/many/*:refs/copies/*",
    ])?;
    client.succeed(&[
        "push",
        "--quiet",
        "--prune",
        "origin",
        "refs/heads/copies/*:refs/copies/*",
    ])?;
    session
        .git(&["ls-remote", &session.url(), "refs/heads/many/3/*"])
        .map(drop)
}

fn atomic(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.succeed(&["push", "--atomic", "origin", "main", "main:one", "main:two"])?;
    client.commit("main", "a", "2\n")?;
    client.succeed(&["push", "--atomic", "origin", "main", "main:one", ":two", "main:three"])?;
    session.set("receive.denyNonFastForwards", "true")?;
    client.commit("main", "a", "3\n")?;
    // One bad ref: all stay as they are. Without --atomic the good ones move.
    client.refused(&[
        "push",
        "--atomic",
        "origin",
        "main",
        "+main~2:one",
        ":three",
        "main:four",
    ])?;
    session.git(&["ls-remote", &session.url()])?;
    client.refused(&["push", "origin", "main", "+main~2:one", "main:four"])?;
    client.refused(&["push", "--atomic", "origin", "main:five", "main~2:three"])
}

fn tags(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.git(&["tag", "light", "main"])?;
    client.git(&["tag", "-a", "-m", "one", "annotated", "main"])?;
    client.git(&["tag", "-a", "-m", "two", "nested", "annotated"])?;
    client.git(&["tag", "-a", "-m", "three", "deeper", "nested"])?;
    client.succeed(&["push", "origin", "deeper"])?;
    client.succeed(&["push", "origin", "main", "--tags"])?;
    client.commit("main", "a", "2\n")?;
    client.git(&["tag", "-a", "-m", "four", "followed", "main"])?;
    client.succeed(&["push", "--follow-tags", "origin", "main"])?;
    client.git(&["tag", "-f", "-a", "-m", "moved", "annotated", "main"])?;
    client.refused(&["push", "origin", "annotated"])?;
    client.succeed(&["push", "--force", "origin", "annotated"])?;
    client.succeed(&["push", "origin", ":nested"])
}

fn odd_targets(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "dir/a", "1\n")?;
    client.git(&["tag", "tree", "main:dir"])?;
    client.git(&["tag", "blob", "main:dir/a"])?;
    client.git(&["tag", "-a", "-m", "t", "tree-tag", "main^{tree}"])?;
    client.git(&["tag", "-a", "-m", "b", "blob-tag", "main:dir/a"])?;
    client.succeed(&["push", "origin", "tree", "blob-tag"])?;
    client.succeed(&["push", "origin", "main", "--tags"])?;
    let loose = client.feed_line(&["hash-object", "-w", "--stdin"], b"in no tree\n")?;
    client.succeed(&["push", "origin", &format!("{loose}:refs/things/blob")])?;
    client.refused(&["push", "origin", &format!("{loose}:refs/heads/blob")])?;
    client.refused(&["push", "origin", "tree-tag:refs/heads/tag"])
}

fn mirror(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    let mut history = session.history(3);
    history.tangle("b", 5, 40);
    client.import(&history)?;
    client.git(&["tag", "-a", "-m", "t", "t", "b0"])?;
    client.git(&["update-ref", "refs/odd/one", "b1"])?;
    client.git(&["symbolic-ref", "HEAD", "refs/heads/b0"])?;
    client.succeed(&["push", "--mirror", "origin"])?;
    // Where HEAD of a repository made by this push is in any case.
    session.set_head("refs/heads/b0")?;
    client.git(&["branch", "-D", "b1"])?;
    client.git(&["branch", "-f", "b2", "b3~2"])?;
    client.git(&["branch", "new", "b3"])?;
    client.succeed(&["push", "--mirror", "origin"])?;
    client.succeed(&["push", "--mirror", "origin"])
}

fn prune(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.succeed(&["push", "origin", "main", "main:gone", "main:also/gone"])?;
    client.succeed(&["push", "--prune", "--all", "origin"])
}

/// Packs as different as git can be told to make them.
fn deltas(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    let mut history = session.history(5);
    let mut parents = Vec::new();
    for (number, settings) in [
        ["pack.depth=50", "pack.window=50"],
        ["repack.useDeltaBaseOffset=false", "pack.depth=3"],
        ["pack.compression=0", "pack.window=0"],
        ["pack.compression=9", "pack.depth=250"],
        ["core.bigFileThreshold=1", "pack.threads=1"],
    ]
    .into_iter()
    .enumerate()
    {
        let mut part = session.history(10 + number as u64);
        part.line("main", &parents, LARGE_COMMITS);
        client.import(&part)?;
        parents = vec![client.git(&["rev-parse", "main"])?];
        let [one, two] = settings;
        client.git(&["-c", one, "-c", two, "repack", "-a", "-d", "-f", "-q"])?;
        client.succeed(&["-c", one, "-c", two, "push", "origin", "main"])?;
    }
    history.commit("main", &parents, &[("last", Some("x"))]);
    client.import(&history)?;
    client.succeed(&["push", "origin", "main"])
}

fn no_thin(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    let mut text: String = (0..500).map(|line| format!("line {line}\n")).collect();
    for number in 0..6 {
        text += &format!("more {number}\n");
        client.commit("main", "file", &text)?;
        let thin = if number % 2 == 0 { "--thin" } else { "--no-thin" };
        client.succeed(&["push", thin, "origin", "main"])?;
    }
    Ok(())
}

fn quiet_and_porcelain(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.succeed(&["push", "--dry-run", "origin", "main"])?;
    client.succeed(&["push", "--quiet", "origin", "main"])?;
    client.commit("main", "a", "2\n")?;
    client.succeed(&["push", "--porcelain", "origin", "main", "main:other"])?;
    client.succeed(&["push", "--no-progress", "--verbose", "origin", "main"])?;
    client.refused(&["push", "--porcelain", "origin", "main~1:main"])
}

/// Bodies too large for the buffer: first a probe, then chunks.
fn chunked(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    let mut history = session.history(7);
    history.line("main", &[], LARGE_COMMITS);
    client.import(&history)?;
    client.succeed(&[
        "-c",
        "http.postBuffer=1",
        "-c",
        "pack.compression=0",
        "push",
        "origin",
        "main",
    ])?;
    client.git(&["branch", "side", "main~3"])?;
    client.succeed(&["-c", "http.postBuffer=1", "push", "origin", "side"])?;
    client.succeed(&["-c", "http.postBuffer=1", "push", "origin", ":side"])
}

fn expect(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.succeed(&["-c", "http.extraHeader=Expect: 100-continue", "push", "origin", "main"])?;
    let mut history = session.history(8);
    history.line("other", &[], LARGE_COMMITS);
    client.import(&history)?;
    let settings = ["-c", "http.extraHeader=Expect: 100-continue", "-c", "http.postBuffer=1"];
    client.succeed(&[&settings[..], &["push", "origin", "other"]].concat())
}

fn negotiate(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    let mut history = session.history(9);
    history.line("main", &[], 40);
    client.import(&history)?;
    client.succeed(&["push", "origin", "main"])?;
    client.git(&["branch", "-f", "side", "main~20"])?;
    client.commit("side", "new", "1\n")?;
    client.succeed(&["-c", "push.negotiate=true", "push", "origin", "side"])
}

fn deny_non_fast_forwards(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.commit("main", "a", "2\n")?;
    client.succeed(&["push", "origin", "main"])?;
    session.set("receive.denyNonFastForwards", "true")?;
    client.git(&["update-ref", "refs/heads/main", "main~1"])?;
    client.commit("main", "a", "3\n")?;
    client.refused(&["push", "--force", "origin", "main"])?;
    client.refused(&["push", "--force", "origin", "main", "main:new"])?;
    client.succeed(&["push", "origin", ":new", "main:refs/tags/t"])?;
    client.succeed(&["push", "--force", "origin", "main~1:refs/tags/t"])
}

fn deny_deletes(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.succeed(&["push", "origin", "main", "main:other"])?;
    session.set("receive.denyDeletes", "true")?;
    client.refused(&["push", "origin", ":other"])?;
    client.refused(&["push", "origin", ":other", "main:third"])
}

fn hidden(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.succeed(&[
        "push",
        "origin",
        "main",
        "main:refs/secret/one",
        "main:refs/secretive/one",
    ])?;
    session.set("transfer.hideRefs", "refs/secret")?;
    session.git(&["ls-remote", &session.url()])?;
    client.refused(&["push", "origin", "main:refs/secret/two"])?;
    client.refused(&["push", "--force", "origin", "main:refs/secret/one", "main:fine"])?;
    session
        .git(&["-c", "protocol.version=0", "ls-remote", &session.url()])
        .map(drop)
}

fn name_conflicts(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.succeed(&["push", "origin", "main", "main:x/y"])?;
    client.refused(&["push", "origin", "main:x"])?;
    client.refused(&["push", "origin", "main:x/y/z"])?;
    client.succeed(&["push", "origin", "main:x-y", "main:x.y"])?;
    client.succeed(&["push", "origin", ":x/y"])?;
    client.succeed(&["push", "origin", "main:x"])
}

fn options(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.succeed(&["push", "origin", "main"])?;
    client.refused(&["push", "-o", "one=1", "origin", "main:new"])?;
    session.set("receive.advertisePushOptions", "true")?;
    client.succeed(&["push", "-o", "one=1", "-o", "two", "origin", "main:new"])
}

fn signed(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    let mut keygen = session.environment().command("ssh-keygen", session.root());
    let made = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", "key"]).output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let key = session.root().join("key").display().to_string();
    client.git(&["config", "gpg.format", "ssh"])?;
    client.git(&["config", "user.signingKey", &key])?;
    client.succeed(&["push", "origin", "main"])?;
    client.refused(&["push", "--signed", "origin", "main:new"])?;
    client.succeed(&["push", "--signed=if-asked", "origin", "main:asked"])?;
    session.set("receive.certNonceSeed", "seed")?;
    client.succeed(&["push", "--signed", "origin", "main:new"])?;
    client.commit("main", "a", "2\n")?;
    client.succeed(&["push", "--signed", "--atomic", "origin", ":asked", "main", "main:other"])?;
    session.set("receive.advertisePushOptions", "true")?;
    client.succeed(&["push", "--signed", "-o", "one", "origin", "main:with-option"])
}

fn everyday(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.commit("main", "dir/b", "2\n")?;
    client.git(&["tag", "-a", "-m", "t", "t", "main"])?;
    client.succeed(&["push", "origin", "main~1:refs/heads/main"])?;
    client.succeed(&["push", "origin", "main", "t"])?;
    let clone = session.clone("clone", &[])?;
    clone.record_state()?;
    client.commit("main", "a", "3\n")?;
    client.succeed(&["push", "origin", "main"])?;
    for version in VERSIONS {
        let setting = format!("protocol.version={version}");
        clone.succeed(&["-c", &setting, "fetch"])?;
        session
            .clone_with(&["-c", &setting], &format!("clone{version}"), &["--bare"])?
            .record_state()?;
    }
    Ok(())
}

fn wrong_format(session: &Session<'_>) -> Result<()> {
    session.create()?;
    let other = match session.format() {
        Format::Sha1 => Format::Sha256,
        Format::Sha256 => Format::Sha1,
    };
    let client = session.init_with("client", other)?;
    client.commit("main", "a", "1\n")?;
    client.refused(&["push", "origin", "main"])
}

fn tangle(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    let mut history = session.history(11);
    history.tangle("b", 6, 250);
    client.import(&history)?;
    // In pieces, so that each push builds on layers that earlier ones laid.
    push_in_steps(&client, &["b0~30", "b1~10", "b0~10", "b1"])?;
    session.set_head("refs/heads/b0")?;
    client.succeed(&["push", "--all", "origin"])
}

fn push_in_steps(client: &Client<'_, '_>, steps: &[&str]) -> Result<()> {
    for step in steps {
        let known = client.output(&["rev-parse", "--verify", "--quiet", step])?;
        if known.status.success() {
            client.succeed(&["push", "--force", "origin", &format!("{step}:refs/heads/step")])?;
        }
    }
    Ok(())
}

/// Objects that come back after every ref to them was deleted.
fn returns(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    client.commit("main", "a", "1\n")?;
    client.commit("side", "b", "2\n")?;
    for _ in 0..2 {
        client.succeed(&["push", "origin", "main", "side"])?;
        client.succeed(&["push", "origin", ":side"])?;
    }
    client.succeed(&["push", "origin", "side:again"])
}

fn shallow_client(session: &Session<'_>) -> Result<()> {
    let client = session.init("client")?;
    for number in 0..4 {
        client.commit("main", "a", &format!("{number}\n"))?;
    }
    client.succeed(&["push", "origin", "main"])?;
    let shallow = client.cut("shallow.git")?;
    shallow.commit("main", "b", "new\n")?;
    shallow.succeed(&["push", "origin", "main"])
}
