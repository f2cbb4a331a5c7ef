//! =c
//! FromDevice(DEVNAME, [PROMISC, SNAPLEN, I<keywords> BURST, STOP, SNIFFER])
//!
//! =s devices
//! receives packets from a port
//!
//! =d
//! Receives packets from the port DEVNAME and pushes them, Ethernet header first. DEVNAME is an interface of
//! Linux (`eth0`), or any port this program knows: `tap:brick0`, `pcap:in.pcap`, `memory:a` (see
//! `brickway run --help`); the command line may say what the name stands for (`--port eth0=...`).
//!
//! With several workers each receives from its own queue of the port. A worker for which the port has no
//! queue receives nothing.
//!
//! Arguments are:
//!
//! PROMISC: boolean. Whether to receive packets to other hosts too. False by default; true asks the port for
//! promiscuous mode.
//!
//! SNAPLEN: cut received packets to this many bytes. By default they are received whole.
//!
//! BURST: packets received at a time, 1 to 256. The router's burst by default.
//!
//! STOP: boolean. Whether the router stops when the port (a file) is at its end. False by default.
//!
//! SNIFFER: boolean. Must be true, which is the default: it never takes packets away from Linux, what the kernel
//! does with them is up to the driver.
//!
//! Losses that the driver reports are counted as drops of this element.
//!
//! =h count read-only
//! Packets received.
//!
//! =h byte_count read-only
//! Bytes received.
//!
//! =h kernel_drops read-only
//! Packets that the kernel had for us and lost because its ring was full.
//!
//! =h device read-only
//! The port: name, driver, link address, MTU, queues.
//!
//! =e
//!   FromDevice(eth0) -> Classifier(12/0800) -> ...
//!
//! =a ToDevice, FromDump, FromHost

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use graph::{Class, Combine, ConfigError, Context, Element, Handler, Setup, TaskStatus};
use packet::MAX_BATCH;
use ports::{Event, QueueStats, RxQueue};

use super::{Losses, OpenPort, Unopened};

pub(crate) static CLASS: Class = Class {
    name: "FromDevice",
    ports: "0/1",
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("from_device.rs"),
    make,
};

pub(super) fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let name: String = setup.arguments.required("DEVNAME")?;
    let promiscuous = setup.arguments.optional("PROMISC")?.unwrap_or(false);
    let snap_length = setup.arguments.optional("SNAPLEN")?.unwrap_or(usize::MAX);
    let burst: Option<usize> = setup.arguments.keyword("BURST")?;
    let stop = setup.arguments.keyword_or("STOP", false)?;
    let sniffer = setup.arguments.keyword_or("SNIFFER", true)?;
    setup.arguments.finish()?;
    if !sniffer {
        return Err(
            "SNIFFER: only true is supported; give the interface no addresses, and Linux leaves its \
            packets alone"
                .to_owned()
                .into(),
        );
    }
    if let Some(burst) = burst.filter(|burst| !(1..=MAX_BATCH).contains(burst)) {
        return Err(format!("BURST: expected 1 to {MAX_BATCH} packets, got {burst}").into());
    }
    if setup.is_check() {
        return Ok(Box::new(Unopened));
    }
    let port = OpenPort::of(setup, &name)?;
    if promiscuous {
        port.set_promiscuous()?;
    }
    let queue = port.take_rx(setup.copy().index)?;
    Ok(Box::new(FromDevice { promiscuous, snap_length, burst, stop, ..FromDevice::new(port, queue) }))
}

pub(super) struct FromDevice {
    port: Arc<OpenPort>,
    queue: Option<Box<dyn RxQueue>>,
    promiscuous: bool,
    snap_length: usize,
    burst: Option<usize>,
    stop: bool,
    losses: Losses,
}

impl FromDevice {
    pub(super) fn new(port: Arc<OpenPort>, queue: Option<Box<dyn RxQueue>>) -> Self {
        Self {
            port,
            queue,
            promiscuous: false,
            snap_length: usize::MAX,
            burst: None,
            stop: false,
            losses: Losses::default(),
        }
    }
}

/// Timer: the queue has a packet by its own clock.
const DUE_TIMER: u32 = 0;

impl Element for FromDevice {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if let Some(queue) = &mut self.queue {
            queue.prepare(cx.pool()).map_err(|error| error.to_string())?;
            cx.wake();
        }
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let Some(queue) = &mut self.queue else { return TaskStatus::Asleep };
        let max = self.burst.unwrap_or(cx.burst());
        let mut batch = cx.spare_batch();
        let count = queue.receive(cx.pool(), &mut batch, max);
        if self.snap_length != usize::MAX {
            batch.iter_mut().for_each(|packet| packet.truncate(self.snap_length));
        }
        cx.emit_batch(0, &mut batch);
        cx.recycle(batch);
        if count > 0 {
            return TaskStatus::Busy;
        }
        if queue.is_finished() {
            if self.stop {
                cx.stop();
            }
            return TaskStatus::Asleep;
        }
        // Others may come before the one that the queue knows of: the task stays awake, and the timer ends the
        // worker's sleep.
        if let Some(due) = queue.due_in_ns() {
            cx.set_timer(DUE_TIMER, cx.now_ns().saturating_add(due));
        }
        TaskStatus::Idle
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        cx.wake();
    }

    fn settle(&mut self, cx: &mut Context) {
        if let Some(queue) = &self.queue {
            self.losses.count(cx, &queue.stats());
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.as_ref()?.wait_fd()
    }

    fn handlers(&self) -> &'static [Handler] {
        const {
            &[
                Handler::read("count", Combine::Sum),
                Handler::read("byte_count", Combine::Sum),
                Handler::read("kernel_drops", Combine::Sum),
                Handler::read("device", Combine::First),
            ]
        }
    }

    fn read(&mut self, name: &str, _argument: &str) -> Result<String, String> {
        let stats = self.queue.as_ref().map_or(QueueStats::default(), |queue| queue.stats());
        Ok(match name {
            "count" => stats.packets.to_string(),
            "byte_count" => stats.bytes.to_string(),
            "kernel_drops" => stats.count(Event::RingFull).to_string(),
            _ => {
                let info = self.port.info();
                format!(
                    "{} driver {} address {} mtu {} queues {}/{} promiscuous {}",
                    info.name,
                    info.driver,
                    info.mac,
                    info.mtu,
                    info.rx_queues,
                    info.tx_queues,
                    self.promiscuous
                )
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use graph::setup::Shared;
    use graph::testing::{Bench, configure};
    use ports::MemoryLoop;

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "").unwrap_err()[0].contains("DEVNAME"));
        assert!(configure(&CLASS, "null:x, BURST 0").unwrap_err()[0].contains("1 to 256"));
        assert!(configure(&CLASS, "null:x, SNIFFER false").unwrap_err()[0].contains("only true"));
        assert!(configure(&CLASS, "null:x, METHOD PCAP").unwrap_err()[0].contains("'METHOD'"));
        let error = configure(&CLASS, "no-such-interface-0").unwrap_err();
        assert!(error[0].contains("no-such-interface-0"), "{error:?}");
    }

    #[test]
    fn what_a_port_loops_comes_in_and_goes_out() {
        let shared = Shared::default();
        let port = MemoryLoop::new(vec![vec![1; 60], vec![2; 60]]);
        shared.get_or_make::<_, ()>(&OpenPort::key("loop"), || Ok(OpenPort::new(Box::new(port)))).unwrap();
        let config = "from :: FromDevice(loop, BURST 4) -> to :: ToDevice(loop)";
        let mut bench = Bench::try_new(&registry(), config, 32, &shared).unwrap();
        bench.run(10);
        let received: u64 = bench.read("from.count").parse().unwrap();
        assert!(received >= 36, "{received}");
        let sent: u64 = bench.read("to.count").parse().unwrap();
        assert!(sent + 64 >= received, "{sent} of {received}");
        assert_eq!(bench.stats("from").packets, received);
    }

    #[test]
    fn a_delayed_packet_does_not_hold_up_the_receiving() {
        // Two packets on a slow line, the second while the first is still held back: it must be taken off the
        // cable at once, so that it is not late by the first one's delay too.
        let config = "in :: TestInput -> ToDevice(memory:slow);
            from :: FromDevice(memory:slow?end=1&delay=200ms&fault=rx) -> out :: TestOutput;";
        let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
        bench.push("in", &[&[1u8; 60][..]]);
        for _ in 0..10 {
            bench.graph().context().turn();
        }
        assert!(bench.graph().context().has_awake_tasks(), "it goes on looking while it holds a packet");
    }

    #[test]
    fn arguments_by_position_and_cut_packets() {
        let shared = Shared::default();
        let port = MemoryLoop::new(vec![vec![1; 60]]);
        shared.get_or_make::<_, ()>(&OpenPort::key("loop"), || Ok(OpenPort::new(Box::new(port)))).unwrap();
        let config = "FromDevice(loop, true, 20, BURST 1) -> out :: TestOutput";
        let mut bench = Bench::try_new(&registry(), config, 32, &shared).unwrap();
        bench.run(1);
        assert_eq!(bench.taken("out"), [[1; 20]]);
    }

    #[test]
    fn a_port_is_in_one_from_device_only() {
        let config = "FromDevice(null:x) -> ToDevice(null:y); FromDevice(null:x) -> ToDevice(null:z);";
        let error = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap_err();
        assert!(error.contains("one FromDevice only"), "{error}");
    }
}
