//! Repository names, in their one canonical spelling.

use std::fmt;
use std::sync::Arc;

/// `<owner>/<name>`: two components of `[A-Za-z0-9._-]`, without `.git`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepositoryName(Arc<str>);

/// Text that is no repository name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a valid repository name: {reason}", name.escape_debug())]
pub struct RepositoryNameError {
    /// The name as it came, cut to a printable length.
    pub name: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl RepositoryName {
    /// Longest component in bytes: a path component of common file systems holds 255, and suffixes need room.
    pub const COMPONENT_LEN_MAX: usize = 100;

    /// Parses a name as users write it in URLs: slashes around it and one trailing `.git` are dropped. Case is kept, and
    /// names that differ in case differ.
    pub fn parse(text: &str) -> Result<Self, RepositoryNameError> {
        let refuse = |reason| RepositoryNameError {
            name: text.chars().take(80).collect(),
            reason,
        };
        let trimmed = text.strip_prefix('/').unwrap_or(text);
        let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
        let trimmed = trimmed.strip_suffix(".git").unwrap_or(trimmed);
        let Some((owner, name)) = trimmed.split_once('/') else {
            return Err(refuse("expected <owner>/<name>"));
        };
        for component in [owner, name] {
            check_component(component).map_err(refuse)?;
        }
        Ok(Self(trimmed.into()))
    }

    /// Checks a name's first component alone.
    pub fn check_owner(owner: &str) -> Result<(), &'static str> {
        check_component(owner)
    }

    /// The canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the slash.
    pub fn owner(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(owner, _)| owner)
    }
}

/// The rules both components obey: safe in URLs, file names and shells, and never to be taken for something of git's.
fn check_component(component: &str) -> Result<(), &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let lower = component.to_ascii_lowercase();
    if component.is_empty() {
        Err("a component is empty")
    } else if component.len() > RepositoryName::COMPONENT_LEN_MAX {
        Err("a component is longer than 100 bytes")
    } else if !component.bytes().all(allowed) {
        Err("only letters, digits, '.', '_', '-' and one '/' are allowed")
    } else if component.starts_with(['.', '-']) {
        Err("a component starts with '.' or '-'")
    } else if component.contains("..") {
        Err("a component contains '..'")
    } else if lower.ends_with(".git") || lower.ends_with(".lock") {
        Err("a component ends in '.git' or '.lock'")
    } else {
        Ok(())
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_name_are_one() {
        for text in [
            "ann/web.js",
            "/ann/web.js",
            "ann/web.js.git",
            "/ann/web.js.git/",
            "ann/web.js/",
        ] {
            assert_eq!(
                RepositoryName::parse(text).map(|name| name.to_string()),
                Ok("ann/web.js".to_owned()),
                "{text}"
            );
        }
        assert_eq!(RepositoryName::parse("ann/x").unwrap().owner(), "ann");
    }

    #[test]
    fn bad_names_are_refused() {
        let long = format!("a/{}", "b".repeat(RepositoryName::COMPONENT_LEN_MAX + 1));
        for text in [
            "",
            "/",
            "a",
            "a/",
            "/b",
            "a//b",
            "a/b/c",
            ".a/b",
            "a/.b",
            "-a/b",
            "a/-b",
            "a/b..c",
            "../b",
            "a/..",
            "a/b.lock",
            "a/b.git.git",
            "a/b.GIT",
            "a.git/b",
            "a/b c",
            "a/b\0",
            "a/b%2f",
            "a/é",
            "a\\b/c",
            "a/.git",
            &long,
        ] {
            assert!(RepositoryName::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_longest_component_is_accepted() {
        let longest = format!("a/{}", "b".repeat(RepositoryName::COMPONENT_LEN_MAX));
        assert!(RepositoryName::parse(&longest).is_ok());
    }
}
