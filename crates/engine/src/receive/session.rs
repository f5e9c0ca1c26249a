//! One push from its first byte to its report: the bytes come in on the reactor, the work happens off it.

use super::buffer::Buffer;
use super::commit::Commit;
use super::error::IntakeError;
use super::intake::{Intake, Settled};
use super::lean::Lean;
use super::options::IntakeOptions;
use super::policy::{self, Case, Policy};
use super::request::{ReceiveReport, ReceiveRequest};
use super::store::{self, Place};
use super::tips::{Reached, Tip};
use crate::{EngineError, Repository, Unborn, View};
use bytes::Bytes;
use cuesta_format::{AddedLayer, Cause};
use cuesta_git::ObjectId;
use cuesta_store::Workers;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// A push up to this size is worked off at once where it stands; its work takes less than waking a thread.
const SMALL_PUSH_LEN_MAX: usize = 64 << 10;
/// Inflated bytes that such a push may come to; more is for a worker.
const SMALL_PUSH_WORK_MAX: u64 = 512 << 10;
/// Bytes handed to a worker at once.
const BATCH_LEN: usize = 512 << 10;

/// Takes one push in. Feed it packs, then finish with what is to be done.
pub struct Receiver<'a> {
    push: Push<'a>,
    /// Bytes not yet taken apart.
    buffer: Buffer,
    /// One small pack, whole, that is still in the buffer.
    is_small: bool,
    state: Parsing,
    /// Objects so far, and how many the packs so far say they have.
    objects: (u32, u32),
}

/// What a push works with.
struct Push<'a> {
    repository: &'a Repository,
    /// Set if the repository has no name yet.
    unborn: Option<&'a Unborn>,
    view: View,
    policy: Policy,
    options: IntakeOptions,
}

/// Where the packs are.
enum Parsing {
    /// Nothing was taken apart yet.
    Fresh,
    Idle(Box<Intake>),
    /// In a lock that nobody ever waits for: it lets a reference to all this travel between threads.
    Busy(Mutex<BoxFuture<'static, Result<Intake, IntakeError>>>),
    Failed(IntakeError),
}

impl<'a> Receiver<'a> {
    pub(crate) async fn new(repository: &'a Repository, unborn: Option<&'a Unborn>) -> Result<Self, EngineError> {
        let view = repository.view().await?;
        let policy = Policy::of(&view.settings());
        let mut limits = view.world().options.receive.clone();
        limits.pack_bytes_max = policy.pack_bytes_max.or(limits.pack_bytes_max);
        let options = IntakeOptions::new(
            view.object_format(),
            limits,
            Policy::fsck(&view.settings(), view.object_format()),
        );
        let (buffer, state) = (Buffer::default(), Parsing::Fresh);
        let push = Push {
            repository,
            unborn,
            view,
            policy,
            options,
        };
        Ok(Self {
            push,
            buffer,
            is_small: false,
            state,
            objects: (0, 0),
        })
    }

    /// Takes the next bytes of the current pack. Answers whether more are wanted: once a pack is refused, the rest of it
    /// may be thrown away.
    pub async fn feed(&mut self, bytes: Bytes) -> bool {
        if self.is_small {
            self.is_small = false;
            self.parse(true).await;
        }
        self.buffer.push(bytes);
        if self.buffer.len() >= BATCH_LEN {
            self.parse(false).await;
        }
        !matches!(self.state, Parsing::Failed(_))
    }

    /// Whether nothing more is to come of the current pack: it has come to its end, or it is refused already. For senders
    /// that do not say when they are done; finding out takes apart what was fed so far.
    pub async fn is_pack_whole(&mut self) -> bool {
        if self.buffer.len() > 0 {
            self.parse(false).await;
        }
        self.settle_parsing().await;
        match &self.state {
            Parsing::Idle(intake) => intake.is_pack_whole(),
            Parsing::Failed(_) => true,
            Parsing::Fresh | Parsing::Busy(_) => false,
        }
    }

    /// Ends the current pack; another may follow.
    pub async fn finish_pack(&mut self) {
        if matches!(self.state, Parsing::Fresh) && self.buffer.len() <= SMALL_PUSH_LEN_MAX {
            self.is_small = true;
        } else {
            self.parse(true).await;
        }
    }

    /// Objects so far, and how many the packs so far say they have.
    pub fn progress(&self) -> (u32, u32) {
        self.objects
    }

    /// Hands the buffer to a worker, without waiting for it unless it is the end of a pack.
    async fn parse(&mut self, end_of_pack: bool) {
        self.settle_parsing().await;
        let mut intake = match std::mem::replace(&mut self.state, Parsing::Fresh) {
            Parsing::Fresh => Intake::new(self.push.options.clone()),
            Parsing::Idle(intake) => *intake,
            failed => return self.state = failed,
        };
        let bytes = std::mem::take(&mut self.buffer);
        let workers = self.push.workers();
        let mut work = async move {
            workers
                .run(move || {
                    bytes.pieces().try_for_each(|piece| intake.feed(piece))?;
                    if end_of_pack {
                        intake.finish_pack()?;
                    }
                    Ok(intake)
                })
                .await
        }
        .boxed();
        // Polled once, the work begins; it goes on while the next bytes come.
        self.state = match (&mut work).now_or_never() {
            Some(outcome) => Parsing::from(outcome),
            None => Parsing::Busy(Mutex::new(work)),
        };
        if end_of_pack {
            self.settle_parsing().await;
        }
    }

    async fn settle_parsing(&mut self) {
        if let Parsing::Busy(work) = &mut self.state {
            let outcome = work.get_mut().await;
            self.state = Parsing::from(outcome);
        }
        if let Parsing::Idle(intake) = &self.state {
            self.objects = intake.progress();
        }
    }

    /// Checks everything, stores the layers and moves the refs. Errors are ours or the world's; what is wrong with the
    /// push is in the report.
    pub async fn finish(mut self, request: ReceiveRequest) -> Result<ReceiveReport, EngineError> {
        if request.commands.len() > self.push.options.limits.commands_max {
            return Err(EngineError::limit(
                "commands in a push",
                self.push.options.limits.commands_max as u64,
            ));
        }
        self.settle_parsing().await;
        let mut cases: Vec<Case> = request.commands.iter().cloned().map(Case::new).collect();
        let has_pack = self.is_small || !matches!(self.state, Parsing::Fresh);
        let shallow = self.push.shallow(&request);
        let values = values_of(&cases, |_| true);
        let taken = match self.take(has_pack, values.clone(), shallow.clone()).await {
            Ok(taken) => taken,
            Err(error) => return refused(error, &mut cases),
        };
        for (case, tip) in cases
            .iter_mut()
            .filter(|case| !case.is_delete())
            .zip(&taken.reached.tips)
        {
            case.tip = Some(*tip);
        }
        let mut warnings: Vec<String> = taken.settled.warnings.iter().map(ToString::to_string).collect();
        warnings.extend(self.push.check(&request, &taken.reached, &mut cases).await?);
        let open = values_of(&cases, |case| case.is_open() && !case.idle);
        let stored = match self
            .push
            .store(taken, values, open, Arc::clone(&shallow), &request)
            .await
        {
            Ok(stored) => stored,
            Err(error) => return refused(error, &mut cases),
        };
        let new_shallow = self.push.new_shallow(&request, &shallow, stored.cut_off);
        let layers = stored.layers;
        let commit = Commit {
            repository: self.push.repository,
            cause: request.cause,
            actor: &request.actor,
            atomic: request.atomic,
            layers: &layers,
            shallow: new_shallow,
            note: request.note,
        };
        // After an error the outcome may be unknown, so the layers must stay.
        let (number, is_garbage) = self.push.commit(&commit, &mut cases).await?;
        if is_garbage {
            store::discard(&self.push.view, self.push.repository.id(), &layers).await;
        }
        let refs = cases.into_iter().map(|case| case.refusal.map_or(Ok(()), Err)).collect();
        Ok(ReceiveReport {
            unpack: Ok(()),
            refs,
            warnings,
            number,
        })
    }

    /// Resolves, checks and cuts what came.
    async fn take(
        &mut self,
        has_pack: bool,
        values: Vec<ObjectId>,
        shallow: Arc<HashSet<ObjectId>>,
    ) -> Result<Taken, IntakeError> {
        let options = self.push.options.clone();
        let work = match std::mem::replace(&mut self.state, Parsing::Fresh) {
            Parsing::Failed(error) => return Err(error),
            Parsing::Idle(intake) => {
                return self
                    .push
                    .on_worker(move |lean| Taken::settle(*intake, lean, &shallow, &values))
                    .await;
            }
            Parsing::Busy(_) => return Err(IntakeError::Internal("the parser is still busy")),
            Parsing::Fresh => std::mem::take(&mut self.buffer),
        };
        let take = move |options: IntakeOptions, lean: &Lean| {
            Taken::small(options, has_pack.then_some(&work), lean, &shallow, &values)
        };
        let here = IntakeOptions {
            work_bytes_max: SMALL_PUSH_WORK_MAX,
            ..options.clone()
        };
        match take(here, &Lean::without_waiting(self.push.view.clone())) {
            Err(IntakeError::WouldWait) => self.push.on_worker(move |lean| take(options, lean)).await,
            taken => taken,
        }
    }
}

impl Push<'_> {
    fn workers(&self) -> Workers {
        self.view.world().workers.clone()
    }

    /// The shallow boundary: its commits' missing parents are not asked for. An importer brings its own; a client does where
    /// it may.
    fn shallow(&self, request: &ReceiveRequest) -> Arc<HashSet<ObjectId>> {
        let brought = if request.trusted || self.policy.shallow_update {
            request.shallow.as_slice()
        } else {
            &[]
        };
        Arc::new(self.view.state().shallow().iter().chain(brought).copied().collect())
    }

    /// What an edit says of the repository's boundary: an import all of it, a push what it adds, which is where its history
    /// ends and is not known to end.
    fn new_shallow(
        &self,
        request: &ReceiveRequest,
        shallow: &HashSet<ObjectId>,
        cut_off: Vec<ObjectId>,
    ) -> Option<Vec<ObjectId>> {
        let known = self.view.state().shallow();
        if request.cause != Cause::Push {
            return (shallow.len() > known.len()).then(|| shallow.iter().copied().collect());
        }
        let mut added = cut_off;
        added.retain(|oid| !known.contains(oid));
        (!added.is_empty()).then_some(added)
    }

    async fn on_worker<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Lean) -> Result<T, IntakeError> + Send + 'static,
    ) -> Result<T, IntakeError> {
        let (lean, workers) = (Lean::waiting(self.view.clone(), self.workers()), self.workers());
        // In a place of its own: small pushes, which take the room for it along, do not come here.
        async move { workers.run(move || work(&lean)).await }.boxed().await
    }

    /// All that may refuse a command.
    async fn check(
        &self,
        request: &ReceiveRequest,
        reached: &Reached,
        cases: &mut [Case],
    ) -> Result<Vec<String>, EngineError> {
        let state = self.view.state();
        let permissive = Policy::default();
        let policy = if request.trusted { &permissive } else { &self.policy };
        policy::check_connectivity(&self.policy, cases, !request.shallow.is_empty());
        policy::check_hidden(policy, cases);
        policy::check_names(state, cases);
        let warnings = policy::check_each(policy, state, cases);
        if policy.deny_non_fast_forwards {
            self.check_fast_forwards(reached, cases).await?;
        }
        if request.atomic {
            policy::check_atomic(cases);
        }
        Ok(warnings)
    }

    /// Refuses updates of branches whose new value does not have the old one in its history.
    async fn check_fast_forwards(&self, reached: &Reached, cases: &mut [Case]) -> Result<(), EngineError> {
        let graph = self.view.graph().await?;
        for case in cases.iter_mut().filter(|case| case.is_open()) {
            let is_branch = case
                .target
                .as_ref()
                .is_some_and(|name| name.as_bytes().starts_with(b"refs/heads/"));
            if !is_branch || case.is_delete() || case.command.old.is_null() || case.idle {
                continue;
            }
            let outside = reached.outside_parents(&case.command.new);
            let tips: Vec<_> = outside.iter().filter_map(|oid| graph.commit(oid)).collect();
            let has_old = match graph.commit(&case.command.old) {
                Some(old) => graph.is_reachable(old, &tips)?,
                None => false,
            };
            if !has_old {
                case.refuse("non-fast-forward");
            }
        }
        Ok(())
    }

    /// Appends the push, and gives a repository that it makes its name.
    async fn commit(&self, commit: &Commit<'_>, cases: &mut [Case]) -> Result<(Option<u64>, bool), EngineError> {
        let number = commit.append(cases).await?;
        let Some(unborn) = self.unborn.filter(|_| number.is_some()) else {
            return Ok((number, number.is_none()));
        };
        if unborn.give_name(commit.actor).await? {
            return Ok((number, false));
        }
        let reason = "the repository was made by another push meanwhile";
        cases.iter_mut().for_each(|case| case.refuse(reason));
        Ok((None, !unborn.is_in_doubt()))
    }

    /// Builds and stores the layers of what is still wanted.
    async fn store(
        &self,
        taken: Taken,
        values: Vec<ObjectId>,
        open: Vec<ObjectId>,
        shallow: Arc<HashSet<ObjectId>>,
        request: &ReceiveRequest,
    ) -> Result<Stored, IntakeError> {
        let keep_unreachable = request.keep_unreachable;
        let is_idle = taken.reached.is_empty() && !keep_unreachable;
        if is_idle || open.is_empty() && !keep_unreachable {
            return Ok(Stored::default());
        }
        let place = Place::new(&self.view, self.repository.id(), &self.options.limits);
        if taken.is_small && !keep_unreachable {
            let lean = Lean::without_waiting(self.view.clone());
            match taken
                .narrow(&lean, &shallow, &values, &open)
                .and_then(|reached| Ok((place.build(&taken, &lean, &reached)?, reached)))
            {
                Err(IntakeError::WouldWait) => {}
                Err(error) => return Err(error),
                Ok((built, reached)) => {
                    let layers = vec![place.put(built).await?];
                    let cut_off = reached.order.cut_off.clone();
                    return Ok(Stored { layers, cut_off });
                }
            }
        }
        let build =
            move |lean: &Lean| {
                let reached = taken.narrow(lean, &shallow, &values, &open)?;
                let mut stored = Vec::new();
                if !reached.is_empty() {
                    stored.push(place.stream(|chunk_len, chunks| {
                        taken.settled.build(lean, &reached, chunk_len, chunks).map(Some)
                    })?);
                }
                if keep_unreachable {
                    stored.push(place.stream(|chunk_len, chunks| {
                        taken.settled.build_unreachable(lean, &reached, chunk_len, chunks)
                    })?);
                }
                Ok(Stored {
                    layers: stored.into_iter().flatten().collect(),
                    cut_off: reached.order.cut_off.clone(),
                })
            };
        self.on_worker(build).await
    }
}

impl From<Result<Intake, IntakeError>> for Parsing {
    fn from(outcome: Result<Intake, IntakeError>) -> Self {
        match outcome {
            Ok(intake) => Self::Idle(Box::new(intake)),
            Err(error) => Self::Failed(error),
        }
    }
}

/// What was stored of a push.
#[derive(Default)]
struct Stored {
    layers: Vec<AddedLayer>,
    /// Commits in it whose parents are nowhere.
    cut_off: Vec<ObjectId>,
}

/// The new values of cases.
fn values_of(cases: &[Case], wanted: impl Fn(&Case) -> bool) -> Vec<ObjectId> {
    cases
        .iter()
        .filter(|case| !case.is_delete() && wanted(case))
        .map(|case| case.command.new)
        .collect()
}

/// The report of a push whose packs were not taken.
fn refused(error: IntakeError, cases: &mut [Case]) -> Result<ReceiveReport, EngineError> {
    match error {
        IntakeError::Pack(fault) => {
            cases.iter_mut().for_each(|case| case.refuse("unpacker error"));
            let refs = cases
                .iter_mut()
                .map(|case| case.refusal.take().map_or(Ok(()), Err))
                .collect();
            Ok(ReceiveReport {
                unpack: Err(fault.to_string()),
                refs,
                warnings: Vec::new(),
                number: None,
            })
        }
        error => Err(error.into()),
    }
}

/// Packs taken in and cut.
pub(crate) struct Taken {
    pub(crate) settled: Settled,
    pub(crate) reached: Arc<Reached>,
    is_small: bool,
}

impl Taken {
    fn small(
        options: IntakeOptions,
        pack: Option<&Buffer>,
        lean: &Lean,
        shallow: &HashSet<ObjectId>,
        values: &[ObjectId],
    ) -> Result<Self, IntakeError> {
        let is_small = options.work_bytes_max == SMALL_PUSH_WORK_MAX;
        let mut intake = Intake::new(options);
        if let Some(pack) = pack {
            intake.expect(pack.len());
            pack.pieces().try_for_each(|piece| intake.feed(piece))?;
            intake.finish_pack()?;
        }
        Ok(Self {
            is_small,
            ..Self::settle(intake, lean, shallow, values)?
        })
    }

    fn settle(
        intake: Intake,
        lean: &Lean,
        shallow: &HashSet<ObjectId>,
        values: &[ObjectId],
    ) -> Result<Self, IntakeError> {
        let settled = intake.settle(lean)?;
        let reached = Arc::new(settled.reach(lean, shallow, values)?);
        Ok(Self {
            settled,
            reached,
            is_small: false,
        })
    }

    /// What the values that are still wanted reach.
    fn narrow(
        &self,
        lean: &Lean,
        shallow: &HashSet<ObjectId>,
        values: &[ObjectId],
        open: &[ObjectId],
    ) -> Result<Arc<Reached>, IntakeError> {
        let complete = values
            .iter()
            .zip(&self.reached.tips)
            .filter(|(_, tip)| **tip != Tip::Incomplete);
        let reached: HashSet<&ObjectId> = complete.map(|(value, _)| value).collect();
        if reached.len() == open.iter().collect::<HashSet<_>>().len() {
            return Ok(Arc::clone(&self.reached));
        }
        Ok(Arc::new(self.settled.reach(lean, shallow, open)?))
    }
}

impl Repository {
    /// Begins a push whose packs come in pieces.
    pub async fn receiver(&self) -> Result<Receiver<'_>, EngineError> {
        Receiver::new(self, None).await
    }

    /// Takes a push in. `pack` gives the bytes of its pack; there is none if all commands delete.
    ///
    /// Cost on the path: nothing of the bucket for a small push whose neighbours are in memory; one append of the log.
    /// Errors are ours, the world's, or the stream's; what is wrong with the push is in the report.
    pub async fn receive<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &self,
        request: ReceiveRequest,
        pack: Option<impl futures::Stream<Item = Result<Bytes, E>> + Send>,
        mut progress: impl FnMut(super::ReceiveProgress) + Send,
    ) -> Result<ReceiveReport, EngineError> {
        let mut receiver = self.receiver().await?;
        if let Some(pack) = pack {
            let mut pack = std::pin::pin!(pack);
            while let Some(bytes) = pack.next().await {
                let bytes = bytes.map_err(|error| EngineError::Peer(error.into()))?;
                if !receiver.feed(bytes).await {
                    break;
                }
                let (objects, total) = receiver.progress();
                progress(super::ReceiveProgress::Unpacking { objects, total });
            }
            receiver.finish_pack().await;
            let (objects, _) = receiver.progress();
            progress(super::ReceiveProgress::Checking { objects });
        }
        receiver.finish(request).await
    }
}
