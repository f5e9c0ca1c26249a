//! The `cuesta` binary.

use clap::Parser;
use cuesta_server::cli::Cli;
use std::process::ExitCode;

/// Buffers of this size and more go back to the system when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ALLOCATION_RETURNED_BYTES_MIN: i32 = 1 << 20;

/// Fixes the size from which glibc gives memory back. Left alone it raises it with each large buffer it frees, up to 32 MiB,
/// and from then on every thread's arena keeps what passed through it: three times the memory in use, measured while
/// serving one large object.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
// The one call of C in the binary: it takes two numbers, and runs before there is a second thread.
#[allow(unsafe_code)]
fn bound_allocator() {
    // SAFETY: mallopt has no preconditions; where it fails the default stays.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, ALLOCATION_RETURNED_BYTES_MIN) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn bound_allocator() {}

fn main() -> ExitCode {
    bound_allocator();
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
