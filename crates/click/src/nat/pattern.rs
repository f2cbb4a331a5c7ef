//! What new flows are rewritten to: `SADDR SPORT DADDR DPORT`, `SADDR DADDR SPORT` or `SADDR DADDR`.
//!
//! A source address or port may be a range, of which each flow gets a value that no other flow's replies have. Where
//! several workers translate, each takes its values from its own part of the range, so that two never hand out the same.
//!
//! **Finding a free value.** The same value serves many flows, one towards each remote address and port, so
//! what is free differs from flow to flow and only the table knows it. At most [`TRIES`] values are tried:
//! of a range half used, 64 in a row are taken once in 2^64 flows; of one used to nine tenths, once in 850.
//! A larger number would let a few flows a second to one server, whose part of the range is full, take all
//! of a worker's time. They are tried in random steps (RFC 6056, 3.3.2), with no value twice, so ranges up
//! to that size are used to the last value. A sequential search goes on where the one before it gave up.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use graph::{FromArgument, Setup, services};
use ipnet::Ipv4Net;

use super::flow::Tuple;

/// Most values that are tried for a flow.
pub(super) const TRIES: u32 = 64;

/// Which part of every range is this copy's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) index: u32,
    pub(super) count: u32,
}

impl Share {
    pub(super) fn of(setup: &Setup<'_>) -> Self {
        let copy = setup.copy();
        Self { index: copy.index as u32, count: copy.count().max(1) as u32 }
    }
}

/// Which value of a range is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The packet's own, if it is in the range, then any.
    OwnFirst,
    /// Any.
    Random,
    /// The one behind the last that was given.
    Sequential,
}

/// Of what there is a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Varied {
    Address,
    Port,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    varied: Varied,
    base: u32,
    /// The last value less the first.
    top: u32,
    order: Order,
}

impl Range {
    /// First value and number of values, from `base` on, of a part.
    fn part(&self, share: Share) -> (u32, u32) {
        let size = u64::from(self.top) + 1;
        let start = |part: u32| (size * u64::from(part) / u64::from(share.count)) as u32;
        let first = start(share.index);
        (first, start(share.index + 1).wrapping_sub(first))
    }
}

/// A pattern. What changes in it changes only when a flow is made.
#[derive(Debug)]
pub(super) struct Pattern {
    source: u32,
    source_port: u16,
    destination: u32,
    destination_port: u16,
    has_ports: bool,
    range: Option<Range>,
    share: Share,
    next: AtomicU32,
}

fn number_or_dash<T: FromArgument + Default + PartialEq>(word: &str) -> Option<T> {
    if word == "-" {
        Some(T::default())
    } else {
        T::from_argument(word).filter(|value| *value != T::default())
    }
}

fn address_or_dash(word: &str) -> Option<u32> {
    if word == "-" { Some(0) } else { Ipv4Addr::from_argument(word).map(Ipv4Addr::to_bits) }
}

/// Takes the order's mark off a range.
fn order(word: &str) -> (&str, Order) {
    match (word.strip_suffix('#'), word.strip_suffix('?')) {
        (Some(range), _) => (range, Order::Sequential),
        (_, Some(range)) => (range, Order::Random),
        _ => (word, Order::OwnFirst),
    }
}

fn address_range(word: &str) -> Option<Range> {
    let (word, order) = order(word);
    let (base, top) = if let Some((first, last)) = word.split_once('-') {
        let [first, last] = [first, last].map(|end| Ipv4Addr::from_argument(end).map(Ipv4Addr::to_bits));
        (first?, last?.checked_sub(first?)?)
    } else {
        let network = Ipv4Net::from_argument(word)?;
        let first = network.network().to_bits();
        match network.prefix_len() {
            32 => (first, 0),
            31 => (first, 1),
            // The first and the last address of a network are nobody's.
            0 => return None,
            length => (first + 1, (u32::MAX >> length) - 2),
        }
    };
    Some(Range { varied: Varied::Address, base, top, order })
}

/// A port, or the service that has it.
fn port_number(word: &str) -> Option<u16> {
    let [tcp, udp] = ["tcp", "udp"].map(|protocol| services::port(word, protocol));
    u16::from_argument(word).or(tcp).or(udp)
}

fn port_range(word: &str) -> Option<Range> {
    let (word, order) = order(word);
    let (first, last) = word.split_once('-')?;
    let [first, last] = [first, last].map(port_number);
    let (base, last) = (u32::from(first?), u32::from(last?));
    Some(Range { varied: Varied::Port, base, top: last.checked_sub(base)?, order })
}

impl Pattern {
    /// Reads a pattern of two to four words.
    pub(super) fn parse(words: &[&str], share: Share) -> Result<Self, String> {
        let (source, source_port, destination, destination_port) = match *words {
            [source, destination] => (source, "-", destination, "-"),
            [source, destination, source_port] => (source, source_port, destination, "-"),
            [source, source_port, destination, destination_port] => {
                (source, source_port, destination, destination_port)
            }
            _ => return Err("expected a pattern 'SADDR SPORT DADDR DPORT'".to_owned()),
        };
        let mut ranges = Vec::new();
        let source = match (address_or_dash(source), address_range(source)) {
            (Some(address), _) => address,
            (None, Some(range)) => {
                ranges.push(range);
                range.base
            }
            _ => {
                return Err(format!(
                    "bad source address '{source}': expected an address, A-B, A/LENGTH or '-'"
                ));
            }
        };
        let source_port = match (number_or_dash::<u16>(source_port), port_range(source_port)) {
            (Some(port), _) => port,
            (None, Some(range)) => {
                ranges.push(range);
                range.base as u16
            }
            _ => {
                return Err(format!(
                    "bad source port '{source_port}': expected a port, L-H, L-H#, L-H? or '-'"
                ));
            }
        };
        let destination = address_or_dash(destination)
            .ok_or_else(|| format!("bad destination address '{destination}': expected an address or '-'"))?;
        let destination_port = number_or_dash(destination_port)
            .ok_or_else(|| format!("bad destination port '{destination_port}': expected a port or '-'"))?;
        if ranges.len() > 1 {
            return Err("a range of addresses and one of ports cannot be combined".to_owned());
        }
        let range = ranges.pop().filter(|range| range.top > 0);
        let first = match &range {
            Some(range) => match range.part(share) {
                (_, 0) => {
                    let size = range.top + 1;
                    return Err(format!("a range of {size} cannot be shared out to {} workers", share.count));
                }
                (first, _) => first,
            },
            None => 0,
        };
        let has_ports = words.len() > 2;
        let next = AtomicU32::new(first);
        Ok(Self { source, source_port, destination, destination_port, has_ports, range, share, next })
    }

    /// Whether it says anything of ports.
    pub(super) fn has_ports(&self) -> bool {
        self.has_ports
    }

    /// Whether it changes the destination address.
    pub(super) fn has_destination(&self) -> bool {
        self.destination != 0
    }

    /// What a flow becomes, after `settle`; `None` when all values that were tried are `taken`. `draw` returns an
    /// unpredictable number.
    pub(super) fn rewrite(
        &self,
        flow: Tuple,
        mut taken: impl FnMut(Tuple) -> bool,
        settle: fn(Tuple) -> Tuple,
        draw: impl FnOnce() -> u64,
    ) -> Option<Tuple> {
        let chosen = |pattern: u32, packet: u32| if pattern == 0 { packet } else { pattern };
        let port = |pattern: u16, packet: u16| if pattern == 0 { packet } else { pattern };
        let new = Tuple {
            source: chosen(self.source, flow.source),
            destination: chosen(self.destination, flow.destination),
            source_port: port(self.source_port, flow.source_port),
            destination_port: port(self.destination_port, flow.destination_port),
        };
        let Some(range) = &self.range else { return Some(settle(new)) };
        let with = |value: u32| match range.varied {
            Varied::Address => settle(Tuple { source: value, ..new }),
            Varied::Port => settle(Tuple { source_port: value as u16, ..new }),
        };
        let mut free = |offset: u32| {
            let candidate = with(range.base + offset);
            (!taken(candidate)).then_some(candidate)
        };
        let (first, count) = range.part(self.share);
        let own = u32::from(flow.source_port).wrapping_sub(range.base);
        if range.varied == Varied::Port
            && range.order == Order::OwnFirst
            && own.wrapping_sub(first) < count
            && let Some(found) = free(own)
        {
            return Some(found);
        }
        let (start, step) = match range.order {
            Order::Sequential => {
                let next = self.next.load(Relaxed).wrapping_sub(first);
                (if next < count { next } else { 0 }, 1)
            }
            _ => {
                let random = draw();
                (scaled(random as u32, count), coprime(scaled((random >> 32) as u32, count), count))
            }
        };
        let mut at = start;
        for _ in 0..count.min(TRIES) {
            let found = free(first + at);
            at = ((u64::from(at) + u64::from(step)) % u64::from(count)) as u32;
            if range.order == Order::Sequential {
                self.next.store(first + at, Relaxed);
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// A number below `count` of a random one.
fn scaled(random: u32, count: u32) -> u32 {
    ((u64::from(random) * u64::from(count)) >> 32) as u32
}

/// The first number from `least` on that has no divisor in common with `count`: steps of it meet each value
/// once. One above `count` is a step as good as any, and one of the next few dozen numbers always is one.
fn coprime(least: u32, count: u32) -> u32 {
    let common = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (least.max(1)..).find(|&step| common(step, count) == 1).unwrap_or(1)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |f: &mut fmt::Formatter<'_>, address: u32| match address {
            0 => f.write_str("-"),
            address => write!(f, "{}", Ipv4Addr::from_bits(address)),
        };
        let port = |f: &mut fmt::Formatter<'_>, port: u16| match port {
            0 => f.write_str(" -"),
            port => write!(f, " {port}"),
        };
        address(f, self.source)?;
        if let Some(Range { varied: Varied::Address, base, top, .. }) = self.range {
            write!(f, "-{}", Ipv4Addr::from_bits(base + top))?;
        }
        if self.has_ports {
            match self.range {
                Some(Range { varied: Varied::Port, base, top, .. }) => write!(f, " {base}-{}", base + top)?,
                _ => port(f, self.source_port)?,
            }
        }
        f.write_str(" ")?;
        address(f, self.destination)?;
        if self.has_ports { port(f, self.destination_port) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Share = Share { index: 0, count: 1 };

    fn parse(text: &str) -> Result<Pattern, String> {
        Pattern::parse(&text.split_whitespace().collect::<Vec<_>>(), ALL)
    }

    #[test]
    fn patterns_are_printed_as_they_are_read() {
        for (text, printed) in [
            ("1.0.0.1 20 - -", "1.0.0.1 20 - -"),
            ("- - 2.0.0.2 80", "- - 2.0.0.2 80"),
            ("1.0.0.1 1024-65535# - -", "1.0.0.1 1024-65535 - -"),
            ("1.0.0.1 - 5-9?", "1.0.0.1 5-9 - -"),
            ("1.0.0.1-1.0.0.9 -", "1.0.0.1-1.0.0.9 -"),
            ("1.0.0.0/24 2.0.0.2", "1.0.0.1-1.0.0.254 2.0.0.2"),
            ("1.0.0.0/31# -", "1.0.0.0-1.0.0.1 -"),
            ("1.0.0.7/32 -", "1.0.0.7 -"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), printed);
        }
    }

    #[test]
    fn mistakes() {
        for text in [
            "1.0.0.1",
            "x - - -",
            "1.0.0.1 9-5 - -",
            "1.0.0.1 0 - -",
            "1.0.0.1 65536 - -",
            "1.0.0.9-1.0.0.1 -",
            "- - 1.0.0.1-1.0.0.2 -",
            "- - - 5-9",
            "1.0.0.1-1.0.0.2 5-9 - -",
            "0.0.0.0/0 -",
            "- - - - -",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let thin = Share { index: 0, count: 4 };
        assert!(Pattern::parse(&["1.0.0.1", "7-9", "-", "-"], thin).unwrap_err().contains("4 workers"));
    }

    #[test]
    fn shares_are_a_partition() {
        let mut seen = Vec::new();
        for index in 0..3 {
            let pattern =
                Pattern::parse(&["1.0.0.1", "100-109#", "-", "-"], Share { index, count: 3 }).unwrap();
            let (first, count) = pattern.range.unwrap().part(pattern.share);
            seen.extend(first..first + count);
            // The packet's own port is another one's.
            let own = Pattern::parse(&["1.0.0.1", "100-109", "-", "-"], Share { index, count: 3 }).unwrap();
            for port in 100..110 {
                let flow = Tuple { source_port: port, ..Tuple::default() };
                let new = own.rewrite(flow, |_| false, |tuple| tuple, || 0).unwrap();
                assert!((first..first + count).contains(&u32::from(new.source_port - 100)));
            }
        }
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn however_full_a_range_is_few_values_are_tried() {
        for text in
            ["1.0.0.1 1024-65535 - -", "1.0.0.1 1024-65535? - -", "1.0.0.1 1024-65535# - -", "1.0.0.0/8 -"]
        {
            let (pattern, flow) = (parse(text).unwrap(), Tuple { source_port: 2000, ..Tuple::default() });
            for random in [0, 1, u64::MAX] {
                let mut tried = Vec::new();
                let taken = |tuple: Tuple| {
                    tried.push((tuple.source, tuple.source_port));
                    true
                };
                assert_eq!(pattern.rewrite(flow, taken, |tuple| tuple, || random), None);
                // The flow's own port comes before the others.
                assert!(tried.len() <= TRIES as usize + 1, "{text}: {} values", tried.len());
            }
        }
    }

    #[test]
    fn a_small_range_is_used_to_the_last_value() {
        for (text, random) in
            [("1.0.0.1 100-163? - -", 5), ("1.0.0.1 100-130 - -", u64::MAX / 3), ("1.0.0.1 100-163# - -", 0)]
        {
            let (pattern, mut used) = (parse(text).unwrap(), Vec::new());
            let size = pattern.range.unwrap().top + 1;
            for number in 0..u64::from(size) {
                let random = random ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let port = pattern
                    .rewrite(
                        Tuple::default(),
                        |tuple| used.contains(&tuple.source_port),
                        |tuple| tuple,
                        || random,
                    )
                    .map(|tuple| tuple.source_port);
                used.push(port.expect("a port is free"));
            }
            used.sort_unstable();
            used.dedup();
            assert_eq!(used.len(), size as usize, "{text}");
        }
    }

    #[test]
    fn a_sequential_search_goes_on_where_it_gave_up() {
        let pattern = parse("1.0.0.1 1000-1999# - -").unwrap();
        // One port is free; each packet of the flow brings the search nearer to it.
        let mut tries = 0;
        let found = std::iter::repeat_with(|| {
            tries += 1;
            pattern.rewrite(Tuple::default(), |tuple| tuple.source_port != 1500, |tuple| tuple, || 0)
        });
        assert_eq!(found.take(16).flatten().map(|tuple| tuple.source_port).next(), Some(1500));
        assert_eq!(tries, 500 / TRIES + 1);
    }

    #[test]
    fn steps_meet_every_value() {
        for count in 1..200 {
            for least in 0..count {
                let step = coprime(least, count);
                let mut met: Vec<u32> = (0..count).map(|number| number * step % count).collect();
                met.sort_unstable();
                assert_eq!(met, (0..count).collect::<Vec<_>>(), "steps of {step}");
            }
        }
    }
}
