//! Stock git as a client.

use crate::session::Session;
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SETTINGS: &str = "\
[user]
\tname = A U Thor
\temail = author@example.com
[init]
\tdefaultBranch = main
[advice]
\tdetachedHead = false
\tpushUpdateRejected = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[core]
\tfsync = none
[protocol]
\tallow = always
";

/// What every client process runs in: no settings of the machine or the user, fixed identity and time.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    variables: Vec<(String, String)>,
}

impl Environment {
    /// Keeps the settings file in `root`.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        // Where git looks that does not know GIT_CONFIG_GLOBAL (before 2.32).
        let settings = root.join(".gitconfig");
        std::fs::write(&settings, SETTINGS)?;
        let text = |path: &Path| path.display().to_string();
        let variables = [
            ("HOME", text(root)),
            ("GIT_CONFIG_GLOBAL", text(&settings)),
            ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
            ("GIT_TERMINAL_PROMPT", "0".to_owned()),
            ("GIT_CEILING_DIRECTORIES", text(root)),
            ("GIT_AUTHOR_DATE", "1700000000 +0000".to_owned()),
            ("GIT_COMMITTER_DATE", "1700000000 +0000".to_owned()),
            ("LC_ALL", "C".to_owned()),
            ("TZ", "UTC".to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Ok(Self { variables })
    }

    /// The same environment with more variables.
    pub(crate) fn with(mut self, variables: Vec<(String, String)>) -> Self {
        self.variables.extend(variables);
        self
    }

    /// The same with a line more in the settings file.
    pub(crate) fn set(self, key: &str, value: &str) -> Result<Self> {
        let mut command = self.command("git", Path::new("."));
        let output = command.args(["config", "--global", key, value]).output()?;
        ensure!(
            output.status.success(),
            "git config: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(self)
    }

    /// A command in this environment.
    pub(crate) fn command(&self, program: &str, directory: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(directory);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GIT_") {
                command.env_remove(name);
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Git in this environment, of the version that is to be tested.
    pub(crate) fn git(&self, directory: &Path) -> Command {
        let program = std::env::var(GIT).unwrap_or_else(|_| "git".to_owned());
        let mut command = self.command(&program, directory);
        if let Ok(path) = std::env::var(GIT_EXEC_PATH) {
            command.env("GIT_EXEC_PATH", path);
        }
        command
    }
}

/// The git that plays the client, and where the rest of it is.
const GIT: &str = "CUESTA_TEST_GIT";
const GIT_EXEC_PATH: &str = "CUESTA_TEST_GIT_EXEC_PATH";

/// A version of git: major and minor.
pub(crate) type Version = (u32, u32);

/// The version of the git that plays the client.
pub(crate) fn version() -> Result<Version> {
    let nowhere = Environment { variables: Vec::new() };
    let output = nowhere.git(Path::new(".")).arg("version").output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut numbers = said.split([' ', '.']).filter_map(|part| part.parse().ok());
    let version = numbers.next().zip(numbers.next());
    version.with_context(|| format!("git says '{}' for its version", said.trim_end()))
}

/// A client's directory.
pub(crate) struct Client<'s, 'h> {
    session: &'s Session<'h>,
    name: String,
    directory: PathBuf,
}

impl<'s, 'h> Client<'s, 'h> {
    /// The directory `name` of the session, made or not.
    pub(crate) fn new(session: &'s Session<'h>, name: &str) -> Self {
        Self {
            session,
            name: name.to_owned(),
            directory: session.root().join(name),
        }
    }

    /// Where it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs git and shows the transcript what the user would see: standard output, standard error, exit code.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<i32> {
        self.run_env(&[], arguments)
    }

    /// The same with more environment variables.
    pub(crate) fn run_env(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Result<i32> {
        let mut command = self.command(arguments);
        let output = command.envs(variables.iter().copied()).output()?;
        let code = output.status.code().context("git was killed")?;
        self.session
            .record(&format!("{}$ git {}", self.name, arguments.join(" ")));
        self.session.record(&String::from_utf8_lossy(&output.stdout));
        self.session.record(&String::from_utf8_lossy(&output.stderr));
        self.session.record(&format!("exit {code}"));
        Ok(code)
    }

    /// Like [`run`](Self::run), for what must succeed on every server.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> Result<()> {
        let code = self.run(arguments)?;
        ensure!(code == 0, "git {arguments:?} failed");
        Ok(())
    }

    /// Like [`run`](Self::run), for what every server must refuse.
    pub(crate) fn refused(&self, arguments: &[&str]) -> Result<()> {
        let code = self.run(arguments)?;
        ensure!(code != 0, "git {arguments:?} was not refused");
        Ok(())
    }

    /// Runs git unseen and returns its trimmed output; it must succeed.
    pub(crate) fn git(&self, arguments: &[&str]) -> Result<String> {
        let output = self.output(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git {arguments:?} failed: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Runs git unseen.
    pub(crate) fn output(&self, arguments: &[&str]) -> Result<Output> {
        Ok(self.command(arguments).output()?)
    }

    /// Runs git unseen with something to read; returns its output as bytes. It must succeed.
    pub(crate) fn feed(&self, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>> {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        let output = std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output()
        })?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git {arguments:?} failed: {said}");
        Ok(output.stdout)
    }

    /// Like [`feed`](Self::feed) where the output is one line, such as an oid.
    pub(crate) fn feed_line(&self, arguments: &[&str], input: &[u8]) -> Result<String> {
        let output = self.feed(arguments, input)?;
        Ok(String::from_utf8_lossy(&output).trim_end().to_owned())
    }

    /// Commits one file to `branch`, on top of it if it is there. Returns the commit.
    pub(crate) fn commit(&self, branch: &str, path: &str, content: &str) -> Result<String> {
        let mut history = self.session.history(0);
        let parent = self.git(&["rev-parse", "--verify", "--quiet", branch]);
        let parents: Vec<String> = parent.into_iter().collect();
        history.commit(branch, &parents, &[(path, Some(content))]);
        self.import(&history)?;
        self.git(&["rev-parse", branch])
    }

    /// Takes a generated history in.
    pub(crate) fn import(&self, history: &crate::history::History) -> Result<()> {
        self.feed(&["fast-import", "--quiet", "--force"], history.stream())
            .map(drop)
    }

    /// A bare clone `name` of this repository, two commits deep, that has the session's for its origin.
    pub(crate) fn cut(&self, name: &str) -> Result<Self> {
        let target = format!("../{name}");
        self.git(&["clone", "--quiet", "--no-local", "--depth=2", "--bare", ".", &target])?;
        let cut = Self::new(self.session, name);
        cut.git(&["config", "remote.origin.url", &self.session.url()])?;
        Ok(cut)
    }

    /// Shows the transcript every ref, every reachable object and whether all is well.
    pub(crate) fn record_state(&self) -> Result<()> {
        let refs = self.git(&["for-each-ref", "--format=%(objectname) %(refname) %(symref)"])?;
        self.session.record(&refs);
        self.record_objects()?;
        let checked = self.output(&["fsck", "--full", "--no-dangling"])?;
        let said = String::from_utf8_lossy(&checked.stderr);
        ensure!(checked.status.success(), "'{}' is broken: {said}", self.name);
        Ok(())
    }

    /// Shows the transcript which objects the refs reach.
    pub(crate) fn record_objects(&self) -> Result<()> {
        let listed = self.git(&["rev-list", "--objects", "--no-object-names", "--all"])?;
        let mut oids: Vec<&str> = listed.lines().collect();
        oids.sort_unstable();
        let digest = self.feed_line(&["hash-object", "--stdin"], oids.join("\n").as_bytes())?;
        let line = format!("{}: {} objects reachable, {digest}", self.name, oids.len());
        self.session.record(&line);
        Ok(())
    }

    /// How many objects the client has, wherever they are.
    pub(crate) fn object_count(&self) -> Result<u64> {
        let counts = self.git(&["count-objects", "-v"])?;
        let of = |name: &str| {
            let lines = counts.lines();
            lines
                .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse::<u64>().ok())
                .next()
        };
        Ok(of("count").context("no count")? + of("in-pack").context("no count in packs")?)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.session.environment().git(&self.directory);
        command.args(arguments).stdin(Stdio::null());
        command
    }
}
