//! Devices that Linux does not see, and VLANs that it has no interface for: what the TAP interface that stands for one has to have
//! of it, and it of that.

use elements::devices::OpenPort;
use graph::setup::Shared;

use super::RouterPort;
use super::configuration::tap_spec;
use crate::settings::Host;

/// What the TAP interfaces got last, by port: whether they have a carrier.
#[derive(Debug, Default)]
pub(super) struct Devices {
    carriers: Vec<Option<bool>>,
}

impl Devices {
    /// Gives each TAP interface the carrier of what it stands for: of its device, or, for a VLAN, of the port below, which
    /// `has_carrier` says. So Linux and its routing daemons see the link go, as with an interface of theirs. Returns what went wrong.
    pub(super) fn look(
        &mut self,
        ports: &[RouterPort],
        shared: &Shared,
        has_carrier: impl Fn(&str) -> Option<bool>,
    ) -> Vec<String> {
        self.carriers.resize(ports.len(), None);
        let mut problems = Vec::new();
        for (port, last) in ports.iter().zip(&mut self.carriers).filter(|(port, _)| port.host == Host::Tap) {
            let now = match &port.vlan {
                Some((below, _)) => has_carrier(below),
                None => open(shared, &port.name).and_then(|open| open.with(|port| port.has_link())),
            };
            let Some(is_plugged) = now.filter(|_| now != *last) else { continue };
            let tap = port.device.map(|device| tap_spec(&port.name, device.mac, device.mtu));
            let Some(tap) = tap.and_then(|spec| open(shared, &spec)) else { continue };
            *last = now;
            problems.extend(tap.with(|tap| tap.set_carrier(is_plugged)).err().map(|error| error.to_string()));
        }
        problems
    }
}

/// Gives a device the MTU that its TAP interface has been set to. Where it cannot have that one, the interface gets the device's
/// again, which is returned with what went wrong.
pub(super) fn follow_mtu(port: &RouterPort, shared: &Shared, mtu: u32) -> Result<(), (u32, String)> {
    if port.host != Host::Tap || port.vlan.is_some() {
        return Ok(());
    }
    let Some(open) = open(shared, &port.name) else { return Ok(()) };
    let (before, set) = open.with(|device| {
        let before = device.info().mtu;
        (before, if before == mtu as usize { Ok(()) } else { device.set_mtu(mtu as usize) })
    });
    set.map_err(|error| {
        let restored = ports::set_mtu(&port.name, before);
        let restored = restored.map_or_else(|error| error.to_string(), |()| format!("it has {before} again"));
        (before as u32, format!("{error}; {restored}"))
    })
}

fn open(shared: &Shared, name: &str) -> Option<std::sync::Arc<OpenPort>> {
    shared.get::<OpenPort>(&OpenPort::key(name))
}
