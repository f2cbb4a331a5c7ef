//! Values on the command line of `gen`: rates, frame sizes, ranges of addresses and ports. Each parses from text with
//! an error with what was expected.

use std::cmp::Reverse;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use packet::IpVersion;
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
                "'{text}' is not a rate; expected packets a second (1000, 250k, 1.5Mpps), bits a second (100Mbit, 1Gbps) or max"
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrameSize {
    /// Each frame has this size.
    Fixed(u16),
    /// Evenly drawn from this range, ends included.
    Range(u16, u16),
    /// Each as often as its weight says.
    Mix(Arc<Mix>),
}

/// Sizes with weights.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    /// As the command line has it.
    text: String,
    /// As many packets as the weights add up to, the sizes spread over them.
    round: Vec<u16>,
}

/// The most that weights of a mix add up to: a round of it is kept in memory, and by the kernel.
pub(crate) const LONGEST_ROUND: u32 = 4_096;

/// The mixes that have names.
const MIXES: [(&str, &[(u16, u32)]); 2] = [("imix", &sim::IMIX), ("abilene", &sim::ABILENE)];

impl Mix {
    /// A mix of these sizes and weights, which add up to [`LONGEST_ROUND`] at most.
    fn new(text: &str, weights: &[(u16, u32)]) -> Self {
        let total: u32 = weights.iter().map(|(_, weight)| weight).sum();
        // Each size earns its weight a turn; the richest one comes, and pays the whole. So in each part of the round it has its
        // share, give or take a packet.
        let mut credits = vec![0i64; weights.len()];
        let mut turn = |_| {
            for (credit, (_, weight)) in credits.iter_mut().zip(weights) {
                *credit += i64::from(*weight);
            }
            let richest =
                (0..weights.len()).max_by_key(|place| (credits[*place], Reverse(*place))).unwrap_or(0);
            credits[richest] -= i64::from(total);
            weights[richest].0
        };
        Self { text: text.to_owned(), round: (0..total).map(&mut turn).collect() }
    }
}

impl FrameSize {
    pub(crate) fn smallest(&self) -> u16 {
        match self {
            Self::Fixed(size) | Self::Range(size, _) => *size,
            Self::Mix(mix) => mix.round.iter().copied().min().unwrap_or(SMALLEST_FRAME),
        }
    }

    pub(crate) fn largest(&self) -> u16 {
        match self {
            Self::Fixed(size) | Self::Range(_, size) => *size,
            Self::Mix(mix) => mix.round.iter().copied().max().unwrap_or(SMALLEST_FRAME),
        }
    }

    /// The size of packet `sequence` of `flow`: the same at each call, so that nothing has to be remembered.
    #[inline]
    pub(crate) fn of(&self, flow: u64, sequence: u64, seed: u64) -> u16 {
        match self {
            Self::Fixed(size) => *size,
            Self::Range(low, high) => {
                let mut random = SplitMix64::new(seed ^ flow << 40 ^ sequence);
                low + random.below(u64::from(high - low) + 1) as u16
            }
            // Each flow has the whole mix; flows are at different places in it, so that a round of all flows has too.
            Self::Mix(mix) => mix.round[((sequence + flow) % mix.round.len() as u64) as usize],
        }
    }
}

fn frame_size(text: &str) -> Result<u16, String> {
    let size = text.trim().parse::<u16>().map_err(|_| {
        format!(
            "'{text}' is not a frame size; expected 64, a range such as 64-1518, a list with weights such as \
             64:7,594:4,1518:1, imix or abilene"
        )
    })?;
    if (SMALLEST_FRAME..=LARGEST_FRAME).contains(&size) {
        Ok(size)
    } else {
        Err(format!(
            "a frame of {size} bytes is out of range: {SMALLEST_FRAME} to {LARGEST_FRAME}, FCS counted"
        ))
    }
}

/// Reads a list such as 64:7,594:4.
fn mix(text: &str) -> Result<Mix, String> {
    let mut weights = Vec::new();
    for part in text.split(',') {
        let weight = part.split_once(':').and_then(|(_, weight)| weight.trim().parse::<u32>().ok());
        let Some(weight) = weight.filter(|weight| (1..=LONGEST_ROUND).contains(weight)) else {
            return Err(format!(
                "'{part}' has no weight; expected SIZE:WEIGHT with a weight of 1 to {LONGEST_ROUND}, such as 64:7"
            ));
        };
        weights.push((frame_size(part.split_once(':').map_or(part, |(size, _)| size))?, weight));
    }
    let total: u64 = weights.iter().map(|(_, weight)| u64::from(*weight)).sum();
    if total > u64::from(LONGEST_ROUND) {
        return Err(format!("the weights of '{text}' add up to {total}; expected {LONGEST_ROUND} at most"));
    }
    Ok(Mix::new(text, &weights))
}

impl FromStr for FrameSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((name, weights)) = MIXES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)) {
            return Ok(Self::Mix(Arc::new(Mix::new(name, weights))));
        }
        if text.contains([':', ',']) {
            return mix(text).map(|mix| Self::Mix(Arc::new(mix)));
        }
        match text.split_once('-') {
            Some((low, high)) => {
                let (low, high) = (frame_size(low)?, frame_size(high)?);
                if low <= high {
                    Ok(Self::Range(low, high))
                } else {
                    Err(format!("the range '{text}' is empty; expected {high}-{low}"))
                }
            }
            None => frame_size(text).map(Self::Fixed),
        }
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Range(low, high) => write!(f, "{low}-{high}"),
            Self::Mix(mix) => f.write_str(&mix.text),
        }
    }
}

/// One of several sizes of a list with commas, in which a list with weights has no place.
pub(crate) fn one_of_sizes(text: &str) -> Result<FrameSize, String> {
    if text.contains(':') {
        return Err(format!(
            "'{text}' has a weight, which only --size knows; expected sizes alone: 64,imix,1518"
        ));
    }
    text.parse()
}

/// The hosts of a prefix: all its addresses, without those of network and broadcast in IPv4 where it has them (up to /30; a
/// /31 has two hosts, RFC 3021), and without the first in IPv6 (the subnet's routers, RFC 4291, section 2.6.1; both of a
/// /127 are hosts, RFC 6164).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hosts {
    version: IpVersion,
    first: u128,
    last: u128,
}

impl Hosts {
    pub(crate) fn one(address: IpAddr) -> Self {
        let number = number_of(address);
        Self { version: IpVersion::of(address), first: number, last: number }
    }

    pub(crate) fn version(&self) -> IpVersion {
        self.version
    }

    /// How many there are; 2^64 - 1 stands for more.
    pub(crate) fn count(&self) -> u64 {
        u64::try_from(self.last - self.first).map_or(u64::MAX, |more| more.saturating_add(1))
    }

    /// The host of this number, counted from 0 and over again.
    pub(crate) fn get(&self, index: u64) -> IpAddr {
        let number = self.first + u128::from(index % self.count());
        match self.version {
            IpVersion::V4 => Ipv4Addr::from_bits(number as u32).into(),
            IpVersion::V6 => Ipv6Addr::from_bits(number).into(),
        }
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.version == IpVersion::of(address) && (self.first..=self.last).contains(&number_of(address))
    }
}

fn number_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl FromStr for Hosts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not an address or prefix; expected 198.19.0.1, 198.19.0.0/24, 2001:2::1 or 2001:2::/64"
            )
        };
        let Some((address, length)) = text.split_once('/') else {
            return text.parse().map(Self::one).map_err(|_| wrong());
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let length: u8 = length.parse().map_err(|_| wrong())?;
        let net = IpNet::new(address, length).map_err(|_| wrong())?;
        if net.network() != address {
            return Err(format!("'{text}' has host bits set; expected {}", net.trunc()));
        }
        let (version, first, last) = (IpVersion::of(address), number_of(address), number_of(net.broadcast()));
        let (first, last) = match (version, net.max_prefix_len() - length) {
            (_, 0 | 1) => (first, last),
            (IpVersion::V4, _) => (first + 1, last - 1),
            (IpVersion::V6, _) => (first + 1, last),
        };
        Ok(Self { version, first, last })
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
                format!("'{text}' is not a port; expected 0 to 65535 or a range such as 1024-2047")
            })
        };
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first <= last {
            Ok(Self { first, last })
        } else {
            Err(format!("the range '{text}' is empty; expected {last}-{first}"))
        }
    }
}

/// A time in seconds of a command line, 0 to a year.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if (0.0..=3.2e7).contains(&seconds) => Ok(seconds),
        _ => Err(format!("'{text}' is not a time in seconds; expected 10 or 0.5")),
    }
}

/// A factor of a command line: more than 0, and at most a million.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 1e6 => Ok(factor),
        _ => Err(format!(
            "'{text}' is not a factor; expected more than 0 and at most 1000000, such as 2 or 0.5"
        )),
    }
}

/// A share in percent of a command line, 0 to 100.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("'{text}' is not a percentage; expected 0 to 100, such as 0.1")),
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
            assert!(error.contains("is not a rate; expected"), "{error}");
        }
        assert_eq!("0".parse::<Rate>(), Err("the rate '0' is out of range".to_owned()));
    }

    #[test]
    fn sizes() {
        assert_eq!("64".parse(), Ok(FrameSize::Fixed(64)));
        assert_eq!("64-1518".parse(), Ok(FrameSize::Range(64, 1518)));
        for text in ["imix", "abilene", "64:7,594:4,1518:1", "64-1518", "64"] {
            let size: FrameSize = text.to_uppercase().parse().unwrap();
            assert_eq!(size.to_string(), text);
        }
        let error = |text: &str| text.parse::<FrameSize>().unwrap_err();
        assert_eq!(error("60"), "a frame of 60 bytes is out of range: 64 to 9018, FCS counted");
        assert_eq!(error("1518-64"), "the range '1518-64' is empty; expected 64-1518");
        assert!(error("big").starts_with("'big' is not a frame size"));
        for text in ["64,128", "64:0", "64:-1", "64:7,", "64:x", "64:4097", "64:1:1"] {
            assert!(error(text).contains("has no weight; expected SIZE:WEIGHT"), "{}", error(text));
        }
        assert_eq!(error("60:1"), "a frame of 60 bytes is out of range: 64 to 9018, FCS counted");
        assert_eq!(
            error("64:4000,128:97"),
            "the weights of '64:4000,128:97' add up to 4097; expected 4096 at most"
        );
        assert!(one_of_sizes("64:7").unwrap_err().contains("expected sizes alone"));
        assert_eq!(one_of_sizes("64"), Ok(FrameSize::Fixed(64)));
    }

    /// How many of these sizes are this one.
    fn count(sizes: &[u16], size: u16) -> usize {
        sizes.iter().filter(|other| **other == size).count()
    }

    #[test]
    fn imix_has_its_proportions_in_each_flow_and_over_flows() {
        let imix: FrameSize = "imix".parse().unwrap();
        let in_a_flow: Vec<u16> = (0..1_200).map(|n| imix.of(5, n, 1)).collect();
        let over_flows: Vec<u16> = (0..1_200).map(|f| imix.of(f, 9, 1)).collect();
        for sizes in [in_a_flow, over_flows] {
            assert_eq!([64, 594, 1_518].map(|size| count(&sizes, size)), [700, 400, 100]);
        }
        assert_eq!((imix.smallest(), imix.largest()), (64, 1_518));
    }

    #[test]
    fn hosts() {
        let hosts: Hosts = "10.1.2.0/24".parse().unwrap();
        assert_eq!(
            (hosts.count(), hosts.get(0), hosts.get(254)),
            (254, [10, 1, 2, 1].into(), [10, 1, 2, 1].into())
        );
        let contains = |address: [u8; 4]| hosts.contains(address.into());
        assert!(contains([10, 1, 2, 254]) && !contains([10, 1, 2, 255]) && !contains([10, 1, 2, 0]));
        let all: Hosts = "0.0.0.0/0".parse().unwrap();
        assert_eq!(all.count(), (1 << 32) - 2);
        assert_eq!("10.0.0.4/31".parse::<Hosts>().unwrap().count(), 2);
        assert_eq!("10.0.0.4".parse::<Hosts>().unwrap(), "10.0.0.4/32".parse().unwrap());
        let error = |text: &str| text.parse::<Hosts>().unwrap_err();
        assert_eq!(error("10.1.2.3/24"), "'10.1.2.3/24' has host bits set; expected 10.1.2.0/24");
        for text in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "2001:db8::/129", "2001:db8::g"] {
            assert!(error(text).contains("expected 198.19.0.1,"), "{text}");
        }
    }

    #[test]
    fn hosts_of_ipv6() {
        let hosts: Hosts = "2001:db8:1::/48".parse().unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!((hosts.version(), hosts.count()), (IpVersion::V6, u64::MAX));
        assert_eq!(hosts.get(0), address("2001:db8:1::1"));
        assert_eq!(hosts.get(0xffff), address("2001:db8:1::1:0"));
        assert!(hosts.contains(address("2001:db8:1:ffff:ffff:ffff:ffff:ffff")));
        assert!(!hosts.contains(address("2001:db8:1::")) && !hosts.contains(address("2001:db8:2::1")));
        // The number of the one is that of the other.
        assert!(!"::/0".parse::<Hosts>().unwrap().contains(address("0.0.0.9")));
        for (text, count) in [("::8/127", 2), ("::8/126", 3), ("::8/128", 1), ("::8", 1)] {
            assert_eq!(text.parse::<Hosts>().unwrap().count(), count, "{text}");
        }
        let error = "2001:db8::1/48".parse::<Hosts>().unwrap_err();
        assert_eq!(error, "'2001:db8::1/48' has host bits set; expected 2001:db8::/48");
    }

    #[test]
    fn ports_and_percentages() {
        assert_eq!("7-9".parse::<PortRange>().unwrap().count(), 3);
        assert_eq!("7-9".parse::<PortRange>().unwrap().get(4), 8);
        assert_eq!("0-65535".parse::<PortRange>().unwrap().count(), 65_536);
        assert!("9-7".parse::<PortRange>().unwrap_err().contains("expected 7-9"));
        assert!("70000".parse::<PortRange>().unwrap_err().contains("is not a port"));
        assert_eq!(percent("0.1%"), Ok(0.1));
        assert!(percent("101").is_err() && percent("NaN").is_err());
        assert_eq!(seconds("1.5s"), Ok(1.5));
        assert_eq!(factor("0.5"), Ok(0.5));
        assert!(["0", "-1", "nan", "1e7", "x"].into_iter().all(|text| factor(text).is_err()));
        assert!(seconds("-1").is_err() && seconds("inf").is_err());
    }

    proptest! {
        #[test]
        fn any_text_gives_a_value_or_an_error(text in "\\PC{0,20}", near in "[0-9./kKmMgGbitps%:,-]{0,12}") {
            for text in [text, near] {
                let _ = (text.parse::<Rate>(), text.parse::<FrameSize>(), text.parse::<Hosts>());
                let _ = (text.parse::<PortRange>(), seconds(&text), percent(&text), factor(&text));
            }
        }

        #[test]
        fn each_part_of_a_round_has_its_share_of_each_size(weights in prop::collection::vec(1u32..50, 1..6)) {
            let weights: Vec<(u16, u32)> = (64..).zip(weights).collect();
            let text: Vec<String> = weights.iter().map(|(size, weight)| format!("{size}:{weight}")).collect();
            let size: FrameSize = text.join(",").parse().unwrap();
            let total: u32 = weights.iter().map(|(_, weight)| weight).sum();
            let round: Vec<u16> = (0..u64::from(total) * 2).map(|number| size.of(0, number, 1)).collect();
            for (size, weight) in &weights {
                for end in 1..=round.len() {
                    let share = f64::from(*weight) * end as f64 / f64::from(total);
                    let off = (count(&round[..end], *size) as f64 - share).abs();
                    prop_assert!(off < weights.len() as f64, "{} of {} are off by {}", size, end, off);
                    prop_assert!(!(end as u32).is_multiple_of(total) || off < 1e-9);
                }
            }
        }

        #[test]
        fn a_range_gives_sizes_inside_it(low in 64u16..500, more in 0u16..1000, flow: u64, sequence: u64) {
            let size = FrameSize::Range(low, low + more).of(flow, sequence, 1);
            prop_assert!((low..=low + more).contains(&size));
        }
    }
}
