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
//! =h table read-only
//! The entries, one a line: DSTIP, DSTETH, SRCIP, SRCETH.
//!
//! =h count read-only
//! The number of entries.
//!
//! =h capacity read-only
//! How many there is room for now.
//!
//! =h insert write-only
//! Adds the entry C<DSTIP DSTETH SRCIP SRCETH>.
//!
//! =h delete write-only
//! Takes that entry out.
//!
//! =h clear write-only
//! Takes all entries out.
//!
//! =e
//!   ARPAdvertiser(18.26.4.1, 0:e0:2b:b:1a:0, 18.26.4.99, 00:a0:c9:9c:fd:9c) -> ToDevice(eth0);
//!
//! =a ARPFaker, ARPResponder, ARPQuerier

use std::fmt;
use std::net::Ipv4Addr;

use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Handler, Setup};
use packet::wire::arp::ArpRepr;
use packet::wire::ethernet::MacAddr;

use super::arp_faker::{FIRST_NS, INTERVAL_NS, NO_FRAME};
use super::arp_frame;

pub(crate) static CLASS: Class = Class {
    name: "ARPAdvertiser",
    ports: "0/1",
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("arp_advertiser.rs"),
    make,
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

    fn handlers(&self) -> &'static [Handler] {
        const {
            &[
                Handler::read("table", Combine::First),
                Handler::read("count", Combine::First),
                Handler::read("capacity", Combine::First),
                Handler::write("insert"),
                Handler::write("delete"),
                Handler::write("clear"),
            ]
        }
    }

    fn read(&mut self, name: &str, _argument: &str) -> Result<String, String> {
        Ok(match name {
            "table" => self.table.iter().map(|entry| format!("{entry}\n")).collect(),
            "count" => self.table.len().to_string(),
            _ => self.table.capacity().to_string(),
        })
    }

    fn write(&mut self, _cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        if name == "clear" {
            self.table.clear();
            return Ok(());
        }
        let entry = Entry::from_value(value)?;
        let place = self.table.iter().position(|other| *other == entry);
        match (name, place) {
            ("insert", Some(_)) => return Err(format!("the entry '{entry}' is there already")),
            ("insert", None) => self.table.push(entry),
            (_, Some(place)) => {
                self.table.remove(place);
            }
            (_, None) => return Err(format!("no entry '{entry}'")),
        }
        Ok(())
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
