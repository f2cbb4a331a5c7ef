//! Messages that were written here, damaged ones, and noise. What the kernel writes is in `netlink::tests`.

use packet::IpVersion;
use proptest::prelude::*;

use super::*;
use crate::change::{
    Address, Hops, InterfaceIndex, Link, Neighbour, NeighbourState, Object, ObjectKind, OnlyLinux, Path,
    RouteKey, RouteKind, Rule, RuleAction,
};
use crate::netlink::frames::frames;
use crate::netlink::request::Message;

/// The attributes of a message that is only these.
fn attributes(list: &[(u16, &[u8])]) -> Vec<u8> {
    let message = list
        .iter()
        .fold(Message::new(0, 0, 0, &[]), |message, (kind, value)| message.attribute(*kind, value));
    message.finish().split_off(16)
}

fn message(kind: u16, fixed: &[u8], list: &[(u16, &[u8])]) -> Vec<u8> {
    let message = list
        .iter()
        .fold(Message::new(kind, 0, 0, fixed), |message, (kind, value)| message.attribute(*kind, value));
    message.finish()
}

fn decoded(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let mut frames = frames(bytes);
    let frame = frames.next().expect("a message")?;
    assert!(frames.next().is_none());
    decode(&frame)
}

fn octets(address: std::net::IpAddr) -> Vec<u8> {
    match address {
        std::net::IpAddr::V4(address) => address.octets().into(),
        std::net::IpAddr::V6(address) => address.octets().into(),
    }
}

fn link_header(family: u8, hardware: u16, index: InterfaceIndex, flags: u32) -> Vec<u8> {
    let mut fixed = vec![family, 0];
    fixed.extend(hardware.to_ne_bytes());
    fixed.extend(index.to_ne_bytes());
    fixed.extend(flags.to_ne_bytes());
    fixed.extend([0; 4]);
    fixed
}

#[test]
fn vlans_and_vrfs() {
    let link = |kind: &[u8], data: &[u8], more: &[(u16, &[u8])]| {
        let info = attributes(&[(1, kind), (2, data)]);
        let mtu = 1500u32.to_ne_bytes();
        let below = 3u32.to_ne_bytes();
        let mut list: Vec<(u16, &[u8])> =
            vec![(3, b"uplink.7\0"), (1, &[2, 0, 0, 0, 0, 1]), (4, &mtu), (5, &below), (18, &info)];
        list.extend(more);
        let Ok(Decoded::Change(Change::Link(link))) =
            decoded(&message(16, &link_header(0, 1, 9, 0x10001), &list))
        else {
            panic!("a link")
        };
        link
    };
    let vlan = link(b"vlan\0", &attributes(&[(1, &7u16.to_ne_bytes())]), &[]);
    let expected = Link {
        index: 9,
        name: "uplink.7".into(),
        mac: Some([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        is_up: true,
        has_carrier: true,
        master: None,
        below: Some(3),
        kind: "vlan".into(),
        vlan: Some(7),
        has_priorities: false,
        vrf_table: None,
    };
    assert_eq!(vlan, expected);
    // As the kernel tells it, with the type of the tag: 802.1Q, and 802.1ad, which is none of ours.
    let told = |protocol: u16| {
        let list: [(u16, &[u8]); 3] = [(5, &protocol.to_be_bytes()), (1, &7u16.to_ne_bytes()), (2, &[0; 8])];
        link(b"vlan\0", &attributes(&list), &[]).vlan
    };
    assert_eq!((told(0x8100), told(0x88a8)), (Some(7), None));
    // Its map of priorities, with a number in it and without.
    let maps =
        |map: &[u8]| link(b"vlan\0", &attributes(&[(1, &7u16.to_ne_bytes()), (3, map)]), &[]).has_priorities;
    let number = attributes(&[(1, &[0, 0, 0, 0, 5, 0, 0, 0])]);
    assert_eq!((maps(&number), maps(&[]), vlan.has_priorities), (true, false, false));
    let vrf = link(b"vrf\0", &attributes(&[(1, &77u32.to_ne_bytes())]), &[]);
    assert_eq!((vrf.vlan, vrf.vrf_table), (None, Some(77)));
    // The link below is in another network namespace.
    assert_eq!(link(b"veth\0", &[], &[(37, &0u32.to_ne_bytes())]).below, None);
}

#[test]
fn what_is_told_in_messages_of_the_same_type_but_is_not_ours() {
    let mtu = 1500u32.to_ne_bytes();
    let ours: &[(u16, &[u8])] = &[(3, b"port0\0"), (4, &mtu)];
    for (bytes, what) in [
        (message(17, &link_header(7, 1, 9, 0), ours), "a port leaves its bridge"),
        (message(16, &link_header(0, 1, 9, 0), &[(11, b"wireless")]), "a wireless event"),
        (message(24, &[2, 0, 0, 0, 254, 2, 0, 1, 0, 2, 0, 0], &[]), "a cached route"),
        (message(24, &[28, 20, 0, 0, 254, 2, 0, 1, 0, 0, 0, 0], &[]), "a route of MPLS"),
        (
            message(28, &[7, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0], &[(2, &[2, 0, 0, 0, 0, 1])]),
            "a station of a bridge",
        ),
        (message(28, &[2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 8, 0], &[(1, &[10, 0, 0, 1])]), "a proxy neighbour"),
        (message(104, &[0; 8], &[(1, &[1, 0, 0, 0]), (11, &[])]), "a next-hop object of a bridge"),
        (message(32, &[128, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], &[]), "a rule of multicast routing"),
        (message(80, &[1, 2, 3], &[]), "another type"),
    ] {
        assert!(matches!(decoded(&bytes), Ok(Decoded::NotForUs(_))), "{what}: {:?}", decoded(&bytes));
    }
}

#[test]
fn labels_and_other_encapsulations_are_marked() {
    let (index, mpls) = (4u32.to_ne_bytes(), 1u16.to_ne_bytes());
    let route = message(
        24,
        &[2, 8, 0, 0, 254, 11, 0, 1, 0, 0, 0, 0],
        &[
            (1, &[10, 0, 0, 0]),
            (4, &index),
            (5, &[192, 0, 2, 1]),
            (21, &mpls),
            (22, &attributes(&[(1, &[0, 6, 65, 0])])),
        ],
    );
    let Ok(Decoded::Change(Change::Route(route))) = decoded(&route) else { panic!("a route") };
    assert!(matches!(&route.hops, Hops::Paths(paths) if paths[0].has_encapsulation));
    let object = message(104, &[2, 0, 0, 0, 0, 0, 0, 0], &[(1, &index), (5, &index), (7, &mpls), (8, &[])]);
    let Ok(Decoded::Change(Change::Object(Object { id: 4, kind: ObjectKind::Path(path) }))) =
        decoded(&object)
    else {
        panic!("an object")
    };
    assert!(path.has_encapsulation);
}

#[test]
fn rules_of_vrfs_and_of_newer_kernels() {
    let header = [10, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let priority = 1000u32.to_ne_bytes();
    let rule = |more: (u16, &[u8])| match decoded(&message(32, &header, &[(6, &priority), more])) {
        Ok(Decoded::Change(Change::Rule(rule))) => rule,
        other => panic!("{other:?}"),
    };
    let expected = Rule {
        version: IpVersion::V6,
        priority: 1000,
        action: RuleAction::Table(0),
        from: None,
        to: None,
        input: None,
        suppress_prefix_length: None,
        is_inverted: false,
        is_l3mdev: true,
        mark: None,
        has_other_selectors: false,
    };
    assert_eq!(rule((19, &[1])), expected);
    assert!(rule((200, &[1])).has_other_selectors, "whatever it is, it may select");
    assert_eq!(rule((10, &7u32.to_ne_bytes())).mark, Some((7, u32::MAX)));
}

#[test]
fn weights_of_groups_have_two_bytes_since_linux_6_12() {
    let bytes = message(
        104,
        &[0; 8],
        &[(1, &[9, 0, 0, 0]), (2, &[5, 0, 0, 0, 255, 0, 0, 0, 6, 0, 0, 0, 0, 1, 0, 0])],
    );
    let kind = ObjectKind::OnlyLinux(OnlyLinux::Weight(257));
    assert_eq!(decoded(&bytes), Ok(Decoded::Change(Change::Object(Object { id: 9, kind }))));
}

fn route_of(header: &[u8], list: &[(u16, &[u8])]) -> Route {
    match decoded(&message(24, header, list)) {
        Ok(Decoded::Change(Change::Route(route))) => route,
        other => panic!("{other:?}"),
    }
}

const IPV4_ROUTE: [u8; 12] = [2, 8, 0, 0, 254, 11, 0, 1, 0, 0, 0, 0];
const IPV6_ROUTE: [u8; 12] = [10, 32, 0, 0, 254, 9, 0, 1, 0, 0, 0, 0];

#[test]
fn what_is_not_known_of_a_route_makes_it_linuxs() {
    let only = |header: &[u8], list: &[(u16, &[u8])]| route_of(header, list).only_linux;
    // As Linux 6.18 writes it, with a realm, padding and metrics of TCP.
    let metrics =
        attributes(&[(1, &[0, 4, 0, 0]), (10, &[64, 0, 0, 0]), (16, b"cubic\0"), (17, &[1, 0, 0, 0])]);
    let known: [(u16, &[u8]); 7] = [
        (1, &[10, 0, 0, 0]),
        (4, &[4, 0, 0, 0]),
        (5, &[192, 0, 2, 1]),
        (8, &metrics),
        (11, &[1, 0, 2, 0]),
        (24, &[]),
        (12, &[0; 32]),
    ];
    assert_eq!(only(&IPV4_ROUTE, &known), None);
    let header = |place: usize, value: u8| {
        let mut header = IPV4_ROUTE;
        header[place] = value;
        header
    };
    // Onlink, dead and in the hardware; of a scope of the administrator.
    assert_eq!(only(&header(8, 0x4d), &known), None);
    assert_eq!(only(&header(6, 200), &known), None);
    assert_eq!(only(&header(8, 0x80), &[]), Some(OnlyLinux::Flags(0x80)));
    assert_eq!(only(&header(7, 11), &[]), Some(OnlyLinux::Kind(11)));
    for number in [3, 10, 16, 19, 23, 25, 26, 27, 28, 29, 31, 99] {
        assert_eq!(only(&IPV4_ROUTE, &[(number, &[1, 0, 0, 0])]), Some(OnlyLinux::Attribute(number)));
    }
    assert_eq!(only(&IPV4_ROUTE, &[(2, &[192, 0, 2, 0])]), Some(OnlyLinux::Attribute(2)));
    let of_metrics = |list: &[(u16, &[u8])]| only(&IPV4_ROUTE, &[(8, &attributes(list))]);
    assert_eq!(of_metrics(&[(18, &[1, 0, 0, 0])]), Some(OnlyLinux::Metric(18)));
    assert_eq!(of_metrics(&[(1, &[4, 0, 0, 0]), (2, &[0, 5, 0, 0])]), Some(OnlyLinux::LockedMtu));
    let path = |flags: u8, inside: &[u8]| {
        let mut bytes = vec![8 + inside.len() as u8, 0, flags, 0, 3, 0, 0, 0];
        bytes.extend(inside);
        only(&IPV4_ROUTE, &[(9, &bytes)])
    };
    assert_eq!(path(0x5f, &attributes(&[(5, &[192, 0, 2, 1]), (11, &[0; 4])])), None);
    assert_eq!(path(0x80, &[]), Some(OnlyLinux::Flags(0x80)));
    assert_eq!(path(0, &attributes(&[(99, &[])])), Some(OnlyLinux::PathAttribute(99)));
}

#[test]
fn sources_preferences_and_lifetimes_of_ipv6_routes_are_read() {
    let destination: (u16, &[u8]) = (1, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut of_some = IPV6_ROUTE;
    of_some[2] = 48;
    let source = octets("fd77:b::1".parse().unwrap());
    let route = route_of(&of_some, &[destination, (2, &source)]);
    assert_eq!((route.key.from, route.only_linux), (Some("fd77:b::/48".parse().unwrap()), None));
    let any = route_of(&of_some, &[destination]).key.from;
    assert_eq!(any, Some("::/48".parse().unwrap()), "of length 48, of whatever address");
    of_some[2] = 129;
    assert_eq!(decoded(&message(24, &of_some, &[destination])), Err(DecodeError::PrefixLength));
    let source: (u16, &[u8]) = (2, &[192, 0, 2, 0]);
    assert_eq!(decoded(&message(24, &IPV6_ROUTE, &[destination, source])), Err(DecodeError::Family));

    let preference = |value: u8| route_of(&IPV6_ROUTE, &[destination, (20, &[value])]).preference;
    // High, medium, low, none at all.
    assert!(preference(1) > preference(0) && preference(0) > preference(3));
    assert_eq!(preference(0), route_of(&IPV6_ROUTE, &[destination]).preference);

    let expires = |ticks: i32| {
        let mut info = [0; 32];
        info[8..12].copy_from_slice(&ticks.to_ne_bytes());
        message(24, &IPV6_ROUTE, &[destination, (12, &info)])
    };
    assert!(matches!(decoded(&expires(-1)), Ok(Decoded::RouteGone(_))), "it has expired");
    of_some[2] = 32;
    let mut info = [0; 32];
    info[8..12].copy_from_slice(&(-1i32).to_ne_bytes());
    let with_sources = message(24, &of_some, &[destination, (12, &info)]);
    assert!(matches!(decoded(&with_sources), Ok(Decoded::Change(_))), "Linux minds it still");
    let left = |bytes: &[u8]| time_left(&frames(bytes).next().unwrap().unwrap());
    for (ticks, expected) in [(-1, Some(0)), (0, None), (250, Some(2500))] {
        assert_eq!(left(&expires(ticks)), expected.map(std::time::Duration::from_millis));
    }
    assert_eq!(left(&message(24, &IPV4_ROUTE, &[])), None);
    let frame = expires(0);
    assert!(is_advertised(&frames(&frame).next().unwrap().unwrap()), "protocol 9");
}

#[test]
fn what_is_not_known_of_an_object_makes_it_linuxs() {
    let kind = |flags: u8, list: &[(u16, &[u8])]| {
        let list = [&[(1, &[9, 0, 0, 0][..])], list].concat();
        match decoded(&message(104, &[2, 0, 0, 0, flags, 0, 0, 0], &list)) {
            Ok(Decoded::Change(Change::Object(Object { id: 9, kind }))) => kind,
            other => panic!("{other:?}"),
        }
    };
    let members: (u16, &[u8]) = (2, &[5, 0, 0, 0, 0, 0, 0, 0]);
    let group = ObjectKind::Group(vec![(5, 1)]);
    assert_eq!(kind(0, &[members, (3, &[0, 0]), (14, &[0; 4]), (17, &[0; 4])]), group);
    let only = ObjectKind::OnlyLinux;
    assert_eq!(kind(0, &[members, (3, &[1, 0]), (12, &[])]), only(OnlyLinux::GroupKind(1)), "resilient");
    assert_eq!(kind(0, &[members, (18, &[])]), only(OnlyLinux::ObjectAttribute(18)));
    assert_eq!(kind(0x80, &[(5, &[3, 0, 0, 0])]), only(OnlyLinux::Flags(0x80)));
    assert!(matches!(kind(0x5f, &[(5, &[3, 0, 0, 0])]), ObjectKind::Path(_)));
}

#[test]
fn what_is_not_known_of_a_rule_or_neighbour_is_linuxs() {
    let rule = |action: u8, flags: u8| match decoded(&message(
        32,
        &[2, 0, 0, 0, 0, 0, 0, action, flags, 0, 0, 0],
        &[],
    )) {
        Ok(Decoded::Change(Change::Rule(rule))) => rule,
        other => panic!("{other:?}"),
    };
    assert_eq!(rule(4, 0).action, RuleAction::Unknown(4));
    assert!(!rule(1, 0x1f).has_other_selectors && rule(1, 0x20).has_other_selectors);
    let neighbour = |list: &[(u16, &[u8])]| {
        let list = [&[(1, &[10, 0, 0, 1][..]), (2, &[2, 0, 0, 0, 0, 1])], list].concat();
        match decoded(&message(28, &[2, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0], &list)) {
            Ok(Decoded::Change(Change::Neighbour(neighbour))) => neighbour.mac,
            other => panic!("{other:?}"),
        }
    };
    assert!(neighbour(&[(3, &[0; 16]), (4, &[0; 4]), (12, &[4]), (15, &[0; 4])]).is_some());
    assert_eq!(neighbour(&[(7, &[1, 0, 0, 0])]), None);
    let state = message(28, &[2, 0, 0, 0, 3, 0, 0, 0, 0, 1, 0, 0], &[(1, &[10, 0, 0, 1])]);
    assert!(matches!(decoded(&state), Ok(Decoded::Change(Change::NeighbourGone(..)))), "of an unknown state");
}

#[test]
fn errors_have_names() {
    let address =
        |length: u8, list: &[(u16, &[u8])]| decoded(&message(20, &[2, length, 0, 0, 1, 0, 0, 0], list));
    assert_eq!(address(33, &[(1, &[10, 0, 0, 1])]), Err(DecodeError::PrefixLength));
    assert_eq!(address(24, &[(1, &[10, 0, 0])]), Err(DecodeError::AttributeLength));
    assert_eq!(address(24, &[(1, &[0; 16])]), Err(DecodeError::Family));
    assert_eq!(address(24, &[]), Err(DecodeError::AttributeMissing));
    assert_eq!(decoded(&message(20, &[2, 24], &[])), Err(DecodeError::ShortMessage));
    let route = |paths: &[u8]| decoded(&message(24, &[2, 8, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0], &[(9, paths)]));
    assert_eq!(route(&[16, 0, 0, 0, 1, 0, 0, 0]), Err(DecodeError::PathFraming));
    assert_eq!(route(&[4, 0, 0, 0, 1, 0, 0, 0]), Err(DecodeError::PathFraming));
    assert_eq!(route(&[12, 0, 0, 0, 1, 0, 0, 0, 3, 0, 5, 0]), Err(DecodeError::AttributeFraming));
    assert_eq!(decoded(&[16, 0, 0, 0, 24, 0]), Err(DecodeError::MessageLength));
}

fn any_path(index: InterfaceIndex) -> impl Strategy<Value = Path> {
    (any::<Option<std::net::IpAddr>>(), 1..=256u16, any::<bool>(), any::<bool>()).prop_map(
        move |(gateway, weight, is_down, has_encapsulation)| Path {
            index,
            gateway,
            weight,
            is_down,
            has_encapsulation,
        },
    )
}

fn any_route() -> impl Strategy<Value = Route> {
    let hops = prop_oneof![
        Just(Hops::None),
        (1..u32::MAX).prop_map(Hops::Object),
        prop::collection::vec((1..100u32).prop_flat_map(any_path), 1..5).prop_map(Hops::Paths),
    ];
    let from = any::<Option<(std::net::Ipv6Addr, u8)>>();
    let key = (any::<u32>(), any::<std::net::IpAddr>(), 0..=128u8, any::<u32>(), any::<u8>(), from);
    (key, hops, any::<u8>(), any::<Option<std::net::IpAddr>>(), prop::option::of(1..u32::MAX)).prop_map(
        |((table, address, length, metric, tos, from), hops, protocol, preferred_source, mtu)| {
            let from = from.filter(|_| address.is_ipv6());
            let from =
                from.map(|(from, length)| ipnet::Ipv6Net::new(from, length % 128 + 1).unwrap().trunc());
            let length = length.min(if address.is_ipv4() { 32 } else { 128 });
            let prefix = ipnet::IpNet::new(address, length).unwrap().trunc();
            let kind = if hops == Hops::None { RouteKind::Prohibit } else { RouteKind::Unicast };
            Route {
                key: RouteKey { table, prefix, metric, tos, from },
                kind,
                protocol,
                preferred_source,
                mtu,
                preference: Route::MEDIUM,
                only_linux: None,
                hops,
            }
        },
    )
}

/// A path's attributes, as the kernel writes them: a gateway of the other family as `RTA_VIA`.
fn path_attributes(path: &Path, is_ipv4: bool) -> Vec<(u16, Vec<u8>)> {
    let mut list = Vec::new();
    if let Some(gateway) = path.gateway {
        if gateway.is_ipv4() == is_ipv4 {
            list.push((5, octets(gateway)));
        } else {
            let family = u16::from(if gateway.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 });
            list.push((18, [&family.to_ne_bytes()[..], &octets(gateway)].concat()));
        }
    }
    if path.has_encapsulation {
        list.push((22, vec![0; 8]));
        list.push((21, vec![1, 0]));
    }
    list
}

fn write(list: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let list: Vec<(u16, &[u8])> = list.iter().map(|(kind, value)| (*kind, &value[..])).collect();
    attributes(&list)
}

fn route_message(route: &Route) -> Vec<u8> {
    let address = route.key.prefix.addr();
    let mut list = vec![
        (15, route.key.table.to_ne_bytes().to_vec()),
        (1, octets(address)),
        (6, route.key.metric.to_ne_bytes().to_vec()),
    ];
    list.extend(route.key.from.map(|from| (2, from.addr().octets().into())));
    list.extend(route.preferred_source.map(|source| (7, octets(source))));
    list.extend(route.mtu.map(|mtu| (8, attributes(&[(10, &[1, 0, 0, 0]), (2, &mtu.to_ne_bytes())]))));
    let mut flags = 0u8;
    match &route.hops {
        Hops::None => {}
        Hops::Object(id) => list.push((30, id.to_ne_bytes().to_vec())),
        Hops::Paths(paths) => match &paths[..] {
            [only] if only.weight == 1 => {
                flags = u8::from(only.is_down);
                list.push((4, only.index.to_ne_bytes().to_vec()));
                list.extend(path_attributes(only, address.is_ipv4()));
            }
            _ => {
                let mut bytes = Vec::new();
                for path in paths {
                    let inside = write(&path_attributes(path, address.is_ipv4()));
                    bytes.extend((8 + inside.len() as u16).to_ne_bytes());
                    bytes.extend([u8::from(path.is_down) << 4, (path.weight - 1) as u8]);
                    bytes.extend(path.index.to_ne_bytes());
                    bytes.extend(inside);
                }
                list.push((9, bytes));
            }
        },
    }
    let family = if address.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 };
    let kind = if route.kind == RouteKind::Prohibit { 8 } else { 1 };
    let from = route.key.from.map_or(0, |from| from.prefix_len());
    let fixed = [
        family,
        route.key.prefix.prefix_len(),
        from,
        route.key.tos,
        0,
        route.protocol,
        0,
        kind,
        flags,
        0,
        0,
        0,
    ];
    let list: Vec<(u16, &[u8])> = list.iter().map(|(kind, value)| (*kind, &value[..])).collect();
    message(24, &fixed, &list)
}

proptest! {
    #[test]
    fn a_route_reads_as_it_was_written(route in any_route()) {
        prop_assert_eq!(decoded(&route_message(&route)), Ok(Decoded::Change(Change::Route(route))));
    }

    #[test]
    fn damaged_messages_are_a_value_or_an_error(
        route in any_route(),
        kind in 16..110u16,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = route_message(&route);
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for frame in frames(&bytes).flatten() {
            let _ = decode(&frame);
        }
    }

    #[test]
    fn noise_is_a_value_or_an_error(
        kind in 0..120u16,
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = decode(&Frame { kind, flags: 0, sequence: 0, payload: &payload });
        prop_assert!(frames(&payload).count() <= payload.len() / 16 + 1);
    }

    #[test]
    fn neighbours_and_addresses_read_as_they_were_written(
        address: std::net::IpAddr,
        index: u32,
        mac: [u8; 6],
        length in 0..=32u8,
    ) {
        let family = if address.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 };
        let at = index.to_ne_bytes();
        let fixed = [family, 0, 0, 0, at[0], at[1], at[2], at[3], 4, 0, 0, 0];
        let bytes = message(28, &fixed, &[(1, &octets(address)), (2, &mac)]);
        let neighbour = Neighbour { index, address, mac: Some(mac), state: NeighbourState::Stale };
        prop_assert_eq!(decoded(&bytes), Ok(Decoded::Change(Change::Neighbour(neighbour))));
        let fixed = [family, length, 0, 0, at[0], at[1], at[2], at[3]];
        let bytes = message(21, &fixed, &[(1, &octets("192.0.2.1".parse().unwrap())), (2, &octets(address))]);
        let expected = Address { index, address, prefix_length: length };
        prop_assert_eq!(decoded(&bytes), Ok(Decoded::Change(Change::AddressGone(expected))));
    }
}
