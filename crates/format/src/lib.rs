//! Cuesta's durable bytes: layers and their cues, ledger entries, checkpoints and bucket keys.
//!
//! Pure. Every format carries a magic, a version and checksums; a reader refuses what it does not know. The byte tables
//! are in `docs/format/`, and a golden file per version is kept with the tests.

mod account;
mod accounts;
mod checkpoint;
mod codec;
mod cue;
mod directory;
mod edit;
mod entry;
mod error;
mod ids;
mod keys;
mod layer;
mod list_entry;
mod retired;

pub use account::{
    AccountChange, AccountsEdit, Grantee, KeyRecord, OpenPgpKeyRecord, Role, RoleRecord, TokenId, TokenRecord,
    UserRecord,
};
pub use accounts::{AccountsCheckpoint, AccountsEntry, account_change_len_max};
pub use checkpoint::Checkpoint;
pub use cue::{
    Base, Cue, CueBuilder, CueCounts, CueHeader, Entries, EntryFacts, Externals, Filter, FinishedCue, INDEX_COUNT_MAX,
    Link, Links, Lookup, Roots, SectionKind, SegmentRow, Segments,
};
pub use directory::{AbandonedLog, DirectoryCheckpoint, DirectoryEntry};
pub use edit::{
    AddedLayer, Cause, DirectoryChange, DirectoryEdit, Edit, LayerMeta, LayerPlace, NameChange, NonceStatus,
    PushCertificate, PushNote, PushSignature, RefTarget, RefUpdate, RepositoryRecord, SettingChange, SignatureStatus,
    SymrefChange,
};
pub use entry::{ENTRY_OVERHEAD_BYTES, Entry, edit_len_max, encode_entry};
pub use error::{ErrorKind, FormatError, Result};
pub use ids::{EditId, LayerId, LogId};
pub use keys::{
    Key, base_key, checkpoint_key, checkpoints_prefix, entries_prefix, entry_key, layer_cue_key, layer_pack_key,
    layers_prefix, log_prefix,
};
pub use list_entry::{ListEdit, ListEntry};
pub use retired::{Collection, RetiredLayer};
