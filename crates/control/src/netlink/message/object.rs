//! Next-hop objects and groups of them (`ip nexthop`, Linux 5.3 or newer).

use crate::change::{Change, Object, ObjectKind, OnlyLinux, Path};
use crate::netlink::attributes::{attributes, split_header, u32_at};
use crate::netlink::message::route::unknown_flags;
use crate::netlink::message::{DecodeError, Decoded};

// linux/nexthop.h
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
const NHA_FDB: u16 = 11;
/// The timers of a resilient group: with [`NHA_GROUP_TYPE`] only.
const NHA_RES_GROUP: u16 = 12;
/// Counters, and whether a card counts: `NHA_OP_FLAGS` to `NHA_HW_STATS_USED`.
const COUNTERS: std::ops::RangeInclusive<u16> = 14..=17;

/// `NEXTHOP_GRP_TYPE_MPATH`.
const MULTIPATH_GROUP: u16 = 0;

/// The largest weight that groups of the forwarding table have.
const MAX_WEIGHT: u16 = 256;

/// `struct nhmsg` and attributes.
pub(super) fn object(payload: &[u8], is_gone: bool) -> Result<Decoded, DecodeError> {
    let (header, rest) = split_header::<8>(payload)?;
    let (mut id, mut members, mut is_blackhole) = (None, None, false);
    let flags = u32_at(header, 4);
    let (mut path, mut only_linux) = (Path::to_nowhere(flags), unknown_flags(flags));
    for attribute in attributes(rest) {
        let attribute = attribute?;
        match attribute.kind {
            NHA_ID => id = Some(attribute.u32()?),
            NHA_GROUP => {
                let read = group(attribute.value)?;
                let heaviest = read.iter().map(|&(_, weight)| weight).max();
                only_linux =
                    only_linux.or(heaviest.filter(|&weight| weight > MAX_WEIGHT).map(OnlyLinux::Weight));
                members = Some(read);
            }
            NHA_GROUP_TYPE => {
                let kind = attribute.u16()?;
                only_linux = only_linux.or((kind != MULTIPATH_GROUP).then_some(OnlyLinux::GroupKind(kind)));
            }
            NHA_BLACKHOLE => is_blackhole = true,
            NHA_OIF => path.index = attribute.u32()?,
            NHA_GATEWAY => path.gateway = Some(attribute.address()?),
            NHA_ENCAP_TYPE => path.has_encapsulation |= attribute.u16()? != 0,
            NHA_ENCAP => path.has_encapsulation = true,
            // No route leads to such an object.
            NHA_FDB => return Ok(Decoded::NotForUs("a next-hop object of a bridge")),
            NHA_RES_GROUP => {}
            kind if COUNTERS.contains(&kind) => {}
            unknown => only_linux = Some(OnlyLinux::ObjectAttribute(unknown)),
        }
    }
    let id = id.ok_or(DecodeError::AttributeMissing)?;
    if is_gone {
        return Ok(Decoded::Change(Change::ObjectGone(id)));
    }
    let kind = match (only_linux, members) {
        (Some(what), _) => ObjectKind::OnlyLinux(what),
        (None, Some(members)) => ObjectKind::Group(members),
        (None, None) if is_blackhole => ObjectKind::Blackhole,
        (None, None) => ObjectKind::Path(path),
    };
    Ok(Decoded::Change(Change::Object(Object { id, kind })))
}

/// `NHA_GROUP`: a row of `struct nexthop_grp`. The weight is one less than what is meant; its high byte is
/// there since Linux 6.12, where older ones have zero.
fn group(bytes: &[u8]) -> Result<Vec<(u32, u16)>, DecodeError> {
    let (members, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(DecodeError::AttributeLength);
    }
    Ok(members
        .iter()
        .map(|member| (u32_at(member, 0), u16::from_le_bytes([member[4], member[5]]).saturating_add(1)))
        .collect())
}
