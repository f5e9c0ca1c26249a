//! A push in the engine's terms.

use super::admission::Share;
use super::input::{Came, Input};
use crate::http::request_body::BodyError;
use bytes::Bytes;
use cuesta_engine::receive::{OBJECT_BYTES, ReceiveReport, ReceiveRequest, Receiver, RefCommand};
use cuesta_engine::{EngineError, PushTarget};
use cuesta_format::PushNote;
use cuesta_protocol::receive::{PushRequest, RefReport, RefStatus, Report};
use tokio::sync::mpsc;

/// Packs with fewer objects are done before anybody could read of their progress.
const PROGRESS_OBJECTS_MIN: u32 = 1000;

/// Where lines for the user go.
pub(super) struct Texts {
    pub(super) lines: mpsc::Sender<String>,
    /// The client wants to hear of no progress; warnings it gets, as from git.
    pub(super) quiet: bool,
}

/// Hands the push to the engine, and its report back. The push's share of the memory grows with its objects.
pub(super) async fn receive(
    target: &PushTarget,
    request: &PushRequest,
    actor: &str,
    note: Option<Box<PushNote>>,
    (pack, share): (&mut Input, Option<&mut Share>),
    texts: &Texts,
) -> Result<Report, EngineError> {
    let mut receiver = target.receiver().await?;
    if request.has_pack() {
        if let Err(error) = feed(&mut receiver, pack, share).await {
            return Ok(unpack_failure(request, &error.to_string()));
        }
        let (objects, _) = receiver.progress();
        if objects >= PROGRESS_OBJECTS_MIN && !texts.quiet {
            texts.tell(format!("Checking {objects} objects\n"));
        }
    }
    let mut asked = ReceiveRequest::new(request.commands.iter().map(command).collect(), actor);
    asked.atomic = request.capabilities.atomic;
    asked.shallow.clone_from(&request.shallow);
    asked.note = note;
    let report = receiver.finish(asked).await?;
    for warning in &report.warnings {
        texts.tell(format!("warning: {warning}\n"));
    }
    Ok(on_the_wire(request, report))
}

/// Feeds the whole pack, or as much of it as the engine wants to see.
async fn feed(receiver: &mut Receiver<'_>, pack: &mut Input, mut share: Option<&mut Share>) -> Result<(), BodyError> {
    while let Some(bytes) = next_chunk(receiver, pack).await? {
        if !receiver.feed(bytes).await {
            break;
        }
        pay_for_objects(receiver, share.as_deref_mut()).await;
    }
    receiver.finish_pack().await;
    pay_for_objects(receiver, share).await;
    Ok(())
}

async fn pay_for_objects(receiver: &Receiver<'_>, share: Option<&mut Share>) {
    if let Some(share) = share {
        let (objects, _) = receiver.progress();
        share.grow(u64::from(objects).saturating_mul(OBJECT_BYTES)).await;
    }
}

/// The next bytes; `None` at the end of the pack. Where a stream stays open behind the pack, only the pack itself tells that
/// it is whole; it is asked when nothing more comes anyway.
async fn next_chunk(receiver: &mut Receiver<'_>, pack: &mut Input) -> Result<Option<Bytes>, BodyError> {
    match pack.chunk_or_lull().await? {
        Came::Chunk(bytes) => Ok(Some(bytes)),
        Came::End => Ok(None),
        Came::Lull if receiver.is_pack_whole().await => Ok(None),
        Came::Lull => pack.chunk().await,
    }
}

fn command(command: &cuesta_protocol::receive::Command) -> RefCommand {
    RefCommand {
        name: command.name.to_vec(),
        old: command.old,
        new: command.new,
    }
}

/// A report that the pack was not taken, and so no command done.
pub(super) fn unpack_failure(request: &PushRequest, why: &str) -> Report {
    let names = request.commands.iter().map(|command| &command.name);
    Report {
        unpack: Err(why.to_owned()),
        ..Report::refusal(names, "unpacker error")
    }
}

fn on_the_wire(request: &PushRequest, report: ReceiveReport) -> Report {
    let outcomes = request.commands.iter().zip(report.refs);
    let refs = outcomes.map(|(command, outcome)| RefReport {
        name: command.name.clone(),
        status: outcome.map_or_else(RefStatus::Ng, |()| RefStatus::Ok(Vec::new())),
    });
    Report {
        refs: refs.collect(),
        unpack: report.unpack,
    }
}

impl Texts {
    /// Sends a line if there is room: it is for the user's eyes, not worth waiting for.
    fn tell(&self, line: String) {
        let _ = self.lines.try_send(line);
    }
}
