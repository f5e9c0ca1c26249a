//! Contents kept by when they were used last.

use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// What an item takes beside its bytes, about.
const ITEM_BYTES: usize = 160;

/// Keeps the contents used last, up to a number of bytes. Strictly by recency: a content of a merge is used a few times
/// soon after it was made and then never again, which caches that count uses would mistake.
pub(super) struct Kept<K> {
    bytes_max: usize,
    bytes: usize,
    clock: u64,
    /// Contents, and when each was used last.
    items: HashMap<K, (Bytes, u64)>,
    /// Uses in order of time. One that is not its item's last means nothing.
    uses: VecDeque<(K, u64)>,
}

impl<K: Copy + Eq + Hash> Kept<K> {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            clock: 0,
            items: HashMap::new(),
            uses: VecDeque::new(),
        }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<Bytes> {
        let (content, used) = self.items.get_mut(key)?;
        self.clock += 1;
        *used = self.clock;
        let content = content.clone();
        self.uses.push_back((*key, self.clock));
        self.forget_old_uses();
        Some(content)
    }

    pub(super) fn insert(&mut self, key: K, content: Bytes) {
        self.clock += 1;
        self.bytes += content.len() + ITEM_BYTES;
        self.uses.push_back((key, self.clock));
        if let Some((old, _)) = self.items.insert(key, (content, self.clock)) {
            self.bytes -= old.len() + ITEM_BYTES;
        }
        self.trim();
    }

    /// The last one stays in any case: its user holds it anyway.
    fn trim(&mut self) {
        while self.bytes > self.bytes_max && self.items.len() > 1 {
            let Some((key, used)) = self.uses.pop_front() else {
                return;
            };
            if self.items.get(&key).is_some_and(|(_, last)| *last == used)
                && let Some((content, _)) = self.items.remove(&key)
            {
                self.bytes -= content.len() + ITEM_BYTES;
            }
        }
    }

    fn forget_old_uses(&mut self) {
        if self.uses.len() > 4 * self.items.len() + 64 {
            let items = &self.items;
            self.uses
                .retain(|(key, used)| items.get(key).is_some_and(|(_, last)| last == used));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(len: usize) -> Bytes {
        Bytes::from(vec![0; len])
    }

    #[test]
    fn what_was_used_last_stays() {
        let mut kept = Kept::new(3 * (1000 + ITEM_BYTES));
        for key in 0..3 {
            kept.insert(key, content(1000));
        }
        assert!(kept.get(&0).is_some());
        kept.insert(3, content(1000));
        assert!(kept.get(&1).is_none());
        for key in [0, 2, 3] {
            assert!(kept.get(&key).is_some(), "{key}");
        }
    }

    #[test]
    fn bytes_are_counted_once() {
        let mut kept = Kept::new(2 * (1000 + ITEM_BYTES));
        for _ in 0..10 {
            kept.insert(0, content(1000));
            kept.insert(1, content(1000));
        }
        assert!(kept.get(&0).is_some() && kept.get(&1).is_some());
        kept.insert(2, content(100_000));
        assert!(kept.get(&0).is_none() && kept.get(&2).is_some());
    }

    #[test]
    fn uses_do_not_pile_up() {
        let mut kept = Kept::new(10_000);
        kept.insert(0, content(1));
        (0..10_000).for_each(|_| assert!(kept.get(&0).is_some()));
        assert!(kept.uses.len() < 100);
    }
}
