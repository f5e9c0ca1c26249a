//! Which acknowledgments to write, as haves come in.

use cuesta_git::ObjectId;

use super::{AckMode, Request};
use crate::pktline;

/// The server's side of a v0 negotiation, as a pure state machine: it is told what the client has, whether that is
/// known here, and whether the haves so far are enough, and says what to write.
///
/// The haves are *enough* (`ready`) when every want has a known one among its ancestors. That is dear to find out, so
/// [`asks_ready`](Self::asks_ready) and [`asks_ready_at_flush`](Self::asks_ready_at_flush) tell when it matters; else
/// pass `false`.
#[derive(Debug, Clone)]
pub struct Negotiation {
    acks: AckMode,
    no_done: bool,
    stateless: bool,
    last_common: Option<ObjectId>,
    common_in_round: bool,
    unknown_in_round: bool,
    ready: bool,
}

/// What follows what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The client goes on: send what was written, and take more packets.
    Continue,
    /// The answer is whole. The client comes back with a request of its own.
    End,
    /// The pack.
    Pack,
}

impl Negotiation {
    /// A negotiation about this request. `stateless` is HTTP.
    pub fn new(request: &Request, stateless: bool) -> Self {
        Self {
            acks: request.acks,
            no_done: request.no_done,
            stateless,
            last_common: None,
            common_in_round: false,
            unknown_in_round: false,
            ready: false,
        }
    }

    /// Whether [`have`](Self::have) looks at `ready` for a have that is known or unknown here.
    pub fn asks_ready(&self, known: bool) -> bool {
        !known && self.acks != AckMode::Single && self.last_common.is_some()
    }

    /// Whether [`flush`](Self::flush) looks at `ready`.
    pub fn asks_ready_at_flush(&self) -> bool {
        self.acks == AckMode::Detailed && self.common_in_round && !self.unknown_in_round
    }

    /// Takes a have: `known` if the object is here.
    pub fn have(&mut self, out: &mut Vec<u8>, oid: ObjectId, known: bool, ready: bool) {
        if known {
            self.known(out, oid);
            return;
        }
        // An unknown have that is acknowledged all the same stops the client from digging below it.
        let enough = ready && self.asks_ready(known);
        self.unknown_in_round = true;
        match self.acks {
            AckMode::Detailed if enough => {
                self.ready = true;
                ack(out, &oid, " ready");
            }
            AckMode::Multi if enough => ack(out, &oid, " continue"),
            _ => {}
        }
    }

    /// Takes the end of a round of haves.
    pub fn flush(&mut self, out: &mut Vec<u8>, ready: bool) -> Step {
        if let (Some(last), true) = (self.last_common, ready && self.asks_ready_at_flush()) {
            self.ready = true;
            ack(out, &last, " ready");
        }
        if self.last_common.is_none() || self.acks != AckMode::Single {
            nak(out);
        }
        if let (Some(last), true) = (self.last_common, self.ready && self.no_done) {
            ack(out, &last, "");
            return Step::Pack;
        }
        self.common_in_round = false;
        self.unknown_in_round = false;
        if self.stateless { Step::End } else { Step::Continue }
    }

    /// Takes the end of the negotiation: the pack follows.
    pub fn done(&mut self, out: &mut Vec<u8>) -> Step {
        match self.last_common {
            None => nak(out),
            Some(last) if self.acks != AckMode::Single => ack(out, &last, ""),
            Some(_) => {}
        }
        Step::Pack
    }

    fn known(&mut self, out: &mut Vec<u8>, oid: ObjectId) {
        match self.acks {
            AckMode::Detailed => ack(out, &oid, " common"),
            AckMode::Multi => ack(out, &oid, " continue"),
            AckMode::Single if self.last_common.is_none() => ack(out, &oid, ""),
            AckMode::Single => {}
        }
        self.common_in_round = true;
        self.last_common = Some(oid);
    }
}

fn ack(out: &mut Vec<u8>, oid: &ObjectId, status: &str) {
    pktline::encode(out, &[b"ACK ", oid.to_string().as_bytes(), status.as_bytes(), b"\n"]);
}

fn nak(out: &mut Vec<u8>) {
    pktline::encode(out, &[b"NAK\n"]);
}

#[cfg(test)]
#[path = "negotiation_tests.rs"]
mod tests;
