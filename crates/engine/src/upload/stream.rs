//! The bytes of a planned pack as a stream: reads run ahead, writing happens off the reactor, and nothing happens that
//! nobody asks for.

use super::Plan;
use super::answers::Recipe;
use super::units::{FETCH_BYTES, Fetched, UNIT_BYTES, Unit, Units};
use super::writer::Writer;
use crate::EngineError;
use bytes::Bytes;
use cuesta_git::ObjectId;
use cuesta_store::Access;
use futures::FutureExt;
use futures::stream::{BoxStream, Stream, StreamExt, TryStreamExt};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

/// The pack, in chunks of up to 256 KiB. An error ends it; the client then misses the trailer and keeps nothing.
///
/// Memory: the reads ahead ([`crate::EngineOptions::read_ahead_bytes_max`]) and about twice a unit of 1 MiB. Dropping it
/// ends all work for it.
pub struct PackStream {
    chunks: BoxStream<'static, Result<Bytes, EngineError>>,
    progress: Progress,
    /// The entries made anew; known when the pack is whole.
    made: Arc<OnceLock<Vec<MadeEntry>>>,
}

/// Where a pack has an object that was made anew, and so is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MadeEntry {
    pub(super) oid: ObjectId,
    /// Of its header.
    pub(super) offset: u64,
    /// With its header.
    pub(super) len: u32,
}

/// How far a pack has come; a handle that can be watched from elsewhere.
#[derive(Clone, Debug)]
pub struct Progress {
    objects: u32,
    done: Arc<AtomicU64>,
}

impl Progress {
    /// Nothing of so many objects yet.
    pub(super) fn of(objects: u32) -> Self {
        Self {
            objects,
            done: Arc::default(),
        }
    }

    /// So many objects are written.
    pub(super) fn note(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// Objects in the pack.
    pub fn objects(&self) -> u32 {
        self.objects
    }

    /// Objects written so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl PackStream {
    /// How far the pack has come.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// The entries made anew, once the pack is whole.
    pub(super) fn made(&self) -> Arc<OnceLock<Vec<MadeEntry>>> {
        Arc::clone(&self.made)
    }

    /// A pack that was made already, or is being made elsewhere.
    pub(super) fn of_chunks(chunks: BoxStream<'static, Result<Bytes, EngineError>>, progress: Progress) -> Self {
        Self {
            chunks,
            progress,
            made: Arc::default(),
        }
    }
}

impl Stream for PackStream {
    type Item = Result<Bytes, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.chunks.poll_next_unpin(context)
    }
}

impl Plan {
    /// The bytes of the pack.
    pub fn stream(self) -> PackStream {
        Self::stream_of(Arc::new(self))
    }

    /// The same, of a plan that several follow.
    pub(super) fn stream_of(plan: Arc<Self>) -> PackStream {
        Self::stream_with(plan, None)
    }

    /// The same; notes in the recipe what the pack is made of, unless it is a layer's.
    pub(super) fn stream_noted(plan: Arc<Self>, recipe: Recipe) -> PackStream {
        Self::stream_with(plan, Some(recipe))
    }

    fn stream_with(plan: Arc<Self>, recipe: Option<Recipe>) -> PackStream {
        let progress = Progress::of(plan.object_count());
        let (done, made) = (Arc::clone(&progress.done), Arc::default());
        let chunks = match plan.whole_layer() {
            Some(slot) => copy_layer(plan, slot, done).boxed(),
            None => {
                let sending = Sending::new(Writer::new(Arc::clone(&plan), recipe), plan, done, Arc::clone(&made));
                futures::stream::try_unfold(sending, Sending::next).boxed()
            }
        };
        PackStream { chunks, progress, made }
    }

    fn reads_in_flight(&self) -> usize {
        let reads = self.view.world().options.read_ahead_bytes_max / UNIT_BYTES;
        usize::try_from(reads).unwrap_or(usize::MAX).max(1)
    }
}

/// The answer is the payload itself: not even its checksum needs to be made again.
fn copy_layer(
    plan: Arc<Plan>,
    slot: u32,
    done: Arc<AtomicU64>,
) -> impl Stream<Item = Result<Bytes, EngineError>> + Send {
    let end = plan.graph.layer(slot).map_or(0, |layer| layer.meta().pack_bytes);
    let objects = u64::from(plan.object_count());
    let in_flight = plan.reads_in_flight();
    let starts = (0..end.div_ceil(UNIT_BYTES)).map(|unit| unit * UNIT_BYTES);
    let read = move |start: u64| {
        let plan = Arc::clone(&plan);
        async move {
            let range = start..end.min(start + UNIT_BYTES);
            let layer = Arc::clone(&plan.graph.slot(slot)?.layer);
            if start == 0 {
                layer.prefetch(0..end.min(FETCH_BYTES), Access::Scan);
            }
            if start.is_multiple_of(FETCH_BYTES) {
                let next = end.min(start + FETCH_BYTES)..end.min(start + 2 * FETCH_BYTES);
                layer.prefetch(next, Access::Scan);
            }
            let bytes = layer.scan(range.clone()).await?;
            Ok::<_, EngineError>((range.end, bytes))
        }
        .boxed()
    };
    let read = futures::stream::iter(starts).map(read).buffered(in_flight);
    read.map_ok(move |(reached, bytes)| {
        // Bytes stand for objects here; the products stay far below 2^64.
        done.store(
            objects.saturating_mul(reached).checked_div(end).unwrap_or(objects),
            Ordering::Relaxed,
        );
        bytes
    })
}

type Fetches = BoxStream<'static, Result<(Unit, Fetched), EngineError>>;

/// A pack being written.
struct Sending {
    plan: Arc<Plan>,
    fetches: Fetches,
    /// The unit after the one being written, if it has been waited for: `Some(None)` is the end.
    ahead: Option<Option<(Unit, Fetched)>>,
    writer: Writer,
    finished: bool,
    done: Arc<AtomicU64>,
    made: Arc<OnceLock<Vec<MadeEntry>>>,
}

impl Sending {
    fn new(writer: Writer, plan: Arc<Plan>, done: Arc<AtomicU64>, made: Arc<OnceLock<Vec<MadeEntry>>>) -> Self {
        let (fetching, access) = (Arc::clone(&plan), plan.access());
        let fetches = futures::stream::iter(Units::new(Arc::clone(&plan)))
            .map(move |unit| unit.fetch(Arc::clone(&fetching), access).boxed())
            .buffered(plan.reads_in_flight())
            .boxed();
        Self {
            plan,
            fetches,
            ahead: None,
            writer,
            finished: false,
            done,
            made,
        }
    }

    async fn next(mut self) -> Result<Option<(Bytes, Self)>, EngineError> {
        loop {
            if let Some(chunk) = self.writer.next_chunk() {
                return Ok(Some((chunk, self)));
            }
            if self.finished {
                return Ok(None);
            }
            let unit = match self.ahead.take() {
                Some(unit) => unit,
                None => self.fetches.try_next().await?,
            };
            match unit {
                Some((unit, fetched)) => self = self.write(unit, fetched).await?,
                None => {
                    self.writer.finish()?;
                    let _ = self.made.set(self.writer.take_made());
                    self.finished = true;
                }
            }
        }
    }

    /// Writes a unit off the reactor, and meanwhile waits for the next, which keeps the reads going.
    async fn write(mut self, unit: Unit, fetched: Fetched) -> Result<Self, EngineError> {
        let mut writer = self.writer;
        let work = move || writer.write(unit, fetched).map(|()| writer);
        let (written, ahead) = futures::join!(self.plan.view.world().workers.run(work), self.fetches.next());
        self.writer = written?;
        self.ahead = Some(ahead.transpose()?);
        self.done.store(self.writer.objects(), Ordering::Relaxed);
        Ok(self)
    }
}
