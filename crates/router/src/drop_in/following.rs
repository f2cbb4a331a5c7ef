//! What follows Linux while a drop-in router runs: the addresses whose packets the ports leave to the host, their VLANs,
//! and in the configuration the link addresses, MTUs and addresses of the ports.
//!
//! Routes and neighbours are not its business: the control thread brings those to the workers by itself.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use control::change::Address;
use control::mirror::Mirror;
use control::service::Service;
use control::switches::Switches;
use elements::devices::OpenPort;
use elements::devices::follow_linux::{Followed, Follows};
use graph::router::Router;
use graph::setup::Shared;
use packet::IpVersion;
use packet::sync::lock;
use packet::wire::ethernet::MacAddr;
use ports::{Station, VlanId, VlanShare};

use super::configuration::{addresses4, addresses6, own_addresses};
use super::devices::{self, Devices};
use super::stations::{Above, Stations};
use super::sysctls::source_modes;
use super::{Graph, InKernel, Obeyed, RouterPort, error_source4, error_source6};
use crate::features::{FeatureSettings, Follower, vlan};

/// What one port was like when the configuration last heard of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Link {
    index: u32,
    /// The interface's name, which the port's driver hears of at once.
    name: String,
    mac: Option<[u8; 6]>,
    mtu: u32,
    /// The longest IPv4, and IPv6, packet that leaves by it without Linux being asked.
    mtus: [u32; 2],
}

/// The longest packets of a link with this MTU and these settings.
pub(super) fn mtus_of(mtu: u32, switches: Option<&Switches>) -> [u32; 2] {
    let longest = switches.map_or([None; 2], |switches| switches.longest);
    longest.map(|longest| longest.unwrap_or(mtu).min(mtu))
}

/// The addresses of the host that count for one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Own {
    /// Where ICMP errors about its packets come from.
    errors_from: (Option<Ipv4Addr>, Option<Ipv6Addr>),
    /// Sources that nobody else has: the host's in the VRF of the port and those in no VRF, with the broadcast addresses of their
    /// networks (RFC 1812, 5.3.7). Over IPv6 Linux forwards packets from such addresses too: another host may have one of them.
    sources: Vec<Ipv4Addr>,
}

impl Own {
    fn of(mirror: &Mirror, port: &str) -> Own {
        let known = mirror.ports().find(|known| known.name == port);
        let switches = known.as_ref().and_then(|known| known.switches);
        let link = known.and_then(|known| known.link);
        let Some(index) = link.map(|link| link.index) else { return Own::default() };
        let of_port = || mirror.local_addresses().filter(move |known| known.index == index);
        let errors_from = (
            error_source4(of_port().map(|known| known.address)),
            error_source6(of_port().map(|known| known.address)),
        );
        let vrf = mirror.vrf_table(index);
        // Linux looks for sources by its rules.
        let has_main = mirror.asks_local_first(IpVersion::V4);
        let mut sources = no_sources(mirror.local_addresses().filter(|known| {
            let of = mirror.vrf_table(known.index);
            of == vrf || (of.is_none() && has_main)
        }));
        // Those of the networks are among them; `ip addr add ... brd` gives others.
        let of_main = (vrf.is_some() && has_main).then(|| mirror.broadcasts(None));
        sources.extend(mirror.broadcasts(vrf).chain(of_main.into_iter().flatten()));
        sources.sort_unstable();
        sources.dedup();
        if switches.is_some_and(|switches| switches.accepts_own) {
            sources.clear();
        }
        Own { errors_from, sources }
    }
}

/// Returns the IPv4 sources that nobody but the host with these addresses has, its networks' broadcast addresses among them.
fn no_sources<'a>(addresses: impl Iterator<Item = &'a Address>) -> Vec<Ipv4Addr> {
    let mut sources = Vec::new();
    for known in addresses {
        let IpAddr::V4(address) = known.address else { continue };
        sources.push(address);
        // A network of one or two addresses has no broadcast address (RFC 3021, 2.1).
        let hosts = 32_u32.checked_sub(known.prefix_length.into()).filter(|&bits| bits > 1);
        sources.extend(hosts.map(|bits| {
            Ipv4Addr::from_bits(address.to_bits() | u32::MAX.checked_shr(32 - bits).unwrap_or(0))
        }));
    }
    sources
}

/// Returns what elements get that refuse the sources of a host with these addresses.
pub(crate) fn refused_sources<'a>(addresses: impl Iterator<Item = &'a Address>) -> String {
    words(&no_sources(addresses))
}

/// Returns the host's addresses in the main table and in the VRFs with these tables. Those of other VRFs are not the host's to packets
/// that come in by members of these.
fn addresses_in(mirror: &Mirror, vrfs: &BTreeSet<u32>) -> Vec<IpAddr> {
    let is_here = |known: &&Address| mirror.vrf_table(known.index).is_none_or(|table| vrfs.contains(&table));
    let mut addresses: Vec<IpAddr> =
        mirror.local_addresses().filter(is_here).map(|known| known.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Returns the host's addresses in the main table and in the VRFs of all ports.
fn addresses_by_ports(mirror: &Mirror) -> Vec<IpAddr> {
    addresses_in(mirror, &mirror.ports().filter_map(|port| port.vrf_table).collect())
}

/// Returns the host's addresses as each of the ports has to know them, for frames with and without a tag.
fn addresses_of_ports(mirror: &Mirror, ports: &[RouterPort]) -> Vec<Arc<Vec<IpAddr>>> {
    let vrfs: HashMap<String, u32> =
        mirror.ports().filter_map(|port| Some((port.name, port.vrf_table?))).collect();
    let mut known: HashMap<BTreeSet<u32>, Arc<Vec<IpAddr>>> = HashMap::new();
    let mut of_port = |device: &RouterPort| {
        let vlans =
            ports.iter().filter(|port| port.vlan.as_ref().is_some_and(|(below, _)| *below == device.name));
        let names = vlans.chain([device]).map(|port| &port.name);
        let vrfs: BTreeSet<u32> = names.filter_map(|name| vrfs.get(name).copied()).collect();
        known.entry(vrfs.clone()).or_insert_with(|| Arc::new(addresses_in(mirror, &vrfs))).clone()
    };
    ports.iter().map(&mut of_port).collect()
}

/// What keeps a configuration in step with what it was made from, while it runs.
pub(crate) trait Follow: Send {
    /// Looks whether anything changed, and brings it to the ports and the elements. Returns what went wrong.
    fn look(&mut self, service: &Service, router: &mut Router) -> Vec<String>;

    /// Calls `wake` whenever something changed that [`Follow::look`] is to see at once, beside links.
    fn on_change(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        let _ = wake;
    }

    /// Returns what Linux gets in the place of the fast path, because of what stands above ports. Where the router `filters`, Linux
    /// drops it.
    fn problems(&self, filters: bool) -> Vec<String> {
        let _ = filters;
        Vec::new()
    }

    /// Has others go round this router, before a fault ends it.
    fn leave(&mut self, router: &mut Router) {
        let _ = router;
    }
}

/// Keeps ports and configuration in step with Linux. Dropping it ends what follows Linux for features.
pub(crate) struct Following {
    ports: Vec<RouterPort>,
    shared: Shared,
    /// Of each port, the host's addresses as it got them last.
    addresses: Vec<Arc<Vec<IpAddr>>>,
    links: Vec<Link>,
    /// Of each port, what it got last.
    vlans: Vec<Vec<(VlanId, VlanShare)>>,
    /// What of the transit that comes in by a port is ours: Linux gets families that it does not forward.
    transit: HashMap<String, VlanShare>,
    /// The `rp_filter` of each port that the configuration got last.
    rp_filters: Vec<u8>,
    /// Of each port, what its elements got last, and when that was made ([`Mirror::link_generations`]).
    own: Vec<Own>,
    generations: Option<((u64, u64), bool)>,
    /// What the followers got last.
    by_ports: Option<Vec<IpAddr>>,
    in_kernel: Arc<Mutex<InKernel>>,
    devices: Devices,
    /// What stands above the ports, and what of that they got last.
    stations: Stations,
    above: Vec<Above>,
    /// Whether anything filters.
    may_filter: bool,
    /// Of each port, whether it leaves all that goes to clients of DHCP to Linux.
    leaves_clients: Vec<bool>,
    /// What follows Linux for features.
    followers: Vec<Arc<dyn Follower>>,
    has_looked: bool,
}

impl Following {
    /// What follows for the ports of a graph; `features` are those of a graph of ours.
    pub(crate) fn new(
        ports: Vec<RouterPort>,
        features: Option<&FeatureSettings>,
        graph: Graph<'_>,
        shared: Shared,
        followers: Vec<Arc<dyn Follower>>,
    ) -> Self {
        let in_kernel = InKernel::new(&ports, features, graph.may_leave_to_linux(), &shared);
        let (links, vlans) = (vec![Link::default(); ports.len()], vec![Vec::new(); ports.len()]);
        let (above, leaves_clients) = (vec![Above::default(); ports.len()], vec![false; ports.len()]);
        let may_filter = graph.filters();
        let (own, rp_filters, has_looked) = (Vec::new(), Vec::new(), false);
        let transit = HashMap::new();
        let (addresses, generations, by_ports) = (Vec::new(), None, None);
        Self {
            ports,
            shared,
            addresses,
            links,
            vlans,
            transit,
            rp_filters,
            own,
            generations,
            by_ports,
            in_kernel,
            devices: Devices::default(),
            stations: Stations::default(),
            above,
            may_filter,
            leaves_clients,
            followers,
            has_looked,
        }
    }

    /// Brings to a port what stands above it. Returns what went wrong.
    fn tell_above(&self, router: &mut Router, number: usize, above: &Above) -> Vec<String> {
        let (port, before) = (&self.ports[number], &self.above[number]);
        let mut problems = Vec::new();
        if above.gives_way != before.gives_way {
            problems.extend(self.on_host(port, |host| host.give_way(above.gives_way)).err());
        }
        // A graph without such a filter would drop them.
        let is_followed = !self.targets(router, Followed::Stations, &port.name).is_empty();
        if above.stations == before.stations || !is_followed {
            return problems;
        }
        // The graph takes what comes before it comes, and until it comes no more.
        let macs = |lists: &[&[Station]]| {
            let ours = lists.concat().into_iter().filter(|station| station.families != [false; 2]);
            words(&ours.map(|station| station.mac).collect::<Vec<_>>())
        };
        let both = macs(&[&before.stations, &above.stations]);
        problems.extend(self.write(router, Followed::Stations, &port.name, &both));
        problems.extend(self.on_host(port, |host| host.set_stations(&above.stations)).err());
        problems.extend(self.write(router, Followed::Stations, &port.name, &macs(&[&above.stations])));
        problems
    }

    /// Leaves to Linux what goes to clients of DHCP, where it may forward what is for clients elsewhere: nothing filters. Else the ports
    /// without an IPv4 address do, as clients there may be waiting for one. Returns which ports do, and what went wrong.
    fn tell_clients(&self, has_ipv4: &[bool]) -> (Vec<bool>, Vec<String>) {
        let is_waiting = |device: &RouterPort| {
            let is_of = |port: &RouterPort| {
                port.name == device.name || port.vlan.as_ref().is_some_and(|(below, _)| *below == device.name)
            };
            self.ports.iter().zip(has_ipv4).any(|(port, has_ipv4)| is_of(port) && !has_ipv4)
        };
        let wanted: Vec<bool> =
            self.ports.iter().map(|device| !self.may_filter || is_waiting(device)).collect();
        let mut problems = Vec::new();
        for (number, &leaves) in wanted.iter().enumerate() {
            if leaves != self.leaves_clients[number] {
                let told = self.on_host(&self.ports[number], |host| host.leave_clients(leaves));
                problems.extend(told.err());
            }
        }
        (wanted, problems)
    }

    /// Returns the handlers that follow something of a port.
    fn targets(&self, router: &Router, what: Followed, port: &str) -> Vec<String> {
        let all = Follows::of(router.config()).into_iter();
        all.filter(|follows| (follows.what, follows.port.as_str()) == (what, port))
            .flat_map(|it| it.targets)
            .collect()
    }

    fn write(&self, router: &mut Router, what: Followed, port: &str, value: &str) -> Vec<String> {
        let targets = self.targets(router, what, port);
        write(router, targets, value)
    }

    /// Writes to the elements of all ports which addresses are the host's. Returns what went wrong.
    fn tell_own(&self, router: &mut Router, own: &[Own]) -> Vec<String> {
        let list4 = addresses4(own.iter().map(|own| own.errors_from.0));
        let list6 = addresses6(own.iter().map(|own| own.errors_from.1));
        let mut problems = self.write(router, Followed::Errors4, "", &list4);
        problems.extend(self.write(router, Followed::Errors6, "", &list6));
        for (number, (port, own)) in self.ports.iter().zip(own).enumerate() {
            problems.extend(self.on_host(port, |host| host.set_own_sources(&own.sources)).err());
            for (what, value) in
                [(Followed::First4, own_addresses(&list4, number)), (Followed::Own4, words(&own.sources))]
            {
                problems.extend(self.write(router, what, &port.name, &value));
            }
        }
        problems
    }

    fn on_host(
        &self,
        port: &RouterPort,
        tell: impl FnOnce(&mut dyn ports::HostSteering) -> Result<(), ports::PortError>,
    ) -> Result<(), String> {
        match self.shared.get::<OpenPort>(&OpenPort::key(&port.name)) {
            Some(open) => open.on_host(tell).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.followers.iter().for_each(|follower| follower.end());
    }
}

impl Follow for Following {
    fn on_change(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.followers.iter().for_each(|follower| follower.on_change(wake.clone()));
    }

    fn problems(&self, filters: bool) -> Vec<String> {
        self.stations.problems(filters).collect()
    }

    fn look(&mut self, service: &Service, router: &mut Router) -> Vec<String> {
        let state = service.lock();
        let mut up = HashSet::new();
        let mut carriers = HashMap::new();
        let links: Vec<Option<Link>> = (self.ports.iter())
            .map(|port| {
                let known = state.mirror.ports().find(|known| known.name == port.name)?;
                let (link, switches) = (known.link?, known.switches);
                if link.is_up {
                    up.insert(port.name.as_str());
                }
                carriers.insert(port.name.as_str(), link.is_up && link.has_carrier);
                let mtus = mtus_of(link.mtu, switches.as_ref());
                Some(Link { index: link.index, name: link.name, mac: link.mac, mtu: link.mtu, mtus })
            })
            .collect();
        let generations = (state.mirror.link_generations(), state.mirror.asks_local_first(IpVersion::V4));
        let has_moved = self.generations != Some(generations);
        let addresses = has_moved.then(|| addresses_of_ports(&state.mirror, &self.ports));
        let switches: Option<Vec<_>> = has_moved.then(|| {
            let of_port =
                |port: &RouterPort| state.mirror.ports().find(|known| known.name == port.name)?.switches;
            self.ports.iter().map(of_port).collect()
        });
        let own: Option<Vec<Own>> =
            has_moved.then(|| self.ports.iter().map(|port| Own::of(&state.mirror, &port.name)).collect());
        let by_ports = has_moved.then(|| addresses_by_ports(&state.mirror));
        self.generations = Some(generations);
        let above = self.stations.look(&state.mirror, &self.ports, has_moved);
        let has_ipv4: Option<Vec<bool>> = has_moved.then(|| {
            let has = |port: &RouterPort| {
                let known = state.mirror.ports().find(|known| known.name == port.name);
                known.is_some_and(|known| known.addresses.iter().any(|known| known.address.is_ipv4()))
            };
            self.ports.iter().map(has).collect()
        });
        drop(state);
        let mut problems =
            self.devices.look(&self.ports, &self.shared, |port| carriers.get(port) == Some(&true));
        if let Some(has_ipv4) = has_ipv4 {
            let (leaves, wrong) = self.tell_clients(&has_ipv4);
            self.leaves_clients = leaves;
            problems.extend(wrong);
        }
        if let Some(above) = above.filter(|above| *above != self.above) {
            for (number, above) in above.iter().enumerate() {
                problems.extend(self.tell_above(router, number, above));
            }
            self.above = above;
        }
        for (port, _) in self.ports.iter().zip(&self.above).filter(|(_, above)| above.gives_way) {
            up.remove(port.name.as_str());
        }
        if let Some(switches) = &switches {
            let obeyed = Obeyed::of(router.config());
            let left = |(port, switches): (&RouterPort, &Option<Switches>)| {
                let is_ours = obeyed.left(&port.name, switches.as_ref()).map(|reason| reason.is_none());
                (port.name.clone(), VlanShare::of_families(is_ours))
            };
            self.transit = self.ports.iter().zip(switches).map(left).collect();
        }
        let transit = |port: &str| self.transit.get(port).copied().unwrap_or(VlanShare::Transit);
        let shares = |port: &RouterPort| {
            let mut shares = vlan::shares(&self.ports, port, &up, transit);
            // The port's own frames have no VLAN.
            shares.extend(Some((0, transit(&port.name))).filter(|(_, share)| *share != VlanShare::Transit));
            shares
        };
        let vlans: Vec<_> = self.ports.iter().map(shares).collect();
        for ((port, told), vlans) in self.ports.iter().zip(&self.vlans).zip(&vlans) {
            if told != vlans {
                problems.extend(self.on_host(port, |host| host.set_vlans(vlans)).err());
            }
        }
        self.vlans = vlans;
        let rp_filter = |switches: &Option<Switches>| switches.map_or(0, |switches| switches.rp_filter);
        let rp_filters = switches.map(|switches| switches.iter().map(rp_filter).collect::<Vec<u8>>());
        if let Some(rp_filters) = rp_filters.filter(|rp_filters| self.rp_filters != *rp_filters) {
            let words = source_modes(rp_filters.iter().copied());
            problems.extend(self.write(router, Followed::RpFilter, "", &words));
            for (port, &rp_filter) in self.ports.iter().zip(&rp_filters) {
                let is_checked = if rp_filter == 0 { "0" } else { "1" };
                problems.extend(self.write(router, Followed::Checked, &port.name, is_checked));
            }
            self.rp_filters = rp_filters;
        }
        let mut has_changed = has_moved;
        let followers = self.followers.clone();
        for follower in &followers {
            if !self.has_looked {
                problems.extend(follower.wait());
            }
            has_changed |= follower.prepare(&mut |what| problems.extend(self.write(router, what, "", "")));
        }
        self.has_looked = true;
        if let Some(addresses) = addresses {
            for (number, (port, addresses)) in self.ports.iter().zip(&addresses).enumerate() {
                if self.addresses.get(number) != Some(addresses) {
                    let told = self.on_host(port, |host| host.set_local_addresses(addresses));
                    problems.extend(told.err());
                }
            }
            self.addresses = addresses;
        }
        if let Some(by_ports) = by_ports.filter(|by_ports| self.by_ports.as_ref() != Some(by_ports)) {
            followers.iter().for_each(|follower| follower.set_own_addresses(&by_ports));
            self.by_ports = Some(by_ports);
        }
        if let Some(own) = own.filter(|own| self.own != *own) {
            lock(&self.in_kernel).set_own_addresses(
                own.iter().flat_map(|own| own.sources.iter().copied().map(IpAddr::V4)).collect(),
            );
            problems.extend(self.tell_own(router, &own));
            self.own = own;
        }
        let before = self.links.clone();
        for (number, link) in links.into_iter().enumerate() {
            let Some(seen) = link.filter(|link| self.links[number] != *link) else { continue };
            let (port, mut link) = (&self.ports[number], seen.clone());
            if let Some(most) = devices::largest_mtu(port).filter(|&most| link.mtu > most) {
                problems.push(devices::set_back(port, link.mtu, most));
                (link.mtu, link.mtus) = (most, link.mtus.map(|longest| longest.min(most)));
            }
            problems.extend(self.on_host(port, |host| host.follow_link()).err());
            if let Some(mac) = link.mac.map(MacAddr) {
                problems.extend(vlan::follow_below(&self.ports, &port.name, mac));
                problems.extend(self.write(router, Followed::Ether, &port.name, &mac.to_string()));
            }
            let before = &self.links[number];
            for (what, mtu, before) in [
                (Followed::Mtu, link.mtu, before.mtu),
                (Followed::Mtu4, link.mtus[0], before.mtus[0]),
                (Followed::Mtu6, link.mtus[1], before.mtus[1]),
            ] {
                let mut targets = self.targets(router, what, &port.name);
                if mtu < before {
                    targets.reverse();
                }
                if mtu != before {
                    problems.extend(write(router, targets, &mtu.to_string()));
                }
            }
            self.links[number] = seen;
        }
        if self.links != before {
            let mtu = |name: &str| {
                let number = self.ports.iter().position(|port| port.name == name)?;
                Some(self.links[number].mtu).filter(|&mtu| mtu > 0)
            };
            problems.extend(vlan::limit_mtus(&self.ports, mtu));
            has_changed = true;
        }
        problems.extend(lock(&self.in_kernel).look(&self.ports, service, has_changed));
        // Nothing is forwarded past what is new from here on.
        followers.iter().for_each(|follower| follower.publish());
        problems
    }
}

fn words<T: ToString>(list: &[T]) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

/// Writes a value to handlers. Returns what went wrong.
fn write(router: &mut Router, targets: Vec<String>, value: &str) -> Vec<String> {
    let written = targets.into_iter().filter_map(|target| {
        let written = router.write(&target, value);
        written.err().map(|error| format!("{target}: {error}"))
    });
    written.collect()
}

#[cfg(test)]
mod tests {
    use control::change::{
        Change, Hops, Link as KernelLink, Route, RouteKey, RouteKind, Rule, RuleAction, Source,
    };

    use super::*;

    /// `from all lookup local`, where Linux has it.
    fn local_rule() -> Rule {
        Rule {
            version: IpVersion::V4,
            priority: 0,
            action: RuleAction::Table(255),
            is_inverted: false,
            from: None,
            to: None,
            input: None,
            suppress_prefix_length: None,
            is_l3mdev: false,
            mark: None,
            has_other_selectors: false,
        }
    }

    fn broadcast(table: u32, prefix: &str) -> Route {
        let prefix = prefix.parse().unwrap();
        Route {
            key: RouteKey { table, prefix, metric: 0, tos: 0, from: None },
            kind: RouteKind::Broadcast,
            protocol: 2,
            preferred_source: None,
            mtu: None,
            preference: Route::MEDIUM,
            only_linux: None,
            hops: Hops::None,
        }
    }

    #[test]
    fn addresses_of_other_vrfs_are_not_the_hosts() {
        let link = |index, name: &str| KernelLink {
            index,
            name: name.into(),
            mac: None,
            mtu: 1_500,
            is_up: true,
            has_carrier: true,
            master: None,
            below: None,
            kind: String::new(),
            vlan: None,
            has_priorities: false,
            vrf_table: None,
        };
        let names = ["eth1", "eth2", "eth1.5", "eth9"];
        let numbered = (0..).zip(names).map(|(number, name)| (name.to_owned(), number));
        let mut mirror = Mirror::new(numbered).unwrap();
        let vrf = |table, link| KernelLink { vrf_table: Some(table), ..link };
        let red = [vrf(100, link(20, "red")), KernelLink { master: Some(20), ..link(2, "eth2") }];
        let blue = [vrf(200, link(30, "blue")), KernelLink { master: Some(30), ..link(3, "eth3") }];
        for link in [link(1, "eth1")].into_iter().chain(red).chain(blue) {
            mirror.apply(Source::Netlink, Change::Link(link));
        }
        for index in [1, 2, 3, 20, 30] {
            let address = [10, 0, 0, index as u8].into();
            mirror.apply(Source::Netlink, Change::Address(Address { index, address, prefix_length: 24 }));
        }
        // All have one broadcast address.
        let own = |mirror: &Mirror, port: &str| Own::of(mirror, port).sources.len() - 1;
        assert_eq!(own(&mirror, "eth2"), 2);
        let generations = mirror.link_generations();
        mirror.apply(Source::Netlink, Change::Route(broadcast(100, "10.0.0.99/32")));
        assert_eq!((own(&mirror, "eth2"), own(&mirror, "eth1")), (3, 1));
        assert_ne!(mirror.link_generations(), generations);
        mirror.apply(Source::Netlink, Change::Route(broadcast(255, "10.0.0.98/32")));
        assert_eq!((own(&mirror, "eth2"), own(&mirror, "eth1")), (3, 2));
        mirror.apply(Source::Netlink, Change::Rule(local_rule()));
        assert_eq!((own(&mirror, "eth2"), own(&mirror, "eth1")), (5, 2));
        for (table, prefix) in [(100, "10.0.0.99/32"), (255, "10.0.0.98/32")] {
            mirror.apply(Source::Netlink, Change::RouteGone(broadcast(table, prefix).key));
        }
        assert_eq!((own(&mirror, "eth2"), own(&mirror, "eth1")), (3, 1));
        let text = |addresses: &[IpAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(&addresses_by_ports(&mirror)), ["10.0.0.1", "10.0.0.2", "10.0.0.20"]);
        // Those of a port that is not there yet are not known.
        let port = |name: &str| {
            let settings = crate::settings::PortSettings::new(name);
            let (host, driver) = (crate::settings::Host::Interface, settings.driver);
            let vlan = (name == "eth1.5").then(|| ("eth1".to_owned(), 5));
            RouterPort { name: name.to_owned(), spec: settings.spec(), host, device: None, vlan, driver }
        };
        let lengths = |mirror: &Mirror| {
            addresses_of_ports(mirror, &names.map(port)).iter().map(|list| list.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&mirror), [1, 3, 1, 1]);
        // What comes in with a tag is told apart by the port below.
        let tagged = KernelLink { master: Some(30), ..link(4, "eth1.5") };
        mirror.apply(Source::Netlink, Change::Link(tagged));
        assert_eq!(lengths(&mirror), [3, 3, 3, 1]);
    }
}
