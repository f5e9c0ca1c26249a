//! One command of a client: its line is read, it is run, and its end becomes an exit status and a text.

use super::output::{Exit, Output};
use crate::access::{Access, Identity};
use crate::http::front::Transport;
use crate::node::Node;
use crate::service::conversation::{self, Errand, Gone, Stop, repository_of};
use crate::service::input::ByteStream;
use cuesta_protocol::ssh::CommandLine;
use cuesta_protocol::{Program, Version};
use http::StatusCode;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// One command of a client, to be run.
pub(super) struct Command {
    /// The node that serves.
    pub(super) node: Arc<Node>,
    /// Who the client is.
    pub(super) identity: Identity,
    /// The value of `GIT_PROTOCOL`.
    pub(super) protocol: Vec<u8>,
    /// Lets one push at a time of a connection begin: one that waits for memory would keep the bytes of others from coming.
    pub(super) pushes: Arc<Semaphore>,
}

impl Command {
    /// Runs the command that `line` is.
    pub(super) async fn run(self, line: &[u8], stream: ByteStream, output: &mut Output) -> Result<Exit, Gone> {
        let CommandLine { program, path } = match CommandLine::parse(line) {
            Ok(command) => command,
            Err(error) => return Ok(Exit::fatal(&error.to_string())),
        };
        let Some(name) = repository_of(&path) else {
            return Ok(Exit::no_repository());
        };
        let errand = Errand {
            node: self.node,
            identity: self.identity,
            transport: Transport::Ssh,
            name,
            program,
            version: Version::requested(&self.protocol),
        };
        let _turn = match program {
            Program::ReceivePack => self.pushes.acquire_owned().await.ok(),
            Program::UploadPack | Program::UploadArchive => None,
        };
        match conversation::run(errand, stream, output).await {
            Ok(()) => Ok(Exit::SUCCESS),
            Err(stop) => exit(stop),
        }
    }
}

/// How a command ends that stops early. What one may not read is not there.
fn exit(stop: Stop) -> Result<Exit, Gone> {
    Ok(match stop {
        Stop::NotAdmitted(Access::Forbidden(lack)) => Exit::refused(&lack.to_string()),
        Stop::NotAdmitted(Access::Unauthenticated) => Exit::refused("the key is not valid any more"),
        Stop::NotAdmitted(Access::Hidden | Access::Allowed) | Stop::Refused(StatusCode::NOT_FOUND, _) => {
            Exit::no_repository()
        }
        Stop::Refused(_, text) | Stop::Cut(text) => Exit::fatal(&text),
        Stop::HungUp(error) => Exit::fatal(&error.to_string()),
        Stop::Told => Exit::told(),
        Stop::Gone => return Err(Gone),
    })
}
