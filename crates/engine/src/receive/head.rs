//! Which branch `HEAD` of a repository names that gets its first branches by a push.

use cuesta_format::{Edit, RefUpdate, SymrefChange};
use cuesta_git::RefName;
use cuesta_ledger::State;

const BRANCHES: &[u8] = b"refs/heads/";
/// Preferred where the default branch was not pushed: what many clients still call their first one.
const MASTER: &[u8] = b"refs/heads/master";

/// Lets `HEAD` follow the first branches: while it names the default branch, the repository has no branch, and the edit
/// makes others, it is pointed at `master` or else at the first of them, by the same edit. A `HEAD` that was set to
/// anything else is left alone. The state may be old: where another push made the first branch meanwhile, the ledger leaves
/// `HEAD` to that one.
pub(super) fn follow(state: &State, default: &RefName, edit: &mut Edit) {
    let head = RefName::head();
    let made = |change: &SymrefChange| change.name == head;
    let names = edit
        .symrefs
        .iter()
        .find(|change| made(change))
        .map_or_else(|| state.symrefs().get(&head), |change| change.target.as_ref());
    if names != Some(default) || state.has_branch() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_format::{Cause, EditId, RefTarget};
    use cuesta_git::{ObjectFormat, ObjectId};

    fn name(branch: &str) -> RefName {
        RefName::new(format!("refs/heads/{branch}").as_bytes()).unwrap()
    }

    /// A push that makes branches, decided on in view of `state`.
    fn push(state: &State, id: usize, branches: &[&str]) -> Edit {
        let mut edit = Edit::new(EditId(id as u128), 0, Cause::Push, "");
        let target = RefTarget {
            oid: ObjectId::Sha1([1; 20]),
            peeled: None,
        };
        let made = |branch: &&str| RefUpdate {
            name: name(branch),
            old: None,
            new: Some(target),
        };
        edit.refs = branches.iter().map(made).collect();
        if state.object_format().is_none() {
            edit.object_format = Some(ObjectFormat::Sha1);
            edit.symrefs = vec![SymrefChange {
                name: RefName::head(),
                target: Some(name("main")),
            }];
        }
        follow(state, &name("main"), &mut edit);
        edit
    }

    fn empty() -> State {
        let mut state = State::default();
        let mut made = push(&state, 1_000, &[]);
        made.cause = Cause::Create;
        state.apply(&made).unwrap();
        state
    }

    #[test]
    fn first_pushes_that_race_leave_what_they_leave_one_after_the_other() {
        let sets: [&[&str]; 5] = [&["main"], &["x"], &["y", "z"], &["master", "a"], &[]];
        let head = |state: &State| state.symrefs().get(&RefName::head()).cloned().unwrap();
        for order in permutations(sets.len()) {
            let (mut raced, mut serial) = (empty(), empty());
            let edits: Vec<Edit> = order.iter().map(|at| push(&raced, *at, sets[*at])).collect();
            for (edit, at) in edits.iter().zip(&order) {
                raced.apply(edit).unwrap();
                serial.apply(&push(&serial, *at, sets[*at])).unwrap();
                assert_eq!(head(&raced), head(&serial), "{order:?}");
                assert!(
                    !raced.has_branch() || raced.refs().contains_key(&head(&raced)),
                    "{order:?}"
                );
            }
        }
    }

    fn permutations(count: usize) -> Vec<Vec<usize>> {
        (0..count).fold(vec![Vec::new()], |all, item| {
            let with = |order: &Vec<usize>| {
                let at = |place: usize| [&order[..place], &[item], &order[place..]].concat();
                (0..=order.len()).map(at).collect::<Vec<_>>()
            };
            all.iter().flat_map(with).collect()
        })
    }
}
