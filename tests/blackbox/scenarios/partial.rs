//! Clients that have only a part: of the history (shallow), or of the objects (filters).

use super::Scenario;
use crate::client::Client;
use crate::session::Session;
use anyhow::Result;

const VERSIONS: [&str; 2] = ["0", "2"];
const FILTERS: [&str; 6] = [
    "blob:none",
    "blob:limit=300",
    "tree:0",
    "tree:1",
    "tree:3",
    "combine:tree:2+blob:none",
];
const TYPES: [&str; 1] = ["object:type=commit"];

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        Scenario::new("partial::filters", |session| filters(session, &FILTERS)),
        Scenario::new("partial::types", |session| filters(session, &TYPES)).since(|_| (2, 32)),
        Scenario::new("partial::refused", refused),
        Scenario::new("partial::shallow_too", shallow_too),
    ];
    for version in VERSIONS {
        let scenarios = [
            Scenario::new(format!("shallow::depths_v{version}"), depths(version)),
            Scenario::new(format!("shallow::excluded_v{version}"), excluded(version)),
            Scenario::new(format!("shallow::pushes_v{version}"), pushes(version)),
            Scenario::new(format!("partial::lazily_v{version}"), lazily(version)),
        ];
        all.extend(scenarios.map(|scenario| scenario.clones_over(version)));
    }
    all
}

/// A history with merges, some of it behind tags.
pub(super) fn publish<'s, 'h>(session: &'s Session<'h>) -> Result<Client<'s, 'h>> {
    let client = session.init("publisher")?;
    let mut history = session.history(81);
    history.tangle("b", 4, 40);
    client.import(&history)?;
    client.git(&["branch", "main", "b0"])?;
    client.git(&["tag", "light", "b0~3"])?;
    client.git(&["tag", "-a", "-m", "one", "annotated", "b1~2"])?;
    client.git(&["push", "--quiet", "--mirror", "origin"])?;
    session.set_head("refs/heads/main")?;
    Ok(client)
}

impl Client<'_, '_> {
    /// Shows the transcript where the history is cut, and what it holds.
    fn record_shallow(&self, session: &Session<'_>) -> Result<()> {
        let path = self.git(&["rev-parse", "--git-path", "shallow"])?;
        let text = std::fs::read_to_string(self.directory().join(path)).unwrap_or_default();
        let mut cuts: Vec<&str> = text.lines().collect();
        cuts.sort_unstable();
        session.record(&format!("cut at {}", cuts.join(" ")));
        self.record_state()
    }

    /// Shows the transcript which objects are here and which are missing, and fetches none.
    fn record_missing(&self, session: &Session<'_>) -> Result<()> {
        let arguments = ["rev-list", "--objects", "--no-object-names", "--missing=print", "--all"];
        let listed = self.git(&arguments)?;
        let mut oids: Vec<&str> = listed.lines().collect();
        oids.sort_unstable();
        let missing = oids.iter().filter(|oid| oid.starts_with('?')).count();
        let digest = self.feed_line(&["hash-object", "--stdin"], oids.join("\n").as_bytes())?;
        session.record(&format!("{} objects, {missing} of them missing: {digest}", oids.len()));
        Ok(())
    }
}

fn depths(version: &'static str) -> impl Fn(&Session<'_>) -> Result<()> {
    move |session| {
        let publisher = publish(session)?;
        let setting = format!("protocol.version={version}");
        let clone = |name: &str, options: &[&str]| session.clone_with(&["-c", &setting], name, options);
        let one = clone("one", &["--depth=1", "--no-single-branch"])?;
        one.record_shallow(session)?;
        let three = clone("three", &["--depth=3"])?;
        three.record_shallow(session)?;
        publisher.commit("main", "new", "1\n")?;
        publisher.git(&["push", "--quiet", "origin", "main"])?;
        // Git 2.47 deepens below refs that are not fetched, too, and 2.55 does not.
        three.succeed(&["-c", &setting, "fetch", "--deepen=2"])?;
        three.record_shallow(session)?;
        for options in [
            &[][..],
            &["--depth=2"],
            &["--depth=2"],
            &["--depth=10", "origin", "main"],
            &["--unshallow"],
        ] {
            for client in [&one, &three] {
                client.run(&[&["-c", &setting, "fetch"], options].concat())?;
                client.record_shallow(session)?;
            }
        }
        one.refused(&["-c", &setting, "fetch", "--unshallow"])?;
        clone("everything", &["--depth=2147483647"])?.record_shallow(session)
    }
}

fn excluded(version: &'static str) -> impl Fn(&Session<'_>) -> Result<()> {
    move |session| {
        let publisher = publish(session)?;
        let setting = format!("protocol.version={version}");
        let middle = publisher.git(&["log", "-1", "--format=%ct", "main~4"])?;
        let since = format!("--shallow-since={middle}");
        let clones = [
            &["--shallow-exclude=light"][..],
            &["--shallow-exclude=annotated", "--no-single-branch"],
            &["--shallow-exclude=b1", "--shallow-exclude=b2", "--branch=b3"],
            &[&since],
        ];
        for (number, options) in clones.into_iter().enumerate() {
            let name = format!("clone{number}");
            session
                .clone_with(&["-c", &setting], &name, options)?
                .record_shallow(session)?;
        }
        // What is refused is refused by both, but stock git may hang up without a word.
        let attempt = |client: &Client<'_, '_>, command: &[&str]| -> Result<()> {
            let output = client.output(&[&["-c", &setting], command].concat())?;
            session.record(&format!("{}: {}", command.join(" "), output.status.success()));
            if output.status.success() {
                session.record(&String::from_utf8_lossy(&output.stderr));
            }
            Ok(())
        };
        for nonsense in ["--shallow-exclude=nothing", "--shallow-since=4000000000"] {
            let arguments = ["clone", nonsense, &session.url(), "nonsense"];
            attempt(&Client::new(session, "."), &arguments)?;
        }
        let later = session.clone_with(&["-c", &setting], "later", &["--depth=1"])?;
        for options in [
            &[&since[..]][..],
            &["--shallow-exclude=light"],
            &["--shallow-exclude=b1"],
        ] {
            // Git 2.39 may want a tag that it excludes.
            attempt(&later, &[&["fetch"], options].concat())?;
            later.record_shallow(session)?;
        }
        Ok(())
    }
}

fn pushes(version: &'static str) -> impl Fn(&Session<'_>) -> Result<()> {
    move |session| {
        let publisher = publish(session)?;
        let setting = format!("protocol.version={version}");
        let shallow = session.clone_with(&["-c", &setting], "shallow", &["--depth=2"])?;
        shallow.commit("main", "mine", "1\n")?;
        shallow.succeed(&["push", "origin", "main"])?;
        shallow.succeed(&["push", "origin", "main:other", "main~1:refs/heads/before"])?;
        publisher.git(&["fetch", "--quiet", "origin", "main"])?;
        publisher.git(&["update-ref", "refs/heads/main", "FETCH_HEAD"])?;
        publisher.commit("main", "yours", "2\n")?;
        publisher.git(&["push", "--quiet", "origin", "main"])?;
        shallow.succeed(&["-c", &setting, "fetch"])?;
        shallow.record_shallow(session)?;
        // What the server does not know is cut off from its history, and cannot be taken.
        let stranger = session.init("stranger")?;
        let mut history = session.history(82);
        history.line("main", &[], 5);
        stranger.import(&history)?;
        let cut = stranger.cut("cut.git")?;
        cut.refused(&["push", "origin", "HEAD:refs/heads/strange"])
    }
}

fn filters(session: &Session<'_>, filters: &[&str]) -> Result<()> {
    publish(session)?;
    session.set("uploadpack.allowFilter", "true")?;
    for (number, filter) in filters.iter().enumerate() {
        let option = format!("--filter={filter}");
        let clone = session.clone(&format!("clone{number}"), &["--bare", &option])?;
        clone.record_missing(session)?;
    }
    Ok(())
}

/// Fetches what is missing when it is asked for: for a checkout, one by one, and behind what was pushed meanwhile.
fn lazily(version: &'static str) -> impl Fn(&Session<'_>) -> Result<()> {
    move |session| {
        let publisher = publish(session)?;
        session.set("uploadpack.allowFilter", "true")?;
        // Over v0 nothing else lets a client have what it lacks.
        session.set("uploadpack.allowAnySHA1InWant", "true")?;
        let setting = format!("protocol.version={version}");
        for (number, filter) in ["blob:none", "tree:0"].into_iter().enumerate() {
            let option = format!("--filter={filter}");
            let clone = session.clone_with(&["-c", &setting], &format!("clone{number}"), &[&option])?;
            clone.git(&["config", "protocol.version", version])?;
            clone.record_missing(session)?;
            session.record(&clone.git(&["ls-files", "--stage"])?);
            publisher.commit("main", &format!("new{number}"), "1\n")?;
            publisher.git(&["push", "--quiet", "origin", "main"])?;
            clone.succeed(&["fetch"])?;
            clone.record_missing(session)?;
            session.record(&clone.git(&["show", &format!("origin/main:new{number}")])?);
            session.record(&clone.git(&["log", "--stat", "--format=%H", "-2", "origin/b1"])?);
            clone.commit("main", "own", "2\n")?;
            clone.succeed(&["push", "--force", "origin", &format!("main:own{number}")])?;
            clone.record_state()?;
        }
        Ok(())
    }
}

/// Filters that the settings do not allow, and such as make no sense.
fn refused(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    // Not allowed: the client says so and does without.
    session
        .clone("unfiltered", &["--bare", "--filter=blob:none"])?
        .record_missing(session)?;
    session.set("uploadpack.allowFilter", "true")?;
    session.set("uploadpackfilter.tree.allow", "false")?;
    session.clone("tree", &["--bare", "--filter=tree:0"])?;
    session.clone("combined", &["--bare", "--filter=combine:blob:none+tree:2"])?;
    session.set("uploadpackfilter.allow", "false")?;
    session.clone("any", &["--bare", "--filter=blob:none"]).map(drop)
}

fn shallow_too(session: &Session<'_>) -> Result<()> {
    publish(session)?;
    session.set("uploadpack.allowFilter", "true")?;
    for (number, filter) in ["blob:none", "tree:0", "tree:3"].into_iter().enumerate() {
        let option = format!("--filter={filter}");
        let clone = session.clone(&format!("clone{number}"), &["--bare", "--depth=2", &option])?;
        clone.record_missing(session)?;
        clone.run(&["fetch", "--deepen=3", "origin", "main"])?;
        clone.record_missing(session)?;
    }
    Ok(())
}
