//! Generic netlink: families of the kernel by their names, questions to them, and messages to those who listen to one of their groups.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use crate::link::{ATTRIBUTE, HEADER, NLM_F_REQUEST, NLMSG_ERROR, attributes, next_message, number};

// include/uapi/linux/genetlink.h.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;
/// Bytes of struct genlmsghdr.
const GENERIC_HEADER: usize = 4;
/// An attribute holds attributes.
const NLA_F_NESTED: u16 = 1 << 15;

pub(crate) fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let generic = Some(netlink::GENERIC);
    Ok(rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, generic)?)
}

pub(crate) fn attribute(answer: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(answer).find(|&(kind, _)| kind == wanted).map(|(_, value)| value)
}

/// A family, as the kernel describes it.
pub(crate) struct Family {
    id: u16,
    description: Vec<u8>,
}

impl Family {
    /// Asks the kernel for a family.
    ///
    /// # Errors
    /// It has none of this name (`ENOENT`).
    pub(crate) fn named(name: &str) -> io::Result<Self> {
        let name = [name.as_bytes(), &[0]].concat();
        let mut attributes = Attributes::default();
        attributes.put(CTRL_ATTR_FAMILY_NAME, &name);
        let description = ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, &attributes)?;
        let id = attribute(&description, CTRL_ATTR_FAMILY_ID).and_then(|value| value.first_chunk().copied());
        Ok(Self { id: id.map(u16::from_ne_bytes).ok_or(io::ErrorKind::InvalidData)?, description })
    }

    /// Returns the number of its multicast group of this name.
    pub(crate) fn group(&self, name: &str) -> Option<u32> {
        let groups = attribute(&self.description, CTRL_ATTR_MCAST_GROUPS).unwrap_or_default();
        attributes(groups).find_map(|(_, group)| {
            let is_wanted =
                attribute(group, CTRL_ATTR_MCAST_GRP_NAME)?.strip_suffix(&[0])? == name.as_bytes();
            attribute(group, CTRL_ATTR_MCAST_GRP_ID).filter(|_| is_wanted).and_then(number)
        })
    }

    /// Sends a command with one attribute, and returns the attributes of the answer.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn ask(&self, command: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
        let mut attributes = Attributes::default();
        attributes.put(kind, value);
        ask(self.id, command, &attributes)
    }
}

/// Attributes of a message.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds one.
    pub fn put(&mut self, kind: u16, value: &[u8]) {
        self.0.extend(((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Adds one that holds others.
    pub fn nest(&mut self, kind: u16, inside: &Self) {
        self.put(kind | NLA_F_NESTED, &inside.0);
    }

    /// A message of a family with them.
    fn message(&self, family: u16, flags: u16, command: u8) -> Vec<u8> {
        let length = HEADER + GENERIC_HEADER + self.0.len();
        let mut message = (length as u32).to_ne_bytes().to_vec();
        message.extend([family.to_ne_bytes(), flags.to_ne_bytes()].as_flattened());
        message.resize(HEADER, 0);
        // All families here have version 1, or look at none.
        message.extend([command, 1, 0, 0]);
        message.extend(&self.0);
        message
    }
}

fn ask(family: u16, command: u8, attributes: &Attributes) -> io::Result<Vec<u8>> {
    let socket = socket(SocketFlags::CLOEXEC)?;
    let message = attributes.message(family, NLM_F_REQUEST, command);
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut buffer = vec![0; 1 << 15];
    let (length, _) = rustix::net::recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
    let (kind, payload) = next_message(&mut &buffer[..length]).ok_or(io::ErrorKind::InvalidData)?;
    if kind == NLMSG_ERROR {
        return Err(io::Error::from_raw_os_error(-(number(payload).unwrap_or(0) as i32)));
    }
    Ok(payload.get(GENERIC_HEADER..).unwrap_or_default().to_vec())
}

/// Sends messages of a family to those who listen to one of its groups, as the kernel itself does.
///
/// The kernel passes on what a process with CAP_NET_ADMIN sends to a group. It looks at the message too, and leaves it at that: it is not a
/// request. Addresses of netlink have room for the first 32 groups.
#[derive(Debug)]
pub struct KernelGroup {
    socket: OwnedFd,
    family: u16,
    group: u32,
}

impl KernelGroup {
    /// Finds a group by the names of its family and itself.
    ///
    /// # Errors
    /// The kernel has no such family in this network namespace (`ENOENT`); its module may not be loaded. Or the group is beyond the 32nd.
    pub fn find(family: &str, group: &str) -> io::Result<Self> {
        let found = Family::named(family)?;
        let number = found.group(group).ok_or(io::ErrorKind::NotFound)?;
        if !(1..=32).contains(&number) {
            let problem = format!("group {group} of {family}: its number is {number}; expected 1 to 32");
            return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
        }
        let socket = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        Ok(Self { socket, family: found.id, group: number })
    }

    /// Returns the groups of an address that stands for this one.
    pub fn mask(&self) -> u32 {
        1 << (self.group - 1)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The kernel's, of which `EAGAIN` says that there is no room.
    pub fn send(&self, command: u8, attributes: &Attributes) -> io::Result<()> {
        let message = attributes.message(self.family, 0, command);
        let group = netlink::SocketAddrNetlink::new(0, self.mask());
        rustix::net::sendto(&self.socket, &message, SendFlags::DONTWAIT, &group)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_namespace;

    #[test]
    fn what_is_sent_to_a_group_comes_to_those_who_listen_to_it() {
        in_namespace(|| {
            // A family that each kernel has, and a group whose messages are of no consequence.
            let group = KernelGroup::find("nlctrl", "notify").unwrap();
            let listener = socket(SocketFlags::CLOEXEC).unwrap();
            rustix::net::bind(&listener, &netlink::SocketAddrNetlink::new(0, group.mask())).unwrap();
            let (mut attributes, mut inside) = (Attributes::default(), Attributes::default());
            inside.put(1, &[7]);
            attributes.put(99, b"abc");
            attributes.nest(98, &inside);
            group.send(77, &attributes).unwrap();
            let mut buffer = [0; 128];
            let (length, _) = rustix::net::recv(&listener, &mut buffer[..], RecvFlags::empty()).unwrap();
            let (kind, payload) = next_message(&mut &buffer[..length]).unwrap();
            assert_eq!((kind, payload[0]), (GENL_ID_CTRL, 77));
            assert_eq!(attribute(&payload[4..], 99), Some(&b"abc"[..]));
            assert!(attributes_hold(&payload[4..]));
            assert_eq!(KernelGroup::find("no such", "x").unwrap_err().raw_os_error(), Some(libc::ENOENT));
            assert!(KernelGroup::find("nlctrl", "x").is_err());
        });
    }

    fn attributes_hold(message: &[u8]) -> bool {
        let nested = attributes(message).find(|(kind, _)| kind & !NLA_F_NESTED == 98).map(|(_, value)| value);
        nested.and_then(|nested| attribute(nested, 1)) == Some(&[7])
    }
}
