//! Links and their addresses.

use crate::change::{Address, Change, Link};
use crate::netlink::attributes::{Attribute, attributes, split_header, u32_at};
use crate::netlink::frames::Frame;
use crate::netlink::message::{DecodeError, Decoded, FAMILY_ANY, FAMILY_IPV4, FAMILY_IPV6};

/// `ARPHRD_ETHER`.
const TYPE_ETHERNET: u16 = 1;
/// `IFF_UP`.
const FLAG_UP: u32 = 1;
/// `IFF_LOWER_UP`.
const FLAG_LOWER_UP: u32 = 1 << 16;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_EGRESS_QOS: u16 = 3;
const IFLA_VLAN_PROTOCOL: u16 = 5;
/// The type of an 802.1Q tag.
const TYPE_VLAN: u16 = 0x8100;
const IFLA_VRF_TABLE: u16 = 1;
const IFLA_MACVLAN_MODE: u16 = 1;
/// Modes of macvlan and macvtap in which they take what is to others, which make them kinds of their own.
const MACVLAN_MODES: [(u32, &str); 2] = [(8, "passthru"), (16, "source")];

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// `IFF_RUNNING`.
const FLAG_RUNNING: u32 = 1 << 6;

/// The bits of a link's message that say whether it is up, has a carrier, and runs; zero if they are not
/// there.
pub(crate) fn state(frame: &Frame<'_>) -> u32 {
    let flags = frame
        .payload
        .get(8..12)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    flags & (FLAG_UP | FLAG_LOWER_UP | FLAG_RUNNING)
}

/// `struct ifinfomsg` and attributes.
pub(super) fn link(payload: &[u8], is_gone: bool) -> Result<Decoded, DecodeError> {
    let (header, rest) = split_header::<16>(payload)?;
    // Bridges tell of their ports, and IPv6 of its settings, in messages of the same type. "Gone" then means
    // that a port left its bridge.
    if header[0] != FAMILY_ANY {
        return Ok(Decoded::NotForUs("a link's message of another family"));
    }
    let (index, flags) = (u32_at(header, 4), u32_at(header, 8));
    if is_gone {
        return Ok(Decoded::Change(Change::LinkGone(index)));
    }
    let is_ethernet = u16::from_ne_bytes([header[2], header[3]]) == TYPE_ETHERNET;
    let (mut name, mut mtu, mut below_is_elsewhere) = (None, None, false);
    let mut link = Link {
        index,
        name: String::new(),
        mac: None,
        mtu: 0,
        is_up: flags & FLAG_UP != 0,
        has_carrier: flags & FLAG_LOWER_UP != 0,
        master: None,
        below: None,
        kind: String::new(),
        vlan: None,
        has_priorities: false,
        vrf_table: None,
    };
    for attribute in attributes(rest) {
        let attribute = attribute?;
        match attribute.kind {
            IFLA_ADDRESS if is_ethernet => link.mac = attribute.mac(),
            IFLA_IFNAME => name = Some(attribute.text()),
            IFLA_MTU => mtu = Some(attribute.u32()?),
            IFLA_LINK => link.below = Some(attribute.u32()?).filter(|&below| below != 0),
            // The number is one of another network namespace: nothing to us.
            IFLA_LINK_NETNSID => below_is_elsewhere = true,
            IFLA_MASTER => link.master = Some(attribute.u32()?).filter(|&master| master != 0),
            IFLA_LINKINFO => link_info(&attribute, &mut link)?,
            _ => {}
        }
    }
    if below_is_elsewhere {
        link.below = None;
    }
    // Wireless drivers tell of themselves in messages without these.
    let (Some(name), Some(mtu)) = (name, mtu) else {
        return Ok(Decoded::NotForUs("a link's message without name or MTU"));
    };
    Ok(Decoded::Change(Change::Link(Link { name, mtu, ..link })))
}

/// What kind of link it is; the data mean something only once the kind is known.
fn link_info(info: &Attribute<'_>, link: &mut Link) -> Result<(), DecodeError> {
    let mut data = None;
    for attribute in info.nested() {
        let attribute = attribute?;
        match attribute.kind {
            IFLA_INFO_KIND => link.kind = attribute.text(),
            IFLA_INFO_DATA => data = Some(attribute),
            _ => {}
        }
    }
    let Some(data) = data else { return Ok(()) };
    match link.kind.as_str() {
        "vlan" => {
            let mut is_customers = true;
            for attribute in data.nested() {
                let attribute = attribute?;
                match attribute.kind {
                    IFLA_VLAN_ID => link.vlan = Some(attribute.u16()?),
                    // In network order, unlike numbers that are the host's.
                    IFLA_VLAN_PROTOCOL => is_customers = u16::from_be(attribute.u16()?) == TYPE_VLAN,
                    // A number of another priority than 0 each.
                    IFLA_VLAN_EGRESS_QOS => link.has_priorities = attribute.nested().next().is_some(),
                    _ => {}
                }
            }
            // A service tag (802.1ad) has numbers of its own.
            link.vlan = link.vlan.filter(|_| is_customers);
        }
        "vrf" => {
            for attribute in data.nested() {
                let attribute = attribute?;
                if attribute.kind == IFLA_VRF_TABLE {
                    link.vrf_table = Some(attribute.u32()?);
                }
            }
        }
        "macvlan" | "macvtap" => {
            for attribute in data.nested() {
                let attribute = attribute?;
                if attribute.kind == IFLA_MACVLAN_MODE {
                    let mode = attribute.u32()?;
                    let mode = MACVLAN_MODES.iter().find(|(number, _)| *number == mode);
                    mode.into_iter().for_each(|(_, mode)| link.kind = format!("{} {mode}", link.kind));
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// `struct ifaddrmsg` and attributes.
pub(super) fn address(payload: &[u8], is_gone: bool) -> Result<Decoded, DecodeError> {
    let (header, rest) = split_header::<8>(payload)?;
    let [family, prefix_length, ..] = *header;
    let bits = match family {
        FAMILY_IPV4 => 32,
        FAMILY_IPV6 => 128,
        _ => return Ok(Decoded::NotForUs("an address of another family")),
    };
    if prefix_length > bits {
        return Err(DecodeError::PrefixLength);
    }
    let (mut local, mut other) = (None, None);
    for attribute in attributes(rest) {
        let attribute = attribute?;
        match attribute.kind {
            IFA_LOCAL => local = Some(attribute.address()?),
            // On a link between two points this is the other end, and ours is the local one.
            IFA_ADDRESS => other = Some(attribute.address()?),
            _ => {}
        }
    }
    let address = local.or(other).ok_or(DecodeError::AttributeMissing)?;
    if address.is_ipv4() != (family == FAMILY_IPV4) {
        return Err(DecodeError::Family);
    }
    let address = Address { index: u32_at(header, 4), address, prefix_length };
    Ok(Decoded::Change(if is_gone { Change::AddressGone(address) } else { Change::Address(address) }))
}
