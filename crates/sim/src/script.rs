//! One story from an empty bucket on, told again and again with a crash at every call: what was acknowledged before the
//! crash is there after it, what failed is there whole or not at all, and the story can be told to its end.

use crate::background;
use crate::chaos::{CRASH_LATE_MS, Chaos, Link, Moment, Rates};
use crate::forge::Forge;
use crate::node::{GRACE, Node, Shared, expect_outage};
use crate::oracle::{self, Refs};
use crate::pusher::{Attempt, is_unclear};
use cuesta_engine::EngineError;
use cuesta_git::ObjectId;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::time::Duration;

/// A story.
pub struct Script {
    forge: Mutex<Forge>,
    steps: Vec<Step>,
    /// Layers up to this size travel in the log.
    inline_bytes_max: usize,
    /// Everything is not only read, but fetched and checked by the repository itself.
    thorough: bool,
}

struct Step {
    act: Act,
    /// The refs when it is done.
    after: Refs,
}

enum Act {
    Push(Box<Attempt>),
    Flush,
    Merge,
    /// All layers become one, the bases of deltas chosen anew.
    Compact,
    Checkpoint,
    /// A checkpoint that leaves some entries before it.
    Fold(u64),
    /// What left is noted, and deleted when it has had its time; so are orphans.
    Collect,
}

/// Writes a story.
struct Author {
    script: Script,
    random: fastrand::Rng,
    refs: Refs,
}

impl Author {
    fn new(inline_bytes_max: usize) -> Self {
        Self {
            script: Script {
                forge: Mutex::default(),
                steps: Vec::new(),
                inline_bytes_max,
                thorough: true,
            },
            random: fastrand::Rng::with_seed(7),
            refs: Refs::new(),
        }
    }

    fn act(&mut self, act: Act) {
        let after = self.refs.clone();
        self.script.steps.push(Step { act, after });
    }

    /// A commit on top of a branch.
    fn commit(&mut self, on: &str, noise: usize) -> ObjectId {
        let parent = self.refs.get(on).copied();
        self.script
            .forge
            .get_mut()
            .commit(&mut self.random, parent.as_slice(), noise)
    }

    fn grow(&mut self, branch: &str, noise: usize) {
        let commit = self.commit(branch, noise);
        self.push(&[(branch, Some(commit))], false);
    }

    fn push(&mut self, changes: &[(&str, Option<ObjectId>)], atomic: bool) {
        let forge = self.script.forge.get_mut();
        let known = forge.closure(&self.refs.values().copied().collect::<Vec<_>>());
        let values: Vec<ObjectId> = changes.iter().filter_map(|(_, new)| *new).collect();
        let new: BTreeSet<ObjectId> = forge.closure(&values).difference(&known).copied().collect();
        let pack = (!values.is_empty()).then(|| forge.pack(&mut self.random, &new, &known));
        let mut commands = Vec::new();
        for (name, new) in changes {
            commands.push(((*name).to_owned(), self.refs.get(*name).copied(), *new));
            match new {
                Some(new) => self.refs.insert((*name).to_owned(), *new),
                None => self.refs.remove(*name),
            };
        }
        self.act(Act::Push(Box::new(Attempt { commands, atomic, pack })));
    }
}

const MAIN: &str = "refs/heads/main";
const SIDE: &str = "refs/heads/side";
const TAG: &str = "refs/tags/v1";

/// Everything that a repository goes through: inline and large pushes, deletions, atomic pushes, flushes, merges,
/// checkpoints.
pub fn life() -> Script {
    let mut author = Author::new(4 << 10);
    author.grow(MAIN, 0);
    author.grow(MAIN, 0);
    author.grow(SIDE, 0);
    author.act(Act::Flush);
    let tagged = author.commit(MAIN, 0);
    let tag = author.script.forge.get_mut().tag(tagged);
    author.push(&[(TAG, Some(tag)), (MAIN, Some(tagged))], false);
    author.grow(SIDE, 20_000);
    author.push(&[(SIDE, None)], false);
    let (main, again) = (author.commit(MAIN, 0), author.commit(MAIN, 0));
    author.push(&[(MAIN, Some(main)), (SIDE, Some(again)), (TAG, None)], true);
    author.act(Act::Checkpoint);
    author.grow(MAIN, 0);
    for _ in 0..9 {
        author.grow(SIDE, 0);
        author.act(Act::Flush);
    }
    author.act(Act::Merge);
    author.grow(MAIN, 0);
    author.act(Act::Fold(2));
    author.grow(MAIN, 0);
    author.act(Act::Flush);
    author.act(Act::Merge);
    author.act(Act::Compact);
    author.act(Act::Collect);
    author.grow(MAIN, 20_000);
    author.act(Act::Collect);
    author.act(Act::Checkpoint);
    author.grow(MAIN, 0);
    author.act(Act::Collect);
    author.script
}

/// A push so large that its layer goes to the bucket in parts while it is made, between small ones.
pub fn large_push() -> Script {
    let mut author = Author::new(4 << 10);
    author.grow(MAIN, 0);
    author.grow(MAIN, 4_300_000);
    author.grow(MAIN, 0);
    author.script.thorough = false;
    author.script
}

impl Script {
    /// Tells the story without a crash; answers how many calls it takes.
    pub fn calls(&self) -> u64 {
        let chaos = Chaos::new(0, Rates::default());
        run(async {
            let shared = self.shared(&chaos);
            let node = Node::start(&shared, Link::new(chaos.clone(), 0))
                .await
                .expect("no faults");
            assert_eq!(
                self.tell(&node, &shared, 0)
                    .await
                    .err()
                    .map(|(at, error)| (at, error.to_string())),
                None
            );
            let calls = chaos.calls();
            self.check(&shared, &[&self.steps[self.steps.len() - 1].after]).await;
            calls
        })
    }

    /// Tells the story with a crash at a call, looks at what is there, and tells the rest.
    pub fn crash(&self, call: u64, moment: Moment) {
        let _told = Told(call, moment);
        let chaos = Chaos::new(0, Rates::default());
        chaos.crash_at(call, moment);
        run(async {
            let shared = self.shared(&chaos);
            let (next, refs) = self.until_crash(&shared, &chaos).await;
            let mut found = self.check(&shared, &refs).await;
            if moment == Moment::Late {
                tokio::time::sleep(Duration::from_millis(2 * CRASH_LATE_MS)).await;
                found = self.check(&shared, &refs).await;
            }
            // A step that failed unheard may be done nevertheless.
            let next = match self.steps.get(next) {
                Some(step) if matches!(step.act, Act::Push(_)) && step.after == found => next + 1,
                _ => next,
            };
            let node = Node::observer(&shared).await;
            if let Err((at, error)) = self.tell(&node, &shared, next).await {
                panic!("step {at} fails after the crash: {error}");
            }
            self.check(&shared, &[&self.steps[self.steps.len() - 1].after]).await;
        });
    }

    fn shared(&self, chaos: &Chaos) -> Shared {
        let mut shared = Shared::new(1, chaos.clone());
        shared.inline_bytes_max = self.inline_bytes_max;
        shared
    }

    /// Tells the story until the node ends: the step to go on with, and the refs that there may be then.
    async fn until_crash(&self, shared: &Shared, chaos: &Chaos) -> (usize, Vec<&Refs>) {
        static NONE: Refs = Refs::new();
        let before = |at: usize| at.checked_sub(1).map_or(&NONE, |at| &self.steps[at].after);
        let link = Link::new(chaos.clone(), 0);
        let outcome = match Node::start(shared, link.clone()).await {
            Ok(node) => self.tell(&node, shared, 0).await,
            Err(error) => Err((0, error)),
        };
        assert!(!link.is_alive(), "the crash was not reached");
        match outcome {
            // It hit something that is done as well as can be.
            Ok(()) => (self.steps.len(), vec![before(self.steps.len())]),
            Err((at, error)) => {
                expect_outage(&error);
                let may_be_done = is_unclear(&error);
                let after = may_be_done.then(|| &self.steps[at].after);
                (at, after.into_iter().chain([before(at)]).collect())
            }
        }
    }

    /// Tells the story from a step on; answers the step that failed.
    async fn tell(&self, node: &Node, shared: &Shared, from: usize) -> Result<(), (usize, EngineError)> {
        for (at, step) in self.steps.iter().enumerate().skip(from) {
            self.act(node, shared, &step.act).await.map_err(|error| (at, error))?;
        }
        Ok(())
    }

    async fn act(&self, node: &Node, shared: &Shared, act: &Act) -> Result<(), EngineError> {
        match act {
            Act::Push(attempt) => {
                let report = attempt.send(node).await?;
                assert!(
                    report.unpack.is_ok() && report.refs.iter().all(Result::is_ok),
                    "{report:?}"
                );
            }
            Act::Flush => drop(node.repository.flush().await?),
            Act::Merge => drop(node.repository.maintain().await?),
            Act::Compact => drop(background::compact(node).await?),
            Act::Checkpoint => drop(node.repository.write_checkpoint().await?),
            Act::Fold(keep) => background::fold(shared, node, *keep).await?,
            Act::Collect => {
                node.repository.collect().await?;
                tokio::time::sleep(GRACE).await;
                node.repository.collect().await?;
                node.repository.sweep(false).await?;
            }
        }
        Ok(())
    }

    /// What a cold node shows: refs that may be there, whole, and as the log says.
    async fn check(&self, shared: &Shared, allowed: &[&Refs]) -> Refs {
        let node = Node::observer(shared).await;
        let view = node.repository.view().await.expect("an observer sees");
        let refs = oracle::refs_of(&view);
        assert!(
            allowed.contains(&&refs),
            "the refs are {refs:?}, allowed are {allowed:?}"
        );
        let tips: Vec<ObjectId> = refs.values().copied().collect();
        oracle::check_closure(&view, &self.forge, &tips)
            .await
            .expect("an observer reads");
        if self.thorough {
            oracle::check_repository(&node).await;
            let fetched = oracle::check_fetch(&view, &self.forge, tips, Vec::new(), 2).await;
            fetched.expect("an observer fetches");
        }
        assert_eq!(
            oracle::replay(&oracle::edits_of(&shared.logs, node.repository.id())),
            refs
        );
        refs
    }
}

fn run<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(story)
}

/// Says where a run that panics crashed.
struct Told(u64, Moment);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with a crash at call {}, {:?} its effect", self.0, self.1);
        }
    }
}
