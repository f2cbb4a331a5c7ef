//! Settings of Linux that the configuration honours: those of interfaces, read when the router starts, and what chooses among the
//! paths of a multipath route, which follows Linux while it runs.

use packet::IpVersion;
use packet::multipath::{PathPolicies, PathPolicy};

/// A setting of an interface; `None` where there is no such interface or setting.
pub(super) fn setting(family: &str, interface: &str, name: &str) -> Option<u8> {
    let interface = ports::kernel_name(interface);
    let path = format!("/proc/sys/net/{family}/conf/{interface}/{name}");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns whether Linux forwards what comes in by an interface.
pub(super) fn forwards(family: &str, interface: &str) -> bool {
    setting(family, interface, "forwarding") == Some(1)
}

/// Returns the `rp_filter` that counts for an interface: the larger of its own and that of all
/// (Documentation/networking/ip-sysctl.rst).
pub(super) fn rp_filter(interface: &str) -> u8 {
    ["all", interface].iter().filter_map(|name| setting("ipv4", name, "rp_filter")).max().unwrap_or(0)
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
