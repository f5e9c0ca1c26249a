//! Worker threads that take turns with the reactor: a simulation's choice.
//!
//! Work runs on a thread of its own, but only while the task that started it is being polled, so nothing ever runs at the
//! same time and the same inputs give the same order of events. Unlike work run inline, it may wait for what needs the
//! reactor: timers, tasks, or work that others began.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use tokio::runtime::Handle;

thread_local! {
    /// The worker's end, on a thread that takes turns.
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// What a worker thread has in hand.
struct Turn {
    /// Whom to wake when it can go on.
    waker: Waker,
    resume: Receiver<Waker>,
    paused: Sender<()>,
}

impl Turn {
    /// Gives the turn away and waits for the next. When the runtime is gone there will be none: the thread unwinds.
    fn pass(&mut self) {
        let next = self.paused.send(()).ok().and_then(|()| self.resume.recv().ok());
        match next {
            Some(waker) => self.waker = waker,
            None => std::panic::resume_unwind(Box::new("the runtime is gone")),
        }
    }
}

/// Runs `work` on a thread that takes turns with `handle`'s runtime. It goes on when the future is dropped.
pub(crate) async fn run<T: Send + 'static>(handle: &Handle, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (resume, resumed) = channel::<Waker>();
    let (paused, pauses) = channel();
    let runtime = handle.clone();
    let thread = std::thread::spawn(move || {
        let _guard = runtime.enter();
        let Ok(waker) = resumed.recv() else {
            std::panic::resume_unwind(Box::new("the runtime is gone"))
        };
        let turn = Turn {
            waker,
            resume: resumed,
            paused,
        };
        TURN.with(|slot| *slot.borrow_mut() = Some(turn));
        work()
    });
    let turns = Turns {
        resume,
        pauses,
        thread: Some(thread),
    };
    match handle.spawn(turns).await {
        Ok(Ok(value)) => value,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is going away, and this task with it.
        Err(_) => std::future::pending().await,
    }
}

/// Waits for `future` on a worker thread, giving the turn away while it is not ready.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        let Some(waker) = TURN.with(|slot| slot.borrow().as_ref().map(|turn| turn.waker.clone())) else {
            return futures::executor::block_on(future);
        };
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        TURN.with(|slot| slot.borrow_mut().as_mut().map(Turn::pass));
    }
}

/// The reactor's end: each poll is one turn of the thread.
struct Turns<T> {
    resume: Sender<Waker>,
    pauses: Receiver<()>,
    thread: Option<JoinHandle<T>>,
}

impl<T> Future for Turns<T> {
    type Output = std::thread::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let alive = self.resume.send(context.waker().clone()).is_ok() && self.pauses.recv().is_ok();
        if alive {
            return Poll::Pending;
        }
        match self.thread.take() {
            Some(thread) => Poll::Ready(thread.join()),
            None => Poll::Pending,
        }
    }
}
