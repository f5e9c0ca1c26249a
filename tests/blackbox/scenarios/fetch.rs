//! Fetches, clones and ls-remote by stock git.

use super::Scenario;
use crate::client::Client;
use crate::session::Session;
use anyhow::Result;

const VERSIONS: [&str; 3] = ["0", "1", "2"];

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        Scenario::new("fetch::ls_remote", ls_remote),
        Scenario::new("fetch::empty", empty),
        Scenario::new("fetch::absent", absent),
        Scenario::new("fetch::clones", clones).clones_over("0"),
        Scenario::new("fetch::many_haves", many_haves),
        Scenario::new("fetch::tags", tags),
        Scenario::new("fetch::negotiate_only", negotiate_only).since(|_| (2, 32)),
        Scenario::new("fetch::sideband_all", sideband_all),
        Scenario::new("fetch::head", head),
        Scenario::new("fetch::by_oid", by_oid),
        Scenario::new("fetch::prune", prune),
        Scenario::new("fetch::returns", returns),
    ];
    for version in VERSIONS {
        let name = format!("fetch::incremental_v{version}");
        all.push(Scenario::new(name, incremental(version, "consecutive")).clones_over(version));
    }
    for algorithm in ["skipping", "noop"] {
        all.push(Scenario::new(
            format!("fetch::incremental_{algorithm}"),
            incremental("2", algorithm),
        ));
    }
    all
}

/// A repository with a bit of everything.
fn publish<'s, 'h>(session: &'s Session<'h>) -> Result<Client<'s, 'h>> {
    let client = session.init("publisher")?;
    let mut history = session.history(21);
    history.tangle("b", 4, 60);
    client.import(&history)?;
    client.git(&["branch", "main", "b0"])?;
    client.git(&["tag", "light", "b0~3"])?;
    client.git(&["tag", "-a", "-m", "one", "annotated", "b1"])?;
    client.git(&["tag", "-a", "-m", "two", "nested", "annotated"])?;
    client.git(&["tag", "-a", "-m", "tree", "tree", "b1^{tree}"])?;
    client.git(&["update-ref", "refs/pull/1/head", "b2"])?;
    client.git(&["push", "--quiet", "--mirror", "origin"])?;
    Ok(client)
}

fn ls_remote(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    let url = session.url();
    for version in VERSIONS {
        let setting = format!("protocol.version={version}");
        for arguments in [
            &[][..],
            &["--symref"],
            &["--branches"],
            &["--tags"],
            &["--refs"],
            &["--heads", "--tags"],
            &["--exit-code", "--symref"],
        ] {
            session.git(&[&["-c", &setting, "ls-remote"], arguments, &[&url]].concat())?;
        }
        for pattern in [
            "HEAD",
            "main",
            "refs/heads/*",
            "refs/tags/nested",
            "refs/pull/*/head",
            "none",
        ] {
            session.git(&["-c", &setting, "ls-remote", "--exit-code", &url, pattern])?;
        }
    }
    Ok(())
}

fn empty(session: &Session<'_>) -> Result<()> {
    session.create()?;
    for version in VERSIONS {
        let setting = format!("protocol.version={version}");
        session.git(&["-c", &setting, "ls-remote", "--symref", &session.url()])?;
        let clone = session.clone_with(
            &["-c", &setting, "-c", "init.defaultBranch=mine"],
            &format!("clone{version}"),
            &[],
        )?;
        clone.run(&["symbolic-ref", "HEAD"])?;
        clone.succeed(&["-c", &setting, "fetch"])?;
    }
    session.set_head("refs/heads/trunk")?;
    session.clone("trunk", &[])?.run(&["symbolic-ref", "HEAD"])?;
    session
        .clone("mirror", &["--mirror"])?
        .run(&["symbolic-ref", "HEAD"])
        .map(drop)
}

fn absent(session: &Session<'_>) -> Result<()> {
    session.create()?;
    let nothing = session.url().replace(".git", "-nothing.git");
    session.git(&["ls-remote", &nothing])?;
    session.git(&["clone", &nothing, "nothing"]).map(drop)
}

fn clones(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    for (number, options) in [
        &["--mirror"][..],
        &["--bare"],
        &["--no-tags"],
        &["--single-branch", "--branch", "b1"],
        &["--branch", "annotated"],
        &["--no-checkout", "--origin", "upstream"],
    ]
    .into_iter()
    .enumerate()
    {
        for version in VERSIONS {
            let setting = format!("protocol.version={version}");
            let name = format!("clone{number}v{version}");
            session.clone_with(&["-c", &setting], &name, options)?.record_state()?;
        }
    }
    session
        .clone_with(&["-c", "transfer.fsckObjects=true"], "checked", &[])?
        .record_state()
}

/// A client that lags, catches up, and has commits of its own.
fn incremental(version: &'static str, algorithm: &'static str) -> impl Fn(&Session<'_>) -> Result<()> {
    move |session| {
        let publisher = session.init("publisher")?;
        let mut history = session.history(31);
        history.tangle("b", 5, 200);
        publisher.import(&history)?;
        publisher.git(&[
            "push",
            "--quiet",
            "origin",
            "b0~30:refs/heads/b0",
            "b1~30:refs/heads/b1",
        ])?;
        session.set_head("refs/heads/b0")?;
        let settings = [
            "-c",
            &format!("protocol.version={version}"),
            "-c",
            &format!("fetch.negotiationAlgorithm={algorithm}"),
            "-c",
            "fetch.unpackLimit=1",
        ];
        let client = session.clone_with(&settings, "client", &[])?;
        for (step, refs) in [
            &["b0~20:refs/heads/b0"][..],
            &["b0~8:refs/heads/b0", "b1~12:refs/heads/b1"],
            &["b0", "b1", "b2", "b3", "b4"],
        ]
        .into_iter()
        .enumerate()
        {
            publisher.git(&[&["push", "--quiet", "--force", "origin"], refs].concat())?;
            client.commit("own", &format!("own{step}"), "mine\n")?;
            let before = client.object_count()?;
            client.succeed(&[&settings[..], &["fetch"]].concat())?;
            if algorithm != "noop" {
                session.measure(&format!("objects of fetch {step}"), client.object_count()? - before);
            }
            client.record_state()?;
            client.succeed(&[&settings[..], &["fetch"]].concat())?;
        }
        Ok(())
    }
}

/// Thousands of commits that the server has never seen: many rounds, large gzip'd requests.
fn many_haves(session: &Session<'_>) -> Result<()> {
    let publisher = session.init("publisher")?;
    let mut shared = session.history(41);
    shared.line("main", &[], 20);
    publisher.import(&shared)?;
    publisher.git(&["push", "--quiet", "origin", "main~5:refs/heads/main"])?;
    let client = session.clone("client", &["--quiet"])?;
    let mut own = session.history(42);
    let mut parents = vec![client.git(&["rev-parse", "main"])?];
    for number in 0..5000 {
        let branch = format!("own{}", number % 3);
        parents = vec![own.commit(&branch, &parents, &[("own", Some(&format!("{number}\n")))])];
    }
    client.import(&own)?;
    publisher.git(&["push", "--quiet", "origin", "main"])?;
    for version in VERSIONS {
        client.git(&["update-ref", "refs/remotes/origin/main", "main"])?;
        let setting = format!("protocol.version={version}");
        client.succeed(&["-c", &setting, "fetch", "origin"])?;
    }
    client.record_state()?;
    // Unrelated altogether: everything is sent.
    let stranger = session.init("stranger")?;
    let mut strange = session.history(43);
    strange.line("strange", &[], 600);
    stranger.import(&strange)?;
    stranger.succeed(&["fetch", "origin"])?;
    stranger.record_state()
}

fn tags(session: &Session<'_>) -> Result<()> {
    let publisher = session.init("publisher")?;
    publisher.commit("main", "a", "1\n")?;
    publisher.git(&["push", "--quiet", "origin", "main"])?;
    let plain = session.clone("plain", &["--quiet"])?;
    let without = session.clone("without", &["--quiet", "--no-tags"])?;
    publisher.commit("main", "a", "2\n")?;
    publisher.git(&["tag", "-a", "-m", "followed", "followed", "main"])?;
    publisher.git(&["tag", "-a", "-m", "nested", "nested", "followed"])?;
    publisher.git(&["tag", "light", "main"])?;
    publisher.commit("side", "b", "1\n")?;
    publisher.git(&["tag", "-a", "-m", "aside", "aside", "side"])?;
    publisher.git(&["push", "--quiet", "origin", "main", "--tags"])?;
    for client in [&plain, &without] {
        client.succeed(&["fetch"])?;
        client.record_state()?;
    }
    plain.succeed(&["fetch", "--tags"])?;
    plain.record_state()?;
    without.succeed(&["fetch", "origin", "tag", "aside"])?;
    without.record_state()
}

fn negotiate_only(session: &Session<'_>) -> Result<()> {
    let publisher = session.init("publisher")?;
    let mut history = session.history(51);
    history.line("main", &[], 30);
    publisher.import(&history)?;
    publisher.git(&["push", "--quiet", "origin", "main~10:refs/heads/main"])?;
    publisher.git(&["branch", "side", "main~15"])?;
    publisher.commit("side", "x", "1\n")?;
    for tips in [&["main"], &["side"]] {
        let tips: Vec<String> = tips.iter().map(|tip| format!("--negotiation-tip={tip}")).collect();
        let tips: Vec<&str> = tips.iter().map(String::as_str).collect();
        let arguments = [&["fetch", "--negotiate-only"], &tips[..], &["origin"]].concat();
        let found = publisher.git(&arguments)?;
        // Stock git leaves out the parents of what it has acknowledged; a server need not.
        let found: Vec<&str> = found.lines().collect();
        let heads = publisher.git(&[&["merge-base", "--independent"], &found[..]].concat())?;
        session.record(&format!("common for {tips:?}:\n{heads}"));
    }
    Ok(())
}

fn sideband_all(session: &Session<'_>) -> Result<()> {
    let publisher = publish(session)?;
    session.set("uploadpack.allowSidebandAll", "true")?;
    let variables = [("GIT_TEST_SIDEBAND_ALL", "1")];
    let outside = Client::new(session, ".");
    outside.run_env(&variables, &["clone", &session.url(), "client"])?;
    let client = Client::new(session, "client");
    publisher.commit("main", "new", "1\n")?;
    publisher.git(&["push", "--quiet", "origin", "main"])?;
    client.run_env(&variables, &["fetch"])?;
    client.record_state()
}

fn head(session: &Session<'_>) -> Result<()> {
    let publisher = session.init("publisher")?;
    publisher.commit("main", "a", "1\n")?;
    publisher.commit("trunk", "b", "2\n")?;
    publisher.git(&["push", "--quiet", "origin", "main", "trunk"])?;
    let client = session.clone("client", &[])?;
    client.record_state()?;
    for target in ["refs/heads/trunk", "refs/heads/unborn", "refs/heads/main"] {
        session.set_head(target)?;
        for version in VERSIONS {
            let setting = format!("protocol.version={version}");
            session.git(&["-c", &setting, "ls-remote", "--symref", &session.url()])?;
            client.run(&["-c", &setting, "remote", "set-head", "origin", "--auto"])?;
            client.run(&["-c", &setting, "remote", "show", "origin"])?;
        }
        let name = target.replace('/', "-");
        let clone = session.clone(&name, &[])?;
        clone.run(&["symbolic-ref", "HEAD"])?;
    }
    Ok(())
}

fn by_oid(session: &Session<'_>) -> Result<()> {
    let publisher = publish(session)?;
    let tip = publisher.git(&["rev-parse", "b1"])?;
    let inner = publisher.git(&["rev-parse", "b1~4"])?;
    let tag = publisher.git(&["rev-parse", "nested"])?;
    let unknown = session.format().absent();
    for version in VERSIONS {
        let setting = format!("protocol.version={version}");
        for (number, want) in [&tip, &tag, &inner, unknown].into_iter().enumerate() {
            let client = session.init(&format!("client{version}{number}"))?;
            // Over v0 stock git lets nobody want what no ref names; Cuesta is kinder over stateless HTTP.
            if version == "2" || number < 2 || number == 3 {
                client.run(&["-c", &setting, "fetch", "origin", want])?;
                client.record_state()?;
            }
        }
    }
    let client = session.init("several")?;
    client.run(&[
        "fetch",
        "origin",
        "main:one",
        "refs/tags/tree:refs/tags/other",
        "refs/pull/*:refs/pull/*",
    ])?;
    client.run(&["fetch", "origin", "refs/heads/none:refs/heads/none"])?;
    client.record_state()
}

fn prune(session: &Session<'_>) -> Result<()> {
    let publisher = session.init("publisher")?;
    publisher.commit("main", "a", "1\n")?;
    publisher.git(&["push", "--quiet", "origin", "main", "main:a", "main:b/c"])?;
    let client = session.clone("client", &[])?;
    publisher.git(&["push", "--quiet", "origin", ":a", ":b/c", "main:b"])?;
    client.run(&["fetch"])?;
    client.succeed(&["fetch", "--prune"])?;
    client.record_state()
}

/// A client that has less than its refs' history would let a server think is in order: it keeps a branch that was
/// rewound and pushed anew.
fn returns(session: &Session<'_>) -> Result<()> {
    let publisher = session.init("publisher")?;
    let mut history = session.history(61);
    history.line("main", &[], 12);
    publisher.import(&history)?;
    publisher.git(&["push", "--quiet", "origin", "main"])?;
    let client = session.clone("client", &["--quiet"])?;
    publisher.git(&["push", "--quiet", "--force", "origin", "main~6:refs/heads/main"])?;
    client.succeed(&["fetch"])?;
    publisher.git(&["branch", "-f", "main", "main~6"])?;
    publisher.commit("main", "again", "1\n")?;
    publisher.git(&["push", "--quiet", "origin", "main"])?;
    client.succeed(&["fetch"])?;
    client.record_state()
}
