//! Tables of nftables over netlink, for the [backstop](crate::backstop) and for [`esp_hooks`](crate::esp_hooks): what their rules
//! consist of, and the transactions that make and remove them.
//!
//! Expressions load something about the packet into a register, and go on to the next one where it is as expected; the last one is
//! a verdict. The first that does not find what it loads, such as a byte behind the end of the packet, ends the rule too.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

use crate::netlink::{Message, attributes, frames};

// include/uapi/linux/netfilter.h, netfilter/nfnetlink.h, netfilter/nf_tables.h.
const FAMILY_INET: u8 = 1;
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const GET_TABLE: u16 = NEW_TABLE + 1;
const DELETE_TABLE: u16 = NEW_TABLE + 2;
const NEW_CHAIN: u16 = NEW_TABLE + 3;
const NEW_RULE: u16 = NEW_TABLE + 6;
const GET_RULE: u16 = NEW_TABLE + 7;
const NEW_SET: u16 = NEW_TABLE + 9;
const NEW_ELEMENTS: u16 = NEW_TABLE + 12;
const GET_ELEMENTS: u16 = NEW_TABLE + 13;
const DELETE_ELEMENTS: u16 = NEW_TABLE + 14;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
/// A flag of a table: it belongs to the socket that made it.
pub(crate) const OWNER: u32 = 2;
const RULE_TABLE: u16 = 1;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const COUNTER_PACKETS: u16 = 2;
pub(crate) const META_MARK: u32 = 3;
/// The register of all our expressions.
pub(crate) const REGISTER: u32 = 1;
const REGISTER_VERDICT: u32 = 0;

/// `NF_DROP`.
pub(crate) const DROP: u32 = 0;
/// `NF_ACCEPT`: ends the chain; those of others follow.
pub(crate) const ACCEPT: u32 = 1;

/// Where on the way of a packet a chain is (`NF_INET_*`).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hook {
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    Output = 3,
}

/// A message without its sequence number: type, flags, attributes.
pub(crate) type Draft = (u16, u16, Vec<(u16, Vec<u8>)>);

/// Makes the bytes of an attribute, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (4 + value.len()) as u16;
    let mut bytes = [&length.to_ne_bytes(), &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Makes an attribute whose value are others.
fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind, &parts.concat())
}

/// Makes an attribute of four bytes in network order.
pub(crate) fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

/// Makes an attribute of two bytes in network order.
pub(crate) fn short(kind: u16, value: u16) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(value: &str) -> Vec<u8> {
    [value.as_bytes(), &[0]].concat()
}

/// Makes an expression of this name.
pub(crate) fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    nested(LIST_ELEMENT, &[attribute(EXPRESSION_NAME, &text(name)), nested(EXPRESSION_DATA, data)])
}

/// Loads something about the packet.
pub(crate) fn load(key: u32) -> Vec<u8> {
    expression("meta", &[number(1, REGISTER), number(2, key)])
}

/// Loads bytes of the packet, counted from its transport header.
pub(crate) fn load_transport(offset: u32, length: u32) -> Vec<u8> {
    const TRANSPORT: u32 = 2;
    expression("payload", &[number(1, REGISTER), number(2, TRANSPORT), number(3, offset), number(4, length)])
}

/// Loads a byte of the packet, counted from its IP header.
pub(crate) fn load_link(offset: u32, length: u32) -> Vec<u8> {
    const LINK: u32 = 0;
    expression("payload", &[number(1, REGISTER), number(2, LINK), number(3, offset), number(4, length)])
}

/// Loads a byte of the IP header.
pub(crate) fn load_network(offset: u32) -> Vec<u8> {
    const NETWORK: u32 = 1;
    expression("payload", &[number(1, REGISTER), number(2, NETWORK), number(3, offset), number(4, 1)])
}

fn compare(operation: u32, value: &[u8]) -> Vec<u8> {
    expression("cmp", &[number(1, REGISTER), number(2, operation), nested(3, &[attribute(1, value)])])
}

/// Goes on if the register is `value`.
pub(crate) fn is_equal(value: &[u8]) -> Vec<u8> {
    compare(0, value)
}

/// Goes on if the register is not `value`.
pub(crate) fn differs(value: &[u8]) -> Vec<u8> {
    compare(1, value)
}

/// Goes on if the register is in a set of the table.
pub(crate) fn is_in(set: &str) -> Vec<u8> {
    expression("lookup", &[attribute(1, &text(set)), number(2, REGISTER)])
}

/// Goes on unless the register is in a set of the table.
pub(crate) fn is_not_in(set: &str) -> Vec<u8> {
    const INVERTED: u32 = 1;
    expression("lookup", &[attribute(1, &text(set)), number(2, REGISTER), number(5, INVERTED)])
}

/// Keeps these bits of the register.
pub(crate) fn keep_bits(mask: u32) -> Vec<u8> {
    let data = |kind, value: u32| nested(kind, &[attribute(1, &value.to_ne_bytes())]);
    expression(
        "bitwise",
        &[number(1, REGISTER), number(2, REGISTER), number(3, 4), data(4, mask), data(5, 0)],
    )
}

/// Writes `value` to the register.
pub(crate) fn set_register(value: &[u8]) -> Vec<u8> {
    expression("immediate", &[number(1, REGISTER), nested(2, &[attribute(1, value)])])
}

/// Ends the chain with a verdict.
pub(crate) fn verdict(code: u32) -> Vec<u8> {
    let data = nested(2, &[nested(2, &[number(1, code)])]);
    expression("immediate", &[number(1, REGISTER_VERDICT), data])
}

/// Makes the message that makes a table.
pub(crate) fn table(name: &str, flags: u32) -> Draft {
    let attributes = vec![(TABLE_NAME, text(name)), (TABLE_FLAGS, flags.to_be_bytes().to_vec())];
    (NEW_TABLE, NLM_F_CREATE, attributes)
}

/// Makes the message that makes a chain of type filter.
pub(crate) fn chain(table: &str, name: &str, hook: Hook, priority: i32) -> Draft {
    let hook = [number(1, hook as u32), attribute(2, &priority.to_be_bytes())].concat();
    (NEW_CHAIN, NLM_F_CREATE, vec![(1, text(table)), (3, text(name)), (4, hook), (7, text("filter"))])
}

/// Makes the message that adds a rule behind the others of a chain.
pub(crate) fn rule(table: &str, chain: &str, expressions: &[Vec<u8>]) -> Draft {
    let attributes =
        vec![(RULE_TABLE, text(table)), (2, text(chain)), (RULE_EXPRESSIONS, expressions.concat())];
    (NEW_RULE, NLM_F_CREATE | NLM_F_APPEND, attributes)
}

/// What the elements of a set are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SetOf {
    /// Ports of UDP and TCP.
    Ports,
    /// Numbers of interfaces.
    Indexes,
    /// Names of interfaces.
    Names,
}

impl SetOf {
    /// The number by which the program nft prints elements, and their bytes.
    fn key(self) -> (u32, u32) {
        match self {
            SetOf::Ports => (13, 2),
            SetOf::Indexes => (20, 4),
            SetOf::Names => (41, 16),
        }
    }
}

/// Makes the message that makes a set. Rules behind it may name it. A transaction knows its new sets by numbers, which differ.
pub(crate) fn set(table: &str, name: &str, of: SetOf, number_of_set: u32) -> Draft {
    let (kind, bytes) = of.key();
    let numbers = [(4, kind), (5, bytes), (10, number_of_set)];
    let numbers = numbers.map(|(kind, value)| (kind, value.to_be_bytes().to_vec()));
    (NEW_SET, NLM_F_CREATE, [vec![(1, text(table)), (2, text(name))], numbers.to_vec()].concat())
}

/// Makes the messages that add elements to a set or take them from it.
pub(crate) fn change_set(table: &str, set: &str, elements: &[Vec<u8>], adds: bool) -> Vec<Draft> {
    /// An attribute is shorter than 64 KiB.
    const AT_ONCE: usize = 1024;
    let (kind, flags) = if adds { (NEW_ELEMENTS, NLM_F_CREATE) } else { (DELETE_ELEMENTS, 0) };
    let element = |value: &Vec<u8>| nested(LIST_ELEMENT, &[nested(1, &[attribute(1, value)])]);
    let message = |elements: &[Vec<u8>]| {
        let elements = elements.iter().flat_map(element).collect();
        (kind, flags, vec![(1, text(table)), (2, text(set)), (3, elements)])
    };
    elements.chunks(AT_ONCE).map(message).collect()
}

/// Makes the messages that add ports to a set or take them from it.
pub(crate) fn change_ports(table: &str, set: &str, ports: &[u16], adds: bool) -> Vec<Draft> {
    let ports: Vec<Vec<u8>> = ports.iter().map(|port| port.to_be_bytes().to_vec()).collect();
    change_set(table, set, &ports, adds)
}

/// Makes the messages that remove a table, if it is among those that are there. One that belonged to a process that has ended
/// is taken over first.
pub(crate) fn removal(name: &str, known: &[(String, u32)]) -> Vec<Draft> {
    let Some((_, flags)) = known.iter().find(|(known, _)| known == name) else { return Vec::new() };
    let of_table = vec![(TABLE_NAME, text(name))];
    let mut drafts = Vec::new();
    if flags & OWNER != 0 {
        let attributes = [of_table.clone(), vec![(TABLE_FLAGS, flags.to_be_bytes().to_vec())]].concat();
        drafts.push((NEW_TABLE, 0, attributes));
    }
    drafts.push((DELETE_TABLE, 0, of_table));
    drafts
}

/// Opens a socket to the packet filter of the thread's network namespace. Only the kernel may send to it.
pub(crate) fn open_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// The kernel's packet filter of the network namespace of the thread that opened it.
pub(crate) struct Netfilter {
    socket: Socket,
    sequence: u32,
}

impl Netfilter {
    /// Opens it.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { socket: open_socket()?, sequence: 0 })
    }

    /// Does all of this, or nothing.
    pub(crate) fn change(&mut self, drafts: Vec<Draft>) -> io::Result<()> {
        let Some(last) = drafts.len().checked_sub(1) else { return Ok(()) };
        self.sequence += 1;
        let limit = |kind| {
            // The number of the subsystem, in network byte order, is in the fixed fields.
            let [high, low] = SUBSYSTEM.to_be_bytes();
            Message::new(kind, NLM_F_REQUEST, self.sequence, &[0, 0, high, low]).finish()
        };
        let mut bytes = limit(BATCH_BEGIN);
        for (at, (kind, flags, attributes)) in drafts.into_iter().enumerate() {
            let flags = NLM_F_REQUEST | flags | if at == last { NLM_F_ACK } else { 0 };
            let message = Message::new(kind, flags, self.sequence, &[FAMILY_INET, 0, 0, 0]);
            let message =
                attributes.iter().fold(message, |message, (kind, value)| message.attribute(*kind, value));
            bytes.extend(message.finish());
        }
        bytes.extend(limit(BATCH_END));
        self.socket.send(&bytes, 0)?;
        // The first answer is the first error, or says that the last message was right, and so all were.
        self.answers(|_, _| {})
    }

    /// Asks for all of something, and shows the bytes of each behind its fixed fields.
    fn dump(&mut self, kind: u16, of: &[(u16, &str)], show: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.sequence += 1;
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        let message = Message::new(kind, flags, self.sequence, &[FAMILY_INET, 0, 0, 0]);
        let message = of.iter().fold(message, |message, (kind, name)| message.attribute(*kind, &text(name)));
        self.socket.send(&message.finish(), 0)?;
        self.answers(show)
    }

    /// Reads up to the last answer to the last question.
    fn answers(&self, mut show: impl FnMut(u16, &[u8])) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let (length, _) =
                rustix::net::recv(&self.socket, &mut buffer[..], rustix::net::RecvFlags::empty())?;
            for frame in frames(&buffer[..length]) {
                let frame = frame.map_err(io::Error::other)?;
                if frame.sequence != self.sequence {
                    continue;
                }
                match (frame.kind, frame.payload.first_chunk()) {
                    (DONE, _) => return Ok(()),
                    (ERROR, Some(&code)) => {
                        return match i32::from_ne_bytes(code) {
                            0 => Ok(()),
                            code => Err(io::Error::from_raw_os_error(-code)),
                        };
                    }
                    (kind, _) => show(kind, frame.payload.get(4..).unwrap_or_default()),
                }
            }
        }
    }

    /// Lists the names and flags of all tables.
    pub(crate) fn tables(&mut self) -> io::Result<Vec<(String, u32)>> {
        let mut tables = Vec::new();
        self.dump(GET_TABLE, &[], |_, bytes| {
            let (mut name, mut flags) = (String::new(), 0);
            for attribute in attributes(bytes).flatten() {
                match attribute.kind {
                    TABLE_NAME => name = attribute.text(),
                    TABLE_FLAGS => flags = attribute.u32().map_or(0, u32::from_be),
                    _ => {}
                }
            }
            tables.push((name, flags));
        })?;
        Ok(tables)
    }

    /// Lists the elements of a set.
    pub(crate) fn elements(&mut self, table: &str, set: &str) -> io::Result<Vec<Vec<u8>>> {
        const ELEMENTS: u16 = 3;
        const KEY: u16 = 1;
        let mut keys = Vec::new();
        self.dump(GET_ELEMENTS, &[(1, table), (2, set)], |_, bytes| {
            let lists = attributes(bytes).flatten().filter(|attribute| attribute.kind == ELEMENTS);
            for element in lists.flat_map(|list| list.nested().flatten()) {
                let key = element.nested().flatten().find(|part| part.kind == KEY);
                keys.extend(key.and_then(|key| Some(key.nested().flatten().next()?.value.to_vec())));
            }
        })?;
        Ok(keys)
    }

    /// Lists the counts of packets of a table's rules, in their order.
    pub(crate) fn counts(&mut self, table: &str) -> io::Result<Vec<u64>> {
        let mut counts = Vec::new();
        self.dump(GET_RULE, &[(RULE_TABLE, table)], |_, bytes| {
            let of_rule = attributes(bytes).flatten().filter(|attribute| attribute.kind == RULE_EXPRESSIONS);
            for expression in of_rule.flat_map(|list| list.nested().flatten()) {
                let parts: Vec<_> = expression.nested().flatten().collect();
                let part = |kind| parts.iter().find(|part| part.kind == kind);
                if part(EXPRESSION_NAME).is_none_or(|name| name.text() != "counter") {
                    continue;
                }
                let mut data = part(EXPRESSION_DATA).into_iter().flat_map(|data| data.nested().flatten());
                let packets = data.find(|field| field.kind == COUNTER_PACKETS);
                let packets = packets.and_then(|field| field.value.try_into().ok().map(u64::from_be_bytes));
                counts.push(packets.unwrap_or(0));
            }
        })?;
        Ok(counts)
    }
}
