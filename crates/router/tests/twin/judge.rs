//! What may differ between Linux and Brickway: the departures, each with its reason.

use crate::probes::{self, Probe};
use crate::world::Outcome;

/// A departure: what of a probe it concerns.
type Departure = (&'static str, fn(&[u8]) -> bool);

/// Packets that the router drops and Linux forwards or answers. `packet` is the IP packet of a probe.
const DROPPED: &[Departure] = &[
    ("RFC 1812, 5.3.7: a source of 127/8, 0/8 or 240/4 is not forwarded", |packet| {
        packet[0] >> 4 == 4 && matches!(packet[12], 0 | 127 | 240..)
    }),
    ("RFC 1812, 5.3.7: a source of the router's own comes from nobody else", |packet| {
        packet[0] >> 4 == 4
            && matches!(packet[12..16], [10, 0, _, 1 | 129 | 254] | [10, 9, 1, 1] | [10, 9, 2, 7])
    }),
];

/// Whether a frame that came is the probe itself, forwarded: not an error about it, nor carried by a bridge, which leaves the TTL.
fn is_forwarded(probe: &Probe, frame: &[u8]) -> bool {
    let sent = &probe.frame[probes::ip_at(&probe.frame)..];
    let came = &frame[probes::ip_at(frame)..];
    let protocol = |packet: &[u8]| if packet[0] >> 4 == 4 { packet[9] } else { packet[6] };
    let ttl = |packet: &[u8]| if packet[0] >> 4 == 4 { packet[8] } else { packet[7] };
    sent[0] >> 4 == came[0] >> 4
        && !matches!((came[0] >> 4, protocol(came)), (4, 1) | (6, 58))
        && ttl(sent) != ttl(came)
}

/// How a scenario is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge {
    /// Whether a filter denies a port.
    pub(crate) filters: bool,
    /// Whether packets from the ports may be Linux's, which with a filter forwards none of them (docs/firewall.md).
    pub(crate) is_unjudged: bool,
    /// Whether there are routes with several paths, of which the two choose by hashes of their own.
    pub(crate) is_multipath: bool,
    /// Whether there are IPv6 routes that have several paths now: Linux makes some of routes that were added one by one.
    pub(crate) has_paths6: bool,
    /// Whether eth3 may leave the bridge that is a port.
    pub(crate) member_leaves: bool,
    /// Whether there may be interfaces above ports, with MAC addresses of their own. The host gets what comes to these as from the
    /// port, and names itself by an address of that in an ICMPv6 error (docs/sysctls.md).
    pub(crate) has_stations: bool,
    /// Whether a port's IPv4 may be Linux's because of its settings.
    pub(crate) leaves_ipv4: bool,
    /// Whether 10.9.1.5 may be a broadcast address, by a route alone: without `rp_filter` Linux believes it as a source.
    pub(crate) has_broadcast: bool,
    /// Whether a port is without an IPv4 address now.
    pub(crate) lacks_ipv4: bool,
    /// Whether an interface has IPv6 addresses now, but no link-local one: Linux, which asks for neighbours from that one, finds none
    /// for what it forwards. For what our slow path sends it asks from another one (docs/sysctls.md).
    pub(crate) lacks_link_local: bool,
}

/// The frames, without who sends an ICMPv6 error.
fn without_source(outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    for (_, frame) in &mut outcome {
        if frame.len() > 14 + 40 + 4
            && frame[12..14] == [0x86, 0xdd]
            && frame[14 + 6] == 58
            && frame[54] < 128
        {
            frame[14 + 8..14 + 24].fill(0);
            frame[56..58].fill(0);
        }
    }
    outcome
}

/// UDP port 68.
fn is_for_dhcp_client(packet: &[u8]) -> bool {
    let at = usize::from(packet[0] & 15) * 4;
    packet[0] >> 4 == 4 && packet[9] == 17 && packet.get(at + 2..at + 4) == Some(&[0, 68][..])
}

impl Judge {
    /// Returns whether what Brickway made of a probe is what Linux made of it, or a departure.
    pub(crate) fn agrees(&self, probe: &Probe, linux: &Outcome, ours: &Outcome) -> bool {
        if self.filters && probe.is_denied {
            // Linux's filter stands behind the errors about packets that it would have denied.
            return !self.is_leak(probe, ours);
        }
        let packet = &probe.frame[probes::ip_at(&probe.frame)..];
        let is_ipv6 = packet[0] >> 4 == 6;
        linux == ours
            || (ours.is_empty() && DROPPED.iter().any(|(_, concerns)| concerns(packet)))
            // RFC 1812, 5.3.7: a source that is a broadcast address is not forwarded.
            || (self.has_broadcast && ours.is_empty() && packet[0] >> 4 == 4 && packet[12..16] == [10, 9, 1, 5])
            || (self.filters && self.is_unjudged && ours.iter().all(|frame| linux.contains(frame)))
            // Its bridge has not learned from those: it floods what another one knows the way of.
            || (self.filters && self.is_unjudged && linux.iter().all(|frame| ours.contains(frame)))
            // Nothing judges the IPv4 of a port of which it is Linux's, which with a filter forwards none of it (docs/sysctls.md).
            || (self.filters && self.leaves_ipv4 && ours.is_empty() && !is_ipv6)
            || ((self.is_multipath || self.has_paths6 && is_ipv6) && self.is_as_far(linux, ours))
            || (self.has_stations && is_ipv6 && without_source(linux) == without_source(ours))
            || (self.lacks_link_local && is_ipv6 && linux.is_empty())
            // A client may wait there for an address: its packets are Linux's, which then forwards none of them (docs/see.md).
            || (self.filters && self.lacks_ipv4 && ours.is_empty() && is_for_dhcp_client(packet))
    }

    /// Whether as many frames came by one path of several as by another. One may lead to a port whose frames a bridge takes, and then
    /// nowhere.
    fn is_as_far(&self, linux: &Outcome, ours: &Outcome) -> bool {
        linux.len() == ours.len() || self.is_unjudged && (linux.is_empty() || ours.is_empty())
    }

    /// Whether a probe surely comes in by a port or by what is below one: only that is the filter's to judge.
    fn is_of_port(&self, probe: &Probe) -> bool {
        !(self.member_leaves && probe.link == 2)
    }

    /// Returns whether a denied packet passed, which it must not at any moment.
    pub(crate) fn is_leak(&self, probe: &Probe, ours: &Outcome) -> bool {
        self.filters
            && probe.is_denied
            && self.is_of_port(probe)
            && ours.iter().any(|(_, frame)| is_forwarded(probe, frame))
    }
}
