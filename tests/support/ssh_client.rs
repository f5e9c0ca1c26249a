//! An SSH client of our own: drives stock git where there is no OpenSSH, and does what OpenSSH would not. Included by the
//! tests of several crates.
// What fails here fails the test.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, clippy::expect_used)]

use russh::client::{self, Handle, Msg};
use russh::keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{Channel, ChannelMsg};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// Set in the environment of a process that is to be the client that git runs.
pub const AS_CLIENT: &str = "CUESTA_TEST_AS_SSH";
/// The path of the private key that it uses; without one it uses none.
pub const KEY: &str = "CUESTA_TEST_SSH_KEY";
/// If set, the client leaves its side of the channel open when git has sent everything, as other implementations do.
pub const KEEP_OPEN: &str = "CUESTA_TEST_SSH_KEEP_OPEN";
/// If set, what the server says beside the protocol, on standard error, is not shown.
pub const MUTE: &str = "CUESTA_TEST_SSH_MUTE";

/// Takes any server key, and remembers it.
#[derive(Default)]
pub struct Trusting {
    seen: Arc<Mutex<Option<PublicKey>>>,
}

impl client::Handler for Trusting {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        if let PublicKeyOrCertificate::PublicKey { key, .. } = key {
            *self.seen.lock().unwrap() = Some(key.clone());
        }
        Ok(true)
    }
}

/// Packets of one channel that the client keeps unread.
///
/// At the next one it reads nothing more from the connection, other channels' packets neither: a
/// case that leaves a channel unread must stay below, or it waits for ever for its own answers.
const PACKETS_UNREAD_MAX: usize = 4096;

/// A connection, and the key that the server showed.
pub struct Connection {
    pub handle: Handle<Trusting>,
    pub server_key: PublicKey,
}

/// What a command did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub out: Vec<u8>,
    pub err: String,
    pub code: Option<u32>,
}

impl Connection {
    /// Connects; does not authenticate.
    pub async fn open(address: SocketAddr) -> Self {
        let handler = Trusting::default();
        let seen = handler.seen.clone();
        let config = client::Config {
            channel_buffer_size: PACKETS_UNREAD_MAX,
            ..client::Config::default()
        };
        let handle = client::connect(Arc::new(config), address, handler).await.unwrap();
        let server_key = seen.lock().unwrap().clone().unwrap();
        Self { handle, server_key }
    }

    /// Connects without a key.
    pub async fn anonymous(address: SocketAddr) -> Self {
        let mut connection = Self::open(address).await;
        assert!(connection.handle.authenticate_none("git").await.unwrap().success());
        connection
    }

    /// Tries a key; says whether it was taken.
    pub async fn try_key(&mut self, key: &PrivateKey) -> bool {
        let key = PrivateKeyWithHashAlg::new(Arc::new(key.clone()), Some(HashAlg::Sha512));
        self.handle.authenticate_publickey("git", key).await.unwrap().success()
    }

    /// A channel that runs `command` with that `GIT_PROTOCOL`.
    pub async fn start(&self, command: &str, protocol: Option<&str>) -> Channel<Msg> {
        let channel = self.handle.channel_open_session().await.unwrap();
        if let Some(protocol) = protocol {
            channel.set_env(false, "GIT_PROTOCOL", protocol).await.unwrap();
        }
        channel.exec(true, command).await.unwrap();
        channel
    }

    /// Runs a command with that input, which ends.
    pub async fn run(&self, command: &str, protocol: Option<&str>, input: &[u8]) -> Ended {
        let channel = self.start(command, protocol).await;
        channel.data(input).await.unwrap();
        channel.eof().await.unwrap();
        ended(channel).await
    }
}

/// Waits for the end of a channel.
pub async fn ended(mut channel: Channel<Msg>) -> Ended {
    let mut ended = Ended::default();
    let mut err = Vec::new();
    while let Some(message) = channel.wait().await {
        match message {
            ChannelMsg::Data { data } => ended.out.extend_from_slice(&data),
            ChannelMsg::ExtendedData { data, .. } => err.extend_from_slice(&data),
            ChannelMsg::ExitStatus { exit_status } => {
                ended.code = Some(exit_status);
                // The server waits a while for those that still send. It may have closed the channel already.
                let _ = channel.eof().await;
            }
            ChannelMsg::Close => break,
            _ => {}
        }
    }
    ended.err = String::from_utf8(err).unwrap();
    ended
}

/// What git asks of `ssh`, `[-o OPTION] [-p PORT] HOST COMMAND`: where to, and the command.
pub fn destination(arguments: &[String]) -> (String, String) {
    let mut port = "22".to_owned();
    let mut words = Vec::new();
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-p" => port = rest.next().unwrap().clone(),
            "-o" => drop(rest.next()),
            flag if flag.starts_with('-') => {}
            _ => words.push(word.clone()),
        }
    }
    let (host, command) = (words.first().unwrap(), words.get(1..).unwrap().join(" "));
    let host = host.rsplit_once('@').map_or(host.as_str(), |(_, host)| host);
    (format!("{host}:{port}"), command)
}

/// Is the client that git runs. Gives back the exit status.
pub fn be_the_client(arguments: &[String]) -> i32 {
    let (address, command) = destination(arguments);
    let address = address.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(relay(address, &command))
}

async fn relay(address: SocketAddr, command: &str) -> i32 {
    let mut connection = Connection::open(address).await;
    let taken = match std::env::var(KEY) {
        Ok(path) => {
            let key = russh::keys::load_secret_key(path, None).unwrap();
            connection.try_key(&key).await
        }
        Err(_) => connection.handle.authenticate_none("git").await.unwrap().success(),
    };
    if !taken {
        eprintln!("git@{address}: Permission denied (publickey).");
        return 255;
    }
    let protocol = std::env::var("GIT_PROTOCOL").ok();
    let (mut incoming, outgoing) = connection.start(command, protocol.as_deref()).await.split();
    let (chunks, mut read) = tokio::sync::mpsc::channel(4);
    std::thread::spawn(move || {
        let (mut input, mut buffer) = (std::io::stdin().lock(), vec![0; 32 << 10]);
        while let Ok(len @ 1..) = input.read(&mut buffer) {
            if chunks.blocking_send(buffer[..len].to_vec()).is_err() {
                return;
            }
        }
    });
    let sending = tokio::spawn(async move {
        while let Some(chunk) = read.recv().await {
            if outgoing.data(&chunk[..]).await.is_err() {
                return;
            }
        }
        if std::env::var_os(KEEP_OPEN).is_some() {
            std::future::pending::<()>().await;
        }
        let _ = outgoing.eof().await;
    });
    let mut code = 255;
    while let Some(message) = incoming.wait().await {
        match message {
            ChannelMsg::Data { data } => {
                let mut out = std::io::stdout().lock();
                if out.write_all(&data).and_then(|()| out.flush()).is_err() {
                    break;
                }
            }
            ChannelMsg::ExtendedData { .. } if std::env::var_os(MUTE).is_some() => {}
            ChannelMsg::ExtendedData { data, .. } => std::io::stderr().lock().write_all(&data).unwrap(),
            ChannelMsg::ExitStatus { exit_status } => code = i32::try_from(exit_status).unwrap(),
            // Such clients close the channel when they have read all there is.
            ChannelMsg::Eof if std::env::var_os(KEEP_OPEN).is_some() => break,
            ChannelMsg::Close => break,
            _ => {}
        }
    }
    sending.abort();
    code
}
