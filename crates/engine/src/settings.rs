//! A repository's settings, under git's own names, above those of the node.

use cuesta_ledger::State;
use std::collections::BTreeMap;

/// What applies to one repository in one view: its own settings, and the node's where it has none.
///
/// Names are canonical: section and variable in lower case. Lists have one value a line.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    own: Option<&'a State>,
    defaults: &'a BTreeMap<String, String>,
}

impl<'a> Settings<'a> {
    /// The settings in `state`, above `defaults`.
    pub fn new(state: &'a State, defaults: &'a BTreeMap<String, String>) -> Self {
        Self {
            own: Some(state),
            defaults,
        }
    }

    /// The settings of a repository that sets nothing, as a new one.
    pub fn of_node(defaults: &'a BTreeMap<String, String>) -> Self {
        Self { own: None, defaults }
    }

    /// The value of `name`, if there is one.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let own = self.own.and_then(|state| state.settings().get(name));
        own.or_else(|| self.defaults.get(name)).map(String::as_str)
    }

    /// The value of `name` as `git config --bool` reads it; what it cannot read is the default.
    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.get(name).and_then(parse_bool).unwrap_or(default)
    }

    /// The values of a list, in order; empty lines are none.
    pub fn lines(&self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let lines = self.get(name).unwrap_or_default().lines();
        lines.filter(|line| !line.is_empty())
    }

    /// All settings whose name begins with `prefix`, by name.
    pub fn below(&self, prefix: &str) -> BTreeMap<&'a str, &'a str> {
        let starts = |(name, _): &(&'a String, &'a String)| name.starts_with(prefix);
        let own = self.own.into_iter().flat_map(|state| state.settings().iter());
        let all = self.defaults.iter().chain(own);
        all.filter(starts)
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    /// Whether nothing is set anywhere.
    pub fn is_empty(&self) -> bool {
        self.defaults.is_empty() && self.own.is_none_or(|state| state.settings().is_empty())
    }
}

fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" | "" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_format::{Cause, Edit, EditId, SettingChange};
    use cuesta_git::ObjectFormat;

    fn state(settings: &[(&str, &str)]) -> State {
        let change = |(name, value): &(&str, &str)| SettingChange {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        };
        let edit = Edit {
            object_format: Some(ObjectFormat::Sha1),
            settings: settings.iter().map(change).collect(),
            ..Edit::new(EditId(1), 0, Cause::Administer, "")
        };
        let mut state = State::default();
        state.apply(&edit).unwrap();
        state
    }

    #[test]
    fn a_repository_overrides_its_node() {
        let node = BTreeMap::from([("a.x", "1"), ("a.y", "no"), ("b.l", "p\n\nq")].map(|(k, v)| (k.into(), v.into())));
        let state = state(&[("a.x", "off"), ("a.z", "maybe")]);
        let settings = Settings::new(&state, &node);
        assert!(!settings.flag("a.x", true) && Settings::of_node(&node).flag("a.x", false));
        assert!(!settings.flag("a.y", true));
        assert!(settings.flag("a.z", true) && !settings.flag("a.z", false));
        assert_eq!(settings.lines("b.l").collect::<Vec<_>>(), ["p", "q"]);
        let below: Vec<_> = settings.below("a.").into_iter().collect();
        assert_eq!(below, [("a.x", "off"), ("a.y", "no"), ("a.z", "maybe")]);
        assert!(!settings.is_empty() && Settings::of_node(&BTreeMap::new()).is_empty());
    }
}
