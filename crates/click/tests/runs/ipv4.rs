//! IPv4 through `examples/ip-router.click`.

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
    Redirected,
    ToSilentNeighbour,
    ToOtherHost,
    LinkBroadcast,
    LinkMulticast,
    ArpRequest,
    ArpReply,
    Unsolicited,
    OtherEthertype,
    ShortFrame,
    Version6,
    ShortHeaderLength,
    TotalTooLong,
    TotalTooShort,
    BadChecksum,
    NoOptions,
    RecordRoute,
    BadOption,
    BadSource,
    SuspectSource,
    LastHop,
    NoTimeLeft,
    TooLong,
    TooLongNotToBeSplit,
    NoRoute,
    EchoToRouter,
    DatagramToRouter,
}

use Kind::*;

const ODD: &[Kind] = &[
    Padded,
    ToNeighbour,
    ToLastNeighbour,
    Redirected,
    ToSilentNeighbour,
    ToOtherHost,
    LinkBroadcast,
    LinkMulticast,
    ArpRequest,
    ArpReply,
    Unsolicited,
    OtherEthertype,
    ShortFrame,
    Version6,
    ShortHeaderLength,
    TotalTooLong,
    TotalTooShort,
    BadChecksum,
    NoOptions,
    RecordRoute,
    BadOption,
    BadSource,
    SuspectSource,
    LastHop,
    NoTimeLeft,
    TooLong,
    TooLongNotToBeSplit,
    NoRoute,
    EchoToRouter,
    DatagramToRouter,
];

fn mac(port: u8) -> [u8; 6] {
    [2, 0, 0, 0, port, 1]
}

/// The frame of a packet that comes in by `port`; `salt` makes it one of many.
fn frame(kind: Kind, port: u8, salt: u16) -> Vec<u8> {
    let [high, low] = salt.to_be_bytes();
    let other = (port + 1 + low % 3) % 4;
    let mut to = mac(port);
    let mut ethertype = [8, 0];
    let (mut source, mut destination) = ([10, 0, port, 2], [172, 16 + other, high, low]);
    let (mut options, mut payload, mut ttl, mut flags): (&[u8], _, _, _) =
        (&[], vec![high, low, 1, 2], 64, 0);
    let mut protocol = 17;
    match kind {
        ToNeighbour => destination = [10, 0, other, 2],
        ToLastNeighbour => destination = [10, 0, other, 3],
        Redirected => destination = [10, 0, port, 2],
        ToSilentNeighbour => destination = [10, 0, other, 100],
        ToOtherHost => to[5] = 7,
        LinkBroadcast => to = [0xff; 6],
        LinkMulticast => to[0] = 3,
        ArpRequest | ArpReply | Unsolicited => ethertype = [8, 6],
        OtherEthertype => ethertype = [0x86, 0xdd],
        NoOptions => options = &[1, 1, 1, 0],
        RecordRoute => options = &[7, 7, 4, 0, 0, 0, 0, 0],
        BadOption => options = &[7, 200, 4, 0],
        BadSource => source = [10, 0, port, 255],
        SuspectSource => source = [192, 0, 2, 255],
        LastHop => ttl = 1,
        NoTimeLeft => ttl = 0,
        TooLong => payload.resize(1600, high),
        TooLongNotToBeSplit => {
            payload.resize(1600, high);
            flags = 0x40;
        }
        NoRoute => destination = [198, 51, 100, low],
        EchoToRouter => {
            (protocol, destination) = (1, [10, 0, port, 1]);
            payload = vec![8, 0, 0, 0, high, low, 0, 1];
            let check = checksum::compute(&payload);
            payload[2..4].copy_from_slice(&check.to_be_bytes());
        }
        DatagramToRouter => destination = [10, 0, other, 1],
        _ => {}
    }
    let mut bytes = [&to[..], &[2, 0, 0, 0, port, 2], &ethertype].concat();
    if matches!(kind, ArpRequest | ArpReply | Unsolicited) {
        let operation = if matches!(kind, ArpRequest) { 1 } else { 2 };
        let host = if matches!(kind, ArpReply) { 100 } else { 200 + low % 8 };
        bytes.extend([0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, port, host, 10, 0, port, host]);
        bytes.extend(mac(port));
        bytes.extend([10, 0, port, 1]);
        bytes.resize(60, 0);
        return bytes;
    }
    let header_len = 20 + options.len();
    let total = (header_len + payload.len()) as u16;
    let mut header = vec![0x40 | (header_len / 4) as u8, 0];
    header.extend(total.to_be_bytes());
    header.extend([high, low, flags, 0, ttl, protocol, 0, 0]);
    header.extend(source);
    header.extend(destination);
    header.extend(options);
    match kind {
        Version6 => header[0] = 0x65,
        ShortHeaderLength => header[0] = 0x44,
        TotalTooLong => header[3] += 1,
        TotalTooShort => header[2..4].copy_from_slice(&[0, 19]),
        _ => {}
    }
    let check = checksum::ipv4_header_compute(&header);
    header[10..12].copy_from_slice(&check.to_be_bytes());
    if matches!(kind, BadChecksum) {
        header[10 + usize::from(low % 2)] ^= 1 << (high % 8);
    }
    bytes.extend(header);
    bytes.extend(payload);
    match kind {
        Padded => bytes.resize(bytes.len() + 1 + usize::from(low % 30), high),
        ShortFrame => bytes.truncate(usize::from(low % 34)),
        _ => {}
    }
    bytes
}

const WRITES: &[Write] = &[
    ("Paint", "color", "1"),
    ("Paint", "color", "9"),
    ("PaintTee", "color", "9"),
    ("PaintTee", "color", "2"),
    ("DecIPTTL", "active", "false"),
    ("DecIPTTL", "active", "true"),
    ("HostEtherFilter", "ether", "02:00:00:00:01:01"),
    ("HostEtherFilter", "ether", "02:00:00:00:00:01"),
    ("Classifier", "pattern0", "12/86dd"),
    ("Classifier", "pattern0", "12/0800"),
    ("RadixIPLookup", "set", "172.17.0.0/16 10.0.1.3 2"),
    ("RadixIPLookup", "set", "172.17.0.0/16 10.0.2.2 3"),
    ("RadixIPLookup", "set", "172.17.3.0/24 10.0.1.2 2"),
    ("ARPQuerier", "delete", "10.0.1.2"),
    ("ARPQuerier", "insert", "10.0.1.2 02:00:00:00:01:0a"),
    ("ARPQuerier", "clear", ""),
];

/// The four ports of the example.
pub(crate) struct Ipv4;

impl Traffic for Ipv4 {
    type Kind = Kind;
    const EXAMPLE: &'static str = include_str!("../../../../examples/ip-router.click");
    const PORTS: u8 = 4;
    const ORDINARY: Kind = Ordinary;
    const ODD: &'static [Kind] = ODD;
    const WRITES: &'static [Write] = WRITES;

    fn frame(kind: Kind, port: u8, salt: u16) -> Vec<u8> {
        frame(kind, port, salt)
    }

    fn prepare(bench: &mut Bench) {
        for port in 0..4 {
            let route = format!("172.{}.0.0/16 10.0.{port}.2 {}", 16 + port, port + 1);
            bench.write("rt.add", &route).unwrap();
            for host in 2..4 {
                let entry = format!("10.0.{port}.{host} 02:00:00:00:0{port}:0{host}");
                bench.write(&format!("out{port}/arp.insert"), &entry).unwrap();
            }
        }
    }
}
