//! Answers that are kept and shared, against what each request would be sent by itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod support;

use bytes::Bytes;
use cuesta_engine::upload::{AnswerCounters, Deepen, ObjectFilter, UploadRequest, answer, boundary, plan};
use cuesta_engine::{
    AnswersOptions, Engine, EngineError, EngineOptions, EngineParts, Repository, RepositoryName, View,
};
use cuesta_format::{RefTarget, RefUpdate, layer_pack_key};
use cuesta_git::{HiddenRefs, ObjectFormat, ObjectId, ObjectKind, RefName};
use cuesta_ledger::{LogStore, MemoryStore};
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions, Clock, Entropy, Workers};
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::Rng;
use support::git::Git;
use support::history::History;
use support::layers::{Spec, build};

/// Stores that outlive engines, and a directory for answers.
struct Ground {
    bucket: Bucket,
    log_store: Arc<dyn LogStore>,
    directory: tempfile::TempDir,
    history: History,
    rng: Rng,
}

impl Ground {
    fn new(format: ObjectFormat) -> Self {
        let mut rng = Rng(77);
        Self {
            bucket: Bucket::open("memory:", &BucketOptions::default()).unwrap(),
            log_store: Arc::new(MemoryStore::new()),
            directory: tempfile::tempdir().unwrap(),
            history: History::random(format, 24, &mut rng),
            rng,
        }
    }

    /// An engine that keeps whatever is asked for, and has nothing in memory yet.
    async fn engine(&self) -> Engine {
        let answers = AnswersOptions {
            effort_bytes_min: 0,
            ..AnswersOptions::new(self.directory.path().to_owned(), 64 << 20)
        };
        self.engine_with(answers, Workers::Pool(tokio::runtime::Handle::current()))
            .await
    }

    async fn engine_with(&self, answers: AnswersOptions, workers: Workers) -> Engine {
        let parts = EngineParts {
            cache: BlockCache::new(self.bucket.clone(), CacheOptions::default()).unwrap(),
            log_store: Arc::clone(&self.log_store),
            clock: Clock::new(|| 1_700_000_000_000),
            entropy: Entropy::system(),
            workers,
            options: EngineOptions {
                answers: Some(answers),
                ..EngineOptions::default()
            },
        };
        Engine::open(parts).await.unwrap()
    }

    /// A repository with the whole history, in three layers, and a tag of its last commit.
    async fn repository(&mut self, engine: &Engine, name: &str) -> Arc<Repository> {
        let name = RepositoryName::parse(name).unwrap();
        let repository = engine
            .create_repository(&name, self.history.format, "ann")
            .await
            .unwrap();
        let mut earlier = BTreeSet::new();
        for part in 0..3 {
            let mut spec = Spec {
                commits: (part * 8..part * 8 + 8).collect(),
                ..Spec::default()
            };
            if part == 2 {
                spec.tags.extend(0..self.history.tags.len());
                let roots = self.history.tags.iter().filter(|tag| is_root(tag.kind));
                let roots: BTreeSet<ObjectId> = roots.map(|tag| tag.target).collect();
                spec.roots.extend(roots);
            }
            let layer = loop {
                let layer = build(&self.history, &spec, &earlier, &mut self.rng);
                if !layer.inline {
                    break layer;
                }
            };
            earlier.extend(layer.oids.iter().copied());
            support::push(engine, &repository, layer, Vec::new()).await;
        }
        repository
    }

    /// A layer with the last commit alone, copies of what the others have.
    fn one_more_layer(&mut self) -> support::layers::Built {
        let spec = Spec {
            commits: [23].into(),
            ..Spec::default()
        };
        let earlier = self.history.commits.iter().map(|commit| commit.oid).collect();
        loop {
            let layer = build(&self.history, &spec, &earlier, &mut self.rng);
            if !layer.inline {
                return layer;
            }
        }
    }

    /// A ref below `refs/tags/secret/` to a tag of the last commit.
    async fn add_secret_tag(&self, repository: &Repository, tag: ObjectId) {
        let mut edit = repository.edit(cuesta_format::Cause::Push, "ann");
        edit.refs = vec![RefUpdate {
            name: RefName::new(&b"refs/tags/secret/one"[..]).unwrap(),
            old: None,
            new: Some(RefTarget {
                oid: tag,
                peeled: Some(self.commit(23)),
            }),
        }];
        repository.log().commit(edit).await.unwrap();
    }

    fn commit(&self, number: usize) -> ObjectId {
        self.history.commits[number].oid
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// The commit, with all of its tree.
    fn whole(&self, number: usize) -> BTreeSet<String> {
        let commit = &self.history.commits[number];
        let mut whole = self.history.below(&commit.tree);
        whole.extend([commit.tree, commit.oid]);
        whole.iter().map(ObjectId::to_string).collect()
    }
}

fn is_root(kind: ObjectKind) -> bool {
    matches!(kind, ObjectKind::Tree | ObjectKind::Blob)
}

async fn reopened(engine: &Engine, name: &str) -> View {
    let name = RepositoryName::parse(name).unwrap();
    let repository = engine.repository(&name).await.unwrap().unwrap();
    repository.view().await.unwrap()
}

/// A clone of depth 1.
async fn depth_one(view: &View, want: ObjectId) -> UploadRequest {
    let depth = Deepen::Depth(NonZeroU32::new(1).unwrap());
    let drawn = boundary(view, &[want], &[], &depth).await.unwrap();
    UploadRequest {
        wants: vec![want],
        ofs_delta: true,
        boundary: Some(Arc::new(drawn)),
        ..UploadRequest::default()
    }
}

async fn bytes_of(view: &View, request: &UploadRequest) -> Result<Vec<u8>, EngineError> {
    let pack = answer(view, request).await?;
    Ok(pack.stream().try_collect::<Vec<Bytes>>().await?.concat())
}

/// The objects of a shallow pack, as stock git finds them, strictly checked.
fn objects(format: ObjectFormat, pack: &[u8], tip: ObjectId) -> BTreeSet<String> {
    let client = Git::new(format);
    client.set_shallow(&[tip].into());
    client.run(&["index-pack", "--stdin", "--strict"], pack).unwrap();
    client
        .run(&["update-ref", "refs/heads/main", &tip.to_string()], b"")
        .unwrap();
    client.run(&["fsck", "--full", "--strict"], b"").unwrap();
    let args = ["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"];
    let listed = String::from_utf8(client.run(&args, b"").unwrap()).unwrap();
    listed.lines().map(str::to_owned).collect()
}

fn counts(engine: &Engine) -> AnswerCounters {
    engine.answer_counters().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_kept_and_needs_no_object_again() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let mut ground = Ground::new(format);
        let engine = ground.engine().await;
        let repository = ground.repository(&engine, "ann/thing").await;
        let view = repository.view().await.unwrap();
        let request = depth_one(&view, ground.commit(23)).await;
        let first = bytes_of(&view, &request).await.unwrap();
        assert_eq!(objects(format, &first, ground.commit(23)), ground.whole(23));
        assert_eq!(bytes_of(&view, &request).await.unwrap(), first);
        assert_eq!((counts(&engine).made, counts(&engine).kept), (1, 1));
        // Without their packs, layers can be asked what they hold, but not for it.
        for record in view.state().layers() {
            ground
                .bucket
                .delete(&layer_pack_key(repository.id(), record.meta.id))
                .await
                .unwrap();
        }
        drop((engine, repository, view));
        let engine = ground.engine().await;
        let view = reopened(&engine, "ann/thing").await;
        let request = depth_one(&view, ground.commit(23)).await;
        let made_anew = async { plan(&view, &request).await?.stream().try_collect::<Vec<Bytes>>().await };
        assert!(made_anew.await.is_err());
        let pack = answer(&view, &request).await.unwrap();
        assert_eq!(
            (pack.object_count() as usize, pack.bytes()),
            (ground.whole(23).len(), first.len() as u64)
        );
        assert_eq!(bytes_of(&view, &request).await.unwrap(), first);
        assert_eq!((counts(&engine).made, counts(&engine).kept), (0, 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_moves_takes_over_what_it_can() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let mut ground = Ground::new(format);
        let engine = ground.engine().await;
        let view = ground.repository(&engine, "ann/thing").await.view().await.unwrap();
        for number in 8..24 {
            let tip = ground.commit(number);
            let pack = bytes_of(&view, &depth_one(&view, tip).await).await.unwrap();
            assert_eq!(objects(format, &pack, tip), ground.whole(number), "commit {number}");
        }
        assert!(counts(&engine).reused > 0 && counts(&engine).made == 16);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_answer_is_made_again() {
    let mut ground = Ground::new(ObjectFormat::Sha1);
    let engine = ground.engine().await;
    let view = ground.repository(&engine, "ann/thing").await.view().await.unwrap();
    let request = depth_one(&view, ground.commit(20)).await;
    let first = bytes_of(&view, &request).await.unwrap();
    drop((engine, view));
    for at in [0, first.len() / 2, first.len() - 1, first.len() + 3] {
        let [path] = &ground.files()[..] else {
            panic!("one answer is kept")
        };
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at] ^= 0x40;
        std::fs::write(path, bytes).unwrap();
        let engine = ground.engine().await;
        let view = reopened(&engine, "ann/thing").await;
        let request = depth_one(&view, ground.commit(20)).await;
        let pack = bytes_of(&view, &request).await.unwrap();
        assert_eq!(objects(ObjectFormat::Sha1, &pack, ground.commit(20)), ground.whole(20));
        assert_eq!((counts(&engine).files.corrupt, counts(&engine).made), (1, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_at_once_shares_one_production() {
    let mut ground = Ground::new(ObjectFormat::Sha1);
    let engine = ground.engine().await;
    let view = ground.repository(&engine, "ann/thing").await.view().await.unwrap();
    let request = depth_one(&view, ground.commit(22)).await;
    let packs = futures::future::join_all((0..12).map(|_| bytes_of(&view, &request))).await;
    let first = packs[0].as_ref().unwrap();
    assert_eq!(objects(ObjectFormat::Sha1, first, ground.commit(22)), ground.whole(22));
    assert!(packs.iter().all(|pack| pack.as_ref().unwrap() == first));
    let counts = counts(&engine);
    assert_eq!((counts.made, counts.joined + counts.kept), (1, 11));
}

impl Ground {
    /// An engine that remembers where copies come from, however few bytes they have.
    async fn engine_that_recalls(&self, recipe_bytes_max: usize) -> Engine {
        let answers = AnswersOptions {
            copied_bytes_min: 0,
            recipe_bytes_max,
            ..AnswersOptions::new(self.directory.path().to_owned(), 64 << 20)
        };
        self.engine_with(answers, Workers::Pool(tokio::runtime::Handle::current()))
            .await
    }

    /// Takes all packs out of the bucket; answers them.
    async fn take_packs(&self, view: &View, repository: &Repository) -> Vec<(String, Bytes)> {
        let mut packs = Vec::new();
        for record in view.state().layers() {
            let key = layer_pack_key(repository.id(), record.meta.id);
            packs.push((key.clone(), self.bucket.get(&key).await.unwrap()));
            self.bucket.delete(&key).await.unwrap();
        }
        packs
    }
}

fn copied(ground: &Ground, number: usize, filter: ObjectFilter) -> UploadRequest {
    UploadRequest {
        wants: vec![ground.commit(number)],
        ofs_delta: true,
        filter,
        ..UploadRequest::default()
    }
}

async fn made_alone(view: &View, request: &UploadRequest) -> Vec<u8> {
    let pack = plan(view, request).await.unwrap().stream();
    pack.try_collect::<Vec<Bytes>>().await.unwrap().concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_copied_is_copied_again_without_a_plan_and_from_the_same_layers_only() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let mut ground = Ground::new(format);
        let engine = ground.engine_that_recalls(1 << 20).await;
        let repository = ground.repository(&engine, "ann/thing").await;
        let view = repository.view().await.unwrap();
        let requests = [
            copied(&ground, 23, ObjectFilter::All),
            copied(&ground, 20, ObjectFilter::All),
            copied(&ground, 23, ObjectFilter::NoBlobs),
            // One layer, as it lies.
            copied(&ground, 7, ObjectFilter::All),
        ];
        for request in &requests {
            let alone = made_alone(&view, request).await;
            Git::new(format).run(&["index-pack", "--stdin"], &alone).unwrap();
            for _ in 0..3 {
                assert!(bytes_of(&view, request).await.unwrap() == alone);
            }
        }
        assert_eq!((counts(&engine).recalled, counts(&engine).made), (8, 0));
        assert!(ground.files().is_empty());
        // Other layers: the same objects are elsewhere.
        support::push(&engine, &repository, ground.one_more_layer(), Vec::new()).await;
        let view = repository.view().await.unwrap();
        for request in &requests {
            assert!(bytes_of(&view, request).await.unwrap() == made_alone(&view, request).await);
        }
        assert_eq!(counts(&engine).recalled, 8);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_copies_at_once_plans_and_hashes_once_whether_recipes_fit_or_not() {
    for recipe_bytes_max in [1 << 20, 100, 0] {
        let mut ground = Ground::new(ObjectFormat::Sha1);
        let engine = ground.engine_that_recalls(recipe_bytes_max).await;
        let view = ground.repository(&engine, "ann/thing").await.view().await.unwrap();
        let request = copied(&ground, 23, ObjectFilter::NoBlobs);
        let alone = made_alone(&view, &request).await;
        let first = answer(&view, &request).await.unwrap();
        let packs = futures::future::join_all((0..12).map(|_| bytes_of(&view, &request))).await;
        assert!(packs.iter().all(|pack| *pack.as_ref().unwrap() == alone));
        assert_eq!((counts(&engine).joined, counts(&engine).recalled), (12, 0));
        drop(first);
        assert!(bytes_of(&view, &request).await.unwrap() == alone);
        assert_eq!(counts(&engine).recalled == 1, recipe_bytes_max == 1 << 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_on_when_who_was_first_leaves() {
    let mut ground = Ground::new(ObjectFormat::Sha1);
    let engine = ground.engine_that_recalls(1 << 20).await;
    let view = ground.repository(&engine, "ann/thing").await.view().await.unwrap();
    let request = copied(&ground, 23, ObjectFilter::All);
    let [leaver, stayer] = [
        answer(&view, &request).await.unwrap(),
        answer(&view, &request).await.unwrap(),
    ];
    let mut leaver = leaver.stream();
    leaver.next().await.unwrap().unwrap();
    drop(leaver);
    let pack = stayer.stream().try_collect::<Vec<Bytes>>().await.unwrap().concat();
    assert!(pack == made_alone(&view, &request).await);
    assert_eq!(counts(&engine).joined, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_breaks_off_is_cut_for_all_and_made_anew() {
    let mut ground = Ground::new(ObjectFormat::Sha1);
    let engine = ground.engine_that_recalls(1 << 20).await;
    let repository = ground.repository(&engine, "ann/thing").await;
    let view = repository.view().await.unwrap();
    let request = copied(&ground, 23, ObjectFilter::All);
    let [first, second] = [
        answer(&view, &request).await.unwrap(),
        answer(&view, &request).await.unwrap(),
    ];
    let packs = ground.take_packs(&view, &repository).await;
    let mut first = first.stream();
    while let Some(chunk) = first.next().await {
        if chunk.is_err() {
            break;
        }
    }
    assert!(second.stream().try_collect::<Vec<Bytes>>().await.is_err());
    for (key, pack) in packs {
        ground.bucket.put(&key, pack).await.unwrap();
    }
    // The first is still there.
    let again = bytes_of(&view, &request).await.unwrap();
    assert!(again == made_alone(&view, &request).await);
    assert_eq!((counts(&engine).joined, counts(&engine).recalled), (1, 0));
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_is_hidden_is_in_no_copy() {
    let mut ground = Ground::new(ObjectFormat::Sha1);
    let tag = ground.history.tag(ground.commit(23), 900);
    let engine = ground.engine_that_recalls(1 << 20).await;
    let repository = ground.repository(&engine, "ann/thing").await;
    ground.add_secret_tag(&repository, tag).await;
    let view = repository.view().await.unwrap();
    let mut request = copied(&ground, 23, ObjectFilter::All);
    request.include_tag = true;
    let shown = [
        bytes_of(&view, &request).await.unwrap(),
        bytes_of(&view, &request).await.unwrap(),
    ];
    request.hidden = HiddenRefs::new(["refs/tags/secret"]);
    let hidden = [
        bytes_of(&view, &request).await.unwrap(),
        bytes_of(&view, &request).await.unwrap(),
    ];
    let count = |pack: &[u8]| u32::from_be_bytes(pack[8..12].try_into().unwrap());
    assert_eq!(count(&shown[0]), count(&hidden[0]) + 1);
    assert!(shown[0] == shown[1] && hidden[0] == hidden[1]);
    assert_eq!(counts(&engine).recalled, 2);
}

/// On one thread, a production has not begun before somebody waits for it.
#[tokio::test]
async fn a_production_goes_on_while_somebody_reads_and_no_longer() {
    let mut ground = Ground::new(ObjectFormat::Sha1);
    let answers = AnswersOptions {
        effort_bytes_min: 0,
        ..AnswersOptions::new(ground.directory.path().to_owned(), 64 << 20)
    };
    let engine = ground.engine_with(answers, Workers::Inline).await;
    let view = ground.repository(&engine, "ann/thing").await.view().await.unwrap();
    let request = depth_one(&view, ground.commit(20)).await;
    let [first, second] = [
        answer(&view, &request).await.unwrap(),
        answer(&view, &request).await.unwrap(),
    ];
    assert_eq!((counts(&engine).made, counts(&engine).joined), (1, 1));
    drop((first, second));
    while ground.files().iter().any(|path| is_unfinished(path)) {
        tokio::task::yield_now().await;
    }
    assert!(ground.files().is_empty());
    assert_eq!((counts(&engine).files.files, counts(&engine).files.bytes), (0, 0));

    let [leaver, stayer] = [
        answer(&view, &request).await.unwrap(),
        answer(&view, &request).await.unwrap(),
    ];
    assert_eq!((counts(&engine).made, counts(&engine).joined), (2, 2));
    let mut leaver = leaver.stream();
    leaver.next().await.unwrap().unwrap();
    drop(leaver);
    let pack = stayer.stream().try_collect::<Vec<Bytes>>().await.unwrap().concat();
    assert_eq!(objects(ObjectFormat::Sha1, &pack, ground.commit(20)), ground.whole(20));
    assert_eq!(counts(&engine).files.files, 1);
}

fn is_unfinished(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tmp")
}

#[tokio::test(flavor = "multi_thread")]
async fn another_repository_has_answers_of_its_own() {
    let mut ground = Ground::new(ObjectFormat::Sha1);
    let engine = ground.engine().await;
    let mut packs = Vec::new();
    for name in ["ann/one", "ann/other"] {
        let view = ground.repository(&engine, name).await.view().await.unwrap();
        let request = depth_one(&view, ground.commit(19)).await;
        packs.push(bytes_of(&view, &request).await.unwrap());
    }
    assert_eq!(
        (counts(&engine).made, counts(&engine).kept, ground.files().len()),
        (2, 0, 2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_differ_are_answered_differently() {
    let mut ground = Ground::new(ObjectFormat::Sha1);
    let engine = ground.engine().await;
    let view = ground.repository(&engine, "ann/thing").await.view().await.unwrap();
    let base = depth_one(&view, ground.commit(23)).await;
    let deeper = Deepen::Depth(NonZeroU32::new(2).unwrap());
    let deeper = boundary(&view, &base.wants, &[], &deeper).await.unwrap();
    let with = |change: &dyn Fn(&mut UploadRequest)| {
        let mut request = base.clone();
        change(&mut request);
        request
    };
    let requests = [
        with(&|_| {}),
        with(&|request| request.boundary = Some(Arc::new(deeper.clone()))),
        with(&|request| request.ofs_delta = false),
        with(&|request| request.filter = ObjectFilter::NoBlobs),
        with(&|request| request.filter = ObjectFilter::BlobsBelow(10)),
        with(&|request| request.filter = ObjectFilter::BlobsBelow(11)),
        with(&|request| request.common = vec![ground.commit(22)]),
        with(&|request| request.thin = true),
    ];
    for request in &requests {
        bytes_of(&view, request).await.unwrap();
    }
    assert_eq!(counts(&engine).made as usize, requests.len());
    let mut turned = requests[6].clone();
    turned.wants = vec![ground.commit(23), ground.commit(23)];
    bytes_of(&view, &turned).await.unwrap();
    assert_eq!(
        (counts(&engine).made as usize, counts(&engine).kept),
        (requests.len(), 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_is_hidden_comes_from_no_kept_answer() {
    let mut ground = Ground::new(ObjectFormat::Sha1);
    let tag = ground.history.tag(ground.commit(23), 900);
    let engine = ground.engine().await;
    let repository = ground.repository(&engine, "ann/thing").await;
    ground.add_secret_tag(&repository, tag).await;
    let view = repository.view().await.unwrap();
    let mut request = depth_one(&view, ground.commit(23)).await;
    request.include_tag = true;
    let shown = bytes_of(&view, &request).await.unwrap();
    request.hidden = HiddenRefs::new(["refs/tags/secret"]);
    let hidden = bytes_of(&view, &request).await.unwrap();
    let tip = ground.commit(23);
    let (shown, hidden) = (
        objects(ObjectFormat::Sha1, &shown, tip),
        objects(ObjectFormat::Sha1, &hidden, tip),
    );
    assert!(shown.contains(&tag.to_string()) && !hidden.contains(&tag.to_string()));
    assert_eq!(counts(&engine).made, 2);
}
