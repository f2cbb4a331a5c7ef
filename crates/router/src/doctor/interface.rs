//! The interfaces of the ports: link, MTU, queues, who else has them, and Linux's checks of source addresses.
//!
//! Netlink and `ethtool` are asked, which answer for the network namespace that the doctor runs in.

use control::switches::{self, Switches};
use packet::PoolOptions;
use ports::{Link, Links, card_driver, largest_mtu, mtu_problem};

use super::offloads::{self, Features};
use super::{Driver, Finding, Host, Patient, PatientPort, Remedy, machine, run};
use crate::features::vlan::vlan_of;

pub(super) fn examine(port: &PatientPort, patient: &Patient) -> Vec<Finding> {
    let name = port.device.as_str();
    let links = match Links::ask() {
        Ok(links) => links,
        Err(error) => return vec![unknown(name, &error)],
    };
    let Some(link) = links.named(name) else { return vec![absence(name, &links)] };
    let mut findings = look_at(port, link, &links, patient);
    if let Some(user) = ports::user_of(name) {
        findings.push(Finding::ok(name, format!("process {user} of Brickway has it")));
    } else if link.has_xdp && port.driver.is_xdp() {
        let why = "there can be one XDP program only";
        let remedy = Remedy::ByHand(format!("stop what attached it, or ip link set dev {name} xdp off"));
        findings.push(Finding::bad(name, "it has an XDP program of somebody else", why, remedy));
    }
    findings.extend(queues(name, link, patient));
    if patient.linux_is_slow_path && port.host == Host::Interface {
        findings.extend(forwarding(name, switches::of_all()[0], &switches::of_interface(name)));
        findings.extend(reverse_path(name, &|sysctl| machine::sysctl(sysctl)));
    }
    findings.extend(offloads(port, link, &links, patient.filters));
    findings
}

/// A port that is a VLAN of another: as Linux has it, or as the router is to make it.
pub(super) fn examine_vlan(port: &PatientPort, patient: &Patient) -> Vec<Finding> {
    let name = port.device.as_str();
    let links = match Links::ask() {
        Ok(links) => links,
        Err(error) => return vec![unknown(name, &error)],
    };
    let link = links.named(name);
    let mut findings = match link {
        Some(link) => look_at(port, link, &links, patient),
        None => vec![Finding::ok(name, "Linux has no such interface: the router makes a TAP interface")],
    };
    if patient.linux_is_slow_path {
        if link.is_some() {
            findings.extend(forwarding(name, switches::of_all()[0], &switches::of_interface(name)));
        }
        findings.extend(reverse_path(name, &|sysctl| machine::sysctl(sysctl)));
    }
    // A TAP interface is that of a router that runs.
    let is_of_linux = link.is_some_and(|link| link.kind != "tun");
    let below = vlan_of(name).and_then(|(below, _)| patient.ports.iter().find(|port| port.device == below));
    let below = below.filter(|below| below.driver.is_xdp() || below.driver == Driver::AfPacket);
    if let Some(below) = below.filter(|_| !is_of_linux)
        && let Ok(text) = run(&format!("ethtool -k {}", below.device))
    {
        findings.extend(offloads::of_port_below(name, &Features::parse(&text), below.driver));
    }
    findings
}

fn unknown(name: &str, error: &std::io::Error) -> Finding {
    let what = format!("netlink does not answer: {error}");
    Finding::bad(name, what, "nothing is known about the interface", Remedy::None)
}

fn absence(name: &str, links: &Links) -> Finding {
    let names = links.iter().map(|link| link.name.as_str());
    let names: Vec<&str> = names.filter(|&name| name != "lo").collect();
    let expected = match names.as_slice() {
        [] => "Linux has none but lo".to_owned(),
        _ => format!("expected one of {}", names.join(", ")),
    };
    let space = if name.contains(',') { "; a space is between ports" } else { "" };
    let what = format!("there is no such interface; {expected}{space}");
    Finding::bad(name, what, "", Remedy::None).preventing()
}

/// What the link itself says.
fn look_at(port: &PatientPort, link: &Link, links: &Links, patient: &Patient) -> Vec<Finding> {
    let name = port.device.as_str();
    if !link.is_ethernet() {
        let why = "a port needs an Ethernet interface";
        return vec![Finding::bad(name, "it is not Ethernet", why, Remedy::None)];
    }
    let mut findings = Vec::new();
    let kind = if link.kind.is_empty() { "a card" } else { &link.kind };
    if !link.is_up {
        let remedy = Remedy::Run(format!("ip link set {name} up"));
        findings.push(Finding::bad(name, "it is down", "nothing comes in or goes out by it", remedy));
    } else if !link.has_carrier {
        let why = "nothing comes in or goes out by it";
        let remedy = Remedy::ByHand("its cable, or its other end".to_owned());
        findings.push(Finding::warn(name, "it has no carrier", why, remedy));
    } else {
        findings.push(Finding::ok(name, format!("it is up ({kind})")));
    }
    let is_vrf = |master: u32| links.iter().any(|link| link.index == master && link.kind == "vrf");
    if let Some(master) = link.master.filter(|&master| !is_vrf(master)) {
        let master = links.name(master).unwrap_or("another interface");
        let why = "that one takes its packets, so Linux forwards them, and not the router";
        let remedy = Remedy::ByHand(format!("ip link set {name} nomaster"));
        findings.push(Finding::bad(name, format!("it is a part of {master}"), why, remedy));
    }
    let frame_bytes = PoolOptions::held_bytes(patient.pools[0].data_bytes);
    if let Some(problem) = mtu_problem(name, link.mtu, frame_bytes, port.driver.is_xdp()) {
        let most = largest_mtu(frame_bytes, port.driver.is_xdp());
        let why = match port.driver.is_xdp() {
            true => "the router does not start",
            false => "longer packets are left to Linux, and dropped where the router filters",
        };
        let remedy = Remedy::ByHand(format!("ip link set {name} mtu {most}"));
        findings.push(Finding::bad(name, problem, why, remedy));
    }
    findings
}

fn queues(name: &str, link: &Link, patient: &Patient) -> Option<Finding> {
    // Without channels the interface has what it was made with.
    let active = run(&format!("ethtool -l {name}")).ok().and_then(|text| active_queues(&text));
    let queues = active.unwrap_or(link.rx_queues);
    let what =
        format!("{queues} receive queue{} for {} worker{}", s(queues), patient.workers, s(patient.workers));
    if queues >= patient.workers {
        return Some(Finding::ok(name, what));
    }
    let why = "workers without a queue get flows handed over by others, which costs more than receiving them";
    let remedy = match link.kind.as_str() {
        "veth" => format!("ethtool -L {name} rx {0} tx {0}", patient.workers),
        _ => format!("ethtool -L {name} combined {}", patient.workers),
    };
    Some(Finding::warn(name, what, why, Remedy::ByHand(remedy)))
}

fn s(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Receive queues in use, of what `ethtool -l` prints.
pub(super) fn active_queues(text: &str) -> Option<usize> {
    let (_, current) = text.split_once("Current hardware settings:")?;
    let number = |name: &str| -> usize {
        let line = current.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    Some(number("RX:") + number("Combined:")).filter(|&queues| queues > 0)
}

/// Whether IPv4 that comes in by a port is left to Linux, though Linux forwards IPv4 (docs/sysctls.md).
fn forwarding(name: &str, linux_forwards: bool, of_port: &Switches) -> Option<Finding> {
    (linux_forwards && !of_port.forwards[0]).then(|| {
        let setting = format!("net.ipv4.conf.{}.forwarding", name.replace('.', "/"));
        let why = "the router leaves such packets to Linux, which drops them";
        let remedy = Remedy::ByHand(format!("sysctl -w {setting}=1"));
        Finding::warn(name, "Linux does not forward IPv4 that comes in by it", why, remedy)
    })
}

/// Linux drops packets whose source it would reach by another interface (the larger of both settings counts,
/// Documentation/networking/ip-sysctl.rst).
fn reverse_path(name: &str, sysctl: &dyn Fn(&str) -> Option<String>) -> Option<Finding> {
    // A dot in the interface's name is not a separator.
    let own = format!("net.ipv4.conf.{}.rp_filter", name.replace('.', "/"));
    let value = |name: &str| sysctl(name).and_then(|value| value.parse::<u8>().ok()).unwrap_or(0);
    (value("net.ipv4.conf.all.rp_filter").max(value(&own)) == 1).then(|| {
        let why =
            "packets of asymmetric ways are dropped, by Linux and by the router that honours the setting";
        let remedy =
            Remedy::ByHand(format!("sysctl -w {own}=2 (loose) where packets come and go by different ways"));
        Finding::warn(name, "Linux checks source addresses strictly (rp_filter)", why, remedy)
    })
}

fn offloads(port: &PatientPort, link: &Link, links: &Links, filters: bool) -> Vec<Finding> {
    let name = port.device.as_str();
    let mut findings = match run(&format!("ethtool -k {name}")) {
        Ok(text) => {
            let card = card_driver(name).unwrap_or_else(|_| link.kind.clone());
            offloads::of_interface(name, &Features::parse(&text), port.driver, &card)
        }
        Err(failure) => vec![offloads::unknown(name, &failure)],
    };
    if link.kind == "veth" {
        findings.extend(match link.below.and_then(|peer| links.name(peer)) {
            Some(peer) => run(&format!("ethtool -k {peer}")).map_or_else(
                |failure| Some(offloads::unknown(peer, &failure)),
                |text| offloads::of_peer(name, peer, &Features::parse(&text), port.driver, filters),
            ),
            None => offloads::of_far_peer(name, port.driver, filters),
        });
    }
    if findings.is_empty() {
        findings.push(Finding::ok(name, "no offload is in the way"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn port(driver: Driver) -> PatientPort {
        PatientPort { device: "vd0".into(), driver, host: Host::Interface, spec: String::new() }
    }

    fn patient() -> Patient {
        Patient {
            ports: Vec::new(),
            workers: 2,
            files: 100,
            filters: false,
            pools: [PoolOptions::default(); 2],
            linux_is_slow_path: true,
            ignore: Vec::new(),
            sees_transit: None,
        }
    }

    #[test]
    fn links_that_cannot_carry_packets() {
        let bridge = Link { index: 3, name: "br0".into(), ..Link::default() };
        let link = Link {
            name: "vd0".into(),
            is_up: true,
            has_carrier: true,
            mac: Some(Default::default()),
            mtu: 1_500,
            rx_queues: 2,
            kind: "veth".into(),
            master: Some(bridge.index),
            ..Link::default()
        };
        let vrf = Link { index: 4, name: "red".into(), kind: "vrf".into(), ..Link::default() };
        let links = Links::from(vec![bridge, vrf, link.clone()]);
        let bad = |link: &Link, driver| -> Vec<String> {
            let findings = look_at(&port(driver), link, &links, &patient());
            findings
                .into_iter()
                .filter(|finding| finding.verdict != Verdict::Ok)
                .map(|finding| finding.what)
                .collect()
        };
        assert_eq!(bad(&link, Driver::AfXdp), ["it is a part of br0"]);
        assert!(bad(&Link { master: Some(4), ..link.clone() }, Driver::AfXdp).is_empty());
        let link = Link { master: None, ..link };
        assert_eq!(bad(&Link { is_up: false, ..link.clone() }, Driver::AfXdp), ["it is down"]);
        assert_eq!(bad(&Link { has_carrier: false, ..link.clone() }, Driver::AfXdp), ["it has no carrier"]);
        assert_eq!(bad(&Link { mac: None, ..link.clone() }, Driver::AfXdp), ["it is not Ethernet"]);
        let long = Link { mtu: 1_800, ..link };
        assert_eq!(
            bad(&long, Driver::AfXdp),
            ["MTU 1800 of vd0: a frame of 1856 bytes holds 1710 at most; expected --frame-size 1946, or \
                 `ip link set vd0 mtu 1710`"]
        );
        assert!(bad(&long, Driver::AfPacket).is_empty());
    }

    #[test]
    fn queues_in_use() {
        let text = "Pre-set maximums:\nRX:\t\t2\nCombined:\tn/a\nCurrent hardware settings:\nRX:\t\t1\nTX:\t\t1\nOther:\t\tn/a\nCombined:\tn/a\n";
        assert_eq!((active_queues(text), active_queues("")), (Some(1), None));
        assert_eq!(active_queues("Current hardware settings:\nRX:\tn/a\nCombined:\t8\n"), Some(8));
    }

    #[test]
    fn strict_reverse_path_filters() {
        let with = |all: &'static str, own: &'static str| {
            reverse_path("eth1.5", &move |name| {
                let value = if name == "net.ipv4.conf.all.rp_filter" { all } else { own };
                assert!(
                    name.starts_with("net.ipv4.conf.all") || name == "net.ipv4.conf.eth1/5.rp_filter",
                    "{name}"
                );
                Some(value.to_owned())
            })
        };
        assert_eq!((with("0", "0"), with("2", "1"), with("1", "2")), (None, None, None));
        assert_eq!(with("1", "0").unwrap().verdict, Verdict::Warn);
        assert!(with("0", "1").unwrap().details()[1].contains("sysctl -w net.ipv4.conf.eth1/5.rp_filter=2"));
    }
}
