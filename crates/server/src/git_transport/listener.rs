//! Connections over `git://`: accepted up to a limit, a few of each address, ended in good order.

use super::addresses::Addresses;
use super::connection;
use crate::accept::accept;
use crate::http::stall_guard::StallGuard;
use crate::leash::{Leash, Leashed};
use crate::login::Logins;
use crate::node::Node;
use cuesta_protocol::pktline;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Connections that may be on their way to a request; more make the oldest go.
const OPENINGS_MAX: usize = 256;
/// How long a client may take nothing of what is sent.
const STALL_MAX: Duration = Duration::from_secs(120);

/// Serves until `stop`, then lets conversations end for as long as the settings allow. Says whether all did.
pub async fn serve(node: Arc<Node>, listener: TcpListener, stop: impl Future<Output = ()>) -> bool {
    let settings = &node.settings;
    let slots = Arc::new(Semaphore::new(settings.connections_max));
    let openings = Logins::new(OPENINGS_MAX.min(settings.connections_max.div_ceil(2)));
    let addresses = Addresses::new(settings.git_connections_per_address_max);
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let (slot, stream, peer) = tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &slots) => accepted,
        };
        node.metrics.git_connection_opened();
        let Some(counted) = addresses.enter(peer.ip()) else {
            node.metrics.git_connection_refused();
            turn_away(&stream);
            continue;
        };
        let leash = Arc::new(Leash::default());
        let login = openings.enter(leash.clone());
        let stream = Leashed::new(StallGuard::new(stream, STALL_MAX), leash);
        let (node, stopped) = (node.clone(), stopped.clone());
        connections.spawn(async move {
            let _places = (slot, counted);
            connection::serve(node, stream, login, stopped).await;
        });
    }
    drop(listener);
    stopping.send_replace(true);
    let limit = Duration::from_secs(node.settings.drain_seconds_max);
    let all = async { while connections.join_next().await.is_some() {} };
    tokio::time::timeout(limit, all).await.is_ok()
}

/// Says why, if that can be said at once: nothing is kept for whoever has too much already.
fn turn_away(stream: &TcpStream) {
    let mut error = Vec::new();
    pktline::encode_error(&mut error, "too many connections from your address, try again later");
    // Nothing has been written yet, so that it fits what the system holds.
    let _ = stream.try_write(&error);
}
