//! A log store lent over a unix socket: a running server holds the embedded store's lock, and commands on the same
//! machine work through its socket in the data directory.
//!
//! [`RemoteStore`] is the client, [`serve`] the server half. Both sides open with a greeting (magic and version); then
//! frames go both ways, requests and answers matched by id, so that a waiting `changed` holds up nothing. Who may open
//! the socket file (mode 0600) may do everything.

mod client;
mod frame;
mod server;

pub use client::RemoteStore;
pub use frame::check_frame;
pub use server::{ServerOptions, serve};
