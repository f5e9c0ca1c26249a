//! Which branch `HEAD` of a repository names that gets its first branches by a push.

use cuesta_format::{Edit, RefUpdate, SymrefChange};
use cuesta_git::RefName;
use cuesta_ledger::State;
use std::ops::Bound;

const BRANCHES: &[u8] = b"refs/heads/";
/// Preferred where the default branch was not pushed: what many clients still call their first one.
const MASTER: &[u8] = b"refs/heads/master";

/// Lets `HEAD` follow the first branches: while it names the default branch, the repository has no branch, and the edit
/// makes others, it is pointed at `master` or else at the first of them, by the same edit. A `HEAD` that was set to
/// anything else is left alone.
pub(super) fn follow(state: &State, default: &RefName, edit: &mut Edit) {
    let head = RefName::head();
    let made = |change: &SymrefChange| change.name == head;
    let names = edit
        .symrefs
        .iter()
        .find(|change| made(change))
        .map_or_else(|| state.symrefs().get(&head), |change| change.target.as_ref());
    if names != Some(default) || has_branch(state) {
        return;
    }
    let Some(target) = choose(default, &edit.refs) else {
        return;
    };
    edit.symrefs.retain(|change| !made(change));
    edit.symrefs.push(SymrefChange {
        name: head,
        target: Some(target),
    });
}

fn has_branch(state: &State) -> bool {
    let from = (Bound::Included(BRANCHES), Bound::Unbounded);
    let first = state.refs().range::<_, [u8]>(from).next();
    first.is_some_and(|(name, _)| name.as_bytes().starts_with(BRANCHES))
}

/// The branch to name instead of the default one, which is not made.
fn choose(default: &RefName, refs: &[RefUpdate]) -> Option<RefName> {
    let made = || {
        let names = refs.iter().filter(|update| update.new.is_some());
        names
            .map(|update| &update.name)
            .filter(|name| name.as_bytes().starts_with(BRANCHES))
    };
    if made().any(|name| name == default) {
        return None;
    }
    let master = made().find(|name| name.as_bytes() == MASTER);
    master.or_else(|| made().min()).cloned()
}
