//! =c
//! EtherSwitch([I<keyword> TIMEOUT])
//!
//! =s ethernet
//! a learning Ethernet switch
//!
//! =d
//! Has as many outputs as inputs; input and output of the same number are a link. It takes Ethernet packets and learns by which
//! input the packets of each address come. A packet to an address that it knows leaves by that output, and is dropped if that is
//! where it came from; any other leaves by all outputs but that of its own input.
//!
//! An address is forgotten TIMEOUT after its last packet (a time, a number alone is seconds, 300 s by default). With
//! a TIMEOUT of 0 it learns nothing and acts as a C<Hub>.
//!
//! Different from Click: each worker learns from the packets that it sees. It knows at most 16,384 addresses; when there are
//! more, it learns new ones as old ones are forgotten.
//!
//! Drop reasons: back to where it came from, no other port, truncated Ethernet header. Copies that are missing are counted as
//! "no frame for a copy".
//!
//! =e
//!   s :: EtherSwitch;
//!   FromDevice(eth0, PROMISC true) -> [0]s[0] -> ToDevice(eth0);
//!   FromDevice(eth1, PROMISC true) -> [1]s[1] -> ToDevice(eth1);
//!
//! =a ListenEtherSwitch, Hub
//!
//! =c
//! ListenEtherSwitch([I<keyword> TIMEOUT])
//!
//! =s ethernet
//! a learning Ethernet switch with a port to listen at
//!
//! =d
//! An C<EtherSwitch> with one output more than inputs. The last output gets a copy of each packet, also of those that go back to
//! where they came from, which leave by no other.
//!
//! =a EtherSwitch, Hub

use std::collections::HashMap;

use elements::ethernet::header::TRUNCATED;
use graph::arguments::Interval;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::wire::ethernet::{Ethernet, MacAddr};
use packet::{Batch, Packet};

use crate::switching::hub::flood_packet;

pub(crate) static CLASS: Class = Class {
    name: "EtherSwitch",
    ports: "-/=",
    processing: Class::PUSH,
    flow: "#/[^#]",
    handlers: &[
        Handler::read(
            "table",
            Combine::Join,
            "Addresses and the numbers of their links, one a line, as the worker knows them.",
            &Get(|e: &mut EtherSwitch| e.table_text()),
        ),
        Handler::read_write(
            "timeout",
            Combine::First,
            "The TIMEOUT argument, in seconds.",
            &Get(|e: &mut EtherSwitch| (e.timeout_ns as f64 / 1e9).to_string()),
            &Put(|e: &mut EtherSwitch, _, value| {
                e.timeout_ns = Interval::from_value(value)?.ns;
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("ether_switch.rs", "EtherSwitch"),
    make: |setup| make(setup, false),
    ..Class::DEFAULT
};

pub(crate) static LISTENING: Class = Class {
    name: "ListenEtherSwitch",
    ports: "-/=+",
    manual: graph::manual!("ether_switch.rs", "ListenEtherSwitch"),
    make: |setup| make(setup, true),
    ..CLASS
};

/// Makes the element; with `listens`, its last output gets a copy of each packet.
fn make(setup: &mut Setup<'_>, listens: bool) -> Result<Box<dyn Element>, ConfigError> {
    let timeout = setup.arguments.keyword_or("TIMEOUT", Interval { ns: 300_000_000_000 })?;
    setup.arguments.finish()?;
    let table = HashMap::with_capacity(MOST_ADDRESSES);
    Ok(Box::new(EtherSwitch { timeout_ns: timeout.ns, table, cleared_ns: 0, listens }))
}

/// Addresses that are known at once.
const MOST_ADDRESSES: usize = 16_384;
/// A full table is searched for what can be forgotten only so often.
const CLEARING_INTERVAL_NS: u64 = 1_000_000_000;

struct EtherSwitch {
    timeout_ns: u64,
    table: HashMap<MacAddr, Learnt>,
    /// When the full table was last searched.
    cleared_ns: u64,
    listens: bool,
}

#[derive(Clone, Copy)]
struct Learnt {
    port: usize,
    at_ns: u64,
}

impl EtherSwitch {
    fn learn(&mut self, address: MacAddr, port: usize, now: u64) {
        let learnt = Learnt { port, at_ns: now };
        if let Some(known) = self.table.get_mut(&address) {
            *known = learnt;
        } else if self.table.len() < MOST_ADDRESSES || self.forget(now) {
            self.table.insert(address, learnt);
        }
    }

    /// Forgets what is old; whether there is room then.
    #[cold]
    fn forget(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.cleared_ns) >= CLEARING_INTERVAL_NS {
            self.cleared_ns = now;
            let timeout = self.timeout_ns;
            self.table.retain(|_, learnt| now.saturating_sub(learnt.at_ns) < timeout);
        }
        self.table.len() < MOST_ADDRESSES
    }

    /// The link of an address, if it is known.
    fn find(&mut self, address: MacAddr, now: u64) -> Option<usize> {
        let learnt = *self.table.get(&address)?;
        if now.saturating_sub(learnt.at_ns) < self.timeout_ns {
            return Some(learnt.port);
        }
        self.table.remove(&address);
        None
    }

    fn forward(&mut self, cx: &mut Context, input: usize, packet: Packet) {
        let Ok(header) = Ethernet::new_checked(packet.data()) else {
            return cx.drop(packet, TRUNCATED);
        };
        let (destination, source) = (header.destination(), header.source());
        let mut output = None;
        if self.timeout_ns > 0 {
            let now = cx.now_ns();
            if !source.is_multicast() {
                self.learn(source, input, now);
            }
            if !destination.is_multicast() {
                output = self.find(destination, now);
            }
        }
        let listener = cx.outputs().wrapping_sub(1);
        match output {
            // The listener is one of those who get it.
            None => flood_packet(cx, input, packet),
            Some(output) if output == input && self.listens => cx.emit(listener, packet),
            Some(output) if output == input => cx.drop(packet, "back to where it came from"),
            Some(output) => {
                if self.listens {
                    match cx.copy(&packet) {
                        Some(copy) => cx.emit(listener, copy),
                        None => cx.count_drop("no frame for a copy", 1),
                    }
                }
                cx.emit(output, packet);
            }
        }
    }

    /// The addresses that are known and their links, in the order of the addresses.
    fn table_text(&self) -> String {
        let mut lines: Vec<_> = self.table.iter().map(|(address, learnt)| (*address, learnt.port)).collect();
        lines.sort_unstable();
        lines.iter().map(|(address, port)| format!("{address} {port}\n")).collect()
    }
}

impl Element for EtherSwitch {
    fn push(&mut self, cx: &mut Context, input: usize, batch: &mut Batch) {
        let mut packets = std::mem::replace(batch, cx.spare_batch());
        for packet in packets.drain() {
            self.forward(cx, input, packet);
        }
        cx.recycle(packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn frame(destination: u8, source: u8) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source][..], &[8, 0]].concat()
    }

    fn counts(bench: &mut Bench, outputs: usize) -> Vec<usize> {
        (0..outputs).map(|output| bench.taken(&format!("out{output}")).len()).collect()
    }

    #[test]
    fn it_learns() {
        let mut bench = Bench::element(&crate::registry(), "EtherSwitch", 3, 3);
        bench.push("in0", &[&frame(2, 1)]);
        assert_eq!(counts(&mut bench, 3), [0, 1, 1]);
        bench.push("in1", &[&frame(1, 2)]);
        assert_eq!(counts(&mut bench, 3), [1, 0, 0]);
        bench.push("in0", &[&frame(2, 1), &frame(1, 1), b"short"]);
        assert_eq!(counts(&mut bench, 3), [0, 1, 0]);
        assert_eq!(bench.drops("e", "back to where it came from"), 1);
        assert_eq!(bench.drops("e", TRUNCATED), 1);
        let mut broadcast = frame(0, 2);
        broadcast[..6].fill(0xff);
        bench.push("in2", &[&broadcast]);
        assert_eq!(counts(&mut bench, 3), [1, 1, 0]);
        // The address moved.
        assert_eq!(bench.read("e.table"), "02-00-00-00-00-01 0\n02-00-00-00-00-02 2\n");
    }

    #[test]
    fn it_forgets() {
        let mut bench = Bench::element(&crate::registry(), "EtherSwitch(TIMEOUT 10)", 3, 3);
        bench.push("in0", &[&frame(2, 1)]);
        bench.advance_ns(9_999_999_999);
        bench.push("in1", &[&frame(1, 2)]);
        bench.advance_ns(1);
        bench.push("in1", &[&frame(1, 2)]);
        assert_eq!(counts(&mut bench, 3), [2, 1, 2]);
        assert_eq!(bench.read("e.table"), "02-00-00-00-00-02 1\n");
        bench.write("e.timeout", "0").unwrap();
        bench.push("in0", &[&frame(2, 3)]);
        assert_eq!(counts(&mut bench, 3), [0, 1, 1]);
        assert_eq!(bench.read("e.timeout"), "0");
        assert!(configure(&CLASS, "TIMEOUT never").is_err());
    }

    #[test]
    fn a_full_table_makes_room_of_what_is_old() {
        let mut switch = EtherSwitch { timeout_ns: 10, table: HashMap::new(), cleared_ns: 0, listens: false };
        let address = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            MacAddr([2, 0, a, b, c, d])
        };
        let later = CLEARING_INTERVAL_NS;
        for number in 0..MOST_ADDRESSES as u32 {
            switch.learn(address(number), 0, later + u64::from(number % 2) * 5);
        }
        switch.learn(address(1 << 20), 1, later + 9);
        assert_eq!(switch.find(address(1 << 20), later + 9), None);
        switch.learn(address(1 << 20), 1, 2 * later + 10);
        assert_eq!(switch.find(address(1 << 20), 2 * later + 10), Some(1));
    }

    #[test]
    fn the_last_output_has_everything() {
        let mut bench = Bench::element(&crate::registry(), "ListenEtherSwitch", 2, 3);
        let frame = |destination: u8, source: u8| [2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 8, 0];
        bench.push("in0", &[&frame(2, 1)]);
        bench.push("in1", &[&frame(1, 2)]);
        bench.push("in1", &[&frame(2, 2)]);
        let counts = ["out0", "out1", "out2"].map(|output| bench.taken(output).len());
        assert_eq!(counts, [1, 1, 3]);
    }
}
