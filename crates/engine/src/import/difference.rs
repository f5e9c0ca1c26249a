//! What must change in a repository so that it has what a source has. Pure.

use super::directory::is_imported;
use super::error::ImportError;
use crate::EngineError;
use cuesta_format::{RefTarget, RefUpdate, SettingChange, SymrefChange};
use cuesta_git::{ObjectId, RefName};
use cuesta_ledger::State;
use std::collections::{BTreeMap, HashMap};

/// What the repository is to have.
pub(super) struct Wanted {
    pub(super) refs: BTreeMap<RefName, ObjectId>,
    pub(super) symrefs: BTreeMap<RefName, RefName>,
    pub(super) settings: BTreeMap<String, String>,
    /// What each id that a ref wants peels to.
    pub(super) targets: HashMap<ObjectId, RefTarget>,
    /// The shallow boundary, sorted.
    pub(super) shallow: Vec<ObjectId>,
    /// Nothing else: what is not wanted goes.
    pub(super) exact: bool,
    /// Whether `HEAD` is taken over.
    pub(super) head: bool,
}

/// The lists of an edit, and how many refs change.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) refs: Vec<RefUpdate>,
    pub(super) symrefs: Vec<SymrefChange>,
    pub(super) settings: Vec<SettingChange>,
    pub(super) shallow: Option<Vec<ObjectId>>,
    pub(super) created: usize,
    pub(super) updated: usize,
    pub(super) deleted: usize,
}

impl Difference {
    pub(super) fn is_empty(&self) -> bool {
        self.refs.is_empty() && self.symrefs.is_empty() && self.settings.is_empty() && self.shallow.is_none()
    }

    fn end_symref(&mut self, name: &RefName) {
        self.symrefs.push(SymrefChange {
            name: name.clone(),
            target: None,
        });
    }
}

/// What must change in `state`.
pub(super) fn between(state: &State, wanted: &Wanted) -> Result<Difference, ImportError> {
    let mut difference = Difference::default();
    for (name, oid) in wanted.refs.iter().filter(|(name, _)| wanted.takes(name)) {
        let target = wanted.targets.get(oid);
        let target = target.ok_or(EngineError::Internal("an imported ref was not followed"))?;
        set_ref(state, name, *target, &mut difference);
    }
    for (name, target) in wanted.symrefs.iter().filter(|(name, _)| wanted.takes(name)) {
        set_symref(state, name, target, &mut difference);
    }
    if wanted.exact {
        prune(state, wanted, &mut difference);
        difference.settings = settings(state, &wanted.settings);
    }
    if *state.shallow() != *wanted.shallow {
        difference.shallow = Some(wanted.shallow.clone());
    }
    Ok(difference)
}

impl Wanted {
    fn takes(&self, name: &RefName) -> bool {
        self.head || name.as_bytes() != b"HEAD"
    }

    fn has(&self, name: &RefName) -> bool {
        self.refs.contains_key(name) || self.symrefs.contains_key(name)
    }
}

fn set_ref(state: &State, name: &RefName, target: RefTarget, difference: &mut Difference) {
    let old = state.refs().get(name).map(|target| target.oid);
    let was_symbolic = state.symrefs().contains_key(name);
    if old == Some(target.oid) && !was_symbolic {
        return;
    }
    if was_symbolic {
        difference.end_symref(name);
    }
    match old.is_some() || was_symbolic {
        true => difference.updated += 1,
        false => difference.created += 1,
    }
    difference.refs.push(RefUpdate {
        name: name.clone(),
        old,
        new: Some(target),
    });
}

fn set_symref(state: &State, name: &RefName, target: &RefName, difference: &mut Difference) {
    let (direct, symbolic) = (state.refs().get(name), state.symrefs().get(name));
    if symbolic == Some(target) {
        return;
    }
    if let Some(direct) = direct {
        difference.refs.push(RefUpdate {
            name: name.clone(),
            old: Some(direct.oid),
            new: None,
        });
    }
    match direct.is_some() || symbolic.is_some() {
        true => difference.updated += 1,
        false => difference.created += 1,
    }
    difference.symrefs.push(SymrefChange {
        name: name.clone(),
        target: Some(target.clone()),
    });
}

/// Deletes what the source does not have.
fn prune(state: &State, wanted: &Wanted, difference: &mut Difference) {
    for (name, target) in state.refs().iter().filter(|(name, _)| !wanted.has(name)) {
        difference.deleted += 1;
        difference.refs.push(RefUpdate {
            name: name.clone(),
            old: Some(target.oid),
            new: None,
        });
    }
    for name in state.symrefs().keys().filter(|name| !wanted.has(name)) {
        difference.deleted += 1;
        difference.end_symref(name);
    }
}

fn settings(state: &State, wanted: &BTreeMap<String, String>) -> Vec<SettingChange> {
    let change = |name: &str, value: Option<&String>| SettingChange {
        name: name.to_owned(),
        value: value.cloned(),
    };
    let set = wanted
        .iter()
        .filter(|(name, value)| state.settings().get(*name) != Some(value))
        .map(|(name, value)| change(name, Some(value)));
    let unset = state
        .settings()
        .keys()
        .filter(|name| is_imported(name) && !wanted.contains_key(*name))
        .map(|name| change(name, None));
    set.chain(unset).collect()
}
