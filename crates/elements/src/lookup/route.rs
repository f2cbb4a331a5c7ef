//! A route as text: `ADDR/MASK [GATEWAY] OUTPUT`, Click's form for arguments and handlers.

use std::fmt;
use std::net::Ipv4Addr;

use graph::arguments::FromArgument;
use graph::lang::split_words;
use ipnet::Ipv4Net;

/// Where packets of a route go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NextHop {
    /// Address of the next router, in host order; 0 when the destination itself is the next stop.
    pub(super) gateway: u32,
    /// Output of the element.
    pub(super) output: u16,
}

impl NextHop {
    /// Stands where there is no route.
    pub(super) const NONE: Self = Self { gateway: 0, output: u16::MAX };

    /// Reads `[GATEWAY] OUTPUT`; the output must be one of `outputs`.
    pub(super) fn parse(words: &[String], outputs: usize) -> Result<Self, String> {
        let (gateway, output) = match words {
            [output] => (0, output),
            [gateway, output] => (gateway_of(gateway).ok_or_else(|| bad_gateway(gateway))?, output),
            [] => return Err("there is no output".into()),
            [_, _, surplus, ..] => return Err(format!("nothing may follow the output, got '{surplus}'")),
        };
        Ok(Self { gateway, output: parse_output(output, outputs)? })
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gateway {
            0 => write!(f, "- {}", self.output),
            gateway => write!(f, "{} {}", Ipv4Addr::from(gateway), self.output),
        }
    }
}

fn bad_gateway(word: &str) -> String {
    format!("'{word}' is not a gateway; right would be an IP address or '-'")
}

/// The gateway that a word means; 0 for `-`.
fn gateway_of(word: &str) -> Option<u32> {
    if word == "-" { Some(0) } else { Ipv4Addr::from_argument(word).map(u32::from) }
}

fn parse_output(word: &str, outputs: usize) -> Result<u16, String> {
    let number = i64::from_argument(word)
        .ok_or_else(|| format!("'{word}' is not an output; right would be a number from 0 on"))?;
    match usize::try_from(number) {
        Ok(output) if output < outputs.min(usize::from(u16::MAX)) => Ok(output as u16),
        _ if outputs == 0 => Err(format!("there is no output {number}; the element has none")),
        _ => Err(format!("there is no output {number}; the element has 0 to {}", outputs - 1)),
    }
}

/// A prefix and where it goes; to remove a route, the second may be left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// No host bits.
    pub(super) prefix: Ipv4Net,
    pub(super) next_hop: Option<NextHop>,
}

impl Route {
    /// What [`Route::parse`] reads.
    pub(super) const FORM: &str = "ADDR/MASK [GATEWAY] OUTPUT";
    /// What [`Route::parse_removal`] reads.
    pub(super) const REMOVAL_FORM: &str = "ADDR/MASK [GATEWAY OUTPUT]";

    /// Reads a route. The error says what is wrong, not what form is right ([`Route::FORM`]).
    pub(super) fn parse(text: &str, outputs: usize) -> Result<Self, String> {
        let words = split_words(text);
        let Some((prefix, rest)) = words.split_first() else { return Err("it is empty".into()) };
        Ok(Self { prefix: parse_prefix(prefix)?, next_hop: Some(NextHop::parse(rest, outputs)?) })
    }

    /// Reads what route to remove. As in Click the output may be missing or -1, and then only the prefix counts.
    pub(super) fn parse_removal(text: &str, outputs: usize) -> Result<Self, String> {
        let words = split_words(text);
        let Some((prefix, rest)) = words.split_first() else { return Err("it is empty".into()) };
        let open = match rest {
            [] => true,
            [only] if gateway_of(only).is_some() => true,
            [output] => output == "-1",
            [gateway, output] => gateway_of(gateway).is_some() && output == "-1",
            _ => false,
        };
        let next_hop = if open { None } else { Some(NextHop::parse(rest, outputs)?) };
        Ok(Self { prefix: parse_prefix(prefix)?, next_hop })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.next_hop {
            Some(next_hop) => write!(f, "{} {next_hop}", self.prefix),
            None => write!(f, "{}", self.prefix),
        }
    }
}

/// Reads `ADDR/LENGTH`, `ADDR/MASK` or `ADDR`. Host bits are cleared, and zeroes at the end of an address before
/// a mask may be left out (`18.26/16`, `0/0`), both as in Click.
fn parse_prefix(word: &str) -> Result<Ipv4Net, String> {
    let bad = || {
        format!(
            "'{word}' is not a prefix; right would be an IP address and a length of 0 to 32: '192.0.2.0/24'"
        )
    };
    let (address, mask) = match word.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (word, None),
    };
    let mut octets = [0u8; 4];
    let mut count = 0;
    for part in address.split('.') {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        // A leading zero means octal to some programs and nothing to others: it is no number here.
        let clear = digits && (part.len() == 1 || !part.starts_with('0'));
        let place = octets.get_mut(count).filter(|_| clear).ok_or_else(bad)?;
        *place = part.parse().map_err(|_| bad())?;
        count += 1;
    }
    let address = Ipv4Addr::from(octets);
    let Some(mask) = mask else {
        return if count == 4 { Ok(Ipv4Net::from(address)) } else { Err(bad()) };
    };
    let prefix = match mask.parse::<Ipv4Addr>() {
        Ok(mask) => Ipv4Net::with_netmask(address, mask),
        Err(_) if mask.starts_with('+') => return Err(bad()),
        Err(_) => Ipv4Net::new(address, mask.parse().map_err(|_| bad())?),
    };
    Ok(prefix.map_err(|_| bad())?.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(parse_prefix(text), Ok(net(expected)), "{text}");
        }
        for text in
            ["", "/", "10", "10.0.0/", "1.2.3.4.5/8", "1..2/8", "256.0.0.0/8", "10.0.0.0/33", "10.0.0.0/+8"]
        {
            let error = parse_prefix(text).unwrap_err();
            assert!(error.starts_with(&format!("'{text}' is not a prefix; right would be")), "{error}");
        }
        for text in ["+1.0.0.0/8", "01.0.0.0/8", "10.0.0.0/255.0.255.0", "::/0", "a.b.c.d/8", "10.0.0.0/-1"] {
            assert!(parse_prefix(text).is_err(), "{text}");
        }
    }

    #[test]
    fn routes_with_and_without_gateway() {
        let hop = |gateway: [u8; 4], output| Some(NextHop { gateway: u32::from_be_bytes(gateway), output });
        let prefix = net("10.0.0.0/8");
        for (text, next_hop) in [
            ("10.0.0.0/8 3", hop([0; 4], 3)),
            ("10.0.0.0/8 - 3", hop([0; 4], 3)),
            ("10.0.0.0/8 0.0.0.0 3", hop([0; 4], 3)),
            (" 10/8\t192.0.2.1  0x2 ", hop([192, 0, 2, 1], 2)),
        ] {
            assert_eq!(Route::parse(text, 4), Ok(Route { prefix, next_hop }), "{text}");
            assert_eq!(Route::parse_removal(text, 4), Ok(Route { prefix, next_hop }), "{text}");
        }
        for text in ["10/8", "10/8 -", "10/8 192.0.2.1", "10/8 192.0.2.1 -1", "10/8 -1"] {
            assert!(Route::parse(text, 4).is_err(), "{text}");
            assert_eq!(Route::parse_removal(text, 4), Ok(Route { prefix, next_hop: None }), "{text}");
        }
    }

    #[test]
    fn mistakes_say_what_is_wrong() {
        for (text, expected) in [
            ("", "it is empty"),
            ("10/8", "there is no output"),
            ("10/8 x", "'x' is not an output; right would be a number from 0 on"),
            ("10/8 4", "there is no output 4; the element has 0 to 3"),
            ("10/8 -2", "there is no output -2; the element has 0 to 3"),
            ("10/8 host 1", "'host' is not a gateway; right would be an IP address or '-'"),
            ("10/8 192.0.2.1 1 2", "nothing may follow the output, got '2'"),
        ] {
            assert_eq!(Route::parse(text, 4).unwrap_err(), expected, "{text}");
        }
        assert_eq!(Route::parse("10/8 0", 0).unwrap_err(), "there is no output 0; the element has none");
    }
}
