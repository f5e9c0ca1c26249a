//! Fetches, one request at a time: refs, negotiation, and the pack (gitprotocol-v2; gitprotocol-pack for v0 and v1).

use super::ls_refs;
use super::negotiate::{self, Refusal, V0Fetch};
use super::object_info;
use super::pack_answer::{Manner, PackAnswer, PackForm, Planned};
use super::payload_uris::{self, PayloadUris};
use super::repository_options::RepositoryOptions;
use super::shown_refs;
use crate::http::answer::Answer;
use crate::http::front::{Call, Transport, body_error};
use crate::http::record::Record;
use crate::http::request_body::{BodyError, RequestBody};
use crate::http::response_body::Content;
use crate::ref_rope::Form;
use crate::service::request_memory::Hold;
use bytes::Bytes;
use cuesta_engine::upload::{self, Boundary, Negotiation, ObjectFilter, Offload, UploadRequest, WantPolicy};
use cuesta_engine::{EngineError, Repository, View, archive};
use cuesta_git::ObjectId;
use cuesta_protocol::filter::FilterSpec;
use cuesta_protocol::sideband::SideBand;
use cuesta_protocol::upload::answer::{FetchAnswer, write_v0_shallow};
use cuesta_protocol::upload::ls_refs::LsRefs;
use cuesta_protocol::upload::v0;
use cuesta_protocol::upload::v2::{Command, Fetch, FetchStep};
use cuesta_protocol::upload::{Deepen, PackRequest};
use cuesta_protocol::{Limits, ProtocolError, Service, Version, pktline};
use http::StatusCode;
use std::collections::HashSet;
use std::sync::Arc;

const CONTENT_TYPE: &str = "application/x-git-upload-pack-result";
/// Answers without `sideband-all`.
const PLAIN: FetchAnswer = FetchAnswer { sideband_all: false };
/// Haves that are looked up on the reactor: a fraction of a millisecond.
const HAVES_INLINE_MAX: usize = 64;

/// Answers a fetch over HTTP.
pub async fn answer(call: Call, mut body: RequestBody) -> Answer {
    let len_max = call.node.settings.fetch_request_bytes_max.as_usize();
    let mut hold = Hold::new(call.node.request_memory.clone(), len_max);
    let request = match body.collect(len_max, &mut hold).await {
        Ok(request) => request,
        Err(error @ BodyError::TooLarge { .. }) => return refused(&call.record, &error.to_string()),
        Err(error) => return body_error(&error, &call.record),
    };
    answer_request(call, request).await
}

/// Answers one whole request. What is refused is said in an `ERR` packet: of a POST's error status clients show no text.
pub async fn answer_request(call: Call, request: Bytes) -> Answer {
    let exchange = match open(&call).await {
        Ok(opened) => Exchange::new(call, opened),
        Err(answer) => return *answer,
    };
    let answered = match exchange.call.version {
        Version::V2 => exchange.v2(&request).await,
        Version::V0 | Version::V1 => exchange.v0(&request).await,
    };
    answered.unwrap_or_else(|refusal| exchange.refused(&refusal))
}

/// A repository, and how it is at this moment.
pub struct Opened {
    pub(super) repository: Arc<Repository>,
    pub(super) view: View,
}

/// Opens what is to be fetched from.
pub async fn open(call: &Call) -> Result<Opened, Box<Answer>> {
    let failed = |error| Box::new(Answer::engine_error(&error, &call.record));
    let repository = call.repository().await.map_err(failed)?;
    let repository = repository.ok_or_else(|| Box::new(Answer::not_found()))?;
    let view = repository.view().await.map_err(failed)?;
    if !RepositoryOptions::of(&view).serves(call.transport, Service::UploadPack) {
        return Err(Box::new(Answer::error(StatusCode::FORBIDDEN, "service not enabled")));
    }
    // Another process may have pushed, or this one before it was restarted.
    call.node.unflushed.note_if_inline(&repository);
    Ok(Opened { repository, view })
}

/// The answer to what is no request.
pub fn refusal(record: &Record, error: &ProtocolError) -> Answer {
    refused(record, &error.to_string())
}

fn refused(record: &Record, text: &str) -> Answer {
    record.failed(text);
    let mut out = Vec::new();
    pktline::encode_error(&mut out, text);
    Answer::whole(CONTENT_TYPE, out)
}

/// One request, and the view that it is answered from.
pub(super) struct Exchange {
    call: Arc<Call>,
    repository: Arc<Repository>,
    view: View,
}

impl Exchange {
    pub(super) fn new(call: Call, opened: Opened) -> Self {
        let Opened { repository, view } = opened;
        Self {
            call: Arc::new(call),
            repository,
            view,
        }
    }

    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    /// What a client is told whose request is refused.
    pub(super) fn refused(&self, refusal: &Refusal) -> Answer {
        self.refusal(refusal, PLAIN)
    }

    /// A parser of v0 requests to this repository.
    pub(super) fn v0_parser(&self, stateless: bool) -> v0::RequestParser {
        let options = self.options().upload(self.call.record.id);
        v0::RequestParser::new(self.view.object_format(), options, self.limits(), stateless)
    }

    fn options(&self) -> RepositoryOptions<'_> {
        RepositoryOptions::of(&self.view)
    }

    /// What a client is told whose request is refused, in the form that it asked for.
    fn refusal(&self, refusal: &Refusal, form: FetchAnswer) -> Answer {
        let text = match refusal {
            Refusal::Protocol(error) => {
                self.call.record.failed(&error.to_string());
                error.to_string()
            }
            Refusal::Engine(error) => Answer::engine_text(error, &self.call.record),
        };
        let mut out = Vec::new();
        form.error(&mut out, &text);
        Answer::whole(CONTENT_TYPE, out)
    }

    async fn v2(&self, body: &Bytes) -> Result<Answer, Refusal> {
        let options = self.options().upload(self.call.record.id);
        let request = match negotiate::read_v2(body, self.view.object_format(), options, self.limits()) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(Answer::whole(CONTENT_TYPE, Bytes::new())),
            Err((text, refusal)) => {
                self.call.record.failed(&text);
                return Ok(Answer::whole(CONTENT_TYPE, refusal));
            }
        };
        let client = &request.client;
        self.call
            .record
            .client(client.session_id.as_deref(), &client.server_options);
        match &request.command {
            Command::LsRefs(request) => Ok(self.ls_refs(request).await),
            Command::Fetch(fetch) => {
                let answered = self.fetch(fetch).await;
                Ok(answered.unwrap_or_else(|refusal| self.refusal(&refusal, FetchAnswer::new(fetch))))
            }
            Command::ObjectInfo(info) => {
                let answer = object_info::write(&self.view, info).await?;
                Ok(Answer::whole(CONTENT_TYPE, answer))
            }
            Command::BundleUri => {
                let answer = payload_uris::bundle_uri(&self.call, &self.repository, &self.view).await?;
                Ok(Answer::whole(CONTENT_TYPE, answer))
            }
            // Not offered, so the parser lets none through.
            _ => Ok(refused(&self.call.record, "command is not supported")),
        }
    }

    async fn ls_refs(&self, request: &LsRefs) -> Answer {
        let (node, state) = (&self.call.node, self.view.state());
        let hidden = self.options().hidden(Service::UploadPack);
        let (form, log) = (Form::of_request(request), self.repository.id());
        let rope = node
            .ref_ropes
            .rope(log, state, Service::UploadPack, form, &node.workers)
            .await;
        Answer::ok(
            CONTENT_TYPE,
            Content::Lines(ls_refs::write(state, &hidden, &rope, request)),
        )
    }

    async fn fetch(&self, fetch: &Fetch) -> Result<Answer, Refusal> {
        let step = fetch.step();
        if step == FetchStep::Nothing {
            return Ok(Answer::whole(CONTENT_TYPE, Bytes::new()));
        }
        self.check_wants(&fetch.pack.wants).await?;
        let wanted_refs = self.wanted_refs(&fetch.want_refs)?;
        let mut pack = fetch.pack.clone();
        add_wants(&mut pack.wants, &wanted_refs);
        let (common, ready) = self.common(fetch, &pack.wants).await?;
        let (answer, mut out) = (FetchAnswer::new(fetch), Vec::with_capacity(1024));
        if step == FetchStep::Acknowledge && !answer.acknowledgments(&mut out, fetch, &common, ready) {
            return Ok(Answer::whole(CONTENT_TYPE, out));
        }
        let boundary = self.boundary(&pack).await?;
        if let Some(boundary) = &boundary {
            answer.shallow_info(&mut out, boundary.shallow(), boundary.unshallow());
        }
        answer.wanted_refs(&mut out, wanted_refs.iter().map(|(name, oid)| (&name[..], *oid)));
        let uris = self.payload_uris(fetch);
        if uris.is_none() {
            answer.packfile(&mut out);
        }
        let form = PackForm {
            before: out,
            side_band: Some(SideBand::Large),
            head: uris.is_some().then_some(answer),
        };
        self.pack(&pack, common, boundary, form, uris).await
    }

    /// Where the client may be sent for whole layers and for blobs, if it asks to be.
    fn payload_uris(&self, fetch: &Fetch) -> Option<PayloadUris> {
        let schemes = Some(&fetch.packfile_uris).filter(|schemes| !schemes.is_empty())?;
        let (call, repository) = (Arc::clone(&self.call), Arc::clone(&self.repository));
        PayloadUris::new(call, repository, self.options(), schemes)
    }

    /// The values of refs that are wanted by name.
    fn wanted_refs(&self, names: &[Bytes]) -> Result<Vec<(Bytes, ObjectId)>, ProtocolError> {
        let hidden = self.options().hidden(Service::UploadPack);
        let value = |name: &Bytes| {
            let found = shown_refs::value(self.view.state(), &hidden, name);
            found
                .map(|oid| (name.clone(), oid))
                .ok_or_else(|| Fetch::unknown_ref(name))
        };
        names.iter().map(value).collect()
    }

    /// What both sides have, and whether that is enough for the wants.
    async fn common(&self, fetch: &Fetch, wants: &[ObjectId]) -> Result<(Vec<ObjectId>, bool), EngineError> {
        if fetch.haves.is_empty() {
            return Ok((Vec::new(), false));
        }
        let mut negotiation = self.negotiation(wants).await?;
        let (haves, asks_ready) = (fetch.haves.clone(), fetch.asks_ready());
        self.negotiate(haves.len(), move || {
            for have in &haves {
                negotiation.have(have)?;
            }
            let ready = asks_ready && negotiation.is_ready()?;
            Ok((negotiation.common().to_vec(), ready))
        })
        .await
    }

    async fn v0(&self, body: &Bytes) -> Result<Answer, Refusal> {
        let V0Fetch { request, events } = negotiate::read_v0(body, self.v0_parser(true))?;
        let Some(request) = request else {
            return Ok(Answer::whole(CONTENT_TYPE, Bytes::new()));
        };
        self.call.record.client(request.session_id.as_deref(), &[]);
        self.check_wants(&request.pack.wants).await?;
        let boundary = self.boundary(&request.pack).await?;
        let mut out = Vec::with_capacity(1024);
        if let (Some(boundary), true) = (&boundary, request.asks_to_deepen()) {
            write_v0_shallow(&mut out, boundary.shallow(), boundary.unshallow());
        }
        let mut negotiation = self.negotiation(&request.pack.wants).await?;
        let asked = request.clone();
        let (pack_follows, common, out) = self
            .negotiate(events.len(), move || {
                let mut acks = v0::Negotiation::new(&asked, true);
                let step = negotiate::run_v0(&mut acks, &events, &mut negotiation, &mut out)?;
                Ok((step == v0::Step::Pack, negotiation.common().to_vec(), out))
            })
            .await?;
        if !pack_follows {
            return Ok(Answer::whole(CONTENT_TYPE, out));
        }
        self.v0_pack(&request, common, boundary, out).await
    }

    /// The pack of a v0 fetch, behind what was to be said `before` it.
    pub(super) async fn v0_pack(
        &self,
        request: &v0::Request,
        common: Vec<ObjectId>,
        boundary: Option<Arc<Boundary>>,
        before: Vec<u8>,
    ) -> Result<Answer, Refusal> {
        let form = PackForm {
            before,
            side_band: request.side_band,
            head: None,
        };
        self.pack(&request.pack, common, boundary, form, None).await
    }

    /// Where the client's history ends after this fetch; `None` if nothing was asked and nobody's history has an end.
    pub(super) async fn boundary(&self, pack: &PackRequest) -> Result<Option<Arc<Boundary>>, Refusal> {
        let state = self.view.state();
        let deepen = match &pack.deepen {
            Deepen::Unchanged if pack.shallow.is_empty() && state.shallow().is_empty() => return Ok(None),
            Deepen::Unchanged => upload::Deepen::Unchanged,
            whole if whole.is_infinite() => upload::Deepen::Whole,
            Deepen::Depth(depth) => upload::Deepen::Depth(*depth),
            Deepen::Relative(more) => upload::Deepen::Relative(*more),
            Deepen::Excluding { since, not } => {
                let hidden = self.options().hidden(Service::UploadPack);
                let find = |name: &Bytes| {
                    shown_refs::expand(state, &hidden, name).ok_or_else(|| {
                        let name = String::from_utf8_lossy(name);
                        ProtocolError::Refused(format!(
                            "git upload-pack: deepen-not is not a ref: {}",
                            name.escape_debug()
                        ))
                    })
                };
                upload::Deepen::Excluding {
                    since: *since,
                    not: not.iter().map(find).collect::<Result<_, _>>()?,
                }
            }
        };
        let shallow = self.shown_only(&pack.shallow).await?;
        let boundary = upload::boundary(&self.view, &pack.wants, &shallow, &deepen).await?;
        Ok(Some(Arc::new(boundary)))
    }

    /// Those of the client's shallow commits that it may know to be here: the others are as good as unknown.
    async fn shown_only(&self, shallow: &[ObjectId]) -> Result<Vec<ObjectId>, EngineError> {
        let mut shallow = shallow.to_vec();
        let (policy, hidden) = (self.want_policy(), self.options().hidden(Service::UploadPack));
        if shallow.is_empty() {
            return Ok(shallow);
        }
        let Some(shown) = upload::shown_to(&self.view, policy, &hidden).await? else {
            return Ok(shallow);
        };
        let work = move || {
            let mut kept = Vec::with_capacity(shallow.len());
            for oid in shallow.drain(..) {
                if shown.reaches(&oid)? {
                    kept.push(oid);
                }
            }
            Ok(kept)
        };
        self.call.node.workers.run(work).await
    }

    /// A negotiation about these wants, in which nothing is told of what only hidden refs reach.
    pub(super) async fn negotiation(&self, wants: &[ObjectId]) -> Result<Negotiation, EngineError> {
        let (policy, hidden) = (self.want_policy(), self.options().hidden(Service::UploadPack));
        let shown = upload::shown_to(&self.view, policy, &hidden).await?;
        Negotiation::new(&self.view, wants, shown).await
    }

    fn want_policy(&self) -> WantPolicy {
        let stateless = self.call.transport == Transport::Http;
        self.options().wants(self.call.version, stateless)
    }

    /// Runs a negotiation where it may take its time.
    pub(super) async fn negotiate<T: Send + 'static>(
        &self,
        haves: usize,
        work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        // Where refs are hidden a look-up may be a pass over the cues.
        if haves <= HAVES_INLINE_MAX && self.options().hidden(Service::UploadPack).is_empty() {
            work()
        } else {
            self.call.node.workers.run(work).await
        }
    }

    pub(super) async fn check_wants(&self, wants: &[ObjectId]) -> Result<(), EngineError> {
        let (policy, hidden) = (self.want_policy(), self.options().hidden(Service::UploadPack));
        match upload::refused_want(&self.view, wants, policy, &hidden).await? {
            Some(want) => Err(EngineError::NotOurRef(want)),
            None => Ok(()),
        }
    }

    async fn pack(
        &self,
        request: &PackRequest,
        common: Vec<ObjectId>,
        boundary: Option<Arc<Boundary>>,
        form: PackForm,
        uris: Option<PayloadUris>,
    ) -> Result<Answer, Refusal> {
        let offload = match uris.as_ref().filter(|uris| uris.give_layers()) {
            Some(_) => Some(Offload {
                reach: self.view.reach(&self.options().hidden(Service::UploadPack)).await?,
                bytes_min: self.options().uri_bytes_min(),
            }),
            None => None,
        };
        let filter = match &request.filter {
            Some(spec) => self.filter(spec).await?,
            None => ObjectFilter::All,
        };
        let upload = UploadRequest {
            offload,
            left_out: uris.as_ref().map(PayloadUris::blobs).unwrap_or_default(),
            wants: request.wants.clone(),
            common,
            thin: request.thin_pack,
            ofs_delta: request.ofs_delta,
            include_tag: request.include_tag,
            hidden: self.options().hidden(Service::UploadPack),
            boundary,
            filter,
        };
        let (node, view) = (self.call.node.clone(), self.view.clone());
        let planning = async move {
            let permit = node.fetches.clone().acquire_owned().await.ok();
            let (pack, uris) = plan(&view, upload, uris).await?;
            Ok(Planned { pack, permit, uris })
        };
        let manner = Manner {
            progress: !request.no_progress,
            keep_alive: self.options().keep_alive(Service::UploadPack),
        };
        let answer = PackAnswer::start(Box::pin(planning), form, manner, self.call.record.clone()).await?;
        Ok(Answer::ok(CONTENT_TYPE, Content::Stream(answer)))
    }

    /// The engine's form of a filter.
    async fn filter(&self, spec: &FilterSpec) -> Result<ObjectFilter, EngineError> {
        Ok(match spec {
            FilterSpec::BlobNone => ObjectFilter::NoBlobs,
            FilterSpec::BlobLimit(end) => ObjectFilter::BlobsBelow(*end),
            FilterSpec::TreeDepth(depth) => ObjectFilter::TreeDepth(*depth),
            FilterSpec::ObjectType(kind) => ObjectFilter::Kind(*kind),
            FilterSpec::SparseOid(name) => ObjectFilter::Sparse(self.sparse_blob(name).await?),
            FilterSpec::Combine(parts) => {
                let mut all = Vec::with_capacity(parts.len());
                for part in parts {
                    all.push(Box::pin(self.filter(part)).await?);
                }
                ObjectFilter::Combined(all)
            }
            _ => return Err(EngineError::Unsupported("this filter")),
        })
    }

    /// The object that a sparse filter names: by its id, or as `<ref>:<path>`. It must be one that the client may have.
    async fn sparse_blob(&self, name: &[u8]) -> Result<ObjectId, EngineError> {
        let hidden = self.options().hidden(Service::UploadPack);
        let mut parts = name.splitn(2, |byte| *byte == b':');
        let (start, path) = (parts.next().unwrap_or_default(), parts.next());
        let start = match ObjectId::from_hex(self.view.object_format(), start) {
            Ok(oid) => Some(oid),
            Err(_) => shown_refs::first(self.view.state(), &hidden, start),
        };
        let Some(start) = start else {
            return Err(no_sparse_blob(name));
        };
        if !upload::may_have(&self.view, &start, self.want_policy(), &hidden).await? {
            return Err(no_sparse_blob(name));
        }
        let Some(path) = path else { return Ok(start) };
        match archive::at_path(&self.view, &start, path).await {
            Ok(Some(oid)) => Ok(oid),
            Ok(None) | Err(EngineError::Refused(_)) => Err(no_sparse_blob(name)),
            Err(error) => Err(error),
        }
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::new();
        limits.request_bytes_max = self.call.node.settings.fetch_request_bytes_max.as_usize();
        limits
    }
}

/// Plans a pack, and where what it leaves out is to be found: if the client can find it.
async fn plan(
    view: &View,
    mut upload: UploadRequest,
    uris: Option<PayloadUris>,
) -> Result<(upload::Answer, Vec<(String, String)>), EngineError> {
    let Some(uris) = uris else {
        return Ok((upload::answer(view, &upload).await?, Vec::new()));
    };
    let plan = upload::plan(view, &upload).await?;
    if let Some(found) = uris.of(&plan).await? {
        return Ok((upload::Answer::of(plan), found));
    }
    upload.offload = None;
    Ok((upload::Answer::of(upload::plan(view, &upload).await?), Vec::new()))
}

/// Adds the values of refs wanted by name, each id once.
fn add_wants(wants: &mut Vec<ObjectId>, refs: &[(Bytes, ObjectId)]) {
    let mut seen: HashSet<ObjectId> = wants.iter().copied().collect();
    wants.extend(refs.iter().map(|(_, oid)| *oid).filter(|oid| seen.insert(*oid)));
}

fn no_sparse_blob(name: &[u8]) -> EngineError {
    let name = String::from_utf8_lossy(name);
    EngineError::Refused(format!("unable to access sparse blob in '{}'", name.escape_debug()))
}
