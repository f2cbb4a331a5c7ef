//! Namespaces in a row for the veth cases: source, router, sink.
//!
//! ```text
//!   source          router           sink
//!   10.0.0.2 ---- IN      OUT ---- 10.0.1.2
//!   2001:db8::2                2001:db8:1::2
//! ```
//!
//! There can be more lines like this one through the same router; the networks of the second are 10.0.2.0/24 and 10.0.3.0/24. A network has
//! the addresses of one of the two families. Routes lead over [`NEXT_HOPS`] neighbours behind OUT, the
//! sink the first of them; Linux has a permanent entry for each.
//!
//! The router's work shall be on one CPU and the source's on another. What comes in over veth is worked off where it
//! was sent unless the interface has a thread for it (`threaded` in sysfs, Linux 5.12); so the router's receiving
//! interface has one, on the router's CPU.

use std::cell::Cell;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use packet::IpVersion;
use testbed::Namespace;

use super::traffic::Traffic;
use crate::bench::cpus;

/// Neighbours that routes lead over.
pub(super) const NEXT_HOPS: u16 = 64;
pub(super) const SOURCE_MAC: &str = "02:00:00:00:00:02";
/// As in the example router's definitions.
pub(super) const IN_MAC: &str = "02:00:00:00:00:01";
const OUT_MAC: &str = "02:00:00:00:01:01";
/// The interfaces of source and sink.
pub(super) const FAR: &str = "eth0";
/// The sink's host number; those of the other neighbours follow.
pub(super) const SINK: u16 = 2;

/// The hosts that routes lead over.
pub(super) fn neighbours() -> Range<u16> {
    SINK..SINK + NEXT_HOPS
}

pub(super) fn neighbour_mac(host: u16) -> String {
    format!("02:00:00:00:01:{host:02x}")
}

/// A source and a sink, and the router's interfaces between them.
pub(super) struct Line {
    pub(super) source: Namespace,
    pub(super) sink: Namespace,
    /// These names are in no other namespace, for the kernel's threads are called after them.
    pub(super) receiving: String,
    pub(super) sending: String,
}

/// The namespaces; removed when dropped.
pub(super) struct Network {
    pub(super) router: Namespace,
    /// One at least.
    pub(super) lines: Vec<Line>,
    family: IpVersion,
    /// Whether Linux has the addresses and routes of a router.
    forwards: Cell<bool>,
}

/// An address of a host in a network: 0 that of the first source, 1 that of its sink, and so on. Host 1 is the router.
pub(super) fn address(family: IpVersion, network: u8, host: u16) -> String {
    match family {
        IpVersion::V4 => format!("10.0.{network}.{host}"),
        IpVersion::V6 => format!("2001:db8:{network}::{host:x}"),
    }
}

/// The processes and threads of the kernel whose name is wanted, as folders in /proc.
fn threads_called(is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let name = |folder: &PathBuf| fs::read_to_string(folder.join("comm")).unwrap_or_default();
    folders.filter(|folder| is_wanted(name(folder).trim_end())).collect()
}

impl Network {
    /// Makes namespaces and links for so many lines. What was made is removed again when a step fails.
    pub(super) fn create(family: IpVersion, lines: usize) -> Result<Self> {
        let tag = std::process::id();
        let make = |label: &str| Namespace::without_ipv6(format!("brickway-{tag}-{label}"));
        let router = make("router")?;
        if family == IpVersion::V6 {
            let conf = "net.ipv6.conf";
            router.run(&format!(
                "sysctl -qw {conf}.default.addr_gen_mode=1 {conf}.all.disable_ipv6=0 {conf}.default.disable_ipv6=0"
            ))?;
        }
        let mut network = Self { router, lines: Vec::new(), family, forwards: Cell::new(false) };
        for number in 0..lines as u8 {
            let (source, sink) = (make(&format!("source{number}"))?, make(&format!("sink{number}"))?);
            // Ten letters at most: the kernel cuts the names of its threads.
            let interface = |place: u8| format!("bw{}{tag}", char::from(b'a' + 2 * number + place));
            let (receiving, sending) = (interface(0), interface(1));
            let far = |address: &str| format!("{FAR} address {address}");
            let router = &network.router;
            router.link(&format!("{receiving} address {IN_MAC}"), (&source, &far(SOURCE_MAC)))?;
            router.link(&format!("{sending} address {OUT_MAC}"), (&sink, &far(&neighbour_mac(SINK))))?;
            if family == IpVersion::V4 {
                source.ip(&format!("addr add {}/24 dev {FAR}", address(family, 2 * number, 2)))?;
                sink.ip(&format!("addr add {}/24 dev {FAR}", address(family, 2 * number + 1, SINK)))?;
            }
            // Frames of a program are received in bursts only (NAPI); on veth this setting turns that on.
            router.run(&format!("ethtool -K {receiving} gro on"))?;
            network.lines.push(Line { source, sink, receiving, sending });
        }
        Ok(network)
    }

    /// The router's interfaces: receiving, sending, and so on.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = &String> {
        self.lines.iter().flat_map(|line| [&line.receiving, &line.sending])
    }

    /// Has the receiving interfaces' work done by threads of the kernel on `cpu`, as far as the kernel has such threads.
    pub(super) fn move_receiving_to(&self, cpu: usize) {
        for Line { receiving, .. } in &self.lines {
            // A kernel without it works where the frames were sent.
            let _ = self.router.script(&format!("echo 1 > /sys/class/net/{receiving}/threaded"));
        }
        for thread in threads_called(|name| self.is_receiving(name)) {
            if let Some(id) = thread.file_name().and_then(|name| name.to_str()?.parse().ok()) {
                cpus::place_thread(id, cpu);
            }
        }
    }

    /// The kernel's threads that work for the router on `cpu`, as folders in /proc: the receiving interface's, and the one
    /// that takes over when interrupts have too much to do.
    pub(super) fn kernel_threads(&self, cpu: usize) -> Vec<PathBuf> {
        let interrupts = format!("ksoftirqd/{cpu}");
        threads_called(|name| self.is_receiving(name) || name == interrupts)
    }

    fn is_receiving(&self, thread: &str) -> bool {
        let is_of = |name: &str| self.lines.iter().any(|line| name.starts_with(&line.receiving));
        thread.strip_prefix("napi/").is_some_and(is_of)
    }

    /// Makes the kernel a router between the networks, with all routes, or no longer.
    pub(super) fn kernel_forwards(&self, on: bool, traffic: &[Traffic]) -> Result<()> {
        if self.forwards.get() == on {
            return Ok(());
        }
        let Self { router, family, .. } = self;
        for (network, interface) in (0..).zip(self.interfaces()) {
            router.ip(&format!("addr flush dev {interface}"))?;
            if on {
                let length = if *family == IpVersion::V4 { "/24" } else { "/64 nodad" };
                router.ip(&format!("addr add dev {interface} {}{length}", address(*family, network, 1)))?;
            }
        }
        let name = if *family == IpVersion::V4 { "ipv4.ip_forward" } else { "ipv6.conf.all.forwarding" };
        router.run(&format!("sysctl -qw net.{name}={}", u8::from(on)))?;
        for traffic in traffic.iter().filter(|_| on) {
            let mut command = router.command("ip");
            let added = command.arg("-batch").arg(&traffic.routes).output().context("cannot run 'ip'")?;
            if !added.status.success() {
                bail!("Linux does not take the routes: {}", String::from_utf8_lossy(&added.stderr).trim());
            }
        }
        self.forwards.set(on);
        Ok(())
    }

    /// Has the kernel encrypt what it forwards from the source's network to the sink's, for the sink, or no longer.
    pub(super) fn encrypts(&self, on: bool) -> Result<()> {
        let Self { router, family, .. } = self;
        if !on {
            router.ip("xfrm policy flush")?;
            return router.ip("xfrm state flush").map(drop);
        }
        let ends = format!("src {} dst {}", address(*family, 1, 1), address(*family, 1, SINK));
        let key = format!("0x{}", "2b".repeat(20));
        router.ip(&format!(
            "xfrm state add {ends} proto esp spi 0x1000 reqid 1 mode tunnel replay-window 32 aead rfc4106(gcm(aes)) {key} 128"
        ))?;
        let network = |number| match family {
            IpVersion::V4 => address(*family, number, 0) + "/24",
            IpVersion::V6 => address(*family, number, 0) + "/64",
        };
        let between = format!("src {} dst {}", network(0), network(1));
        router
            .ip(&format!("xfrm policy add {between} dir out tmpl {ends} proto esp reqid 1 mode tunnel"))
            .map(drop)
    }

    /// Packets of the network's family that Linux has forwarded.
    pub(super) fn forwarded_by_linux(&self) -> Result<u64> {
        let file = if self.family == IpVersion::V4 { "snmp" } else { "snmp6" };
        let path = format!("/proc/thread-self/net/{file}");
        let text = self.router.enter(|| fs::read_to_string(&path)).with_context(|| path.clone())?;
        forwarded(&text).with_context(|| format!("{path} does not say what Linux forwarded"))
    }
}

/// Packets that Linux has forwarded, of what snmp or snmp6 in /proc/net says.
fn forwarded(text: &str) -> Option<u64> {
    let mut ipv4 = text.lines().filter_map(|line| line.strip_prefix("Ip: ")).map(str::split_whitespace);
    if let (Some(names), Some(values)) = (ipv4.next(), ipv4.next()) {
        return names.zip(values).find(|(name, _)| *name == "ForwDatagrams")?.1.parse().ok();
    }
    let ipv6 = text.lines().find_map(|line| line.strip_prefix("Ip6OutForwDatagrams"))?;
    ipv6.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_its_forwarding() {
        let ipv4 = "Ip: Forwarding ForwDatagrams InDelivers\nIp: 1 4711 2\nIcmp: InMsgs\nIcmp: 0\n";
        assert_eq!(forwarded(ipv4), Some(4711));
        let ipv6 = "Ip6InReceives    \t9\nIp6OutForwDatagrams             \t815\n";
        assert_eq!(forwarded(ipv6), Some(815));
        assert_eq!(forwarded("Ip: Forwarding\nIp: 1\n"), None);
    }
}
