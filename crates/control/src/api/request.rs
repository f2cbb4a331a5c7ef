//! What can be asked of a running router, and how it stands on the wire.
//!
//! A request is one JSON object on one line: the version, and either `show` (with or without a `filter`) or
//! `do`:
//!
//! ```text
//! {"version":1,"show":"routes","filter":{"protocol":"bgp"}}
//! {"version":1,"do":"write","handler":"counter.reset","value":""}
//! ```
//!
//! An older or newer program must not be misunderstood, so a version, a command or a field that is not known
//! is an error, which lists those that are.

use std::net::IpAddr;

use ipnet::IpNet;
use packet::IpVersion;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The version of the protocol. It grows when the meaning of something changes; what is only added leaves it.
pub const VERSION: u32 = 1;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Request {
    /// To show something.
    Show(Show),
    /// To show a table that the program has beside those of [`Show`]; its rows are objects of its own kind.
    Table(TableQuery),
    /// To do something.
    Do(Action),
}

/// What can be shown. Each takes a filter, which selects all rows when it is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "show", content = "filter", rename_all = "snake_case", deny_unknown_fields)]
pub enum Show {
    /// The ports: [`PortRow`](super::PortRow).
    Ports(PortFilter),
    /// What the ports moved in each second of the last five minutes: [`HistoryRow`](super::HistoryRow).
    History(PortFilter),
    /// All routes that Linux and the routing daemons told us: [`RouteRow`](super::RouteRow).
    Routes(RouteFilter),
    /// What the workers do with packets to an address: [`LookupRow`](super::LookupRow), one.
    Route(RouteQuery),
    /// The neighbours on the links: [`NeighbourRow`](super::NeighbourRow).
    Neighbours(NeighbourFilter),
    /// The next hops of the forwarding tables: [`NextHopRow`](super::NextHopRow).
    NextHops(NextHopFilter),
    /// The worker threads and the slow thread: [`WorkerRow`](super::WorkerRow).
    Workers(NoFilter),
    /// What each step of the packets' way costs, measured for some time: [`CostRow`](super::CostRow).
    Cost(CostFilter),
    /// The queues of the ports: [`QueueRow`](super::QueueRow).
    Queues(PortFilter),
    /// What was dropped and why: [`DropRow`](super::DropRow).
    Drops(DropFilter),
    /// What left the usual way, for Linux or elements that answer, and why: [`PuntRow`](super::PuntRow).
    Punts(DropFilter),
    /// The elements of the graph and where their packets go: [`ElementRow`](super::ElementRow).
    Elements(NoFilter),
    /// The router itself: version, process, tables: [`SystemRow`](super::SystemRow), one.
    System(NoFilter),
    /// The settings in force, or the configuration made of them: [`TextRow`](super::TextRow).
    Config(ConfigFilter),
    /// Where Linux and the forwarding tables differ: [`DriftRow`](super::DriftRow).
    Drift(NoFilter),
    /// What routes were and became, and when: [`ChangeRow`](super::ChangeRow).
    Changes(ChangeFilter),
    /// The cluster of which the router is a node: [`ClusterRow`](super::ClusterRow).
    Cluster(NoFilter),
    /// How the mirror of Linux's state does: [`CounterRow`](super::CounterRow).
    Netlink(NoFilter),
    /// How the connection to FRR's forwarding plane manager does: [`CounterRow`](super::CounterRow).
    Fpm(NoFilter),
    /// What Linux has that the fast path cannot do, and leaves to Linux: [`TextRow`](super::TextRow), one
    /// each.
    Problems(NoFilter),
    /// The handlers of the elements, or the value of one: [`HandlerRow`](super::HandlerRow).
    Handlers(HandlerFilter),
    /// Packets at some places of their way, until the client goes: [`CaptureRow`](super::CaptureRow).
    Capture(CaptureQuery),
    /// The whole way of some packets: [`CaptureRow`](super::CaptureRow).
    Trace(TraceQuery),
    /// What happened to the router: [`LogRow`](super::LogRow).
    Log(LogQuery),
}

impl Show {
    /// The names of all of them, in the order in which they are declared.
    pub const NAMES: [&str; 24] = [
        "ports",
        "history",
        "routes",
        "route",
        "neighbours",
        "next_hops",
        "workers",
        "cost",
        "queues",
        "drops",
        "punts",
        "elements",
        "system",
        "config",
        "drift",
        "changes",
        "cluster",
        "netlink",
        "fpm",
        "problems",
        "handlers",
        "capture",
        "trace",
        "log",
    ];
}

/// What can be done. The answer has [`TextRow`](super::TextRow)s: what was done, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Changes a setting until the router ends or reloads.
    Set {
        /// Its name in the settings file, as `workers.balance`.
        option: String,
        /// Its value, as in the file, without quotes.
        value: String,
    },
    /// Writes a handler of an element.
    Write {
        /// The element and its handler: `ELEMENT.HANDLER`.
        handler: String,
        /// What to write.
        value: String,
    },
    /// Reads the settings file again and does what changed.
    Reload {},
}

/// Asks for a table that this crate does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableQuery {
    /// Its name.
    pub show: String,
}

/// No filter: all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoFilter {}

/// Selects ports, or what belongs to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PortFilter {
    /// Of the port of this name.
    pub port: Option<String>,
}

/// Selects routes that match all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouteFilter {
    /// Of this family.
    #[schema(value_type = Option<String>)]
    pub family: Option<IpVersion>,
    /// To this prefix, or one inside it.
    #[schema(value_type = Option<String>)]
    pub within: Option<IpNet>,
    /// Of this table. Without it all tables but 255, in which Linux keeps its own addresses.
    pub table: Option<u32>,
    /// Of this protocol, by its name: `bgp`.
    pub protocol: Option<String>,
    /// With a path over this interface.
    pub interface: Option<String>,
}

/// Number of Linux's table of its own addresses (`RT_TABLE_LOCAL`).
pub const LOCAL_TABLE: u32 = 255;

impl RouteFilter {
    /// Whether a route to `prefix` in `table` may be selected: what a router asks before it makes a row.
    pub fn may_select(&self, table: u32, prefix: IpNet) -> bool {
        self.table.map_or(table != LOCAL_TABLE, |wanted| wanted == table)
            && self.family.is_none_or(|family| family == IpVersion::of(prefix.addr()))
            && self.within.is_none_or(|within| within.contains(&prefix))
    }
}

/// Selects changes of routes that match all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChangeFilter {
    /// Of routes to this prefix, or one inside it.
    #[schema(value_type = Option<String>)]
    pub within: Option<IpNet>,
    /// Of routes to prefixes that contain this address.
    #[schema(value_type = Option<String>)]
    pub containing: Option<IpAddr>,
    /// Of this table. Without it all tables but 255, in which Linux keeps its own addresses.
    pub table: Option<u32>,
    /// Not before this moment, in microseconds since 1970.
    pub since_us: Option<u64>,
    /// Not after this moment.
    pub until_us: Option<u64>,
}

impl ChangeFilter {
    /// Whether it selects by destination.
    pub fn has_destination(&self) -> bool {
        self.within.is_some() || self.containing.is_some()
    }

    /// Whether it selects changes at a moment.
    pub fn selects_time(&self, time_us: u64) -> bool {
        self.since_us.is_none_or(|since| since <= time_us)
            && self.until_us.is_none_or(|until| time_us <= until)
    }

    /// Whether it selects changes of the route to `prefix` in `table`.
    pub fn selects_route(&self, table: u32, prefix: IpNet) -> bool {
        self.table.map_or(table != LOCAL_TABLE, |wanted| wanted == table)
            && self.within.is_none_or(|within| within.contains(&prefix))
            && self.containing.is_none_or(|address| prefix.contains(&address))
    }
}

/// How much an event matters. The first matters most.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The router, or a part of it, does not do its work.
    Error,
    /// Packets may be lost, or something was refused.
    Warn,
    /// What an operator wants to find in the log.
    #[default]
    Info,
    /// Much more, to find a mistake.
    Debug,
}

impl Level {
    /// All of them.
    pub const ALL: [Level; 4] = [Level::Error, Level::Warn, Level::Info, Level::Debug];

    /// Its name in settings and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

/// Selects events of the log that match all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogQuery {
    /// Not before this moment, in microseconds since 1970.
    pub since_us: Option<u64>,
    /// Not after this moment.
    pub until_us: Option<u64>,
    /// Of those that are there, so many of the last.
    pub last: Option<u32>,
    /// That matter at least as much.
    pub level: Option<Level>,
    /// Those too that come from now on, until the client goes.
    pub follow: bool,
}

/// Asks for the route to an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteQuery {
    /// The destination.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The table; if none is named, those that the policy rules choose.
    #[serde(default)]
    pub table: Option<u32>,
    /// For the rules: where packets come from.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub from: Option<IpAddr>,
    /// For the rules: the port by which packets come in.
    #[serde(default)]
    pub input: Option<String>,
}

/// Selects neighbours that match all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NeighbourFilter {
    /// Of this family.
    #[schema(value_type = Option<String>)]
    pub family: Option<IpVersion>,
    /// On the link of this interface.
    pub interface: Option<String>,
}

/// Selects next hops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NextHopFilter {
    /// The one of this number.
    pub id: Option<u32>,
}

/// Selects drops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DropFilter {
    /// Those whose element or reason contains this text.
    pub containing: Option<String>,
}

/// Says how costs are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CostFilter {
    /// Seconds, 1 to 30.
    pub seconds: u32,
    /// Whether elements in a row do not work as one meanwhile, so that each has its row. The router is slower then, so this is
    /// not for the read group.
    pub unfused: bool,
}

impl CostFilter {
    /// The longest measurement, in seconds.
    pub const LONGEST: u32 = 30;
}

impl Default for CostFilter {
    fn default() -> Self {
        Self { seconds: 1, unfused: false }
    }
}

/// Says which packets are captured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaptureQuery {
    /// `PORT`, `ELEMENT`, `ELEMENT.OUTPUT`, `all` (all ports), `inputs` (what comes in by all ports), `drops` or `punts`; without
    /// it all ports.
    pub what: Option<String>,
    /// Ends after so many.
    pub count: Option<u64>,
    /// Most bytes of a packet; as many as there are without it.
    pub bytes: Option<u32>,
    /// One packet of so many on average, drawn at random, if the filter selects it; without it all. Drops are never sampled.
    /// Packets that the kernel forwards are sampled there, as they came in, also for the port that they leave by.
    pub sample: Option<u32>,
    /// Packets that this selects; without it all.
    pub filter: Option<PacketFilter>,
}

/// Says which packets are followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceQuery {
    /// How many, 1 to [`TraceQuery::MOST`].
    pub count: u32,
    /// Those that come in by this port; without it those of all sources.
    #[serde(default)]
    pub from: Option<String>,
    /// Packets that this selects where they come in; without it all.
    #[serde(default)]
    pub filter: Option<PacketFilter>,
}

impl TraceQuery {
    /// Most packets that are followed.
    pub const MOST: u32 = 256;
}

/// An instruction of the BSD packet filter: code, distances where its test holds and where not, number.
pub type FilterInstruction = (u16, u8, u8, u32);

/// A filter, compiled for packets with an Ethernet header and for those that begin with their IP header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PacketFilter {
    /// For Ethernet frames.
    #[schema(value_type = Vec<Vec<u32>>)]
    pub ethernet: Vec<FilterInstruction>,
    /// For IP packets.
    #[schema(value_type = Vec<Vec<u32>>)]
    pub ip: Vec<FilterInstruction>,
}

/// Selects which configuration is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFilter {
    /// The Click configuration that was made of the settings, instead of the settings (as a settings file).
    pub click: bool,
}

/// Selects handlers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HandlerFilter {
    /// `ELEMENT.HANDLER` gives its value, `ELEMENT` lists its handlers. Without it all handlers are listed.
    pub name: Option<String>,
}

impl Request {
    /// The line that asks for this, with its end.
    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            version: u32,
            #[serde(flatten)]
            request: &'a Request,
        }
        let line = serde_json::to_string(&Line { version: VERSION, request: self });
        line.expect("a request has names for keys, and nothing else can fail") + "\n"
    }

    /// Reads a line, with or without its end.
    ///
    /// # Errors
    /// Says what is wrong with it and what was expected.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        const EXAMPLE: &str = "a request is one line such as {\"version\":1,\"show\":\"ports\"}";
        let mut object: Map<String, Value> = serde_json::from_slice(line)
            .map_err(|error| format!("not a JSON object ({error}); {EXAMPLE}"))?;
        match object.remove("version") {
            Some(version) if version == VERSION => {}
            Some(version) => {
                return Err(format!("version {version} is not spoken here, version {VERSION} is"));
            }
            None => return Err(format!("the version is missing; {EXAMPLE}")),
        }
        let parsed = if object.contains_key("show") {
            let filter = object.entry("filter").or_insert_with(|| Value::Object(Map::new()));
            let has_no_filter = filter.as_object().is_some_and(Map::is_empty);
            let name = object.get("show").and_then(Value::as_str).map(str::to_owned);
            let known = serde_json::from_value(Value::Object(object)).map(Request::Show);
            match (known, name) {
                (Err(error), Some(show))
                    if has_no_filter && error.to_string().starts_with("unknown variant") =>
                {
                    Ok(Request::Table(TableQuery { show }))
                }
                (known, _) => known,
            }
        } else if object.contains_key("do") {
            serde_json::from_value(Value::Object(object)).map(Request::Do)
        } else {
            return Err(format!("neither 'show' nor 'do' says what is wanted; {EXAMPLE}"));
        };
        parsed.map_err(|error| error.to_string().replace('`', "'"))
    }

    /// Returns whether it is not for those who may only be shown how the router does: it changes what that does, or reads packets.
    pub fn is_privileged(&self) -> bool {
        matches!(
            self,
            Request::Do(_)
                | Request::Show(
                    Show::Cost(CostFilter { unfused: true, .. }) | Show::Capture(_) | Show::Trace(_)
                )
        )
    }

    /// What is asked for, as on the wire: `routes`, `reload`.
    pub fn name(&self) -> String {
        let (Ok(Value::Object(fields)), key) = (
            serde_json::to_value(self),
            match self {
                Request::Show(_) | Request::Table(_) => "show",
                Request::Do(_) => "do",
            },
        ) else {
            return String::new();
        };
        fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(line: &str) -> String {
        Request::parse(line.as_bytes()).unwrap_err()
    }

    #[test]
    fn requests_are_lines() {
        let filter = RouteFilter {
            family: Some(IpVersion::V4),
            within: Some("10.0.0.0/8".parse().unwrap()),
            ..RouteFilter::default()
        };
        let all = [
            Request::Show(Show::Routes(filter)),
            Request::Show(Show::Route(RouteQuery {
                address: "2001:db8::1".parse().unwrap(),
                table: Some(7),
                from: None,
                input: Some("eth1".into()),
            })),
            Request::Show(Show::Workers(NoFilter {})),
            Request::Do(Action::Write { handler: "rt.add".into(), value: "a \"b\"\nc".into() }),
            Request::Table(TableQuery { show: "acl".into() }),
            Request::Do(Action::Reload {}),
        ];
        for name in Show::NAMES {
            // A filter may be needed, but the name is known.
            let parsed = Request::parse(format!("{{\"version\":1,\"show\":\"{name}\"}}").as_bytes());
            assert!(!matches!(parsed, Ok(Request::Table(_))), "{name}");
        }
        let listed = error(r#"{"version":1,"show":"x","filter":{"a":1}}"#);
        assert!(Show::NAMES.iter().all(|name| listed.contains(&format!("'{name}'"))), "{listed}");
        assert_eq!(listed.matches("', '").count() + 1, Show::NAMES.len(), "{listed}");
        for request in all {
            let line = request.to_line();
            assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line}");
            assert_eq!(Request::parse(line.as_bytes()), Ok(request));
        }
        let short = Request::parse(br#"{"version":1,"show":"routes"}"#).unwrap();
        assert_eq!(short, Request::Show(Show::Routes(RouteFilter::default())));
        assert_eq!(
            (short.name().as_str(), Request::Do(Action::Reload {}).name().as_str()),
            ("routes", "reload")
        );
    }

    #[test]
    fn mistakes_are_told_with_what_would_be_right() {
        assert!(error("show ports").starts_with("not a JSON object"), "{}", error("show ports"));
        assert!(error("[1]").contains(r#"such as {"version":1,"show":"ports"}"#));
        assert!(error(r#"{"show":"ports"}"#).starts_with("the version is missing"));
        assert_eq!(error(r#"{"version":2,"show":"x"}"#), "version 2 is not spoken here, version 1 is");
        assert!(error(r#"{"version":1}"#).starts_with("neither 'show' nor 'do'"));
        for (line, parts) in [
            (r#"{"version":1,"show":"rotes","filter":{"table":7}}"#, ["unknown variant 'rotes'", "'routes'"]),
            (r#"{"version":1,"do":"halt"}"#, ["unknown variant 'halt'", "'reload'"]),
            (r#"{"version":1,"do":"set","option":"a"}"#, ["missing field", "'value'"]),
            (r#"{"version":1,"do":"reload","now":true}"#, ["unknown field 'now'", "there are no fields"]),
            (
                r#"{"version":1,"show":"routes","filters":{}}"#,
                ["\"filters\"", "expected \"show\" or \"filter\""],
            ),
            (r#"{"version":1,"show":"routes","filter":{"proto":"bgp"}}"#, ["'proto'", "'protocol'"]),
            (r#"{"version":1,"show":"route","filter":{}}"#, ["missing field", "'address'"]),
            (r#"{"version":1,"show":"route","filter":{"address":"x"}}"#, ["invalid IP address", "syntax"]),
        ] {
            for part in parts {
                assert!(error(line).contains(part), "no {part} in {}", error(line));
            }
        }
    }

    #[test]
    fn the_table_of_own_addresses_is_shown_when_asked_for() {
        let (v4, v6): (IpNet, IpNet) = ("10.1.0.0/16".parse().unwrap(), "::/0".parse().unwrap());
        let all = RouteFilter::default();
        assert!(all.may_select(254, v4) && all.may_select(7, v6) && !all.may_select(255, v4));
        assert!(RouteFilter { table: Some(255), ..RouteFilter::default() }.may_select(255, v4));
        let within = RouteFilter { within: Some("10.0.0.0/8".parse().unwrap()), ..RouteFilter::default() };
        assert!(within.may_select(254, v4) && !within.may_select(254, v6));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&line);
        }

        #[test]
        fn what_is_read_is_written_as_a_line_that_is_read_as_the_same(
            line in "\\{\"version\":1,\"(show|do)\":\"(routes|handlers|acl|reload|set)\"(,\"(option|value)\":\"[a-z.]{0,3}\"){0,2}\
                     (,\"filter\":\\{(\"name\":\"\\PC{0,2}\"|\"within\":\"10.0.0.7/8\"|\"table\":7)?\\})?\\}",
        ) {
            if let Ok(request) = Request::parse(line.as_bytes()) {
                prop_assert_eq!(Request::parse(request.to_line().as_bytes()), Ok(request));
            }
        }
    }
}
