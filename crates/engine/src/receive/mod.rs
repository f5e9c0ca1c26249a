//! Taking a push in: parse the pack, check every object, cut segments, build a layer, append one edit.
//!
//! The pure part, from bytes to a layer, knows the repository only through [`Known`]. What is fed comes from peers: nothing
//! of it is trusted before it is checked, and nothing of a refused push is visible or kept.

mod audit;
mod buffer;
mod build;
mod check;
mod commit;
mod contents;
mod cut;
mod differ;
mod entries;
mod error;
mod head;
mod inspect;
mod intake;
mod known;
mod large;
mod lean;
mod options;
mod order;
mod parse;
mod policy;
mod request;
mod resolve;
mod session;
mod source;
mod spool;
mod store;
mod tips;
mod trees;

pub use check::check_pack;
pub use error::{IntakeError, ObjectFault, PackFault};
pub use options::{OBJECT_BYTES, ReceiveOptions};
pub use request::{ReceiveProgress, ReceiveReport, ReceiveRequest, RefCommand};
pub use session::Receiver;

pub(crate) use differ::differ;
pub(crate) use intake::{Intake, Settled};
pub(crate) use known::{Known, Nothing};
pub(crate) use lean::Lean;
pub(crate) use options::IntakeOptions;
pub(crate) use policy::Policy;
pub(crate) use spool::{Spool, SpoolReader};
pub(crate) use store::{Place, discard};
pub(crate) use tips::{Reached, Tip};
pub(crate) use trees::Tree;

#[cfg(test)]
mod tests;
