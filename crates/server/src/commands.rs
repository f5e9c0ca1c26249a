//! What the binary does when it is told to: each command a function of the settings.

mod access;
mod collect;
mod fsck;
mod import;
mod inspect;
mod key;
mod progress;
mod repo;
mod serve;
mod table;
mod token;
mod user;

use crate::cli::{Cli, Command, ConfigCommand};
use crate::config::Config;
use crate::storage::{self, Role};
use anyhow::bail;
use cuesta_store::Entropy;
use std::io::Write;

/// Who the logs say made a change from the command line.
const ACTOR: &str = "cuesta";

/// Runs a command to its end.
pub fn run(cli: &Cli, environment: Vec<(String, String)>) -> anyhow::Result<()> {
    let config = Config::load(&cli.sources(environment))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(dispatch(&cli.command, &config));
    // Work that nobody waits for any more must not keep the process.
    runtime.shutdown_background();
    done
}

async fn dispatch(command: &Command, config: &Config) -> anyhow::Result<()> {
    let settings = &config.settings;
    match command {
        Command::Serve { .. } => serve::run(settings).await,
        Command::Config(ConfigCommand::Show) => print(&config.show()),
        Command::Doctor => doctor(config).await,
        Command::User(command) => user::run(&storage::open(settings, Role::Command).await?.engine, command).await,
        Command::Token(command) => token::run(&storage::open(settings, Role::Command).await?, command).await,
        Command::Key(command) => key::run(&storage::open(settings, Role::Command).await?, command).await,
        Command::Access(command) => access::run(&storage::open(settings, Role::Command).await?.engine, command).await,
        Command::Repo(command) => repo::run(&storage::open(settings, Role::Command).await?, settings, command).await,
        Command::Cat { repository, oid } => {
            inspect::cat(&storage::open(settings, Role::Command).await?.engine, repository, oid).await
        }
        Command::Layers { repository } => {
            inspect::layers(&storage::open(settings, Role::Command).await?.engine, repository).await
        }
        Command::Import(arguments) => {
            import::run(
                &storage::open(settings, Role::Command).await?.engine,
                settings,
                arguments,
            )
            .await
        }
        Command::Collect { repository, dry_run } => {
            let engine = storage::open(settings, Role::Command).await?.engine;
            collect::run(&engine, repository.as_deref(), *dry_run).await
        }
        Command::Fsck {
            repository,
            quick,
            quiet,
        } => {
            let engine = storage::open(settings, Role::Command).await?.engine;
            fsck::run(&engine, repository, *quick, *quiet).await
        }
    }
}

/// Prints the bucket's report; fails if no server should run over it.
async fn doctor(config: &Config) -> anyhow::Result<()> {
    let bucket = storage::open_bucket(&config.settings)?;
    let report = bucket.probe(&Entropy::system()).await;
    print(&report.to_string())?;
    match (report.safe_for_layers(), report.safe_for_bucket_ledger()) {
        (false, _) => bail!("the bucket cannot be trusted with repositories"),
        (true, false) => print("repositories may be kept here; a ledger may not\n"),
        (true, true) => print("repositories and ledgers may be kept here\n"),
    }
}

/// Writes to standard output. A reader that has gone away is no error of ours to report.
fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
