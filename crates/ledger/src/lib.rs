//! Refs and layer list of a repository as a log of atomic edits.
//!
//! Meaning lives in pure state machines ([`State`] for a repository, [`DirectoryState`] for the names of all,
//! [`AccountsState`] for who may do what): an edit
//! applies whole or not at all. A backend is only a [`LogStore`]: it makes entry n durable if and only if n is the next.
//! [`Log`] ties the two: it groups waiting edits into entries, keeps one append in flight, follows what other processes
//! append, and hands out immutable snapshots. Nothing here knows what a push or a pack is.

mod accounts;
mod accounts_state;
mod codec;
mod conflict;
mod directory;
mod driver;
mod error;
mod inline;
mod layers;
mod lists;
mod log;
mod machine;
mod recent;
mod retired;
mod state;
mod store;

pub mod conformance;
pub mod embedded;
pub mod memory;
pub mod remote;

pub use accounts::{Accounts, AccountsChanged};
pub use accounts_state::{AccountConflict, AccountsState, Roles, User};
pub use conflict::{Conflict, RefConflict};
pub use directory::{Changed, Directory, DirectoryState, NameConflict};
pub use embedded::{EmbeddedOptions, EmbeddedStore};
pub use error::{ErrorKind, Failure, LedgerError};
pub use layers::LayerRecord;
pub use log::{Committed, Log, LogOptions};
pub use machine::{CheckpointSource, Machine, NoCheckpoints};
pub use memory::MemoryStore;
pub use recent::RECENT_EDITS_MAX;
pub use remote::RemoteStore;
pub use state::State;
pub use store::{Appended, Base, Limits, LogStore};
