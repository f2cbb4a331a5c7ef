//! The keyword arguments of rewriters.

use graph::arguments::{AnnotationByte, Interval, Raw};
use graph::{Arguments, ConfigError, FromArgument, Setup};

use super::flow::{Flow, state};
use super::kind::{Kind, TCP};
use super::table::{MOST_FLOWS, Table};
use super::translate::Annotate;

const SECOND_NS: u64 = 1_000_000_000;

/// Mappings of a rewriter that was not told.
pub(super) const CAPACITY: usize = 1 << 18;

/// Guarantee and timeout of flows.
type Times = (u64, u64);

/// What the keywords say.
#[derive(Debug)]
pub(super) struct Options {
    /// TCP without data both ways, with, closed; UDP, streaming. Of what is neither, the first counts.
    times: [Times; 5],
    pub(super) reap_ns: u64,
    pub(super) annotate: Annotate,
    pub(super) capacity: Capacity,
    /// Most flows that packets of one host may have begun.
    pub(super) host_flows: Option<u32>,
}

/// How many mappings there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Capacity {
    Default,
    Of(usize),
    /// One for this element and another one.
    SharedWith(String),
}

impl FromArgument for Capacity {
    const EXPECTED: &'static str = "number of mappings, at most 16777216, or the name of a rewriter";
    fn from_argument(text: &str) -> Option<Self> {
        match u64::from_argument(text) {
            Some(capacity) => Some(Self::Of(usize::try_from(capacity).ok().filter(|c| *c <= MOST_FLOWS)?)),
            None if text.is_empty() || text.contains(char::is_whitespace) => None,
            None => Some(Self::SharedWith(text.to_owned())),
        }
    }
}

/// The value of the last of these keywords that is given.
fn any<T: FromArgument>(
    arguments: &mut Arguments,
    names: &[&'static str],
    default: T,
) -> Result<T, ConfigError> {
    let mut value = default;
    for name in names {
        if let Some(given) = arguments.keyword(name)? {
            value = given;
        }
    }
    Ok(value)
}

fn time(arguments: &mut Arguments, names: &[&'static str], default_s: u64) -> Result<u64, ConfigError> {
    any(arguments, names, Interval { ns: default_s * SECOND_NS }).map(|interval| interval.ns)
}

impl Capacity {
    pub(super) fn read(arguments: &mut Arguments) -> Result<Self, ConfigError> {
        any(arguments, &["CAPACITY", "MAPPING_CAPACITY"], Self::Default)
    }

    /// The element whose capacity the element being made has a part in, perhaps itself, and what that is.
    pub(super) fn leader(&self, setup: &Setup<'_>) -> Result<String, ConfigError> {
        let mut name = setup.name().to_owned();
        let mut capacity = self.clone();
        let mut seen = vec![name.clone()];
        while let Self::SharedWith(other) = &capacity {
            let element = setup.find(other).filter(|element| Kind::of(&element.class).is_some());
            let Some(element) = element else {
                return Err(format!("MAPPING_CAPACITY: '{other}' is neither a number nor a rewriter").into());
            };
            name.clone_from(&element.name);
            if seen.contains(&name) {
                return Err(format!("MAPPING_CAPACITY: '{name}' shares a capacity with itself").into());
            }
            seen.push(name.clone());
            capacity = Self::read(&mut Arguments::new(&element.config))?;
        }
        Ok(name)
    }
}

impl Options {
    pub(super) fn read(arguments: &mut Arguments, kind: Kind) -> Result<Self, ConfigError> {
        let mut times = [(0, 0); 5];
        match kind {
            Kind::Both | Kind::Tcp => {
                let guarantee = time(arguments, &["GUARANTEE", "TCP_GUARANTEE"], 5)?;
                times[0] = (guarantee, time(arguments, &["TCP_NODATA_TIMEOUT"], 300)?);
                times[1] = (guarantee, time(arguments, &["TIMEOUT", "TCP_TIMEOUT"], 86_400)?);
                times[2] = (guarantee, time(arguments, &["TCP_DONE_TIMEOUT"], 240)?);
            }
            Kind::Address | Kind::Pair => {
                times[0] = (time(arguments, &["GUARANTEE"], 5)?, time(arguments, &["TIMEOUT"], 7200)?);
            }
            Kind::Ping => {
                times[0] = (time(arguments, &["GUARANTEE"], 5)?, time(arguments, &["TIMEOUT"], 300)?);
            }
            Kind::Udp => {}
        }
        if matches!(kind, Kind::Both | Kind::Udp) {
            // What has one protocol only may say it in fewer letters.
            let short = kind == Kind::Udp;
            let names = |names: &'static [&'static str]| if short { names } else { &names[..1] };
            let guarantee = time(arguments, names(&["UDP_GUARANTEE", "GUARANTEE"]), 5)?;
            let timeout = time(arguments, names(&["UDP_TIMEOUT", "TIMEOUT"]), 300)?;
            let streaming = names(&["UDP_STREAMING_TIMEOUT", "STREAMING_TIMEOUT"]);
            times[3] = (guarantee, timeout);
            times[4] = (guarantee, any(arguments, streaming, Interval { ns: timeout })?.ns);
        }
        let reap_ns = time(arguments, &["REAP_TIME", "REAP_INTERVAL"], 900)?;
        // Of earlier releases of Click; mappings expire without them.
        for name in ["REAP_TCP", "REAP_TCP_DONE", "REAP_UDP"] {
            arguments.keyword::<Raw>(name)?;
        }
        let destination = arguments.keyword_or("DST_ANNO", true)?;
        let reply = arguments.keyword::<AnnotationByte>("REPLY_ANNO")?.map(|AnnotationByte(at)| at);
        let capacity = Capacity::read(arguments)?;
        let host_flows: Option<u32> = arguments.keyword("HOST_FLOWS")?;
        if host_flows == Some(0) {
            return Err("HOST_FLOWS: expected 1 or more flows, got 0".to_owned().into());
        }
        Ok(Self { times, reap_ns, annotate: Annotate { destination, reply }, capacity, host_flows })
    }

    /// Numbers of the classes of flows in `table`.
    pub(super) fn classes(&self, table: &mut Table) -> Result<Classes, String> {
        let mut classes = [0; 5];
        for (class, (guarantee_ns, timeout_ns)) in classes.iter_mut().zip(self.times) {
            *class = table.class(guarantee_ns, timeout_ns)?;
        }
        Ok(Classes(classes))
    }
}

/// Which flows of a rewriter are of which class of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Classes([u8; 5]);

impl Classes {
    /// The class of a flow now.
    #[inline(always)]
    pub(super) fn of(&self, kind: Kind, flow: &Flow) -> u8 {
        let Self([plain, data, done, udp, streaming]) = *self;
        match kind {
            Kind::Both | Kind::Tcp if flow.protocol() == TCP => {
                if flow.state & state::BOTH_DONE == state::BOTH_DONE {
                    done
                } else if flow.state & state::BOTH_DATA == state::BOTH_DATA {
                    data
                } else {
                    plain
                }
            }
            Kind::Both | Kind::Udp => {
                let streams = state::PACKETS | state::REPLIED;
                if flow.state & streams == streams { streaming } else { udp }
            }
            _ => plain,
        }
    }
}
