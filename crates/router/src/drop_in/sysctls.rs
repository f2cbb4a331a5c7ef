//! Settings of Linux's interfaces that the configuration honours, read when the router starts.

use crate::settings::{ReversePath, Settings};

/// A setting of an interface; `None` where there is no such interface or setting.
fn setting(family: &str, interface: &str, name: &str) -> Option<u8> {
    let path = format!("/proc/sys/net/{family}/conf/{interface}/{name}");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns whether Linux forwards what comes in by an interface.
pub(super) fn forwards(family: &str, interface: &str) -> bool {
    setting(family, interface, "forwarding") == Some(1)
}

/// Which IPv4 sources are believed that come in by an interface: as the settings say, or as Linux's `rp_filter` does. The larger
/// of that of the interface and that of all counts (Documentation/networking/ip-sysctl.rst).
pub(super) fn reverse_path(interface: &str, settings: &Settings) -> ReversePath {
    if settings.reverse_path != ReversePath::Linux {
        return settings.reverse_path;
    }
    match ["all", interface].iter().filter_map(|name| setting("ipv4", name, "rp_filter")).max() {
        Some(1) => ReversePath::Strict,
        Some(2) => ReversePath::Loose,
        _ => ReversePath::Off,
    }
}
