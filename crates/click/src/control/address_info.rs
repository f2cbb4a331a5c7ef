//! =c
//! AddressInfo(NAME ADDRESS..., ...)
//!
//! =s control
//! gives names to addresses
//!
//! =d
//! Each argument is a name and its meanings: IPv4 and IPv6 addresses, with a prefix length also the
//! network, and Ethernet addresses. All elements in the same compound element, and in those within
//! it, may then use the name in their arguments where they want an address. The kind of the address
//! that is wanted selects the meaning. C<NAME:ip>, C<NAME:ipnet>, C<NAME:ip6>, C<NAME:ip6net> and
//! C<NAME:eth> select it explicitly. A name nearer by hides one further outside. Handlers do not
//! know these names.
//!
//! Interfaces of this host need no AddressInfo. These stand for the address that the interface has
//! when the router starts: C<eth0:ip>, C<eth0:ipnet>, C<eth0:ip6>, C<eth0:eth>, and C<eth0:gw> (the
//! gateway of its default route). C<eth0> alone does so too where it is plain which kind is wanted.
//! An AddressInfo may give them another name: C<AddressInfo(uplink eth0:ip eth0:eth)>.
//!
//! =e
//!   AddressInfo(server 192.0.2.1/24 02:00:00:00:00:01, all 0.0.0.0/0);
//!   ... -> ARPResponder(server) -> ...; ... -> IPFilter(allow dst host server) -> ...
//!
//! =a PortInfo

use graph::lang::{split_arguments, split_words, unquote};
use graph::{Class, ConfigError, Element, Setup, names};
use ipnet::IpNet;
use packet::wire::ethernet::MacAddr;
use std::net::IpAddr;

pub(crate) static CLASS: Class = Class {
    name: "AddressInfo",
    ports: "0/0",
    manual: graph::manual!("address_info.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let mut problems = Vec::new();
    // A name in capitals is not a keyword here.
    for argument in split_arguments(setup.config()) {
        let words: Vec<String> = split_words(&argument).iter().map(|word| unquote(word)).collect();
        if words.len() < 2 {
            problems.push(format!("expected 'NAME ADDRESS...', got '{argument}'"));
        }
        let is_mask = |word: &str| {
            word.split_once('/').is_some_and(|(address, mask)| {
                address.parse::<IpAddr>().is_ok() && mask.parse::<IpAddr>().is_ok()
            })
        };
        let is_address = |word: &str| {
            word.parse::<IpAddr>().is_ok()
                || word.parse::<IpNet>().is_ok()
                || word.parse::<MacAddr>().is_ok()
                || is_mask(word)
                || names::is_interface(word)
        };
        let wrong = words.iter().skip(1).filter(|word| !is_address(word));
        problems.extend(wrong.map(|word| format!("'{word}' is not an IP, IPv6 or Ethernet address")));
    }
    if problems.is_empty() { Ok(Box::new(AddressInfo)) } else { Err(problems.into()) }
}

struct AddressInfo;

impl Element for AddressInfo {}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn names_stand_for_addresses() {
        let mut bench = Bench::new(
            &crate::registry(),
            "AddressInfo(me 10.0.0.1/24 02:00:00:00:00:01, you 10.0.0.2, UNUSED_NET 10.9.0.0/16);
             in0 :: TestInput -> EtherEncap(0x0800, me, me:eth) -> out0 :: TestOutput;
             in1 :: TestInput -> MarkIPHeader -> f :: IPFilter(allow src host you && dst net me, drop all) -> out1 :: TestOutput;
             i :: Idle -> rt :: StaticIPLookup(me 0, 0.0.0.0/0 you 1); rt[0] -> d :: Discard; rt[1] -> d",
        );
        bench.push("in0", &[b"x"]);
        assert_eq!(bench.taken("out0")[0][..14], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 8, 0]);
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 99]);
        bench.push("in1", &[&packet]);
        assert_eq!(bench.taken("out1").len(), 1);
        assert!(bench.read("rt.table").contains("10.0.0.2"));
    }

    #[test]
    fn mistakes() {
        let error = configure(&CLASS, "a, b 10.0.0.1 nonsense").unwrap_err();
        assert_eq!(
            error,
            ["expected 'NAME ADDRESS...', got 'a'", "'nonsense' is not an IP, IPv6 or Ethernet address"]
        );
    }
}
