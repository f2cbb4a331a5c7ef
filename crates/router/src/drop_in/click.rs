//! The configuration of a drop-in router, as text: the graph of `brickway run PORT...`, in the Click language like any
//! other, to be read, copied and changed (`brickway run PORT... --print-config`).

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use packet::wire::ethernet::MacAddr;

use super::backstop::PERMITTED;
use crate::settings::{Host, ReversePath, SlowPath};

/// A port as the configuration needs it.
#[derive(Clone, Debug)]
pub struct PortText {
    /// Its name in the configuration, and Linux's name of its interface.
    pub name: String,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Largest packet, without Ethernet header.
    pub mtu: u32,
    /// How Linux sees it.
    pub host: Host,
    /// An address of each family, for ICMP errors of our own.
    pub ipv4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub ipv6: Option<Ipv6Addr>,
    /// If it is a VLAN of another port.
    pub vlan: Option<VlanText>,
}

/// A VLAN of another port.
#[derive(Clone, Copy, Debug)]
pub struct VlanText {
    /// The number of the other port, from 1.
    pub below: usize,
    /// That of the VLAN.
    pub number: u16,
}

/// What the configuration depends on beside the ports.
#[derive(Clone, Debug)]
pub struct Features {
    /// Who does what the fast path does not finish.
    pub slow_path: SlowPath,
    /// Arguments of the ACL elements, if there is an access list.
    pub acl: Option<String>,
    /// Which IPv4 sources are believed, for each port.
    pub reverse_path4: Vec<ReversePath>,
    /// Which IPv6 sources are believed.
    pub reverse_path6: ReversePath,
    /// Whether Linux forwards IPv4, and IPv6, between the ports as well.
    pub linux_forwards: [bool; 2],
    /// Whether Linux forwards only what carries our mark, which the configuration then puts on what it permits.
    pub backstop: bool,
}

impl Features {
    /// Mode of each port for an argument of CheckReversePath, if any is on.
    fn reverse_path4(&self) -> Option<String> {
        let words: Vec<&str> = self.reverse_path4.iter().map(|mode| mode.word()).collect();
        let first = *words.first()?;
        if words.iter().any(|word| *word != first) {
            return Some(format!("\"{}\"", words.join(" ")));
        }
        (first != ReversePath::Off.word()).then(|| first.to_owned())
    }

    fn reverse_path6(&self) -> Option<&'static str> {
        (self.reverse_path6 != ReversePath::Off).then(|| self.reverse_path6.word())
    }
}

/// The configuration.
pub fn configuration(ports: &[PortText], features: &Features) -> String {
    let names = ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut text = HEAD.to_owned();
    text.push_str(&[INPUT, KINDS].concat());
    let has_vlans = ports.iter().any(|port| port.vlan.is_some());
    if has_vlans {
        text.push_str(&[VLAN_INPUT, KINDS].concat());
    }
    text.push_str(OUTPUT);
    if has_vlans {
        text.push_str(VLAN_OUTPUT);
    }
    for (paint, PortText { name, mac, mtu, vlan, .. }) in (1..).zip(ports) {
        if let Some(VlanText { number, .. }) = vlan {
            line(&mut text, format_args!("in{paint} :: VlanInput({paint});"));
            line(&mut text, format_args!("out{paint} :: VlanOutput({mtu}, {number});  // {name}"));
            continue;
        }
        line(&mut text, format_args!("in{paint} :: Input({name}, {mac}, {paint});"));
        line(&mut text, format_args!("out{paint} :: Output({name}, {mtu});"));
    }
    for (paint, port) in (1..).zip(ports) {
        if let Some(VlanText { below, .. }) = port.vlan {
            line(&mut text, format_args!("out{paint}[4] -> [2] out{below};"));
        }
    }
    line(&mut text, format_args!("\n// Where packets go: Linux's routes and neighbours, mirrored."));
    line(&mut text, format_args!("rt4 :: FIBLookup({names});\nrt6 :: FIBLookup6({names});"));
    // The access list comes first: what it denies must not reach Linux by another way, which would forward it.
    let (mut to4, mut to6) = ("rt4", "rt6");
    let (reverse_path4, reverse_path6) = (features.reverse_path4(), features.reverse_path6());
    if reverse_path4.is_some() || reverse_path6.is_some() {
        line(&mut text, format_args!("\n// Sources that are believed (RFC 3704)."));
    }
    if let Some(mode) = &reverse_path4 {
        line(&mut text, format_args!("source4 :: CheckReversePath({names}, MODE {mode}) -> {to4};"));
        to4 = "source4";
    }
    if let Some(mode) = reverse_path6 {
        line(&mut text, format_args!("source6 :: CheckReversePath6({names}, MODE {mode}) -> {to6};"));
        to6 = "source6";
    }
    if let Some(arguments) = &features.acl {
        let inputs: Vec<String> =
            (1..).zip(ports).map(|(paint, port)| format!("{} {paint}", port.name)).collect();
        let arguments = format!("{arguments}, INPUTS \"{}\"", inputs.join(", "));
        line(&mut text, format_args!("\n// The access list.\nacl4 :: ACL({arguments}) -> {to4};"));
        line(&mut text, format_args!("acl6 :: ACL({arguments}) -> {to6};"));
        (to4, to6) = ("acl4", "acl6");
    }
    text.push('\n');
    for (index, paint) in (1..=ports.len()).enumerate() {
        line(&mut text, format_args!("in{paint}[0] -> {to4};  in{paint}[1] -> {to6};"));
        line(&mut text, format_args!("rt4[{index}] -> [0] out{paint};  rt6[{index}] -> [1] out{paint};"));
    }
    text.push_str(HOST);
    text.push_str(if features.backstop { PERMITTED_BY_FILTERS } else { JUDGED });
    for (paint, port) in (1..).zip(ports) {
        host(&mut text, paint, port);
        if features.backstop {
            permitted(&mut text, paint, port);
        }
        let vlans = (1..).zip(ports).filter_map(|(of, port)| Some((of, port.vlan?.number, port.vlan?.below)));
        let vlans: Vec<(usize, u16)> =
            vlans.filter(|&(.., below)| below == paint).map(|(of, number, _)| (of, number)).collect();
        input_of_others(&mut text, paint, port.host, &vlans);
    }
    if reverse_path4.is_some() || reverse_path6.is_some() {
        line(&mut text, format_args!("\n// Sources that only Linux can judge."));
    }
    if reverse_path4.is_some() {
        line(&mut text, format_args!("source4[1] -> whole;"));
    }
    if reverse_path6.is_some() {
        line(&mut text, format_args!("source6[1] -> whole;"));
    }
    match features.slow_path {
        SlowPath::Linux => linux(&mut text, ports, features.backstop),
        SlowPath::Native => native(&mut text, &names, ports, features),
    }
    text
}

/// The elements of the port of this number, from 0, that count what comes in and goes out by it, if it is a VLAN.
pub(crate) fn counting_elements(port: u16) -> (String, [String; 3]) {
    let paint = port + 1;
    (format!("in{paint}/untag"), ["sent4", "sent6", "tag"].map(|name| format!("out{paint}/{name}")))
}

/// Appends a line. Writing to a string does not fail.
fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{words}");
}

const HEAD: &str = "\
// A router that is Linux's: its addresses, routes and neighbours, its tools; our forwarding. Made by `brickway run PORT...`.
// To change it, save it and run the file: `brickway run FILE.click`.

";

const INPUT: &str = "\
// What comes in by a port. Output 0: IPv4, output 1: IPv6, both checked, without Ethernet header, painted with the port's
// number. Output 2: everything else, as it came.
elementclass Input { $port, $mac, $number |
    FromDevice($port)
        -> filter :: HostEtherFilter($mac)
";

/// The end of each input: IP packets, checked and painted, and everything else. Frames with a priority tag have elements of
/// their own, so that others pay nothing.
const KINDS: &str = "        -> kind :: Classifier(12/0800, 12/86dd, -);
    // A tag of VLAN 0 only gives the frame a priority (IEEE 802.1Q, 6.9.1).
    kind[2] -> priority :: Classifier(12/8100 14/0000%0fff, 12/88a8 14/0000%0fff, -);
    priority[0] -> VLANDecap(false) -> untagged :: Classifier(12/0800, 12/86dd, -);
    priority[1] -> VLANDecap(false, ETHERTYPE 0x88a8) -> untagged;
    priority[2] -> other :: Paint($number) -> [2] output;
    untagged[2] -> other;
    kind[0] -> Paint($number) -> Strip(14) -> check4 :: CheckIPHeader(MARTIANS true) -> [0] output;
    kind[1] -> Paint($number) -> Strip(14) -> check6 :: CheckIP6Header(MARTIANS true) -> [1] output;
    untagged[0] -> Paint($number) -> Strip(14) -> untagged4 :: CheckIPHeader(MARTIANS true) -> [0] output;
    untagged[1] -> Paint($number) -> Strip(14) -> untagged6 :: CheckIP6Header(MARTIANS true) -> [1] output;
}

";

const VLAN_INPUT: &str = "\
// The same for a VLAN of another port, which hands its frames over with their tag.
elementclass VlanInput { $number |
    input
        -> untag :: VLANDecap(false)
";

const OUTPUT: &str = "\
// What leaves by a port. Inputs 0 and 1: routed IPv4 and IPv6. Input 2: Ethernet frames to send as they are. Outputs 0 and 2:
// IPv4 and IPv6 too long for the port; outputs 1 and 3: what has lived too long.
elementclass Output { $port, $mtu |
    to :: ToDevice($port);
    input[0] -> DropBroadcasts -> mtu4 :: CheckLength($mtu) -> ttl :: DecIPTTL -> UnstripToMACHeader -> to;
    input[1] -> DropBroadcasts -> mtu6 :: CheckLength($mtu) -> limit :: DecIP6HLIM -> UnstripToMACHeader -> to;
    input[2] -> to;
    mtu4[1] -> [0] output;  ttl[1] -> [1] output;
    mtu6[1] -> [2] output;  limit[1] -> [3] output;
}

";

const VLAN_OUTPUT: &str = "\
// What leaves by a VLAN: as above, and by output 4 Ethernet frames with their tag, for the port below. The lookup has put
// one on routed packets.
elementclass VlanOutput { $mtu, $vlan |
    input[0] -> DropBroadcasts -> mtu4 :: CheckLength($mtu) -> ttl :: DecIPTTL -> sent4 :: UnstripToMACHeader -> [4] output;
    input[1] -> DropBroadcasts -> mtu6 :: CheckLength($mtu) -> limit :: DecIP6HLIM -> sent6 :: UnstripToMACHeader -> [4] output;
    input[2] -> tag :: VLANEncap(VLAN_ID $vlan) -> [4] output;
    mtu4[1] -> [0] output;  ttl[1] -> [1] output;
    mtu6[1] -> [2] output;  limit[1] -> [3] output;
}

";

const HOST: &str = "
// To Linux, as if it came in by the port that its paint says. The slow thread does this, so that nobody's ping flood slows the
// others.
frames :: Punt -> as_it_came :: PaintSwitch;
as_it_came[0] -> Discard;
";

const JUDGED: &str = "whole :: UnstripToMACHeader -> frames;
";

const PERMITTED_BY_FILTERS: &str = "
// The same for what the filters above have permitted: with a mark, without which Linux forwards nothing from our ports.
whole :: UnstripToMACHeader -> permitted :: Punt -> as_permitted :: PaintSwitch;
as_permitted[0] -> Discard;
";

const WITHOUT_HEADER: &str = "
// What has the header of its next hop already gets one of ours.
packets4 :: Punt -> without4 :: PaintSwitch;
packets6 :: Punt -> without6 :: PaintSwitch;
without4[0], without6[0] => Discard, Discard;
";

/// How Linux sees one port.
fn host(text: &mut String, paint: usize, port: &PortText) {
    let PortText { name, mac, mtu, host, .. } = port;
    match host {
        Host::Interface => {
            line(text, format_args!("host{paint} :: ToDevice(host:{name});\nIdle -> [2] out{paint};"));
        }
        Host::Tap => {
            let spec = format!("tap:{name}?mac={mac}&mtu={mtu}");
            line(text, format_args!("host{paint} :: ToDevice({spec});"));
            line(text, format_args!("FromDevice({spec}) -> [2] out{paint};"));
        }
        Host::None => {
            line(text, format_args!("host{paint} :: Discard;\nIdle -> [2] out{paint};"));
        }
    }
    line(text, format_args!("as_it_came[{paint}] -> host{paint};"));
}

/// How one port hands over to Linux what the filters have permitted.
fn permitted(text: &mut String, paint: usize, port: &PortText) {
    match port.host {
        Host::None => line(text, format_args!("permit{paint} :: Discard;")),
        _ => line(text, format_args!("permit{paint} :: ToDevice(host:{}{PERMITTED});", port.name)),
    }
    line(text, format_args!("as_permitted[{paint}] -> permit{paint};"));
}

/// What comes in by a port and is no IP packet: of `vlans` (ports and the numbers of their VLANs), or for Linux. Without
/// Linux, tagged frames of other VLANs are dropped, so that they are counted.
fn input_of_others(text: &mut String, paint: usize, host: Host, vlans: &[(usize, u16)]) {
    if vlans.is_empty() {
        line(text, format_args!("in{paint}[2] -> frames;"));
        return;
    }
    let patterns: String =
        vlans.iter().map(|(_, number)| format!("12/8100 14/{number:04x}%0fff, ")).collect();
    let others = if host == Host::None { "!12/8100" } else { "-" };
    line(text, format_args!("in{paint}[2] -> vlans{paint} :: Classifier({patterns}{others});"));
    for (output, (of, _)) in vlans.iter().enumerate() {
        line(text, format_args!("vlans{paint}[{output}] -> in{of};"));
    }
    line(text, format_args!("vlans{paint}[{}] -> frames;", vlans.len()));
}

/// Linux answers.
fn linux(text: &mut String, ports: &[PortText], backstop: bool) {
    without_header(text, ports, backstop);
    line(
        text,
        format_args!(
            "\n// To this host, a neighbour to resolve, options; no route, unreachable, prohibited, too long, lived too long: Linux\n\
             // resolves, answers or fragments. It would answer about ICMPv6 redirects too (RFC 4443, 2.4 (e.2)).\n\
             about_a_redirect :: Discard;\n\
             errors6 :: Classifier(6/3a 40/89, -);  errors6[0] -> about_a_redirect;  errors6[1] -> whole;\n\
             resolve6 :: Classifier(6/3a 7/00%fe 40/89, -);  resolve6[0] -> about_a_redirect;  resolve6[1] -> whole;\n\
             errors_behind6 :: Classifier(6/3a 40/89, -);  errors_behind6[0] -> about_a_redirect;  errors_behind6[1] -> packets6;"
        ),
    );
    let host = ports.len();
    for (beyond, to6) in [(host, "whole"), (host + RESOLVE, "resolve6")] {
        line(text, format_args!("rt4[{beyond}] -> whole;  rt6[{beyond}] -> {to6};"));
    }
    for beyond in host + 1..host + RESOLVE {
        line(text, format_args!("rt4[{beyond}] -> whole;  rt6[{beyond}] -> errors6;"));
    }
    for paint in 1..=ports.len() {
        line(text, format_args!("out{paint}[0], out{paint}[1] => packets4, packets4;"));
        line(text, format_args!("out{paint}[2], out{paint}[3] => errors_behind6, errors_behind6;"));
    }
    if linux_is_behind_all(ports) {
        redirects(text, ports, [true; 2]);
    }
}

/// To Linux from behind the lookup.
fn without_header(text: &mut String, ports: &[PortText], backstop: bool) {
    text.push_str(WITHOUT_HEADER);
    let host = if backstop { "permit" } else { "host" };
    for (paint, PortText { mac, .. }) in (1..).zip(ports) {
        line(
            text,
            format_args!(
                "without4[{paint}] -> header4_{paint} :: EtherEncap(0x0800, {mac}, {mac}) -> {host}{paint};"
            ),
        );
        line(
            text,
            format_args!(
                "without6[{paint}] -> header6_{paint} :: EtherEncap(0x86dd, {mac}, {mac}) -> {host}{paint};"
            ),
        );
    }
}

/// Linux redirects, whoever answers else: it knows who is a neighbour of whom. It does so where it forwards, IPv4 and IPv6.
fn redirects(text: &mut String, ports: &[PortText], forwards: [bool; 2]) {
    let beyond = ports.len() + RESOLVE + 1;
    line(
        text,
        format_args!(
            "\n// A few a second of those that leave by the port they came by: Linux forwards them and tells their senders of the\n\
             // better way (RFC 1812 5.2.7.2, RFC 4861 8.2)."
        ),
    );
    for (family, forwards) in [4, 6].into_iter().zip(forwards) {
        let from = if forwards { format!("rt{family}[{beyond}]") } else { "Idle".to_owned() };
        line(text, format_args!("{from} -> packets{family};"));
    }
}

/// Whether Linux forwards what it gets, by whatever port that came.
fn linux_is_behind_all(ports: &[PortText]) -> bool {
    ports.iter().all(|port| port.host != Host::None)
}

/// The source address of ICMP errors where a port has none: "IPv4 dummy address" of RFC 7600, section 6.
const NO_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// The output of lookups for what waits for its neighbour, counted from the one behind those of the ports.
const RESOLVE: usize = 4;

/// The errors that lookups ask for, by their outputs from the second on: names of their elements, without the number of the
/// family, and codes.
const LOOKUP_ERRORS: [(&str, &str, &str); 3] = [
    ("noroute", "net", "noroute"),
    ("unreachable", "host", "address"),
    ("prohibited", "filterprohibited", "prohibited"),
];

/// The elements with an error's source address that are there once; beside these, `toolong` and `toobig` with the number
/// of each port.
pub(crate) const ERRORS: [[&str; 5]; 2] = [
    ["noroute4", "unreachable4", "prohibited4", "expired4", "malformed4"],
    ["noroute6", "unreachable6", "prohibited6", "expired6", "unknown6"],
];

/// We answer, whether Linux forwards or not.
fn native(text: &mut String, names: &str, ports: &[PortText], features: &Features) {
    let ipv4 = quoted(&addresses4(ports.iter().map(|port| port.ipv4)));
    let ipv6 = quoted(&addresses6(ports.iter().map(|port| port.ipv6)));
    let host = ports.len();
    let resolve = host + RESOLVE;
    line(
        text,
        format_args!(
            "\n// The slow thread forwards what has options (RFC 1812 5.2.4, RFC 8200 4.3), and what had to wait for its neighbour.\n\
             punt4 :: Punt -> slow4 :: FIBLookup({names}, OPTIONS true);\n\
             punt6 :: Punt -> hop6 :: IP6HopOptions -> slow6 :: FIBLookup6({names}, OPTIONS true);\n\
             rt4[{host}] -> punt4;  rt6[{host}] -> punt6;  rt4[{resolve}] -> punt4;  rt6[{resolve}] -> punt6;\n\
             slow4[{host}] -> whole;  slow6[{host}] -> whole;\n\
             slow4[{resolve}] -> wait4 :: AwaitNeighbour({names}) -> slow4;\n\
             slow6[{resolve}] -> wait6 :: AwaitNeighbour6({names}) -> slow6;"
        ),
    );
    line(
        text,
        format_args!(
            "\n// RFC 1812 5.2.7, RFC 4443 3.1: what cannot be forwarded is answered, from the address of the port it came by."
        ),
    );
    for (beyond, (name, code4, code6)) in (host + 1..).zip(LOOKUP_ERRORS) {
        line(text, format_args!("{name}4 :: ICMPError({ipv4}, unreachable, {code4}) -> slow4;"));
        line(text, format_args!("{name}6 :: ICMP6Error({ipv6}, unreachable, {code6}) -> slow6;"));
        line(text, format_args!("rt4[{beyond}] -> Punt -> {name}4;  slow4[{beyond}] -> {name}4;"));
        line(text, format_args!("rt6[{beyond}] -> Punt -> {name}6;  slow6[{beyond}] -> {name}6;"));
    }
    line(
        text,
        format_args!(
            "wait4[1] -> unreachable4;  wait6[1] -> unreachable6;\n\
             malformed4 :: ICMPError({ipv4}, parameterproblem) -> slow4;\n\
             hop6[1] -> unknown6 :: ICMP6Error({ipv6}, parameterproblem, option) -> slow6;\n\
             late4 :: Punt -> expired4 :: ICMPError({ipv4}, timeexceeded) -> slow4;\n\
             late6 :: Punt -> expired6 :: ICMP6Error({ipv6}, timeexceeded) -> slow6;"
        ),
    );
    for (paint, PortText { mtu, .. }) in (1..).zip(ports) {
        let output = paint - 1;
        let own = own_addresses(&addresses4(ports.iter().map(|port| port.ipv4)), output);
        let (first, others) = own.split_once(' ').unwrap_or((&own, ""));
        line(
            text,
            format_args!(
                "slow4[{output}] -> options{paint} :: IPGWOptions({first}, \"{others}\", SOURCE_ROUTE drop) -> [0] out{paint};\n\
                 options{paint}[1] -> malformed4;  slow6[{output}] -> [1] out{paint};\n\
                 out{paint}[1] -> late4;  out{paint}[3] -> late6;\n\
                 out{paint}[0] -> Punt -> fragment{paint} :: IPFragmenter({mtu}) -> [0] out{paint};\n\
                 fragment{paint}[1] -> toolong{paint} :: ICMPError({ipv4}, unreachable, needfrag, PMTU {mtu}) -> slow4;\n\
                 out{paint}[2] -> Punt -> toobig{paint} :: ICMP6Error({ipv6}, packettoobig, PMTU {mtu}) -> slow6;"
            ),
        );
    }
    if linux_is_behind_all(ports) && features.linux_forwards != [false; 2] {
        without_header(text, ports, features.backstop);
        redirects(text, ports, features.linux_forwards);
    }
}

fn quoted(list: &str) -> String {
    format!("\"{list}\"")
}

/// IPv4 addresses of all ports, in their order; for a port without one that of another.
pub(crate) fn addresses4(of_ports: impl Iterator<Item = Option<Ipv4Addr>> + Clone) -> String {
    addresses(of_ports, NO_ADDRESS)
}

/// The same of IPv6.
pub(crate) fn addresses6(of_ports: impl Iterator<Item = Option<Ipv6Addr>> + Clone) -> String {
    addresses(of_ports, Ipv6Addr::UNSPECIFIED)
}

/// All addresses of a list, that with this number first.
pub(crate) fn own_addresses(list: &str, first: usize) -> String {
    let all: Vec<&str> = list.split(' ').collect();
    let own = all.get(first).copied();
    let others = all.iter().copied().filter(|address| Some(*address) != own);
    own.into_iter().chain(others).collect::<Vec<_>>().join(" ")
}

fn addresses<T: ToString + Copy>(of_ports: impl Iterator<Item = Option<T>> + Clone, none: T) -> String {
    let any = of_ports.clone().flatten().next().unwrap_or(none);
    let list: Vec<String> = of_ports.map(|address| address.unwrap_or(any).to_string()).collect();
    list.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;
    use graph::lang::{Options, Source};

    fn port(name: &str, host: Host, vlan: Option<VlanText>) -> PortText {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        PortText { name: name.into(), mac, mtu: 1_500, host, ipv4: None, ipv6: None, vlan }
    }

    fn text(slow_path: SlowPath, below: Host, of_vlan: Host) -> String {
        // The port below may come later.
        let vlan = |number| Some(VlanText { below: 2, number });
        let ports = [
            port("eth1.100", of_vlan, vlan(100)),
            port("eth1", below, None),
            port("eth1.4094", of_vlan, vlan(4094)),
            port("eth2", Host::Interface, None),
        ];
        let acl = Some("deny any any any in eth1.100, DEFAULT permit".to_owned());
        let reverse_path4 =
            vec![ReversePath::Strict, ReversePath::Off, ReversePath::Loose, ReversePath::Strict];
        let features = Features {
            slow_path,
            acl,
            reverse_path4,
            reverse_path6: ReversePath::Strict,
            linux_forwards: [slow_path == SlowPath::Native, false],
            backstop: true,
        };
        configuration(&ports, &features)
    }

    #[test]
    fn with_vlans_it_is_a_right_configuration_however_linux_sees_them() {
        for slow_path in [SlowPath::Linux, SlowPath::Native] {
            for (below, of_vlan) in [
                (Host::Interface, Host::Interface),
                (Host::Interface, Host::Tap),
                (Host::Tap, Host::Tap),
                (Host::None, Host::None),
            ] {
                let text = text(slow_path, below, of_vlan);
                // The follower writes addresses to the elements of these names.
                let mut errors = ERRORS.concat().into_iter();
                let answers = errors.any(|name| text.contains(&format!("{name} ::")));
                assert_eq!(answers, slow_path == SlowPath::Native, "{text}");
                let source = Source { name: format!("{below:?}"), text: text.clone() };
                assert!(load::compile(&source, &Options::default(), &crate::classes()).is_some(), "{text}");
            }
        }
    }

    /// What `fuzz/fuzz_targets/drop_in.rs` runs: test inputs and outputs stand for ports.
    fn fuzzed() -> String {
        let ports = [1, 2].map(|number| PortText {
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            ..port(&format!("eth{number}"), Host::Interface, None)
        });
        let acl = "deny tcp any any port 23, deny udp any 10.2.0.0/16, DEFAULT permit";
        let features = Features {
            slow_path: SlowPath::Linux,
            acl: Some(acl.to_owned()),
            reverse_path4: vec![ReversePath::Strict; 2],
            reverse_path6: ReversePath::Strict,
            linux_forwards: [true; 2],
            backstop: true,
        };
        let mut text = configuration(&ports, &features)
            .replace("FromDevice($port)", "from :: TestInput")
            .replace("ToDevice($port)", "TestOutput");
        for port in ports {
            let to_linux = format!("ToDevice(host:{}", port.name);
            text = text.replace(&format!("{to_linux})"), "TestOutput");
            text = text.replace(&format!("{to_linux}{PERMITTED})"), "TestOutput");
        }
        text
    }

    #[test]
    fn the_fuzz_target_runs_this_configuration() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets/drop_in.click");
        // Set it to write the file again.
        if std::env::var_os("BRICKWAY_UPDATE").is_some() {
            std::fs::write(file, fuzzed()).unwrap();
        }
        assert!(std::fs::read_to_string(file).unwrap() == fuzzed(), "BRICKWAY_UPDATE=1 writes it again");
    }

    #[test]
    fn tagged_frames_find_their_vlan_and_leave_by_the_port_below() {
        let text = text(SlowPath::Linux, Host::Interface, Host::Tap);
        for line in [
            "in2[2] -> vlans2 :: Classifier(12/8100 14/0064%0fff, 12/8100 14/0ffe%0fff, -);",
            "vlans2[0] -> in1;",
            "vlans2[1] -> in3;",
            "vlans2[2] -> frames;",
            "out3 :: VlanOutput(1500, 4094);  // eth1.4094",
            "out3[4] -> [2] out2;",
            "FromDevice(tap:eth1.100?mac=02-00-00-00-00-01&mtu=1500) -> [2] out1;",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
        }
        // Without Linux nobody gets the frames of other VLANs.
        let text = self::text(SlowPath::Linux, Host::None, Host::None);
        assert!(text.contains("12/8100 14/0ffe%0fff, !12/8100);"), "{text}");
    }
}
