//! Git's config file syntax (git-config, "Syntax"), as far as reading variables. Bytes are read as git reads those of
//! files, whatever the sign of `char` makes of blobs on some machines.

/// The file breaks the syntax; the variables before the break have been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad config syntax")]
pub struct SyntaxError;

/// Calls `each` with every variable in order: its full name (`section.subsection.key`, section and key in lower case)
/// and its value, `None` for a key without `=`.
pub fn parse(content: &[u8], mut each: impl FnMut(&[u8], Option<&[u8]>)) -> Result<(), SyntaxError> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let mut source = Source {
        rest: content,
        ended: false,
    };
    let (mut name, mut value) = (Vec::new(), Vec::new());
    let mut section_len = 0;
    loop {
        match source.next() {
            b'\n' if source.ended => return Ok(()),
            byte if is_space(byte) => {}
            b'#' | b';' => source.skip_line(),
            b'[' => {
                name.clear();
                parse_section(&mut source, &mut name)?;
                name.push(b'.');
                section_len = name.len();
            }
            first if first.is_ascii_alphabetic() => {
                name.truncate(section_len);
                name.push(first.to_ascii_lowercase());
                let has_value = parse_variable(&mut source, &mut name, &mut value)?;
                each(&name, has_value.then_some(&value[..]));
            }
            _ => return Err(SyntaxError),
        }
    }
}

/// Bytes of the file: CR LF is LF, and after the end comes one more LF.
struct Source<'a> {
    rest: &'a [u8],
    ended: bool,
}

impl Source<'_> {
    fn next(&mut self) -> u8 {
        let (byte, rest) = match self.rest {
            [b'\r', b'\n', rest @ ..] => (b'\n', rest),
            [byte, rest @ ..] => (*byte, rest),
            [] => {
                self.ended = true;
                (b'\n', self.rest)
            }
        };
        self.rest = rest;
        byte
    }

    fn skip_line(&mut self) {
        let end = memchr::memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        self.rest = self.rest.get(end..).unwrap_or_default();
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// What comes after `[`, up to and with `]`: `section`, `section.subsection` or `section "subsection"`.
fn parse_section(source: &mut Source<'_>, name: &mut Vec<u8>) -> Result<(), SyntaxError> {
    loop {
        match source.next() {
            _ if source.ended => return Err(SyntaxError),
            b']' => break,
            byte if is_space(byte) => {
                parse_subsection(source, name, byte)?;
                break;
            }
            byte if is_key_byte(byte) || byte == b'.' => name.push(byte.to_ascii_lowercase()),
            _ => return Err(SyntaxError),
        }
    }
    if name.is_empty() { Err(SyntaxError) } else { Ok(()) }
}

/// The blanks and the quoted subsection after `[section`, up to and with `]`.
fn parse_subsection(source: &mut Source<'_>, name: &mut Vec<u8>, blank: u8) -> Result<(), SyntaxError> {
    let mut byte = blank;
    while is_space(byte) {
        if byte == b'\n' {
            return Err(SyntaxError);
        }
        byte = source.next();
    }
    if byte != b'"' {
        return Err(SyntaxError);
    }
    name.push(b'.');
    loop {
        let byte = match source.next() {
            b'"' => break,
            b'\\' => source.next(),
            byte => byte,
        };
        if byte == b'\n' {
            return Err(SyntaxError);
        }
        name.push(byte);
    }
    if source.next() == b']' {
        Ok(())
    } else {
        Err(SyntaxError)
    }
}

/// The rest of a key and its value; whether it has one.
fn parse_variable(source: &mut Source<'_>, name: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool, SyntaxError> {
    let mut byte = source.next();
    while is_key_byte(byte) {
        name.push(byte.to_ascii_lowercase());
        byte = source.next();
    }
    while matches!(byte, b' ' | b'\t') {
        byte = source.next();
    }
    match byte {
        b'\n' => Ok(false),
        b'=' => parse_value(source, value).map(|()| true),
        _ => Err(SyntaxError),
    }
}

/// The value up to the end of its line: blanks around it dropped, quotes and escapes resolved, comments left out.
fn parse_value(source: &mut Source<'_>, value: &mut Vec<u8>) -> Result<(), SyntaxError> {
    value.clear();
    let mut quoted = false;
    let mut trimmed_len = None;
    loop {
        let byte = source.next();
        match byte {
            b'\n' if quoted => return Err(SyntaxError),
            b'\n' => break,
            byte if is_space(byte) && !quoted => {
                if !value.is_empty() {
                    trimmed_len.get_or_insert(value.len());
                    value.push(byte);
                }
                continue;
            }
            b';' | b'#' if !quoted => {
                source.skip_line();
                continue;
            }
            _ => trimmed_len = None,
        }
        match byte {
            b'"' => quoted = !quoted,
            b'\\' => match source.next() {
                b'\n' => {}
                b't' => value.push(b'\t'),
                b'b' => value.push(8),
                b'n' => value.push(b'\n'),
                escaped @ (b'\\' | b'"') => value.push(escaped),
                _ => return Err(SyntaxError),
            },
            byte => value.push(byte),
        }
    }
    if let Some(len) = trimmed_len {
        value.truncate(len);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> (Vec<(String, Option<String>)>, bool) {
        let mut list = Vec::new();
        let string = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let outcome = parse(text.as_bytes(), |name, value| {
            list.push((string(name), value.map(string)))
        });
        (list, outcome.is_ok())
    }

    fn one(name: &str, value: Option<&str>) -> Vec<(String, Option<String>)> {
        vec![(name.to_owned(), value.map(str::to_owned))]
    }

    #[test]
    fn variables() {
        let table = [
            ("[submodule \"a\"]\n\tpath = b\n", one("submodule.a.path", Some("b"))),
            ("\u{feff}[A.b]key=v", one("a.b.key", Some("v"))),
            (
                "[a \"B\\\"c\"] K-1 = \"x ; y\" z ; comment\r\n",
                one("a.B\"c.k-1", Some("x ; y z")),
            ),
            ("[a]\nflag\n", one("a.flag", None)),
            ("[a]\nk = x \\\n  y\n", one("a.k", Some("x   y"))),
            ("[a]\nk = \\t\\n\\b\\\\\n", one("a.k", Some("\t\n\u{8}\\"))),
            ("[a]\nk = a\"  \"\n", one("a.k", Some("a  "))),
            ("[a]\nk =\n", one("a.k", Some(""))),
            ("# only\n; comments", vec![]),
            ("k = v", one("k", Some("v"))),
        ];
        for (text, expected) in table {
            assert_eq!(parsed(text), (expected, true), "{text:?}");
        }
    }

    #[test]
    fn syntax_errors() {
        for text in [
            "[",
            "[]",
            "[a",
            "[a \"b]",
            "[a b]",
            "[a \"b\" ]",
            "[a\n]",
            "[a \n\"b\"]",
            "[a]\n= v",
            "[a]\n1 = v",
            "[a]\nk v",
            "[a]\nk = \"v\n",
            "[a]\nk = \\x\n",
            "[a_b]\n",
            "\u{fffd}",
            "[a \"b\\\n\"]",
        ] {
            assert!(!parsed(text).1, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer(content in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&content, |_, _| ());
        }
    }
}
