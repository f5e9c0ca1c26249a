//! Cuesta's durable bytes: layers and their cues, ledger entries, checkpoints and bucket keys.
//!
//! Pure. Every format carries a magic, a version and checksums; a reader refuses what it does not know. The byte tables
//! are in `docs/format/`, and a golden file per version is kept with the tests.

mod codec;
mod cue;
mod edit;
mod error;
mod ids;

pub use cue::{
    Base, Cue, CueBuilder, CueCounts, CueHeader, Entries, Externals, Filter, INDEX_COUNT_MAX, Link, Links, Lookup,
    Roots, SectionKind, SegmentRow, Segments,
};
pub use edit::{
    AddedLayer, Cause, DirectoryEdit, Edit, LayerMeta, LayerPlace, NameChange, RefTarget, RefUpdate, RepositoryRecord,
    SettingChange, SymrefChange,
};
pub use error::{ErrorKind, FormatError, Result};
pub use ids::{EditId, LayerId, LogId};
