//! Filters as tcpdump has them, compiled by libpcap.

use anyhow::{Result, anyhow, bail};
use control::api::{FilterInstruction, PacketFilter};
use pcap::{Capture, Linktype};

/// A program that selects nothing: its verdict is 0.
const NOTHING: FilterInstruction = (0x06, 0, 0, 0);

/// Ethernet, and packets that begin with their IP header (DLT_RAW).
const LINK_TYPES: [Linktype; 2] = [Linktype::ETHERNET, Linktype(12)];

/// Compiles a filter, for Ethernet frames and for IP packets; `None` for an empty one, which selects all. What a filter says of
/// Ethernet selects no packet without such a header.
///
/// # Errors
/// What libpcap says of it.
pub(crate) fn compile(text: &str) -> Result<Option<PacketFilter>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let [ethernet, ip] = LINK_TYPES.map(|link| program(text, link));
    let ethernet = ethernet
        .map_err(|error| anyhow!("filter '{text}': {error}; expected one as `man pcap-filter` has it"))?;
    Ok(Some(PacketFilter { ethernet, ip: ip.unwrap_or_else(|_| vec![NOTHING]) }))
}

fn program(text: &str, link: Linktype) -> Result<Vec<FilterInstruction>> {
    let program = Capture::dead(link)?.compile(text, true).map_err(|error| match error {
        pcap::Error::PcapError(text) => anyhow!(text),
        other => anyhow!(other),
    })?;
    program.get_instructions().iter().map(|instruction| parse(&instruction.to_string())).collect()
}

/// Reads an instruction as it is printed: code, both distances, number.
fn parse(text: &str) -> Result<FilterInstruction> {
    let mut numbers = text.split(' ').map(str::parse::<u32>);
    let (Some(Ok(code)), Some(Ok(jump_true)), Some(Ok(jump_false)), Some(Ok(k))) =
        (numbers.next(), numbers.next(), numbers.next(), numbers.next())
    else {
        bail!("an instruction that cannot be read: {text}");
    };
    Ok((code.try_into()?, jump_true.try_into()?, jump_false.try_into()?, k))
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::filter_program::{FilterProgram, Instruction};
    use proptest::prelude::*;
    use proptest::sample::select;

    fn ours(program: &[FilterInstruction]) -> FilterProgram {
        let list: Vec<Instruction> = (program.iter())
            .map(|&(code, jump_true, jump_false, k)| Instruction { code, jump_true, jump_false, k })
            .collect();
        FilterProgram::new(&list).unwrap()
    }

    /// Filters that random frames of few values meet now and then.
    fn filter() -> impl Strategy<Value = String> {
        let leaf = select(
            &[
                "ip",
                "ip6",
                "arp",
                "tcp",
                "udp",
                "icmp",
                "vlan",
                "vlan 100",
                "broadcast",
                "multicast",
                "port 80",
                "portrange 53-80",
                "src port 53",
                "host 10.0.0.1",
                "net 10.0.0.0/8",
                "dst net 10.0.0.0/24",
                "ether host 02:00:00:00:00:01",
                "ip[8] < 5",
                "tcp[13] & 2 != 0",
                "len > 60",
                "less 40",
                "greater 90",
                "ip proto 47",
                "ip6 proto 58",
                "icmp[0] == 8",
                "ether[0] & 1 = 1",
                "ip[2:2] / 3 > 10",
                "(ip[0] & 15) * 4 = 20",
                "ip[6:2] & 0x1fff = 0",
                "ether[14] << 3 ^ 7 != 0",
                "udp[ip[9]] > 3",
                "ip[8] % 7 = 1",
                "mpls",
                "pppoes",
                "ip host 10.0.0.2",
            ][..],
        );
        let leaf = leaf.prop_map(str::to_owned);
        leaf.prop_recursive(3, 12, 2, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) and ({b})")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) or ({b})")),
                inner.prop_map(|a| format!("not ({a})")),
            ]
        })
    }

    /// Ethertypes, one behind a tag.
    static KINDS: [&[u8]; 6] =
        [&[8, 0], &[0x86, 0xdd], &[8, 6], &[0x81, 0, 0, 100, 8, 0], &[0x88, 0x47], &[1, 2]];

    /// Frames that are IP, ARP or anything, often with known addresses and ports, cut anywhere.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let kinds = select(&KINDS[..]);
        let protocol = select(&[1_u8, 6, 17, 47, 58, 99][..]);
        let address = select(&[[10_u8, 0, 0, 1], [10, 0, 0, 2], [192, 0, 2, 1]][..]);
        let ports = select(&[[0_u8, 53, 0, 80], [0, 80, 0, 9], [4, 4, 4, 4]][..]);
        let rest = prop::collection::vec(any::<u8>(), 0..60);
        let options = 5_u8..8;
        (kinds, protocol, address.clone(), address, ports, options, any::<u8>(), rest, 0_usize..120).prop_map(
            |(kind, protocol, source, destination, ports, words, ttl, rest, cut)| {
                let mut frame = vec![2, 0, 0, 0, 0, 1, 0xff, 0, 0, 0, 0, 2];
                frame.extend(kind);
                frame.extend([
                    if kind == [0x86, 0xdd] { 0x60 } else { 0x40 | words },
                    0,
                    0,
                    60,
                    0,
                    1,
                    ttl & 0x20,
                    0,
                ]);
                frame.extend([ttl, protocol, 0, 0]);
                frame.extend(source.iter().chain(&destination));
                frame.extend(vec![0; usize::from(words - 5) * 4]);
                frame.extend(ports);
                frame.extend(rest);
                frame.truncate(cut.max(1));
                frame
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn our_interpreter_selects_what_libpcap_selects(text in filter(), frame in frame(), optimise in any::<bool>()) {
            for (link, packet) in LINK_TYPES.into_iter().zip([&frame[..], frame.get(14..).unwrap_or_default()]) {
                let Ok(theirs) = Capture::dead(link).unwrap().compile(&text, optimise) else { continue };
                let instructions: Vec<_> =
                    theirs.get_instructions().iter().map(|one| parse(&one.to_string()).unwrap()).collect();
                let selects = ours(&instructions).selects(packet, packet.len() as u32);
                prop_assert_eq!(selects, theirs.filter(packet), "{} {:?}", text, link);
            }
        }
    }

    #[test]
    fn a_filter_is_compiled_for_both_kinds_of_packets() {
        assert_eq!(compile("  ").unwrap(), None);
        let filter = compile("icmp and host 10.0.0.1").unwrap().unwrap();
        assert_ne!(filter.ethernet, filter.ip);
        let filter = compile("ether host 02:00:00:00:00:01").unwrap().unwrap();
        assert_eq!(filter.ip, [NOTHING]);
        let error = compile("port eighty").unwrap_err().to_string();
        assert!(error.starts_with("filter 'port eighty': ") && error.contains("pcap-filter"), "{error}");
    }
}
