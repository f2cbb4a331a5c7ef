//! Fields of the TCP and UDP headers.

use packet::wire::IpProtocol;

use super::draft::Draft;
use super::field::{Field, TRANSPORT, long, number, parse, put, word};
use super::tcp_options::{self, Shown};
use super::view::{UDP_LITE, View};

/// Letters of TCP's flags, from bit 0: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR, NS.
const FLAGS: &str = "FSRPAUECN";

fn print_flags(flags: u16, out: &mut String) {
    const ACK: u16 = 0x10;
    const PUSH_ACK: u16 = 0x18;
    match flags {
        0 => out.push('.'),
        ACK => out.push('A'),
        PUSH_ACK => out.push_str("PA"),
        _ => out.extend(FLAGS.chars().enumerate().filter(|(bit, _)| flags >> bit & 1 != 0).map(|(_, c)| c)),
    }
}

fn parse_flags(text: &str) -> Option<u16> {
    if text == "." {
        return Some(0);
    }
    // Old dumps have a number.
    if text.starts_with(|letter: char| letter.is_ascii_digit()) {
        return parse::<u16>(text).filter(|&flags| flags < 0x1000);
    }
    let mut flags = 0;
    for letter in text.chars() {
        let bit = match letter {
            // Old letters of ECE and CWR.
            'X' => 6,
            'Y' | 'W' => 7,
            letter => FLAGS.find(letter)?,
        };
        flags |= 1 << bit;
    }
    (flags != 0).then_some(flags)
}

/// Adds the options that `shown` shows.
fn print_options(view: &mut View<'_>, out: &mut String, shown: Shown) -> Option<()> {
    let tcp = view.tcp(13)?;
    let header = usize::from(tcp.get(12)? >> 4) * 4;
    if header <= 20 || (shown != Shown::All && tcp_options::only_timestamp(header, tcp.get(20..)?)) {
        out.push('.');
        return Some(());
    }
    tcp_options::print(out, view.tcp(header)?.get(20..header)?, shown)
}

fn read_options(draft: &mut Draft, text: &str, shown: Shown) -> Option<()> {
    let options = tcp_options::read(text, shown)?;
    draft.set_tcp_options(&options);
    Some(())
}

/// Reads bytes of the TCP header, at `at`.
fn read_tcp<const N: usize>(draft: &mut Draft, at: usize, value: Option<[u8; N]>) -> Option<()> {
    let value = value?;
    if let Some(header) = draft.tcp() {
        put(header, at, value);
    }
    Some(())
}

/// Reads bytes of the UDP header, at `at`.
fn read_udp(draft: &mut Draft, at: usize, text: &str) -> Option<()> {
    let value: u16 = parse(text)?;
    let right = |protocol: u8| protocol == IpProtocol::UDP.0 || protocol == UDP_LITE;
    if let Some(header) = draft.transport(right, 8) {
        put(header, at, value.to_be_bytes());
    }
    Some(())
}

fn read_port(draft: &mut Draft, at: usize, text: &str) -> Option<()> {
    let value: u16 = parse(text)?;
    if let Some(header) = draft.transport(super::view::has_ports, 0) {
        put(header, at, value.to_be_bytes());
    }
    Some(())
}

pub(super) static FIELDS: &[Field] = &[
    Field {
        name: "sport",
        aliases: &[],
        order: TRANSPORT,
        print: |view, out| number(out, word(view.ports(2)?, 0)?),
        read: |draft, text| read_port(draft, 0, text),
    },
    Field {
        name: "dport",
        aliases: &[],
        order: TRANSPORT,
        print: |view, out| number(out, word(view.ports(4)?, 2)?),
        read: |draft, text| read_port(draft, 2, text),
    },
    Field {
        name: "tcp_seq",
        aliases: &["tcp_seqno"],
        order: TRANSPORT,
        print: |view, out| number(out, long(view.tcp(8)?, 4)?),
        read: |draft, text| read_tcp(draft, 4, parse(text).map(u32::to_be_bytes)),
    },
    Field {
        name: "tcp_ack",
        aliases: &["tcp_ackno"],
        order: TRANSPORT,
        print: |view, out| number(out, long(view.tcp(12)?, 8)?),
        read: |draft, text| read_tcp(draft, 8, parse(text).map(u32::to_be_bytes)),
    },
    Field {
        name: "tcp_off",
        aliases: &[],
        order: TRANSPORT - 1,
        print: |view, out| number(out, (view.tcp(13)?.get(12)? >> 4) * 4),
        read: |draft, text| {
            draft.set_tcp_header_length(parse::<u8>(text).filter(|&length| length <= 60)?);
            Some(())
        },
    },
    Field {
        name: "tcp_flags",
        aliases: &[],
        order: TRANSPORT,
        print: |view, out| {
            print_flags(word(view.tcp(14)?, 12)? & 0x0fff, out);
            Some(())
        },
        read: |draft, text| {
            let [high, low] = parse_flags(text)?.to_be_bytes();
            if let Some([offset, flags]) =
                draft.tcp().and_then(|header| header.get_mut(12..14)?.first_chunk_mut())
            {
                *offset = (*offset & 0xf0) | high;
                *flags = low;
            }
            Some(())
        },
    },
    Field {
        name: "tcp_window",
        aliases: &["tcp_win"],
        order: TRANSPORT,
        print: |view, out| number(out, word(view.tcp(16)?, 14)?),
        read: |draft, text| read_tcp(draft, 14, parse(text).map(u16::to_be_bytes)),
    },
    Field {
        name: "tcp_sum",
        aliases: &[],
        order: TRANSPORT,
        print: |view, out| number(out, word(view.tcp(18)?, 16)?),
        read: |draft, text| read_tcp(draft, 16, parse(text).map(u16::to_be_bytes)),
    },
    Field {
        name: "tcp_urp",
        aliases: &[],
        order: TRANSPORT,
        print: |view, out| number(out, word(view.tcp(20)?, 18)?),
        read: |draft, text| read_tcp(draft, 18, parse(text).map(u16::to_be_bytes)),
    },
    Field {
        name: "tcp_opt",
        aliases: &[],
        order: TRANSPORT + 3,
        print: |view, out| print_options(view, out, Shown::All),
        read: |draft, text| read_options(draft, text, Shown::All),
    },
    Field {
        name: "tcp_ntopt",
        aliases: &[],
        order: TRANSPORT + 2,
        print: |view, out| print_options(view, out, Shown::NoTimestamp),
        read: |draft, text| read_options(draft, text, Shown::NoTimestamp),
    },
    Field {
        name: "tcp_sack",
        aliases: &[],
        order: TRANSPORT + 1,
        print: |view, out| print_options(view, out, Shown::Sack),
        read: |draft, text| read_options(draft, text, Shown::Sack),
    },
    Field {
        name: "udp_len",
        aliases: &[],
        order: TRANSPORT,
        print: |view, out| number(out, word(view.udp(6)?, 4)?),
        read: |draft, text| read_udp(draft, 4, text),
    },
    Field {
        name: "udp_sum",
        aliases: &[],
        order: TRANSPORT,
        print: |view, out| number(out, word(view.udp(8)?, 6)?),
        read: |draft, text| read_udp(draft, 6, text),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_both_ways() {
        for flags in 0..0x200 {
            let mut text = String::new();
            print_flags(flags, &mut text);
            assert_eq!(parse_flags(&text), Some(flags), "{text}");
        }
        let mut text = String::new();
        print_flags(0x18, &mut text);
        assert_eq!(text, "PA");
        assert_eq!(parse_flags("SW"), Some(0x82));
        assert_eq!(parse_flags("XY"), Some(0xc0));
        assert_eq!(parse_flags("18"), Some(18));
        for bad in ["", "Q", "4096", "S.", "1S"] {
            assert_eq!(parse_flags(bad), None, "{bad}");
        }
    }
}
