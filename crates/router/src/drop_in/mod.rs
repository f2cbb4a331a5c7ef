//! A router in the place of Linux's forwarding: `brickway run eth1 eth2`.
//!
//! Linux stays the host. The control thread (`control::Service`) mirrors its routes and neighbours into the forwarding
//! tables, a configuration is made for the ports (`configuration`), and while it runs this module keeps in step what the
//! configuration was made from: link addresses, MTUs, and the addresses whose packets the ports leave to Linux.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `backstop` | what keeps Linux from forwarding past the filters |
//! | `configuration` | the configuration; features (`crate::features`) add their parts |
//! | `judging` | whether anything filters |
//! | `lua` | the configuration around a script |
//! | `plan` | a configuration in the making |
//! | `devices` | devices that Linux does not see, and the TAP interfaces that stand for them |
//! | `ports` | what opens the ports, and how Linux sees them |
//! | `in_kernel` | which ports' packets are forwarded in the kernel |
//! | `samples` | what is sampled there, for several readers |
//! | `stations` | interfaces above ports, whose frames are as the ports' or Linux's |
//! | `following` | what follows Linux while the router runs |
//! | `sysctls` | settings of Linux's interfaces that the router obeys |

mod backstop;
mod configuration;
mod devices;
mod following;
mod in_kernel;
mod judging;
mod lua;
mod plan;
mod ports;
mod samples;
mod stations;
mod sysctls;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use control::mirror::VlanPort;
use control::service::{Service, ServiceOptions};
use control::supervisor::Supervisor;
use elements::lookup::{Asker, FORWARDS, ForwardingTables};
use graph::lang::{FlatConfig, split_arguments, unquote};
use graph::setup::Shared;
use packet::sync::lock;

pub(crate) use backstop::{Filtered, Guard, closed_ports, lift, report_closed};
pub(crate) use configuration::{
    Frame, RESOLVE, addresses4, addresses6, follow_mtu, linux_is_behind_all, own_addresses, with_header,
};
pub use configuration::{PlannedPort, PlannedVlan};
pub(crate) use following::{Follow, Following, refused_sources};
pub use in_kernel::Path;
pub(crate) use in_kernel::{InKernel, by_kernel};
pub(crate) use judging::{Graph, permitting, steering_ports};
pub(crate) use lua::{ELEMENT as LUA_ELEMENT, Script};
pub(crate) use plan::{Part, Plan};
pub(crate) use ports::{Device, RouterPort};
pub(crate) use sysctls::{Obeyed, source_mode};

use crate::beside_linux;
use crate::features::vlan;
use crate::settings::Settings;

/// How long Linux may take to tell what it knows; a million routes take some seconds.
const LONGEST_DUMP: Duration = Duration::from_secs(120);

/// The ports that the lookups of a configuration name, in their order; none if there are no such lookups.
pub(crate) fn ports_of(config: &FlatConfig) -> Vec<String> {
    let lookup = config.elements.iter().find(|element| element.has(FORWARDS));
    let arguments = lookup.map_or(Vec::new(), |lookup| split_arguments(&lookup.config));
    // A port's name is a word; keywords have values behind them.
    let names = arguments.into_iter().filter(|argument| !argument.contains(char::is_whitespace));
    names.map(|name| unquote(&name)).collect()
}

/// Brings what chooses among the paths of multipath routes in line with Linux, for the elements that share this and for the kernel.
pub(crate) fn follow_paths(shared: &Shared) {
    let Some(tables) = shared.get::<ForwardingTables>(ForwardingTables::KEY) else { return };
    if sysctls::follow_paths(&tables.paths)
        && let Some(in_kernel) = InKernel::of(shared)
    {
        lock(&*in_kernel).follow_paths();
    }
}

/// Starts to mirror Linux for these ports, and gives the tables to the elements. How Linux sees VLANs is known then.
pub(crate) fn mirror(
    ports: &mut [RouterPort],
    settings: &Settings,
    shared: &Shared,
    supervisor: &Supervisor,
) -> Result<Service> {
    if ports.len() > 250 {
        bail!("{} ports are too many: a router has 250 at most", ports.len());
    }
    for port in &*ports {
        if let Some((message, right)) = settings.tables.problem_with(port.driver) {
            bail!("port '{}': {message}; {right}", port.name);
        }
    }
    let numbered =
        ports.iter().enumerate().map(|(number, port)| (port.name.clone(), number as u16)).collect();
    let vlans = (0..).zip(&*ports).filter_map(|(port, known)| {
        let (below, vlan) = known.vlan.as_ref()?;
        let parent = ports.iter().position(|port| port.name == *below)? as u16;
        Some(VlanPort { port, parent, vlan: *vlan })
    });
    let vlans = vlans.collect();
    let interfaces = (0..).zip(&*ports).map(|(number, port)| (number, ::ports::kernel_name(&port.name)));
    let interfaces = interfaces.collect();
    let service = Service::start(&ServiceOptions {
        ports: numbered,
        interfaces,
        vlans,
        tables: settings.tables.kinds(),
        fpm: settings.fpm.server(),
        supervisor: supervisor.clone(),
        may_be_marked: beside_linux::marks::may_be_set(settings),
    })?;
    if !service.wait_synchronised(LONGEST_DUMP) {
        bail!("Linux did not tell its routes within {} s", LONGEST_DUMP.as_secs());
    }
    let state = service.lock();
    vlan::settle(ports, &state.mirror)?;
    let tables = ForwardingTables {
        ports: ports.iter().map(|port| port.name.clone()).collect(),
        readers: state.mirror.fib().readers().clone(),
        policies: state.mirror.policy_readers().clone(),
        paths: Arc::default(),
        ask: {
            let questions = service.questions();
            Asker(Arc::new(move |number, destination| questions.ask(number, destination)))
        },
    };
    drop(state);
    shared.get_or_make(ForwardingTables::KEY, || Ok::<_, anyhow::Error>(tables))?;
    Ok(service)
}

/// The configuration for these ports, from what Linux says of them now; around a script if there is one.
pub(crate) fn configuration(
    ports: &[RouterPort],
    service: &Service,
    settings: &Settings,
    script: Option<&Script>,
) -> Result<String> {
    let state = service.lock();
    let mut planned = Vec::new();
    for port in ports {
        let known = state.mirror.ports().find(|known| known.name == port.name);
        let switches = known.as_ref().and_then(|known| known.switches);
        let link = known.and_then(|known| known.link);
        let (mac, mtu) = match (&port.device, &link) {
            (Some(device), _) => (device.mac, device.mtu),
            (None, Some(link)) => {
                let mac = link.mac.with_context(|| {
                    format!("'{}' is not an Ethernet interface; expected one as a port", port.name)
                })?;
                (packet::wire::ethernet::MacAddr(mac), link.mtu)
            }
            (None, None) => bail!("there is no interface '{}'; `ip link` lists those there are", port.name),
        };
        let index = link.as_ref().map_or(0, |link| link.index);
        let addresses = state.mirror.local_addresses().filter(|known| known.index == index);
        let addresses: Vec<IpAddr> = addresses.map(|known| known.address).collect();
        planned.push(PlannedPort {
            name: port.name.clone(),
            mac,
            mtu,
            host: port.host,
            vlan: port.vlan.as_ref().and_then(|(below, number)| {
                let below = ports.iter().position(|port| port.name == *below)? + 1;
                Some(PlannedVlan { below, number: *number })
            }),
            ipv4: error_source4(addresses.iter().copied()),
            ipv6: error_source6(addresses.iter().copied()),
            rp_filter: switches.map_or(0, |switches| switches.rp_filter),
            linux_forwards: switches.map_or([false; 2], |switches| switches.forwards),
        });
    }
    match script {
        Some(script) => lua::configuration(&planned, script),
        None => configuration::configuration(&planned, settings),
    }
}

/// The configuration around a script for these ports.
///
/// # Errors
///
/// A port is a VLAN of another one.
pub fn lua_configuration(ports: &[PlannedPort], file: &str, args: &str) -> Result<String> {
    lua::configuration(
        ports,
        &Script { file: file.to_owned(), args: args.to_owned(), errors_to_linux: false },
    )
}

/// The configuration for these ports with the usual settings.
///
/// # Errors
///
/// None is known.
pub fn usual_configuration(ports: &[PlannedPort]) -> Result<String> {
    configuration::configuration(ports, &Settings { follows_ipsec: true, ..Settings::default() })
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
