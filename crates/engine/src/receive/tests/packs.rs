//! Packs that must be taken and packs that must be refused.

use super::history::random_history;
use super::layers::{Layers, options};
use super::repo::Repo;
use crate::layer_builder::{Built, Chunk};
use crate::receive::cut::TREE_DEPTH_MAX;
use crate::receive::error::{IntakeError, ObjectFault, PackFault};
use crate::receive::intake::Intake;
use crate::receive::tips::Tip;
use cuesta_git::pack::{EntryHeader, EntryKind, PackHeader};
use cuesta_git::zlib::Deflater;
use cuesta_git::{Checksum, ObjectFormat, ObjectId, ObjectKind, object_id};

const FORMAT: ObjectFormat = ObjectFormat::Sha1;

pub(super) fn pack_of(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut pack = PackHeader::new(entries.len() as u32).encode().to_vec();
    pack.extend(entries.concat());
    sealed(pack)
}

fn sealed(mut pack: Vec<u8>) -> Vec<u8> {
    let mut checksum = Checksum::new(FORMAT);
    checksum.update(&pack);
    pack.extend_from_slice(checksum.finish().as_bytes());
    pack
}

fn entry_of_size(kind: EntryKind, size: u64, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    EntryHeader { kind, size }.encode(&mut out);
    Deflater::new(6).deflate(content, &mut out).unwrap();
    out
}

pub(super) fn entry(kind: EntryKind, content: &[u8]) -> Vec<u8> {
    entry_of_size(kind, content.len() as u64, content)
}

pub(super) fn blob(content: &[u8]) -> Vec<u8> {
    entry(EntryKind::Object(ObjectKind::Blob), content)
}

pub(super) fn oid(kind: ObjectKind, content: &[u8]) -> ObjectId {
    object_id(FORMAT, kind, content).unwrap()
}

fn refusal(pack: &[u8]) -> PackFault {
    match Layers::default().push(pack, &[]) {
        Err(IntakeError::Pack(fault)) => fault,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// A delta that inserts `new` after `copied` bytes of a base.
pub(super) fn delta(base: usize, copied: u8, new: &[u8]) -> Vec<u8> {
    let mut out = vec![base as u8, copied + new.len() as u8, 0x90, copied, new.len() as u8];
    out.extend_from_slice(new);
    out
}

#[test]
fn chunks_of_any_size_give_the_same() {
    let repo = Repo::new();
    let commits = random_history(&repo, 12, &mut fastrand::Rng::with_seed(5));
    let tip = *commits.last().unwrap();
    let pack = repo.pack(&["c12".into()], &["--delta-base-offset"]);
    let mut expected = Layers::default();
    expected.push(&pack, &[tip]).unwrap();
    for chunk_len in [1, 2, 7, 19, 300] {
        for spool_memory_bytes_max in [0, 1 << 20] {
            let mut options = options(FORMAT);
            options.limits.spool_memory_bytes_max = spool_memory_bytes_max;
            let mut intake = Intake::new(options);
            pack.chunks(chunk_len).for_each(|chunk| intake.feed(chunk).unwrap());
            intake.finish_pack().unwrap();
            let layers = Layers::default();
            let settled = intake.settle(&layers).unwrap();
            let reached = settled.reach(&layers, &Default::default(), &[tip]).unwrap();
            let mut built = settled.build(&layers, &reached, 1 << 30, &mut |_| Ok(())).unwrap();
            built.seal();
            assert_eq!(built.pack.unwrap(), expected.layers[0].pack);
        }
    }
}

#[test]
fn a_layer_streams_in_chunks() {
    let repo = Repo::new();
    let commits = random_history(&repo, 12, &mut fastrand::Rng::with_seed(5));
    let tip = *commits.last().unwrap();
    let mut layers = Layers::default();
    let mut intake = Intake::new(options(FORMAT));
    intake.feed(&repo.pack(&["c12".into()], &[])).unwrap();
    intake.finish_pack().unwrap();
    let settled = intake.settle(&layers).unwrap();
    let reached = settled.reach(&layers, &Default::default(), &[tip]).unwrap();
    let held = settled.build(&layers, &reached, 1 << 30, &mut |_| Ok(())).unwrap();
    let (mut pack, mut cue) = (Vec::new(), Vec::new());
    let built = settled
        .build(&layers, &reached, 300, &mut |chunk| {
            match chunk {
                Chunk::Pack(bytes) => pack.extend_from_slice(&bytes),
                Chunk::Cue(bytes) => cue.extend_from_slice(&bytes),
            }
            Ok(())
        })
        .unwrap();
    assert!(built.pack.is_none() && built.cue.is_empty());
    assert_eq!((cue.len() as u64, cue.as_slice()), (built.cue_bytes, &*held.cue));
    layers.add(Built {
        pack: Some(pack),
        cue: cue.into(),
        ..built
    });
}

#[test]
fn several_packs_are_one_push() {
    let repo = Repo::new();
    let commits = random_history(&repo, 20, &mut fastrand::Rng::with_seed(9));
    let tip = *commits.last().unwrap();
    let first = repo.pack(&["c10".into()], &["--delta-base-offset"]);
    let second = repo.pack(&["c20".into(), "^c10".into()], &["--delta-base-offset", "--thin"]);
    let mut intake = Intake::new(options(FORMAT));
    for pack in [&second, &first, &first] {
        intake.feed(pack).unwrap();
        intake.finish_pack().unwrap();
    }
    let mut layers = Layers::default();
    let settled = intake.settle(&layers).unwrap();
    let reached = settled.reach(&layers, &Default::default(), &[tip]).unwrap();
    let built = settled.build(&layers, &reached, 1 << 30, &mut |_| Ok(())).unwrap();
    layers.add(built);
    assert_eq!(layers.closure(&tip).len(), repo.objects(&[tip.to_string()]).len());
}

#[test]
fn what_nothing_reaches_is_dropped_or_kept_apart() {
    let repo = Repo::new();
    let commits = random_history(&repo, 20, &mut fastrand::Rng::with_seed(11));
    repo.git(&["tag", "-a", "-m", "t", "unreached", "c20"], b"");
    let names: Vec<String> = (1..=20).map(|n| format!("c{n}")).chain(["unreached".into()]).collect();
    let pack = repo.pack(&names, &["--depth=50"]);
    let mut intake = Intake::new(options(FORMAT));
    intake.feed(&pack).unwrap();
    intake.finish_pack().unwrap();
    let mut layers = Layers::default();
    let settled = intake.settle(&layers).unwrap();
    let reached = settled.reach(&layers, &Default::default(), &[commits[7]]).unwrap();
    let built = settled.build(&layers, &reached, 1 << 30, &mut |_| Ok(())).unwrap();
    assert!(built.self_contained, "a delta whose base is dropped is stored whole");
    let apart = settled
        .build_unreachable(&layers, &reached, 1 << 30, &mut |_| Ok(()))
        .unwrap()
        .unwrap();
    assert_eq!(built.objects + apart.objects, settled.objects());
    assert_eq!(
        (built.objects as usize, apart.segments),
        (repo.objects(&["c8".into()]).len(), 0)
    );
    layers.add(built);
    layers.add(apart);
}

#[test]
fn odd_packs_that_git_takes() {
    let base = b"a base that is long enough".to_vec();
    let base_oid = oid(ObjectKind::Blob, &base);
    let on_base = entry(EntryKind::RefDelta { base: base_oid }, &delta(base.len(), 6, b"!"));
    let on_delta = entry(
        EntryKind::RefDelta {
            base: oid(ObjectKind::Blob, b"a base!"),
        },
        &delta(7, 7, b"?"),
    );
    let result = oid(ObjectKind::Blob, b"a base!?");
    let orders = [
        vec![blob(&base), on_base.clone(), on_delta.clone()],
        vec![on_delta.clone(), on_base.clone(), blob(&base)],
        vec![
            on_delta.clone(),
            blob(&base),
            on_base.clone(),
            blob(&base),
            on_delta.clone(),
        ],
        vec![
            blob(b"a base!?"),
            on_delta.clone(),
            on_base.clone(),
            blob(b"a base!"),
            blob(&base),
        ],
    ];
    for entries in orders {
        let mut layers = Layers::default();
        let tips = layers.push(&pack_of(&entries), &[result]).unwrap();
        assert_eq!(
            tips,
            [Tip::Complete {
                kind: ObjectKind::Blob,
                peeled: None
            }]
        );
        assert_eq!(layers.object(&result).unwrap().1, b"a base!?");
    }
    let mut version_3 = pack_of(&[blob(b"x")]);
    version_3[7] = 3;
    version_3.truncate(version_3.len() - 20);
    Layers::default()
        .push(&sealed(version_3), &[oid(ObjectKind::Blob, b"x")])
        .unwrap();
    Layers::default().push(&pack_of(&[]), &[]).unwrap();
    let empty = [blob(b""), entry(EntryKind::Object(ObjectKind::Tree), b"")];
    Layers::default()
        .push(&pack_of(&empty), &[oid(ObjectKind::Tree, b"")])
        .unwrap();
}

/// Two deltas that give each other's base, beside the whole objects: resolved, they must not be stored as a circle.
#[test]
fn duplicates_cannot_make_a_circle_of_deltas() {
    let (a, b) = (b"aaaaaaaaaaaaaaaa1".to_vec(), b"aaaaaaaaaaaaaaaa2".to_vec());
    let a_from_b = entry(
        EntryKind::RefDelta {
            base: oid(ObjectKind::Blob, &b),
        },
        &delta(17, 16, b"1"),
    );
    let b_from_a = entry(
        EntryKind::RefDelta {
            base: oid(ObjectKind::Blob, &a),
        },
        &delta(17, 16, b"2"),
    );
    let tree = [
        &b"100644 a\0"[..],
        oid(ObjectKind::Blob, &a).as_bytes(),
        b"100644 b\0",
        oid(ObjectKind::Blob, &b).as_bytes(),
    ]
    .concat();
    let tree_entry = entry(EntryKind::Object(ObjectKind::Tree), &tree);
    for whole in [&a, &b] {
        let entries = [a_from_b.clone(), b_from_a.clone(), blob(whole), tree_entry.clone()];
        let mut layers = Layers::default();
        layers
            .push(&pack_of(&entries), &[oid(ObjectKind::Tree, &tree)])
            .unwrap();
        assert_eq!(layers.object(&oid(ObjectKind::Blob, &a)).unwrap().1, a);
        assert_eq!(layers.object(&oid(ObjectKind::Blob, &b)).unwrap().1, b);
    }
    assert_eq!(refusal(&pack_of(&[a_from_b, b_from_a])), PackFault::Unresolved(2));
}

#[test]
fn long_chains_need_no_stack_and_little_memory() {
    let mut content = vec![b'x'; 100];
    let mut entries = vec![blob(&content)];
    for n in 0..20_000u32 {
        let base = oid(ObjectKind::Blob, &content);
        let new = n.to_be_bytes();
        content.truncate(96);
        content.extend_from_slice(&new);
        entries.push(entry(EntryKind::RefDelta { base }, &delta(100, 96, &new)));
    }
    entries.reverse();
    let mut options = options(FORMAT);
    options.limits.base_bytes_max = 1000;
    let mut intake = Intake::new(options);
    intake.feed(&pack_of(&entries)).unwrap();
    intake.finish_pack().unwrap();
    let settled = intake.settle(&crate::receive::known::Nothing).unwrap();
    let tip = oid(ObjectKind::Blob, &content);
    let reached = settled
        .reach(&crate::receive::known::Nothing, &Default::default(), &[tip])
        .unwrap();
    assert_eq!(
        reached.tips,
        [Tip::Complete {
            kind: ObjectKind::Blob,
            peeled: None
        }]
    );
}

#[test]
fn a_bushy_tree_of_deltas_resolves_within_a_tight_bound() {
    let root = vec![b'r'; 100];
    let mut entries = vec![blob(&root)];
    let mut level = vec![root];
    for depth in 0..7u8 {
        let mut next = Vec::new();
        for (n, base) in level.iter().enumerate() {
            for child in 0..2u8 {
                let new = [depth, n as u8, child];
                let content = [&base[..90], &new].concat();
                let base_oid = oid(ObjectKind::Blob, base);
                entries.push(entry(
                    EntryKind::RefDelta { base: base_oid },
                    &delta(base.len(), 90, &new),
                ));
                next.push(content);
            }
        }
        level = next;
    }
    for base_bytes_max in [0, 150, 250, 1 << 20] {
        let mut options = options(FORMAT);
        options.limits.base_bytes_max = base_bytes_max;
        let mut intake = Intake::new(options);
        intake.feed(&pack_of(&entries)).unwrap();
        intake.finish_pack().unwrap();
        assert_eq!(intake.settle(&crate::receive::known::Nothing).unwrap().objects(), 255);
    }
}

#[test]
fn a_broken_frame_is_refused() {
    let good = pack_of(&[blob(b"hello"), blob(b"world")]);
    let with = |at: usize, byte: u8| {
        let mut pack = good.clone();
        pack[at] = byte;
        pack
    };
    assert_eq!(refusal(&with(0, b'p')), PackFault::Signature);
    assert_eq!(refusal(&with(7, 4)), PackFault::Version(4));
    assert!(matches!(
        refusal(&with(good.len() - 1, 0x55)),
        PackFault::Trailer { .. }
    ));
    assert_eq!(refusal(&[good.clone(), vec![0]].concat()), PackFault::Junk);
    let mut fewer = good[..good.len() - 20].to_vec();
    fewer[11] = 1;
    assert!(matches!(
        refusal(&sealed(fewer)),
        PackFault::Trailer { .. } | PackFault::Junk
    ));
    let mut more = good[..good.len() - 20].to_vec();
    more[11] = 3;
    assert!(matches!(
        refusal(&sealed(more)),
        PackFault::BadObject { .. } | PackFault::EarlyEof
    ));
    for len in 0..good.len() {
        assert_eq!(refusal(&good[..len]), PackFault::EarlyEof, "cut at {len}");
    }
    for bit in 0..good.len() * 8 {
        let mut flipped = good.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let version_3 = bit == 7 * 8;
        if version_3 {
            continue;
        }
        refusal(&flipped);
    }
}

#[test]
fn broken_entries_are_refused() {
    let fault = |entries: &[Vec<u8>]| match refusal(&pack_of(entries)) {
        PackFault::BadObject { fault, .. } => fault,
        other => panic!("{other}"),
    };
    let kind = EntryKind::Object(ObjectKind::Blob);
    for size in [0, 4, 6, 1 << 30] {
        let lie = fault(&[entry_of_size(kind, size, b"hello")]);
        assert!(matches!(lie, ObjectFault::Size { .. }), "{lie}");
    }
    assert!(matches!(
        fault(&[entry_of_size(kind, u64::MAX >> 4, b"hello")]),
        ObjectFault::TooLarge { .. }
    ));
    assert!(matches!(fault(&[vec![0x05, 1, 2, 3]]), ObjectFault::Header(_)));
    assert!(matches!(fault(&[vec![0x55, 1, 2, 3]]), ObjectFault::Header(_)));
    assert!(matches!(
        fault(&[vec![0x35, b'n', b'o', b't', b' ', b'z', b'l', b'i', b'b']]),
        ObjectFault::Inflate(_)
    ));
    for distance in [1, 3, 1000] {
        let bad = entry(EntryKind::OfsDelta { distance }, &delta(5, 5, b"!"));
        assert_eq!(fault(&[blob(b"hello"), bad]), ObjectFault::BaseOutOfBound);
    }
    let broken: [&[u8]; 7] = [
        &[],
        &[5],
        &[9, 1, 1, b'x'],
        &[5, 9, 0x90, 5],
        &[5, 9, 0x91, 4, 9],
        &[5, 1, 0, b'x'],
        &[5, 2, 0x90],
    ];
    let first = blob(b"hello");
    for bytes in broken {
        let bad = entry(
            EntryKind::OfsDelta {
                distance: first.len() as u64,
            },
            bytes,
        );
        let refused = fault(&[first.clone(), bad]);
        assert!(matches!(refused, ObjectFault::Delta(_)), "{bytes:?}: {refused}");
    }
    let huge = [0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let bad = entry(
        EntryKind::OfsDelta {
            distance: first.len() as u64,
        },
        &huge,
    );
    assert!(matches!(fault(&[first.clone(), bad]), ObjectFault::TooLarge { .. }));
}

#[test]
fn bases_that_are_nowhere_are_refused() {
    let missing = entry(
        EntryKind::RefDelta {
            base: ObjectId::Sha1([7; 20]),
        },
        &delta(5, 5, b"!"),
    );
    assert_eq!(refusal(&pack_of(&[missing])), PackFault::Unresolved(1));
    assert_eq!(PackFault::Unresolved(1).to_string(), "pack has 1 unresolved delta");
}

/// A commit whose trees lie so many levels deep, each in the other.
fn nested(levels: usize) -> (Vec<u8>, ObjectId) {
    let mut entries = vec![blob(b"x")];
    let mut below = ("100644 f", oid(ObjectKind::Blob, b"x"));
    for _ in 0..levels {
        let tree = [below.0.as_bytes(), b"\0", below.1.as_bytes()].concat();
        entries.push(entry(EntryKind::Object(ObjectKind::Tree), &tree));
        below = ("40000 d", oid(ObjectKind::Tree, &tree));
    }
    let author = "A <a@x> 1700000000 +0000";
    let commit = format!("tree {}\nauthor {author}\ncommitter {author}\n\nm\n", below.1);
    entries.push(entry(EntryKind::Object(ObjectKind::Commit), commit.as_bytes()));
    (pack_of(&entries), oid(ObjectKind::Commit, commit.as_bytes()))
}

#[test]
fn trees_have_a_depth() {
    for (levels, taken) in [
        (TREE_DEPTH_MAX - 1, true),
        (TREE_DEPTH_MAX, true),
        (TREE_DEPTH_MAX + 1, false),
    ] {
        let (pack, tip) = nested(levels);
        let mut layers = Layers::default();
        let pushed = layers.push_with(options(FORMAT), &pack, &[tip]);
        let taken_in = pushed.is_ok() && layers.object(&tip).is_some();
        assert_eq!(taken_in, taken, "{levels}");
    }
}

#[test]
fn limits_hold_at_and_above() {
    let pack = pack_of(&[blob(b"hello"), blob(b"world")]);
    let with = |change: &dyn Fn(&mut crate::receive::options::IntakeOptions)| {
        let mut options = options(FORMAT);
        change(&mut options);
        Layers::default()
            .push_with(options, &pack, &[])
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let len = pack.len() as u64;
    assert_eq!(with(&|options| options.limits.pack_bytes_max = Some(len)), Ok(()));
    assert!(
        with(&|options| options.limits.pack_bytes_max = Some(len - 1))
            .unwrap_err()
            .contains("maximum allowed size")
    );
    assert_eq!(with(&|options| options.limits.objects_max = 2), Ok(()));
    assert!(
        with(&|options| options.limits.objects_max = 1)
            .unwrap_err()
            .contains("too many objects")
    );
    assert_eq!(with(&|options| options.limits.blob_bytes_max = 5), Ok(()));
    assert!(
        with(&|options| options.limits.blob_bytes_max = 4)
            .unwrap_err()
            .contains("too large")
    );
}

#[test]
fn whatever_is_missing_makes_the_tip_incomplete() {
    let repo = Repo::new();
    let stream = "commit refs/heads/main\nmark :1\ncommitter C <c@example.com> 1 +0000\ndata 1\nm\n\
        M 100644 inline dir/f\ndata 3\nabc\n\n\
        commit refs/heads/main\ncommitter C <c@example.com> 2 +0000\ndata 1\nm\nfrom :1\nM 100644 inline g\ndata 1\ng\n\n\
        tag t\nfrom refs/heads/main\ntagger C <c@example.com> 2 +0000\ndata 1\nm\n";
    repo.git(&["fast-import", "--quiet"], stream.as_bytes());
    let (tip, tag) = (repo.rev("main"), repo.rev("t"));
    let all = repo.objects(&["t".into()]);
    let content = |oid: &ObjectId| {
        let kind = ObjectKind::from_name(repo.text(&["cat-file", "-t", &oid.to_string()]).as_bytes()).unwrap();
        entry(
            EntryKind::Object(kind),
            &repo.git(&["cat-file", kind.name(), &oid.to_string()], b""),
        )
    };
    assert_eq!(all.len(), 8);
    for missing in &all {
        let entries: Vec<Vec<u8>> = all.iter().filter(|oid| *oid != missing).map(content).collect();
        let mut layers = Layers::default();
        let tips = layers.push(&pack_of(&entries), &[tag, tip]).unwrap();
        assert_eq!(tips[0], Tip::Incomplete, "without {missing}");
        assert_eq!(tips[1] == Tip::Incomplete, *missing != tag, "without {missing}");
        let stored = layers.layers.len();
        assert_eq!(
            stored,
            usize::from(*missing == tag),
            "nothing of an incomplete push is stored"
        );
    }
}

#[test]
fn a_name_of_the_wrong_kind_makes_the_tip_incomplete() {
    let file = oid(ObjectKind::Blob, b"x");
    for (mode, complete) in [("100644", true), ("40000", false)] {
        let tree = [format!("{mode} f\0").as_bytes(), file.as_bytes()].concat();
        let entries = [blob(b"x"), entry(EntryKind::Object(ObjectKind::Tree), &tree)];
        let tips = Layers::default()
            .push(&pack_of(&entries), &[oid(ObjectKind::Tree, &tree)])
            .unwrap();
        assert_eq!(tips[0] != Tip::Incomplete, complete);
    }
    let gitlink = [&b"160000 f\0"[..], &[9; 20]].concat();
    let entries = [entry(EntryKind::Object(ObjectKind::Tree), &gitlink)];
    let tips = Layers::default()
        .push(&pack_of(&entries), &[oid(ObjectKind::Tree, &gitlink)])
        .unwrap();
    assert_ne!(tips[0], Tip::Incomplete);
}

#[test]
fn a_large_blob_streams() {
    let content = vec![b'z'; 5 << 20];
    let pack = pack_of(&[blob(&content)]);
    let mut layers = Layers::default();
    let value = oid(ObjectKind::Blob, &content);
    for chunk_len in [1000, 1 << 20] {
        let mut intake = Intake::new(options(FORMAT));
        pack.chunks(chunk_len).for_each(|chunk| intake.feed(chunk).unwrap());
        intake.finish_pack().unwrap();
        intake.settle(&layers).unwrap();
    }
    layers.push(&pack, &[value]).unwrap();
}

#[test]
fn objects_are_checked_as_fsck_does_also_across_pushes() {
    let file = oid(ObjectKind::Blob, b"x");
    let tree_of = |name: &str, blob: &ObjectId| [format!("100644 {name}\0").as_bytes(), blob.as_bytes()].concat();
    let push_tree = |layers: &mut Layers, entries: &[Vec<u8>], tree: &[u8]| {
        let pack = pack_of(&[entries, &[entry(EntryKind::Object(ObjectKind::Tree), tree)]].concat());
        layers
            .push(&pack, &[oid(ObjectKind::Tree, tree)])
            .map_err(|error| error.to_string())
    };
    let dotgit = push_tree(&mut Layers::default(), &[blob(b"x")], &tree_of(".git", &file)).unwrap_err();
    assert!(
        dotgit.starts_with("fsck error in packed object: object ") && dotgit.contains(": hasDotgit: "),
        "{dotgit}"
    );
    let evil = b"[submodule \"../../x\"]\n\tpath = a\n\turl = https://example.com/\n";
    let evil_oid = oid(ObjectKind::Blob, evil);
    let mut layers = Layers::default();
    push_tree(&mut layers, &[blob(evil)], &tree_of("harmless", &evil_oid)).unwrap();
    let refused = push_tree(&mut layers, &[], &tree_of(".gitmodules", &evil_oid)).unwrap_err();
    assert!(refused.contains(": gitmodulesName: "), "{refused}");
    let together = push_tree(
        &mut Layers::default(),
        &[blob(evil)],
        &tree_of(".gitmodules", &evil_oid),
    )
    .unwrap_err();
    assert_eq!(together, refused);
    let missing = push_tree(&mut Layers::default(), &[], &tree_of(".gitmodules", &evil_oid)).unwrap_err();
    assert!(missing.contains(": gitmodulesMissing: "), "{missing}");
}

#[test]
fn any_bytes_are_an_answer_however_they_are_cut() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let repo = Repo::new();
    random_history(&repo, 6, &mut fastrand::Rng::with_seed(2));
    let good = repo.pack(&["c6".into()], &["--delta-base-offset"]);
    let limits = crate::receive::ReceiveOptions {
        threads: 1,
        ..Default::default()
    };
    for _ in 0..300 {
        let mut pack = good[..good.len() - 20].to_vec();
        for _ in 0..=rng.usize(..3) {
            let at = rng.usize(12..pack.len());
            pack[at] = rng.u8(..);
        }
        let pack = sealed(pack);
        let chunk_len = rng.usize(1..400);
        let whole = crate::receive::check_pack(FORMAT, &limits, [pack.as_slice()]);
        let cut = crate::receive::check_pack(FORMAT, &limits, pack.chunks(chunk_len));
        assert_eq!(whole.ok(), cut.ok());
    }
}
