//! Cuesta's durable bytes: layers and their cues, ledger entries, checkpoints and bucket keys.
//!
//! Pure. Every format carries a magic, a version and checksums; a reader refuses what it does not know. The byte tables
//! are in `docs/format/`, and a golden file per version is kept with the tests.

mod edit;
mod ids;

pub use edit::{
    AddedLayer, Cause, DirectoryEdit, Edit, LayerMeta, LayerPlace, NameChange, RefTarget, RefUpdate, RepositoryRecord,
    SettingChange, SymrefChange,
};
pub use ids::{EditId, LayerId, LogId};
