//! SSH connections: accepted up to a limit, authenticated in time, ended in good order.

use super::connection::Connection;
use crate::accept::accept;
use crate::http::stall_guard::StallGuard;
use crate::leash::{Leash, Leashed};
use crate::login::Logins;
use crate::node::Node;
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKey};
use russh::server::{Config, Handle, run_stream};
use russh::{Disconnect, MethodKind, MethodSet, Preferred, SshId, kex};
use std::borrow::Cow;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;

/// Connections that may be on their way to be authenticated; more make the oldest go.
const LOGINS_MAX: usize = 256;
/// Time to be authenticated in.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(30);
/// Keys that a client may try: agents often hold several.
const LOGIN_ATTEMPTS_MAX: usize = 8;
/// What each refused key costs a client in time.
const REFUSAL_TIME: Duration = Duration::from_millis(100);
/// Silence after which a client is asked whether it is still there, and how often it may fail to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVES_MAX: usize = 3;
/// How long a client may take nothing of what is sent.
const STALL_MAX: Duration = Duration::from_secs(120);
/// Bytes that a client may send on a channel before they are taken.
const WINDOW_BYTES: u32 = 2 << 20;
const PACKET_BYTES_MAX: u32 = 32 << 10;
/// Packets of a channel that wait for it; then its connection waits.
const PACKETS_HELD_MAX: usize = 16;
/// Time for a farewell to reach a client.
const FAREWELL_TIME: Duration = Duration::from_secs(2);

/// Serves until `stop`, then lets commands that run end for as long as the settings allow. Says whether all did.
pub async fn serve(
    node: Arc<Node>,
    listener: TcpListener,
    host_key: PrivateKey,
    stop: impl Future<Output = ()>,
) -> bool {
    let settings = &node.settings;
    let slots = Arc::new(Semaphore::new(settings.connections_max));
    let logins = Logins::new(LOGINS_MAX.min(settings.connections_max.div_ceil(2)));
    let config = Arc::new(config(host_key));
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let (slot, stream, peer) = tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &slots) => accepted,
        };
        node.metrics.ssh_connection_opened();
        let (node, config, logins, stopped) = (node.clone(), config.clone(), logins.clone(), stopped.clone());
        connections.spawn(async move {
            let _slot = slot;
            serve_connection(node, config, &logins, (stream, peer), stopped).await;
        });
    }
    drop(listener);
    stopping.send_replace(true);
    let limit = Duration::from_secs(node.settings.drain_seconds_max);
    let all = async { while connections.join_next().await.is_some() {} };
    tokio::time::timeout(limit, all).await.is_ok()
}

fn config(host_key: PrivateKey) -> Config {
    Config {
        server_id: SshId::Standard(Cow::Borrowed(concat!("SSH-2.0-Cuesta_", env!("CARGO_PKG_VERSION")))),
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        auth_rejection_time: REFUSAL_TIME,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![host_key],
        window_size: WINDOW_BYTES,
        maximum_packet_size: PACKET_BYTES_MAX,
        channel_buffer_size: PACKETS_HELD_MAX,
        preferred: preferred(),
        max_auth_attempts: LOGIN_ATTEMPTS_MAX,
        inactivity_timeout: Some(STALL_MAX),
        keepalive_interval: Some(KEEP_ALIVE),
        keepalive_max: KEEP_ALIVES_MAX,
        nodelay: true,
        ..Config::default()
    }
}

/// The library's choice of algorithms, without signatures over SHA-1 and without the costliest key exchanges, which anybody
/// could make us compute. Compression is not built in: it would be spent on packs, and it has been a way in.
fn preferred() -> Preferred {
    const KEX: &[kex::Name] = &[
        kex::MLKEM768X25519_SHA256,
        kex::CURVE25519,
        kex::CURVE25519_PRE_RFC_8731,
        kex::DH_G14_SHA256,
        kex::EXTENSION_SUPPORT_AS_CLIENT,
        kex::EXTENSION_SUPPORT_AS_SERVER,
        kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
        kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
    ];
    const KEYS: &[Algorithm] = &[
        Algorithm::Ed25519,
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP256,
        },
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP384,
        },
        Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP521,
        },
        Algorithm::SkEd25519,
        Algorithm::SkEcdsaSha2NistP256,
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha512),
        },
        Algorithm::Rsa {
            hash: Some(HashAlg::Sha256),
        },
    ];
    Preferred {
        kex: Cow::Borrowed(KEX),
        key: Cow::Borrowed(KEYS),
        ..Preferred::DEFAULT
    }
}

async fn serve_connection(
    node: Arc<Node>,
    config: Arc<Config>,
    logins: &Arc<Logins>,
    (stream, peer): (TcpStream, SocketAddr),
    mut stopped: watch::Receiver<bool>,
) {
    let leash = Arc::new(Leash::default());
    let stream = Leashed::new(StallGuard::new(stream, STALL_MAX), leash.clone());
    let (open, mut channels) = watch::channel(0);
    let (authenticated, logged_in) = oneshot::channel();
    let connection = Connection::new(node, peer, logins.enter(leash.clone()), authenticated, open);
    let opening = tokio::time::timeout(LOGIN_TIME_MAX, run_stream(config, stream, connection));
    let mut session = match opening.await {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return tracing::debug!(error = ?error.to_string(), "ssh connection failed"),
        Err(_) => return,
    };
    let handle = session.handle();
    tokio::select! {
        ended = &mut session => return note(ended),
        late = login_is_late(logged_in) => if late {
            leash.cut();
            return;
        },
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    tokio::select! {
        ended = &mut session => return note(ended),
        () = all_done(&mut stopped, &mut channels) => {}
    }
    farewell(&handle, "the server is shutting down").await;
    // What the farewell leaves behind.
    let _ = tokio::time::timeout(FAREWELL_TIME, session).await;
    leash.cut();
}

fn note(ended: Result<(), russh::Error>) {
    if let Err(error) = ended {
        tracing::debug!(error = ?error.to_string(), "ssh connection ended");
    }
}

/// Whether a client took too long to be authenticated. Never ends for one that goes away before that.
async fn login_is_late(logged_in: oneshot::Receiver<()>) -> bool {
    match tokio::time::timeout(LOGIN_TIME_MAX, logged_in).await {
        Ok(Ok(())) => false,
        Ok(Err(_)) => std::future::pending().await,
        Err(_) => true,
    }
}

/// Waits until the node stops and no channel is left.
async fn all_done(stopped: &mut watch::Receiver<bool>, channels: &mut watch::Receiver<usize>) {
    // An error is a sender that is gone, and with it what is waited for.
    let _ = stopped.wait_for(|stopped| *stopped).await;
    let _ = channels.wait_for(|open| *open == 0).await;
}

async fn farewell(handle: &Handle, why: &str) {
    let said = handle.disconnect(Disconnect::ByApplication, why.to_owned(), String::new());
    let _ = tokio::time::timeout(FAREWELL_TIME, said).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_login_has_its_time() {
        for (time, late) in [(LOGIN_TIME_MAX - MOMENT, false), (LOGIN_TIME_MAX + MOMENT, true)] {
            let (authenticated, logged_in) = oneshot::channel();
            let login = async {
                tokio::time::sleep(time).await;
                // Nobody may be there to hear it.
                let _ = authenticated.send(());
            };
            let (is_late, ()) = tokio::join!(login_is_late(logged_in), login);
            assert_eq!(is_late, late, "{time:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_is_not_late() {
        let (authenticated, logged_in) = oneshot::channel();
        drop(authenticated);
        let waited = tokio::time::timeout(2 * LOGIN_TIME_MAX, login_is_late(logged_in)).await;
        assert!(waited.is_err());
    }
}
