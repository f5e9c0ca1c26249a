//! Repository semantics: views and what is read through them, upload, receive, and the work in the background.
//!
//! An [`Engine`] opens repositories; a [`Repository`] gives [`View`]s, immutable snapshots at one position of its log.
//! Everything that reads works on a view. Nothing here knows the wire.

pub mod archive;
mod birth;
mod bits;
mod collect;
mod compact;
pub mod dumb;
mod engine;
mod error;
mod flush;
mod fold;
pub mod fsck;
mod graph;
pub mod import;
mod layer;
mod layer_builder;
mod merge;
mod name;
mod object_stream;
mod objects;
mod payload;
pub mod receive;
mod refs;
mod repository;
mod settings;
mod sweep;
pub mod upload;
mod view;
mod watch;
mod world;

pub use birth::{PushTarget, Unborn};
pub use bits::Bits;
pub use collect::{CollectStep, Collected, Needless, Why, propose_collection};
pub use compact::{Compacted, Job, Maintained, MergeBounds, propose, propose_bases};
pub use engine::{Engine, EngineParts};
pub use error::{EngineError, ErrorKind};
pub use flush::{FLUSH_LAYERS_MAX, Flushed};
pub use fold::checkpoint_is_due;
pub use graph::{Graph, Parents, Position, PositionSet, SendSet};
pub use layer::{History, Index, Layer};
pub use name::{RepositoryName, RepositoryNameError};
pub use object_stream::ObjectStream;
pub use objects::DELTA_DEPTH_MAX;
pub use payload::{OffloadedPack, Payload, PayloadForm, PayloadId};
pub use refs::{AdvertisedRef, Head};
pub use repository::Repository;
pub use settings::Settings;
pub use view::{Location, View};
pub use watch::Watch;
pub use world::{AnswersOptions, EngineOptions};
