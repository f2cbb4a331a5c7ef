//! A route as text: `ADDR/MASK [GATEWAY] OUTPUT`, Click's form for arguments and handlers.

use std::fmt;

use graph::arguments::FromArgument;
use graph::lang::split_words;

use super::family::RouteFamily;

/// Where packets of a route go: what stands behind a number of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Via<A> {
    /// Address of the next router, in host order; 0 when the destination itself is the next stop.
    pub(crate) gateway: A,
    /// Output of the element.
    pub(crate) output: u16,
    /// Security parameters index of the tunnel, in routes of RadixIPsecLookup; 0 without one.
    pub(crate) spi: u32,
}

impl<A: RouteFamily> Via<A> {
    /// Reads `[GATEWAY] OUTPUT`; the output must be one of `outputs`.
    pub(super) fn parse(words: &[String], outputs: usize) -> Result<Self, String> {
        let (gateway, output) = match words {
            [output] => (A::MIN, output),
            [gateway, output] => (gateway_of(gateway).ok_or_else(|| bad_gateway::<A>(gateway))?, output),
            [] => return Err("there is no output".into()),
            [_, _, surplus, ..] => return Err(format!("nothing may follow the output, got '{surplus}'")),
        };
        Ok(Self { gateway, output: parse_output(output, outputs)?, spi: 0 })
    }

    /// Whether packets take the same way, whatever protects them.
    pub(super) fn leads_like(self, other: Self) -> bool {
        (self.gateway, self.output) == (other.gateway, other.output)
    }

    /// The gateway as people write it; `None` without one.
    pub(super) fn gateway(&self) -> Option<A::Ip> {
        (self.gateway != A::MIN).then(|| self.gateway.into())
    }
}

impl<A: RouteFamily> fmt::Display for Via<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gateway() {
            None => write!(f, "- {}", self.output)?,
            Some(gateway) => write!(f, "{gateway} {}", self.output)?,
        }
        if self.spi == 0 { Ok(()) } else { write!(f, " SPI {}", self.spi) }
    }
}

fn bad_gateway<A: RouteFamily>(word: &str) -> String {
    format!("'{word}' is not a gateway; expected {} or '-'", A::ADDRESS)
}

/// The gateway that a word means; 0 for `-`.
fn gateway_of<A: RouteFamily>(word: &str) -> Option<A> {
    if word == "-" { Some(A::MIN) } else { A::Ip::from_argument(word).map(Into::into) }
}

fn parse_output(word: &str, outputs: usize) -> Result<u16, String> {
    let number = i64::from_argument(word)
        .ok_or_else(|| format!("'{word}' is not an output; expected a number from 0 on"))?;
    match usize::try_from(number) {
        Ok(output) if output < outputs.min(usize::from(u16::MAX)) => Ok(output as u16),
        _ if outputs == 0 => Err(format!("there is no output {number}; the element has none")),
        _ => Err(format!("there is no output {number}; the element has 0 to {}", outputs - 1)),
    }
}

/// A prefix and where it goes; to remove a route, the second may be left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route<A: RouteFamily> {
    /// No host bits.
    pub(crate) prefix: A::Net,
    pub(crate) via: Option<Via<A>>,
}

/// What [`Route::parse`] reads.
pub(super) const FORM: &str = "ADDR/MASK [GATEWAY] OUTPUT";
/// What [`Route::parse_removal`] reads.
pub(crate) const REMOVAL_FORM: &str = "ADDR/MASK [GATEWAY OUTPUT]";

impl<A: RouteFamily> Route<A> {
    /// Reads a route; `outputs` is how many the element has. The error does not name the form ([`FORM`]).
    pub(crate) fn parse(text: &str, outputs: usize) -> Result<Self, String> {
        let words = split_words(text);
        let Some((prefix, rest)) = words.split_first() else { return Err("it is empty".into()) };
        Ok(Self { prefix: parse_prefix::<A>(prefix)?, via: Some(Via::parse(rest, outputs)?) })
    }

    /// Reads what route to remove. As in Click the output may be missing or -1, and then only the prefix counts.
    pub(crate) fn parse_removal(text: &str, outputs: usize) -> Result<Self, String> {
        let words = split_words(text);
        let Some((prefix, rest)) = words.split_first() else { return Err("it is empty".into()) };
        let is_gateway = |word: &str| gateway_of::<A>(word).is_some();
        let open = match rest {
            [] => true,
            [only] if is_gateway(only) => true,
            [output] => output == "-1",
            [gateway, output] => is_gateway(gateway) && output == "-1",
            _ => false,
        };
        let via = if open { None } else { Some(Via::parse(rest, outputs)?) };
        Ok(Self { prefix: parse_prefix::<A>(prefix)?, via })
    }
}

impl<A: RouteFamily> fmt::Display for Route<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.via {
            Some(via) => write!(f, "{} {via}", self.prefix),
            None => write!(f, "{}", self.prefix),
        }
    }
}

/// Reads `ADDR/LENGTH`, `ADDR/MASK` or `ADDR`. Host bits are cleared, and zeroes at the end of an IPv4 address before
/// a mask may be left out (`18.26/16`, `0/0`), both as in Click.
fn parse_prefix<A: RouteFamily>(word: &str) -> Result<A::Net, String> {
    let bad = || {
        let (address, longest, example) = (A::ADDRESS, A::BITS, A::PREFIX);
        format!("'{word}' is not a prefix; expected {address} and a length of 0 to {longest}: '{example}'")
    };
    let (address, mask) = match word.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (word, None),
    };
    if mask.is_none()
        && let Some(network) = A::named(word)
    {
        return Ok(network);
    }
    let address = A::parse_network(address, mask.is_some()).ok_or_else(bad)?;
    let length = match mask {
        None => Some(A::BITS),
        Some(mask) => length_of::<A>(mask),
    };
    let length = length.ok_or_else(bad)?;
    Ok(A::net(address & A::mask(length), length))
}

/// The prefix length that the text behind the `/` means: a number, or a mask written as an address.
fn length_of<A: RouteFamily>(text: &str) -> Option<u8> {
    if let Ok(mask) = text.parse::<A::Ip>() {
        let mask: A = mask.into();
        let length = (!mask).leading_zeros();
        return (A::mask(length) == mask).then_some(length);
    }
    let length = text.parse().ok().filter(|_| !text.starts_with('+'))?;
    (length <= A::BITS).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::{Ipv4Net, Ipv6Net};

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_as_click_writes_them() {
        for (text, expected) in [
            ("10.1.2.3", "10.1.2.3/32"),
            ("10.1.2.3/32", "10.1.2.3/32"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/255.255.255.0", "10.1.2.0/24"),
            ("18.26.4/24", "18.26.4.0/24"),
            ("0/0", "0.0.0.0/0"),
            ("0.0.0.0/0.0.0.0", "0.0.0.0/0"),
            ("10.0.0.3/31", "10.0.0.2/31"),
        ] {
            assert_eq!(parse_prefix::<u32>(text), Ok(net(expected)), "{text}");
        }
        for text in
            ["", "/", "10", "10.0.0/", "1.2.3.4.5/8", "1..2/8", "256.0.0.0/8", "10.0.0.0/33", "10.0.0.0/+8"]
        {
            let error = parse_prefix::<u32>(text).unwrap_err();
            assert!(error.starts_with(&format!("'{text}' is not a prefix; expected an IP")), "{error}");
        }
        for text in ["+1.0.0.0/8", "01.0.0.0/8", "10.0.0.0/255.0.255.0", "::/0", "a.b.c.d/8", "10.0.0.0/-1"] {
            assert!(parse_prefix::<u32>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn prefixes_of_ipv6() {
        for (text, expected) in [
            ("2001:db8::1", "2001:db8::1/128"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("::/0", "::/0"),
            ("2001:db8:1:2::3/ffff:ffff:ffff::", "2001:db8:1::/48"),
            ("::1/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::1/128"),
            ("::ffff:10.0.0.1/::", "::/0"),
            ("0::ffff:0:0/96", "::ffff:0:0/96"),
        ] {
            assert_eq!(parse_prefix::<u128>(text), Ok(expected.parse::<Ipv6Net>().unwrap()), "{text}");
        }
        for text in ["10.0.0.0/8", "2001:db8/32", "::/129", "::/+1", "::/ff00:ff00::", ":::/0", "0/0", ""] {
            let error = parse_prefix::<u128>(text).unwrap_err();
            assert!(error.contains("an IPv6 address and a length of 0 to 128: '2001:db8::/32'"), "{error}");
        }
    }

    #[test]
    fn routes_with_and_without_gateway() {
        let hop =
            |gateway: [u8; 4], output| Some(Via { gateway: u32::from_be_bytes(gateway), output, spi: 0 });
        let prefix = net("10.0.0.0/8");
        for (text, via) in [
            ("10.0.0.0/8 3", hop([0; 4], 3)),
            ("10.0.0.0/8 - 3", hop([0; 4], 3)),
            ("10.0.0.0/8 0.0.0.0 3", hop([0; 4], 3)),
            (" 10/8\t192.0.2.1  0x2 ", hop([192, 0, 2, 1], 2)),
        ] {
            assert_eq!(Route::<u32>::parse(text, 4), Ok(Route { prefix, via }), "{text}");
            assert_eq!(Route::<u32>::parse_removal(text, 4), Ok(Route { prefix, via }), "{text}");
        }
        for text in ["10/8", "10/8 -", "10/8 192.0.2.1", "10/8 192.0.2.1 -1", "10/8 -1"] {
            assert!(Route::<u32>::parse(text, 4).is_err(), "{text}");
            assert_eq!(Route::<u32>::parse_removal(text, 4), Ok(Route { prefix, via: None }), "{text}");
        }
        let route = Route::<u128>::parse("2001:db8::/32 fe80::1 3", 4).unwrap();
        assert_eq!(route.to_string(), "2001:db8::/32 fe80::1 3");
        assert_eq!(Route::<u128>::parse("::/0 :: 3", 4).unwrap().to_string(), "::/0 - 3");
    }

    #[test]
    fn mistakes_say_what_is_wrong() {
        for (text, expected) in [
            ("", "it is empty"),
            ("10/8", "there is no output"),
            ("10/8 x", "'x' is not an output; expected a number from 0 on"),
            ("10/8 4", "there is no output 4; the element has 0 to 3"),
            ("10/8 -2", "there is no output -2; the element has 0 to 3"),
            ("10/8 host 1", "'host' is not a gateway; expected an IP address or '-'"),
            ("10/8 192.0.2.1 1 2", "nothing may follow the output, got '2'"),
        ] {
            assert_eq!(Route::<u32>::parse(text, 4).unwrap_err(), expected, "{text}");
        }
        assert_eq!(
            Route::<u32>::parse("10/8 0", 0).unwrap_err(),
            "there is no output 0; the element has none"
        );
        let error = Route::<u128>::parse("::/0 192.0.2.1 1", 4).unwrap_err();
        assert_eq!(error, "'192.0.2.1' is not a gateway; expected an IPv6 address or '-'");
    }
}
