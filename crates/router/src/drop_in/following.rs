//! What follows Linux while a drop-in router runs: the addresses whose packets the ports leave to the host, their VLANs,
//! and in the configuration the link addresses, MTUs and addresses of the ports.
//!
//! Routes and neighbours are not its business: the control thread brings those to the workers by itself.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use control::mirror::Mirror;
use control::service::Service;
use elements::devices::OpenPort;
use graph::router::Router;
use graph::setup::Shared;

use ports::{VlanId, VlanShare, set_link_address, set_mtu};

use super::click::{ERRORS, addresses4, addresses6, own_addresses};
use super::{RouterPort, error_source4, error_source6};
use crate::settings::Host;

/// What one port was like when the configuration last heard of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Link {
    index: u32,
    mac: Option<[u8; 6]>,
    mtu: u32,
}

/// The addresses of the host that count for one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Own {
    /// Where ICMP errors about its packets come from.
    errors_from: (Option<Ipv4Addr>, Option<Ipv6Addr>),
    /// Sources that nobody else has: the host's in the VRF of the port, with the broadcast addresses of their networks
    /// (RFC 1812, 5.3.7).
    ipv4: Vec<Ipv4Addr>,
    ipv6: Vec<Ipv6Addr>,
}

impl Own {
    fn of(mirror: &Mirror, port: &str) -> Own {
        let link = mirror.ports().find(|known| known.name == port).and_then(|known| known.link);
        let Some(index) = link.map(|link| link.index) else { return Own::default() };
        let of_port = || mirror.local_addresses().filter(move |known| known.index == index);
        let errors_from = (
            error_source4(of_port().map(|known| known.address)),
            error_source6(of_port().map(|known| known.address)),
        );
        let vrf = mirror.vrf_table(index);
        let mut own = Own { errors_from, ..Own::default() };
        for known in mirror.local_addresses().filter(|known| mirror.vrf_table(known.index) == vrf) {
            match known.address {
                IpAddr::V4(address) => {
                    own.ipv4.push(address);
                    // A network of one or two addresses has no broadcast address (RFC 3021, 2.1).
                    let hosts = 32_u32.checked_sub(known.prefix_length.into()).filter(|&bits| bits > 1);
                    own.ipv4.extend(hosts.map(|bits| {
                        Ipv4Addr::from_bits(address.to_bits() | u32::MAX.checked_shr(32 - bits).unwrap_or(0))
                    }));
                }
                IpAddr::V6(address) => own.ipv6.push(address),
            }
        }
        own
    }
}

/// What keeps a configuration in step with what it was made from, while it runs.
pub(crate) trait Follow: Send {
    /// Looks whether anything changed, and brings it to the ports and the elements. Returns what went wrong.
    fn look(&mut self, service: &Service, router: &mut Router) -> Vec<String>;

    /// Has others go round this router, before a fault ends it.
    fn leave(&mut self, router: &mut Router) {
        let _ = router;
    }
}

/// Keeps ports and configuration in step with Linux.
pub(crate) struct Following {
    ports: Vec<RouterPort>,
    shared: Shared,
    addresses: Option<u64>,
    links: Vec<Link>,
    /// Of each port, what it was told last.
    vlans: Vec<Vec<(VlanId, VlanShare)>>,
    /// Of each port, what its elements were told last, and when that was made ([`Mirror::link_generations`]).
    own: Vec<Own>,
    generations: Option<(u64, u64)>,
}

impl Following {
    pub(crate) fn new(ports: Vec<RouterPort>, shared: Shared) -> Self {
        let (links, vlans) = (vec![Link::default(); ports.len()], vec![Vec::new(); ports.len()]);
        Self { ports, shared, addresses: None, links, vlans, own: Vec::new(), generations: None }
    }

    /// The VLANs of a port that are ports too, and what of them is ours: transit where Linux has an interface for one, else
    /// everything. By an interface that is down nothing comes in.
    fn vlans_of(&self, below: &RouterPort, up: &HashSet<&str>) -> Vec<(VlanId, VlanShare)> {
        let vlans = self.ports.iter().filter_map(|port| {
            let (_, number) = port.vlan.as_ref().filter(|(name, _)| *name == below.name)?;
            let share = if port.host == Host::Interface { VlanShare::Transit } else { VlanShare::All };
            (port.host == Host::None || up.contains(port.name.as_str())).then_some((*number, share))
        });
        vlans.collect()
    }

    /// Gives the interfaces that we made for VLANs of a port the link address of that port, which is the one that it takes
    /// frames to. Linux does the same with its own.
    fn follow_below(&self, below: &str, link: &Link) -> Option<String> {
        let mac = packet::wire::ethernet::MacAddr(link.mac?);
        let is_twin = |port: &&RouterPort| {
            port.host == Host::Tap && port.vlan.as_ref().is_some_and(|(name, _)| name == below)
        };
        let told = self.ports.iter().filter(is_twin).try_for_each(|port| set_link_address(&port.name, mac));
        told.err().map(|error| error.to_string())
    }

    /// Lets no interface that we made for a VLAN have a larger MTU than the port below. Linux does the same with its own.
    fn limit_mtus(&self) -> Vec<String> {
        let mtu = |name: &str| {
            let number = self.ports.iter().position(|port| port.name == name)?;
            Some(self.links[number].mtu).filter(|&mtu| mtu > 0)
        };
        let twins = self.ports.iter().filter(|port| port.host == Host::Tap);
        let failed = twins.filter_map(|port| {
            let (below, _) = port.vlan.as_ref()?;
            let most = mtu(below)?;
            mtu(&port.name).filter(|&mtu| mtu > most)?;
            set_mtu(&port.name, most as usize).err()
        });
        failed.map(|error| error.to_string()).collect()
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

impl Follow for Following {
    fn look(&mut self, service: &Service, router: &mut Router) -> Vec<String> {
        let state = service.lock();
        let generation = state.mirror.local_address_generation();
        let addresses = (self.addresses != Some(generation)).then(|| {
            let mut all: Vec<IpAddr> = state.mirror.local_addresses().map(|known| known.address).collect();
            all.sort_unstable();
            all.dedup();
            all
        });
        let mut up = HashSet::new();
        let links: Vec<Option<Link>> = (self.ports.iter())
            .map(|port| {
                let link = state.mirror.ports().find(|known| known.name == port.name)?.link?;
                if link.is_up {
                    up.insert(port.name.as_str());
                }
                Some(Link { index: link.index, mac: link.mac, mtu: link.mtu })
            })
            .collect();
        let generations = state.mirror.link_generations();
        let own: Option<Vec<Own>> = (self.generations != Some(generations))
            .then(|| self.ports.iter().map(|port| Own::of(&state.mirror, &port.name)).collect());
        self.generations = Some(generations);
        drop(state);
        let mut problems = Vec::new();
        let vlans: Vec<_> = self.ports.iter().map(|port| self.vlans_of(port, &up)).collect();
        for ((port, told), vlans) in self.ports.iter().zip(&self.vlans).zip(&vlans) {
            if told != vlans {
                problems.extend(self.on_host(port, |host| host.set_vlans(vlans)).err());
            }
        }
        self.vlans = vlans;
        if let Some(addresses) = addresses {
            self.addresses = Some(generation);
            for port in &self.ports {
                let told = self.on_host(port, |host| host.set_local_addresses(&addresses));
                problems.extend(told.err());
            }
        }
        if let Some(own) = own.filter(|own| self.own != *own) {
            problems.extend(write(router, own_writes(&own)));
            self.own = own;
        }
        let before = self.links.clone();
        for (number, link) in links.into_iter().enumerate() {
            let Some(link) = link.filter(|link| self.links[number] != *link) else { continue };
            let port = &self.ports[number];
            problems.extend(self.on_host(port, |host| host.follow_link()).err());
            problems.extend(self.follow_below(&port.name, &link));
            problems.extend(tell_elements(router, number + 1, &link, self.links[number].mtu));
            self.links[number] = link;
        }
        if self.links != before {
            problems.extend(self.limit_mtus());
        }
        problems
    }
}

/// Writes a port's link address and MTU to the elements that have them. A configuration that was changed by hand may have
/// other elements, which is its author's business.
fn tell_elements(router: &mut Router, paint: usize, link: &Link, mtu_before: u32) -> Vec<String> {
    let mut writes: Vec<Write> = Vec::new();
    if let Some(mac) = link.mac {
        let mac = packet::wire::ethernet::MacAddr(mac).to_string();
        for family in [4, 6] {
            for handler in ["src", "dst"] {
                writes.push((format!("header{family}_{paint}"), handler, mac.clone()));
            }
        }
        writes.push((format!("in{paint}/filter"), "ether", mac));
    }
    let mtu = [
        (format!("fragment{paint}"), "mtu"),
        (format!("toolong{paint}"), "pmtu"),
        (format!("toobig{paint}"), "pmtu"),
        (format!("out{paint}/mtu4"), "length"),
        (format!("out{paint}/mtu6"), "length"),
    ];
    let mut mtu = mtu.map(|(element, handler)| (element, handler, link.mtu.to_string()));
    if link.mtu > mtu_before {
        // What is too long is fragmented and comes again, so the fragments must never be longer than the port takes.
        mtu.reverse();
    }
    writes.extend(mtu);
    write(router, writes)
}

/// An element, a handler of it, and a value.
type Write = (String, &'static str, String);

/// Says to the elements of all ports which addresses are the host's.
fn own_writes(own: &[Own]) -> Vec<Write> {
    let list4 = addresses4(own.iter().map(|own| own.errors_from.0));
    let list6 = addresses6(own.iter().map(|own| own.errors_from.1));
    let mut writes: Vec<Write> = Vec::new();
    for (names, list) in ERRORS.into_iter().zip([&list4, &list6]) {
        writes.extend(names.map(|name| (name.to_owned(), "src", list.clone())));
    }
    for (port, own) in own.iter().enumerate() {
        let paint = port + 1;
        writes.push((format!("toolong{paint}"), "src", list4.clone()));
        writes.push((format!("toobig{paint}"), "src", list6.clone()));
        writes.push((format!("options{paint}"), "addresses", own_addresses(&list4, port)));
        for (elements, own) in
            [(["check4", "untagged4"], words(&own.ipv4)), (["check6", "untagged6"], words(&own.ipv6))]
        {
            writes.extend(elements.map(|name| (format!("in{paint}/{name}"), "own", own.clone())));
        }
    }
    writes
}

fn words<T: ToString>(list: &[T]) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

/// Writes to those of the elements that there are. Returns what went wrong.
fn write(router: &mut Router, writes: Vec<Write>) -> Vec<String> {
    let mut problems = Vec::new();
    for (element, handler, value) in writes {
        if router.config().find(&element).is_some() {
            let target = format!("{element}.{handler}");
            let written = router.write(&target, &value);
            problems.extend(written.err().map(|error| format!("{target}: {error}")));
        }
    }
    problems
}
