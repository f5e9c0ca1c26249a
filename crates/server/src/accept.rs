//! Connections accepted, as many at a time as there are places.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Rest after a failed accept: usually too many open files, which only time can mend.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Waits for a place and then for a connection. The place is free again when its permit is dropped.
pub(crate) async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (Option<OwnedSemaphorePermit>, TcpStream, SocketAddr) {
    // Closed never.
    let place = places.clone().acquire_owned().await.ok();
    loop {
        if let Ok((stream, peer)) = listener.accept().await {
            // Small answers must not wait for the client's acknowledgment of earlier ones.
            let _ = stream.set_nodelay(true);
            return (place, stream, peer);
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}
