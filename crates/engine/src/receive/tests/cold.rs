//! What a push loads of the cues of a repository that nobody has read yet.

use super::packs::{blob, entry, oid, pack_of};
use super::pushes::{NULL, Server, ok};
use crate::{Engine, Layer, Repository, RepositoryName};
use bytes::Bytes;
use cuesta_git::pack::EntryKind;
use cuesta_git::{ObjectId, ObjectKind};
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions};
use futures::TryStreamExt as _;
use std::sync::Arc;

const FILES: usize = 600;

fn content(file: usize, version: u32) -> Vec<u8> {
    format!("file {file} in version {version}\n").into_bytes()
}

/// A commit of a tree of many files, those below `changed` in version 1: the commit's id, and all its objects' entries.
fn commit(changed: usize, parent: Option<ObjectId>) -> (ObjectId, Vec<Vec<u8>>) {
    let blobs: Vec<Vec<u8>> = (0..FILES)
        .map(|file| content(file, u32::from(file < changed)))
        .collect();
    let row = |(file, blob): (usize, &Vec<u8>)| {
        let name = format!("100644 f{file:04}\0").into_bytes();
        [name, oid(ObjectKind::Blob, blob).as_bytes().to_vec()].concat()
    };
    let tree: Vec<u8> = blobs.iter().enumerate().flat_map(row).collect();
    let parent = parent.map_or(String::new(), |parent| format!("parent {parent}\n"));
    let tree_id = oid(ObjectKind::Tree, &tree);
    let commit =
        format!("tree {tree_id}\n{parent}author A <a@example.com> 1 +0000\ncommitter A <a@example.com> 1 +0000\n\nm\n");
    let tip = oid(ObjectKind::Commit, commit.as_bytes());
    let mut entries = vec![
        entry(EntryKind::Object(ObjectKind::Commit), commit.as_bytes()),
        entry(EntryKind::Object(ObjectKind::Tree), &tree),
    ];
    entries.extend(blobs.iter().map(|content| blob(content)));
    (tip, entries)
}

/// The repository as a node finds it that has just started and reads every cue in parts.
async fn restarted(server: &Server) -> Arc<Repository> {
    restarted_over(server, server.engine.bucket().clone()).await
}

async fn restarted_over(server: &Server, bucket: Bucket) -> Arc<Repository> {
    let mut parts = (server.parts)();
    let options = CacheOptions {
        small_bytes_max: 0,
        ..CacheOptions::default()
    };
    parts.cache = BlockCache::new(bucket, options).unwrap();
    let engine = Engine::open(parts).await.unwrap();
    let name = RepositoryName::parse("a/b").unwrap();
    engine.repository(&name).await.unwrap().unwrap()
}

async fn push(repository: &Repository, branch: &str, tip: ObjectId, entries: &[Vec<u8>]) {
    let command = crate::receive::RefCommand {
        name: branch.into(),
        old: NULL,
        new: tip,
    };
    let request = crate::receive::ReceiveRequest::new(vec![command], "somebody");
    let pack = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(pack_of(entries)))]);
    ok(&repository.receive(request, Some(pack), |_| ()).await.unwrap());
}

async fn base(server: &Server) -> ObjectId {
    let (tip, entries) = commit(0, None);
    push(&server.repository, "refs/heads/main", tip, &entries).await;
    tip
}

async fn first_layer(repository: &Repository) -> Arc<Layer> {
    let view = repository.view().await.unwrap();
    let record = Arc::clone(view.state().layers().iter().next().unwrap());
    Layer::of(&record, repository.id(), &view.world().cache).unwrap()
}

async fn in_bucket() -> Server {
    Server::new(|options| options.receive.inline_bytes_max = 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_loads_nothing_of_blobs_that_did_not_change() {
    let server = in_bucket().await;
    let first = base(&server).await;
    let repository = restarted(&server).await;
    let (tip, entries) = commit(3, Some(first));
    push(&repository, "refs/heads/next", tip, &entries[..5]).await;
    let layer = first_layer(&repository).await;
    let blob_sections = 48 * FILES as u64;
    // The blobs' filter, which tells that the blobs are new, is all.
    assert!(
        layer.loaded_bytes() < 1_500,
        "{} bytes of the cue",
        layer.loaded_bytes()
    );
    let view = repository.view().await.unwrap();
    for (file, version) in [(0, 0), (0, 1), (FILES - 1, 0)] {
        let content = content(file, version);
        let read = view.object(&oid(ObjectKind::Blob, &content)).await.unwrap();
        assert_eq!(read.unwrap(), (ObjectKind::Blob, content.into()));
    }
    assert!(layer.loaded_bytes() > blob_sections);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_blobs_that_come_again_are_stored_again_and_many_are_not() {
    for (again, stored) in [(60, 61), (FILES - 1, 1)] {
        let server = in_bucket().await;
        base(&server).await;
        let repository = restarted(&server).await;
        // Without a parent: all that it names is new to its history.
        let (tip, entries) = commit(1, None);
        push(&repository, "refs/heads/next", tip, &entries[..3 + again]).await;
        let view = repository.view().await.unwrap();
        let added = view.state().layers().iter().last().unwrap().meta.objects;
        assert_eq!(added, 2 + stored, "{again} blobs came again");
        for file in 0..FILES {
            let content = content(file, u32::from(file < 1));
            let read = view.object(&oid(ObjectKind::Blob, &content)).await.unwrap();
            assert_eq!(read.unwrap().1, content);
        }
        let report = repository.fsck(false, Arc::new(|_| ())).await.unwrap();
        assert_eq!(report.findings, []);
    }
}

/// A bucket that is a directory: cues are mapped, and many objects far apart are read in one go.
#[tokio::test(flavor = "multi_thread")]
async fn cues_in_a_directory_are_mapped() {
    let server = in_bucket().await;
    let first = base(&server).await;
    let directory = tempfile::tempdir().unwrap();
    let bucket = Bucket::open(directory.path().to_str().unwrap(), &BucketOptions::default()).unwrap();
    let keys: Vec<_> = server.engine.bucket().list("").try_collect().await.unwrap();
    for listed in keys {
        let payload = server.engine.bucket().get(&listed.key).await.unwrap();
        bucket.put(&listed.key, payload).await.unwrap();
    }
    let repository = restarted_over(&server, bucket.clone()).await;
    let (tip, entries) = commit(3, Some(first));
    push(&repository, "refs/heads/next", tip, &entries[..5]).await;
    let layer = first_layer(&repository).await;
    let view = repository.view().await.unwrap();
    let every_fifth = (0..FILES)
        .step_by(5)
        .map(|file| oid(ObjectKind::Blob, &content(file, 0)));
    let wanted: Vec<ObjectId> = every_fifth.collect();
    let objects = view.objects(&wanted).await.unwrap();
    for (object, file) in objects.iter().zip((0..FILES).step_by(5)) {
        assert_eq!(object.as_ref().unwrap().1, content(file, 0));
    }
    let (loaded, all) = (layer.loaded_bytes(), layer.meta().cue_bytes);
    assert!(
        loaded < all / 4,
        "only small sections are in memory of ours: {loaded} of {all}"
    );
}
