//! Connections that have not shown yet who they are, or over `git://` what they want: few at a time, and the oldest make room, so that whoever opens many and
//! says nothing keeps nobody else out.

use crate::leash::Leash;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The connections of a listener that are not authenticated, or have not said what they want.
pub(crate) struct Logins {
    max: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    by_age: BTreeMap<u64, Arc<Leash>>,
}

/// A place among them, given back when dropped.
pub(crate) struct Login {
    logins: Arc<Logins>,
    number: u64,
}

impl Logins {
    /// Room for that many.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            waiting: Mutex::default(),
        })
    }

    /// Takes a place for a new connection; cuts the oldest if there are too many.
    pub(crate) fn enter(self: &Arc<Self>, leash: Arc<Leash>) -> Login {
        let mut waiting = self.waiting.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.by_age.insert(number, leash);
        while waiting.by_age.len() > self.max {
            if let Some((_, oldest)) = waiting.by_age.pop_first() {
                oldest.cut();
            }
        }
        Login {
            logins: self.clone(),
            number,
        }
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        self.logins.waiting.lock().by_age.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leash::Leashed;
    use futures::FutureExt;
    use tokio::io::AsyncReadExt;

    fn is_cut(leash: &Arc<Leash>) -> bool {
        let (near, _far) = tokio::io::duplex(1);
        Leashed::new(near, leash.clone()).read_u8().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_make_room() {
        let logins = Logins::new(2);
        let leashes: Vec<Arc<Leash>> = (0..4).map(|_| Arc::default()).collect();
        let mut places: Vec<Login> = leashes[..2].iter().map(|leash| logins.enter(leash.clone())).collect();
        assert!(!leashes.iter().any(is_cut));
        places.push(logins.enter(leashes[2].clone()));
        assert_eq!(
            leashes.iter().map(is_cut).collect::<Vec<_>>(),
            [true, false, false, false]
        );
        // Whoever has logged in makes room without being cut.
        places.remove(1);
        places.push(logins.enter(leashes[3].clone()));
        assert_eq!(
            leashes.iter().map(is_cut).collect::<Vec<_>>(),
            [true, false, false, false]
        );
    }
}
