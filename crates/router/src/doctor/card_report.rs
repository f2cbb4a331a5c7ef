//! `brickway doctor --report`: what a maintainer needs to know of cards that nobody of the project has. No addresses are in it, neither of
//! links nor of IP, nor the machine's name. An interface that is named after its address is called by its number.

use std::fmt::Write;

use control::api::{Client, PortFilter, PortRow, Request, Show, default_socket};
use ports::{Links, XdpFeatures};

use super::{Patient, run, transit};
use crate::settings::{Driver, Settings};
use crate::show::parse;

/// Most counters of a card.
const MOST_COUNTERS: usize = 60;
/// Offloads that decide which packets come in.
const OFFLOADS: [&str; 6] = [
    "rx-checksumming",
    "generic-receive-offload",
    "large-receive-offload",
    "rx-vlan-offload",
    "rx-vlan-filter",
    "rx-gro-hw",
];

/// Makes the report of the ports of these settings; without any, of all interfaces that are cards.
pub(super) fn make(settings: &Settings) -> String {
    let mut text = format!(
        "Brickway {}, Linux {}, {}, {} processors\n",
        env!("CARGO_PKG_VERSION"),
        read("/proc/sys/kernel/osrelease"),
        processor(),
        transit::processors(),
    );
    let running = ports_of_a_router();
    let _ = writeln!(text, "a router runs: {}", if running.is_some() { "yes" } else { "no" });
    let running = running.unwrap_or_default();
    let of_cards = settings.ports.is_empty().then(cards);
    let of_cards = of_cards
        .and_then(|names| Settings::of_ports(names.iter().map(String::as_str), Driver::default()).ok());
    let settings = of_cards.as_ref().unwrap_or(settings);
    let findings = transit::examine(&Patient::of(settings));
    let links = Links::ask().unwrap_or_default();
    let mut names: Vec<String> = settings.ports.iter().map(|port| port.name.clone()).collect();
    if of_cards.is_some() {
        let is_new = |port: &&PortRow| !names.contains(&port.name) && !names.contains(&port.interface);
        let further: Vec<String> = running.iter().filter(is_new).map(|port| port.name.clone()).collect();
        names.extend(further);
    }
    for (name, number) in names.iter().zip(1..) {
        let shown = if has_address(name) { format!("interface {number}") } else { name.clone() };
        let _ = writeln!(text, "\n{shown}");
        if let Some(link) = links.named(name) {
            text += &of_card(name, link.index, link.mtu);
        }
        let mut runs = running.iter().filter(|port| port.name == *name || port.interface == *name).peekable();
        // A running router holds the huge pages that would be counted as missing.
        for finding in findings.iter().filter(|finding| finding.subject == *name && runs.peek().is_none()) {
            let _ = writeln!(text, "  foretold: {}", finding.what);
        }
        runs.for_each(|port| text += &of_port(port));
    }
    text
}

/// Whether an interface is named after its link address, as systemd names cards of USB: enx001122334455.
fn has_address(name: &str) -> bool {
    name.bytes().filter(u8::is_ascii_hexdigit).count() >= 12
}

/// Interfaces with a device of their own.
fn cards() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let cards = entries.filter(|entry| entry.path().join("device").exists());
    let mut names: Vec<String> = cards.filter_map(|card| card.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn of_card(name: &str, index: u32, mtu: usize) -> String {
    let mut text = String::new();
    let ids = ["vendor", "device"].map(|id| read(&format!("/sys/class/net/{name}/device/{id}")));
    let mut line = |what: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "  {what}: {value}");
        }
    };
    line("card", ids.join(" ").trim().to_owned());
    let driver = lines(&format!("ethtool -i {name}"), &["driver", "version", "firmware-version"]);
    line("driver", driver.replace("driver: ", "").trim_end_matches(", firmware-version:").to_owned());
    let speed = read(&format!("/sys/class/net/{name}/speed"));
    line("link", speed.parse::<u32>().map_or_else(|_| String::new(), |speed| format!("{speed} Mbit/s")));
    line("MTU", mtu.to_string());
    line("XDP", xdp(index));
    line("queues", after_current(&format!("ethtool -l {name}")));
    line("rings", after_current(&format!("ethtool -g {name}")));
    line("offloads", lines(&format!("ethtool -k {name}"), &OFFLOADS));
    let counters = run(&format!("ethtool -S {name}")).unwrap_or_default();
    let counted = counters.lines().skip(1).map(str::trim).filter(|line| !line.ends_with(": 0"));
    line("counters", counted.take(MOST_COUNTERS).collect::<Vec<_>>().join(", "));
    text
}

fn xdp(index: u32) -> String {
    let Ok(features) = XdpFeatures::ask(index) else { return "not known".to_owned() };
    let all = [
        (features.is_native(), "native"),
        (features.sends_redirected(), "redirect target"),
        (features.is_zero_copy(), "zero-copy"),
        (features.receives_fragments(), "several buffers"),
    ];
    let has: Vec<&str> = all.iter().filter(|(has, _)| *has).map(|(_, word)| *word).collect();
    if has.is_empty() { "none".to_owned() } else { has.join(", ") }
}

fn of_port(port: &PortRow) -> String {
    let PortRow { driver, mode, path, rx, tx, in_kernel, by_workers, to_linux, .. } = port;
    format!(
        "  runs: {driver} {mode}, {path}\n  received: {} packets, {} lost, {} with errors; in the kernel {in_kernel}, by workers \
         {by_workers}, left to Linux {to_linux}\n  sent: {} packets, {} lost, {} with errors\n",
        rx.packets, rx.dropped, rx.errors, tx.packets, tx.dropped, tx.errors
    )
}

/// The ports of the router of this network namespace, if one runs.
fn ports_of_a_router() -> Option<Vec<PortRow>> {
    let mut client = Client::connect_to_show(&default_socket()).ok()?;
    let rows = client.ask(&Request::Show(Show::Ports(PortFilter { port: None }))).ok()?;
    rows.map(|row| parse(&row.ok()?).ok()).collect()
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

/// Those lines of what a command prints that begin with one of these names.
fn lines(command: &str, names: &[&str]) -> String {
    let text = run(command).unwrap_or_default();
    let is_wanted = |line: &&str| names.iter().any(|name| line.starts_with(&format!("{name}:")));
    text.lines().map(str::trim).filter(is_wanted).collect::<Vec<_>>().join(", ")
}

/// What a command prints of the settings in use, of those that there are.
fn after_current(command: &str) -> String {
    let text = run(command).unwrap_or_default();
    let current = text.split_once("Current hardware settings:").map_or("", |(_, current)| current);
    let known = current.lines().filter(|line| !line.is_empty() && !line.ends_with("n/a"));
    known.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::has_address;

    #[test]
    fn names_with_an_address_are_found() {
        assert!(has_address("enx001122aabbcc"));
        assert!(["eth1", "enp0s31f6", "enp129s0f0np0", "bond0.100"].iter().all(|name| !has_address(name)));
    }
}
