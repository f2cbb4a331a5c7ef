//! What an interface offers to AF_XDP: receive queues, a program that is attached already. The driver is asked by ioctl.

use std::io;

use rustix::io::Errno;

use crate::interface::{EthtoolCommand, ask_driver};
use crate::link::{Link, Links};

/// Asks about an interface. Its receive queues are those that can be used now.
pub(super) fn link(index: u32) -> io::Result<Link> {
    let mut link = Links::ask()?.iter().find(|link| link.index == index).cloned().ok_or(Errno::NODEV)?;
    link.rx_queues = active_queues(&link.name).unwrap_or(link.rx_queues);
    Ok(link)
}

/// struct ethtool_channels of include/uapi/linux/ethtool.h.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

#[allow(unsafe_code, reason = "a structure of ethtool.h")]
// SAFETY: as in ethtool.h, numbers only, and the command that is given is ETHTOOL_GCHANNELS.
unsafe impl EthtoolCommand for Channels {}

const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Receive queues in use; `None` when the driver does not say.
pub(super) fn active_queues(name: &str) -> Option<usize> {
    let channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    let channels = ask_driver(name, channels).ok()?;
    Some((channels.receive + channels.combined) as usize).filter(|&queues| queues > 0)
}

/// Kinds of interfaces that get frames from others above the place where the kernel takes out the tag, so that a program in the
/// kernel's stack does not see it.
const BEHIND_TAGS: [&str; 7] = ["bond", "bridge", "ipvlan", "macvlan", "macvtap", "openvswitch", "team"];

/// Returns whether frames come to interfaces of this kind without their tags, where the program runs in the kernel's stack.
pub fn lacks_vlan_tags(kind: &str) -> bool {
    BEHIND_TAGS.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_namespace, ip};

    #[test]
    fn queues_and_kind_are_the_kernels() {
        in_namespace(|| {
            ip("link add left numrxqueues 4 numtxqueues 3 type veth peer name right");
            ip("link add bridge numrxqueues 5 type bridge");
            let of = |name: &str| link(Links::ask().unwrap().named(name).unwrap().index).unwrap();
            assert_eq!((of("left").rx_queues, of("left").kind.as_str()), (4, "veth"));
            // No ethtool channels: what the interface was made with.
            assert_eq!((of("bridge").rx_queues, of("bridge").kind.as_str()), (5, "bridge"));
        });
    }
}
