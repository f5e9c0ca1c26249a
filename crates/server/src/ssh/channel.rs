//! One session channel: environment, then one command, its bytes in and out, and its end (RFC 4254, section 6).

use super::command::Command;
use super::output::{Exit, Output};
use crate::access::Identity;
use crate::node::Node;
use crate::service::input::ByteStream;
use bytes::Bytes;
use cuesta_protocol::ssh::is_accepted_variable;
use russh::server::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};

/// How long a channel may be open without a command.
const COMMAND_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a client may go on sending after its command has ended, so that it gets to read how.
const LINGER_MAX: Duration = Duration::from_secs(15);
/// Chunks of up to a packet's size that wait for a service.
const CHUNKS_HELD_MAX: usize = 4;

/// What a channel needs to run a command.
pub(super) struct Setting {
    pub(super) node: Arc<Node>,
    /// Who the client is.
    pub(super) identity: Identity,
    pub(super) pushes: Arc<Semaphore>,
}

/// What a client wants of a channel.
enum Wish {
    /// To run this.
    Command { line: Vec<u8>, protocol: Vec<u8> },
    /// A shell.
    Shell,
}

/// What a client is still going to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Sending,
    /// It has sent all it had.
    Done,
}

/// Serves a channel to its end.
pub(super) async fn serve(setting: Setting, channel: Channel<Msg>) {
    let (mut incoming, outgoing) = channel.split();
    let mut output = Output::new(outgoing);
    let wish = tokio::time::timeout(COMMAND_WAIT_MAX, wish(&mut incoming)).await;
    let Ok(Some(wish)) = wish else {
        return output.close().await;
    };
    let (chunks, stream) = mpsc::channel(CHUNKS_HELD_MAX);
    let (peer, watched) = watch::channel(Peer::Sending);
    tokio::select! {
        // A client that closes the channel wants no answer any more.
        () = pump(incoming, chunks, peer) => {}
        () = respond(setting, wish, ByteStream::new(stream), watched, &mut output) => {}
    }
    output.close().await;
}

/// Reads up to the first request to run something; `None` if the client closes the channel instead. Whether each request is
/// granted has been said when it came ([`super::connection`]), by the same rules.
async fn wish(incoming: &mut ChannelReadHalf) -> Option<Wish> {
    let mut protocol = Vec::new();
    loop {
        match incoming.wait().await? {
            ChannelMsg::SetEnv {
                variable_name,
                variable_value,
                ..
            } if is_accepted_variable(variable_name.as_bytes(), variable_value.as_bytes()) => {
                protocol = variable_value.into_bytes();
            }
            ChannelMsg::Exec { command, .. } => {
                return Some(Wish::Command {
                    line: command,
                    protocol,
                });
            }
            ChannelMsg::RequestShell { .. } => return Some(Wish::Shell),
            ChannelMsg::Close => return None,
            _ => {}
        }
    }
}

/// Passes on what the client sends, until it closes the channel. What nobody wants is forgotten.
async fn pump(mut incoming: ChannelReadHalf, chunks: mpsc::Sender<Bytes>, peer: watch::Sender<Peer>) {
    let mut chunks = Some(chunks);
    while let Some(message) = incoming.wait().await {
        match message {
            ChannelMsg::Data { data } => {
                if let Some(wanted) = &chunks
                    && wanted.send(data).await.is_err()
                {
                    chunks = None;
                }
            }
            ChannelMsg::Eof => {
                chunks = None;
                peer.send_replace(Peer::Done);
            }
            ChannelMsg::Close => return,
            _ => {}
        }
    }
}

/// Runs the command and says how it ended.
async fn respond(
    setting: Setting,
    wish: Wish,
    stream: ByteStream,
    mut peer: watch::Receiver<Peer>,
    output: &mut Output,
) {
    let (line, protocol) = match wish {
        Wish::Shell => {
            let _ = output.finish(greeting(&setting.identity)).await;
            return;
        }
        Wish::Command { line, protocol } => (line, protocol),
    };
    let command = Command {
        node: setting.node,
        identity: setting.identity,
        protocol,
        pushes: setting.pushes,
    };
    let Ok(exit) = command.run(&line, stream, output).await else {
        return;
    };
    let lingers = exit.lingers && *peer.borrow() == Peer::Sending;
    if output.finish(exit).await.is_ok() && lingers {
        let done = peer.wait_for(|peer| *peer == Peer::Done);
        // Whatever comes of it: after this time the channel is closed.
        let _ = tokio::time::timeout(LINGER_MAX, done).await;
    }
}

/// What hosts say to a user who tries their key.
fn greeting(identity: &Identity) -> Exit {
    let hello = match identity {
        Identity::User { name, .. } => format!("Hi {name}!"),
        _ => "Hi!".to_owned(),
    };
    Exit {
        code: 1,
        lingers: false,
        message: format!("{hello} You've successfully authenticated, but Cuesta does not provide shell access.\n"),
    }
}
