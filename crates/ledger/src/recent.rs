//! The last edits of a log by id: how an append whose reply was lost is recognised after others folded the log.

use cuesta_format::EditId;
use imbl::Vector;

/// How many edits back a state remembers.
pub const RECENT_EDITS_MAX: usize = 1024;

/// Ids with the entries they came in, newest last.
#[derive(Clone, Default)]
pub(crate) struct Recent(Vector<(EditId, u64)>);

impl Recent {
    /// Notes an edit of entry `number`.
    pub(crate) fn push(&mut self, id: EditId, number: u64) {
        if self.0.len() >= RECENT_EDITS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((id, number));
    }

    /// The entry the edit came in; for one known from a checkpoint, the last entry that the checkpoint covers.
    pub(crate) fn entry_of(&self, id: EditId) -> Option<u64> {
        self.0
            .iter()
            .rev()
            .find(|(edit, _)| *edit == id)
            .map(|(_, number)| *number)
    }

    /// Whether there may have been others.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= RECENT_EDITS_MAX
    }

    /// The ids, oldest first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = EditId> {
        self.0.iter().map(|(id, _)| *id)
    }

    /// What a checkpoint remembers, which is ids without their entries: they get the last entry it covers.
    pub(crate) fn restored(ids: Vec<EditId>, checkpoint: u64) -> Self {
        Self(ids.into_iter().map(|id| (id, checkpoint.saturating_sub(1))).collect())
    }
}
