//! =c
//! FabricHost(FABRIC, PORT0, PORT1, ...)
//!
//! =s fabric
//! the cluster's ports as Linux has them on the leader
//!
//! =d
//! FABRIC names a Fabric element; the ports are this node's own, as for FromFabric. On the node
//! whose Linux is the cluster's host, every port of the cluster is a TAP device there. The control
//! plane sets these devices while the router runs. All other nodes have none.
//!
//! Takes whole Ethernet frames, painted with the number of the cluster's port that they came in by.
//! Gives them to Linux by the interface of that port. A frame that has lost its Ethernet header on
//! its way here has the destination 00:00:00:00:00:00. It gets the interface's own address as
//! destination, so that Linux takes it.
//!
//! ESP from EspReseal, and packets that IpsecPolicy punts to Linux, have a source address that
//! nobody else knows. By it Linux's packet filter distinguishes them from ESP that nobody has
//! checked, and leaves fragments as they are.
//!
//! Frames from Linux are painted with the number of their port. The outputs are:
//!
//! =item i
//! Ethernet frames that leave by PORTI<i>;
//!
//! =item n, the number of ports
//! frames that leave by ports of other nodes, with the fabric's header, for input 0 of ToFabric.
//!
//! =back
//!
//! It stands behind a Punt, on the slow thread. Frames are dropped as "not the leader" where there
//! are no ports, and as "no such port" where their port is not among them. They are also dropped
//! for the reasons that the TAP device has.
//!
//! =e
//!   from0[3], encap[1] => Punt -> host :: FabricHost(fabric, eth1, eth2);
//!   host[0] -> ToDevice(eth1);  host[1] -> ToDevice(eth2);  host[2] -> ToFabric(fabric) -> ...
//!
//! =a Fabric, FabricEncap, FromFabric, ToFabric

use std::fmt::Write;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fabric::{Header, Kind, Label};
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup, TaskStatus, Verdict};
use packet::Batch;

use super::adjacencies::FabricAdjacencies;
use super::host_ports::{FabricHostPorts, MOST_READY, Queues, Ready, Tap};
use super::node::Node;
use super::wire::{NO_ROOM, Wire};
use crate::ipsec::is_checked;

pub(super) static CLASS: Class = Class {
    name: "FabricHost",
    ports: "1/-",
    processing: Class::PUSH,
    handlers: &[Handler::read(
        "ports",
        Combine::First,
        "A line for each port: its number, interface, node, place among the ports of that node, frames to \
         Linux and from it.",
        &Get(|e: &mut FabricHost| e.ports_text()),
    )],
    manual: graph::manual!("fabric_host.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let node = Node::of_argument(setup)?;
    let names = setup.arguments.names();
    setup.arguments.finish()?;
    let (outputs, own) = (setup.outputs(), names.len());
    if outputs != own + 1 {
        let message =
            format!("{outputs} outputs; there is one for each of {own} ports, and one for ToFabric");
        return Err(ConfigError::new(message));
    }
    if setup.is_check() {
        return Ok(Box::new(super::Checked));
    }
    if setup.copy().count() > 1 && !setup.copy().is_slow() {
        return Err(ConfigError::new("FabricHost works on the slow thread only: put a Punt before it"));
    }
    // The place of a port in the list is the same for all elements.
    FabricAdjacencies::of_ports(setup, &names)?;
    let ports = setup.shared().get_or_make(FabricHostPorts::KEY, || {
        FabricHostPorts::new().map_err(|error| ConfigError::new(format!("cannot wait for the host: {error}")))
    })?;
    let mut host = FabricHost {
        wire: Wire::of(&node),
        taps: Box::new([const { None }; NUMBERS]),
        is_leader: false,
        version: 0,
        own: own as u16,
        ports,
        node,
    };
    host.learn();
    Ok(Box::new(host))
}

/// As many as a packet's paint has values.
const NUMBERS: usize = 256;

const NOT_LEADER: &str = "not the leader";
const NO_SUCH_PORT: &str = "no such port";

struct FabricHost {
    node: Arc<Node>,
    wire: Wire,
    ports: Arc<FabricHostPorts>,
    /// By the port's number.
    taps: Box<[Option<Tap>; NUMBERS]>,
    /// Whether there is any.
    is_leader: bool,
    /// Of the ports in `taps`.
    version: u64,
    /// How many ports of its own this node has.
    own: u16,
}

impl FabricHost {
    #[cold]
    fn learn(&mut self) {
        // Read first, so that a change meanwhile is found at the next look.
        self.version = self.ports.version();
        self.taps.fill(None);
        let taps = self.ports.taps();
        self.is_leader = !taps.is_empty();
        for tap in taps {
            let number = usize::from(tap.port.number);
            self.taps[number] = Some(tap);
        }
    }

    #[inline]
    fn look(&mut self) {
        if self.ports.version() != self.version {
            self.learn();
        }
    }

    /// Gives frames to Linux by the interface of port `number`.
    fn give(&self, cx: &mut Context, number: u8, frames: &mut Batch) {
        let Some(tap) = &self.taps[usize::from(number)] else {
            return cx.drop_batch(frames, if self.is_leader { NO_SUCH_PORT } else { NOT_LEADER });
        };
        let mut queues = tap.queues();
        let Some(Queues { to_linux, losses: [_, losses], .. }) = &mut *queues else {
            return cx.drop_batch(frames, NO_SUCH_PORT);
        };
        for frame in frames.iter_mut() {
            if is_checked(frame)
                && let Some(source) = frame.data_mut().get_mut(6..12)
            {
                source.copy_from_slice(&self.ports.checked_source());
            }
            if let Some(destination) = frame.data_mut().first_chunk_mut()
                && *destination == [0; 6]
            {
                *destination = tap.port.mac.0;
            }
        }
        to_linux.send(cx.pool(), frames);
        losses.count(cx, &to_linux.stats());
        cx.drop_batch(frames, "transmit queue full");
    }

    /// Takes up to `most` frames that Linux sends by a port, and sends them on; whether there were any.
    fn take(&self, cx: &mut Context, tap: &Tap, most: usize) -> bool {
        let mut frames = cx.spare_batch();
        if let Some(Queues { from_linux, losses: [losses, _], .. }) = &mut *tap.queues() {
            from_linux.receive(cx.pool(), &mut frames, most);
            losses.count(cx, &from_linux.stats());
        }
        let is_busy = !frames.is_empty();
        let (port, here) = (&tap.port, self.node.here);
        frames.iter_mut().for_each(|frame| frame.annotations_mut().set_paint(port.number));
        if port.node != here {
            let label = Label::new(port.place.into());
            cx.filter(&mut frames, |frame| {
                let Some(label) = label else { return Verdict::Drop(NO_SUCH_PORT) };
                let header = Header::new(Kind::FromHost, port.node, label, here, self.node.cluster);
                if self.wire.enclose(frame, &header, here) { Verdict::Keep } else { Verdict::Drop(NO_ROOM) }
            });
            cx.emit_batch(usize::from(self.own), &mut frames);
        } else if port.place < self.own {
            cx.emit_batch(usize::from(port.place), &mut frames);
        } else {
            cx.drop_batch(&mut frames, NO_SUCH_PORT);
        }
        cx.recycle(frames);
        is_busy
    }

    /// The handler `ports`.
    fn ports_text(&mut self) -> String {
        self.look();
        let mut text = String::new();
        for tap in self.taps.iter().flatten() {
            let port = &tap.port;
            let (to, from) = tap.queues().as_ref().map_or((0, 0), |queues| {
                (queues.to_linux.stats().packets, queues.from_linux.stats().packets)
            });
            let name = ports::twin_name(&port.name);
            // Writing to a string does not fail.
            let _ = writeln!(text, "{} {name} {} {} {to} {from}", port.number, port.node, port.place);
        }
        text
    }
}

impl Element for FabricHost {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        self.look();
        let mut frames = cx.spare_batch();
        while let Some(number) = batch.packets().first().map(|frame| frame.annotations().paint()) {
            let same = batch.iter().take_while(|frame| frame.annotations().paint() == number).count();
            batch.move_front(&mut frames, same);
            self.give(cx, number, &mut frames);
        }
        cx.recycle(frames);
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        self.look();
        if !self.is_leader {
            return TaskStatus::Idle;
        }
        let mut ready = [Ready::default(); MOST_READY];
        let count = self.ports.ready(&mut ready);
        let most = (cx.burst() / count.max(1)).max(1);
        let mut is_busy = false;
        for ready in &ready[..count] {
            match &self.taps[usize::from(ready.number)] {
                Some(tap) if ready.is_gone => self.ports.forget(tap),
                Some(tap) => is_busy |= self.take(cx, tap, most),
                // Opened just now: its frames wait until the new list is there.
                None => {}
            }
        }
        if is_busy { TaskStatus::Busy } else { TaskStatus::Idle }
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) -> bool {
        fds.push(self.ports.fd());
        true
    }
}
