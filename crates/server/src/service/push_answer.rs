//! The answer to a push: nothing until the push is done, or, where that takes long, keep-alive and progress before the
//! report.

use super::pack_answer::within;
use super::push::CONTENT_TYPE;
use super::unstoppable::Unstoppable;
use crate::http::answer::Answer;
use crate::http::record::Record;
use crate::http::response_body::{Content, Cut, Piece};
use bytes::Bytes;
use cuesta_protocol::receive::{PushCapabilities, Report};
use cuesta_protocol::sideband::{KEEP_ALIVE, SideBand};
use futures::{FutureExt, StreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What an answer is made of.
pub(super) struct PushForm {
    /// What the client asked for.
    pub(super) capabilities: PushCapabilities,
    /// Lines for the user.
    pub(super) progress: mpsc::Receiver<String>,
    /// Whether the client reads, as its input says.
    pub(super) listens: Arc<AtomicBool>,
    /// Silence after which a keep-alive packet is sent, if any is.
    pub(super) keep_alive: Option<Duration>,
}

/// Waits for the push, and answers.
pub(super) async fn send(mut work: Unstoppable<Report>, form: PushForm, record: Arc<Record>) -> Answer {
    let mut pending = Pending { form, record };
    loop {
        match within(pending.form.keep_alive, &mut work).await {
            Some(report) => return Answer::whole(CONTENT_TYPE, pending.finish(report)),
            // From here on it takes the client's reading to go on with the answer, and the push must not wait for that.
            None if pending.may_speak() => return Answer::ok(CONTENT_TYPE, pending.stream(tokio::spawn(work))),
            None => {}
        }
    }
}

struct Pending {
    form: PushForm,
    record: Arc<Record>,
}

impl Pending {
    fn may_speak(&self) -> bool {
        self.form.capabilities.side_band && self.form.listens.load(Ordering::Relaxed)
    }

    /// What is still to be sent: the lines that wait, and the report. There is none if the work panicked.
    fn finish(&mut self, report: Option<Report>) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        while let Some(Some(text)) = self.form.progress.recv().now_or_never() {
            self.write_text(&mut out, &text);
        }
        match report {
            Some(report) => report.write(&mut out, &self.form.capabilities),
            None => self.write_failure(&mut out),
        }
        out
    }

    fn write_failure(&self, out: &mut Vec<u8>) {
        let text = Answer::internal_text(&self.record);
        self.record.failed("the push panicked");
        if self.form.capabilities.side_band {
            SideBand::Large.fatal(out, &text);
        } else {
            cuesta_protocol::pktline::encode_error(out, &text);
        }
    }

    fn write_text(&self, out: &mut Vec<u8>, text: &str) {
        if self.form.capabilities.side_band {
            SideBand::Large.text(out, text);
        }
    }

    fn stream(self, work: JoinHandle<Option<Report>>) -> Content {
        let first = Piece::from(Bytes::from_static(KEEP_ALIVE));
        let rest = futures::stream::unfold(Some((self, work)), |state| async {
            let (mut pending, mut work) = state?;
            let (piece, more) = pending.next(&mut work).await;
            Some((Ok::<_, Cut>(piece), more.then_some((pending, work))))
        });
        Content::Stream(futures::stream::iter([Ok(first)]).chain(rest).boxed())
    }

    /// The next bytes to send, and whether others follow.
    async fn next(&mut self, work: &mut JoinHandle<Option<Report>>) -> (Piece, bool) {
        // What streams has broken a silence already.
        let silence = self.form.keep_alive.unwrap_or(Duration::MAX);
        tokio::select! {
            biased;
            Some(text) = self.form.progress.recv() => {
                let mut out = Vec::new();
                self.write_text(&mut out, &text);
                (Bytes::from(out).into(), true)
            }
            report = &mut *work => (Bytes::from(self.finish(report.ok().flatten())).into(), false),
            () = tokio::time::sleep(silence) => (Bytes::from_static(KEEP_ALIVE).into(), true),
        }
    }
}

#[cfg(test)]
#[path = "push_answer_tests.rs"]
mod tests;
