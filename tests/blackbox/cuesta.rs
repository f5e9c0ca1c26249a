//! The built `cuesta`, as a process.

use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// How a server is started: also how the same storage is opened again.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    data: PathBuf,
    settings: Vec<(String, String)>,
}

impl Options {
    /// Everything in `data`, defaults otherwise.
    pub(crate) fn new(data: PathBuf) -> Self {
        Self {
            data,
            settings: Vec::new(),
        }
    }

    /// Gives a setting a value.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// The data directory.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// A command over this configuration. Settings travel by environment, as secrets should.
    pub(crate) fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(binary()?);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CUESTA_") {
                command.env_remove(name);
            }
        }
        for (name, value) in &self.settings {
            command.env(format!("CUESTA_{}", name.to_ascii_uppercase()), value);
        }
        command.arg("--data").arg(&self.data).args(arguments);
        Ok(command)
    }

    /// Runs a command to its end; failure is an error with what it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<Output> {
        let output = self.command(arguments)?.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cuesta {arguments:?} failed: {said}");
        Ok(output)
    }
}

/// A running server; it is killed when dropped.
pub(crate) struct Cuesta {
    child: Child,
    address: SocketAddr,
    ssh_address: SocketAddr,
    git_address: SocketAddr,
    options: Options,
}

/// A free port of this machine.
const LISTEN: &str = "127.0.0.1:0";

impl Cuesta {
    /// Starts a server on a free port and waits until it has told its address.
    pub(crate) fn start(options: &Options) -> Result<Self> {
        std::fs::create_dir_all(&options.data)?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(options.data.with_extension("log"))?;
        let mut child = options
            .command(&[
                "serve",
                "--listen",
                LISTEN,
                "--ssh-listen",
                LISTEN,
                "--git-listen",
                LISTEN,
            ])?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        // An empty line ends what tells where it listens.
        let said = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty());
        let said: Vec<String> = said.collect();
        let told = |scheme| said.iter().find_map(|line| address_after(scheme, line));
        let addresses = (told("http://"), told("ssh://git@"), told("git://"));
        if let (Some(address), Some(ssh_address), Some(git_address)) = addresses {
            std::thread::spawn(move || lines.for_each(drop));
            let options = options.clone();
            return Ok(Self {
                child,
                address,
                ssh_address,
                git_address,
                options,
            });
        }
        child.kill()?;
        child.wait()?;
        bail!("cuesta did not tell its addresses: {}", log_of(options)?);
    }

    /// Where it listens for SSH.
    pub(crate) fn ssh_address(&self) -> SocketAddr {
        self.ssh_address
    }

    /// Where it listens for `git://`.
    pub(crate) fn git_address(&self) -> SocketAddr {
        self.git_address
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How it was started.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs: a server must survive whatever clients do.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("cuesta ended ({status}): {}", log_of(&self.options)?),
        }
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> Result<String> {
        log_of(&self.options)
    }

    /// Ends it the hard way (SIGKILL).
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends it politely (SIGTERM) and checks that it takes that for a success.
    pub(crate) fn terminate(mut self) -> Result<()> {
        let signalled = Command::new("kill").arg(self.pid().to_string()).status()?;
        ensure!(signalled.success(), "cannot signal cuesta");
        let status = self.child.wait()?;
        ensure!(
            status.success(),
            "cuesta ended with {status} after SIGTERM: {}",
            self.log()?
        );
        Ok(())
    }
}

impl Drop for Cuesta {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address_after(scheme: &str, line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(scheme)?;
    rest.split(|c: char| c.is_whitespace() || c == '/').next()?.parse().ok()
}

fn log_of(options: &Options) -> Result<String> {
    Ok(std::fs::read_to_string(options.data.with_extension("log"))?)
}

/// The binary under test.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("CUESTA_TEST_BINARY") {
        return Ok(path.into());
    }
    // This program is target/<profile>/deps/clients-<hash>.
    let program = std::env::current_exe()?;
    let profile = program.ancestors().nth(2).context("an odd place for a test")?;
    let path = profile.join("cuesta");
    ensure!(
        path.exists(),
        "'{}' is not there: run 'cargo xtask test', or 'cargo build --bin cuesta' first",
        path.display()
    );
    Ok(path)
}
