//! The words of the `IPClassifier` language: where they end, and which numbers, addresses and
//! keywords they are.

use std::net::Ipv4Addr;

use super::ip_primitive::{self as primitive, Kind};

/// Cuts `text` into words and operators.
pub(super) fn words(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-./@_:".contains(c);
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let doubled = |second: char| rest[first.len_utf8()..].starts_with(second);
        let length = match first {
            '&' | '|' if doubled(first) => 2,
            '<' | '>' | '!' | '=' if doubled('=') => 2,
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        words.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    words
}

/// A number as Click reads it: decimal, `0x` and hexadecimal, `0` and octal, with a sign.
pub(super) fn integer(word: &str) -> Option<u32> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word),
    };
    let (digits, radix) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        None => (digits, 10),
    };
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let value = i64::from_str_radix(digits, radix).ok()?;
    if negative { i32::try_from(-value).ok().map(|value| value as u32) } else { u32::try_from(value).ok() }
}

/// `FIRST-LAST`, both numbers.
pub(super) fn range(word: &str) -> Option<(u32, u32)> {
    let (first, last) = word.split_once('-')?;
    Some((integer(first)?, integer(last)?))
}

/// `ADDR/BITS`, where trailing zero bytes of ADDR may be left out, or `ADDR/MASK`.
pub(super) fn prefix(word: &str) -> Option<(u32, u32)> {
    let (address, mask) = word.split_once('/')?;
    let mask = match mask.parse::<Ipv4Addr>() {
        Ok(mask) => u32::from(mask),
        Err(_) => {
            let bits = mask.parse::<u8>().ok()?;
            let net = ipnet::Ipv4Net::new(Ipv4Addr::UNSPECIFIED, bits).ok()?;
            u32::from(net.netmask())
        }
    };
    let mut bytes = [0; 4];
    for (given, part) in address.split('.').enumerate() {
        *bytes.get_mut(given)? = part.parse::<u8>().ok()?;
    }
    Some((u32::from_be_bytes(bytes), mask))
}

/// Six bytes in hexadecimal with colons between them.
pub(super) fn ether_address(word: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = word.split(':');
    for byte in &mut address {
        let part = parts.next()?;
        if part.len() > 2 || part.starts_with('+') {
            return None;
        }
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

/// The kind of primitive that a keyword stands for.
pub(super) fn keyword(word: &str) -> Option<Kind> {
    Some(match word {
        "host" => Kind::Host,
        "net" => Kind::Net,
        "proto" => Kind::Proto,
        "port" => Kind::Port,
        "opt" => Kind::TcpOpt,
        "frag" => Kind::Frag,
        "unfrag" => Kind::Unfrag,
        "ect" => Kind::Ect,
        "ce" => Kind::Ce,
        "vers" => primitive::VERSION,
        "hl" => primitive::HEADER_LENGTH,
        "tos" => primitive::TOS,
        "dscp" => primitive::DSCP,
        "len" => primitive::LENGTH,
        "id" => primitive::ID,
        "ttl" => primitive::TTL,
        "win" => primitive::TCP_WINDOW,
        "type" => primitive::ICMP_TYPE,
        _ => return None,
    })
}
