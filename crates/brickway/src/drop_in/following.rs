//! What follows Linux while a drop-in router runs: the addresses whose packets the ports leave to the host, and in the
//! configuration the link addresses and MTUs of the ports.
//!
//! Routes and neighbours are not its business: the control thread brings those to the workers by itself.

use std::net::IpAddr;

use control::service::Service;
use elements::devices::OpenPort;
use graph::router::Router;
use graph::setup::Shared;

use super::RouterPort;

/// What one port was like when the configuration last heard of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Link {
    index: u32,
    mac: Option<[u8; 6]>,
    mtu: u32,
}

/// Keeps ports and configuration in step with Linux.
pub(crate) struct Following {
    ports: Vec<RouterPort>,
    shared: Shared,
    addresses: Option<u64>,
    links: Vec<Link>,
}

impl Following {
    pub(crate) fn new(ports: Vec<RouterPort>, shared: Shared) -> Self {
        let links = vec![Link::default(); ports.len()];
        Self { ports, shared, addresses: None, links }
    }

    /// Looks whether anything changed, and brings it to the ports and the elements. Returns what went wrong.
    pub(crate) fn look(&mut self, service: &Service, router: &mut Router) -> Vec<String> {
        let state = service.lock();
        let generation = state.mirror.local_address_generation();
        let addresses = (self.addresses != Some(generation)).then(|| {
            let mut all: Vec<IpAddr> = state.mirror.local_addresses().map(|known| known.address).collect();
            all.sort_unstable();
            all.dedup();
            all
        });
        let links: Vec<Option<Link>> = (self.ports.iter())
            .map(|port| {
                let link = state.mirror.ports().find(|known| known.name == port.name)?.link?;
                Some(Link { index: link.index, mac: link.mac, mtu: link.mtu })
            })
            .collect();
        drop(state);
        let mut problems = Vec::new();
        if let Some(addresses) = addresses {
            self.addresses = Some(generation);
            for port in &self.ports {
                let told = self.on_host(port, |host| host.set_local_addresses(&addresses));
                problems.extend(told.err());
            }
        }
        for (number, link) in links.into_iter().enumerate() {
            let Some(link) = link.filter(|link| self.links[number] != *link) else { continue };
            let port = &self.ports[number];
            problems.extend(self.on_host(port, |host| host.follow_link()).err());
            problems.extend(tell_elements(router, number + 1, &link, self.links[number].mtu));
            self.links[number] = link;
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
