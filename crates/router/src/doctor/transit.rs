//! Which way plain transit goes at each port once the router runs, and what would make a better one possible. docs/cards.md
//! has the facts about drivers.
//!
//! `drop_in/in_kernel.rs` decides; here the same is foretold, from what the kernel says of interfaces nobody has opened yet.

use std::fs::read_to_string;

use ports::{Link, Links, Spec, XdpFeatures, card_driver, zero_copy_is_usual_for};

use super::interface::active_queues;
use super::offloads::Features;
use super::{Driver, Finding, Host, Patient, PatientPort, Remedy, machine, run};

/// What is known of an interface.
#[derive(Clone, Debug, Default)]
struct Card {
    /// The kernel's name of the driver: `i40e`.
    driver: String,
    /// Whether it runs programs in the driver.
    is_native: bool,
    /// Whether its MTU is more than a buffer of its driver holds, and the driver takes no frames of several buffers.
    is_too_long: bool,
    /// Whether it can receive and send without copying.
    is_zero_copy: bool,
    /// For a veth: whether its other end takes no redirected frames. Cards take them once they have a program, and have the flag
    /// then only.
    is_deaf: bool,
    /// The name of a veth's other end, if that is in this namespace.
    peer: Option<String>,
    /// Pairs of queues in use, and the most that there can be.
    queues: Option<(usize, usize)>,
}

/// What concerns all ports.
#[derive(Clone, Copy, Debug, Default)]
struct Machine {
    /// Why nothing is forwarded in the kernel, if so.
    refusal: Option<&'static str>,
    processors: usize,
    /// Huge pages of 2 MiB that frames need for not being copied, if these are not free.
    missing_huge_pages: usize,
}

pub(super) fn examine(patient: &Patient) -> Vec<Finding> {
    // Interfaces that cannot be asked or are not there are reported by `interface`.
    let links = Links::ask().unwrap_or_default();
    let ports = patient.ports.iter().filter(|port| port.driver.is_xdp());
    let found: Vec<(&PatientPort, &Link)> =
        ports.filter_map(|port| Some((port, links.named(&port.device)?))).collect();
    let refusal = patient.sees_transit;
    let needed = machine::pool_bytes(patient).div_ceil(2 << 20);
    let (free, _) = machine::free_huge_pages(&read_to_string("/proc/meminfo").unwrap_or_default());
    let machine = Machine {
        refusal: if machine::running_version() < (6, 6) { Some(OLD) } else { refusal },
        processors: processors(),
        missing_huge_pages: if free < needed { needed as usize } else { 0 },
    };
    let cards: Vec<Option<Card>> = found.iter().map(|(_, link)| Card::ask(link, &links)).collect();
    let each = || found.iter().zip(&cards);
    // Where no port receives in the kernel, nothing is redirected.
    let redirects = each().any(|((port, _), card)| {
        card.as_ref().is_some_and(|card| is_native(port, card) && keeps(port, card, machine).is_none())
    });
    let of_port = |((port, _), card): (&(&PatientPort, &Link), &Option<Card>)| {
        let Some(card) = card else {
            let what = "plain transit goes by AF_XDP sockets: what its driver can do is not known";
            return vec![Finding::warn(&port.device, what, OLD, newer_kernel())];
        };
        let mut findings = vec![way(port, card, machine)];
        findings.extend(redirected_to(port, card, machine).filter(|_| redirects));
        findings
    };
    each().flat_map(of_port).collect()
}

/// Returns whether packets that are redirected to an interface may be lost, because its card has no queue for some processor.
pub(crate) fn lacks_queues(name: &str) -> bool {
    let ask = || {
        let links = Links::ask().ok()?;
        let card = Card::ask(links.named(name)?, &links)?;
        card.fewer_queues_than(processors())
    };
    ask().is_some()
}

/// Numbers of processors, up to the last that is online.
pub(super) fn processors() -> usize {
    processors_in(&read_to_string("/sys/devices/system/cpu/online").unwrap_or_default())
}

/// The same of a list as `0-3,5`.
fn processors_in(online: &str) -> usize {
    let last = online.trim().rsplit([',', '-']).next();
    last.and_then(|number| number.parse::<usize>().ok()).map_or(1, |last| last + 1)
}

/// The largest MTU whose packets fit one buffer, with most drivers (docs/cards.md).
const ONE_BUFFER: usize = 3_494;

const OLD: &str = "forwarding in the kernel needs Linux 6.6";

fn newer_kernel() -> Remedy {
    Remedy::ByHand("a kernel of Linux 6.6 or newer".to_owned())
}

impl Card {
    /// Asks the kernel; `None` if it is too old to answer.
    fn ask(link: &Link, links: &Links) -> Option<Self> {
        let features = XdpFeatures::ask(link.index).ok()?;
        let driver = card_driver(&link.name).unwrap_or_else(|_| link.kind.clone());
        let channels = run(&format!("ethtool -l {}", link.name)).unwrap_or_default();
        let most = channels.split("Current hardware settings:").next().and_then(|most| {
            most.lines().find_map(|line| line.strip_prefix("Combined:")?.trim().parse().ok())
        });
        // virtnet_xdp_set() refuses while the host merges packets for good, and says nothing before.
        let offloads = run(&format!("ethtool -k {}", link.name)).unwrap_or_default();
        let is_refused =
            driver == "virtio_net" && Features::parse(&offloads).fixed_on("rx-gro-hw") == Some(true);
        let is_too_long = link.mtu > ONE_BUFFER && !features.receives_fragments();
        Some(Self {
            is_native: features.is_native() && !is_refused && !is_too_long,
            is_too_long,
            is_zero_copy: features.is_zero_copy() && zero_copy_is_usual_for(&driver),
            driver,
            is_deaf: link.kind == "veth" && features.is_native() && !features.sends_redirected(),
            peer: link.below.and_then(|peer| links.name(peer)).map(str::to_owned),
            queues: active_queues(&channels).zip(most),
        })
    }
}

impl Card {
    /// Its queues and the most that it can have, if it loses what processors without a queue redirect to it:
    /// `i40e_xdp_xmit()`, `mlx5e_xdp_xmit()` return ENXIO.
    fn fewer_queues_than(&self, processors: usize) -> Option<(usize, usize)> {
        let has_queue_each = matches!(self.driver.as_str(), "i40e" | "mlx5_core");
        self.queues.filter(|(queues, _)| has_queue_each && *queues < processors)
    }
}

/// Why what comes in by a port keeps to its sockets, if so.
fn keeps(port: &PatientPort, card: &Card, machine: Machine) -> Option<&'static str> {
    if port.host != Host::Interface {
        return Some("Linux sees another interface in its place");
    }
    if port.driver == Driver::AfXdp {
        return Some("driver = \"af_xdp\"");
    }
    if is_wrapped(port) {
        return Some("they are captured, traced or delayed");
    }
    let is_zero_copy = is_zero_copy(port, card, machine) && port.driver == Driver::Auto;
    machine.refusal.or(is_zero_copy.then_some("its card copies nothing"))
}

/// Whether a wrapper has to see every packet.
fn is_wrapped(port: &PatientPort) -> bool {
    Spec::parse(&port.spec).is_ok_and(|spec| spec.is_wrapped())
}

fn has_option(port: &PatientPort, option: &str) -> bool {
    port.spec.split(['?', '&']).any(|known| known == option)
}

/// Whether the kernel's stack is where its program is to run.
fn is_in_stack(port: &PatientPort) -> bool {
    has_option(port, "mode=generic") || has_option(port, "mode=tc")
}

/// Whether it forwards by a tc program, if it does so in the stack.
fn is_in_tc(port: &PatientPort) -> bool {
    port.host == Host::Interface
        && !["mode=generic", "mode=xdp", "steer=all"].iter().any(|it| has_option(port, it))
}

fn is_native(port: &PatientPort, card: &Card) -> bool {
    card.is_native && !is_in_stack(port)
}

fn is_zero_copy(port: &PatientPort, card: &Card, machine: Machine) -> bool {
    let may = is_native(port, card) && card.is_zero_copy && !has_option(port, "zerocopy=no");
    may && machine.missing_huge_pages == 0
}

/// Which way what comes in by a port goes.
fn way(port: &PatientPort, card: &Card, machine: Machine) -> Finding {
    let (name, is_native) = (port.device.as_str(), is_native(port, card));
    let is_veth = card.driver == "veth";
    let what = match keeps(port, card, machine) {
        None if is_native && is_veth && port.driver == Driver::Xdp => {
            "plain transit goes in the kernel (native XDP, which copies each packet of a host at the other end of \
             the veth and has it send no long frames; driver = \"auto\" takes tc)"
                .to_owned()
        }
        None if is_native => "plain transit goes in the kernel (native XDP)".to_owned(),
        None if is_in_tc(port) && is_veth => {
            "plain transit goes in the kernel (tc, which forwards the long frames of hosts whole; driver = \"xdp\" \
             takes native XDP)"
                .to_owned()
        }
        None if is_in_tc(port) => "plain transit goes in the kernel (tc)".to_owned(),
        None => "plain transit goes in the kernel (generic XDP)".to_owned(),
        Some(reason) if !is_native && is_in_tc(port) && machine.refusal != Some(OLD) => {
            format!("plain transit goes by a TAP device of the router: {reason}")
        }
        Some(reason) => {
            let copies = if is_zero_copy(port, card, machine) { "without copies" } else { "which copy" };
            format!("plain transit goes by AF_XDP sockets, {copies}: {reason}")
        }
    };
    if machine.refusal == Some(OLD) && port.driver != Driver::AfXdp {
        return Finding::warn(name, what, "sockets that copy cost several times as much", newer_kernel());
    }
    if !is_native && !is_in_stack(port) {
        let why = "a program in the kernel's stack costs two to three times as much as one in the driver";
        return Finding::warn(name, what, why, native_remedy(name, card));
    }
    if is_native && card.is_zero_copy && machine.missing_huge_pages > 0 && !has_option(port, "zerocopy=no") {
        let why = "its card could receive and send without copying, if frames lay on huge pages";
        let remedy = format!("sysctl -w vm.nr_hugepages={}, best at boot", machine.missing_huge_pages);
        return Finding::warn(name, what, why, Remedy::ByHand(remedy));
    }
    Finding::ok(name, what)
}

/// What lets a driver run programs that now does not.
fn native_remedy(name: &str, card: &Card) -> Remedy {
    if card.is_too_long {
        return Remedy::ByHand(format!(
            "its driver takes no longer frames: ip link set {name} mtu {ONE_BUFFER}"
        ));
    }
    Remedy::ByHand(match (card.driver.as_str(), card.queues) {
        // veth_set_xdp_features()
        ("veth", _) => {
            format!("as many receive queues as the other end sends by: ethtool -L {name} rx NUMBER")
        }
        // ena_xdp_legal_queue_count()
        ("ena", Some((_, most))) if most > 1 => format!("ethtool -L {name} combined {}", most / 2),
        // mlx5e_set_xdp_feature()
        ("mlx5_core", _) => format!("ethtool -K {name} lro off rx-gro-hw off"),
        ("virtio_net", _) => {
            "a virtio-net of the host with ctrl_guest_offloads, or without guest_tso4, guest_tso6, \
             guest_ecn, guest_ufo and guest_csum"
                .to_owned()
        }
        // bond_xdp_set_features()
        ("bonding", _) => "members with native XDP, in a mode that has it (docs/cards.md)".to_owned(),
        _ => return Remedy::None,
    })
}

/// What is wrong with the way out by a port, of packets that other ports' programs redirect to it.
fn redirected_to(port: &PatientPort, card: &Card, machine: Machine) -> Option<Finding> {
    let name = port.device.as_str();
    if port.host != Host::Interface || is_wrapped(port) {
        return None;
    }
    if card.is_deaf {
        let remedy = match &card.peer {
            Some(peer) => Remedy::Run(format!("ethtool -K {peer} gro on")),
            None => Remedy::ByHand("there: ethtool -K PEER gro on".to_owned()),
        };
        let what = "plain transit to it goes by the workers: its other end does not poll (NAPI)";
        return Some(Finding::warn(name, what, "redirected packets would vanish there", remedy));
    }
    let (queues, most) = card.fewer_queues_than(machine.processors)?;
    let remedy = match most >= machine.processors {
        true => format!("ethtool -L {name} combined {}", machine.processors),
        false => "driver = \"af_xdp\" for all ports".to_owned(),
    };
    let what = format!("{queues} queues for {} processors ({})", machine.processors, card.driver);
    let why = "packets that processors without a queue redirect to it are lost";
    Some(Finding::warn(name, what, why, Remedy::ByHand(remedy)))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn port(driver: Driver, spec: &str) -> PatientPort {
        let (device, spec) = ("eth1".into(), spec.into());
        PatientPort { device, driver, host: Host::Interface, spec }
    }

    fn told(finding: &Finding) -> (Verdict, &str, String) {
        let what = finding.what.strip_prefix("plain transit goes ").unwrap_or(&finding.what);
        (finding.verdict, what, finding.remedy.text())
    }

    #[test]
    fn which_way_it_goes() {
        let card = Card { is_native: true, ..Card::default() };
        let zero_copy = Card { is_zero_copy: true, ..card.clone() };
        let (auto, good) = (port(Driver::Auto, "af_xdp:eth1"), Machine::default());
        let is = |port: &PatientPort, card: &Card, machine, expected: (Verdict, &str, &str)| {
            let found = way(port, card, machine);
            let (verdict, what, remedy) = told(&found);
            assert_eq!((verdict, what, remedy.as_str()), expected);
        };
        let kernel = "in the kernel (native XDP)";
        is(&auto, &card, good, (Verdict::Ok, kernel, ""));
        // What a real sender on a veth pays by each.
        let in_veth = Card { driver: "veth".into(), ..card.clone() };
        for (driver, spec, expected) in [
            (Driver::Auto, "af_xdp:eth1?mode=tc", "(tc, which forwards the long frames of hosts whole; "),
            (Driver::Xdp, "af_xdp:eth1", "(native XDP, which copies each packet of a host "),
            (Driver::Auto, "af_xdp:eth1?mode=generic", "(generic XDP)"),
        ] {
            let found = way(&port(driver, spec), &in_veth, good);
            assert_eq!(found.verdict, Verdict::Ok, "{found:?}");
            assert!(told(&found).1.starts_with(&format!("in the kernel {expected}")), "{found:?}");
        }
        is(&port(Driver::Xdp, "af_xdp:eth1"), &zero_copy, good, (Verdict::Ok, kernel, ""));
        let copies_nothing = "by AF_XDP sockets, without copies: its card copies nothing";
        is(&auto, &zero_copy, good, (Verdict::Ok, copies_nothing, ""));
        let small = Machine { missing_huge_pages: 50, ..good };
        let pages = "sysctl -w vm.nr_hugepages=50, best at boot";
        is(&auto, &zero_copy, small, (Verdict::Warn, kernel, pages));
        let asked = "by AF_XDP sockets, which copy: driver = \"af_xdp\"";
        is(&port(Driver::AfXdp, "af_xdp:eth1"), &card, good, (Verdict::Ok, asked, ""));
        let captured = "by AF_XDP sockets, which copy: they are captured, traced or delayed";
        is(&port(Driver::Auto, "af_xdp:eth1?capture=x"), &card, good, (Verdict::Ok, captured, ""));
        let judged = Machine { refusal: Some("an access list judges it"), ..good };
        let listed = "by AF_XDP sockets, which copy: an access list judges it";
        is(&auto, &card, judged, (Verdict::Ok, listed, ""));
        let by_tap = "by a TAP device of the router: an access list judges it";
        is(&port(Driver::Auto, "af_xdp:eth1?mode=tc"), &in_veth, judged, (Verdict::Ok, by_tap, ""));
        let old = "by AF_XDP sockets, which copy: forwarding in the kernel needs Linux 6.6";
        let newer = "a kernel of Linux 6.6 or newer";
        is(&auto, &card, Machine { refusal: Some(OLD), ..good }, (Verdict::Warn, old, newer));
    }

    #[test]
    fn drivers_without_native_xdp() {
        let remedy = |driver: &str, queues| {
            let card = Card { driver: driver.into(), queues, ..Card::default() };
            let finding = way(&port(Driver::Auto, "af_xdp:eth1"), &card, Machine::default());
            let (verdict, what, remedy) = told(&finding);
            assert_eq!((verdict, what), (Verdict::Warn, "in the kernel (tc)"));
            remedy
        };
        assert_eq!(remedy("e1000e", None), "");
        let long = Card { driver: "vmxnet3".into(), is_too_long: true, ..Card::default() };
        let finding = way(&port(Driver::Auto, "af_xdp:eth1"), &long, Machine::default());
        assert_eq!(told(&finding).2, "its driver takes no longer frames: ip link set eth1 mtu 3494");
        assert_eq!(remedy("ena", Some((8, 8))), "ethtool -L eth1 combined 4");
        assert_eq!(remedy("mlx5_core", None), "ethtool -K eth1 lro off rx-gro-hw off");
        let chosen = port(Driver::Auto, "af_xdp:eth1?mode=generic");
        assert_eq!(way(&chosen, &Card::default(), Machine::default()).verdict, Verdict::Ok);
    }

    #[test]
    fn ways_out_that_lose_packets() {
        let machine = Machine { processors: 8, ..Machine::default() };
        let port = port(Driver::Auto, "af_xdp:eth1");
        let remedy = |card: &Card| redirected_to(&port, card, machine).map(|finding| finding.remedy);
        assert_eq!(remedy(&Card::default()), None);
        let deaf = Card { is_deaf: true, ..Card::default() };
        assert_eq!(remedy(&deaf), Some(Remedy::ByHand("there: ethtool -K PEER gro on".to_owned())));
        let here = Card { peer: Some("far".into()), ..deaf };
        assert_eq!(remedy(&here), Some(Remedy::Run("ethtool -K far gro on".to_owned())));
        let card =
            |driver: &str, queues| Card { driver: driver.into(), queues: Some(queues), ..Card::default() };
        assert_eq!(remedy(&card("i40e", (8, 8))), None);
        assert_eq!(remedy(&card("ice", (4, 8))), None);
        let more = Remedy::ByHand("ethtool -L eth1 combined 8".to_owned());
        assert_eq!(remedy(&card("mlx5_core", (4, 16))), Some(more));
        let other = Remedy::ByHand("driver = \"af_xdp\" for all ports".to_owned());
        assert_eq!(remedy(&card("i40e", (4, 4))), Some(other));
        assert_eq!(["0-3\n", "0", "0,2-5", ""].map(processors_in), [4, 1, 6, 1]);
    }
}
