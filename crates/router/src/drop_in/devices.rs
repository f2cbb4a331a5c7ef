//! Devices that Linux does not see, and VLANs that it has no interface for: what the TAP interface that stands for one has to have
//! of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use elements::devices::OpenPort;
use graph::setup::Shared;

use super::RouterPort;
use super::configuration::tap_spec;
use crate::settings::{Driver, Host};

/// How often devices are asked for their link. Some drivers begin to set up the link anew at each question while it is down.
const PERIOD: Duration = Duration::from_millis(500);

/// What the TAP interfaces got last, by port: whether they have a carrier.
#[derive(Debug, Default)]
pub(super) struct Devices {
    carriers: Vec<Option<bool>>,
    asked: Option<Instant>,
}

impl Devices {
    /// Gives each TAP interface the carrier of what it stands for: of its device, or, for a VLAN, of the port below, which
    /// `has_carrier` says. So Linux and its routing daemons see the link go, as with an interface of theirs. Returns what went wrong.
    pub(super) fn look(
        &mut self,
        ports: &[RouterPort],
        shared: &Shared,
        has_carrier: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        self.carriers.resize(ports.len(), None);
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= PERIOD);
        if is_due {
            self.asked = Some(Instant::now());
        }
        let mut problems = Vec::new();
        for (port, last) in ports.iter().zip(&mut self.carriers).filter(|(port, _)| port.host == Host::Tap) {
            let now = match &port.vlan {
                Some((below, _)) => Some(has_carrier(below)),
                None if !is_due => None,
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

/// Returns the largest MTU that the TAP interface of a device may have: what the device was opened with. Its buffers hold no more.
pub(super) fn largest_mtu(port: &RouterPort) -> Option<u32> {
    let is_device = port.driver == Driver::Dpdk && port.host == Host::Tap;
    port.device.filter(|_| is_device).map(|device| device.mtu)
}

/// Sets the MTU of such an interface back to the largest. Returns what to report.
pub(super) fn set_back(port: &RouterPort, wanted: u32, most: u32) -> String {
    let set = ports::set_mtu(&port.name, most as usize);
    let set = set.map_or_else(|error| error.to_string(), |()| format!("it has {most} again"));
    format!(
        "{0}: an MTU of {wanted} is more than its device was opened with, {most}; {set}; start it with the option 'mtu={wanted}'",
        port.name
    )
}

fn open(shared: &Shared, name: &str) -> Option<Arc<OpenPort>> {
    shared.get::<OpenPort>(&OpenPort::key(name))
}
