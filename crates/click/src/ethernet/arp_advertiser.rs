//! =c
//! ARPAdvertiser([DSTIP, DSTETH, SRCIP, SRCETH, I<keyword> CAPACITY])
//!
//! =s arp
//! sends ARP replies of a table every ten seconds
//!
//! =d
//! Every ten seconds, first after one second, sends an ARP reply for each entry of its table: to DSTIP at DSTETH, that SRCIP is at
//! SRCETH. The arguments, if given, are its first entry; handlers change the table. CAPACITY (10 by default) is how many entries
//! it has room for at first. On a router of several workers only the first one sends.
//!
//! =e
//!   ARPAdvertiser(18.26.4.1, 0:e0:2b:b:1a:0, 18.26.4.99, 00:a0:c9:9c:fd:9c) -> ToDevice(eth0);
//!
//! =a ARPFaker, ARPResponder, ARPQuerier

use std::fmt;
use std::net::Ipv4Addr;

use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::wire::arp::ArpRepr;
use packet::wire::ethernet::MacAddr;

use super::arp_faker::{FIRST_NS, INTERVAL_NS, NO_FRAME};
use super::arp_frame;

pub(crate) static CLASS: Class = Class {
    name: "ARPAdvertiser",
    ports: "0/1",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "table",
            Combine::First,
            "The entries, one a line: DSTIP, DSTETH, SRCIP, SRCETH.",
            &Get(|e: &mut ArpAdvertiser| e.table.iter().map(|entry| format!("{entry}\n")).collect()),
        ),
        Handler::read(
            "count",
            Combine::First,
            "The number of entries.",
            &Get(|e: &mut ArpAdvertiser| e.table.len().to_string()),
        ),
        Handler::read(
            "capacity",
            Combine::First,
            "How many there is room for now.",
            &Get(|e: &mut ArpAdvertiser| e.table.capacity().to_string()),
        ),
        Handler::write(
            "insert",
            "Adds the entry DSTIP DSTETH SRCIP SRCETH.",
            &Put(|e: &mut ArpAdvertiser, _, value| e.insert(value)),
        ),
        Handler::write(
            "delete",
            "Takes that entry out.",
            &Put(|e: &mut ArpAdvertiser, _, value| e.delete(value)),
        ),
        Handler::write(
            "clear",
            "Takes all entries out.",
            &Put(|e: &mut ArpAdvertiser, _, _| {
                e.table.clear();
                Ok(())
            }),
        ),
    ],
    manual: graph::manual!("arp_advertiser.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let to_ip = setup.arguments.optional("DSTIP")?;
    let to = setup.arguments.optional("DSTETH")?;
    let ip = setup.arguments.optional("SRCIP")?;
    let mac = setup.arguments.optional("SRCETH")?;
    let capacity: u16 = setup.arguments.keyword_or("CAPACITY", 10)?;
    setup.arguments.finish()?;
    if capacity == 0 {
        return Err("CAPACITY: expected at least 1 entry, got 0".to_owned().into());
    }
    let mut table = Vec::with_capacity(usize::from(capacity));
    match (to_ip, to, ip, mac) {
        (Some(to_ip), Some(to), Some(ip), Some(mac)) => table.push(Entry { to_ip, to, ip, mac }),
        (None, None, None, None) => {}
        _ => return Err(ConfigError::new("give all of DSTIP, DSTETH, SRCIP and SRCETH, or none")),
    }
    Ok(Box::new(ArpAdvertiser { table }))
}

/// That `ip` is at `mac`, told to `to_ip` at `to`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    to_ip: Ipv4Addr,
    to: MacAddr,
    ip: Ipv4Addr,
    mac: MacAddr,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.to_ip, self.to, self.ip, self.mac)
    }
}

impl FromArgument for Entry {
    const EXPECTED: &'static str = "DSTIP DSTETH SRCIP SRCETH";
    fn from_argument(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let entry = Self {
            to_ip: Ipv4Addr::from_argument(words.next()?)?,
            to: MacAddr::from_argument(words.next()?)?,
            ip: Ipv4Addr::from_argument(words.next()?)?,
            mac: MacAddr::from_argument(words.next()?)?,
        };
        words.next().is_none().then_some(entry)
    }
}

struct ArpAdvertiser {
    table: Vec<Entry>,
}

impl ArpAdvertiser {
    /// Adds an entry that is not there yet.
    fn insert(&mut self, value: &str) -> Result<(), String> {
        let entry = Entry::from_value(value)?;
        if self.table.contains(&entry) {
            return Err(format!("the entry '{entry}' is there already"));
        }
        self.table.push(entry);
        Ok(())
    }

    /// Takes an entry out.
    fn delete(&mut self, value: &str) -> Result<(), String> {
        let entry = Entry::from_value(value)?;
        let place = self.table.iter().position(|other| *other == entry);
        self.table.remove(place.ok_or_else(|| format!("no entry '{entry}'"))?);
        Ok(())
    }
}

impl Element for ArpAdvertiser {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if cx.copy_index() == 0 {
            cx.set_timer(0, cx.now_ns() + FIRST_NS);
        }
        Ok(())
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        for Entry { to_ip, to, ip, mac } in &self.table {
            let frame = arp_frame::build(&ArpRepr::request(*to, *to_ip, *ip).reply(*mac), *to);
            let reply = cx.allocate().and_then(|mut packet| packet.set_data(&frame).then_some(packet));
            match reply {
                Some(packet) => cx.emit(0, packet),
                None => cx.count_drop(NO_FRAME, 1),
            }
        }
        cx.set_timer(0, cx.now_ns() + INTERVAL_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::super::arp_frame::tests::REPLY;
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn a_reply_for_each_entry() {
        let text = "ARPAdvertiser(192.0.2.1, 2:0:0:0:0:a, 192.0.2.2, 2:0:0:0:0:b)";
        let mut bench = Bench::element(&crate::registry(), text, 0, 1);
        bench.advance_ns(1_000_000_000);
        assert_eq!(bench.taken("out0"), [REPLY]);
        bench.write("e.insert", "192.0.2.1 2:0:0:0:0:a 192.0.2.3 2:0:0:0:0:c").unwrap();
        assert!(bench.write("e.insert", "192.0.2.1 2:0:0:0:0:a 192.0.2.3 2:0:0:0:0:c").is_err());
        bench.advance_ns(10_000_000_000);
        assert_eq!(bench.taken("out0").len(), 2);
        bench.write("e.delete", "192.0.2.1 2:0:0:0:0:a 192.0.2.2 2:0:0:0:0:b").unwrap();
        assert_eq!(bench.read("e.table"), "192.0.2.1 02-00-00-00-00-0A 192.0.2.3 02-00-00-00-00-0C\n");
        assert!(bench.write("e.delete", "192.0.2.1 2:0:0:0:0:a 192.0.2.2 2:0:0:0:0:b").is_err());
        bench.write("e.clear", "").unwrap();
        assert_eq!((bench.read("e.count"), bench.read("e.capacity")), ("0".into(), "10".into()));
        bench.advance_ns(10_000_000_000);
        assert_eq!(bench.taken("out0").len(), 0);
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "").is_ok());
        assert!(configure(&CLASS, "192.0.2.1, 2:0:0:0:0:a").unwrap_err()[0].contains("or none"));
        assert!(configure(&CLASS, "CAPACITY 0").is_err());
        assert!(Entry::from_argument("192.0.2.1 2:0:0:0:0:a 192.0.2.3 2:0:0:0:0:c x").is_none());
    }
}
