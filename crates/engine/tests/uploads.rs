//! Views and uploads over random histories and layers, against stock git.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod support;

use bytes::Bytes;
use cuesta_engine::receive::{ReceiveRequest, RefCommand};
use cuesta_engine::upload::{Negotiation, UploadRequest, WantPolicy, plan, refused_want, shown_to};
use cuesta_engine::{Engine, EngineError, Repository, View};
use cuesta_format::{Cause, RefTarget, RefUpdate};
use cuesta_git::{HiddenRefs, ObjectFormat, ObjectId, ObjectKind, RefName};
use cuesta_ledger::Committed;
use futures::TryStreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use support::git::Git;
use support::history::{Files, History};
use support::layers::{Exact, Spec, build};
use support::{Rng, engine, push, repository, seeds};

/// A history pushed in several layers.
struct World {
    history: History,
    engine: Engine,
    repository: Arc<Repository>,
    rng: Rng,
}

impl World {
    async fn new(seed: u64, commits: usize, layers: usize) -> Self {
        let mut world = Self::empty(seed, commits).await;
        let Self {
            history,
            engine,
            repository,
            rng,
        } = &mut world;
        let mut earlier = BTreeSet::new();
        for spec in specs(history, layers, rng) {
            let layer = build(history, &spec, &earlier, rng);
            earlier.extend(layer.oids.iter().copied());
            push(engine, repository, layer, Vec::new()).await;
        }
        world
    }

    /// A history, and a repository without it.
    async fn empty(seed: u64, commits: usize) -> Self {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let format = if seed % 4 == 3 {
            ObjectFormat::Sha256
        } else {
            ObjectFormat::Sha1
        };
        let history = History::random(format, commits, &mut rng);
        let engine = engine().await;
        let repository = repository(&engine, format).await;
        Self {
            history,
            engine,
            repository,
            rng,
        }
    }

    async fn view(&self) -> View {
        self.repository.view().await.unwrap()
    }
}

/// Commits in consecutive layers, some of them again in later ones; tags and their targets with the last.
fn specs(history: &History, layers: usize, rng: &mut Rng) -> Vec<Spec> {
    let mut specs = vec![Spec::default(); layers];
    let count = history.commits.len();
    for commit in 0..count {
        let home = commit * layers / count;
        specs[home].commits.push(commit);
    }
    for spec in specs.iter_mut().skip(1) {
        let earlier = 0..spec.commits[0];
        spec.commits.extend(earlier.filter(|_| rng.one_in(5)));
        spec.commits.sort_unstable();
    }
    let last = specs.last_mut().unwrap();
    for (number, tag) in history.tags.iter().enumerate() {
        last.tags.push(number);
        let is_root = matches!(tag.kind, ObjectKind::Tree | ObjectKind::Blob);
        if is_root && !last.roots.contains(&tag.target) {
            last.roots.push(tag.target);
        }
    }
    specs
}

async fn pack_of(view: &View, request: &UploadRequest) -> Vec<u8> {
    let plan = plan(view, request).await.unwrap();
    let objects = plan.object_count();
    let stream = plan.stream();
    let progress = stream.progress();
    let pack = stream.try_collect::<Vec<_>>().await.unwrap().concat();
    assert_eq!(u32::from_be_bytes(pack[8..12].try_into().unwrap()), objects);
    assert_eq!(progress.done(), u64::from(objects));
    pack
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_reads_back() {
    for seed in 0..12 {
        let world = World::new(seed, 25, 1 + seed as usize % 5).await;
        let view = world.view().await;
        let oids: Vec<ObjectId> = world.history.objects.keys().copied().collect();
        let reachable: Vec<ObjectId> = {
            let tips = world
                .history
                .commits
                .iter()
                .map(|c| c.oid)
                .chain(world.history.tags.iter().map(|t| t.oid));
            world.history.closure(tips).into_iter().collect()
        };
        let read = view.objects(&reachable).await.unwrap();
        for (oid, object) in reachable.iter().zip(read) {
            let (kind, content) = &world.history.objects[oid];
            assert_eq!(
                object.as_ref().map(|(kind, content)| (*kind, content.to_vec())),
                Some((*kind, content.clone()))
            );
            assert_eq!(view.object(oid).await.unwrap(), object);
            assert_eq!(
                view.kind_and_size(oid).await.unwrap(),
                Some((*kind, content.len() as u64))
            );
        }
        let unknown = ObjectId::from_bytes(world.history.format, &vec![7; world.history.format.width()]).unwrap();
        assert_eq!(view.object(&unknown).await.unwrap(), None);
        assert_eq!(view.objects(&[oids[0], unknown]).await.unwrap()[1], None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_graph_agrees_with_the_history() {
    for seed in 100..112 {
        let world = World::new(seed, 40, 1 + seed as usize % 6).await;
        let graph = world.view().await.graph().await.unwrap();
        let history = &world.history;
        let position = |commit: usize| graph.commit(&history.commits[commit].oid).unwrap();
        let ancestors = |commit: usize| ancestors(history, [commit]);
        for commit in 0..history.commits.len() {
            let mine = ancestors(commit);
            let expected: BTreeSet<_> = mine.iter().map(|commit| position(*commit)).collect();
            let got: BTreeSet<_> = graph.ancestors(&[position(commit)], 0).unwrap().iter().collect();
            assert_eq!(got, expected, "ancestors of commit {commit}");
            let parents: Vec<_> = history.commits[commit]
                .parents
                .iter()
                .map(|parent| position(*parent))
                .collect();
            assert_eq!(graph.parents(position(commit)).unwrap().to_vec(), parents);
            for other in 0..history.commits.len() {
                let theirs = ancestors(other);
                let reachable = graph.is_reachable(position(other), &[position(commit)]).unwrap();
                assert_eq!(reachable, mine.contains(&other));
                let send = graph.send_set(&[position(commit)], &[position(other)]).unwrap();
                let expected: BTreeSet<_> = mine.difference(&theirs).map(|commit| position(*commit)).collect();
                assert_eq!(
                    send.send.iter().collect::<BTreeSet<_>>(),
                    expected,
                    "{commit} without {other}"
                );
                let ready = graph
                    .all_reach(&[position(commit), position(0)], &[position(other)])
                    .unwrap();
                assert_eq!(ready, mine.contains(&other) && ancestors(0).contains(&other));
            }
        }
    }
}

/// A project with a short history of its own is merged in: its generations are low, and yet the walk stops above it.
#[tokio::test(flavor = "multi_thread")]
async fn young_commits_of_low_generation_are_settled_at_once() {
    let mut world = World::empty(1, 1).await;
    let mut history = History::new(world.history.format);
    let mut tip = history.commit(Vec::new(), Files::default());
    for _ in 0..200 {
        tip = history.commit(vec![tip], Files::default());
    }
    let had = tip;
    let other = history.commit(Vec::new(), Files::default());
    let other = history.commit(vec![other], Files::default());
    let merge = history.commit(vec![had, other], Files::default());
    let mut earlier = BTreeSet::new();
    for commits in [0..100, 100..merge + 1] {
        let spec = Spec {
            commits: commits.collect(),
            ..Spec::default()
        };
        let layer = build(&history, &spec, &earlier, &mut world.rng);
        earlier.extend(layer.oids.iter().copied());
        push(&world.engine, &world.repository, layer, Vec::new()).await;
    }
    let graph = world.view().await.graph().await.unwrap();
    let position = |commit: usize| graph.commit(&history.commits[commit].oid).unwrap();
    let send = graph.send_set(&[position(merge)], &[position(had)]).unwrap();
    let expected: BTreeSet<_> = [merge, other, other - 1].into_iter().map(position).collect();
    assert_eq!(send.send.iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(send.common.count(), 1, "commits met that the client has");
}

/// Numbers of commits: these, and all that they reach.
fn ancestors(history: &History, commits: impl IntoIterator<Item = usize>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut next: Vec<usize> = commits.into_iter().collect();
    while let Some(commit) = next.pop() {
        if found.insert(commit) {
            next.extend(&history.commits[commit].parents);
        }
    }
    found
}

/// Whatever the wants and the order of haves: known is what a shown ref reaches.
#[tokio::test(flavor = "multi_thread")]
async fn haves_are_known_as_far_as_shown_refs_reach() {
    for seed in 200..210 {
        let mut world = World::new(seed, 40, 1 + seed as usize % 4).await;
        let (history, rng) = (&world.history, &mut world.rng);
        let count = history.commits.len();
        let mut edit = world.repository.edit(Cause::Push, "");
        let mut tips = Vec::new();
        for (number, prefix) in [(0, "heads"), (1, "heads"), (2, "hidden"), (3, "hidden"), (4, "hidden")] {
            let tip = rng.below(count);
            tips.extend((prefix == "heads").then_some(tip));
            let oid = history.commits[tip].oid;
            edit.refs.push(RefUpdate {
                name: RefName::new(format!("refs/{prefix}/{number}").as_bytes()).unwrap(),
                old: None,
                new: Some(RefTarget { oid, peeled: None }),
            });
        }
        assert!(matches!(
            world.repository.log().commit(edit).await.unwrap(),
            Committed::Done { .. }
        ));
        let view = world.repository.view().await.unwrap();
        let shown = ancestors(history, tips.iter().copied());
        for _ in 0..8 {
            let want = *shown.iter().nth(rng.below(shown.len())).unwrap();
            let want = history.commits[want].oid;
            let hidden = HiddenRefs::new(["refs/hidden"]);
            let bound = shown_to(&view, WantPolicy::Reachable, &hidden).await.unwrap();
            let mut negotiation = Negotiation::new(&view, &[want], bound).await.unwrap();
            for _ in 0..count {
                let have = rng.below(count);
                let known = negotiation.have(&history.commits[have].oid).unwrap();
                assert_eq!(known, shown.contains(&have), "commit {have}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn git_accepts_every_pack() {
    for seed in seeds(1000, 12) {
        let mut world = World::new(seed, 20, 1 + seed as usize % 5).await;
        let oracle = Git::new(world.history.format);
        let everything: Vec<ObjectId> = world
            .history
            .commits
            .iter()
            .map(|commit| commit.oid)
            .chain(world.history.tags.iter().map(|tag| tag.oid))
            .collect();
        let closure = world.history.closure(everything.iter().copied());
        oracle.add(&world.history, &closure);
        let view = world.view().await;
        for round in 0..4 {
            let request = random_request(&mut world, &closure, round);
            check_pack(&world, &view, &oracle, &request).await;
        }
    }
}

fn random_request(world: &mut World, closure: &BTreeSet<ObjectId>, round: usize) -> UploadRequest {
    let rng = &mut world.rng;
    let any: Vec<ObjectId> = closure.iter().copied().collect();
    let commits: Vec<ObjectId> = world.history.commits.iter().map(|commit| commit.oid).collect();
    let mut some = |count: usize| -> Vec<ObjectId> {
        (0..count)
            .map(|_| {
                if rng.one_in(4) {
                    *rng.pick(&any)
                } else {
                    *rng.pick(&commits)
                }
            })
            .collect()
    };
    // The first round is a clone of everything.
    let (wants, common) = match round {
        0 => (commits.clone(), Vec::new()),
        _ => {
            let wants = some(1 + round);
            (wants, some(round - 1))
        }
    };
    let common = common
        .into_iter()
        .filter(|oid| matches!(world.history.objects[oid].0, ObjectKind::Commit | ObjectKind::Tag))
        .collect();
    UploadRequest {
        wants,
        common,
        thin: !rng.one_in(3),
        ofs_delta: !rng.one_in(3),
        include_tag: rng.one_in(2),
        ..UploadRequest::default()
    }
}

/// A client that has exactly the closure of the common objects must be able to complete the pack.
async fn check_pack(world: &World, view: &View, oracle: &Git, request: &UploadRequest) {
    let pack = pack_of(view, request).await;
    let client = Git::new(world.history.format);
    let had = world.history.closure(request.common.iter().copied());
    if !had.is_empty() {
        client.add(&world.history, &had);
    }
    let mut args = vec!["index-pack", "--stdin", "--strict", "-v"];
    if request.thin {
        args.push("--fix-thin");
    }
    client
        .run(&args, &pack)
        .unwrap_or_else(|error| panic!("{error}\n{request:?}"));
    let wants: Vec<String> = request.wants.iter().map(ObjectId::to_string).collect();
    let expected = oracle.rev_list(&wants).unwrap();
    assert_eq!(
        client
            .rev_list(&wants)
            .unwrap_or_else(|error| panic!("{error}\n{request:?}")),
        expected
    );
    client.run(&["fsck", "--strict", "--no-dangling"], b"").unwrap();
}

/// Pushes the history as git packs it, some commits at a time, and the tags last.
async fn receive(world: &World, oracle: &Git) {
    let mut pushed: Vec<String> = Vec::new();
    let mut tips: Vec<(String, ObjectId)> = world
        .history
        .commits
        .iter()
        .enumerate()
        .map(|(at, commit)| (format!("refs/heads/c{at}"), commit.oid))
        .collect();
    tips.extend(
        world
            .history
            .tags
            .iter()
            .enumerate()
            .map(|(at, tag)| (format!("refs/tags/t{at}"), tag.oid)),
    );
    for part in tips.chunks(7) {
        let wants: Vec<String> = part.iter().map(|(_, oid)| oid.to_string()).collect();
        let input = format!(
            "{}\n{}",
            wants.join("\n"),
            pushed.iter().map(|oid| format!("^{oid}\n")).collect::<String>()
        );
        let pack = oracle.run(
            &[
                "pack-objects",
                "-q",
                "--revs",
                "--thin",
                "--stdout",
                "--delta-base-offset",
            ],
            input.as_bytes(),
        );
        let null = ObjectId::null(world.history.format);
        let command = |(name, oid): &(String, ObjectId)| RefCommand {
            name: name.clone().into_bytes(),
            old: null,
            new: *oid,
        };
        let request = ReceiveRequest::new(part.iter().map(command).collect(), "ann");
        let pack = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(pack.unwrap()))]);
        let report = world.repository.receive(request, Some(pack), |_| ()).await.unwrap();
        assert_eq!(report.unpack, Ok(()));
        assert!(report.refs.iter().all(Result::is_ok), "{report:?}");
        pushed.extend(wants);
    }
}

/// What was received is served: the engine's two halves together.
#[tokio::test(flavor = "multi_thread")]
async fn git_accepts_what_was_received() {
    for seed in seeds(2000, 8) {
        let mut world = World::empty(seed, 25).await;
        let oracle = Git::new(world.history.format);
        let tips = world
            .history
            .commits
            .iter()
            .map(|commit| commit.oid)
            .chain(world.history.tags.iter().map(|tag| tag.oid));
        let closure = world.history.closure(tips);
        oracle.add(&world.history, &closure);
        let refs: String = closure
            .iter()
            .map(|oid| format!("create refs/all/{oid} {oid}\n"))
            .collect();
        oracle.run(&["update-ref", "--stdin"], refs.as_bytes()).unwrap();
        oracle.run(&["repack", "-adfq"], b"").unwrap();
        receive(&world, &oracle).await;
        let view = world.view().await;
        for round in 0..5 {
            let request = random_request(&mut world, &closure, round);
            check_pack(&world, &view, &oracle, &request).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_self_contained_layer_is_sent_as_it_is() {
    let mut rng = Rng(5);
    let history = History::random(ObjectFormat::Sha1, 30, &mut rng);
    let engine = engine().await;
    let repository = repository(&engine, ObjectFormat::Sha1).await;
    let spec = Spec {
        commits: (0..30).collect(),
        ..Spec::default()
    };
    let layer = build(&history, &spec, &BTreeSet::new(), &mut rng);
    let stored = layer.pack.clone();
    push(&engine, &repository, layer, Vec::new()).await;
    let view = repository.view().await.unwrap();
    let wants: Vec<ObjectId> = history.commits.iter().map(|commit| commit.oid).collect();
    let mut request = UploadRequest {
        wants,
        ofs_delta: true,
        ..UploadRequest::default()
    };
    assert_eq!(pack_of(&view, &request).await, stored);
    request.ofs_delta = false;
    assert_ne!(pack_of(&view, &request).await, stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_follow_what_they_tag() {
    let mut rng = Rng(6);
    let mut history = History::random(ObjectFormat::Sha1, 6, &mut rng);
    history.tags.clear();
    let (tip, old) = (history.commits[5].oid, history.commits[0].oid);
    let tag = history.tag(tip, 90);
    let outer = history.tag(tag, 91);
    let old_tag = history.tag(old, 92);
    let engine = engine().await;
    let repository = repository(&engine, ObjectFormat::Sha1).await;
    let spec = Spec {
        commits: (0..6).collect(),
        tags: vec![0, 1, 2],
        ..Spec::default()
    };
    let layer = build(&history, &spec, &BTreeSet::new(), &mut rng);
    let update = |name: &str, oid, peeled| RefUpdate {
        name: RefName::new(name.as_bytes()).unwrap(),
        old: None,
        new: Some(RefTarget { oid, peeled }),
    };
    let refs = vec![
        update("refs/heads/main", tip, None),
        update("refs/tags/outer", outer, Some(tip)),
        update("refs/tags/old", old_tag, Some(old)),
    ];
    push(&engine, &repository, layer, refs).await;
    let view = repository.view().await.unwrap();
    let parents = history.commits[5]
        .parents
        .iter()
        .map(|parent| history.commits[*parent].oid)
        .collect::<Vec<_>>();
    let mut request = UploadRequest {
        wants: vec![tip],
        common: parents,
        ..UploadRequest::default()
    };
    let without = plan(&view, &request).await.unwrap().object_count();
    request.include_tag = true;
    assert_eq!(
        plan(&view, &request).await.unwrap().object_count(),
        without + 2,
        "the tag and the tag of the tag"
    );
    let reachable = refused_want(&view, &[old, tag, outer], WantPolicy::Reachable, &HiddenRefs::default())
        .await
        .unwrap();
    assert_eq!(reachable, None);
    assert_eq!(
        refused_want(&view, &[tip, old], WantPolicy::Tips, &HiddenRefs::default())
            .await
            .unwrap(),
        Some(old)
    );
    assert_eq!(
        view.refs().map(|shown| shown.name.to_string()).collect::<Vec<_>>(),
        ["refs/heads/main", "refs/tags/old", "refs/tags/outer"]
    );
    // More rules than are remembered, each asked about twice.
    for _ in 0..2 {
        for (rules, hides) in [
            (&["refs/tags"][..], true),
            (&["refs/none"], false),
            (&["refs/tags/old"], true),
            (&["refs", "!refs/heads", "!refs/tags"], false),
            (&["refs/heads/main"], true),
            (&[], false),
        ] {
            assert_eq!(view.hides_some(&HiddenRefs::new(rules)), hides, "{rules:?}");
        }
    }
    let hidden = HiddenRefs::new(["refs/tags/outer"]);
    request.hidden = hidden.clone();
    assert_eq!(
        plan(&view, &request).await.unwrap().object_count(),
        without,
        "only a hidden ref leads to them"
    );
    let shown = shown_to(&view, WantPolicy::Reachable, &hidden).await.unwrap().unwrap();
    let mut negotiation = Negotiation::new(&view, &[tip], Some(shown)).await.unwrap();
    assert_eq!(
        [outer, tag, old].map(|oid| negotiation.have(&oid).unwrap()),
        [false, false, true]
    );
    assert_eq!(negotiation.common(), [old]);
    for policy in [WantPolicy::AnyTips, WantPolicy::ReachableFromAny, WantPolicy::Any] {
        assert!(shown_to(&view, policy, &hidden).await.unwrap().is_none());
    }
    let mut negotiation = Negotiation::new(&view, &[tip], None).await.unwrap();
    assert!(!negotiation.is_ready().unwrap());
    // However often it is named, it is held once.
    for _ in 0..3 {
        assert!(negotiation.have(&old).unwrap());
    }
    assert_eq!(negotiation.common(), [old]);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_stream_as_they_read() {
    for seed in 50..54 {
        let mut rng = Rng(seed);
        let mut history = History::random(ObjectFormat::Sha1, 8, &mut rng);
        // Larger than a read and larger than a piece, compressible and not.
        let noise: Vec<u8> = (0..3_000_000).map(|_| rng.next() as u8).collect();
        let big = [
            history.add(ObjectKind::Blob, noise),
            history.add(ObjectKind::Blob, vec![7; 3_000_000]),
        ];
        let files = big
            .iter()
            .enumerate()
            .map(|(number, oid)| (format!("big{number}"), (0o100_644, *oid)))
            .collect();
        history.commit(Vec::new(), files);
        let engine = engine().await;
        let repository = repository(&engine, ObjectFormat::Sha1).await;
        let spec = Spec {
            commits: (0..9).collect(),
            ..Spec::default()
        };
        push(
            &engine,
            &repository,
            build(&history, &spec, &BTreeSet::new(), &mut rng),
            Vec::new(),
        )
        .await;
        let view = repository.view().await.unwrap();
        for oid in history.closure(history.commits.iter().map(|commit| commit.oid)) {
            let stream = view.object_stream(&oid).await.unwrap().unwrap();
            let (kind, content) = &history.objects[&oid];
            assert_eq!((stream.kind, stream.size), (*kind, content.len() as u64));
            let pieces = stream.content.try_collect::<Vec<_>>().await.unwrap();
            assert!(pieces.concat() == *content, "{oid}");
        }
        let request = UploadRequest {
            wants: vec![history.commits[8].oid],
            ..UploadRequest::default()
        };
        let pack = pack_of(&view, &request).await;
        let bytes = plan(&view, &request).await.unwrap().bytes();
        assert!((pack.len() as u64..7_000_000).contains(&(bytes + 1_000)), "{bytes}");
        let client = Git::new(history.format);
        client.run(&["index-pack", "--stdin", "--strict"], &pack).unwrap();
    }
}

/// Pushes each of `specs` as an inline layer, stored exactly as said.
async fn pushed_exactly(history: &History, specs: Vec<(Vec<usize>, Exact)>) -> View {
    let engine = engine().await;
    let repository = repository(&engine, history.format).await;
    let (mut earlier, mut rng) = (BTreeSet::new(), Rng(1));
    for (commits, exact) in specs {
        let spec = Spec {
            commits,
            exact: Some(exact),
            ..Spec::default()
        };
        let layer = build(history, &spec, &earlier, &mut rng);
        earlier.extend(layer.oids.iter().copied());
        push(&engine, &repository, layer, Vec::new()).await;
    }
    repository.view().await.unwrap()
}

/// `count` blobs that share most of their content, sorted by id.
fn blobs(history: &mut History, count: usize) -> Vec<ObjectId> {
    let shared = "the same in all\n".repeat(20);
    let made: BTreeSet<ObjectId> = (0..count)
        .map(|number| history.add(ObjectKind::Blob, format!("{shared}{number}").into_bytes()))
        .collect();
    made.into_iter().collect()
}

fn files(named: &[(&str, ObjectId)]) -> support::history::Files {
    named
        .iter()
        .map(|(name, oid)| ((*name).to_owned(), (0o100_644, *oid)))
        .collect()
}

/// `x` is a delta on `y`; a later layer has `y` again, as a delta on `x`. Each was readable when it was stored.
#[tokio::test(flavor = "multi_thread")]
async fn copies_that_are_deltas_on_one_another_read_back() {
    let mut history = History::new(ObjectFormat::Sha1);
    let oids = blobs(&mut history, 2);
    let (x, y) = (oids[0], oids[1]);
    history.commit(vec![], files(&[("y", y)]));
    history.commit(vec![0], files(&[("y", y), ("x", x)]));
    history.commit(vec![], files(&[("z", y)]));
    let deltas = |delta, base| Exact {
        deltas: BTreeMap::from([(delta, base)]),
        again: BTreeSet::from([y]),
    };
    let specs = vec![
        (vec![0], Exact::default()),
        (vec![1], deltas(x, y)),
        (vec![2], deltas(y, x)),
    ];
    let view = pushed_exactly(&history, specs).await;
    for oid in [x, y] {
        assert_eq!(
            view.object(&oid).await.unwrap().unwrap().1.to_vec(),
            history.objects[&oid].1
        );
    }
    let wants = history.commits.iter().map(|commit| commit.oid).collect();
    let request = UploadRequest {
        wants,
        ofs_delta: true,
        ..UploadRequest::default()
    };
    let client = Git::new(history.format);
    client
        .run(&["index-pack", "--stdin", "--strict"], &pack_of(&view, &request).await)
        .unwrap();
}

/// The pack holds `x`, which the client has already, as a delta on `y`, which it has too; and `a` as a delta that names `x`.
/// Were both sent so, the client's index-pack would resolve `a` twice.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_the_client_has_is_no_named_base_that_hangs() {
    let mut history = History::new(ObjectFormat::Sha1);
    let oids = blobs(&mut history, 3);
    // Blobs lie in the order of their ids, so the base comes after the delta, which must name it.
    let (a, x, y) = (oids[0], oids[1], oids[2]);
    history.commit(vec![], files(&[("y", y)]));
    history.commit(vec![0], files(&[("y", y), ("x", x)]));
    history.commit(vec![0], files(&[("y", y), ("x", x), ("a", a)]));
    let exact = Exact {
        deltas: BTreeMap::from([(a, x), (x, y)]),
        again: BTreeSet::from([x]),
    };
    let view = pushed_exactly(&history, vec![(vec![0, 1], Exact::default()), (vec![2], exact)]).await;
    let request = UploadRequest {
        wants: vec![history.commits[2].oid],
        common: vec![history.commits[1].oid],
        thin: true,
        ofs_delta: true,
        ..UploadRequest::default()
    };
    assert_eq!(plan(&view, &request).await.unwrap().rebuilt_count(), 1);
    let client = Git::new(history.format);
    client.add(&history, &history.closure(request.common.iter().copied()));
    client
        .run(
            &["index-pack", "--stdin", "--strict", "--fix-thin"],
            &pack_of(&view, &request).await,
        )
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_copy_hides_no_commit() {
    let mut rng = Rng(31);
    let history = History::random(ObjectFormat::Sha1, 12, &mut rng);
    let engine = engine().await;
    let repository = repository(&engine, ObjectFormat::Sha1).await;
    let unreachable = Spec {
        commits: (0..12).collect(),
        unreachable: true,
        ..Spec::default()
    };
    let layer = build(&history, &unreachable, &BTreeSet::new(), &mut rng);
    push(&engine, &repository, layer, Vec::new()).await;
    let tip = history.commits[11].oid;
    let request = UploadRequest {
        wants: vec![tip],
        ..UploadRequest::default()
    };
    let view = repository.view().await.unwrap();
    assert!(view.contains(&tip).await.unwrap());
    assert!(matches!(plan(&view, &request).await, Err(EngineError::NotOurRef(oid)) if oid == tip));
    let spec = Spec {
        commits: (0..12).collect(),
        ..Spec::default()
    };
    let layer = build(&history, &spec, &BTreeSet::new(), &mut rng);
    push(&engine, &repository, layer, Vec::new()).await;
    let view = repository.view().await.unwrap();
    let client = Git::new(history.format);
    client
        .run(&["index-pack", "--stdin", "--strict"], &pack_of(&view, &request).await)
        .unwrap();
}
