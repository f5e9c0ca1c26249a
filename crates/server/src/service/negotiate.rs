//! Negotiation: what a client says it has, and what it is told. Over HTTP every request stands alone and says all of it.

use cuesta_engine::EngineError;
use cuesta_engine::upload::Negotiation;
use cuesta_git::{ObjectFormat, ObjectId};
use cuesta_protocol::options::UploadOptions;
use cuesta_protocol::pktline::Decoder;
use cuesta_protocol::upload::{v0, v2};
use cuesta_protocol::{Limits, ProtocolError};

/// Why a fetch is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The request is at fault.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The engine cannot, or will not.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A v0 request that has been read whole.
#[derive(Debug, Default)]
pub struct V0Fetch {
    /// The wants; `None` if there are none.
    pub request: Option<Box<v0::Request>>,
    /// What followed them.
    pub events: Vec<V0Event>,
}

/// What a v0 client says after its wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum V0Event {
    /// It has this object.
    Have(ObjectId),
    /// It waits for acknowledgments.
    Flush,
    /// It waits for the pack.
    Done,
}

/// Reads a v0 or v1 request.
pub fn read_v0(body: &[u8], mut parser: v0::RequestParser) -> Result<V0Fetch, ProtocolError> {
    let mut decoder = Decoder::new();
    decoder.push(body);
    let mut fetch = V0Fetch::default();
    while let Some(packet) = decoder.poll()? {
        match parser.handle(&packet)? {
            v0::Event::More => {}
            v0::Event::Nothing => return Ok(fetch),
            v0::Event::Wants(request) => fetch.request = Some(request),
            v0::Event::Have(oid) => fetch.events.push(V0Event::Have(oid)),
            // Over HTTP a round ends the request: acknowledgments or the pack, and the client comes back.
            v0::Event::Flush => {
                fetch.events.push(V0Event::Flush);
                return Ok(fetch);
            }
            v0::Event::Done => {
                fetch.events.push(V0Event::Done);
                return Ok(fetch);
            }
        }
    }
    decoder.finish()?;
    parser.finish()?;
    Ok(fetch)
}

/// Answers what followed the wants: writes the acknowledgments, and says what follows them.
pub fn run_v0(
    acks: &mut v0::Negotiation,
    events: &[V0Event],
    negotiation: &mut Negotiation,
    out: &mut Vec<u8>,
) -> Result<v0::Step, EngineError> {
    for event in events {
        let step = match *event {
            V0Event::Have(oid) => {
                let known = negotiation.have(&oid)?;
                let ready = acks.asks_ready(known) && negotiation.is_ready()?;
                acks.have(out, oid, known, ready);
                continue;
            }
            V0Event::Flush => {
                let ready = acks.asks_ready_at_flush() && negotiation.is_ready()?;
                acks.flush(out, ready)
            }
            V0Event::Done => acks.done(out),
        };
        if step != v0::Step::Continue {
            return Ok(step);
        }
    }
    Ok(v0::Step::Continue)
}

/// Reads a v2 request, or says why there is none and what to answer. `Ok(None)` is a lone flush: the client is done.
pub fn read_v2(
    body: &[u8],
    format: ObjectFormat,
    options: UploadOptions,
    limits: Limits,
) -> Result<Option<Box<v2::Request>>, (String, Vec<u8>)> {
    let mut parser = v2::RequestParser::new(format, options, limits);
    parse_v2(body, &mut parser).map_err(|error| {
        let mut out = Vec::new();
        parser.refuse(&mut out, &error);
        (error.to_string(), out)
    })
}

fn parse_v2(body: &[u8], parser: &mut v2::RequestParser) -> Result<Option<Box<v2::Request>>, ProtocolError> {
    let mut decoder = Decoder::new();
    decoder.push(body);
    while let Some(packet) = decoder.poll()? {
        match parser.handle(&packet)? {
            v2::Event::More => {}
            v2::Event::Request(request) => return Ok(Some(request)),
            v2::Event::End => return Ok(None),
        }
    }
    decoder.finish()?;
    parser.finish()?;
    Ok(None)
}
