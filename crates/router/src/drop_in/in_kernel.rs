//! Forwarding in the kernel: which ports of a drop-in router take part, and why others do not.
//!
//! A BPF program looks plain transit up in the workers' own tables and redirects it; what it leaves goes the way of all
//! packets, to the port's sockets and the graph. So taking part changes what a packet costs and nothing else, and it may
//! begin and end at any time: features that the program does not know, too many policy rules, a capture, and a
//! card whose sockets need no copy keep a port's packets in the graph. Samples for collectors do not: the program draws them
//! itself ([`super::samples`]).

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use control::mirror::Mirror;
use control::service::Service;
use elements::devices::OpenPort;
use elements::lookup::ForwardingTables;
use fib::{MOST_SHARED_RULES, Policy, Region};
use graph::setup::Shared;
use packet::flow::FlowKey;
use ports::{
    HostSteering, KernelForwarding, KernelLosses, KernelPort, KernelSample, KernelTraffic, Links,
    LossCounter, PortError, Sources, Spec, XdpFeatureChanges, XdpFeatures, XdpMode, XdpWay,
};

use super::RouterPort;
use super::following::mtus_of;
use super::samples::Samples;
use crate::doctor::lacks_queues;
use crate::features::FeatureSettings;
use crate::settings::{Driver, Host};

/// How often drivers are asked what they can, beside when something has changed.
const PERIOD: Duration = Duration::from_secs(1);

/// Samples that are taken at once; those who ask about ports wait meanwhile.
const SAMPLES: usize = 1_024;

/// Why a port does not take part at the start.
const OPENING: &str = "it is not open yet";

/// How packets travel from and to a port whose interface is gone.
const GONE: &str = "workers: its interface is gone";

/// Room for tables at first; it doubles when they need more.
const FIRST_BYTES: usize = 16 << 20;

/// How the packets of a port travel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// In words: "kernel", or "workers" with the reason.
    pub text: String,
    /// What was forwarded in the kernel.
    pub traffic: KernelTraffic,
    /// Redirected packets to it that were lost.
    pub losses: KernelLosses,
}

/// Where a port's steering program has transit go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transit {
    /// To the graph.
    Graph,
    /// To the program that forwards, which leaves the rest to the graph.
    Kernel,
    /// To the program that forwards, and the rest to Linux, where tc has it.
    KernelThenLinux,
}

/// A port's part.
#[derive(Clone, Debug, Default)]
struct Member {
    /// Which sources are believed of packets that come in.
    sources: [Sources; 2],
    /// The port that its packets come and leave by: for a VLAN that below, else itself.
    device: usize,
    /// What the program knows of it.
    known: Option<KernelPort>,
    /// Where its steering program has transit go; `None`: nobody has told it.
    transit: Option<Transit>,
    /// Why it does not take part though its driver says `xdp`, as was reported last.
    reported: Option<String>,
    /// Whether its card would lose what some processors redirect to it.
    lacks_queues: bool,
    /// Packets that its driver had refused at the last look.
    refused: u64,
    /// Whether its driver has refused packets since something changed last.
    refuses: bool,
    /// Whether Linux may forward transit of it: nothing filters, and Linux forwards.
    linux_may: bool,
    /// Whether the graph believes no sources that Linux does not.
    judges_as_linux: bool,
    /// Whether its steering program leaves to Linux what has no checksum yet.
    leaves_unfinished: bool,
    /// How its packets travel, in words.
    path: String,
    /// What programs before this one have forwarded.
    before: KernelTraffic,
    /// Why it does not take part any more.
    refusal: Option<String>,
    /// Whether a capture needs its packets in the graph.
    is_captured: bool,
}

/// Forwarding in the kernel for a drop-in router.
pub(crate) struct InKernel {
    shared: Shared,
    /// Those of a graph of ours.
    features: Option<FeatureSettings>,
    /// Whether Linux may forward transit before the graph has seen it, where it forwards.
    linux_may: bool,
    /// What went wrong with the program, or that it cannot read the tables.
    refusal: Option<String>,
    names: Vec<String>,
    members: Vec<Member>,
    forwarding: Option<KernelForwarding>,
    /// Counts lost packets; `Some(None)` where the kernel does not let it.
    losses: Option<Option<LossCounter>>,
    /// The interfaces and ports of which losses are counted.
    counted: Vec<(u32, u16)>,
    region: Option<Arc<Region>>,
    own: Vec<IpAddr>,
    /// Whether somebody watches what the graph gets.
    is_watched: bool,
    looked: Option<Instant>,
    /// Whether there was room for the policy rules, and the kernel had all tables, at the last look.
    tables: (bool, bool),
    /// Hears of drivers that can more or less than before.
    changes: Option<XdpFeatureChanges>,
    samples: Samples,
}

/// What a look finds out about a port.
struct Found {
    interface: u32,
    mtu: u32,
    /// The longest packet of each family.
    longest: [u32; 2],
    /// How packets come; `None` for a port of another kind, or one that is not open yet.
    way: Option<XdpWay>,
    features: XdpFeatures,
}

impl InKernel {
    const KEY: &str = "forwarding in the kernel";

    /// That of a router with these ports; `features` are those of a graph of ours, `None` if it is somebody else's.
    /// `linux_may` says whether Linux may forward transit before the graph has seen it, where it forwards.
    pub(crate) fn new(
        ports: &[RouterPort],
        features: Option<&FeatureSettings>,
        linux_may: bool,
        shared: &Shared,
    ) -> Arc<Mutex<Self>> {
        let place = |name: &str| ports.iter().position(|port| port.name == name);
        let member = |(number, port): (usize, &RouterPort)| {
            let below = port.vlan.as_ref().and_then(|(below, _)| place(below));
            let lacks_queues = port.driver.is_xdp() && lacks_queues(&port.name);
            Member { device: below.unwrap_or(number), lacks_queues, ..Member::default() }
        };
        let new = || Self {
            shared: shared.clone(),
            features: features.cloned(),
            linux_may,
            refusal: None,
            names: ports.iter().map(|port| port.name.clone()).collect(),
            members: ports.iter().enumerate().map(member).collect(),
            forwarding: None,
            losses: None,
            counted: Vec::new(),
            region: None,
            own: Vec::new(),
            is_watched: false,
            looked: None,
            tables: (true, false),
            changes: XdpFeatureChanges::listen().ok(),
            samples: Samples::default(),
        };
        let made = shared.get_or_make(Self::KEY, || Ok::<_, std::convert::Infallible>(Mutex::new(new())));
        match made {
            Ok(made) => made,
            Err(never) => match never {},
        }
    }

    /// Returns that of the router whose elements share this, if it has one.
    pub(crate) fn of(shared: &Shared) -> Option<Arc<Mutex<Self>>> {
        shared.get::<Mutex<Self>>(Self::KEY)
    }

    /// Returns how the packets of a port travel; `None` for a port of another kind.
    pub(crate) fn path(&self, port: &str) -> Option<Path> {
        let number = self.names.iter().position(|name| name == port)?;
        let member = &self.members[number];
        let mut traffic = member.before + self.traffic(number);
        // Packets may be on their way through between the two looks.
        let losses = self.losses(number);
        traffic.tx_packets = traffic.tx_packets.saturating_sub(losses.total());
        Some(Path { text: member.path.clone(), traffic, losses })
    }

    /// Returns the paths of all ports, with their names.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&str, Path)> {
        self.names.iter().filter_map(|name| Some((name.as_str(), self.path(name)?)))
    }

    /// Returns what was lost on the way to a port.
    fn losses(&self, number: usize) -> KernelLosses {
        let counter = self.losses.as_ref().and_then(Option::as_ref);
        counter.and_then(|counter| counter.losses(number as u16).ok()).unwrap_or_default()
    }

    fn traffic(&self, number: usize) -> KernelTraffic {
        let traffic = self.forwarding.as_ref().and_then(|forwarding| forwarding.traffic(number as u16).ok());
        traffic.unwrap_or_default()
    }

    /// Says which addresses are the host's, with the broadcast addresses of its networks.
    pub(crate) fn set_own_addresses(&mut self, own: Vec<IpAddr>) {
        self.own = own;
        if let Some(forwarding) = &self.forwarding {
            forwarding.set_own_addresses(&self.own);
        }
    }

    /// Says what chooses among the paths of multipath routes.
    pub(super) fn follow_paths(&self) {
        let tables = self.shared.get::<ForwardingTables>(ForwardingTables::KEY);
        if let (Some(forwarding), Some(tables)) = (&self.forwarding, tables) {
            forwarding.set_path_policies(&tables.paths);
        }
    }

    /// Says of which ports packets are captured, which the graph then has to see, and whether somebody watches what it gets in any case.
    /// The next look brings it to the ports.
    pub(crate) fn set_captured(&mut self, is_captured: impl Fn(&str) -> bool, is_watched: bool) {
        self.is_watched = is_watched;
        for (name, member) in self.names.iter().zip(&mut self.members) {
            member.is_captured = is_captured(name);
        }
        self.looked = None;
    }

    /// Samples what the kernel forwards for a reader, until [`InKernel::end_samples`]. Returns the reader's number. The next look
    /// brings to the ports whether there are readers.
    pub(crate) fn begin_samples(&mut self, one_in: u32, bytes: usize) -> u64 {
        let number = self.samples.begin(one_in, bytes);
        self.follow_samples();
        self.looked = None;
        number
    }

    /// Returns the samples that there are, with the names of the ports that the packets came in by.
    pub(crate) fn take_samples(&mut self, number: u64) -> Vec<(String, KernelSample)> {
        self.read_samples();
        let samples = self.samples.take(number).into_iter();
        samples
            .filter_map(|sample| Some((self.names.get(usize::from(sample.input))?.clone(), sample)))
            .collect()
    }

    pub(crate) fn end_samples(&mut self, number: u64) {
        self.samples.end(number);
        self.follow_samples();
        self.looked = None;
    }

    /// Has the program draw as often as is wanted.
    fn follow_samples(&mut self) {
        let (one_in, bytes) = self.samples.wanted();
        if let Some(forwarding) = &self.forwarding {
            forwarding.set_sampling(one_in, bytes);
        }
    }

    fn read_samples(&mut self) {
        let Some(forwarding) = &mut self.forwarding else { return };
        forwarding.take_samples(SAMPLES, |mut sample| {
            let input = usize::from(sample.input);
            // The tag of a VLAN that is the port itself. In tc it lies beside the frame.
            if self.members.get(input).is_some_and(|member| member.device != input)
                && sample.data.get(12..14) == Some(&[0x81, 0])
                && sample.data.len() >= 16
            {
                sample.data.drain(12..16);
                sample.length -= 4;
            }
            self.samples.give(&sample);
        });
        if self.samples.pace(Instant::now()) {
            self.follow_samples();
        }
    }

    /// Looks which ports take part, at most once in a while unless something `changed`. Returns what went wrong.
    pub(crate) fn look(&mut self, ports: &[RouterPort], service: &Service, changed: bool) -> Vec<String> {
        let state = service.lock();
        // What takes the tables away from the kernel: many rules, and want of room.
        let tables = (has_room_for_rules(state.mirror.policy()), state.mirror.fib().is_shared_whole());
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= PERIOD);
        let features_changed = self.changes.as_ref().is_some_and(XdpFeatureChanges::take);
        if !changed && !is_due && !features_changed && self.tables == tables {
            return Vec::new();
        }
        let (links, has_rules) = (links_of(&state.mirror, ports), tables.0);
        for (number, known) in state.mirror.ports().enumerate().take(self.members.len()) {
            let (Some(features), Some(switches)) = (&self.features, known.switches) else { continue };
            self.members[number].sources = features.sources(switches.rp_filter);
            self.members[number].linux_may = self.linux_may && switches.forwards != [false; 2];
            // The graph may believe sources that Linux does not.
            let believes_all = self.members[number].sources[0] == Sources::All;
            self.members[number].judges_as_linux = switches.rp_filter == 0 || !believes_all;
        }
        if let Some(name) = state.mirror.fib().kinds().not_shared() {
            self.refusal = Some(format!("the kernel cannot read the table {name}"));
        }
        drop(state);
        (self.looked, self.tables) = (Some(Instant::now()), tables);
        let mut problems = Vec::new();
        let devices = self.members.iter().map(|member| &ports[member.device]);
        let mut found: Vec<Option<Found>> =
            devices.zip(links).map(|(device, link)| self.find(device, link)).collect();
        let graph_sees_all = match &self.features {
            None => Some("the graph is a configuration of your own"),
            Some(features) => features.sees_transit(&self.shared),
        };
        self.look_at_losses(changed || features_changed);
        let is_opening = |found: &Found| found.way.is_none();
        if found.iter().flatten().any(is_opening) {
            self.looked = None;
        }
        let mut reasons: Vec<Result<(), String>> = found
            .iter()
            .zip(&self.members)
            .map(|(found, member)| {
                let joins = self.may_join(member, &ports[member.device], found.as_ref(), has_rules);
                joins.and(graph_sees_all.map_or(Ok(()), |reason| Err(reason.to_owned())))
            })
            .collect();
        // Before the first packet, if it can be.
        if reasons.iter().any(|reason| reason.as_ref().err().is_none_or(|reason| reason == OPENING))
            && let Err(problem) = self.load(ports, service)
        {
            self.refusal = Some(problem.clone());
            reasons.iter_mut().for_each(|reason| *reason = reason.clone().and(Err(problem.clone())));
            problems.push(format!("packets are not forwarded in the kernel: {problem}"));
        }
        if self.forwarding.is_some() && self.losses.is_none() {
            let counter = LossCounter::load();
            problems.extend(
                counter
                    .as_ref()
                    .err()
                    .map(|error| format!("redirected packets that drivers lose are not counted: {error}")),
            );
            self.losses = Some(counter.ok());
        }
        self.forget_old(&found);
        for (number, port) in ports.iter().enumerate() {
            let device = &ports[self.members[number].device];
            let rest_is_linux = self.rest_is_linux(number, ports, &reasons);
            let settled =
                self.settle(number, device, &mut found[number], reasons[number].is_ok(), rest_is_linux);
            let interface = found[number].as_ref().map(|found| found.interface);
            // One that was gone a moment ago may be back by now.
            let is_gone = |error: &PortError| matches!(error, PortError::NoSuchInterface { .. });
            if settled.as_ref().is_err_and(|error| is_gone(error) || !exists(&device.name, interface)) {
                // It is looked at again until it is there, or Linux has told that it is not.
                self.members[number].path = GONE.to_owned();
                self.looked = None;
                continue;
            }
            if let Err(error) = settled {
                self.members[number].refusal = Some(error.to_string());
                problems.push(error.to_string());
            }
            self.members[number].path = self.describe(number, found[number].as_ref(), &reasons[number]);
            let reason = reasons[number].as_ref().err().filter(|reason| *reason != OPENING);
            if port.driver == Driver::Xdp && self.members[number].reported.as_ref() != reason {
                problems.push(match reason {
                    Some(reason) => {
                        format!("port {}: plain transit goes through the workers: {reason}", port.name)
                    }
                    None => format!("port {}: plain transit goes in the kernel", port.name),
                });
                self.members[number].reported = reason.cloned();
            }
        }
        let devices =
            (0..).zip(&self.members).filter(|(number, member)| member.device == usize::from(*number));
        let counted: Vec<(u32, u16)> =
            devices.filter_map(|(number, member)| Some((member.known?.interface, number))).collect();
        if counted != self.counted
            && let Some(counter) = self.losses.as_mut().and_then(Option::as_mut)
        {
            let set = counter.set_ports(counted.iter().copied());
            problems.extend(set.err().map(|error| format!("counting lost packets: {error}")));
            self.counted = counted;
        }
        problems
    }

    /// Looks whose driver has refused packets since the last look. Such a port sends nothing that is redirected until
    /// something `changed`: a link, or what a driver can do.
    fn look_at_losses(&mut self, changed: bool) {
        for number in 0..self.members.len() {
            let refused = self.losses(number).refused;
            let member = &mut self.members[number];
            member.refuses = !changed && (member.refuses || refused > member.refused);
            member.refused = refused;
        }
    }

    /// Has the program forget the ports that have another interface now: two may have exchanged theirs.
    fn forget_old(&mut self, found: &[Option<Found>]) {
        let Some(forwarding) = &mut self.forwarding else { return };
        for (number, (member, found)) in (0..).zip(self.members.iter_mut().zip(found)) {
            let now = found.as_ref().map(|found| found.interface);
            if member.known.take_if(|known| Some(known.interface) != now).is_some() {
                forwarding.clear_port(number);
            }
        }
    }

    /// Asks about a port with this device; `link` is the number of that one's interface, and the MTU of the port, also by family.
    fn find(&self, device: &RouterPort, link: Option<(u32, u32, [u32; 2])>) -> Option<Found> {
        let (interface, mtu, longest) = link?;
        if !device.driver.is_xdp() || device.device.is_some() {
            return None;
        }
        let way = way_of(&self.shared, device);
        let features = XdpFeatures::ask(interface).unwrap_or_default();
        Some(Found { interface, mtu, longest, way, features })
    }

    /// Returns why plain transit that comes in by a port must not be forwarded in the kernel, if so.
    fn may_join(
        &self,
        member: &Member,
        device: &RouterPort,
        found: Option<&Found>,
        has_rules: bool,
    ) -> Result<(), String> {
        if let Some(refusal) = member.refusal.as_ref().or(self.members[member.device].refusal.as_ref()) {
            return Err(refusal.clone());
        }
        let Some(Found { way, .. }) = found else {
            return Err("its packets come by no XDP program".to_owned());
        };
        if device.driver == Driver::AfXdp {
            return Err("driver = \"af_xdp\"".to_owned());
        }
        if is_wrapped(device) {
            return Err("its packets are captured, traced or delayed".to_owned());
        }
        if member.is_captured || self.members[member.device].is_captured {
            return Err("its packets are captured".to_owned());
        }
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if !has_rules {
            return Err(format!("more than {MOST_SHARED_RULES} policy rules"));
        }
        match way {
            None => Err(OPENING.to_owned()),
            Some(way) if way.is_zero_copy && device.driver == Driver::Auto => Err("zero-copy".to_owned()),
            Some(_) => Ok(()),
        }
    }

    /// Loads the program, or one with more room, until it has room for all tables.
    fn load(&mut self, ports: &[RouterPort], service: &Service) -> Result<(), String> {
        loop {
            let bytes = match &self.region {
                Some(_) if service.lock().mirror.fib().is_shared_whole() => return Ok(()),
                Some(region) if region.bytes() >= KernelForwarding::most_bytes() => return Ok(()),
                Some(region) => region.bytes() * 2,
                None => FIRST_BYTES,
            };
            self.load_with(bytes, ports, service)?;
        }
    }

    /// Loads the program with so much room, in the place of the one that there is, and lets it read the tables.
    fn load_with(&mut self, bytes: usize, ports: &[RouterPort], service: &Service) -> Result<(), String> {
        let is_listed = self.features.as_ref().is_some_and(FeatureSettings::lists_in_kernel);
        let mut forwarding = KernelForwarding::load(bytes, FlowKey::of_process(), is_listed)
            .map_err(|error| error.to_string())?;
        let region = Region::new(forwarding.take_tables().ok_or("its tables are taken")?);
        forwarding.set_own_addresses(&self.own);
        if let Some(tables) = self.shared.get::<ForwardingTables>(ForwardingTables::KEY) {
            forwarding.set_path_policies(&tables.paths);
        }
        let vlans: Vec<(u16, u16, u16)> = (0..)
            .zip(ports.iter().zip(&self.members))
            .filter_map(|(number, (port, member))| {
                let (_, vlan) = port.vlan.as_ref()?;
                (member.device != usize::from(number)).then_some((member.device as u16, *vlan, number))
            })
            .collect();
        for port in forwarding.set_vlans(&vlans) {
            let problem = "another VLAN has its place in the program".to_owned();
            self.members[usize::from(port)].refusal = Some(problem);
        }
        for (number, member) in (0..).zip(&self.members) {
            if let Some(known) = member.known {
                forwarding.set_port(number, known).map_err(|error| error.to_string())?;
            }
        }
        let mut problem = None;
        let exchange = || {
            for (number, port) in ports.iter().enumerate() {
                let rest_is_linux = match self.members[number].transit {
                    None | Some(Transit::Graph) => continue,
                    Some(transit) => transit == Transit::KernelThenLinux,
                };
                let joined = on_host(&self.shared, port, |host| {
                    host.forward_in_kernel(&mut forwarding, number as u16, rest_is_linux)
                });
                problem = problem.take().or(joined.err().map(|error| error.to_string()));
            }
            KernelForwarding::wait_for_programs();
        };
        let shared = service.lock().mirror.share_tables(Some((&region, KernelForwarding::slots())), exchange);
        shared.map_err(|error| error.to_string())?;
        // Until then it permits nothing where lists judge.
        if let Some(features) = &self.features {
            features.follow_in_kernel(&self.shared, &mut forwarding);
        }
        // Nobody counts or draws in the old program any more.
        self.read_samples();
        for number in 0..self.members.len() {
            self.members[number].before = self.members[number].before + self.traffic(number);
        }
        (self.forwarding, self.region) = (Some(forwarding), Some(region));
        self.follow_samples();
        problem.map_or(Ok(()), Err)
    }

    /// Returns whether Linux may have all that comes in by a device and is not forwarded in the kernel, of its VLANs too: nobody here has
    /// to see it, and Linux does the same with it. Martians are dropped before.
    fn rest_is_linux(&self, device: usize, ports: &[RouterPort], reasons: &[Result<(), String>]) -> bool {
        let mut of_device = self.members.iter().enumerate().filter(|(_, member)| member.device == device);
        // To a port that Linux sees as another interface it would send by that one, and past what wraps a port.
        let knows =
            |port: &RouterPort| port.host == Host::Interface && port.device.is_none() && !is_wrapped(port);
        let is_slow_path = self.features.as_ref().is_some_and(FeatureSettings::need_linux_to_forward);
        is_slow_path
            && !self.is_watched
            && ports.iter().all(knows)
            && of_device.all(|(number, member)| {
                let may = member.linux_may && member.judges_as_linux;
                may && !member.is_captured && reasons[number].is_ok()
            })
    }

    /// Brings a port with this device in line: what the program knows of it, and whether it gets its packets.
    fn settle(
        &mut self,
        number: usize,
        device: &RouterPort,
        found: &mut Option<Found>,
        joins: bool,
        rest_is_linux: bool,
    ) -> Result<(), PortError> {
        let way = found.as_ref().and_then(|found| found.way);
        // A card computes the checksums of packets that it receives. A veth or a virtual machine leaves that to the
        // interface by which they leave.
        let sees_transit = self.features.as_ref().and_then(|features| features.sees_transit(&self.shared));
        let leaves = self.members[number].linux_may
            && !self.members[number].is_captured
            // The program samples what it hands to Linux; the graph does not see that.
            && (joins || self.samples.wanted().0 == 0)
            && sees_transit.is_none()
            && way.is_some_and(|way| !way.is_zero_copy);
        let is_vlan = self.members[number].device != number;
        if !is_vlan && self.members[number].leaves_unfinished != leaves {
            on_host(&self.shared, device, |host| host.leave_unfinished_checksums(leaves))?;
            self.members[number].leaves_unfinished = leaves;
        }
        let Some(forwarding) = &mut self.forwarding else {
            if !is_vlan && self.members[number].transit.is_none() && way.is_some() {
                on_host(&self.shared, device, |host| host.forward_here())?;
                self.members[number].transit = Some(Transit::Graph);
            }
            return Ok(());
        };
        let failed = |source| PortError::System {
            port: device.name.clone(),
            action: "writing it to the program's map",
            source,
        };
        let mode = way.map(|way| way.mode);
        let below = &self.members[self.members[number].device];
        let is_captured = below.is_captured || self.members[number].is_captured;
        let wanted = found.as_ref().map(|found| KernelPort {
            interface: found.interface,
            mtu: found.mtu,
            longest: found.longest,
            is_vlan,
            receives: mode.filter(|_| joins),
            sends: !(is_wrapped(device) || is_captured),
            sends_native: found.features.sends_redirected() && !(below.lacks_queues || below.refuses),
            sends_native_fragments: found.features.has_fragments(),
            sources: self.members[number].sources,
            // As in the configuration, which has no more ports than there are paints.
            paint: (number + 1) as u8,
        });
        let member = &mut self.members[number];
        // It leaves by itself when its interface comes back under another number.
        let is_out = way.is_some_and(|way| !way.moves_in_kernel);
        member.transit = member.transit.filter(|transit| !is_out || *transit == Transit::Graph);
        if let Some(wanted) = wanted {
            if member.known != Some(wanted) {
                forwarding.set_port(number as u16, wanted).map_err(failed)?;
                member.known = Some(wanted);
            } else if wanted.sends {
                // If it is gone, the graph has its packets until the next look.
                let _ = forwarding.renew_way(number as u16, wanted.interface);
            }
        }
        if is_vlan {
            // Its packets come by the port below.
            return Ok(());
        }
        let wanted = match (joins, rest_is_linux) {
            (false, _) => Transit::Graph,
            (true, false) => Transit::Kernel,
            (true, true) => Transit::KernelThenLinux,
        };
        if member.transit == Some(wanted) {
            return Ok(());
        }
        on_host(&self.shared, device, |host| match wanted {
            Transit::Graph if way.is_none() => Ok(()),
            Transit::Graph => host.forward_here(),
            _ => host.forward_in_kernel(forwarding, number as u16, rest_is_linux),
        })?;
        member.transit = Some(wanted).filter(|_| way.is_some());
        if let Some(found) = found {
            found.way = way_of(&self.shared, device).or(found.way);
        }
        Ok(())
    }

    /// Says how the packets of a port travel.
    fn describe(&self, number: usize, found: Option<&Found>, reason: &Result<(), String>) -> String {
        if let Err(reason) = reason {
            return format!("workers: {reason}");
        }
        let way = found.and_then(|found| found.way);
        let below = &self.members[self.members[number].device];
        let is_deaf = self.members[number].known.is_some_and(|known| !known.sends_native);
        by_kernel(way, below.lacks_queues, below.refuses, is_deaf)
    }
}

/// Says how the packets of a port travel that the kernel forwards, and why workers send those to it, if they do.
pub(crate) fn by_kernel(way: Option<XdpWay>, lacks_queues: bool, refuses: bool, is_deaf: bool) -> String {
    let mode = way.map(|way| way.mode);
    let kernel = match mode {
        Some(XdpMode::Generic) if way.is_some_and(|way| way.is_in_tc) => "kernel (tc)",
        Some(XdpMode::Generic) => "kernel (generic XDP)",
        _ => "kernel",
    };
    let problem = if lacks_queues {
        "its card has fewer queues than there are processors"
    } else if refuses {
        "its driver has refused redirected packets"
    } else if is_deaf && mode == Some(XdpMode::Native) {
        "the driver sends nothing redirected now (a veth does with 'ethtool -K PEER gro on')"
    } else {
        return kernel.to_owned();
    };
    format!("{kernel}; packets to it by workers: {problem}")
}

/// Whether there is the interface of this number, or one of this name if the number is not known.
fn exists(name: &str, number: Option<u32>) -> bool {
    let links = Links::ask().unwrap_or_default();
    number.map_or(links.named(name).is_some(), |number| links.name(number).is_some())
}

/// Whether the program has room for all policy rules.
fn has_room_for_rules(policy: &Policy) -> bool {
    policy.ipv4.list().len().max(policy.ipv6.list().len()) <= MOST_SHARED_RULES
}

/// How packets come to a port; `None` if they do not by XDP, or it is not open yet.
fn way_of(shared: &Shared, device: &RouterPort) -> Option<XdpWay> {
    let mut way = None;
    let _ = on_host(shared, device, |host| {
        way = host.xdp();
        Ok(())
    });
    way
}

/// Whether a wrapper has to see the packets of a port.
fn is_wrapped(port: &RouterPort) -> bool {
    Spec::parse(&port.spec).is_ok_and(|spec| spec.is_wrapped())
}

/// The number and MTU of each port's interface, and the longest packet of each family.
fn links_of(mirror: &Mirror, ports: &[RouterPort]) -> Vec<Option<(u32, u32, [u32; 2])>> {
    let known = |name: &str| mirror.ports().find(|known| known.name == name);
    let of_port = |port: &RouterPort| {
        let own = known(&port.name)?;
        let mtu = own.link?.mtu;
        let device = port.vlan.as_ref().map_or(port.name.as_str(), |(below, _)| below.as_str());
        Some((known(device)?.link?.index, mtu, mtus_of(mtu, own.switches.as_ref())))
    };
    ports.iter().map(of_port).collect()
}

/// Does something with the steering of a port.
fn on_host(
    shared: &Shared,
    port: &RouterPort,
    act: impl FnOnce(&mut dyn HostSteering) -> Result<(), PortError>,
) -> Result<(), PortError> {
    shared.get::<OpenPort>(&OpenPort::key(&port.name)).map_or(Ok(()), |open| open.on_host(act))
}
