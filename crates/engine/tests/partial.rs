//! Shallow and filtered fetches over random histories and layers, against stock git.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod support;

use cuesta_engine::upload::{Boundary, Deepen, ObjectFilter, UploadRequest, WantPolicy, boundary, plan, refused_want};
use cuesta_engine::{Engine, EngineError, View};
use cuesta_git::{HiddenRefs, ObjectFormat, ObjectId, ObjectKind};
use futures::TryStreamExt;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use support::git::Git;
use support::history::History;
use support::layers::{Spec, build};
use support::{Rng, engine, engine_that_walks, push, repository, seeds};

/// A history in several layers, and the same in stock git with a branch at each commit.
struct World {
    history: History,
    _engine: Engine,
    view: View,
    oracle: Git,
    rng: Rng,
}

impl World {
    async fn new(seed: u64, commits: usize, layers: usize) -> Self {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let history = History::random(ObjectFormat::Sha1, commits, &mut rng);
        Self::of(history, layers, rng).await
    }

    async fn of(history: History, layers: usize, rng: Rng) -> Self {
        Self::on(engine().await, history, layers, rng).await
    }

    async fn on(engine: Engine, history: History, layers: usize, mut rng: Rng) -> Self {
        let repository = repository(&engine, history.format).await;
        let mut earlier = BTreeSet::new();
        let mut specs = vec![Spec::default(); layers];
        for commit in 0..history.commits.len() {
            specs[commit * layers / history.commits.len()].commits.push(commit);
        }
        let last = specs.last_mut().unwrap();
        for (number, tag) in history.tags.iter().enumerate() {
            last.tags.push(number);
            if matches!(tag.kind, ObjectKind::Tree | ObjectKind::Blob) && !last.roots.contains(&tag.target) {
                last.roots.push(tag.target);
            }
        }
        for spec in specs {
            let layer = build(&history, &spec, &earlier, &mut rng);
            earlier.extend(layer.oids.iter().copied());
            push(&engine, &repository, layer, Vec::new()).await;
        }
        let oracle = Git::new(history.format);
        let tips = history.commits.iter().map(|commit| commit.oid);
        let tips = tips.chain(history.tags.iter().map(|tag| tag.oid));
        oracle.add(&history, &history.closure(tips));
        let branches = history.commits.iter().enumerate();
        let branches: String = branches
            .map(|(at, commit)| format!("create refs/heads/c{at} {}\n", commit.oid))
            .collect();
        oracle.run(&["update-ref", "--stdin"], branches.as_bytes()).unwrap();
        Self {
            view: repository.view().await.unwrap(),
            history,
            _engine: engine,
            oracle,
            rng,
        }
    }

    fn commit(&mut self) -> usize {
        self.rng.below(self.history.commits.len())
    }
}

async fn pack_of(view: &View, request: &UploadRequest) -> Vec<u8> {
    let plan = plan(view, request).await.unwrap();
    plan.stream().try_collect::<Vec<_>>().await.unwrap().concat()
}

/// Two clients beside each other: stock git's own, and one that is fed by the engine.
struct Clients {
    stock: Git,
    ours: Git,
    had: Vec<ObjectId>,
}

impl Clients {
    fn new(world: &World) -> Self {
        Self {
            stock: Git::new(world.history.format),
            ours: Git::new(world.history.format),
            had: Vec::new(),
        }
    }

    /// False if stock git has led itself astray: below a commit that stays shallow it may name others that it does not
    /// send, and stumbles over those later.
    async fn fetch(&mut self, world: &World, commit: usize, how: Option<&str>, deepen: &Deepen) -> bool {
        let branch = format!("+refs/heads/c{commit}:refs/heads/c{commit}");
        let url = world.oracle.url();
        let mut args = vec!["fetch", "-q", "--no-tags"];
        args.extend(how);
        args.extend([url.as_str(), branch.as_str()]);
        let stock = self.stock.run(&args, b"");
        let want = world.history.commits[commit].oid;
        let bounded = boundary(&world.view, &[want], &self.ours.shallow(), deepen).await;
        let what = format!("{how:?} of c{commit} after {:?}", self.had);
        let bounded = match (stock, bounded) {
            (Ok(_), Ok(bounded)) => bounded,
            // Nothing selected: neither takes it.
            (Err(_), Err(EngineError::Refused(_))) => return true,
            (Err(said), Ok(_)) if said.contains("error in object: unshallow") => return false,
            (stock, bounded) => panic!("{what}: {stock:?}, {bounded:?}"),
        };
        self.take(world, want, &bounded, &what).await;
        self.had.push(want);
        self.compare(&what);
        true
    }

    async fn take(&self, world: &World, want: ObjectId, bounded: &Boundary, what: &str) {
        let request = UploadRequest {
            wants: vec![want],
            common: self.had.clone(),
            thin: true,
            ofs_delta: true,
            boundary: Some(Arc::new(bounded.clone())),
            ..UploadRequest::default()
        };
        let pack = pack_of(&world.view, &request).await;
        let mut shallow: BTreeSet<ObjectId> = self.ours.shallow().into_iter().collect();
        shallow.extend(bounded.shallow());
        shallow.retain(|oid| !bounded.unshallow().contains(oid));
        self.ours.set_shallow(&shallow);
        let taken = self
            .ours
            .run(&["index-pack", "--stdin", "--fix-thin", "--strict"], &pack);
        taken.unwrap_or_else(|error| panic!("{what}: {error}"));
    }

    fn compare(&self, what: &str) {
        let sorted = |git: &Git| git.shallow().into_iter().collect::<BTreeSet<_>>();
        assert_eq!(sorted(&self.ours), sorted(&self.stock), "{what}");
        let tips: Vec<String> = self.had.iter().map(ObjectId::to_string).collect();
        let objects = self.ours.rev_list(&tips);
        let objects = objects.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(objects, self.stock.rev_list(&tips).unwrap(), "{what}");
        self.ours.run(&["fsck", "--strict", "--no-dangling"], b"").unwrap();
    }
}

fn number(n: usize) -> NonZeroU32 {
    NonZeroU32::new(u32::try_from(n).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn boundaries_are_where_git_draws_them() {
    for seed in seeds(3000, 14) {
        let mut world = World::new(seed, 30, 1 + seed as usize % 4).await;
        let mut clients = Clients::new(&world);
        for round in 0..4 {
            let commit = 29 - world.rng.below(10);
            let n = 1 + world.rng.below(6);
            let other = world.commit();
            let (how, deepen) = match world.rng.below(if round == 0 { 3 } else { 5 }) {
                0 => (Some(format!("--depth={n}")), Deepen::Depth(number(n))),
                1 => {
                    let since = 1_700_000_000 + other as i64;
                    let deepen = Deepen::Excluding {
                        since: Some(since),
                        not: Vec::new(),
                    };
                    (Some(format!("--shallow-since=@{since}")), deepen)
                }
                2 => {
                    let deepen = Deepen::Excluding {
                        since: None,
                        not: vec![world.history.commits[other].oid],
                    };
                    (Some(format!("--shallow-exclude=c{other}")), deepen)
                }
                3 => (None, Deepen::Unchanged),
                _ => (Some("--depth=2147483647".to_owned()), Deepen::Whole),
            };
            if !clients.fetch(&world, commit, how.as_deref(), &deepen).await {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deepening_counts_from_the_boundary() {
    let mut rng = Rng(8);
    let mut history = History::new(ObjectFormat::Sha1);
    for at in 0..12usize {
        let blob = history.add(ObjectKind::Blob, format!("{at}\n").into_bytes());
        let files = [(format!("dir/f{}", at % 3), (0o100_644, blob))].into_iter().collect();
        history.commit(at.checked_sub(1).into_iter().collect(), files);
    }
    rng.next();
    let world = World::of(history, 3, rng).await;
    let mut clients = Clients::new(&world);
    clients
        .fetch(&world, 11, Some("--depth=2"), &Deepen::Depth(number(2)))
        .await;
    for n in [1, 3, 2, 9] {
        let how = format!("--deepen={n}");
        clients
            .fetch(&world, 11, Some(&how), &Deepen::Relative(number(n)))
            .await;
    }
    assert!(clients.ours.shallow().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boundary_of_trees_is_refused_and_strangers_are_ignored() {
    let world = World::new(5, 6, 2).await;
    let (tip, tree) = (world.history.commits[5].oid, world.history.commits[5].tree);
    let refused = boundary(&world.view, &[tip], &[tree], &Deepen::Unchanged).await;
    assert!(matches!(refused, Err(EngineError::Refused(text)) if text.contains("invalid shallow object")));
    let stranger = ObjectId::from_bytes(world.history.format, &[7; 20]).unwrap();
    let drawn = boundary(&world.view, &[tip], &[stranger], &Deepen::Whole)
        .await
        .unwrap();
    assert!(drawn.shallow().is_empty() && drawn.unshallow().is_empty());
    let unwanted = boundary(&world.view, &[stranger], &[], &Deepen::Whole).await;
    assert!(matches!(unwanted, Err(EngineError::NotOurRef(oid)) if oid == stranger));
}

fn filters() -> Vec<(&'static str, ObjectFilter)> {
    use ObjectFilter::*;
    vec![
        ("blob:none", NoBlobs),
        ("blob:limit=0", BlobsBelow(0)),
        ("blob:limit=40", BlobsBelow(40)),
        ("tree:0", TreeDepth(0)),
        ("tree:1", TreeDepth(1)),
        ("tree:2", TreeDepth(2)),
        ("tree:3", TreeDepth(3)),
        ("object:type=commit", Kind(ObjectKind::Commit)),
        ("object:type=tree", Kind(ObjectKind::Tree)),
        ("object:type=blob", Kind(ObjectKind::Blob)),
        ("object:type=tag", Kind(ObjectKind::Tag)),
        (
            "combine:tree:3+blob:limit=60",
            Combined(vec![TreeDepth(3), BlobsBelow(60)]),
        ),
        ("combine:tree:2+blob:none", Combined(vec![TreeDepth(2), NoBlobs])),
    ]
}

fn ids(git: &Git) -> BTreeSet<String> {
    let args = [
        "cat-file",
        "--batch-all-objects",
        "--unordered",
        "--batch-check=%(objectname)",
    ];
    let listed = String::from_utf8(git.run(&args, b"").unwrap()).unwrap();
    listed.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_leave_out_what_git_leaves_out() {
    for seed in seeds(4000, 4) {
        let mut world = World::new(seed, 20, 1 + seed as usize % 4).await;
        let reachable: Vec<ObjectId> = {
            let tips = world.history.commits.iter().map(|commit| commit.oid);
            let tips = tips.chain(world.history.tags.iter().map(|tag| tag.oid));
            world.history.closure(tips).into_iter().collect()
        };
        for (spec, filter) in filters() {
            let mut wants = vec![world.history.commits[19].oid];
            wants.extend((0..world.rng.below(4)).map(|_| *world.rng.pick(&reachable)));
            wants.extend(world.history.tags.first().map(|tag| tag.oid));
            wants.sort();
            wants.dedup();
            let request = UploadRequest {
                wants: wants.clone(),
                filter,
                ofs_delta: true,
                ..UploadRequest::default()
            };
            let mut args = vec![format!("--filter={spec}")];
            args.extend(wants.iter().map(ObjectId::to_string));
            let client = Git::new(world.history.format);
            let pack = pack_of(&world.view, &request).await;
            client.run(&["index-pack", "--stdin"], &pack).unwrap();
            let (sent, expected) = (ids(&client), world.oracle.rev_list(&args).unwrap());
            // What git meets below a tree and leaves out there, it then leaves out although it is wanted; we do not.
            let is_below = |oid: &&ObjectId| world.history.objects[*oid].0 != ObjectKind::Commit;
            let named = wants.iter().filter(is_below).copied();
            let named = world
                .history
                .closure(named.filter(|oid| !is_tag_of_commit(&world.history, oid)));
            let allowed: BTreeSet<String> = named.iter().map(ObjectId::to_string).collect();
            assert!(expected.is_subset(&sent), "{args:?}");
            assert!(
                sent.difference(&expected).all(|oid| allowed.contains(oid)),
                "{args:?}: {sent:?} not {expected:?}"
            );
            let common = vec![world.history.commits[world.rng.below(19)].oid];
            let had = world.history.closure(common.iter().copied());
            args.extend(common.iter().map(|oid| format!("^{oid}")));
            let later = UploadRequest { common, ..request };
            let client = Git::new(world.history.format);
            let pack = pack_of(&world.view, &later).await;
            client.run(&["index-pack", "--stdin"], &pack).unwrap();
            let mut needed = world.oracle.rev_list(&args).unwrap();
            needed.retain(|oid| !had.iter().any(|had| had.to_string() == *oid));
            assert!(needed.is_subset(&ids(&client)), "{args:?}");
        }
    }
}

/// A filter by depth meets each tree and blob of a commit once.
#[tokio::test(flavor = "multi_thread")]
async fn objects_below_trees_are_bounded() {
    let history = |rng: &mut Rng| History::random(ObjectFormat::Sha1, 1, rng);
    let world = World::of(history(&mut Rng(4100)), 1, Rng(1)).await;
    let (commit, objects) = (world.history.commits[0].oid, &world.history.objects);
    let closure = world.history.closure([commit]);
    let count = |kind| closure.iter().filter(|oid| objects[*oid].0 == kind).count();
    let (trees, blobs) = (count(ObjectKind::Tree), count(ObjectKind::Blob));
    assert!(trees > 1 && blobs > 1, "{trees} trees, {blobs} blobs");
    for limit in [trees + blobs - 1, trees + blobs, trees + blobs + 1] {
        let engine = engine_that_walks(limit).await;
        let world = World::on(engine, history(&mut Rng(4100)), 1, Rng(1)).await;
        let request = UploadRequest {
            wants: vec![commit],
            filter: ObjectFilter::TreeDepth(100),
            ..UploadRequest::default()
        };
        match plan(&world.view, &request).await {
            Ok(_) => assert!(limit >= trees + blobs, "{limit}"),
            Err(EngineError::Limit { max, .. }) => assert!(max < (trees + blobs) as u64, "{limit}"),
            Err(error) => panic!("{error}"),
        }
    }
}

fn is_tag_of_commit(history: &History, oid: &ObjectId) -> bool {
    let mut at = *oid;
    while let Some(tag) = history.tags.iter().find(|tag| tag.oid == at) {
        at = tag.target;
    }
    history.objects[&at].0 == ObjectKind::Commit
}

/// A depth and a filter at once.
#[tokio::test(flavor = "multi_thread")]
async fn filters_hold_at_a_boundary() {
    for seed in seeds(5000, 3) {
        let world = World::new(seed, 20, 1 + seed as usize % 4).await;
        let tip = world.history.commits[19].oid;
        for (spec, filter) in filters() {
            let drawn = boundary(&world.view, &[tip], &[], &Deepen::Depth(number(2)))
                .await
                .unwrap();
            let request = UploadRequest {
                wants: vec![tip],
                filter,
                boundary: Some(Arc::new(drawn.clone())),
                ..UploadRequest::default()
            };
            let client = Git::new(world.history.format);
            let pack = pack_of(&world.view, &request).await;
            client.run(&["index-pack", "--stdin"], &pack).unwrap();
            let shallow = drawn.shallow().iter().copied().collect();
            world.oracle.set_shallow(&shallow);
            let expected = world
                .oracle
                .rev_list(&[format!("--filter={spec}"), tip.to_string()])
                .unwrap();
            world.oracle.set_shallow(&BTreeSet::new());
            assert_eq!(ids(&client), expected, "{spec}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_are_served_by_id_in_spite_of_the_filter() {
    let world = World::new(77, 12, 3).await;
    let blobs: Vec<ObjectId> = {
        let closure = world
            .history
            .closure(world.history.commits.iter().map(|commit| commit.oid));
        let is_blob = |oid: &ObjectId| world.history.objects[oid].0 == ObjectKind::Blob;
        closure.into_iter().filter(is_blob).collect()
    };
    let request = UploadRequest {
        wants: blobs.clone(),
        filter: ObjectFilter::NoBlobs,
        thin: true,
        ..UploadRequest::default()
    };
    assert_eq!(
        refused_want(&world.view, &blobs, WantPolicy::Any, &HiddenRefs::default())
            .await
            .unwrap(),
        None
    );
    let client = Git::new(world.history.format);
    let pack = pack_of(&world.view, &request).await;
    client.run(&["index-pack", "--stdin"], &pack).unwrap();
    assert_eq!(ids(&client), blobs.iter().map(ObjectId::to_string).collect());
}
