//! `[sflow] psample`: samples and drops as the kernel itself hands them out, for agents that listen to it, such as hsflowd.
//!
//! Messages of the families `psample` (Linux 4.11) and `NET_DM` (DROPMON) go to the groups to which the kernel sends them. It passes on what a
//! process with CAP_NET_ADMIN sends. A drop looks like one of a card (`NET_DM_ORIGIN_HW`), with the name that Linux has for traps of cards.

use std::io;

use anyhow::{Context, Result, bail};
use control::api::PortRow;
use ports::generic_netlink::{Attributes, KernelGroup};

use super::limit::Limit;
use super::{Dropped, Exporter, Sample, Wanted, sflow};

// include/uapi/linux/psample.h.
const PSAMPLE_CMD_SAMPLE: u8 = 0;
const PSAMPLE_ATTR_IIFINDEX: u16 = 0;
const PSAMPLE_ATTR_OIFINDEX: u16 = 1;
const PSAMPLE_ATTR_ORIGSIZE: u16 = 2;
const PSAMPLE_ATTR_SAMPLE_GROUP: u16 = 3;
const PSAMPLE_ATTR_GROUP_SEQ: u16 = 4;
const PSAMPLE_ATTR_SAMPLE_RATE: u16 = 5;
const PSAMPLE_ATTR_DATA: u16 = 6;
// include/uapi/linux/net_dropmon.h.
const NET_DM_CMD_PACKET_ALERT: u8 = 5;
const NET_DM_ATTR_IN_PORT: u16 = 4;
const NET_DM_ATTR_PAYLOAD: u16 = 7;
const NET_DM_ATTR_ORIG_LEN: u16 = 10;
const NET_DM_ATTR_ORIGIN: u16 = 14;
const NET_DM_ATTR_HW_TRAP_GROUP_NAME: u16 = 15;
const NET_DM_ATTR_HW_TRAP_NAME: u16 = 16;
const NET_DM_ATTR_PORT_NETDEV_IFINDEX: u16 = 0;
const NET_DM_ORIGIN_HW: u16 = 1;

/// Hands samples and drops to those who listen to the kernel.
pub(crate) struct KernelSamples {
    rate: u32,
    bytes: usize,
    /// psample's number for who wants them.
    group: u32,
    sequence: u32,
    samples: KernelGroup,
    /// `None` where the kernel has none.
    drops: Option<KernelGroup>,
    limit: Limit,
    has_failed: bool,
}

impl KernelSamples {
    /// Makes what the settings ask for, if they do.
    ///
    /// # Errors
    /// The kernel has no PSAMPLE.
    pub(crate) fn new(settings: &sflow::Settings) -> Result<Option<Self>> {
        let Some(group) = settings.psample else { return Ok(None) };
        let samples = match KernelGroup::find("psample", "packets") {
            Ok(samples) => samples,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!(
                    "[sflow] psample = {group}: the kernel has no PSAMPLE; run 'modprobe psample', or leave psample out"
                )
            }
            Err(error) => return Err(error).context("[sflow] psample"),
        };
        let drops = if settings.drops > 0 { KernelGroup::find("NET_DM", "events").ok() } else { None };
        if settings.drops > 0 && drops.is_none() {
            graph::note!(
                "brickway: [sflow] psample: the kernel has no DROPMON in this network namespace, so drops are not handed to it; \
                 'modprobe drop_monitor' adds it to the first namespace"
            );
        }
        Ok(Some(Self {
            rate: settings.rate as u32,
            bytes: settings.header_bytes,
            group: group as u32,
            sequence: 0,
            samples,
            drops,
            limit: Limit::new(settings.drops),
            has_failed: false,
        }))
    }

    /// Reports the first of several failures in a row.
    fn report(&mut self, sent: io::Result<()>) {
        match sent {
            Ok(()) => self.has_failed = false,
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                graph::note!("brickway: [sflow] psample: the kernel takes nothing: {error}");
            }
            Err(_) => {}
        }
    }
}

impl Exporter for KernelSamples {
    fn name(&self) -> &'static str {
        "psample"
    }

    fn wanted(&self) -> Wanted {
        Wanted { rate: self.rate, bytes: self.bytes, drops: self.drops.is_some() }
    }

    fn sampled(&mut self, sample: &Sample<'_>) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut attributes = Attributes::default();
        // The kernel has 16 bits for interfaces here.
        for (kind, interface) in
            [(PSAMPLE_ATTR_IIFINDEX, sample.input), (PSAMPLE_ATTR_OIFINDEX, sample.way.output)]
        {
            if let Some(interface) = u16::try_from(interface).ok().filter(|&interface| interface != 0) {
                attributes.put(kind, &interface.to_ne_bytes());
            }
        }
        for (kind, number) in [
            (PSAMPLE_ATTR_ORIGSIZE, sample.length),
            (PSAMPLE_ATTR_SAMPLE_GROUP, self.group),
            (PSAMPLE_ATTR_GROUP_SEQ, self.sequence),
            (PSAMPLE_ATTR_SAMPLE_RATE, self.rate),
        ] {
            attributes.put(kind, &number.to_ne_bytes());
        }
        attributes.put(PSAMPLE_ATTR_DATA, sample.data);
        let sent = self.samples.send(PSAMPLE_CMD_SAMPLE, &attributes);
        self.report(sent);
    }

    fn dropped(&mut self, dropped: &Dropped<'_>) {
        let Some(drops) = self.drops.as_ref().filter(|_| self.limit.passes()) else { return };
        let (mut attributes, mut port) = (Attributes::default(), Attributes::default());
        attributes.put(NET_DM_ATTR_ORIGIN, &NET_DM_ORIGIN_HW.to_ne_bytes());
        attributes.put(NET_DM_ATTR_HW_TRAP_GROUP_NAME, b"brickway\0");
        attributes.put(NET_DM_ATTR_HW_TRAP_NAME, &[trap(dropped.reason).as_bytes(), &[0]].concat());
        if dropped.input != 0 {
            port.put(NET_DM_ATTR_PORT_NETDEV_IFINDEX, &dropped.input.to_ne_bytes());
            attributes.nest(NET_DM_ATTR_IN_PORT, &port);
        }
        attributes.put(NET_DM_ATTR_ORIG_LEN, &dropped.length.to_ne_bytes());
        attributes.put(NET_DM_ATTR_PAYLOAD, dropped.data);
        let sent = drops.send(NET_DM_CMD_PACKET_ALERT, &attributes);
        self.report(sent);
    }

    fn tick(&mut self, _ports: &dyn Fn() -> Vec<PortRow>) {}
}

/// The name that Linux has for a trap of a card with this reason (Documentation/networking/devlink/devlink-trap.rst), or the reason with
/// underscores.
fn trap(reason: &str) -> String {
    let has = |word: &str| reason.contains(word);
    match reason {
        "no route" => "ipv4_lpm_miss",
        "prohibited" => "reject_route",
        "blackhole" => "blackhole_route",
        _ if has("time to live expired") => "ttl_value_is_too_small",
        _ if has("denied") => "ingress_flow_action_drop",
        _ if has("wait for a neighbour") => "unresolved_neigh",
        _ if has("longer than") => "mtu_value_is_too_small",
        _ if has("no frame") || has("overloaded") || has("full") => "tail_drop",
        _ => return reason.replace(' ', "_"),
    }
    .to_owned()
}
