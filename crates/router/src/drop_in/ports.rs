//! The ports of a drop-in router: what opens them, and how Linux sees them.

use anyhow::{Context, Result};
use elements::devices::{OpenPort, open_options};
use graph::setup::Shared;
use packet::wire::ethernet::MacAddr;

use crate::features::vlan::vlan_of;
use crate::settings::{Driver, Host, PortSettings};

/// A port of a drop-in router.
#[derive(Clone, Debug)]
pub(crate) struct RouterPort {
    /// Its name: that of Linux's interface, which with a twin is the twin's.
    pub(crate) name: String,
    /// What opens it.
    pub(crate) spec: String,
    /// How Linux sees it.
    pub(crate) host: Host,
    /// For a device that Linux does not see: what it says of itself.
    pub(crate) device: Option<Device>,
    /// If it is a VLAN: the port below it, and its number.
    pub(crate) vlan: Option<(String, u16)>,
    /// What carries its packets, as the settings have it.
    pub(crate) driver: Driver,
}

/// What a device says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    pub(crate) mac: MacAddr,
    pub(crate) mtu: u32,
}

impl RouterPort {
    /// The port of these settings. A device that Linux does not see is opened, with a queue for each of `workers`, because
    /// only then it says its address.
    pub(crate) fn of(settings: &PortSettings, workers: usize, shared: &Shared) -> Result<RouterPort> {
        let (name, spec, host, driver) =
            (settings.name.clone(), settings.spec(), settings.host, settings.driver);
        if settings.driver == Driver::Vlan {
            let vlan = vlan_of(&name).map(|(below, number)| (below.to_owned(), number));
            return Ok(RouterPort { name, spec, host, device: None, vlan, driver });
        }
        if host == Host::Interface {
            return Ok(RouterPort { name, spec, host, device: None, vlan: None, driver });
        }
        let port = ports::open(&spec, &open_options(workers, workers + 1))
            .with_context(|| format!("port '{name}'"))?;
        let port = OpenPort::new(port).named(&name);
        let device = Device { mac: port.info().mac, mtu: port.info().mtu as u32 };
        shared.get_or_make(&OpenPort::key(&name), || Ok::<_, anyhow::Error>(port))?;
        Ok(RouterPort { name, spec, host, device: Some(device), vlan: None, driver })
    }
}
