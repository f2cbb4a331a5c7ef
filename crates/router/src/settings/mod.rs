//! The settings of a router that runs beside Linux: a file, `brickway.toml`, or the ports' names on the
//! command line, and flags of the command line above either. `examples/brickway.toml` describes every option.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | [`Settings`] with all sections but those of features (`crate::features`) |
//! | `options` | what an option is: all that speaks of one is made from its declaration |
//! | `ports` | ports, from the words of the command line too |
//! | `tables` | kinds of forwarding tables |
//! | `flags` | options on the command line |
//! | `file` | from a file, with every mistake in it |
//! | `reader` | a TOML file read by name, type and range |
//! | `print` | as a file again, as a summary, and as the example |
//! | `differences` | which options differ between two of them |

mod differences;
mod file;
mod flags;
pub(crate) mod options;
mod ports;
mod print;
pub(crate) mod reader;
mod tables;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;

use ::ports::{Links, frame_bytes_at, frame_bytes_for};
use control::api::Level;
use packet::PoolOptions;
use toml::de::DeValue;

use crate::export::{ipfix, sflow};
use crate::features::FeatureSettings;
use options::{About, Opt, Problem, Section, Value, options, words};

#[cfg(test)]
pub(crate) use file::parse;
pub(crate) use file::{check, is_settings_file, load, ports_to_close, print_mistakes};
pub(crate) use flags::Flags;
pub(crate) use ports::{Driver, Host, PortSettings};
pub(crate) use print::example;
pub(crate) use tables::TableSettings;

/// What a router is to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    pub(crate) general: General,
    pub(crate) ports: Vec<PortSettings>,
    pub(crate) workers: WorkerSettings,
    pub(crate) memory: MemorySettings,
    pub(crate) tables: TableSettings,
    pub(crate) features: FeatureSettings,
    /// The server for FRR's forwarding plane manager.
    pub(crate) fpm: FpmSettings,
    pub(crate) beside_linux: BesideLinux,
    pub(crate) control: ControlSettings,
    pub(crate) log: LogSettings,
    pub(crate) metrics: MetricsSettings,
    pub(crate) web: WebSettings,
    pub(crate) sflow: sflow::Settings,
    pub(crate) ipfix: ipfix::Settings,
    /// Whether the router works by Linux's policies of IPsec, instead of bypassing them. No option: the graph decides it.
    pub(crate) follows_ipsec: bool,
}

words! {
    /// What Linux forwards between the ports while no router runs.
    Fail {
        /// All that it would forward without a router.
        Open "open",
        /// Nothing.
        Closed "closed",
    }
}

words! {
    /// What Linux does to packets that it forwards, and does not do to those that the fast path forwards.
    Bypass {
        /// Filters: chains of nftables and iptables.
        Firewall "firewall",
        /// Address translation.
        Nat "nat",
        /// IPsec.
        Ipsec "ipsec",
    }
}

options! {
    /// The options above all sections.
    General "" {
        /// Linux's forwarding between the ports while no router runs, be it stopped, killed or not started for a mistake in its
        /// settings. With "open" Linux forwards as without a router, unfiltered. With "closed" it forwards nothing, until
        /// `brickway doctor --fix`. This option stands above all sections.
        #[example = "\"open\""]
        fail: Fail = Fail::Open,
        /// The user whose process the router becomes when it has opened its control sockets, by name or number. A reload reads files
        /// with this user's rights. Without it the user is "brickway", if there is one and it can read these files. With "root" the
        /// router stays root's. A script changes its user only if this option names one.
        #[example = "\"brickway\""]
        #[flag("user", "NAME")]
        user: Option<String> = None,
    }
}

impl About for General {
    fn summary(&self) -> Option<(&'static str, String)> {
        let text = match self.fail {
            Fail::Open => "Linux forwards between the ports (fail = \"open\")",
            Fail::Closed => "nothing is forwarded between the ports (fail = \"closed\")",
        };
        Some(("no router", text.to_owned()))
    }
}

options! {
    /// The memory for packets.
    MemorySettings "memory" {
        /// Frames of each worker. A port whose frames are all under way receives nothing until some are free.
        #[limits(64, 1 << 24)]
        #[example = "16384"]
        #[flag("frames", "N")]
        frames: usize = PoolOptions::default().frames,
        /// Bytes of the longest packet that a frame holds, 64 to 32000. Without it, those that the largest MTU of the ports needs,
        /// and 1856 at least. 16,384 frames of 1,856 bytes take 35 MB, of 9,146 bytes (MTU 9000) 155 MB.
        #[limits(64, 32_000)]
        #[example = "9146"]
        #[flag("frame-size", "BYTES")]
        frame_size: Option<usize> = None,
    }
}

impl About for MemorySettings {}

impl MemorySettings {
    /// Returns the pools of a worker and of the slow thread, for frames of so many bytes.
    pub(crate) fn pools(&self, data_bytes: usize) -> [PoolOptions; 2] {
        [self.frames, self.frames.min(4_096)].map(|frames| PoolOptions { frames, data_bytes })
    }

    /// Returns how many bytes a frame holds for these ports.
    pub(crate) fn frame_bytes(&self, ports: &[PortSettings]) -> usize {
        let links = Links::ask().unwrap_or_default();
        let of_port = |port: &PortSettings| {
            if port.driver == Driver::Dpdk {
                // Linux sends as long ones by the interface that stands for it.
                let mtu = port.options.split('&').find_map(|option| option.strip_prefix("mtu="))?;
                return Some(frame_bytes_for(mtu.parse().ok()?, false));
            }
            let link = links.named(port.device.as_deref().unwrap_or(&port.name))?;
            let bytes = frame_bytes_for(link.mtu, port.driver.is_xdp());
            let of_card =
                port.driver.is_xdp().then(|| frame_bytes_at(link.index, &link.name, link.mtu)).flatten();
            Some(bytes.max(of_card.unwrap_or_default()))
        };
        let needed = || ports.iter().filter_map(of_port).max();
        self.frame_size.or_else(needed).unwrap_or(PoolOptions::default().data_bytes)
    }
}

/// Most workers that a router has.
const MOST_WORKERS: usize = 256;

options! {
    /// The threads.
    WorkerSettings "workers" {
        /// Threads that move packets, 1 to 256; each has a queue of its own of every port.
        #[limits(1, MOST_WORKERS)]
        #[example = "1"]
        #[flag("workers", "N")]
        count: usize = 1,
        /// Packets taken from a port at a time, 1 to 256. 1 gives Click's packet order.
        #[limits(1, packet::MAX_BATCH)]
        #[example = "64"]
        #[flag("burst", "N")]
        burst: usize = 64,
        /// Every second, move queues and flows from the busiest worker to the idlest.
        #[example = "true"]
        #[flag("balance", "=true")]
        #[live = true]
        balance: bool = true,
        /// Workers that stay at work when there is little to do, up to count. Without it all do.
        #[limits(1, MOST_WORKERS)]
        #[example = "1"]
        #[flag("min-workers", "N")]
        min: Option<usize> = None,
        /// Bind each worker to a CPU of its own, of those that `taskset` allows.
        #[example = "true"]
        #[flag("no-pin", "=false", "Let the kernel place workers; without it each is bound to a CPU of its own")]
        pin: bool = true,
    }
}

impl About for WorkerSettings {
    fn problem(&self) -> Option<Problem> {
        let min = self.min?;
        if min > self.count {
            let message = format!("at least {min} of {} workers", self.count);
            return Some(("min", message, "expected min to be at most count".to_owned()));
        }
        let right = "expected balance = true, or no min".to_owned();
        (!self.balance).then(|| ("min", "min without balance does nothing".to_owned(), right))
    }

    fn summary(&self) -> Option<(&'static str, String)> {
        let balanced = if self.balance { "balanced" } else { "not balanced" };
        let pinned = if self.pin { "each on its CPU" } else { "on any CPU" };
        Some(("workers", format!("{} ({balanced}, {pinned}, bursts of {})", self.count, self.burst)))
    }
}

options! {
    /// The server for FRR's forwarding plane manager.
    FpmSettings "fpm" {
        /// Where FRR's forwarding plane manager connects to (`zebra -M dplane_fpm_nl`, `fpm address 127.0.0.1 port
        /// 2620`). Without it routes come from Linux's tables only.
        #[example = "\"127.0.0.1:2620\""]
        #[flag("fpm", "ADDRESS:PORT")]
        listen: Option<SocketAddr> = None,
        /// Users of this host who may connect and make routes, besides root; by name or number.
        #[example = "[\"frr\"]"]
        users: Option<Vec<String>> = None,
        /// Let everybody connect who reaches the address, from other hosts too. Everybody then makes routes.
        #[example = "false"]
        insecure: bool = false,
    }
}

impl FpmSettings {
    /// Returns the options of the server, if there is one.
    pub(crate) fn server(&self) -> Option<control::fpm::ServerOptions> {
        use control::fpm::{Peers, ServerOptions};
        let peers = match &self.users {
            _ if self.insecure => Peers::Anybody,
            Some(users) => Peers::Users(users.clone()),
            None => Peers::default(),
        };
        Some(ServerOptions { peers, ..ServerOptions::new(self.listen?) })
    }
}

impl About for FpmSettings {
    fn problem(&self) -> Option<Problem> {
        let Some(listen) = self.listen else {
            let key = if self.users.is_some() { "users" } else { "insecure" };
            return (self.users.is_some() || self.insecure).then(|| {
                (key, format!("{key} without listen does nothing"), "expected listen beside it".to_owned())
            });
        };
        let right = "expected an address of this host alone, as 127.0.0.1, or insecure = true in [fpm]";
        (!self.insecure && !listen.ip().is_loopback()).then(|| {
            let message = format!("{listen} can be reached from other hosts, whose users nobody knows");
            ("listen", message, right.to_owned())
        })
    }

    fn summary(&self) -> Option<(&'static str, String)> {
        let everybody = if self.insecure { ", for everybody" } else { "" };
        let text = self.listen.map_or("off".to_owned(), |listen| format!("at {listen}{everybody}"));
        Some(("FPM", text))
    }
}

options! {
    /// Linux's own rules for forwarded packets.
    BesideLinux "beside_linux" {
        /// Packets that the router forwards bypass Linux's packet filters and address translation. While Linux has rules for
        /// them the router does not start, unless they are named here: "firewall", "nat". It works by Linux's policies of IPsec;
        /// with "ipsec" it bypasses them. Scripts bypass them too, and need "ipsec" here.
        #[example = "[]"]
        #[flag("ignore", "WORD,...")]
        #[live = true]
        ignore: Vec<Bypass> = Vec::new(),
    }
}

impl About for BesideLinux {
    fn summary(&self) -> Option<(&'static str, String)> {
        let words: Vec<&str> = self.ignore.iter().map(|word| word.word()).collect();
        Some(("bypasses", if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }))
    }
}

options! {
    /// The control socket.
    ControlSettings "control" {
        /// The socket that `brickway show`, `set` and `reload` use. Without it each network namespace has its own:
        /// /run/brickway/NUMBER.sock, with the number that `stat -Lc %i /proc/self/ns/net` prints.
        #[example = "\"/run/brickway/router.sock\""]
        #[flag("socket", "PATH")]
        socket: Option<PathBuf> = None,
        /// The group that may use `show` besides root, by name or number.
        #[example = "\"root\""]
        read_group: Option<String> = None,
        /// The group that may use `show`, `set` and `reload` besides root.
        #[example = "\"root\""]
        write_group: Option<String> = None,
    }
}

impl About for ControlSettings {
    fn summary(&self) -> Option<(&'static str, String)> {
        let usual = || "the usual socket of the network namespace".to_owned();
        Some(("control", self.socket.as_ref().map_or_else(usual, |path| path.display().to_string())))
    }
}

options! {
    /// Output and log while the router runs.
    LogSettings "log" {
        /// Print a line of rates every so many seconds; 0 for none. Without it every second on a terminal, else none.
        #[example = "0"]
        #[flag("stats", "SECONDS")]
        #[live = true]
        stats_seconds: Option<Period> = None,
        /// How much is logged, to standard error and the journal, and kept for `brickway monitor`: "error", "warn", "info", or
        /// "debug", which has the states of neighbours.
        #[example = "\"info\""]
        #[flag("log-level", "LEVEL")]
        #[live = true]
        level: Level = Level::Info,
    }
}

impl About for LogSettings {}

options! {
    /// Metrics for Prometheus.
    MetricsSettings "metrics" {
        /// Serve metrics for Prometheus (/metrics) at this address and port. Without it there is no listener. An address that other hosts reach
        /// needs the three options below.
        #[example = "\"127.0.0.1:9779\""]
        #[flag("metrics", "ADDRESS:PORT")]
        listen: Option<SocketAddr> = None,
        /// A file with the word that clients send as `Authorization: Bearer WORD`: at least 16 characters, readable by root alone.
        #[example = "\"/etc/brickway/metrics.token\""]
        token_file: Option<PathBuf> = None,
        /// The certificate for TLS, in PEM, followed by those that signed it.
        #[example = "\"/etc/brickway/metrics.pem\""]
        certificate: Option<PathBuf> = None,
        /// The key of the certificate, in PEM.
        #[example = "\"/etc/brickway/metrics.key\""]
        key: Option<PathBuf> = None,
    }
}

impl MetricsSettings {
    /// Returns where to listen and for whom; `None`: nowhere.
    pub(crate) fn door(&self) -> Option<Door> {
        let tls = self.certificate.clone().zip(self.key.clone());
        Some(Door { listen: self.listen?, token_file: self.token_file.clone(), tls })
    }
}

impl About for MetricsSettings {
    fn problem(&self) -> Option<Problem> {
        let Self { listen, token_file, certificate, key } = self;
        door_problem(*listen, token_file.is_some(), [certificate.is_some(), key.is_some()])
    }

    fn summary(&self) -> Option<(&'static str, String)> {
        Some(("metrics", format!("at {}", self.listen?)))
    }
}

options! {
    /// The web page and the HTTP API.
    WebSettings "web" {
        /// Serve the web page, the API (/api/v1) and metrics at this address and port. Without it there is no listener. An address that other hosts reach
        /// needs the three options below.
        #[example = "\"127.0.0.1:8779\""]
        #[flag("web", "ADDRESS:PORT")]
        listen: Option<SocketAddr> = None,
        /// A file with the word that clients send as `Authorization: Bearer WORD`: at least 16 characters, readable by root alone.
        #[example = "\"/etc/brickway/web.token\""]
        token_file: Option<PathBuf> = None,
        /// The certificate for TLS, in PEM, followed by those that signed it.
        #[example = "\"/etc/brickway/web.pem\""]
        certificate: Option<PathBuf> = None,
        /// The key of the certificate, in PEM.
        #[example = "\"/etc/brickway/web.key\""]
        key: Option<PathBuf> = None,
        /// Show the addresses and ports of the busiest flows, which are packets of other users, to all who see the page. While somebody
        /// looks, packets are sampled for a second of five.
        #[example = "false"]
        #[flag("web-flows", "=true")]
        flows: bool = false,
    }
}

impl WebSettings {
    /// Returns where to listen and for whom; `None`: nowhere.
    pub(crate) fn door(&self) -> Option<Door> {
        let tls = self.certificate.clone().zip(self.key.clone());
        Some(Door { listen: self.listen?, token_file: self.token_file.clone(), tls })
    }
}

impl About for WebSettings {
    fn problem(&self) -> Option<Problem> {
        let Self { listen, token_file, certificate, key, flows: _ } = self;
        door_problem(*listen, token_file.is_some(), [certificate.is_some(), key.is_some()])
    }

    fn summary(&self) -> Option<(&'static str, String)> {
        Some(("web", format!("at {}", self.listen?)))
    }
}

/// Where HTTP is served, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Door {
    pub(crate) listen: SocketAddr,
    pub(crate) token_file: Option<PathBuf>,
    /// Certificate and key.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
}

/// What is wrong with who may come: other hosts only with a token, by TLS.
fn door_problem(
    listen: Option<SocketAddr>,
    has_token: bool,
    [has_certificate, has_key]: [bool; 2],
) -> Option<Problem> {
    let given = [("token_file", has_token), ("certificate", has_certificate), ("key", has_key)];
    let Some(listen) = listen else {
        let (key, _) = given.into_iter().find(|(_, is_given)| *is_given)?;
        return Some((
            key,
            format!("{key} without listen does nothing"),
            "expected listen beside it".to_owned(),
        ));
    };
    if has_certificate != has_key {
        let (key, other) = if has_key { ("key", "certificate") } else { ("certificate", "key") };
        return Some((
            key,
            format!("{key} without {other}"),
            format!("expected both, or neither; add {other}"),
        ));
    }
    let is_guarded = listen.ip().is_loopback() || has_token && has_key;
    (!is_guarded).then(|| {
        let message = format!("{listen} can be reached from other hosts without a token and TLS");
        let right =
            "expected an address of this host alone, as 127.0.0.1, or token_file, certificate and key";
        ("listen", message, right.to_owned())
    })
}

impl Value for Level {
    fn read(toml: &DeValue<'_>, _limits: Option<(f64, f64)>) -> Option<Self> {
        let text = toml.as_str()?;
        Level::ALL.into_iter().find(|level| level.word() == text)
    }

    fn expected(_limits: Option<(f64, f64)>) -> String {
        format!("one of {}", Level::ALL.map(|level| format!("\"{}\"", level.word())).join(", "))
    }

    fn to_toml(&self) -> Option<String> {
        Some(format!("\"{}\"", self.word()))
    }
}

/// Seconds between two lines of rates; 0 for none. More lines than ten a second nobody reads, and each asks every worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Period(pub(crate) f64);

impl Value for Period {
    fn read(toml: &DeValue<'_>, _limits: Option<(f64, f64)>) -> Option<Self> {
        let seconds = f64::read(toml, Some((0.0, 86_400.0)))?;
        (seconds == 0.0 || seconds >= 0.1).then_some(Period(seconds))
    }

    fn expected(_limits: Option<(f64, f64)>) -> String {
        "a number of seconds from 0.1 to 86400, or 0 for none".to_owned()
    }

    fn to_toml(&self) -> Option<String> {
        self.0.to_toml()
    }

    fn quote(text: &str) -> String {
        f64::quote(text)
    }
}

impl Settings {
    /// Returns the sections with options, in the order of the file; ports stand behind the first.
    pub(super) fn sections(&self) -> Vec<&dyn Section> {
        let Settings {
            general,
            ports: _,
            workers,
            memory,
            tables,
            features,
            fpm,
            beside_linux,
            control,
            log,
            metrics,
            web,
            sflow,
            ipfix,
            follows_ipsec: _,
        } = self;
        let mut sections: Vec<&dyn Section> = vec![general, workers, memory, tables];
        sections.extend(features.all().into_iter().map(|feature| feature as &dyn Section));
        sections.extend([fpm as &dyn Section, beside_linux, control, log, metrics, web, sflow, ipfix]);
        sections
    }

    fn sections_mut(&mut self) -> Vec<&mut dyn Section> {
        let Settings {
            general,
            ports: _,
            workers,
            memory,
            tables,
            features,
            fpm,
            beside_linux,
            control,
            log,
            metrics,
            web,
            sflow,
            ipfix,
            follows_ipsec: _,
        } = self;
        let mut sections: Vec<&mut dyn Section> = vec![general, workers, memory, tables];
        sections.extend(features.all_mut().into_iter().map(|feature| feature as &mut dyn Section));
        sections.extend([fpm as &mut dyn Section, beside_linux, control, log, metrics, web, sflow, ipfix]);
        sections
    }

    /// Returns all options but those of ports, in the order of the file.
    pub(crate) fn options() -> impl Iterator<Item = &'static Opt> {
        Settings::default()
            .sections()
            .into_iter()
            .flat_map(|section| section.options())
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Returns those that are not of features.
    pub(crate) fn options_beside_features() -> impl Iterator<Item = &'static Opt> {
        Self::options().filter(|option| !FeatureSettings::has(option))
    }

    /// Sets an option from a text without quotes.
    ///
    /// # Errors
    /// What was expected.
    pub(crate) fn set(&mut self, option: &Opt, text: &str) -> Result<(), String> {
        let section = self.sections_mut().into_iter().find(|section| section.has(option));
        let section = section.ok_or("there is no such option")?;
        section.set(option.key, text)?;
        match section.problem() {
            Some((_, message, right)) => Err(format!("{message}; {right}")),
            None => Ok(()),
        }
    }

    /// Puts what the command line says above these settings.
    ///
    /// # Errors
    /// Names the flag that is wrong, and what was expected.
    pub(crate) fn apply<const OF_NODE: bool>(&mut self, flags: &Flags<OF_NODE>) -> Result<(), String> {
        let is_given = |flag| flags.given().any(|(given, _)| given == flag);
        if is_given("workers") && !is_given("min-workers") {
            // The least of a file that was written for another number of workers.
            let count = flags.0.iter().find(|(option, _)| option.key == "count");
            let count = count.and_then(|(_, text)| text.parse().ok()).unwrap_or(usize::MAX);
            self.workers.min = self.workers.min.map(|min| min.min(count));
        }
        for (option, text) in &flags.0 {
            let flag = option.flag.map_or(option.key, |(flag, _)| flag);
            self.set(option, text).map_err(|problem| format!("--{flag}: {problem}"))?;
        }
        Ok(())
    }

    /// Returns whether there is something that Linux must not forward past the router: a part of what `drop_in::Graph` decides.
    pub(crate) fn filters(&self) -> bool {
        self.features.filter() || self.general.fail == Fail::Closed
    }
}
