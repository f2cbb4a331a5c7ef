//! Settings of Linux's interfaces that the configuration honours, read when the router starts.

/// A setting of an interface; `None` where there is no such interface or setting.
fn setting(family: &str, interface: &str, name: &str) -> Option<u8> {
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
