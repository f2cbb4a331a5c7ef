//! What the mirror knows, for people: one struct a line, in the words of `ip`.

use super::hops::NextHopEntry;
use super::hops::PUNT;
use super::objects::ObjectKey;
use super::routes::{Key, MirrorFamily, Stored};
use super::{Mirror, fixed, routes};
use crate::change::{
    Address, Hops, InterfaceIndex, Link, NeighbourState, ObjectKind, Path, RouteKey, RouteKind, Source,
};
use crate::switches::{NOT_OF_HOST, Switches};
use fib::{Adjacency, Decision, MAIN, Member, NextHop, NextHopIndex, Rules};
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

/// A port, and the interface that it is in Linux.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// Its number in the router.
    pub port: u16,
    /// The name of its interface.
    pub name: String,
    /// The interface; `None` if Linux has none of that name.
    pub link: Option<Link>,
    /// The interface's settings, once they were read. On a node of a cluster they are not.
    pub switches: Option<Switches>,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// The table of the VRF to which it belongs.
    pub vrf_table: Option<u32>,
}

/// A route, as a source told it.
#[derive(Clone, Debug)]
pub struct RouteReport {
    /// Its table, prefix, metric and type of service.
    pub key: RouteKey,
    /// Who told of it.
    pub source: Source,
    /// What happens to packets.
    pub kind: RouteKind,
    /// Who made it (`rtm_protocol`).
    pub protocol: u8,
    /// Where packets go.
    pub hops: Hops,
    /// Its paths, or object, as `ip route` prints them: `via 10.0.0.1 dev eth0 weight 2`.
    pub paths: Vec<String>,
    /// The number of its next hop in the FIB.
    pub next_hop: NextHopIndex,
    /// Whether it is the one that packets to its prefix take.
    pub is_in_force: bool,
}

/// What was found for an address.
#[derive(Clone, Debug)]
pub struct Found {
    /// The longest prefix.
    pub prefix: IpNet,
    /// Who says what happens.
    pub by: FoundBy,
    /// The number of the next hop.
    pub next_hop: NextHopIndex,
}

/// Who says what happens to a prefix.
#[derive(Clone, Debug)]
pub enum FoundBy {
    /// A route.
    Route(RouteReport),
    /// A neighbour on this interface.
    Neighbour(String),
    /// It is so for every router (loopback, multicast, link-local).
    Fixed,
}

/// What the policy rules say of a packet.
#[derive(Clone, Debug)]
pub struct Ruled {
    /// What they decide.
    pub decision: Decision,
    /// If that is a route: the table of Linux that has it, and what is there.
    pub found: Option<(u32, Found)>,
}

/// A neighbour.
#[derive(Clone, Debug)]
pub struct NeighbourReport {
    /// Its address.
    pub address: IpAddr,
    /// The number of its interface.
    pub index: InterfaceIndex,
    /// The name of its interface.
    pub interface: String,
    /// Its Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// What the kernel knows of it.
    pub state: NeighbourState,
    /// Whether the FIB forwards to it, or would if it knew its Ethernet address.
    pub is_used: bool,
}

/// A number of the FIB's next hops.
#[derive(Clone, Debug)]
pub struct NextHopReport {
    /// The number.
    pub number: NextHopIndex,
    /// What it stands for: `via 10.0.0.1 dev eth0`, `group`, `object 7`.
    pub what: String,
    /// What workers do, if it is not a group. An adjacency says by which port and to which Ethernet address.
    pub next_hop: Option<NextHop<Adjacency>>,
    /// Whether it is up; a group, whether any member is.
    pub is_up: bool,
    /// Its members, if it is a group or an object.
    pub members: Vec<Member>,
    /// How many prefixes have it as their next hop.
    pub routes: u64,
}

impl Mirror {
    /// The ports, by number.
    pub fn ports(&self) -> impl Iterator<Item = PortReport> + '_ {
        self.links.ports.iter().map(|(name, port)| {
            let interface = self.links.of_port(port);
            let link = interface.map(|interface| interface.link.clone());
            let index = link.as_ref().map(|link| link.index);
            let addresses = self.links.addresses.keys().filter(|address| Some(address.index) == index);
            let addresses: Vec<Address> = addresses.cloned().collect();
            let switches = index.and_then(|index| self.links.switches.get(&index));
            PortReport {
                port,
                name: name.to_owned(),
                link,
                switches: switches.map(|switches| self.with_routes(switches, &addresses)),
                addresses,
                vrf_table: interface.and_then(|interface| self.links.vrf_table(interface)),
            }
        })
    }

    /// Ports whose interface has another name in Linux while another interface has the port's. Each comes with the
    /// name of its interface.
    pub fn crossed_ports(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let is_taken = |name: &str| self.links.interfaces.values().any(|it| it.link.name == name);
        let named = self.ports().filter_map(|port| Some((port.name, port.link?.name)));
        named.filter(move |(port, interface)| port != interface && is_taken(port))
    }

    /// What the settings of an interface mean beside its addresses and the routes.
    fn with_routes(&self, switches: &Switches, addresses: &[Address]) -> Switches {
        let has_ipv4 = addresses.iter().any(|known| known.address.is_ipv4());
        let rp_filter = match switches.rp_filter {
            // With accept_local Linux asks no table (`fib_validate_source`).
            0 if self.tables.own_routes > 0 && !switches.accepts_own => NOT_OF_HOST,
            // net/ipv4/fib_frontend.c, `no_addr`: without an address the way back has to be by it.
            2 if !has_ipv4 && !switches.is_in_vrf => 1,
            other => other,
        };
        Switches { rp_filter, ..*switches }
    }

    /// The numbers and names of the ports' interfaces.
    pub fn port_interfaces(&self) -> Vec<(InterfaceIndex, String)> {
        let of_ports = self.links.interfaces.values().filter(|interface| interface.port.is_some());
        of_ports.map(|interface| (interface.link.index, interface.link.name.clone())).collect()
    }

    /// The name of Linux's interface for a VLAN (802.1Q) of an interface.
    pub fn vlan_interface(&self, below: InterfaceIndex, vlan: u16) -> Option<&str> {
        let mut links = self.links.interfaces.values().map(|interface| &interface.link);
        let link = links.find(|link| (link.below, link.vlan) == (Some(below), Some(vlan)))?;
        Some(&link.name)
    }

    /// All routes of all sources, by table; IPv4 first, by prefix, the best first.
    pub fn routes(&self) -> impl Iterator<Item = RouteReport> + '_ {
        self.routes_after(None)
    }

    /// Those that come after a route in this order, for callers that read them piece by piece. The route itself may be gone by now.
    pub fn routes_after(&self, last: Option<(RouteKey, Source)>) -> impl Iterator<Item = RouteReport> + '_ {
        let table = last.map_or(0, |(key, _)| if key.table == routes::LOCAL { MAIN } else { key.table });
        self.tables.tables.range(table..).flat_map(move |(&table, routes)| {
            let last =
                last.filter(|(key, _)| table == if key.table == routes::LOCAL { MAIN } else { key.table });
            let of_last = |is_ipv4: bool| last.filter(|(key, _)| key.prefix.addr().is_ipv4() == is_ipv4);
            let ipv4 = of_last(true).and_then(|(key, source)| Key::of(source, &key)).map(|(_, key)| key);
            let ipv6 = of_last(false).and_then(|(key, source)| Key::of(source, &key)).map(|(_, key)| key);
            let has_ipv4 = ipv6.is_none();
            let ipv4 = routes.ipv4.after(ipv4).take_while(move |_| has_ipv4);
            let ipv6 = routes.ipv6.after(ipv6);
            ipv4.map(move |(key, stored)| self.report(table, key, stored))
                .chain(ipv6.map(move |(key, stored)| self.report(table, key, stored)))
        })
    }

    /// The name of an interface.
    pub fn interface_name(&self, index: InterfaceIndex) -> String {
        self.links.name(index)
    }

    /// Returns the paths of a route; of a next-hop object those that it stands for now.
    pub fn paths(&self, route: &RouteReport) -> Vec<Path> {
        let id = match &route.hops {
            Hops::None => return Vec::new(),
            Hops::Paths(paths) => return paths.clone(),
            Hops::Object(id) => *id,
        };
        let kind = |id| self.objects.known.get(&ObjectKey { source: route.source, id })?.kind.as_ref();
        let path = |id, weight| match kind(id)? {
            ObjectKind::Path(path) => Some(Path { weight, ..*path }),
            ObjectKind::Blackhole | ObjectKind::Group(_) | ObjectKind::OnlyLinux(_) => None,
        };
        match kind(id) {
            Some(ObjectKind::Group(members)) => {
                members.iter().filter_map(|&(id, weight)| path(id, weight)).collect()
            }
            _ => path(id, 1).into_iter().collect(),
        }
    }

    /// Whether paths over an interface can be used: up, and with its cable in.
    pub fn is_usable(&self, path: &Path) -> bool {
        !path.is_down && self.links.can_send(path.index)
    }

    fn report<A: MirrorFamily>(&self, table: u32, key: &Key<A>, stored: &Stored) -> RouteReport {
        let target = self.targets.get(stored.target);
        let paths = match &target.key.hops {
            Hops::None => Vec::new(),
            Hops::Object(id) => vec![format!("nhid {id}")],
            Hops::Paths(paths) => paths.iter().map(|path| self.path_text(path, paths.len() > 1)).collect(),
        };
        let installed = A::rib(&self.fib, table).and_then(|rib| rib.get(A::net(key.network, key.length)));
        let is_best = routes_first::<A>(self, table, key).is_some_and(|best| best == *key);
        // Linux chooses among all routes to such a prefix.
        let is_linuxs = self.tables.peculiar.contains(table, key.prefix());
        // Nor is what is to a link's own addresses forwarded.
        let is_of_link =
            matches!(key.prefix().addr(), IpAddr::V6(address) if address.is_unicast_link_local());
        let as_installed = |own| if is_linuxs { PUNT } else { own };
        let is_installed = installed.is_some()
            && (installed == self.next_hop_of(key, stored).map(as_installed)
                || self.is_host_route(table, key.prefix()));
        RouteReport {
            key: key.route_key(table),
            source: key.source,
            kind: target.key.kind,
            protocol: stored.protocol,
            hops: target.key.hops.clone(),
            paths,
            next_hop: if is_of_link { PUNT } else { as_installed(target.value.index) },
            is_in_force: is_best && is_installed,
        }
    }

    pub(super) fn path_text(&self, path: &Path, has_weight: bool) -> String {
        let mut text = Vec::new();
        if let Some(gateway) = path.gateway {
            text.push(format!("via {gateway}"));
        }
        if path.index != 0 {
            text.push(format!("dev {}", self.links.name(path.index)));
        }
        if has_weight {
            text.push(format!("weight {}", path.weight));
        }
        if path.has_encapsulation {
            text.push("encap".into());
        }
        if path.is_down {
            text.push("linkdown".into());
        }
        text.join(" ")
    }

    /// What happens to packets to an address in a table of Linux (255 is part of 254).
    pub fn route_for(&self, table: u32, address: IpAddr) -> Option<Found> {
        match address {
            IpAddr::V4(address) => self.route_for_of::<u32>(table, table, address.into()),
            IpAddr::V6(address) => self.route_for_of::<u128>(table, table, address.into()),
        }
    }

    /// What happens to a packet that comes in by a port, from a source, by the policy rules. Without a port or a source only
    /// rules that select neither by one can select it, as in `ip route get`. Addresses are of one family.
    pub fn route_by_rules(
        &self,
        port: Option<u16>,
        source: Option<IpAddr>,
        destination: IpAddr,
    ) -> Option<Ruled> {
        let policy = self.policy();
        match (destination, source) {
            (IpAddr::V4(to), None) => Some(self.ruled(&policy.ipv4, port, 0, to.into())),
            (IpAddr::V4(to), Some(IpAddr::V4(from))) => {
                Some(self.ruled(&policy.ipv4, port, from.into(), to.into()))
            }
            (IpAddr::V6(to), None) => Some(self.ruled(&policy.ipv6, port, 0, to.into())),
            (IpAddr::V6(to), Some(IpAddr::V6(from))) => {
                Some(self.ruled(&policy.ipv6, port, from.into(), to.into()))
            }
            _ => None,
        }
    }

    fn ruled<A: MirrorFamily>(
        &self,
        rules: &Rules<A>,
        port: Option<u16>,
        source: A,
        destination: A,
    ) -> Ruled {
        let table_of = |vrf| self.fib.tables().find(|table| self.fib.vrf_index(*table) == Some(vrf));
        let mut last = None;
        // No port has the largest number.
        let decision = rules.evaluate(port.unwrap_or(u16::MAX), source, destination, |vrf| {
            last = table_of(vrf);
            let rib = last.and_then(|table| A::rib(&self.fib, table));
            rib.and_then(|rib| rib.longest_match(destination))
                .map_or(NextHopIndex::NONE, |found| found.next_hop)
        });
        let fib_table = last.filter(|_| matches!(decision, Decision::Route(_)));
        let found = fib_table.and_then(|fib_table| {
            let made = self.tables.for_rules.iter().find(|(_, made)| **made == fib_table);
            let table = made.map_or(fib_table, |((table, _), _)| *table);
            Some((table, self.route_for_of(fib_table, table, destination)?))
        });
        Ruled { decision, found }
    }

    /// What is found in a table of the FIB, which was made of this one of Linux.
    fn route_for_of<A: MirrorFamily>(&self, fib_table: u32, table: u32, address: A) -> Option<Found> {
        let main = |table| if table == routes::LOCAL { MAIN } else { table };
        let (fib_table, table) = (main(fib_table), main(table));
        let found = A::rib(&self.fib, fib_table)?.longest_match(address)?;
        let (prefix, next_hop): (IpNet, _) = (found.prefix.into(), found.next_hop);
        let (network, length) = A::parts(found.prefix);
        let first = || A::routes(self.tables.tables.get(&table)?).at(network, length).next();
        let by = match self.hops.behind(next_hop) {
            NextHopEntry::Hop(hop) if self.is_host_route(fib_table, prefix) => {
                FoundBy::Neighbour(self.links.name(hop.interface))
            }
            _ if fixed::is_fixed(prefix) => FoundBy::Fixed,
            _ => first()
                .map_or(FoundBy::Fixed, |(key, stored)| FoundBy::Route(self.report(table, key, stored))),
        };
        Some(Found { prefix, by, next_hop })
    }

    /// Whether a table of the FIB has the host route of a neighbour at this prefix.
    fn is_host_route(&self, fib_table: u32, prefix: IpNet) -> bool {
        prefix.prefix_len() == prefix.max_prefix_len()
            && self.neighbours.hosts.contains_key(&(fib_table, prefix.addr()))
    }

    /// The neighbours, by address.
    pub fn neighbours(&self) -> impl Iterator<Item = NeighbourReport> + '_ {
        self.neighbours.known.iter().map(|(&(address, index), entry)| NeighbourReport {
            address,
            index,
            interface: self.links.name(index),
            mac: entry.mac,
            state: entry.state,
            is_used: self.hops.uses(index, address),
        })
    }

    /// The numbers of next hops in use.
    pub fn next_hops(&self) -> impl Iterator<Item = NextHopReport> + '_ {
        self.hops.iter().map(|(number, behind)| {
            let next_hops = self.fib.next_hops();
            let next_hop = next_hops.get(number);
            let what = match behind {
                NextHopEntry::Nothing | NextHopEntry::Fixed => {
                    next_hop.map_or(String::new(), |it| it.to_string())
                }
                NextHopEntry::Group(_) => "group".into(),
                NextHopEntry::Object(key, version) => {
                    format!("object {} of {}, {version}", key.id, key.source)
                }
                NextHopEntry::Hop(hop) => {
                    let path = Path {
                        index: hop.interface,
                        gateway: hop.gateway,
                        weight: 1,
                        is_down: hop.is_down,
                        has_encapsulation: hop.has_encapsulation,
                    };
                    self.path_text(&path, false)
                }
            };
            NextHopReport {
                number,
                what,
                next_hop,
                is_up: next_hops.is_up(number),
                members: next_hops.members(number).map_or(Vec::new(), <[Member]>::to_vec),
                routes: next_hops.holds(number),
            }
        })
    }

    /// The addresses of the host.
    pub fn local_addresses(&self) -> impl Iterator<Item = &Address> {
        self.links.addresses.keys()
    }

    /// Returns the table of the VRF to which an interface belongs, or which it is.
    pub fn vrf_table(&self, interface: InterfaceIndex) -> Option<u32> {
        self.links.vrf_table(self.links.get(interface)?)
    }

    /// The name of the VRF of which an interface is a member.
    pub fn vrf_name(&self, interface: InterfaceIndex) -> Option<&str> {
        Some(&self.links.vrf_of(self.links.get(interface)?)?.name)
    }

    /// Numbers that are others whenever a link or an address is.
    pub fn link_generations(&self) -> (u64, u64) {
        (self.links.generation, self.links.address_generation)
    }

    /// A number that is another whenever [`Mirror::local_addresses`] is.
    pub fn local_address_generation(&self) -> u64 {
        self.links.address_generation
    }
}

/// The key of the best of a prefix's routes.
fn routes_first<A: MirrorFamily>(mirror: &Mirror, table: u32, key: &Key<A>) -> Option<Key<A>> {
    let table = mirror.tables.tables.get(&table)?;
    A::routes(table).at(key.network, key.length).next().map(|(key, _)| *key)
}

impl fmt::Display for RouteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind != RouteKind::Unicast {
            write!(f, "{} ", self.kind.name())?;
        }
        write!(f, "{}", self.key.prefix)?;
        if let Some(from) = self.key.from {
            write!(f, " from {from}")?;
        }
        if self.key.tos != 0 {
            write!(f, " tos {:#04x}", self.key.tos)?;
        }
        for path in &self.paths {
            write!(f, "{}{path}", if self.paths.len() > 1 { " nexthop " } else { " " })?;
        }
        if self.key.table != MAIN {
            write!(f, " table {}", self.key.table)?;
        }
        write!(f, " proto {}", self.protocol)?;
        if self.key.metric != 0 {
            write!(f, " metric {}", self.key.metric)?;
        }
        write!(f, " source {}{}", self.source, if self.is_in_force { "" } else { " (not in force)" })
    }
}
