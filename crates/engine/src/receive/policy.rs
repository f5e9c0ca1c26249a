//! What a repository lets a push do to its refs: git receive-pack's checks, in its order and its words.

use super::request::RefCommand;
use super::tips::Tip;
use crate::Settings;
use cuesta_git::{HiddenRefs, ObjectFormat, ObjectKind, RefName, fsck};
use cuesta_ledger::State;
use std::collections::HashMap;

/// Settings that bind a push (git-config, `receive.*`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    pub(crate) deny_deletes: bool,
    pub(crate) deny_delete_current: bool,
    pub(crate) deny_non_fast_forwards: bool,
    /// Histories may end at the boundary of who pushes them.
    pub(crate) shallow_update: bool,
    pub(crate) pack_bytes_max: Option<u64>,
    pub(crate) hidden: HiddenRefs,
}

impl Policy {
    /// What the settings of a repository say.
    pub(crate) fn of(settings: &Settings<'_>) -> Self {
        let patterns = ["transfer.hiderefs", "receive.hiderefs"]
            .into_iter()
            .flat_map(|name| settings.lines(name));
        let current = "receive.denydeletecurrent";
        Self {
            deny_deletes: settings.flag("receive.denydeletes", false),
            deny_delete_current: settings.flag(current, settings.get(current).is_none_or(|value| value == "refuse")),
            deny_non_fast_forwards: settings.flag("receive.denynonfastforwards", false),
            shallow_update: settings.flag("receive.shallowupdate", false),
            pack_bytes_max: settings
                .get("receive.maxinputsize")
                .and_then(bytes)
                .filter(|bytes| *bytes > 0),
            hidden: HiddenRefs::new(patterns),
        }
    }

    /// Refuses only what git cannot do without: for what others have let in before.
    pub(crate) fn tolerant_fsck() -> fsck::Config {
        let mut config = fsck::Config::lenient();
        for id in fsck::MessageId::ALL {
            // Fatal messages cannot be ignored, and are not.
            let _ = config.set(id.name(), "ignore");
        }
        config
    }

    /// What fsck tolerates here: `receive.fsck.<id>` and, line by line, `receive.fsck.skiplist`.
    pub(crate) fn fsck(settings: &Settings<'_>, format: ObjectFormat) -> fsck::Config {
        const PREFIX: &str = "receive.fsck.";
        let mut config = fsck::Config::strict();
        for (name, value) in settings.below(PREFIX) {
            let set = match name.strip_prefix(PREFIX) {
                Some("skiplist") => config.skip_list(format, value),
                Some(id) => config.set(id, value),
                None => Ok(()),
            };
            if let Err(error) = set {
                tracing::warn!(%name, %value, %error, "a setting is not understood");
            }
        }
        config
    }
}

/// A number of bytes with git's suffixes.
fn bytes(value: &str) -> Option<u64> {
    let value = value.trim().to_ascii_lowercase();
    let (digits, shift) = match value.char_indices().next_back()? {
        (at, 'k') => (value.get(..at)?, 10),
        (at, 'm') => (value.get(..at)?, 20),
        (at, 'g') => (value.get(..at)?, 30),
        _ => (value.as_str(), 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// One command on its way through the checks.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) command: RefCommand,
    /// The ref that is changed: the command's, or what it leads to if that is symbolic. `None` until the name is checked.
    pub(crate) target: Option<RefName>,
    /// Why it is refused.
    pub(crate) refusal: Option<String>,
    /// What the new value is; `None` for deletions.
    pub(crate) tip: Option<Tip>,
    /// Nothing is to be done for it: it deletes what is not there, or repeats another case.
    pub(crate) idle: bool,
}

impl Case {
    pub(crate) fn new(command: RefCommand) -> Self {
        Self {
            command,
            target: None,
            refusal: None,
            tip: None,
            idle: false,
        }
    }

    pub(crate) fn is_delete(&self) -> bool {
        self.command.new.is_null()
    }

    /// Whether it may still succeed.
    pub(crate) fn is_open(&self) -> bool {
        self.refusal.is_none()
    }

    /// Refuses it, unless it is refused already: the first reason counts.
    pub(crate) fn refuse(&mut self, reason: impl Into<String>) {
        self.refusal.get_or_insert_with(|| reason.into());
    }
}

/// Refuses values whose closure is not complete.
pub(crate) fn check_connectivity(policy: &Policy, cases: &mut [Case], has_shallow: bool) {
    let reason = match (has_shallow, policy.shallow_update) {
        // A shallow client's new root looks like a history with a hole.
        (true, false) => "shallow update not allowed",
        // Then there is a hole in spite of the boundary.
        (true, true) => "shallow error",
        (false, _) => "missing necessary objects",
    };
    for case in cases.iter_mut().filter(|case| case.tip == Some(Tip::Incomplete)) {
        case.refuse(reason);
    }
}

/// Refuses changes of hidden refs.
pub(crate) fn check_hidden(policy: &Policy, cases: &mut [Case]) {
    for case in cases.iter_mut() {
        if RefName::new(&case.command.name).is_ok_and(|name| policy.hidden.hides(&name)) {
            case.refuse(if case.is_delete() {
                "deny deleting a hidden ref"
            } else {
                "deny updating a hidden ref"
            });
        }
    }
}

/// Finds what each command changes: symbolic refs are followed, and those that meet in one ref must agree.
pub(crate) fn check_names(state: &State, cases: &mut [Case]) {
    for case in cases.iter_mut() {
        match name_of(case) {
            Some(name) => match state.symref_end(&name) {
                Some(end) => case.target = Some(end.clone()),
                None => case.refuse("broken symref"),
            },
            None => case.refuse("funny refname"),
        }
    }
    let mut first_of: HashMap<RefName, usize> = HashMap::new();
    for at in 0..cases.len() {
        let Some(target) = cases
            .get(at)
            .filter(|case| case.is_open())
            .and_then(|case| case.target.clone())
        else {
            continue;
        };
        let Some(first) = first_of.get(&target).copied() else {
            first_of.insert(target, at);
            continue;
        };
        let agree = match (cases.get(first), cases.get(at)) {
            (Some(one), Some(other)) => {
                (one.command.old, one.command.new) == (other.command.old, other.command.new)
                    && one.command.name != other.command.name
            }
            _ => false,
        };
        for both in [first, at] {
            match cases.get_mut(both) {
                Some(case) if !agree => case.refuse("inconsistent aliased update"),
                Some(case) if both == at => case.idle = true,
                _ => {}
            }
        }
    }
}

/// The name of a command, which must begin with `refs/` and, unless it is deleted, have two levels below it.
fn name_of(case: &Case) -> Option<RefName> {
    let below = case.command.name.strip_prefix(b"refs/")?;
    let one_level = !below.contains(&b'/');
    if one_level && !case.is_delete() {
        return None;
    }
    RefName::new(&case.command.name).ok()
}

/// The checks of each ref by itself; answers the warnings.
pub(crate) fn check_each(policy: &Policy, state: &State, cases: &mut [Case]) -> Vec<String> {
    let mut warnings = Vec::new();
    let head = RefName::head();
    let current = state.symref_end(&head).cloned();
    for case in cases.iter_mut().filter(|case| case.is_open()) {
        let Some(target) = case.target.clone() else { continue };
        let is_branch = target.as_bytes().starts_with(b"refs/heads/");
        if case.is_delete() {
            if !state.refs().contains_key(&target) {
                warnings.push("deleting a non-existent ref".to_owned());
                case.idle = true;
            } else if policy.deny_deletes && is_branch {
                case.refuse("deletion prohibited");
            } else if policy.deny_delete_current && current.as_ref() == Some(&target) {
                case.refuse("deletion of the current branch prohibited");
            }
        } else if is_branch
            && !matches!(
                case.tip,
                Some(Tip::Complete {
                    kind: ObjectKind::Commit,
                    ..
                })
            )
        {
            // Branches hold commits.
            case.refuse("failed to update ref");
        }
    }
    warnings
}

/// All or nothing: one refusal refuses everything.
pub(crate) fn check_atomic(cases: &mut [Case]) {
    if cases.iter().any(|case| !case.is_open()) {
        cases.iter_mut().for_each(|case| case.refuse("atomic push failure"));
    }
}
