//! A fetch over a connection that both sides keep: protocol v0 and v1 as over SSH. The client negotiates in as many rounds as
//! it likes, and each is answered at once (gitprotocol-pack, `Packfile Negotiation`).
//!
//! All of it is about one view, the one that was advertised: whatever is pushed meanwhile, what was shown can be had.

use super::fetch::{self, Exchange, Opened};
use super::negotiate::{self, Refusal, V0Event};
use crate::http::answer::Answer;
use crate::http::front::Call;
use cuesta_engine::EngineError;
use cuesta_engine::upload::{Boundary, Negotiation};
use cuesta_protocol::ProtocolError;
use cuesta_protocol::pktline::Packet;
use cuesta_protocol::upload::answer::write_v0_shallow;
use cuesta_protocol::upload::v0;
use std::sync::Arc;

/// Haves that are held before they are looked up, if no flush comes.
const HAVES_HELD_MAX: usize = 1024;

/// A conversation after its advertisement.
pub struct StatefulFetch {
    exchange: Exchange,
    parser: v0::RequestParser,
    talk: Option<Talk>,
}

/// What is known once the wants are in.
struct Talk {
    request: Box<v0::Request>,
    boundary: Option<Arc<Boundary>>,
    held: Vec<V0Event>,
    bargain: Option<Bargain>,
}

/// The state of a negotiation: what was said, and what is known of it.
struct Bargain {
    acks: v0::Negotiation,
    known: Negotiation,
}

/// What follows.
pub enum Step {
    /// Nothing: the client goes on.
    More,
    /// These bytes, and then the client goes on.
    Say(Vec<u8>),
    /// The last answer.
    Answer(Box<Answer>),
    /// Nothing, and the conversation is over.
    Nothing,
}

impl StatefulFetch {
    /// A conversation about what was `opened` and advertised.
    pub fn new(call: Call, opened: Opened) -> Self {
        let exchange = Exchange::new(call, opened);
        let parser = exchange.v0_parser(false);
        Self {
            exchange,
            parser,
            talk: None,
        }
    }

    /// Takes the next packet.
    pub async fn handle(&mut self, packet: &Packet) -> Step {
        let step = self.step(packet).await;
        step.unwrap_or_else(|refusal| Step::Answer(Box::new(self.exchange.refused(&refusal))))
    }

    /// Ends the conversation for a fault of the client.
    pub fn refuse(&self, error: &ProtocolError) -> Step {
        Step::Answer(Box::new(fetch::refusal(&self.exchange.call().record, error)))
    }

    async fn step(&mut self, packet: &Packet) -> Result<Step, Refusal> {
        let event = match self.parser.handle(packet)? {
            v0::Event::More => return Ok(Step::More),
            v0::Event::Nothing => return Ok(Step::Nothing),
            v0::Event::Wants(request) => return self.begin(request).await,
            v0::Event::Have(oid) => V0Event::Have(oid),
            v0::Event::Flush => V0Event::Flush,
            v0::Event::Done => V0Event::Done,
        };
        let Some(talk) = &mut self.talk else {
            return Ok(Step::Nothing);
        };
        talk.held.push(event);
        if matches!(event, V0Event::Have(_)) && talk.held.len() < HAVES_HELD_MAX {
            return Ok(Step::More);
        }
        self.round().await
    }

    /// The wants are in: the boundary is told if it was asked for.
    async fn begin(&mut self, request: Box<v0::Request>) -> Result<Step, Refusal> {
        self.exchange.call().record.client(request.session_id.as_deref(), &[]);
        self.exchange.check_wants(&request.pack.wants).await?;
        let boundary = self.exchange.boundary(&request.pack).await?;
        let mut out = Vec::new();
        if let (Some(boundary), true) = (&boundary, request.asks_to_deepen()) {
            write_v0_shallow(&mut out, boundary.shallow(), boundary.unshallow());
        }
        let bargain = Bargain {
            acks: v0::Negotiation::new(&request, false),
            known: self.exchange.negotiation(&request.pack.wants).await?,
        };
        self.talk = Some(Talk {
            request,
            boundary,
            held: Vec::new(),
            bargain: Some(bargain),
        });
        Ok(if out.is_empty() { Step::More } else { Step::Say(out) })
    }

    /// Answers what is held.
    async fn round(&mut self) -> Result<Step, Refusal> {
        let lost = || EngineError::Internal("a negotiation was lost");
        let talk = self.talk.as_mut().ok_or_else(lost)?;
        let mut bargain = talk.bargain.take().ok_or_else(lost)?;
        let held = std::mem::take(&mut talk.held);
        let haves = held.len();
        let work = move || {
            let mut out = Vec::new();
            let step = negotiate::run_v0(&mut bargain.acks, &held, &mut bargain.known, &mut out)?;
            Ok((bargain, step, out))
        };
        let (bargain, step, out) = self.exchange.negotiate(haves, work).await?;
        if step != v0::Step::Pack {
            talk.bargain = Some(bargain);
            return Ok(if out.is_empty() { Step::More } else { Step::Say(out) });
        }
        let common = bargain.known.common().to_vec();
        let (request, boundary) = (talk.request.clone(), talk.boundary.clone());
        let answer = self.exchange.v0_pack(&request, common, boundary, out).await?;
        Ok(Step::Answer(Box::new(answer)))
    }
}
