//! =c
//! ARPTable(I<keywords> CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, TIMEOUT)
//!
//! =s arp
//! a table of neighbours for several ARPQueriers
//!
//! =d
//! Has the Ethernet addresses that belong to IP addresses. It has no ports. ARPQueriers with this
//! element as TABLE look addresses up in it and learn into it. Every worker uses the same table.
//!
//! Keyword arguments are as in ARPQuerier:
//!
//! =over 8
//!
//! =item CAPACITY
//!
//! Most packets that wait, in all ARPQueriers of this table together; 0 sets no limit. 2048 by default.
//!
//! =item ENTRY_CAPACITY
//!
//! Most addresses in the table; 0 sets no limit. 65536 by default.
//!
//! =item ENTRY_PACKET_CAPACITY
//!
//! Most packets that wait for one address, in each ARPQuerier on each worker; 0 sets no limit, and the default.
//!
//! =item TIMEOUT
//!
//! How long an address is known after its last answer; 0 is for ever. 5 minutes by default.
//!
//! =back
//!
//! Different from Click: ENTRY_CAPACITY has a limit by default, and there is no
//! CAPACITY_SLIM_FACTOR. C<clear> leaves packets that wait where they are, and queries for them are
//! sent again.
//!
//! =e
//!   table :: ARPTable;
//!   q0 :: ARPQuerier(10.0.0.1, 02:00:00:00:00:01, TABLE table);
//!   q1 :: ARPQuerier(10.0.0.2, 02:00:00:00:00:02, TABLE table);
//!
//! =a ARPQuerier

use std::any::Any;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use graph::{
    Arguments, Ask, Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup,
};
use packet::wire::ethernet::MacAddr;

use super::neighbour_table::NeighbourTable;
use super::querier::{Options, SECOND_NS};

pub(crate) static CLASS: Class = Class {
    name: "ARPTable",
    ports: "0/0",
    handlers: &[
        Handler::read(
            "table",
            Combine::First,
            "The table: IP address, 1 if it is resolved, else 0, Ethernet address, seconds since the last \
             answer.",
            &Ask(|e: &mut ArpTable, cx, _| Ok(e.table.text(cx.now_ns()))),
        ),
        Handler::read(
            "drops",
            Combine::First,
            "Packets that ARPQueriers of this table dropped.",
            &Get(|e: &mut ArpTable| e.table.drops.load(Relaxed).to_string()),
        ),
        Handler::read(
            "count",
            Combine::First,
            "Number of addresses in the table.",
            &Get(|e: &mut ArpTable| e.table.count().to_string()),
        ),
        Handler::read(
            "length",
            Combine::First,
            "Number of packets that wait.",
            &Get(|e: &mut ArpTable| e.table.waiting.load(Relaxed).to_string()),
        ),
        Handler::write(
            "insert",
            "Takes IP ETH into the table, as if it had answered.",
            &Put(|e: &mut ArpTable, cx, value| {
                let (address, mac) = host(value)?;
                e.table.insert(address, mac, cx.now_ns());
                Ok(())
            }),
        ),
        Handler::write(
            "delete",
            "Takes an IP address out of the table.",
            &Put(|e: &mut ArpTable, _, value| {
                e.table.delete(Ipv4Addr::from_value(value)?.to_bits());
                Ok(())
            }),
        ),
        Handler::write(
            "clear",
            "Empties the table and sets the counters to zero.",
            &Put(|e: &mut ArpTable, _, _| {
                e.table.clear();
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("arp_table.rs"),
    make,
    ..Class::DEFAULT
};

/// Default of TIMEOUT, in seconds.
const TIMEOUT_S: u64 = 300;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let options = Options::of_table(&mut setup.arguments, TIMEOUT_S)?;
    setup.arguments.finish()?;
    let table = setup.shared_by_copies(|| Ok::<_, ConfigError>(options.table()))?;
    Ok(Box::new(ArpTable { table }))
}

/// The table of the ARPTable that another element calls `name`, and what its arguments say.
pub(super) fn find(
    setup: &Setup<'_>,
    name: &str,
) -> Result<(Arc<NeighbourTable<u32>>, Options), ConfigError> {
    let element = setup.find(name).ok_or_else(|| format!("TABLE: no element named '{name}'"))?;
    if element.class != CLASS.name {
        return Err(format!("TABLE: '{name}' is a {}, expected an ARPTable", element.class).into());
    }
    // It may not have been made yet. Its own mistakes are told where it is.
    let options = Options::of_table(&mut Arguments::new(&element.config), TIMEOUT_S)
        .map_err(|_| ConfigError::new(format!("TABLE: '{name}' has mistakes in its arguments")))?;
    let key = format!("element:{}", element.name);
    let table = setup.shared().get_or_make(&key, || Ok::<_, ConfigError>(options.table()))?;
    Ok((table, options))
}

struct ArpTable {
    table: Arc<NeighbourTable<u32>>,
}

impl Element for ArpTable {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        self.timer(cx, 0);
        Ok(())
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        self.table.expire(cx.now_ns());
        cx.set_timer(0, cx.now_ns() + SECOND_NS);
    }

    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(self.table.clone()))
    }

    fn inherit(&mut self, _cx: &mut Context, left: Box<dyn Any + Send>) {
        if let Ok(left) = left.downcast::<Arc<NeighbourTable<u32>>>() {
            self.table.take_from(&left);
        }
    }
}

/// Reads `IP ETH`, the addresses of one host.
fn host(value: &str) -> Result<(u32, MacAddr), String> {
    let words: Vec<&str> = value.split_whitespace().collect();
    let &[ip, mac] = &words[..] else {
        return Err(format!("expected IP address and Ethernet address, got '{value}'"));
    };
    let (address, mac) = (Ipv4Addr::from_value(ip)?, MacAddr::from_value(mac)?);
    if mac.is_broadcast() || address.is_unspecified() {
        return Err(format!("expected the addresses of one host, got '{value}'"));
    }
    Ok((address.to_bits(), mac))
}

#[cfg(test)]
mod tests {
    use graph::setup::Shared;
    use graph::testing::Bench;

    const TWO: &str = "q0 :: ARPQuerier(10.0.0.1, 2:0:0:0:0:1, TABLE t);
        q1 :: ARPQuerier(10.0.0.2, 2:0:0:0:0:2, TABLE t, POLL_TIMEOUT 0); t :: ARPTable(ENTRY_CAPACITY 2);
        in0 :: TestInput -> SetIPAddress(10.0.0.9) -> [0]q0 -> out0 :: TestOutput; Idle -> [1]q0;
        in1 :: TestInput -> SetIPAddress(10.0.0.9) -> [0]q1 -> out1 :: TestOutput; Idle -> [1]q1;";

    #[test]
    fn queriers_share_what_they_know() {
        let mut bench = Bench::new(&crate::registry(), TWO);
        bench.push("in0", &[b"a"]);
        assert_eq!(bench.taken("out0")[0][12..14], [8, 6], "a query");
        assert_eq!((bench.read("t.count"), bench.read("t.length")), ("1".into(), "1".into()));
        bench.write("t.insert", "10.0.0.9 2:0:0:0:0:9").unwrap();
        bench.push("in1", &[b"b"]);
        assert_eq!(bench.taken("out1"), [b"\x02\0\0\0\0\x09\x02\0\0\0\0\x02\x08\0b"]);
        bench.advance_ns(2_000_000);
        assert_eq!(bench.taken("out0"), [b"\x02\0\0\0\0\x09\x02\0\0\0\0\x01\x08\0a"]);
        assert_eq!(bench.read("t.table"), "10.0.0.9 1 02-00-00-00-00-09 0.002000\n");
        bench.write("t.insert", "10.0.0.10 2:0:0:0:0:a").unwrap();
        bench.write("t.insert", "10.0.0.11 2:0:0:0:0:b").unwrap();
        assert_eq!(bench.read("q0.count"), "2");
        bench.write("t.delete", "10.0.0.11").unwrap();
        assert_eq!(bench.read("t.count"), "1");
        bench.write("t.clear", "").unwrap();
        assert_eq!((bench.read("t.count"), bench.read("t.drops")), ("0".into(), "0".into()));
        assert!(bench.write("t.insert", "10.0.0.10").unwrap_err().contains("IP address and Ethernet"));
    }

    #[test]
    fn mistakes() {
        let error = |table: &str| {
            let config = TWO.replace("t :: ARPTable(ENTRY_CAPACITY 2)", table);
            Bench::try_new(&crate::registry(), &config, 32, &Shared::default()).unwrap_err()
        };
        assert!(error("AddressInfo").contains("TABLE: no element named 't'"));
        assert!(error("t :: AddressInfo").contains("TABLE: 't' is a AddressInfo, expected an ARPTable"));
        assert!(error("t :: ARPTable(CAPACITY x)").contains("CAPACITY: expected"));
    }
}
