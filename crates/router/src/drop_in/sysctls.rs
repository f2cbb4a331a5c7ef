//! Linux's settings that the router obeys while it runs (docs/sysctls.md): which families of a port are left to Linux, and why;
//! what chooses among the paths of a multipath route.

use std::collections::HashSet;

use control::mirror::Mirror;
use control::switches::{self, NOT_OF_HOST, Switches};
use elements::devices::follow_linux::{Followed, Follows};
use graph::lang::FlatConfig;
use packet::IpVersion;
use packet::multipath::{PathPolicies, PathPolicy};

/// A setting of an interface; `None` where there is no such interface or setting.
pub(super) fn setting(family: &str, interface: &str, name: &str) -> Option<u8> {
    let interface = ports::kernel_name(interface);
    let path = format!("/proc/sys/net/{family}/conf/{interface}/{name}");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

const BY_LINUX: &str = "is left to Linux";
const PAST_FILTERS: &str = "is dropped, as Linux gets it and the filters have not judged it";
const PAST_SCRIPT: &str = "is dropped, as Linux would forward it past the script";

/// What a configuration obeys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Obeyed {
    /// The ports whose packets Linux gets if it does not forward them.
    ports: HashSet<String>,
    /// Whether sources are those that Linux believes, but nothing of ours checks them.
    leaves_checks: bool,
    /// Whether sources are those that Linux believes.
    follows_checks: bool,
    /// What becomes of a family of a port that is left, for people.
    forwards: &'static str,
}

impl Obeyed {
    pub(crate) fn of(config: &FlatConfig) -> Self {
        let all = Follows::of(config);
        let forwarding = all.iter().filter(|follows| follows.what == Followed::Forwarding);
        let checks = all.iter().find(|follows| follows.what == Followed::RpFilter);
        Self {
            ports: forwarding.map(|follows| follows.port.clone()).collect(),
            leaves_checks: checks.is_some_and(|follows| follows.targets.is_empty()),
            follows_checks: checks.is_some(),
            forwards: if config.elements.iter().any(|element| element.class == "LuaRouter") {
                PAST_SCRIPT
            } else {
                BY_LINUX
            },
        }
    }

    /// Returns why IPv4, and IPv6, that comes in by a port is left to Linux, if it is.
    pub(crate) fn left(&self, port: &str, switches: Option<&Switches>) -> [Option<String>; 2] {
        let Some(switches) = switches.filter(|_| self.ports.contains(port)) else { return [None, None] };
        // Linux takes them from the VRF.
        let interface = if switches.is_in_vrf { format!("(VRF of {port})") } else { port.to_owned() };
        let ipv4 = if !switches.forwards[0] {
            Some(format!("net.ipv4.conf.{interface}.forwarding is 0"))
        } else if switches.rp_filter != 0 && self.leaves_checks {
            Some(format!("Linux checks sources of {interface}, the configuration does not"))
        } else if switches.rp_filter == 1 && switches.is_in_vrf && self.follows_checks {
            Some(format!("net.ipv4.conf.{interface}.rp_filter is 1, so the way back may be by any member"))
        } else if !matches!(switches.rp_filter, 0 | NOT_OF_HOST)
            && switches.accepts_own
            && self.follows_checks
        {
            Some(format!("net.ipv4.conf.{interface} has accept_local beside rp_filter"))
        } else {
            None
        };
        let ipv6 = (!switches.forwards[1])
            .then(|| format!("net.ipv6.conf.all.forwarding is 0, or IPv6 is disabled on {port}"));
        [ipv4, ipv6]
    }

    /// Returns what the operator should know of ports: which of them leave IPv4 to Linux, and why. That Linux forwards a family by
    /// no port is reported elsewhere. A port without IPv6 is expected. `filters` says whether Linux forwards what was judged alone.
    pub(crate) fn problems(&self, mirror: &Mirror, filters: bool) -> Vec<String> {
        let forwards = if filters && self.forwards == BY_LINUX { PAST_FILTERS } else { self.forwards };
        let [forwards_ipv4, _] = switches::of_all();
        let ports = mirror.ports().filter(|_| forwards_ipv4);
        let left = ports.filter_map(|port| {
            let [reason, _] = self.left(&port.name, port.switches.as_ref());
            Some(format!("port {}: IPv4 that comes in {forwards}: {}", port.name, reason?))
        });
        left.collect()
    }
}

/// Returns the modes of CheckReversePath for the rp_filter of each port.
pub(super) fn source_modes(rp_filters: impl Iterator<Item = u8>) -> String {
    rp_filters.map(source_mode).collect::<Vec<_>>().join(" ")
}

/// Returns the mode of CheckReversePath for an rp_filter.
pub(crate) fn source_mode(rp_filter: u8) -> &'static str {
    match rp_filter {
        0 => "off",
        1 => "strict",
        NOT_OF_HOST => "host",
        _ => "loose",
    }
}

/// Returns Linux's policy for the paths of multipath routes; policy 0 where Linux has no such setting.
fn path_policy(version: IpVersion) -> PathPolicy {
    let number = |name: &str| {
        let path = format!("/proc/sys/net/ipv{}/fib_multipath_hash_{name}", version.number());
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    PathPolicy::new(version, number("policy").unwrap_or(0), number("fields").unwrap_or(0))
}

/// Brings the policies in line with Linux's, of which Linux announces no change. Returns whether one was another.
pub(super) fn follow_paths(policies: &PathPolicies) -> bool {
    IpVersion::ALL
        .iter()
        .fold(false, |changed, &version| policies.set(version, path_policy(version)) | changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCHES: Switches = Switches {
        forwards: [true; 2],
        rp_filter: 0,
        accepts_own: false,
        longest: [None, Some(1_500)],
        is_in_vrf: false,
    };

    fn obeyed(follows_checks: bool) -> Obeyed {
        let ports = HashSet::from(["eth1".to_owned()]);
        Obeyed { ports, leaves_checks: false, follows_checks, forwards: BY_LINUX }
    }

    #[test]
    fn a_family_that_linux_does_not_forward_is_left() {
        let left = |port: &str, switches: &Switches| {
            obeyed(false).left(port, Some(switches)).map(|reason| reason.is_some())
        };
        assert_eq!(left("eth1", &SWITCHES), [false, false]);
        for forwards in [[false, true], [true, false], [false, false]] {
            let switches = Switches { forwards, ..SWITCHES };
            assert_eq!(left("eth1", &switches), forwards.map(|forwards| !forwards));
            // A port that does not obey.
            assert_eq!(left("eth2", &switches), [false, false]);
        }
        assert_eq!(obeyed(false).left("eth1", None), [None, None]);
    }

    #[test]
    fn sources_that_nothing_of_ours_checks_are_left() {
        let left = |obeyed: Obeyed, rp_filter, accepts_own| {
            obeyed.left("eth1", Some(&Switches { rp_filter, accepts_own, ..SWITCHES }))[0].is_some()
        };
        assert!(!left(obeyed(true), 0, true));
        let unchecked = || Obeyed { leaves_checks: true, ..obeyed(true) };
        assert_eq!([0, 1, 2, NOT_OF_HOST].map(|it| left(unchecked(), it, false)), [false, true, true, true]);
        assert!(!left(obeyed(true), 1, false));
        assert!(left(obeyed(true), 1, true));
        let in_vrf = |rp_filter| {
            obeyed(true).left("eth1", Some(&Switches { rp_filter, is_in_vrf: true, ..SWITCHES }))[0].is_some()
        };
        assert_eq!([0, 1, 2].map(in_vrf), [false, true, false]);
        // The router's own check is not Linux's.
        assert!(!left(obeyed(false), 1, true));
    }
}
