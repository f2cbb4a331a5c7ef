//! =c
//! SetPacketType(TYPE)
//!
//! =s annotations
//! sets how the link layer addressed packets
//!
//! =d
//! Sets the type of packets to TYPE: C<HOST>, C<BROADCAST>, C<MULTICAST>, C<OTHERHOST> or C<OUTGOING>. Click's other types
//! do not exist here.
//!
//! =a HostEtherFilter, DropBroadcasts

use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put};
use packet::{Batch, PacketType};

pub(crate) static CLASS: Class = Class {
    name: "SetPacketType",
    handlers: &[Handler::read_write(
        "type",
        Combine::First,
        "The TYPE argument.",
        &Get(|e: &mut SetPacketType| e.type_name()),
        &Put(|e: &mut SetPacketType, _, value| {
            e.packet_type = Named::from_value(value)?.0;
            Ok(())
        }),
    )],
    manual: graph::manual!("set_packet_type.rs"),
    make: |setup| {
        let Named(packet_type) = setup.arguments.required("TYPE")?;
        setup.arguments.finish()?;
        Ok(Box::new(SetPacketType { packet_type }))
    },
    ..Class::DEFAULT
};

const NAMES: [(&str, PacketType); 5] = [
    ("HOST", PacketType::Host),
    ("BROADCAST", PacketType::Broadcast),
    ("MULTICAST", PacketType::Multicast),
    ("OTHERHOST", PacketType::OtherHost),
    ("OUTGOING", PacketType::Outgoing),
];

struct Named(PacketType);

impl FromArgument for Named {
    const EXPECTED: &'static str = "HOST, BROADCAST, MULTICAST, OTHERHOST or OUTGOING";
    fn from_argument(text: &str) -> Option<Self> {
        let text = String::from_argument(text)?;
        NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text)).map(|(_, named)| Self(*named))
    }
}

struct SetPacketType {
    packet_type: PacketType,
}

impl SetPacketType {
    /// The name of the type.
    fn type_name(&self) -> String {
        let name = NAMES.iter().find(|(_, named)| *named == self.packet_type);
        name.map_or_else(String::new, |(name, _)| (*name).to_owned())
    }
}

impl Element for SetPacketType {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            packet.set_packet_type(self.packet_type);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn types_by_name() {
        let mut bench = Bench::element(&crate::registry(), "SetPacketType(HOST)", 1, 1);
        for (name, packet_type) in NAMES {
            bench.write("e.type", name).unwrap();
            bench.push("in0", &[b"x"]);
            assert_eq!(bench.taken_packets("out0")[0].packet_type(), packet_type);
            assert_eq!(bench.read("e.type"), name);
        }
        assert!(configure(&CLASS, "multicast").is_ok());
        assert!(configure(&CLASS, "LOOPBACK").unwrap_err()[0].contains("OTHERHOST or OUTGOING"));
    }
}
