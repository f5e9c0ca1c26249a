//! Names that some filesystem takes for `.git` or for one of git's own dot files.
//!
//! HFS+ ignores case and certain code points; NTFS ignores case, trailing dots and spaces, and knows short names
//! (`GIT~1`) and streams (`.git::$INDEX_ALLOCATION`).

/// One of git's dot files, in the forms that filesystems have for it.
pub(super) struct DotFile {
    /// The name without its dot, in lower case.
    name: &'static [u8],
    /// The first six bytes of the short name that NTFS falls back to when `NAME~1` to `~4` are taken.
    short: &'static [u8; 6],
}

pub(super) const GITMODULES: DotFile = DotFile {
    name: b"gitmodules",
    short: b"gi7eba",
};
pub(super) const GITATTRIBUTES: DotFile = DotFile {
    name: b"gitattributes",
    short: b"gi7d29",
};
pub(super) const GITIGNORE: DotFile = DotFile {
    name: b"gitignore",
    short: b"gi250a",
};
pub(super) const MAILMAP: DotFile = DotFile {
    name: b"mailmap",
    short: b"maba30",
};

impl DotFile {
    /// Whether either filesystem takes `name` for this file.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        is_hfs(name, self.name) || self.matches_ntfs(name)
    }

    /// Whether NTFS takes `name` for this file.
    pub(super) fn matches_ntfs(&self, name: &[u8]) -> bool {
        let long = name
            .strip_prefix(b".")
            .and_then(|rest| strip_prefix_ignore_case(rest, self.name));
        let rest = long
            .or_else(|| self.strip_numbered_short(name))
            .or_else(|| self.strip_fallback_short(name));
        rest.is_some_and(ends_in_dots_and_spaces)
    }

    /// `GITMOD~1` to `~4`.
    fn strip_numbered_short<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        match strip_prefix_ignore_case(name, self.name.get(..6)?)? {
            [b'~', b'1'..=b'4', rest @ ..] => Some(rest),
            _ => None,
        }
    }

    /// Eight bytes: a prefix of `short`, then `~`, a digit that is not 0, and digits.
    fn strip_fallback_short<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        let (short, rest) = name.split_first_chunk::<8>()?;
        let tilde = short
            .iter()
            .position(|byte| *byte == b'~')
            .filter(|at| *at <= self.short.len())?;
        let (prefix, number) = short.split_at_checked(tilde)?;
        let numbered = matches!(number, [b'~', b'1'..=b'9', digits @ ..] if digits.iter().all(u8::is_ascii_digit));
        let matches = strip_prefix_ignore_case(self.short, prefix).is_some();
        (numbered && matches).then_some(rest)
    }
}

/// Whether `name` can be a dot name at all, by its first byte; a quick no for nearly all names.
#[inline]
pub(super) fn may_be_dot_name(name: &[u8]) -> bool {
    match name.first() {
        // a dot, or a code point HFS+ ignores before it; short names begin as the names or with a tilde
        Some(byte) => matches!(byte, b'.' | 0xe2 | 0xef | b'g' | b'G' | b'm' | b'M' | b'~'),
        None => false,
    }
}

/// Whether either filesystem takes `name` for `.git`.
pub(super) fn is_dotgit(name: &[u8]) -> bool {
    is_hfs(name, b"git") || is_ntfs_dotgit(name)
}

/// Whether NTFS takes `name`, up to a slash of either kind, for `.git`.
pub(super) fn is_ntfs_dotgit(name: &[u8]) -> bool {
    let Some(rest) = strip_prefix_ignore_case(name, b".git").or_else(|| strip_prefix_ignore_case(name, b"git~1"))
    else {
        return false;
    };
    let end = rest.iter().find(|byte| !matches!(byte, b'.' | b' '));
    matches!(end, None | Some(b'/' | b'\\' | b':'))
}

fn ends_in_dots_and_spaces(rest: &[u8]) -> bool {
    matches!(rest.iter().find(|byte| !matches!(byte, b'.' | b' ')), None | Some(b':'))
}

fn strip_prefix_ignore_case<'a>(bytes: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = bytes.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Whether HFS+ takes `name`, up to a slash, for a dot and `needle` (ASCII, lower case).
fn is_hfs(name: &[u8], needle: &[u8]) -> bool {
    let mut rest = name;
    if next_hfs(&mut rest) != HfsChar::Ascii(b'.') {
        return false;
    }
    let all = needle.iter().all(|expected| match next_hfs(&mut rest) {
        HfsChar::Ascii(byte) => byte.to_ascii_lowercase() == *expected,
        _ => false,
    });
    all && matches!(next_hfs(&mut rest), HfsChar::End | HfsChar::Ascii(b'/'))
}

#[derive(PartialEq, Eq)]
enum HfsChar {
    Ascii(u8),
    Other,
    /// The end of the name, or bytes that are no UTF-8, which git takes for it.
    End,
}

/// The next character that HFS+ does not ignore.
fn next_hfs(rest: &mut &[u8]) -> HfsChar {
    loop {
        let Some((&first, after)) = rest.split_first() else {
            return HfsChar::End;
        };
        if first < 0x80 {
            *rest = after;
            return HfsChar::Ascii(first);
        }
        let Some((char, len)) = multibyte(rest, first) else {
            *rest = &[];
            return HfsChar::End;
        };
        *rest = rest.get(len..).unwrap_or_default();
        if !is_ignored(char) {
            return HfsChar::Other;
        }
    }
}

/// The character of two to four bytes at the start of `bytes`; git knows no U+FFFE and U+FFFF.
fn multibyte(bytes: &[u8], first: u8) -> Option<(char, usize)> {
    let len = match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    let char = std::str::from_utf8(bytes.get(..len)?).ok()?.chars().next()?;
    (!matches!(char, '\u{fffe}' | '\u{ffff}')).then_some((char, len))
}

/// Zero-width and direction marks, which HFS+ leaves out of comparisons.
fn is_ignored(char: char) -> bool {
    matches!(char, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_dotgit() {
        let yes: [&[u8]; 14] = [
            b".git",
            b".GIT",
            b".giT ",
            b".git. .",
            b"git~1",
            b"GIT~1...",
            b".git::$INDEX",
            b".git\\x",
            b".git/x",
            "\u{200c}.git".as_bytes(),
            ".g\u{206f}it".as_bytes(),
            ".git\u{feff}".as_bytes(),
            b".git\xff",
            b".git\xef\xbf\xbe",
        ];
        for name in yes {
            assert!(is_dotgit(name) && may_be_dot_name(name), "{}", name.escape_ascii());
        }
        let no: [&[u8]; 9] = [
            b"git",
            b".gitx",
            b"git~2",
            b".gi",
            b"",
            b".git~1",
            ".g\u{2060}it".as_bytes(),
            ".git\u{e9}".as_bytes(),
            b"\xff.git",
        ];
        for name in no {
            assert!(!is_dotgit(name), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn forms_of_gitmodules() {
        let yes: [&[u8]; 15] = [
            b".gitmodules",
            b".GitModules",
            b".gitmodules ",
            b".gitmodules.",
            b".gitmodules:x",
            b"gitmod~1",
            b"GITMOD~4 .",
            b"gi7eba~1",
            b"gi7eba~9",
            b"GI7EB~10",
            b"gi7e~123",
            b"~1234567",
            b"g~123456",
            b"GI7EBA~1.",
            ".gitm\u{200d}odules".as_bytes(),
        ];
        for name in yes {
            assert!(
                GITMODULES.matches(name) && may_be_dot_name(name),
                "{}",
                name.escape_ascii()
            );
        }
        let no: [&[u8]; 10] = [
            b".gitmodule",
            b".gitmodulesx",
            b"gitmod~5",
            b"gitmod~0",
            b"gi7eba~0",
            b"gi7eba~",
            b"gi7ebb~1",
            b"gi7eba~12",
            b"gitmodules",
            b"gi7eba~1x",
        ];
        for name in no {
            assert!(!GITMODULES.matches(name), "{}", name.escape_ascii());
        }
        assert!(GITATTRIBUTES.matches(b"GI7D29~1") && GITIGNORE.matches(b"gi250a~1") && MAILMAP.matches(b"MABA30~1"));
    }
}
