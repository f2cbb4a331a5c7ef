//! The settings of Linux's interfaces that decide about forwarding (`net.ipv4.conf`, `net.ipv6.conf`), as Linux puts them together.
//!
//! Linux notifies of changes of some of them (RTM_NEWNETCONF). Of others it does not: `accept_local`, `disable_ipv6`, the IPv6 MTU
//! that a router advertises or an administrator sets, `ip_forward_use_pmtu`. So all are read again a few times a second
//! ([`PERIOD`]), and at once after a notification. Files of /proc/sys are read without Linux's lock of its interfaces, which
//! netlink would wait for.
//!
//! IPv4 of a VRF's members comes in by the VRF to Linux, whose settings count then (drivers/net/vrf.c). Of IPv6 the members' do.
//!
//! docs/sysctls.md lists what the router obeys.

use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};

use crate::change::InterfaceIndex;

/// Time between two looks.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);

/// The least path MTU that Linux learns (`net.ipv4.route.min_pmtu`), where it does not say.
const LEAST_PATH_MTU: u32 = 552;

/// What the settings of an interface, with those of all interfaces, say of forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// Whether Linux forwards IPv4, and IPv6, that comes in by it.
    pub forwards: [bool; 2],
    /// Which IPv4 sources are believed: 0 all, 1 strictly, 2 loosely (`rp_filter`), [`NOT_OF_HOST`].
    pub rp_filter: u8,
    /// Whether the host's own addresses may be sources of IPv4 that comes in by it (`accept_local`).
    pub accepts_own: bool,
    /// The largest IPv4, and IPv6, packet that leaves by it without a look at more than routes, where that is not the link's
    /// MTU: the least MTU of a path where Linux forwards by learned ones (`ip_forward_use_pmtu`), and the MTU of IPv6.
    pub longest: [Option<u32>; 2],
    /// Whether it is a member of a VRF: a strict `rp_filter` takes the way back by any member then.
    pub is_in_vrf: bool,
}

/// All sources are believed but those that Linux has a route to as to its own, or a broadcast address: what an `rp_filter` of 0
/// means where there are such routes beside those of its addresses.
pub const NOT_OF_HOST: u8 = 3;

/// Returns whether Linux forwards IPv4, and IPv6, in the network namespace of this thread.
pub fn of_all() -> [bool; 2] {
    let is_on = |path: &str| setting(path).is_some_and(|value| value != 0);
    [is_on("ipv4/ip_forward"), is_on("ipv6/conf/all/forwarding")]
}

fn setting(path: &str) -> Option<u32> {
    std::fs::read_to_string(format!("/proc/sys/net/{path}")).ok()?.trim().parse().ok()
}

/// Reads the settings of an interface in the network namespace of this thread, as of its VRF if it is in one.
pub fn of_interface(name: &str) -> Switches {
    put_together(name, vrf_of(name).as_deref(), &setting)
}

/// The VRF of which an interface is a member, by /sys.
fn vrf_of(name: &str) -> Option<String> {
    let master = format!("/sys/class/net/{name}/master");
    let is_vrf = std::fs::read_to_string(format!("{master}/uevent")).ok()?.contains("DEVTYPE=vrf");
    let name = is_vrf.then(|| std::fs::read_link(master).ok())??;
    Some(name.file_name()?.to_str()?.to_owned())
}

/// Reads the settings of the interface with this name and number, a member of this VRF, in the network namespace of this thread.
/// `None` where the name is another interface's by now. A setting that is not there is off: an interface without IPv6 does not
/// forward IPv6.
pub(crate) fn of_link(index: InterfaceIndex, name: &str, vrf: Option<&str>) -> Option<Switches> {
    let read = put_together(name, vrf, &setting);
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let number = netdevice::name_to_index(socket.ok()?, name).ok()?;
    (number == index).then_some(read)
}

/// The settings of an interface, of which `value` reads one by its path.
fn put_together(name: &str, vrf: Option<&str>, value: &dyn Fn(&str) -> Option<u32>) -> Switches {
    let of = |name: &str, family: &str, setting: &str| {
        value(&format!("{family}/conf/{name}/{setting}")).unwrap_or(0)
    };
    let own = |setting: &str| of(name, "ipv6", setting);
    let input = |setting: &str| of(vrf.unwrap_or(name), "ipv4", setting);
    let all = |family: &str, setting: &str| value(&format!("{family}/conf/all/{setting}")).unwrap_or(0);
    // net/ipv6/ip6_output.c: one switch for all interfaces, and since Linux 6.17 one for each.
    let forwards_ipv6 = all("ipv6", "forwarding") != 0 || own("force_forwarding") != 0;
    let uses_path_mtu = value("ipv4/ip_forward_use_pmtu").is_some_and(|uses| uses != 0);
    let least_path_mtu = || value("ipv4/route/min_pmtu").unwrap_or(LEAST_PATH_MTU);
    Switches {
        // An interface with an MTU below 1,280 has no IPv6, and no settings of it.
        forwards: [
            input("forwarding") != 0,
            forwards_ipv6 && value(&format!("ipv6/conf/{name}/disable_ipv6")) == Some(0),
        ],
        rp_filter: input("rp_filter").max(all("ipv4", "rp_filter")).min(2) as u8,
        accepts_own: input("accept_local").max(all("ipv4", "accept_local")) != 0,
        longest: [uses_path_mtu.then(least_path_mtu), value(&format!("ipv6/conf/{name}/mtu"))],
        is_in_vrf: vrf.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of eth1 where these are there, and no others.
    fn switches(settings: &[(&str, u32)]) -> Switches {
        in_vrf(None, settings)
    }

    fn in_vrf(vrf: Option<&str>, settings: &[(&str, u32)]) -> Switches {
        put_together("eth1", vrf, &|path| {
            settings.iter().find(|(known, _)| *known == path).map(|(_, value)| *value)
        })
    }

    #[test]
    fn ipv4_of_a_member_comes_in_by_its_vrf() {
        let of_port =
            ["forwarding", "rp_filter", "accept_local"].map(|name| format!("ipv4/conf/eth1/{name}"));
        let of_port: Vec<(&str, u32)> = of_port.iter().map(|path| (path.as_str(), 1)).collect();
        let of_vrf: Vec<String> = of_port.iter().map(|(path, _)| path.replace("eth1", "red")).collect();
        let of_vrf: Vec<(&str, u32)> = of_vrf.iter().map(|path| (path.as_str(), 1)).collect();
        let ipv6 = [
            ("ipv6/conf/all/forwarding", 1),
            ("ipv6/conf/eth1/disable_ipv6", 0),
            ("ipv6/conf/red/disable_ipv6", 1),
        ];
        let seen = |vrf, settings: &[(&str, u32)]| {
            let switches = in_vrf(vrf, &[settings, &ipv6].concat());
            (switches.forwards, switches.rp_filter, switches.accepts_own, switches.is_in_vrf)
        };
        assert_eq!(seen(Some("red"), &of_port), ([false, true], 0, false, true));
        assert_eq!(seen(Some("red"), &of_vrf), ([true, true], 1, true, true));
        assert_eq!(seen(None, &of_vrf), ([false, true], 0, false, false));
    }

    #[test]
    fn ipv4_forwards_by_interface_and_ipv6_by_all() {
        // IPv6 has settings of its own where it is.
        assert_eq!(switches(&[("ipv6/conf/all/forwarding", 1)]).forwards, [false, false]);
        let with_ipv6 = [("ipv6/conf/eth1/disable_ipv6", 0)];
        let forwards = |settings: &[(&str, u32)]| switches(&[settings, &with_ipv6].concat()).forwards;
        assert_eq!(forwards(&[]), [false, false]);
        assert_eq!(forwards(&[("ipv4/conf/eth1/forwarding", 1)]), [true, false]);
        assert_eq!(forwards(&[("ipv4/conf/all/forwarding", 1)]), [false, false]);
        assert_eq!(forwards(&[("ipv6/conf/eth1/forwarding", 1)]), [false, false]);
        assert_eq!(forwards(&[("ipv6/conf/all/forwarding", 1)]), [false, true]);
        assert_eq!(forwards(&[("ipv6/conf/eth1/force_forwarding", 1)]), [false, true]);
        let off = [("ipv6/conf/all/forwarding", 1), ("ipv6/conf/eth1/disable_ipv6", 1)];
        assert_eq!(forwards(&off), [false, false]);
    }

    #[test]
    fn of_all_and_its_own_the_larger_counts() {
        let both = |own, all| {
            switches(&[
                ("ipv4/conf/eth1/rp_filter", own),
                ("ipv4/conf/all/rp_filter", all),
                ("ipv4/conf/eth1/accept_local", own),
                ("ipv4/conf/all/accept_local", all),
            ])
        };
        let of = |own, all| (both(own, all).rp_filter, both(own, all).accepts_own);
        assert_eq!([of(0, 0), of(1, 0), of(0, 2), of(2, 1)], [(0, false), (1, true), (2, true), (2, true)]);
    }

    #[test]
    fn mtus_are_those_of_families() {
        assert_eq!(switches(&[]).longest, [None, None]);
        assert_eq!(switches(&[("ipv6/conf/eth1/mtu", 1_400)]).longest, [None, Some(1_400)]);
        assert_eq!(switches(&[("ipv4/ip_forward_use_pmtu", 1)]).longest, [Some(552), None]);
        let both = [("ipv4/ip_forward_use_pmtu", 1), ("ipv4/route/min_pmtu", 1_000)];
        assert_eq!(switches(&both).longest, [Some(1_000), None]);
    }
}
