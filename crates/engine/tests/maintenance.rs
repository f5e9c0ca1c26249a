//! Compaction of repositories that grew push by push.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod support;

use cuesta_engine::Flushed;
use cuesta_git::ObjectFormat;
use support::source::{Source, Target};

/// A repository of many flushed layers, and what was pushed into it.
async fn grown(pushes: usize) -> (Source, Target) {
    let (source, target) = (Source::filled(ObjectFormat::Sha1), Target::new().await);
    for push in 0..pushes {
        source.commit(&format!("dir{}/file", push % 3), &format!("push {push}\n"));
        if push % 5 == 0 {
            source.git(&["tag", "-a", "-m", "tag", &format!("t{push}")]);
        }
        target.import(source.path()).await;
        let flushed = target.repository().await.flush().await.unwrap();
        assert_eq!(flushed, Flushed::Layers(1));
    }
    (source, target)
}

async fn layer_count(target: &Target) -> usize {
    target.repository().await.view().await.unwrap().state().layers().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_layers_become_few_and_lose_nothing() {
    let (source, target) = grown(20).await;
    assert_eq!(layer_count(&target).await, 20);
    let repository = target.repository().await;
    let before = repository.view().await.unwrap();
    let done = repository.maintain().await.unwrap();
    assert!(done.merges > 0 && done.overtaken == 0, "{done:?}");
    assert_eq!(layer_count(&target).await, 20 - done.layers_merged + done.merges);
    assert!(layer_count(&target).await <= 8);
    target.equals(&source).await;
    // A view from before still reads everything.
    let oids: Vec<_> = before.refs().map(|shown| shown.oid).collect();
    assert!(before.objects(&oids).await.unwrap().iter().all(Option::is_some));
    assert_eq!(
        repository.maintain().await.unwrap(),
        Default::default(),
        "nothing is left to do"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_work_do_no_harm() {
    let (source, target) = grown(12).await;
    let repository = target.repository().await;
    let (one, other) = tokio::join!(repository.maintain(), repository.maintain());
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(one.merges + other.merges > 0);
    assert!(layer_count(&target).await <= 8, "{one:?} {other:?}");
    target.equals(&source).await;
}
