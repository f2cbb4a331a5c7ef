//! Where datagrams are sent. Nobody waits for a collector, and nothing is received.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use anyhow::{Context, Result};

/// A collector.
pub(super) struct Collector {
    address: SocketAddr,
    socket: UdpSocket,
    has_failed: bool,
}

fn unbound(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((any, 0))
}

impl Collector {
    /// Makes a socket for it.
    pub(super) fn new(address: SocketAddr) -> Result<Self> {
        let socket = unbound(address).and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        let socket = socket.with_context(|| format!("collector {address}: no socket"))?;
        Ok(Self { address, socket, has_failed: false })
    }

    /// Sends a datagram to the collector `of` what sends it. The first of several failures in a row is reported.
    pub(super) fn send(&mut self, of: &str, datagram: &[u8]) {
        match self.socket.send_to(datagram, self.address) {
            Ok(_) => self.has_failed = false,
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                let address = self.address;
                tracing::warn!(
                    event = "export",
                    "{of}: datagrams to the collector {address} are lost: {error}"
                );
            }
            Err(_) => {}
        }
    }
}

/// Returns the address of this host that a collector sees, if there is a route to it.
pub(super) fn own_address(collector: SocketAddr) -> Option<IpAddr> {
    let socket = unbound(collector).ok()?;
    socket.connect(collector).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
