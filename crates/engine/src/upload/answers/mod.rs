//! Answers that several are given: who asks what others ask at the same moment shares one plan and one production; what
//! was dear to make is kept on disk for those who ask it later, and of what was copied is remembered from where.
//!
//! Nothing here decides who may have what: wants, haves and boundary have been judged for each request by itself before it
//! comes here, and an answer holds nothing but what they determine ([`name`]).
//!
//! A kept answer is worth a place on disk if objects were made anew for it or trees were walked (a boundary, a filter). A
//! branch that moves makes another answer of it, but most of what was made anew for the last one is taken over ([`entries`]).
//! Other packs of some size are ranges of layers with little between them, and so are shared and remembered ([`copies`],
//! [`recipe`]).

mod copies;
mod entries;
mod name;
mod production;
mod recipe;

pub(super) use entries::{WholeEntries, entries, read};
pub(super) use recipe::Recipe;

use super::plan::plan_beside;
use super::{ObjectFilter, PackStream, Plan, UploadRequest};
use crate::graph::Graph;
use crate::{AnswersOptions, EngineError, View};
use copies::Copy;
use cuesta_store::{Access, BlockCache, Draft, KeptCounters, KeptFiles, KeptName, Workers};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use production::{Production, Source};
use recipe::{Recipes, Remembered};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Plans, productions and copies under way, before those that have ended are looked for.
const UNDER_WAY_SWEEP: usize = 64;

/// Kept answers, and those under way.
pub(crate) struct Answers {
    files: KeptFiles,
    cache: BlockCache,
    options: AnswersOptions,
    under_way: Mutex<UnderWay>,
    recipes: Arc<Recipes>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    kept: AtomicU64,
    recalled: AtomicU64,
    joined: AtomicU64,
    made: AtomicU64,
    reused: AtomicU64,
}

/// What keeping answers has been good for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerCounters {
    /// Packs sent from what was kept.
    pub kept: u64,
    /// Packs copied as an earlier one was.
    pub recalled: u64,
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
    copies: HashMap<KeptName, Weak<Copy>>,
    turns: HashMap<KeptName, Weak<tokio::sync::Mutex<()>>>,
}

/// A pack for a request.
pub struct Answer(Form);

enum Form {
    Planned(Arc<Plan>),
    Made(Arc<Production>),
    Kept { source: Source, objects: u32 },
    Copied(Arc<Copy>),
    Recalled { remembered: Remembered, graph: Arc<Graph> },
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
            Form::Copied(copy) => copy.objects(),
            Form::Recalled { remembered, .. } => remembered.objects,
        }
    }

    /// Bytes that sending it goes through, at most. Cost: perhaps a look at each entry.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Form::Planned(plan) => plan.bytes(),
            Form::Made(production) => production.bytes(),
            Form::Kept { source, .. } => source.file().len(),
            Form::Copied(copy) => copy.bytes(),
            Form::Recalled { remembered, .. } => remembered.recipe.len(),
        }
    }

    /// The bytes of the pack.
    pub fn stream(self) -> PackStream {
        match self.0 {
            Form::Planned(plan) => Plan::stream_of(plan),
            Form::Made(production) => production.stream(),
            Form::Kept { source, objects } => source.stream(objects),
            Form::Copied(copy) => copy.stream(),
            Form::Recalled { remembered, graph } => {
                let bytes = remembered.recipe.len();
                copies::stream(remembered, graph, bytes, None)
            }
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
    let graph = view.graph().await?;
    let (view_of_name, graph_of_name, asked) = (view.clone(), Arc::clone(&graph), request.clone());
    let name = move || name::of(&view_of_name, &graph_of_name, &asked);
    let name = world.workers.run(name).await?;
    if let Some(kept) = answers.find(view, name).await {
        return Ok(kept);
    }
    if let Some(shared) = answers.shared(&name).or_else(|| answers.recalled(&name, &graph)) {
        return Ok(shared);
    }
    let plan = answers
        .planning(view, request, name)
        .await
        .map_err(EngineError::Shared)?;
    answers.give(view, &runtime, name, plan).await
}

/// Whether others may be given the same: not if it depends on what the client fetches elsewhere. What lies a few commits behind
/// costs less than looking for it.
fn is_shared(request: &UploadRequest) -> bool {
    let is_part = depends_on_trees(request) || request.filter != ObjectFilter::All;
    let is_all_here = request.left_out.is_empty() && request.offload.is_none();
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
            recipes: Arc::default(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn counters(&self) -> AnswerCounters {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        AnswerCounters {
            kept: load(&self.counts.kept),
            recalled: load(&self.counts.recalled),
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

    /// What is being made or copied of that name.
    fn shared(&self, name: &KeptName) -> Option<Answer> {
        let shared = self.under_way.lock().shared(name)?;
        self.counts.joined.fetch_add(1, Ordering::Relaxed);
        Some(Answer(shared))
    }

    /// What was copied of that name, from the same layers.
    fn recalled(&self, name: &KeptName, graph: &Arc<Graph>) -> Option<Answer> {
        let remembered = self.recipes.find(name, &copies::layers_of(graph))?;
        self.counts.recalled.fetch_add(1, Ordering::Relaxed);
        let graph = Arc::clone(graph);
        Some(Answer(Form::Recalled { remembered, graph }))
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
    ) -> Result<Answer, EngineError> {
        let workers = &view.world().workers;
        // One begins for all who waited for the plan: else each of them would set bytes aside, and put out what is kept.
        let turn = self.under_way.lock().turn(name);
        let _turn = turn.lock().await;
        if let Some(shared) = self.shared(&name) {
            return Ok(shared);
        }
        if let Some(kept) = self.find(view, name).await {
            return Ok(kept);
        }
        let (planned, files, options) = (Arc::clone(&plan), self.files.clone(), self.options.clone());
        let begin = move || {
            let bytes = planned.bytes();
            let is_dear = planned.effort_bytes() >= options.effort_bytes_min;
            let draft = is_dear.then(|| files.begin(name, room_for(&planned, bytes)));
            (draft.flatten(), bytes, planned.access())
        };
        let (draft, bytes, access) = workers.run(begin).await;
        let Some(draft) = draft else {
            return Ok(Answer(match bytes >= self.options.copied_bytes_min {
                true => self.start_copy(runtime, name, plan, (bytes, access)),
                false => Form::Planned(plan),
            }));
        };
        if let Some(production) = self.start(runtime, workers, name, (&plan, bytes), draft) {
            return Ok(Answer(Form::Made(production)));
        }
        // Others have made it meanwhile.
        let kept = self.find(view, name).await;
        Ok(kept.unwrap_or(Answer(Form::Planned(plan))))
    }

    /// Starts a copy, or joins what is under way.
    fn start_copy(
        &self,
        runtime: &tokio::runtime::Handle,
        name: KeptName,
        plan: Arc<Plan>,
        cost: (u64, Access),
    ) -> Form {
        let mut under_way = self.under_way.lock();
        if let Some(shared) = under_way.shared(&name) {
            self.counts.joined.fetch_add(1, Ordering::Relaxed);
            return shared;
        }
        let copy = Copy::start(
            runtime.clone(),
            name,
            plan,
            cost,
            (Arc::clone(&self.recipes), self.options.recipe_bytes_max),
        );
        let copy = Arc::new(copy);
        under_way.copies.insert(name, Arc::downgrade(&copy));
        Form::Copied(copy)
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
        if let Some(production) = under_way.production(&name) {
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
    fn shared(&self, name: &KeptName) -> Option<Form> {
        let copy = self.copies.get(name).and_then(Weak::upgrade);
        let copy = copy.filter(|copy| copy.is_sound()).map(Form::Copied);
        self.production(name).map(Form::Made).or(copy)
    }

    /// The production of that name that can be joined: not one that has failed, though somebody may still read what it wrote.
    fn production(&self, name: &KeptName) -> Option<Arc<Production>> {
        let production = self.productions.get(name).and_then(Weak::upgrade);
        production.filter(|production| production.is_under_way())
    }

    /// Who holds it decides how that name is sent.
    fn turn(&mut self, name: KeptName) -> Arc<tokio::sync::Mutex<()>> {
        let known = self.turns.get(&name).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let turn = Arc::default();
            self.turns.insert(name, Arc::downgrade(&turn));
            turn
        })
    }

    fn sweep(&mut self) {
        let all = self.plans.len() + self.productions.len() + self.copies.len() + self.turns.len();
        if all > UNDER_WAY_SWEEP {
            self.turns.retain(|_, turn| turn.strong_count() > 0);
            self.plans.retain(|_, plan| plan.upgrade().is_some());
            self.productions.retain(|_, production| production.strong_count() > 0);
            self.copies.retain(|_, copy| copy.strong_count() > 0);
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

/// Bytes that a pack has at most: deflate makes what it cannot press a little longer, and headers and trailer come on top.
fn room_for(plan: &Plan, bytes: u64) -> u64 {
    const ENTRY_BYTES: u64 = 64;
    bytes
        .saturating_add(bytes / 512)
        .saturating_add(ENTRY_BYTES.saturating_mul(u64::from(plan.object_count()) + 1))
}
