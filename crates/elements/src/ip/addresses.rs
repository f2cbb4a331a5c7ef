//! Lists of addresses in configuration strings, as several elements take them.

use graph::FromArgument;
use graph::lang::unquote;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Addresses separated by spaces, in host order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressList(pub(crate) Vec<u32>);

impl FromArgument for AddressList {
    const EXPECTED: &'static str = "IP addresses separated by spaces";
    fn from_argument(text: &str) -> Option<Self> {
        let text = unquote(text);
        text.split_whitespace()
            .map(|word| Some(Ipv4Addr::from_argument(word)?.to_bits()))
            .collect::<Option<_>>()
            .map(Self)
    }
}

/// Interface addresses with their networks, as in `18.26.4.9/24 18.32.9.44/28`; in host order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InterfaceList {
    /// The addresses.
    pub addresses: Vec<u32>,
    /// The broadcast addresses of the networks that have one.
    pub broadcasts: Vec<u32>,
}

impl FromArgument for InterfaceList {
    const EXPECTED: &'static str = "IP addresses with prefix lengths, separated by spaces";
    fn from_argument(text: &str) -> Option<Self> {
        let mut list = Self::default();
        for word in unquote(text).split_whitespace() {
            let interface = Ipv4Net::from_argument(word)?;
            list.addresses.push(interface.addr().to_bits());
            // A network of one or two addresses has no broadcast address (RFC 3021, section 2.1).
            if interface.prefix_len() < 31 {
                list.broadcasts.push(interface.broadcast().to_bits());
            }
        }
        Some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let list = AddressList::from_argument(" 1.2.3.4  5.6.7.8 ").unwrap();
        assert_eq!(list.0, [0x0102_0304, 0x0506_0708]);
        assert_eq!(AddressList::from_argument("").unwrap().0, []);
        assert_eq!(AddressList::from_argument("1.2.3.4 5.6.7"), None);
    }

    #[test]
    fn interfaces() {
        let list =
            InterfaceList::from_argument("18.26.4.9/24 18.32.9.44/255.255.255.240 10.0.0.0/31").unwrap();
        assert_eq!(list.addresses, [0x121a_0409, 0x1220_092c, 0x0a00_0000]);
        assert_eq!(list.broadcasts, [0x121a_04ff, 0x1220_092f]);
        assert_eq!(InterfaceList::from_argument("18.26.4.9/33"), None);
    }
}
