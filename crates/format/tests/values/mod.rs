//! Any edits, entries and checkpoints.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod accounts;

#[allow(unused_imports, reason = "each test binary uses its part")]
pub use accounts::{
    accounts_checkpoints, accounts_entries, full_accounts_checkpoint, full_accounts_entry, old_accounts_checkpoint,
    openpgp_accounts_entry,
};

use bytes::Bytes;
use cuesta_format::{
    AbandonedLog, AddedLayer, Cause, Checkpoint, Collection, DirectoryChange, DirectoryCheckpoint, DirectoryEdit,
    DirectoryEntry, Edit, EditId, Entry, LayerId, LayerMeta, LayerPlace, LogId, NameChange, NonceStatus,
    PushCertificate, PushNote, PushSignature, RefTarget, RefUpdate, RepositoryRecord, RetiredLayer, SettingChange,
    SignatureStatus, SymrefChange,
};
use cuesta_git::{ObjectFormat, ObjectId, RefName};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

pub fn formats() -> impl Strategy<Value = ObjectFormat> {
    prop_oneof![Just(ObjectFormat::Sha1), Just(ObjectFormat::Sha256)]
}

pub fn oids(format: ObjectFormat) -> impl Strategy<Value = ObjectId> {
    vec(any::<u8>(), format.width()).prop_map(move |bytes| ObjectId::from_bytes(format, &bytes).unwrap())
}

pub fn ref_names() -> impl Strategy<Value = RefName> {
    let name = prop_oneof![
        Just("HEAD".to_owned()),
        "refs/(heads|tags)/[a-z]{1,3}(/[a-zé]{1,3}){0,2}"
    ];
    name.prop_filter_map("no ref name", |name| RefName::new(name.as_bytes()).ok())
}

pub fn targets(format: ObjectFormat) -> impl Strategy<Value = RefTarget> {
    (oids(format), option::of(oids(format))).prop_map(|(oid, peeled)| RefTarget { oid, peeled })
}

fn ref_updates(format: ObjectFormat) -> impl Strategy<Value = RefUpdate> {
    (ref_names(), option::of(oids(format)), option::of(targets(format))).prop_map(|(name, old, new)| RefUpdate {
        name,
        old,
        new,
    })
}

fn symref_changes() -> impl Strategy<Value = SymrefChange> {
    (ref_names(), option::of(ref_names())).prop_map(|(name, target)| SymrefChange { name, target })
}

fn setting_changes() -> impl Strategy<Value = SettingChange> {
    ("[a-z.]{0,12}", option::of(".{0,12}")).prop_map(|(name, value)| SettingChange { name, value })
}

pub fn layers() -> impl Strategy<Value = AddedLayer> {
    let meta = (
        any::<u128>(),
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
        any::<u32>(),
        any::<u8>(),
        any::<[bool; 3]>(),
    );
    let meta = meta.prop_map(
        |(id, pack_bytes, cue_bytes, objects, segments, level, flags)| LayerMeta {
            id: LayerId(id),
            pack_bytes,
            cue_bytes,
            objects,
            segments,
            level,
            self_contained: flags[0],
            unreachable: flags[1],
            bases_chosen: flags[2],
        },
    );
    let inline = option::of((vec(any::<u8>(), 0..200), vec(any::<u8>(), 0..200)));
    (meta, inline).prop_map(|(mut meta, inline)| {
        let place = match inline {
            None => LayerPlace::Bucket,
            Some((pack, cue)) => {
                (meta.pack_bytes, meta.cue_bytes) = (pack.len() as u64, cue.len() as u64);
                LayerPlace::Inline {
                    pack: Bytes::from(pack),
                    cue: Bytes::from(cue),
                }
            }
        };
        AddedLayer { meta, place }
    })
}

fn causes() -> impl Strategy<Value = Cause> {
    prop::sample::select(vec![
        Cause::Create,
        Cause::Push,
        Cause::Flush,
        Cause::Compact,
        Cause::Collect,
        Cause::Import,
        Cause::Administer,
    ])
}

fn signatures() -> impl Strategy<Value = PushSignature> {
    let statuses = [
        SignatureStatus::Good,
        SignatureStatus::Unknown,
        SignatureStatus::Bad,
        SignatureStatus::Unchecked,
        SignatureStatus::None,
        SignatureStatus::Expired,
        SignatureStatus::ExpiredKey,
        SignatureStatus::RevokedKey,
    ];
    (proptest::sample::select(statuses.to_vec()), ".{0,5}", ".{0,5}").prop_map(|(status, signer, key)| PushSignature {
        status,
        signer,
        key,
    })
}

fn notes() -> impl Strategy<Value = PushNote> {
    let statuses = [
        NonceStatus::Ok,
        NonceStatus::Slop,
        NonceStatus::Bad,
        NonceStatus::Missing,
        NonceStatus::Unsolicited,
    ];
    let bytes = || vec(any::<u8>(), 0..9).prop_map(Bytes::from);
    let certificate = (
        bytes(),
        proptest::sample::select(statuses.to_vec()),
        option::of(signatures()),
    );
    let certificate = certificate.prop_map(|(text, nonce, signature)| PushCertificate { text, nonce, signature });
    (vec(bytes(), 0..3), option::of(certificate)).prop_map(|(options, certificate)| PushNote { options, certificate })
}

fn collections() -> impl Strategy<Value = Collection> {
    (any::<u64>(), any::<u64>(), vec(any::<u128>(), 0..4)).prop_map(|(seen_below, deleted_below, orphans)| Collection {
        seen_below,
        deleted_below,
        orphans: orphans.into_iter().map(LayerId).collect(),
    })
}

fn retired() -> impl Strategy<Value = RetiredLayer> {
    (any::<u128>(), any::<u64>(), option::of(any::<i64>())).prop_map(|(id, number, seen_ms)| RetiredLayer {
        id: LayerId(id),
        number,
        seen_ms,
    })
}

pub fn edits() -> impl Strategy<Value = Edit> {
    formats().prop_flat_map(|format| {
        let who = (
            any::<u128>(),
            any::<i64>(),
            ".{0,10}",
            causes(),
            option::of(Just(format)),
        );
        let refs = (vec(ref_updates(format), 0..4), vec(symref_changes(), 0..3));
        let layers = (vec(layers(), 0..3), vec(any::<u128>(), 0..3));
        let rest = (
            vec(setting_changes(), 0..3),
            option::of(vec(oids(format), 0..3)),
            option::of(notes()),
            option::of(collections()),
        );
        (who, refs, layers, rest).prop_map(|(who, refs, layers, rest)| Edit {
            id: EditId(who.0),
            time_ms: who.1,
            actor: who.2,
            cause: who.3,
            object_format: who.4,
            refs: refs.0,
            symrefs: refs.1,
            added: layers.0,
            removed: layers.1.into_iter().map(LayerId).collect(),
            settings: rest.0,
            shallow: rest.1,
            note: rest.2.map(Box::new),
            collection: rest.3.map(Box::new),
        })
    })
}

pub fn entries() -> impl Strategy<Value = Entry> {
    (any::<u64>(), vec(edits(), 0..4)).prop_map(|(number, edits)| Entry { number, edits })
}

pub fn checkpoints() -> impl Strategy<Value = Checkpoint> {
    formats().prop_flat_map(|format| {
        let place = (any::<u128>(), any::<u64>());
        let refs = (
            btree_map(ref_names(), targets(format), 0..20),
            btree_map(ref_names(), ref_names(), 0..3),
        );
        let rest = (btree_map("[a-z.]{0,9}", ".{0,9}", 0..3), vec(oids(format), 0..3));
        let lists = (vec(layers(), 0..4), vec(any::<u128>(), 0..4), vec(retired(), 0..4));
        (place, refs, rest, lists).prop_map(move |(place, refs, rest, lists)| Checkpoint {
            log: LogId(place.0),
            number: place.1,
            object_format: format,
            refs: refs.0.into_iter().collect(),
            symrefs: refs.1.into_iter().collect(),
            settings: rest.0.into_iter().collect(),
            shallow: rest.1,
            layers: lists.0,
            recent_edits: lists.1.into_iter().map(EditId).collect(),
            retired: lists.2,
        })
    })
}

fn records() -> impl Strategy<Value = RepositoryRecord> {
    (any::<u128>(), formats()).prop_map(|(log, object_format)| RepositoryRecord {
        log: LogId(log),
        object_format,
    })
}

fn name_changes() -> impl Strategy<Value = DirectoryChange> {
    let names = (
        "[a-z]{1,4}/[a-zé]{1,4}",
        option::of(any::<u128>()),
        option::of(records()),
    );
    let names = names.prop_map(|(name, old, new)| {
        DirectoryChange::Name(NameChange {
            name,
            old: old.map(LogId),
            new,
        })
    });
    let abandon = any::<u128>().prop_map(|log| DirectoryChange::Abandon(LogId(log)));
    let forget = any::<u128>().prop_map(|log| DirectoryChange::Forget(LogId(log)));
    prop_oneof![4 => names, 1 => abandon, 1 => forget]
}

pub fn directory_entries() -> impl Strategy<Value = DirectoryEntry> {
    let edit = (any::<u128>(), any::<i64>(), ".{0,9}", vec(name_changes(), 0..4));
    let edit = edit.prop_map(|(id, time_ms, actor, changes)| DirectoryEdit {
        id: EditId(id),
        time_ms,
        actor,
        changes,
    });
    (any::<u64>(), vec(edit, 0..4)).prop_map(|(number, edits)| DirectoryEntry { number, edits })
}

pub fn directory_checkpoints() -> impl Strategy<Value = DirectoryCheckpoint> {
    let names = btree_map("[a-z]{1,4}/[a-zé]{1,4}", records(), 0..20);
    let abandoned = btree_map(any::<u128>(), option::of(any::<i64>()), 0..4);
    let all = (any::<u64>(), names, vec(any::<u128>(), 0..4), abandoned);
    all.prop_map(|(number, names, recent, abandoned)| DirectoryCheckpoint {
        number,
        names: names.into_iter().collect(),
        recent_edits: recent.into_iter().map(EditId).collect(),
        abandoned: abandoned.into_iter().map(abandoned_log).collect(),
    })
}

fn abandoned_log((log, seen_ms): (u128, Option<i64>)) -> AbandonedLog {
    AbandonedLog {
        log: LogId(log),
        seen_ms,
    }
}

/// An entry with one of everything that there was in the first version.
pub fn full_entry(format: ObjectFormat) -> Entry {
    let oid = |byte: u8| ObjectId::from_bytes(format, &vec![byte; format.width()]).unwrap();
    let name = |name: &str| RefName::new(name.as_bytes()).unwrap();
    let bucket = LayerMeta {
        id: LayerId(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
        pack_bytes: 5_000_000_000,
        cue_bytes: 1_000_000,
        objects: 70_000,
        segments: 9_000,
        level: 2,
        self_contained: true,
        unreachable: false,
        bases_chosen: false,
    };
    let (pack, cue) = (
        Bytes::from_static(b"PACK and so on"),
        Bytes::from_static(b"CUE and so on"),
    );
    let inline = LayerMeta {
        id: LayerId(9),
        pack_bytes: 14,
        cue_bytes: 13,
        self_contained: false,
        ..bucket
    };
    let edit = Edit {
        id: EditId(0xfeed),
        time_ms: 1_764_512_000_123,
        actor: "josé".to_owned(),
        cause: Cause::Push,
        object_format: Some(format),
        refs: vec![
            RefUpdate {
                name: name("refs/heads/main"),
                old: Some(oid(1)),
                new: Some(RefTarget {
                    oid: oid(2),
                    peeled: None,
                }),
            },
            RefUpdate {
                name: name("refs/tags/v1"),
                old: None,
                new: Some(RefTarget {
                    oid: oid(3),
                    peeled: Some(oid(4)),
                }),
            },
            RefUpdate {
                name: name("refs/heads/gone"),
                old: Some(oid(5)),
                new: None,
            },
        ],
        symrefs: vec![
            SymrefChange {
                name: name("HEAD"),
                target: Some(name("refs/heads/main")),
            },
            SymrefChange {
                name: name("refs/remotes/origin/HEAD"),
                target: None,
            },
        ],
        added: vec![
            AddedLayer {
                meta: bucket,
                place: LayerPlace::Bucket,
            },
            AddedLayer {
                meta: inline,
                place: LayerPlace::Inline { pack, cue },
            },
        ],
        removed: vec![LayerId(1), LayerId(2)],
        settings: vec![
            SettingChange {
                name: "receive.denynonfastforwards".to_owned(),
                value: Some("true".to_owned()),
            },
            SettingChange {
                name: "core.x".to_owned(),
                value: None,
            },
            SettingChange {
                name: "core.y".to_owned(),
                value: Some(String::new()),
            },
        ],
        shallow: Some(vec![oid(6), oid(7)]),
        note: None,
        collection: None,
    };
    let plain = Edit {
        id: EditId(0xbeef),
        object_format: None,
        cause: Cause::Flush,
        actor: String::new(),
        refs: vec![],
        symrefs: vec![],
        added: vec![],
        removed: vec![LayerId(9)],
        settings: vec![],
        shallow: None,
        ..edit.clone()
    };
    Entry {
        number: 77,
        edits: vec![edit, plain],
    }
}

/// An entry of a push that said something beside its commands.
pub fn noted_entry() -> Entry {
    let note = PushNote {
        options: vec![
            Bytes::from_static(b"ci.skip"),
            Bytes::from_static(b"\xff=\n;"),
            Bytes::new(),
        ],
        certificate: Some(PushCertificate {
            text: Bytes::from_static(b"certificate version 0.1\n"),
            nonce: NonceStatus::Slop,
            signature: None,
        }),
    };
    let edit = Edit::new(EditId(0xfeed), 5, Cause::Push, "ann");
    let noted = |note| Edit {
        note: Some(Box::new(note)),
        ..edit.clone()
    };
    Entry {
        number: 78,
        edits: vec![noted(note), noted(PushNote::default()), edit.clone()],
    }
}

/// An entry of a push whose signature was looked at.
pub fn signed_entry() -> Entry {
    let mut entry = noted_entry();
    let note = entry.edits[0].note.as_mut().unwrap();
    note.certificate.as_mut().unwrap().signature = Some(PushSignature {
        status: SignatureStatus::Good,
        signer: "ann".to_owned(),
        key: "SHA256:kmN2Fh".to_owned(),
    });
    entry
}

/// An entry of a compaction that chose the bases of deltas.
pub fn compacted_entry() -> Entry {
    let meta = LayerMeta {
        id: LayerId(0x77),
        pack_bytes: 400_000_000,
        cue_bytes: 40_000_000,
        objects: 800_000,
        segments: 200_000,
        level: 3,
        self_contained: true,
        unreachable: false,
        bases_chosen: true,
    };
    let edit = Edit {
        added: vec![AddedLayer {
            meta,
            place: LayerPlace::Bucket,
        }],
        removed: vec![LayerId(0x75), LayerId(0x76)],
        ..Edit::new(EditId(0xfeed), 5, Cause::Compact, "")
    };
    Entry {
        number: 79,
        edits: vec![edit],
    }
}

/// An entry of a collector.
pub fn collected_entry() -> Entry {
    let edit = Edit::new(EditId(0xc0ec7), 1_764_512_000_123, Cause::Collect, "");
    let collecting = |collection| Edit {
        collection: Some(Box::new(collection)),
        ..edit.clone()
    };
    let full = Collection {
        seen_below: 78,
        deleted_below: 12,
        orphans: vec![LayerId(7), LayerId(u128::MAX)],
    };
    Entry {
        number: 79,
        edits: vec![collecting(full), collecting(Collection::default())],
    }
}

/// A checkpoint with one of everything that there was in the first version.
pub fn old_checkpoint(format: ObjectFormat) -> Checkpoint {
    Checkpoint {
        retired: vec![],
        ..full_checkpoint(format)
    }
}

/// A checkpoint with one of everything.
pub fn full_checkpoint(format: ObjectFormat) -> Checkpoint {
    let entry = full_entry(format);
    let edit = &entry.edits[0];
    let mut refs: Vec<_> = edit
        .refs
        .iter()
        .filter_map(|update| Some((update.name.clone(), update.new?)))
        .collect();
    refs.push((RefName::new(b"refs/tags/v1.1").unwrap(), refs[0].1));
    Checkpoint {
        log: LogId(0xabc),
        number: 78,
        object_format: format,
        refs,
        symrefs: vec![(RefName::head(), RefName::new(b"refs/heads/main").unwrap())],
        settings: vec![("a.b".to_owned(), "c".to_owned()), ("core.y".to_owned(), String::new())],
        shallow: edit.shallow.clone().unwrap(),
        layers: edit.added.clone(),
        recent_edits: vec![EditId(0xfeed), EditId(0xbeef)],
        retired: vec![
            RetiredLayer {
                id: LayerId(1),
                number: 70,
                seen_ms: Some(1_764_512_000_123),
            },
            RetiredLayer {
                id: LayerId(2),
                number: 77,
                seen_ms: None,
            },
        ],
    }
}

/// A directory entry with one of everything.
pub fn full_directory_entry() -> DirectoryEntry {
    let record = |log, object_format| RepositoryRecord {
        log: LogId(log),
        object_format,
    };
    let change = |name: &str, old: Option<u128>, new| {
        DirectoryChange::Name(NameChange {
            name: name.to_owned(),
            old: old.map(LogId),
            new,
        })
    };
    let changes = vec![
        change("ann/new", None, Some(record(1, ObjectFormat::Sha1))),
        change("ann/moved", Some(2), Some(record(3, ObjectFormat::Sha256))),
        change("ann/gone", Some(4), None),
    ];
    let edit = DirectoryEdit {
        id: EditId(5),
        time_ms: -1,
        actor: "ann".to_owned(),
        changes,
    };
    DirectoryEntry {
        number: 6,
        edits: vec![edit],
    }
}

/// A directory entry about logs without names.
pub fn abandoning_directory_entry() -> DirectoryEntry {
    let edit = DirectoryEdit {
        id: EditId(6),
        time_ms: 7,
        actor: String::new(),
        changes: vec![DirectoryChange::Abandon(LogId(4)), DirectoryChange::Forget(LogId(2))],
    };
    DirectoryEntry {
        number: 7,
        edits: vec![edit],
    }
}

/// A directory checkpoint as the first version had them.
pub fn old_directory_checkpoint() -> DirectoryCheckpoint {
    DirectoryCheckpoint {
        abandoned: vec![],
        ..full_directory_checkpoint()
    }
}

/// A directory checkpoint with one of everything.
pub fn full_directory_checkpoint() -> DirectoryCheckpoint {
    let record = |log, object_format| RepositoryRecord {
        log: LogId(log),
        object_format,
    };
    let names = vec![
        ("ann/new".to_owned(), record(1, ObjectFormat::Sha1)),
        ("bob/other".to_owned(), record(3, ObjectFormat::Sha256)),
    ];
    DirectoryCheckpoint {
        number: 7,
        names,
        recent_edits: vec![EditId(5)],
        abandoned: vec![abandoned_log((2, Some(-1))), abandoned_log((4, None))],
    }
}
