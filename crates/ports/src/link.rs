//! Links: what Linux says of network interfaces, asked by netlink (rtnetlink(7)), which answers for the calling thread's network
//! namespace. sysfs would answer for the one in which it was mounted.
//!
//! Netlink may wait for a program that changes interfaces just then. So workers ask about their own port by ioctl
//! (`interface.rs`), which never waits.

use std::io;

use packet::wire::ethernet::MacAddr;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

/// A network interface of Linux.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number of it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Other names of it, by which `ip` finds it too.
    pub alternative_names: Vec<String>,
    /// Whether the administrator has it up (`IFF_UP`).
    pub is_up: bool,
    /// Whether it can carry packets (`IFF_LOWER_UP`).
    pub has_carrier: bool,
    /// Its link address, if it is Ethernet.
    pub mac: Option<MacAddr>,
    /// Largest packet, in bytes.
    pub mtu: usize,
    /// Receive queues that it was made with.
    pub rx_queues: usize,
    /// `veth`, `bridge` and so on; empty for a card.
    pub kind: String,
    /// The number of the bridge, bond or VRF that it belongs to.
    pub master: Option<u32>,
    /// The number of the interface below it, or of the other end of a veth pair, if that is in this namespace.
    pub below: Option<u32>,
    /// Whether an XDP program is attached.
    pub has_xdp: bool,
    /// The number of that program, if there is one only.
    pub program: Option<u32>,
    /// How far Linux merges the packets that it receives, if GRO is on. Linux 5.18.
    pub merging: Option<Merging>,
}

/// The longest packets, in bytes, that Linux makes of several that it receives (GRO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merging {
    largest: u32,
    /// The same of IPv4. Before Linux 6.3 there is one limit.
    largest_ipv4: u32,
}

impl Merging {
    /// No packet is merged with another.
    pub(crate) const NONE: Merging = Merging { largest: 1, largest_ipv4: 1 };
}

impl Link {
    /// Whether it is Ethernet.
    pub fn is_ethernet(&self) -> bool {
        self.mac.is_some()
    }
}

/// All interfaces at one moment.
#[derive(Clone, Debug, Default)]
pub struct Links(Vec<Link>);

impl From<Vec<Link>> for Links {
    fn from(links: Vec<Link>) -> Links {
        Links(links)
    }
}

impl Links {
    /// Asks Linux.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ask() -> io::Result<Links> {
        let mut links = Vec::new();
        // No protocol is number 0: NETLINK_ROUTE.
        ask(None, RTM_GETLINK, &[0; LINK_HEADER], |kind, answer| {
            if kind == RTM_NEWLINK {
                links.extend(parse(answer));
            }
        })?;
        Ok(Links(links))
    }

    /// Returns all of them.
    pub fn iter(&self) -> impl Iterator<Item = &Link> {
        self.0.iter()
    }

    /// Returns the interface of this name, or of which it is an alternative name.
    pub fn named(&self, name: &str) -> Option<&Link> {
        let by_other = || self.iter().find(|link| link.alternative_names.iter().any(|other| other == name));
        self.iter().find(|link| link.name == name).or_else(by_other)
    }

    /// Returns the name of the interface with this number.
    pub fn name(&self, index: u32) -> Option<&str> {
        self.iter().find(|link| link.index == index).map(|link| link.name.as_str())
    }
}

// include/uapi/linux/netlink.h, rtnetlink.h, if_link.h, if_arp.h.
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
pub(crate) const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_TXQLEN: u16 = 13;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
/// IN6_ADDR_GEN_MODE_NONE.
const ADDRESSES_OF_NONE: u8 = 1;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_GRO_MAX_SIZE: u16 = 58;
const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFF_LOWER_UP: u32 = 1 << 16;
const ARPHRD_ETHER: u16 = 1;
/// A nested attribute has this bit in its type, or not.
const TYPE_MASK: u16 = 0x3fff;
/// Bytes of struct nlmsghdr, struct ifinfomsg and struct nlattr.
pub(crate) const HEADER: usize = 16;
const LINK_HEADER: usize = 16;
pub(crate) const ATTRIBUTE: usize = 4;

/// Asks for all that the kernel has of a kind: what follows the header of the question, and of each answer with its type.
pub(crate) fn ask(
    protocol: Option<Protocol>,
    kind: u16,
    question: &[u8],
    answer: impl FnMut(u16, &[u8]),
) -> io::Result<()> {
    exchange(protocol, kind, NLM_F_DUMP, question, answer)
}

/// Has Linux merge what this interface receives so far at most.
pub(crate) fn set_merging(index: u32, merging: Merging) -> io::Result<()> {
    let mut question = vec![0; LINK_HEADER];
    question[4..8].copy_from_slice(&index.to_ne_bytes());
    let sizes = [(IFLA_GRO_MAX_SIZE, merging.largest), (IFLA_GRO_IPV4_MAX_SIZE, merging.largest_ipv4)];
    for (kind, size) in sizes {
        question.extend(attribute(kind, &size.to_ne_bytes()));
    }
    exchange(None, RTM_SETLINK, NLM_F_ACK, &question, |_, _| {})
}

/// Brings up an interface that only passes on what others send by it: with a queue of so many packets, merged frames of so many bytes
/// at most, and no IPv6 address that Linux would make for it.
pub(crate) fn begin_passing(index: u32, packets: u32, longest_merged: usize) -> io::Result<()> {
    let set = |is_up: bool, attribute: &[u8]| {
        let mut question = vec![0; LINK_HEADER];
        question[4..8].copy_from_slice(&index.to_ne_bytes());
        let flags = if is_up { libc::IFF_UP as u32 } else { 0 };
        // The flags, and which of them are meant.
        question[8..12].copy_from_slice(&flags.to_ne_bytes());
        question[12..16].copy_from_slice(&flags.to_ne_bytes());
        question.extend_from_slice(attribute);
        exchange(None, RTM_SETLINK, NLM_F_ACK, &question, |_, _| {})
    };
    let of_ipv6 =
        attribute(libc::AF_INET6 as u16, &attribute(IFLA_INET6_ADDR_GEN_MODE, &[ADDRESSES_OF_NONE]));
    // There may be no IPv6.
    let _ = set(false, &attribute(IFLA_AF_SPEC, &of_ipv6));
    // Linux divides what is longer. Where it cannot be limited so, such frames are lost, and counted.
    let _ = set(false, &attribute(IFLA_GSO_MAX_SIZE, &(longest_merged as u32).to_ne_bytes()));
    set(true, &attribute(IFLA_TXQLEN, &packets.to_ne_bytes()))
}

/// An attribute of a message, filled up to a multiple of four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes();
    let mut bytes = [&length, &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends one message, with these flags, and hands on what is answered.
fn exchange(
    protocol: Option<Protocol>,
    kind: u16,
    flags: u16,
    question: &[u8],
    mut answer: impl FnMut(u16, &[u8]),
) -> io::Result<()> {
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    let mut request = vec![0; HEADER];
    request[..4].copy_from_slice(&((HEADER + question.len()) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    request.extend_from_slice(question);
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (length, _) = rustix::net::recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        let mut rest = &buffer[..length];
        while let Some((kind, payload)) = next_message(&mut rest) {
            match kind {
                NLMSG_ERROR | NLMSG_DONE => {
                    let error = number(payload).unwrap_or(0) as i32;
                    return if error < 0 { Err(io::Error::from_raw_os_error(-error)) } else { Ok(()) };
                }
                _ => answer(kind, payload),
            }
        }
    }
}

/// Takes the type and the payload of the next message; `None` at the end, and where a message is cut off.
pub(crate) fn next_message<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let length = number(rest)? as usize;
    let kind = u16::from_ne_bytes(*rest.get(4..)?.first_chunk()?);
    let payload = rest.get(HEADER..length)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, payload))
}

/// Reads what follows the message's header; what is not there stays at its default.
fn parse(payload: &[u8]) -> Option<Link> {
    let (header, rest) = payload.split_first_chunk::<LINK_HEADER>()?;
    let is_ethernet = u16::from_ne_bytes([header[2], header[3]]) == ARPHRD_ETHER;
    let flags = number(&header[8..])?;
    let mut link = Link {
        index: number(&header[4..])?,
        is_up: flags & libc::IFF_UP as u32 != 0,
        has_carrier: flags & IFF_LOWER_UP != 0,
        rx_queues: 1,
        ..Link::default()
    };
    let text = |value: &[u8]| String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
    let (mut is_below_elsewhere, mut largest_ipv4) = (false, None);
    for (kind, value) in attributes(rest) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_PROP_LIST => {
                let names = attributes(value).filter(|&(kind, _)| kind == IFLA_ALT_IFNAME);
                link.alternative_names = names.map(|(_, name)| text(name)).collect();
            }
            IFLA_ADDRESS if is_ethernet => link.mac = value.first_chunk().copied().map(MacAddr),
            IFLA_MTU => link.mtu = number(value).unwrap_or(0) as usize,
            IFLA_NUM_RX_QUEUES => link.rx_queues = number(value).map_or(1, |queues| queues.max(1) as usize),
            IFLA_MASTER => link.master = number(value),
            IFLA_LINK => link.below = number(value).filter(|&index| index != 0),
            IFLA_LINK_NETNSID => is_below_elsewhere = true,
            IFLA_GRO_MAX_SIZE => {
                link.merging = number(value).map(|size| Merging { largest: size, largest_ipv4: size });
            }
            IFLA_GRO_IPV4_MAX_SIZE => largest_ipv4 = number(value),
            IFLA_LINKINFO => link.kind = inner(value, IFLA_INFO_KIND).map(text).unwrap_or_default(),
            IFLA_XDP => {
                link.has_xdp = inner(value, IFLA_XDP_ATTACHED).is_some_and(|mode| mode != [0]);
                link.program = inner(value, IFLA_XDP_PROG_ID).and_then(number).filter(|&id| id != 0);
            }
            _ => {}
        }
    }
    link.below = link.below.filter(|_| !is_below_elsewhere);
    if let (Some(merging), Some(size)) = (&mut link.merging, largest_ipv4) {
        merging.largest_ipv4 = size;
    }
    Some(link)
}

pub(crate) fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*value.first_chunk()?))
}

/// The value of the attribute of this type within another.
pub(crate) fn inner(value: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(value).find(|&(kind, _)| kind == wanted).map(|(_, value)| value)
}

/// The attributes of a message: type and value of each, up to the first that is cut off.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.first_chunk::<ATTRIBUTE>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & TYPE_MASK;
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_namespace, ip};
    use proptest::prelude::*;

    #[test]
    fn links_are_the_kernels() {
        in_namespace(|| {
            ip(
                "link add left numrxqueues 4 numtxqueues 3 address 02:00:00:00:00:07 mtu 1400 type veth peer name right",
            );
            ip("link add bridge numrxqueues 5 type bridge");
            ip("link set right master bridge up");
            ip("link add link left name upper type macvlan");
            let links = Links::ask().unwrap();
            let of = |name: &str| links.named(name).unwrap();
            let expected = Link {
                index: of("left").index,
                name: "left".to_owned(),
                mac: Some(MacAddr([2, 0, 0, 0, 0, 7])),
                mtu: 1400,
                rx_queues: 4,
                kind: "veth".to_owned(),
                below: Some(of("right").index),
                merging: Some(Merging { largest: 65_536, largest_ipv4: 65_536 }),
                ..Link::default()
            };
            assert_eq!(*of("left"), expected);
            assert!(of("right").is_up && !of("right").has_carrier && !of("lo").is_ethernet());
            assert_eq!(of("right").master.and_then(|master| links.name(master)), Some("bridge"));
            assert_eq!((of("bridge").rx_queues, of("bridge").kind.as_str()), (5, "bridge"));
            assert_eq!((of("upper").below, of("upper").kind.as_str()), (Some(expected.index), "macvlan"));
            assert!(links.named("none").is_none());
            ip("link property add dev left altname enp3s0f0np0 altname uplink-to-the-provider");
            let links = Links::ask().unwrap();
            assert_eq!(links.named("left").unwrap().alternative_names.len(), 2);
            assert_eq!(links.named("uplink-to-the-provider").unwrap().name, "left");
            ip("link set left up");
            assert!(Links::ask().unwrap().named("right").unwrap().has_carrier);
        });
    }

    proptest! {
        #[test]
        fn any_message_is_read_without_panic(message in prop::collection::vec(any::<u8>(), 0..200)) {
            parse(&message);
            let mut rest = &message[..];
            while next_message(&mut rest).is_some() {}
        }
    }
}
