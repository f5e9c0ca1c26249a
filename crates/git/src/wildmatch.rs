//! Shell patterns as git's `wildmatch` reads them, in time bounded by the pattern's length times the text's.
//!
//! Patterns come from `.gitattributes` files and from clients, so no pattern may be slow: instead of backtracking, all
//! positions in the pattern that the text read so far can have led to are kept at once.

/// How a pattern is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WildOptions {
    /// `*`, `?` and brackets do not match a slash; `**` between slashes does (git's `WM_PATHNAME`).
    pub pathname: bool,
    /// Letters match in either case (ASCII only, as in git).
    pub ignore_case: bool,
}

/// What matching may still cost: a step is a position in a pattern held against a byte, or about as much work.
///
/// Patterns and paths are both given by others, and may both be long: what bounds their product is this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    steps_left: u64,
}

/// Matching was given up: it would have taken more steps than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the patterns take too long to match")]
pub struct TooMuchEffort;

impl Effort {
    /// So many steps.
    pub const fn steps(steps: u64) -> Self {
        Self { steps_left: steps }
    }

    /// Steps that are left.
    pub const fn left(self) -> u64 {
        self.steps_left
    }

    /// Takes some of them.
    pub fn take(&mut self, steps: usize) -> Result<(), TooMuchEffort> {
        let left = self.steps_left.checked_sub(steps as u64).ok_or(TooMuchEffort)?;
        self.steps_left = left;
        Ok(())
    }
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct WildPattern {
    tokens: Vec<Token>,
    ignore_case: bool,
    /// An unfinished bracket or escape: matches nothing.
    broken: bool,
}

#[derive(Clone, Debug)]
enum Token {
    Byte(u8),
    /// Any byte, a slash only if told so.
    Any {
        slash: bool,
    },
    /// Bytes of a set.
    Set(Box<[u64; 4]>),
    /// Any run, across slashes only if told so.
    Run {
        slash: bool,
    },
    /// The two tokens after this one may be left out: what `**/` means.
    Optional,
}

/// Whether a byte begins something else than itself in a pattern.
pub const fn is_special(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

/// Bytes of `pattern` before the first special one.
pub fn literal_len(pattern: &[u8]) -> usize {
    pattern
        .iter()
        .position(|byte| is_special(*byte))
        .unwrap_or(pattern.len())
}

impl WildPattern {
    /// Compiles a pattern. Whatever the bytes, there is a pattern; one that git cannot read matches nothing.
    pub fn new(pattern: &[u8], options: WildOptions) -> Self {
        let mut compiler = Compiler {
            pattern,
            at: 0,
            options,
            tokens: Vec::with_capacity(pattern.len()),
        };
        let whole = compiler.run().is_some();
        Self {
            tokens: compiler.tokens,
            ignore_case: options.ignore_case,
            broken: !whole,
        }
    }

    /// Whether all of `text` matches. Cost: at most the product of both lengths, mostly their sum; taken from `effort`.
    pub fn matches(&self, text: &[u8], effort: &mut Effort) -> Result<bool, TooMuchEffort> {
        if self.broken {
            return Ok(false);
        }
        let mut here = States::new(self.tokens.len() + 1);
        let mut next = States::new(self.tokens.len() + 1);
        self.reach(&mut here, 0);
        for byte in text {
            let byte = if self.ignore_case {
                byte.to_ascii_lowercase()
            } else {
                *byte
            };
            next.clear();
            effort.take(here.len())?;
            for state in here.iter() {
                self.step(state, byte, &mut next);
            }
            if next.len() == 0 {
                return Ok(false);
            }
            std::mem::swap(&mut here, &mut next);
        }
        Ok(here.contains(self.tokens.len()))
    }

    fn step(&self, state: usize, byte: u8, next: &mut States) {
        let Some(token) = self.tokens.get(state) else { return };
        match token {
            Token::Byte(expected) if *expected == byte => self.reach(next, state + 1),
            Token::Any { slash } if *slash || byte != b'/' => self.reach(next, state + 1),
            Token::Set(set) if in_set(set, byte) => self.reach(next, state + 1),
            Token::Run { slash } if *slash || byte != b'/' => self.reach(next, state),
            _ => {}
        }
    }

    /// Adds a state, and those that are reached from it by no byte at all.
    fn reach(&self, states: &mut States, mut state: usize) {
        while states.insert(state) {
            match self.tokens.get(state) {
                Some(Token::Run { .. }) => {}
                Some(Token::Optional) => {
                    self.reach(states, state + 3);
                }
                _ => return,
            }
            state += 1;
        }
    }
}

/// Positions in a pattern, each once.
struct States {
    words: Vec<u64>,
    list: Vec<usize>,
}

impl States {
    fn new(count: usize) -> Self {
        Self {
            words: vec![0; count.div_ceil(64) + 1],
            list: Vec::new(),
        }
    }

    fn insert(&mut self, state: usize) -> bool {
        let Some(word) = self.words.get_mut(state / 64) else {
            return false;
        };
        let bit = 1 << (state % 64);
        let new = *word & bit == 0;
        *word |= bit;
        if new {
            self.list.push(state);
        }
        new
    }

    fn contains(&self, state: usize) -> bool {
        self.words
            .get(state / 64)
            .is_some_and(|word| word >> (state % 64) & 1 == 1)
    }

    fn clear(&mut self) {
        for state in self.list.drain(..) {
            if let Some(word) = self.words.get_mut(state / 64) {
                *word = 0;
            }
        }
    }

    fn len(&self) -> usize {
        self.list.len()
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.list.iter().copied()
    }
}

/// Whether a byte is of a class such as `[:digit:]`.
type Class = fn(&u8) -> bool;

struct Compiler<'a> {
    pattern: &'a [u8],
    at: usize,
    options: WildOptions,
    tokens: Vec<Token>,
}

impl Compiler<'_> {
    /// `None` if the pattern breaks off.
    fn run(&mut self) -> Option<()> {
        while let Some(byte) = self.next() {
            match byte {
                b'*' => self.stars(),
                b'?' => self.tokens.push(Token::Any {
                    slash: !self.options.pathname,
                }),
                b'[' => {
                    let set = self.bracket()?;
                    self.tokens.push(Token::Set(Box::new(set)));
                }
                b'\\' => {
                    let byte = self.next()?;
                    self.byte(byte);
                }
                byte => self.byte(byte),
            }
        }
        Some(())
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.pattern.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.pattern.get(self.at + ahead).copied()
    }

    fn byte(&mut self, byte: u8) {
        let byte = if self.options.ignore_case {
            byte.to_ascii_lowercase()
        } else {
            byte
        };
        self.tokens.push(Token::Byte(byte));
    }

    /// One star, or several: those cross slashes if they stand between slashes, or if all stars do.
    fn stars(&mut self) {
        let before = self.at.checked_sub(2).and_then(|at| self.pattern.get(at));
        let mut several = false;
        while self.peek(0) == Some(b'*') {
            self.at += 1;
            several = true;
        }
        if !self.options.pathname {
            return self.tokens.push(Token::Run { slash: true });
        }
        let escaped_slash = self.peek(0) == Some(b'\\') && self.peek(1) == Some(b'/');
        let begins = before.is_none_or(|byte| *byte == b'/');
        let ends = matches!(self.peek(0), None | Some(b'/')) || escaped_slash;
        let slash = several && begins && ends;
        if slash && self.peek(0) == Some(b'/') {
            // `**/` is nothing at all, or anything up to a slash.
            self.at += 1;
            self.tokens
                .extend([Token::Optional, Token::Run { slash }, Token::Byte(b'/')]);
        } else {
            self.tokens.push(Token::Run { slash });
        }
    }

    /// The set of a bracket whose `[` has been read.
    fn bracket(&mut self) -> Option<[u64; 4]> {
        let negated = matches!(self.peek(0), Some(b'!' | b'^'));
        self.at += usize::from(negated);
        let mut set = [0; 4];
        let mut before: Option<u8> = None;
        let mut first = true;
        loop {
            let mut byte = self.next()?;
            if byte == b']' && !first {
                break;
            }
            first = false;
            if byte == b'-' && before.is_some() && !matches!(self.peek(0), None | Some(b']')) {
                let mut last = self.next()?;
                if last == b'\\' {
                    last = self.next()?;
                }
                (before.unwrap_or(last)..=last).for_each(|byte| self.add(&mut set, byte));
                before = None;
                continue;
            }
            if byte == b'[' && self.peek(0) == Some(b':') {
                if let Some(class) = self.class()? {
                    (0..=u8::MAX).filter(class).for_each(|byte| self.add(&mut set, byte));
                    before = None;
                    continue;
                }
            } else if byte == b'\\' {
                byte = self.next()?;
            }
            self.add(&mut set, byte);
            before = Some(byte);
        }
        if negated {
            set = set.map(|word| !word);
        }
        if self.options.pathname {
            remove(&mut set, b'/');
        }
        Some(set)
    }

    fn add(&self, set: &mut [u64; 4], byte: u8) {
        insert(set, byte);
        if self.options.ignore_case {
            insert(set, byte.to_ascii_lowercase());
        }
    }

    /// `[:name:]` inside a bracket; inner `None` if it is not one after all, outer if the name is unknown.
    fn class(&mut self) -> Option<Option<Class>> {
        let rest = self.pattern.get(self.at + 1..)?;
        let end = rest.iter().position(|byte| *byte == b']')?;
        let Some(name) = rest.get(..end).and_then(|name| name.strip_suffix(b":")) else {
            return Some(None);
        };
        let class: Class = match name {
            b"alnum" => u8::is_ascii_alphanumeric,
            b"alpha" => u8::is_ascii_alphabetic,
            b"blank" => |byte| matches!(byte, b' ' | b'\t'),
            b"cntrl" => u8::is_ascii_control,
            b"digit" => u8::is_ascii_digit,
            b"graph" => u8::is_ascii_graphic,
            b"lower" => u8::is_ascii_lowercase,
            b"print" => |byte| matches!(byte, b' '..=b'~'),
            b"punct" => u8::is_ascii_punctuation,
            b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
            b"upper" => u8::is_ascii_uppercase,
            b"xdigit" => u8::is_ascii_hexdigit,
            _ => return None,
        };
        self.at += 1 + end + 1;
        Some(Some(class))
    }
}

fn in_set(set: &[u64; 4], byte: u8) -> bool {
    set.get(usize::from(byte / 64))
        .is_some_and(|word| word >> (byte % 64) & 1 == 1)
}

fn insert(set: &mut [u64; 4], byte: u8) {
    if let Some(word) = set.get_mut(usize::from(byte / 64)) {
        *word |= 1 << (byte % 64);
    }
}

fn remove(set: &mut [u64; 4], byte: u8) {
    if let Some(word) = set.get_mut(usize::from(byte / 64)) {
        *word &= !(1 << (byte % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str, pathname: bool) -> bool {
        WildPattern::new(
            pattern.as_bytes(),
            WildOptions {
                pathname,
                ignore_case: false,
            },
        )
        .matches(text.as_bytes(), &mut Effort::steps(1 << 20))
        .unwrap()
    }

    /// A selection of git's own t3070: pattern, text, with slashes apart, and not.
    #[test]
    fn as_git_matches() {
        let table = [
            ("foo", "foo", true, true),
            ("", "", true, true),
            ("???", "foo", true, true),
            ("??", "foo", false, false),
            ("*", "foo", true, true),
            ("f*", "foo", true, true),
            ("*f", "foo", false, false),
            ("*ob*a*r*", "foobar", true, true),
            (r"\*", "*", true, true),
            (r"foo\*bar", "foobar", false, false),
            ("*[al]?", "ball", true, true),
            ("**[!te]", "ten", true, true),
            ("**[!ten]", "ten", false, false),
            ("t[a-g]n", "ten", true, true),
            ("t[!a-g]n", "ton", true, true),
            ("a[]]b", "a]b", true, true),
            ("a[]-]b", "a-b", true, true),
            ("a[]a-]b", "aab", true, true),
            ("]", "]", true, true),
            ("foo*bar", "foo/baz/bar", false, true),
            ("foo**bar", "foo/baz/bar", false, true),
            ("foo/**/bar", "foo/baz/bar", true, true),
            ("foo/**/**/bar", "foo/b/a/z/bar", true, true),
            ("foo/**/bar", "foo/bar", true, false),
            ("foo/**/**/bar", "foo/bar", true, false),
            ("foo?bar", "foo/bar", false, true),
            ("foo[/]bar", "foo/bar", false, true),
            ("foo[^a-z]bar", "foo/bar", false, true),
            ("f[^eiu][^eiu][^eiu][^eiu][^eiu]r", "foo/bar", false, true),
            ("**/foo", "foo", true, false),
            ("**/foo", "XXX/foo", true, true),
            ("**/foo", "bar/baz/foo", true, true),
            ("*/foo", "bar/baz/foo", false, true),
            ("**/bar*", "foo/bar/baz", false, true),
            ("**/bar/*", "deep/foo/bar/baz", true, true),
            ("**/bar/*", "deep/foo/bar/baz/", false, true),
            ("**/bar/**", "deep/foo/bar/baz/", true, true),
            ("**/bar/**", "deep/foo/bar/", true, true),
            ("*/bar/**", "foo/bar/baz/x", true, true),
            ("*/bar/**", "deep/foo/bar/baz/x", false, true),
            ("**/bar/*/*", "deep/foo/bar/baz/x", true, true),
            ("a[c-c]st", "acrt", false, false),
            ("[!]-]", "]", false, false),
            ("[!]-]", "a", true, true),
            ("\\", "\\", false, false),
            ("[[:alpha:]][[:digit:]][[:upper:]]", "a1B", true, true),
            ("[[:digit:][:upper:][:space:]]", "A", true, true),
            ("[[:digit:][:upper:][:spaci:]]", "1", false, false),
            ("[a-c[:digit:]x-z]", "5", true, true),
            (r"[\\-^]", "]", true, true),
            (r"[\]]", "]", true, true),
            ("a[]b", "a[]b", false, false),
            ("[!", "ab", false, false),
            ("[-", "ab", false, false),
            ("[--A]", "-", true, true),
            ("[ --]", "$", true, true),
            (
                "-*-*-*-*-*-*-12-*-*-*-m-*-*-*",
                "-adobe-courier-bold-o-normal--12-120-75-75-m-70-iso8859-1",
                true,
                true,
            ),
            (
                "**/*a*b*g*n*t",
                "abcd/abcdefg/abcdefghijk/abcdefghijklmnop.txt",
                true,
                true,
            ),
            ("*/*/*", "foo/bb/aa/rr", false, true),
            ("**/*/*/*", "foo/bb/aa/rr", true, true),
        ];
        for (pattern, text, apart, plain) in table {
            assert_eq!(
                matches(pattern, text, true),
                apart,
                "{pattern} on {text}, slashes apart"
            );
            assert_eq!(matches(pattern, text, false), plain, "{pattern} on {text}");
        }
    }

    #[test]
    fn case_is_ignored_if_asked() {
        let folded = WildOptions {
            ignore_case: true,
            ..WildOptions::default()
        };
        let matches = |options| WildPattern::new(b"[A-C]x*Y", options).matches(b"bXzzy", &mut Effort::steps(100));
        assert_eq!(matches(folded), Ok(true));
        assert_eq!(matches(WildOptions::default()), Ok(false));
    }

    /// Backtracking would take longer than anybody's life.
    #[test]
    fn no_pattern_is_slow() {
        let pattern = "a*".repeat(200) + "b";
        assert!(!matches(&pattern, &"a".repeat(1000), false));
        let pattern = "**/a/".repeat(100) + "b";
        assert!(!matches(&pattern, &"a/".repeat(400), true));
    }

    /// Two long strings are a large product; a short text costs little, however long the pattern.
    #[test]
    fn effort_is_counted_and_ends() {
        let pattern = WildPattern::new("*a".repeat(1000).as_bytes(), WildOptions::default());
        let mut effort = Effort::steps(1_000_000);
        assert_eq!(pattern.matches(&[b'a'; 4000], &mut effort), Err(TooMuchEffort));
        assert!(effort.left() < 2_000);
        let mut effort = Effort::steps(20);
        assert_eq!(pattern.matches(b"abc", &mut effort), Ok(false));
        assert!(effort.left() > 0);
    }
}
