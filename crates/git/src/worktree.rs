//! What a checkout does to a file's content: line ends and `$Id$` (gitattributes(5), `text`, `eol`, `ident`).
//!
//! As a server does it: no configuration changes line ends, no filter is run, and `working-tree-encoding` is not heeded.

use crate::ObjectId;
use crate::attributes::{AttributeState, Attributes};

/// The attributes that decide, in the order in which [`Conversion::of`] expects them.
pub const ATTRIBUTES: [&str; 4] = ["text", "crlf", "eol", "ident"];

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    crlf: Crlf,
    ident: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crlf {
    Keep,
    /// LF becomes CRLF.
    Always,
    /// Only in what looks like text with LF only.
    Auto,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Undefined,
    Binary,
    Plain,
    Auto,
}

impl Conversion {
    /// Content stays as it is.
    pub const NONE: Self = Self {
        crlf: Crlf::Keep,
        ident: false,
    };

    /// What the attributes ask for, of which the `first`th and those after it are [`ATTRIBUTES`].
    pub fn of(attributes: &Attributes, first: usize) -> Self {
        let state = |number: usize| attributes.state(first + number);
        let text = match text(state(0)) {
            Kind::Undefined => text(state(1)),
            known => known,
        };
        let eol_crlf = matches!(state(2), AttributeState::Value(value) if **value == *b"crlf");
        let crlf = match (text, eol_crlf) {
            (Kind::Binary, _) | (_, false) => Crlf::Keep,
            (Kind::Auto, true) => Crlf::Auto,
            (Kind::Undefined | Kind::Plain, true) => Crlf::Always,
        };
        Self {
            crlf,
            ident: attributes.is_set(first + 3),
        }
    }

    /// Whether content is left as it is, whatever it is.
    pub fn is_none(self) -> bool {
        self.crlf == Crlf::Keep && !self.ident
    }

    /// The converted content of the blob `oid`; `None` if it stays as it is.
    pub fn apply(self, oid: &ObjectId, content: &[u8]) -> Option<Vec<u8>> {
        let expanded = if self.ident { expand_ident(oid, content) } else { None };
        let before = expanded.as_deref().unwrap_or(content);
        if self.makes_crlf(before) {
            Some(with_crlf(before))
        } else {
            expanded
        }
    }

    fn makes_crlf(self, content: &[u8]) -> bool {
        match self.crlf {
            Crlf::Keep => false,
            Crlf::Always => true,
            Crlf::Auto => is_plain_text(content),
        }
    }
}

fn text(state: &AttributeState) -> Kind {
    match state {
        AttributeState::Set => Kind::Plain,
        AttributeState::Unset => Kind::Binary,
        AttributeState::Value(value) => match &**value {
            b"input" => Kind::Plain,
            b"auto" => Kind::Auto,
            _ => Kind::Undefined,
        },
        AttributeState::Unspecified => Kind::Undefined,
    }
}

/// Neither binary by git's measure, nor with a CR in it.
fn is_plain_text(content: &[u8]) -> bool {
    let (mut printable, mut other) = (0usize, 0usize);
    for byte in content {
        match byte {
            b'\r' | 0 => return false,
            b'\n' => {}
            8 | b'\t' | 27 | 12 => printable += 1,
            127 | 0..=31 => other += 1,
            _ => printable += 1,
        }
    }
    if content.last() == Some(&26) {
        other -= 1;
    }
    printable >> 7 >= other
}

fn with_crlf(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + content.len() / 16);
    let mut from = 0;
    for at in memchr::memchr_iter(b'\n', content) {
        let line = content.get(from..at).unwrap_or_default();
        out.extend_from_slice(line);
        if !line.ends_with(b"\r") {
            out.push(b'\r');
        }
        out.push(b'\n');
        from = at + 1;
    }
    out.extend_from_slice(content.get(from..).unwrap_or_default());
    out
}

/// `$Id$` and `$Id: …$` with the blob's id in it; `None` if there is neither. What looks like another system's is left.
fn expand_ident(oid: &ObjectId, content: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(dollar) = content.get(at..).and_then(|rest| memchr::memchr(b'$', rest)) {
        at += dollar + 1;
        let rest = content.get(at..)?;
        let Some(len) = keyword_len(rest) else { continue };
        let Some(len) = len else { break };
        out.extend_from_slice(content.get(copied..at)?);
        out.extend_from_slice(format!("Id: {oid} $").as_bytes());
        at += len;
        copied = at;
    }
    (copied > 0).then(|| {
        out.extend_from_slice(content.get(copied..).unwrap_or_default());
        out
    })
}

/// Bytes of `Id$` or `Id: …$` at the start; `None` if it is not that, `Some(None)` if no further `$` follows.
fn keyword_len(rest: &[u8]) -> Option<Option<usize>> {
    match rest {
        [b'I', b'd', b'$', ..] => Some(Some(3)),
        [b'I', b'd', b':', inner @ ..] => {
            let Some(end) = memchr::memchr(b'$', inner) else {
                return Some(None);
            };
            let inner = inner.get(..end)?;
            let space = inner
                .get(1..)
                .and_then(|inner| memchr::memchr(b' ', inner))
                .map(|at| at + 1);
            let foreign = space.is_some_and(|space| space + 1 < end);
            (!inner.contains(&b'\n') && !foreign).then_some(Some(3 + end + 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectFormat;
    use crate::attributes::AttributeStack;
    use crate::wildmatch::Effort;

    fn convert(attributes: &str, content: &str) -> Option<String> {
        let mut stack = AttributeStack::new(&ATTRIBUTES);
        stack.push(b"", format!("f {attributes}\n").as_bytes()).unwrap();
        let attributes = stack.of(b"f", &mut Effort::steps(100)).unwrap();
        let oid = ObjectId::from_hex(ObjectFormat::Sha1, "1".repeat(40).as_bytes()).unwrap();
        let converted = Conversion::of(&attributes, 0).apply(&oid, content.as_bytes());
        converted.map(|bytes| String::from_utf8(bytes).unwrap().replace(&"1".repeat(40), "1"))
    }

    #[test]
    fn line_ends() {
        let crlf = Some("a\r\nb\r\n".to_owned());
        assert_eq!(convert("text eol=crlf", "a\nb\r\n"), crlf);
        assert_eq!(convert("eol=crlf", "a\nb\n"), crlf);
        assert_eq!(convert("crlf eol=crlf", "a\nb\n"), crlf);
        assert_eq!(convert("text=auto eol=crlf", "a\nb\n"), crlf);
        assert_eq!(convert("text=auto eol=crlf", "a\nb\r\n"), None);
        assert_eq!(convert("text=auto eol=crlf", "a\0b\n"), None);
        assert_eq!(convert("-text eol=crlf", "a\nb\n"), None);
        assert_eq!(convert("text", "a\nb\n"), None);
        assert_eq!(convert("eol=lf", "a\r\n"), None);
    }

    #[test]
    fn idents() {
        assert_eq!(
            convert("ident", "x $Id$ y $Id: old $\n$Id"),
            Some("x $Id: 1 $ y $Id: 1 $\n$Id".to_owned())
        );
        assert_eq!(convert("ident", "$Id: a b $"), None);
        assert_eq!(convert("ident", "$Id: a\n$"), None);
        assert_eq!(convert("ident", "$$Id$"), Some("$$Id: 1 $".to_owned()));
        assert_eq!(convert("-ident", "$Id$"), None);
    }
}
