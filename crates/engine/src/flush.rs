//! Flush: inline layers move from the ledger to the bucket, merged into one; and the log is folded when that pays.

use crate::compact::MergeBounds;
use crate::layer::Layer;
use crate::merge::{Bases, Half, Input, divide, merge};
use crate::receive::Place;
use crate::{EngineError, Repository, View};
use cuesta_format::{AddedLayer, Cause, Edit};
use cuesta_ledger::Committed;

/// Layers merged by one flush, as far as memory goes; more wait for the next.
pub const FLUSH_LAYERS_MAX: usize = 4096;

/// What a flush did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// There was no inline layer.
    Nothing,
    /// So many inline layers became layers in the bucket.
    Layers(usize),
    /// Someone else replaced the layers meanwhile; nothing changed.
    Overtaken,
}

impl Repository {
    /// Moves inline layers to the bucket. Run by one owner at a time; a second only wastes its work.
    ///
    /// Cost: two payloads for the layer, and one append; the same again where there are layers of unreachable objects.
    pub async fn flush(&self) -> Result<Flushed, EngineError> {
        let mut count = 0;
        // An edit for each sort: all that it adds goes where the newest of what it removes stood, and nothing may come there behind
        // what builds on it.
        for unreachable in [false, true] {
            match self.flush_those(unreachable).await? {
                Flushed::Nothing => {}
                Flushed::Layers(layers) => count += layers,
                Flushed::Overtaken => return Ok(Flushed::Overtaken),
            }
        }
        Ok(match count {
            0 => Flushed::Nothing,
            count => Flushed::Layers(count),
        })
    }

    async fn flush_those(&self, unreachable: bool) -> Result<Flushed, EngineError> {
        let view = self.view().await?;
        let inputs = inline_layers(&view, self, unreachable).await?;
        if inputs.is_empty() {
            return Ok(Flushed::Nothing);
        }
        let removed: Vec<_> = inputs.iter().map(|input| input.layer.id()).collect();
        let count = removed.len();
        let added = self.merged(&view, inputs, Bases::Stored).await?;
        let edit = Edit {
            added: added.clone(),
            removed,
            ..self.edit(Cause::Flush, "")
        };
        match self.log().commit(edit).await? {
            Committed::Done { .. } => Ok(Flushed::Layers(count)),
            Committed::Conflict(_) => {
                crate::receive::discard(&view, self.id(), &added).await;
                Ok(Flushed::Overtaken)
            }
        }
    }

    /// Merges layers into one in the bucket; or, where bases are chosen, maybe into two, oldest first.
    pub(crate) async fn merged(
        &self,
        view: &View,
        inputs: Vec<Input>,
        bases: Bases,
    ) -> Result<Vec<AddedLayer>, EngineError> {
        let place = Place::in_bucket(view, self.id());
        let (workers, view) = (view.world().workers.clone(), view.clone());
        let inner = workers.clone();
        // Whoever is not waited for any more should not go on.
        let _guard = match &bases {
            Bases::Stored => None,
            Bases::Chosen(watch) => Some(watch.stop_on_drop()),
        };
        let log = self.id();
        let work = move || {
            let division = match &bases {
                Bases::Stored => None,
                Bases::Chosen(_) => divide(&view, &inputs)?,
            };
            let halves = match &division {
                None => vec![None],
                Some(division) => [true, false].map(|is_first| Some(Half { division, is_first })).into(),
            };
            let mut added = Vec::new();
            for half in halves {
                let build = |chunk_len, chunks: &mut dyn FnMut(_) -> _| {
                    Ok(Some(merge(&view, &inner, &inputs, (&bases, half), chunk_len, chunks)?))
                };
                match place.stream(build) {
                    Ok(layer) => added.extend(layer),
                    Err(error) => {
                        inner.wait(crate::receive::discard(&view, log, &added));
                        return Err(error);
                    }
                }
            }
            Ok(added)
        };
        workers.run(work).await
    }

    /// Writes a checkpoint and lets the log begin there. Answers its number.
    pub async fn write_checkpoint(&self) -> Result<Option<u64>, EngineError> {
        let state = self.log().fresh().await?;
        let Some(checkpoint) = state.checkpoint(self.id()) else {
            return Ok(None);
        };
        let number = state.number();
        self.world().fold(self.id(), number, checkpoint.encode()?).await?;
        Ok(Some(number))
    }

    /// Writes a checkpoint if it is due. For after a flush.
    pub async fn write_checkpoint_if_due(&self) -> Result<Option<u64>, EngineError> {
        let state = self.log().current();
        let items = state.refs().len() + state.layers().len() + state.retired().len();
        if self.world().is_fold_due(self.id(), state.number(), items).await? {
            self.write_checkpoint().await
        } else {
            Ok(None)
        }
    }
}

async fn inline_layers(view: &View, repository: &Repository, unreachable: bool) -> Result<Vec<Input>, EngineError> {
    let state = view.state();
    let inline = state
        .layers()
        .iter()
        .filter(|layer| layer.is_inline() && layer.meta.unreachable == unreachable);
    let mut inputs = Vec::new();
    let bounds = MergeBounds::of(view);
    let mut bytes_left = bounds.memory_bytes_max;
    for record in inline.take(FLUSH_LAYERS_MAX) {
        match bytes_left.checked_sub(bounds.memory_bytes(&record.meta)) {
            Some(left) => bytes_left = left,
            None if inputs.is_empty() => bytes_left = 0,
            None => break,
        }
        let layer = Layer::of(record, repository.id(), &view.world().cache)?;
        inputs.push(Input::load(layer).await?);
    }
    Ok(inputs)
}
