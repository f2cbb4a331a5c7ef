//! The configuration of a drop-in router, as text: the graph of `brickway run PORT...`, in the Click language like any
//! other, to be read, copied and changed (`brickway run PORT... --print-config`).

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Result;
use elements::devices::follow_linux::Followed;
use graph::lang::{name_argument, name_arguments};
use packet::wire::ethernet::MacAddr;

use super::Graph;
use super::backstop::{CHECKED, PERMITTED};
use super::plan::{Part, Plan};
use crate::features::vlan;
use crate::settings::{Host, Settings};

/// A port as the configuration needs it.
#[derive(Clone, Debug)]
pub struct PlannedPort {
    /// Its name in the configuration, and Linux's name of its interface.
    pub name: String,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Largest packet, without Ethernet header.
    pub mtu: u32,
    /// How Linux sees it.
    pub(crate) host: Host,
    /// An address of each family, for ICMP errors of our own.
    pub ipv4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub ipv6: Option<Ipv6Addr>,
    /// If it is a VLAN of another port.
    pub vlan: Option<PlannedVlan>,
    /// Linux's rp_filter for it: 0 (off), 1 (strict), 2 (loose).
    pub rp_filter: u8,
    /// Whether Linux forwards IPv4, and IPv6, from it.
    pub linux_forwards: [bool; 2],
}

impl PlannedPort {
    /// Returns a port without addresses, of an interface that Linux forwards from.
    pub fn new(name: String, mac: MacAddr, mtu: u32) -> Self {
        let (ipv4, ipv6, vlan, host) = (None, None, None, Host::Interface);
        Self { name, mac, mtu, host, ipv4, ipv6, vlan, rp_filter: 0, linux_forwards: [true; 2] }
    }
}

/// A VLAN of another port.
#[derive(Clone, Copy, Debug)]
pub struct PlannedVlan {
    /// The number of the other port, from 1.
    pub below: usize,
    /// That of the VLAN.
    pub number: u16,
}

/// The parts of a plan that features build upon.
pub(crate) struct Frame<'a> {
    pub(crate) ports: &'a [PlannedPort],
    /// The ports' names, as arguments.
    pub(crate) names: String,
    /// Of each port, what comes in by it: outputs 0 and 1 are IPv4 and IPv6.
    pub(crate) inputs: Vec<Part>,
    /// Of each port, what leaves by it.
    pub(crate) outputs: Vec<Part>,
    /// Of each port, its Linux; where something filters, by a mark that permits Linux to forward.
    pub(crate) permitted: Vec<Part>,
    /// The lookups of IPv4 and IPv6.
    pub(crate) lookups: [Part; 2],
    /// Takes what the filters have permitted, as behind the checks, to Linux.
    pub(crate) to_linux: Part,
    /// Takes ESP packets that were sealed for Linux, with IPv4 or IPv6 outside, there: they have no Ethernet header.
    pub(crate) sealed: [Part; 2],
    /// Whether policies of IPsec are Linux's.
    pub(crate) follows_ipsec: bool,
}

/// The output of lookups for what waits for its neighbour, counted from the one behind those of the ports.
pub(crate) const RESOLVE: usize = 4;

/// The names of elements that are used before they are made.
const LOOKUPS: [&str; 2] = ["rt4", "rt6"];

/// The configuration.
///
/// # Errors
///
/// A feature lacks something, a file perhaps.
pub(crate) fn configuration(ports: &[PlannedPort], settings: &Settings) -> Result<String> {
    let mut plan = Plan::default();
    let filters = Graph::Ours(settings).filters();
    plan.text(&[HEAD, INPUT, KINDS].concat());
    let has_vlans = ports.iter().any(|port| port.vlan.is_some());
    if has_vlans {
        plan.text(&[vlan::INPUT, KINDS].concat());
    }
    plan.text(OUTPUT);
    if has_vlans {
        plan.text(vlan::OUTPUT);
    }
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (paint, port) in (1..).zip(ports) {
        let (input, output) = match port.vlan {
            Some(vlan) => vlan::port(&mut plan, paint, port, vlan),
            None => physical_port(&mut plan, paint, port),
        };
        for check in ["check4", "untagged4"] {
            plan.follow(Followed::Own4, &port.name, &input.inside(check), "own");
        }
        inputs.push(input);
        outputs.push(output);
    }
    vlan::connect(&mut plan, ports, &outputs);
    let names = name_arguments(ports.iter().map(|port| port.name.as_str()));
    plan.comment("Where packets go: Linux's routes and neighbours, mirrored.");
    let lookups = [("FIBLookup", LOOKUPS[0]), ("FIBLookup6", LOOKUPS[1])]
        .map(|(class, name)| plan.element(name, format_args!("{class}({names})")));
    plan.text(HOST);
    let behind = if filters || settings.follows_ipsec { "permitted" } else { "frames" };
    if behind == "permitted" {
        plan.text(PERMITTED_BY_FILTERS);
    }
    let reseal = if settings.follows_ipsec { "EspReseal -> " } else { "" };
    let to_linux = plan.element("whole", format_args!("{reseal}UnstripToMACHeader -> {behind}"));
    let mut permitted = Vec::new();
    for (paint, port) in (1..).zip(ports) {
        let host = host(&mut plan, paint, port, &outputs[paint - 1]);
        let mark = if filters { PERMITTED } else { CHECKED };
        permitted.push(if behind == "permitted" { permit(&mut plan, paint, port, mark) } else { host });
        vlan::input_of_others(&mut plan, ports, paint, &inputs);
    }
    let sealed = ["sealed4", "sealed6"].map(Part::named);
    if settings.follows_ipsec {
        plan.comment("Packets that were in ESP are ESP again for Linux, whose policies refuse others.");
        with_header(&mut plan, ports, &permitted, "sealed");
        plan.line(format_args!("{to_linux}[1] -> {};  {to_linux}[2] -> {};", sealed[0], sealed[1]));
    }
    let follows_ipsec = settings.follows_ipsec;
    let frame = Frame { ports, names, inputs, outputs, permitted, lookups, to_linux, sealed, follows_ipsec };
    // Packets meet features in their order, so the last one is next to the lookups.
    let mut to = frame.lookups.clone();
    for feature in settings.features.all().into_iter().rev() {
        to = feature.before_lookups(&mut plan, &frame, to)?;
    }
    for feature in settings.features.all() {
        to = feature.before_features(&mut plan, &frame, to);
    }
    plan.comment("From the ports to the lookups, and from these to the ports.");
    let [to4, to6] = to;
    let [rt4, rt6] = &frame.lookups;
    for (index, (input, output)) in frame.inputs.iter().zip(&frame.outputs).enumerate() {
        plan.line(format_args!("{input}[0] -> {to4};  {input}[1] -> {to6};"));
        plan.line(format_args!("{rt4}[{index}] -> [0] {output};  {rt6}[{index}] -> [1] {output};"));
    }
    for feature in settings.features.all() {
        feature.behind_lookups(&mut plan, &frame);
    }
    Ok(plan.finish())
}

/// A port that has a device.
fn physical_port(plan: &mut Plan, paint: usize, port: &PlannedPort) -> (Part, Part) {
    let PlannedPort { name, mac, mtu, .. } = port;
    let word = name_argument(name);
    let input = plan.element(format_args!("in{paint}"), format_args!("Input({word}, {mac}, {paint})"));
    let output = plan.element(format_args!("out{paint}"), format_args!("Output({word}, {mtu})"));
    plan.follow(Followed::Ether, name, &input.inside("filter"), "ether");
    plan.follow(Followed::Stations, name, &input.inside("filter"), "stations");
    (input, output)
}

/// What an output of a port has to know of its MTUs, of which that of IPv4 is `ipv4`.
pub(crate) fn follow_mtu(plan: &mut Plan, port: &str, output: &Part, ipv4: Followed) {
    for (check, what) in [("mtu4", ipv4), ("mtu6", Followed::Mtu6)] {
        plan.follow(what, port, &output.inside(check), "length");
    }
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

pub(super) const HOST: &str = "
// To Linux, as if it came in by the port that its paint says. The slow thread does this, so that nobody's ping flood slows the
// others.
frames :: Punt -> as_it_came :: PaintSwitch;
as_it_came[0] -> Discard;
";

/// Gives packets without an Ethernet header one of the port that their paint says, and them to its Linux. The element to send them
/// to has this name and the number of their family behind it.
pub(crate) fn with_header(plan: &mut Plan, ports: &[PlannedPort], permitted: &[Part], name: &str) {
    plan.text(&format!(
        "{name}4 :: Punt -> by_port_{name}4 :: PaintSwitch;\n\
         {name}6 :: Punt -> by_port_{name}6 :: PaintSwitch;\n\
         by_port_{name}4[0], by_port_{name}6[0] => Discard, Discard;\n"
    ));
    for ((paint, port), host) in (1..).zip(ports).zip(permitted) {
        for (family, ethertype) in [(4, "0x0800"), (6, "0x86dd")] {
            let mac = port.mac;
            let header = plan.element(
                format_args!("{name}{family}_{paint}"),
                format_args!("EtherEncap({ethertype}, {mac}, {mac}) -> {host}"),
            );
            plan.line(format_args!("by_port_{name}{family}[{paint}] -> {header};"));
            plan.follow(Followed::Ether, &port.name, &header, "src");
            plan.follow(Followed::Ether, &port.name, &header, "dst");
        }
    }
}

const PERMITTED_BY_FILTERS: &str = "\
// What the filters have permitted gets a mark: where something filters, Linux forwards nothing from our ports without it.
permitted :: Punt -> as_permitted :: PaintSwitch;
as_permitted[0] -> Discard;
";

/// How Linux sees one port.
fn host(plan: &mut Plan, paint: usize, port: &PlannedPort, output: &Part) -> Part {
    let (host, from) = to_host(plan, paint, port);
    plan.line(format_args!("{from} -> [2] {output};"));
    plan.line(format_args!("as_it_came[{paint}] -> {host};"));
    host
}

/// Linux behind one port: where frames enter it, and where those that it sends come from.
pub(super) fn to_host(plan: &mut Plan, paint: usize, port: &PlannedPort) -> (Part, String) {
    let PlannedPort { name, host, .. } = port;
    let to = match host {
        Host::Interface => format!("ToDevice({})", name_argument(&format!("host:{name}"))),
        Host::Tap => format!("ToDevice({})", tap(port)),
        Host::None => "Discard".to_owned(),
    };
    (plan.element(format_args!("host{paint}"), format_args!("{to}")), from_host(port))
}

/// The TAP interface that stands for a port, as an argument.
fn tap(PlannedPort { name, mac, mtu, .. }: &PlannedPort) -> String {
    name_argument(&tap_spec(name, *mac, *mtu))
}

/// What opens the TAP interface that stands for a port.
pub(super) fn tap_spec(name: &str, mac: MacAddr, mtu: u32) -> String {
    format!("tap:{name}?mac={mac}&mtu={mtu}")
}

/// Where the frames come from that Linux sends by one port.
pub(super) fn from_host(port: &PlannedPort) -> String {
    if port.host == Host::Tap { format!("FromDevice({})", tap(port)) } else { "Idle".to_owned() }
}

/// How one port hands over to Linux what the filters have permitted.
fn permit(plan: &mut Plan, paint: usize, port: &PlannedPort, mark: &str) -> Part {
    let permit = plan.element(format_args!("permit{paint}"), format_args!("{}", marking(port, mark)));
    plan.line(format_args!("as_permitted[{paint}] -> {permit};"));
    permit
}

/// The element that hands packets to Linux with a mark, as if they came in by one port.
pub(super) fn marking(port: &PlannedPort, mark: &str) -> String {
    match port.host {
        Host::None => "Discard".to_owned(),
        _ => format!("ToDevice({})", name_argument(&format!("host:{}{mark}", port.name))),
    }
}

/// Whether Linux forwards what it gets, by whatever port that came.
pub(crate) fn linux_is_behind_all(ports: &[PlannedPort]) -> bool {
    ports.iter().all(|port| port.host != Host::None)
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

/// The source address of ICMP errors where a port has none: "IPv4 dummy address" of RFC 7600, section 6.
const NO_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drop_in::ports_of;
    use crate::load;
    use crate::settings::parse;
    use elements::devices::follow_linux::Follows;
    use graph::lang::{Options, Source};
    use proptest::prelude::*;

    fn port(name: &str, host: Host, vlan: Option<PlannedVlan>) -> PlannedPort {
        PlannedPort { host, vlan, ..PlannedPort::new(name.into(), MacAddr([2, 0, 0, 0, 0, 1]), 1_500) }
    }

    fn settings(toml: &str) -> Settings {
        let settings =
            parse("x", &format!("[[port]]\nname = 'eth1'\n[[port]]\nname = 'eth1.100'\n{toml}")).unwrap();
        Settings { follows_ipsec: true, ..settings }
    }

    fn text(slow_path: &str, reverse_path: &str, below: Host, of_vlan: Host) -> String {
        // The port below may come later.
        let vlan = |number| Some(PlannedVlan { below: 2, number });
        let ports = [
            port("eth1.100", of_vlan, vlan(100)),
            port("eth1", below, None),
            port("eth1.4094", of_vlan, vlan(4094)),
            port("eth2", Host::Interface, None),
        ];
        let mut ports =
            ports.map(|port| PlannedPort { linux_forwards: [slow_path == "native", false], ..port });
        for (port, rp_filter) in ports.iter_mut().zip([1, 0, 2, 1]) {
            port.rp_filter = rp_filter;
        }
        let text = format!(
            "[slow_path]\nmode = '{slow_path}'\n[acl]\nrules = ['deny any any any in eth1.100']\ndefault = 'permit'\n\
             [reverse_path]\nmode = '{reverse_path}'"
        );
        configuration(&ports, &settings(&text)).unwrap()
    }

    #[test]
    fn with_vlans_it_is_a_right_configuration_however_linux_sees_them() {
        for (slow_path, reverse_path) in [("linux", "linux"), ("native", "linux"), ("native", "strict")] {
            for (below, of_vlan) in [
                (Host::Interface, Host::Interface),
                (Host::Interface, Host::Tap),
                (Host::Tap, Host::Tap),
                (Host::None, Host::None),
            ] {
                let text = text(slow_path, reverse_path, below, of_vlan);
                assert_eq!(text.contains("errors4 noroute4.src"), slow_path == "native", "{text}");
                let source = Source { name: format!("{below:?}"), text: text.clone() };
                assert!(load::compile(&source, &Options::default(), &crate::classes()).is_some(), "{text}");
            }
        }
    }

    /// Names that Linux takes: no slash, colon or blank, at most 15 bytes.
    fn any_name() -> impl Strategy<Value = String> {
        let name = "[!-.0-9;-~\u{e9}]{1,15}"
            .prop_filter("Linux does not take it", |name| name.len() <= 15 && name != "." && name != "..");
        // An access list takes a number for one of its own.
        name.prop_filter("a number", |name| name.parse::<u8>().is_err())
    }

    proptest! {
        #[test]
        fn whatever_interfaces_are_called_their_names_come_back(first in any_name(), second in any_name()) {
            prop_assume!(first != second);
            let names = vec![first, second];
            let ports: Vec<PlannedPort> = names.iter().map(|name| port(name, Host::Interface, None)).collect();
            let settings = settings("[acl]\nrules = ['deny any any any']\n[slow_path]\nmode = 'native'");
            let text = configuration(&ports, &settings).unwrap();
            let source = Source { name: "x".to_owned(), text: text.clone() };
            let flat = load::compile(&source, &Options::default(), &crate::classes());
            let flat = flat.ok_or_else(|| TestCaseError::fail(text))?;
            prop_assert_eq!(&crate::capture::places::ports(&flat), &names);
            prop_assert_eq!(&ports_of(&flat), &names);
            let followed = Follows::of(&flat);
            prop_assert!(followed.iter().all(|it| it.port.is_empty() || names.contains(&it.port)));
            prop_assert!(names.iter().all(|name| followed.iter().any(|it| it.port == *name)));
        }
    }

    #[test]
    fn a_script_may_have_any_path() {
        let script = crate::drop_in::Script {
            file: "a \"$x\", 'b'.lua".to_owned(),
            args: "$HOME".to_owned(),
            errors_to_linux: false,
        };
        let text = super::super::lua::configuration(&[port("a,b", Host::Interface, None)], &script).unwrap();
        assert!(text.contains(r#"FILE "a \"\$x\", 'b'.lua", ARGS "\$HOME""#), "{text}");
        assert!(text.contains(r#"LuaRouter("a,b", MTU"#), "{text}");
    }

    /// What `fuzz/fuzz_targets/drop_in.rs` runs: test inputs and outputs stand for ports.
    fn fuzzed() -> String {
        let ports = [1, 2].map(|number| PlannedPort {
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            ..port(&format!("eth{number}"), Host::Interface, None)
        });
        let text = "[acl]\nrules = ['deny tcp any any port 23', 'deny udp any 10.2.0.0/16']\n[reverse_path]\nmode = 'strict'";
        let mut text = configuration(&ports, &settings(text))
            .unwrap()
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
        let text = text("linux", "linux", Host::Interface, Host::Tap);
        for line in [
            "vlans2 :: Classifier(12/8100 14/0064%0fff, 12/8100 14/0ffe%0fff, -);",
            "in2[2] -> vlans2;",
            "vlans2[0] -> in1;",
            "vlans2[1] -> in3;",
            "vlans2[2] -> frames;",
            "out3 :: VlanOutput(eth1.4094, 1500, 4094);",
            "out3[4] -> [2] out2;",
            "FromDevice(tap:eth1.100?mac=02-00-00-00-00-01&mtu=1500) -> [2] out1;",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
        }
        // Without Linux nobody gets the frames of other VLANs.
        let text = self::text("linux", "linux", Host::None, Host::None);
        assert!(text.contains("12/8100 14/0ffe%0fff, !12/8100);"), "{text}");
    }
}
