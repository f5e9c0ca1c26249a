//! Clients: they read refs, build on them, push, and fetch; and they note what they were told.

use crate::background::is_too_late;
use crate::node::{Node, expect_outage};
use crate::oracle::{self, Refs, null};
use crate::registers::Action;
use crate::world::World;
use bytes::Bytes;
use cuesta_engine::receive::{ReceiveReport, ReceiveRequest, RefCommand};
use cuesta_engine::{EngineError, View};
use cuesta_git::ObjectId;
use cuesta_ledger::LedgerError;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::time::Instant;

/// A client that pushes.
pub(crate) struct Pusher {
    pub(crate) world: Arc<World>,
    pub(crate) random: fastrand::Rng,
    pub(crate) number: usize,
    /// What it saw last time, to act on when it acts on stale knowledge.
    pub(crate) seen: Refs,
    /// A push that failed and will be made again.
    pub(crate) again: Option<Wish>,
}

/// What a push is to bring about.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// The refs to change, and their new values.
    refs: Vec<(String, Option<ObjectId>)>,
    /// The commits made for it.
    made: Vec<ObjectId>,
    atomic: bool,
    /// The pack lacks an object.
    hole: bool,
    /// An attempt may have succeeded unheard.
    unclear: bool,
}

/// One attempt at a push.
pub(crate) struct Attempt {
    pub(crate) commands: Vec<(String, Option<ObjectId>, Option<ObjectId>)>,
    pub(crate) atomic: bool,
    pub(crate) pack: Option<Bytes>,
}

/// The reasons for which the ledger refuses an old value.
const OLD_IS_WRONG: [&str; 3] = [
    "incorrect old value provided",
    "reference already exists",
    "reference does not exist",
];
/// Other reasons for which a good push may be refused here.
const OTHER_REASONS: [&str; 3] = [
    "refname conflict",
    "atomic push failure",
    "deletion of the current branch prohibited",
];

impl Attempt {
    /// Makes it on a node.
    pub(crate) async fn send(&self, node: &Node) -> Result<ReceiveReport, EngineError> {
        let command = |(name, old, new): &(String, Option<ObjectId>, Option<ObjectId>)| RefCommand {
            name: name.as_bytes().to_vec(),
            old: old.unwrap_or(null()),
            new: new.unwrap_or(null()),
        };
        let mut request = ReceiveRequest::new(self.commands.iter().map(command).collect(), "pusher");
        request.atomic = self.atomic;
        let pack = self.pack.as_ref().map(|pack| {
            let pieces = pack
                .chunks(PIECE_BYTES)
                .map(|piece| Ok::<_, Infallible>(pack.slice_ref(piece)));
            futures::stream::iter(pieces.collect::<Vec<_>>())
        });
        node.repository.receive(request, pack, |_| ()).await
    }

    /// Makes it on a node, and notes for each ref what the client was told.
    pub(crate) async fn make(&self, world: &World, node: &Node) -> Result<ReceiveReport, EngineError> {
        let first = world.entry_count();
        let (called, begun) = (world.tick(), Instant::now());
        let outcome = self.send(node).await;
        let answered = world.tick();
        match &outcome {
            Ok(report) => self.note(world, report, first, [called, answered]),
            Err(error) if is_unclear(error) => {
                for (name, old, new) in &self.commands {
                    let (old, new) = (*old, *new);
                    world.saw(name, called, u64::MAX, Action::Unknown { old, new });
                }
            }
            Err(error) if is_too_late(error, begun) => {}
            // It has certainly not happened: if a value shows up nevertheless, no order explains it.
            Err(error) => expect_outage(error),
        }
        outcome
    }

    fn note(&self, world: &World, report: &ReceiveReport, first: usize, [called, answered]: [u64; 2]) {
        assert_eq!(report.refs.len(), self.commands.len(), "each command has its answer");
        let done = world.updates_of_entries(first, report.number, &self.commands);
        for ((name, old, new), answer) in self.commands.iter().zip(&report.refs) {
            let (old, new) = (*old, *new);
            let action = match answer {
                Ok(()) if done.contains(name) => Action::Swapped { old, new },
                Ok(()) if new.is_none() => Action::Read(None),
                Ok(()) if old == new => Action::Read(old),
                Ok(()) => panic!(
                    "'{name}' was acknowledged, but entry {:?} does not have it",
                    report.number
                ),
                Err(reason) if OLD_IS_WRONG.contains(&reason.as_str()) => Action::Refused { old },
                Err(_) => continue,
            };
            world.saw(name, called, answered, action);
        }
        if self.atomic {
            let refused = report.refs.iter().filter(|answer| answer.is_err()).count();
            assert!(refused == 0 || refused == report.refs.len(), "atomic: {report:?}");
        }
    }
}

/// Bytes of a pack that come at once.
const PIECE_BYTES: usize = 3_000;

/// Whether a push that failed so may have succeeded.
pub(crate) fn is_unclear(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Ledger(LedgerError::Unknown { .. } | LedgerError::Closed)
    )
}

impl Pusher {
    pub(crate) async fn run(mut self, steps: u32) {
        for _ in 0..steps {
            self.world.nap(&mut self.random).await;
            self.step().await;
        }
    }

    async fn step(&mut self) {
        let Some(node) = self.world.some_node(&mut self.random) else {
            return;
        };
        let Some((refs, _)) = self.world.read_refs(&node).await else {
            return;
        };
        let stale = std::mem::replace(&mut self.seen, refs.clone());
        let refs = if self.random.u8(0..8) == 0 { stale } else { refs };
        let wish = self.again.take().unwrap_or_else(|| self.wish(&refs));
        let attempt = self.attempt(&wish, &refs);
        self.world.nap(&mut self.random).await;
        let Some(node) = self.world.some_node(&mut self.random) else {
            return;
        };
        let outcome = attempt.make(&self.world, &node).await;
        self.learn(wish, outcome);
    }

    /// What comes of a push: another try, or the certainty that nothing of it is there.
    fn learn(&mut self, mut wish: Wish, outcome: Result<ReceiveReport, EngineError>) {
        let happened = match outcome {
            Ok(report) => {
                let holes = ["missing necessary objects"];
                for reason in report.refs.iter().filter_map(|answer| answer.as_ref().err()) {
                    let known = OLD_IS_WRONG.iter().chain(&OTHER_REASONS);
                    let allowed = known.chain(holes.iter().filter(|_| wish.hole));
                    assert!(
                        allowed.into_iter().any(|allowed| allowed == reason),
                        "refused: {reason}; {wish:?}"
                    );
                }
                assert_eq!(report.unpack, Ok(()), "{wish:?}");
                let happened = report.refs.iter().any(Result::is_ok);
                assert!(
                    happened || report.number.is_none(),
                    "all refused, and yet an entry: {report:?}"
                );
                happened
            }
            Err(error) if is_unclear(&error) => {
                wish.unclear = true;
                false
            }
            Err(_) => false,
        };
        if happened {
            return;
        }
        if !wish.hole && self.random.bool() {
            self.again = Some(wish);
        } else if !wish.unclear {
            self.world.must_be_absent(&wish.made);
        }
    }

    fn attempt(&mut self, wish: &Wish, refs: &Refs) -> Attempt {
        let forge = self.world.forge.lock();
        let old = |name: &String| refs.get(name).copied();
        let commands: Vec<_> = wish
            .refs
            .iter()
            .map(|(name, new)| (name.clone(), old(name), *new))
            .collect();
        let values: Vec<ObjectId> = wish.refs.iter().filter_map(|(_, new)| *new).collect();
        let known = forge.closure(&refs.values().copied().collect::<Vec<_>>());
        let mut new: BTreeSet<ObjectId> = forge.closure(&values).difference(&known).copied().collect();
        if wish.hole {
            let tips: BTreeSet<ObjectId> = values.iter().copied().collect();
            let lost = self.random.choice(
                new.iter()
                    .filter(|oid| !tips.contains(oid))
                    .copied()
                    .collect::<Vec<_>>(),
            );
            lost.map(|oid| new.remove(&oid));
        }
        let pack = (!values.is_empty()).then(|| forge.pack(&mut self.random, &new, &known));
        Attempt {
            commands,
            atomic: wish.atomic,
            pack,
        }
    }

    /// Something to push, given what the refs are.
    fn wish(&mut self, refs: &Refs) -> Wish {
        let count = if self.random.u8(0..4) == 0 {
            self.random.usize(2..5)
        } else {
            1
        };
        let mut names = self.world.names_of(self.number);
        self.random.shuffle(&mut names);
        let mut wish = Wish {
            refs: Vec::new(),
            made: Vec::new(),
            atomic: self.random.u8(0..3) == 0,
            hole: self.random.u8(0..16) == 0,
            unclear: false,
        };
        for name in names.into_iter().take(count) {
            let value = self.value(&name, refs, &mut wish.made);
            wish.refs.push((name, value));
        }
        wish
    }

    /// A new value for a ref: a commit on top of the old, a merge, something else altogether, or none.
    fn value(&mut self, name: &str, refs: &Refs, made: &mut Vec<ObjectId>) -> Option<ObjectId> {
        let mut forge = self.world.forge.lock();
        let random = &mut self.random;
        let noise = if random.u8(0..12) == 0 { 20_000 } else { 0 };
        let commits: Vec<ObjectId> = refs.values().copied().filter(|oid| forge.is_commit(oid)).collect();
        let old = refs.get(name).copied();
        let parent = old
            .filter(|oid| forge.is_commit(oid))
            .or_else(|| random.choice(&commits).copied());
        let value = match (random.u8(0..10), old) {
            (0, Some(_)) => return None,
            (1, _) if !commits.is_empty() => return random.choice(&commits).copied(),
            (2, Some(_)) => forge.commit(random, &[], noise),
            (3, _) if commits.len() > 1 => {
                let mut parents: Vec<ObjectId> = parent.into_iter().chain(random.choice(&commits).copied()).collect();
                parents.dedup();
                forge.commit(random, &parents, noise)
            }
            (4, _) => {
                let below = forge.commit(random, parent.as_slice(), noise);
                made.push(below);
                forge.commit(random, &[below], 0)
            }
            _ => forge.commit(random, parent.as_slice(), noise),
        };
        made.push(value);
        if name.starts_with("refs/tags/") {
            let tag = forge.tag(value);
            made.push(tag);
            return Some(tag);
        }
        Some(value)
    }
}

/// A client that reads: object by object or as a fetch, now or after having held its view for a while.
pub(crate) struct Reader {
    pub(crate) world: Arc<World>,
    pub(crate) random: fastrand::Rng,
    pub(crate) has: Vec<ObjectId>,
}

impl Reader {
    pub(crate) async fn run(mut self, steps: u32) {
        for _ in 0..steps {
            self.world.nap(&mut self.random).await;
            let Some(node) = self.world.some_node(&mut self.random) else {
                continue;
            };
            let begun = Instant::now();
            let Some((refs, view)) = self.world.read_refs(&node).await else {
                continue;
            };
            if self.random.bool() {
                self.world.nap(&mut self.random).await;
            }
            match self.look(&refs, &view).await {
                Err(error) if is_too_late(&error, begun) => {}
                Err(error) => expect_outage(&error),
                Ok(()) => {}
            }
        }
    }

    async fn look(&mut self, refs: &Refs, view: &View) -> Result<(), EngineError> {
        let values: Vec<ObjectId> = refs.values().copied().collect();
        let Some(tip) = self.random.choice(&values).copied() else {
            return Ok(());
        };
        if self.random.bool() {
            return oracle::check_closure(view, &self.world.forge, &[tip]).await;
        }
        let mut common = Vec::new();
        for oid in &self.has {
            if view.contains(oid).await? {
                common.push(*oid);
            }
        }
        oracle::check_fetch(view, &self.world.forge, vec![tip], common, self.random.u8(..)).await?;
        self.has.push(tip);
        Ok(())
    }
}
