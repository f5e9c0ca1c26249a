//! Taking a push in: parse the pack, check every object, cut segments, build a layer, append one edit.
//!
//! The pure part, from bytes to a layer, knows the repository only through [`Known`].

mod build;
mod contents;
mod cut;
mod differ;
mod entries;
mod error;
mod inspect;
mod intake;
mod known;
mod options;
mod order;
mod parse;
mod resolve;
mod source;
mod spool;
mod tips;
mod trees;

pub use error::{IntakeError, ObjectFault, PackFault};
pub use known::{Described, Known, KnownCommit, Nothing};
pub use options::IntakeOptions;
pub use tips::Tip;

#[cfg(test)]
mod tests;
