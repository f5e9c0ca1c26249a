//! Deterministic simulation of what Cuesta keeps: nodes over one bucket and one log store whose calls fail by plan, racing
//! pushers, readers and background work; and oracles that say what must hold whatever fails.
//!
//! The same seed gives the same calls in the same order: one thread runs at a time, time is simulated, ids are drawn from
//! the seed. Nothing here touches a network or a disk.
//!
//! Oracles: the history of each ref is linearizable ([`registers`]); what was acknowledged is whole and readable, in every
//! view and from a cold node; nothing of a refused push is visible; the log replayed by a model of its own gives the refs
//! that nodes show.

// All of this crate is a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod background;
pub mod bucket;
pub mod chaos;
pub mod forge;
pub mod log_store;
pub mod node;
pub mod oracle;
mod pusher;
pub mod registers;
mod registrar;
pub mod script;
pub mod world;
