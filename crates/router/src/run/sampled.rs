//! Samples of what the kernel forwards, and what Linux and the routes say of samples.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use control::change::RouteKind;
use control::mirror::{Found, FoundBy, Mirror};
use packet::sync::lock;
use ports::KernelSample;

use super::live::Live;
use crate::capture::places::Places;
use crate::drop_in::InKernel;
use crate::export::Way;
use crate::flows::key::{Flow, Parsed};

/// Samples of what the kernel forwards, as long as this lives.
pub(super) struct InKernelSamples<'a> {
    live: &'a Live,
    in_kernel: Arc<Mutex<InKernel>>,
    number: u64,
}

impl<'a> InKernelSamples<'a> {
    /// Begins to sample, if the kernel may forward packets of this router.
    pub(super) fn begin(live: &'a Live, one_in: u32, bytes: usize) -> Option<Self> {
        let in_kernel = InKernel::of(&live.shared)?;
        let number = lock(&*in_kernel).begin_samples(one_in, bytes);
        live.follow();
        Some(Self { live, in_kernel, number })
    }

    /// Takes the samples that there are, with the names of the ports that the packets came in by.
    pub(super) fn take(&self) -> Vec<(String, KernelSample)> {
        lock(&*self.in_kernel).take_samples(self.number)
    }
}

impl Drop for InKernelSamples<'_> {
    fn drop(&mut self) {
        lock(&*self.in_kernel).end_samples(self.number);
        self.live.follow();
    }
}

/// The numbers that Linux has for the ports.
#[derive(Default)]
pub(super) struct Interfaces {
    pub(super) by_name: HashMap<String, u32>,
    pub(super) by_port: HashMap<u16, u32>,
    /// By the names that Linux has for them.
    by_kernel_name: HashMap<String, u32>,
}

impl Interfaces {
    /// Returns the name of the port with this interface.
    pub(super) fn name(&self, index: u32) -> Option<&str> {
        self.by_name.iter().find(|(_, known)| **known == index).map(|(name, _)| name.as_str())
    }
}

impl Live {
    /// Returns the numbers of the ports' interfaces now.
    pub(super) fn interfaces(&self, places: &Places) -> Interfaces {
        let mut interfaces = Interfaces::default();
        match &self.service {
            Some(service) => {
                for port in service.lock().mirror.ports() {
                    if let Some(link) = port.link {
                        interfaces.by_name.insert(port.name, link.index);
                        interfaces.by_kernel_name.insert(link.name, link.index);
                        interfaces.by_port.insert(port.port, link.index);
                    }
                }
            }
            None => {
                for spot in &places.spots {
                    let interface = ports::kernel_name(&spot.interface);
                    let index = std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex"));
                    if let Some(index) = index.ok().and_then(|text| text.trim().parse().ok()) {
                        interfaces.by_name.insert(spot.interface.clone(), index);
                    }
                }
            }
        }
        interfaces
    }

    /// Returns the way that the routes give a packet that comes in by a port.
    pub(super) fn way(&self, port: &str, parsed: &Parsed, interfaces: &Interfaces) -> Option<Way> {
        let Flow::Ip { source, destination, .. } = parsed.flow else { return None };
        let index = interfaces.by_name.get(port)?;
        let number = interfaces.by_port.iter().find(|(_, known)| *known == index).map(|(&number, _)| number);
        let state = self.service.as_ref()?.lock();
        let look = |from: Option<IpAddr>, to| Some(state.mirror.route_by_rules(number, from, to)?.found?.1);
        let to = look(Some(source), destination)?;
        let back = look(None, source).map_or(0, |found| found.prefix.prefix_len());
        let (output, gateway) = leaves_by(&state.mirror, &to, interfaces);
        Some(Way { output, gateway, lengths: Some((back, to.prefix.prefix_len())) })
    }
}

/// The interface and the router of a route with one path.
fn leaves_by(mirror: &Mirror, found: &Found, interfaces: &Interfaces) -> (u32, Option<IpAddr>) {
    match &found.by {
        FoundBy::Route(route) if route.kind == RouteKind::Unicast => match mirror.paths(route).as_slice() {
            [path] => (path.index, path.gateway),
            _ => (0, None),
        },
        FoundBy::Neighbour(name) => (interfaces.by_kernel_name.get(name).copied().unwrap_or(0), None),
        _ => (0, None),
    }
}
