//! The `cuesta` binary: configuration, HTTP, SSH, `git://`, commands, metrics. What Git means is the engine's business and how it is said
//! on the wire is the protocol's; here the two meet.

mod accept;
pub mod access;
pub mod background;
pub mod cli;
pub mod commands;
pub mod config;
pub mod git_transport;
pub mod http;
mod leash;
pub mod log_journal;
pub mod log_lines;
mod login;
pub mod logs;
pub mod metered_log;
pub mod metrics;
pub mod node;
pub mod ref_rope;
pub mod remote;
pub mod service;
pub mod ssh;
pub mod storage;
pub mod tls;
pub mod uncollected;
pub mod unflushed;
pub mod uri_signer;
mod watched_reads;
