//! One connection: who the client is, how many channels it may have, and a prompt yes or no to each request.

use super::channel::{self, Setting};
use crate::access::Identity;
use crate::login::Login;
use crate::node::Node;
use cuesta_protocol::ssh::is_accepted_variable;
use russh::keys::{Algorithm, PublicKey};
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, Pty};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot, watch};

/// Channels at once: git uses one, shared connections some more.
pub(super) const CHANNELS_MAX: usize = 10;
/// Channels in all: the SSH library keeps a little of each until the connection ends.
const CHANNELS_EVER_MAX: u64 = 10_000;

/// A connection as the SSH library sees it.
pub(super) struct Connection {
    node: Arc<Node>,
    peer: SocketAddr,
    /// Who the client has shown to be.
    identity: Option<Identity>,
    /// Its place among those that are not authenticated.
    login: Option<Login>,
    /// Told once it is authenticated.
    authenticated: Option<oneshot::Sender<()>>,
    /// How many channels are open.
    open: watch::Sender<usize>,
    opened: u64,
    started: HashSet<ChannelId>,
    pushes: Arc<Semaphore>,
}

impl Connection {
    pub(super) fn new(
        node: Arc<Node>,
        peer: SocketAddr,
        login: Login,
        authenticated: oneshot::Sender<()>,
        open: watch::Sender<usize>,
    ) -> Self {
        Self {
            node,
            peer,
            identity: None,
            login: Some(login),
            authenticated: Some(authenticated),
            open,
            opened: 0,
            started: HashSet::new(),
            pushes: Arc::new(Semaphore::new(1)),
        }
    }

    /// Whose the key is, by the accounts at this moment.
    async fn identify(&self, key: &PublicKey) -> Option<Identity> {
        let blob = key.to_bytes().ok()?;
        match self.node.gate.authenticate_key(&blob).await {
            Ok(identity) => identity,
            Err(error) => {
                tracing::warn!(error = ?error.to_string(), "cannot look up an ssh key");
                None
            }
        }
    }

    fn refuse_key(&self, why: &str) -> Auth {
        self.node.metrics.ssh_key_refused();
        tracing::debug!(peer = %self.peer, why, "ssh key refused");
        Auth::reject()
    }

    /// Answers a request to run something: a channel runs one command.
    fn start(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        if self.started.insert(channel) {
            session.channel_success(channel)
        } else {
            session.channel_failure(channel)
        }
    }
}

/// Whether a connection with so many open channels, that had so many in all, may have another one.
fn may_open(open: usize, opened: u64) -> bool {
    open < CHANNELS_MAX && opened < CHANNELS_EVER_MAX
}

/// An open channel, counted until it is dropped.
struct Counted(watch::Sender<usize>);

impl Counted {
    fn new(open: &watch::Sender<usize>) -> Self {
        open.send_modify(|open| *open += 1);
        Self(open.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open = open.saturating_sub(1));
    }
}

impl Handler for Connection {
    type Error = russh::Error;

    async fn auth_none(&mut self, _user: &str) -> Result<Auth, Self::Error> {
        if self.node.gate.checks() {
            return Ok(Auth::reject());
        }
        self.identity = Some(Identity::Unchecked);
        Ok(Auth::Accept)
    }

    async fn auth_publickey_offered(&mut self, _user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, Self::Error> {
        if *offer.algorithm == (Algorithm::Rsa { hash: None }) {
            return Ok(self.refuse_key("signatures over SHA-1 are not accepted"));
        }
        Ok(match self.identify(offer.public_key).await {
            Some(_) => Auth::Accept,
            None => self.refuse_key("nobody has it"),
        })
    }

    /// The client has signed with the key. Which user name it gave does not matter: the key says who it is.
    async fn auth_publickey(&mut self, _user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        if *key.algorithm == (Algorithm::Rsa { hash: None }) {
            return Ok(self.refuse_key("signatures over SHA-1 are not accepted"));
        }
        self.identity = self.identify(key.public_key).await;
        Ok(match self.identity {
            Some(_) => Auth::Accept,
            None => self.refuse_key("nobody has it"),
        })
    }

    async fn auth_succeeded(&mut self, _session: &mut Session) -> Result<(), Self::Error> {
        self.login = None;
        self.node.metrics.ssh_logged_in();
        if let Some(authenticated) = self.authenticated.take() {
            // If nobody waits for it, the connection is ending.
            let _ = authenticated.send(());
        }
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        let Some(identity) = self.identity.clone() else {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        if !may_open(*self.open.borrow(), self.opened) {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        self.opened += 1;
        let counted = Counted::new(&self.open);
        let setting = Setting {
            node: self.node.clone(),
            identity,
            pushes: self.pushes.clone(),
        };
        reply.accept().await;
        tokio::spawn(async move {
            let _counted = counted;
            channel::serve(setting, channel).await;
        });
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), Self::Error> {
        self.started.remove(&channel);
        Ok(())
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        if is_accepted_variable(name.as_bytes(), value.as_bytes()) {
            session.channel_success(channel)
        } else {
            session.channel_failure(channel)
        }
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _line: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.start(channel, session)
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        self.start(channel, session)
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _columns: u32,
        _rows: u32,
        _width: u32,
        _height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _single: bool,
        _protocol: &str,
        _cookie: &str,
        _screen: u32,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        _columns: u32,
        _rows: u32,
        _width: u32,
        _height: u32,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_at_once_and_ever() {
        let table = [
            (0, 0, true),
            (CHANNELS_MAX - 1, 100, true),
            (CHANNELS_MAX, 100, false),
            (0, CHANNELS_EVER_MAX - 1, true),
            (0, CHANNELS_EVER_MAX, false),
            (0, CHANNELS_EVER_MAX + 1, false),
        ];
        for (open, opened, may) in table {
            assert_eq!(may_open(open, opened), may, "{open} of {opened}");
        }
    }
}
