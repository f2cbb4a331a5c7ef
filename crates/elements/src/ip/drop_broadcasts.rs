//! =c
//! DropBroadcasts()
//!
//! =s ip
//! drops link-level broadcasts and multicasts
//!
//! =d
//! Packets that the link layer delivered as broadcast or multicast leave by output 1 if that is
//! connected and are dropped otherwise. A message reports the first. RFC 1812, 5.3.4: "A router
//! MUST NOT forward any packet that the router received as a Link Layer broadcast", unless it is an
//! IP multicast.
//!
//! It looks at the packet type, which the element that received the packet set (FromDevice, HostEtherFilter).
//!
//! Drop reasons: link-level broadcast.
//!
//! =a FromDevice, HostEtherFilter

use graph::runs::Ordinary;
use graph::{Class, Combine, Context, Element, Get, Handler, Verdict};
use packet::{Batch, PacketType};

use crate::runs::{self, Step};

pub(crate) static CLASS: Class = Class {
    name: "DropBroadcasts",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[Handler::read(
        "drops",
        Combine::Sum,
        "Broadcasts seen so far.",
        &Get(|e: &mut DropBroadcasts| e.drops.to_string()),
    )],
    manual: graph::manual!("drop_broadcasts.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(DropBroadcasts { name: setup.name().to_owned(), drops: 0 }))
    },
    ..Class::DEFAULT
};

struct DropBroadcasts {
    name: String,
    drops: u64,
}

impl Element for DropBroadcasts {
    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([Step::NotBroadcast])
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let before = batch.len();
        cx.filter(batch, |packet| match packet.packet_type() {
            PacketType::Broadcast | PacketType::Multicast => Verdict::Divert(1, "link-level broadcast"),
            _ => Verdict::Keep,
        });
        let removed = (before - batch.len()) as u64;
        if removed > 0 {
            if self.drops == 0 {
                cx.message(&format!("{}: dropped a packet", self.name));
            }
            self.drops += removed;
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use packet::PacketType;

    #[test]
    fn by_packet_type() {
        for outputs in [1, 2] {
            let mut bench = Bench::element(&crate::registry(), "DropBroadcasts", 1, outputs);
            let types = [
                PacketType::Host,
                PacketType::Broadcast,
                PacketType::Multicast,
                PacketType::OtherHost,
                PacketType::Outgoing,
            ];
            let packets = types.map(|packet_type| {
                let mut packet = bench.packet(&[packet_type as u8]);
                packet.set_packet_type(packet_type);
                packet
            });
            bench.push_packets("in0", packets.into());
            assert_eq!(bench.taken("out0"), [[0], [3], [4]]);
            assert_eq!(bench.read("e.drops"), "2");
            if outputs == 2 {
                assert_eq!(bench.taken("out1"), [[1], [2]]);
            } else {
                assert_eq!(bench.drops("e", "link-level broadcast"), 2);
            }
            assert_eq!(bench.messages().len(), 1);
        }
    }
}
