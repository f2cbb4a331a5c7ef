//! The steps of forwarding as functions over some packets of a batch, for routers whose main loop is elsewhere: each does to the
//! packets of a mask what the element of its name does, and says with which of them to go on.

use fib::publish::Reader;
use fib::{Adjacency, Decision, NextHop, NextHopIndex, Policy, State};
use graph::{ConfigError, Setup};
use packet::multipath::PathHash;
use packet::wire::ethernet::HEADER_LEN;
use packet::{MAX_BATCH, Mask, Packet, PacketType};

use super::family::ForwardFamily;
use super::fib_lookup::{MAIN, encapsulate, path_hash};
use super::forwarding::ForwardingTables;
use super::redirects::input_port;
use crate::ip::check_ip_header::{self, CheckIPHeader};
use crate::ip::dec_ip_ttl;
use crate::ip6::check_ip6_header::{self, CheckIp6Header};
use crate::ip6::dec_ip6_hlim;
use crate::marking::unstrip_to_mac_header::unstrip;
use crate::runs::{handle_ip, handle_ipv6};

/// What the steps have to know of a family.
trait StepFamily: ForwardFamily {
    const ETHERTYPE: [u8; 2];
    /// The element that checks its headers.
    type Check;

    fn checking(name: &str) -> Self::Check;

    /// Does all that [`StepFamily::check`] and [`ForwardingSteps`] do to a frame with a plain header; `false`, and no change, if it has
    /// another one.
    fn check_plain(element: &Self::Check, packet: &mut Packet) -> bool;

    /// Checks a frame's header. Returns why it is wrong.
    fn check(element: &Self::Check, packet: &mut Packet) -> Result<(), &'static str>;

    /// Takes a hop off. Returns whether the packet lives on.
    fn decrement(packet: &mut Packet) -> bool;
}

impl StepFamily for u32 {
    const ETHERTYPE: [u8; 2] = [8, 0];
    type Check = CheckIPHeader;

    fn checking(name: &str) -> CheckIPHeader {
        check_ip_header::frames_without_martians(name)
    }

    #[inline(always)]
    fn check_plain(element: &CheckIPHeader, packet: &mut Packet) -> bool {
        handle_ip(element.refused_sources(), true, HEADER_LEN, HEADER_LEN, packet)
    }

    #[inline(always)]
    fn check(element: &CheckIPHeader, packet: &mut Packet) -> Result<(), &'static str> {
        element.check(packet)
    }

    #[inline(always)]
    fn decrement(packet: &mut Packet) -> bool {
        dec_ip_ttl::decrement(packet).is_ok()
    }
}

impl StepFamily for u128 {
    const ETHERTYPE: [u8; 2] = [0x86, 0xdd];
    type Check = CheckIp6Header;

    fn checking(name: &str) -> CheckIp6Header {
        check_ip6_header::frames_without_martians(name)
    }

    #[inline(always)]
    fn check_plain(element: &CheckIp6Header, packet: &mut Packet) -> bool {
        handle_ipv6(element.refused_sources(), HEADER_LEN, HEADER_LEN, packet)
    }

    #[inline(always)]
    fn check(element: &CheckIp6Header, packet: &mut Packet) -> Result<(), &'static str> {
        element.check(packet)
    }

    #[inline(always)]
    fn decrement(packet: &mut Packet) -> bool {
        dec_ip6_hlim::decrement(packet).is_ok()
    }
}

/// The steps, with what they remember from one to the next of a batch.
pub struct ForwardingSteps {
    ipv4: Steps<u32>,
    ipv6: Steps<u128>,
    /// The largest packet of each port, without Ethernet header.
    pub mtus: Vec<[u32; 2]>,
}

/// Those of a family.
struct Steps<A: StepFamily> {
    /// Of each port.
    checks: Vec<A::Check>,
    /// That of the port of the batch.
    input: usize,
    /// Entered in this order: rules name tables that are there.
    policy: Reader<Policy>,
    reader: Reader<State<Adjacency>>,
    hash: PathHash,
    /// Those that have been checked.
    checked: Mask,
    /// Room for the lookups of one batch.
    addresses: Box<[A; MAX_BATCH]>,
    found: Box<[NextHopIndex; MAX_BATCH]>,
    /// What the lookup found of each packet.
    numbers: Box<[NextHopIndex; MAX_BATCH]>,
    ports: Box<[u16; MAX_BATCH]>,
    /// Those of which it found a way.
    routed: Mask,
}

impl ForwardingSteps {
    /// Makes the steps for an element whose arguments begin with the names of ports; it has read all others.
    ///
    /// # Errors
    ///
    /// There are no tables for these ports.
    pub fn from_setup(setup: &mut Setup<'_>, ports: &[String]) -> Result<Self, ConfigError> {
        let tables = ForwardingTables::of_ports(setup, ports)?;
        Ok(Self {
            ipv4: Steps::new(setup, &tables, ports.len()),
            ipv6: Steps::new(setup, &tables, ports.len()),
            mtus: vec![[u32::MAX; 2]; ports.len()],
        })
    }

    /// What has the router's IPv4 addresses, from which nobody else sends (RFC 1812, 5.3.7) to this port.
    /// `None` where there is no such port.
    pub fn own4(&mut self, port: usize) -> Option<&mut CheckIPHeader> {
        self.ipv4.checks.get_mut(port)
    }

    /// Begins another batch, which came in by this port.
    #[inline]
    pub fn begin(&mut self, port: usize) {
        (self.ipv4.input, self.ipv6.input) = (port, port);
        (self.ipv4.checked, self.ipv4.routed) = (Mask::NONE, Mask::NONE);
        (self.ipv6.checked, self.ipv6.routed) = (Mask::NONE, Mask::NONE);
    }

    /// Checks the IPv4 headers of Ethernet frames and strips the link headers of the right ones. Returns these. Reports each wrong
    /// one to `refuse`, with the reason. Frames of other protocols stay as they are.
    pub fn check4(
        &mut self,
        packets: &mut [Packet],
        mask: Mask,
        refuse: impl FnMut(usize, &'static str),
    ) -> Mask {
        self.ipv4.check(packets, self.unchecked(mask), refuse)
    }

    /// The same for IPv6.
    pub fn check6(
        &mut self,
        packets: &mut [Packet],
        mask: Mask,
        refuse: impl FnMut(usize, &'static str),
    ) -> Mask {
        self.ipv6.check(packets, self.unchecked(mask), refuse)
    }

    /// Looks up the destinations of packets that have been checked. Returns those whose next hop is a known neighbour behind another
    /// port. Packets with options and link-level broadcasts are not among them. Reports packets of blackhole routes to `refuse`.
    pub fn lookup(
        &mut self,
        packets: &mut [Packet],
        mask: Mask,
        mut refuse: impl FnMut(usize, &'static str),
    ) -> Mask {
        let (of4, of6) = self.parts(mask);
        let routed = if of4 == Mask::NONE { of4 } else { self.ipv4.lookup(packets, of4, &mut refuse) };
        if of6 == Mask::NONE { routed } else { routed.or(self.ipv6.lookup(packets, of6, refuse)) }
    }

    /// The packets that still begin with their Ethernet header.
    fn unchecked(&self, mask: Mask) -> Mask {
        mask.and_not(self.ipv4.checked).and_not(self.ipv6.checked)
    }

    /// The packets of each family that have been checked.
    fn parts(&self, mask: Mask) -> (Mask, Mask) {
        (mask.and(self.ipv4.checked), mask.and(self.ipv6.checked))
    }

    /// Returns the packets that are no longer than the MTU of the port that the lookup found for them.
    pub fn fits(&self, packets: &mut [Packet], mask: Mask) -> Mask {
        let fits = |family: usize, ports: &[u16], number: usize, packet: &Packet| {
            let mtus = self.mtus.get(usize::from(ports[number]));
            mtus.is_some_and(|mtus| {
                let longest = mtus[family] as usize;
                packet.len() <= longest || packet.piece_len() <= longest
            })
        };
        let (of4, of6) = (mask.and(self.ipv4.routed), mask.and(self.ipv6.routed));
        let of4 = of4.retain(packets, |number, packet| fits(0, &self.ipv4.ports[..], number, packet));
        of4.or(of6.retain(packets, |number, packet| fits(1, &self.ipv6.ports[..], number, packet)))
    }

    /// Takes a hop off packets that have been checked. Returns those that live on; the others are unchanged.
    pub fn decrement_ttl(&self, packets: &mut [Packet], mask: Mask) -> Mask {
        let (of4, of6) = self.parts(mask);
        let of4 = of4.retain(packets, |_, packet| u32::decrement(packet));
        of4.or(of6.retain(packets, |_, packet| u128::decrement(packet)))
    }

    /// Writes the headers of the next hops, so that packets are frames again. Reports the port of each to `send`. Returns these; packets
    /// for which the lookup found no way, or whose route has gone since, are not among them.
    pub fn apply(&mut self, packets: &mut [Packet], mask: Mask, mut send: impl FnMut(usize, u16)) -> Mask {
        let of4 = self.ipv4.apply(packets, mask, &mut send);
        of4.or(self.ipv6.apply(packets, mask, send))
    }

    /// Makes a packet begin with its link header again.
    pub fn whole(packet: &mut Packet) -> bool {
        unstrip(packet)
    }
}

impl<A: StepFamily> Steps<A> {
    fn new(setup: &Setup<'_>, tables: &ForwardingTables, ports: usize) -> Self {
        Self {
            checks: (0..ports).map(|_| A::checking(setup.name())).collect(),
            input: 0,
            policy: tables.policies.register(),
            reader: tables.readers.register(),
            hash: PathHash { key: setup.flow_key(), policies: tables.paths.clone() },
            checked: Mask::NONE,
            addresses: Box::new([A::MIN; MAX_BATCH]),
            found: Box::new([NextHopIndex::NONE; MAX_BATCH]),
            numbers: Box::new([NextHopIndex::NONE; MAX_BATCH]),
            ports: Box::new([0; MAX_BATCH]),
            routed: Mask::NONE,
        }
    }

    fn check(
        &mut self,
        packets: &mut [Packet],
        mask: Mask,
        mut refuse: impl FnMut(usize, &'static str),
    ) -> Mask {
        let Some(check) = self.checks.get(self.input) else { return Mask::NONE };
        let good = mask.retain(packets, |number, packet| {
            if packet.data().get(HEADER_LEN - 2..HEADER_LEN) != Some(&A::ETHERTYPE) {
                return false;
            }
            packet.set_link_header(0);
            if A::check_plain(check, packet) {
                return true;
            }
            match A::check(check, packet) {
                Ok(()) => packet.strip(HEADER_LEN),
                Err(reason) => {
                    refuse(number, reason);
                    false
                }
            }
        });
        self.checked = self.checked.or(good);
        good
    }

    fn lookup(
        &mut self,
        packets: &mut [Packet],
        mask: Mask,
        mut refuse: impl FnMut(usize, &'static str),
    ) -> Mask {
        if !A::rules(&self.policy.enter()).is_main_only() {
            return self.lookup_by_rules(packets, mask, refuse);
        }
        let Self { reader, hash, addresses, found, numbers, ports, .. } = self;
        let state = reader.enter();
        let Some(table) = A::table(&state, MAIN) else { return Mask::NONE };
        let mut count = 0;
        mask.retain(packets, |_, packet| {
            addresses[count % MAX_BATCH] = A::destination(packet.annotations());
            count += 1;
            true
        });
        let found = &mut found[..count];
        table.lookup_batch(&addresses[..count], found);
        let next_hops = state.next_hops();
        let first = found.first().copied().unwrap_or_default();
        // Mostly one for all.
        let is_same = found.iter().fold(0, |difference, other| difference | (other.get() ^ first.get())) == 0;
        let single = next_hops.resolve_single(first).filter(|_| is_same);
        let mut found = found.iter();
        let routed = mask.retain(packets, |number, packet| {
            let of = found.next().copied().unwrap_or_default();
            let next_hop = match single {
                Some(single) => single,
                None => next_hops.resolve_with(of, || path_hash::<A>(hash, packet)),
            };
            numbers[number] = of;
            leaves::<A>(next_hop, packet, &mut ports[number], || refuse(number, "blackhole"))
        });
        self.routed = self.routed.or(routed);
        routed
    }

    /// The same where rules choose the tables, packet by packet.
    #[cold]
    fn lookup_by_rules(
        &mut self,
        packets: &mut [Packet],
        mask: Mask,
        mut refuse: impl FnMut(usize, &'static str),
    ) -> Mask {
        let Self { policy, reader, hash, numbers, ports, .. } = self;
        let policy = policy.enter();
        let rules = A::rules(&policy);
        let state = reader.enter();
        let routed = mask.retain(packets, |number, packet| {
            let destination = A::destination(packet.annotations());
            let lookup =
                |vrf| A::table(&state, vrf).map_or(NextHopIndex::NONE, |table| table.lookup(destination));
            let source = A::source(packet.data());
            numbers[number] = match rules.evaluate(input_port(packet), source, destination, lookup) {
                Decision::Route(of) => of,
                Decision::Blackhole => {
                    refuse(number, "blackhole");
                    return false;
                }
                _ => return false,
            };
            let next_hops = state.next_hops();
            let next_hop = next_hops.resolve_with(numbers[number], || path_hash::<A>(hash, packet));
            leaves::<A>(next_hop, packet, &mut ports[number], || refuse(number, "blackhole"))
        });
        self.routed = self.routed.or(routed);
        routed
    }

    fn apply(&mut self, packets: &mut [Packet], mask: Mask, mut send: impl FnMut(usize, u16)) -> Mask {
        let ready = mask.and(self.routed);
        if ready == Mask::NONE {
            return ready;
        }
        self.routed = self.routed.and_not(ready);
        let state = self.reader.enter();
        let next_hops = state.next_hops();
        let mut last = (NextHopIndex::NONE, None);
        ready.retain(packets, |number, packet| {
            let of = self.numbers[number];
            if of != last.0 {
                last = (of, next_hops.resolve_single(of));
            }
            let next_hop = match last.1 {
                Some(single) => single,
                None => next_hops.resolve_with(of, || path_hash::<A>(&self.hash, packet)),
            };
            let NextHop::Forward(adjacency) = next_hop else { return false };
            let is_frame = match <&[u8; HEADER_LEN]>::try_from(adjacency.rewrite()) {
                Ok(header) => packet.prepend_link_header(header),
                Err(_) => encapsulate(packet, adjacency) && unstrip(packet),
            };
            if is_frame {
                send(number, adjacency.port());
            }
            is_frame
        })
    }
}

/// Whether a packet leaves by a port, which is written down: its next hop is a known neighbour behind another one than it came from.
#[inline(always)]
fn leaves<A: StepFamily>(
    next_hop: &NextHop<Adjacency>,
    packet: &Packet,
    port: &mut u16,
    refuse: impl FnOnce(),
) -> bool {
    match next_hop {
        NextHop::Forward(adjacency) => {
            *port = adjacency.port();
            !A::is_odd(packet) && packet.packet_type() == PacketType::Host && *port != input_port(packet)
        }
        NextHop::Blackhole => {
            refuse();
            false
        }
        _ => false,
    }
}

impl std::fmt::Debug for ForwardingSteps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForwardingSteps").field("mtus", &self.mtus).finish_non_exhaustive()
    }
}
