//! What an interface offers to AF_XDP: receive queues, a program that is attached already.
//!
//! Asked by netlink and ioctl, which answer for the calling thread's network namespace; sysfs would answer for the one
//! in which it was mounted.

use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::interface::{EthtoolCommand, EthtoolValue, ask_driver};

/// What the kernel says about an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// Receive queues that can be used now.
    pub(super) rx_queues: usize,
    /// The number of the XDP program that is attached; there may be several.
    pub(super) program: Option<u32>,
    /// The kind of a virtual interface, such as `veth`.
    pub(super) kind: String,
}

/// Asks about an interface.
pub(super) fn link(name: &str, index: i32) -> io::Result<Link> {
    let reply = ask_link(index)?;
    let mut link = parse_link(&reply);
    if let Some(active) = active_queues(name) {
        link.rx_queues = active;
    }
    link.rx_queues = link.rx_queues.max(1);
    Ok(link)
}

// include/uapi/linux/rtnetlink.h, if_link.h.
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_XDP: u16 = 43;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP_PROG_ID: u16 = 4;
/// A nested attribute has this bit in its type, or not.
const TYPE_MASK: u16 = 0x3fff;
/// Bytes of struct nlmsghdr and of struct ifinfomsg.
const HEADER: usize = 16;
const LINK_HEADER: usize = 16;

fn ask_link(index: i32) -> io::Result<Vec<u8>> {
    // No protocol is number 0: NETLINK_ROUTE.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut request = [0; HEADER + LINK_HEADER];
    request[..4].copy_from_slice(&((HEADER + LINK_HEADER) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    request[HEADER + 4..HEADER + 8].copy_from_slice(&index.to_ne_bytes());
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let mut reply = vec![0; 1 << 16];
    let (length, _) = rustix::net::recv(&socket, reply.as_mut_slice(), RecvFlags::empty())?;
    reply.truncate(length);
    Ok(reply)
}

/// Reads the reply; what is not there stays at its default.
fn parse_link(reply: &[u8]) -> Link {
    let mut link = Link::default();
    let kind = reply.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    if kind != Some(RTM_NEWLINK) {
        return link;
    }
    for (kind, value) in attributes(reply.get(HEADER + LINK_HEADER..).unwrap_or_default()) {
        match kind {
            IFLA_NUM_RX_QUEUES => link.rx_queues = number(value).unwrap_or(0) as usize,
            IFLA_LINKINFO => {
                let name = attributes(value).find(|&(kind, _)| kind == IFLA_INFO_KIND);
                let name = name.map_or(&[][..], |(_, name)| name);
                link.kind = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
            }
            IFLA_XDP => {
                let program = attributes(value).find(|&(kind, _)| kind == IFLA_XDP_PROG_ID);
                link.program = program.and_then(|(_, id)| number(id)).filter(|&id| id != 0);
            }
            _ => {}
        }
    }
    link
}

fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*value.first_chunk()?))
}

/// The attributes of a message: type and value of each, up to the first that is cut off.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & TYPE_MASK;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// struct ethtool_channels of include/uapi/linux/ethtool.h.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

#[allow(unsafe_code, reason = "a structure of ethtool.h")]
// SAFETY: as in ethtool.h, numbers only, and the command that is given is ETHTOOL_GCHANNELS.
unsafe impl EthtoolCommand for Channels {}

const ETHTOOL_GCHANNELS: u32 = 0x3c;

const ETHTOOL_GFLAGS: u32 = 0x25;
/// ETH_FLAG_RXVLAN.
const TAKES_TAGS_OUT: u32 = 1 << 8;

/// Receive queues in use; `None` when the driver does not say.
fn active_queues(name: &str) -> Option<usize> {
    let channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    let channels = ask_driver(name, channels).ok()?;
    Some((channels.receive + channels.combined) as usize).filter(|&queues| queues > 0)
}

/// Whether the card takes VLAN tags out of frames, so that XDP sees none.
pub(super) fn takes_tags_out(name: &str) -> bool {
    let flags = ask_driver(name, EthtoolValue { command: ETHTOOL_GFLAGS, data: 0 });
    flags.is_ok_and(|flags| flags.data & TAKES_TAGS_OUT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::Interface;
    use crate::testing::{command, in_namespace, ip};
    use proptest::prelude::*;

    #[test]
    fn queues_and_kind_are_the_kernels() {
        in_namespace(|| {
            ip("link add left numrxqueues 4 numtxqueues 3 type veth peer name right");
            ip("link add bridge numrxqueues 5 type bridge");
            let of = |name: &str| link(name, Interface::new(name).unwrap().index().unwrap()).unwrap();
            assert_eq!(of("left"), Link { rx_queues: 4, program: None, kind: "veth".to_owned() });
            // No ethtool channels: what the interface was made with.
            assert_eq!((of("bridge").rx_queues, of("bridge").kind.as_str()), (5, "bridge"));
            for (switch, expected) in [("on", true), ("off", false)] {
                command("ethtool", &format!("-K left rxvlan {switch}"));
                assert_eq!(takes_tags_out("left"), expected);
            }
        });
    }

    proptest! {
        #[test]
        fn any_reply_is_read_without_panic(mut reply in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(kind) = reply.get_mut(4..6) {
                kind.copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
            }
            parse_link(&reply);
        }
    }
}
