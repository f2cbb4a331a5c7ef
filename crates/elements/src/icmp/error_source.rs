//! Where ICMP errors come from: the SRC argument of `ICMPError` and `ICMP6Error`.

use std::fmt::{Display, Write};

use graph::FromArgument;
use graph::lang::unquote;

/// The router's addresses, one or more, of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ErrorSource<A> {
    first: A,
    others: Vec<A>,
}

impl<A: Copy + PartialEq + Display> ErrorSource<A> {
    /// The source of an error about a packet to `destination` painted with `colour`. RFC 4443, 2.2 (b): if
    /// the packet was sent to one of our addresses, "the Source Address of the ICMPv6 message MUST be the
    /// same address" (and RFC 1122, 3.2.2.1, for IPv4 that it should be); otherwise that of the port where it
    /// came in, if ports have colours from 1 on.
    pub(super) fn choose(&self, destination: A, colour: u8) -> A {
        if destination == self.first || self.others.contains(&destination) {
            return destination;
        }
        // Colours 0 and 1 are the first.
        let other = usize::from(colour).checked_sub(2).and_then(|index| self.others.get(index));
        other.copied().unwrap_or(self.first)
    }
}

impl<A: Display> Display for ErrorSource<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.first)?;
        self.others.iter().try_for_each(|address| {
            f.write_char(' ')?;
            write!(f, "{address}")
        })
    }
}

impl<A: FromArgument> FromArgument for ErrorSource<A> {
    const EXPECTED: &'static str = A::EXPECTED;
    fn from_argument(text: &str) -> Option<Self> {
        let text = unquote(text);
        let mut words = text.split_whitespace();
        let first = A::from_argument(words.next()?)?;
        Some(Self { first, others: words.map(A::from_argument).collect::<Option<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn by_colour_or_destination() {
        let source = ErrorSource::<Ipv6Addr>::from_argument("\"::1 ::2  ::3\"").unwrap();
        let choose = |destination: &str, colour| source.choose(destination.parse().unwrap(), colour);
        for (destination, colour, expected) in
            [("::9", 0, "::1"), ("::9", 1, "::1"), ("::9", 3, "::3"), ("::9", 4, "::1"), ("::2", 3, "::2")]
        {
            assert_eq!(choose(destination, colour).to_string(), expected, "{destination} {colour}");
        }
        assert_eq!(choose("::1", 3).to_string(), "::1");
        assert_eq!(source.to_string(), "::1 ::2 ::3");
        assert_eq!(ErrorSource::<Ipv6Addr>::from_argument(""), None);
        assert_eq!(ErrorSource::<Ipv6Addr>::from_argument("::1 1.2.3.4"), None);
    }
}
