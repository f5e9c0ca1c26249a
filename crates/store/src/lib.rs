//! The bucket and the world: ranged reads, conditional writes and accounting over `object_store`, a block cache, and
//! clock, randomness and threads as values, so that a simulation can give its own.

mod bucket;
mod buffers;
mod cache;
pub mod conformance;
mod counters;
mod direct;
mod error;
mod kept;
mod local;
mod mapped;
mod options;
mod probe;
mod turns;
mod upload;
mod world;

pub use bucket::{Bucket, Created, Listed, Swapped, Version};
pub use buffers::Buffers;
pub use cache::{Access, BlockCache, CacheCounters, CacheOptions, Held};
pub use counters::{Counters, Operation, Tally};
pub use error::{Result, StoreError, StoreErrorKind};
pub use kept::{Draft, KeptCounters, KeptFile, KeptFiles, KeptName, PIECE_BYTES};
pub use options::{BucketOptions, install_tls_provider};
pub use probe::{CHECK_TIME_MAX, Check, Finding, ProbeReport};
pub use upload::Upload;
pub use world::{Clock, Entropy, Workers};
