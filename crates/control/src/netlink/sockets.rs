//! Sockets of netlink.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};

/// A socket that talks to the kernel, in the network namespace of the thread that opened it.
pub(super) struct KernelSocket {
    socket: Socket,
}

/// What was received.
pub(super) enum Received {
    /// This many bytes, of one or more whole messages.
    Bytes(usize),
    /// Nothing is there.
    Nothing,
    /// Messages were lost, or one was longer than our buffer.
    Lost,
}

impl KernelSocket {
    /// One for requests of this protocol.
    pub(super) fn open(protocol: isize) -> io::Result<KernelSocket> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        // Only the kernel may send to it.
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(KernelSocket { socket })
    }

    /// One for dumps of rtnetlink. With strict checking (Linux 4.20) the kernel reads what we ask for, and
    /// routes come without those that it cached.
    pub(super) fn for_route_dumps() -> io::Result<KernelSocket> {
        let socket = KernelSocket::open(NETLINK_ROUTE)?;
        socket.socket.set_netlink_get_strict_chk(true)?;
        Ok(socket)
    }

    /// One for requests of this protocol whose acknowledgements do not repeat them.
    pub(super) fn for_requests(protocol: isize) -> io::Result<KernelSocket> {
        let socket = KernelSocket::open(protocol)?;
        socket.socket.set_cap_ack(true)?;
        Ok(socket)
    }

    /// One that hears of every change in these multicast groups, with a buffer of so many bytes for what we
    /// have not read yet. Without the right to a larger one (`CAP_NET_ADMIN`) the buffer is as large as the
    /// system allows everybody.
    pub(super) fn for_notifications(
        protocol: isize,
        groups: &[u32],
        buffer: usize,
    ) -> io::Result<KernelSocket> {
        let socket = KernelSocket::open(protocol)?;
        if sockopt::set_socket_recv_buffer_size_force(&socket.socket, buffer).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket.socket, buffer)?;
        }
        for &group in groups {
            socket.socket.add_membership(group)?;
        }
        Ok(socket)
    }

    pub(super) fn send(&self, message: &[u8]) -> io::Result<()> {
        self.socket.send(message, 0).map(|_| ())
    }

    /// Receives without waiting.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let room = buffer.len();
        match recv(&self.socket, buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, length)) if length > room => Ok(Received::Lost),
            Ok((_, length)) => Ok(Received::Bytes(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(Errno::NOBUFS) => Ok(Received::Lost),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for KernelSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
