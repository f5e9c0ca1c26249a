//! Each repository looked at once after a start, a few at a time: what says which have payloads to delete is a hint that goes
//! with a disk, a power cut or a node, and a repository that nobody pushes to any more would be asked by nobody. One that
//! cannot be looked at is tried again, later each time.

use crate::node::Node;
use cuesta_format::{LogId, RepositoryRecord};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Repositories looked at in one step.
const LOOKS_MAX: usize = 16;
/// The pause after the first failure; each further one doubles it.
const PAUSE_MS: i64 = 60 * 1000;
/// The longest pause.
const PAUSE_MS_MAX: i64 = 24 * 60 * 60 * 1000;
/// Repositories that may wait for another look; the walk waits while there are as many.
const WAITING_MAX: usize = 4096;

/// A walk over all names.
#[derive(Default)]
pub(super) struct Revisit {
    after: Option<String>,
    is_done: bool,
    waiting: Waiting,
}

impl Revisit {
    /// Looks at the next few, and at those that failed before and whose time has come. Cost: the reads that open each, unless
    /// it is open; nothing once all were seen.
    pub(super) async fn step(&mut self, node: &Node, now_ms: i64) {
        let room = LOOKS_MAX.min(WAITING_MAX.saturating_sub(self.waiting.0.len()));
        let due = self.waiting.due(now_ms, LOOKS_MAX);
        if due.is_empty() && (self.is_done || room == 0) {
            return;
        }
        let directory = match node.engine.directory().log().fresh().await {
            Ok(directory) => directory,
            Err(error) => {
                tracing::warn!(error = ?error.to_string(), "cannot look for what is to be deleted; trying again");
                return;
            }
        };
        for (name, log) in due {
            match directory.names().get(&name).filter(|record| record.log == log) {
                Some(record) => self.look(node, name, *record, now_ms).await,
                // It lost its name, and what it left goes another way; or another has it, which nothing was merged in before.
                None => self.waiting.forget(&name),
            }
        }
        if self.is_done || room == 0 {
            return;
        }
        let from = self.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let next = directory.names().range::<_, String>((from, Bound::Unbounded));
        let next: Vec<_> = next.take(room).collect();
        self.is_done = next.len() < room;
        for (name, record) in next {
            self.after = Some(name.clone());
            self.look(node, name.clone(), *record, now_ms).await;
        }
    }

    async fn look(&mut self, node: &Node, name: String, record: RepositoryRecord, now_ms: i64) {
        match node.engine.open_repository(record).await {
            Ok(repository) => {
                if let Some(due_ms) = repository.collection_due_ms() {
                    node.uncollected.note_first(record.log, due_ms);
                }
                self.waiting.forget(&name);
            }
            Err(error) => {
                let pause_ms = self.waiting.failed(name, record.log, now_ms);
                let (error, seconds) = (error.to_string(), pause_ms / 1000);
                tracing::warn!(repository = %record.log, ?error, seconds, "cannot see what is to be deleted; trying again");
            }
        }
    }
}

/// Names that could not be looked at.
#[derive(Default)]
struct Waiting(BTreeMap<String, Wait>);

struct Wait {
    log: LogId,
    pause_ms: i64,
    due_ms: i64,
}

impl Waiting {
    /// At most `count_max` whose pause is over.
    fn due(&self, now_ms: i64, count_max: usize) -> Vec<(String, LogId)> {
        let due = self.0.iter().filter(|(_, wait)| wait.due_ms <= now_ms);
        due.map(|(name, wait)| (name.clone(), wait.log))
            .take(count_max)
            .collect()
    }

    /// Notes a failure; gives the pause until the next look.
    fn failed(&mut self, name: String, log: LogId, now_ms: i64) -> i64 {
        let before = self.0.get(&name).filter(|wait| wait.log == log);
        let pause_ms = before.map_or(PAUSE_MS, |wait| wait.pause_ms.saturating_mul(2).min(PAUSE_MS_MAX));
        let due_ms = now_ms.saturating_add(pause_ms);
        self.0.insert(name, Wait { log, pause_ms, due_ms });
        pause_ms
    }

    fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_day_and_end_with_a_look() {
        let (mut waiting, log) = (Waiting::default(), LogId(7));
        let mut now_ms = 0;
        let mut pauses = Vec::new();
        for _ in 0..13 {
            let pause_ms = waiting.failed("a/b".to_owned(), log, now_ms);
            assert!(waiting.due(now_ms + pause_ms - 1, 8).is_empty());
            now_ms += pause_ms;
            assert_eq!(waiting.due(now_ms, 8), [("a/b".to_owned(), log)]);
            assert!(waiting.due(now_ms, 0).is_empty());
            pauses.push(pause_ms / PAUSE_MS);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1440, 1440]);
        assert_eq!(
            waiting.failed("a/b".to_owned(), LogId(8), now_ms),
            PAUSE_MS,
            "another of that name"
        );
        waiting.forget("a/b");
        assert!(waiting.due(i64::MAX, 8).is_empty());
    }
}
