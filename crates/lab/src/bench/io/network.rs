//! Three namespaces in a row for the veth cases: source, router, sink.
//!
//! ```text
//!   source          router           sink
//!   10.0.0.2 ---- IN      OUT ---- 10.0.1.2
//! ```
//!
//! The router's work shall be on one CPU and the source's on another. What comes in over veth is worked off where it
//! was sent unless the interface has a thread for it (`threaded` in sysfs, Linux 5.12); so the router's receiving
//! interface has one, on the router's CPU.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::bench::cpus;

/// Where the frames come from, and where they go.
pub(super) const SOURCE_IP: &str = "10.0.0.2";
pub(super) const SINK_IP: &str = "10.0.1.2";
pub(super) const SOURCE_MAC: &str = "02:00:00:00:00:02";
/// As in the example router's definitions.
pub(super) const IN_MAC: &str = "02:00:00:00:00:01";
const OUT_MAC: &str = "02:00:00:00:01:01";
/// The interfaces of source and sink.
pub(super) const FAR: &str = "eth0";

/// The namespaces; removed when dropped.
pub(super) struct Network {
    pub(super) source: String,
    pub(super) router: String,
    pub(super) sink: String,
    /// The router's interfaces. Their names are in no other namespace, for the kernel's threads are called after them.
    pub(super) receiving: String,
    pub(super) sending: String,
}

/// Runs a program to its end; what it printed.
fn run(words: &str) -> Result<String> {
    let mut split = words.split_whitespace();
    let output = Command::new(split.next().unwrap_or_default())
        .args(split)
        .output()
        .with_context(|| format!("cannot run '{words}'"))?;
    if !output.status.success() {
        bail!("'{words}' failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The processes and threads of the kernel whose name is wanted, as folders in /proc.
fn threads_called(is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let name = |folder: &PathBuf| fs::read_to_string(folder.join("comm")).unwrap_or_default();
    folders.filter(|folder| is_wanted(name(folder).trim_end())).collect()
}

impl Network {
    /// Makes namespaces and links. What was made is removed again when a step fails.
    pub(super) fn create() -> Result<Self> {
        let tag = std::process::id();
        let name = |label: &str| format!("brickway-{tag}-{label}");
        let network = Self {
            source: name("source"),
            router: name("router"),
            sink: name("sink"),
            receiving: format!("bwi{tag}"),
            sending: format!("bwo{tag}"),
        };
        let Self { source, router, sink, receiving, sending } = &network;
        for namespace in [source, router, sink] {
            run(&format!("ip netns add {namespace}"))?;
            // Router solicitations would be noise. A kernel without IPv6 has no such setting, which is as good.
            let _ = network.set(namespace, "net/ipv6/conf/default/disable_ipv6", "1");
        }
        for (near, mac, far_mac, far) in
            [(receiving, IN_MAC, SOURCE_MAC, source), (sending, OUT_MAC, "02:00:00:00:01:02", sink)]
        {
            run(&format!(
                "ip -n {router} link add {near} address {mac} type veth peer name {FAR} address {far_mac} netns {far}"
            ))?;
            for (namespace, interface) in [(router, near.as_str()), (far, FAR)] {
                run(&format!("ip -n {namespace} link set {interface} up"))?;
            }
        }
        run(&format!("ip -n {source} addr add {SOURCE_IP}/24 dev {FAR}"))?;
        run(&format!("ip -n {sink} addr add {SINK_IP}/24 dev {FAR}"))?;
        // Frames of a program are received in bursts only (NAPI); on veth this setting turns that on.
        run(&format!("ip netns exec {router} ethtool -K {receiving} gro on"))?;
        Ok(network)
    }

    /// Writes a setting below /proc/sys in a namespace.
    fn set(&self, namespace: &str, setting: &str, value: &str) -> Result<()> {
        run(&format!("ip netns exec {namespace} sysctl -qw {setting}={value}")).map(|_| ())
    }

    /// Has the receiving interface's work done by a thread of the kernel on `cpu`, as far as the kernel has such threads.
    pub(super) fn move_receiving_to(&self, cpu: usize) {
        let Self { router, receiving, .. } = self;
        let mut echo = Command::new("ip");
        echo.args(["netns", "exec", router, "sh", "-c"]);
        echo.arg(format!("echo 1 > /sys/class/net/{receiving}/threaded"));
        // A kernel without it works where the frames were sent.
        let _ = echo.output();
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
        thread.strip_prefix("napi/").is_some_and(|name| name.starts_with(&self.receiving))
    }

    /// Makes the kernel a router between the two networks, or no longer.
    pub(super) fn kernel_forwards(&self, on: bool) -> Result<()> {
        let Self { router, receiving, sending, .. } = self;
        for (interface, network) in [(receiving, "10.0.0"), (sending, "10.0.1")] {
            run(&format!("ip -n {router} addr flush dev {interface}"))?;
            if on {
                run(&format!("ip -n {router} addr add {network}.1/24 dev {interface}"))?;
            }
        }
        self.set(router, "net/ipv4/ip_forward", if on { "1" } else { "0" })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in [&self.source, &self.router, &self.sink] {
            // One that was never made cannot be removed; nothing else to do about a failure.
            let _ = run(&format!("ip netns del {namespace}"));
        }
    }
}
