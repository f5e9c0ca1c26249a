//! Copied packs that are sent to several: one writes and hashes, whoever is the first to want the next bytes has them made, and
//! those behind copy the same ranges of the same layers, each at its own pace.

use super::recipe::{Next, Recipe, Recipes, Remembered, Room, Step};
use crate::EngineError;
use crate::graph::Graph;
use crate::upload::units::FETCH_BYTES;
use crate::upload::{PackStream, Plan, Progress};
use bytes::{Buf, Bytes};
use cuesta_format::LayerId;
use cuesta_store::{Access, KeptName};
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt, StreamExt, TryStreamExt};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Steps that one reader has under way.
const STEPS_AHEAD: usize = 4;

/// The layers that a graph knows, by their numbers.
pub(super) fn layers_of(graph: &Graph) -> Arc<[LayerId]> {
    (0..graph.slot_count())
        .filter_map(|slot| Some(graph.layer(slot)?.id()))
        .collect()
}

/// A pack being copied. It ends with the last who reads it.
pub(super) struct Copy {
    name: KeptName,
    plan: Arc<Plan>,
    bytes: u64,
    remembered: Remembered,
    recipes: Arc<Recipes>,
    _room: Option<Room>,
    runtime: tokio::runtime::Handle,
    making: Arc<Mutex<Making>>,
}

/// The one writer.
struct Making {
    pack: PackStream,
    /// Bytes that came out of it.
    given: u64,
    failed: Option<Arc<EngineError>>,
}

/// What came out of the writer.
enum Made {
    /// These bytes, from this place in the pack on.
    Chunk(u64, Bytes),
    /// It is not where it was asked to go on.
    Elsewhere,
    /// Nothing follows.
    End,
}

impl Copy {
    pub(super) fn start(
        runtime: tokio::runtime::Handle,
        name: KeptName,
        plan: Arc<Plan>,
        (bytes, access): (u64, Access),
        (recipes, recipe_bytes_max): (Arc<Recipes>, usize),
    ) -> Self {
        let (recipe, room) = match plan.whole_layer() {
            Some(slot) => {
                let pack_bytes = plan.graph.layer(slot).map_or(0, |layer| layer.meta().pack_bytes);
                (Recipe::of_layer(slot, pack_bytes), None)
            }
            None => {
                let room = recipes.room(recipe_bytes_max);
                (Recipe::new(room.bytes().min(recipe_bytes_max)), Some(room))
            }
        };
        let making = Making {
            pack: Plan::stream_noted(Arc::clone(&plan), recipe.clone()),
            given: 0,
            failed: None,
        };
        Self {
            name,
            bytes,
            remembered: Remembered {
                recipe,
                layers: layers_of(&plan.graph),
                objects: plan.object_count(),
                access,
            },
            plan,
            recipes,
            _room: room,
            runtime,
            making: Arc::new(Mutex::new(making)),
        }
    }

    pub(super) fn objects(&self) -> u32 {
        self.remembered.objects
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether who comes now can have all of it. Not if it broke off: then it is made anew.
    pub(super) fn is_sound(&self) -> bool {
        self.making.try_lock().map_or(true, |making| making.failed.is_none())
    }

    /// The pack.
    pub(super) fn stream(self: Arc<Self>) -> PackStream {
        let (remembered, graph, bytes) = (self.remembered.clone(), Arc::clone(&self.plan.graph), self.bytes);
        stream(remembered, graph, bytes, Some(self))
    }

    /// Has the next bytes made, unless somebody else does meanwhile: in a task of its own, so that a client that stalls holds up no
    /// other. An error holds for all who come to where it happened.
    async fn advance(&self, at: u64) -> Result<Made, EngineError> {
        let (making, recipe) = (Arc::clone(&self.making), self.remembered.recipe.clone());
        let work = async move {
            let mut making = making.lock_owned().await;
            if let Some(error) = &making.failed {
                return Err(Arc::clone(error));
            }
            if making.given > at || (making.given < at && recipe.len() > at) {
                return Ok(Made::Elsewhere);
            }
            let next = making.pack.try_next().await;
            let start = making.given;
            match next.map_err(Arc::new) {
                Ok(Some(chunk)) => {
                    making.given += chunk.len() as u64;
                    Ok(Made::Chunk(start, chunk))
                }
                Ok(None) => Ok(Made::End),
                Err(error) => {
                    making.failed = Some(Arc::clone(&error));
                    Err(error)
                }
            }
        };
        let made = self.runtime.spawn(work).await.map_err(|_| EngineError::Stopped)?;
        made.map_err(EngineError::Shared)
    }

    /// Whether the writer stands at `at`: then its bytes are taken from it.
    fn stands_at(&self, at: u64) -> bool {
        self.making
            .try_lock()
            .is_ok_and(|making| making.given == at && making.failed.is_none())
    }
}

/// The pack of a recipe that is whole, or that `copy` is making.
pub(super) fn stream(remembered: Remembered, graph: Arc<Graph>, bytes: u64, copy: Option<Arc<Copy>>) -> PackStream {
    let progress = Progress::of(remembered.objects);
    let reading = Reading {
        remembered,
        graph,
        bytes,
        copy,
        alone: None,
        ready: VecDeque::new(),
        ahead: FuturesOrdered::new(),
        asked: 0,
        sent: 0,
        fetched: (u32::MAX, 0),
        progress: progress.clone(),
    };
    PackStream::of_chunks(futures::stream::try_unfold(reading, Reading::next).boxed(), progress)
}

/// One who reads.
struct Reading {
    remembered: Remembered,
    graph: Arc<Graph>,
    /// Bytes of the pack, about.
    bytes: u64,
    copy: Option<Arc<Copy>>,
    /// A pack made for this reader alone, since its recipe is too long.
    alone: Option<PackStream>,
    ready: VecDeque<Bytes>,
    ahead: FuturesOrdered<BoxFuture<'static, Result<VecDeque<Bytes>, EngineError>>>,
    /// Bytes of the pack that are sent, ready or ahead.
    asked: u64,
    sent: u64,
    /// How far a layer is being fetched.
    fetched: (u32, u64),
    progress: Progress,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, EngineError> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                self.sent += chunk.len() as u64;
                self.note();
                return Ok(Some((chunk, self)));
            }
            if let Some(alone) = &mut self.alone {
                let Some(chunk) = alone.try_next().await? else {
                    return Ok(None);
                };
                self.ready.push_back(chunk);
                continue;
            }
            let next = self.look_ahead()?;
            if let Some(chunks) = self.ahead.next().await {
                self.ready = chunks?;
                continue;
            }
            match (next, &self.copy) {
                (Next::Step(_), _) => {}
                (Next::End, _) => {
                    self.remember();
                    return Ok(None);
                }
                (Next::NotYet, Some(copy)) => match copy.advance(self.asked).await? {
                    Made::Chunk(start, chunk) => self.take(start, chunk),
                    Made::Elsewhere => {}
                    Made::End => {
                        self.remember();
                        return Ok(None);
                    }
                },
                (Next::TooLong, Some(copy)) => {
                    self.alone = Some(from(Plan::stream_of(Arc::clone(&copy.plan)), self.asked));
                }
                (Next::NotYet | Next::TooLong, None) => {
                    return Err(EngineError::Internal("a recipe that was remembered is not whole"));
                }
            }
        }
    }

    /// Begins the next steps; answers what comes behind them, or that this reader is where bytes are made.
    fn look_ahead(&mut self) -> Result<Next, EngineError> {
        loop {
            let is_growing = self.ahead.is_empty() && !self.remembered.recipe.is_whole();
            let is_first = is_growing && self.copy.as_ref().is_some_and(|copy| copy.stands_at(self.asked));
            let next = self.remembered.recipe.next(self.asked);
            match next {
                Next::Step(_) | Next::TooLong if is_first => return Ok(Next::NotYet),
                Next::Step(step) if self.ahead.len() < STEPS_AHEAD => self.begin(step)?,
                next => return Ok(next),
            }
        }
    }

    fn begin(&mut self, step: Step) -> Result<(), EngineError> {
        self.asked = step.end;
        let Some((slot, range)) = step.read.clone() else {
            let chunks = step.assemble(&Bytes::new()).ok_or(SHORT);
            self.ahead.push_back(futures::future::ready(chunks).boxed());
            return Ok(());
        };
        let (layer, access) = (Arc::clone(&self.graph.slot(slot)?.layer), self.remembered.access);
        if self.fetched.0 != slot {
            self.fetched = (slot, range.start);
        }
        if step.run_end > range.end && range.end + FETCH_BYTES > self.fetched.1 {
            let from = self.fetched.1.max(range.start);
            let to = step.run_end.min(from + FETCH_BYTES).max(from);
            layer.prefetch(from..to, access);
            self.fetched.1 = to;
        }
        let read = async move {
            let read = layer.read_as(range, access).await?;
            step.assemble(&read)
                .ok_or_else(|| layer.corrupt("a read came back short"))
        };
        self.ahead.push_back(read.boxed());
        Ok(())
    }

    fn remember(&self) {
        if let Some(copy) = self.copy.as_ref().filter(|_| self.remembered.recipe.is_whole()) {
            copy.recipes.remember(copy.name, self.remembered.clone());
        }
    }

    /// Takes what came out of the writer, as far as it is news.
    fn take(&mut self, start: u64, mut chunk: Bytes) {
        let known = usize::try_from(self.asked.saturating_sub(start)).unwrap_or(usize::MAX);
        chunk.advance(known.min(chunk.len()));
        if !chunk.is_empty() {
            self.asked += chunk.len() as u64;
            self.ready.push_back(chunk);
        }
    }

    fn note(&self) {
        let of = self.bytes.max(self.sent);
        let done = u64::from(self.remembered.objects).saturating_mul(self.sent);
        self.progress.note(done.checked_div(of).unwrap_or_default());
    }
}

/// A pack without its first bytes.
fn from(pack: PackStream, bytes: u64) -> PackStream {
    let progress = pack.progress();
    let mut left = bytes;
    let rest = pack.try_filter_map(move |mut chunk| {
        let known = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
        chunk.advance(known);
        left -= known as u64;
        futures::future::ok((!chunk.is_empty()).then_some(chunk))
    });
    PackStream::of_chunks(rest.boxed(), progress)
}

const SHORT: EngineError = EngineError::Internal("a recipe is short");
