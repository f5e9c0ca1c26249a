//! Repositories as things with names: made, found, renamed, deleted; and layers whose bytes are damaged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod support;

use cuesta_engine::{EngineError, ErrorKind, Head, RepositoryName};
use cuesta_format::{AccountChange, Grantee, Role, RoleRecord, layer_cue_key};
use cuesta_git::{ObjectFormat, RefName};
use std::collections::BTreeSet;
use std::sync::Arc;
use support::history::History;
use support::layers::{Spec, build};
use support::{Rng, engine, push, repository};

fn name(text: &str) -> RepositoryName {
    RepositoryName::parse(text).unwrap()
}

#[tokio::test]
async fn a_repository_has_one_name_and_keeps_itself_when_renamed() {
    let engine = engine().await;
    let made = repository(&engine, ObjectFormat::Sha256).await;
    let again = engine
        .create_repository(&name("ann/thing"), ObjectFormat::Sha1, "bob")
        .await;
    assert!(matches!(again, Err(EngineError::RepositoryExists(_))));
    engine
        .rename_repository(&name("ann/thing"), &name("ann/other"), "ann")
        .await
        .unwrap();
    assert!(engine.repository(&name("ann/thing")).await.unwrap().is_none());
    let found = engine.repository(&name("ann/other")).await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&made, &found));
    assert_eq!(found.object_format(), ObjectFormat::Sha256);
    engine.delete_repository(&name("ann/other"), "ann").await.unwrap();
    assert!(engine.repository(&name("ann/other")).await.unwrap().is_none());
    let gone = engine.delete_repository(&name("ann/other"), "ann").await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_new_repository_has_an_unborn_head_that_can_be_moved() {
    let engine = engine().await;
    let repository = repository(&engine, ObjectFormat::Sha1).await;
    let branch = |text: &str| RefName::new(text.as_bytes()).unwrap();
    assert_eq!(
        repository.view().await.unwrap().head(),
        Head::Unborn(&branch("refs/heads/main"))
    );
    repository.set_head(branch("refs/heads/trunk"), "ann").await.unwrap();
    let view = repository.view().await.unwrap();
    assert_eq!(view.head(), Head::Unborn(&branch("refs/heads/trunk")));
    assert_eq!(view.refs().count(), 0);
    repository
        .set_setting("receive.denydeletes", Some("true"), "ann")
        .await
        .unwrap();
    let state = repository.view().await.unwrap().state().clone();
    assert_eq!(
        state.settings().get("receive.denydeletes").map(String::as_str),
        Some("true")
    );
}

/// Any byte of a cue changed: an error that says so, or (in a part that is not read) the right answer. Never a panic, and
/// never a wrong object.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_cue_is_noticed() {
    let mut rng = Rng(9);
    let history = History::random(ObjectFormat::Sha1, 6, &mut rng);
    let spec = Spec {
        commits: (0..6).collect(),
        ..Spec::default()
    };
    let closure = history.closure(history.commits.iter().map(|commit| commit.oid));
    let mut noticed = 0;
    for _ in 0..60 {
        let engine = engine().await;
        let repository = repository(&engine, ObjectFormat::Sha1).await;
        let mut layer = build(&history, &spec, &BTreeSet::new(), &mut rng);
        layer.inline = false;
        let (id, mut cue) = (layer.meta.id, layer.cue.to_vec());
        push(&engine, &repository, layer, Vec::new()).await;
        let at = rng.below(cue.len());
        cue[at] ^= 1 << rng.below(8);
        engine
            .bucket()
            .put(&layer_cue_key(repository.id(), id), cue.into())
            .await
            .unwrap();
        let view = repository.view().await.unwrap();
        for oid in &closure {
            match view.object(oid).await {
                Ok(object) => assert_eq!(object.unwrap().1.to_vec(), history.objects[oid].1),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    noticed += 1;
                    break;
                }
            }
        }
    }
    assert!(noticed > 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_pack_is_noticed() {
    let mut rng = Rng(10);
    let history = History::random(ObjectFormat::Sha1, 6, &mut rng);
    let spec = Spec {
        commits: (0..6).collect(),
        ..Spec::default()
    };
    let engine = engine().await;
    let mut damaged = 0;
    for round in 0..60 {
        let repository = engine
            .create_repository(&name(&format!("ann/r{round}")), ObjectFormat::Sha1, "ann")
            .await
            .unwrap();
        let mut layer = build(&history, &spec, &BTreeSet::new(), &mut rng);
        let mut pack = layer.pack.to_vec();
        let at = 12 + rng.below(pack.len() - 32);
        pack[at] ^= 1 << rng.below(8);
        layer.pack = pack.into();
        let oids = layer.oids.clone();
        push(&engine, &repository, layer, Vec::new()).await;
        let view = repository.view().await.unwrap();
        let mut noticed = false;
        for oid in &oids {
            match view.object(oid).await {
                Ok(object) => assert_eq!(object.unwrap().1.to_vec(), history.objects[oid].1),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    noticed = true;
                }
            }
        }
        damaged += u32::from(noticed);
    }
    // What a flip may spare: the base in a delta's header, which the cue says too.
    assert!(damaged > 50, "{damaged}");
}

#[tokio::test]
async fn roles_follow_a_repository_and_end_with_it() {
    let engine = engine().await;
    let repository = engine
        .create_repository(&name("ann/a"), ObjectFormat::Sha1, "ann")
        .await
        .unwrap();
    let grant = RoleRecord {
        repository: repository.id(),
        grantee: Grantee::Public,
        role: Some(Role::Read),
    };
    engine
        .change_accounts(vec![AccountChange::SetRole(grant)], "ann")
        .await
        .unwrap();
    engine
        .rename_repository(&name("ann/a"), &name("ann/b"), "ann")
        .await
        .unwrap();
    let roles = async || {
        engine
            .accounts()
            .await
            .unwrap()
            .fresh()
            .await
            .unwrap()
            .roles(repository.id())
            .cloned()
    };
    assert_eq!(roles().await.unwrap().public(), Some(Role::Read));
    engine.delete_repository(&name("ann/b"), "ann").await.unwrap();
    assert_eq!(roles().await, None);
}
