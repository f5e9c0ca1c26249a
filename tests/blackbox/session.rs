//! One run of a scenario: a repository on a server, client directories, and the transcript of what clients show.

use crate::client::{Client, Environment};
use crate::cuesta::Cuesta;
use crate::format::Format;
use crate::history::History;
use crate::scenarios::Scenario;
use crate::ssh;
use crate::stock;
use crate::transcript::{REASONS, Transcript};
use crate::way::{Transport, Way};
use anyhow::{Context, Result, ensure};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Who all repositories of the suite belong to.
const OWNER: &str = "suite";

/// A server under test.
pub(crate) enum Host {
    /// `git http-backend`.
    Stock {
        /// Where it listens.
        address: SocketAddr,
        /// Where its `git daemon` does.
        git_address: SocketAddr,
        /// Its repositories.
        directory: TempDir,
    },
    /// The binary.
    Cuesta {
        /// The process.
        server: Cuesta,
        /// Its files.
        #[expect(dead_code, reason = "kept until the server is gone")]
        directory: TempDir,
    },
}

impl Host {
    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Stock { address, .. } => *address,
            Self::Cuesta { server, .. } => server.address(),
        }
    }

    /// Where it listens for `git://`.
    fn git_address(&self) -> SocketAddr {
        match self {
            Self::Stock { git_address, .. } => *git_address,
            Self::Cuesta { server, .. } => server.git_address(),
        }
    }
}

/// A repository on a server, as one scenario sees it.
pub(crate) struct Session<'a> {
    host: &'a Host,
    way: Way,
    repository: String,
    environment: Environment,
    root: TempDir,
    transcript: RefCell<Transcript>,
}

impl<'a> Session<'a> {
    /// Runs a scenario and returns what clients were shown.
    pub(crate) fn run(host: &'a Host, way: Way, scenario: &Scenario) -> Result<Transcript> {
        let session = Self::new(host, way, &scenario.name.replace("::", "-"))?;
        let outcome = (scenario.run)(&session).and_then(|()| session.audit());
        let transcript = session.transcript.into_inner();
        outcome.with_context(|| format!("after:\n{transcript}"))?;
        Ok(transcript)
    }

    fn new(host: &'a Host, way: Way, name: &str) -> Result<Self> {
        let root = tempfile::tempdir()?;
        let environment = Environment::new(root.path())?;
        let session = Self {
            host,
            way,
            repository: format!("{OWNER}/{name}-{way}"),
            environment: match way.transport {
                Transport::Http => environment,
                Transport::Ssh => environment.with(ssh::variables(host)?),
                Transport::Git => {
                    // Nobody pushes there.
                    let (http, git) = (host.address(), host.git_address());
                    environment.set(&format!("url.http://{http}/.pushInsteadOf"), &format!("git://{git}/"))?
                }
            },
            root,
            transcript: RefCell::default(),
        };
        if matches!(host, Host::Stock { .. }) || way.format != Format::Sha1 {
            session.make()?;
        }
        Ok(session)
    }

    fn stock_name(&self) -> String {
        format!("{}.git", self.repository)
    }

    /// The server's address.
    pub(crate) fn address(&self) -> SocketAddr {
        match self.host {
            host if self.way.transport == Transport::Git => host.git_address(),
            Host::Cuesta { server, .. } if self.way.transport == Transport::Ssh => server.ssh_address(),
            host => host.address(),
        }
    }

    /// Whether the server is Cuesta: for what stock git does worse, or cannot do.
    pub(crate) fn is_cuesta(&self) -> bool {
        matches!(self.host, Host::Cuesta { .. })
    }

    /// What carries requests.
    pub(crate) fn transport(&self) -> Transport {
        self.way.transport
    }

    /// What names objects.
    pub(crate) fn format(&self) -> Format {
        self.way.format
    }

    /// A new history for this repository.
    pub(crate) fn history(&self, seed: u64) -> History {
        History::new(self.format(), seed)
    }

    /// The path of the repository's URL.
    pub(crate) fn path(&self) -> String {
        format!("/{}.git", self.repository)
    }

    /// The repository's URL.
    pub(crate) fn url(&self) -> String {
        let scheme = match self.way.transport {
            Transport::Http => "http://",
            Transport::Ssh => "ssh://git@",
            Transport::Git => "git://",
        };
        format!("{scheme}{}{}", self.address(), self.path())
    }

    /// What git would run to reach a service over SSH.
    pub(crate) fn ssh(&self, service: &str, protocol: &str) -> Result<Command> {
        let address = self.address();
        let mut command = self.environment.command(&ssh::program()?, self.root());
        command.args(["-p", &address.port().to_string(), &format!("git@{}", address.ip())]);
        command.arg(format!("{service} '{}'", self.path()));
        if !protocol.is_empty() {
            command.env("GIT_PROTOCOL", protocol);
        }
        Ok(command)
    }

    /// Where the session keeps files.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// The environment of every client.
    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Makes the repository before anything is pushed. Without this one with sha1 ids is made by the first push; any other is
    /// there from the beginning.
    pub(crate) fn create(&self) -> Result<()> {
        match self.format() {
            Format::Sha1 => self.make(),
            Format::Sha256 => Ok(()),
        }
    }

    fn make(&self) -> Result<()> {
        match self.host {
            Host::Stock { directory, .. } => stock::create(directory.path(), &self.stock_name(), self.format()),
            Host::Cuesta { server, .. } => {
                let format = self.format().to_string();
                let arguments = ["repo", "create", &self.repository, "--object-format", &format];
                server.options().run(&arguments).map(drop)
            }
        }
    }

    /// Changes one of the repository's settings, by git's name. The repository must be there.
    pub(crate) fn set(&self, key: &str, value: &str) -> Result<()> {
        match self.host {
            Host::Stock { directory, .. } => {
                stock::git(directory.path(), &self.stock_name(), &["config", "--add", key, value])
            }
            Host::Cuesta { server, .. } => server
                .options()
                .run(&["repo", "config", &self.repository, key, value])
                .map(drop),
        }
    }

    /// Makes the server's HEAD name another branch.
    pub(crate) fn set_head(&self, target: &str) -> Result<()> {
        match self.host {
            Host::Stock { directory, .. } => {
                stock::git(directory.path(), &self.stock_name(), &["symbolic-ref", "HEAD", target])
            }
            Host::Cuesta { server, .. } => server
                .options()
                .run(&["repo", "set-head", &self.repository, target])
                .map(drop),
        }
    }

    /// A new bare repository of the client, with the server's as `origin`.
    pub(crate) fn init(&self, name: &str) -> Result<Client<'_, 'a>> {
        self.init_with(name, self.format())
    }

    /// The same with an object format.
    pub(crate) fn init_with(&self, name: &str, format: Format) -> Result<Client<'_, 'a>> {
        let client = Client::new(self, name);
        std::fs::create_dir_all(client.directory())?;
        client.git(&["init", "--quiet", "--bare", &format!("--object-format={format}")])?;
        client.git(&["remote", "add", "origin", &self.url()])?;
        Ok(client)
    }

    /// A clone, recorded.
    pub(crate) fn clone(&self, name: &str, options: &[&str]) -> Result<Client<'_, 'a>> {
        self.clone_with(&[], name, options)
    }

    /// A clone with settings (`-c` options and the like before `clone`), recorded.
    pub(crate) fn clone_with(&self, settings: &[&str], name: &str, options: &[&str]) -> Result<Client<'_, 'a>> {
        let url = self.url();
        let arguments = [settings, &["clone"], options, &[&url, name]].concat();
        Client::new(self, ".").run(&arguments)?;
        Ok(Client::new(self, name))
    }

    /// Runs git outside any repository, recorded.
    pub(crate) fn git(&self, arguments: &[&str]) -> Result<i32> {
        Client::new(self, ".").run(arguments)
    }

    /// Adds lines to the transcript.
    pub(crate) fn record(&self, text: &str) {
        let host = self.address().to_string();
        let root = self.root().display().to_string();
        // Where pushes go that do not go the session's way.
        let text = text.replace(&self.host.address().to_string(), &host);
        self.transcript.borrow_mut().add(&text, &host, &root);
    }

    /// Adds the reasons of a refusal. Stock git dies of some objects before it can say what is wrong with them: then any
    /// reason will do.
    pub(crate) fn complain(&self, reasons: &BTreeSet<String>) {
        let reasons: Vec<&str> = reasons.iter().map(String::as_str).collect();
        self.record(&format!("{REASONS}{}", reasons.join(" ")));
    }

    /// Notes a figure in which Cuesta may not be much worse than stock git.
    pub(crate) fn measure(&self, what: &str, figure: u64) {
        self.transcript.borrow_mut().measure(what, figure);
    }

    /// What every scenario ends with: the refs, and that a mirror of the repository is whole.
    pub(crate) fn audit(&self) -> Result<()> {
        self.record("== audit");
        let url = self.url();
        self.git(&["ls-remote", "--symref", &url])?;
        let mirror = Client::new(self, "audit.git");
        Client::new(self, ".").git(&["clone", "--quiet", "--mirror", &url, "audit.git"])?;
        mirror.record_objects()?;
        let found = mirror.output(&["fsck", "--full", "--no-dangling"])?;
        let said = String::from_utf8_lossy(&found.stderr);
        ensure!(found.status.success(), "the mirror is broken: {said}");
        std::fs::remove_dir_all(mirror.directory())?;
        Ok(())
    }
}
