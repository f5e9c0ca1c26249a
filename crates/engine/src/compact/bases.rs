//! Compaction that chooses the bases of deltas anew (docs/decisions/bases-at-compaction.md): of one layer at a time while
//! nothing else is to do, or of a whole repository when an operator asks for it.

use super::{Job, MergeBounds, job, jobs_of, neighbours};
use crate::merge::Bases;
use crate::{EngineError, Flushed, Repository, View, Watch};
use cuesta_format::LayerMeta;

/// Layers of fewer bytes are about to be merged with others, and read in no time as they are.
const BYTES_MIN: u64 = 1 << 20;

/// Attempts at a whole compaction: a server beside it may be at the same work once, or merge what came meanwhile.
const ATTEMPTS_MAX: usize = 5;
/// Layers that a compaction leaves, at most.
const DIVIDED: usize = 2;

/// What a compaction of a whole repository did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Layers before.
    pub layers_before: usize,
    /// Layers after.
    pub layers_after: usize,
    /// Bytes of packs before.
    pub pack_bytes_before: u64,
    /// Bytes of packs after.
    pub pack_bytes_after: u64,
}

/// Which layer's bases should be chosen next, of a list that is oldest first and all in the bucket: the oldest that is worth
/// it and was not done, for younger ones rest on it. It becomes one by itself.
///
/// Layers whose bases were chosen keep that when they are merged with one another; those that small ones are merged into lose
/// it. So a byte is done about once a tier.
pub fn propose_bases(layers: &[LayerMeta], bounds: &MergeBounds) -> Option<Job> {
    let due = |layer: &&LayerMeta| {
        let fits = bounds.fit(std::slice::from_ref(*layer));
        fits && !layer.bases_chosen && !layer.unreachable && layer.pack_bytes >= BYTES_MIN
    };
    let layer = layers.iter().find(due)?;
    Some(job(std::slice::from_ref(layer)))
}

/// Neighbours as few jobs: as many layers as may become one. A layer that is alone and done is left out, as are those that
/// vouch for nothing, if alone: they have no paths.
fn whole(mut layers: &[LayerMeta], bounds: &MergeBounds) -> Vec<Job> {
    let mut jobs = Vec::new();
    while !layers.is_empty() {
        let may_be_one = |count: &usize| layers.get(..*count).is_some_and(|run| bounds.fit(run));
        let count = (1..=layers.len()).take_while(may_be_one).last();
        let (run, later) = layers.split_at(count.unwrap_or(1));
        let is_done = |layer: &LayerMeta| layer.bases_chosen || layer.unreachable && run.len() == 1;
        let nothing_to_do = run.len() <= DIVIDED && run.iter().all(is_done);
        if count.is_some() && !nothing_to_do {
            jobs.push(job(run));
        }
        layers = later;
    }
    jobs
}

fn chosen(view: &View) -> MergeBounds {
    MergeBounds {
        bases_chosen: true,
        ..MergeBounds::of(view)
    }
}

fn pack_bytes(view: &View) -> u64 {
    let layers = view.state().layers().iter();
    layers.map(|record| record.meta.pack_bytes).sum()
}

impl Repository {
    /// Chooses the bases of one layer anew, if one is due and no merge is; `false` if nothing was to do, or someone else
    /// changed the layer meanwhile. For idle moments, by one owner at a time.
    ///
    /// Cost: the layer is read once into a file of its size, every object in it is made once or twice, and a layer is
    /// written. Memory: `compact_memory_bytes_max` for contents, and as much for what is kept of each object; layers with more
    /// objects than that allows are left as they are.
    pub async fn choose_bases(&self, watch: &Watch) -> Result<bool, EngineError> {
        let view = self.view().await?;
        if !jobs_of(&view).is_empty() {
            return Ok(false);
        }
        let records = view.state().layers().iter().filter(|record| !record.is_inline());
        let metas: Vec<LayerMeta> = records.map(|record| record.meta).collect();
        match propose_bases(&metas, &chosen(&view)) {
            Some(job) => self.compact(&view, &job, Bases::Chosen(watch.clone())).await,
            None => Ok(false),
        }
    }

    /// Makes one layer of all, with the bases of deltas chosen anew; or two, where refs that are neither branches nor tags reach
    /// much that those do not. Inline layers are flushed before.
    ///
    /// Where someone else changes the layers meanwhile, it begins again. Errors: [`EngineError::Conflict`] if that happens too
    /// often.
    pub async fn compact_whole(&self, watch: &Watch) -> Result<Compacted, EngineError> {
        let before = self.view().await?;
        let mut attempts = 0;
        while !self.compact_all(watch).await? {
            attempts += 1;
            if attempts == ATTEMPTS_MAX {
                return Err(EngineError::Conflict("the layer list".to_owned()));
            }
        }
        let after = self.view().await?;
        Ok(Compacted {
            layers_before: before.state().layers().len(),
            layers_after: after.state().layers().len(),
            pack_bytes_before: pack_bytes(&before),
            pack_bytes_after: pack_bytes(&after),
        })
    }

    /// One attempt; `false` if someone else changed the layers.
    async fn compact_all(&self, watch: &Watch) -> Result<bool, EngineError> {
        while matches!(self.flush().await?, Flushed::Layers(_) | Flushed::Overtaken) {}
        let view = self.view().await?;
        let bounds = chosen(&view);
        for job in neighbours(&view).iter().flat_map(|run| whole(run, &bounds)) {
            if !self.compact(&view, &job, Bases::Chosen(watch.clone())).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_format::LayerId;

    const BOUNDS: MergeBounds = MergeBounds {
        pack_bytes_max: 1 << 40,
        objects_max: 1000,
        memory_bytes_max: 1 << 30,
        bases_chosen: true,
    };

    /// One letter a layer: `c` chosen, `l` large, `s` small, `u` unreachable.
    fn layers(text: &str) -> Vec<LayerMeta> {
        let layer = |(id, letter): (usize, char)| LayerMeta {
            id: LayerId(id as u128),
            pack_bytes: if letter == 's' { BYTES_MIN - 1 } else { BYTES_MIN },
            cue_bytes: 0,
            objects: 1,
            segments: 1,
            level: 0,
            self_contained: true,
            unreachable: letter == 'u',
            bases_chosen: letter == 'c',
        };
        text.chars().enumerate().map(layer).collect()
    }

    #[test]
    fn the_oldest_that_is_worth_it_is_next() {
        for (text, expected) in [
            ("", None),
            ("sssss", None),
            ("ccc", None),
            ("u", None),
            ("l", Some(0)),
            ("cllc", Some(1)),
            ("sucsl", Some(4)),
        ] {
            let proposed = propose_bases(&layers(text), &BOUNDS).map(|job| job.layers);
            assert_eq!(proposed, expected.map(|id| vec![LayerId(id)]), "{text}");
        }
        let jobs = |text: &str| {
            whole(&layers(text), &BOUNDS)
                .into_iter()
                .map(|job| job.layers.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(jobs("lsc"), [3]);
        assert_eq!(jobs("ccc"), [3]);
        assert_eq!(jobs("l"), [1]);
        assert_eq!(jobs("uu"), [2]);
        for done in ["", "c", "cc", "u"] {
            assert!(jobs(done).is_empty(), "{done}");
        }
        let mut giant = layers("l");
        giant[0].pack_bytes = u64::MAX;
        assert_eq!((propose_bases(&giant, &BOUNDS), whole(&giant, &BOUNDS)), (None, vec![]));
        let mut crowd = layers("lll");
        crowd[0].objects = 1001;
        assert_eq!(propose_bases(&crowd, &BOUNDS).unwrap().layers, [LayerId(1)]);
        assert_eq!(whole(&crowd, &BOUNDS).len(), 1);
    }
}
