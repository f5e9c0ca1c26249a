//! Many agents push small commits to one repository, each to a branch of its own.
//!
//! The shape is that of public push benchmarks of Git hosts: one commit, one tree and a few random files a push; two
//! requests (the v0 advertisement, read in full, then the push); a closed loop without think time; a sample counts if it
//! started after the warm-up and ended before the deadline. Agents also check that the advertisement shows what was
//! acknowledged to them, and an audit does so once more at the end.

mod agent;
mod audit;
mod history;
mod preload;
mod report;

pub use history::Shape;

use crate::http::Target;
use crate::{now, process};
use agent::{Agent, Outcome};
use anyhow::{Context, Result, ensure};
use report::{Level, Traffic};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A server and what is known of it.
#[derive(Clone, Debug)]
pub struct Server {
    /// What to call it in the report.
    pub name: String,
    /// The repository's URL.
    pub url: String,
    /// Its process, if its CPU is to be told (children included).
    pub pid: Option<u32>,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers, which take turns at every level.
    pub servers: Vec<Server>,
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
    /// Refs to make before anything else.
    pub preload: usize,
    /// Clone each repository at the end and check it with `git fsck`.
    pub fsck: bool,
}

/// Runs all levels, prints a Markdown table, and fails if an acknowledged push is missing at the end.
///
/// One thread: on a small machine the server under test needs the rest.
pub fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_all(options))
}

async fn run_all(options: &Options) -> Result<()> {
    let run = run_name()?;
    let targets = options
        .servers
        .iter()
        .map(|server| Target::parse(&server.url).map(Arc::new));
    let targets = targets.collect::<Result<Vec<_>>>()?;
    for target in &targets {
        preload::make_refs(target, &format!("{run}-ref"), options.preload).await?;
    }
    let mut tips = vec![Vec::new(); targets.len()];
    print!("{}", report::heading()?);
    for (round, level) in (0..options.rounds).flat_map(|round| options.levels.iter().map(move |level| (round, *level)))
    {
        for ((server, target), tips) in options.servers.iter().zip(&targets).zip(&mut tips) {
            let agents = agents(target, &format!("{run}-r{round}-c{level}"), level, &options.shape);
            let (measured, agents) = run_level(options, server, agents).await?;
            print!("{}", report::row(&server.name, &measured));
            tips.extend(agents.iter().map(audit::Expected::of));
        }
    }
    for (server, tips) in options.servers.iter().zip(&tips) {
        audit::check_refs(&server.url, tips).with_context(|| format!("audit of {}", server.name))?;
        if options.fsck {
            audit::check_objects(&server.url).with_context(|| format!("audit of {}", server.name))?;
        }
        println!("\naudit of {}: {} branches as acknowledged", server.name, tips.len());
    }
    Ok(())
}

/// A name that no earlier run on the same server had.
// The one place that needs the date; benches are not simulated.
#[allow(clippy::disallowed_methods)]
fn run_name() -> Result<String> {
    Ok(format!(
        "b{:x}",
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis()
    ))
}

fn agents(target: &Arc<Target>, prefix: &str, count: usize, shape: &Shape) -> Vec<Agent> {
    let name = |index| format!("{prefix}-a{index}");
    (0..count)
        .map(|index| Agent::new(target.clone(), &name(index), shape.clone()))
        .collect()
}

/// Runs agents until the deadline; pushes then under way are cancelled and stay in doubt.
async fn run_level(options: &Options, server: &Server, agents: Vec<Agent>) -> Result<(Level, Vec<Agent>)> {
    let count = agents.len();
    let counted_from = now() + options.warmup;
    let deadline = counted_from + options.duration;
    let tasks: Vec<_> = agents
        .into_iter()
        .map(|mut agent| {
            tokio::spawn(async move {
                match tokio::time::timeout_at(deadline.into(), agent.work()).await {
                    Ok(Err(error)) => Err(error),
                    Ok(Ok(())) | Err(_) => Ok(agent),
                }
            })
        })
        .collect();
    tokio::time::sleep_until(counted_from.into()).await;
    let before = cpu(server)?;
    tokio::time::sleep_until(deadline.into()).await;
    let after = cpu(server)?;
    let mut agents = Vec::with_capacity(count);
    for task in tasks {
        agents.push(task.await??);
    }
    let level = measure(options, &agents, counted_from, [before, after]);
    ensure!(
        level.ended > 0,
        "no push ended: {}",
        level.failures().next().unwrap_or("too slow")
    );
    Ok((level, agents))
}

/// CPU of the server, if known, and of this process.
fn cpu(server: &Server) -> Result<(Option<Duration>, Duration)> {
    let own = process::cpu(std::process::id())?;
    Ok((server.pid.map(process::cpu).transpose()?, own))
}

fn measure(
    options: &Options,
    agents: &[Agent],
    counted_from: Instant,
    cpu: [(Option<Duration>, Duration); 2],
) -> Level {
    let samples = agents.iter().flat_map(|agent| &agent.samples);
    // Work is paid for when it ends, a sample belongs to where it starts.
    let ended = samples
        .clone()
        .filter(|sample| sample.start + sample.latency >= counted_from);
    let all = samples.clone().count();
    let mut level = Level::new(agents.len(), options.duration, ended.count());
    for sample in samples.filter(|sample| sample.start >= counted_from) {
        match &sample.outcome {
            Outcome::Done => level.latencies.push(sample.latency),
            Outcome::Conflict => level.conflicts += 1,
            Outcome::Failed(reason) => *level.errors.entry(reason.clone()).or_default() += 1,
        }
    }
    level.latencies.sort_unstable();
    let [(server_before, own_before), (server_after, own_after)] = cpu;
    level.generator_cpu = own_after.saturating_sub(own_before);
    level.server_cpu = server_after
        .zip(server_before)
        .map(|(after, before)| after.saturating_sub(before));
    level.traffic = Traffic {
        pushes: all,
        sent_bytes: agents.iter().map(|agent| agent.sent_bytes).sum(),
        received_bytes: agents.iter().map(Agent::received_bytes).sum(),
    };
    level
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgi;
    use std::process::Command;

    /// Pushes to stock git, and what an audit says then and after a branch was moved behind the agents' backs.
    #[test]
    fn pushes_arrive_and_the_audit_notices_what_does_not() {
        let root = tempfile::tempdir().unwrap();
        let repository = cgi::init_bare(root.path(), "r.git", "sha1").unwrap();
        let url = format!("http://{}/r.git", cgi::Backend::new(root.path()).spawn().unwrap());
        let target = Arc::new(Target::parse(&url).unwrap());
        let shape = Shape {
            files: 1..=3,
            file_bytes: 100,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let agents = runtime.block_on(async {
            preload::make_refs(&target, "ref", 3).await.unwrap();
            let mut agents = agents(&target, "test", 2, &shape);
            for _ in 0..2 {
                for agent in &mut agents {
                    agent.step().await.unwrap();
                }
            }
            agents
        });
        let outcomes = agents.iter().flat_map(|agent| &agent.samples);
        assert!(outcomes.clone().all(|sample| sample.outcome == Outcome::Done));
        let tips: Vec<_> = agents.iter().map(audit::Expected::of).collect();
        audit::check_refs(&url, &tips).unwrap();
        audit::check_objects(&url).unwrap();
        let moved = Command::new("git")
            .arg("-C")
            .arg(&repository)
            .args(["update-ref", "refs/heads/test-a1", "refs/heads/ref-000000"])
            .status();
        assert!(moved.unwrap().success());
        let refusal = audit::check_refs(&url, &tips).unwrap_err().to_string();
        assert_eq!(
            refusal,
            "1 branches are not as acknowledged, 'refs/heads/test-a1' for one"
        );
    }
}
