//! Loads on stock git, and what the audit says of them.

use super::*;
use crate::cgi;
use std::path::Path;
use std::process::Command;

struct Stock {
    root: tempfile::TempDir,
    repository: PathBuf,
    url: String,
    runtime: tokio::runtime::Runtime,
}

impl Stock {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let repository = cgi::init_bare(root.path(), "r.git", "sha1").unwrap();
        let url = format!("http://{}/r.git", cgi::Backend::new(root.path()).spawn().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        Self {
            root,
            repository,
            url,
            runtime,
        }
    }

    fn options(&self, plan: Plan) -> Options {
        Options {
            servers: vec![Server {
                name: "stock".to_owned(),
                url: self.url.clone(),
                pid: None,
                directory: None,
                probe: None,
            }],
            plan,
            levels: vec![2],
            rounds: 1,
            warmup: Duration::ZERO,
            duration: Duration::from_secs(1),
            shape: Shape {
                files: 1..=3,
                file_bytes: 100,
            },
            base: None,
            branches: 0,
            rate: None,
            operations_per_connection: 0,
            preload: 3,
            authorities: None,
            fsck: true,
        }
    }
}

fn git(path: &Path, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.arg("-C")
        .arg(path)
        .args(["-c", "user.name=a", "-c", "user.email=a@b"]);
    assert!(git.args(arguments).status().unwrap().success(), "{arguments:?}");
}

/// Each agent does so many operations, one agent after the other.
fn operate(stock: &Stock, run: &Run<'_>, agents: usize, operations: usize) -> Vec<Agent> {
    stock.runtime.block_on(async {
        let server = &run.options.servers[0];
        let target = run.target(server).unwrap();
        if let (Some(base), Some(path)) = (&run.base, &run.options.base) {
            run.auditor.push(path, &base.commit, &server.url, "base").unwrap();
        }
        preload::make_refs(&target, "ref", run.options.preload).await.unwrap();
        let mut agents = run.agents(&target, "test", now(), agents);
        for _ in 0..operations {
            for agent in &mut agents {
                agent.step().await.unwrap();
            }
        }
        agents
    })
}

fn outcomes(agents: &[Agent]) -> Vec<Outcome> {
    agents
        .iter()
        .flat_map(|agent| &agent.samples)
        .map(|sample| sample.outcome.clone())
        .collect()
}

#[test]
fn pushes_arrive_and_the_audit_notices_what_does_not() {
    let stock = Stock::new();
    let options = stock.options(Plan::only(Operation::Push));
    let run = Run::new(&options).unwrap();
    let agents = operate(&stock, &run, 2, 2);
    assert_eq!(outcomes(&agents), vec![Outcome::Done; 4]);
    let tips = audit::expected(&agents);
    run.auditor.check_refs(&stock.url, &tips).unwrap();
    run.auditor.check_objects(&stock.url).unwrap();
    git(
        &stock.repository,
        &["update-ref", "refs/heads/test-a1", "refs/heads/ref-000000"],
    );
    let refusal = run.auditor.check_refs(&stock.url, &tips).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "1 branches are not as acknowledged, 'refs/heads/test-a1' for one"
    );
}

/// Agents that share a branch build on their own commits, and the audit takes the last push of either.
#[test]
fn a_branch_may_be_shared() {
    let stock = Stock::new();
    let options = Options {
        branches: 1,
        ..stock.options(Plan::only(Operation::Push))
    };
    let run = Run::new(&options).unwrap();
    let agents = operate(&stock, &run, 3, 2);
    assert_eq!(outcomes(&agents), vec![Outcome::Done; 6]);
    let tips = audit::expected(&agents);
    run.auditor.check_refs(&stock.url, &tips).unwrap();
    git(&stock.repository, &["update-ref", "-d", "refs/heads/test-b0"]);
    assert!(run.auditor.check_refs(&stock.url, &tips).is_err());
}

/// Thin packs that stock git completes, on connections that last for two operations.
#[test]
fn edits_of_a_real_repository_arrive() {
    let stock = Stock::new();
    let work = stock.root.path().join("work");
    std::fs::create_dir_all(work.join("some/where")).unwrap();
    for (index, path) in ["top.txt", "some/one.txt", "some/where/two.txt", "some/where/three.txt"]
        .iter()
        .enumerate()
    {
        let lines: String = (0..200).map(|line| format!("{index} {line} of {path}\n")).collect();
        std::fs::write(work.join(path), lines).unwrap();
    }
    git(&work, &["init", "--quiet"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "--quiet", "-m", "base"]);
    let options = Options {
        base: Some(work),
        operations_per_connection: 2,
        ..stock.options(Plan::only(Operation::Push))
    };
    let run = Run::new(&options).unwrap();
    let agents = operate(&stock, &run, 2, 5);
    assert_eq!(outcomes(&agents), vec![Outcome::Done; 10]);
    run.auditor.check_refs(&stock.url, &audit::expected(&agents)).unwrap();
    run.auditor.check_objects(&stock.url).unwrap();
}

/// A clone gets everything, a fetch what another agent has pushed, and both see what was acknowledged.
#[test]
fn sessions_read_what_was_pushed() {
    let stock = Stock::new();
    let options = stock.options(Plan::Session(2));
    let run = Run::new(&options).unwrap();
    let mut agents = operate(&stock, &run, 2, 6);
    assert_eq!(outcomes(&agents), vec![Outcome::Done; 12]);
    let received: u64 = agents.iter().map(|agent| agent.traffic().1).sum();
    assert!(received > 10_000, "{received}");
    git(&stock.repository, &["update-ref", "-d", "refs/heads/test-a0"]);
    stock.runtime.block_on(agents[0].step()).unwrap();
    let last = outcomes(&agents[..1]).pop();
    assert_eq!(
        last,
        Some(Outcome::Failed(
            "an acknowledged push is not in the advertisement".to_owned()
        ))
    );
}
