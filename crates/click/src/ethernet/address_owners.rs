//! Which Ethernet address is answered for which IP addresses: the element behind `ARPResponder` and `IP6NDAdvertiser`, its
//! arguments, table and handlers.

use std::fmt::Write;
use std::marker::PhantomData;
use std::net::IpAddr;

use graph::{
    Ask, Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, Verdict,
    names,
};
use ipnet::IpNet;
use packet::wire::ethernet::MacAddr;
use packet::{Batch, Packet};

/// A protocol that asks for Ethernet addresses.
pub(super) trait Answer: Send + 'static {
    /// A network of its addresses.
    type Network: FromArgument + Into<IpNet>;
    /// What the handlers `lookup`, `add` and `remove` are.
    const DOCS: [&'static str; 3];

    /// Turns a request into its answer; the error is the reason why there is none.
    fn answer(owners: &AddressOwners, packet: &mut Packet) -> Result<(), &'static str>;
}

/// The element that answers requests of a protocol.
pub(super) struct Responder<A> {
    owners: AddressOwners,
    protocol: PhantomData<A>,
}

impl<A: Answer> Responder<A> {
    /// A class of this element, without a name and a manual.
    pub(super) const CLASS: Class = Class {
        ports: "1/1-2",
        processing: Class::AGNOSTIC_WITH_ERRORS,
        handlers: &[
            Handler::read(
                "table",
                Combine::First,
                "Networks and Ethernet addresses, longest network first.",
                &Get(|e: &mut Self| e.owners.text()),
            ),
            Handler::read(
                "lookup",
                Combine::First,
                A::DOCS[0],
                &Ask(|e: &mut Self, _, argument| e.owners.lookup(argument)),
            ),
            Handler::write("add", A::DOCS[1], &Put(|e: &mut Self, _, value| e.owners.add(value).map(drop))),
            Handler::write("remove", A::DOCS[2], &Put(|e: &mut Self, _, value| e.owners.remove(value))),
        ],
        make: |setup| {
            let owners = AddressOwners::read::<A::Network>(setup)?;
            Ok(Box::new(Self { owners, protocol: PhantomData }))
        },
        ..Class::DEFAULT
    };
}

impl<A: Answer> Element for Responder<A> {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match A::answer(&self.owners, packet) {
            Ok(()) => Verdict::Keep,
            Err(reason) => Verdict::Divert(1, reason),
        });
    }
}

/// A network and who answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) network: IpNet,
    pub(super) mac: MacAddr,
}

/// The table, for addresses of one family.
pub(super) struct AddressOwners {
    /// Longest network first, so that the first one that holds an address is the right one.
    entries: Vec<Entry>,
    /// Reads a network of the family.
    network: fn(&str) -> Option<IpNet>,
}

impl AddressOwners {
    /// Reads the arguments, each `NETWORK [NETWORK...] ETH`, where `N` is what a network is.
    pub(super) fn read<N: FromArgument + Into<IpNet>>(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let network = |text: &str| N::from_argument(text).map(|network| network.into().trunc());
        let mut owners = Self { entries: Vec::new(), network };
        let mut errors = Vec::new();
        for (index, argument) in setup.arguments.rest_with_names().iter().enumerate() {
            match owners.add(argument) {
                Ok(replaced) => replaced.iter().for_each(|network| {
                    setup.warn(format!("multiple entries for {network}"));
                }),
                Err(error) => errors.push(format!("argument {}: {error}", index + 1)),
            }
        }
        setup.arguments.finish()?;
        if errors.is_empty() { Ok(owners) } else { Err(errors.into()) }
    }

    /// Who answers for `address`.
    pub(super) fn find(&self, address: IpAddr) -> Option<Entry> {
        self.entries.iter().find(|entry| entry.network.contains(&address)).copied()
    }

    /// Adds `NETWORK [NETWORK...] ETH`, in any order; they take the place of what was there for the same
    /// networks. Returns those networks.
    pub(super) fn add(&mut self, argument: &str) -> Result<Vec<IpNet>, String> {
        let mut networks = Vec::new();
        let mut mac = None;
        for word in argument.split_whitespace() {
            if let Some(network) = (self.network)(word) {
                networks.push(network);
            } else if let Some(address) = MacAddr::from_argument(word) {
                if mac.replace(address).is_some() {
                    return Err(format!("expected one Ethernet address, got another one, '{word}'"));
                }
            } else {
                return Err(format!("expected IP/MASK or Ethernet address, got '{word}'"));
            }
        }
        // A name may stand for both.
        let mac = mac.or_else(|| argument.split_whitespace().find_map(names::ether));
        let Some(mac) = mac.filter(|_| !networks.is_empty()) else {
            let missing = if networks.is_empty() { "IP/MASK" } else { "Ethernet address" };
            return Err(format!("missing {missing}: expected 'IP/MASK ETH'"));
        };
        let mut replaced = Vec::new();
        for network in networks {
            let before = self.entries.len();
            self.entries.retain(|known| known.network != network);
            replaced.extend((self.entries.len() < before).then_some(network));
            self.entries.push(Entry { network, mac });
        }
        self.entries.sort_by_key(|Entry { network, .. }| {
            (network.max_prefix_len() - network.prefix_len(), network.addr())
        });
        Ok(replaced)
    }

    /// The table, one network a line.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Entry { network, mac } in &self.entries {
            // Writing into a string does not fail.
            let _ = writeln!(text, "{network} {mac}");
        }
        text
    }

    /// The Ethernet address that is answered for an address; empty if none.
    pub(super) fn lookup(&self, argument: &str) -> Result<String, String> {
        // A network of one address is written as the address.
        let host = (self.network)(argument).filter(|host| host.prefix_len() == host.max_prefix_len());
        let host = host.ok_or_else(|| format!("expected IP address, got '{argument}'"))?;
        Ok(self.find(host.addr()).map(|entry| entry.mac.to_string()).unwrap_or_default())
    }

    /// Takes out a network.
    pub(super) fn remove(&mut self, value: &str) -> Result<(), String> {
        let network = (self.network)(value.trim())
            .ok_or_else(|| format!("expected IP address or prefix, got '{}'", value.trim()))?;
        let before = self.entries.len();
        self.entries.retain(|entry| entry.network != network);
        if self.entries.len() == before { Err(format!("{network} not found")) } else { Ok(()) }
    }
}
