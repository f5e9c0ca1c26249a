//! Stock git as the server to compare with.

use crate::format::Format;
use crate::session::Host;
use anyhow::{Result, ensure};
use cuesta_bench::cgi::{self, Backend};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// What makes stock git as strict as Cuesta always is, and leaves the rest at git's defaults.
const SETTINGS: [(&str, &str); 6] = [
    ("http.receivepack", "true"),
    ("gc.auto", "0"),
    ("receive.autogc", "false"),
    ("maintenance.auto", "false"),
    ("safe.directory", "*"),
    ("transfer.fsckObjects", "true"),
];

/// Serves a directory of its own from a thread of this process.
pub(crate) fn host() -> Result<Host> {
    let directory = tempfile::tempdir()?;
    let mut backend = Backend::new(directory.path());
    let owned = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    backend.settings = owned.to_vec();
    let address = backend.spawn()?;
    let git_address = spawn_daemon(directory.path())?;
    Ok(Host::Stock {
        address,
        git_address,
        directory,
    })
}

/// Serves everything below `root` by `git daemon`, started for each connection by a thread of this process, as inetd would.
fn spawn_daemon(root: &Path) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let root = root.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if let Err(error) = stream.map_err(Into::into).and_then(|stream| daemon(&root, stream)) {
                eprintln!("git daemon: {error:#}");
            }
        }
    });
    Ok(address)
}

fn daemon(root: &Path, stream: TcpStream) -> Result<()> {
    let mut daemon = Command::new("git");
    daemon.args(["daemon", "--inetd", "--export-all", "--log-destination=none"]);
    daemon.arg(format!("--base-path={}", root.display()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    daemon.env_clear().env("PATH", path).env("HOME", root);
    daemon.env("GIT_CONFIG_NOSYSTEM", "1").envs(variables());
    let output = stream.try_clone()?;
    let mut child = daemon
        .stdin(OwnedFd::from(stream))
        .stdout(OwnedFd::from(output))
        .stderr(Stdio::null())
        .spawn()?;
    // Nobody is left behind, and nobody waits for it here.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// The same settings in the environment of a git.
pub(crate) fn variables() -> Vec<(String, String)> {
    let mut variables = vec![("GIT_CONFIG_COUNT".to_owned(), SETTINGS.len().to_string())];
    for (number, (name, value)) in SETTINGS.into_iter().enumerate() {
        variables.push((format!("GIT_CONFIG_KEY_{number}"), name.to_owned()));
        variables.push((format!("GIT_CONFIG_VALUE_{number}"), value.to_owned()));
    }
    variables
}

/// Makes an empty repository.
pub(crate) fn create(root: &Path, name: &str, format: Format) -> Result<()> {
    let path = root.join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path)?;
    }
    cgi::init_bare(root, name, &format.to_string())?;
    Ok(())
}

/// Runs git inside a repository of the server.
pub(crate) fn git(root: &Path, name: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root.join(name))
        .args(arguments)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {arguments:?} failed: {said}");
    Ok(())
}
