//! Lists of IPv6 addresses in configuration strings.

use std::net::Ipv6Addr;

use graph::FromArgument;
use graph::lang::unquote;

/// Addresses separated by spaces, in host order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressList6(pub(crate) Vec<u128>);

impl FromArgument for AddressList6 {
    const EXPECTED: &'static str = "IPv6 addresses separated by spaces";
    fn from_argument(text: &str) -> Option<Self> {
        let addresses = unquote(text);
        let addresses = addresses.split_whitespace();
        addresses.map(|word| Some(Ipv6Addr::from_argument(word)?.to_bits())).collect::<Option<_>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(AddressList6::from_argument("\"::1  ff02::2\"").unwrap().0, [1, (0xff02 << 112) + 2]);
        assert_eq!(AddressList6::from_argument("").unwrap().0, []);
        assert_eq!(AddressList6::from_argument("::1 10.0.0.1"), None);
    }
}
