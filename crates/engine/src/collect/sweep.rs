//! What nothing remembers, found by listing the bucket: layers whose append never happened, checkpoints that newer ones
//! replaced, and payloads of logs that never got a name.
//!
//! A listing decides nothing by itself. A layer is an orphan if it is older than the grace period and then not in the
//! list; before it is deleted the log says that it is one, after which no append can name it.

use super::{as_ms, delete_keys};
use crate::{Engine, EngineError, Repository};
use cuesta_format::{Collection, Key, LayerId, LogId, checkpoints_prefix, layers_prefix};
use cuesta_ledger::State;
use cuesta_store::Listed;
use futures::stream::TryStreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Orphans noted in one edit.
const ORPHANS_MAX: usize = 512;
/// Where the payloads of repositories are.
const REPOSITORIES: &str = "repos";

/// A payload that nothing needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needless {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub bytes: u64,
    /// Why nothing needs it.
    pub why: Why,
}

/// Why nothing needs a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its layer is in no entry: the upload's append never happened.
    Orphan,
    /// A newer checkpoint is in force.
    Replaced,
    /// Its log has no name.
    Nameless,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Orphan => "layer in no entry",
            Self::Replaced => "checkpoint replaced by a newer one",
            Self::Nameless => "log without a name",
        })
    }
}

impl Repository {
    /// Finds payloads of this repository that nothing needs and that are older than the grace period; deletes them unless
    /// it is a `dry_run`. For operators: it lists the bucket.
    ///
    /// Fails with a conflict if a layer was appended meanwhile that looked like an orphan; nothing is deleted then.
    pub async fn sweep(&self, dry_run: bool) -> Result<Vec<Needless>, EngineError> {
        let world = self.world();
        let mut listed: Vec<Listed> = world.bucket.list(&layers_prefix(self.id())).try_collect().await?;
        let checkpoints = world.bucket.list(&checkpoints_prefix(self.id()));
        listed.extend(checkpoints.try_collect::<Vec<Listed>>().await?);
        // Whatever was named before the listing is named in this state.
        let state = self.log().fresh().await?;
        let checkpoint = world.log_store.base(self.id()).await?.checkpoint;
        let written_by_ms = world.clock.now_ms().saturating_sub(as_ms(world.options.grace));
        let mut needless = Vec::new();
        let mut orphans = BTreeSet::new();
        for Listed { key, size, .. } in listed.into_iter().filter(|listed| listed.modified_ms <= written_by_ms) {
            let why = match Key::parse(&key) {
                Some(Key::LayerPack(_, layer) | Key::LayerCue(_, layer)) if is_orphan(&state, layer) => {
                    orphans.insert(layer);
                    Why::Orphan
                }
                Some(Key::Checkpoint(_, number)) if checkpoint.is_some_and(|checkpoint| number < checkpoint) => {
                    Why::Replaced
                }
                _ => continue,
            };
            needless.push(Needless { key, bytes: size, why });
        }
        if !dry_run {
            self.note_orphans(&orphans).await?;
            let keys = needless.iter().map(|payload| payload.key.clone()).collect();
            delete_keys(&world.bucket, keys).await?;
        }
        Ok(needless)
    }

    /// From now on no append can name them; and a later pass deletes them in any case.
    async fn note_orphans(&self, orphans: &BTreeSet<LayerId>) -> Result<(), EngineError> {
        let orphans: Vec<LayerId> = orphans.iter().copied().collect();
        for orphans in orphans.chunks(ORPHANS_MAX) {
            let collection = Collection {
                orphans: orphans.to_vec(),
                ..Collection::default()
            };
            self.commit_collection(collection).await?;
        }
        Ok(())
    }
}

/// What is retired is the regular collector's.
fn is_orphan(state: &State, layer: LayerId) -> bool {
    state.layer(layer).is_none() && state.retired().iter().all(|retired| retired.id != layer)
}

impl Engine {
    /// Finds payloads of logs that have no name and that have been idle for longer than the grace period; deletes them unless
    /// it is a `dry_run`. For operators: it lists the whole bucket.
    pub async fn sweep(&self, dry_run: bool) -> Result<Vec<Needless>, EngineError> {
        let mut by_log: BTreeMap<LogId, Vec<Listed>> = BTreeMap::new();
        let mut all = self.bucket().list(REPOSITORIES);
        while let Some(listed) = all.try_next().await? {
            if let Some(key) = Key::parse(&listed.key) {
                by_log.entry(key.log()).or_default().push(listed);
            }
        }
        let state = self.directory().log().fresh().await?;
        for record in state.names().values() {
            by_log.remove(&record.log);
        }
        for abandoned in state.abandoned() {
            by_log.remove(&abandoned.log);
        }
        let world = self.world();
        let written_by_ms = world.clock.now_ms().saturating_sub(as_ms(world.options.grace));
        by_log.retain(|_, payloads| payloads.iter().all(|listed| listed.modified_ms <= written_by_ms));
        if !dry_run && !by_log.is_empty() {
            let logs: Vec<LogId> = by_log.keys().copied().collect();
            self.abandon(&logs).await?;
            for log in logs {
                self.delete_log(log).await?;
            }
        }
        let payloads = by_log.into_values().flatten();
        Ok(payloads
            .map(|listed| Needless {
                key: listed.key,
                bytes: listed.size,
                why: Why::Nameless,
            })
            .collect())
    }
}
