//! A router in the place of Linux's forwarding: `brickway run eth1 eth2`.
//!
//! Linux stays the host. The control thread (`control::Service`) mirrors its routes and neighbours into the forwarding
//! tables, a configuration is made for the ports (`click`), and while it runs this module keeps in step what the
//! configuration was made from: link addresses, MTUs, and the addresses whose packets the ports leave to Linux.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `backstop` | what keeps Linux from forwarding past the filters |
//! | `click` | the configuration, as text |
//! | `ports` | what opens the ports, and how Linux sees them |
//! | `following` | what follows Linux while the router runs |
//! | `sysctls` | settings of Linux's interfaces that the configuration honours |

mod backstop;
mod click;
mod following;
mod ports;
mod sysctls;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use control::mirror::VlanPort;
use control::service::{Service, ServiceOptions};
use control::supervisor::Supervisor;
use elements::lookup::{Asker, ForwardingTables};
use graph::lang::{FlatConfig, Options, Source, split_arguments};
use graph::setup::Shared;

pub(crate) use backstop::{Guard, lift, marks_permitted, source_route_of};
pub(crate) use click::counting_elements;
pub use click::{Features, PortText, VlanText, configuration as click_text};
pub(crate) use following::{Follow, Following};
pub(crate) use ports::RouterPort;
use ports::settle_vlans;

use crate::load;
use crate::settings::{AclSettings, FpmSettings, ReversePath, Settings};

/// How long Linux may take to tell what it knows; a million routes take some seconds.
const LONGEST_DUMP: Duration = Duration::from_secs(120);

/// The lookups of forwarding tables that Linux fills.
const LOOKUPS: [&str; 2] = ["FIBLookup", "FIBLookup6"];

/// The ports that the lookups of a configuration name, in their order; none if there are no such lookups.
pub(crate) fn ports_of(config: &FlatConfig) -> Vec<String> {
    let lookup = config.elements.iter().find(|element| LOOKUPS.contains(&element.class.as_str()));
    lookup.map_or(Vec::new(), |lookup| split_arguments(&lookup.config))
}

/// Starts to mirror Linux for these ports, and gives the tables to the elements. How Linux sees VLANs is known then.
pub(crate) fn mirror(
    ports: &mut [RouterPort],
    fpm: Option<&FpmSettings>,
    shared: &Shared,
    supervisor: &Supervisor,
) -> Result<Service> {
    if ports.len() > 250 {
        bail!("{} ports are too many: a router has 250 at most", ports.len());
    }
    let numbered =
        ports.iter().enumerate().map(|(number, port)| (port.name.clone(), number as u16)).collect();
    let vlans = (0..).zip(&*ports).filter_map(|(port, known)| {
        let (below, vlan) = known.vlan.as_ref()?;
        let parent = ports.iter().position(|port| port.name == *below)? as u16;
        Some(VlanPort { port, parent, vlan: *vlan })
    });
    let vlans = vlans.collect();
    let fpm = fpm.map(FpmSettings::options);
    let service =
        Service::start(&ServiceOptions { ports: numbered, vlans, fpm, supervisor: supervisor.clone() })?;
    if !service.wait_synchronised(LONGEST_DUMP) {
        bail!("Linux did not tell its routes within {} s", LONGEST_DUMP.as_secs());
    }
    let state = service.lock();
    settle_vlans(ports, &state.mirror)?;
    let tables = ForwardingTables {
        ports: ports.iter().map(|port| port.name.clone()).collect(),
        readers: state.mirror.fib().readers().clone(),
        policies: state.mirror.policy_readers().clone(),
        ask: {
            let questions = service.questions();
            Asker(Arc::new(move |number, destination| questions.ask(number, destination)))
        },
    };
    drop(state);
    shared.get_or_make(ForwardingTables::KEY, || Ok::<_, anyhow::Error>(tables))?;
    Ok(service)
}

/// The configuration for these ports, from what Linux says of them now.
pub(crate) fn configuration(ports: &[RouterPort], service: &Service, settings: &Settings) -> Result<String> {
    let state = service.lock();
    let mut texts = Vec::new();
    for port in ports {
        let known = state.mirror.ports().find(|known| known.name == port.name);
        let link = known.and_then(|known| known.link);
        let (mac, mtu) = match (&port.device, &link) {
            (Some(device), _) => (device.mac, device.mtu),
            (None, Some(link)) => {
                let mac = link.mac.with_context(|| {
                    format!("'{}' is no Ethernet interface; a port must be one", port.name)
                })?;
                (packet::wire::ethernet::MacAddr(mac), link.mtu)
            }
            (None, None) => bail!("there is no interface '{}'; `ip link` lists those there are", port.name),
        };
        let index = link.as_ref().map_or(0, |link| link.index);
        let addresses = state.mirror.local_addresses().filter(|known| known.index == index);
        let addresses: Vec<IpAddr> = addresses.map(|known| known.address).collect();
        texts.push(PortText {
            name: port.name.clone(),
            mac,
            mtu,
            host: port.host,
            vlan: port.vlan.as_ref().and_then(|(below, number)| {
                let below = ports.iter().position(|port| port.name == *below)? + 1;
                Some(VlanText { below, number: *number })
            }),
            ipv4: error_source4(addresses.iter().copied()),
            ipv6: error_source6(addresses.iter().copied()),
        });
    }
    let features = Features {
        slow_path: settings.slow_path,
        acl: access_list(&settings.acl)?,
        reverse_path4: ports.iter().map(|port| sysctls::reverse_path(&port.name, settings)).collect(),
        reverse_path6: match settings.reverse_path {
            ReversePath::Linux => ReversePath::Off,
            mode => mode,
        },
        linux_forwards: ["ipv4", "ipv6"]
            .map(|family| ports.iter().all(|port| sysctls::forwards(family, &port.name))),
        backstop: settings.filters(),
    };
    Ok(click_text(&texts, &features))
}

/// The address of a port that ICMP errors come from, of all that it has.
fn error_source4(mut addresses: impl Iterator<Item = IpAddr>) -> Option<Ipv4Addr> {
    addresses.find_map(|address| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    })
}

/// The same of ICMPv6 errors. A link-local address where there is no other (RFC 4443, 2.2).
fn error_source6(addresses: impl Iterator<Item = IpAddr>) -> Option<Ipv6Addr> {
    let all: Vec<Ipv6Addr> = addresses
        .filter_map(|address| match address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        })
        .collect();
    all.iter().find(|address| !address.is_unicast_link_local()).or(all.first()).copied()
}

/// Whether the rules of the access list can be read; what is wrong with them is printed.
pub(crate) fn rules_are_right(settings: &Settings) -> Result<bool> {
    let Some(arguments) = access_list(&settings.acl)? else { return Ok(true) };
    let inputs: Vec<String> =
        (1..).zip(&settings.ports).map(|(paint, port)| format!("{} {paint}", port.name)).collect();
    let text = format!("Idle -> ACL({arguments}, INPUTS \"{}\") -> Discard;", inputs.join(", "));
    let source = Source { name: "[acl]".into(), text };
    Ok(load::compile(&source, &Options::default(), &crate::classes()).is_some())
}

/// The arguments of the elements of an access list; none without rules.
fn access_list(settings: &AclSettings) -> Result<Option<String>> {
    let mut arguments: Vec<String> = settings.rules.clone();
    if let Some(file) = &settings.file {
        arguments.push(format!("FILE \"{}\"", file.display()));
    }
    if !settings.filters() {
        return Ok(None);
    }
    if let Some(file) = settings.file.as_ref().filter(|file| !file.is_file()) {
        bail!("there is no file of rules '{}'", file.display());
    }
    arguments.push(format!("DEFAULT {}", settings.default.word()));
    Ok(Some(arguments.join(", ")))
}
