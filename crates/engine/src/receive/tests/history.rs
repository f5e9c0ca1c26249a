//! Segments of random histories against `git rev-list --objects`.

use super::layers::{Layers, parents};
use super::repo::Repo;
use crate::receive::tips::Tip;
use cuesta_git::{ObjectFormat, ObjectId, ObjectKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Makes a history of merges, renames, copies, reverts, files that come back, submodules, symbolic links, modes and
/// several roots; answers its commits, oldest first.
pub(super) fn random_history(repo: &Repo, commits: usize, rng: &mut fastrand::Rng) -> Vec<ObjectId> {
    let mut stream = String::new();
    let names = [
        "a",
        "b",
        "c.c",
        "sub/x",
        "sub/y",
        "sub/deep/z",
        "lib/x",
        "lib/deep/er/q",
        "zz",
        "sub.c",
        "sub0",
    ];
    let bodies: Vec<String> = (0..6).map(|n| format!("line {n}\n").repeat(1 + n * 7)).collect();
    for mark in 1..=commits {
        writeln!(stream, "commit refs/heads/c{mark}\nmark :{mark}").unwrap();
        writeln!(
            stream,
            "committer C <c@example.com> {} +0000\ndata 2\nm",
            1_700_000_000 + rng.u32(..1000)
        )
        .unwrap();
        let is_root = mark == 1 || rng.u8(..20) == 0;
        if !is_root {
            let near = |rng: &mut fastrand::Rng| mark - 1 - rng.usize(..(mark - 1).min(6));
            let parent = near(rng);
            writeln!(stream, "from :{parent}").unwrap();
            let others = match rng.u8(..12) {
                0..3 => 1,
                3 => 3,
                _ => 0,
            };
            let merged: BTreeSet<usize> = (0..others)
                .map(|_| near(rng))
                .filter(|other| *other != parent)
                .collect();
            merged
                .iter()
                .for_each(|other| writeln!(stream, "merge :{other}").unwrap());
        }
        for _ in 0..rng.usize(..4) {
            let name = names[rng.usize(..names.len())];
            match rng.u8(..16) {
                0 => writeln!(stream, "D {name}").unwrap(),
                1 => writeln!(stream, "D {}", name.split('/').next().unwrap()).unwrap(),
                2 => writeln!(stream, "M 160000 {:040x} {name}", rng.u8(1..)).unwrap(),
                verb @ 3..5 => {
                    let top = name.split('/').next().unwrap();
                    writeln!(stream, "M 100644 inline {name}\ndata 4\nhere").unwrap();
                    writeln!(
                        stream,
                        "{}",
                        if verb == 3 {
                            format!("R {top} moved")
                        } else {
                            format!("C {top} lib/copy")
                        }
                    )
                    .unwrap();
                }
                5 => writeln!(stream, "M 040000 {EMPTY_TREE} sub").unwrap(),
                kind => {
                    let mode = ["120000", "100755", "100644"][usize::from(kind % 3)];
                    let mut body = bodies[rng.usize(..bodies.len())].clone();
                    if rng.bool() {
                        write!(body, "{}", rng.u32(..)).unwrap();
                    }
                    writeln!(stream, "M {mode} inline {name}\ndata {}\n{body}", body.len()).unwrap();
                }
            }
        }
        stream.push('\n');
    }
    repo.git(&["fast-import", "--quiet", "--force"], stream.as_bytes());
    (1..=commits)
        .map(|mark| repo.rev(&format!("refs/heads/c{mark}")))
        .collect()
}

const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let first = std::env::var("CUESTA_SEED").ok().and_then(|seed| seed.parse().ok());
    let base = first.unwrap_or_else(|| fastrand::u64(..1 << 40));
    (0..count)
        .map(move |n| base + n)
        .inspect(|seed| println!("CUESTA_SEED={seed}"))
}

/// Objects of all commits, per commit, from one run of git.
fn closures(repo: &Repo, commits: &[ObjectId]) -> BTreeMap<ObjectId, BTreeSet<ObjectId>> {
    commits
        .iter()
        .map(|commit| (*commit, repo.objects(&[commit.to_string()]).into_iter().collect()))
        .collect()
}

#[test]
fn ancestors_segments_are_the_closure_of_every_commit() {
    for seed in seeds(6) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let repo = Repo::new();
        let commits = random_history(&repo, 60, &mut rng);
        let expected = closures(&repo, &commits);
        let option_sets: [&[&str]; 4] = [
            &["--thin", "--delta-base-offset"],
            &["--thin", "--depth=4095", "--window=50"],
            &["--delta-base-offset", "--depth=3"],
            &["--window=0"],
        ];
        let mut layers = Layers::default();
        let mut pushed: Vec<String> = Vec::new();
        let mut next = 0;
        while next < commits.len() {
            let end = (next + 1 + rng.usize(..20)).min(commits.len());
            let values = &commits[next..end];
            let mut revisions: Vec<String> = values.iter().map(ObjectId::to_string).collect();
            revisions.push("--not".into());
            revisions.extend(pushed.iter().cloned());
            let pack = repo.pack(&revisions, option_sets[rng.usize(..4)]);
            for tip in layers.push(&pack, values).unwrap() {
                assert_eq!(
                    tip,
                    Tip::Complete {
                        kind: ObjectKind::Commit,
                        peeled: None
                    }
                );
            }
            pushed.extend(values.iter().map(ObjectId::to_string));
            next = end;
        }
        for commit in &commits {
            assert_eq!(layers.closure(commit), expected[commit], "closure of {commit}");
        }
        check_segments(&layers, &expected);
        stock_git_reads(&layers, &commits);
    }
}

/// No segment names what all its ancestors have nowhere near; generations and parents are right.
fn check_segments(layers: &Layers, expected: &BTreeMap<ObjectId, BTreeSet<ObjectId>>) {
    for layer in &layers.layers {
        for segment in 0..layer.cue.segments.len() {
            let oid = layer.cue.oid(segment);
            let highest = parents(layer, segment).into_iter().map(|parent| {
                let (layer, entry) = layers.find(&parent).unwrap();
                layer
                    .cue
                    .segments
                    .generation(layer.cue.segments.of_entry(entry).unwrap())
            });
            assert_eq!(layer.cue.segments.generation(segment), highest.max().unwrap_or(0) + 1);
            let named = layers.segment(layer, segment);
            let unique: BTreeSet<&ObjectId> = named.iter().collect();
            assert_eq!(unique.len(), named.len(), "a segment names an object once");
            assert!(named.iter().all(|named| expected[&oid].contains(named)));
        }
    }
}

/// The packs, oldest first, are all that stock git needs.
pub(super) fn stock_git_reads(layers: &Layers, commits: &[ObjectId]) {
    let repo = Repo::with_format(layers.format);
    for layer in &layers.layers {
        repo.git(&["index-pack", "--stdin", "--fix-thin"], &layer.pack);
    }
    for commit in commits {
        repo.git(
            &["update-ref", &format!("refs/heads/{commit}"), &commit.to_string()],
            b"",
        );
    }
    repo.git(&["fsck", "--strict", "--connectivity-only"], b"");
}

#[test]
fn a_sha256_history_round_trips() {
    let repo = Repo::with_format(ObjectFormat::Sha256);
    let stream =
        "commit refs/heads/main\ncommitter C <c@example.com> 1 +0000\ndata 1\nm\nM 100644 inline f\ndata 3\nabc\n\n";
    repo.git(&["fast-import", "--quiet"], stream.as_bytes());
    let tip = repo.rev("main");
    let mut layers = Layers {
        format: ObjectFormat::Sha256,
        ..Layers::default()
    };
    layers.push(&repo.pack(&["main".into()], &[]), &[tip]).unwrap();
    assert_eq!(layers.closure(&tip).len(), 3);
    stock_git_reads(&layers, &[tip]);
}

#[test]
fn a_file_that_moves_is_not_new() {
    let repo = Repo::new();
    let stream = "commit refs/heads/main\nmark :1\ncommitter C <c@example.com> 1 +0000\ndata 1\nm\n\
        M 100644 inline dir/f\ndata 3\nabc\nM 100644 inline dir/g\ndata 3\ndef\n\n\
        commit refs/heads/main\ncommitter C <c@example.com> 2 +0000\ndata 1\nm\nfrom :1\n\
        R dir/f other/deep/f\nR dir moved\nM 100644 inline moved/h\ndata 1\nh\n\n";
    repo.git(&["fast-import", "--quiet"], stream.as_bytes());
    let tip = repo.rev("main");
    let mut layers = Layers::default();
    layers.push(&repo.pack(&["main".into()], &[]), &[tip]).unwrap();
    let layer = &layers.layers[0];
    assert_eq!(layer.cue.segments.len(), 2);
    // The root, `other`, `other/deep` and `moved`; of blobs only `h`.
    assert_eq!(layer.cue.segments.trees(1).len(), 4);
    assert_eq!(layer.cue.segments.blobs(1).len(), 1);
    assert_eq!(layer.cue.segments.links(1).len(), 0);
}

#[test]
fn tags_trees_and_blobs_have_their_root_sets() {
    let repo = Repo::new();
    random_history(&repo, 5, &mut fastrand::Rng::with_seed(3));
    let blob = String::from_utf8(repo.git(&["hash-object", "-w", "--stdin"], b"alone")).unwrap();
    repo.git(&["update-ref", "refs/tags/blob", blob.trim()], b"");
    repo.git(&["update-ref", "refs/tags/tree", "c5^{tree}"], b"");
    repo.git(&["tag", "-a", "-m", "t", "one", "c5"], b"");
    repo.git(&["tag", "-a", "-m", "t", "two", "one"], b"");
    repo.git(&["tag", "-a", "-m", "t", "of-blob", "blob"], b"");
    let names = [
        "refs/tags/two",
        "refs/tags/of-blob",
        "refs/tags/tree",
        "refs/tags/blob",
        "refs/heads/c5",
    ];
    let values = names.map(|name| repo.rev(name));
    let mut layers = Layers::default();
    let tips = layers.push(&repo.pack(&names.map(String::from), &[]), &values).unwrap();
    let (commit, blob) = (values[4], values[3]);
    let complete = |kind, peeled| Tip::Complete { kind, peeled };
    assert_eq!(
        tips,
        [
            complete(ObjectKind::Tag, Some(commit)),
            complete(ObjectKind::Tag, Some(blob)),
            complete(ObjectKind::Tree, None),
            complete(ObjectKind::Blob, None),
            complete(ObjectKind::Commit, None),
        ]
    );
    let cue = &layers.layers[0].cue;
    assert_eq!(cue.header.counts.tags, 3);
    assert_eq!(cue.roots.len(), 2);
    let expected: BTreeSet<ObjectId> = repo.objects(&names.map(String::from)).into_iter().collect();
    let stored: BTreeSet<ObjectId> = (0..cue.entries.len()).map(|entry| cue.oid(entry)).collect();
    assert_eq!(stored, expected);
}
