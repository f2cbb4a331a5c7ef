//! =c
//! LookupIPRoute(ADDR1/MASK1 [GW1] OUT1, ADDR2/MASK2 [GW2] OUT2, ... [, I<keywords> FILE, VIA])
//!
//! =s iproute
//! looks up the route of packets
//!
//! =d
//! The name of IP route lookup when the Click paper was written; it works as RadixIPLookup does. A route may also be written in the form of
//! that time, with the mask as a word of its own: ADDR MASK GW OUT, where the gateway 0.0.0.0 means none.
//!
//! Drop reasons: no route.
//!
//! =e
//!   rt :: LookupIPRoute(18.26.4.24 255.255.255.255 0.0.0.0 0, 18.26.4.0/24 1);
//!
//! =a RadixIPLookup, StaticIPLookup

use graph::{Alias, Class, ConfigError, Element, Setup};

use super::{ip_lookup, radix_ip_lookup};

pub(crate) static CLASS: Class = Class {
    name: "LookupIPRoute",
    aliases: &[Alias {
        name: "LookupIPRouteMP",
        difference: "In Click it is the one for several threads. Here every lookup is for several threads: \
                all workers share the tables, and none waits for another.",
    }],
    manual: graph::manual!("lookup_ip_route.rs"),
    make,
    ..radix_ip_lookup::CLASS
};

/// A route may be written with its mask as a word of its own.
pub(super) fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    setup.arguments.rewrite_positional(|route| {
        let words: Vec<&str> = route.split_whitespace().collect();
        match words[..] {
            [address, mask, "0.0.0.0", output] => Some(format!("{address}/{mask} {output}")),
            [address, mask, gateway, output] => Some(format!("{address}/{mask} {gateway} {output}")),
            _ => None,
        }
    });
    ip_lookup::make::<u32>(setup)
}

#[cfg(test)]
mod tests {
    use crate::registry;
    use graph::testing::Bench;

    #[test]
    fn routes_in_the_form_of_the_paper() {
        let text =
            "LookupIPRoute(1.0.0.1 255.255.255.255 0.0.0.0 0, 2.0.0.0 255.0.0.0 1.0.0.9 1, 3.0.0.0/8 0)";
        let mut bench = Bench::element(&registry(), text, 1, 2);
        assert_eq!(bench.read("e.lookup 1.0.0.1"), "0");
        assert_eq!(bench.read("e.lookup 2.3.4.5"), "1 1.0.0.9");
        assert_eq!(bench.read("e.lookup 3.3.4.5"), "0");
        assert_eq!(bench.read("e.lookup 4.0.0.0"), "-1");
    }
}
