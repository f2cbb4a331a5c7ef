//! =c
//! CheckIP6Scope()
//!
//! =s ip6
//! keeps IPv6 packets on their link that must not leave it
//!
//! =d
//! Expects packets with the IPv6 header marked that are about to be forwarded to another link. RFC
//! 4291, 2.5.6: "Routers must not forward any packets with Link-Local source or destination
//! addresses to other links." Those packets leave by output 1 if that is connected (usually to an
//! ICMP6Error) and are dropped otherwise. The same happens to packets to groups, for which no route
//! exists, and to packets from :: (2.5.2). All others leave by output 0.
//!
//! Packets that the router itself sends to its neighbours must not come here.
//!
//! Drop reasons: scope is the link, no IPv6 header.
//!
//! =e
//!   rt[1] -> scope :: CheckIP6Scope -> DecIP6HLIM -> ...
//!   scope[1] -> ICMP6Error(2001:db8::1, unreachable, beyondscope) -> ...
//!
//! =a CheckIP6Header, ICMP6Error, DropBroadcasts

use elements::runs::{self, Step};
use graph::runs::Ordinary;
use graph::{Class, Combine, Context, Element, Get, Handler, Verdict};
use packet::{Batch, PlainIpv6Header};

pub(crate) static CLASS: Class = Class {
    name: "CheckIP6Scope",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[Handler::read(
        "drops",
        Combine::Sum,
        "Packets that may not leave their link so far.",
        &Get(|e: &mut CheckIp6Scope| e.drops.to_string()),
    )],
    manual: graph::manual!("check_ip6_scope.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(CheckIp6Scope { drops: 0 }))
    },
    ..Class::DEFAULT
};

struct CheckIp6Scope {
    drops: u64,
}

impl Element for CheckIp6Scope {
    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([Step::MayLeaveLink])
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            let header = packet.network().and_then(|bytes| PlainIpv6Header::at(bytes, 0));
            match header {
                Some(header) if header.may_leave_link() => Verdict::Keep,
                Some(_) => {
                    self.drops += 1;
                    Verdict::Divert(1, "scope is the link")
                }
                None => Verdict::Drop("no IPv6 header"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv6::{FAR, HOST, ipv6};

    #[test]
    fn by_both_addresses() {
        let config = "in :: TestInput -> MarkIP6Header -> e :: CheckIP6Scope -> out :: TestOutput;
            e[1] -> stays :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        let near = "fe80::1".parse().unwrap();
        let good = ipv6(HOST, FAR, 59, b"");
        let stays = [
            ipv6(near, FAR, 59, b""),
            ipv6(HOST, "febf::1".parse().unwrap(), 59, b""),
            ipv6(HOST, "ff0e::1".parse().unwrap(), 59, b""),
            ipv6("::".parse().unwrap(), FAR, 59, b""),
        ];
        bench.push("in", &[&stays[0], &stays[1], &good, &stays[2], &stays[3], b"short"]);
        assert_eq!(bench.taken("out"), [good]);
        assert_eq!(bench.taken("stays"), stays);
        assert_eq!((bench.read("e.drops"), bench.drops("e", "no IPv6 header")), ("4".into(), 1));
    }
}
