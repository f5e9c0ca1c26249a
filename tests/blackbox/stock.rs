//! Stock git as the server to compare with.

use crate::format::Format;
use crate::session::Host;
use anyhow::{Result, ensure};
use cuesta_bench::cgi::{self, Backend};
use std::path::Path;
use std::process::Command;

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
    Ok(Host::Stock { address, directory })
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
