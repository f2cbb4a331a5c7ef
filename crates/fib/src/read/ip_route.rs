//! What `ip route` and `ip -6 route` print (iproute2, `iproute.c`, `print_route`), read back.
//!
//! ```text
//! default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.7 metric 100
//! 10.0.0.0/8 proto bird metric 32
//!         nexthop via 192.0.2.2 dev eth0 weight 1
//!         nexthop via 192.0.2.3 dev eth1 weight 1
//! 10.9.0.1 dev eth2 scope link
//! blackhole 198.51.100.0/24
//! ```
//!
//! An address without a length is a single address (/32, /128), and `default` is /0 of the family that the row shows
//! elsewhere: its gateway, `pref` (which only IPv6 rows have), or else the row before it. Lines that begin with a blank
//! go on with the route before them; with `ip -o` they stand in the same line behind a `\`. A row must say where
//! packets go: `via`, `dev`, `nexthop` or a type such as `blackhole`. What has no meaning here (`scope`, `mtu`, ...) is
//! known and skipped; an unknown word is an error, because it may change what the route means.

use super::lines::{Line, Lines, shown};
use super::prefix::{self, PrefixProblem};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead};
use std::net::IpAddr;

/// A line longer than this is an error and not memory: some 500 next hops in one line of `ip -o route`.
const LONGEST_LINE: u64 = 1 << 16;
/// What a line begins with that goes on with a route.
const BLANK: [char; 2] = [' ', '\t'];

/// What a route does with packets (rtnetlink(7), `rtm_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKind {
    /// Sends them to a next hop.
    Unicast,
    /// They are for this host.
    Local,
    /// They are for this host, sent to all on the link.
    Broadcast,
    /// They are for a group.
    Multicast,
    /// They are for this host as one of several.
    Anycast,
    /// Drops them silently.
    Blackhole,
    /// Drops them with an ICMP "host unreachable".
    Unreachable,
    /// Drops them with an ICMP "administratively prohibited".
    Prohibit,
    /// Goes on with the next routing table.
    Throw,
}

impl RouteKind {
    const ALL: [(&'static str, RouteKind); 9] = [
        ("unicast", RouteKind::Unicast),
        ("local", RouteKind::Local),
        ("broadcast", RouteKind::Broadcast),
        ("multicast", RouteKind::Multicast),
        ("anycast", RouteKind::Anycast),
        ("blackhole", RouteKind::Blackhole),
        ("unreachable", RouteKind::Unreachable),
        ("prohibit", RouteKind::Prohibit),
        ("throw", RouteKind::Throw),
    ];

    /// The kind of this name.
    pub fn named(name: &str) -> Option<RouteKind> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|&(_, kind)| kind)
    }

    /// Its name, as `ip route` writes it.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("unicast", |(name, _)| name)
    }
}

/// Where a route sends packets: a gateway, an interface, or both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The gateway; `None` if destinations are on the link. It may be of the other family (RFC 8950).
    pub via: Option<IpAddr>,
    /// The interface.
    pub device: Option<String>,
    /// Its share, if there are several; else 1.
    pub weight: u32,
}

impl Hop {
    const EMPTY: Hop = Hop { via: None, device: None, weight: 1 };

    fn write(&self, of: IpNet, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.via {
            Some(via) if via.is_ipv6() && of.addr().is_ipv4() => write!(f, " via inet6 {via}")?,
            Some(via) if via.is_ipv4() && of.addr().is_ipv6() => write!(f, " via inet {via}")?,
            Some(via) => write!(f, " via {via}")?,
            None => {}
        }
        self.device.as_ref().map_or(Ok(()), |device| write!(f, " dev {device}"))
    }
}

/// A route. Prints itself in one line that [`IpRoutes`] reads as the same route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpRoute {
    /// The addresses it is for; no host bits.
    pub prefix: IpNet,
    /// What it does with packets.
    pub kind: RouteKind,
    /// Where to; empty for kinds that need no next hop.
    pub hops: Vec<Hop>,
    /// The routing table, by name or number; `None` for the one that was asked for, which is `main`.
    pub table: Option<String>,
    /// Of several routes for one prefix, that with the lowest metric counts.
    pub metric: u32,
    /// Who made it: `kernel`, `static`, `bird`, ...
    pub protocol: Option<String>,
}

impl fmt::Display for IpRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind != RouteKind::Unicast {
            write!(f, "{} ", self.kind.name())?;
        }
        write!(f, "{}", self.prefix)?;
        if let [hop] = &self.hops[..] {
            hop.write(self.prefix, f)?;
        }
        for (word, value) in [("table", &self.table), ("proto", &self.protocol)] {
            if let Some(value) = value {
                write!(f, " {word} {value}")?;
            }
        }
        if self.metric != 0 {
            write!(f, " metric {}", self.metric)?;
        }
        if self.hops.len() > 1 {
            for hop in &self.hops {
                write!(f, " nexthop")?;
                hop.write(self.prefix, f)?;
                write!(f, " weight {}", hop.weight)?;
            }
        }
        Ok(())
    }
}

/// A row that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct IpRouteError {
    /// The line's number, from 1.
    pub line: u64,
    /// What was wrong with it.
    pub problem: IpRouteProblem,
}

/// What can be wrong with a row of `ip route`.
#[derive(Debug, thiserror::Error)]
pub enum IpRouteProblem {
    /// What it is for is not a prefix.
    #[error(transparent)]
    Prefix(#[from] PrefixProblem),
    /// It does not say where packets go.
    #[error(
        "'{0}' has no next hop; a route has 'via ADDRESS', 'dev INTERFACE', 'nexthop ...' or a type such as 'blackhole'"
    )]
    NoNextHop(String),
    /// The gateway is not an address.
    #[error("'via {0}' is not a gateway; expected an address such as '192.0.2.1' or '2001:db8::1'")]
    Gateway(String),
    /// The gateway is of the other family, and nothing says that this is meant.
    #[error("{prefix} goes 'via {via}' of the other family; that is written 'via {keyword} {via}'")]
    GatewayFamily {
        /// The route's prefix.
        prefix: IpNet,
        /// Its gateway.
        via: IpAddr,
        /// The word that allows it.
        keyword: &'static str,
    },
    /// A word needs another one behind it.
    #[error("'{0}' needs a value behind it")]
    NoValue(String),
    /// A number is none.
    #[error("'{word} {value}': not a number; expected 0 to 4294967295")]
    Number {
        /// What it is the number of.
        word: &'static str,
        /// The number as written.
        value: String,
    },
    /// The word is none of `ip route`.
    #[error("'{0}' is not a word of 'ip route'")]
    Word(String),
    /// The word makes the route more than a prefix and its next hops.
    #[error("'{0}' makes the route more than a prefix and its next hops, which a table here cannot hold")]
    Meaning(&'static str),
    /// A line begins with a blank, and no good route is before it.
    #[error("'{0}' goes on with a route, but there is none before it")]
    NoRoute(String),
    /// The line is too long to be a row.
    #[error("'{0}…' is longer than 65536 bytes; that is not a row of 'ip route'")]
    TooLong(String),
    /// The file could not be read further.
    #[error("the file cannot be read further: {0}")]
    Io(#[from] io::Error),
}

/// Words that stand alone.
#[rustfmt::skip]
const FLAGS: &[&str] = &[
    "cache", "dead", "fastopen_no_cookie", "linkdown", "notify", "offload", "offload_failed", "onlink", "pervasive",
    "rt_offload", "rt_trap", "trap", "unresolved", "\\",
];

/// Words with a value of no meaning here; the value may be `lock` and another word.
#[rustfmt::skip]
const IGNORED: &[&str] = &[
    "advmss", "age", "congctl", "cwnd", "dsfield", "error", "expires", "features", "hoplimit", "iif", "initcwnd",
    "initrwnd", "mtu", "nhid", "quickack", "realm", "realms", "reordering", "rto_min", "rtt", "rttvar", "scope", "src",
    "ssthresh", "tos", "ttl-propagate", "users", "window",
];

/// Words that make a route more than a prefix and its next hops.
const MEANING: &[&str] = &["as", "encap", "from"];

/// Yields the routes that `ip route` printed, each with the number of its first line, or why one is none. After
/// [`IpRouteProblem::Io`] it ends.
pub struct IpRoutes<R> {
    lines: Lines<R>,
    /// The route whose lines may not be over yet, and the first of them.
    begun: Option<(u64, Unfinished)>,
    /// Whether lines that go on with a route belong to a bad one, which has had its error.
    skipping: bool,
    /// The family of the last route, for a `default` that shows none.
    is_ipv6: bool,
    done: bool,
    /// What the last line gave: up to a route that it completed, and its own error.
    ready: VecDeque<Result<(u64, IpRoute), IpRouteError>>,
}

impl<R: BufRead> IpRoutes<R> {
    /// Reads routes from text that is not compressed.
    pub fn new(input: R) -> IpRoutes<R> {
        IpRoutes {
            lines: Lines::new(input, LONGEST_LINE),
            begun: None,
            skipping: false,
            is_ipv6: false,
            done: false,
            ready: VecDeque::new(),
        }
    }

    /// Takes in the next line.
    fn advance(&mut self) {
        let text = match self.lines.next() {
            Ok(Some(Line::Whole(text))) => Ok(text.into_owned()),
            Ok(Some(Line::TooLong(text))) => {
                let problem = IpRouteProblem::TooLong(shown(&text));
                if !text.starts_with(BLANK) {
                    self.complete();
                }
                Err(problem)
            }
            Ok(None) => {
                self.done = true;
                self.complete();
                return;
            }
            Err(error) => {
                // What cannot be read may go on with the route begun.
                (self.done, self.begun) = (true, None);
                Err(error.into())
            }
        };
        let line = self.lines.number();
        if let Err(problem) = text.and_then(|text| self.line(line, &text)) {
            // With some of its next hops a route would be another one.
            (self.begun, self.skipping) = (None, true);
            self.ready.push_back(Err(IpRouteError { line, problem }));
        }
    }

    fn line(&mut self, line: u64, text: &str) -> Result<(), IpRouteProblem> {
        if text.trim().is_empty() || text.starts_with('#') {
            return Ok(());
        }
        if !text.starts_with(BLANK) {
            self.complete();
            self.begun = Some((line, Unfinished::parse(text)?));
            self.skipping = false;
            return Ok(());
        }
        match &mut self.begun {
            Some((_, route)) => route.words(&mut text.split_whitespace()),
            None if self.skipping => Ok(()),
            None => Err(IpRouteProblem::NoRoute(shown(text.trim()))),
        }
    }

    /// No more lines belong to the route begun.
    fn complete(&mut self) {
        let Some((line, unfinished)) = self.begun.take() else { return };
        let route = unfinished.finish(self.is_ipv6);
        if let Ok(route) = &route {
            self.is_ipv6 = route.prefix.addr().is_ipv6();
        }
        self.ready
            .push_back(route.map(|route| (line, route)).map_err(|problem| IpRouteError { line, problem }));
    }
}

impl<R: BufRead> Iterator for IpRoutes<R> {
    type Item = Result<(u64, IpRoute), IpRouteError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.done {
            self.advance();
        }
        self.ready.pop_front()
    }
}

/// A route while its lines are read.
struct Unfinished {
    /// The row, for messages.
    text: String,
    /// `None` for `default`, as long as its family is not known.
    prefix: Option<IpNet>,
    kind: RouteKind,
    hops: Vec<Hop>,
    /// The gateways whose family is named: `via inet6 ADDRESS`.
    named: Vec<IpAddr>,
    table: Option<String>,
    metric: u32,
    protocol: Option<String>,
    /// Whether there is a router preference (RFC 4191), which only IPv6 has.
    has_preference: bool,
}

type Words<'a> = std::str::SplitWhitespace<'a>;

fn value<'a>(word: &str, words: &mut Words<'a>) -> Result<&'a str, IpRouteProblem> {
    words.next().ok_or_else(|| IpRouteProblem::NoValue(shown(word)))
}

fn number(word: &'static str, words: &mut Words<'_>) -> Result<u32, IpRouteProblem> {
    let value = value(word, words)?;
    value.parse().map_err(|_| IpRouteProblem::Number { word, value: shown(value) })
}

impl Unfinished {
    /// The first line of a route.
    fn parse(text: &str) -> Result<Unfinished, IpRouteProblem> {
        let mut words = text.split_whitespace();
        let mut word = words.next().unwrap_or_default();
        let kind = RouteKind::named(word);
        if kind.is_some() {
            word = value(word, &mut words)?;
        }
        let prefix = match word {
            "default" => None,
            _ if word.contains('/') => Some(prefix::parse_any(word)?),
            _ => match word.parse::<IpAddr>() {
                Ok(address) => Some(IpNet::from(address)),
                Err(_) => Some(prefix::parse_any(word)?),
            },
        };
        let mut route = Unfinished {
            text: shown(text),
            prefix,
            kind: kind.unwrap_or(RouteKind::Unicast),
            hops: Vec::new(),
            named: Vec::new(),
            table: None,
            metric: 0,
            protocol: None,
            has_preference: false,
        };
        route.words(&mut words)?;
        Ok(route)
    }

    /// The next hop that `via`, `dev` and `weight` are about.
    fn hop(&mut self) -> &mut Hop {
        if self.hops.is_empty() {
            self.hops.push(Hop::EMPTY);
        }
        self.hops.last_mut().expect("there is one now")
    }

    fn words(&mut self, words: &mut Words<'_>) -> Result<(), IpRouteProblem> {
        while let Some(word) = words.next() {
            match word {
                "nexthop" => self.hops.push(Hop::EMPTY),
                "via" => {
                    let mut text = value(word, words)?;
                    let named = matches!(text, "inet" | "inet6");
                    if named {
                        text = value(text, words)?;
                    }
                    let via = text.parse().map_err(|_| IpRouteProblem::Gateway(shown(text)))?;
                    if named {
                        self.named.push(via);
                    }
                    self.hop().via = Some(via);
                }
                "dev" => self.hop().device = Some(value(word, words)?.to_owned()),
                "weight" => self.hop().weight = number("weight", words)?,
                "table" => self.table = Some(value(word, words)?.to_owned()),
                "proto" => self.protocol = Some(value(word, words)?.to_owned()),
                "metric" => self.metric = number("metric", words)?,
                "pref" => {
                    value(word, words)?;
                    self.has_preference = true;
                }
                _ if FLAGS.contains(&word) => {}
                _ if IGNORED.contains(&word) => {
                    if value(word, words)? == "lock" {
                        value("lock", words)?;
                    }
                }
                _ => {
                    return Err(match MEANING.iter().find(|&&known| known == word) {
                        Some(known) => IpRouteProblem::Meaning(known),
                        None => IpRouteProblem::Word(shown(word)),
                    });
                }
            }
        }
        Ok(())
    }

    /// The route, now that it has all its lines. The family is that of the row before, for a `default` without any
    /// sign of one.
    fn finish(mut self, is_ipv6: bool) -> Result<IpRoute, IpRouteProblem> {
        let prefix = self.prefix.unwrap_or_else(|| {
            let of_gateway = self.hops.iter().find_map(|hop| hop.via).map(|via| {
                // A family is named where it is not that of the route.
                via.is_ipv6() != self.named.contains(&via)
            });
            if of_gateway.unwrap_or(self.has_preference || is_ipv6) {
                IpNet::V6(Ipv6Net::default())
            } else {
                IpNet::V4(Ipv4Net::default())
            }
        });
        for via in self.hops.iter().filter_map(|hop| hop.via) {
            if via.is_ipv6() != prefix.addr().is_ipv6() && !self.named.contains(&via) {
                let keyword = if via.is_ipv6() { "inet6" } else { "inet" };
                return Err(IpRouteProblem::GatewayFamily { prefix, via, keyword });
            }
        }
        let leads_nowhere = |hop: &Hop| hop.via.is_none() && hop.device.is_none();
        if self.kind == RouteKind::Unicast && self.hops.is_empty() || self.hops.iter().any(leads_nowhere) {
            return Err(IpRouteProblem::NoNextHop(self.text));
        }
        if let [only] = &mut self.hops[..] {
            only.weight = 1;
        }
        Ok(IpRoute {
            prefix,
            kind: self.kind,
            hops: self.hops,
            table: self.table,
            metric: self.metric,
            protocol: self.protocol,
        })
    }
}

#[cfg(test)]
#[path = "ip_route_tests.rs"]
mod tests;
