//! Bases of deltas chosen anew: nothing is lost, stock git reads the packs, bases lie in the ancestry and chains are short.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod support;

use cuesta_engine::{EngineError, Layer, Watch};
use cuesta_format::{Base, LayerMeta, RefTarget, RefUpdate};
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind, RefName};
use std::collections::BTreeSet;
use std::sync::Arc;
use support::git::Git;
use support::history::History;
use support::layers::{Spec, build};
use support::source::{Source, Target};
use support::{Rng, engine, push, repository, seeds};

/// A text that a few edits change little.
fn text(lines: usize, version: usize) -> String {
    (0..lines)
        .map(|line| {
            let edited = if line % 37 == version % 37 { version } else { 0 };
            format!("line {line} of a file that grows old: {edited}\n")
        })
        .collect()
}

/// Versions of files in nested directories, on two branches that are merged now and then; a layer a round.
async fn grown(format: ObjectFormat, rounds: usize, noise: usize) -> (Source, Target) {
    let (source, target) = (Source::filled(format), Target::new().await);
    let mut rng = Rng(7);
    for round in 0..rounds {
        for version in 0..6 {
            let number = round * 6 + version;
            source.commit("grown/deep/er/text", &text(300, number));
            source.commit(&format!("grown/file{}", number % 5), &text(40, number));
        }
        source.git(&["checkout", "-q", "-b", "fork"]);
        source.commit("grown/one/file", &text(100, round));
        source.git(&["checkout", "-q", "-"]);
        source.commit("grown/other/file", &text(100, round + 50));
        source.git(&["merge", "-q", "-m", "merge", "fork"]);
        source.git(&["branch", "-D", "fork"]);
        let noise: String = (0..noise / 16).map(|_| format!("{:016x}", rng.next())).collect();
        source.commit("grown/noise", &noise);
        target.import(source.path()).await;
        target.repository().await.flush().await.unwrap();
    }
    (source, target)
}

async fn layers(target: &Target) -> Vec<(LayerMeta, Arc<Layer>)> {
    let view = target.repository().await.view().await.unwrap();
    let graph = view.graph().await.unwrap();
    let layers = (0..graph.slot_count()).map(|slot| Arc::clone(graph.layer(slot).unwrap()));
    layers.map(|layer| (*layer.meta(), layer)).collect()
}

/// How many deltas of trees and blobs lie in one layer, and what the deepest has below it; all bases come earlier.
async fn deltas(layer: &Layer) -> (usize, usize) {
    let index = layer.index().await.unwrap();
    let mut depths = Vec::new();
    for entry in 0..index.entries.len() {
        depths.push(match index.entries.base(entry) {
            Base::None => 0,
            Base::External(_) => 1,
            Base::Entry(base) => {
                assert!(base < entry, "entry {entry} is based on a later one");
                depths[base as usize] + 1
            }
        });
    }
    let is_structure = |entry: usize| matches!(index.kind(entry as u32), ObjectKind::Tree | ObjectKind::Blob);
    let count = (0..depths.len()).filter(|entry| depths[*entry] > 0 && is_structure(*entry));
    (count.count(), depths.iter().copied().max().unwrap_or(0))
}

#[tokio::test(flavor = "multi_thread")]
async fn all_becomes_one_layer_and_nothing_is_lost() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let (source, target) = grown(format, 3, 100).await;
        let repository = target.repository().await;
        let before = repository.view().await.unwrap();
        let watch = Watch::default();
        let done = repository.compact_whole(&watch).await.unwrap();
        assert_eq!((done.layers_before, done.layers_after), (3, 1));
        assert!(done.pack_bytes_after * 2 < done.pack_bytes_before, "{done:?}");
        let (steps, total) = watch.progress();
        assert!(steps == total && total > 0, "{steps} of {total}");
        target.equals(&source).await;
        let layer = &layers(&target).await[0];
        assert!(layer.0.bases_chosen && layer.0.self_contained);
        let (count, deepest) = deltas(&layer.1).await;
        assert!(
            count > 50 && (10..=50).contains(&deepest),
            "{count} deltas, {deepest} deep"
        );
        // A view from before still reads everything.
        let oids: Vec<_> = before.refs().map(|shown| shown.oid).collect();
        assert!(before.objects(&oids).await.unwrap().iter().all(Option::is_some));
        let again = repository.compact_whole(&Watch::default()).await.unwrap();
        assert_eq!(layers(&target).await[0].0.id, layer.0.id, "{again:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bases_lie_in_the_ancestry() {
    let (_source, target) = grown(ObjectFormat::Sha1, 2, 100).await;
    target
        .repository()
        .await
        .compact_whole(&Watch::default())
        .await
        .unwrap();
    let git = target.clone_all().await;
    let (_, layer) = &layers(&target).await[0];
    let (index, history) = (layer.index().await.unwrap(), layer.history().await.unwrap());
    let mut pairs = BTreeSet::new();
    for entry in 0..index.entries.len() {
        let Base::Entry(base) = index.entries.base(entry) else {
            continue;
        };
        if let (Some(new), Some(old)) = (history.segments.of_entry(entry), history.segments.of_entry(base)) {
            pairs.insert((old, new));
        }
    }
    assert!(pairs.len() > 20);
    for (old, new) in pairs {
        let [old, new] = [old, new].map(|segment| index.oid(segment).unwrap().to_string());
        git.run(&["merge-base", "--is-ancestor", &old, &new], b"").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_are_done_one_at_a_time_oldest_first() {
    let (source, target) = grown(ObjectFormat::Sha1, 3, 2 << 20).await;
    let repository = target.repository().await;
    for done in 1..=3 {
        assert!(repository.choose_bases(&Watch::default()).await.unwrap());
        let layers = layers(&target).await;
        let chosen: Vec<bool> = layers.iter().map(|(meta, _)| meta.bases_chosen).collect();
        // The first may be divided.
        let left = chosen.iter().filter(|chosen| !**chosen).count();
        assert_eq!(left, 3 - done, "{chosen:?}");
        assert!(chosen.is_sorted_by(|older, younger| older >= younger), "{chosen:?}");
        target.equals(&source).await;
    }
    assert!(!repository.choose_bases(&Watch::default()).await.unwrap());
    let layers = layers(&target).await;
    let index = layers.last().unwrap().1.index().await.unwrap();
    let outside = (0..index.entries.len()).filter(|entry| matches!(index.entries.base(*entry), Base::External(_)));
    assert!(outside.count() > 5, "versions in older layers are bases");
    // Once in one layer, those are within it.
    repository.compact_whole(&Watch::default()).await.unwrap();
    target.equals(&source).await;
    assert!(self::layers(&target).await[0].0.self_contained);
}

/// Branches and tags have a layer of their own; what only other refs reach rests on it.
#[tokio::test(flavor = "multi_thread")]
async fn pull_requests_lie_apart() {
    let (source, target) = grown(ObjectFormat::Sha1, 3, 100).await;
    let public: BTreeSet<String> = source
        .git(&["rev-list", "--objects", "--all"])
        .lines()
        .map(oid_of)
        .collect();
    for pull in 0..10 {
        source.git(&["checkout", "-q", "--detach"]);
        source.commit("grown/deep/er/text", &text(300, 500 + pull));
        source.commit(&format!("pull{pull}"), &text(20, pull));
        source.git(&["update-ref", &format!("refs/pull/{pull}/head"), "HEAD"]);
        source.git(&["checkout", "-q", "-"]);
    }
    // What a pull request had first, and a branch has now.
    source.git(&["merge", "-q", "--no-ff", "-m", "merge", "refs/pull/3/head"]);
    target.import(source.path()).await;
    let repository = target.repository().await;
    repository.compact_whole(&Watch::default()).await.unwrap();
    target.equals(&source).await;
    let layers = self::layers(&target).await;
    let [(first, first_layer), (second, second_layer)] = layers.as_slice() else {
        panic!("{} layers", layers.len());
    };
    assert!(first.bases_chosen && first.self_contained && second.bases_chosen && !second.self_contained);
    let names = ["--branches", "--tags"];
    let wanted = source.git(&[&["rev-list", "--objects"], &names[..]].concat());
    let wanted: BTreeSet<String> = wanted.lines().map(oid_of).collect();
    assert!(wanted.len() > public.len());
    assert_eq!(
        oids(first_layer).await,
        wanted,
        "no more and no less than branches and tags reach"
    );
    assert!(oids(second_layer).await.is_disjoint(&wanted));
    let index = second_layer.index().await.unwrap();
    let outside = (0..index.entries.len()).filter(|entry| matches!(index.entries.base(*entry), Base::External(_)));
    assert!(outside.count() > 10, "pull requests are deltas on what branches have");
    let before: Vec<_> = layers.iter().map(|(meta, _)| meta.id).collect();
    repository.compact_whole(&Watch::default()).await.unwrap();
    let after: Vec<_> = self::layers(&target).await.iter().map(|(meta, _)| meta.id).collect();
    assert_eq!(before, after, "nothing is left to do");
}

fn oid_of(line: &str) -> String {
    line.split(' ').next().unwrap().to_owned()
}

async fn oids(layer: &Layer) -> BTreeSet<String> {
    let index = layer.index().await.unwrap();
    let oids = (0..index.entries.len()).map(|entry| index.oid(entry).unwrap().to_string());
    oids.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_compaction_changes_nothing() {
    let (source, target) = grown(ObjectFormat::Sha1, 2, 100).await;
    let watch = Watch::default();
    watch.stop();
    let stopped = target.repository().await.compact_whole(&watch).await;
    assert!(matches!(stopped, Err(EngineError::Stopped)), "{stopped:?}");
    assert_eq!(layers(&target).await.len(), 2);
    target.equals(&source).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_content_is_not_written_anew() {
    let (_source, target) = grown(ObjectFormat::Sha1, 1, 100).await;
    let layer = layers(&target).await.remove(0);
    let key = cuesta_format::layer_pack_key(target.repository().await.id(), layer.0.id);
    let bucket = target.engine.bucket();
    let mut pack = bucket.get_range(&key, 0..layer.0.pack_bytes).await.unwrap().to_vec();
    // A byte inside a stored delta or blob; zlib's checksum or the id notices.
    let middle = pack.len() * 3 / 4;
    pack[middle] ^= 1;
    bucket.put(&key, pack.into()).await.unwrap();
    let failed = target.repository().await.compact_whole(&Watch::default()).await;
    assert!(matches!(failed, Err(EngineError::Corrupt { .. })), "{failed:?}");
    assert_eq!(layers(&target).await[0].0.id, layer.0.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_is_not_what_its_id_says_is_not_written_anew() {
    let mut rng = Rng(11);
    let mut history = History::random(ObjectFormat::Sha1, 25, &mut rng);
    let blobs = history
        .objects
        .values_mut()
        .filter(|(kind, _)| *kind == ObjectKind::Blob);
    for byte in blobs.filter_map(|(_, content)| content.first_mut()) {
        *byte ^= 1;
    }
    let engine = engine().await;
    let repository = repository(&engine, history.format).await;
    let layer = build(&history, &spec(&history, 0, 1, &mut rng), &BTreeSet::new(), &mut rng);
    push(&engine, &repository, layer, Vec::new()).await;
    let failed = repository.compact_whole(&Watch::default()).await;
    assert!(matches!(failed, Err(EngineError::Corrupt { .. })), "{failed:?}");
    assert!(!repository.log().current().layers()[0].meta.bases_chosen);
}

/// Layers with copies of objects in several of them, deltas that lead anywhere, roots, and objects that nothing vouches for.
#[tokio::test(flavor = "multi_thread")]
async fn any_layers_become_few_and_every_object_reads_back() {
    let mut divided = 0;
    for seed in seeds(300, 40) {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let format = [ObjectFormat::Sha1, ObjectFormat::Sha256][(seed % 2) as usize];
        let history = History::random(format, 25, &mut rng);
        let engine = engine().await;
        let repository = repository(&engine, format).await;
        let mut earlier = BTreeSet::new();
        let count = 1 + rng.below(5);
        for number in 0..count {
            let spec = spec(&history, number, count, &mut rng);
            let layer = build(&history, &spec, &earlier, &mut rng);
            earlier.extend(layer.oids.iter().copied());
            let is_last = number + 1 == count;
            let refs = if is_last { refs(&history, &mut rng) } else { Vec::new() };
            push(&engine, &repository, layer, refs).await;
        }
        let done = repository.compact_whole(&Watch::default()).await.unwrap();
        let view = repository.view().await.unwrap();
        let oids: Vec<ObjectId> = earlier.iter().copied().collect();
        for (oid, object) in oids.iter().zip(view.objects(&oids).await.unwrap()) {
            let (kind, content) = object.unwrap_or_else(|| panic!("seed {seed}: {oid} is lost"));
            assert_eq!((kind, content.to_vec()), history.objects[oid], "seed {seed}: {oid}");
        }
        // Stock git reads all of it, the older layer by itself.
        let git = Git::new(format);
        let graph = view.graph().await.unwrap();
        for slot in 0..graph.slot_count() {
            let layer = graph.layer(slot).unwrap();
            let pack = layer.read(0..layer.meta().pack_bytes).await.unwrap();
            let how: &[&str] = if slot == 0 { &[] } else { &["--fix-thin"] };
            git.run(&[&["index-pack", "--stdin"], how].concat(), &pack)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        divided += usize::from(done.layers_after == 2);
        assert!(done.layers_after <= 2, "seed {seed}");
        let public = view
            .refs()
            .filter(|shown| shown.name.as_bytes().starts_with(b"refs/heads/"));
        let public = history.closure(public.map(|shown| shown.oid));
        if done.layers_after == 2 {
            let held = self::oids(graph.layer(0).unwrap()).await;
            assert_eq!(held, public.iter().map(ObjectId::to_string).collect(), "seed {seed}");
        }
    }
    assert!(divided > 10, "{divided} of 40 were divided");
}

/// Branches, and refs that are neither branches nor tags.
fn refs(history: &History, rng: &mut Rng) -> Vec<RefUpdate> {
    let mut refs = Vec::new();
    for (number, commit) in history.commits.iter().enumerate() {
        let name = match rng.below(8) {
            0 => format!("refs/heads/b{number}"),
            1 | 2 => format!("refs/pull/{number}/head"),
            _ => continue,
        };
        refs.push(RefUpdate {
            name: RefName::new(name.as_bytes()).unwrap(),
            old: None,
            new: Some(RefTarget {
                oid: commit.oid,
                peeled: None,
            }),
        });
    }
    refs
}

/// The commits of one layer out of some, and some of earlier ones again; roots and tags with the last.
fn spec(history: &History, number: usize, count: usize, rng: &mut Rng) -> Spec {
    let commits = history.commits.len();
    let mut spec = Spec::default();
    for commit in 0..commits {
        let home = commit * count / commits;
        if home == number || home < number && rng.one_in(4) {
            spec.commits.push(commit);
        }
    }
    if number + 1 == count {
        for (number, tag) in history.tags.iter().enumerate() {
            spec.tags.push(number);
            let is_root = matches!(tag.kind, ObjectKind::Tree | ObjectKind::Blob);
            if is_root && !spec.roots.contains(&tag.target) {
                spec.roots.push(tag.target);
            }
        }
    }
    spec
}
