//! A line for a packet: time (UTC), port, queue, length, link addresses, and what is inside.
//!
//! ```text
//! 12:34:56.000000789 eth0 rx0 98 02-00-00-00-00-01 > 02-00-00-00-00-02 ipv4 10.0.0.1 > 10.0.0.2 icmp ttl 64
//! ```

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};

use packet::wire::IpProtocol;
use packet::wire::arp::{Arp, ArpOperation};
use packet::wire::ethernet::{self, ADDRESSES_LEN, EtherType, Ethernet, VlanTag, payload_type};
use packet::wire::ipv4::Ipv4;
use packet::wire::ipv6::{self, Ipv6};

use crate::recorder::{Direction, Record, Sink};

/// Writes lines.
pub(crate) struct TraceSink {
    port: String,
    target: BufWriter<Box<dyn Write + Send>>,
    line: String,
}

impl TraceSink {
    pub(crate) fn new(port: &str, target: Box<dyn Write + Send>) -> Self {
        Self { port: port.to_owned(), target: BufWriter::new(target), line: String::new() }
    }
}

impl Sink for TraceSink {
    fn write(&mut self, record: &Record) -> io::Result<()> {
        self.line.clear();
        let (seconds, nanoseconds) =
            (record.timestamp_ns / 1_000_000_000, record.timestamp_ns % 1_000_000_000);
        let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
        let direction = match record.direction {
            Direction::Receive => "rx",
            Direction::Transmit => "tx",
        };
        let data = record.packet.data();
        // Writing to a text cannot fail.
        let _ = write!(
            self.line,
            "{hours:02}:{minutes:02}:{:02}.{nanoseconds:09} {} {direction}{} {} ",
            seconds % 60,
            self.port,
            record.queue,
            data.len()
        );
        describe(&mut self.line, data);
        self.line.push('\n');
        self.target.write_all(self.line.as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.target.flush()
    }
}

/// Adds what a frame is.
fn describe(line: &mut String, data: &[u8]) {
    let payload = match payload_type(data) {
        Ok(payload) => payload,
        Err(error) => {
            let _ = write!(line, "({error})");
            return;
        }
    };
    let frame = Ethernet::new_unchecked(data);
    let _ = write!(line, "{} > {} ", frame.source(), frame.destination());
    if payload.offset > ethernet::HEADER_LEN {
        let _ = write!(line, "vlan {} ", VlanTag::new_unchecked(&data[ADDRESSES_LEN..]).vid());
    }
    let rest = &data[payload.offset..];
    let result = match payload.ethertype {
        EtherType::IPV4 => Ipv4::new_checked(rest).map(|ip| {
            let _ = write!(
                line,
                "ipv4 {} > {} {} ttl {}",
                ip.source(),
                ip.destination(),
                ip.protocol(),
                ip.ttl()
            );
            let header = ip.header_len();
            if ip.is_fragment() {
                let _ = write!(line, " fragment at {}", ip.fragment_offset());
            } else {
                describe_ports(line, ip.protocol(), rest.get(header..).unwrap_or(&[]));
            }
        }),
        EtherType::IPV6 => Ipv6::new_checked(rest).map(|ip| {
            let (protocol, hops) = (ip.next_header(), ip.hop_limit());
            let _ = write!(line, "ipv6 {} > {} {protocol} hops {hops}", ip.source(), ip.destination());
            describe_ports(line, protocol, rest.get(ipv6::HEADER_LEN..).unwrap_or(&[]));
        }),
        EtherType::ARP => Arp::new_checked(rest).map(|arp| {
            let (sender, target) = (arp.sender_ip(), arp.target_ip());
            let _ = match arp.operation() {
                ArpOperation::REQUEST => write!(line, "arp who has {target}, tell {sender}"),
                ArpOperation::REPLY => write!(line, "arp {sender} is at {}", arp.sender_mac()),
                other => write!(line, "arp operation {}", other.0),
            };
        }),
        EtherType(other) => {
            let _ = write!(line, "0x{other:04x}");
            Ok(())
        }
    };
    if let Err(error) = result {
        let _ = write!(line, "({error})");
    }
}

/// Adds the ports of UDP and TCP, which stand at the same place.
fn describe_ports(line: &mut String, protocol: IpProtocol, transport: &[u8]) {
    if let (IpProtocol::UDP | IpProtocol::TCP, [a, b, c, d, ..]) = (protocol, transport) {
        let (source, destination) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        let _ = write!(line, " port {source} > {destination}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pool;
    use proptest::prelude::*;
    use std::sync::{Arc, Mutex};

    fn described(data: &[u8]) -> String {
        let mut line = String::new();
        describe(&mut line, data);
        line
    }

    fn frame(ethertype: u16, rest: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &ethertype.to_be_bytes(), rest].concat()
    }

    #[test]
    fn lines_say_what_is_inside() {
        let links = "02-00-00-00-00-01 > 02-00-00-00-00-02";
        let udp = [
            0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0x1f, 0x90, 0, 12, 0,
            0, 1, 2, 3, 4,
        ];
        let expected = format!("{links} ipv4 10.0.0.1 > 10.0.0.2 udp ttl 64 port 7 > 8080");
        assert_eq!(described(&frame(0x0800, &udp)), expected);
        let tagged = [&[0x20, 5, 8, 0][..], &udp].concat();
        assert!(described(&frame(0x8100, &tagged)).contains(" vlan 5 ipv4 10.0.0.1 > "));
        let arp = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
        assert_eq!(described(&frame(0x0806, &arp)), format!("{links} arp who has 10.0.0.2, tell 10.0.0.1"));
        assert_eq!(described(&frame(0x0800, &udp[..10])), format!("{links} (truncated IPv4 header)"));
        assert_eq!(described(&[0; 5]), "(truncated Ethernet header)");
    }

    #[derive(Clone, Default)]
    struct Text(Arc<Mutex<Vec<u8>>>);

    impl Write for Text {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_whole_line() {
        let text = Text::default();
        let mut sink = TraceSink::new("eth0", Box::new(text.clone()));
        let mut packet = pool(1).allocate().unwrap();
        packet.set_data(&frame(0x88b5, &[0; 46]));
        let timestamp_ns = (86_400 * 3 + 3_600 * 5 + 67) * 1_000_000_000 + 12;
        sink.write(&Record { packet, timestamp_ns, direction: Direction::Receive, queue: 3 }).unwrap();
        sink.flush().unwrap();
        assert_eq!(
            String::from_utf8(text.0.lock().unwrap().clone()).unwrap(),
            "05:01:07.000000012 eth0 rx3 60 02-00-00-00-00-01 > 02-00-00-00-00-02 0x88b5\n"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_line(
            ethertype in prop::sample::select(vec![0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 1]),
            rest in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            prop_assert!(!described(&frame(ethertype, &rest)).contains('\n'));
            described(&rest);
        }
    }
}
