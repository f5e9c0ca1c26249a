//! Stock git as the server to compare with.

use crate::session::Host;
use anyhow::{Result, ensure};
use cuesta_bench::cgi::{self, Backend};
use std::path::Path;
use std::process::Command;

/// What makes stock git as strict as Cuesta always is, and leaves the rest at git's defaults.
const SETTINGS: &[(&str, &str)] = &[
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
    backend.settings = SETTINGS
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let address = backend.spawn()?;
    Ok(Host::Stock { address, directory })
}

/// Makes an empty repository.
pub(crate) fn create(root: &Path, name: &str, object_format: &str) -> Result<()> {
    let path = root.join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path)?;
    }
    cgi::init_bare(root, name, object_format)?;
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
