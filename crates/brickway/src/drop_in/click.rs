//! The configuration of a drop-in router, as text: the graph of `brickway run PORT...`, in the Click language like any
//! other, to be read, copied and changed (`brickway run PORT... --print-config`).

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use packet::wire::ethernet::MacAddr;

use crate::settings::{Host, ReversePath, SlowPath};

/// A port as the configuration needs it.
#[derive(Clone, Debug)]
pub(crate) struct PortText {
    /// Its name in the configuration, and Linux's name of its interface.
    pub(crate) name: String,
    pub(crate) mac: MacAddr,
    /// Largest packet, without Ethernet header.
    pub(crate) mtu: u32,
    pub(crate) host: Host,
    /// An address of each family, for ICMP errors of our own.
    pub(crate) ipv4: Option<Ipv4Addr>,
    pub(crate) ipv6: Option<Ipv6Addr>,
}

/// What the configuration depends on beside the ports.
#[derive(Clone, Debug)]
pub(crate) struct Features {
    pub(crate) slow_path: SlowPath,
    /// Arguments of the ACL elements, if there is an access list.
    pub(crate) acl: Option<String>,
    pub(crate) reverse_path: ReversePath,
}

/// The configuration.
pub(crate) fn configuration(ports: &[PortText], features: &Features) -> String {
    let names = ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut text = [HEAD, INPUT].concat();
    if ports.iter().any(|port| port.host == Host::Tap) {
        text.push_str(DEVICE_INPUT);
    }
    text.push_str(OUTPUT);
    for (index, PortText { name, mac, mtu, host, .. }) in ports.iter().enumerate() {
        let input = if *host == Host::Tap { "DeviceInput" } else { "Input" };
        let paint = index + 1;
        line(&mut text, format_args!("in{paint} :: {input}({name}, {mac}, {paint});"));
        line(&mut text, format_args!("out{paint} :: Output({name}, {mtu});"));
    }
    line(&mut text, format_args!("\n// Where packets go: Linux's routes and neighbours, mirrored."));
    line(&mut text, format_args!("rt4 :: FIBLookup({names});\nrt6 :: FIBLookup6({names});\n"));
    // The access list comes first: what it denies must not reach Linux by another way, which would forward it.
    let (mut to4, mut to6) = ("rt4", "rt6");
    if features.reverse_path != ReversePath::Off {
        let arguments = format!("{names}, MODE {}", features.reverse_path.word());
        line(&mut text, format_args!("// Sources that are believed (RFC 3704)."));
        line(&mut text, format_args!("source4 :: CheckReversePath({arguments}) -> {to4};"));
        line(&mut text, format_args!("source6 :: CheckReversePath6({arguments}) -> {to6};\n"));
        (to4, to6) = ("source4", "source6");
    }
    if let Some(arguments) = &features.acl {
        let inputs: Vec<String> =
            (1..).zip(ports).map(|(paint, port)| format!("{} {paint}", port.name)).collect();
        let arguments = format!("{arguments}, INPUTS \"{}\"", inputs.join(", "));
        line(&mut text, format_args!("// The access list.\nacl4 :: ACL({arguments}) -> {to4};"));
        line(&mut text, format_args!("acl6 :: ACL({arguments}) -> {to6};\n"));
        (to4, to6) = ("acl4", "acl6");
    }
    for (index, paint) in (1..=ports.len()).enumerate() {
        line(&mut text, format_args!("in{paint}[0] -> {to4};  in{paint}[1] -> {to6};"));
        line(&mut text, format_args!("rt4[{index}] -> [0] out{paint};  rt6[{index}] -> [1] out{paint};"));
    }
    text.push_str(HOST);
    for (paint, port) in (1..).zip(ports) {
        host(&mut text, paint, port);
    }
    line(
        &mut text,
        format_args!("\n// To this host, a neighbour to resolve, options, what the fast path cannot do."),
    );
    let beyond = ports.len();
    line(&mut text, format_args!("rt4[{beyond}] -> whole;  rt6[{beyond}] -> whole;"));
    if features.reverse_path != ReversePath::Off {
        line(&mut text, format_args!("source4[1] -> whole;  source6[1] -> whole;"));
    }
    match features.slow_path {
        SlowPath::Linux => linux(&mut text, ports),
        SlowPath::Native => native(&mut text, ports),
    }
    text
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
        -> kind :: Classifier(12/0800, 12/86dd, -);
    kind[0] -> Paint($number) -> Strip(14) -> CheckIPHeader -> [0] output;
    kind[1] -> Paint($number) -> Strip(14) -> CheckIP6Header -> [1] output;
    kind[2] -> Paint($number) -> [2] output;
}

";

const DEVICE_INPUT: &str = "\
// The same for a device that Linux does not see: what is no IPv6 packet to forward may be one to Linux, which asks for addresses
// from the unspecified one (RFC 4862, 5.4.2).
elementclass DeviceInput { $port, $mac, $number |
    FromDevice($port)
        -> filter :: HostEtherFilter($mac)
        -> kind :: Classifier(12/0800, 12/86dd, -);
    kind[0] -> Paint($number) -> Strip(14) -> CheckIPHeader -> [0] output;
    kind[1] -> Paint($number) -> Strip(14) -> check :: CheckIP6Header -> [1] output;
    kind[2] -> Paint($number) -> [2] output;
    check[1] -> Unstrip(14) -> [2] output;
}

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

const HOST: &str = "
// To Linux, as if it came in by the port that its paint says. The slow thread does this, so that nobody's ping flood slows the
// others.
whole :: UnstripToMACHeader -> frames :: Punt -> as_it_came :: PaintSwitch;
as_it_came[0] -> Discard;
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
    line(text, format_args!("in{paint}[2] -> frames;"));
    line(text, format_args!("as_it_came[{paint}] -> host{paint};"));
}

/// Linux answers.
fn linux(text: &mut String, ports: &[PortText]) {
    without_header(text, ports);
    line(
        text,
        format_args!(
            "\n// No route, unreachable, prohibited, too long, lived too long: Linux answers, or fragments."
        ),
    );
    for beyond in ports.len() + 1..ports.len() + 4 {
        line(text, format_args!("rt4[{beyond}] -> whole;  rt6[{beyond}] -> whole;"));
    }
    for paint in 1..=ports.len() {
        line(text, format_args!("out{paint}[0], out{paint}[1] => packets4, packets4;"));
        line(text, format_args!("out{paint}[2], out{paint}[3] => packets6, packets6;"));
    }
    if linux_is_behind_all(ports) {
        redirects(text, ports);
    }
}

/// To Linux from behind the lookup.
fn without_header(text: &mut String, ports: &[PortText]) {
    text.push_str(WITHOUT_HEADER);
    for (paint, PortText { mac, .. }) in (1..).zip(ports) {
        line(
            text,
            format_args!(
                "without4[{paint}] -> header4_{paint} :: EtherEncap(0x0800, {mac}, {mac}) -> host{paint};"
            ),
        );
        line(
            text,
            format_args!(
                "without6[{paint}] -> header6_{paint} :: EtherEncap(0x86dd, {mac}, {mac}) -> host{paint};"
            ),
        );
    }
}

/// Linux redirects, whoever answers else: it knows who is a neighbour of whom.
fn redirects(text: &mut String, ports: &[PortText]) {
    let beyond = ports.len() + 4;
    line(
        text,
        format_args!(
            "\n// A few a second of those that leave by the port they came by: Linux forwards them and tells their senders of the\n\
             // better way (RFC 1812 5.2.7.2, RFC 4861 8.2).\n\
             rt4[{beyond}] -> packets4;  rt6[{beyond}] -> packets6;"
        ),
    );
}

/// Whether Linux forwards what it gets, by whatever port that came.
fn linux_is_behind_all(ports: &[PortText]) -> bool {
    ports.iter().all(|port| port.host != Host::None)
}

/// The source address of ICMP errors where a port has none: "IPv4 dummy address" of RFC 7600, section 6.
const NO_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// We answer.
fn native(text: &mut String, ports: &[PortText]) {
    let ipv4 = addresses(ports.iter().map(|port| port.ipv4), NO_ADDRESS);
    let ipv6 = addresses(ports.iter().map(|port| port.ipv6), Ipv6Addr::UNSPECIFIED);
    line(
        text,
        format_args!(
            "\n// RFC 1812 5.2.7, RFC 4443 3.1: what cannot be forwarded is answered, from the address of the port it came by."
        ),
    );
    let reasons = [("net", "noroute"), ("host", "address"), ("filterprohibited", "prohibited")];
    for (beyond, (code4, code6)) in (ports.len() + 1..).zip(reasons) {
        line(text, format_args!("rt4[{beyond}] -> Punt -> ICMPError({ipv4}, unreachable, {code4}) -> rt4;"));
        line(text, format_args!("rt6[{beyond}] -> Punt -> ICMP6Error({ipv6}, unreachable, {code6}) -> rt6;"));
    }
    line(text, format_args!("expired4 :: Punt -> ICMPError({ipv4}, timeexceeded) -> rt4;"));
    line(text, format_args!("expired6 :: Punt -> ICMP6Error({ipv6}, timeexceeded) -> rt6;"));
    for (paint, PortText { mtu, .. }) in (1..).zip(ports) {
        line(text, format_args!("out{paint}[1] -> expired4;  out{paint}[3] -> expired6;"));
        line(text, format_args!("out{paint}[0] -> Punt -> fragment{paint} :: IPFragmenter({mtu}) -> rt4;"));
        line(
            text,
            format_args!(
                "fragment{paint}[1] -> toolong{paint} :: ICMPError({ipv4}, unreachable, needfrag, PMTU {mtu}) -> rt4;"
            ),
        );
        line(
            text,
            format_args!(
                "out{paint}[2] -> Punt -> toobig{paint} :: ICMP6Error({ipv6}, packettoobig, PMTU {mtu}) -> rt6;"
            ),
        );
    }
    if linux_is_behind_all(ports) {
        without_header(text, ports);
        redirects(text, ports);
    }
}

/// The addresses of all ports, in their order; for a port without one that of another.
fn addresses<T: ToString + Copy>(of_ports: impl Iterator<Item = Option<T>> + Clone, none: T) -> String {
    let any = of_ports.clone().flatten().next().unwrap_or(none);
    let list: Vec<String> = of_ports.map(|address| address.unwrap_or(any).to_string()).collect();
    format!("\"{}\"", list.join(" "))
}
