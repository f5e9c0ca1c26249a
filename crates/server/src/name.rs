//! Repository names as proofs: one spelling each, so that whoever checks a right and whoever opens the storage mean the
//! same repository.

use std::fmt;

/// Longest owner or name, in bytes.
pub const COMPONENT_LEN_MAX: usize = 100;

/// The canonical name of a repository: `<owner>/<name>`, without `.git`.
///
/// Each half is 1 to [`COMPONENT_LEN_MAX`] of `A-Z a-z 0-9 . _ -`, does not begin with `.` or `-` and does not end with
/// `.`; the second half does not end with `.git` or `.lock`, in any case. Case is kept and tells names apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepositoryName(String);

/// A name that is not `<owner>/<name>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a repository name: expected '<owner>/<name>' of letters, digits, '.', '_' and '-'", given.escape_debug())]
pub struct NameError {
    /// What was given.
    pub given: String,
}

impl RepositoryName {
    /// Takes the canonical spelling only.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let valid = text.split_once('/').is_some_and(|(owner, name)| {
            is_component(owner) && is_component(name) && !ends_with(name, ".git") && !ends_with(name, ".lock")
        });
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError { given: text.to_owned() })
        }
    }

    /// Takes what people type: the canonical spelling, or that with one `.git` at its end.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        Self::new(text.strip_suffix(".git").unwrap_or(text)).map_err(|_| NameError { given: text.to_owned() })
    }

    /// The name as `<owner>/<name>`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for RepositoryName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_component(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=COMPONENT_LEN_MAX).contains(&text.len())
        && text.bytes().all(allowed)
        && !text.starts_with(['.', '-'])
        && !text.ends_with('.')
}

fn ends_with(text: &str, suffix: &str) -> bool {
    let tail = text.len().checked_sub(suffix.len()).and_then(|start| text.get(start..));
    tail.is_some_and(|tail| tail.eq_ignore_ascii_case(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_names_are_taken_as_they_are() {
        for name in ["alice/notes", "A/b", "a.b/c-d_e", "0/1", "a/git", "a/x.gitx"] {
            assert_eq!(RepositoryName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        let long = format!("a/{}", "x".repeat(COMPONENT_LEN_MAX + 1));
        let refused = [
            "", "/", "a", "a/", "/a", "a/b/c", "a//b", "./b", "a/..", "a/.b", "-a/b", "a/-b", "a/b.", "a/b.git",
            "a/b.GIT", "a/b.lock", "a/b ", "a\\b/c", "a/b\0", "ä/b", "a/b%2f", "a/~b", &long,
        ];
        for name in refused {
            assert!(RepositoryName::new(name).is_err(), "{name:?}");
        }
        let longest = format!("a/{}", "x".repeat(COMPONENT_LEN_MAX));
        assert!(RepositoryName::new(&longest).is_ok());
    }

    #[test]
    fn one_suffix_may_be_left_off() {
        assert_eq!(
            RepositoryName::parse("a/b.git").unwrap(),
            RepositoryName::new("a/b").unwrap()
        );
        assert!(RepositoryName::parse("a/b.git.git").is_err());
        assert!(RepositoryName::parse("a/.git").is_err());
    }
}
