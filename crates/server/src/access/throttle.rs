//! Slows guessing down: failures are counted by the peer's address and by the user name given, in bounded memory.
//!
//! Each failure costs its key [`FAILURE_MS`] of patience; a key that is in debt by more than [`DEBT_MS_MAX`] is refused until
//! time has paid some of it back: ten failures at once, then one every six seconds.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;

/// What a failure costs.
const FAILURE_MS: i64 = 6_000;
/// What a key may owe before it is refused.
const DEBT_MS_MAX: i64 = 10 * FAILURE_MS;
/// Keys remembered at once. Of more, those that owe least are forgotten.
const KEYS_MAX: usize = 16_384;

/// Failed attempts of the last minute. Time is given with each call.
#[derive(Default)]
pub struct Throttle {
    /// When each key's debt is paid.
    paid_ms: Mutex<HashMap<Key, i64>>,
}

/// Whose failures are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// An address; of IPv6 the 64 bits that a customer has.
    Peer(IpAddr),
    /// A user name, whoever gave it.
    User(String),
}

impl Throttle {
    /// How many seconds an address has to wait before it may try again; `None` if it need not.
    pub fn peer_wait_seconds(&self, peer: IpAddr, now_ms: i64) -> Option<u64> {
        self.wait_seconds(&Key::Peer(network(peer)), now_ms)
    }

    /// The same for a user name that somebody gives.
    pub fn user_wait_seconds(&self, user: &str, now_ms: i64) -> Option<u64> {
        self.wait_seconds(&Key::User(user.to_owned()), now_ms)
    }

    /// Notes a failure.
    pub fn failed(&self, peer: IpAddr, user: Option<&str>, now_ms: i64) {
        let mut paid_ms = self.paid_ms.lock();
        let user = user
            .filter(|user| !user.is_empty())
            .map(|user| Key::User(user.to_owned()));
        for key in [Some(Key::Peer(network(peer))), user].into_iter().flatten() {
            make_room(&mut paid_ms, now_ms);
            let paid = paid_ms.entry(key).or_insert(now_ms);
            // Who is refused is not charged, so that nobody owes more than a little above the limit.
            *paid = (*paid)
                .max(now_ms)
                .saturating_add(FAILURE_MS)
                .min(now_ms.saturating_add(DEBT_MS_MAX + FAILURE_MS));
        }
    }

    fn wait_seconds(&self, key: &Key, now_ms: i64) -> Option<u64> {
        let paid = self.paid_ms.lock().get(key).copied()?;
        let wait_ms = paid.saturating_sub(now_ms).saturating_sub(DEBT_MS_MAX - FAILURE_MS);
        u64::try_from(wait_ms)
            .ok()
            .filter(|wait| *wait > 0)
            .map(|wait| wait.div_ceil(1000))
    }
}

/// Forgets what is paid; if that is not enough, the half that owes least.
fn make_room(paid_ms: &mut HashMap<Key, i64>, now_ms: i64) {
    if paid_ms.len() < KEYS_MAX {
        return;
    }
    paid_ms.retain(|_, paid| *paid > now_ms);
    if paid_ms.len() < KEYS_MAX {
        return;
    }
    let mut debts: Vec<i64> = paid_ms.values().copied().collect();
    let middle = debts.len() / 2;
    let (_, median, _) = debts.select_nth_unstable(middle);
    let median = *median;
    paid_ms.retain(|_, paid| *paid > median);
}

/// An address, of IPv6 the 64 bits that a customer has.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + last).into())
    }

    #[test]
    fn ten_failures_at_once_and_then_one_every_six_seconds() {
        let throttle = Throttle::default();
        let now = 1_000_000;
        for _ in 0..10 {
            assert_eq!(throttle.peer_wait_seconds(peer(1), now), None);
            throttle.failed(peer(1), Some("ann"), now);
        }
        assert_eq!(throttle.peer_wait_seconds(peer(1), now), Some(6));
        assert_eq!(throttle.user_wait_seconds("ann", now), Some(6));
        assert_eq!(throttle.peer_wait_seconds(peer(1), now + 5_001), Some(1));
        assert_eq!(throttle.peer_wait_seconds(peer(1), now + 6_000), None);
        throttle.failed(peer(1), None, now + 6_000);
        assert_eq!(throttle.peer_wait_seconds(peer(1), now + 6_000), Some(6));
        assert_eq!(throttle.peer_wait_seconds(peer(2), now), None);
        assert_eq!(throttle.user_wait_seconds("bob", now), None);
    }

    #[test]
    fn however_many_failures_the_wait_is_short() {
        let throttle = Throttle::default();
        for _ in 0..10_000 {
            throttle.failed(peer(1), None, 5);
        }
        assert_eq!(throttle.peer_wait_seconds(peer(1), 5), Some(12));
    }

    #[test]
    fn an_ipv6_customer_is_one_peer() {
        let throttle = Throttle::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for last in 0..10 {
            throttle.failed(address(&format!("2001:db8::{last}")), None, 5);
        }
        assert!(throttle.peer_wait_seconds(address("2001:db8::ffff"), 5).is_some());
        assert!(throttle.peer_wait_seconds(address("2001:db8:0:1::1"), 5).is_none());
        for _ in 0..10 {
            throttle.failed(address("::ffff:10.0.0.1"), None, 5);
        }
        assert!(
            throttle.peer_wait_seconds(peer(1), 5).is_some(),
            "an IPv4 address in IPv6's clothes"
        );
    }

    #[test]
    fn memory_is_bounded_and_the_worst_are_kept() {
        let throttle = Throttle::default();
        for _ in 0..10 {
            throttle.failed(peer(0), None, 5);
        }
        for other in 1..3 * u32::try_from(KEYS_MAX).unwrap() {
            throttle.failed(peer(other), None, 6);
        }
        assert!(throttle.paid_ms.lock().len() <= KEYS_MAX);
        assert!(throttle.peer_wait_seconds(peer(0), 6).is_some());
        throttle.failed(peer(1), None, i64::MAX - 1);
        assert!(
            throttle.paid_ms.lock().len() <= KEYS_MAX,
            "time that ends is no trouble"
        );
    }
}
