//! Refs that a server keeps to itself (git-config, `transfer.hideRefs`).

use crate::RefName;

/// Rules that hide refs by the start of their names. The last rule that matches decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HiddenRefs {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    hides: bool,
    start: Vec<u8>,
}

impl HiddenRefs {
    /// Rules in the order of the settings: a name hides itself and all refs below it, `!` before it shows them again.
    /// A `^` before the name asks for full names, which all names here are: there are no namespaces.
    pub fn new<P: AsRef<[u8]>>(patterns: impl IntoIterator<Item = P>) -> Self {
        Self {
            rules: patterns
                .into_iter()
                .map(|pattern| Rule::new(pattern.as_ref()))
                .collect(),
        }
    }

    /// Whether no ref can be hidden.
    pub fn is_empty(&self) -> bool {
        !self.rules.iter().any(|rule| rule.hides)
    }

    /// Whether this ref is hidden.
    pub fn hides(&self, name: &RefName) -> bool {
        let deciding = self.rules.iter().rev().find(|rule| rule.matches(name.as_bytes()));
        deciding.is_some_and(|rule| rule.hides)
    }
}

impl Rule {
    fn new(pattern: &[u8]) -> Self {
        let mut start = pattern;
        while let Some(shorter) = start.strip_suffix(b"/") {
            start = shorter;
        }
        let (hides, start) = match start.strip_prefix(b"!") {
            Some(shown) => (false, shown),
            None => (true, start),
        };
        Self {
            hides,
            start: start.strip_prefix(b"^").unwrap_or(start).to_vec(),
        }
    }

    fn matches(&self, name: &[u8]) -> bool {
        matches!(name.strip_prefix(&self.start[..]), Some([] | [b'/', ..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules() {
        let table: [(&[&str], &str, bool); 14] = [
            (&[], "refs/heads/main", false),
            (&["refs/heads"], "refs/heads/main", true),
            (&["refs/heads/"], "refs/heads/main", true),
            (&["refs/heads//"], "refs/heads/main", true),
            (&["refs/heads/main"], "refs/heads/main", true),
            (&["refs/head"], "refs/heads/main", false),
            (&["refs/heads/mai"], "refs/heads/main", false),
            (&["refs", "!refs/heads"], "refs/heads/main", false),
            (&["refs", "!refs/heads"], "refs/tags/v1", true),
            (&["!refs/heads", "refs"], "refs/heads/main", true),
            (&["^refs/heads"], "refs/heads/main", true),
            (&["refs", "!^refs/heads"], "refs/heads/main", false),
            (&["HEAD"], "HEAD", true),
            (&["", "!"], "refs/heads/main", false),
        ];
        for (patterns, name, hidden) in table {
            assert_eq!(
                HiddenRefs::new(patterns).hides(&RefName::new(name.as_bytes()).unwrap()),
                hidden,
                "{patterns:?} {name}"
            );
        }
    }

    #[test]
    fn rules_that_only_show_hide_nothing() {
        assert!(HiddenRefs::new(["!refs/heads"]).is_empty());
        assert!(!HiddenRefs::new(["refs/pull"]).is_empty());
    }
}
