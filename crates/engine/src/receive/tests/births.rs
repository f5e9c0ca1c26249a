//! Repositories that a push makes, or does not.

use super::pushes::{NULL, Server, chain, ok, reasons};
use super::repo::Repo;
use crate::receive::{ReceiveReport, ReceiveRequest, RefCommand};
use crate::{Engine, Head, PushTarget, RepositoryName};
use bytes::Bytes;
use cuesta_git::{ObjectFormat, ObjectId, RefName};
use cuesta_store::Entropy;

fn name(text: &str) -> RepositoryName {
    RepositoryName::parse(text).unwrap()
}

async fn target(engine: &Engine) -> PushTarget {
    engine
        .push_target(&name("a/new"), ObjectFormat::Sha1, "somebody")
        .await
        .unwrap()
}

async fn push(target: &PushTarget, refs: &[(&str, ObjectId)], pack: Vec<u8>) -> ReceiveReport {
    let command = |(name, new): &(&str, ObjectId)| RefCommand {
        name: name.as_bytes().to_vec(),
        old: NULL,
        new: *new,
    };
    let mut receiver = target.receiver().await.unwrap();
    receiver.feed(Bytes::from(pack)).await;
    receiver.finish_pack().await;
    let request = ReceiveRequest::new(refs.iter().map(command).collect(), "somebody");
    receiver.finish(request).await.unwrap()
}

async fn is_there(engine: &Engine) -> bool {
    engine.repository(&name("a/new")).await.unwrap().is_some()
}

async fn head(engine: &Engine, repository: &str) -> String {
    let repository = engine.repository(&name(repository)).await.unwrap().unwrap();
    match repository.view().await.unwrap().head() {
        Head::Unborn(branch) => format!("unborn {branch}"),
        Head::Born(born) => born.symref.unwrap().to_string(),
        Head::Missing => "missing".to_owned(),
    }
}

#[tokio::test]
async fn a_refused_first_push_makes_nothing() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|options| options.receive.inline_bytes_max = 0).await;
    let pack = repo.pack(&[c[3].to_string()], &[]);
    let mut broken = pack.clone();
    *broken.last_mut().unwrap() ^= 1;
    let bad = ObjectId::Sha1([9; 20]);
    let main = "refs/heads/main";
    for (refs, pack) in [
        ([(main, c[3]), ("refs/heads/x", c[2])], broken),
        ([(main, bad), ("refs/heads/a..b", c[3])], pack.clone()),
    ] {
        let target = target(&server.engine).await;
        assert!(!is_there(&server.engine).await, "not before the push");
        let report = push(&target, &refs, pack).await;
        assert!(report.refs.iter().all(Result::is_err), "{report:?}");
        assert!(target.born().is_none());
        assert!(!is_there(&server.engine).await);
        assert_eq!(server.payloads().await, 0);
        let log = target.repository().id();
        assert_eq!((server.parts)().log_store.end(log).await.unwrap(), 0);
    }
    // One that succeeds in part is a success.
    let target = target(&server.engine).await;
    let report = push(&target, &[(main, bad), ("refs/heads/x", c[3])], pack).await;
    assert_eq!(reasons(&report), ["missing necessary objects", "ok"]);
    assert!(target.born().is_some() && is_there(&server.engine).await);
}

#[tokio::test]
async fn first_pushes_that_race_meet_in_one_repository() {
    let repo = Repo::new();
    let c = chain(&repo);
    for inline_bytes_max in [0, 1 << 20] {
        let server = Server::new(|options| options.receive.inline_bytes_max = inline_bytes_max).await;
        let engine = &server.engine;
        let (one, other, late) = (target(engine).await, target(engine).await, target(engine).await);
        let pack = || repo.pack(&[c[3].to_string()], &[]);
        let ones = [("refs/heads/one", c[3]), ("refs/heads/same", c[3])];
        let others = [("refs/heads/other", c[3]), ("refs/heads/same", c[2])];
        let (first, second) = tokio::join!(push(&one, &ones, pack()), push(&other, &others, pack()));
        let mut same = [first.refs[1].clone(), second.refs[1].clone()];
        same.sort();
        assert_eq!((&first.refs[0], &second.refs[0]), (&Ok(()), &Ok(())));
        assert_eq!(same, [Ok(()), Err("reference already exists".to_owned())]);
        ok(&push(&late, &[("refs/heads/late", c[1])], pack()).await);
        let found = engine.repository(&name("a/new")).await.unwrap().unwrap();
        assert_eq!(found.log().fresh().await.unwrap().refs().len(), 4);
        assert!(matches!(target(engine).await, PushTarget::Repository(_)));
    }
}

/// The ledger took the name of an earlier first push, but its answer was lost; somebody has pushed under that name since.
#[tokio::test]
async fn a_name_that_is_its_own_already_costs_nobody_their_pushes() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|_| ()).await;
    let engine = &server.engine;
    let pack = || repo.pack(&[c[3].to_string()], &[]);
    let slow = target(engine).await;
    let record = slow.repository().record();
    engine.directory().create("a/new", record, "somebody").await.unwrap();
    let PushTarget::Repository(named) = target(engine).await else {
        panic!("it has a name")
    };
    let named = PushTarget::Repository(named);
    ok(&push(&named, &[("refs/heads/one", c[3])], pack()).await);
    ok(&push(&slow, &[("refs/heads/other", c[3])], pack()).await);
    assert!(slow.born().is_some());
    let found = engine.repository(&name("a/new")).await.unwrap().unwrap();
    assert_eq!(found.log().fresh().await.unwrap().refs().len(), 2);
}

#[tokio::test]
async fn a_name_that_another_node_gave_away_refuses_the_push() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|options| options.receive.inline_bytes_max = 0).await;
    let target = target(&server.engine).await;
    let mut parts = (server.parts)();
    parts.entropy = Entropy::seeded(2);
    let node = Engine::open(parts).await.unwrap();
    let theirs = node
        .create_repository(&name("a/new"), ObjectFormat::Sha1, "")
        .await
        .unwrap();
    let report = push(&target, &[("refs/heads/main", c[3])], repo.pack(&["main".into()], &[])).await;
    assert_eq!(reasons(&report), ["the repository was made by another push meanwhile"]);
    assert_eq!((report.number, server.payloads().await), (None, 0));
    assert!(target.born().is_none());
    let found = server.engine.repository(&name("a/new")).await.unwrap().unwrap();
    assert_eq!(found.id(), theirs.id());
    assert!(found.log().fresh().await.unwrap().refs().is_empty());
}

/// One user may not be allowed to write to what another has made.
#[tokio::test]
async fn users_do_not_share_what_they_make() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|_| ()).await;
    let (one, new) = (target(&server.engine).await, name("a/new"));
    let other = server.engine.push_target(&new, ObjectFormat::Sha1, "another");
    let other = other.await.unwrap();
    let pack = || repo.pack(&[c[3].to_string()], &[]);
    ok(&push(&one, &[("refs/heads/one", c[3])], pack()).await);
    let report = push(&other, &[("refs/heads/other", c[3])], pack()).await;
    assert_eq!(reasons(&report), ["the repository was made by another push meanwhile"]);
    let found = server.engine.repository(&new).await.unwrap().unwrap();
    assert_eq!(found.id(), one.repository().id());
    assert_eq!(found.log().fresh().await.unwrap().refs().len(), 1);
}

#[tokio::test]
async fn a_name_that_was_deleted_does_not_come_back_by_a_push_under_way() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|_| ()).await;
    let engine = &server.engine;
    let (one, other) = (target(engine).await, target(engine).await);
    let pack = || repo.pack(&[c[3].to_string()], &[]);
    ok(&push(&one, &[("refs/heads/one", c[3])], pack()).await);
    engine.delete_repository(&name("a/new"), "").await.unwrap();
    push(&other, &[("refs/heads/other", c[3])], pack()).await;
    assert!(!is_there(engine).await);
    // And who comes now begins anew.
    ok(&push(&target(engine).await, &[("refs/heads/new", c[3])], pack()).await);
    let found = engine.repository(&name("a/new")).await.unwrap().unwrap();
    assert_eq!(found.log().fresh().await.unwrap().refs().len(), 1);
}

#[tokio::test]
async fn head_follows_the_first_branches() {
    let repo = Repo::new();
    let c = chain(&repo);
    let cases: [(&[&str], &str); 5] = [
        (&["topic", "main"], "refs/heads/main"),
        (&["a", "master", "z"], "refs/heads/master"),
        (&["z", "b", "c"], "refs/heads/b"),
        (&["../tags/v1"], "unborn refs/heads/main"),
        (&["../tags/v1", "x"], "refs/heads/x"),
    ];
    for (branches, expected) in cases {
        let server = Server::new(|_| ()).await;
        let names: Vec<String> = branches
            .iter()
            .map(|branch| format!("refs/heads/{branch}").replace("heads/../", ""))
            .collect();
        let refs: Vec<(&str, ObjectId)> = names.iter().map(|name| (name.as_str(), c[3])).collect();
        let pack = repo.pack(&["main".into()], &[]);
        let made = target(&server.engine).await;
        ok(&push(&made, &refs, pack.clone()).await);
        assert_eq!(head(&server.engine, "a/new").await, expected);
        assert_eq!(made.repository().log().current().number(), 1, "one edit");
        // One that was made before and never had a branch.
        let there = PushTarget::Repository(server.repository.clone());
        ok(&push(&there, &refs, pack.clone()).await);
        assert_eq!(head(&server.engine, "a/b").await, expected);
        // Later branches change nothing, nor do those beside a head that was set.
        if expected != "unborn refs/heads/main" {
            ok(&push(&there, &[("refs/heads/aaa", c[2])], pack).await);
            assert_eq!(head(&server.engine, "a/b").await, expected);
        }
    }
}

#[tokio::test]
async fn head_that_was_set_stays() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|_| ()).await;
    let trunk = RefName::new(b"refs/heads/trunk").unwrap();
    server.repository.set_head(trunk, "").await.unwrap();
    let there = PushTarget::Repository(server.repository.clone());
    let pack = repo.pack(&["main".into()], &[]);
    ok(&push(&there, &[("refs/heads/master", c[3])], pack).await);
    assert_eq!(head(&server.engine, "a/b").await, "unborn refs/heads/trunk");
}
