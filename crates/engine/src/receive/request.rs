//! What a push asks for and what became of it. Plain data; nothing of the wire.

use cuesta_format::{Cause, PushNote};
use cuesta_git::ObjectId;

/// One command of a push (gitprotocol-pack, "Reference Update Request").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefCommand {
    /// The ref as the client wrote it; it is checked here.
    pub name: Vec<u8>,
    /// The value that the client believes it has; the null id if it must not exist.
    pub old: ObjectId,
    /// The value that it shall have; the null id deletes it.
    pub new: ObjectId,
}

/// A push, beside its packs.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// What is to be done to refs.
    pub commands: Vec<RefCommand>,
    /// All commands or none.
    pub atomic: bool,
    /// Who pushes; empty if nobody was authenticated.
    pub actor: String,
    /// [`Cause::Push`] or [`Cause::Import`].
    pub cause: Cause,
    /// The client's shallow boundary.
    pub shallow: Vec<ObjectId>,
    /// Keep what no ref reaches in a layer of its own, which vouches for nothing. For imports.
    pub keep_unreachable: bool,
    /// What the client said beside its commands, to be kept in the log.
    pub note: Option<Box<PushNote>>,
    /// Settings and hidden refs do not bind an importer: only what keeps the repository sound does.
    pub trusted: bool,
}

impl ReceiveRequest {
    /// A push of some commands by a client.
    pub fn new(commands: Vec<RefCommand>, actor: impl Into<String>) -> Self {
        Self {
            commands,
            atomic: false,
            actor: actor.into(),
            cause: Cause::Push,
            shallow: Vec::new(),
            keep_unreachable: false,
            note: None,
            trusted: false,
        }
    }
}

/// What became of a push; the texts are what `report-status` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveReport {
    /// Whether the packs were taken in.
    pub unpack: Result<(), String>,
    /// For each command, in order, whether it was done or why not.
    pub refs: Vec<Result<(), String>>,
    /// For the user's eyes: what was done although it is odd. Findings of fsck, at most
    /// [`cuesta_git::fsck::WARNINGS_MAX`], then what is said of refs.
    pub warnings: Vec<String>,
    /// The entry of the log that holds the push, if it changed anything; see [`cuesta_ledger::Committed`] for how exact it is.
    pub number: Option<u64>,
}

/// How far a push is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveProgress {
    /// Bytes are coming in.
    Unpacking {
        /// Objects so far.
        objects: u32,
        /// Objects that the pack says it has, and those before it.
        total: u32,
    },
    /// All bytes are in; deltas are being resolved and objects checked.
    Checking {
        /// Objects in all.
        objects: u32,
    },
    /// The layer is being stored.
    Storing,
}
