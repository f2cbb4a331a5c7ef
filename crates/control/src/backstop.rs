//! The backstop of a router's filters, in Linux's packet filter (nftables).
//!
//! What the router leaves to Linux has not been judged by its access list, and Linux may forward it. So while something
//! filters, Linux forwards only those packets from our ports that carry a mark, which the router puts on what its
//! filters have permitted. All others are dropped and counted. The rules of a port are a table of their own:
//!
//! ```text
//! table inet brickway-eth1 {
//!     chain forward {
//!         type filter hook forward priority -10; policy accept;
//!         iifname "eth1" meta mark & 0x10000000 == 0 counter drop
//!         iifname "eth1" fib saddr . iif oif 0 counter drop          # with a reverse-path check
//!     }
//! }
//! ```
//!
//! and both once more with `sdifname`, for a port in a VRF. The second rule judges packets of which only Linux knows
//! whether their source is believed.
//!
//! A table belongs to the socket that made it (`flags owner`, Linux 5.12): nobody else removes it, and it goes when the
//! process ends, however that ends. With [`BackstopPort::stays`] it stays (`flags owner,persist`, Linux 6.9; before that
//! without an owner). As no packet carries the mark then, nothing from the port is forwarded.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

use crate::netlink::{Message, attributes, frames};

/// A port to guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackstopPort {
    /// The name of its interface in Linux.
    pub name: String,
    /// Whether its table outlives the process.
    pub stays: bool,
}

/// Which route to the source a packet has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceRoute {
    /// One by any interface.
    Any,
    /// One by the interface that the packet came in by.
    Back,
}

/// What the backstop of a port dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackstopDrops {
    /// The port.
    pub port: String,
    /// Why.
    pub reason: &'static str,
    /// Packets.
    pub packets: u64,
}

/// Why there is no backstop.
#[derive(Debug, thiserror::Error)]
#[error(
    "the backstop of the filters, a table of nftables: {0}; expected CAP_NET_ADMIN, no other router on these ports, and a \
     kernel with nf_tables and its `fib` expression (modprobe nft_fib_inet)"
)]
pub struct BackstopError(io::Error);

/// The tables of a router's ports.
pub struct Backstop {
    netfilter: Netfilter,
    ports: Vec<String>,
}

const UNMARKED: &str = "not judged by the router";
const NO_ROUTE_BACK: &str = "no route back in Linux";

impl Backstop {
    /// Sets up the tables of these ports in one step, in the place of those that a router before us left. What comes in
    /// by them is forwarded with the bit `mark` in its mark, and, if that matters, with a route to its source.
    ///
    /// # Errors
    /// The kernel has no nf_tables, or we lack the right, or another router has one of the ports.
    pub fn raise(
        ports: &[BackstopPort],
        mark: u32,
        source: Option<SourceRoute>,
    ) -> Result<Self, BackstopError> {
        Self::set_up(ports, mark, source).map_err(BackstopError)
    }

    fn set_up(ports: &[BackstopPort], mark: u32, source: Option<SourceRoute>) -> io::Result<Self> {
        let mut netfilter = Netfilter::open()?;
        let known = netfilter.tables()?;
        let mut result = Ok(());
        for persist in [OWNER | PERSIST, 0] {
            let mut messages = Vec::new();
            for port in ports {
                messages.extend(removal(&table_of(&port.name), &known));
                messages.extend(table(port, if port.stays { persist } else { OWNER }, mark, source));
            }
            result = netfilter.change(messages);
            // Older kernels do not know that flag.
            let is_unknown = result.as_ref().err().and_then(io::Error::raw_os_error) == Some(EOPNOTSUPP);
            if !is_unknown {
                break;
            }
        }
        result?;
        Ok(Self { netfilter, ports: ports.iter().map(|port| port.name.clone()).collect() })
    }

    /// What was dropped so far.
    ///
    /// # Errors
    /// The tables cannot be read.
    pub fn drops(&mut self) -> io::Result<Vec<BackstopDrops>> {
        let mut drops = Vec::new();
        for port in &self.ports {
            let (mut unmarked, mut no_route) = (0, 0);
            for (number, packets) in self.netfilter.counts(&table_of(port))?.into_iter().enumerate() {
                // Both rules for the interface, and both for that of a VRF.
                *if number < 2 { &mut unmarked } else { &mut no_route } += packets;
            }
            for (reason, packets) in [(UNMARKED, unmarked), (NO_ROUTE_BACK, no_route)] {
                drops.push(BackstopDrops { port: port.clone(), reason, packets });
            }
        }
        Ok(drops)
    }
}

impl std::fmt::Debug for Backstop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backstop").field("ports", &self.ports).finish_non_exhaustive()
    }
}

/// The ports that have a table, of this process, another one, or one that has ended.
///
/// # Errors
/// The kernel does not say: it has no nf_tables, or we lack the right.
pub fn guarded_ports() -> io::Result<Vec<String>> {
    let tables = Netfilter::open()?.tables()?;
    Ok(tables.into_iter().filter_map(|(name, _)| name.strip_prefix(PREFIX).map(str::to_owned)).collect())
}

/// Removes the tables of these ports that no process has, where there are some.
///
/// # Errors
/// A process has one of them.
pub fn remove(ports: &[String]) -> io::Result<()> {
    let mut netfilter = Netfilter::open()?;
    let known = netfilter.tables()?;
    netfilter.change(ports.iter().flat_map(|port| removal(&table_of(port), &known)).collect())
}

/// What the names of the tables begin with; the port follows.
pub const PREFIX: &str = "brickway-";

fn table_of(port: &str) -> String {
    format!("{PREFIX}{port}")
}

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
const ERROR: u16 = 2;
const DONE: u16 = 3;
const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const OWNER: u32 = 2;
const PERSIST: u32 = 4;
const HOOK_FORWARD: u32 = 2;
/// Before the filters of others, which then count only what passes.
const PRIORITY: i32 = -10;
const RULE_TABLE: u16 = 1;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const COUNTER_PACKETS: u16 = 2;
const META_MARK: u32 = 3;
const META_INPUT: u32 = 6;
/// The interface below a VRF's.
const META_BELOW_VRF: u32 = 34;
const REGISTER: u32 = 1;
const REGISTER_VERDICT: u32 = 0;
const INTERFACE_NAME_BYTES: usize = 16;
const EOPNOTSUPP: i32 = 95;

/// A message without its sequence number: type, flags, attributes.
type Draft = (u16, u16, Vec<(u16, Vec<u8>)>);

/// Bytes of an attribute, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (4 + value.len()) as u16;
    let mut bytes = [&length.to_ne_bytes(), &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// One whose value are others.
fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind, &parts.concat())
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(value: &str) -> Vec<u8> {
    [value.as_bytes(), &[0]].concat()
}

fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    nested(LIST_ELEMENT, &[attribute(EXPRESSION_NAME, &text(name)), nested(EXPRESSION_DATA, data)])
}

/// Loads something about the packet.
fn load(key: u32) -> Vec<u8> {
    expression("meta", &[number(1, REGISTER), number(2, key)])
}

/// Goes on if the register is `value`.
fn is_equal(value: &[u8]) -> Vec<u8> {
    expression("cmp", &[number(1, REGISTER), number(2, 0), nested(3, &[attribute(1, value)])])
}

/// Keeps these bits of the register.
fn keep_bits(mask: u32) -> Vec<u8> {
    let data = |kind, value: u32| nested(kind, &[attribute(1, &value.to_ne_bytes())]);
    expression(
        "bitwise",
        &[number(1, REGISTER), number(2, REGISTER), number(3, 4), data(4, mask), data(5, 0)],
    )
}

/// Loads the interface of the route to the source; 0: there is none.
fn load_source_route(route: SourceRoute) -> Vec<u8> {
    const TO_SOURCE: u32 = 1;
    const BY_INPUT: u32 = 8;
    const INTERFACE: u32 = 1;
    let flags = if route == SourceRoute::Back { TO_SOURCE | BY_INPUT } else { TO_SOURCE };
    expression("fib", &[number(1, REGISTER), number(2, INTERFACE), number(3, flags)])
}

fn count_and_drop() -> [Vec<u8>; 2] {
    // A verdict with code 0 (NF_DROP).
    let verdict = nested(2, &[nested(2, &[number(1, 0)])]);
    [expression("counter", &[]), expression("immediate", &[number(1, REGISTER_VERDICT), verdict])]
}

/// The messages that make the table of a port.
fn table(port: &BackstopPort, flags: u32, mark: u32, source: Option<SourceRoute>) -> Vec<Draft> {
    let table = text(&table_of(&port.name));
    let chain = text("forward");
    let hook = [number(1, HOOK_FORWARD), attribute(2, &PRIORITY.to_be_bytes())].concat();
    let mut drafts = vec![
        (
            NEW_TABLE,
            NLM_F_CREATE,
            vec![(TABLE_NAME, table.clone()), (TABLE_FLAGS, flags.to_be_bytes().to_vec())],
        ),
        (
            NEW_CHAIN,
            NLM_F_CREATE,
            vec![(1, table.clone()), (3, chain.clone()), (4, hook), (7, text("filter"))],
        ),
    ];
    let mut name = port.name.clone().into_bytes();
    name.resize(INTERFACE_NAME_BYTES, 0);
    let unmarked = vec![load(META_MARK), keep_bits(mark), is_equal(&0_u32.to_ne_bytes())];
    let without_route = source.map(|route| vec![load_source_route(route), is_equal(&0_u32.to_ne_bytes())]);
    for condition in [Some(unmarked), without_route].into_iter().flatten() {
        for key in [META_INPUT, META_BELOW_VRF] {
            let comes_by = [load(key), is_equal(&name)];
            let expressions = [&comes_by[..], &condition, &count_and_drop()].concat().concat();
            let rule = vec![(RULE_TABLE, table.clone()), (2, chain.clone()), (RULE_EXPRESSIONS, expressions)];
            drafts.push((NEW_RULE, NLM_F_CREATE | NLM_F_APPEND, rule));
        }
    }
    drafts
}

/// The messages that remove a table, if it is among those that are there. One that belonged to a process that has ended
/// is taken over first.
fn removal(name: &str, known: &[(String, u32)]) -> Vec<Draft> {
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

/// The kernel's packet filter of the network namespace of the thread that opened it.
struct Netfilter {
    socket: Socket,
    sequence: u32,
}

impl Netfilter {
    fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Does all of this, or nothing.
    fn change(&mut self, drafts: Vec<Draft>) -> io::Result<()> {
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
    fn dump(&mut self, kind: u16, of: Option<&str>, show: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.sequence += 1;
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        let message = Message::new(kind, flags, self.sequence, &[FAMILY_INET, 0, 0, 0]);
        let message = match of {
            Some(table) => message.attribute(RULE_TABLE, &text(table)),
            None => message,
        };
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

    /// The names and flags of all tables.
    fn tables(&mut self) -> io::Result<Vec<(String, u32)>> {
        let mut tables = Vec::new();
        self.dump(GET_TABLE, None, |_, bytes| {
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

    /// The counts of packets of a table's rules, in their order.
    fn counts(&mut self, table: &str) -> io::Result<Vec<u64>> {
        let mut counts = Vec::new();
        self.dump(GET_RULE, Some(table), |_, bytes| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use testbed::in_namespace;

    const MARK: u32 = 0x1000_0000;

    fn port(name: &str, stays: bool) -> BackstopPort {
        BackstopPort { name: name.into(), stays }
    }

    fn guarded() -> Vec<String> {
        let mut ports = guarded_ports().unwrap();
        ports.sort();
        ports
    }

    #[test]
    fn tables_go_with_their_process_unless_they_are_to_stay() {
        in_namespace(|| {
            let ports = [port("eth1", false), port("eth2", true)];
            let mut backstop = Backstop::raise(&ports, MARK, Some(SourceRoute::Back)).unwrap();
            assert_eq!(guarded(), ["eth1", "eth2"]);
            let drops = backstop.drops().unwrap();
            let told: Vec<_> = drops.iter().map(|row| (row.port.as_str(), row.reason, row.packets)).collect();
            let expected = ["eth1", "eth2"].map(|port| [(port, UNMARKED, 0), (port, NO_ROUTE_BACK, 0)]);
            assert_eq!(told, expected.concat());
            // While the router is there nobody else has a say.
            assert!(remove(&["eth1".into()]).is_err());
            assert!(Backstop::raise(&ports[..1], MARK, None).is_err());
            drop(backstop);
            assert_eq!(guarded(), ["eth2"]);
            // The next router takes the place of the one before, without a moment in between.
            let backstop = Backstop::raise(&ports, MARK, Some(SourceRoute::Any)).unwrap();
            assert_eq!(guarded(), ["eth1", "eth2"]);
            drop(backstop);
            drop(Backstop::raise(&[port("eth2", false)], MARK, None).unwrap());
            assert_eq!(guarded(), [""; 0]);
            drop(Backstop::raise(&ports, MARK, None).unwrap());
            remove(&["eth1".into(), "eth2".into()]).unwrap();
            assert_eq!(guarded(), [""; 0]);
            assert!(Backstop::raise(&[], MARK, None).unwrap().drops().unwrap().is_empty());
        });
    }
}
