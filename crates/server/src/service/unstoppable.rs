//! Work that ends even if nobody waits for it any more.

use futures::future::{BoxFuture, FutureExt};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// Goes on with whoever waits for it, in his own task: no other need be woken. When it is dropped before its end, it goes on in
/// a task of its own. A panic ends it with `None`.
pub(super) struct Unstoppable<T: Send + 'static>(Option<BoxFuture<'static, T>>);

impl<T: Send + 'static> Unstoppable<T> {
    /// Nothing happens before somebody waits, or drops it.
    pub(super) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(work.boxed()))
    }
}

impl<T: Send + 'static> Future for Unstoppable<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(work) = &mut self.0 else {
            return Poll::Ready(None);
        };
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(done)) => {
                self.0 = None;
                Poll::Ready(Some(done))
            }
            Err(_) => {
                self.0 = None;
                Poll::Ready(None)
            }
        }
    }
}

impl<T: Send + 'static> Drop for Unstoppable<T> {
    fn drop(&mut self) {
        // Without a runtime nothing goes on anywhere.
        if let Some(work) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn it_ends_with_who_waits_and_without() {
        assert_eq!(Unstoppable::new(async { 7 }).await, Some(7));
        let (go_on, stop) = oneshot::channel::<()>();
        let (done, ended) = oneshot::channel();
        let mut work = Unstoppable::new(async {
            stop.await.unwrap();
            done.send(7).unwrap();
        });
        assert!((&mut work).now_or_never().is_none(), "it has begun");
        drop(work);
        go_on.send(()).unwrap();
        assert_eq!(ended.await, Ok(7));
    }

    #[tokio::test]
    async fn a_panic_is_an_end() {
        let mut work = Unstoppable::new(async { panic!("as expected") });
        assert_eq!((&mut work).await, None::<()>);
        assert_eq!(work.await, None, "once more");
    }
}
