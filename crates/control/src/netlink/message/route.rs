//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::change::{Change, Hops, Path, Route, RouteKey, RouteKind};
use crate::netlink::attributes::{Attribute, attributes, split_header, u32_at};
use crate::netlink::message::{DecodeError, Decoded, FAMILY_IPV4, FAMILY_IPV6, PATH_IS_DOWN};

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTAX_MTU: u16 = 2;

/// `RTM_F_CLONED`: not a route but what the kernel remembers of one destination (path MTU, redirects).
const FLAG_CLONED: u32 = 0x200;

/// `struct rtmsg` and attributes.
pub(super) fn route(payload: &[u8], is_gone: bool) -> Result<Decoded, DecodeError> {
    let (header, rest) = split_header::<12>(payload)?;
    let [family, prefix_length, source_length, tos, table, protocol, _scope, kind] = header[..8] else {
        return Err(DecodeError::ShortMessage);
    };
    let flags = u32_at(header, 8);
    let mut destination: IpAddr = match family {
        FAMILY_IPV4 => Ipv4Addr::UNSPECIFIED.into(),
        FAMILY_IPV6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Ok(Decoded::NotForUs("a route of another family")),
    };
    if flags & FLAG_CLONED != 0 {
        return Ok(Decoded::NotForUs("a cached route"));
    }
    if source_length != 0 {
        return Ok(Decoded::NotForUs("a route for some sources only"));
    }
    let mut kind = match kind {
        1 => RouteKind::Unicast,
        2 => RouteKind::Local,
        3 => RouteKind::Broadcast,
        4 => RouteKind::Anycast,
        5 => RouteKind::Multicast,
        6 => RouteKind::Blackhole,
        7 => RouteKind::Unreachable,
        8 => RouteKind::Prohibit,
        9 => RouteKind::Throw,
        // Who deletes need not say what kind the route is.
        0 if is_gone => RouteKind::Unicast,
        _ => return Ok(Decoded::NotForUs("a route of an unknown kind")),
    };

    let (mut table, mut metric) = (u32::from(table), 0);
    let (mut preferred_source, mut mtu) = (None, None);
    let mut only = Path::to_nowhere(flags);
    let (mut paths, mut object) = (None, None);
    for attribute in attributes(rest) {
        let attribute = attribute?;
        match attribute.kind {
            RTA_DST => {
                let address = attribute.address()?;
                if address.is_ipv4() != destination.is_ipv4() {
                    return Err(DecodeError::Family);
                }
                destination = address;
            }
            RTA_PRIORITY => metric = attribute.u32()?,
            RTA_PREFSRC => preferred_source = Some(attribute.address()?),
            RTA_METRICS => mtu = route_mtu(&attribute)?,
            RTA_TABLE => table = attribute.u32()?,
            RTA_NH_ID => object = Some(attribute.u32()?),
            RTA_MULTIPATH => paths = Some(multipath(attribute.value)?),
            _ => only.take(&attribute)?,
        }
    }
    // Bits behind the prefix mean nothing.
    let prefix = IpNet::new(destination, prefix_length).map_err(|_| DecodeError::PrefixLength)?.trunc();
    let goes_somewhere = !matches!(
        kind,
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit | RouteKind::Throw
    );
    let hops = if let Some(id) = object {
        // A route to an object that is a black hole comes as one of kind blackhole. What happens is the
        // object's matter, which may be another one tomorrow.
        if kind == RouteKind::Blackhole {
            kind = RouteKind::Unicast;
        }
        Hops::Object(id)
    } else if !goes_somewhere {
        // IPv6 names the loop-back interface here.
        Hops::None
    } else if let Some(paths) = paths {
        Hops::Paths(paths)
    } else {
        Hops::Paths(vec![only])
    };
    let key = RouteKey { table, prefix, metric, tos };
    let route = Route { key, kind, protocol, preferred_source, mtu, hops };
    Ok(if is_gone { Decoded::RouteGone(route) } else { Decoded::Change(Change::Route(route)) })
}

/// `RTA_METRICS`: numbers in attributes again.
fn route_mtu(metrics: &Attribute<'_>) -> Result<Option<u32>, DecodeError> {
    let mut mtu = None;
    for attribute in metrics.nested() {
        let attribute = attribute?;
        if attribute.kind == RTAX_MTU {
            mtu = Some(attribute.u32()?).filter(|&mtu| mtu != 0);
        }
    }
    Ok(mtu)
}

/// `RTA_MULTIPATH`: a row of `struct rtnexthop`, each with attributes of its own.
fn multipath(mut bytes: &[u8]) -> Result<Vec<Path>, DecodeError> {
    let mut paths = Vec::new();
    while !bytes.is_empty() {
        let (header, _) = bytes.split_first_chunk::<8>().ok_or(DecodeError::PathFraming)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let inside = bytes.get(8..length).ok_or(DecodeError::PathFraming)?;
        let mut path = Path::to_nowhere(u32::from(header[2]));
        path.weight = u16::from(header[3]) + 1;
        path.index = u32_at(header, 4);
        for attribute in attributes(inside) {
            path.take(&attribute?)?;
        }
        paths.push(path);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(paths)
}

impl Path {
    /// A path of which nothing is known but `RTNH_F_*`.
    pub(super) fn to_nowhere(flags: u32) -> Path {
        Path {
            index: 0,
            gateway: None,
            weight: 1,
            is_down: flags & PATH_IS_DOWN != 0,
            has_encapsulation: false,
        }
    }

    /// Takes what an attribute of a route, or of one of its paths, says of the path.
    fn take(&mut self, attribute: &Attribute<'_>) -> Result<(), DecodeError> {
        match attribute.kind {
            RTA_OIF => self.index = attribute.u32()?,
            RTA_GATEWAY => self.gateway = Some(attribute.address()?),
            // RFC 8950: an IPv4 route by way of an IPv6 router.
            RTA_VIA => self.gateway = Some(attribute.via()?),
            RTA_ENCAP_TYPE => self.has_encapsulation |= attribute.u16()? != 0,
            RTA_ENCAP => self.has_encapsulation = true,
            _ => {}
        }
        Ok(())
    }
}
