//! The one commit point of a push: its layers and refs become an edit of the log.

use super::head;
use super::policy::Case;
use super::tips::Tip;
use crate::{EngineError, Repository};
use cuesta_format::{AddedLayer, Cause, Edit, PushNote, RefTarget, RefUpdate};
use cuesta_git::ObjectId;
use cuesta_ledger::{Committed, Conflict, State};

/// A push that is ready to be committed.
pub(crate) struct Commit<'a> {
    pub(crate) repository: &'a Repository,
    pub(crate) cause: Cause,
    pub(crate) actor: &'a str,
    /// All refs or none.
    pub(crate) atomic: bool,
    pub(crate) layers: &'a [AddedLayer],
    /// The repository's new shallow boundary if it changes, or what a push adds to it.
    pub(crate) shallow: Option<Vec<ObjectId>>,
    /// What the push said beside its commands.
    pub(crate) note: Option<Box<PushNote>>,
}

impl Commit<'_> {
    /// Appends what is still open of a push. Refs that conflict are refused, and with `atomic` all of them; the others go
    /// through. Answers the entry, or `None` if nothing was appended.
    pub(crate) async fn append(&self, cases: &mut [Case]) -> Result<Option<u64>, EngineError> {
        let log = self.repository.log();
        // Each round refuses at least one case, but for one that finds the repository made by another push.
        for _ in 0..cases.len().saturating_add(2) {
            let Some(edit) = self.edit(&log.current(), cases)? else {
                return Ok(None);
            };
            match log.commit(edit).await? {
                Committed::Done { number, .. } => return Ok(Some(number)),
                Committed::Conflict(Conflict::ObjectFormatFixed { .. }) => {}
                Committed::Conflict(Conflict::Ref { name, reason }) => {
                    let mut hit = cases
                        .iter_mut()
                        .filter(|case| case.is_open() && case.target.as_ref() == Some(&name));
                    match hit.next() {
                        Some(case) => case.refuse(reason.to_string()),
                        None => return Err(EngineError::Conflict(name.to_string())),
                    }
                    if self.atomic {
                        super::policy::check_atomic(cases);
                        return Ok(None);
                    }
                }
                Committed::Conflict(conflict) => return Err(EngineError::Conflict(conflict.to_string())),
            }
        }
        Err(EngineError::Internal("a push conflicts more often than it has refs"))
    }

    /// The edit, on a state that may be old; `None` if there is nothing to append.
    fn edit(&self, state: &State, cases: &mut [Case]) -> Result<Option<Edit>, EngineError> {
        let blank = self.repository.edit_on(state, self.cause, self.actor)?;
        // Where there is no rest the log's own answer is enough.
        if !self.atomic && cases.len() > 1 {
            refuse_conflicts(state, &blank, cases);
        }
        let refs: Vec<RefUpdate> = ordered(cases).filter_map(|at| cases.get(at).and_then(update)).collect();
        if refs.is_empty() && (self.layers.is_empty() || cases.iter().any(|case| !case.is_open())) {
            return Ok(None);
        }
        let mut edit = Edit {
            refs,
            added: self.layers.to_vec(),
            shallow: self.shallow.clone(),
            note: self.note.clone(),
            ..blank
        };
        if self.cause == Cause::Push {
            head::follow(state, &self.repository.default_branch()?, &mut edit);
        }
        Ok(Some(edit))
    }
}

/// Refuses what would conflict with the state known here, so that one append is enough for the rest.
fn refuse_conflicts(state: &State, blank: &Edit, cases: &mut [Case]) {
    let mut trial = state.clone();
    if blank.object_format.is_some() && trial.apply(blank).is_err() {
        return;
    }
    for at in ordered(cases) {
        let Some(case) = cases.get_mut(at) else { continue };
        let Some(update) = update(case) else { continue };
        let edit = Edit {
            refs: vec![update],
            object_format: None,
            symrefs: Vec::new(),
            ..blank.clone()
        };
        match trial.apply(&edit) {
            Ok(()) => {}
            Err(Conflict::Ref { reason, .. }) => case.refuse(reason.to_string()),
            Err(_) => return,
        }
    }
}

/// Deletions first: `a` may go and `a/b` come in one push.
fn ordered(cases: &[Case]) -> impl Iterator<Item = usize> + use<> {
    let (deletions, others): (Vec<usize>, Vec<usize>) =
        (0..cases.len()).partition(|at| cases.get(*at).is_some_and(Case::is_delete));
    deletions.into_iter().chain(others)
}

/// What a case does to its ref, if anything.
fn update(case: &Case) -> Option<RefUpdate> {
    if !case.is_open() || case.idle {
        return None;
    }
    let name = case.target.clone()?;
    let old = (!case.command.old.is_null()).then_some(case.command.old);
    let new = match case.tip {
        None => None,
        Some(Tip::Complete { peeled, .. }) => Some(RefTarget {
            oid: case.command.new,
            peeled,
        }),
        Some(Tip::Incomplete) => return None,
    };
    Some(RefUpdate { name, old, new })
}
