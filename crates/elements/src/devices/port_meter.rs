//! =c
//! PortMeter(PORT, DIRECTION)
//!
//! =s devices
//! counts packets of a port that has no queues
//!
//! =d
//! Packets pass unchanged, and count as those of PORT in C<brickway show ports>: DIRECTION is C<received> or C<sent>. A VLAN of
//! another port has no queues of its own, so nothing else counts for it. Bytes are those of Ethernet frames without a tag: a
//! tag of a sent frame is not counted.
//!
//! =e
//!   ... -> VLANDecap(false) -> PortMeter(eth1.100, received) -> ...
//!
//! =a FromDevice, ToDevice

use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, QueueCounts, Setup};
use packet::wire::ethernet::TAG_LEN;
use packet::{Batch, Packet};

use super::METER;

pub(super) static CLASS: Class = Class {
    name: "PortMeter",
    capabilities: &[METER, graph::KEEPS_ALL, graph::TAKES_MERGED],
    handlers: &[
        Handler::read(
            "count",
            Combine::Sum,
            "Packets so far.",
            &Get(|e: &mut PortMeter| e.counts.packets.to_string()),
        ),
        Handler::read(
            "byte_count",
            Combine::Sum,
            "Bytes so far.",
            &Get(|e: &mut PortMeter| e.counts.bytes.to_string()),
        ),
    ],
    manual: graph::manual!("port_meter.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let port: String = setup.arguments.required("PORT")?;
    let direction: String = setup.arguments.required("DIRECTION")?;
    setup.arguments.finish()?;
    let sends = match direction.as_str() {
        "received" => false,
        "sent" => true,
        other => return Err(format!("DIRECTION: expected received or sent, got '{other}'").into()),
    };
    Ok(Box::new(PortMeter { counts: QueueCounts { port, sends, ..QueueCounts::default() } }))
}

struct PortMeter {
    counts: QueueCounts,
}

impl Element for PortMeter {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        let counted = |packet: &Packet| (packet.pieces(), packet.bytes_in_pieces());
        let (packets, bytes) =
            batch.packets().iter().map(counted).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let tags = if self.counts.sends { packets * TAG_LEN as u64 } else { 0 };
        self.counts.packets += packets;
        self.counts.bytes += bytes.saturating_sub(tags);
    }

    fn queues(&self) -> Vec<QueueCounts> {
        vec![self.counts.clone()]
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    use super::*;

    #[test]
    fn packets_and_bytes_are_those_of_the_port() {
        let counted = |direction: &str| {
            let mut bench =
                Bench::element(&crate::registry(), &format!("PortMeter(eth1.7, {direction})"), 1, 1);
            bench.push("in0", &[&[0; 64], &[0; 100]]);
            assert_eq!(bench.taken("out0").len(), 2);
            let queues = bench.stats("e").queues;
            let [counts] = &queues[..] else { panic!("{queues:?}") };
            assert_eq!((counts.port.as_str(), counts.queue, counts.packets), ("eth1.7", None, 2));
            (counts.sends, counts.bytes)
        };
        assert_eq!((counted("received"), counted("sent")), ((false, 164), (true, 156)));
        let mistake = configure(&CLASS, "eth1, up").err();
        assert!(format!("{mistake:?}").contains("expected received or sent, got 'up'"), "{mistake:?}");
    }
}
