use super::*;
use crate::config::Settings;
use crate::storage::{self, Role};
use bytes::Bytes;
use cuesta_engine::RepositoryName;
use cuesta_engine::receive::{ReceiveRequest, RefCommand};
use cuesta_git::{ObjectFormat, ObjectId};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Larger than what may travel in the ledger.
const LARGE_LEN: usize = 3 << 19;

fn git(directory: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(directory);
    let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
    let mut child = command.stdin(stdin).stdout(stdout).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "git {arguments:?}");
    output.stdout
}

/// A commit without parents that holds one file which cannot be packed small, and the pack of it.
fn push_of(len: usize, seed: u64) -> (ObjectId, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let words = (0..).map(|n: u64| ((seed << 32) + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17);
    let noise: Vec<u8> = words.flat_map(u64::to_le_bytes).take(len).collect();
    let head = format!("commit refs/heads/x\ncommitter C <c@x> {seed} +0000\ndata 0\nM 644 inline f\ndata {len}\n");
    git(directory.path(), &["init", "-q", "--bare"], b"");
    git(
        directory.path(),
        &["fast-import", "--quiet"],
        &[head.as_bytes(), &noise, b"\n"].concat(),
    );
    let pack = git(
        directory.path(),
        &["pack-objects", "--revs", "--stdout", "-q"],
        b"refs/heads/x\n",
    );
    let hex = git(directory.path(), &["rev-parse", "refs/heads/x"], b"");
    (ObjectId::from_hex(ObjectFormat::Sha1, &hex[..40]).unwrap(), pack)
}

async fn push(repository: &Repository, len: usize, seed: u64) {
    let (tip, pack) = push_of(len, seed);
    let command = RefCommand {
        name: format!("refs/heads/b{seed}").into_bytes(),
        old: ObjectId::null(ObjectFormat::Sha1),
        new: tip,
    };
    let mut receiver = repository.receiver().await.unwrap();
    receiver.feed(Bytes::from(pack)).await;
    receiver.finish_pack().await;
    let report = receiver.finish(ReceiveRequest::new(vec![command], "")).await.unwrap();
    assert_eq!(report.refs, [Ok(())]);
}

async fn node(data: &Path) -> Arc<Node> {
    let settings = Settings {
        data: data.to_owned(),
        bucket: data.join("bucket").display().to_string(),
        ..Settings::default()
    };
    let storage = storage::open(&settings, Role::Server).await.unwrap();
    Node::new(settings, storage)
}

fn name() -> RepositoryName {
    RepositoryName::parse("a/b").unwrap()
}

/// A life of a server, which ends as if by a crash.
fn life<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(work)
}

#[test]
fn what_is_to_be_deleted_is_found_without_the_hint() {
    let directory = tempfile::tempdir().unwrap();
    life(async {
        let node = node(directory.path()).await;
        // Names before and behind, more than one step takes.
        for number in 0..40 {
            let name = RepositoryName::parse(&format!("{}/r{number}", if number < 20 { "0" } else { "z" })).unwrap();
            node.engine
                .create_repository(&name, ObjectFormat::Sha1, "")
                .await
                .unwrap();
        }
        let made = node.engine.create_repository(&name(), ObjectFormat::Sha1, "").await;
        let repository = made.unwrap();
        for seed in 0..8 {
            push(&repository, LARGE_LEN, seed).await;
        }
        assert_eq!(repository.maintain().await.unwrap().merges, 1);
        assert!(node.uncollected.is_empty(), "nobody noted it");
    });
    life(async {
        let node = node(directory.path()).await;
        assert!(node.uncollected.is_empty());
        let mut revisit = Revisit::default();
        revisit.step(&node, 0).await;
        assert!(node.uncollected.is_empty(), "a few at a time");
        revisit.step(&node, 0).await;
        revisit.step(&node, 0).await;
        let repository = node.engine.repository(&name()).await.unwrap().unwrap();
        assert_eq!(node.uncollected.due(i64::MAX, 8), [repository.id()]);
        // Once.
        node.uncollected.note(repository.id(), None);
        revisit.step(&node, 0).await;
        assert!(node.uncollected.is_empty());
    });
}

/// The files below a directory whose names end so.
fn files(directory: &Path, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.map(|path| match path.is_dir() {
        true => files(&path, end),
        false => vec![path],
    });
    let named = |path: &PathBuf| path.to_str().unwrap().ends_with(end);
    found.flatten().filter(named).collect()
}

#[test]
fn a_repository_that_cannot_be_looked_at_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    life(async {
        let node = node(directory.path()).await;
        let made = node.engine.create_repository(&name(), ObjectFormat::Sha1, "").await;
        let repository = made.unwrap();
        for seed in 0..8 {
            push(&repository, LARGE_LEN, seed).await;
        }
        assert_eq!(repository.maintain().await.unwrap().merges, 1);
        repository.write_checkpoint().await.unwrap().unwrap();
    });
    let checkpoints = files(&directory.path().join("bucket"), ".ckpt");
    let away = |path: &Path| path.with_extension("away");
    assert!(!checkpoints.is_empty());
    for path in &checkpoints {
        std::fs::rename(path, away(path)).unwrap();
    }
    life(async {
        let node = node(directory.path()).await;
        let mut revisit = Revisit::default();
        revisit.step(&node, 0).await;
        revisit.step(&node, 60_000).await;
        assert!(node.uncollected.is_empty(), "its log cannot be read");
        for path in &checkpoints {
            std::fs::rename(away(path), path).unwrap();
        }
        revisit.step(&node, 179_999).await;
        assert!(node.uncollected.is_empty(), "the second pause is twice the first");
        revisit.step(&node, 180_000).await;
        assert_eq!(node.uncollected.len(), 1);
        node.uncollected
            .note(node.engine.repository(&name()).await.unwrap().unwrap().id(), None);
        revisit.step(&node, i64::MAX).await;
        assert!(node.uncollected.is_empty(), "once");
    });
}

#[test]
fn large_pushes_are_merged_too() {
    let directory = tempfile::tempdir().unwrap();
    life(async {
        let node = node(directory.path()).await;
        let made = node.engine.create_repository(&name(), ObjectFormat::Sha1, "").await;
        let repository = made.unwrap();
        for seed in 0..8 {
            push(&repository, LARGE_LEN, seed).await;
            node.unflushed.note(&repository);
        }
        let layers = || repository.log().current().layers().clone();
        assert!(layers().len() == 8 && layers().iter().all(|layer| !layer.is_inline()));
        let (flushed, due) = mpsc::channel(1);
        round(&node, &flushed).await;
        drop(flushed);
        maintenance::run(Arc::clone(&node), due, None).await;
        assert_eq!(layers().len(), 1);
        assert!(node.unflushed.is_empty(), "an idle repository is in no round");
        assert_eq!(node.uncollected.len(), 1, "what was merged is to be deleted");
        collect_round(&node).await;
        assert!(
            repository
                .log()
                .current()
                .retired()
                .iter()
                .all(|layer| layer.seen_ms.is_none())
        );
    });
    life(async {
        let node = node(directory.path()).await;
        assert_eq!(node.uncollected.len(), 1, "also after a crash");
        collect_round(&node).await;
        let repository = node.engine.repository(&name()).await.unwrap().unwrap();
        let state = repository.log().current();
        assert_eq!(state.retired().len(), 8, "they have a day");
        assert!(state.retired().iter().all(|layer| layer.seen_ms.is_some()));
        assert_eq!(node.uncollected.due(i64::MAX, 8), [repository.id()]);
        assert_eq!(node.uncollected.due(node.clock.now_ms(), 8), []);
        node.engine.delete_repository(&name(), "").await.unwrap();
        node.uncollected.note(repository.id(), Some(0));
        collect_round(&node).await;
        assert!(
            node.uncollected.is_empty() && !node.engine.has_abandoned_due(),
            "the directory sees to it now"
        );
    });
}

#[test]
fn bases_are_chosen_once_a_repository_is_quiet() {
    let directory = tempfile::tempdir().unwrap();
    life(async {
        let node = node(directory.path()).await;
        let made = node.engine.create_repository(&name(), ObjectFormat::Sha1, "").await;
        let repository = made.unwrap();
        push(&repository, LARGE_LEN, 1).await;
        let chosen = || repository.log().current().layers()[0].meta.bases_chosen;
        let (flushed, due) = mpsc::channel(1);
        flushed.send(Arc::clone(&repository)).await.unwrap();
        let maintenance = tokio::spawn(maintenance::run(Arc::clone(&node), due, Some(Duration::ZERO)));
        let wait = async {
            while !chosen() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
        drop(flushed);
        maintenance.await.unwrap();
    });
}

#[test]
fn what_a_crash_left_in_the_ledger_is_flushed_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    life(async {
        let node = node(directory.path()).await;
        for (owner, is_pushed) in [("a", true), ("c", false)] {
            let name = RepositoryName::parse(&format!("{owner}/b")).unwrap();
            let made = node.engine.create_repository(&name, ObjectFormat::Sha1, "").await;
            let repository = made.unwrap();
            if is_pushed {
                let _expected = node.unflushed.expect(repository.id());
                push(&repository, 100, 1).await;
            }
        }
    });
    life(async {
        let node = node(directory.path()).await;
        resume(&node).await;
        assert_eq!(node.unflushed.len(), 1, "only where something may be left");
        let (flushed, _due) = mpsc::channel(1);
        round(&node, &flushed).await;
        let repository = node.engine.repository(&name()).await.unwrap().unwrap();
        let state = repository.view().await.unwrap().state().clone();
        assert!(!state.layers().is_empty() && state.layers().iter().all(|layer| !layer.is_inline()));
    });
    life(async {
        let node = node(directory.path()).await;
        resume(&node).await;
        assert!(node.unflushed.is_empty(), "nothing is left");
    });
}

#[test]
fn what_cannot_be_opened_is_remembered_and_what_is_gone_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let hints = directory.path().join("ledger/unflushed");
    let away = directory.path().join("away");
    let (kept, checkpoints) = life(async {
        let node = node(directory.path()).await;
        let make = async |name: &str| {
            let name = RepositoryName::parse(name).unwrap();
            node.engine
                .create_repository(&name, ObjectFormat::Sha1, "")
                .await
                .unwrap()
        };
        let (kept, gone) = (make("a/b").await, make("c/d").await);
        push(&kept, 100, 1).await;
        kept.write_checkpoint().await.unwrap().unwrap();
        for repository in [&kept, &gone] {
            let _expected = node.unflushed.expect(repository.id());
            push(repository, 100, 2).await;
        }
        node.engine
            .delete_repository(&RepositoryName::parse("c/d").unwrap(), "")
            .await
            .unwrap();
        let key = cuesta_format::checkpoint_key(kept.id(), 0).to_string();
        let place = directory.path().join("bucket").join(&key);
        (kept.id(), place.parent().unwrap().to_owned())
    });
    // Without its checkpoint the log cannot be read.
    std::fs::rename(&checkpoints, &away).unwrap();
    let hinted = || std::fs::read_to_string(&hints).unwrap();
    life(async {
        let node = node(directory.path()).await;
        for _ in 0..2 {
            resume(&node).await;
            node.unflushed.settle();
            assert!(node.unflushed.is_empty());
            assert_eq!(hinted(), format!("{kept}\n"));
        }
        std::fs::rename(&away, &checkpoints).unwrap();
        resume(&node).await;
        assert_eq!(node.unflushed.len(), 1);
        let (flushed, _due) = mpsc::channel(1);
        round(&node, &flushed).await;
        assert_eq!(hinted(), "");
    });
}
