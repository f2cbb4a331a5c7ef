//! How records stand on the wire: RFC 7011. Two templates, for flows of IPv4 and IPv6, and data sets of them.

use std::net::IpAddr;
use std::time::SystemTime;

use super::cache::{End, FlowRecord};

const VERSION: u16 = 10;
/// The observation domain: all ports of the router.
const DOMAIN: u32 = 1;
const HEADER_BYTES: usize = 16;
const SET_HEADER_BYTES: usize = 4;
/// Bytes of the longest message: one that no link cuts up.
const LONGEST: usize = 1_400;
/// The set of templates, and the templates of ours (256 is the first number that there may be).
const TEMPLATES: u16 = 2;
const IPV4_FLOW: u16 = 256;
const IPV6_FLOW: u16 = 257;

/// Numbers and lengths of information elements (IANA, "IPFIX Entities") behind the addresses, in the order of the record.
const FIELDS: [(u16, u16); 11] = [
    (7, 2),   // sourceTransportPort
    (11, 2),  // destinationTransportPort
    (4, 1),   // protocolIdentifier
    (136, 1), // flowEndReason
    (10, 4),  // ingressInterface
    (14, 4),  // egressInterface
    (2, 8),   // packetDeltaCount
    (1, 8),   // octetDeltaCount
    (152, 8), // flowStartMilliseconds
    (153, 8), // flowEndMilliseconds
    (61, 1),  // flowDirection: ingress
];
/// sourceIPv4Address, destinationIPv4Address; sourceIPv6Address, destinationIPv6Address.
const ADDRESSES: [(u16, [(u16, u16); 2]); 2] =
    [(IPV4_FLOW, [(8, 4), (12, 4)]), (IPV6_FLOW, [(27, 16), (28, 16)])];

/// A message that is being filled.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// Data records that were sent before those that wait.
    sequence: u32,
    waiting: u32,
    /// Data sets, each with one template's records.
    sets: Vec<u8>,
    /// The template of the last set, and where that begins.
    last: Option<(u16, usize)>,
}

impl Message {
    /// Returns a message with the templates.
    pub(super) fn templates(&self) -> Vec<u8> {
        let mut set = Vec::new();
        for (template, addresses) in ADDRESSES {
            let fields = addresses.iter().chain(&FIELDS);
            set.extend(template.to_be_bytes());
            set.extend((2 + FIELDS.len() as u16).to_be_bytes());
            fields.for_each(|(element, length)| {
                set.extend([element.to_be_bytes(), length.to_be_bytes()].as_flattened())
            });
        }
        let mut sets = TEMPLATES.to_be_bytes().to_vec();
        sets.extend(((SET_HEADER_BYTES + set.len()) as u16).to_be_bytes());
        sets.extend(set);
        self.with_header(&sets)
    }

    /// Adds a record. Returns the message before it if there is no room in that.
    pub(super) fn add(&mut self, record: &FlowRecord, end: End) -> Option<Vec<u8>> {
        let (template, bytes) = encoded(record, end);
        let full = HEADER_BYTES + self.sets.len() + SET_HEADER_BYTES + bytes.len() > LONGEST;
        let full = if full { self.take() } else { None };
        let begin = match self.last {
            Some((last, begin)) if last == template => begin,
            _ => {
                let begin = self.sets.len();
                self.sets.extend(template.to_be_bytes());
                self.sets.extend([0, 0]);
                begin
            }
        };
        self.last = Some((template, begin));
        self.sets.extend(bytes);
        let length = (self.sets.len() - begin) as u16;
        self.sets[begin + 2..begin + 4].copy_from_slice(&length.to_be_bytes());
        self.waiting += 1;
        full
    }

    /// Takes what waits, if anything does.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let message = (self.waiting > 0).then(|| self.with_header(&self.sets));
        self.sequence = self.sequence.wrapping_add(std::mem::take(&mut self.waiting));
        self.sets.clear();
        self.last = None;
        message
    }

    fn with_header(&self, sets: &[u8]) -> Vec<u8> {
        let now = milliseconds(SystemTime::now()) / 1_000;
        let mut message = VERSION.to_be_bytes().to_vec();
        message.extend(((HEADER_BYTES + sets.len()) as u16).to_be_bytes());
        message.extend((now as u32).to_be_bytes());
        message.extend(self.sequence.to_be_bytes());
        message.extend(DOMAIN.to_be_bytes());
        message.extend(sets);
        message
    }
}

/// Since 1970.
fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A record, and the number of its template.
fn encoded(record: &FlowRecord, end: End) -> (u16, Vec<u8>) {
    let mut bytes = Vec::new();
    for address in [record.source, record.destination] {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    let (from, to) = record.ports;
    bytes.extend([from.to_be_bytes(), to.to_be_bytes()].as_flattened());
    bytes.extend([record.protocol, end as u8]);
    bytes.extend([record.input.to_be_bytes(), record.output.to_be_bytes()].as_flattened());
    let longs = [record.packets, record.octets, milliseconds(record.begin), milliseconds(record.end)];
    longs.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
    bytes.push(0);
    (if record.source.is_ipv4() { IPV4_FLOW } else { IPV6_FLOW }, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn record(source: &str) -> FlowRecord {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        FlowRecord {
            source: source.parse().unwrap(),
            destination: source.parse().unwrap(),
            protocol: 17,
            ports: (53, 12_345),
            input: 2,
            output: 3,
            packets: 10,
            octets: 1_000,
            begin: at(1),
            end: at(2),
        }
    }

    fn half(bytes: &[u8], at: usize) -> u16 {
        u16::from_be_bytes([bytes[at], bytes[at + 1]])
    }

    #[test]
    fn records_are_as_long_as_their_templates_say() {
        let templates = Message::default().templates();
        assert_eq!((half(&templates, 0), usize::from(half(&templates, 2))), (VERSION, templates.len()));
        assert_eq!((half(&templates, 16), half(&templates, 20), half(&templates, 22)), (2, 256, 13));
        for (source, addresses) in [("10.0.1.2", ADDRESSES[0]), ("2001:db8::1", ADDRESSES[1])] {
            let (template, bytes) = encoded(&record(source), End::Idle);
            let length: u16 = addresses.1.iter().chain(&FIELDS).map(|(_, length)| length).sum();
            assert_eq!((template, bytes.len()), (addresses.0, usize::from(length)));
        }
        let (_, bytes) = encoded(&record("10.0.1.2"), End::Active);
        let expected = [
            &[10, 0, 1, 2, 10, 0, 1, 2, 0, 53, 0x30, 0x39, 17, 2, 0, 0, 0, 2, 0, 0, 0, 3][..],
            &[0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 3, 0xe8],
            &[0, 0, 0, 0, 0, 0, 3, 0xe8, 0, 0, 0, 0, 0, 0, 7, 0xd0, 0],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn records_of_a_template_share_a_set_and_a_full_message_goes_first() {
        let mut message = Message::default();
        assert_eq!(message.take(), None);
        for source in ["10.0.1.2", "10.0.1.3", "2001:db8::1"] {
            assert_eq!(message.add(&record(source), End::Idle), None);
        }
        let first = message.take().unwrap();
        // Two records of 55 bytes, one of 79.
        assert_eq!(first.len(), 16 + 4 + 2 * 55 + 4 + 79);
        assert_eq!((half(&first, 16), half(&first, 18)), (256, 4 + 2 * 55));
        assert_eq!((half(&first, 130), half(&first, 132)), (257, 4 + 79));
        let full = (0..).find_map(|_| message.add(&record("10.0.1.2"), End::Idle)).unwrap();
        assert!(full.len() <= LONGEST && full.len() > LONGEST - 60);
        // Three records were sent before.
        assert_eq!(full[8..12], [0, 0, 0, 3]);
        let rest = message.take().unwrap();
        assert_eq!((rest.len(), half(&rest, 10)), (16 + 4 + 55, 3 + 25));
    }
}
