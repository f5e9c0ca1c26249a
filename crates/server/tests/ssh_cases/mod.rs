//! The cases of the SSH tests.
#![allow(unreachable_pub, missing_docs)]

pub mod abuse;
pub mod accounts;
pub mod direct;
pub mod git;
pub mod limits;

use crate::support::Server;

/// A server that listens for SSH on a free port.
pub fn server() -> Server {
    Server::start_with(&["--ssh-listen", "127.0.0.1:0"])
}

/// Runs an async case.
pub fn block_on<T>(case: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(case)
}
