//! The one commit point of a push: its layers and refs become an edit of the log.

use super::policy::Case;
use super::tips::Tip;
use crate::{EngineError, Repository};
use cuesta_format::{AddedLayer, Cause, Edit, RefTarget, RefUpdate};
use cuesta_git::ObjectId;
use cuesta_ledger::{Committed, Conflict, State};

/// Appends what is still open of a push, and with it the repository's new shallow boundary. Refs that conflict are refused, and with `atomic` all of them; the others go
/// through. Answers the entry, or `None` if nothing was appended.
pub(crate) async fn commit(
    repository: &Repository,
    cause: Cause,
    actor: &str,
    atomic: bool,
    cases: &mut [Case],
    layers: &[AddedLayer],
    shallow: Option<Vec<ObjectId>>,
) -> Result<Option<u64>, EngineError> {
    // Each round refuses at least one case, so there is an end.
    for _ in 0..=cases.len() {
        // Where there is no rest the log's own answer is enough.
        if !atomic && cases.len() > 1 {
            refuse_conflicts(&repository.log().current(), repository.edit(cause, actor), cases);
        }
        let refs: Vec<RefUpdate> = ordered(cases).filter_map(|at| cases.get(at).and_then(update)).collect();
        if refs.is_empty() && (layers.is_empty() || cases.iter().any(|case| !case.is_open())) {
            return Ok(None);
        }
        let edit = Edit {
            refs,
            added: layers.to_vec(),
            shallow: shallow.clone(),
            ..repository.edit(cause, actor)
        };
        match repository.log().commit(edit).await? {
            Committed::Done { number, .. } => return Ok(Some(number)),
            Committed::Conflict(Conflict::Ref { name, reason }) => {
                let mut hit = cases
                    .iter_mut()
                    .filter(|case| case.is_open() && case.target.as_ref() == Some(&name));
                match hit.next() {
                    Some(case) => case.refuse(reason.to_string()),
                    None => return Err(EngineError::Conflict(name.to_string())),
                }
                if atomic {
                    super::policy::check_atomic(cases);
                    return Ok(None);
                }
            }
            Committed::Conflict(conflict) => return Err(EngineError::Conflict(conflict.to_string())),
        }
    }
    Err(EngineError::Internal("a push conflicts more often than it has refs"))
}

/// Refuses what would conflict with the state known here, so that one append is enough for the rest.
fn refuse_conflicts(state: &State, blank: Edit, cases: &mut [Case]) {
    let mut trial = state.clone();
    for at in ordered(cases) {
        let Some(case) = cases.get_mut(at) else { continue };
        let Some(update) = update(case) else { continue };
        let edit = Edit {
            refs: vec![update],
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
