//! Sparse specifications: which paths a sparse checkout would populate (git-sparse-checkout, without cones; what the filter
//! `sparse:oid` of git-rev-list reads).

use crate::path_pattern::PathPattern;
use crate::wildmatch::{Effort, TooMuchEffort};

/// Longest specification, in bytes: a pattern takes a few dozen times its length in memory. Git reads 100 MiB.
pub const SPARSE_BYTES_MAX: u64 = 2 << 20;
/// Bytes of a path that cost as much as a step of matching to be looked at.
const BYTES_PER_STEP: usize = 64;

/// The patterns of a specification; the last that matches decides.
#[derive(Clone, Debug, Default)]
pub struct SparsePatterns {
    patterns: Vec<(PathPattern, bool)>,
}

impl SparsePatterns {
    /// Reads a specification. Whatever the bytes, there is one, as in git: lines that begin with `#` and empty ones say
    /// nothing.
    pub fn parse(content: &[u8]) -> Self {
        let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
        let lines = content.split(|byte| *byte == b'\n');
        let said = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
        Self {
            patterns: said.map(pattern).collect(),
        }
    }

    /// What is said of a path, without a slash at its end and empty for the root: true if it is in, `None` if nothing is said,
    /// so that it is as the directory it is in. Cost: a step for each pattern, more for those with wildcards and for long
    /// paths; taken from `effort`.
    pub fn decide(&self, path: &[u8], is_directory: bool, effort: &mut Effort) -> Result<Option<bool>, TooMuchEffort> {
        for (pattern, is_in) in self.patterns.iter().rev() {
            effort.take(1 + path.len() / BYTES_PER_STEP)?;
            if pattern.matches(path, is_directory, effort)? {
                return Ok(Some(*is_in));
            }
        }
        Ok(None)
    }
}

fn pattern(line: &[u8]) -> (PathPattern, bool) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // To git it is a string of C.
    let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let line = trimmed(line);
    match line.strip_prefix(b"!") {
        Some(line) => (PathPattern::new(line), false),
        None => (PathPattern::new(line), true),
    }
}

/// A line without the spaces at its end that no backslash protects.
fn trimmed(line: &[u8]) -> &[u8] {
    let (mut end, mut at) = (0, 0);
    while let Some(byte) = line.get(at) {
        match byte {
            b' ' => at += 1,
            b'\\' if at + 1 == line.len() => return line,
            b'\\' => {
                at += 2;
                end = at;
            }
            _ => {
                at += 1;
                end = at;
            }
        }
    }
    line.get(..end).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a file is in, as the directories above it and the root say.
    fn is_in(specification: &str, path: &str) -> bool {
        let patterns = SparsePatterns::parse(specification.as_bytes());
        let mut effort = Effort::steps(10_000);
        let mut decide =
            |path: &str, is_directory| patterns.decide(path.as_bytes(), is_directory, &mut effort).unwrap();
        let mut found = decide("", true).unwrap_or(false);
        for (at, _) in path.match_indices('/') {
            found = decide(&path[..at], true).unwrap_or(found);
        }
        decide(path, false).unwrap_or(found)
    }

    #[test]
    fn the_last_pattern_that_matches_decides_and_directories_pass_it_on() {
        for (specification, path, expected) in [
            ("", "a", false),
            ("a", "a", true),
            ("a\n!a\n", "a", false),
            ("a/", "a", false),
            ("a/", "a/b/c", true),
            ("a/\n!/a/b/", "a/b/c", false),
            ("a/\n!/a/b/\nc", "a/b/c", true),
            ("/*\n!/*/", "a", true),
            ("/*\n!/*/", "a/b", false),
            ("*.c", "a/x.c", true),
            ("# a\n\\#a", "#a", true),
            ("# a\n\\#a", " a", false),
            ("a \n", "a", true),
            ("a\\ ", "a ", true),
            ("a\r\n", "a", true),
            ("\u{feff}a", "a", true),
            ("\\!a", "!a", true),
            ("*", "a/b", true),
            ("/", "a/b", true),
            ("  ", "a/b", true),
            ("/\n!b", "a/b", false),
            ("**/b", "b", true),
            ("a/**", "a/b/c", true),
        ] {
            assert_eq!(is_in(specification, path), expected, "{specification:?} {path}");
        }
    }
}
