//! How samples stand on the wire: sFlow version 5 (sflow.org, "sFlow Version 5", July 2004) and its structure for drops ("sFlow
//! Dropped Packet Notification Structures", 2020), in XDR: big-endian words, lengths before what they count, padding to four bytes.

use std::net::{IpAddr, Ipv4Addr};

use control::api::PortRow;

use crate::export::{Dropped, Sample, Way};

/// Words after words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Xdr(Vec<u8>);

impl Xdr {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn append(&mut self, mut more: Self) {
        self.0.append(&mut more.0);
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.0.extend(word.to_be_bytes()));
    }

    fn long(&mut self, number: u64) {
        self.0.extend(number.to_be_bytes());
    }

    fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => {
                self.words(&[1]);
                self.0.extend(address.octets());
            }
            IpAddr::V6(address) => {
                self.words(&[2]);
                self.0.extend(address.octets());
            }
        }
    }

    fn opaque(&mut self, bytes: &[u8]) {
        self.words(&[bytes.len() as u32]);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// A structure with its format and length before it.
    fn record(&mut self, format: u32, fill: impl FnOnce(&mut Self)) {
        let mut record = Self::default();
        fill(&mut record);
        self.words(&[format]);
        self.opaque(&record.0);
    }
}

/// What stands before the samples of a datagram.
pub(super) struct Head {
    pub(super) agent: IpAddr,
    pub(super) sequence: u32,
    pub(super) uptime_ms: u32,
    pub(super) samples: u32,
}

impl Head {
    /// Its bytes with an agent of IPv6.
    pub(super) const LONGEST: usize = 40;

    /// Returns a datagram with these samples.
    pub(super) fn before(&self, samples: &Xdr) -> Vec<u8> {
        let mut datagram = Xdr::default();
        datagram.words(&[5]);
        datagram.address(self.agent);
        // One agent, so its sub-agent is 0.
        datagram.words(&[0, self.sequence, self.uptime_ms, self.samples]);
        datagram.append(samples.clone());
        datagram.0
    }
}

// Formats of samples; the expanded ones have room for all of Linux's interface numbers.
const EXPANDED_FLOW_SAMPLE: u32 = 3;
const EXPANDED_COUNTERS_SAMPLE: u32 = 4;
const DISCARDED_PACKET: u32 = 5;
// Formats of what flow samples have.
const SAMPLED_HEADER: u32 = 1;
const EXTENDED_SWITCH: u32 = 1_001;
const EXTENDED_ROUTER: u32 = 1_002;
/// The format of the generic counters of an interface.
const INTERFACE_COUNTERS: u32 = 1;
/// The bytes of the frame check sequence: lengths have it, the headers do not.
const CHECK_SEQUENCE: u32 = 4;

/// A sample of an interface: its number among those of the interface, and of how many packets all these were drawn.
pub(super) fn flow_sample(sample: &Sample<'_>, number: u32, rate: u32, pool: u64) -> Xdr {
    let mut xdr = Xdr::default();
    xdr.record(EXPANDED_FLOW_SAMPLE, |xdr| {
        let (input, output) = (sample.input, sample.way.output);
        // The source is the interface of this number; input and output are single interfaces.
        xdr.words(&[number, 0, input, rate, pool as u32, sample.lost as u32, 0, input, 0, output]);
        let tag = tag(sample);
        xdr.words(&[1 + u32::from(tag.is_some()) + u32::from(sample.way.lengths.is_some())]);
        sampled_header(xdr, sample.is_ethernet, sample.length, sample.data);
        if let Some(tag) = tag {
            // The frame that leaves has no tag as far as is known.
            let (vlan, priority) = (u32::from(tag & 0xfff), u32::from(tag >> 13));
            xdr.record(EXTENDED_SWITCH, |xdr| xdr.words(&[vlan, priority, 0, 0]));
        }
        if let Way { gateway, lengths: Some((source, destination)), .. } = sample.way {
            xdr.record(EXTENDED_ROUTER, |xdr| {
                xdr.address(gateway.unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
                xdr.words(&[source.into(), destination.into()]);
            });
        }
    });
    xdr
}

/// The outermost tag of a frame.
fn tag(sample: &Sample<'_>) -> Option<u16> {
    let tag = sample.data.get(14..16)?.first_chunk().map(|&bytes| u16::from_be_bytes(bytes));
    tag.filter(|_| sample.is_ethernet && sample.parsed.vlan.is_some())
}

/// A dropped packet, its number among those of its interface, and how many drops were left out so far.
pub(super) fn discarded_packet(dropped: &Dropped<'_>, number: u32, left_out: u32) -> Xdr {
    let mut xdr = Xdr::default();
    xdr.record(DISCARDED_PACKET, |xdr| {
        xdr.words(&[number, 0, dropped.input, left_out, dropped.input, 0, drop_reason(dropped.reason), 1]);
        sampled_header(xdr, dropped.is_ethernet, dropped.length, dropped.data);
    });
    xdr
}

fn sampled_header(xdr: &mut Xdr, is_ethernet: bool, length: u32, data: &[u8]) {
    // Ethernet, IPv4, IPv6.
    let (protocol, stripped) = match data.first().map(|first| first >> 4) {
        _ if is_ethernet => (1, CHECK_SEQUENCE),
        Some(6) => (12, 0),
        _ => (11, 0),
    };
    xdr.record(SAMPLED_HEADER, |xdr| {
        xdr.words(&[protocol, length + stripped, stripped]);
        xdr.opaque(data);
    });
}

/// The reason that sFlow has for one of ours; 256 is "unknown", for all that it has no word for.
fn drop_reason(reason: &str) -> u32 {
    let has = |word: &str| reason.contains(word);
    match reason {
        "no route" => 6,
        "unreachable" => 1,
        "prohibited" => 13,
        "blackhole" => 269,
        _ if has("time to live expired") => 257,
        _ if has("denied") => 258,
        _ if has("wait for a neighbour") => 279,
        _ if has("longer than") => 262,
        _ if has("no frame") || has("overloaded") || has("full") => 259,
        _ if has("IP") && has("bad") || has("truncated") || has("no IP") => 275,
        _ => 256,
    }
}

/// What a port moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    index: u32,
    /// Bits a second; 0 if Linux does not know.
    speed: u64,
    /// Administrator's and operational state, a bit each.
    status: u32,
    octets: [u64; 2],
    packets: [u32; 2],
    dropped: [u32; 2],
    errors: [u32; 2],
}

/// A counter that is not known.
const UNKNOWN: u32 = u32::MAX;

impl Counters {
    pub(super) fn of(port: &PortRow) -> Self {
        let speed = std::fs::read_to_string(format!("/sys/class/net/{}/speed", port.interface)).ok();
        // In Mbit/s; -1 where there is no cable.
        let speed = speed.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0) * 1_000_000;
        let ways = [port.rx, port.tx];
        Self {
            index: port.index,
            speed,
            status: u32::from(port.is_up) | u32::from(port.is_up && port.has_carrier) << 1,
            octets: ways.map(|way| way.bytes),
            packets: ways.map(|way| way.packets as u32),
            dropped: ways.map(|way| way.dropped as u32),
            errors: ways.map(|way| way.errors as u32),
        }
    }
}

/// The counters of an interface, and the number of this sample among its.
pub(super) fn counters_sample(counters: &Counters, number: u32) -> Xdr {
    let mut xdr = Xdr::default();
    xdr.record(EXPANDED_COUNTERS_SAMPLE, |xdr| {
        xdr.words(&[number, 0, counters.index, 1]);
        xdr.record(INTERFACE_COUNTERS, |xdr| {
            let Counters { index, speed, status, octets, packets, dropped, errors } = *counters;
            // ethernetCsmacd (IANAifType), full-duplex.
            xdr.words(&[index, 6]);
            xdr.long(speed);
            xdr.words(&[1, status]);
            // Multicast and broadcast packets are among the others; packets of unknown protocols are Linux's.
            xdr.long(octets[0]);
            xdr.words(&[packets[0], UNKNOWN, UNKNOWN, dropped[0], errors[0], UNKNOWN]);
            xdr.long(octets[1]);
            xdr.words(&[packets[1], UNKNOWN, UNKNOWN, dropped[1], errors[1]]);
            // Promiscuous mode: true is 1, false 2.
            xdr.words(&[2]);
        });
    });
    xdr
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::key::Parsed;

    fn words(xdr: &Xdr) -> Vec<u32> {
        assert!(xdr.len().is_multiple_of(4));
        xdr.0.as_chunks().0.iter().map(|&bytes| u32::from_be_bytes(bytes)).collect()
    }

    /// A frame with VLAN 100, priority 3.
    const FRAME: [u8; 46] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x60, 100, 8, 0, // Ethernet
        0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 1, 2, 10, 0, 2, 2, // IP
        0, 53, 0x30, 0x39, 0, 8, 0, 0,
    ];

    #[test]
    fn a_flow_sample_has_the_words_of_the_standard() {
        let sample = Sample {
            input: 7,
            way: Way { output: 9, gateway: Some("10.0.2.254".parse().unwrap()), lengths: Some((24, 16)) },
            is_ethernet: true,
            length: 1_500,
            stands_for: 10,
            lost: 2,
            parsed: Parsed::of(true, &FRAME),
            data: &FRAME,
        };
        let words = words(&flow_sample(&sample, 3, 1_000, 4_000));
        assert_eq!(words[..14], [3, 164, 3, 0, 7, 1_000, 4_000, 2, 0, 7, 0, 9, 3, 1]);
        // The header's record: Ethernet, with the check sequence, of which four bytes are gone; 46 bytes, padded.
        assert_eq!(words[14..19], [64, 1, 1_504, 4, 46]);
        assert_eq!((words[19], words[30]), (0x0200_0000, 0));
        assert_eq!(words[31..37], [1_001, 16, 100, 3, 0, 0]);
        assert_eq!(words[37..], [1_002, 16, 1, 0x0a00_02fe, 24, 16]);
        let plain = Sample {
            way: Way::default(),
            parsed: Parsed::of(false, &FRAME[18..]),
            is_ethernet: false,
            data: &FRAME[18..],
            ..sample
        };
        let words = self::words(&flow_sample(&plain, 3, 1_000, 4_000));
        assert_eq!(words[11..18], [0, 1, 1, 44, 11, 1_500, 0]);
    }

    #[test]
    fn counters_and_drops_have_the_words_of_the_standard() {
        let counters = Counters {
            index: 7,
            speed: 10_000_000_000,
            status: 3,
            octets: [1 << 32, 5],
            packets: [6, 7],
            dropped: [8, 9],
            errors: [10, 11],
        };
        let none = u32::MAX;
        assert_eq!(
            words(&counters_sample(&counters, 2)),
            [
                4,
                112,
                2,
                0,
                7,
                1,
                1,
                88, // sample, record
                7,
                6,
                2,
                1_410_065_408,
                1,
                3, // interface
                1,
                0,
                6,
                none,
                none,
                8,
                10,
                none, // in
                0,
                5,
                7,
                none,
                none,
                9,
                11,
                2, // out
            ]
        );
        let data = &FRAME[18..42];
        let dropped =
            Dropped { input: 7, reason: "time to live expired", is_ethernet: false, length: 28, data };
        let words = words(&discarded_packet(&dropped, 4, 5));
        assert_eq!(words[..15], [5, 80, 4, 0, 7, 5, 7, 0, 257, 1, 1, 40, 11, 28, 0]);
    }

    #[test]
    fn a_datagram_begins_with_its_agent_and_its_number() {
        let mut samples = Xdr::default();
        samples.words(&[1, 2]);
        let head = Head { agent: "2001:db8::1".parse().unwrap(), sequence: 3, uptime_ms: 4, samples: 5 };
        let datagram = Xdr(head.before(&samples));
        assert_eq!(words(&datagram), [5, 2, 0x2001_0db8, 0, 0, 1, 0, 3, 4, 5, 1, 2]);
        assert_eq!(datagram.len(), Head::LONGEST + 8);
    }

    #[test]
    fn our_reasons_have_those_of_the_standard() {
        for (ours, theirs) in [
            ("time to live expired", 257),
            ("denied by rule", 258),
            ("bad IP checksum", 275),
            ("no route", 6),
            ("no route back", 256),
            ("too many wait for a neighbour", 279),
        ] {
            assert_eq!(drop_reason(ours), theirs, "{ours}");
        }
    }
}
