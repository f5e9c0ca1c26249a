//! Whether what clients saw of a ref could have been seen of a single register: linearizability, ref by ref.
//!
//! Each operation happened at one instant between its call and its answer; one whose outcome is unknown happened at some
//! instant after its call, or never. The checker looks for an order of instants that explains every answer (Wing and Gong
//! 1993), remembering where it has been (Lowe 2017).

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;

/// What a client asked of a register, and what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<V> {
    /// It read this.
    Read(Option<V>),
    /// It replaced `old` by `new`.
    Swapped {
        /// The value before.
        old: Option<V>,
        /// The value after.
        new: Option<V>,
    },
    /// It was told that the value is not `old`.
    Refused {
        /// The value it expected.
        old: Option<V>,
    },
    /// It asked to replace `old` by `new`, and does not know what became of it.
    Unknown {
        /// The value before.
        old: Option<V>,
        /// The value after.
        new: Option<V>,
    },
}

/// One operation and its time.
#[derive(Clone, Debug)]
pub struct Operation<V> {
    /// When it was called.
    pub called: u64,
    /// When it was answered; [`u64::MAX`] if never.
    pub answered: u64,
    /// What it was.
    pub action: Action<V>,
}

impl<V: Clone + Eq> Operation<V> {
    /// The value after it, if it can happen now.
    fn step(&self, value: &Option<V>) -> Option<Option<V>> {
        match &self.action {
            Action::Read(read) => (read == value).then(|| value.clone()),
            Action::Refused { old } => (old != value).then(|| value.clone()),
            Action::Swapped { old, new } | Action::Unknown { old, new } => (old == value).then(|| new.clone()),
        }
    }

    fn may_never_happen(&self) -> bool {
        matches!(self.action, Action::Unknown { .. })
    }
}

/// Histories of registers by name; all begin absent.
pub struct Histories<V>(BTreeMap<String, Vec<Operation<V>>>);

impl<V> Default for Histories<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V: Clone + Eq + Debug> Histories<V> {
    /// Adds an operation.
    pub fn add(&mut self, name: &str, operation: Operation<V>) {
        self.0.entry(name.to_owned()).or_default().push(operation);
    }

    /// Operations in all.
    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Panics with the history of the first register that no order explains.
    pub fn check(&self) {
        for (name, history) in &self.0 {
            assert!(
                is_linearizable(history),
                "'{name}' is not linearizable:\n{}",
                table(history)
            );
        }
    }
}

fn table<V: Debug>(history: &[Operation<V>]) -> String {
    let mut lines: Vec<_> = history.iter().collect();
    lines.sort_by_key(|operation| operation.called);
    let line = |operation: &&Operation<V>| {
        format!(
            "  {:>6} to {:>6}  {:?}\n",
            operation.called, operation.answered, operation.action
        )
    };
    lines.iter().map(line).collect()
}

/// Whether some order explains the history.
pub fn is_linearizable<V: Clone + Eq + Debug>(history: &[Operation<V>]) -> bool {
    let mut history = history.to_vec();
    history.sort_by_key(|operation| operation.called);
    Search::new(&history).run()
}

/// A point of the search: which operations are done, and the value they leave.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Point {
    done: Vec<u64>,
    /// Below this, all are done.
    first: usize,
    /// An index of `Search::values`.
    value: usize,
}

struct Search<'a, V> {
    history: &'a [Operation<V>],
    values: Vec<Option<V>>,
}

impl<'a, V: Clone + Eq> Search<'a, V> {
    fn new(history: &'a [Operation<V>]) -> Self {
        Self {
            history,
            values: vec![None],
        }
    }

    fn run(mut self) -> bool {
        let start = Point {
            done: vec![0; self.history.len().div_ceil(64)],
            first: 0,
            value: 0,
        };
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(point) = open.pop() {
            if self.is_end(&point) {
                return true;
            }
            for next in self.next(&point) {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        false
    }

    fn is_end(&self, point: &Point) -> bool {
        let rest = self.history.iter().enumerate().skip(point.first);
        rest.filter(|(at, _)| !point.has(*at))
            .all(|(_, operation)| operation.may_never_happen())
    }

    /// Points one operation on: those that were called before any other that is not done was answered.
    fn next(&mut self, point: &Point) -> Vec<Point> {
        let open: Vec<usize> = (point.first..self.history.len()).filter(|at| !point.has(*at)).collect();
        let bound = open
            .iter()
            .map(|at| self.history[*at].answered)
            .min()
            .unwrap_or(u64::MAX);
        let value = self.values[point.value].clone();
        let mut next = Vec::new();
        for at in open.into_iter().take_while(|at| self.history[*at].called <= bound) {
            let Some(after) = self.history[at].step(&value) else {
                continue;
            };
            let mut point = point.clone();
            point.done[at / 64] |= 1 << (at % 64);
            point.value = self.number(after);
            while point.first < self.history.len() && point.has(point.first) {
                point.first += 1;
            }
            next.push(point);
        }
        next
    }

    fn number(&mut self, value: Option<V>) -> usize {
        match self.values.iter().position(|known| *known == value) {
            Some(number) => number,
            None => {
                self.values.push(value);
                self.values.len() - 1
            }
        }
    }
}

impl Point {
    fn has(&self, at: usize) -> bool {
        self.done[at / 64] >> (at % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(operations: &[(u64, u64, Action<u8>)]) -> bool {
        let operation = |(called, answered, action): &(u64, u64, Action<u8>)| Operation {
            called: *called,
            answered: *answered,
            action: action.clone(),
        };
        is_linearizable(&operations.iter().map(operation).collect::<Vec<_>>())
    }

    const NEVER: u64 = u64::MAX;

    fn swapped(old: u8, new: u8) -> Action<u8> {
        let value = |value| (value > 0).then_some(value);
        Action::Swapped {
            old: value(old),
            new: value(new),
        }
    }

    fn unknown(old: u8, new: u8) -> Action<u8> {
        let value = |value| (value > 0).then_some(value);
        Action::Unknown {
            old: value(old),
            new: value(new),
        }
    }

    fn read(value: u8) -> Action<u8> {
        Action::Read((value > 0).then_some(value))
    }

    #[test]
    fn what_one_register_could_do_is_accepted() {
        assert!(history(&[]));
        assert!(history(&[
            (1, 2, swapped(0, 1)),
            (3, 4, read(1)),
            (5, 6, swapped(1, 0)),
            (7, 8, read(0))
        ]));
        // Reads may see an overlapping write, or not.
        for value in [0, 1] {
            assert!(history(&[(1, 10, swapped(0, 1)), (2, 3, read(value))]));
        }
        // An unknown write may come late, or never.
        assert!(history(&[(1, NEVER, unknown(0, 1)), (2, 3, read(0)), (8, 9, read(1))]));
        assert!(history(&[
            (1, NEVER, unknown(0, 1)),
            (2, 3, read(0)),
            (8, 9, swapped(0, 2))
        ]));
        assert!(history(&[
            (1, 9, Action::Refused { old: Some(1) }),
            (2, 3, swapped(0, 1))
        ]));
    }

    #[test]
    fn what_no_register_could_do_is_found() {
        // A lost write.
        assert!(!history(&[(1, 2, swapped(0, 1)), (3, 4, read(0))]));
        // Going back in time.
        assert!(!history(&[(1, 10, swapped(0, 1)), (2, 3, read(1)), (4, 5, read(0))]));
        // Two winners.
        assert!(!history(&[(1, 5, swapped(0, 1)), (2, 6, swapped(0, 2))]));
        // A write from nowhere.
        assert!(!history(&[(1, 2, read(7))]));
        // An unknown write before its call.
        assert!(!history(&[(1, 2, read(1)), (3, NEVER, unknown(0, 1))]));
        // Refused although the value was as expected all the time.
        assert!(!history(&[
            (1, 2, swapped(0, 1)),
            (3, 4, Action::Refused { old: Some(1) })
        ]));
        // An unknown write that happens twice.
        assert!(!history(&[
            (1, NEVER, unknown(0, 1)),
            (2, 3, read(1)),
            (4, 5, swapped(1, 0)),
            (6, 7, read(1))
        ]));
    }
}
