//! Damage of every sort, and whether a check finds it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod support;

use bytes::Bytes;
use cuesta_engine::fsck::FsckReport;
use cuesta_format::{
    AddedLayer, Cause, Cue, CueBuilder, Edit, LayerId, LayerMeta, LayerPlace, Link, RefTarget, RefUpdate, SegmentRow,
    layer_cue_key, layer_pack_key,
};
use cuesta_git::{ObjectFormat, ObjectId, RefName};
use cuesta_ledger::Committed;
use std::fs;
use std::sync::Arc;
use support::source::{Source, Target, git_in};

async fn fsck(target: &Target, quick: bool) -> FsckReport {
    target.repository().await.fsck(quick, Arc::new(|_| ())).await.unwrap()
}

async fn assert_sound(target: &Target) {
    for quick in [true, false] {
        let report = fsck(target, quick).await;
        assert_eq!((report.damages, &report.findings), (0, &Vec::new()));
    }
}

async fn assert_found(target: &Target, what: &str) {
    let report = fsck(target, false).await;
    let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(
        report.damages > 0 && lines.iter().any(|line| line.contains(what)),
        "'{what}' in {lines:#?}"
    );
}

async fn flush(target: &Target) {
    target.repository().await.flush().await.unwrap();
}

async fn metas(target: &Target) -> Vec<LayerMeta> {
    let view = target.repository().await.view().await.unwrap();
    view.state().layers().iter().map(|record| record.meta).collect()
}

async fn commit(target: &Target, change: impl FnOnce(&mut Edit)) {
    let repository = target.repository().await;
    let mut edit = repository.edit(Cause::Administer, "");
    change(&mut edit);
    assert!(matches!(
        repository.log().commit(edit).await.unwrap(),
        Committed::Done { .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sound_passes() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let (source, target) = (Source::filled(format), Target::new().await);
        target.import(source.path()).await;
        assert_sound(&target).await;
        for round in 0..12 {
            // A file that comes back, one that moves, a directory that becomes a file.
            fs::write(source.path().join("again"), format!("{}", round % 2)).unwrap();
            fs::rename(
                source.path().join(format!("moved{round}")),
                source.path().join(format!("moved{}", round + 1)),
            )
            .unwrap_or_default();
            source.commit(&format!("moved{}", round + 1), "content that stays\n");
            fs::write(source.path().join("loose"), format!("loose {round}")).unwrap();
            source.git(&["hash-object", "-w", "loose"]);
            target.import_exact(source.path()).await;
            flush(&target).await;
        }
        assert_sound(&target).await;
        assert!(target.repository().await.maintain().await.unwrap().merges > 0);
        assert_sound(&target).await;
        target.equals(&source).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shallow_repository_and_an_empty_one_pass() {
    let (origin, target) = (Source::filled(ObjectFormat::Sha1), Target::new().await);
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", origin.path().display());
    git_in(dir.path(), &["clone", "-q", "--bare", "--depth=1", &url, "shallow.git"]);
    target.import_exact(&dir.path().join("shallow.git")).await;
    assert_sound(&target).await;
    let empty = Target::new().await;
    empty.import(Source::new(ObjectFormat::Sha1).path()).await;
    let report = fsck(&empty, false).await;
    assert_eq!(report.damages, 0);
    assert_eq!(
        report.findings[0].to_string(),
        "notice: HEAD points to an unborn branch (refs/heads/main)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flipped_byte_is_found() {
    let (source, target) = (Source::filled(ObjectFormat::Sha1), Target::new().await);
    target.import(source.path()).await;
    flush(&target).await;
    let repository = target.repository().await;
    let meta = metas(&target).await[0];
    let bucket = target.engine.bucket();
    for key in [
        layer_pack_key(repository.id(), meta.id),
        layer_cue_key(repository.id(), meta.id),
    ] {
        let sound = bucket.get(&key).await.unwrap();
        for at in (0..sound.len()).step_by(11) {
            let mut damaged = sound.to_vec();
            damaged[at] ^= 1 << (at % 8);
            bucket.put(&key, damaged.into()).await.unwrap();
            let quick = at % 2 == 0;
            assert!(
                fsck(&target, quick).await.damages > 0,
                "byte {at} of {key}, quick {quick}"
            );
        }
        for wrong in [sound.slice(1..), [&sound[..], b"x"].concat().into(), Bytes::new()] {
            bucket.put(&key, wrong).await.unwrap();
            assert!(fsck(&target, true).await.damages > 0, "another length of {key}");
        }
        bucket.delete(&key).await.unwrap();
        assert_found(&target, "missing payload").await;
        bucket.put(&key, sound).await.unwrap();
        assert_sound(&target).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_to_nothing_or_to_the_wrong_thing_are_found() {
    let (source, target) = (Source::filled(ObjectFormat::Sha1), Target::new().await);
    target.import(source.path()).await;
    let update = |name: &str, oid: ObjectId, peeled: Option<ObjectId>| RefUpdate {
        name: RefName::new(name.as_bytes()).unwrap(),
        old: None,
        new: Some(RefTarget { oid, peeled }),
    };
    let nowhere = ObjectId::from_hex(ObjectFormat::Sha1, &[b'1'; 40]).unwrap();
    commit(&target, |edit| {
        edit.refs = vec![update("refs/heads/lost", nowhere, None)]
    })
    .await;
    assert_found(&target, "refs/heads/lost: invalid sha1 pointer 1111").await;
    let (tag, wrong) = (source.oid("v1"), source.oid("HEAD"));
    commit(&target, |edit| {
        edit.refs = vec![update("refs/tags/odd", tag, Some(wrong))]
    })
    .await;
    assert_found(&target, "refs/tags/odd: peels to").await;
    commit(&target, |edit| {
        edit.refs = vec![update("refs/heads/tag", tag, Some(wrong))]
    })
    .await;
    assert_found(&target, "refs/heads/tag: not a commit").await;
    let mut quick = fsck(&target, true).await;
    quick
        .findings
        .retain(|finding| finding.to_string().contains("refs/heads/"));
    assert_eq!(quick.findings.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_layer_breaks_what_rests_on_it() {
    let (source, target) = (Source::filled(ObjectFormat::Sha1), Target::new().await);
    target.import(source.path()).await;
    let tip = source.commit("more", "more\n");
    target.import(source.path()).await;
    let first = metas(&target).await[0].id;
    commit(&target, |edit| edit.removed = vec![first]).await;
    assert_found(
        &target,
        &format!("broken link: {tip} does not have all that it reaches"),
    )
    .await;
    assert_found(&target, "refs/tags/v1: invalid sha1 pointer").await;
}

/// Puts a layer in the place of the first whose cue says something else of its segments.
async fn lie(target: &Target, mut change: impl FnMut(u32, &mut SegmentRow, &mut Vec<Link>, &mut Vec<Link>)) {
    let repository = target.repository().await;
    let old = metas(target).await[0];
    let bucket = target.engine.bucket();
    let cue = bucket.get(&layer_cue_key(repository.id(), old.id)).await.unwrap();
    let cue = Cue::parse(cue).unwrap();
    let mut builder = CueBuilder::new(cue.header.object_format);
    for external in cue.externals.iter() {
        builder.external(&external).unwrap();
    }
    for entry in 0..cue.entries.len() {
        let (offset, size) = (cue.entries.offset(entry), cue.entries.size(entry));
        builder
            .entry(
                &cue.oid(entry),
                cue.entries.kind(entry),
                offset,
                size,
                cue.entries.base(entry),
            )
            .unwrap();
    }
    for segment in 0..cue.segments.len() {
        let mut row = SegmentRow {
            generation: cue.segments.generation(segment),
            commit_time: cue.segments.commit_time(segment),
            root_tree: cue.segments.root_tree(segment),
            trees: cue.segments.trees(segment).len() as u32,
            blobs: cue.segments.blobs(segment).len() as u32,
        };
        let mut parents = cue.segments.parents(segment).collect();
        let mut links = cue.segments.links(segment).collect();
        change(segment, &mut row, &mut parents, &mut links);
        builder.segment(row, parents, links).unwrap();
    }
    for root in 0..cue.roots.len() {
        let (trees, blobs) = (cue.roots.trees(root).len() as u32, cue.roots.blobs(root).len() as u32);
        let (oid, kind) = (cue.roots.oid(root), cue.roots.kind(root));
        builder.root(&oid, kind, trees, blobs, cue.roots.links(root)).unwrap();
    }
    for tag in cue.header.counts.tag_entries() {
        let (oid, kind) = cue.roots.tag_target(tag).unwrap();
        builder.tag_target(&oid, kind).unwrap();
    }
    let cue = builder.encode(cue.entries.offset(cue.entries.len())).unwrap();
    let id = LayerId(old.id.0 ^ u128::from(metas(target).await.len() as u64 + 1) ^ cue.len() as u128);
    let pack = bucket.get(&layer_pack_key(repository.id(), old.id)).await.unwrap();
    bucket.put(&layer_pack_key(repository.id(), id), pack).await.unwrap();
    bucket
        .put(&layer_cue_key(repository.id(), id), cue.clone().into())
        .await
        .unwrap();
    let meta = LayerMeta {
        id,
        cue_bytes: cue.len() as u64,
        ..old
    };
    let added = AddedLayer {
        meta,
        place: LayerPlace::Bucket,
    };
    commit(target, |edit| {
        edit.removed = vec![old.id];
        edit.added = vec![added];
    })
    .await;
}

/// One layer in the bucket, with a blob that comes back: a link.
async fn with_links() -> Target {
    let (source, target) = (Source::filled(ObjectFormat::Sha1), Target::new().await);
    for content in ["one\n", "two\n", "one\n"] {
        source.commit("file", content);
    }
    target.import(source.path()).await;
    flush(&target).await;
    target
}

#[tokio::test(flavor = "multi_thread")]
async fn cues_that_lie_are_found() {
    let target = with_links().await;
    lie(&target, |_, _, _, _| ()).await;
    assert_sound(&target).await;
    let mut dropped = 0;
    lie(&target, |_, _, _, links| {
        dropped += links.len();
        links.clear();
    })
    .await;
    assert!(dropped > 0);
    assert_found(&target, "its segment does not name").await;

    let target = with_links().await;
    lie(&target, |segment, row, _, _| row.commit_time += i64::from(segment == 1)).await;
    assert_found(&target, "the cue has another time").await;

    let target = with_links().await;
    lie(&target, |_, row, _, _| row.generation += 1).await;
    assert_found(&target, "").await;
    let target = with_links().await;
    lie(&target, |segment, _, parents, _| {
        if segment == 2 {
            *parents = vec![Link::Local(0)];
        }
    })
    .await;
    assert_found(&target, "").await;
    let target = with_links().await;
    let mut earlier = None;
    lie(&target, |_, row, _, _| {
        let own = row.root_tree;
        row.root_tree = *earlier.get_or_insert(own);
    })
    .await;
    assert_found(&target, "the cue names another tree").await;
}
