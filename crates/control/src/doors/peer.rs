//! Who is at the other end of a connection: asked of the kernel, by both addresses (sock_diag(7)), or by the socket of Unix.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use crate::netlink::ask;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;
const PROTOCOL_TCP: u8 = 6;
/// `TCP_ESTABLISHED`, as a state and as a set of states.
const ESTABLISHED: u8 = 1;
const STATES: u32 = 1 << ESTABLISHED;

/// Where the user and the inode of the socket stand in `struct inet_diag_msg`.
const USER: usize = 64;
const INODE: usize = 68;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A user of this host.
    User(u32),
    /// Another host, by the first of its addresses: of IPv6 a host has the addresses of 64 bits.
    Host(IpAddr),
    /// A program of this host whose connection was closed before the kernel was asked.
    Unknown,
}

impl Peer {
    /// Returns who is at the other end of a connection of TCP, in the network namespace of this thread.
    pub fn of_tcp(from: SocketAddr, to: SocketAddr) -> Peer {
        match user_of(from, to) {
            Ok(user) => Peer::User(user),
            Err(_) => match from.ip().to_canonical() {
                address if address.is_loopback() => Peer::Unknown,
                IpAddr::V6(address) => Peer::Host(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into()),
                address => Peer::Host(address),
            },
        }
    }

    /// Returns who has connected to a socket of Unix (`SO_PEERCRED`).
    pub fn of_unix(socket: &UnixStream) -> Peer {
        let peer = rustix::net::sockopt::socket_peercred(socket);
        peer.map_or(Peer::Unknown, |peer| Peer::User(peer.uid.as_raw()))
    }

    /// Returns whether it is root, or the user who started this process ([`remember_starter`]).
    pub fn is_trusted(self) -> bool {
        matches!(self, Peer::User(user) if trusted().contains(&user))
    }
}

/// The user who started this process.
static STARTER: OnceLock<u32> = OnceLock::new();

/// Returns the user of this process. It stays the one who is trusted when the process becomes another user's.
pub fn remember_starter() -> u32 {
    *STARTER.get_or_init(|| rustix::process::geteuid().as_raw())
}

/// Root, and the user who started this process.
pub(super) fn trusted() -> [u32; 2] {
    [0, remember_starter()]
}

/// The user who opened the other end of a connection.
///
/// # Errors
///
/// The other end is not on this host, or is closed already: then nobody knows whose it was.
fn user_of(from: SocketAddr, to: SocketAddr) -> io::Result<u32> {
    user_in(&ask::get(ask::SOCK_DIAG, BY_FAMILY, &request(from, to))?)
}

/// `struct inet_diag_req_v2` for the socket at `from` that is connected to `to`.
fn request(from: SocketAddr, to: SocketAddr) -> [u8; 56] {
    let mut request = [0; 56];
    request[0] = if from.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 };
    request[1] = PROTOCOL_TCP;
    request[4..8].copy_from_slice(&STATES.to_ne_bytes());
    request[8..10].copy_from_slice(&from.port().to_be_bytes());
    request[10..12].copy_from_slice(&to.port().to_be_bytes());
    for (at, address) in [(12, from.ip()), (28, to.ip())] {
        match address {
            IpAddr::V4(address) => request[at..at + 4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => request[at..at + 16].copy_from_slice(&address.octets()),
        }
    }
    // `INET_DIAG_NOCOOKIE`: whichever socket has these addresses.
    request[48..].fill(0xff);
    request
}

fn user_in(answer: &[u8]) -> io::Result<u32> {
    let number = |at: usize| answer.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let (Some(user), Some(inode)) = (number(USER), number(INODE)) else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    // A socket that no process has open any more is said to be root's, and one that listens is not the other end.
    if answer[1] != ESTABLISHED || inode == 0 {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Ok(user)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_user_of_a_connection_is_known_while_it_is_open() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, _) = listener.accept().unwrap();
            let of = || Peer::of_tcp(socket.peer_addr().unwrap(), socket.local_addr().unwrap());
            assert_eq!(of(), Peer::User(rustix::process::getuid().as_raw()));
            assert!(of().is_trusted());
            // What is closed has no user, least of all root.
            drop(peer);
            assert_eq!(of(), Peer::Unknown);
            assert!(!of().is_trusted());
        }
    }

    #[test]
    fn who_is_not_here_is_a_host() {
        let here = "192.0.2.1:80".parse().unwrap();
        for (from, host) in [
            ("192.0.2.9:1", "192.0.2.9"),
            ("[::ffff:192.0.2.9]:1", "192.0.2.9"),
            ("[2001:db8:0:1:2::3]:1", "2001:db8:0:1::"),
        ] {
            assert_eq!(
                Peer::of_tcp(from.parse().unwrap(), here),
                Peer::Host(host.parse().unwrap()),
                "{from}"
            );
        }
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(Peer::of_unix(&one), Peer::User(rustix::process::geteuid().as_raw()));
    }

    #[test]
    fn short_answers_and_other_states_are_errors() {
        let mut answer = [0; 72];
        (answer[1], answer[INODE]) = (ESTABLISHED, 9);
        answer[USER] = 5;
        assert_eq!(user_in(&answer).unwrap(), 5);
        assert!(user_in(&answer[..70]).is_err());
        answer[1] = 10;
        assert!(user_in(&answer).is_err());
    }
}
