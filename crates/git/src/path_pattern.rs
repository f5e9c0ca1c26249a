//! One pattern of a `.gitignore`, `.gitattributes` or sparse-checkout file (gitignore, `PATTERN FORMAT`).

use crate::wildmatch::{Effort, TooMuchEffort, WildOptions, WildPattern, literal_len};

/// A pattern, without the `!` that may stand before it.
#[derive(Clone, Debug)]
pub(crate) struct PathPattern {
    directory_only: bool,
    /// Without a slash: it is the last component that has to match.
    basename: bool,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Literal(Box<[u8]>),
    EndsWith(Box<[u8]>),
    Wild(Box<[u8]>, WildPattern),
}

impl PathPattern {
    pub(crate) fn new(pattern: &[u8]) -> Self {
        let (pattern, directory_only) = match pattern.strip_suffix(b"/") {
            Some(pattern) => (pattern, true),
            None => (pattern, false),
        };
        let basename = !pattern.contains(&b'/');
        let pattern = pattern.strip_prefix(b"/").unwrap_or(pattern);
        let literal = literal_len(pattern);
        let test = match pattern {
            _ if literal == pattern.len() => Test::Literal(pattern.into()),
            [b'*', end @ ..] if basename && literal_len(end) == end.len() => Test::EndsWith(end.into()),
            _ => {
                let options = WildOptions {
                    pathname: !basename,
                    ignore_case: false,
                };
                let prefix = pattern.get(..literal).unwrap_or_default();
                Test::Wild(prefix.into(), WildPattern::new(pattern, options))
            }
        };
        Self {
            directory_only,
            basename,
            test,
        }
    }

    /// Whether it matches a path below the directory of its file, without a slash at its end; that directory itself is empty,
    /// and only patterns without a slash can match it.
    pub(crate) fn matches(&self, path: &[u8], is_directory: bool, effort: &mut Effort) -> Result<bool, TooMuchEffort> {
        if self.directory_only && !is_directory || path.is_empty() && !self.basename {
            return Ok(false);
        }
        let text = match self.basename {
            true => path.rsplit(|byte| *byte == b'/').next().unwrap_or(path),
            false => path,
        };
        match &self.test {
            Test::Literal(literal) => Ok(**literal == *text),
            Test::EndsWith(end) => Ok(text.ends_with(end)),
            Test::Wild(prefix, pattern) => Ok(text.starts_with(prefix) && pattern.matches(text, effort)?),
        }
    }
}
