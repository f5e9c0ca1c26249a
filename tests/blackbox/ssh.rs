//! SSH where there need be no OpenSSH: git runs this very program in the place of `ssh`.
//!
//! To Cuesta it is a client. To stock git it is all there is between a client and `git-shell`, which a host gives its users
//! for a shell: the command runs on this machine. What either says beside the protocol, on standard error, is its own affair.

use crate::session::Host;
use crate::stock;
use anyhow::Result;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

#[path = "../support/ssh_client.rs"]
mod ssh_client;

/// Set in the environment of a process that is to be stock git's host: the directory of its repositories.
const AS_STOCK: &str = "CUESTA_TEST_AS_STOCK";
/// Where stock git's host finds its git: a client puts its own programs before all others in the path of what it runs.
const STOCK_PATH: &str = "CUESTA_TEST_STOCK_PATH";

/// Plays the part that the environment gives this process, if it does.
pub(crate) fn part() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(root) = std::env::var_os(AS_STOCK) {
        let (_, command) = ssh_client::destination(&arguments);
        let error = shell(root.as_ref(), &command).exec();
        eprintln!("cannot run git: {error}");
        return Some(ExitCode::FAILURE);
    }
    std::env::var_os(ssh_client::AS_CLIENT)?;
    let code = ssh_client::be_the_client(&arguments);
    Some(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// What git runs in the place of `ssh`, in the environment of [`variables`].
pub(crate) fn program() -> Result<String> {
    Ok(std::env::current_exe()?.display().to_string())
}

/// The environment in which git reaches `host` over SSH.
pub(crate) fn variables(host: &Host) -> Result<Vec<(String, String)>> {
    match host {
        Host::Stock { directory, .. } => {
            let mut variables = as_part(AS_STOCK, directory.path().display().to_string())?;
            variables.push((STOCK_PATH.to_owned(), std::env::var("PATH")?));
            Ok(variables)
        }
        Host::Cuesta { .. } => client_variables(),
    }
}

/// The same for any Cuesta.
pub(crate) fn client_variables() -> Result<Vec<(String, String)>> {
    as_part(ssh_client::AS_CLIENT, "1".to_owned())
}

fn as_part(name: &'static str, value: String) -> Result<Vec<(String, String)>> {
    let variables = [
        ("GIT_SSH_COMMAND", program()?),
        ("GIT_SSH_VARIANT", "ssh".to_owned()),
        (ssh_client::MUTE, "1".to_owned()),
        (name, value),
    ];
    Ok(variables.map(|(name, value)| (name.to_owned(), value)).to_vec())
}

/// A command as a user of stock git's host runs it, with nothing of the client's environment but what `ssh` passes on.
fn shell(root: &Path, command: &str) -> Command {
    let inside = command.replacen("'/", &format!("'{}/", root.display()), 1);
    let mut shell = Command::new("git");
    let kept = [("PATH", STOCK_PATH), ("GIT_PROTOCOL", "GIT_PROTOCOL")];
    let kept = kept.map(|(name, from)| (name, std::env::var_os(from)));
    let kept = kept.into_iter().filter_map(|(name, value)| Some((name, value?)));
    shell.args(["shell", "-c", &inside]).env_clear().envs(kept);
    shell.env("HOME", root).env("GIT_CONFIG_NOSYSTEM", "1");
    shell.envs(stock::variables()).stderr(Stdio::null());
    shell
}
