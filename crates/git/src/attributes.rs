//! `.gitattributes`: the attributes of a path, as gitattributes(5) defines them.
//!
//! Only the attributes that somebody asks for are kept when a file is parsed, besides macros; the rules of most files
//! are then few. What git warns of (negative patterns, bad names, long lines) is passed over without a word.

use crate::path_pattern::PathPattern;
use crate::wildmatch::{Effort, TooMuchEffort};
use std::collections::HashMap;
use std::sync::Arc;

/// The name of the files.
pub const FILE_NAME: &[u8] = b".gitattributes";

/// Lines of this many bytes or more are passed over, as in git.
const LINE_LEN_MAX: usize = 2048;
/// Rules that may be in force for one path. Git has no such limit; repositories have some hundreds at most.
pub const RULES_MAX: usize = 16_384;
/// Bytes of the lines of these rules, and of macros, together: a pattern takes a few dozen times its length in memory.
pub const RULES_BYTES_MAX: usize = 2 << 20;
/// Bytes of a path that cost as much as a step of matching to be looked at.
const BYTES_PER_STEP: usize = 64;

/// What is said of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeState {
    /// `name`.
    Set,
    /// `-name`.
    Unset,
    /// `!name`: as if nothing had been said.
    Unspecified,
    /// `name=value`.
    Value(Arc<[u8]>),
}

/// More rules than [`RULES_MAX`] are in force, or longer ones than [`RULES_BYTES_MAX`] together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {RULES_MAX} rules or {RULES_BYTES_MAX} bytes of them in .gitattributes files")]
pub struct TooManyRules;

/// The files in force for a directory: that of the root, and those on the way down.
#[derive(Clone, Debug)]
pub struct AttributeStack {
    /// Those that are asked for, in that order, then macros.
    names: HashMap<Box<[u8]>, usize>,
    asked: usize,
    macros: Vec<Option<Vec<(usize, AttributeState)>>>,
    frames: Vec<Frame>,
    rules: usize,
    /// Bytes of the lines of rules and macros.
    bytes: usize,
}

#[derive(Clone, Debug, Default)]
struct Frame {
    /// Bytes of the directory's path, its slash included.
    base_len: usize,
    rules: Vec<Rule>,
    /// Bytes of their lines.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Rule {
    pattern: PathPattern,
    states: Vec<(usize, AttributeState)>,
}

/// The states of the attributes asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes(Vec<AttributeState>);

impl Attributes {
    /// The state of the `number`th attribute that was asked for.
    pub fn state(&self, number: usize) -> &AttributeState {
        self.0.get(number).unwrap_or(&AttributeState::Unspecified)
    }

    /// Whether that attribute is set, with no value.
    pub fn is_set(&self, number: usize) -> bool {
        *self.state(number) == AttributeState::Set
    }
}

impl AttributeStack {
    /// A stack that answers for the attributes of those names.
    pub fn new(asked: &[&str]) -> Self {
        let names = asked
            .iter()
            .enumerate()
            .map(|(number, name)| (name.as_bytes().into(), number));
        let mut stack = Self {
            names: names.collect(),
            asked: asked.len(),
            macros: vec![None; asked.len()],
            frames: Vec::new(),
            rules: 0,
            bytes: 0,
        };
        stack.define(b"binary", b"-diff -merge -text");
        stack
    }

    /// Enters a directory: `path` with its slash, empty for the root; `content` is its file, empty if it has none.
    pub fn push(&mut self, path: &[u8], content: &[u8]) -> Result<(), TooManyRules> {
        let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
        // As git reads it, a NUL ends the file.
        let content = content.split(|byte| *byte == 0).next().unwrap_or_default();
        let lines = content
            .split(|byte| *byte == b'\n')
            .filter(|line| line.len() < LINE_LEN_MAX);
        if path.is_empty() {
            lines.clone().for_each(|line| self.define_line(line));
        }
        let mut frame = Frame {
            base_len: path.len(),
            rules: Vec::new(),
            bytes: 0,
        };
        for line in lines {
            let Some(rule) = self.rule(line) else { continue };
            frame.rules.push(rule);
            frame.bytes += line.len();
            if self.rules + frame.rules.len() > RULES_MAX || self.bytes + frame.bytes > RULES_BYTES_MAX {
                return Err(TooManyRules);
            }
        }
        if self.bytes > RULES_BYTES_MAX {
            return Err(TooManyRules);
        }
        self.rules += frame.rules.len();
        self.bytes += frame.bytes;
        self.frames.push(frame);
        Ok(())
    }

    /// Leaves the directory entered last.
    pub fn pop(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.rules -= frame.rules.len();
            self.bytes -= frame.bytes;
        }
    }

    /// The attributes of a path below the directory entered last; directories end in a slash. Cost: a step for each rule and
    /// macro, more for those with wildcards and for long paths; taken from `effort`.
    pub fn of(&self, path: &[u8], effort: &mut Effort) -> Result<Attributes, TooMuchEffort> {
        effort.take(self.macros.len())?;
        let mut found: Vec<Option<AttributeState>> = vec![None; self.macros.len()];
        for frame in self.frames.iter().rev() {
            let Some(below) = path.get(frame.base_len..) else {
                continue;
            };
            for rule in frame.rules.iter().rev() {
                effort.take(1 + below.len() / BYTES_PER_STEP)?;
                let (below, is_directory) = match below.strip_suffix(b"/") {
                    Some(below) => (below, true),
                    None => (below, false),
                };
                if !below.is_empty() && rule.pattern.matches(below, is_directory, effort)? {
                    self.fill(&mut found, &rule.states, effort)?;
                }
            }
        }
        found.truncate(self.asked);
        let state = |found: Option<AttributeState>| found.unwrap_or(AttributeState::Unspecified);
        Ok(Attributes(found.into_iter().map(state).collect()))
    }

    /// What is known already stays; macros that become set say more.
    fn fill(
        &self,
        found: &mut [Option<AttributeState>],
        states: &[(usize, AttributeState)],
        effort: &mut Effort,
    ) -> Result<(), TooMuchEffort> {
        let mut to_do: Vec<&(usize, AttributeState)> = states.iter().collect();
        while let Some((name, state)) = to_do.pop() {
            effort.take(1)?;
            let Some(slot @ None) = found.get_mut(*name) else {
                continue;
            };
            *slot = Some(state.clone());
            if let (AttributeState::Set, Some(Some(more))) = (state, self.macros.get(*name)) {
                to_do.extend(more);
            }
        }
        Ok(())
    }

    fn define_line(&mut self, line: &[u8]) {
        let Some(rest) = trim_start(line).strip_prefix(b"[attr]") else {
            return;
        };
        let rest = trim_start(rest);
        let (name, states) = rest.split_at(word_len(rest));
        if is_valid_name(name) && self.bytes <= RULES_BYTES_MAX {
            self.bytes += line.len();
            self.define(name, states);
        }
    }

    fn define(&mut self, name: &[u8], states: &[u8]) {
        // A macro may name one that is defined later; that one's number has to be known first, so names come first.
        let number = self.number(name);
        if let Some(states) = self.states(states)
            && let Some(slot) = self.macros.get_mut(number)
        {
            *slot = Some(states);
        }
    }

    fn number(&mut self, name: &[u8]) -> usize {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = self.macros.len();
        self.macros.push(None);
        self.names.insert(name.into(), number);
        number
    }

    /// A line that gives attributes to a pattern; `None` if it does not, or nothing that matters.
    fn rule(&self, line: &[u8]) -> Option<Rule> {
        let line = trim_start(line);
        if line.is_empty() || line.starts_with(b"#") {
            return None;
        }
        let quoted = line.strip_prefix(b"\"").and_then(unquote);
        let (pattern, states) = match quoted {
            Some((pattern, rest)) => (pattern, rest),
            None => {
                let (pattern, rest) = line.split_at(word_len(line));
                (pattern.to_vec(), rest)
            }
        };
        if pattern.starts_with(b"[attr]") && pattern.len() > b"[attr]".len() || pattern.starts_with(b"!") {
            return None;
        }
        let states = self.states(states)?;
        (!states.is_empty()).then(|| Rule {
            pattern: PathPattern::new(&pattern),
            states,
        })
    }

    /// The states that matter; `None` if one of them all cannot be read.
    fn states(&self, text: &[u8]) -> Option<Vec<(usize, AttributeState)>> {
        let mut states = Vec::new();
        for word in text.split(|byte| is_blank(*byte)).filter(|word| !word.is_empty()) {
            let (name, state) = match word {
                [b'-', name @ ..] => (before_equals(name), AttributeState::Unset),
                [b'!', name @ ..] => (before_equals(name), AttributeState::Unspecified),
                _ => match word.iter().position(|byte| *byte == b'=') {
                    Some(at) => {
                        let (name, value) = word.split_at(at);
                        (name, AttributeState::Value(value.get(1..).unwrap_or_default().into()))
                    }
                    None => (word, AttributeState::Set),
                },
            };
            if !is_valid_name(name) {
                return None;
            }
            states.extend(self.names.get(name).map(|number| (*number, state)));
        }
        Some(states)
    }
}

fn before_equals(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == b'=').next().unwrap_or(name)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn trim_start(line: &[u8]) -> &[u8] {
    let blanks = line.iter().take_while(|byte| is_blank(**byte)).count();
    line.get(blanks..).unwrap_or_default()
}

fn word_len(line: &[u8]) -> usize {
    line.iter().position(|byte| is_blank(*byte)).unwrap_or(line.len())
}

fn is_valid_name(name: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !name.is_empty() && !name.starts_with(b"-") && name.iter().all(allowed) && !name.starts_with(b"builtin_")
}

/// A C-style quoted word whose first quote has been read: the word, and what follows its last quote.
fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((word, text.get(at + 1..)?)),
            b'\\' => {
                let (_, escape) = bytes.next()?;
                word.push(match escape {
                    b'a' => 7,
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'v' => 11,
                    b'\\' | b'"' => *escape,
                    b'0'..=b'3' => {
                        let mut digit = || {
                            bytes
                                .next()
                                .map(|(_, digit)| *digit)
                                .filter(|digit| matches!(digit, b'0'..=b'7'))
                        };
                        let (middle, low) = (digit()?, digit()?);
                        (escape - b'0') << 6 | (middle - b'0') << 3 | (low - b'0')
                    }
                    _ => return None,
                });
            }
            byte => word.push(*byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stack: &AttributeStack, path: &[u8]) -> Attributes {
        stack.of(path, &mut Effort::steps(100_000)).unwrap()
    }

    fn state(file: &str, path: &str) -> String {
        let mut stack = AttributeStack::new(&["x", "diff"]);
        stack.push(b"", file.as_bytes()).unwrap();
        match of(&stack, path.as_bytes()).state(0) {
            AttributeState::Set => "set".to_owned(),
            AttributeState::Unset => "unset".to_owned(),
            AttributeState::Unspecified => "unspecified".to_owned(),
            AttributeState::Value(value) => String::from_utf8(value.to_vec()).unwrap(),
        }
    }

    #[test]
    fn later_lines_win_and_macros_expand() {
        let table = [
            ("*.c x", "a/b.c", "set"),
            ("*.c x\nb.c -x", "a/b.c", "unset"),
            ("*.c x\nb.c !x", "a/b.c", "unspecified"),
            ("*.c x=1=2 y", "b.c", "1=2"),
            ("/b.c x", "a/b.c", "unspecified"),
            ("a/*.c x", "a/b.c", "set"),
            ("a/*.c x", "d/a/b.c", "unspecified"),
            ("a x", "a/b.c", "unspecified"),
            ("a x", "a/", "set"),
            ("a/ x", "a/", "set"),
            ("a/ x", "a", "unspecified"),
            ("a/** x", "a/b/c", "set"),
            ("[attr]m x\n*.c m", "b.c", "set"),
            ("*.c m\n[attr]m x=3", "b.c", "3"),
            ("[attr]m x\n*.c -m", "b.c", "unspecified"),
            ("[attr]m x\n*.c m -x", "b.c", "unset"),
            ("[attr]m x\n[attr]n m\n*.c n", "b.c", "set"),
            ("\"a b\\t\" x", "a b\t", "set"),
            ("!b.c x", "b.c", "unspecified"),
            ("b.c x bad^name", "b.c", "unspecified"),
            ("# b.c x\n \tb.c x\r", "b.c", "set"),
            ("\u{feff}b.c x", "b.c", "set"),
            ("b.c -x=3", "b.c", "unset"),
        ];
        for (file, path, expected) in table {
            assert_eq!(state(file, path), expected, "{file:?} on {path}");
        }
    }

    #[test]
    fn the_builtin_macro_says_no_diff() {
        let mut stack = AttributeStack::new(&["diff"]);
        stack.push(b"", b"*.png binary\n").unwrap();
        assert_eq!(*of(&stack, b"a/b.png").state(0), AttributeState::Unset);
    }

    #[test]
    fn deeper_files_win_and_define_no_macros() {
        let mut stack = AttributeStack::new(&["x"]);
        stack.push(b"", b"*.c x\n").unwrap();
        stack.push(b"a/", b"/b.c -x\n[attr]m x\nc m\n").unwrap();
        assert_eq!(*of(&stack, b"a/b.c").state(0), AttributeState::Unset);
        assert!(of(&stack, b"a/d.c").is_set(0));
        assert_eq!(*of(&stack, b"a/c").state(0), AttributeState::Unspecified);
        stack.pop();
        assert!(of(&stack, b"b.c").is_set(0));
    }

    #[test]
    fn rules_are_bounded() {
        let mut stack = AttributeStack::new(&["x"]);
        assert_eq!(stack.push(b"", "a x\n".repeat(RULES_MAX).as_bytes()), Ok(()));
        assert_eq!(stack.push(b"a/", b"a x\n"), Err(TooManyRules));
        stack.pop();
        assert_eq!(
            stack.push(b"", "a x\n".repeat(RULES_MAX + 1).as_bytes()),
            Err(TooManyRules)
        );
    }

    #[test]
    fn bytes_of_rules_are_bounded_and_given_back() {
        let long = format!("{} x\n", "a".repeat(2_000));
        let many = long.repeat(RULES_BYTES_MAX / 2_002);
        let mut stack = AttributeStack::new(&["x"]);
        assert_eq!(stack.push(b"", many.as_bytes()), Ok(()));
        assert_eq!(stack.push(b"a/", long.repeat(2).as_bytes()), Err(TooManyRules));
        stack.pop();
        assert_eq!(stack.push(b"", many.as_bytes()), Ok(()));
        let macros: String = (0..RULES_BYTES_MAX / 8)
            .map(|number| format!("[attr]m{number}\n"))
            .collect();
        assert_eq!(
            AttributeStack::new(&["x"]).push(b"", macros.as_bytes()),
            Err(TooManyRules)
        );
    }

    /// Patterns and paths come from the same hands: together they could keep a thread busy for minutes.
    #[test]
    fn rules_that_take_long_are_given_up() {
        let rule = format!("{}b x\n", "*a".repeat(1_000));
        let mut stack = AttributeStack::new(&["x"]);
        stack.push(b"", rule.repeat(1_000).as_bytes()).unwrap();
        let mut effort = Effort::steps(1 << 20);
        assert_eq!(stack.of(&[b'a'; 4_000], &mut effort), Err(TooMuchEffort));
        assert_eq!(*of(&stack, b"short").state(0), AttributeState::Unspecified);
    }
}
