//! =c
//! IPPrint([LABEL, I<keywords> CONTENTS, PAYLOAD, MAXLENGTH, ID, TTL, TOS, LENGTH, TIMESTAMP, ETHER, PAINT, AGGREGATE, SWAP, ACTIVE, OUTFILE])
//!
//! =s ip
//! prints IP packets in a line each
//!
//! =d
//! Prints a line for each packet whose IP header is marked, in the manner of tcpdump, and passes it on. LABEL, if
//! there is one, and a colon come first. Keyword arguments are:
//!
//! =item CONTENTS
//! `hex` or `ascii` prints the bytes of the packet too, `none` (the default) does not.
//!
//! =item PAYLOAD
//! `hex` or `ascii` prints the bytes behind the transport header. Not with CONTENTS.
//!
//! =item MAXLENGTH
//! how many bytes are printed, 1500 by default; negative prints all. NBYTES is its old name.
//!
//! =item ID, TTL, TOS, LENGTH
//! whether that field of the IP header is printed; false by default.
//!
//! =item TIMESTAMP
//! whether the time of reception is printed, in seconds since 1970; true by default.
//!
//! =item ETHER
//! whether the Ethernet addresses are printed; false by default.
//!
//! =item PAINT, AGGREGATE
//! whether that annotation is printed; false by default.
//!
//! =item SWAP
//! whether identifier and sequence number of ICMP echos are in network byte order, as they should be; true by
//! default.
//!
//! =item ACTIVE
//! whether anything is printed; true by default.
//!
//! =item OUTFILE
//! a file to print into instead of standard error.
//!
//! =back
//!
//! CHANNEL is not supported. It formats text for every packet: not for the fast path.
//!
//! =a IP6Print, Print, CheckIPHeader

use packet::sync::lock;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use elements::icmp::names;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::wire::IpProtocol;
use packet::wire::ethernet::Ethernet;
use packet::wire::icmp::unreachable_code;
use packet::wire::ipv4::Ipv4;
use packet::wire::tcp::Tcp;
use packet::{Annotations, Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "IPPrint",
    capabilities: &[graph::KEEPS_ALL],
    handlers: &[Handler::read_write(
        "active",
        Combine::First,
        "The ACTIVE argument.",
        &Get(|e: &mut IPPrint| e.active.to_string()),
        &Put(|e: &mut IPPrint, _, value| {
            e.active = bool::from_argument(value.trim())
                .ok_or_else(|| format!("active: expected {}, got '{value}'", bool::EXPECTED))?;
            Ok(())
        }),
    )],
    manual: graph::manual!("ip_print.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let label = arguments.optional::<String>("LABEL")?.unwrap_or_default();
    let contents = arguments.keyword_or("CONTENTS", Contents::None)?;
    let payload = arguments.keyword_or("PAYLOAD", Contents::None)?;
    let most = arguments.keyword::<i64>("NBYTES")?;
    let most = arguments.keyword_or("MAXLENGTH", most.unwrap_or(1500))?;
    let format = Format {
        label,
        contents,
        payload,
        most: usize::try_from(most).unwrap_or(usize::MAX),
        id: arguments.keyword_or("ID", false)?,
        ttl: arguments.keyword_or("TTL", false)?,
        tos: arguments.keyword_or("TOS", false)?,
        length: arguments.keyword_or("LENGTH", false)?,
        timestamp: arguments.keyword_or("TIMESTAMP", true)?,
        ether: arguments.keyword_or("ETHER", false)?,
        paint: arguments.keyword_or("PAINT", false)?,
        aggregate: arguments.keyword_or("AGGREGATE", false)?,
        swap: arguments.keyword_or("SWAP", true)?,
    };
    let active = arguments.keyword_or("ACTIVE", true)?;
    let file = arguments.keyword::<String>("OUTFILE")?;
    arguments.finish()?;
    if contents != Contents::None && payload != Contents::None {
        return Err(ConfigError::new("specify at most one of PAYLOAD and CONTENTS"));
    }
    let file = match file {
        None => None,
        Some(path) => Some(setup.shared_by_copies(|| {
            File::create(&path)
                .map(Mutex::new)
                .map_err(|error| ConfigError::new(format!("OUTFILE: {path}: {error}")))
        })?),
    };
    Ok(Box::new(IPPrint { format, active, file }))
}

/// How bytes are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    None,
    Hex,
    Ascii,
}

impl FromArgument for Contents {
    const EXPECTED: &'static str = "none, hex or ascii";
    fn from_argument(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "hex" => Some(Self::Hex),
            "ascii" => Some(Self::Ascii),
            "none" => Some(Self::None),
            word => bool::from_argument(word).map(|yes| if yes { Self::Hex } else { Self::None }),
        }
    }
}

/// What is printed of a packet.
struct Format {
    label: String,
    contents: Contents,
    payload: Contents,
    most: usize,
    id: bool,
    ttl: bool,
    tos: bool,
    length: bool,
    timestamp: bool,
    ether: bool,
    paint: bool,
    aggregate: bool,
    swap: bool,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// An IP header and what is there of its payload.
struct Ip<'a> {
    header: Ipv4<&'a [u8; 20]>,
    payload_len: usize,
    transport: &'a [u8],
    is_first: bool,
}

impl<'a> Ip<'a> {
    fn of(network: &'a [u8]) -> Option<Self> {
        let header = Ipv4::new_unchecked(network.first_chunk::<20>()?);
        let payload_len = header.total_len().saturating_sub(header.header_len());
        let rest = network.get(header.header_len()..).unwrap_or(&[]);
        let transport = rest.get(..payload_len).unwrap_or(rest);
        Some(Self { header, payload_len, transport, is_first: header.fragment_offset() == 0 })
    }

    fn source(&self) -> Ipv4Addr {
        self.header.source()
    }

    fn destination(&self) -> Ipv4Addr {
        self.header.destination()
    }
}

impl Format {
    /// The lines for `packet`, whose IP header is marked.
    fn lines(&self, packet: &Packet, network: &[u8]) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text, packet, network);
        text
    }

    fn write(&self, text: &mut String, packet: &Packet, network: &[u8]) -> std::fmt::Result {
        if !self.label.is_empty() {
            write!(text, "{}: ", self.label)?;
        }
        if self.timestamp {
            let us = packet.timestamp_ns() / 1000;
            write!(text, "{}.{:06}: ", us / 1_000_000, us % 1_000_000)?;
        }
        if self.aggregate {
            write!(text, "#{}", packet.annotations().u32_at(Annotations::AGGREGATE).unwrap_or(0))?;
        }
        if self.paint {
            write!(text, "{}{}", if self.aggregate { "." } else { "paint " }, packet.annotations().paint())?;
        }
        if self.aggregate || self.paint {
            text.push_str(": ");
        }
        if self.ether
            && let Some(link) = packet.link().and_then(|bytes| bytes.first_chunk::<12>())
        {
            let link = Ethernet::new_unchecked(link);
            write!(text, "{} > {}: ", link.source(), link.destination())?;
        }
        let Some(ip) = Ip::of(network) else {
            text.push_str("truncated-ip");
            return Ok(());
        };
        let header = ip.header;
        let identification = header.identification();
        if self.id {
            write!(text, "id {identification} ")?;
        }
        if self.ttl {
            write!(text, "ttl {} ", header.ttl())?;
        }
        if self.tos {
            write!(text, "tos {} ", header.tos())?;
        }
        if self.length {
            write!(text, "length {} ", header.total_len())?;
        }
        match header.protocol() {
            IpProtocol::TCP => write_tcp(text, &ip, packet.len())?,
            IpProtocol::UDP => write_udp(text, &ip)?,
            IpProtocol::ICMP => self.write_icmp(text, &ip)?,
            IpProtocol(protocol) => {
                write!(text, "{} > {}: ip-proto-{protocol}", ip.source(), ip.destination())?;
            }
        }
        if header.is_fragment() {
            let (offset, more) = (header.fragment_offset(), if header.more_fragments() { "+" } else { "" });
            write!(text, " (frag {identification}:{}@{offset}{more})", ip.payload_len)?;
        }
        if self.contents != Contents::None {
            write_bytes(text, packet.data(), self.most, self.contents)?;
        } else if self.payload != Contents::None {
            let behind = match header.protocol() {
                IpProtocol::TCP if ip.is_first => {
                    ip.transport.get(..14).map_or(0, |bytes| Tcp::new_unchecked(bytes).header_len())
                }
                IpProtocol::UDP if ip.is_first => 8,
                _ => 0,
            };
            let bytes = network.get(header.header_len() + behind..).unwrap_or(&[]);
            write_bytes(text, bytes, self.most, self.payload)?;
        }
        Ok(())
    }

    fn write_icmp(&self, text: &mut String, ip: &Ip<'_>) -> std::fmt::Result {
        write!(text, "{} > {}: ", ip.source(), ip.destination())?;
        if !ip.is_first {
            text.push_str("icmp");
            return Ok(());
        }
        let message = ip.transport;
        let &[kind, code, ..] = message else {
            text.push_str("truncated-icmp");
            return Ok(());
        };
        match kind {
            names::ECHO_REPLY | names::ECHO => {
                text.push_str(if kind == names::ECHO { "icmp echo " } else { "icmp echo-reply " });
                let (Some(identifier), Some(sequence)) = (word(message, 4), word(message, 6)) else {
                    text.push_str("truncated-icmp");
                    return Ok(());
                };
                let order = |value: u16| if self.swap { value } else { value.swap_bytes() };
                write!(text, "({}, {})", order(identifier), order(sequence))
            }
            names::UNREACHABLE => write_unreachable(text, message, code),
            _ => {
                match names::type_name(kind) {
                    Some(name) => write!(text, "icmp {name}")?,
                    None => write!(text, "icmp type {kind}")?,
                }
                match names::code_name(kind, code) {
                    Some(name) => write!(text, " {name}"),
                    None if code != 0 => write!(text, " code {code}"),
                    None => Ok(()),
                }
            }
        }
    }
}

fn write_unreachable(text: &mut String, message: &[u8], code: u8) -> std::fmt::Result {
    let code_text =
        names::code_name(names::UNREACHABLE, code).map_or_else(|| format!("code {code}"), str::to_owned);
    let Some(quoted) = message.get(8..).and_then(Ip::of) else {
        return write!(text, "icmp unreachable {code_text} truncated-icmp");
    };
    write!(text, "icmp {} unreachable {code_text}", quoted.destination())?;
    let protocol = match quoted.header.protocol() {
        IpProtocol::TCP => Some("tcp"),
        IpProtocol::UDP => Some("udp"),
        IpProtocol::ICMP => Some("icmp"),
        _ => None,
    };
    let number = quoted.header.protocol().0;
    match code {
        unreachable_code::PROTOCOL => match protocol {
            Some(name) => write!(text, " {name}"),
            None => write!(text, " {number}"),
        },
        unreachable_code::PORT => {
            match protocol {
                Some(name) => write!(text, " {name}")?,
                None => write!(text, " protocol {number}")?,
            }
            // Behind the quoted header as far as the message goes, whatever the quoted length says.
            match message.get(8 + quoted.header.header_len()..).and_then(|transport| word(transport, 2)) {
                Some(port) => write!(text, "/{port}"),
                None => text.write_str("truncated-icmp"),
            }
        }
        unreachable_code::FRAGMENTATION_NEEDED => match word(message, 6) {
            Some(mtu) if mtu != 0 => write!(text, " (mtu {mtu})"),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn write_tcp(text: &mut String, ip: &Ip<'_>, packet_len: usize) -> std::fmt::Result {
    let segment = ip.transport;
    let (Some(from), Some(to), true) = (word(segment, 0), word(segment, 2), ip.is_first) else {
        let what = if ip.is_first { "truncated-tcp" } else { "tcp" };
        return write!(text, "{} > {}: {what}", ip.source(), ip.destination());
    };
    write!(text, "{}.{from} > {}.{to}: ", ip.source(), ip.destination())?;
    let (Some(&[offset, flags]), Some(sequence), Some(acknowledged)) =
        (segment.get(12..14).and_then(|pair| pair.first_chunk::<2>()), long(segment, 4), long(segment, 8))
    else {
        return text.write_str("truncated-tcp");
    };
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const PSH: u8 = 8;
    const ACK: u8 = 16;
    let mut length =
        (ip.header.total_len() as i64 - ip.header.header_len() as i64 - i64::from(offset >> 4) * 4) as u32;
    for (flag, letter) in [(SYN, 'S'), (FIN, 'F'), (RST, 'R'), (PSH, 'P')] {
        if flags & flag != 0 {
            text.push(letter);
            // SYN and FIN take a sequence number each.
            length = length.wrapping_add(u32::from(flag & (SYN | FIN) != 0));
        }
    }
    if flags & (SYN | FIN | RST | PSH) == 0 {
        text.push('.');
    }
    let end = sequence.wrapping_add(length);
    write!(text, " {sequence}:{end}({},{packet_len},{})", length as i32, ip.header.total_len())?;
    if flags & ACK != 0 {
        write!(text, " ack {acknowledged}")?;
    }
    match word(segment, 14) {
        Some(window) => write!(text, " win {window}"),
        None => text.write_str("truncated-tcp"),
    }
}

fn write_udp(text: &mut String, ip: &Ip<'_>) -> std::fmt::Result {
    let (Some(from), Some(to), true) = (word(ip.transport, 0), word(ip.transport, 2), ip.is_first) else {
        let what = if ip.is_first { "truncated-udp" } else { "udp" };
        return write!(text, "{} > {}: {what}", ip.source(), ip.destination());
    };
    write!(text, "{}.{from} > {}.{to}: ", ip.source(), ip.destination())?;
    match word(ip.transport, 4) {
        Some(length) if ip.transport.len() >= 8 => write!(text, "udp {length}"),
        _ => text.write_str("truncated-udp"),
    }
}

/// Bytes in lines: 24 in hexadecimal, in groups of 4, or 48 as characters, in groups of 8.
pub(crate) fn write_bytes(text: &mut String, bytes: &[u8], most: usize, how: Contents) -> std::fmt::Result {
    let (line, group) = if how == Contents::Hex { (24, 4) } else { (48, 8) };
    for (at, &byte) in bytes.iter().take(most).enumerate() {
        if at % line == 0 {
            text.push_str("\n  ");
        } else if at % group == 0 {
            text.push(' ');
        }
        match how {
            Contents::Hex => write!(text, "{byte:02x}")?,
            _ => text.push(if (32..127).contains(&byte) { char::from(byte) } else { '.' }),
        }
    }
    Ok(())
}

struct IPPrint {
    format: Format,
    active: bool,
    file: Option<Arc<Mutex<File>>>,
}

impl Element for IPPrint {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if !self.active {
            return;
        }
        for packet in batch.packets() {
            let Some(network) = packet.network() else { continue };
            let lines = self.format.lines(packet, network);
            match &self.file {
                None => cx.message(&lines),
                Some(file) => {
                    let mut file = lock(file);
                    if let Err(error) = writeln!(file, "{lines}") {
                        cx.message(&format!("OUTFILE: {error}"));
                        self.active = false;
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};
    use testbed::ipv4::{ipv4, refresh};

    use super::*;

    fn printed(arguments: &str, packet: &[u8]) -> String {
        let config = format!("in :: TestInput -> MarkIPHeader -> IPPrint({arguments}) -> out :: TestOutput;");
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.push("in", &[packet]);
        assert_eq!(bench.taken("out"), [packet]);
        bench.messages().join("|")
    }

    fn tcp(header_words: u8, flags: u8) -> Vec<u8> {
        let mut segment =
            vec![0, 10, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, header_words << 4, flags, 0, 0, 0, 0, 0, 0];
        segment.resize(usize::from(header_words) * 4, 0);
        let mut packet = ipv4([1, 0, 0, 1], [1, 0, 0, 2], 6, &segment);
        packet[2..4].copy_from_slice(&1000u16.to_be_bytes());
        packet
    }

    /// The lines that Click's own test expects.
    #[test]
    fn tcp_lines() {
        assert_eq!(
            printed("", &tcp(5, 0x12)),
            "0.000000: 1.0.0.1.10 > 1.0.0.2.20: S 0:961(961,40,1000) ack 0 win 0"
        );
        assert_eq!(
            printed("TIMESTAMP false", &tcp(10, 0x03)),
            "1.0.0.1.10 > 1.0.0.2.20: SF 0:942(942,60,1000) win 0"
        );
        assert_eq!(
            printed("TIMESTAMP false", &tcp(5, 0x10)),
            "1.0.0.1.10 > 1.0.0.2.20: . 0:960(960,40,1000) ack 0 win 0"
        );
        assert_eq!(printed("TIMESTAMP false", &tcp(5, 0x10)[..33]), "1.0.0.1.10 > 1.0.0.2.20: truncated-tcp");
        assert_eq!(printed("TIMESTAMP false", &tcp(5, 0x10)[..23]), "1.0.0.1 > 1.0.0.2: truncated-tcp");
    }

    #[test]
    fn udp_fragments_and_payload() {
        let text = b"Random words in a packet, at least 64 bytes long. Well, now it is.\n";
        let mut datagram = vec![0, 2, 0, 4, 0, 75, 0, 0];
        datagram.extend(text);
        let packet = ipv4([1, 0, 0, 1], [3, 0, 0, 3], 17, &datagram);
        assert_eq!(
            printed("a, TIMESTAMP no, PAYLOAD ascii", &packet),
            "a: 1.0.0.1.2 > 3.0.0.3.4: udp 75\n  Random w ords in  a packet , at lea st 64 by tes long\n  \
             . Well,  now it i s.."
        );
        let mut fragment = ipv4([1, 0, 0, 1], [3, 0, 0, 3], 17, &datagram[24..48]);
        fragment[6..8].copy_from_slice(&[0x20, 3]);
        refresh(&mut fragment);
        assert_eq!(printed("TIMESTAMP 0", &fragment), "1.0.0.1 > 3.0.0.3: udp (frag 4660:24@24+)");
    }

    #[test]
    fn fields_and_contents() {
        let packet = ipv4([1, 0, 0, 1], [3, 0, 0, 3], 89, b"01234567");
        assert_eq!(
            printed(
                "TIMESTAMP false, ID true, TTL true, TOS true, LENGTH true, PAINT true, AGGREGATE true",
                &packet
            ),
            "#0.0: id 4660 ttl 64 tos 0 length 28 1.0.0.1 > 3.0.0.3: ip-proto-89"
        );
        assert_eq!(
            printed("TIMESTAMP false, CONTENTS hex, MAXLENGTH 26", &packet),
            "1.0.0.1 > 3.0.0.3: ip-proto-89\n  4500001c 12340000 40596452 01000001 03000003 30313233\n  3435"
        );
        assert_eq!(printed("TIMESTAMP false", &packet[..19]), "truncated-ip");
        assert_eq!(printed("ACTIVE false", &packet), "");
    }

    #[test]
    fn icmp_lines() {
        let line = |message: &[u8]| {
            let text = printed("TIMESTAMP false", &ipv4([1, 0, 0, 1], [3, 0, 0, 3], 1, message));
            text.strip_prefix("1.0.0.1 > 3.0.0.3: ").unwrap().to_owned()
        };
        assert_eq!(line(&[8, 0, 0, 0, 1, 2, 3, 4]), "icmp echo (258, 772)");
        assert_eq!(line(&[0, 0, 0, 0, 0, 1, 0, 2]), "icmp echo-reply (1, 2)");
        assert_eq!(line(&[8, 0, 0, 0, 1, 2, 3]), "icmp echo truncated-icmp");
        assert_eq!(line(&[11, 1, 0, 0, 0, 0, 0, 0]), "icmp timeexceeded reassembly");
        assert_eq!(line(&[77, 3]), "icmp type 77 code 3");
        assert_eq!(line(&[8]), "truncated-icmp");
        let quoted = ipv4([9, 0, 0, 1], [9, 0, 0, 2], 17, &[0, 1, 0, 53, 0, 8, 0, 0]);
        let unreachable = |code: u8, mtu: u8| [&[3, code, 0, 0, 0, 0, 0, mtu], &quoted[..]].concat();
        assert_eq!(line(&unreachable(3, 0)), "icmp 9.0.0.2 unreachable port udp/53");
        assert_eq!(line(&unreachable(2, 0)), "icmp 9.0.0.2 unreachable protocol udp");
        assert_eq!(line(&unreachable(4, 100)), "icmp 9.0.0.2 unreachable needfrag (mtu 100)");
        assert_eq!(line(&unreachable(99, 0)), "icmp 9.0.0.2 unreachable code 99");
        assert_eq!(line(&unreachable(1, 0)[..20]), "icmp unreachable host truncated-icmp");
    }

    #[test]
    fn a_file_instead() {
        let path = std::env::temp_dir().join(format!("ip-print-{}", std::process::id()));
        let packet = ipv4([1, 0, 0, 1], [3, 0, 0, 3], 89, b"");
        assert_eq!(printed(&format!("TIMESTAMP false, OUTFILE {}", path.display()), &packet), "");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "1.0.0.1 > 3.0.0.3: ip-proto-89\n");
    }

    #[test]
    fn configuration_mistakes() {
        assert!(configure(&CLASS, "CONTENTS octal").is_err());
        assert!(configure(&CLASS, "CONTENTS hex, PAYLOAD hex").is_err());
        assert!(configure(&CLASS, "label, NBYTES 20, CONTENTS true").is_ok());
        assert!(configure(&CLASS, "OUTFILE /nonexistent/file").is_err());
    }
}
