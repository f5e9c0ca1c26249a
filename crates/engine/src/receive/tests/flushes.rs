//! Inline layers merged and moved to the bucket.

use super::history::random_history;
use super::layers::Layers;
use super::pushes::Server;
use super::repo::Repo;
use crate::Flushed;
use bytes::Bytes;
use cuesta_format::{Cue, LayerPlace, layer_cue_key, layer_pack_key};
use cuesta_git::{Checksum, ObjectFormat, ObjectId};
use std::collections::BTreeSet;

const NULL: ObjectId = ObjectId::null(ObjectFormat::Sha1);

/// All layers of the repository, checked and read by plain means.
async fn layers_of(server: &Server) -> Layers {
    let state = server.repository.log().fresh().await.unwrap();
    let mut layers = Layers::default();
    // Bases may lie in later layers: what was flushed stands where the newest of it stood.
    for record in state.layers() {
        let (pack, cue) = match &record.place {
            LayerPlace::Inline { pack, cue } => (pack.clone(), cue.clone()),
            LayerPlace::Bucket => {
                let log = server.repository.id();
                let bucket = server.engine.bucket();
                let pack = bucket.get(&layer_pack_key(log, record.meta.id)).await.unwrap();
                (pack, bucket.get(&layer_cue_key(log, record.meta.id)).await.unwrap())
            }
        };
        let cue = Cue::parse(cue).unwrap();
        cue.verify().unwrap();
        assert_eq!(record.meta.self_contained, cue.header.self_contained);
        check_trailer(&pack, &cue, record.is_inline());
        layers.layers.push(super::layers::Layer { pack, cue });
    }
    layers.check_contents();
    layers
}

/// A pack in the bucket ends with its checksum, one in the ledger with its last entry.
fn check_trailer(pack: &Bytes, cue: &Cue, is_inline: bool) {
    let entries = cue.entries.len();
    let (body, trailer) = pack.split_at(cue.entries.range(entries - 1).end as usize);
    let mut checksum = Checksum::new(ObjectFormat::Sha1);
    checksum.update(body);
    let expected = checksum.finish();
    assert_eq!(trailer, if is_inline { b"" } else { expected.as_bytes() });
}

#[tokio::test(flavor = "multi_thread")]
async fn flushes_keep_every_object_segment_and_closure() {
    for seed in [31, 32, 33] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let repo = Repo::new();
        let commits = random_history(&repo, 40, &mut rng);
        repo.git(&["tag", "-a", "-m", "t", "one", "c7"], b"");
        repo.git(&["tag", "-a", "-m", "t", "tree", "c9^{tree}"], b"");
        let server = Server::new(|_| ()).await;
        assert_eq!(server.repository.flush().await.unwrap(), Flushed::Nothing);
        for (n, commit) in commits.iter().enumerate() {
            // Often more than is new is sent, so that the same object comes more than once.
            let mut revisions = vec![commit.to_string()];
            if rng.bool() {
                revisions.extend(commits[..n].iter().map(|commit| format!("^{commit}")));
            }
            let pack = repo.pack(&revisions, &["--thin", "--depth=50"]);
            let report = server
                .push(&[(&format!("refs/heads/c{n}"), NULL, *commit)], Some(pack))
                .await;
            assert_eq!(report.refs, [Ok(())]);
            if rng.u8(..6) == 0 {
                server.repository.flush().await.unwrap();
            }
        }
        for name in ["refs/tags/one", "refs/tags/tree"] {
            let pack = repo.pack(&[name.into()], &[]);
            let report = server.push(&[(name, NULL, repo.rev(name))], Some(pack)).await;
            assert_eq!(report.refs, [Ok(())]);
        }
        let before = layers_of(&server).await;
        server.repository.flush().await.unwrap();
        let after = layers_of(&server).await;
        assert!(after.layers.len() <= before.layers.len());
        assert_eq!(server.repository.flush().await.unwrap(), Flushed::Nothing);
        for commit in &commits {
            let expected: BTreeSet<ObjectId> = repo.objects(&[commit.to_string()]).into_iter().collect();
            assert_eq!(after.closure(commit), expected, "closure of {commit}, seed {seed}");
        }
        let view = server.repository.view().await.unwrap();
        let all = repo.objects(&["--all".into()]);
        for (oid, object) in all.iter().zip(view.objects(&all).await.unwrap()) {
            assert!(object.is_some(), "{oid} can be read after the flush");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_pushes_of_the_same_objects_merge_into_one_copy() {
    let repo = Repo::new();
    let commits = random_history(&repo, 15, &mut fastrand::Rng::with_seed(8));
    let tip = *commits.last().unwrap();
    let server = Server::new(|_| ()).await;
    let packs =
        [&["--depth=50"][..], &["--window=0"], &["--depth=2"]].map(|options| repo.pack(&["c15".into()], options));
    let [a, b, c] = packs.map(Some);
    let commands = ["refs/heads/a", "refs/heads/b", "refs/heads/c"].map(|name| [(name, NULL, tip)]);
    let (a, b, c) = futures::join!(
        server.push(&commands[0], a),
        server.push(&commands[1], b),
        server.push(&commands[2], c),
    );
    assert!([a, b, c].iter().all(|report| report.refs == [Ok(())]));
    server.repository.flush().await.unwrap();
    let layers = layers_of(&server).await;
    assert_eq!(layers.layers.len(), 1);
    let all = repo.objects(&["c15".into()]);
    assert_eq!(layers.layers[0].cue.entries.len() as usize, all.len());
    super::history::stock_git_reads(&layers, &[tip]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_folds_the_log() {
    let repo = Repo::new();
    let commits = random_history(&repo, 8, &mut fastrand::Rng::with_seed(4));
    let server = Server::new(|_| ()).await;
    for (n, commit) in commits.iter().enumerate() {
        let pack = repo.pack(&[commit.to_string()], &[]);
        server
            .push(&[(&format!("refs/heads/c{n}"), NULL, *commit)], Some(pack))
            .await;
    }
    assert_eq!(server.repository.write_checkpoint_if_due().await.unwrap(), None);
    server.repository.flush().await.unwrap();
    let number = server.repository.write_checkpoint().await.unwrap().unwrap();
    assert_eq!(number, server.repository.log().fresh().await.unwrap().number());
    let state = server.reopened().await;
    assert_eq!(state.number(), number);
    assert_eq!(state.refs().len(), commits.len());
    assert_eq!(state.layers().len(), 1);
}
