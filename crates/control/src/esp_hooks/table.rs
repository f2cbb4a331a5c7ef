//! The table of the hooks:
//!
//! ```text
//! table inet brickway_ipsec {
//!     flags owner
//!     set udp_ports { type inet_service; }
//!     chain fragments {
//!         type filter hook prerouting priority -450; policy accept;
//!         meta nfproto ipv6 meta mark & MARK != 0 ip6 nexthdr ipv6-frag notrack
//!         meta nfproto ipv6 ether saddr SOURCE ip6 nexthdr ipv6-frag notrack   (if there is one)
//!     }
//!     chain prerouting {
//!         type filter hook prerouting priority 0; policy accept;
//!         meta l4proto esp tproxy ip6 to :1
//!     }
//!     chain input {
//!         type filter hook input priority -300; policy accept;
//!         meta mark & MARK != 0 accept
//!         ether saddr SOURCE accept                           (if there is one)
//!         meta l4proto esp queue to INPUT
//!         udp dport @udp_ports @th,64,32 != 0 queue to INPUT
//!     }
//!     chain output {
//!         type filter hook output priority 300; policy accept;
//!         meta l4proto esp queue to OUTPUT
//!         udp sport @udp_ports @th,64,32 != 0 queue to OUTPUT
//!     }
//! }
//! ```
//!
//! What IPsec made passes the output hook anew. There we come last, so that rules of others have dropped what they drop before it
//! has a number. In the input hook we come first, before rules of others that set the mark.
//!
//! The first 32 bits behind a UDP header are ESP's SPI, or 0 in IKE (RFC 3948, section 2.2); the rule skips shorter datagrams, such as
//! keepalives. Linux uses these bits too. It ignores a length of 0 in the UDP header over IPv6, so the rules do not read
//! the length.
//!
//! Linux reassembles fragments to this host before the input hook over IPv4, but over IPv6 behind it. So the table has it reassemble
//! them before all hooks, as connection tracking would: that is what an expression `tproxy` in the table does, whose rule changes no
//! packet since it takes TCP and UDP only. Fragments that the router hands over are left as they are: the router may have forwarded the
//! others of the same packet, and Linux would wait for them. `notrack` prevents that.

use std::io;

use crate::netfilter::{
    ACCEPT, Draft, Hook, META_MARK, Netfilter, OWNER, REGISTER, SetOf, chain, change_ports, differs,
    expression, is_equal, is_in, keep_bits, load, load_link, load_network, load_transport, number, removal,
    rule, set, set_register, short, table, verdict,
};

/// Its name. It begins unlike the names of the backstop's tables.
pub const NAME: &str = "brickway_ipsec";
const PROBE: &str = "brickway_ipsec_probe";
const SET: &str = "udp_ports";
/// Before Linux reassembles (`NF_IP6_PRI_CONNTRACK_DEFRAG`).
const FRAGMENTS_PRIORITY: i32 = -450;
const INPUT_PRIORITY: i32 = -300;
const OUTPUT_PRIORITY: i32 = 300;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
/// NFPROTO_IPV6.
const IPV6: u8 = 10;
const FRAGMENT: u8 = 44;
const ESP: u8 = 50;
const UDP: u8 = 17;

/// The table of this process.
pub(super) struct Table {
    netfilter: Netfilter,
    udp_ports: Vec<u16>,
}

impl Table {
    /// Makes the table, in the place of one that has no owner. `ends` are what happens to ESP in the input and in the output hook.
    pub(super) fn raise(
        permitted_mark: u32,
        checked_source: Option<[u8; 6]>,
        ends: [Vec<u8>; 2],
    ) -> io::Result<Self> {
        let mut netfilter = Netfilter::open()?;
        let mut messages = removal(NAME, &netfilter.tables()?);
        messages.extend(rules(NAME, permitted_mark, checked_source, ends));
        netfilter.change(messages)?;
        Ok(Self { netfilter, udp_ports: Vec::new() })
    }

    /// Has the kernel take such a table, under another name, and remove it in the same transaction: no packet meets it.
    pub(super) fn probe(ends: [Vec<u8>; 2]) -> io::Result<()> {
        let mut messages = rules(PROBE, 1, Some([0; 6]), ends);
        messages.extend(removal(PROBE, &[(PROBE.to_owned(), 0)]));
        Netfilter::open()?.change(messages)
    }

    /// Changes the ports in one transaction.
    pub(super) fn set_udp_ports(&mut self, ports: &[u16]) -> io::Result<()> {
        let mut ports = ports.to_vec();
        ports.sort_unstable();
        ports.dedup();
        let missing_in = |from: &[u16], of: &[u16]| -> Vec<u16> {
            of.iter().copied().filter(|port| from.binary_search(port).is_err()).collect()
        };
        let mut messages = change_ports(NAME, SET, &missing_in(&ports, &self.udp_ports), false);
        messages.extend(change_ports(NAME, SET, &missing_in(&self.udp_ports, &ports), true));
        self.netfilter.change(messages)?;
        self.udp_ports = ports;
        Ok(())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // It goes with its socket, but a program that is being started may have that a moment longer. There is nothing else to do
        // about a failure.
        let _ = self.netfilter.change(removal(NAME, &[(NAME.to_owned(), 0)]));
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("udp_ports", &self.udp_ports).finish_non_exhaustive()
    }
}

/// Queues the packet under a number. The kernel drops it if no program reads that queue.
pub(super) fn to_queue(number: u16) -> Vec<u8> {
    expression("queue", &[short(1, number), short(2, 1), short(3, 0)])
}

/// Has IPv6 reassemble fragments in prerouting while the rule is there.
fn reassemble() -> [Vec<u8>; 4] {
    let any_port = 1_u16.to_be_bytes();
    let proxy = expression("tproxy", &[number(1, IPV6.into()), number(3, REGISTER)]);
    [load(META_PROTOCOL), is_equal(&[ESP]), set_register(&any_port), proxy]
}

fn rules(of: &str, permitted_mark: u32, checked_source: Option<[u8; 6]>, ends: [Vec<u8>; 2]) -> Vec<Draft> {
    const SOURCE_ADDRESS: u32 = 6;
    const SOURCE_PORT: u32 = 0;
    const DESTINATION_PORT: u32 = 2;
    let esp = |end: &Vec<u8>| vec![load(META_PROTOCOL), is_equal(&[ESP]), end.clone()];
    let esp_in_udp = |port, end| {
        vec![
            load(META_PROTOCOL),
            is_equal(&[UDP]),
            load_transport(port, 2),
            is_in(SET),
            load_transport(8, 4),
            differs(&[0; 4]),
            end,
        ]
    };
    let is_permitted = [load(META_MARK), keep_bits(permitted_mark), differs(&0_u32.to_ne_bytes())];
    let permitted = [&is_permitted[..], &[verdict(ACCEPT)]].concat();
    let is_ipv6 = [load(META_FAMILY), is_equal(&[IPV6])];
    let is_fragment = [load_network(6), is_equal(&[FRAGMENT]), expression("notrack", &[])];
    let [to_input, to_output] = ends;
    let mut input = vec![permitted];
    let is_checked = checked_source.map(|source| [load_link(SOURCE_ADDRESS, 6), is_equal(&source)]);
    input.extend(is_checked.iter().map(|is_checked| [&is_checked[..], &[verdict(ACCEPT)]].concat()));
    input.extend([esp(&to_input), esp_in_udp(DESTINATION_PORT, to_input)]);
    let fragments = |is_checked: &[Vec<u8>]| [&is_ipv6[..], is_checked, &is_fragment].concat();
    let fragments: Vec<_> = [&is_permitted[..]]
        .into_iter()
        .chain(is_checked.iter().map(|is_checked| &is_checked[..]))
        .map(fragments)
        .collect();
    let output = [esp(&to_output), esp_in_udp(SOURCE_PORT, to_output)];
    let mut drafts = vec![table(of, OWNER), set(of, SET, SetOf::Ports, 1)];
    for (name, hook, priority, rules) in [
        ("fragments", Hook::Prerouting, FRAGMENTS_PRIORITY, &fragments[..]),
        ("prerouting", Hook::Prerouting, 0, &[reassemble().to_vec()][..]),
        ("input", Hook::Input, INPUT_PRIORITY, &input),
        ("output", Hook::Output, OUTPUT_PRIORITY, &output),
    ] {
        drafts.push(chain(of, name, hook, priority));
        drafts.extend(rules.iter().map(|expressions| rule(of, name, expressions)));
    }
    drafts
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use testbed::{in_namespace, run};

    use super::*;
    use crate::netfilter::DROP;

    const MARK: u32 = 0x1000_0000;

    fn dropping() -> [Vec<u8>; 2] {
        [verdict(DROP), verdict(DROP)]
    }

    fn listed() -> String {
        let text = run("nft", &format!("-n list table inet {NAME}"));
        text.lines().map(|line| line.trim().to_owned() + "\n").collect()
    }

    /// Without `queue`, which not every kernel has.
    #[test]
    fn rules_are_what_nft_says_they_are() {
        in_namespace(|| {
            let mut table = Table::raise(MARK, None, dropping()).unwrap();
            let text = listed();
            for lines in [
                "flags owner",
                "set udp_ports {\ntype inet_service\n}",
                "type filter hook prerouting priority -450; policy accept;\n\
                 meta mark & 0x10000000 != 0x00000000 ip6 nexthdr 44 notrack",
                "type filter hook prerouting priority 0; policy accept;\nmeta l4proto 50 tproxy ip6 to :1",
                "type filter hook input priority -300; policy accept;\nmeta mark & 0x10000000 != 0x00000000 accept\n\
                 meta l4proto 50 drop\nudp dport @udp_ports @th,64,32 != 0x0 drop\n}",
                "type filter hook output priority 300; policy accept;\n\
                 meta l4proto 50 drop\nudp sport @udp_ports @th,64,32 != 0x0 drop\n}",
            ] {
                assert!(text.contains(lines), "{lines}\nis not in\n{text}");
            }
            for (ports, expected) in [
                (&[4500, 500, 4500][..], "elements = { 500, 4500 }"),
                (&[4501, 500], "elements = { 500, 4501 }"),
            ] {
                table.set_udp_ports(ports).unwrap();
                assert!(listed().contains(expected), "{}", listed());
            }
            let all: Vec<u16> = (1..5000).collect();
            table.set_udp_ports(&all).unwrap();
            assert!(listed().contains(" 4999"));
            table.set_udp_ports(&[]).unwrap();
            assert!(!listed().contains("elements"), "{}", listed());
            drop(table);
            assert_eq!(run("nft", "list tables"), "");
            let table = Table::raise(MARK, Some([2, 1, 2, 3, 4, 5]), dropping()).unwrap();
            let text = listed();
            assert!(text.contains("accept\n@ll,48,48 0x20102030405 accept\nmeta l4proto 50 drop"), "{text}");
            let fragments = "notrack\n@ll,48,48 0x20102030405 ip6 nexthdr 44 notrack";
            assert!(text.contains(fragments), "{text}");
            drop(table);
        });
    }

    #[test]
    fn datagrams_with_esp_are_told_from_others() {
        in_namespace(|| {
            let mut table = Table::raise(MARK, None, dropping()).unwrap();
            for host in ["127.0.0.1", "[::1]"] {
                let [near, far] = [0; 2].map(|port| UdpSocket::bind(format!("{host}:{port}")).unwrap());
                let (near_port, far_port) =
                    (near.local_addr().unwrap().port(), far.local_addr().unwrap().port());
                far.set_nonblocking(true).unwrap();
                near.connect(far.local_addr().unwrap()).unwrap();
                let cases = [&[0; 40][..], &[0, 0, 0, 0, 1], &[0xff], &[9, 9, 9], &[0, 0, 0, 1], &[1; 40]];
                let arrived = || -> Vec<&[u8]> {
                    // The output hook's drop is an error of the sender.
                    cases.into_iter().for_each(|payload| drop(near.send(payload)));
                    let mut bytes = [0; 64];
                    let mut next = || far.recv(&mut bytes).ok().map(|length| bytes[..length].to_vec());
                    let arrived: Vec<_> = std::iter::from_fn(&mut next).collect();
                    cases.into_iter().filter(|payload| arrived.iter().any(|bytes| bytes == payload)).collect()
                };
                for (ports, expected) in [
                    (&[][..], &cases[..]),
                    (&[near_port], &cases[..4]),
                    (&[far_port], &cases[..4]),
                    (&[near_port ^ far_port], &cases),
                ] {
                    table.set_udp_ports(ports).unwrap();
                    assert_eq!(arrived(), expected, "{host}, {ports:?}");
                }
                // The permitted mark holds for the input hook only.
                let program =
                    if far.local_addr().unwrap().is_ipv4() { "iptables-nft" } else { "ip6tables-nft" };
                run(program, &format!("-t mangle -A OUTPUT -j MARK --set-mark {:#x}", MARK | 5));
                for (port, expected) in [(far_port, &cases[..]), (near_port, &cases[..4])] {
                    table.set_udp_ports(&[port]).unwrap();
                    assert_eq!(arrived(), expected, "{host}, {port}");
                }
            }
        });
    }

    #[test]
    fn nothing_stays_of_a_probe() {
        in_namespace(|| {
            Table::probe(dropping()).unwrap();
            assert_eq!(run("nft", "list tables"), "");
            let unknown = expression("no_such_expression", &[]);
            assert!(Table::probe([verdict(DROP), unknown]).is_err());
            assert_eq!(run("nft", "list tables"), "");
            // Also beside a router.
            let table = Table::raise(MARK, None, dropping()).unwrap();
            let before = listed();
            Table::probe(dropping()).unwrap();
            assert_eq!(listed(), before);
            drop(table);
        });
    }

    #[test]
    fn a_table_without_an_owner_is_replaced() {
        in_namespace(|| {
            run("nft", &format!("add table inet {NAME}"));
            let table = Table::raise(MARK, None, dropping()).unwrap();
            assert!(listed().contains("flags owner"));
            assert!(Table::raise(MARK, None, dropping()).is_err());
            drop(table);
        });
    }
}
