//! The bucket and the world: ranged reads, conditional writes and accounting over `object_store`, a block cache, and
//! clock, randomness and threads as values, so that a simulation can give its own.

mod world;

pub use world::{Clock, Entropy, Workers};
