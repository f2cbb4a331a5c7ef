//! Neighbours: what ARP and neighbour discovery found.

use crate::change::{Change, Neighbour, NeighbourState};
use crate::netlink::attributes::{attributes, split_header, u32_at};
use crate::netlink::message::{DecodeError, Decoded, FAMILY_IPV4, FAMILY_IPV6};

/// `NTF_PROXY`: the host answers for this address.
const FLAG_PROXY: u8 = 1 << 3;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

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
    let (mut address, mut mac) = (None, None);
    for attribute in attributes(rest) {
        let attribute = attribute?;
        match attribute.kind {
            NDA_DST => address = Some(attribute.address()?),
            NDA_LLADDR => mac = attribute.mac(),
            _ => {}
        }
    }
    let address = address.ok_or(DecodeError::AttributeMissing)?;
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
        _ if is_gone => None,
        _ => return Ok(Decoded::NotForUs("a neighbour in an unknown state")),
    };
    Ok(Decoded::Change(match state {
        Some(state) if !is_gone => Change::Neighbour(Neighbour { index, address, mac, state }),
        _ => Change::NeighbourGone(index, address),
    }))
}
