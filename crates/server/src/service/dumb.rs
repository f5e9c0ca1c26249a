//! The dumb protocol: a repository read file by file, as if it were a stock one on a web server (`http.getanyfile`).
//!
//! Layers that are whole packs are listed and served as such; any other object can be had as a loose one. An object of a
//! listed pack is not served loose, or no client would ever take the pack, except while the pack is new here: a client
//! may have taken the list of packs before. Where refs are hidden there are no packs, for they may hold what only hidden
//! refs reach, and a loose object is served only if a shown ref reaches it.

use super::repository_options::RepositoryOptions;
use super::shown_refs;
use crate::access::Identity;
use crate::http::answer::{Answer, RangeOf};
use crate::http::front::Call;
use crate::http::range::{self, Asked};
use crate::http::record::Record;
use crate::http::response_body::{Content, Cut, Piece};
use crate::http::route::DumbFile;
use crate::ref_rope::{Form, RefLines};
use bytes::{Buf, Bytes};
use cuesta_engine::dumb::{FileStream, PackFile};
use cuesta_engine::upload::{WantPolicy, refused_want};
use cuesta_engine::{EngineError, View};
use cuesta_format::{LayerId, LogId};
use cuesta_git::{HiddenRefs, ObjectId};
use cuesta_protocol::Service;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::{HeaderMap, StatusCode};
use quick_cache::sync::Cache;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

const PACK_TYPE: &str = "application/x-git-packed-objects";
const INDEX_TYPE: &str = "application/x-git-packed-objects-toc";
const LOOSE_TYPE: &str = "application/x-git-loose-object";
const TEXT: &str = "text/plain";
/// Packs whose first sight is remembered; one that is forgotten is new again.
const PACKS_REMEMBERED_MAX: usize = 16_384;

/// What is remembered from one request of a dumb client to the next.
pub struct DumbMemory {
    /// When each pack was first seen here, in milliseconds since 1970.
    seen_ms: Cache<LayerId, i64>,
}

impl Default for DumbMemory {
    fn default() -> Self {
        Self::of(PACKS_REMEMBERED_MAX)
    }
}

impl DumbMemory {
    fn of(packs_max: usize) -> Self {
        Self {
            seen_ms: Cache::new(packs_max),
        }
    }

    /// Whether a pack was seen that long ago; from now on it has been.
    fn is_older(&self, layer: LayerId, now_ms: i64, age_ms: i64) -> bool {
        match self.seen_ms.get(&layer) {
            Some(seen) => now_ms.saturating_sub(seen) >= age_ms,
            None => {
                self.seen_ms.insert(layer, now_ms);
                age_ms == 0
            }
        }
    }
}

/// Answers a request for a file.
pub async fn answer(call: Call, file: DumbFile, headers: &HeaderMap) -> Answer {
    let record = call.record.clone();
    match Reader::open(call).await {
        Ok(Some(reader)) => match reader.file(file, headers).await {
            Ok(Some(answer)) => answer,
            Ok(None) => Answer::error(StatusCode::NOT_FOUND, "no such file"),
            Err(error) => Answer::engine_error(&error, &record),
        },
        Ok(None) => Answer::not_found(),
        Err(error) => Answer::engine_error(&error, &record),
    }
}

/// One request, and the view that it is answered from.
struct Reader {
    call: Call,
    repository: LogId,
    view: View,
    hidden: HiddenRefs,
    hides_some: bool,
}

impl Reader {
    async fn open(call: Call) -> Result<Option<Self>, EngineError> {
        let Some(repository) = call.repository().await? else {
            return Ok(None);
        };
        let view = repository.view().await?;
        call.node.unflushed.note_if_inline(&repository);
        let hidden = RepositoryOptions::of(&view).hidden(Service::UploadPack);
        let hides_some = view.hides_some(&hidden);
        Ok(Some(Self {
            call,
            repository: repository.id(),
            view,
            hidden,
            hides_some,
        }))
    }

    /// `None` if there is no such file.
    async fn file(&self, file: DumbFile, headers: &HeaderMap) -> Result<Option<Answer>, EngineError> {
        if !RepositoryOptions::of(&self.view).serves_files() {
            return Ok(Some(Answer::error(
                StatusCode::FORBIDDEN,
                "Unsupported service: getanyfile",
            )));
        }
        match file {
            DumbFile::Head => Ok(Some(Answer::whole(TEXT, self.head()))),
            DumbFile::Refs => Ok(Some(self.refs().await)),
            DumbFile::Packs => self.packs_list().await.map(Some),
            DumbFile::Alternates => Ok(None),
            DumbFile::Loose(oid) => self.loose(oid).await,
            DumbFile::Pack(name) => {
                let Some(pack) = self.pack(name).await? else {
                    return Ok(None);
                };
                let permit = self.permit().await;
                let answer = self.sized(PACK_TYPE, pack.pack_len(), headers, |range| {
                    hold(pack.pack(range), permit)
                });
                Ok(Some(answer.kept(self.now_ms(), self.is_for_all())))
            }
            DumbFile::Index(name) => {
                let Some(pack) = self.pack(name).await? else {
                    return Ok(None);
                };
                let permit = self.permit().await;
                let (len, index) = pack.index(&self.view).await?;
                let answer = self.sized(INDEX_TYPE, len, headers, |range| hold(range::cut(index, range), permit));
                Ok(Some(answer.kept(self.now_ms(), self.is_for_all())))
            }
        }
    }

    /// A place among the fetches: a file takes as much memory while it is sent.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.call.node.fetches.clone().acquire_owned().await.ok()
    }

    fn now_ms(&self) -> i64 {
        self.call.node.clock.now_ms()
    }

    /// Whether a cache may give what is served to anyone who asks: it was asked for by nobody in particular.
    fn is_for_all(&self) -> bool {
        !self.hides_some && !matches!(self.call.identity, Identity::User { .. })
    }

    /// What `HEAD` names, if that exists and is shown.
    fn head(&self) -> Vec<u8> {
        let head = shown_refs::head(self.view.state(), &self.hidden);
        let line = head.map(|head| match head.symref_target {
            Some(target) => [b"ref: ", target, b"\n"].concat(),
            None => format!("{}\n", head.oid).into_bytes(),
        });
        line.unwrap_or_default()
    }

    /// All shown refs but `HEAD`, a line each, peeled ones after their tags: what upload-pack advertises, without the packets.
    async fn refs(&self) -> Answer {
        let (node, state) = (&self.call.node, self.view.state());
        let (ropes, form) = (&node.ref_ropes, Form::PeeledLines);
        let rope = ropes
            .rope(self.repository, state, Service::UploadPack, form, &node.workers)
            .await;
        let mut lines = RefLines::default();
        rope.append_all(form, &mut lines);
        let len = unpacked_len(lines.clone());
        let pieces = futures::stream::unfold(lines, |mut lines| async {
            let packets = lines.chunk();
            let (piece, len) = (unpacked(packets), packets.len());
            lines.advance(len);
            (len > 0).then(|| (Ok(Piece::from(Bytes::from(piece))), lines))
        });
        Answer::ok(TEXT, Content::Sized(pieces.boxed(), len))
    }

    async fn packs(&self) -> Result<Vec<PackFile>, EngineError> {
        if self.hides_some {
            Ok(Vec::new())
        } else {
            self.view.pack_files().await
        }
    }

    async fn packs_list(&self) -> Result<Answer, EngineError> {
        let mut list = String::new();
        // The newest first, as git has it.
        for pack in self.packs().await?.iter().rev() {
            list += &format!("P pack-{}.pack\n", pack.name);
        }
        list.push('\n');
        Ok(Answer::whole("text/plain; charset=utf-8", list))
    }

    async fn pack(&self, name: ObjectId) -> Result<Option<PackFile>, EngineError> {
        Ok(self.packs().await?.into_iter().find(|pack| pack.name == name))
    }

    async fn loose(&self, oid: ObjectId) -> Result<Option<Answer>, EngineError> {
        if oid.format() != self.view.object_format() || !self.is_readable(oid).await? || self.is_in_a_pack(&oid).await?
        {
            return Ok(None);
        }
        let permit = self.permit().await;
        let Some(object) = self.view.loose_object(&oid).await? else {
            return Ok(None);
        };
        let content = Content::Stream(pieces(hold(object, permit), self.call.record.clone()));
        Ok(Some(
            Answer::ok(LOOSE_TYPE, content).kept(self.now_ms(), self.is_for_all()),
        ))
    }

    async fn is_readable(&self, oid: ObjectId) -> Result<bool, EngineError> {
        if !self.hides_some {
            let refused = refused_want(&self.view, &[oid], WantPolicy::Any, &self.hidden).await?;
            return Ok(refused.is_none());
        }
        let reach = self.view.reach(&self.hidden).await?;
        self.call.node.workers.run(move || reach.reaches(&oid)).await
    }

    /// Whether a client that has no use for loose objects will find it in a pack, however old its list of packs.
    async fn is_in_a_pack(&self, oid: &ObjectId) -> Result<bool, EngineError> {
        let node = &self.call.node;
        let age_ms = i64::try_from(node.settings.dumb_packs_after_seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        for pack in self.packs().await? {
            let old = node.dumb.is_older(pack.layer.id(), self.now_ms(), age_ms);
            if old && pack.layer.find(oid).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A file of known length, or the part of it that is asked for.
    fn sized(
        &self,
        content_type: &'static str,
        len: u64,
        headers: &HeaderMap,
        read: impl FnOnce(std::ops::Range<u64>) -> FileStream,
    ) -> Answer {
        let (range, of) = match range::asked(headers, len) {
            Asked::Whole => (0..len, RangeOf::Whole),
            Asked::Part(range) => (
                range.clone(),
                RangeOf::Part(range.start, range.end.saturating_sub(1), len),
            ),
            Asked::Beyond => {
                let answer = Answer::error(StatusCode::RANGE_NOT_SATISFIABLE, "range not satisfiable");
                return answer.of_range(RangeOf::Beyond(len));
            }
        };
        let part_len = range.end - range.start;
        let content = pieces(read(range), self.call.record.clone());
        Answer::ok(content_type, Content::Sized(content, part_len)).of_range(of)
    }
}

/// Keeps the place of a file as long as it is being sent.
fn hold(file: FileStream, permit: Option<OwnedSemaphorePermit>) -> FileStream {
    file.inspect(move |_| {
        let _held = &permit;
    })
    .boxed()
}

fn pieces(file: FileStream, record: Arc<Record>) -> BoxStream<'static, Result<Piece, Cut>> {
    let cut = move |error: EngineError| Cut(Answer::engine_text(&error, &record));
    file.try_filter(|piece| std::future::ready(!piece.is_empty()))
        .map_ok(Piece::from)
        .map_err(cut)
        .boxed()
}

/// Lines of an advertisement, whole packets, as those of a file: a tab after the id, no length before it.
fn unpacked(mut packets: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(packets.len());
    while let Some((line, rest)) = split_packet(packets) {
        let space = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let (id, name) = line.split_at(space);
        out.extend_from_slice(id);
        out.push(b'\t');
        out.extend_from_slice(name.get(1..).unwrap_or_default());
        packets = rest;
    }
    out
}

/// Bytes of a file of those lines. Cost: a step for each.
fn unpacked_len(mut lines: RefLines) -> u64 {
    let mut total = 0;
    while !lines.chunk().is_empty() {
        let mut packets = lines.chunk();
        let len = packets.len();
        while let Some((line, rest)) = split_packet(packets) {
            total += line.len() as u64;
            packets = rest;
        }
        lines.advance(len);
    }
    total
}

/// The content of the first packet, and the packets after it.
fn split_packet(packets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = packets.split_first_chunk::<4>()?;
    let len = usize::from_str_radix(std::str::from_utf8(len).ok()?, 16).ok()?;
    rest.split_at_checked(len.checked_sub(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_has_its_place_until_it_is_sent_or_given_up() {
        let fetches = Arc::new(tokio::sync::Semaphore::new(1));
        let permit = fetches.clone().acquire_owned().await.ok();
        let pieces = futures::stream::iter([Ok(bytes::Bytes::from_static(b"a")), Ok(bytes::Bytes::from_static(b"b"))]);
        let mut file = hold(pieces.boxed(), permit);
        for _ in 0..2 {
            assert!(file.next().await.is_some());
            assert_eq!(fetches.available_permits(), 0);
        }
        drop(file);
        assert_eq!(fetches.available_permits(), 1);
    }

    #[test]
    fn packets_become_lines() {
        let packets = b"000eab refs/x\n0011ab refs/x^{}\n0010cd refs/y z\n";
        let lines = b"ab\trefs/x\nab\trefs/x^{}\ncd\trefs/y z\n";
        assert_eq!(unpacked(packets), lines);
        let mut parts = RefLines::default();
        parts.push(&packets[..31]);
        parts.push(&packets[31..]);
        assert_eq!(unpacked_len(parts), lines.len() as u64);
        assert_eq!(unpacked(b""), b"");
        assert_eq!(unpacked(b"0003"), b"");
    }

    #[test]
    fn a_pack_is_new_until_its_time_has_passed() {
        let memory = DumbMemory::default();
        assert!(!memory.is_older(LayerId(1), 1_000, 500));
        assert!(!memory.is_older(LayerId(1), 1_499, 500));
        assert!(memory.is_older(LayerId(1), 1_500, 500));
        assert!(!memory.is_older(LayerId(2), 1_500, 500));
        assert!(memory.is_older(LayerId(3), 1_500, 0));
    }

    #[test]
    fn so_many_packs_are_remembered() {
        let memory = DumbMemory::of(64);
        for number in 0..1_000 {
            memory.is_older(LayerId(number), 1_000, 500);
            assert!(memory.seen_ms.len() <= 64, "{number}");
        }
        assert!(memory.seen_ms.len() > 1);
    }
}
