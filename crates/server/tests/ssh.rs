//! Git over SSH against the built binary, with OpenSSH where it is installed and with a client of our own everywhere.
//!
//! This program is also that client: git runs it in the place of `ssh`.

#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod ssh_cases;
#[path = "../../../tests/support/ssh_client.rs"]
mod ssh_client;
mod support;

use libtest_mimic::{Arguments, Trial};
use ssh_cases::git::Client;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if std::env::var_os(ssh_client::AS_CLIENT).is_some() {
        let code = ssh_client::be_the_client(&arguments);
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = Client::ALL.into_iter().flat_map(of_git).collect();
    let direct = ssh_cases::direct::CASES
        .iter()
        .chain(ssh_cases::accounts::CASES)
        .chain(ssh_cases::abuse::CASES)
        .chain(ssh_cases::limits::CASES);
    trials.extend(direct.map(|(name, case)| {
        Trial::test(*name, || {
            case();
            Ok(())
        })
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What stock git does over one client.
fn of_git(client: Client) -> impl Iterator<Item = Trial> {
    let missing = !client.is_installed();
    if missing {
        eprintln!("'{}' is not installed: its cases are ignored", client.name());
    }
    let cases = ssh_cases::git::CASES.iter().filter(move |(name, _)| client.runs(name));
    cases.map(move |(name, case)| {
        let run = move || {
            case(client);
            Ok(())
        };
        Trial::test(format!("{}::{name}", client.name()), run).with_ignored_flag(missing)
    })
}
