//! The `cuesta` binary.

use clap::Parser;
use cuesta_server::cli::Cli;
use std::process::ExitCode;

/// A push is read on one thread, built on another and freed on a third, thousands of times a second. With many pushers the system's
/// allocator takes a sixth of the CPU, and its worst searches for a free piece are the longest waits
/// (docs/decisions/allocator.md).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Variables that are not text cannot be ours.
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    match cuesta_server::commands::run(&cli, environment.collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
