//! What follows Linux while a drop-in router runs: the addresses whose packets the ports leave to the host, their VLANs,
//! and in the configuration the link addresses and MTUs of the ports.
//!
//! Routes and neighbours are not its business: the control thread brings those to the workers by itself.

use std::collections::HashSet;
use std::net::IpAddr;

use control::service::Service;
use elements::devices::OpenPort;
use graph::router::Router;
use graph::setup::Shared;

use ports::{VlanId, VlanShare, set_link_address, set_mtu};

use super::RouterPort;
use crate::settings::Host;

/// What one port was like when the configuration last heard of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Link {
    index: u32,
    mac: Option<[u8; 6]>,
    mtu: u32,
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
}

impl Following {
    pub(crate) fn new(ports: Vec<RouterPort>, shared: Shared) -> Self {
        let (links, vlans) = (vec![Link::default(); ports.len()], vec![Vec::new(); ports.len()]);
        Self { ports, shared, addresses: None, links, vlans }
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
    let mut writes = Vec::new();
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
