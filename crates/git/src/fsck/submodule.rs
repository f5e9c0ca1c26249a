//! The rules for `.gitmodules`: nothing in it may lead a client astray (git's `submodule-config.c`).

use super::finding::Report;
use super::{MessageId, url};
use crate::config_file;

/// Checks the submodules a `.gitmodules` names.
pub(super) fn check(content: &[u8], report: &mut Report<'_>) {
    let parsed = config_file::parse(content, |name, value| {
        check_variable(c_str(name), value.map(c_str), report)
    });
    if parsed.is_err() {
        let _ = report.report(MessageId::GitmodulesParse, "could not parse gitmodules blob");
    }
}

/// Git handles names and values as C strings, which end at a NUL.
fn c_str(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn check_variable(name: &[u8], value: Option<&[u8]>, report: &mut Report<'_>) {
    use MessageId::*;
    let Some((submodule, key)) = split_name(name) else {
        return;
    };
    let mut disallowed = |id, what, bytes: &[u8]| {
        let _ = report.report(
            id,
            format!("disallowed submodule {what}: {}", String::from_utf8_lossy(bytes)),
        );
    };
    if !is_allowed_name(submodule) {
        disallowed(GitmodulesName, "name", submodule);
    }
    match (key, value) {
        (b"url", Some(url)) if !url::is_allowed(url) => disallowed(GitmodulesUrl, "url", url),
        (b"path", Some(path)) if path.starts_with(b"-") => disallowed(GitmodulesPath, "path", path),
        (b"update", Some(update)) if update.starts_with(b"!") => {
            disallowed(GitmodulesUpdate, "update setting", update);
        }
        _ => {}
    }
}

/// Subsection and key of a variable of section `submodule`; the key is what follows the last dot.
fn split_name(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = name.strip_prefix(b"submodule.")?;
    let dot = memchr::memrchr(b'.', name)?;
    Some((name.get(..dot)?, name.get(dot + 1..)?))
}

/// A submodule's name is also a path: not empty, and no component of it is `..`, whichever slash separates them.
fn is_allowed_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name
            .split(|byte| matches!(byte, b'/' | b'\\'))
            .all(|component| component != b"..")
}
