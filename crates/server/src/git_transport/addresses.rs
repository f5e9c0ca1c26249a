//! How many connections each address has: nobody is asked who they are, so that one address could take all places.

use crate::access::network;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The addresses that have connections, and how many. Bounded by the connections there are.
pub(super) struct Addresses {
    connections_max: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection of an address, counted until it is dropped.
pub(super) struct Counted {
    addresses: Arc<Addresses>,
    network: IpAddr,
}

impl Addresses {
    /// So many connections each.
    pub(super) fn new(connections_max: usize) -> Arc<Self> {
        Arc::new(Self {
            connections_max,
            open: Mutex::default(),
        })
    }

    /// Counts one more connection of an address (of IPv6 the 64 bits that a customer has); `None` if it has enough.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Counted> {
        let network = network(address);
        let mut open = self.open.lock();
        let count = open.get(&network).copied().unwrap_or_default();
        if count >= self.connections_max {
            return None;
        }
        open.insert(network, count + 1);
        Some(Counted {
            addresses: self.clone(),
            network,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.addresses.open.lock();
        match open.get_mut(&self.network) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.network)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_so_many() {
        let addresses = Addresses::new(2);
        let enter = |address: &str| addresses.enter(address.parse().unwrap());
        let first = enter("10.0.0.1").unwrap();
        let second = enter("10.0.0.1").unwrap();
        assert!(enter("10.0.0.1").is_none());
        assert!(enter("::ffff:10.0.0.1").is_none());
        let other = enter("10.0.0.2").unwrap();
        drop(first);
        let third = enter("10.0.0.1").unwrap();
        assert!(enter("10.0.0.1").is_none());
        drop((second, third, other));
        assert!(addresses.open.lock().is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one() {
        let addresses = Addresses::new(1);
        let enter = |address: &str| addresses.enter(address.parse().unwrap());
        let _first = enter("2001:db8::1").unwrap();
        assert!(enter("2001:db8::2").is_none());
        assert!(enter("2001:db8:0:1::1").is_some());
    }
}
