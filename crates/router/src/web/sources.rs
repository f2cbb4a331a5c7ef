//! How many connections each host has: one host does not take those of all others.

use packet::sync::lock;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

/// Connections of a host, and of this one: browsers, scrapers and tunnels of several users may be behind loop-back.
const OF_A_HOST: usize = 8;
const OF_THIS_HOST: usize = 32;

/// The hosts that have connections, with their numbers. There are no more hosts than connections.
#[derive(Clone, Default)]
pub(super) struct Sources(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection of a host, until it is dropped.
pub(super) struct Admitted {
    sources: Sources,
    host: IpAddr,
}

impl Sources {
    /// Admits a connection from an address, unless its host has as many as it may.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Admitted> {
        let host = host_of(address);
        let most = if host.is_loopback() { OF_THIS_HOST } else { OF_A_HOST };
        let mut hosts = lock(&self.0);
        let count = hosts.entry(host).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Admitted { sources: self.clone(), host })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut hosts = lock(&self.sources.0);
        if let Some(count) = hosts.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                hosts.remove(&self.host);
            }
        }
    }
}

/// Returns what all addresses of a host have in common: of IPv6 a host has the addresses of 64 bits, and this host has all of
/// loop-back.
fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_host_has_so_many_connections_whatever_addresses_it_takes() {
        let sources = Sources::default();
        for (first, same, other, most) in [
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2", OF_A_HOST),
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:2::1", OF_A_HOST),
            ("127.0.0.1", "127.9.9.9", "198.51.100.1", OF_THIS_HOST),
        ] {
            let [first, same, other] = [first, same, other].map(|text| text.parse().unwrap());
            let mut admitted: Vec<Admitted> = (0..most).map(|_| sources.admit(first).unwrap()).collect();
            assert!(sources.admit(same).is_none(), "{same}");
            assert!(sources.admit(other).is_some(), "{other}");
            admitted.pop();
            assert!(sources.admit(same).is_some(), "{same}");
        }
        assert!(lock(&sources.0).is_empty(), "what is gone is forgotten");
    }
}
