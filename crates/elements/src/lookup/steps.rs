//! The steps of IPv4 forwarding as functions over some packets of a batch, for routers whose main loop is elsewhere: each
//! does to the packets of a mask what the element of its name does, and says with which of them to go on.

use fib::publish::Reader;
use fib::{Adjacency, Decision, FibFamily, NextHop, NextHopIndex, Policy, State, Table};
use graph::{ConfigError, Setup};
use packet::flow::{FlowFields, FlowHash};
use packet::wire::ethernet::HEADER_LEN;
use packet::{Family, MAX_BATCH, Mask, Packet, PacketType};

use super::family::ForwardFamily;
use super::fib_lookup::{MAIN, encapsulate};
use super::forwarding::ForwardingTables;
use super::redirects::input_port;
use crate::ip::check_ip_header::{self, CheckIPHeader};
use crate::ip::dec_ip_ttl;
use crate::marking::unstrip_to_mac_header::unstrip;

/// The EtherType of IPv4.
const IPV4: [u8; 2] = [8, 0];

/// The steps, with what they remember from one to the next of a batch.
pub struct Ipv4Steps {
    check: CheckIPHeader,
    /// Entered in this order: rules name tables that are there.
    policy: Reader<Policy>,
    reader: Reader<State<Adjacency>>,
    hash: FlowHash,
    /// The largest packet of each port, without Ethernet header.
    pub mtus: Vec<u32>,
    /// What the lookup found of each packet.
    numbers: Box<[NextHopIndex; MAX_BATCH]>,
    ports: Box<[u16; MAX_BATCH]>,
    /// Those of which it found a way.
    routed: Mask,
}

impl Ipv4Steps {
    /// Makes the steps for an element whose arguments begin with the names of ports; it has read all others.
    ///
    /// # Errors
    ///
    /// There are no tables for these ports.
    pub fn from_setup(setup: &mut Setup<'_>, ports: &[String]) -> Result<Self, ConfigError> {
        let tables = ForwardingTables::of_ports(setup, ports)?;
        Ok(Self {
            check: check_ip_header::frames_without_martians(setup.name()),
            policy: tables.policies.register(),
            reader: tables.readers.register(),
            hash: FlowHash { fields: FlowFields::Flow, key: setup.flow_key() },
            mtus: vec![u32::MAX; ports.len()],
            numbers: Box::new([NextHopIndex::NONE; MAX_BATCH]),
            ports: Box::new([0; MAX_BATCH]),
            routed: Mask::NONE,
        })
    }

    /// The router's addresses, from which nobody else sends (RFC 1812, 5.3.7).
    pub fn own(&mut self) -> &mut CheckIPHeader {
        &mut self.check
    }

    /// Begins another batch.
    pub fn begin(&mut self) {
        self.routed = Mask::NONE;
    }

    /// Checks the IPv4 headers of Ethernet frames and strips the link headers of the right ones. Returns these. Reports each wrong
    /// one to `refuse`, with the reason. Frames of other protocols stay as they are.
    pub fn check(
        &self,
        packets: &mut [Packet],
        mask: Mask,
        mut refuse: impl FnMut(usize, &'static str),
    ) -> Mask {
        let mut good = Mask::NONE;
        for number in mask.iter() {
            let Some(packet) = packets.get_mut(number) else { break };
            if packet.data().get(HEADER_LEN - 2..HEADER_LEN) != Some(&IPV4) {
                continue;
            }
            match self.check.check(packet) {
                Ok(()) => {
                    packet.set_link_header(0);
                    packet.strip(HEADER_LEN);
                    good.insert(number);
                }
                Err(reason) => refuse(number, reason),
            }
        }
        good
    }

    /// Looks the destinations up. Returns the packets whose next hop is a known neighbour behind another port. Packets with options
    /// and link-level broadcasts are not among them. Reports packets of blackhole routes to `refuse`.
    pub fn lookup(
        &mut self,
        packets: &[Packet],
        mask: Mask,
        mut refuse: impl FnMut(usize, &'static str),
    ) -> Mask {
        let policy = self.policy.enter();
        let rules = u32::rules(&policy);
        let state = self.reader.enter();
        let (mut addresses, mut found, mut places) =
            ([0_u32; MAX_BATCH], [NextHopIndex::NONE; MAX_BATCH], [0_u16; MAX_BATCH]);
        let mut count = 0;
        for number in mask.iter().take_while(|number| *number < packets.len()) {
            addresses[count] = packets[number].annotations().destination_ip();
            places[count] = number as u16;
            count += 1;
        }
        let is_plain = rules.is_main_only();
        let Some(table) = u32::table(&state, MAIN) else { return Mask::NONE };
        if is_plain {
            table.lookup_batch(&addresses[..count], &mut found[..count]);
        }
        let mut routed = Mask::NONE;
        for (place, (&number, found)) in places[..count].iter().zip(&mut found).enumerate() {
            let (number, destination) = (usize::from(number), addresses[place]);
            let packet = &packets[number];
            if !is_plain {
                let lookup = |vrf| {
                    u32::table(&state, vrf).map_or(NextHopIndex::NONE, |table| table.lookup(destination))
                };
                let source = <u32 as Family>::source(packet.data());
                *found = match rules.evaluate(input_port(packet), source, destination, lookup) {
                    Decision::Route(number) => number,
                    Decision::Blackhole => {
                        refuse(number, "blackhole");
                        continue;
                    }
                    _ => continue,
                };
            }
            match state.next_hops().resolve_with(*found, || u32::flow_hash(self.hash, packet.data())) {
                NextHop::Forward(adjacency)
                    if !u32::is_odd(packet)
                        && packet.packet_type() == PacketType::Host
                        && adjacency.port() != input_port(packet) =>
                {
                    self.numbers[number] = *found;
                    self.ports[number] = adjacency.port();
                    self.routed.insert(number);
                    routed.insert(number);
                }
                NextHop::Blackhole => refuse(number, "blackhole"),
                _ => {}
            }
        }
        routed
    }

    /// Returns the packets that are no longer than the MTU of the port that the lookup found for them.
    pub fn fits(&self, packets: &[Packet], mask: Mask) -> Mask {
        let mut fits = Mask::NONE;
        for number in mask.and(self.routed).iter().take_while(|number| *number < packets.len()) {
            let mtu = self.mtus.get(usize::from(self.ports[number])).copied().unwrap_or(0);
            if packets[number].len() <= mtu as usize {
                fits.insert(number);
            }
        }
        fits
    }

    /// Takes a hop off. Returns the packets that live on; the others are unchanged.
    pub fn decrement_ttl(&self, packets: &mut [Packet], mask: Mask) -> Mask {
        let mut alive = Mask::NONE;
        for number in mask.iter() {
            let Some(packet) = packets.get_mut(number) else { break };
            if dec_ip_ttl::decrement(packet).is_ok() {
                alive.insert(number);
            }
        }
        alive
    }

    /// Writes the headers of the next hops, so that packets are frames again. Tells `send` the port of each; packets of which the lookup
    /// found no way, or whose route has gone since, are not among them.
    pub fn apply(&mut self, packets: &mut [Packet], mask: Mask, mut send: impl FnMut(usize, u16)) {
        let state = self.reader.enter();
        let ready = mask.and(self.routed);
        self.routed = self.routed.and_not(ready);
        for number in ready.iter() {
            let Some(packet) = packets.get_mut(number) else { break };
            let hash = self.hash;
            let next_hop =
                state.next_hops().resolve_with(self.numbers[number], || u32::flow_hash(hash, packet.data()));
            if let NextHop::Forward(adjacency) = next_hop
                && encapsulate(packet, adjacency)
                && unstrip(packet)
            {
                send(number, adjacency.port());
            }
        }
    }

    /// Makes a packet begin with its link header again.
    pub fn whole(packet: &mut Packet) -> bool {
        unstrip(packet)
    }
}

impl std::fmt::Debug for Ipv4Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ipv4Steps").field("mtus", &self.mtus).finish_non_exhaustive()
    }
}
