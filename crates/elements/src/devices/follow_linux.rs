//! =c
//! FollowLinux(WHAT [PORT] TARGET ..., ...)
//!
//! =s devices
//! lists the elements that follow Linux's state of the ports
//!
//! =d
//! `brickway run` writes the addresses and MTUs of Linux's interfaces to handlers of the configuration's elements, before the first
//! packet and whenever they change. Each argument names WHAT is written, the PORT that it is of, and where to: TARGETs are
//! ELEMENT.HANDLER. It sees no packets. WHAT is one of
//!
//! =over 8
//!
//! =item ether
//! the port's link address.
//!
//! =item stations
//! the link addresses of interfaces above the port that Linux forwards from as from the port, such as VRRP's. There are none where the port has no
//! such line: Linux then forwards what is to them.
//!
//! =item mtu
//! the port's MTU, in bytes. A larger one is written in the order of the TARGETs, a smaller one in the reverse order.
//!
//! =item mtu4, mtu6
//! the same for one family: the longest packet that leaves by the port without Linux being asked. That
//! of IPv6 is Linux's C<net.ipv6.conf.*.mtu>, which router advertisements set as well. That of IPv4 is
//! the MTU, or with C<net.ipv4.ip_forward_use_pmtu> the least MTU of a path.
//!
//! =item forwarding
//! nothing is written, and there are no TARGETs. Families that Linux does not forward from the port are left
//! to Linux (C<net.ipv4.conf.*.forwarding>, C<net.ipv6.conf.all.forwarding>).
//!
//! =item rp_filter
//! for each port C<off>, C<host>, C<loose> or C<strict>, as Linux's C<rp_filter> and its routes to
//! itself have it (see CheckReversePath); it has no PORT. Without TARGETs, IPv4 from ports where it is not off is left to Linux.
//!
//! =item checked
//! 1 if Linux checks the IPv4 sources of packets that come in by the port, or 0: what checks them need not see others.
//!
//! =item own4
//! the IPv4 addresses of the host in the port's VRF, with the broadcast addresses of their networks.
//!
//! =item first4
//! an IPv4 address of each port, that of this port first.
//!
//! =item errors4, errors6
//! an address of each port, in the order of FIBLookup's ports; these have no PORT.
//!
//! =item ipsec
//! nothing, when Linux gets its first policy or association of IPsec, and when the last one is gone. IpsecPolicy, EspEncap and
//! EspDecap then work by Linux's policies and associations. It has no PORT.
//!
//! =back
//!
//! =e
//!   FromDevice(eth1) -> filter :: HostEtherFilter(2:0:0:0:0:1) -> ...
//!   FollowLinux(ether eth1 filter.ether);
//!
//! =a FIBLookup, HostEtherFilter, CheckLength, ICMPError

use graph::lang::{FlatConfig, split_arguments, split_words, unquote};
use graph::{Capability, Class, ConfigError, Element, Setup};

pub(super) static CLASS: Class = Class {
    name: "FollowLinux",
    ports: "0/0",
    capabilities: &[FOLLOWS, graph::KEEPS_ALL],
    manual: graph::manual!("follow_linux.rs"),
    make,
    ..Class::DEFAULT
};

/// The element says what follows Linux.
const FOLLOWS: Capability = Capability("says what follows Linux");

/// What of Linux elements follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The port's link address.
    Ether,
    /// The link addresses of interfaces above the port.
    Stations,
    /// The port's MTU.
    Mtu,
    /// The longest IPv4 packet that leaves by the port without Linux being asked.
    Mtu4,
    /// The port's MTU for IPv6.
    Mtu6,
    /// Whether Linux forwards what comes in by the port.
    Forwarding,
    /// Which IPv4 sources Linux believes, of each port.
    RpFilter,
    /// Whether Linux checks IPv4 sources of the port: 0 or 1.
    Checked,
    /// The host's IPv4 addresses in the port's VRF.
    Own4,
    /// An IPv4 address of each port, that of this port first.
    First4,
    /// An IPv4 address of each port.
    Errors4,
    /// An IPv6 address of each port.
    Errors6,
    /// Whether Linux has policies or associations of IPsec.
    Ipsec,
}

/// All of them, by their names.
const WORDS: [(&str, Followed); 13] = [
    ("ether", Followed::Ether),
    ("stations", Followed::Stations),
    ("mtu", Followed::Mtu),
    ("mtu4", Followed::Mtu4),
    ("mtu6", Followed::Mtu6),
    ("forwarding", Followed::Forwarding),
    ("rp_filter", Followed::RpFilter),
    ("checked", Followed::Checked),
    ("own4", Followed::Own4),
    ("first4", Followed::First4),
    ("errors4", Followed::Errors4),
    ("errors6", Followed::Errors6),
    ("ipsec", Followed::Ipsec),
];

impl Followed {
    /// Returns its name in a configuration.
    pub fn word(self) -> &'static str {
        WORDS.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }

    /// Whether it is of one port.
    pub fn is_of_port(self) -> bool {
        !matches!(self, Followed::Errors4 | Followed::Errors6 | Followed::Ipsec | Followed::RpFilter)
    }

    /// Whether it counts without a handler.
    fn counts_alone(self) -> bool {
        matches!(self, Followed::Forwarding | Followed::RpFilter)
    }
}

/// What follows Linux: an argument of FollowLinux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follows {
    /// What of Linux.
    pub what: Followed,
    /// The port that it is of; empty for what is of all ports.
    pub port: String,
    /// ELEMENT.HANDLER.
    pub targets: Vec<String>,
}

impl Follows {
    /// Returns what follows Linux in a configuration.
    pub fn of(config: &FlatConfig) -> Vec<Follows> {
        let all = config.elements.iter().filter(|element| element.has(FOLLOWS));
        let arguments = all.flat_map(|element| split_arguments(&element.config));
        // The element was made, so all its arguments can be read.
        arguments.filter_map(|argument| Follows::parse(&argument).ok()).collect()
    }

    fn parse(argument: &str) -> Result<Follows, String> {
        let mut words = split_words(argument).into_iter().map(|word| unquote(&word));
        let word = words.next().unwrap_or_default();
        let what = WORDS.iter().find(|(known, _)| *known == word).map(|(_, what)| *what);
        let what = what.ok_or_else(|| {
            let known: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
            format!("'{argument}' begins with '{word}'; expected one of {}", known.join(", "))
        })?;
        let port = if what.is_of_port() { words.next().unwrap_or_default() } else { String::new() };
        let targets: Vec<String> = words.collect();
        if targets.is_empty() && !what.counts_alone() || what.is_of_port() && port.is_empty() {
            let port = if what.is_of_port() { " PORT" } else { "" };
            return Err(format!("'{argument}' is not all; expected '{word}{port} ELEMENT.HANDLER ...'"));
        }
        Ok(Follows { what, port, targets })
    }
}

#[derive(Debug)]
struct FollowLinux;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = setup.arguments.rest();
    setup.arguments.finish()?;
    let mut errors = Vec::new();
    for argument in arguments {
        let follows = match Follows::parse(&argument) {
            Ok(follows) => follows,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        for target in &follows.targets {
            match target.rsplit_once('.') {
                None => errors.push(format!("'{target}' names no handler; expected ELEMENT.HANDLER")),
                Some((element, _)) if setup.find(element).is_none() => {
                    errors.push(format!("there is no element '{element}'"));
                }
                Some(_) => {}
            }
        }
    }
    if errors.is_empty() { Ok(Box::new(FollowLinux)) } else { Err(errors.into()) }
}

impl Element for FollowLinux {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use graph::testing::Bench;

    fn mistake(argument: &str) -> String {
        let config =
            format!("TestInput -> f :: HostEtherFilter(2:0:0:0:0:1) -> Discard; FollowLinux({argument});");
        let made = Bench::try_new(&registry(), &config, 32, &graph::setup::Shared::default());
        made.err().map_or(String::new(), |error| format!("{error:?}"))
    }

    #[test]
    fn arguments_are_checked() {
        assert_eq!(mistake("ether eth1 f.ether"), "");
        assert_eq!(mistake("forwarding eth1, rp_filter"), "");
        assert!(mistake("forwarding").contains("is not all"));
        assert!(mistake("colour eth1 f.ether").contains("expected one of ether, stations, mtu"));
        assert!(mistake("mtu eth1").contains("'mtu PORT ELEMENT.HANDLER ...'"));
        assert!(mistake("errors4 f").contains("names no handler"));
        assert!(mistake("ether eth1 g.ether").contains("there is no element 'g'"));
    }

    #[test]
    fn what_follows_is_read_from_a_configuration() {
        let config = "i :: Idle -> f :: HostEtherFilter(2:0:0:0:0:1) -> Discard;
            FollowLinux(ether eth1 f.ether, errors4 f.ether f.ether, mtu \"a,b 'c\" f.ether)";
        let mut bench = Bench::new(&registry(), config);
        let all = Follows::of(bench.graph().config());
        assert_eq!((all[0].what, all[0].port.as_str(), all[0].targets.len()), (Followed::Ether, "eth1", 1));
        assert_eq!((all[1].what, all[1].port.as_str(), all[1].targets.len()), (Followed::Errors4, "", 2));
        assert_eq!((all[2].what, all[2].port.as_str(), all[2].targets.len()), (Followed::Mtu, "a,b 'c", 1));
    }
}
