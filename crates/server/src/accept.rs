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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn connections_beyond_the_places_wait_for_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let places = Arc::new(Semaphore::new(2));
        let mut clients = Vec::new();
        let mut taken = Vec::new();
        for _ in 0..2 {
            clients.push(TcpStream::connect(address).await.unwrap());
            taken.push(accept(&listener, &places).await);
        }
        clients.push(TcpStream::connect(address).await.unwrap());
        let mut waiting = Box::pin(accept(&listener, &places));
        for _ in 0..100 {
            assert!(waiting.as_mut().now_or_never().is_none(), "accepted without a place");
            tokio::task::yield_now().await;
        }
        taken.pop();
        let (place, ..) = waiting.await;
        assert!(place.is_some());
    }
}
