//! Questions to the kernel that are answered once, over any protocol of netlink: rules of nftables, IPsec policies, the user of a
//! connection. What changes all the time is followed by [`Kernel`](super::Kernel) and [`Watch`](super::xfrm::Watch).

use std::io;
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};

use super::frames::{Frame, frames};
use super::request::Message;

/// `NETLINK_ROUTE`: filters of tc among others.
pub const ROUTE: isize = 0;
/// `NETLINK_SOCK_DIAG`.
pub(crate) const SOCK_DIAG: isize = 4;
/// `NETLINK_XFRM`: IPsec.
pub(crate) const XFRM: isize = 6;
/// `NETLINK_NETFILTER`: nftables among others.
pub const NETFILTER: isize = 12;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_DUMP_INTR`: there was a change meanwhile, so that something may be missing.
const DUMP_INTERRUPTED: u16 = 0x10;

/// A message of an answer is at most as long as the kernel's buffer, 32 KiB.
const BUFFER: usize = 64 << 10;
/// The kernel answers at once; a question is not worth hanging for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Dumps that are begun again because something changed.
const ATTEMPTS: usize = 5;

/// Asks for all of a kind, in the network namespace of this thread. `fixed` is the fixed part of the request, `take` gets the
/// type and the payload of each message of the answer.
///
/// # Errors
///
/// The kernel's, such as `EPERM`, or that of `take`.
pub fn dump(
    protocol: isize,
    kind: u16,
    fixed: &[u8],
    take: &mut dyn FnMut(u16, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    for _ in 0..ATTEMPTS {
        let mut answers: Vec<(u16, Vec<u8>)> = Vec::new();
        let is_whole = ask(protocol, kind, NLM_F_REQUEST | NLM_F_DUMP, fixed, &mut |frame| {
            answers.push((frame.kind, frame.payload.to_vec()));
        })?;
        if is_whole {
            return answers.iter().try_for_each(|(kind, payload)| take(*kind, payload));
        }
    }
    Err(io::Error::other("it changes while it is read"))
}

/// Asks for one thing; the payload of the answer.
///
/// # Errors
///
/// The kernel's, such as `ENOENT`.
pub(crate) fn get(protocol: isize, kind: u16, fixed: &[u8]) -> io::Result<Vec<u8>> {
    let mut answer = None;
    ask(protocol, kind, NLM_F_REQUEST, fixed, &mut |frame| answer = Some(frame.payload.to_vec()))?;
    answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Whether the answer is whole.
fn ask(
    protocol: isize,
    kind: u16,
    flags: u16,
    fixed: &[u8],
    take: &mut dyn FnMut(&Frame<'_>),
) -> io::Result<bool> {
    // The kernel may be busy with changes of others.
    packet::pulse::beat();
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    // Only the kernel may answer.
    socket.connect(&SocketAddr::new(0, 0))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    socket.send(&Message::new(kind, flags, 1, fixed).finish(), 0)?;
    let (mut buffer, mut is_whole) = (vec![0; BUFFER], true);
    loop {
        let length = match recv(&socket, &mut buffer[..], RecvFlags::TRUNC) {
            Ok((_, length)) if length > BUFFER => return Err(io::Error::other("an answer is too long")),
            Ok((_, length)) => length,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for frame in frames(&buffer[..length]) {
            let frame = frame.map_err(io::Error::other)?;
            is_whole &= frame.flags & DUMP_INTERRUPTED == 0;
            if matches!(frame.kind, NLMSG_ERROR | NLMSG_DONE) {
                let number = frame.payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                return if number < 0 { Err(io::Error::from_raw_os_error(-number)) } else { Ok(is_whole) };
            }
            take(&frame);
            if flags & NLM_F_DUMP == 0 {
                return Ok(is_whole);
            }
        }
    }
}
