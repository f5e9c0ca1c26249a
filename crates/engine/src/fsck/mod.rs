//! Checking a whole repository: every layer, every object, every segment, every ref.
//!
//! Packs are read once, in order, from the bucket itself and not from a cache. Memory: the cue of one layer and about as
//! much again; an intake's spool goes to a file as that of a push does.

mod layer;
mod refs;

use crate::{EngineError, Repository};
use cuesta_format::LayerId;
use std::fmt;
use std::sync::Arc;

/// Findings that are kept; more are only counted.
const FINDINGS_MAX: usize = 1_000;
/// Findings of one sort in one layer.
const FINDINGS_PER_CHECK_MAX: usize = 20;

/// One thing that is wrong, or odd.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A layer is damaged.
    Layer {
        /// The layer.
        layer: LayerId,
        /// What is wrong with it.
        what: String,
    },
    /// A ref is damaged.
    Ref {
        /// The ref.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// Nothing is damaged.
    Notice(String),
}

impl Finding {
    /// Whether something is lost or wrong.
    pub fn is_damage(&self) -> bool {
        !matches!(self, Self::Notice(_))
    }
}

/// As `git fsck` puts it.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layer { layer, what } => write!(f, "error: layer {layer}: {what}"),
            Self::Ref { name, what } => write!(f, "error: {name}: {what}"),
            Self::Notice(what) => write!(f, "notice: {what}"),
        }
    }
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// What was found, as far as it is kept.
    pub findings: Vec<Finding>,
    /// How much damage was found in all.
    pub damages: u64,
    /// Layers looked at.
    pub layers: usize,
    /// Objects in them, counted as often as they are stored.
    pub objects: u64,
}

impl FsckReport {
    fn add(&mut self, finding: Finding) {
        self.damages += u64::from(finding.is_damage());
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// Adds findings of one check of a layer; many of one sort say no more than a few.
    fn add_all(&mut self, layer: LayerId, findings: Vec<String>) {
        let count = findings.len();
        for what in findings.into_iter().take(FINDINGS_PER_CHECK_MAX) {
            self.add(Finding::Layer { layer, what });
        }
        if let Some(more) = count.checked_sub(FINDINGS_PER_CHECK_MAX).filter(|more| *more > 0) {
            let what = format!("{more} more of this sort");
            self.add(Finding::Layer { layer, what });
        }
    }
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsckProgress {
    /// Bytes of packs read.
    pub bytes: u64,
    /// Bytes of packs in all.
    pub bytes_total: u64,
    /// Layers done.
    pub layers: usize,
    /// Layers in all.
    pub layers_total: usize,
}

/// Is told how far a check is, from worker threads.
pub type OnFsckProgress = Arc<dyn Fn(FsckProgress) + Send + Sync>;

impl Repository {
    /// Checks everything that the repository holds: of every layer that its cue is sound, its pack whole, every object
    /// what its id says, every entry where the cue says, every commit's closure complete and its segment that which is
    /// cut anew; of every ref that its object is there, of a kind it may have, and peels as recorded.
    ///
    /// With `quick` packs are only summed up, and cues checked by themselves. Errors are the world's: damage is in the
    /// report.
    pub async fn fsck(&self, quick: bool, progress: OnFsckProgress) -> Result<FsckReport, EngineError> {
        let view = self.view().await?;
        let records: Vec<_> = view.state().layers().iter().cloned().collect();
        let mut report = FsckReport::default();
        let mut meter = Meter {
            told: FsckProgress {
                bytes: 0,
                bytes_total: records.iter().map(|record| record.meta.pack_bytes).sum(),
                layers: 0,
                layers_total: records.len(),
            },
            progress,
        };
        for record in records {
            let check = layer::Check::new(&view, self.id(), Arc::clone(&record), quick);
            let workers = view.world().workers.clone();
            let mut taken = meter.clone();
            let done = workers.run(move || (check.run(&mut taken), taken)).await;
            let found;
            (found, meter) = done;
            for findings in found? {
                report.add_all(record.meta.id, findings);
            }
            report.layers += 1;
            report.objects += u64::from(record.meta.objects);
            meter.layer_done();
        }
        refs::check(&view, quick, &mut report).await?;
        Ok(report)
    }
}

#[derive(Clone)]
struct Meter {
    told: FsckProgress,
    progress: OnFsckProgress,
}

impl Meter {
    fn add(&mut self, bytes: u64) {
        self.told.bytes += bytes;
        (self.progress)(self.told);
    }

    fn layer_done(&mut self) {
        self.told.layers += 1;
        (self.progress)(self.told);
    }
}
