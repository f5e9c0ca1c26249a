//! The Git wire protocol, sans-I/O: bytes in, values out; values in, bytes out.
//!
//! Responsible for framing, grammar, capabilities, negotiation and the exact bytes of every answer, as stock git has
//! them. Knows nothing of storage, HTTP, SSH, time or async: a server feeds it what it reads, asks its repository what
//! the protocol cannot know, and sends what was written. The parsers never trust a peer: every list has a bound in
//! [`Limits`], and no input panics. Nothing that [`options`] does not offer is let through.
//!
//! How a server drives it (`serve_*` are its own; a packet loop is `decoder.push(chunk)`, then `decoder.poll()` until
//! `None`, then [`finish`](pktline::Decoder::finish) at the end of the stream, on the parser too):
//!
//! ```
//! use cuesta_git::{ObjectFormat, ObjectId};
//! use cuesta_protocol::advertise::{self, AdvertisedRef, Head};
//! use cuesta_protocol::{Limits, ProtocolError, Service, Version, pktline, receive, upload};
//! use cuesta_protocol::options::{ReceiveOptions, UploadOptions};
//! use upload::{answer::{FetchAnswer, write_v0_shallow}, v0, v2};
//! # struct Repository { format: ObjectFormat, refs: Vec<AdvertisedRef<'static>> }
//! # impl Repository {
//! #     fn has(&self, _: &ObjectId) -> bool { true }
//! #     fn enough(&self, _wants: &[ObjectId], _common: &[ObjectId]) -> bool { true }
//! #     fn serve_pack(&self, _: &upload::PackRequest, _: &[ObjectId], _: &mut Vec<u8>) {}
//! #     fn serve_push(&self, _: &receive::PushRequest) -> receive::Report { unimplemented!() }
//! # }
//!
//! /// info/refs, or the first words over SSH.
//! fn advertise(repository: &Repository, http: bool, version: Version, options: &UploadOptions, out: &mut Vec<u8>) {
//!     if version == Version::V2 {
//!         return advertise::write_v2(out, options, repository.format);
//!     }
//!     let list = advertise::upload_capabilities(options, repository.format, http, Some(b"refs/heads/main"));
//!     let head = Head { service: Service::UploadPack, version, http, format: repository.format, capabilities: &list };
//!     advertise::write_refs(out, &head, repository.refs.iter().copied(), &[]);
//! }
//!
//! /// One packet of a v2 connection.
//! fn serve_v2(repository: &Repository, parser: &mut v2::RequestParser, packet: &pktline::Packet, out: &mut Vec<u8>)
//! -> Result<(), ProtocolError> {
//!     let v2::Event::Request(request) = parser.handle(packet)? else { return Ok(()) };
//!     match &request.command {
//!         v2::Command::LsRefs(ls_refs) => ls_refs.write_answer(out, None, repository.refs.iter().copied()),
//!         v2::Command::Fetch(fetch) => {
//!             let common: Vec<ObjectId> = fetch.haves.iter().copied().filter(|oid| repository.has(oid)).collect();
//!             let answer = FetchAnswer::new(fetch);
//!             let pack_follows = match fetch.step() {
//!                 v2::FetchStep::Nothing => false,
//!                 v2::FetchStep::Pack => true,
//!                 v2::FetchStep::Acknowledge => {
//!                     let ready = fetch.asks_ready() && repository.enough(&fetch.pack.wants, &common);
//!                     answer.acknowledgments(out, fetch, &common, ready)
//!                 }
//!             };
//!             if pack_follows {
//!                 answer.packfile(out); // answer.shallow_info() and the like come before it
//!                 repository.serve_pack(&fetch.pack, &common, out); // SideBand::Large frames, then a flush
//!             }
//!         }
//!         _ => {}
//!     }
//!     Ok(())
//! }
//!
//! /// One packet of a v0 fetch; `negotiation` is set by its wants.
//! fn serve_v0(repository: &Repository, parser: &mut v0::RequestParser, packet: &pktline::Packet,
//!             request: &mut v0::Request, negotiation: &mut Option<v0::Negotiation>, common: &mut Vec<ObjectId>,
//!             out: &mut Vec<u8>) -> Result<(), ProtocolError> {
//!     let step = match (parser.handle(packet)?, negotiation.as_mut()) {
//!         (v0::Event::Wants(wants), _) => {
//!             if wants.asks_to_deepen() {
//!                 write_v0_shallow(out, &[], &[]);
//!             }
//!             *negotiation = Some(v0::Negotiation::new(&wants, true));
//!             *request = *wants;
//!             return Ok(());
//!         }
//!         (v0::Event::Have(oid), Some(negotiation)) => {
//!             let known = repository.has(&oid);
//!             let ready = negotiation.asks_ready(known) && repository.enough(&request.pack.wants, common);
//!             common.extend(known.then_some(oid));
//!             return Ok(negotiation.have(out, oid, known, ready));
//!         }
//!         (v0::Event::Flush, Some(negotiation)) => {
//!             let ready = negotiation.asks_ready_at_flush() && repository.enough(&request.pack.wants, common);
//!             negotiation.flush(out, ready)
//!         }
//!         (v0::Event::Done, Some(negotiation)) => negotiation.done(out),
//!         _ => return Ok(()),
//!     };
//!     if step == v0::Step::Pack {
//!         repository.serve_pack(&request.pack, common, out); // framed as request.side_band says
//!     }
//!     Ok(())
//! }
//!
//! /// A push, here all in one piece.
//! fn serve_push(repository: &Repository, body: &[u8], out: &mut Vec<u8>) -> Result<(), ProtocolError> {
//!     let mut decoder = pktline::Decoder::new();
//!     let mut parser = receive::RequestParser::new(repository.format, ReceiveOptions::new("cuesta/1"), Limits::new());
//!     decoder.push(body);
//!     while let Some(packet) = decoder.poll()? {
//!         match parser.handle(&packet)? {
//!             receive::Event::More => {}
//!             receive::Event::Empty => return Ok(()), // the probe: 200, no body
//!             receive::Event::Request(push) => {
//!                 let _pack = push.has_pack().then(|| decoder.into_rest()); // and the rest of the stream
//!                 let report = repository.serve_push(&push); // texts meanwhile: SideBand::Large.text()
//!                 report.write(out, &push.capabilities);
//!                 return Ok(());
//!             }
//!         }
//!     }
//!     Err(ProtocolError::Truncated)
//! }
//! ```

pub mod advertise;
pub mod archive;
pub mod capability;
pub mod client;
mod error;
pub mod filter;
pub mod git_transport;
mod limits;
pub mod options;
pub mod pktline;
mod program;
pub mod receive;
pub mod sideband;
pub mod ssh;
#[cfg(test)]
mod testing;
pub mod upload;
mod version;

pub use error::{ErrorKind, ProtocolError};
pub use limits::Limits;
pub use program::Program;
pub use version::{Service, Version};
