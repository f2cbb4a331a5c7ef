//! Names that a configuration gives to addresses and ports (`AddressInfo`, `PortInfo`), for the arguments of its elements.
//!
//! An argument is read by its type alone ([`FromArgument`](crate::FromArgument)), in the depths of an element's own little
//! languages too. So while an element is made ([`within`]) this thread knows whose arguments are read, and a text that is not an
//! address may be the name of one. Handlers are written when nothing is made: there names mean nothing.
//!
//! A name that no configuration gives may be that of a network interface of this host, which has addresses too. This crate
//! does not ask the kernel: a crate that can ask registers itself ([`set_interfaces`]).

use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, OnceLock};

use ipnet::{Ipv4Net, Ipv6Net};
use packet::wire::ethernet::MacAddr;

use crate::lang::{FlatConfig, FlatElement, split_arguments, split_words, unquote};

/// The class that names addresses.
const ADDRESS_INFO: &str = "AddressInfo";
/// The class that names ports.
const PORT_INFO: &str = "PortInfo";

/// The names that an element of a configuration gives to something.
pub(crate) fn given(element: &FlatElement) -> Vec<String> {
    if ![ADDRESS_INFO, PORT_INFO].contains(&element.class.as_str()) {
        return Vec::new();
    }
    let arguments = split_arguments(&element.config);
    let named = arguments.iter().flat_map(|argument| names_and_meanings(&element.class, argument).0);
    named.map(|word| unquote(&word)).collect()
}

/// The names in an argument, and what they stand for. For ports that is the form of services(5): `NAME PORT[/PROTOCOL] [ALIAS...]`,
/// with a comment behind `#`.
fn names_and_meanings(class: &str, argument: &str) -> (Vec<String>, Vec<String>) {
    let words = split_words(argument);
    let is_meaning = |(number, word): &(usize, String)| match class {
        PORT_INFO => *number > 0 && word.starts_with(|c: char| c.is_ascii_digit()),
        _ => *number > 0,
    };
    let told = words.into_iter().take_while(|word| class != PORT_INFO || !word.starts_with('#'));
    let (meanings, names): (Vec<_>, Vec<_>) = told.enumerate().partition(is_meaning);
    let words = |numbered: Vec<(usize, String)>| numbered.into_iter().map(|(_, word)| word).collect();
    (words(names), words(meanings))
}

thread_local! {
    static MAKING: RefCell<Option<(Arc<FlatConfig>, String)>> = const { RefCell::new(None) };
}

/// Has names be those that `element` of `config` knows while `make` runs.
pub(crate) fn within<R>(config: &Arc<FlatConfig>, element: &str, make: impl FnOnce() -> R) -> R {
    let before = MAKING.replace(Some((config.clone(), element.to_owned())));
    let made = make();
    MAKING.set(before);
    made
}

/// The addresses of a network interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceAddresses {
    /// Its IPv4 address and network.
    pub ip: Option<Ipv4Net>,
    /// Its IPv6 address and network.
    pub ip6: Option<Ipv6Net>,
    /// Its Ethernet address.
    pub ether: Option<MacAddr>,
    /// The gateway of the default route over it.
    pub gateway: Option<Ipv4Addr>,
}

/// Finds the addresses of an interface by its name.
type Interfaces = fn(&str) -> Option<InterfaceAddresses>;

static INTERFACES: OnceLock<Interfaces> = OnceLock::new();

/// Says who knows the interfaces of this host.
pub fn set_interfaces(lookup: Interfaces) {
    // The first one is as good as any other.
    let _ = INTERFACES.set(lookup);
}

/// Whether `text` names an interface of this host, with what is wanted of it or without.
pub fn is_interface(text: &str) -> bool {
    interface(text.rsplit_once(':').map_or(text, |(name, _)| name), Some).is_some()
}

/// What the interface called `name` has, while an element is made.
fn interface<R>(name: &str, pick: impl FnOnce(InterfaceAddresses) -> Option<R>) -> Option<R> {
    let is_making = MAKING.with_borrow(Option::is_some);
    INTERFACES.get().filter(|_| is_making).and_then(|lookup| pick(lookup(name)?))
}

/// What follows `name` in the configuration of the nearest element of `class` that gives it a meaning, in this compound
/// element or around it, as far as `fits` takes it.
fn meaning<R>(class: &str, name: &str, mut fits: impl FnMut(&str) -> Option<R>) -> Option<R> {
    MAKING.with_borrow(|making| {
        let (config, user) = making.as_ref()?;
        let givers = || config.elements.iter().filter(|element| element.class == class);
        let mut scope = user.as_str();
        loop {
            scope = scope.rsplit_once('/').map_or("", |(outer, _)| outer);
            let here =
                givers().filter(|giver| giver.name.rsplit_once('/').map_or("", |(outer, _)| outer) == scope);
            for argument in here.flat_map(|giver| split_arguments(&giver.config)) {
                let (names, meanings) = names_and_meanings(class, &argument);
                if names.iter().any(|known| unquote(known) == name)
                    && let Some(found) = meanings.iter().find_map(|word| fits(&unquote(word)))
                {
                    return Some(found);
                }
            }
            if scope.is_empty() {
                return None;
            }
        }
    })
}

/// The name in `text`, which may say with a suffix which of its meanings is wanted.
fn of_kind<'t>(text: &'t str, suffixes: &[&str]) -> Option<&'t str> {
    match text.rsplit_once(':') {
        Some((name, suffix)) => suffixes.contains(&suffix).then_some(name),
        None => Some(text),
    }
}

/// The IPv4 address called `text`; with `:bcast` its network's broadcast address, with `:gw` the gateway of an interface.
pub fn address(text: &str) -> Option<Ipv4Addr> {
    if let Some(name) = text.strip_suffix(":bcast") {
        return network(name).map(|network| network.broadcast());
    }
    if let Some(name) = text.strip_suffix(":gw") {
        return interface(name, |interface| interface.gateway);
    }
    let name = of_kind(text, &["ip", "ip4"])?;
    let of_interface =
        |word: &str| interface(of_kind(word, &["ip", "ip4"])?, |interface| Some(interface.ip?.addr()));
    meaning(ADDRESS_INFO, name, |word| word.split('/').next()?.parse().ok().or_else(|| of_interface(word)))
        .or_else(|| of_interface(name))
}

/// The IPv4 prefix called `text`; an address with a prefix length names its network too.
pub fn network(text: &str) -> Option<Ipv4Net> {
    let name = of_kind(text, &["ipnet", "ip4net"])?;
    meaning(ADDRESS_INFO, name, |word| {
        let (address, mask) = word.split_once('/')?;
        let address: Ipv4Addr = address.parse().ok()?;
        let by_length = mask.parse().ok().and_then(|length| Ipv4Net::new(address, length).ok());
        by_length
            .or_else(|| Ipv4Net::with_netmask(address, mask.parse().ok()?).ok())
            .map(|network| network.trunc())
    })
    .or_else(|| interface(name, |interface| Some(interface.ip?.trunc())))
}

/// The IPv6 address called `text`.
pub fn address_6(text: &str) -> Option<Ipv6Addr> {
    let name = of_kind(text, &["ip6"])?;
    let of_interface =
        |word: &str| interface(of_kind(word, &["ip6"])?, |interface| Some(interface.ip6?.addr()));
    meaning(ADDRESS_INFO, name, |word| word.split('/').next()?.parse().ok().or_else(|| of_interface(word)))
        .or_else(|| of_interface(name))
}

/// The IPv6 prefix called `text`.
pub fn network_6(text: &str) -> Option<Ipv6Net> {
    let name = of_kind(text, &["ip6net"])?;
    meaning(ADDRESS_INFO, name, |word| if word.contains('/') { word.parse().ok() } else { None })
        .or_else(|| interface(name, |interface| Some(interface.ip6?.trunc())))
}

/// What says that a name stands for an Ethernet address.
const ETHER_SUFFIXES: &[&str] = &["eth", "ether", "ethernet"];

/// The Ethernet address called `text`.
pub fn ether(text: &str) -> Option<MacAddr> {
    let name = of_kind(text, ETHER_SUFFIXES)?;
    let of_interface = |word: &str| interface(of_kind(word, ETHER_SUFFIXES)?, |interface| interface.ether);
    meaning(ADDRESS_INFO, name, |word| word.parse().ok().or_else(|| of_interface(word)))
        .or_else(|| of_interface(name))
}

/// The port of `protocol` (`tcp` or `udp`) called `name`.
pub fn port(name: &str, protocol: &str) -> Option<u16> {
    meaning(PORT_INFO, name, |word| match word.split_once('/') {
        Some((number, of)) => (of == protocol).then(|| number.parse().ok())?,
        None => word.parse().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Class, Element};
    use crate::graph::Registry;
    use crate::lang::{Options, Source, compile};

    struct Nothing;
    impl Element for Nothing {}

    const fn class(name: &'static str) -> Class {
        Class { name, ports: "0/0", make: |_| Ok(Box::new(Nothing)), ..Class::DEFAULT }
    }

    static ADDRESSES: Class = class(ADDRESS_INFO);
    static PORTS: Class = class(PORT_INFO);
    static USER: Class = class("User");

    #[test]
    fn names_mean_what_is_nearest_and_fits() {
        let mut registry = Registry::new();
        registry.add(&[&ADDRESSES, &PORTS, &USER]);
        let text = "AddressInfo(a 10.0.0.1/24 02:00:00:00:00:01 2001:db8::1/64, b 10.0.0.2);
            PortInfo(web 80/tcp, dns 53);
            elementclass C { AddressInfo(b 10.0.9.9); u :: User; }; c :: C; u :: User";
        let source = Source { name: "test.click".into(), text: text.into() };
        let config = Arc::new(compile(&source, &Options::default(), &registry).0.unwrap());
        within(&config, "u", || {
            assert_eq!(address("a").unwrap().to_string(), "10.0.0.1");
            assert_eq!(address("a:ip").unwrap().to_string(), "10.0.0.1");
            assert_eq!(network("a").unwrap().to_string(), "10.0.0.0/24");
            assert_eq!(address("a:bcast").unwrap().to_string(), "10.0.0.255");
            assert_eq!(
                ether("a:eth").unwrap().to_string().to_lowercase().replace('-', ":"),
                "02:00:00:00:00:01"
            );
            assert_eq!(
                (address_6("a").unwrap().to_string(), network_6("a").is_some()),
                ("2001:db8::1".into(), true)
            );
            assert_eq!((address("b").unwrap().to_string(), network("b")), ("10.0.0.2".into(), None));
            assert_eq!((address("c"), address("a:eth")), (None, None));
            assert_eq!(
                (port("web", "tcp"), port("web", "udp"), port("dns", "udp")),
                (Some(80), None, Some(53))
            );
        });
        within(&config, "c/u", || {
            assert_eq!(address("b").unwrap().to_string(), "10.0.9.9");
            assert_eq!(address("a").unwrap().to_string(), "10.0.0.1");
        });
        assert_eq!(address("a"), None);
    }
}
