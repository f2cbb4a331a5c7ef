//! Packets that both a configuration and Linux forward: what comes to a packet socket is Linux's too.

use std::collections::BTreeSet;

use elements::devices::{OpenPort, RECEIVER, SENDER};
use graph::lang::{FlatConfig, FlatElement, first_name, next_word, split_arguments};
use graph::setup::Shared;

/// A family of addresses: its sysctls, and how its forwarding is switched off.
const FAMILIES: [(&str, &str); 2] =
    [("ipv4", "net.ipv4.ip_forward=0"), ("ipv6", "net.ipv6.conf.all.forwarding=0")];

/// Returns what to warn of if Linux forwards packets of these ports beside the configuration.
pub(crate) fn warning(config: &FlatConfig, shared: &Shared) -> Option<String> {
    let receivers = config.elements.iter().filter(|element| element.has(RECEIVER) && !is_kept(element));
    let interface = |element: &FlatElement| {
        let open = shared.get::<OpenPort>(&OpenPort::key(&first_name(&element.config)?))?;
        (open.info().driver == "af_packet").then(|| open.info().name.clone())
    };
    let receivers: BTreeSet<String> = receivers.filter_map(interface).collect();
    let senders = config.elements.iter().filter(|element| element.has(SENDER));
    let senders: BTreeSet<String> = senders.filter_map(interface).collect();
    FAMILIES.iter().find_map(|&(family, remedy)| {
        let from: Vec<&str> =
            receivers.iter().map(String::as_str).filter(|name| forwards(family, name)).collect();
        let is_forwarded =
            senders.iter().any(|to| has_address(family, to) && from.iter().any(|one| one != to));
        is_forwarded.then(|| {
            format!(
                "Linux gets what comes in by {} too, and forwards it: what the configuration drops may pass, and what it sends may \
                 leave twice; expected SNIFFER false in FromDevice, or 'sysctl -w {remedy}'",
                from.join(", ")
            )
        })
    })
}

/// Whether the element keeps its packets from Linux.
fn is_kept(element: &FlatElement) -> bool {
    split_arguments(&element.config).iter().any(|argument| {
        let (keyword, value) = next_word(argument);
        keyword == "SNIFFER" && ["false", "no", "0"].contains(&value.trim())
    })
}

fn forwards(family: &str, interface: &str) -> bool {
    let path = format!("/proc/sys/net/{family}/conf/{}/forwarding", ports::kernel_name(interface));
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// Whether Linux has a network at the interface, to which it may forward.
fn has_address(family: &str, interface: &str) -> bool {
    ports::addresses(interface).is_some_and(|known| match family {
        "ipv4" => known.ipv4.is_some(),
        _ => known.ipv6.is_some_and(|(address, _)| !address.is_unicast_link_local()),
    })
}
