//! Values on the command line of `gen`: rates, frame sizes, ranges of addresses and ports. Each parses from text with
//! an error that says what would be right.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use packet::random::SplitMix64;

/// Bytes of the frame check sequence. Sizes on the command line and in reports count it, as RFC 2544 does; frames in
/// memory do not have it.
pub(crate) const FCS_BYTES: usize = 4;
/// The smallest Ethernet frame, FCS counted.
pub(crate) const SMALLEST_FRAME: u16 = 64;
/// The largest frame that we make, FCS counted: a jumbo frame with a payload of 9,000 bytes.
pub(crate) const LARGEST_FRAME: u16 = 9_018;

/// How fast to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// As fast as the port takes packets.
    Max,
    /// Packets a second.
    Packets(f64),
    /// Bits a second: those of the frames with FCS, not preamble and gap.
    Bits(f64),
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not a rate; right would be packets a second (1000, 250k, 1.5Mpps), bits a second (100Mbit, 1Gbps) or max"
            )
        };
        if text.eq_ignore_ascii_case("max") {
            return Ok(Self::Max);
        }
        let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, unit) = text.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let unit = unit.trim().to_ascii_lowercase();
        let (scale, unit) = match unit.as_bytes().first() {
            Some(b'k') => (1e3, &unit[1..]),
            Some(b'm') => (1e6, &unit[1..]),
            Some(b'g') => (1e9, &unit[1..]),
            _ => (1.0, unit.as_str()),
        };
        let value = number * scale;
        let rate = match unit {
            "" | "pps" => Self::Packets(value),
            "bit" | "bps" | "bit/s" => Self::Bits(value),
            _ => return Err(wrong()),
        };
        if value > 0.0 && value <= 1e13 {
            Ok(rate)
        } else {
            Err(format!("the rate '{text}' is out of range"))
        }
    }
}

/// Sizes of frames, FCS counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameSize {
    /// Each frame has this size.
    Fixed(u16),
    /// Evenly drawn from this range, ends included.
    Range(u16, u16),
    /// The simple Internet mix.
    Imix,
}

/// The simple IMIX: of twelve packets seven have 64 bytes, four 594, one 1,518; spread over the twelve.
const IMIX: [u16; 12] = [64, 594, 64, 64, 594, 64, 1_518, 64, 594, 64, 64, 594];

impl FrameSize {
    pub(crate) fn smallest(self) -> u16 {
        match self {
            Self::Fixed(size) | Self::Range(size, _) => size,
            Self::Imix => 64,
        }
    }

    pub(crate) fn largest(self) -> u16 {
        match self {
            Self::Fixed(size) | Self::Range(_, size) => size,
            Self::Imix => 1_518,
        }
    }

    /// The size of packet `sequence` of `flow`: the same at each call, so that nothing has to be remembered.
    #[inline]
    pub(crate) fn of(self, flow: u64, sequence: u64, seed: u64) -> u16 {
        match self {
            Self::Fixed(size) => size,
            Self::Range(low, high) => {
                let mut random = SplitMix64::new(seed ^ flow << 40 ^ sequence);
                low + random.below(u64::from(high - low) + 1) as u16
            }
            // Each flow has the whole mix; flows are at different places in it, so that a round of all flows has too.
            Self::Imix => IMIX[((sequence + flow) % IMIX.len() as u64) as usize],
        }
    }
}

impl FromStr for FrameSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("imix") {
            return Ok(Self::Imix);
        }
        let number = |text: &str| -> Result<u16, String> {
            let size = text.trim().parse::<u16>().map_err(|_| {
                format!("'{text}' is not a frame size; right would be 64, a range such as 64-1518, or imix")
            })?;
            if (SMALLEST_FRAME..=LARGEST_FRAME).contains(&size) {
                Ok(size)
            } else {
                Err(format!(
                    "a frame of {size} bytes is out of range: {SMALLEST_FRAME} to {LARGEST_FRAME}, FCS counted"
                ))
            }
        };
        match text.split_once('-') {
            Some((low, high)) => {
                let (low, high) = (number(low)?, number(high)?);
                if low <= high {
                    Ok(Self::Range(low, high))
                } else {
                    Err(format!("the range '{text}' is empty; right would be {high}-{low}"))
                }
            }
            None => number(text).map(Self::Fixed),
        }
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Range(low, high) => write!(f, "{low}-{high}"),
            Self::Imix => f.write_str("imix"),
        }
    }
}

/// The hosts of an IPv4 prefix: all its addresses, without those of network and broadcast where it has them (up to
/// /30; a /31 has two hosts, RFC 3021).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hosts {
    first: u32,
    count: u64,
}

impl Hosts {
    pub(crate) fn one(address: Ipv4Addr) -> Self {
        Self { first: address.to_bits(), count: 1 }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The host of this number, counted from 0 and over again.
    pub(crate) fn get(&self, index: u64) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.wrapping_add((index % self.count) as u32))
    }

    pub(crate) fn contains(&self, address: Ipv4Addr) -> bool {
        u64::from(address.to_bits().wrapping_sub(self.first)) < self.count
    }
}

impl FromStr for Hosts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("'{text}' is not an IPv4 address or prefix; right would be 198.19.0.1 or 198.19.0.0/24")
        };
        let Some((address, length)) = text.split_once('/') else {
            return text.parse().map(Self::one).map_err(|_| wrong());
        };
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let length: u32 = length.parse().ok().filter(|length| *length <= 32).ok_or_else(wrong)?;
        let size = 1u64 << (32 - length);
        let network = address.to_bits() & (!0u64 << (32 - length)) as u32;
        if network != address.to_bits() {
            return Err(format!(
                "'{text}' has host bits set; right would be {}/{length}",
                Ipv4Addr::from_bits(network)
            ));
        }
        Ok(if length <= 30 {
            Self { first: network + 1, count: size - 2 }
        } else {
            Self { first: network, count: size }
        })
    }
}

/// Ports of UDP or TCP from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.last - self.first) + 1
    }

    /// The port of this number, counted from 0 and over again.
    pub(crate) fn get(&self, index: u64) -> u16 {
        self.first + (index % self.count()) as u16
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.trim().parse::<u16>().map_err(|_| {
                format!("'{text}' is not a port; right would be 0 to 65535 or a range such as 1024-2047")
            })
        };
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first <= last {
            Ok(Self { first, last })
        } else {
            Err(format!("the range '{text}' is empty; right would be {last}-{first}"))
        }
    }
}

/// A time in seconds of a command line, 0 to a year.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if (0.0..=3.2e7).contains(&seconds) => Ok(seconds),
        _ => Err(format!("'{text}' is not a time in seconds; right would be 10 or 0.5")),
    }
}

/// A share in percent of a command line, 0 to 100.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("'{text}' is not a percentage; right would be 0 to 100, such as 0.1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates() {
        let good = [
            ("max", Rate::Max),
            ("1000", Rate::Packets(1e3)),
            ("250k", Rate::Packets(250e3)),
            ("1.5Mpps", Rate::Packets(1.5e6)),
            ("100Mbit", Rate::Bits(1e8)),
            ("1 Gbps", Rate::Bits(1e9)),
            ("64kbit/s", Rate::Bits(64e3)),
        ];
        for (text, rate) in good {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
        for text in ["", "fast", "-1", "10x", "1.2.3", "10MB", "k", "nan"] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.contains("is not a rate; right would be"), "{error}");
        }
        assert_eq!("0".parse::<Rate>(), Err("the rate '0' is out of range".to_owned()));
    }

    #[test]
    fn sizes() {
        assert_eq!("64".parse(), Ok(FrameSize::Fixed(64)));
        assert_eq!("64-1518".parse(), Ok(FrameSize::Range(64, 1518)));
        assert_eq!("IMIX".parse(), Ok(FrameSize::Imix));
        let error = |text: &str| text.parse::<FrameSize>().unwrap_err();
        assert_eq!(error("60"), "a frame of 60 bytes is out of range: 64 to 9018, FCS counted");
        assert_eq!(error("1518-64"), "the range '1518-64' is empty; right would be 64-1518");
        assert!(error("big").starts_with("'big' is not a frame size"));
    }

    #[test]
    fn imix_has_its_proportions_in_each_flow_and_over_flows() {
        let count = |sizes: &mut dyn Iterator<Item = u16>| {
            let mut counts = [0; 3];
            for size in sizes {
                counts[match size {
                    64 => 0,
                    594 => 1,
                    1_518 => 2,
                    other => panic!("{other} is not a size of the mix"),
                }] += 1;
            }
            counts
        };
        assert_eq!(count(&mut (0..1_200).map(|n| FrameSize::Imix.of(5, n, 1))), [700, 400, 100]);
        assert_eq!(count(&mut (0..1_200).map(|f| FrameSize::Imix.of(f, 9, 1))), [700, 400, 100]);
    }

    #[test]
    fn hosts() {
        let hosts: Hosts = "10.1.2.0/24".parse().unwrap();
        assert_eq!(
            (hosts.count(), hosts.get(0), hosts.get(254)),
            (254, [10, 1, 2, 1].into(), [10, 1, 2, 1].into())
        );
        assert!(hosts.contains([10, 1, 2, 254].into()) && !hosts.contains([10, 1, 2, 255].into()));
        assert!(!hosts.contains([10, 1, 2, 0].into()));
        let all: Hosts = "0.0.0.0/0".parse().unwrap();
        assert_eq!(all.count(), (1 << 32) - 2);
        assert_eq!("10.0.0.4/31".parse::<Hosts>().unwrap().count(), 2);
        assert_eq!("10.0.0.4".parse::<Hosts>().unwrap(), "10.0.0.4/32".parse().unwrap());
        let error = |text: &str| text.parse::<Hosts>().unwrap_err();
        assert_eq!(error("10.1.2.3/24"), "'10.1.2.3/24' has host bits set; right would be 10.1.2.0/24");
        for text in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "::1"] {
            assert!(error(text).contains("right would be 198.19.0.1 or"), "{text}");
        }
    }

    #[test]
    fn ports_and_percentages() {
        assert_eq!("7-9".parse::<PortRange>().unwrap().count(), 3);
        assert_eq!("7-9".parse::<PortRange>().unwrap().get(4), 8);
        assert_eq!("0-65535".parse::<PortRange>().unwrap().count(), 65_536);
        assert!("9-7".parse::<PortRange>().unwrap_err().contains("right would be 7-9"));
        assert!("70000".parse::<PortRange>().unwrap_err().contains("is not a port"));
        assert_eq!(percent("0.1%"), Ok(0.1));
        assert!(percent("101").is_err() && percent("NaN").is_err());
        assert_eq!(seconds("1.5s"), Ok(1.5));
        assert!(seconds("-1").is_err() && seconds("inf").is_err());
    }

    proptest! {
        #[test]
        fn any_text_gives_a_value_or_an_error(text in "\\PC{0,20}", near in "[0-9./kKmMgGbitps%-]{0,12}") {
            for text in [text, near] {
                let _ = (text.parse::<Rate>(), text.parse::<FrameSize>(), text.parse::<Hosts>());
                let _ = (text.parse::<PortRange>(), seconds(&text), percent(&text));
            }
        }

        #[test]
        fn a_range_gives_sizes_inside_it(low in 64u16..500, more in 0u16..1000, flow: u64, sequence: u64) {
            let size = FrameSize::Range(low, low + more).of(flow, sequence, 1);
            prop_assert!((low..=low + more).contains(&size));
        }
    }
}
