//! Which interfaces stand above another one: what comes in by them has come in by that one before.
//!
//! That are its VLANs, macvlans and the like (`IFLA_LINK`), the bridge or bond that it is a member of (`IFLA_MASTER`), and what
//! stands above these. Of most kinds `IFLA_LINK` names the interface below, so kinds that nobody has listed do, too. The members of
//! Open vSwitch have one master for all its bridges, whose interfaces nothing ties to members: all of them count.
//!
//! Not above are
//! - the other end of a pair,
//! - tunnels over the interface: what is inside was addressed to this host, which has opened it,
//! - a VRF: for packets of a VRF Linux knows the member that they came in by.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::{InterfaceIndex, Link};

/// Kinds whose `IFLA_LINK` is their other end.
const PAIRS: [&str; 3] = ["netkit", "veth", "vxcan"];

/// The kind of Open vSwitch's master and of the interfaces of its bridges.
const SWITCH: &str = "openvswitch";

/// Kinds whose `IFLA_LINK` is the interface that their packets leave by.
const TUNNELS: [&str; 15] = [
    "bareudp",
    "erspan",
    "geneve",
    "gre",
    "gretap",
    "ip6erspan",
    "ip6gre",
    "ip6gretap",
    "ip6tnl",
    "ipip",
    "sit",
    "vti",
    "vti6",
    "vxlan",
    "xfrm",
];

/// Returns the interfaces above the one of this number. None of `stops` is among them, nor what is only above these.
pub(crate) fn above(
    links: &BTreeMap<InterfaceIndex, Link>,
    bottom: InterfaceIndex,
    stops: &BTreeSet<InterfaceIndex>,
) -> BTreeSet<InterfaceIndex> {
    let mut by_below: BTreeMap<InterfaceIndex, Vec<InterfaceIndex>> = BTreeMap::new();
    for link in links.values() {
        if let Some(below) = link.below.filter(|_| names_what_is_below(&link.kind)) {
            by_below.entry(below).or_default().push(link.index);
        }
        let master = link.master.filter(|master| links.get(master).is_none_or(|it| it.kind != "vrf"));
        if let Some(master) = master {
            by_below.entry(link.index).or_default().push(master);
            let is_of_switch = links.get(&master).is_some_and(|it| it.kind == SWITCH);
            let of_switch = links.values().filter(|it| is_of_switch && it.kind == SWITCH);
            by_below.entry(link.index).or_default().extend(of_switch.map(|it| it.index));
        }
    }
    let (mut found, mut next) = (BTreeSet::new(), vec![bottom]);
    while let Some(below) = next.pop() {
        for &index in by_below.get(&below).into_iter().flatten() {
            if index != bottom && !stops.contains(&index) && found.insert(index) {
                next.push(index);
            }
        }
    }
    found
}

pub(crate) fn names_what_is_below(kind: &str) -> bool {
    !PAIRS.contains(&kind) && !TUNNELS.contains(&kind)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An interface of this kind above `below`, a member of `master`.
    pub(crate) fn link(index: u32, name: &str, kind: &str, below: u32, master: u32) -> Link {
        let some = |number: u32| Some(number).filter(|&number| number != 0);
        Link {
            index,
            name: name.into(),
            mac: None,
            mtu: 1_500,
            is_up: true,
            has_carrier: true,
            master: some(master),
            below: some(below),
            kind: kind.into(),
            vlan: None,
            has_priorities: false,
            vrf_table: None,
        }
    }

    #[test]
    fn what_is_above_is_found_whatever_its_kind() {
        let links = [
            link(1, "eth1", "", 0, 20),
            link(2, "eth2", "veth", 1, 0),
            link(3, "eth1.5", "vlan", 1, 0),
            link(4, "vrrp", "macvlan", 3, 30),
            link(5, "tap", "ipvtap", 1, 0),
            link(6, "new", "of a later Linux", 5, 0),
            link(7, "gre1", "gre", 1, 0),
            link(8, "vx", "vxlan", 1, 20),
            link(9, "port", "vlan", 1, 0),
            link(10, "on port", "macvlan", 9, 0),
            link(20, "br0", "bridge", 0, 0),
            link(21, "br0.7", "vlan", 20, 0),
            link(30, "red", "vrf", 0, 0),
            link(31, "other", "dummy", 0, 30),
        ];
        let links: BTreeMap<u32, Link> = links.into_iter().map(|link| (link.index, link)).collect();
        let found = above(&links, 1, &BTreeSet::from([9]));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6, 20, 21]);
        assert_eq!(above(&links, 9, &BTreeSet::new()).into_iter().collect::<Vec<_>>(), [10]);
        assert!(above(&links, 2, &BTreeSet::new()).is_empty());
    }

    #[test]
    fn what_open_vswitch_may_take_in_is_above() {
        let links = [
            link(1, "eth1", "", 0, 5),
            link(2, "eth2", "", 0, 0),
            link(5, "ovs-system", "openvswitch", 0, 0),
            link(6, "br-int", "openvswitch", 0, 0),
            link(7, "br-int.9", "vlan", 6, 0),
        ];
        let links: BTreeMap<u32, Link> = links.into_iter().map(|link| (link.index, link)).collect();
        let found = |bottom| above(&links, bottom, &BTreeSet::new()).into_iter().collect::<Vec<_>>();
        assert_eq!((found(1), found(2)), (vec![5, 6, 7], vec![]));
    }

    #[test]
    fn circles_end() {
        let links = [link(1, "a", "macvlan", 2, 0), link(2, "b", "macvlan", 1, 0)];
        let links: BTreeMap<u32, Link> = links.into_iter().map(|link| (link.index, link)).collect();
        assert_eq!(above(&links, 1, &BTreeSet::new()).into_iter().collect::<Vec<_>>(), [2]);
    }
}
