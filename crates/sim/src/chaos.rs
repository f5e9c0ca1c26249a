//! Faults by plan: every call to the bucket or the log store passes through a [`Link`], which asks [`Chaos`] for its fate.

use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// How often calls fail, in calls of a thousand, and how long they take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// They fail and have no effect.
    pub before: u32,
    /// They take effect and their answer is lost.
    pub after: u32,
    /// They fail, and take effect later.
    pub late: u32,
    /// Milliseconds a message travels, at most; 0 takes no turn of the scheduler.
    pub delay_ms_max: u64,
}

/// At which point of a call its node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The call has no effect.
    Before,
    /// The call has taken effect; nobody hears of it.
    After,
    /// The call takes effect when its node is long gone.
    Late,
}

/// What becomes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    Before,
    After,
    Late,
    Crash(Moment),
}

struct Step {
    fate: Fate,
    before_ms: u64,
    after_ms: u64,
}

/// The plan of all faults, and the record of all calls. Clones share it.
#[derive(Clone)]
pub struct Chaos(Arc<Mutex<Inner>>);

struct Inner {
    random: fastrand::Rng,
    rates: Rates,
    /// Other rates for what a node does to learn the fate of an append.
    append_rates: Option<Rates>,
    calls: u64,
    crash: Option<(u64, Moment)>,
    trace: Vec<String>,
    /// Print events as they come.
    loud: bool,
}

impl Chaos {
    /// A plan by seed.
    pub fn new(seed: u64, rates: Rates) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            random: fastrand::Rng::with_seed(seed),
            rates,
            append_rates: None,
            calls: 0,
            crash: None,
            trace: Vec::new(),
            loud: std::env::var_os("CUESTA_SIM_TRACE").is_some(),
        })))
    }

    /// Other rates from now on.
    pub fn set_rates(&self, rates: Rates) {
        self.0.lock().rates = rates;
    }

    /// Other rates from now on for appends and for reads of the log, or no longer.
    pub fn set_append_rates(&self, rates: Option<Rates>) {
        self.0.lock().append_rates = rates;
    }

    /// Ends the node that makes the nth call, counted from 1.
    pub fn crash_at(&self, call: u64, moment: Moment) {
        self.0.lock().crash = Some((call, moment));
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// Notes an event.
    pub fn note(&self, event: impl Into<String>) {
        self.0.lock().note(event.into());
    }

    /// All calls and events so far, in order.
    pub fn trace(&self) -> Vec<String> {
        self.0.lock().trace.clone()
    }

    /// One more call: its number and fate.
    fn decide(&self, node: u32, name: &str) -> Step {
        let mut inner = self.0.lock();
        inner.calls += 1;
        let is_append = name.starts_with("append ") || name.starts_with("read ");
        let append_rates = inner.append_rates.filter(|_| is_append);
        let (number, rates) = (inner.calls, append_rates.unwrap_or(inner.rates));
        let mut delay = || match rates.delay_ms_max {
            0 => 0,
            max => inner.random.u64(0..=max),
        };
        let (before_ms, after_ms) = (delay(), delay());
        let fate = match inner.crash {
            Some((call, moment)) if call == number => Fate::Crash(moment),
            _ => rates.draw(&mut inner.random),
        };
        inner.note(format!("{number} node {node} {name} {fate:?}"));
        Step {
            fate,
            before_ms,
            after_ms,
        }
    }
}

impl Inner {
    fn note(&mut self, event: String) {
        if self.loud {
            println!("{event}");
        }
        self.trace.push(event);
    }
}

impl Rates {
    fn draw(self, random: &mut fastrand::Rng) -> Fate {
        let draw = random.u32(0..1000);
        let bounds = [
            (self.before, Fate::Before),
            (self.after, Fate::After),
            (self.late, Fate::Late),
        ];
        let mut bound = 0;
        for (rate, fate) in bounds {
            bound += rate;
            if draw < bound {
                return fate;
            }
        }
        Fate::Answered
    }
}

impl std::fmt::Debug for Chaos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chaos")
            .field("calls", &self.calls())
            .finish_non_exhaustive()
    }
}

/// What one life of a node reaches the world through. Once cut, its calls fail; what was under way may still take effect.
#[derive(Clone, Debug)]
pub struct Link {
    chaos: Chaos,
    node: u32,
    alive: Arc<AtomicBool>,
    frozen: Arc<AtomicBool>,
    thaw: Arc<Notify>,
    /// Calls neither fail nor count: an observer's.
    quiet: bool,
}

impl Link {
    /// A node's link.
    pub fn new(chaos: Chaos, node: u32) -> Self {
        Self {
            chaos,
            node,
            alive: Arc::new(AtomicBool::new(true)),
            frozen: Arc::default(),
            thaw: Arc::default(),
            quiet: false,
        }
    }

    /// An observer's link, without faults.
    pub fn quiet(chaos: Chaos) -> Self {
        Self {
            quiet: true,
            ..Self::new(chaos, u32::MAX)
        }
    }

    /// Ends the node.
    pub fn cut(&self) {
        self.alive.store(false, Ordering::SeqCst);
        self.freeze(false);
    }

    /// Stops the node in its tracks, as a long pause of its machine does, or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::SeqCst);
        self.thaw.notify_waiters();
    }

    /// Waits while the node is frozen.
    pub(crate) async fn thawed(&self) {
        while let Some(thaw) = armed(&self.thaw, || self.frozen.load(Ordering::SeqCst)) {
            thaw.await;
        }
    }

    /// Whether the node lives.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }

    /// Whether a wait for news shall fail.
    pub(crate) fn loses_news(&self) -> bool {
        let mut inner = self.chaos.0.lock();
        let rates = inner.rates;
        !self.quiet && inner.crash.is_none() && rates.draw(&mut inner.random) != Fate::Answered
    }

    /// Makes a call that has its effect in `act`; `error` makes what the caller sees of a fault.
    pub(crate) async fn call<T, E>(
        &self,
        name: String,
        error: impl Fn(&'static str) -> E,
        act: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        if !self.is_alive() {
            return Err(error("the node is gone"));
        }
        if self.quiet {
            return act.await;
        }
        self.thawed().await;
        let step = self.chaos.decide(self.node, &name);
        pause(step.before_ms).await;
        match step.fate {
            Fate::Crash(Moment::Before) => {
                self.cut();
                return Err(error("the node is gone"));
            }
            Fate::Crash(Moment::Late) => {
                self.cut();
                tokio::spawn(async move {
                    pause(CRASH_LATE_MS).await;
                    drop(act.await);
                });
                return Err(error("the node is gone"));
            }
            Fate::Before => return Err(error("the request was lost")),
            Fate::Late => {
                let delay_ms = LATE_FACTOR * (step.before_ms + step.after_ms + 1);
                tokio::spawn(async move {
                    pause(delay_ms).await;
                    drop(act.await);
                });
                return Err(error("the request is late"));
            }
            Fate::Answered | Fate::After | Fate::Crash(Moment::After) => {}
        }
        let answer = act.await;
        if step.fate == Fate::Crash(Moment::After) {
            self.cut();
        }
        pause(step.after_ms).await;
        self.thawed().await;
        match step.fate {
            _ if !self.is_alive() => Err(error("the node is gone")),
            Fate::After => Err(error("the answer was lost")),
            _ => answer,
        }
    }
}

/// The next notification, if it is to be waited for. In order of arrival, unlike those of `tokio::sync::watch`, which wakes
/// its waiters in an order of its own.
pub(crate) fn armed<'a>(notify: &'a Notify, wait: impl FnOnce() -> bool) -> Option<Pin<Box<Notified<'a>>>> {
    let mut notified = Box::pin(notify.notified());
    notified.as_mut().enable();
    wait().then_some(notified)
}

/// The last call of a node that crashes takes effect so much later.
pub const CRASH_LATE_MS: u64 = 10_000;

/// A late effect comes so many times later than a usual one.
const LATE_FACTOR: u64 = 8;

async fn pause(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
