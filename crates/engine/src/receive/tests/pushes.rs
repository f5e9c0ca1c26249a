//! Whole pushes into a repository over an in-memory log and bucket.

use super::history::random_history;
use super::repo::Repo;
use crate::receive::{ReceiveReport, ReceiveRequest, RefCommand};
use crate::{Engine, EngineOptions, EngineParts, Repository, RepositoryName};
use bytes::Bytes;
use cuesta_format::{Entry, NonceStatus, PushCertificate, PushNote};
use cuesta_git::{ObjectFormat, ObjectId, RefName};
use cuesta_ledger::MemoryStore;
use cuesta_store::{BlockCache, Bucket, BucketOptions, CacheOptions, Clock, Entropy, Workers};
use futures::StreamExt as _;
use std::sync::Arc;

pub(super) const NULL: ObjectId = ObjectId::null(ObjectFormat::Sha1);

pub(super) struct Server {
    pub(super) parts: Arc<dyn Fn() -> EngineParts + Send + Sync>,
    pub(super) engine: Engine,
    pub(super) repository: Arc<Repository>,
}

impl Server {
    pub(super) async fn new(change: impl FnOnce(&mut EngineOptions)) -> Self {
        let mut options = EngineOptions {
            check_ids: true,
            ..EngineOptions::default()
        };
        change(&mut options);
        let options_of_cache = CacheOptions {
            memory_bytes_max: 16 << 20,
            ..CacheOptions::default()
        };
        let bucket = Bucket::open("memory:", &BucketOptions::default()).unwrap();
        let log_store = Arc::new(MemoryStore::new());
        let workers = Workers::Pool(tokio::runtime::Handle::current());
        let parts = move || EngineParts {
            cache: BlockCache::new(bucket.clone(), options_of_cache.clone()).unwrap(),
            log_store: log_store.clone(),
            clock: Clock::new(|| 0),
            entropy: Entropy::seeded(1),
            workers: workers.clone(),
            options: options.clone(),
        };
        let parts: Arc<dyn Fn() -> EngineParts + Send + Sync> = Arc::new(parts);
        let engine = Engine::open(parts()).await.unwrap();
        let name = RepositoryName::parse("a/b").unwrap();
        let repository = engine.create_repository(&name, ObjectFormat::Sha1, "").await.unwrap();
        Self {
            parts,
            engine,
            repository,
        }
    }

    pub(super) async fn push(&self, commands: &[(&str, ObjectId, ObjectId)], pack: Option<Vec<u8>>) -> ReceiveReport {
        self.push_with(commands, pack, |_| ()).await
    }

    async fn push_with(
        &self,
        commands: &[(&str, ObjectId, ObjectId)],
        pack: Option<Vec<u8>>,
        change: impl FnOnce(&mut ReceiveRequest),
    ) -> ReceiveReport {
        let command = |(name, old, new): &(&str, _, _)| RefCommand {
            name: name.as_bytes().to_vec(),
            old: *old,
            new: *new,
        };
        let mut request = ReceiveRequest::new(commands.iter().map(command).collect(), "somebody");
        change(&mut request);
        let chunks: Option<Vec<Result<Bytes, std::io::Error>>> = pack.map(|pack| {
            pack.chunks(1000)
                .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
                .collect()
        });
        let stream = chunks.map(futures::stream::iter);
        self.repository.receive(request, stream, |_| ()).await.unwrap()
    }

    pub(super) async fn value(&self, name: &str) -> Option<ObjectId> {
        let state = self.repository.log().fresh().await.unwrap();
        state
            .refs()
            .get(&RefName::new(name.as_bytes()).unwrap())
            .map(|target| target.oid)
    }

    /// The state of the repository as another node finds it.
    pub(super) async fn reopened(&self) -> Arc<cuesta_ledger::State> {
        let engine = Engine::open((self.parts)()).await.unwrap();
        let name = RepositoryName::parse("a/b").unwrap();
        let repository = engine.repository(&name).await.unwrap().unwrap();
        repository.log().fresh().await.unwrap()
    }

    pub(super) async fn payloads(&self) -> usize {
        self.engine.bucket().list("repos/").collect::<Vec<_>>().await.len()
    }
}

pub(super) fn ok(report: &ReceiveReport) {
    assert_eq!(report.unpack, Ok(()));
    assert!(report.refs.iter().all(Result::is_ok), "{report:?}");
}

pub(super) fn reasons(report: &ReceiveReport) -> Vec<&str> {
    report
        .refs
        .iter()
        .map(|done| done.as_ref().map_or_else(String::as_str, |()| "ok"))
        .collect()
}

pub(super) fn chain(repo: &Repo) -> Vec<ObjectId> {
    let mut stream = String::new();
    for mark in 1..=4 {
        stream +=
            &format!("commit refs/heads/main\nmark :{mark}\ncommitter C <c@example.com> {mark} +0000\ndata 1\nm\n");
        stream += &format!("M 100644 inline dir/f{mark}\ndata 3\nx{mark}\n\n\n");
    }
    repo.git(&["fast-import", "--quiet"], stream.as_bytes());
    (0..4).rev().map(|back| repo.rev(&format!("main~{back}"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_of_every_size_and_place_can_be_read_back() {
    let repo = Repo::new();
    let commits = random_history(&repo, 40, &mut fastrand::Rng::with_seed(21));
    for inline_bytes_max in [0, 2000, 1 << 20] {
        for spool_memory_bytes_max in [0, 1 << 20] {
            let server = Server::new(|options| {
                options.receive.inline_bytes_max = inline_bytes_max;
                options.receive.spool_memory_bytes_max = spool_memory_bytes_max;
            })
            .await;
            for (at, step) in [0, 1, 2, 20, 39].windows(2).map(|pair| (pair[0], pair[1])) {
                let mut revisions: Vec<String> = commits[at..=step].iter().map(ObjectId::to_string).collect();
                revisions.extend(commits[..at].iter().map(|commit| format!("^{commit}")));
                let names: Vec<String> = (at..=step).map(|n| format!("refs/heads/p{step}-{n}")).collect();
                let commands: Vec<_> = names
                    .iter()
                    .zip(&commits[at..=step])
                    .map(|(name, tip)| (name.as_str(), NULL, *tip))
                    .collect();
                ok(&server
                    .push(
                        &commands,
                        Some(repo.pack(&revisions, &["--thin", "--delta-base-offset"])),
                    )
                    .await);
            }
            let view = server.repository.view().await.unwrap();
            let all = repo.objects(&["--all".into()]);
            for (oid, object) in all.iter().zip(view.objects(&all).await.unwrap()) {
                assert!(object.is_some(), "{oid} can be read");
            }
            assert_eq!(server.payloads().await == 0, inline_bytes_max == 1 << 20);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_is_not_small_streams_to_the_bucket() {
    let repo = Repo::new();
    let noise: String = std::iter::repeat_with(fastrand::alphanumeric).take(9 << 20).collect();
    let stream = format!(
        "commit refs/heads/main\ncommitter C <c@example.com> 1 +0000\ndata 1\nm\nM 100644 inline f\ndata {}\n{noise}\n\n",
        noise.len()
    );
    repo.git(&["fast-import", "--quiet"], stream.as_bytes());
    let tip = repo.rev("main");
    let server = Server::new(|options| options.receive.spool_memory_bytes_max = 1 << 20).await;
    ok(&server
        .push(
            &[("refs/heads/main", NULL, tip)],
            Some(repo.pack(&["main".into()], &[])),
        )
        .await);
    assert_eq!(server.payloads().await, 2);
    let view = server.repository.view().await.unwrap();
    assert_eq!(
        view.object(&repo.rev("main:f")).await.unwrap().unwrap().1,
        noise.as_bytes()
    );
}

#[tokio::test]
async fn old_values_are_compared_and_each_ref_stands_by_itself() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|_| ()).await;
    let pack = |tip: usize| Some(repo.pack(&[c[tip].to_string()], &[]));
    ok(&server.push(&[("refs/heads/main", NULL, c[1])], pack(1)).await);
    let report = server
        .push(
            &[
                ("refs/heads/main", c[0], c[2]),
                ("refs/heads/other", NULL, c[2]),
                ("refs/heads/main/below", NULL, c[2]),
                ("refs/heads/gone", c[0], c[2]),
            ],
            pack(2),
        )
        .await;
    assert_eq!(
        reasons(&report),
        [
            "incorrect old value provided",
            "ok",
            "refname conflict",
            "reference does not exist"
        ]
    );
    assert_eq!(server.value("refs/heads/main").await, Some(c[1]));
    assert_eq!(server.value("refs/heads/other").await, Some(c[2]));
    let report = server
        .push(&[("refs/heads/main", NULL, c[2])], Some(repo.pack(&[], &[])))
        .await;
    assert_eq!(reasons(&report), ["reference already exists"]);
}

#[tokio::test]
async fn atomic_is_all_or_nothing() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|options| options.receive.inline_bytes_max = 0).await;
    let atomic = |request: &mut ReceiveRequest| request.atomic = true;
    let pack = Some(repo.pack(&[c[1].to_string()], &[]));
    let bad = ObjectId::Sha1([9; 20]);
    let cases: [(&str, ObjectId, ObjectId, &str); 4] = [
        ("refs/heads/b", c[0], c[1], "reference does not exist"),
        ("refs/heads/b", c[1], c[0], "reference does not exist"),
        ("refs/heads/b", NULL, bad, "missing necessary objects"),
        ("funny", NULL, c[1], "funny refname"),
    ];
    for (name, old, new, reason) in cases {
        let commands = [("refs/heads/a", NULL, c[1]), (name, old, new)];
        let report = server.push_with(&commands, pack.clone(), atomic).await;
        assert_eq!(reasons(&report), ["atomic push failure", reason]);
        assert_eq!(server.value("refs/heads/a").await, None);
        assert_eq!(server.payloads().await, 0, "an orphan layer is deleted");
    }
    ok(&server
        .push_with(
            &[("refs/heads/a", NULL, c[1]), ("refs/heads/b", NULL, c[0])],
            pack,
            atomic,
        )
        .await);
}

#[tokio::test]
async fn a_broken_pack_refuses_every_ref_and_leaves_nothing() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|options| options.receive.inline_bytes_max = 0).await;
    let mut pack = repo.pack(&[c[1].to_string()], &[]);
    let last = pack.len() - 1;
    pack[last] ^= 1;
    let report = server
        .push(
            &[("refs/heads/a", NULL, c[1]), ("refs/heads/b", NULL, c[0])],
            Some(pack),
        )
        .await;
    assert!(report.unpack.unwrap_err().starts_with("pack is corrupted"));
    assert_eq!(report.refs, vec![Err("unpacker error".to_owned()); 2]);
    assert_eq!((server.value("refs/heads/a").await, server.payloads().await), (None, 0));
}

#[tokio::test]
async fn what_is_missing_is_missing_for_its_own_ref_only() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|_| ()).await;
    let pack = Some(repo.pack(&[c[3].to_string(), format!("^{}", c[1])], &[]));
    let commands = [
        ("refs/heads/bad", NULL, c[3]),
        ("refs/heads/none", NULL, ObjectId::Sha1([5; 20])),
    ];
    assert_eq!(
        reasons(&server.push(&commands, pack.clone()).await),
        ["missing necessary objects"; 2]
    );
    assert!(server.repository.log().fresh().await.unwrap().layers().is_empty());
    ok(&server
        .push(
            &[("refs/heads/base", NULL, c[1])],
            Some(repo.pack(&[c[1].to_string()], &[])),
        )
        .await);
    assert_eq!(
        reasons(&server.push(&commands, pack).await),
        ["ok", "missing necessary objects"]
    );
}

#[tokio::test]
async fn names_kinds_and_symbolic_refs() {
    let repo = Repo::new();
    let c = chain(&repo);
    let tree = repo.rev("main^{tree}");
    repo.git(&["tag", "-a", "-m", "t", "v1", "main"], b"");
    let tag = repo.rev("refs/tags/v1");
    let server = Server::new(|_| ()).await;
    let pack = || Some(repo.pack(&["main".into(), "refs/tags/v1".into()], &[]));
    let report = server
        .push(
            &[
                ("refs/heads/tree", NULL, tree),
                ("refs/heads/tag", NULL, tag),
                ("refs/one", NULL, c[3]),
                ("HEAD", NULL, c[3]),
                ("refs/heads/a..b", NULL, c[3]),
                ("refs/tags/v1", NULL, tag),
                ("refs/tags/tree", NULL, tree),
            ],
            pack(),
        )
        .await;
    let (failed, funny) = ("failed to update ref", "funny refname");
    assert_eq!(reasons(&report), [failed, failed, funny, funny, funny, "ok", "ok"]);
    let state = server.repository.log().fresh().await.unwrap();
    let target = state.refs().get(&RefName::new(b"refs/tags/v1").unwrap()).unwrap();
    assert_eq!((target.oid, target.peeled), (tag, Some(c[3])));

    let mut edit = server.repository.edit(cuesta_format::Cause::Administer, "");
    edit.symrefs = vec![cuesta_format::SymrefChange {
        name: RefName::new(b"refs/heads/alias").unwrap(),
        target: Some(RefName::new(b"refs/heads/real").unwrap()),
    }];
    server.repository.log().commit(edit).await.unwrap();
    ok(&server.push(&[("refs/heads/alias", NULL, c[2])], pack()).await);
    assert_eq!(server.value("refs/heads/real").await, Some(c[2]));
    let both = |real| [("refs/heads/alias", c[2], c[3]), ("refs/heads/real", c[2], real)];
    assert_eq!(
        reasons(&server.push(&both(c[1]), pack()).await),
        ["inconsistent aliased update"; 2]
    );
    ok(&server.push(&both(c[3]), pack()).await);
    assert_eq!(server.value("refs/heads/real").await, Some(c[3]));
}

#[tokio::test]
async fn deletions_and_settings() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|_| ()).await;
    let names = ["refs/heads/main", "refs/heads/x", "refs/heads/y", "refs/hidden/z"];
    let creations = names.map(|name| (name, NULL, c[2]));
    ok(&server.push(&creations, Some(repo.pack(&["main".into()], &[]))).await);
    let report = server
        .push(
            &[
                ("refs/heads/main", c[2], NULL),
                ("refs/heads/x", c[2], NULL),
                ("refs/heads/none", NULL, NULL),
            ],
            None,
        )
        .await;
    assert_eq!(
        reasons(&report),
        ["deletion of the current branch prohibited", "ok", "ok"]
    );
    assert_eq!(report.warnings, ["deleting a non-existent ref"]);
    assert_eq!(server.value("refs/heads/x").await, None);
    ok(&server
        .push(
            &[("refs/heads/y", c[2], NULL), ("refs/heads/y/below", NULL, c[1])],
            Some(repo.pack(&[], &[])),
        )
        .await);
    for (name, value) in [
        ("receive.denydeletes", "true"),
        ("receive.denynonfastforwards", "true"),
        ("transfer.hiderefs", "refs/hidden\nrefs/secret"),
    ] {
        server.repository.set_setting(name, Some(value), "").await.unwrap();
    }
    let report = server
        .push(
            &[
                ("refs/heads/y/below", c[1], NULL),
                ("refs/hidden/z", c[2], NULL),
                ("refs/secret/n", NULL, c[2]),
                ("refs/heads/main", c[2], c[1]),
            ],
            Some(repo.pack(&[], &[])),
        )
        .await;
    let expected = [
        "deletion prohibited",
        "deny deleting a hidden ref",
        "deny updating a hidden ref",
        "non-fast-forward",
    ];
    assert_eq!(reasons(&report), expected);
    ok(&server
        .push(
            &[("refs/heads/main", c[2], c[3])],
            Some(repo.pack(&["main".into()], &[])),
        )
        .await);
    server
        .repository
        .set_setting("receive.maxinputsize", Some("1k"), "")
        .await
        .unwrap();
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(5000).collect();
    let blob = String::from_utf8(repo.git(&["hash-object", "-w", "--stdin"], &noise)).unwrap();
    let pack = repo.git(&["pack-objects", "--stdout", "-q"], blob.as_bytes());
    let report = server
        .push(&[("refs/tags/blob", NULL, repo.oid(blob.trim()))], Some(pack))
        .await;
    assert_eq!(
        report.unpack.unwrap_err(),
        "pack exceeds maximum allowed size (1024 bytes)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_pushes_to_different_refs_all_go_through() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Arc::new(Server::new(|_| ()).await);
    let pack = repo.pack(&["main".into()], &[]);
    let pushes = (0..20).map(|n| {
        let (server, pack, tip) = (server.clone(), pack.clone(), c[n % 4]);
        tokio::spawn(async move {
            let name = format!("refs/heads/n{n}");
            server
                .push(&[(&name, NULL, tip), ("refs/heads/contended", NULL, tip)], Some(pack))
                .await
        })
    });
    let mut won = 0;
    for push in pushes.collect::<Vec<_>>() {
        let report = push.await.unwrap();
        assert_eq!(report.refs[0], Ok(()));
        won += usize::from(report.refs[1].is_ok());
    }
    assert_eq!(won, 1);
}

#[tokio::test]
async fn an_import_of_several_packs_keeps_what_nothing_reaches() {
    let repo = Repo::new();
    let c = chain(&repo);
    let server = Server::new(|_| ()).await;
    let packs = [repo.pack(&[c[3].to_string()], &[]), repo.pack(&[c[1].to_string()], &[])];
    let mut receiver = server.repository.receiver().await.unwrap();
    for pack in packs {
        assert!(receiver.feed(Bytes::from(pack)).await);
        receiver.finish_pack().await;
    }
    let command = RefCommand {
        name: b"refs/heads/main".to_vec(),
        old: NULL,
        new: c[1],
    };
    let mut request = ReceiveRequest::new(vec![command], "importer");
    (request.keep_unreachable, request.trusted) = (true, true);
    ok(&receiver.finish(request).await.unwrap());
    let view = server.repository.view().await.unwrap();
    let unreachable: Vec<bool> = view
        .state()
        .layers()
        .iter()
        .map(|layer| layer.meta.unreachable)
        .collect();
    assert_eq!(unreachable, [false, true]);
    assert!(view.contains(&c[3]).await.unwrap());
    // What is only kept vouches for nothing.
    let report = server
        .push(&[("refs/heads/new", NULL, c[3])], Some(repo.pack(&[], &[])))
        .await;
    assert_eq!(reasons(&report), ["missing necessary objects"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_pack_of_much_content_is_taken_by_a_worker() {
    let repo = Repo::new();
    let zeros = vec![b'0'; 3 << 20];
    let blob = String::from_utf8(repo.git(&["hash-object", "-w", "--stdin"], &zeros)).unwrap();
    let pack = repo.git(&["pack-objects", "--stdout", "-q"], blob.as_bytes());
    assert!(pack.len() < 64 << 10);
    let server = Server::new(|_| ()).await;
    let oid = repo.oid(blob.trim());
    ok(&server.push(&[("refs/tags/zeros", NULL, oid)], Some(pack)).await);
    let view = server.repository.view().await.unwrap();
    assert_eq!(view.object(&oid).await.unwrap().unwrap().1, zeros);
}

#[tokio::test]
async fn a_pack_tells_where_it_ends() {
    let repo = Repo::new();
    let c = chain(&repo);
    let pack = Bytes::from(repo.pack(&[c[1].to_string()], &[]));
    let server = Server::new(|_| ()).await;
    let mut receiver = server.repository.receiver().await.unwrap();
    assert!(!receiver.is_pack_whole().await, "nothing has come yet");
    for cut in [0..7, 7..pack.len() - 21, pack.len() - 21..pack.len() - 1] {
        assert!(receiver.feed(pack.slice(cut.clone())).await);
        assert!(!receiver.is_pack_whole().await, "{cut:?}");
    }
    assert!(receiver.feed(pack.slice(pack.len() - 1..)).await);
    assert!(receiver.is_pack_whole().await);
    receiver.finish_pack().await;
    let command = RefCommand {
        name: b"refs/heads/main".to_vec(),
        old: NULL,
        new: c[1],
    };
    ok(&receiver.finish(ReceiveRequest::new(vec![command], "")).await.unwrap());
    // What is refused is as good as whole: nothing more is wanted of it.
    let mut receiver = server.repository.receiver().await.unwrap();
    receiver.feed(Bytes::from_static(b"no pack at all")).await;
    assert!(receiver.is_pack_whole().await);
}

#[tokio::test]
async fn what_a_push_says_beside_its_commands_is_in_the_log() {
    let (repo, server) = (Repo::new(), Server::new(|_| ()).await);
    let c = random_history(&repo, 1, &mut fastrand::Rng::with_seed(1));
    let note = PushNote {
        options: vec![Bytes::from_static(b"ci.skip; \n\xff")],
        certificate: Some(PushCertificate {
            text: Bytes::from_static(b"certificate version 0.1"),
            nonce: NonceStatus::Slop,
            signature: None,
        }),
    };
    let note = Some(Box::new(note));
    let pack = repo.pack(&[c[0].to_string()], &[]);
    let commands = [("refs/heads/main", NULL, c[0]), ("refs/heads/x..y", NULL, c[0])];
    let report = server
        .push_with(&commands, Some(pack), |request| request.note = note.clone())
        .await;
    let (log, number) = (server.repository.id(), report.number.unwrap());
    let entries = (server.parts)().log_store.read(log, number, 1 << 20).await.unwrap();
    let entry = Entry::decode(&entries[0].1).unwrap();
    assert_eq!(
        entry.edits.iter().map(|edit| edit.note.clone()).collect::<Vec<_>>(),
        [note]
    );
}
