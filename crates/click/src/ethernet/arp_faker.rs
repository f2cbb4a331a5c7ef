//! =c
//! ARPFaker(IP1, ETH1, IP2, ETH2)
//!
//! =s arp
//! sends an ARP reply every ten seconds
//!
//! =d
//! Every ten seconds, first after one second, sends an ARP reply to IP1 at ETH1 with the false binding of IP2 to
//! ETH2. On a router of several workers only the first one does.
//!
//! =e
//!   ARPFaker(18.26.4.1, 0:e0:2b:b:1a:0, 18.26.4.99, 00:a0:c9:9c:fd:9c) -> ToDevice(eth0);
//!
//! =a ARPAdvertiser, ARPResponder, ARPQuerier

use std::net::Ipv4Addr;

use graph::{Class, Context, Element};
use packet::wire::arp::ArpRepr;
use packet::wire::ethernet::MacAddr;

use super::arp_frame::{self, FRAME_LEN};

pub(crate) static CLASS: Class = Class {
    name: "ARPFaker",
    ports: "0/1",
    processing: Class::PUSH,
    manual: graph::manual!("arp_faker.rs"),
    make: |setup| {
        let ip1: Ipv4Addr = setup.arguments.required("IP1")?;
        let eth1: MacAddr = setup.arguments.required("ETH1")?;
        let ip2: Ipv4Addr = setup.arguments.required("IP2")?;
        let eth2: MacAddr = setup.arguments.required("ETH2")?;
        setup.arguments.finish()?;
        let reply = ArpRepr::request(eth1, ip1, ip2).reply(eth2);
        Ok(Box::new(ArpFaker { frame: arp_frame::build(&reply, eth1) }))
    },
    ..Class::DEFAULT
};

/// When the first reply is sent.
pub(super) const FIRST_NS: u64 = 1_000_000_000;
/// Time between two replies.
pub(super) const INTERVAL_NS: u64 = 10_000_000_000;
/// Why there is none.
pub(super) const NO_FRAME: &str = "no frame for an ARP reply";

struct ArpFaker {
    frame: [u8; FRAME_LEN],
}

impl Element for ArpFaker {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if cx.copy_index() == 0 {
            cx.set_timer(0, cx.now_ns() + FIRST_NS);
        }
        Ok(())
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        let reply = cx.allocate().and_then(|mut packet| packet.set_data(&self.frame).then_some(packet));
        match reply {
            Some(packet) => cx.emit(0, packet),
            None => cx.count_drop(NO_FRAME, 1),
        }
        cx.set_timer(0, cx.now_ns() + INTERVAL_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::super::arp_frame::tests::REPLY;
    use graph::testing::Bench;

    #[test]
    fn a_reply_every_ten_seconds() {
        let text = "ARPFaker(192.0.2.1, 2:0:0:0:0:a, 192.0.2.2, 2:0:0:0:0:b)";
        let mut bench = Bench::element(&crate::registry(), text, 0, 1);
        bench.advance_ns(999_999_999);
        assert!(bench.taken("out0").is_empty());
        bench.advance_ns(1);
        assert_eq!(bench.taken("out0"), [REPLY]);
        bench.advance_ns(20_000_000_000);
        assert_eq!(bench.taken("out0").len(), 2);
    }
}
