//! Many agents push to one repository, fetch from it and clone it.
//!
//! The shape of a push is that of public push benchmarks of Git hosts: one commit, one tree and a few random files; two
//! requests (the v0 advertisement, read in full, then the push); a closed loop without think time; a sample counts if it
//! started after the warm-up and ended before the deadline. On request the commits are edits of a real repository, several
//! agents share a branch, connections do not last, or operations begin at given times and count from then. Agents check
//! that what was acknowledged to them is shown, and an audit does so once more at the end.

mod agent;
mod audit;
mod edits;
mod held;
mod history;
mod link;
mod pack_reader;
mod packets;
mod plan;
mod preload;
mod pusher;
mod reader;
mod report;

pub use history::Shape;
pub(crate) use history::object_id;
pub use plan::{Operation, Plan};

use crate::http::Target;
use crate::{now, process};
use agent::{Agent, Sample};
use anyhow::{Context, Result};
use audit::Auditor;
use edits::{Base, Edits};
use held::Held;
use history::{History, RandomFiles};
use link::Link;
use plan::Pace;
use pusher::{Outcome, Pusher};
use report::{Figures, Level, Traffic};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A server and what is known of it.
#[derive(Clone, Debug)]
pub struct Server {
    /// What to call it in the report.
    pub name: String,
    /// The repository's URL.
    pub url: String,
    /// Its process, if its CPU (children included) and memory are to be told.
    pub pid: Option<u32>,
    /// Where its data is, if their size is to be told.
    pub directory: Option<PathBuf>,
    /// A shell command to be run after each level, whose last line goes into the table.
    pub probe: Option<String>,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers, which take turns at every level.
    pub servers: Vec<Server>,
    /// What agents do.
    pub plan: Plan,
    /// Numbers of agents, one level after another.
    pub levels: Vec<usize>,
    /// How often all of it is repeated.
    pub rounds: usize,
    /// Time of each level that is not counted, at its start.
    pub warmup: Duration,
    /// Time of each level that is counted.
    pub duration: Duration,
    /// What a commit holds.
    pub shape: Shape,
    /// A bare repository whose head is pushed first, and whose files the commits then change.
    pub base: Option<PathBuf>,
    /// How many branches the agents share; 0: each has its own.
    pub branches: usize,
    /// Operations a second, of all agents together, whatever the server does; otherwise each agent goes on when it is
    /// answered.
    pub rate: Option<f64>,
    /// Operations on one connection; 0 for no limit.
    pub operations_per_connection: usize,
    /// Refs to make before anything else.
    pub preload: usize,
    /// Certificates to trust over HTTPS (PEM).
    pub authorities: Option<PathBuf>,
    /// Clone each repository at the end and check it with `git fsck`.
    pub fsck: bool,
}

/// Runs all levels, prints a Markdown table, and fails if an acknowledged push is missing at the end.
///
/// One thread: on a small machine the server under test needs the rest.
pub fn run(options: &Options) -> Result<()> {
    options.plan.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Run::new(options)?.all())
}

struct Run<'a> {
    options: &'a Options,
    /// A name that no earlier run on the same server had.
    name: String,
    base: Option<Arc<Base>>,
    auditor: Auditor<'a>,
}

impl<'a> Run<'a> {
    fn new(options: &'a Options) -> Result<Self> {
        let base = options.base.as_deref().map(Base::load).transpose()?;
        Ok(Self {
            options,
            name: run_name()?,
            base: base.map(Arc::new),
            auditor: Auditor::new(options.authorities.as_deref()),
        })
    }

    async fn all(&self) -> Result<()> {
        let options = self.options;
        let targets = options.servers.iter().map(|server| self.target(server));
        let targets = targets.collect::<Result<Vec<_>>>()?;
        for (server, target) in options.servers.iter().zip(&targets) {
            if let (Some(base), Some(path)) = (&self.base, &options.base) {
                let branch = format!("{}-base", self.name);
                self.auditor.push(path, &base.commit, &server.url, &branch)?;
            }
            preload::make_refs(target, &format!("{}-ref", self.name), options.preload).await?;
        }
        let mut tips = vec![Vec::new(); targets.len()];
        print!("{}", report::heading()?);
        let levels = (0..options.rounds).flat_map(|round| options.levels.iter().map(move |level| (round, *level)));
        for (round, level) in levels {
            for ((server, target), tips) in options.servers.iter().zip(&targets).zip(&mut tips) {
                let (measured, agents) = self.level(server, target, round, level).await?;
                print!("{}", report::rows(&server.name, &measured));
                if options.plan.pushes() {
                    tips.extend(audit::expected(&agents));
                }
            }
        }
        for (server, tips) in options.servers.iter().zip(&tips) {
            self.audit(server, tips)
                .with_context(|| format!("audit of {}", server.name))?;
        }
        Ok(())
    }

    fn target(&self, server: &Server) -> Result<Arc<Target>> {
        Target::parse(&server.url, self.options.authorities.as_deref()).map(Arc::new)
    }

    fn audit(&self, server: &Server, tips: &[audit::Expected]) -> Result<()> {
        self.auditor.check_refs(&server.url, tips)?;
        if self.options.fsck {
            self.auditor.check_objects(&server.url)?;
        }
        println!("\naudit of {}: {} branches as acknowledged", server.name, tips.len());
        Ok(())
    }

    /// Runs agents until the deadline; operations then under way are cancelled, and pushes among them stay in doubt.
    async fn level(
        &self,
        server: &Server,
        target: &Arc<Target>,
        round: usize,
        count: usize,
    ) -> Result<(Level, Vec<Agent>)> {
        let start = now();
        let counted_from = start + self.options.warmup;
        let deadline = counted_from + self.options.duration;
        let agents = self.agents(target, &format!("{}-r{round}-c{count}", self.name), start, count);
        let work = |mut agent: Agent| async move {
            match tokio::time::timeout_at(deadline.into(), agent.work()).await {
                Ok(Err(error)) => Err(error),
                Ok(Ok(())) | Err(_) => Ok(agent),
            }
        };
        let tasks: Vec<_> = agents.into_iter().map(|agent| tokio::spawn(work(agent))).collect();
        tokio::time::sleep_until(counted_from.into()).await;
        Held::begin(server);
        let before = cpu(server)?;
        tokio::time::sleep_until(deadline.into()).await;
        let after = cpu(server)?;
        let held = Held::of(server)?;
        let mut agents = Vec::with_capacity(count);
        for task in tasks {
            agents.push(task.await??);
        }
        let samples: Vec<&Sample> = agents.iter().flat_map(|agent| &agent.samples).collect();
        agent::check_started(&samples)?;
        let mut level = measure(self.options, count, &samples, counted_from, [before, after]);
        level.traffic = traffic(&agents);
        level.held = held;
        Ok((level, agents))
    }

    fn agents(&self, target: &Arc<Target>, prefix: &str, start: Instant, count: usize) -> Vec<Agent> {
        (0..count)
            .map(|index| self.agent(target, prefix, start, index, count))
            .collect()
    }

    fn agent(&self, target: &Arc<Target>, prefix: &str, start: Instant, index: usize, count: usize) -> Agent {
        let options = self.options;
        let name = format!("{prefix}-a{index}");
        let shape = options.shape.clone();
        let history = match &self.base {
            Some(base) => History::Edits(Edits::new(&name, base.clone(), shape.files)),
            None => History::Random(RandomFiles::new(&name, shape)),
        };
        let branch = match options.branches {
            0 => name.clone(),
            branches => format!("{prefix}-b{}", index % branches),
        };
        let shares = options.branches > 0 && count > options.branches;
        let pace = match options.rate {
            Some(rate) => Pace::open(start, rate, index, count),
            None => Pace::Closed,
        };
        let link = Link::new(target.clone(), options.operations_per_connection);
        Agent::new(
            link,
            &options.plan,
            pace,
            &name,
            Pusher::new(target, &branch, shares, history),
        )
    }
}

// The one place that needs the date; benches are not simulated.
#[allow(clippy::disallowed_methods)]
fn run_name() -> Result<String> {
    Ok(format!(
        "b{:x}",
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis()
    ))
}

/// CPU of the server, if known, and of this process.
fn cpu(server: &Server) -> Result<(Option<Duration>, Duration)> {
    let own = process::cpu(std::process::id())?;
    Ok((server.pid.map(process::cpu).transpose()?, own))
}

/// Work is paid for when it ends, a sample belongs to where it starts.
fn measure(
    options: &Options,
    agents: usize,
    samples: &[&Sample],
    counted_from: Instant,
    cpu: [(Option<Duration>, Duration); 2],
) -> Level {
    let ended = samples
        .iter()
        .filter(|sample| sample.start + sample.latency >= counted_from);
    let mut level = Level::new(agents, options.duration, ended.count());
    for sample in samples.iter().filter(|sample| sample.start >= counted_from) {
        let figures: &mut Figures = level.operations.entry(sample.operation).or_default();
        match &sample.outcome {
            Outcome::Done => figures.latencies.push(sample.latency),
            Outcome::Conflict => figures.conflicts += 1,
            Outcome::Failed(reason) => *figures.errors.entry(reason.clone()).or_default() += 1,
        }
    }
    level
        .operations
        .values_mut()
        .for_each(|figures| figures.latencies.sort_unstable());
    let [(server_before, own_before), (server_after, own_after)] = cpu;
    level.generator_cpu = own_after.saturating_sub(own_before);
    level.server_cpu = server_after
        .zip(server_before)
        .map(|(after, before)| after.saturating_sub(before));
    level
}

fn traffic(agents: &[Agent]) -> Traffic {
    let moved = agents.iter().map(Agent::traffic);
    let (sent_bytes, received_bytes) = moved.fold((0, 0), |(sent, received), (more_sent, more_received)| {
        (sent + more_sent, received + more_received)
    });
    Traffic {
        operations: agents.iter().map(|agent| agent.samples.len()).sum(),
        sent_bytes,
        received_bytes,
    }
}

#[cfg(test)]
mod tests;
