//! Which Ethernet address is answered for which IP addresses: the arguments, the table and the handlers of
//! `ARPResponder` and `IP6NDAdvertiser`.

use std::fmt::Write;
use std::net::IpAddr;

use graph::{ConfigError, FromArgument, Setup, names};
use ipnet::IpNet;
use packet::wire::ethernet::MacAddr;

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
