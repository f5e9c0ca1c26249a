//! Answers that several are given: who asks what others ask at the same moment shares one plan and one production, and what
//! was dear to make is kept on disk for those who ask it later.
//!
//! Nothing here decides who may have what: wants, haves and boundary have been judged for each request by itself before it
//! comes here, and an answer holds nothing but what they determine ([`name`]).
//!
//! A kept answer is worth a place on disk if objects were made anew for it or trees were walked (a boundary, a filter), or if
//! a pack that is no plain copy of a layer was asked for before. A branch that moves makes another answer of it, but most of
//! what was made anew for the last one is taken over ([`entries`]).

mod entries;
mod name;
mod production;

pub(super) use entries::{WholeEntries, entries, read};

use super::plan::plan_beside;
use super::{ObjectFilter, PackStream, Plan, UploadRequest};
use crate::{AnswersOptions, EngineError, View};
use cuesta_store::{BlockCache, Draft, KeptCounters, KeptFiles, KeptName, Workers};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use production::{Production, Source};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Names of which is remembered that they were asked for.
const SEEN_MAX: usize = 4096;
/// Plans and productions under way, before those that have ended are looked for.
const UNDER_WAY_SWEEP: usize = 64;

/// Kept answers, and those under way.
pub(crate) struct Answers {
    files: KeptFiles,
    cache: BlockCache,
    options: AnswersOptions,
    under_way: Mutex<UnderWay>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    kept: AtomicU64,
    joined: AtomicU64,
    made: AtomicU64,
    reused: AtomicU64,
}

/// What keeping answers has been good for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerCounters {
    /// Packs sent from what was kept.
    pub kept: u64,
    /// Packs that were being made for others.
    pub joined: u64,
    /// Packs made to be kept.
    pub made: u64,
    /// Entries of theirs that an earlier answer had.
    pub reused: u64,
    /// What is on disk.
    pub files: KeptCounters,
}

/// A plan being made. Who waits for it drives it; when nobody does, it ends.
type Planning = Shared<PlanFuture>;
type PlanFuture = BoxFuture<'static, Result<Arc<Plan>, Arc<EngineError>>>;

#[derive(Default)]
struct UnderWay {
    plans: HashMap<KeptName, WeakShared<PlanFuture>>,
    productions: HashMap<KeptName, Weak<Production>>,
    seen: HashMap<KeptName, u32>,
}

/// A pack for a request.
pub struct Answer(Form);

enum Form {
    Planned(Arc<Plan>),
    Made(Arc<Production>),
    Kept { source: Source, objects: u32 },
}

impl Answer {
    /// One that nobody else gets.
    pub fn of(plan: Plan) -> Self {
        Self(Form::Planned(Arc::new(plan)))
    }

    /// Objects in the pack.
    pub fn object_count(&self) -> u32 {
        match &self.0 {
            Form::Planned(plan) => plan.object_count(),
            Form::Made(production) => production.objects(),
            Form::Kept { objects, .. } => *objects,
        }
    }

    /// Bytes that sending it goes through, at most. Cost: perhaps a look at each entry.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Form::Planned(plan) => plan.bytes(),
            Form::Made(production) => production.bytes(),
            Form::Kept { source, .. } => source.file().len(),
        }
    }

    /// The bytes of the pack.
    pub fn stream(self) -> PackStream {
        match self.0 {
            Form::Planned(plan) => Plan::stream_of(plan),
            Form::Made(production) => production.stream(),
            Form::Kept { source, objects } => source.stream(objects),
        }
    }
}

/// The pack for a request, as [`super::plan`] would have it, but perhaps not made for this one alone.
pub async fn answer(view: &View, request: &UploadRequest) -> Result<Answer, EngineError> {
    let world = view.world();
    let (Some(answers), Ok(runtime)) = (&world.answers, tokio::runtime::Handle::try_current()) else {
        return super::plan(view, request).await.map(Answer::of);
    };
    if !is_shared(request) {
        return super::plan(view, request).await.map(Answer::of);
    }
    let (graph, view_of_name, asked) = (view.graph().await?, view.clone(), request.clone());
    let name = move || name::of(&view_of_name, &graph, &asked);
    let name = world.workers.run(name).await?;
    if let Some(kept) = answers.find(view, name).await {
        return Ok(kept);
    }
    let times_seen = match answers.production(&name) {
        Some(production) => return Ok(Answer(Form::Made(production))),
        None => answers.saw(name),
    };
    let plan = answers
        .planning(view, request, name)
        .await
        .map_err(EngineError::Shared)?;
    answers.give(view, &runtime, name, plan, times_seen).await
}

/// Whether others may be given the same: not if it depends on what the client fetches elsewhere. What lies a few commits behind
/// costs less than looking for it.
fn is_shared(request: &UploadRequest) -> bool {
    let is_part = depends_on_trees(request) || request.filter != ObjectFilter::All;
    let is_all_here = request.left_out.is_empty() && (request.offload.is_none() || is_part);
    is_all_here && (is_part || request.common.is_empty())
}

/// Whether trees are walked and objects made anew for it.
fn depends_on_trees(request: &UploadRequest) -> bool {
    request.boundary.as_ref().is_some_and(|boundary| boundary.cuts())
}

impl Answers {
    pub(crate) fn new(files: KeptFiles, cache: BlockCache, options: AnswersOptions) -> Self {
        Self {
            files,
            cache,
            options,
            under_way: Mutex::default(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn counters(&self) -> AnswerCounters {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        AnswerCounters {
            kept: load(&self.counts.kept),
            joined: load(&self.counts.joined),
            made: load(&self.counts.made),
            reused: load(&self.counts.reused),
            files: self.files.counters(),
        }
    }

    /// So many entries were taken over.
    fn reused(&self, entries: usize) {
        self.counts.reused.fetch_add(entries as u64, Ordering::Relaxed);
    }

    async fn find(&self, view: &View, name: KeptName) -> Option<Answer> {
        if !self.files.has(&name) {
            return None;
        }
        let files = self.files.clone();
        let file = view.world().workers.run(move || files.find(&name)).await?;
        let objects = u32::try_from(file.note()).ok()?;
        self.counts.kept.fetch_add(1, Ordering::Relaxed);
        let bytes = file.len();
        let source = Source::new(file, &self.cache, bytes);
        Some(Answer(Form::Kept { source, objects }))
    }

    /// The production of that name, if one is under way.
    fn production(&self, name: &KeptName) -> Option<Arc<Production>> {
        let production = self.under_way.lock().productions.get(name).and_then(Weak::upgrade)?;
        self.counts.joined.fetch_add(1, Ordering::Relaxed);
        Some(production)
    }

    /// Notes that it was asked for; how often that was, as far as is remembered.
    fn saw(&self, name: KeptName) -> u32 {
        let seen = &mut self.under_way.lock().seen;
        if seen.len() >= SEEN_MAX && !seen.contains_key(&name) {
            seen.clear();
        }
        let times = seen.entry(name).or_default();
        *times = times.saturating_add(1);
        *times
    }

    /// The plan of that name: one under way, or a new one.
    fn planning(&self, view: &View, request: &UploadRequest, name: KeptName) -> Planning {
        let mut under_way = self.under_way.lock();
        if let Some(planning) = under_way.plans.get(&name).and_then(WeakShared::upgrade) {
            return planning;
        }
        let (view, request, files) = (view.clone(), request.clone(), self.files.clone());
        let make = async move {
            let whole = kin(&view, &request, files, name).await;
            let plan = plan_beside(&view, &request, whole).await.map_err(Arc::new)?;
            Ok(Arc::new(plan))
        };
        let planning = make.boxed().shared();
        under_way.sweep();
        if let Some(weak) = planning.downgrade() {
            under_way.plans.insert(name, weak);
        }
        planning
    }

    /// Decides how what was planned is sent.
    async fn give(
        &self,
        view: &View,
        runtime: &tokio::runtime::Handle,
        name: KeptName,
        plan: Arc<Plan>,
        times_seen: u32,
    ) -> Result<Answer, EngineError> {
        let workers = &view.world().workers;
        if let Some(production) = self.production(&name) {
            return Ok(Answer(Form::Made(production)));
        }
        let (planned, files, options) = (Arc::clone(&plan), self.files.clone(), self.options.clone());
        let begin = move || {
            let bytes = planned.bytes();
            let is_worth_it = is_worth_keeping(&options, &planned, bytes, times_seen);
            let draft = is_worth_it.then(|| files.begin(name, room_for(&planned, bytes)));
            (draft.flatten(), bytes)
        };
        let (Some(draft), bytes) = workers.run(begin).await else {
            return Ok(Answer(Form::Planned(plan)));
        };
        if let Some(production) = self.start(runtime, workers, name, (&plan, bytes), draft) {
            return Ok(Answer(Form::Made(production)));
        }
        // Others have made it meanwhile.
        let kept = self.find(view, name).await;
        Ok(kept.unwrap_or(Answer(Form::Planned(plan))))
    }

    /// Starts a production, or joins one; `None` if one has come to its end. At each moment it is under way or kept.
    fn start(
        &self,
        runtime: &tokio::runtime::Handle,
        workers: &Workers,
        name: KeptName,
        (plan, bytes): (&Arc<Plan>, u64),
        draft: Draft,
    ) -> Option<Arc<Production>> {
        let mut under_way = self.under_way.lock();
        if let Some(production) = under_way.productions.get(&name).and_then(Weak::upgrade) {
            self.counts.joined.fetch_add(1, Ordering::Relaxed);
            return Some(production);
        }
        if self.files.has(&name) {
            return None;
        }
        self.counts.made.fetch_add(1, Ordering::Relaxed);
        let pack = Plan::stream_of(Arc::clone(plan));
        let production = Arc::new(Production::start(runtime, pack, draft, (&self.cache, workers), bytes));
        under_way.productions.insert(name, Arc::downgrade(&production));
        Some(production)
    }
}

impl UnderWay {
    fn sweep(&mut self) {
        if self.plans.len() + self.productions.len() > UNDER_WAY_SWEEP {
            self.plans.retain(|_, plan| plan.upgrade().is_some());
            self.productions.retain(|_, production| production.strong_count() > 0);
        }
    }
}

/// What the last kept answer to a like question has whole.
async fn kin(view: &View, request: &UploadRequest, files: KeptFiles, name: KeptName) -> Option<Arc<WholeEntries>> {
    if !depends_on_trees(request) || view.world().options.check_ids {
        return None;
    }
    let workers = &view.world().workers;
    let file = workers.run(move || files.find_kin(name.family)).await?;
    WholeEntries::of(file, view.object_format()).map(Arc::new)
}

fn is_worth_keeping(options: &AnswersOptions, plan: &Plan, bytes: u64, times_seen: u32) -> bool {
    let is_dear = plan.effort_bytes() >= options.effort_bytes_min;
    let is_asked_again = times_seen > 1 && bytes >= options.copied_bytes_min && plan.whole_layer().is_none();
    is_dear || is_asked_again
}

/// Bytes that a pack has at most: deflate makes what it cannot press a little longer, and headers and trailer come on top.
fn room_for(plan: &Plan, bytes: u64) -> u64 {
    const ENTRY_BYTES: u64 = 64;
    bytes
        .saturating_add(bytes / 512)
        .saturating_add(ENTRY_BYTES.saturating_mul(u64::from(plan.object_count()) + 1))
}
