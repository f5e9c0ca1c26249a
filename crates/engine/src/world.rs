//! What every part of the engine works with, and the limits it keeps.

use crate::receive::ReceiveOptions;
use crate::upload::Answers;
use cuesta_ledger::LogStore;
use cuesta_store::{BlockCache, Bucket, Clock, Entropy, Workers};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Limits and choices of an engine. The defaults suit a server of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Repositories kept open at once. More may be open while requests still hold them.
    pub open_repositories_max: usize,
    /// The branch that `HEAD` of a new repository names.
    pub default_branch: String,
    /// Hash every object that is read and compare it with its id. Scrubbing does so in any case.
    pub check_ids: bool,
    /// Wants in one fetch.
    pub wants_max: usize,
    /// Objects that one fetch meets below trees which have to be read: of commits at a boundary, and for filters by depth and by
    /// path. Each takes about 50 bytes while the walk goes on.
    pub walked_objects_max: usize,
    /// Bytes of pack read ahead of the writer in one fetch; in steps of 1 MiB, at least one.
    pub read_ahead_bytes_max: u64,
    /// zlib level of objects that are stored other than as they came.
    pub deflate_level: u32,
    /// The same of objects that are made anew for an answer. A client waits: 4 takes two thirds of the time of 6, for 2 % more
    /// bytes.
    pub answer_deflate_level: u32,
    /// Bytes that one merge of layers holds at most, about, beside their cues; layers that do not fit together stay apart
    /// ([`crate::MergeBounds`]). As much again for contents while a compaction chooses the bases of deltas anew; objects of
    /// more than a sixth of it keep the form in which they are stored.
    pub compact_memory_bytes_max: usize,
    /// Bytes of packs from which on a compaction makes two layers of them: what branches and tags reach, and the rest.
    pub divide_bytes_min: u64,
    /// Limits and resources of pushes.
    pub receive: ReceiveOptions,
    /// How long payloads of layers that left the list, and of repositories that lost their name, are kept at least. No reader,
    /// push, merge or URI may need one for longer.
    pub grace: Duration,
    /// Where and which answers are kept for those who ask the same; `None` keeps none.
    pub answers: Option<AnswersOptions>,
    /// Settings of repositories that have none of their own of that name ([`crate::Settings`]).
    pub settings: BTreeMap<String, String>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            open_repositories_max: 1_024,
            default_branch: "main".to_owned(),
            check_ids: false,
            wants_max: 1_000_000,
            walked_objects_max: 4_000_000,
            read_ahead_bytes_max: 8 << 20,
            deflate_level: 6,
            answer_deflate_level: 4,
            compact_memory_bytes_max: 96 << 20,
            divide_bytes_min: 4 << 20,
            receive: ReceiveOptions::default(),
            grace: Duration::from_secs(24 * 60 * 60),
            answers: None,
            settings: BTreeMap::new(),
        }
    }
}

/// Where answers are kept, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswersOptions {
    /// Everything in it belongs to this engine, and may be deleted at any time. Made if absent.
    pub directory: PathBuf,
    /// Bytes they may take there; one of them a quarter.
    pub bytes_max: u64,
    /// An answer is kept at once if making it takes so much besides copying: contents that are inflated and deflated, and
    /// something for each object that is met in a tree.
    pub effort_bytes_min: u64,
    /// Of another that has so many bytes, and so is ranges of layers, it is remembered which.
    pub copied_bytes_min: u64,
    /// Memory that such a recipe may take; above it the pack is planned again for each. All together take 16 MiB at most.
    pub recipe_bytes_max: usize,
}

impl AnswersOptions {
    /// So many bytes in that directory, for what a server need not make twice.
    pub fn new(directory: PathBuf, bytes_max: u64) -> Self {
        Self {
            directory,
            bytes_max,
            effort_bytes_min: 256 << 10,
            copied_bytes_min: 1 << 20,
            recipe_bytes_max: 8 << 20,
        }
    }
}

/// The handles an engine was made with.
pub(crate) struct World {
    pub(crate) bucket: Bucket,
    pub(crate) cache: BlockCache,
    pub(crate) log_store: Arc<dyn LogStore>,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    pub(crate) workers: Workers,
    /// Answers kept for those who ask the same.
    pub(crate) answers: Option<Answers>,
    pub(crate) options: EngineOptions,
}
