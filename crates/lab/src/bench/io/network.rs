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

use anyhow::Result;
use testbed::Namespace;

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
    pub(super) source: Namespace,
    pub(super) router: Namespace,
    pub(super) sink: Namespace,
    /// The router's interfaces. Their names are in no other namespace, for the kernel's threads are called after them.
    pub(super) receiving: String,
    pub(super) sending: String,
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
        let make = |label: &str| Namespace::without_ipv6(format!("brickway-{tag}-{label}"));
        let (source, router, sink) = (make("source")?, make("router")?, make("sink")?);
        let (receiving, sending) = (format!("bwi{tag}"), format!("bwo{tag}"));
        let far = |address: &str| format!("{FAR} address {address}");
        router.link(&format!("{receiving} address {IN_MAC}"), (&source, &far(SOURCE_MAC)))?;
        router.link(&format!("{sending} address {OUT_MAC}"), (&sink, &far("02:00:00:00:01:02")))?;
        source.ip(&format!("addr add {SOURCE_IP}/24 dev {FAR}"))?;
        sink.ip(&format!("addr add {SINK_IP}/24 dev {FAR}"))?;
        // Frames of a program are received in bursts only (NAPI); on veth this setting turns that on.
        router.run(&format!("ethtool -K {receiving} gro on"))?;
        Ok(Self { source, router, sink, receiving, sending })
    }

    /// Has the receiving interface's work done by a thread of the kernel on `cpu`, as far as the kernel has such threads.
    pub(super) fn move_receiving_to(&self, cpu: usize) {
        let Self { router, receiving, .. } = self;
        // A kernel without it works where the frames were sent.
        let _ = router.script(&format!("echo 1 > /sys/class/net/{receiving}/threaded"));
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
            router.ip(&format!("addr flush dev {interface}"))?;
            if on {
                router.ip(&format!("addr add {network}.1/24 dev {interface}"))?;
            }
        }
        router.run(&format!("sysctl -qw net.ipv4.ip_forward={}", u8::from(on))).map(drop)
    }
}
