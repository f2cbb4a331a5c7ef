//! Ports, files and the host.
//!
//! A configuration names a port ("eth0"); the program may say what the name stands for ([`PortNames`]), else it
//! is the port's own spec. A port is opened once, by the first element that names it; each copy of the graph
//! then takes its own queues, by the worker's roles: usually copy `w` the receive and the transmit queue `w`, the slow
//! thread the last transmit queue. `spread` says who processes what a queue receives, `handover` brings packets from
//! worker to worker.

pub mod balance;
mod congestion;
pub mod follow_linux;
pub mod from_device;
pub mod from_host;
pub mod handover;
mod port_meter;
mod spread;
pub mod to_device;
mod to_host;

use packet::sync::lock;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use graph::names::{self, InterfaceAddresses};
use graph::roles::Roles;
use graph::setup::Shared;
use graph::{Capability, Class, ConfigError, QueueCounts, Setup};
use ipnet::{Ipv4Net, Ipv6Net};
use ports::{HostSteering, OpenOptions, Port, PortError, PortInfo, QueueStats, RxQueue, Steering, TxQueue};

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &follow_linux::CLASS,
    &from_device::CLASS,
    &from_host::CLASS,
    &port_meter::CLASS,
    &to_device::CLASS,
    &to_host::CLASS,
];

/// The element receives from a port: its packets are new to the router.
pub const RECEIVER: Capability = Capability("receives from a port");

/// The element sends to a port: its packets leave the router.
pub const SENDER: Capability = Capability("sends to a port");

/// The element counts what a port without queues of its own receives or sends: PORT and `received` or `sent` are its arguments.
pub const METER: Capability = Capability("counts the packets of a port");

/// Most ToHosts of one interface.
const MOST_TO_HOST: usize = 64;

/// What the names of ports in a configuration stand for. The program puts one under [`PortNames::KEY`] into
/// what the elements share.
#[derive(Clone, Debug, Default)]
pub struct PortNames {
    specs: Vec<(String, String)>,
}

impl PortNames {
    /// Where elements look for it.
    pub const KEY: &'static str = "port names";

    /// From pairs of name and spec.
    pub fn new(specs: Vec<(String, String)>) -> Self {
        Self { specs }
    }

    /// What a name stands for: itself, unless it is one of these.
    pub fn spec<'a>(&'a self, name: &'a str) -> &'a str {
        self.specs.iter().find(|(known, _)| known == name).map_or(name, |(_, spec)| spec)
    }
}

/// The ports, by the names that elements use, of which merged packets come whole: everything that they reach takes them. The program
/// puts them under [`MergedPorts::KEY`] into what the elements share.
#[derive(Clone, Debug, Default)]
pub struct MergedPorts(pub BTreeSet<String>);

impl MergedPorts {
    /// Where ports look for it.
    pub const KEY: &'static str = "ports with merged packets";
}

/// How ports are opened with so many queues, which report as all of the program does.
pub fn open_options(rx_queues: usize, tx_queues: usize) -> OpenOptions {
    use graph::messages::{tell, warn};
    OpenOptions { rx_queues, tx_queues, warn, tell, ..OpenOptions::default() }
}

/// An open port, shared by the elements that use it.
pub struct OpenPort {
    /// What configurations call it.
    name: String,
    port: Mutex<Box<dyn Port>>,
    info: PortInfo,
    /// The names of those that send.
    senders: Mutex<Vec<String>>,
}

impl OpenPort {
    /// Around a port that is open already.
    pub fn new(port: Box<dyn Port>) -> Self {
        let info = port.info();
        Self { name: info.name.clone(), info, port: Mutex::new(port), senders: Mutex::default() }
    }

    /// The same port, which configurations call so.
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Under which key elements look for the port that configurations call `name`. A program that makes a
    /// port by itself puts it there before the graph is made.
    pub fn key(name: &str) -> String {
        format!("port:{name}")
    }

    /// What the port was when it was opened.
    pub fn info(&self) -> &PortInfo {
        &self.info
    }

    /// Whether packets in which several are merged come and go by it.
    pub(crate) fn takes_merged(&self) -> bool {
        lock(&self.port).takes_merged()
    }

    /// What the port is now, and what its driver has to say beyond that: for people.
    fn describe(&self) -> String {
        let port = lock(&self.port);
        let (info, details) = (port.info(), port.details());
        let PortInfo { name, driver, mac, mtu, rx_queues, tx_queues } = info;
        let text = format!("{name} driver {driver} address {mac} mtu {mtu} queues {rx_queues}/{tx_queues}");
        if details.is_empty() { text } else { format!("{text}; {details}") }
    }

    /// The port called `name` by the configuration; opened unless it is open.
    fn of(setup: &Setup<'_>, name: &str) -> Result<Arc<Self>, ConfigError> {
        let of_address = interface_with(name)?;
        let name = of_address.as_deref().unwrap_or(name);
        let names = setup.shared().get::<PortNames>(PortNames::KEY);
        let spec = names.as_deref().map_or(name, |names| names.spec(name));
        Self::open(setup, name, spec)
    }

    /// The virtual interface called `name`, which FromHost makes with `options` of the TAP driver; a first ToHost, where
    /// there is an interface of this name and no FromHost has it, gets the way into Linux by that one.
    fn of_host(setup: &Setup<'_>, name: &str, options: &[String]) -> Result<Arc<Self>, ConfigError> {
        let key = format!("tap:{name}");
        if let Some(port) = setup.shared().get::<Self>(&Self::key(&key)) {
            return Ok(port);
        }
        let question = if options.is_empty() { "" } else { "?" };
        let is_there = setup.class() == to_host::CLASS.name && ports::addresses(name).is_some();
        let spec = match is_there && !from_host::names(setup).iter().any(|known| known == name) {
            true => {
                let spec = format!("host:{name}");
                let names = setup.shared().get::<PortNames>(PortNames::KEY);
                names.map_or_else(|| spec.clone(), |names| names.spec(&spec).to_owned())
            }
            false => format!("tap:{name}{question}{}", options.join("&")),
        };
        Self::open_for(setup, &key, &spec, MOST_TO_HOST)
    }

    /// A port that no other element is to find, with a receive queue for each worker and a transmit queue for each copy.
    pub fn for_all_copies(setup: &Setup<'_>, spec: &str) -> Result<Self, ConfigError> {
        let options = open_options(setup.copy().workers, setup.copy().count());
        ports::open(spec, &options).map(Self::new).map_err(|error| ConfigError::new(error.to_string()))
    }

    /// Returns the port under this key; opened by its spec unless it is open.
    pub fn open(setup: &Setup<'_>, key: &str, spec: &str) -> Result<Arc<Self>, ConfigError> {
        Self::open_for(setup, key, spec, 1)
    }

    /// Opens the port for as many elements that send.
    fn open_for(setup: &Setup<'_>, key: &str, spec: &str, senders: usize) -> Result<Arc<Self>, ConfigError> {
        let shared: &Shared = setup.shared();
        shared.get_or_make(&Self::key(key), || {
            let roles = Roles::of(setup);
            let tx_queues = senders * (roles.send.len() + usize::from(setup.copy().slow_thread));
            // What gives ports names follows Linux's notifications.
            let names = shared.get::<PortNames>(PortNames::KEY);
            let reports_links = names.is_none_or(|names| names.specs.is_empty());
            let merged = shared.get::<MergedPorts>(MergedPorts::KEY);
            let takes_merged = merged.is_some_and(|ports| ports.0.contains(key));
            let options =
                OpenOptions { reports_links, takes_merged, ..open_options(roles.receive.len(), tx_queues) };
            let port = ports::open(spec, &options).map_err(|error| ConfigError::new(error.to_string()))?;
            Ok(Self::new(port).named(key))
        })
    }

    /// Has the port receive frames to other hosts too.
    fn set_promiscuous(&self) -> Result<(), ConfigError> {
        let mut port = lock(&self.port);
        port.set_promiscuous().map_err(|error| ConfigError::new(error.to_string()))
    }

    /// Keeps what the port receives away from Linux.
    fn keep_from_linux(&self) -> Result<(), ConfigError> {
        let mut port = lock(&self.port);
        port.keep_from_linux().map_err(|error| ConfigError::new(error.to_string()))
    }

    /// Asks or changes how the device itself spreads packets over the receive queues.
    fn steer<R>(&self, ask: impl FnOnce(&mut dyn Steering) -> Result<R, PortError>) -> Result<R, String> {
        let mut port = lock(&self.port);
        match port.steering() {
            Some(steering) => ask(steering).map_err(|error| error.to_string()),
            None => Err(format!(
                "the {} port '{}' does not let its device be steered; move_queue and move_buckets work on every port",
                self.info.driver, self.info.name
            )),
        }
    }

    /// Tells the port which packets are Linux's; nothing where it does not choose among packets.
    pub fn on_host(
        &self,
        tell: impl FnOnce(&mut dyn HostSteering) -> Result<(), PortError>,
    ) -> Result<(), PortError> {
        let mut port = lock(&self.port);
        port.host().map_or(Ok(()), tell)
    }

    /// Returns the name of its driver, and how that moves packets now ([`Port::mode`]).
    pub fn driver(&self) -> (&'static str, &'static str) {
        (self.info.driver, lock(&self.port).mode())
    }

    /// Does something with the port itself.
    pub fn with<R>(&self, act: impl FnOnce(&mut dyn Port) -> R) -> R {
        act(&mut **lock(&self.port))
    }

    /// Takes a receive queue; nobody else gets it.
    pub fn take_rx(&self, queue: usize) -> Result<Box<dyn RxQueue>, ConfigError> {
        let mut port = lock(&self.port);
        port.take_rx(queue)
            .map_err(|error| ConfigError::new(format!("{error}; a port can be in one FromDevice only")))
    }

    /// The place of the element among those that send by this port.
    fn sender(&self, name: &str) -> usize {
        let mut senders = lock(&self.senders);
        senders.iter().position(|known| known == name).unwrap_or_else(|| {
            senders.push(name.to_owned());
            senders.len() - 1
        })
    }

    /// Takes a transmit queue; nobody else gets it.
    pub fn take_tx(&self, queue: usize) -> Result<Box<dyn TxQueue>, ConfigError> {
        let mut port = lock(&self.port);
        port.take_tx(queue).map_err(|error| {
            ConfigError::new(format!("{error}; a port can be in one ToDevice only, join the ways before it"))
        })
    }
}

impl std::fmt::Debug for OpenPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenPort").field("info", &self.info).finish_non_exhaustive()
    }
}

/// A keyword of Click's that has no effect here: its name, the values that are what happens anyway, and why it has none.
type WithoutEffect = (&'static str, &'static [&'static str], &'static str);

const DRIVER_DECIDES: &str = "DEVNAME selects the driver, as in af_packet:eth0";
const LINUX_MODULE: &str = "it is for Click in the Linux kernel";

/// Takes keywords that have no effect here, and reports each that asks for something else than what happens anyway.
fn take_without_effect(setup: &mut Setup<'_>, keywords: &[WithoutEffect]) {
    for (keyword, usual, why) in keywords {
        let value = setup.arguments.ignored(keyword);
        if value.is_some_and(|value| !usual.contains(&value.to_ascii_lowercase().as_str())) {
            setup.warn(format!("{keyword} has no effect here: {why}"));
        }
    }
}

/// The interface that is meant by an Ethernet address, or by a name for one (`AddressInfo`), in the place of its own name.
pub fn interface_with(text: &str) -> Result<Option<String>, ConfigError> {
    if ports::addresses(text).is_some() {
        return Ok(None);
    }
    let Some(mac) = text.parse().ok().or_else(|| names::ether(text)) else { return Ok(None) };
    let found = ports::with_address(mac);
    let problem = || ConfigError::new(format!("DEVNAME: no interface has the Ethernet address {mac}"));
    found.ok_or_else(problem).map(Some)
}

/// The addresses of the host's interfaces, for names in configurations.
pub(crate) fn interface_addresses(name: &str) -> Option<InterfaceAddresses> {
    let ports::Addresses { ipv4, ipv6, mac, gateway } = ports::addresses(name)?;
    Some(InterfaceAddresses {
        ip: ipv4.and_then(|(address, mask)| Ipv4Net::with_netmask(address, mask).ok()),
        ip6: ipv6.and_then(|(address, length)| Ipv6Net::new(address, length).ok()),
        ether: mac,
        gateway,
    })
}

/// What a queue of a port counted.
fn counts_of(port: &str, queue: usize, sends: bool, stats: &QueueStats) -> QueueCounts {
    let those = |are: fn(ports::Event) -> bool| {
        let events = stats.events().filter(|&(event, _)| are(event));
        events.map(|(event, count)| (event.name(), count)).collect()
    };
    QueueCounts {
        port: port.to_owned(),
        queue: Some(queue),
        sends,
        packets: stats.packets,
        bytes: stats.bytes,
        errors: stats.errors(),
        left_to_host: those(ports::Event::is_left_to_kernel),
        lost: those(ports::Event::is_drop),
    }
}

/// Stands for a port or file when a configuration is only checked.
pub struct Unopened;

impl graph::Element for Unopened {}

/// Turns what a queue lost since the last look into drops of the element.
#[derive(Debug, Default)]
pub struct Losses {
    seen: Vec<(ports::Event, u64)>,
}

impl Losses {
    /// Counts what was lost since the last time as drops of the running element.
    pub fn count(&mut self, cx: &mut graph::Context, stats: &QueueStats) {
        for (event, count) in stats.events().filter(|(event, _)| event.is_drop()) {
            let seen = match self.seen.iter_mut().find(|(known, _)| *known == event) {
                Some((_, seen)) => seen,
                None => {
                    self.seen.push((event, 0));
                    &mut self.seen.last_mut().expect("just pushed").1
                }
            };
            cx.count_drop(event.name(), count.saturating_sub(*seen));
            *seen = count;
        }
    }
}
