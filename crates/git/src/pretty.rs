//! A commit as text, by the placeholders of git-log(1): what `export-subst` puts for `$Format:…$`.
//!
//! Deliberately a part of git's: what depends on the time of asking (`%ar`, `%ah`), on keys (`%G`), on notes, on history
//! (`%(describe)`), and all padding and wrapping is left as it stands, as git leaves what it does not know. So no format
//! makes much of little (CVE-2022-41903 was padding), and the result has a stated limit.

mod date;
mod person;

use crate::{CommitRef, ObjectError, ObjectFormat, ObjectId};
use person::Person;
use std::collections::HashMap;

/// What there is to say of a commit.
#[derive(Clone, Debug)]
pub struct Facts {
    oid: ObjectId,
    tree: ObjectId,
    parents: Vec<ObjectId>,
    content: Vec<u8>,
    /// How many hex digits name an object, where not all are needed.
    digits: HashMap<ObjectId, usize>,
    /// Names of refs that name the commit, as `%D` has them, in its order.
    decorations: Vec<String>,
}

/// Bytes of the commit that may be looked at for one text. A placeholder may stand for nothing and yet take a look at all of
/// the commit.
const LOOKED_AT_BYTES_MAX: u64 = 1 << 30;

/// Why a text is not expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It would be longer than allowed.
    #[error("expanded to more than {0} bytes")]
    TooLong(usize),
    /// It has too many placeholders for so large a commit.
    #[error("takes too long to expand")]
    TooMuchWork,
}

/// What expanding one text may still produce and cost.
struct Budget {
    size_max: usize,
    looked_at_left: u64,
}

impl Budget {
    fn new(size_max: usize) -> Self {
        Self {
            size_max,
            looked_at_left: LOOKED_AT_BYTES_MAX,
        }
    }

    fn check_size(&self, size: usize) -> Result<(), FormatError> {
        if size > self.size_max {
            Err(FormatError::TooLong(self.size_max))
        } else {
            Ok(())
        }
    }

    fn look_at(&mut self, bytes: usize) -> Result<(), FormatError> {
        let left = self.looked_at_left.checked_sub(bytes as u64);
        self.looked_at_left = left.ok_or(FormatError::TooMuchWork)?;
        Ok(())
    }
}

impl Facts {
    /// The facts in a commit's own bytes.
    pub fn new(format: ObjectFormat, oid: ObjectId, content: &[u8]) -> Result<Self, ObjectError> {
        let CommitRef { tree, parents, .. } = CommitRef::parse(format, content)?;
        // As git reads it, a NUL ends the message.
        let content = content.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        let (digits, decorations) = (HashMap::new(), Vec::new());
        Ok(Self {
            oid,
            tree,
            parents: parents.to_vec(),
            content,
            digits,
            decorations,
        })
    }

    /// The objects that a format may abbreviate.
    pub fn named(&self) -> impl Iterator<Item = ObjectId> + '_ {
        [self.oid, self.tree].into_iter().chain(self.parents.iter().copied())
    }

    /// Says how many digits it takes to name an object.
    pub fn abbreviate(&mut self, oid: ObjectId, digits: usize) {
        self.digits.insert(oid, digits);
    }

    /// Says which refs name the commit, such as `HEAD -> main` and `tag: v1`.
    pub fn decorate(&mut self, names: Vec<String>) {
        self.decorations = names;
    }

    /// `content` with every `$Format:…$` replaced; `None` if there is none.
    pub fn substitute(&self, content: &[u8], size_max: usize) -> Result<Option<Vec<u8>>, FormatError> {
        const START: &[u8] = b"$Format:";
        let (mut out, mut budget) = (Vec::new(), Budget::new(size_max));
        let mut rest = content;
        while let Some(start) = memchr::memmem::find(rest, START) {
            let format = rest.get(start + START.len()..).unwrap_or_default();
            let Some(end) = memchr::memchr(b'$', format) else { break };
            out.extend_from_slice(rest.get(..start).unwrap_or_default());
            self.expand(format.get(..end).unwrap_or_default(), &mut out, &mut budget)?;
            rest = format.get(end + 1..).unwrap_or_default();
        }
        if rest.len() == content.len() {
            return Ok(None);
        }
        out.extend_from_slice(rest);
        budget.check_size(out.len())?;
        Ok(Some(out))
    }

    /// Appends what a format makes of the commit.
    pub fn format(&self, format: &[u8], out: &mut Vec<u8>, size_max: usize) -> Result<(), FormatError> {
        self.expand(format, out, &mut Budget::new(size_max))
    }

    fn expand(&self, format: &[u8], out: &mut Vec<u8>, budget: &mut Budget) -> Result<(), FormatError> {
        let mut rest = format;
        while let Some(at) = memchr::memchr(b'%', rest) {
            out.extend_from_slice(rest.get(..at).unwrap_or_default());
            rest = rest.get(at + 1..).unwrap_or_default();
            budget.look_at(self.content.len())?;
            let taken = self.placeholder(rest, out);
            if taken == 0 {
                out.push(b'%');
            }
            rest = rest.get(taken..).unwrap_or_default();
            budget.check_size(out.len())?;
        }
        out.extend_from_slice(rest);
        budget.check_size(out.len())
    }

    /// Appends what the placeholder at the start of `text` stands for; gives back its length, 0 if it is none.
    fn placeholder(&self, text: &[u8], out: &mut Vec<u8>) -> usize {
        let Some((first, rest)) = text.split_first() else {
            return 0;
        };
        let magic = matches!(first, b'-' | b'+' | b' ');
        if !magic {
            return self.plain(*first, rest, out);
        }
        let before = out.len();
        let taken = rest
            .split_first()
            .map_or(0, |(letter, rest)| self.plain(*letter, rest, out));
        if taken == 0 {
            return 0;
        }
        match (first, out.len() > before) {
            (b'-', false) => {
                while out.last() == Some(&b'\n') {
                    out.pop();
                }
            }
            (b'+', true) => out.insert(before, b'\n'),
            (b' ', true) => out.insert(before, b' '),
            _ => {}
        }
        taken + 1
    }

    fn plain(&self, letter: u8, rest: &[u8], out: &mut Vec<u8>) -> usize {
        match letter {
            b'%' => out.push(b'%'),
            b'n' => out.push(b'\n'),
            b'x' => return hex_byte(rest, out),
            b'm' => out.push(b'>'),
            b'C' => return colour_len(rest),
            b'H' => self.hex(&self.oid, out),
            b'h' => self.short(&self.oid, out),
            b'T' => self.hex(&self.tree, out),
            b't' => self.short(&self.tree, out),
            b'P' => self.each_parent(out, Self::hex),
            b'p' => self.each_parent(out, Self::short),
            b'd' if !self.decorations.is_empty() => {
                out.extend_from_slice(format!(" ({})", self.decorations.join(", ")).as_bytes());
            }
            b'd' => {}
            b'D' => out.extend_from_slice(self.decorations.join(", ").as_bytes()),
            b'a' => return person_part(self.header(b"author "), rest, out),
            b'c' => return person_part(self.header(b"committer "), rest, out),
            b'e' => out.extend_from_slice(self.header(b"encoding ").unwrap_or_default()),
            b'B' => out.extend_from_slice(self.message()),
            b's' => subject(self.message(), out),
            b'f' => sanitized(skip_blank_lines(self.message()), out),
            b'b' => out.extend_from_slice(body(self.message())),
            _ => return 0,
        }
        1
    }

    fn hex(&self, oid: &ObjectId, out: &mut Vec<u8>) {
        out.extend_from_slice(oid.to_string().as_bytes());
    }

    fn short(&self, oid: &ObjectId, out: &mut Vec<u8>) {
        let hex = oid.to_string();
        let digits = self.digits.get(oid).copied().unwrap_or(hex.len());
        out.extend(hex.bytes().take(digits));
    }

    fn each_parent(&self, out: &mut Vec<u8>, write: fn(&Self, &ObjectId, &mut Vec<u8>)) {
        for (number, parent) in self.parents.iter().enumerate() {
            if number > 0 {
                out.push(b' ');
            }
            write(self, parent, out);
        }
    }

    /// The rest of the header line that begins so.
    fn header(&self, key: &[u8]) -> Option<&[u8]> {
        let lines = self
            .content
            .split(|byte| *byte == b'\n')
            .take_while(|line| !line.is_empty());
        lines.into_iter().find_map(|line| line.strip_prefix(key))
    }

    fn message(&self) -> &[u8] {
        let start = memchr::memmem::find(&self.content, b"\n\n").map_or(self.content.len(), |at| at + 2);
        self.content.get(start..).unwrap_or_default()
    }
}

fn hex_byte(rest: &[u8], out: &mut Vec<u8>) -> usize {
    let digit = |at: usize| rest.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    match (digit(0), digit(1)) {
        (Some(high), Some(low)) => {
            out.extend(u8::try_from(high << 4 | low));
            3
        }
        _ => 0,
    }
}

/// The length of a colour, which nobody sees here: nothing is written.
fn colour_len(rest: &[u8]) -> usize {
    for name in [&b"red"[..], b"green", b"blue", b"reset"] {
        if rest.starts_with(name) {
            return 1 + name.len();
        }
    }
    let end = rest.iter().position(|byte| *byte == b')');
    match end {
        Some(end) if rest.starts_with(b"(") && !rest.starts_with(b"(always,") => 1 + end + 1,
        _ => 0,
    }
}

/// `%a?` and `%c?`, whose second letter begins `rest`.
fn person_part(line: Option<&[u8]>, rest: &[u8], out: &mut Vec<u8>) -> usize {
    const KNOWN: &[u8] = b"nNeElLtdDiIs";
    let Some(letter) = rest.first().filter(|letter| KNOWN.contains(letter)) else {
        return 0;
    };
    if let Some(person) = line.and_then(Person::parse) {
        person.write(*letter, out);
    }
    2
}

fn skip_blank_lines(mut message: &[u8]) -> &[u8] {
    loop {
        let len = message.iter().position(|byte| *byte == b'\n');
        let line = message.get(..len.unwrap_or(message.len())).unwrap_or_default();
        match len {
            Some(len) if line.trim_ascii().is_empty() => message = message.get(len + 1..).unwrap_or_default(),
            _ => return message,
        }
    }
}

/// The lines up to the first blank one, joined by spaces.
fn subject(message: &[u8], out: &mut Vec<u8>) {
    let lines = skip_blank_lines(message)
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end);
    for (number, line) in lines.take_while(|line| !line.is_empty()).enumerate() {
        if number > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(line);
    }
}

/// What follows the subject and the blank lines after it.
fn body(message: &[u8]) -> &[u8] {
    let mut rest = skip_blank_lines(message);
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = rest.split_at(end);
        rest = after.get(1..).unwrap_or_default();
        if line.trim_ascii().is_empty() {
            return skip_blank_lines(rest);
        }
    }
    b""
}

/// The first line as a file name.
fn sanitized(message: &[u8], out: &mut Vec<u8>) {
    let line = message.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let start = out.len();
    let (mut gap, mut begun) = (false, false);
    for byte in line {
        if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_')) {
            gap = true;
            continue;
        }
        if gap && begun {
            out.push(b'-');
        }
        let doubled = !gap && begun && *byte == b'.' && out.last() == Some(&b'.');
        (gap, begun) = (false, true);
        if !doubled {
            out.push(*byte);
        }
    }
    while out.len() > start && matches!(out.last(), Some(b'.' | b'-')) {
        out.pop();
    }
}

#[cfg(test)]
mod tests;
