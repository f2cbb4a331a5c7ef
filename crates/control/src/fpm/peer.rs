//! Who is at the other end of a connection within this host: asked of the kernel by both addresses (sock_diag(7)).

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

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

/// The user who opened the other end of a connection, in the network namespace of this thread.
///
/// # Errors
///
/// The other end is not on this host, or is closed already: then nobody knows whose it was.
pub(super) fn user_of(socket: &TcpStream) -> io::Result<u32> {
    let request = request(socket.peer_addr()?, socket.local_addr()?);
    user_in(&ask::get(ask::SOCK_DIAG, BY_FAMILY, &request)?)
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
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_user_of_a_connection_is_known_while_it_is_open() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, _) = listener.accept().unwrap();
            assert_eq!(user_of(&socket).unwrap(), rustix::process::getuid().as_raw());
            // What is closed has no user, least of all root.
            drop(peer);
            assert!(user_of(&socket).is_err());
        }
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
