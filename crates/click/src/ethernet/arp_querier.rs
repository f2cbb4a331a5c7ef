//! =c
//! ARPQuerier(IP, ETH, I<keywords> TABLE, CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, TIMEOUT, POLL_TIMEOUT, BROADCAST, BROADCAST_POLL)
//!
//! =s arp
//! encapsulates IP packets in Ethernet headers found via ARP
//!
//! =d
//! Uses ARP (RFC 826) on an interface with the address IP and the Ethernet address ETH. Input 0
//! takes IP packets whose destination annotation is the next hop. If the Ethernet address of the
//! next hop is known, the packet gets an Ethernet header and leaves by output 0. Otherwise the
//! packet waits, and an ARP query is sent. The query leaves by output 1 if that is in use, else by
//! output 0. Input 1 takes ARP packets with their Ethernet header. When one answers a query, the
//! packets that wait for it leave, in order.
//!
//! Packets for 255.255.255.255, and for the BROADCAST address, go to FF-FF-FF-FF-FF-FF without a
//! query. Multicast packets go to the group's Ethernet address (RFC 1112). Packets for 0.0.0.0 are
//! dropped. IP may be a prefix such as C<10.0.0.1/24>. Then BROADCAST is the last address of its
//! network unless it is given.
//!
//! At most one query a second is sent for an address (RFC 1122, 2.3.2.1), and repeated while
//! packets wait. A packet waits at most three seconds. Then it leaves by output 2, as it came, if
//! that is connected, and is dropped otherwise. Output 2 is for an ICMPError that reports to its
//! sender that the host is unreachable (RFC 1812, 3.3.2).
//!
//! An address is learned only from packets with a sender that was asked for, or that is known
//! already. Requests are such packets too (RFC 826). A sender with our own IP address is reported
//! as a conflict, at most once in ten seconds.
//!
//! Keyword arguments are:
//!
//! =over 8
//!
//! =item TABLE
//!
//! Name of an ARPTable, which several ARPQueriers may share. The table then has the limits, and
//! CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY and TIMEOUT have no effect here. By default each
//! ARPQuerier has a table of its own.
//!
//! =item CAPACITY
//!
//! Most packets that wait, on all workers together; 0 sets no limit. When there are more, the oldest one is
//! dropped. 2048 by default.
//!
//! =item ENTRY_CAPACITY
//!
//! Most addresses in the table, those without an answer included; 0 sets no limit. Addresses
//! without an answer make room first, then the address whose neighbour has been silent for longest.
//! 65536 by default.
//!
//! =item ENTRY_PACKET_CAPACITY
//!
//! Most packets that wait for one address, on each worker; 0 sets no limit, and the default. When there are
//! more, the oldest is dropped, since RFC 1122, 2.3.2.2, wants the latest to be kept.
//!
//! =item TIMEOUT
//!
//! How long an address is known after its last answer; 0 is for ever. 5 minutes by default.
//!
//! =item POLL_TIMEOUT
//!
//! How long after its last answer a neighbour that is in use is asked again, at its Ethernet address; 0 is
//! never. 1 minute by default.
//!
//! =item BROADCAST
//!
//! The broadcast address of the local network.
//!
//! =item BROADCAST_POLL
//!
//! Whether known neighbours are asked again by broadcast; false by default.
//!
//! =back
//!
//! All workers share one table. Each has its own copy of what it needs to forward, so that packets
//! cost no lock.
//!
//! Different from Click:
//!
//! =over 8
//!
//! =item *
//! At most one query a second is sent instead of ten.
//!
//! =item *
//! Queries are repeated without further packets.
//!
//! =item *
//! Packets wait three seconds and not as long as TIMEOUT.
//!
//! =item *
//! Answers that nobody asked for are not learned.
//!
//! =item *
//! ENTRY_CAPACITY has a limit by default.
//!
//! =item *
//! Output 2 is an addition.
//!
//! =item *
//! There is no CAPACITY_SLIM_FACTOR.
//!
//! =back
//!
//! Packets are dropped as `ARP queue full`, `ARP timeout`, `ARP table cleared`,
//! `no next hop address`, `no room for an Ethernet header`, `no own IP address`,
//! `unsolicited ARP packet`, `ARP sender is not a unicast address`,
//! `ARP packet with our own IP address`, `not an ARP packet`, or by the fault of the ARP packet.
//!
//! =e
//!   c :: Classifier(12/0806 20/0002, 12/0800, -);
//!   arpq :: ARPQuerier(18.26.4.24/24, 00-00-C0-AE-67-EF);
//!   c[0] -> [1]arpq;
//!   c[1] -> Strip(14) -> CheckIPHeader -> [0]arpq -> ToDevice(eth0);
//!
//! =a ARPTable, ARPResponder, ARPFaker, EtherEncap

use std::net::Ipv4Addr;

use graph::arguments::Raw;
use graph::lang::unquote;
use graph::{Class, Combine, ConfigError, Element, FromArgument, Get, Handler, Put, Setup, names};
use ipnet::Ipv4Net;
use packet::wire::arp::ArpRepr;
use packet::wire::ethernet::{EtherType, MacAddr};

use super::arp_frame::{self, FRAME_LEN};
use super::arp_table;
use super::neighbour_table::Claim;
use super::querier::{Options, Protocol, Querier, Words};

pub(crate) static CLASS: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "ARPQuerier",
    ports: "2/1-3",
    processing: Class::PUSH,
    flow: "xy/x",
    handlers: &[
        Querier::<Arp>::OWN_ADDRESS,
        Handler::read_write(
            "broadcast",
            Combine::First,
            "The broadcast address.",
            &Get(|e: &mut Querier<Arp>| e.protocol.broadcast.to_string()),
            &Put(|e: &mut Querier<Arp>, cx, value| {
                e.change(cx, |e, _| {
                    e.protocol.broadcast = Ipv4Addr::from_value(value)?;
                    Ok(())
                })
            }),
        ),
        Querier::<Arp>::TABLE,
        Querier::<Arp>::STATS,
        Querier::<Arp>::QUERIES,
        Querier::<Arp>::RESPONSES,
        Querier::<Arp>::COUNT,
        Querier::<Arp>::LENGTH,
        Querier::<Arp>::INSERT,
        Querier::<Arp>::DELETE,
        Querier::<Arp>::CLEAR,
    ],
    manual: graph::manual!("arp_querier.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let mut options = Options::read(arguments, 300, 60)?;
    let table_name: Option<String> = arguments.keyword("TABLE")?;
    let broadcast: Option<Ipv4Addr> = arguments.keyword("BROADCAST")?;
    let broadcast_poll = arguments.keyword_or("BROADCAST_POLL", false)?;
    let Raw(own_text) = arguments.required("IP")?;
    let own = Ipv4Net::from_argument(&own_text).ok_or_else(|| {
        ConfigError::new(format!(
            "IP: expected {}, got '{own_text}'; expected ARPQuerier(IP, ETH), or a name from AddressInfo that stands for both",
            Ipv4Net::EXPECTED
        ))
    })?;
    // A name may stand for both.
    let both = names::ether(&unquote(&own_text));
    let mac: MacAddr = match both {
        Some(both) => arguments.optional("ETH")?.unwrap_or(both),
        None => arguments.required("ETH")?,
    };
    // A network of two addresses has none for broadcast (RFC 3021, 2.2).
    let last = if own.prefix_len() < 31 { own.broadcast() } else { Ipv4Addr::BROADCAST };
    let broadcast = broadcast.unwrap_or(if last == own.addr() { Ipv4Addr::BROADCAST } else { last });
    let table = match &table_name {
        None => None,
        Some(name) => {
            let (table, its_options) = arp_table::find(setup, name)?;
            table.set_poll_timeout(options.poll_timeout_ns());
            options = its_options;
            Some(table)
        }
    };
    Querier::make(setup, Arp { broadcast, broadcast_poll }, (own.addr().to_bits(), mac), &options, table)
}

struct Arp {
    broadcast: Ipv4Addr,
    broadcast_poll: bool,
}

impl Protocol for Arp {
    type Address = u32;
    type Query = [u8; FRAME_LEN];
    const ETHERTYPE: EtherType = EtherType::IPV4;
    const WORDS: Words = Words {
        queries: "ARP queries",
        queue_full: "ARP queue full",
        timeout: "ARP timeout",
        cleared: "ARP table cleared",
        no_frame: "no frame for an ARP query",
        not_unicast: "ARP sender is not a unicast address",
        own_address: "ARP packet with our own IP address",
        unsolicited: "unsolicited ARP packet",
        no_address: "ARP packet without an address",
    };

    fn group(&self, address: u32) -> Option<MacAddr> {
        let address = Ipv4Addr::from_bits(address);
        if address.is_broadcast() || address == self.broadcast {
            return Some(MacAddr::BROADCAST);
        }
        address.is_multicast().then(|| MacAddr::for_ipv4_multicast(address))
    }

    fn query(&self, own: (u32, MacAddr), address: u32, known: Option<MacAddr>) -> [u8; FRAME_LEN] {
        let request = ArpRepr::request(own.1, Ipv4Addr::from_bits(own.0), Ipv4Addr::from_bits(address));
        let destination = known.filter(|_| !self.broadcast_poll);
        arp_frame::build(&request, destination.unwrap_or(MacAddr::BROADCAST))
    }

    fn read(&self, frame: &[u8]) -> Result<Claim<u32>, &'static str> {
        let arp = arp_frame::parse(frame)?;
        let mac = Some(arp.sender_mac);
        Ok(Claim { address: arp.sender_ip.to_bits(), mac, overrides: true, confirms: true })
    }
}

#[cfg(test)]
#[path = "arp_querier_tests.rs"]
mod tests;
