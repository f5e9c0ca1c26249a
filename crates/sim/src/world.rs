//! The random simulation: one seed makes a world, lets clients, faults and restarts loose in it, and judges.

use crate::background::{self, is_too_late};
use crate::chaos::{Chaos, Rates};
use crate::forge::Forge;
use crate::node::{GRACE, Node, Shared, expect_outage};
use crate::oracle::{self, Refs};
use crate::pusher::{Pusher, Reader};
use crate::registers::{Action, Histories, Operation};
use crate::registrar::{Registrar, look_at_all};
use cuesta_engine::View;
use cuesta_format::{Edit, Entry, Key, LogId, log_prefix};
use cuesta_git::ObjectId;
use futures::TryStreamExt;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What one run was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Every call and event, in order.
    pub trace: Vec<String>,
    /// Operations on refs that were checked.
    pub operations: usize,
    /// Entries of the repository's log.
    pub entries: usize,
    /// Restarts of nodes.
    pub restarts: u64,
}

impl Outcome {
    /// A digest of the trace.
    pub fn digest(&self) -> u64 {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        self.trace.iter().for_each(|line| hasher.write(line.as_bytes()));
        hasher.finish()
    }
}

struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Says how to repeat a run that panics.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "failed with seed {0}; again: CUESTA_SIM_SEED={0} cargo test -p cuesta-sim --test seeds",
                self.0
            );
        }
    }
}

/// Everything of one run.
pub(crate) struct World {
    pub(crate) shared: Shared,
    pub(crate) forge: Mutex<Forge>,
    nodes: Mutex<Vec<Option<Node>>>,
    log: LogId,
    pushers: usize,
    rates: Rates,
    histories: Mutex<Histories<ObjectId>>,
    names: Mutex<Histories<()>>,
    absent: Mutex<BTreeSet<ObjectId>>,
    time: AtomicU64,
    restarts: AtomicU64,
    over: AtomicBool,
    plant: Plant,
    /// Clients take their time, so that what left the list goes while they work.
    leisure: bool,
}

/// A mistake that the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// None.
    Nothing,
    /// Payloads go as soon as their layer has left the list.
    NoGrace,
    /// Layers in no entry are deleted without a word to the log.
    CarelessSweep,
}

/// Runs the world of a seed to its end; panics if anything does not hold.
pub fn run(seed: u64) -> Outcome {
    run_with(seed, Plant::Nothing)
}

/// As [`run`], with a mistake.
pub fn run_with(seed: u64, plant: Plant) -> Outcome {
    let _told = Told(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(simulate(seed, plant))
}

async fn simulate(seed: u64, plant: Plant) -> Outcome {
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::new(seed, plant, &mut random).await;
    let mut clients = JoinSet::new();
    let steps = random.u32(8..40);
    for number in 0..world.pushers {
        let pusher = Pusher {
            world: Arc::clone(&world),
            random: random.fork(),
            number,
            seen: Refs::new(),
            again: None,
        };
        clients.spawn(pusher.run(steps));
    }
    for _ in 0..2 {
        let reader = Reader {
            world: Arc::clone(&world),
            random: random.fork(),
            has: Vec::new(),
        };
        clients.spawn(reader.run(steps));
    }
    for _ in 0..random.usize(0..3) {
        let registrar = Registrar {
            world: Arc::clone(&world),
            random: random.fork(),
        };
        clients.spawn(registrar.run(steps));
    }
    let mut services = JoinSet::new();
    services.spawn(Arc::clone(&world).restart_nodes(random.fork()));
    services.spawn(Arc::clone(&world).storms(random.fork()));
    services.spawn(Arc::clone(&world).fold_logs(random.fork()));
    // Owners are meant to be alone; that two of them do no harm is part of what must hold.
    for _ in 0..random.usize(1..3) {
        services.spawn(Arc::clone(&world).maintain(random.fork()));
    }
    join(clients).await;
    world.over.store(true, Ordering::SeqCst);
    join(services).await;
    world.judge().await
}

async fn join(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

impl World {
    async fn new(seed: u64, plant: Plant, random: &mut fastrand::Rng) -> Arc<Self> {
        let rates = Rates {
            before: random.u32(0..30),
            after: random.u32(0..30),
            late: random.u32(0..20),
            delay_ms_max: random.u64(0..10),
        };
        let chaos = Chaos::new(seed, rates);
        let mut shared = Shared::new(seed, chaos);
        shared.inline_bytes_max = [0, 1_500, 1 << 20][random.usize(..3)];
        shared.part_bytes = [1 << 10, 1 << 20][random.usize(..2)];
        // All or nothing: what a cache between the two evicts follows from hashes that no seed of ours decides.
        shared.cache_bytes = [0, 16 << 20][random.usize(..2)];
        if plant == Plant::NoGrace {
            shared.grace = Duration::ZERO;
        }
        let mut nodes = Vec::new();
        for number in 0..random.u32(1..4) {
            nodes.push(Some(Node::start_somehow(&shared, number).await));
        }
        let log = nodes.iter().flatten().next().expect("a node").repository.id();
        Arc::new(Self {
            shared,
            forge: Mutex::default(),
            nodes: Mutex::new(nodes),
            log,
            pushers: random.usize(2..5),
            rates,
            histories: Mutex::default(),
            names: Mutex::default(),
            absent: Mutex::default(),
            time: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            over: AtomicBool::new(false),
            plant,
            leisure: random.u8(0..3) == 0 || plant == Plant::NoGrace,
        })
    }

    /// The next instant.
    pub(crate) fn tick(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    /// Lets others run.
    pub(crate) async fn nap(&self, random: &mut fastrand::Rng) {
        match random.u8(0..4) {
            _ if self.leisure && random.u8(0..3) == 0 => {
                tokio::time::sleep(Duration::from_millis(random.u64(1..8_000))).await;
            }
            0 => tokio::task::yield_now().await,
            1 => tokio::time::sleep(Duration::from_millis(random.u64(1..200))).await,
            _ => tokio::time::sleep(Duration::from_millis(random.u64(1..20))).await,
        }
    }

    /// A node that is up, if the one drawn is.
    pub(crate) fn some_node(&self, random: &mut fastrand::Rng) -> Option<Node> {
        let nodes = self.nodes.lock();
        nodes[random.usize(..nodes.len())].clone()
    }

    /// The refs that a pusher changes: some its own, some everybody's, some that exclude one another.
    pub(crate) fn names_of(&self, pusher: usize) -> Vec<String> {
        let mut names: Vec<String> = ["main", "shared", "dir", "dir/below"]
            .iter()
            .map(|name| format!("refs/heads/{name}"))
            .collect();
        names.push(format!("refs/heads/p{pusher}a"));
        names.push(format!("refs/heads/p{pusher}b"));
        names.push(format!("refs/tags/t{pusher}"));
        names
    }

    /// Notes what a client was told of a ref.
    pub(crate) fn saw(&self, name: &str, called: u64, answered: u64, action: Action<ObjectId>) {
        self.shared.chaos.note(format!("{called} {answered} {name} {action:?}"));
        let operation = Operation {
            called,
            answered,
            action,
        };
        self.histories.lock().add(name, operation);
    }

    /// Notes what a client was told of a repository's name.
    pub(crate) fn saw_name(&self, name: &str, called: u64, answered: u64, action: Action<()>) {
        self.shared.chaos.note(format!("{called} {answered} {name} {action:?}"));
        let operation = Operation {
            called,
            answered,
            action,
        };
        self.names.lock().add(name, operation);
    }

    /// Reads all refs through a node, and notes them.
    pub(crate) async fn read_refs(&self, node: &Node) -> Option<(Refs, View)> {
        let called = self.tick();
        let view = match node.repository.view().await {
            Ok(view) => view,
            Err(error) => {
                expect_outage(&error);
                return None;
            }
        };
        let answered = self.tick();
        let refs = oracle::refs_of(&view);
        let names: BTreeSet<String> = (0..self.pushers).flat_map(|pusher| self.names_of(pusher)).collect();
        for name in names {
            self.saw(&name, called, answered, Action::Read(refs.get(&name).copied()));
        }
        Some((refs, view))
    }

    /// Entries of the log so far.
    pub(crate) fn entry_count(&self) -> usize {
        self.shared.logs.entries(self.log).len()
    }

    /// The names of those commands that some edit has, just as they are, in the entries from `first` to `last`. An edit
    /// that was found through a checkpoint is only known to be no later than the number that was told.
    pub(crate) fn updates_of_entries(
        &self,
        first: usize,
        last: Option<u64>,
        commands: &[(String, Option<ObjectId>, Option<ObjectId>)],
    ) -> BTreeSet<String> {
        let end = last.map_or(0, |last| usize::try_from(last).expect("a number") + 1);
        let entries = self.shared.logs.entries(self.log);
        let entries = entries.get(first..end).unwrap_or_default().iter();
        let edits: Vec<Edit> = entries
            .flat_map(|bytes| Entry::decode(bytes).expect("an entry").edits)
            .collect();
        let has = |name: &str, old: &Option<ObjectId>, new: &Option<ObjectId>| {
            edits.iter().flat_map(|edit| &edit.refs).any(|update| {
                let updated = update.new.map(|target| target.oid);
                update.name.as_bytes() == name.as_bytes() && update.old == *old && updated == *new
            })
        };
        let done = commands.iter().filter(|(name, old, new)| has(name, old, new));
        done.map(|(name, ..)| name.clone()).collect()
    }

    /// Nothing of these commits may ever be seen.
    pub(crate) fn must_be_absent(&self, commits: &[ObjectId]) {
        self.absent.lock().extend(commits);
    }

    /// Freezes nodes, or ends them and starts them again; a cold observer looks at each end.
    async fn restart_nodes(self: Arc<Self>, mut random: fastrand::Rng) {
        let count = self.nodes.lock().len();
        while !self.over.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(random.u64(50..800))).await;
            let at = random.usize(..count);
            if random.u8(0..3) == 0 {
                self.freeze(at, random.u64(100..3000)).await;
                continue;
            }
            let ended = self.nodes.lock()[at].take();
            ended.inspect(|node| node.link.cut());
            self.shared.chaos.note(format!("node {at} ends"));
            self.restarts.fetch_add(1, Ordering::SeqCst);
            self.look(&Node::observer(&self.shared).await).await;
            tokio::time::sleep(Duration::from_millis(random.u64(0..200))).await;
            let node = Node::start_somehow(&self.shared, u32::try_from(at).unwrap_or(0)).await;
            self.shared.chaos.note(format!("node {at} is back"));
            self.nodes.lock()[at] = Some(node);
        }
    }

    /// Now and then almost everything fails for a while, so that nodes give up with outcomes unknown.
    async fn storms(self: Arc<Self>, mut random: fastrand::Rng) {
        while !self.over.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(random.u64(100..4000))).await;
            let storm = Rates {
                before: 300,
                after: 400,
                late: 100,
                ..self.rates
            };
            self.shared.chaos.note("a storm begins");
            match random.bool() {
                true => self.shared.chaos.set_rates(storm),
                // Everything else works: nodes do what they do about outcomes they never learn.
                false => self.shared.chaos.set_append_rates(Some(storm)),
            }
            tokio::time::sleep(Duration::from_millis(random.u64(100..2500))).await;
            self.shared.chaos.set_rates(self.rates);
            self.shared.chaos.set_append_rates(None);
            self.shared.chaos.note("a storm ends");
        }
    }

    /// Stops a node for a while; it goes on as if nothing had been.
    async fn freeze(&self, at: usize, ms: u64) {
        let Some(node) = self.nodes.lock()[at].clone() else {
            return;
        };
        self.shared.chaos.note(format!("node {at} freezes for {ms} ms"));
        node.link.freeze(true);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        node.link.freeze(false);
        self.shared.chaos.note(format!("node {at} goes on"));
    }

    /// Flushes and merges layers.
    async fn maintain(self: Arc<Self>, mut random: fastrand::Rng) {
        let pause_ms_max = random.u64(20..600);
        while !self.over.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(random.u64(10..pause_ms_max))).await;
            let Some(node) = self.some_node(&mut random) else {
                continue;
            };
            let begun = Instant::now();
            let pass = match (self.plant, random.u8(0..3)) {
                (Plant::CarelessSweep, 0) => background::careless_sweep(&node).await,
                _ => background::pass(&node, random.u8(..)).await,
            };
            match pass {
                Ok(what) => self.shared.chaos.note(what),
                Err(error) if is_too_late(&error, begun) => self.shared.chaos.note("took too long"),
                Err(error) => expect_outage(&error),
            }
        }
    }

    /// Writes checkpoints and deletes what they cover.
    async fn fold_logs(self: Arc<Self>, mut random: fastrand::Rng) {
        while !self.over.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(random.u64(50..1500))).await;
            let Some(node) = self.some_node(&mut random) else {
                continue;
            };
            let keep = random.u64(0..4);
            match background::fold(&self.shared, &node, keep).await {
                Ok(()) => self.shared.chaos.note("folded"),
                Err(error) => expect_outage(&error),
            }
        }
    }

    /// Everything that a node without faults shows is whole.
    async fn look(&self, node: &Node) -> Refs {
        let (refs, view) = self.read_refs(node).await.expect("an observer sees");
        let tips: Vec<ObjectId> = refs.values().copied().collect();
        let looked = oracle::check_closure(&view, &self.forge, &tips).await;
        looked.unwrap_or_else(|error| panic!("an observer cannot read: {error}"));
        let fetched = oracle::check_fetch(&view, &self.forge, tips, Vec::new(), 2).await;
        fetched.unwrap_or_else(|error| panic!("an observer cannot fetch: {error}"));
        for oid in self.absent.lock().iter() {
            let found = futures::executor::block_on(view.contains(oid)).expect("an observer sees");
            assert!(!found, "{oid} is there, but its push was refused");
        }
        refs
    }

    /// Collects everything that nothing needs: then the bucket holds what is needed, and nothing else.
    async fn collect_all(&self) {
        let node = Node::observer(&self.shared).await;
        let (repository, engine) = (&node.repository, &node.engine);
        // What is new is noted, and an orphan; what was noted goes; then what was noted as an orphan.
        for _ in 0..3 {
            repository.collect().await.expect("an observer collects");
            engine.collect_abandoned().await.expect("an observer collects");
            tokio::time::sleep(GRACE + Duration::from_secs(1)).await;
            repository.sweep(false).await.expect("an observer sweeps");
            engine.sweep(false).await.expect("an observer sweeps");
        }
        repository.collect().await.expect("an observer collects");
        engine.collect_abandoned().await.expect("an observer collects");
        let state = repository.log().fresh().await.expect("an observer reads");
        assert_eq!(
            state.retired().len(),
            0,
            "something waits for ever: {:?}",
            state.retired()
        );
        let directory = engine.directory().log().fresh().await.expect("an observer reads");
        assert_eq!(directory.abandoned().count(), 0, "a log waits for ever");
        let needed = |key: &str| match Key::parse(key).expect("a key of ours") {
            Key::LayerPack(log, layer) | Key::LayerCue(log, layer) => log == self.log && state.layer(layer).is_some(),
            // One that is in force, or newer than that and never came into force.
            key => directory.names().values().any(|record| record.log == key.log()),
        };
        let listed = engine.bucket().list("repos").map_ok(|listed| listed.key);
        let listed: BTreeSet<String> = listed.try_collect().await.expect("an observer lists");
        let left: Vec<&String> = listed.iter().filter(|key| !needed(key)).collect();
        assert!(left.is_empty(), "nothing needs {left:?}, but it stays");
        let in_bucket = state.layers().iter().filter(|layer| !layer.is_inline()).count();
        let layers = log_prefix(self.log) + "layers/";
        let payloads = listed.iter().filter(|key| key.starts_with(&layers)).count();
        assert_eq!(payloads, 2 * in_bucket, "payloads of the layer list");
    }

    /// The end: without faults, every node must show the same whole repository, and all that was told must fit.
    async fn judge(&self) -> Outcome {
        self.shared.chaos.set_rates(Rates::default());
        tokio::time::sleep(Duration::from_secs(10)).await;
        self.collect_all().await;
        let observer = Node::observer(&self.shared).await;
        let refs = self.look(&observer).await;
        look_at_all(self, &observer).await;
        oracle::check_repository(&observer).await;
        let edits = oracle::edits_of(&self.shared.logs, self.log);
        assert_eq!(oracle::replay(&edits), refs, "the log replayed gives other refs");
        let nodes: Vec<Node> = self.nodes.lock().iter().flatten().cloned().collect();
        for node in nodes {
            assert_eq!(self.look(&node).await, refs, "nodes differ");
        }
        let histories = self.histories.lock();
        histories.check();
        self.names.lock().check();
        Outcome {
            trace: self.shared.chaos.trace(),
            operations: histories.len(),
            entries: self.shared.logs.entries(self.log).len(),
            restarts: self.restarts.load(Ordering::SeqCst),
        }
    }
}
