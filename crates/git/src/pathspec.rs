//! Pathspecs: which paths of a tree are meant (gitglossary, `pathspec`).

use crate::wildmatch::{Effort, TooMuchEffort, WildOptions, WildPattern, literal_len};

/// Longest pathspec, in bytes.
pub const PATHSPEC_LEN_MAX: usize = 4096;

/// A pathspec that cannot be read, in git's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PathspecError(String);

/// Several pathspecs together.
#[derive(Clone, Debug, Default)]
pub struct Pathspec {
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
struct Item {
    /// As it came, for messages.
    original: Vec<u8>,
    /// What is left when magic and `./` are taken off.
    path: Vec<u8>,
    exclude: bool,
    ignore_case: bool,
    /// Bytes before the first wildcard.
    literal: usize,
    wild: Option<WildPattern>,
}

impl Pathspec {
    /// Reads pathspecs; empty ones are passed over.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, PathspecError> {
        let items = texts.into_iter().filter(|text| !text.is_empty()).map(Item::parse);
        Ok(Self {
            items: items.collect::<Result<_, _>>()?,
        })
    }

    /// Whether there is none, so that everything is meant.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether a file or directory (without a slash at its end) is meant, itself or with a directory above it. Cost: that of
    /// the patterns, taken from `effort`.
    pub fn matches(&self, path: &[u8], is_directory: bool, effort: &mut Effort) -> Result<bool, TooMuchEffort> {
        let included = self.any(false, path, is_directory, effort)?.unwrap_or(true);
        Ok(included && self.any(true, path, is_directory, effort)? != Some(true))
    }

    /// Whether anything below a directory may be meant. May be said too often, never too rarely.
    pub fn may_match_below(&self, directory: &[u8], effort: &mut Effort) -> Result<bool, TooMuchEffort> {
        let mut only_exclusions = true;
        for item in self.items.iter().filter(|item| !item.exclude) {
            only_exclusions = false;
            if item.may_match_below(directory, effort)? {
                return Ok(true);
            }
        }
        Ok(only_exclusions)
    }

    /// Whether one of the pathspecs that exclude, or of those that do not, matches; `None` if there is none of them.
    fn any(
        &self,
        exclude: bool,
        path: &[u8],
        is_directory: bool,
        effort: &mut Effort,
    ) -> Result<Option<bool>, TooMuchEffort> {
        let mut found = None;
        for item in self.items.iter().filter(|item| item.exclude == exclude) {
            if item.matches(path, is_directory, effort)? {
                return Ok(Some(true));
            }
            found = Some(false);
        }
        Ok(found)
    }

    /// The `number`th alone.
    pub fn only(&self, number: usize) -> Self {
        Self {
            items: self.items.get(number).cloned().into_iter().collect(),
        }
    }

    /// The `number`th as it came.
    pub fn text(&self, number: usize) -> &[u8] {
        self.items.get(number).map_or(b"", |item| &item.original)
    }
}

#[derive(Default)]
struct Magic {
    exclude: bool,
    /// Read from the root, and then as it stands.
    from_top: bool,
    ignore_case: bool,
    glob: bool,
    literal: bool,
}

impl Item {
    fn parse(text: &[u8]) -> Result<Self, PathspecError> {
        if text.len() > PATHSPEC_LEN_MAX {
            return Err(PathspecError(format!(
                "pathspec is longer than {PATHSPEC_LEN_MAX} bytes"
            )));
        }
        let (magic, rest) = magic(text)?;
        let path = match magic.from_top {
            true => rest.to_vec(),
            false => normalise(rest).ok_or_else(|| outside(text))?,
        };
        let literal = if magic.literal { path.len() } else { literal_len(&path) };
        let options = WildOptions {
            pathname: magic.glob,
            ignore_case: magic.ignore_case,
        };
        let wild = (literal < path.len()).then(|| WildPattern::new(&path, options));
        Ok(Self {
            original: text.to_vec(),
            path,
            exclude: magic.exclude,
            ignore_case: magic.ignore_case,
            literal,
            wild,
        })
    }

    fn matches(&self, path: &[u8], is_directory: bool, effort: &mut Effort) -> Result<bool, TooMuchEffort> {
        if self.path.is_empty() || self.is_at_or_above(path, is_directory) {
            return Ok(true);
        }
        let Some(wild) = &self.wild else { return Ok(false) };
        let literal = self.path.get(..self.literal).unwrap_or_default();
        let same_start = path.get(..self.literal).is_some_and(|start| self.equal(start, literal));
        Ok(same_start && wild.matches(path, effort)?)
    }

    /// Whether the pathspec, read literally, is the path or a directory above it.
    fn is_at_or_above(&self, path: &[u8], is_directory: bool) -> bool {
        let (own, must_be_directory) = match self.path.strip_suffix(b"/") {
            Some(own) => (own, true),
            None => (&self.path[..], false),
        };
        let same_start = path.get(..own.len()).is_some_and(|start| self.equal(start, own));
        let next = path.get(own.len());
        same_start && (next == Some(&b'/') || next.is_none() && (is_directory || !must_be_directory))
    }

    fn may_match_below(&self, directory: &[u8], effort: &mut Effort) -> Result<bool, TooMuchEffort> {
        let reaches_wildcards = self.wild.is_some() && self.literal <= directory.len();
        if reaches_wildcards || self.matches(directory, true, effort)? {
            let shared = self.literal.min(directory.len());
            let (ours, theirs) = (self.path.get(..shared), directory.get(..shared));
            let same_start = ours.zip(theirs).is_some_and(|(ours, theirs)| self.equal(ours, theirs));
            return Ok(same_start || self.path.is_empty());
        }
        // Further down on the way to it.
        let start = self.path.get(..directory.len());
        let same_start = start.is_some_and(|start| self.equal(start, directory));
        Ok(same_start && self.path.get(directory.len()) == Some(&b'/'))
    }

    fn equal(&self, one: &[u8], other: &[u8]) -> bool {
        if self.ignore_case {
            one.eq_ignore_ascii_case(other)
        } else {
            one == other
        }
    }
}

fn outside(text: &[u8]) -> PathspecError {
    PathspecError(format!("'{}' is outside repository", text.escape_ascii()))
}

/// The magic before a pathspec, and the rest.
fn magic(text: &[u8]) -> Result<(Magic, &[u8]), PathspecError> {
    match text {
        [b':', b'(', rest @ ..] => long_magic(text, rest),
        [b':', rest @ ..] => short_magic(text, rest),
        _ => Ok((Magic::default(), text)),
    }
}

fn long_magic<'a>(text: &[u8], rest: &'a [u8]) -> Result<(Magic, &'a [u8]), PathspecError> {
    let shown = text.escape_ascii();
    let end = rest.iter().position(|byte| *byte == b')');
    let end = end.ok_or_else(|| PathspecError(format!("Missing ')' at the end of pathspec magic in '{shown}'")))?;
    let (words, rest) = rest.split_at(end);
    let mut magic = Magic::default();
    for word in words.split(|byte| *byte == b',') {
        match word {
            b"" => {}
            b"top" => magic.from_top = true,
            b"exclude" => magic.exclude = true,
            b"icase" => magic.ignore_case = true,
            b"glob" => magic.glob = true,
            b"literal" => magic.literal = true,
            _ => {
                let word = word.escape_ascii();
                return Err(PathspecError(format!("Invalid pathspec magic '{word}' in '{shown}'")));
            }
        }
    }
    if magic.glob && magic.literal {
        return Err(PathspecError(format!("{shown}: 'literal' and 'glob' are incompatible")));
    }
    Ok((magic, rest.get(1..).unwrap_or_default()))
}

fn short_magic<'a>(text: &[u8], mut rest: &'a [u8]) -> Result<(Magic, &'a [u8]), PathspecError> {
    const SIGNS: &[u8] = b"!\"#%&',-/:;<=>@_`~^";
    let mut magic = Magic::default();
    while let Some((sign, after)) = rest.split_first() {
        match sign {
            b':' => return Ok((magic, after)),
            b'/' => magic.from_top = true,
            b'!' | b'^' => magic.exclude = true,
            sign if SIGNS.contains(sign) => {
                let (sign, shown) = (char::from(*sign), text.escape_ascii());
                return Err(PathspecError(format!(
                    "Unimplemented pathspec magic '{sign}' in '{shown}'"
                )));
            }
            _ => break,
        }
        rest = after;
    }
    Ok((magic, rest))
}

/// The path without `.`, `..` and doubled slashes; `None` if it leads out of the tree.
fn normalise(path: &[u8]) -> Option<Vec<u8>> {
    if path.starts_with(b"/") {
        return None;
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    let mut joined = parts.join(&b'/');
    if !joined.is_empty() && (path.ends_with(b"/") || path.ends_with(b"/.")) {
        joined.push(b'/');
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(texts: &[&str]) -> Pathspec {
        Pathspec::parse(texts.iter().map(|text| text.as_bytes())).unwrap()
    }

    #[test]
    fn paths_are_meant_by_name_by_directory_and_by_pattern() {
        let table: [(&[&str], &str, bool); 28] = [
            (&[], "a/b", true),
            (&["a"], "a", true),
            (&["a"], "a/b", true),
            (&["a"], "ab", false),
            (&["a/"], "a/b", true),
            (&["a/"], "a", false),
            (&["./a//b/../c"], "a/c", true),
            (&["."], "x", true),
            (&["*.c"], "a/b.c", true),
            (&[":(glob)*.c"], "a/b.c", false),
            (&[":(glob)**/*.c"], "a/b.c", true),
            (&[":(glob)a*"], "ab/c", false),
            (&["a*"], "ab/c", true),
            (&[":(literal)*.c"], "b.c", false),
            (&[":(literal)*.c"], "*.c", true),
            (&[":(icase)A/B"], "a/b/c", true),
            (&[":!a"], "a/b", false),
            (&[":!a"], "b", true),
            (&["a", ":^a/b"], "a/b", false),
            (&["a", ":(exclude)a/b"], "a/c", true),
            (&[":/a"], "a/b", true),
            (&[":/a/"], "a/b", true),
            (&[":/a//"], "a/b", false),
            (&[":(top)./a"], "a/b", false),
            (&[":!/a//"], "a/b", true),
            (&[":"], "a/b", true),
            (&["a", "b"], "b", true),
            (&["b?/c"], "bx/c", true),
        ];
        for (texts, path, expected) in table {
            assert_eq!(
                spec(texts).matches(path.as_bytes(), false, &mut Effort::steps(1_000)),
                Ok(expected),
                "{texts:?} on {path}"
            );
        }
    }

    #[test]
    fn walks_are_cut_short_but_never_too_early() {
        let table = [
            ("a/b/c", "a", true),
            ("a/b/c", "a/b", true),
            ("a/b/c", "a/b/c", true),
            ("a/b/c", "a/b/c/d", true),
            ("a/b/c", "a/c", false),
            ("a/b*", "a", true),
            ("a/b*", "a/bc", true),
            ("a/b*", "c", false),
            ("a/b*", "a/c", false),
            ("*.c", "x/y", true),
            ("a", "ab", false),
            (".", "x", true),
        ];
        for (text, directory, expected) in table {
            assert_eq!(
                spec(&[text]).may_match_below(directory.as_bytes(), &mut Effort::steps(1_000)),
                Ok(expected),
                "{text} below {directory}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in [
            "../a",
            "/a",
            ":(attr:x)a",
            ":(nonsense)a",
            ":(top",
            ":%a",
            ":(glob,literal)a",
        ] {
            assert!(Pathspec::parse([text.as_bytes()]).is_err(), "{text}");
        }
        assert!(Pathspec::parse([&[b'a'; PATHSPEC_LEN_MAX][..]]).is_ok());
        assert!(Pathspec::parse([&[b'a'; PATHSPEC_LEN_MAX + 1][..]]).is_err());
    }
}
