//! Neighbours: what ARP and neighbour discovery found.

use crate::change::{Change, Neighbour, NeighbourState};
use crate::netlink::attributes::{attributes, split_header, u32_at};
use crate::netlink::message::{DecodeError, Decoded, FAMILY_IPV4, FAMILY_IPV6};

/// `NTF_PROXY`: the host answers for this address.
const FLAG_PROXY: u8 = 1 << 3;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// Attributes that do not say where packets go: when an entry was used (`NDA_CACHEINFO`), how often it was asked
/// (`NDA_PROBES`), who made it (`NDA_PROTOCOL`), who keeps it (`NDA_FLAGS_EXT`). `ndm_flags` say the like.
const OF_NO_CONCERN: [u16; 4] = [3, 4, 12, 15];

/// `struct ndmsg` and attributes.
pub(super) fn neighbour(payload: &[u8], is_gone: bool) -> Result<Decoded, DecodeError> {
    let (header, rest) = split_header::<12>(payload)?;
    let (family, index) = (header[0], u32_at(header, 4));
    let (state, flags) = (u16::from_ne_bytes([header[8], header[9]]), header[10]);
    // Bridges tell of the stations that they learned in messages of the same type (`AF_BRIDGE`).
    if family != FAMILY_IPV4 && family != FAMILY_IPV6 {
        return Ok(Decoded::NotForUs("a neighbour of another family"));
    }
    if flags & FLAG_PROXY != 0 {
        return Ok(Decoded::NotForUs("a proxy neighbour"));
    }
    let (mut address, mut mac, mut is_known) = (None, None, true);
    for attribute in attributes(rest) {
        let attribute = attribute?;
        match attribute.kind {
            NDA_DST => address = Some(attribute.address()?),
            NDA_LLADDR => mac = attribute.mac(),
            kind => is_known &= OF_NO_CONCERN.contains(&kind),
        }
    }
    let address = address.ok_or(DecodeError::AttributeMissing)?;
    // Something else than an Ethernet address may be needed to reach it: packets to it are Linux's.
    let mac = mac.filter(|_| is_known);
    if address.is_ipv4() != (family == FAMILY_IPV4) {
        return Err(DecodeError::Family);
    }
    let state = match state {
        // NUD_NONE: an entry about which the kernel knows nothing.
        0 => None,
        0x01 => Some(NeighbourState::Incomplete),
        0x02 => Some(NeighbourState::Reachable),
        0x04 => Some(NeighbourState::Stale),
        0x08 => Some(NeighbourState::Delay),
        0x10 => Some(NeighbourState::Probe),
        0x20 => Some(NeighbourState::Failed),
        0x40 => Some(NeighbourState::NoArp),
        0x80 => Some(NeighbourState::Permanent),
        // A state that is not known here: whether its address counts is Linux's to say.
        _ => None,
    };
    Ok(Decoded::Change(match state {
        Some(state) if !is_gone => Change::Neighbour(Neighbour { index, address, mac, state }),
        _ => Change::NeighbourGone(index, address),
    }))
}
