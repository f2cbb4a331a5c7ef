//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};

use crate::change::{Change, Hops, OnlyLinux, Path, Route, RouteKey, RouteKind};
use crate::netlink::attributes::{Attribute, attributes, split_header, u32_at};
use crate::netlink::frames::Frame;
use crate::netlink::message::kind::NEW_ROUTE;
use crate::netlink::message::{DecodeError, Decoded, FAMILY_IPV4, FAMILY_IPV6, PATH_IS_DOWN};

// linux/rtnetlink.h
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_FLOW: u16 = 11;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_PREF: u16 = 20;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_PAD: u16 = 24;
const RTA_NH_ID: u16 = 30;
const RTAX_LOCK: u16 = 1;
const RTAX_MTU: u16 = 2;
/// The metrics from `RTAX_WINDOW` to `RTAX_FASTOPEN_NO_COOKIE` are of TCP connections that end at this host, or say with
/// which hop limit it sends packets of its own. Forwarded packets do not meet them.
const METRICS_OF_THE_HOST: std::ops::RangeInclusive<u16> = 3..=17;

/// `RTM_F_CLONED`: not a route but what the kernel remembers of one destination (path MTU, redirects).
const FLAG_CLONED: u32 = 0x200;

/// Flags of a route or a path that do not change what happens to a packet:
///
/// | flag | why |
/// | --- | --- |
/// | `RTNH_F_DEAD` 1, `RTNH_F_LINKDOWN` 16 | read: [`PATH_IS_DOWN`] |
/// | `RTNH_F_PERVASIVE` 2, `RTM_F_EQUALIZE` 0x400 | no kernel has done anything for them |
/// | `RTNH_F_ONLINK` 4 | whether a gateway may be where it is was checked when the route came |
/// | `RTNH_F_OFFLOAD` 8, `RTNH_F_TRAP` 64, `RTM_F_OFFLOAD` 0x4000, `RTM_F_TRAP` 0x8000, `RTM_F_OFFLOAD_FAILED` \
///   0x20000000 | a card does the same, or does not |
/// | `RTM_F_NOTIFY` 0x100, `RTM_F_LOOKUP_TABLE` 0x1000, `RTM_F_FIB_MATCH` 0x2000 | of requests |
/// | `RTM_F_PREFIX` 0x800 | the route comes from an advertised prefix |
const KNOWN_FLAGS: u32 = 0x2000_fd5f;

/// Where expiry stands in `struct rta_cacheinfo`, in 1/100 s from now; 0 is never.
const EXPIRES_AT: std::ops::Range<usize> = 8..12;

/// The first unknown one of these flags.
pub(super) fn unknown_flags(flags: u32) -> Option<OnlyLinux> {
    let unknown = flags & !KNOWN_FLAGS;
    (unknown != 0).then_some(OnlyLinux::Flags(unknown))
}

/// `struct rtmsg` and attributes. What may decide about packets and is not known here makes the route Linux's. The scope
/// (`rtm_scope`) decides nothing: forwarded packets are looked up with the widest one.
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
    let mut only_linux = unknown_flags(flags);
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
        other => {
            only_linux = Some(OnlyLinux::Kind(other));
            RouteKind::Unicast
        }
    };

    let (mut table, mut metric) = (u32::from(table), 0);
    let (mut preferred_source, mut metrics) = (None, Metrics::default());
    let mut only = Path::to_nowhere(flags);
    let (mut paths, mut object) = (None, None);
    let (mut source, mut preference) = (Ipv6Addr::UNSPECIFIED, Route::MEDIUM);
    let mut has_expired = false;
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
            RTA_SRC => match (attribute.address()?, family) {
                (IpAddr::V6(address), FAMILY_IPV6) => source = address,
                // No kernel has such routes so far.
                (IpAddr::V4(_), FAMILY_IPV4) => only_linux = Some(OnlyLinux::Attribute(RTA_SRC)),
                _ => return Err(DecodeError::Family),
            },
            RTA_PRIORITY => metric = attribute.u32()?,
            RTA_PREFSRC => preferred_source = Some(attribute.address()?),
            RTA_METRICS => metrics = Metrics::read(&attribute)?,
            RTA_TABLE => table = attribute.u32()?,
            RTA_NH_ID => object = Some(attribute.u32()?),
            RTA_MULTIPATH => {
                let (read, unknown) = multipath(attribute.value)?;
                paths = Some(read);
                only_linux = only_linux.or(unknown);
            }
            RTA_PREF => preference = preference_of(attribute.u8()?),
            RTA_CACHEINFO => has_expired = lifetime(&attribute)? < 0,
            RTA_PAD => {}
            _ if only.take(&attribute)? => {}
            unknown => only_linux = Some(OnlyLinux::Attribute(unknown)),
        }
    }
    // Bits behind the prefix mean nothing.
    let prefix = IpNet::new(destination, prefix_length).map_err(|_| DecodeError::PrefixLength)?.trunc();
    let from = match source_length {
        length @ 1.. if family == FAMILY_IPV6 => {
            Some(Ipv6Net::new(source, length).map_err(|_| DecodeError::PrefixLength)?.trunc())
        }
        _ => None,
    };
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
    let Metrics { mtu, unknown } = metrics;
    let only_linux = only_linux.or(unknown);
    let key = RouteKey { table, prefix, metric, tos, from };
    let route = Route { key, kind, protocol, preferred_source, mtu, preference, only_linux, hops };
    // An expired route stays in the list until the kernel looks for such, every 30 s, and counts for nothing. One with sources does: packets
    // from others go by a shorter prefix as long as it is there (net/ipv6/ip6_fib.c, `fib6_node_lookup_1`).
    let is_gone = is_gone || has_expired && from.is_none();
    Ok(if is_gone { Decoded::RouteGone(route) } else { Decoded::Change(Change::Route(route)) })
}

/// The order of `RTA_PREF` (`IPV6_DECODE_PREF`): 1 is high, 0 medium, 3 low.
fn preference_of(value: u8) -> u8 {
    value & 3 ^ 2
}

/// How long a route still counts (`rta_expires`), in 1/100 s; less than 0 if it has expired, 0 if it does not.
fn lifetime(cache_info: &Attribute<'_>) -> Result<i32, DecodeError> {
    let bytes = cache_info.value.get(EXPIRES_AT).and_then(|bytes| bytes.try_into().ok());
    bytes.map(i32::from_ne_bytes).ok_or(DecodeError::AttributeLength)
}

/// How long the IPv6 route of a message still counts, if not for ever; nothing if it has expired. Linux does not report when it ends.
pub(in crate::netlink) fn time_left(frame: &Frame<'_>) -> Option<Duration> {
    let (header, rest) = split_header::<12>(frame.payload).ok()?;
    if frame.kind != NEW_ROUTE || header[0] != FAMILY_IPV6 {
        return None;
    }
    let cache_info =
        attributes(rest).map_while(Result::ok).find(|attribute| attribute.kind == RTA_CACHEINFO)?;
    let left = lifetime(&cache_info).ok().filter(|&left| left != 0)?;
    Some(Duration::from_millis(10 * u64::try_from(left).unwrap_or(0)))
}

/// Whether a message is of an IPv6 route that comes from a router advertisement (`RTPROT_RA`).
pub(in crate::netlink) fn is_advertised(frame: &Frame<'_>) -> bool {
    frame.kind == NEW_ROUTE && matches!(frame.payload, [FAMILY_IPV6, _, _, _, _, 9, ..])
}

/// What metrics say about forwarded packets.
#[derive(Default)]
struct Metrics {
    mtu: Option<u32>,
    unknown: Option<OnlyLinux>,
}

impl Metrics {
    /// `RTA_METRICS`: numbers in attributes again.
    fn read(metrics: &Attribute<'_>) -> Result<Metrics, DecodeError> {
        let mut read = Metrics::default();
        for attribute in metrics.nested() {
            let attribute = attribute?;
            match attribute.kind {
                RTAX_MTU => read.mtu = Some(attribute.u32()?).filter(|&mtu| mtu != 0),
                // A bit for each metric.
                RTAX_LOCK if attribute.u32()? & 1 << RTAX_MTU != 0 => {
                    read.unknown = Some(OnlyLinux::LockedMtu);
                }
                RTAX_LOCK => {}
                kind if METRICS_OF_THE_HOST.contains(&kind) => {}
                unknown => read.unknown = Some(OnlyLinux::Metric(unknown)),
            }
        }
        Ok(read)
    }
}

/// `RTA_MULTIPATH`: a row of `struct rtnexthop`, each with attributes of its own.
fn multipath(mut bytes: &[u8]) -> Result<(Vec<Path>, Option<OnlyLinux>), DecodeError> {
    let (mut paths, mut only_linux) = (Vec::new(), None);
    while !bytes.is_empty() {
        let (header, _) = bytes.split_first_chunk::<8>().ok_or(DecodeError::PathFraming)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let inside = bytes.get(8..length).ok_or(DecodeError::PathFraming)?;
        let flags = u32::from(header[2]);
        only_linux = only_linux.or(unknown_flags(flags));
        let mut path = Path::to_nowhere(flags);
        path.weight = u16::from(header[3]) + 1;
        path.index = u32_at(header, 4);
        for attribute in attributes(inside) {
            let attribute = attribute?;
            if !path.take(&attribute)? {
                only_linux = Some(OnlyLinux::PathAttribute(attribute.kind));
            }
        }
        paths.push(path);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok((paths, only_linux))
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

    /// Takes what an attribute of a route, or of one of its paths, says of the path. Returns whether it is known.
    fn take(&mut self, attribute: &Attribute<'_>) -> Result<bool, DecodeError> {
        match attribute.kind {
            RTA_OIF => self.index = attribute.u32()?,
            RTA_GATEWAY => self.gateway = Some(attribute.address()?),
            // RFC 8950: an IPv4 route by way of an IPv6 router.
            RTA_VIA => self.gateway = Some(attribute.via()?),
            RTA_ENCAP_TYPE => self.has_encapsulation |= attribute.u16()? != 0,
            RTA_ENCAP => self.has_encapsulation = true,
            // A realm, for filters of tc and iptables, and counters.
            RTA_FLOW => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}
