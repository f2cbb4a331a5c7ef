//! Interfaces above a port, such as VRRP's macvlan: whose frames are as the port's, and whose are Linux's.
//!
//! Frames to a macvlan come in by the port, and Linux forwards them as if they had come in by the macvlan. The fast path takes
//! them for the port's where that makes no difference: the macvlan is up, is in no VRF or bridge, nor is the port in a VRF, it has
//! the switches of the port, and neither a rule nor a filter of tc names it. What is not certain is Linux's, and `brickway show problems` has the reason.
//!
//! What takes the port's own frames before Linux does (a bridge, a macvlan of mode passthru) makes the port give way. Frames to
//! the members of a bridge that is a port are Linux's.
//!
//! There is no need to look at
//! - VLANs: their frames have a tag;
//! - ipvlan: it takes packets to its addresses, which are the host's, and leaves transit to the port. Those of one in another
//!   network namespace nobody reports here (docs/see.md);
//! - macvtap: its frames are a virtual machine's.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use control::change::{Link, mac_text};
use control::mirror::Mirror;
use packet::wire::ethernet::MacAddr;
use ports::{MOST_STATIONS, Station};

use super::RouterPort;
use super::sysctls::setting;
use crate::beside_linux::tc;
use crate::settings::Host;

/// How often switches, rules and filters are looked at, which nobody announces.
const PERIOD: Duration = Duration::from_millis(300);

/// What stands above a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Above {
    /// Further addresses of the port.
    pub(super) stations: Vec<Station>,
    /// Whether all frames to the port are Linux's.
    pub(super) gives_way: bool,
    /// What Linux forwards, and why.
    pub(super) problems: Vec<Left>,
}

/// Looks at what stands above ports.
#[derive(Debug, Default)]
pub(super) struct Stations {
    looked: Option<Instant>,
    above: Vec<Above>,
}

impl Stations {
    /// Returns what stands above each port, if that has been looked at: when links have changed, and now and then.
    pub(super) fn look(
        &mut self,
        mirror: &Mirror,
        ports: &[RouterPort],
        has_changed: bool,
    ) -> Option<Vec<Above>> {
        let has_any = self.above.iter().any(|above| *above != Above::default());
        let is_due = self.looked.is_none_or(|looked| has_any && looked.elapsed() >= PERIOD);
        if !has_changed && !is_due {
            return None;
        }
        self.looked = Some(Instant::now());
        let names: HashSet<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        let facts = Facts { setting, has_filters: &has_filters };
        self.above = ports.iter().map(|port| above(mirror, port, &names, &facts)).collect();
        Some(self.above.clone())
    }

    /// What Linux gets of frames to the ports or to what stands above them. Where the router `filters`, it forwards none of that.
    pub(super) fn problems(&self, filters: bool) -> impl Iterator<Item = String> {
        let becomes = if filters {
            "dropped, as Linux takes it past the router's filters"
        } else {
            "forwarded by Linux"
        };
        let text = move |Left { what, why }: &Left| format!("{what} {becomes}: {why}");
        self.above.iter().flat_map(|above| &above.problems).map(text)
    }
}

/// What is left to Linux, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    what: String,
    why: String,
}

/// What is asked of Linux beside links and rules.
struct Facts<'a> {
    /// The value of a setting of an interface.
    setting: fn(&str, &str, &str) -> Option<u8>,
    /// Whether programs or filters of tc may see what comes in by an interface.
    has_filters: &'a dyn Fn(&Link) -> bool,
}

/// Switches of an interface that say what becomes of a packet that came in by it, by family.
const SWITCHES: [(&str, &[&str]); 2] = [
    (
        "ipv4",
        &[
            "forwarding",
            "accept_local",
            "accept_source_route",
            "bc_forwarding",
            "disable_policy",
            "disable_xfrm",
            "route_localnet",
            "src_valid_mark",
        ],
    ),
    (
        "ipv6",
        &[
            "forwarding",
            "accept_source_route",
            "disable_ipv6",
            "disable_policy",
            "ioam6_enabled",
            "rpl_seg_enabled",
            "seg6_enabled",
        ],
    ),
];

fn above(mirror: &Mirror, port: &RouterPort, ports: &HashSet<&str>, facts: &Facts<'_>) -> Above {
    let mut above = Above::default();
    let link = mirror.ports().find(|known| known.name == port.name).and_then(|known| known.link);
    let Some(below) = link.filter(|_| port.host == Host::Interface) else { return above };
    let is_master = |link: &Link| below.master == Some(link.index);
    let is_one = |link: &&Link| is_master(link) || !ports.contains(link.name.as_str());
    for link in mirror.right_above(below.index).filter(is_one) {
        let Link { name, kind, .. } = link;
        if is_master(link) || kind.ends_with(" passthru") || kind.ends_with(" source") {
            above.gives_way = true;
            above.problems.push(Left {
                what: format!("{}: what comes in by it is", port.name),
                why: format!("{name} ({kind}) takes its frames; take {name} off it for the fast path"),
            });
            continue;
        }
        if kind != "macvlan" || !link.is_up || !below.is_up {
            continue;
        }
        let Some(mac) = link.mac.map(MacAddr) else { continue };
        let why = match families_of(mirror, port, &below, link, facts) {
            Ok((families, is_strict)) => {
                let is_full = |family: usize| {
                    above.stations.iter().filter(|it| it.families[family]).count() >= MOST_STATIONS
                };
                let has_room = [0, 1].map(|family| families[family] && !is_full(family));
                above.stations.push(Station { mac, families: has_room });
                let left = [0, 1].map(|family| !has_room[family]);
                match left {
                    [false, false] => continue,
                    _ if has_room != families => {
                        format!("a port has {MOST_STATIONS} such interfaces at most")
                    }
                    [true, false] if is_strict => format!(
                        "rp_filter is 1 for it or {}, so that the way back of IPv4 has to be by the interface itself",
                        port.name
                    ),
                    [true, false] => format!("its IPv4 switches differ from those of {}", port.name),
                    [false, true] => format!("its IPv6 switches differ from those of {}", port.name),
                    [true, true] => format!("its switches differ from those of {}", port.name),
                }
            }
            Err(why) => why.to_owned(),
        };
        above.problems.push(Left {
            what: format!("{name}, above {}: frames to {} are", port.name, mac_text(mac.0)),
            why,
        });
    }
    above.stations.retain(|station| station.families != [false; 2]);
    // To Linux, frames to a member of a bridge are frames to the bridge.
    let of_members = mirror.members(below.index).filter_map(|member| member.mac);
    let of_members: BTreeSet<[u8; 6]> = of_members.filter(|&mac| below.mac != Some(mac)).collect();
    if of_members.len() > MOST_STATIONS {
        above.gives_way = true;
        above.problems.push(Left {
            what: format!("{}: what comes in by it is", port.name),
            why: format!("its members have more than {MOST_STATIONS} MAC addresses; give them fewer"),
        });
    }
    above
        .stations
        .extend(of_members.into_iter().map(|mac| Station { mac: MacAddr(mac), families: [false; 2] }));
    above
}

/// Returns for which families frames to an interface are as the port's, or why they are not.
fn families_of(
    mirror: &Mirror,
    port: &RouterPort,
    below: &Link,
    link: &Link,
    facts: &Facts<'_>,
) -> Result<([bool; 2], bool), &'static str> {
    if port.vlan.is_some() {
        return Err("it stands above a VLAN");
    }
    if link.master.is_some() {
        return Err("it is a member of a VRF or a bridge");
    }
    if below.master.is_some() {
        return Err("the port is a member of a VRF");
    }
    if [&link.name, &port.name].iter().any(|name| mirror.has_rule_of_input(name)) {
        return Err("a policy rule names it or the port as input");
    }
    if (facts.has_filters)(link) {
        return Err("tc may filter what comes in by it");
    }
    let setting = facts.setting;
    let is_same =
        |family: &str, name: &str| setting(family, &link.name, name) == setting(family, &port.name, name);
    let mut families = SWITCHES.map(|(family, names)| names.iter().all(|name| is_same(family, name)));
    // Strict, the way back would have to be by the interface itself (RFC 3704, 2.2).
    // Without an IPv4 address loose is strict.
    let has_ipv4 =
        |index| mirror.local_addresses().any(|known| known.index == index && known.address.is_ipv4());
    let rp_filter = [(&link.name, link.index), (&port.name, below.index)].map(|(name, index)| {
        let values = ["all", name].into_iter().filter_map(|name| setting("ipv4", name, "rp_filter"));
        match values.max().unwrap_or(0) {
            2 if !has_ipv4(index) => 1,
            other => other,
        }
    });
    let is_strict = families[0] && rp_filter.contains(&1);
    families[0] &= rp_filter[0] == rp_filter[1] && !is_strict;
    Ok((families, is_strict))
}

/// Whether an interface has a queueing discipline of received packets, or programs of tcx. Where that is not known, it may.
fn has_filters(link: &Link) -> bool {
    // A kernel without tcx has no programs of it.
    tc::may_filter_ingress(&link.name).unwrap_or(true)
        || ports::tcx_programs(&link.name).is_ok_and(|programs| !programs.is_empty())
}

#[cfg(test)]
mod tests {
    use control::change::{Change, Rule, RuleAction, Source};
    use packet::IpVersion;

    use super::*;

    fn link(index: u32, name: &str, kind: &str, below: Option<u32>) -> Link {
        Link {
            index,
            name: name.into(),
            mac: Some([0, 0, 0x5e, 0, 1, index as u8]),
            mtu: 1_500,
            is_up: true,
            has_carrier: true,
            master: None,
            below,
            kind: kind.into(),
            vlan: None,
            has_priorities: false,
            vrf_table: None,
        }
    }

    fn port() -> RouterPort {
        let settings = crate::settings::PortSettings::new("eth1");
        let (name, spec, host, driver) =
            ("eth1".to_owned(), settings.spec(), Host::Interface, settings.driver);
        RouterPort { name, spec, host, device: None, vlan: None, driver }
    }

    /// Of what is named after a setting only that one differs.
    fn differing(_: &str, interface: &str, name: &str) -> Option<u8> {
        Some(u8::from(interface == name || (interface, name) == ("strict", "rp_filter")))
    }

    fn seen(change: impl FnOnce(&mut Mirror, Link)) -> Above {
        let mut mirror = Mirror::new([("eth1".to_owned(), 0)]).unwrap();
        mirror.apply(Source::Netlink, Change::Link(link(1, "eth1", "veth", None)));
        mirror.apply(Source::Netlink, Change::Link(link(9, "red", "vrf", None)));
        change(&mut mirror, link(7, "vrrp", "macvlan", Some(1)));
        let facts = Facts { setting: differing, has_filters: &|link| link.name == "filtered" };
        above(&mirror, &port(), &HashSet::from(["eth1"]), &facts)
    }

    fn with(above: Link) -> Above {
        seen(|mirror, _| mirror.apply(Source::Netlink, Change::Link(above)))
    }

    fn rule(input: &str) -> Rule {
        Rule {
            version: IpVersion::V4,
            priority: 100,
            action: RuleAction::Table(100),
            is_inverted: false,
            from: None,
            to: None,
            input: Some(input.into()),
            suppress_prefix_length: None,
            is_l3mdev: false,
            mark: None,
            has_other_selectors: false,
        }
    }

    #[test]
    fn frames_to_a_macvlan_are_the_ports_where_linux_makes_no_difference() {
        let vrrp = || link(7, "vrrp", "macvlan", Some(1));
        let mac = MacAddr([0, 0, 0x5e, 0, 1, 7]);
        assert_eq!(with(vrrp()).stations, [Station { mac, families: [true, true] }]);
        assert!(with(vrrp()).problems.is_empty());
        assert_eq!(with(Link { is_up: false, ..vrrp() }), Above::default());
        for (left, families) in
            [("disable_ipv6", [true, false]), ("accept_local", [false, true]), ("strict", [false, true])]
        {
            let above = with(Link { name: left.into(), ..vrrp() });
            assert_eq!(
                (above.stations, above.problems.len()),
                (vec![Station { mac, families }], 1),
                "{left}"
            );
        }
        for linux in [
            Link { name: "forwarding".into(), ..vrrp() },
            Link { name: "filtered".into(), ..vrrp() },
            Link { master: Some(9), ..vrrp() },
        ] {
            let above = with(linux);
            assert!(above.stations.is_empty() && above.problems.len() == 1 && !above.gives_way, "{above:?}");
        }
        for input in ["vrrp", "eth1"] {
            let above = seen(|mirror, vrrp| {
                mirror.apply(Source::Netlink, Change::Link(vrrp));
                mirror.apply(Source::Netlink, Change::Rule(rule(input)));
            });
            assert!(above.stations.is_empty() && above.problems.len() == 1, "{above:?}");
        }
        let many = seen(|mirror, vrrp| {
            for index in 20..30 {
                let one = Link { index, name: format!("vrrp.{index}"), ..vrrp.clone() };
                mirror.apply(Source::Netlink, Change::Link(one));
            }
        });
        assert_eq!((many.stations.len(), many.problems.len()), (MOST_STATIONS, 2));
    }

    #[test]
    fn frames_to_members_of_a_bridge_are_linuxs() {
        let of = |members: u32| {
            seen(|mirror, _| {
                for index in 20..20 + members {
                    let member = Link { master: Some(1), ..link(index, &format!("p{index}"), "veth", None) };
                    mirror.apply(Source::Netlink, Change::Link(member));
                }
                // As the bridge.
                let member = Link { master: Some(1), ..link(1, "p1", "veth", None) };
                mirror.apply(Source::Netlink, Change::Link(Link { index: 60, ..member }));
            })
        };
        let mac = |index| MacAddr([0, 0, 0x5e, 0, 1, index]);
        assert_eq!(of(2).stations, [20, 21].map(|index| Station { mac: mac(index), families: [false; 2] }));
        assert!(!of(2).gives_way && of(2).problems.is_empty());
        assert!(of(9).gives_way && of(9).problems.len() == 1);
        // The bridge is another port of the router.
        let mut mirror = Mirror::new([("eth1".to_owned(), 0), ("br0".to_owned(), 1)]).unwrap();
        mirror.apply(Source::Netlink, Change::Link(link(8, "br0", "bridge", None)));
        let member = Link { master: Some(8), ..link(1, "eth1", "veth", None) };
        mirror.apply(Source::Netlink, Change::Link(member));
        let facts = Facts { setting: differing, has_filters: &|_| false };
        assert!(above(&mirror, &port(), &HashSet::from(["eth1", "br0"]), &facts).gives_way);
    }

    #[test]
    fn a_port_gives_way_to_what_takes_its_frames() {
        for kind in ["macvlan passthru", "macvtap passthru", "macvlan source"] {
            let above = with(link(7, "it", kind, Some(1)));
            assert!(above.gives_way && above.stations.is_empty() && above.problems.len() == 1, "{kind}");
        }
        for kind in ["vlan", "ipvlan", "macvtap", "vxlan", "gre"] {
            assert_eq!(with(link(7, "it", kind, Some(1))), Above::default(), "{kind}");
        }
        let in_bridge = seen(|mirror, _| {
            mirror.apply(Source::Netlink, Change::Link(link(8, "br0", "bridge", None)));
            let member = Link { master: Some(8), ..link(1, "eth1", "veth", None) };
            mirror.apply(Source::Netlink, Change::Link(member));
        });
        assert!(in_bridge.gives_way);
        let vrf = Link { vrf_table: Some(100), ..link(9, "red", "vrf", None) };
        let in_vrf = seen(|mirror, _| {
            mirror.apply(Source::Netlink, Change::Link(vrf));
            let member = Link { master: Some(9), ..link(1, "eth1", "veth", None) };
            mirror.apply(Source::Netlink, Change::Link(member));
        });
        assert!(!in_vrf.gives_way);
        // What is above has the main table still.
        let above_vrf = seen(|mirror, vrrp| {
            mirror.apply(
                Source::Netlink,
                Change::Link(Link { vrf_table: Some(100), ..link(9, "red", "vrf", None) }),
            );
            let member = Link { master: Some(9), ..link(1, "eth1", "veth", None) };
            mirror.apply(Source::Netlink, Change::Link(member));
            mirror.apply(Source::Netlink, Change::Link(vrrp));
        });
        assert!(above_vrf.stations.is_empty() && above_vrf.problems.len() == 1, "{above_vrf:?}");
    }
}
