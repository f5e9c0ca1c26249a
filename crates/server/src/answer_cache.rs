//! Answers that depend on nothing but a repository's refs and settings, kept for who asks next.

use bytes::Bytes;
use cuesta_format::LogId;
use cuesta_protocol::{Service, Version};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one entry costs beside its bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 256;
/// Requests longer than this are not worth remembering.
const REQUEST_LEN_MAX: usize = 4096;
/// A cache's guess of an answer's size, from which it sizes its tables.
const ANSWER_BYTES_GUESS: usize = 16 << 10;

/// What was asked, of which repository.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AnswerKey {
    log: LogId,
    question: Question,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Question {
    /// The refs in a v0 or v1 advertisement.
    Refs(Service, Version),
    /// `ls-refs`, the request as it came.
    LsRefs(Bytes),
}

impl AnswerKey {
    /// The advertisement of a service.
    pub fn refs(log: LogId, service: Service, version: Version) -> Self {
        Self {
            log,
            question: Question::Refs(service, version),
        }
    }

    /// The answer to a whole `ls-refs` request; `None` if it is too long to be remembered.
    pub fn ls_refs(log: LogId, request: &Bytes) -> Option<Self> {
        let fits = request.len() <= REQUEST_LEN_MAX;
        // Copied: the request may be a small part of a large buffer.
        fits.then(|| Self {
            log,
            question: Question::LsRefs(Bytes::copy_from_slice(request)),
        })
    }
}

/// Answers, each good for one position of its repository's log. Bounded in bytes.
pub struct AnswerCache {
    answers: Cache<AnswerKey, (u64, Bytes), ByBytes>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<AnswerKey, (u64, Bytes)> for ByBytes {
    fn weight(&self, key: &AnswerKey, (_, bytes): &(u64, Bytes)) -> u64 {
        let request = match &key.question {
            Question::Refs(..) => 0,
            Question::LsRefs(request) => request.len(),
        };
        (request + bytes.len()) as u64 + ENTRY_OVERHEAD_BYTES
    }
}

impl AnswerCache {
    /// A cache of at most that many bytes.
    pub fn new(bytes_max: u64) -> Self {
        let count = usize::try_from(bytes_max).unwrap_or(usize::MAX) / ANSWER_BYTES_GUESS;
        let answers = Cache::with_weighter(count.max(1), bytes_max, ByBytes);
        Self {
            answers,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The answer made at exactly that position.
    pub fn get(&self, key: &AnswerKey, number: u64) -> Option<Bytes> {
        let answer = self.answers.get(key).filter(|(made_at, _)| *made_at == number);
        let counter = if answer.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        answer.map(|(_, bytes)| bytes)
    }

    /// Keeps an answer, in place of one made at another position.
    pub fn put(&self, key: AnswerKey, number: u64, bytes: Bytes) {
        self.answers.insert(key, (number, bytes));
    }

    /// Times an answer was found, and not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_good_for_its_position_only() {
        let cache = AnswerCache::new(1 << 20);
        let key = AnswerKey::refs(LogId(1), Service::UploadPack, Version::V0);
        assert_eq!(cache.get(&key, 1), None);
        cache.put(key.clone(), 1, Bytes::from_static(b"refs"));
        assert_eq!(cache.get(&key, 1).as_deref(), Some(&b"refs"[..]));
        assert_eq!(cache.get(&key, 2), None);
        assert_eq!(
            cache.get(&AnswerKey::refs(LogId(2), Service::UploadPack, Version::V0), 1),
            None
        );
        assert_eq!(
            cache.get(&AnswerKey::refs(LogId(1), Service::ReceivePack, Version::V0), 1),
            None
        );
    }

    #[test]
    fn answers_larger_than_the_cache_are_not_kept() {
        let cache = AnswerCache::new(64 << 10);
        let key = AnswerKey::ls_refs(LogId(1), &Bytes::from_static(b"0014command=ls-refs\n")).unwrap();
        cache.put(key.clone(), 1, vec![0; 128 << 10].into());
        assert_eq!(cache.get(&key, 1), None);
    }

    #[test]
    fn long_requests_are_not_remembered() {
        assert!(AnswerKey::ls_refs(LogId(1), &vec![0; REQUEST_LEN_MAX].into()).is_some());
        assert!(AnswerKey::ls_refs(LogId(1), &vec![0; REQUEST_LEN_MAX + 1].into()).is_none());
    }
}
