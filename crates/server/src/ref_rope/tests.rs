//! Ropes beside the plain writers of the protocol, which write every ref every time.

use super::chunk::CHUNK_LEN_MAX;
use super::shown::{Defaults, Shown, hidden};
use super::{Form, RefLines, RopeCache};
use crate::http::record::RequestId;
use crate::service::advertise::{self, Offer, Offered};
use crate::service::ls_refs;
use crate::service::negotiate::read_v2;
use crate::service::repository_options::RepositoryOptions;
use crate::service::shown_refs;
use bytes::Buf;
use cuesta_engine::Settings;
use cuesta_format::{Cause, Edit, EditId, LogId, RefTarget, RefUpdate, SettingChange, SymrefChange};
use cuesta_git::{HiddenRefs, ObjectFormat, ObjectId, RefName};
use cuesta_ledger::State;
use cuesta_protocol::advertise::Head;
use cuesta_protocol::options::UploadOptions;
use cuesta_protocol::upload::ls_refs::LsRefs;
use cuesta_protocol::upload::v2::Command;
use cuesta_protocol::{Limits, Service, Version};
use cuesta_store::Workers;
use proptest::prelude::*;
use std::io::IoSlice;
use std::sync::Arc;

/// What may happen to a repository.
#[derive(Clone, Debug)]
enum Step {
    /// A ref gets a value; with a peeled one if it is a tag.
    Set(String, u8),
    /// Many refs of one directory do.
    SetMany(char, u16, u8),
    Delete(String),
    DeleteMany(char, u16, u16),
    Link(String, String),
    Unlink(String),
    Hide(&'static str, &'static str),
}

const HIDING: &[&str] = &["transfer.hiderefs", "uploadpack.hiderefs", "receive.hiderefs"];
const HIDDEN: &[&str] = &["", "refs/pull", "refs/heads/a", "refs\n!refs/tags"];

fn step() -> impl Strategy<Value = Step> {
    let name = || "refs/(heads|tags|pull)/[abc]{1,2}";
    prop_oneof![
        6 => (name(), any::<u8>()).prop_map(|(name, value)| Step::Set(name, value)),
        2 => (proptest::char::range('d', 'g'), 1..700u16, any::<u8>())
            .prop_map(|(directory, count, value)| Step::SetMany(directory, count, value)),
        3 => name().prop_map(Step::Delete),
        1 => (proptest::char::range('d', 'g'), 0..700u16, 1..700u16)
            .prop_map(|(directory, from, count)| Step::DeleteMany(directory, from, count)),
        2 => ("(HEAD|refs/heads/[abc]|refs/remotes/[ab]/HEAD)", name()).prop_map(|(from, to)| Step::Link(from, to)),
        1 => "(HEAD|refs/heads/[abc]|refs/remotes/[ab]/HEAD)".prop_map(Step::Unlink),
        1 => (proptest::sample::select(HIDING), proptest::sample::select(HIDDEN))
            .prop_map(|(setting, value)| Step::Hide(setting, value)),
    ]
}

fn name(text: &str) -> RefName {
    RefName::new(text.as_bytes()).unwrap()
}

fn many(directory: char, range: std::ops::Range<u16>) -> impl Iterator<Item = String> {
    range.map(move |number| format!("refs/heads/{directory}/branch-{number:04}"))
}

fn oid(format: ObjectFormat, value: u8) -> ObjectId {
    ObjectId::from_hex(format, format!("{:02x}", value | 1).repeat(format.width()).as_bytes()).unwrap()
}

fn edit(number: u64) -> Edit {
    Edit::new(EditId(number.into()), 0, Cause::Push, "")
}

fn created(format: ObjectFormat) -> State {
    let mut state = State::default();
    let symrefs = vec![SymrefChange {
        name: RefName::head(),
        target: Some(name("refs/heads/a")),
    }];
    let object_format = Some(format);
    state
        .apply(&Edit {
            object_format,
            symrefs,
            ..edit(0)
        })
        .unwrap();
    state.seal_entry();
    state
}

fn update(state: &State, text: &str, value: Option<u8>) -> RefUpdate {
    let format = state.object_format().unwrap();
    let new = value.map(|value| RefTarget {
        oid: oid(format, value),
        peeled: text.contains("tags").then(|| oid(format, !value)),
    });
    let name = name(text);
    let old = state.refs().get(&name).map(|target| target.oid);
    RefUpdate { name, old, new }
}

/// The state after a step; the same one if the step is not possible there.
fn after(state: &State, step: &Step) -> State {
    let mut edit = edit(state.number());
    let existing = |names: &mut dyn Iterator<Item = String>| -> Vec<RefUpdate> {
        let updates = names.map(|text| update(state, &text, None));
        updates.filter(|update| update.old.is_some()).collect()
    };
    match step {
        Step::Set(text, value) => edit.refs.push(update(state, text, Some(*value))),
        Step::SetMany(directory, count, value) => {
            edit.refs
                .extend(many(*directory, 0..*count).map(|text| update(state, &text, Some(*value))));
        }
        Step::Delete(text) => edit.refs = existing(&mut std::iter::once(text.clone())),
        Step::DeleteMany(directory, from, count) => edit.refs = existing(&mut many(*directory, *from..from + count)),
        Step::Link(from, to) => edit.symrefs.push(SymrefChange {
            name: name(from),
            target: Some(name(to)),
        }),
        Step::Unlink(from) => edit.symrefs.push(SymrefChange {
            name: name(from),
            target: None,
        }),
        Step::Hide(setting, value) => edit.settings.push(SettingChange {
            name: (*setting).to_owned(),
            value: Some((*value).to_owned()),
        }),
    }
    let mut next = state.clone();
    let _ = next.apply(&edit);
    next.seal_entry();
    next
}

fn bytes(mut lines: RefLines) -> Vec<u8> {
    let len = usize::try_from(lines.len()).unwrap();
    let bytes = lines.copy_to_bytes(len).to_vec();
    assert!(lines.is_empty() && lines.chunk().is_empty());
    bytes
}

fn options(state: &State) -> RepositoryOptions<'_> {
    static NONE: std::sync::LazyLock<Defaults> = std::sync::LazyLock::new(Defaults::default);
    RepositoryOptions::new(Settings::new(state, &NONE))
}

fn offer(state: &State, service: Service, version: Version) -> Offer {
    Offer {
        service,
        version,
        http: true,
        format: state.object_format().unwrap(),
        hidden: hidden(state, &Defaults::default(), service),
        offered: match service {
            Service::UploadPack => Offered::Upload(options(state).upload(RequestId(1))),
            Service::ReceivePack => Offered::Receive(options(state).receive(RequestId(1))),
        },
    }
}

/// An advertisement, every ref written.
fn plain_advertisement(state: &State, offer: &Offer) -> Vec<u8> {
    use cuesta_protocol::advertise;
    let (options, hidden) = (options(state), &offer.hidden);
    let head = shown_refs::head(state, hidden);
    let capabilities = match offer.service {
        Service::UploadPack => advertise::upload_capabilities(
            &options.upload(RequestId(1)),
            offer.format,
            offer.http,
            head.and_then(|head| head.symref_target),
        ),
        Service::ReceivePack => advertise::receive_capabilities(&options.receive(RequestId(1)), offer.format),
    };
    let opening = Head {
        service: offer.service,
        version: offer.version,
        http: offer.http,
        format: offer.format,
        capabilities: &capabilities,
    };
    let refs = head.filter(|_| offer.service == Service::UploadPack).into_iter();
    let refs = refs.chain(shown_refs::named(state, hidden, b""));
    let mut out = Vec::new();
    advertise::write_refs(&mut out, &opening, refs, state.shallow());
    out
}

/// The answer to `ls-refs`, every ref looked at.
fn plain_answer(state: &State, request: &LsRefs) -> Vec<u8> {
    let hidden = options(state).hidden(Service::UploadPack);
    let unborn = shown_refs::unborn_head(state).filter(|target| !hidden.hides(target));
    let mut out = Vec::new();
    let head = shown_refs::head(state, &hidden);
    let unborn = unborn.filter(|_| head.is_none()).map(RefName::as_bytes);
    request.write_answer(
        &mut out,
        unborn,
        head.into_iter().chain(shown_refs::named(state, &hidden, b"")),
    );
    out
}

fn request(format: ObjectFormat, arguments: &[&str]) -> LsRefs {
    let object_format = format!("object-format={format}");
    let mut body = b"0014command=ls-refs\n".to_vec();
    let mut line = |text: &str| body.extend(format!("{:04x}{text}", text.len() + 4).into_bytes());
    line(&object_format);
    body.extend(b"0001");
    let mut line = |text: &str| body.extend(format!("{:04x}{text}", text.len() + 4).into_bytes());
    arguments.iter().for_each(|argument| line(argument));
    body.extend(b"0000");
    let request = read_v2(&body, format, UploadOptions::new("test"), Limits::new());
    match request.unwrap().unwrap().command {
        Command::LsRefs(request) => request,
        other => panic!("not ls-refs: {other:?}"),
    }
}

const ARGUMENTS: &[&[&str]] = &[
    &[],
    &["peel", "symrefs", "unborn"],
    &[
        "peel",
        "ref-prefix HEAD",
        "ref-prefix refs/heads/",
        "ref-prefix refs/tags/",
    ],
    &[
        "symrefs",
        "ref-prefix refs/heads/d/branch-01",
        "ref-prefix refs/heads/f/",
    ],
    &[
        "peel",
        "symrefs",
        "ref-prefix refs/heads/b",
        "ref-prefix refs/none",
        "ref-prefix refs/pull/",
    ],
    &["ref-prefix refs/heads/e/branch-0000", "ref-prefix zzz"],
    &["peel", "symrefs", "ref-prefix "],
];

/// Every answer from the rope is what the plain writer says.
fn check(state: &State, upload: &Shown, receive: &Shown) {
    for (service, shown) in [(Service::UploadPack, upload), (Service::ReceivePack, receive)] {
        for version in [Version::V0, Version::V1] {
            let offer = offer(state, service, version);
            let expected = plain_advertisement(state, &offer);
            let lines = bytes(advertise::write(state, shown.rope(), &offer));
            assert_eq!(lines.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }
    for arguments in ARGUMENTS {
        let request = request(state.object_format().unwrap(), arguments);
        let expected = plain_answer(state, &request);
        let lines = bytes(ls_refs::write(
            state,
            &options(state).hidden(Service::UploadPack),
            upload.rope(),
            &request,
        ));
        assert_eq!(
            lines.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "{arguments:?}"
        );
    }
    let lens = upload.rope().chunk_lens();
    let small = lens.iter().filter(|len| **len < CHUNK_LEN_MAX / 4).count();
    assert!(
        lens.iter().all(|len| *len <= CHUNK_LEN_MAX) && small <= 1 + lens.len() / 2,
        "{lens:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 48 } else { 512 }))]

    /// At every step, forwards from the step before and, at the end, back to every state there was.
    #[test]
    fn ropes_say_what_the_plain_writers_say(steps in proptest::collection::vec(step(), 1..24), sha256 in any::<bool>()) {
        let format = if sha256 { ObjectFormat::Sha256 } else { ObjectFormat::Sha1 };
        let mut state = created(format);
        let mut history = vec![state.clone()];
        let [mut upload, mut receive] = [Service::UploadPack, Service::ReceivePack].map(|service| Shown::new(&state, service, &Defaults::default()));
        check(&state, &upload, &receive);
        for step in &steps {
            state = after(&state, step);
            for (shown, service) in [(&mut upload, Service::UploadPack), (&mut receive, Service::ReceivePack)] {
                *shown = shown.of(&state, usize::MAX).unwrap_or_else(|| Shown::new(&state, service, &Defaults::default()));
            }
            check(&state, &upload, &receive);
            history.push(state.clone());
        }
        for state in &history {
            let earlier = (upload.of(state, usize::MAX), receive.of(state, usize::MAX));
            if let (Some(upload), Some(receive)) = earlier {
                check(state, &upload, &receive);
            }
        }
    }
}

/// A repository with so many branches.
fn large(count: u16) -> State {
    let state = created(ObjectFormat::Sha1);
    after(&state, &Step::SetMany('d', count, 1))
}

#[test]
fn one_change_makes_one_chunk() {
    let state = large(5_000);
    let before = Shown::new(&state, Service::ReceivePack, &Defaults::default());
    let chunks = before.rope().chunk_lens().len();
    assert!(chunks > 20);
    for text in ["refs/heads/d/branch-2500", "refs/heads/d/branch-2500x", "refs/heads/z"] {
        let next = after(&state, &Step::Set(text.to_owned(), 9));
        let patched = before.of(&next, 1).unwrap();
        assert_eq!(patched.rope().shared_with(before.rope()), chunks - 1, "{text}");
    }
    let flushed = after(&state, &Step::Delete("refs/heads/none".to_owned()));
    assert_eq!(
        before.of(&flushed, 0).unwrap().rope().shared_with(before.rope()),
        chunks
    );
}

#[test]
fn more_changes_than_allowed_are_not_made() {
    let state = large(10);
    let shown = Shown::new(&state, Service::ReceivePack, &Defaults::default());
    let next = after(&state, &Step::SetMany('d', 5, 2));
    assert!(shown.of(&next, 4).is_none());
    assert!(shown.of(&next, 5).is_some());
    let hidden = after(&state, &Step::Hide("receive.hiderefs", "refs/heads/d"));
    assert!(shown.of(&hidden, usize::MAX).is_none());
}

#[test]
fn forms_that_are_equal_share_their_bytes() {
    let state = large(2_000);
    let shown = Shown::new(&state, Service::UploadPack, &Defaults::default());
    let all = Form::ALL.into_iter();
    assert_eq!(
        shown.rope().weight(all.clone()),
        shown.rope().weight([Form::Plain].into_iter())
    );
    let tagged = after(&state, &Step::Set("refs/tags/a".to_owned(), 3));
    let shown = shown.of(&tagged, 1).unwrap();
    let more = shown.rope().weight(all) - shown.rope().weight([Form::Plain].into_iter());
    assert!((1..=4 * CHUNK_LEN_MAX as u64 * 2).contains(&more), "{more}");
}

#[test]
fn lines_are_read_alike_in_pieces_of_any_size() {
    let state = after(&large(700), &Step::Set("refs/tags/a".to_owned(), 3));
    let shown = Shown::new(&state, Service::UploadPack, &Defaults::default());
    let request = request(
        ObjectFormat::Sha1,
        &[
            "peel",
            "symrefs",
            "ref-prefix refs/heads/d/branch-03",
            "ref-prefix refs/tags/",
        ],
    );
    for piece in [1, 7, 100, 8191, 8192, 20_000] {
        let mut lines = ls_refs::write(&state, &HiddenRefs::default(), shown.rope(), &request);
        let whole = bytes(lines.clone());
        let mut read = Vec::new();
        while lines.has_remaining() {
            let mut slices = [IoSlice::new(&[]); 3];
            let count = lines.chunks_vectored(&mut slices);
            assert!(slices[..count].iter().all(|slice| !slice.is_empty()));
            assert_eq!(&slices[0][..], lines.chunk());
            let joined = slices[..count]
                .iter()
                .flat_map(|slice| slice.to_vec())
                .collect::<Vec<u8>>();
            let taken = piece.min(joined.len());
            read.extend_from_slice(&joined[..taken]);
            lines.advance(taken);
        }
        assert!(read == whole, "pieces of {piece}");
    }
}

/// Readers at all positions at once, from one cache that is large, too small, or of no use at all.
#[test]
fn everyone_gets_the_refs_of_their_own_position() {
    let mut states = vec![large(3_000)];
    for number in 0..60u8 {
        let step = match number % 6 {
            0 => Step::SetMany('e', 900, number),
            1 => Step::DeleteMany('e', 0, 900),
            2 => Step::Hide("receive.hiderefs", if number % 4 == 0 { "refs/heads/d" } else { "" }),
            _ => Step::Set(format!("refs/heads/d/branch-{:04}", u16::from(number) * 37), number),
        };
        states.push(after(states.last().unwrap(), &step));
    }
    let states: Arc<[Arc<State>]> = states.into_iter().map(Arc::new).collect();
    for bytes_max in [64 << 20, 300 << 10, 0] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .build()
            .unwrap();
        let cache = Arc::new(RopeCache::new(bytes_max, Defaults::default()));
        let workers = Workers::Pool(runtime.handle().clone());
        let readers = (0..4).map(|reader| {
            let (states, cache, workers) = (states.clone(), cache.clone(), workers.clone());
            runtime.spawn(async move {
                for at in 0..states.len() * 2 {
                    let state = &states[(at * (reader + 1)) % states.len()];
                    let service = [Service::UploadPack, Service::ReceivePack][(at + reader) % 2];
                    let form = advertise::form(service);
                    let rope = cache.rope(LogId(1), state, service, form, &workers).await;
                    let offer = offer(state, service, Version::V0);
                    let lines = bytes(advertise::write(state, &rope, &offer));
                    assert!(lines == plain_advertisement(state, &offer), "at {at} of {reader}");
                }
            })
        });
        for reader in readers.collect::<Vec<_>>() {
            runtime.block_on(reader).unwrap();
        }
        let (hits, misses) = cache.hits_and_misses();
        assert_eq!(hits + misses, 4 * 2 * states.len() as u64);
        if bytes_max == 64 << 20 {
            // Three ropes at most, each missed by no more than all readers at once.
            assert!(misses <= 3 * 4, "{misses}");
        }
        if bytes_max == 0 {
            assert_eq!(hits, 0);
        }
    }
}
