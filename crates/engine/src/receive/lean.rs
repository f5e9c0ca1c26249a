//! A view as what a push may lean on.

use super::error::IntakeError;
use super::known::{Described, Known, KnownCommit};
use crate::{EngineError, Location, View};
use bytes::Bytes;
use cuesta_format::LayerId;
use cuesta_git::{ObjectId, ObjectKind};
use cuesta_store::Workers;
use futures::FutureExt as _;
use std::future::Future;

/// A view and how to wait for it.
#[derive(Clone)]
pub(crate) struct Lean {
    view: View,
    /// `None`: never wait, for we are on the reactor. What is not in memory fails with [`IntakeError::WouldWait`].
    workers: Option<Workers>,
    /// Whether objects of `unreachable` layers count, too.
    everything: bool,
    /// A layer that does not count.
    without: Option<LayerId>,
}

impl Lean {
    /// For the reactor: small pushes whose neighbours are in memory need no thread.
    pub(crate) fn without_waiting(view: View) -> Self {
        Self {
            view,
            workers: None,
            everything: false,
            without: None,
        }
    }

    /// For a worker thread.
    pub(crate) fn waiting(view: View, workers: Workers) -> Self {
        Self {
            view,
            workers: Some(workers),
            everything: false,
            without: None,
        }
    }

    /// The same with the objects of `unreachable` layers: what is stored at all.
    pub(crate) fn everything(self) -> Self {
        Self {
            everything: true,
            ..self
        }
    }

    /// The same without the objects that only this layer has.
    pub(crate) fn without(self, layer: LayerId) -> Self {
        Self {
            without: Some(layer),
            ..self
        }
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T, EngineError>>) -> Result<T, IntakeError> {
        let mut future = std::pin::pin!(future);
        // Most answers are in memory: a look is cheaper than a wait.
        let answer = match (future.as_mut().now_or_never(), &self.workers) {
            (Some(answer), _) => answer,
            (None, Some(workers)) => workers.wait(future),
            (None, None) => return Err(IntakeError::WouldWait),
        };
        answer.map_err(IntakeError::known)
    }

    /// Where an object lies that counts: mostly, whose closure is complete.
    async fn find(&self, oid: &ObjectId) -> Result<Option<Location>, EngineError> {
        match self.view.find(oid).await? {
            Some(location) if !self.counts(&location) => {
                let copies = self.view.copies(oid).await?;
                Ok(copies.into_iter().find(|location| self.counts(location)))
            }
            found => Ok(found),
        }
    }

    fn counts(&self, location: &Location) -> bool {
        (self.everything || !location.layer.meta().unreachable) && Some(location.layer.id()) != self.without
    }
}

async fn describe(found: Option<Location>) -> Result<Option<Described>, EngineError> {
    let Some(Location { layer, entry }) = found else {
        return Ok(None);
    };
    let index = layer.index_of(entry).await?;
    Ok(Some(Described {
        kind: index.kind(entry),
        size: index.entries.size(entry),
    }))
}

impl Known for Lean {
    fn is_empty(&self) -> bool {
        self.view.state().layers().is_empty()
    }

    fn describe(&self, oids: &[ObjectId]) -> Result<Vec<Option<Described>>, IntakeError> {
        self.wait(async {
            let mut described = Vec::with_capacity(oids.len());
            for oid in oids {
                described.push(describe(self.find(oid).await?).await?);
            }
            Ok(described)
        })
    }

    fn describe_brought_structure(&self, oids: &[ObjectId]) -> Result<Vec<Option<Described>>, IntakeError> {
        self.wait(async {
            let mut described = Vec::with_capacity(oids.len());
            for oid in oids {
                let found = match self.view.find_structure(oid).await? {
                    Some(location) if !self.counts(&location) => self.find(oid).await?,
                    found => found,
                };
                described.push(describe(found).await?);
            }
            Ok(described)
        })
    }

    fn describe_brought_blobs(&self, oids: &[ObjectId]) -> Result<Vec<Option<Described>>, IntakeError> {
        if self.everything || self.without.is_some() {
            // Who audits what is stored wants to know.
            return self.describe(oids);
        }
        self.wait(async {
            let mut described = Vec::with_capacity(oids.len());
            for found in self.view.find_brought_blobs(oids).await? {
                described.push(describe(found.filter(|location| self.counts(location))).await?);
            }
            Ok(described)
        })
    }

    fn objects(&self, oids: &[ObjectId]) -> Result<Vec<Option<(ObjectKind, Bytes)>>, IntakeError> {
        self.wait(async {
            let (mut known, mut found) = (Vec::with_capacity(oids.len()), Vec::with_capacity(oids.len()));
            for oid in oids {
                let location = self.find(oid).await?;
                known.push(location.is_some());
                found.extend(location);
            }
            let mut objects = self.view.objects_at(&found).await?.into_iter();
            Ok(known
                .into_iter()
                .map(|known| if known { objects.next() } else { None })
                .collect())
        })
    }

    fn commit(&self, oid: &ObjectId) -> Result<Option<KnownCommit>, IntakeError> {
        self.wait(async {
            let Some(Location { layer, entry }) = self.find(oid).await? else {
                return Ok(None);
            };
            let history = layer.history().await?;
            let segments = &history.segments;
            let commit = || KnownCommit {
                generation: segments.generation(entry),
                tree: segments.root_tree(entry),
            };
            Ok((entry < segments.len()).then(commit))
        })
    }
}
