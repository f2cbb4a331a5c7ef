//! IPv6, with some IPv4 among it, through `examples/ip6-router.click`.

use std::net::Ipv6Addr;

use graph::testing::Bench;
use packet::checksum;

use super::{Traffic, Write};

/// What is odd about a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Ordinary,
    Padded,
    ToNeighbour,
    ToLastNeighbour,
    SamePort,
    ToSilentNeighbour,
    ToOtherHost,
    LinkMulticast,
    Solicitation,
    Probe,
    Advertisement,
    Unsolicited,
    OtherEthertype,
    Version4,
    ShortFrame,
    TooLongPayload,
    HopByHop,
    DestinationOptions,
    Fragment,
    Malformed,
    SuspectSource,
    GroupSource,
    UnspecifiedSource,
    LinkLocalSource,
    LinkLocalDestination,
    GroupDestination,
    UnspecifiedDestination,
    TranslatedDestination,
    LastHop,
    NoHopsLeft,
    TooLong,
    NoRoute,
    EchoToRouter,
    EchoBetweenNeighbours,
    DatagramToRouter,
    Ipv4,
}

use Kind::*;

const ODD: &[Kind] = &[
    Padded,
    ToNeighbour,
    ToLastNeighbour,
    SamePort,
    ToSilentNeighbour,
    ToOtherHost,
    LinkMulticast,
    Solicitation,
    Probe,
    Advertisement,
    Unsolicited,
    OtherEthertype,
    Version4,
    ShortFrame,
    TooLongPayload,
    HopByHop,
    DestinationOptions,
    Fragment,
    Malformed,
    SuspectSource,
    GroupSource,
    UnspecifiedSource,
    LinkLocalSource,
    LinkLocalDestination,
    GroupDestination,
    UnspecifiedDestination,
    TranslatedDestination,
    LastHop,
    NoHopsLeft,
    TooLong,
    NoRoute,
    EchoToRouter,
    EchoBetweenNeighbours,
    DatagramToRouter,
    Ipv4,
];

/// A host of a port's network; 1 is the router.
fn host(port: u8, host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, u16::from(port), 0, 0, 0, u16::from(host))
}

/// A host behind the first host of a port's network.
fn behind(port: u8, host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x10 + u16::from(port), 0, 0, 0, 0, u16::from(host))
}

fn link_local(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host)
}

/// An ICMPv6 message with its checksum.
fn icmpv6(source: Ipv6Addr, destination: Ipv6Addr, kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0], rest].concat();
    let pseudo = checksum::pseudo_v6(source, destination, 58, message.len() as u32);
    let check = checksum::finish(checksum::combine(pseudo, checksum::sum(&message)));
    message[2..4].copy_from_slice(&check.to_be_bytes());
    message
}

fn frame(kind: Kind, port: u8, salt: u16) -> Vec<u8> {
    let [high, low] = salt.to_be_bytes();
    let other = 1 - port;
    let mut to = [2, 0, 0, 0, port, 1];
    let mut ethertype = [0x86, 0xdd];
    let (mut source, mut destination) = (host(port, 2), behind(other, low));
    let (mut next_header, mut hop_limit, mut payload) =
        (17, 64, vec![high, low, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4]);
    match kind {
        ToNeighbour => destination = host(other, 2),
        ToLastNeighbour => destination = host(other, 3),
        SamePort => destination = host(port, 3),
        ToSilentNeighbour => destination = host(other, 100 + low % 3),
        ToOtherHost => to[5] = 7,
        LinkMulticast => to = [0x33, 0x33, 0, 0, 0, 1],
        OtherEthertype => ethertype = [0x88, 0xcc],
        HopByHop => (next_header, payload) = (0, [&[17, 0, 5, 2, 0, 0, 1, 0], &payload[..]].concat()),
        DestinationOptions => {
            (next_header, payload) = (60, [&[17, 0, 1, 4, 0, 0, 0, 0], &payload[..]].concat());
        }
        Fragment => (next_header, payload) = (44, [&[17, 0, 0, low & !6, 0, 0, 0, 5], &payload[..]].concat()),
        Malformed => (next_header, payload) = (60, vec![17, 200, 1, 4]),
        SuspectSource => source = host(port, 0xff),
        GroupSource => source = "ff02::5".parse().unwrap(),
        UnspecifiedSource => source = Ipv6Addr::UNSPECIFIED,
        LinkLocalSource => source = link_local(9),
        LinkLocalDestination => destination = link_local(9),
        GroupDestination => destination = "ff0e::5".parse().unwrap(),
        UnspecifiedDestination => destination = Ipv6Addr::UNSPECIFIED,
        TranslatedDestination => destination = "64:ff9b::192.0.2.1".parse().unwrap(),
        LastHop => hop_limit = 1,
        NoHopsLeft => hop_limit = 0,
        TooLong => payload.resize(1500, high),
        NoRoute => destination = Ipv6Addr::new(0x2001, 0xdb9, 0, 0, 0, 0, 0, u16::from(low)),
        EchoToRouter | EchoBetweenNeighbours => {
            if matches!(kind, EchoBetweenNeighbours) {
                source = link_local(9);
                destination = link_local(u16::from(port) + 1);
            } else {
                destination = host(port, 1);
            }
            (next_header, payload) = (58, icmpv6(source, destination, 128, &[high, low, 0, 1]));
        }
        DatagramToRouter => destination = host(other, 1),
        Solicitation | Probe => {
            let target = host(port, 1);
            destination = "ff02::1:ff00:1".parse().unwrap();
            to = [0x33, 0x33, 0xff, 0, 0, 1];
            let mut message = [&[0; 4], &target.octets()[..]].concat();
            if matches!(kind, Probe) {
                source = Ipv6Addr::UNSPECIFIED;
            } else {
                message.extend([1, 1, 2, 0, 0, 0, port, 2]);
            }
            (next_header, hop_limit, payload) = (58, 255, icmpv6(source, destination, 135, &message));
        }
        Advertisement | Unsolicited => {
            source = host(port, if matches!(kind, Advertisement) { 100 + low % 3 } else { 200 });
            destination = host(port, 1);
            let mut message = [&[0x60, 0, 0, 0], &source.octets()[..]].concat();
            message.extend([2, 1, 2, 0, 0, 0, port, 100]);
            (next_header, hop_limit, payload) = (58, 255, icmpv6(source, destination, 136, &message));
        }
        _ => {}
    }
    let mut bytes = [&to[..], &[2, 0, 0, 0, port, 2]].concat();
    if matches!(kind, Ipv4) {
        let mut header = vec![0x45, 0, 0, 28, high, low, 0, 0, 64, 17, 0, 0, 10, 0, port, 2, 10, 0, other, 2];
        let check = checksum::ipv4_header_compute(&header);
        header[10..12].copy_from_slice(&check.to_be_bytes());
        return [&bytes[..], &[8, 0], &header, &[high, low, 0, 9, 0, 8, 0, 0]].concat();
    }
    bytes.extend(ethertype);
    bytes.extend([if matches!(kind, Version4) { 0x45 } else { 0x60 }, 0, high, low]);
    let length = payload.len() + usize::from(matches!(kind, TooLongPayload));
    bytes.extend((length as u16).to_be_bytes());
    bytes.extend([next_header, hop_limit]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend(payload);
    match kind {
        Padded => bytes.resize(bytes.len() + 1 + usize::from(low % 30), high),
        ShortFrame => bytes.truncate(usize::from(low % 54)),
        _ => {}
    }
    bytes
}

const WRITES: &[Write] = &[
    ("Paint", "color", "1"),
    ("Paint", "color", "9"),
    ("CheckLength", "length", "51"),
    ("CheckLength", "length", "1500"),
    ("HostEtherFilter", "ether", "02:00:00:00:01:01"),
    ("HostEtherFilter", "ether", "02:00:00:00:00:01"),
    ("LookupIP6Route", "set", "2001:db8:11::/48 2001:db8:0:1::3 2"),
    ("LookupIP6Route", "set", "2001:db8:11::/48 2001:db8:0:1::2 2"),
    ("IP6NDSolicitor", "delete", "2001:db8:0:1::2"),
    ("IP6NDSolicitor", "insert", "2001:db8:0:1::2 02:00:00:00:01:0a"),
    ("IP6NDSolicitor", "clear", ""),
    ("ICMP6Error", "rate", "1"),
];

/// The two ports of the example.
pub(crate) struct Ipv6;

impl Traffic for Ipv6 {
    type Kind = Kind;
    const EXAMPLE: &'static str = include_str!("../../../../examples/ip6-router.click");
    const PORTS: u8 = 2;
    const ORDINARY: Kind = Ordinary;
    const ODD: &'static [Kind] = ODD;
    const WRITES: &'static [Write] = WRITES;

    fn frame(kind: Kind, port: u8, salt: u16) -> Vec<u8> {
        frame(kind, port, salt)
    }

    fn prepare(bench: &mut Bench) {
        for port in 0..2 {
            let route = format!("{}/48 {} {}", behind(port, 0), host(port, 2), port + 1);
            bench.write("rt6.add", &route).unwrap();
            for number in 2..4 {
                let mac = format!("02:00:00:00:0{port}:0{number}");
                bench
                    .write(&format!("out{port}/nd.insert"), &format!("{} {mac}", host(port, number)))
                    .unwrap();
                bench
                    .write(&format!("out{port}/arp.insert"), &format!("10.0.{port}.{number} {mac}"))
                    .unwrap();
            }
        }
    }
}
