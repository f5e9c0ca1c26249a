//! What a Git client says to an SSH server before a service speaks: the command line of an `exec` request, and the one
//! environment variable (git-shell(1); gitprotocol-v2, `SSH and File Transport`).
//!
//! The command line is read as git-shell reads it, and never by a shell.

use crate::{Program, ProtocolError};

/// Longest command line that is looked at, in bytes.
pub const COMMAND_LEN_MAX: usize = 4096;
/// Longest value of `GIT_PROTOCOL` that is taken, in bytes.
pub const VARIABLE_LEN_MAX: usize = 256;

/// A command line: `git-upload-pack 'path'`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// What to run.
    pub program: Program,
    /// The path as the client means it, its quotes undone. Any bytes but NUL; never begins with `-`.
    pub path: Vec<u8>,
}

impl CommandLine {
    /// Reads a command line. `git upload-pack` is `git-upload-pack`; the one argument is in single quotes, where `'\''` and
    /// `'\!'` stand for a quote and an exclamation mark.
    pub fn parse(line: &[u8]) -> Result<Self, ProtocolError> {
        let unrecognized = || ProtocolError::refused("unrecognized command ", line);
        if line.len() > COMMAND_LEN_MAX {
            return Err(unrecognized());
        }
        let (program, rest) = Program::ALL
            .into_iter()
            .find_map(|program| Some((program, after_name(line, program.name())?)))
            .ok_or_else(unrecognized)?;
        let argument = match rest.split_first() {
            Some((b' ', argument)) => argument,
            None => return Err(bad_argument()),
            Some(_) => return Err(unrecognized()),
        };
        let path = dequote(argument).ok_or_else(bad_argument)?;
        if path.starts_with(b"-") || path.contains(&0) {
            return Err(bad_argument());
        }
        Ok(Self { program, path })
    }
}

fn bad_argument() -> ProtocolError {
    ProtocolError::Malformed("bad argument".to_owned())
}

/// What follows the program's name, whichever way it is spelled.
fn after_name<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let joined = line.strip_prefix(name.as_bytes());
    let (git, verb) = name.split_once('-')?;
    let spaced = || match line.strip_prefix(git.as_bytes())?.split_first()? {
        (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, rest) => rest.strip_prefix(verb.as_bytes()),
        _ => None,
    };
    joined.or_else(spaced)
}

/// Undoes a shell's single quotes around all of `text`; `None` if they are not there, or not only around it.
fn dequote(text: &[u8]) -> Option<Vec<u8>> {
    let mut rest = text.strip_prefix(b"'")?;
    let mut plain = Vec::with_capacity(rest.len());
    loop {
        let end = rest.iter().position(|byte| *byte == b'\'')?;
        let (quoted, after) = rest.split_at_checked(end)?;
        plain.extend_from_slice(quoted);
        match after {
            b"'" => return Some(plain),
            [b'\'', b'\\', escaped @ (b'\'' | b'!'), b'\'', after @ ..] => {
                plain.push(*escaped);
                rest = after;
            }
            _ => return None,
        }
    }
}

/// Whether an environment variable is the one that is taken: `GIT_PROTOCOL`, with a value such as `version=2`, or several
/// such keys between colons. What the value asks for is for [`Version::requested`](crate::Version::requested) to say.
pub fn is_accepted_variable(name: &[u8], value: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"=._-".contains(byte);
    let mut keys = value.split(|byte| *byte == b':');
    let all_keys = keys.all(|key| key.first().is_none_or(u8::is_ascii_alphabetic) && key.iter().all(plain));
    name == b"GIT_PROTOCOL" && value.len() <= VARIABLE_LEN_MAX && all_keys
}

#[cfg(test)]
#[path = "ssh_tests.rs"]
mod tests;
