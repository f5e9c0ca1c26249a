//! Git over SSH, in the binary: connections and their limits, who the client is, and the three commands of Git.
//!
//! Nothing here starts a process or reads a command line with a shell. A session channel runs one command: its line is
//! parsed into a service and a repository's name, and the services are those that HTTP calls ([`crate::service`]). Shells,
//! terminals, subsystems and forwarding are refused.

mod channel;
mod command;
mod connection;
pub mod host_key;
pub mod listener;
mod output;
