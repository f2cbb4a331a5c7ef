//! The settings of a router that runs beside Linux: a file, `brickway.toml`, or the ports' names on the
//! command line, and flags of the command line above either. `examples/brickway.toml` describes every option.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | [`Settings`] with their defaults; flags above a file |
//! | `file` | from a file, with every mistake in it |
//! | `vlan` | ports that are VLANs of other ports |
//! | `differences` | which options differ between two of them |
//! | `reader` | a TOML file read by name, type and range |
//! | `print` | as a file again, and as a summary |

mod differences;
mod file;
mod print;
mod reader;
#[cfg(test)]
mod tests;
mod vlan;

use std::net::SocketAddr;
use std::path::PathBuf;

use ports::Spec;

pub(crate) use file::{check, is_settings_file, load, ports_to_close};
pub(crate) use vlan::vlan_of;

/// Most workers that a router has.
const MOST_WORKERS: usize = 256;

/// What a router is to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    pub(crate) ports: Vec<PortSettings>,
    pub(crate) workers: WorkerSettings,
    pub(crate) slow_path: SlowPath,
    pub(crate) acl: AclSettings,
    pub(crate) reverse_path: ReversePath,
    pub(crate) fail: Fail,
    /// Where FRR's forwarding plane manager connects to; none: nowhere.
    pub(crate) fpm: Option<FpmSettings>,
    /// What Linux was configured to do to forwarded packets, and the router may bypass.
    pub(crate) ignore: Vec<Bypass>,
    pub(crate) control: ControlSettings,
    pub(crate) log: LogSettings,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortSettings {
    /// The name of Linux's interface, or of the TAP interface that Linux gets for it.
    pub(crate) name: String,
    pub(crate) driver: Driver,
    /// What the driver opens, when that is not the interface `name`.
    pub(crate) device: Option<String>,
    /// Options of the driver, as in a port's spec: `queues=2&ring=2048`. May be empty.
    pub(crate) options: String,
    pub(crate) host: Host,
}

/// A word of the settings: its name in the file, and what it stands for.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All of them, by their names in the file.
            const WORDS: &[(&'static str, Self)] = &[$(($word, Self::$variant),)*];

            /// Its name in the file.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let known = Self::WORDS.iter().find(|(word, _)| *word == text);
                known.map(|(_, value)| *value).ok_or_else(|| {
                    let words: Vec<&str> = Self::WORDS.iter().map(|(word, _)| *word).collect();
                    format!("right would be {}", words.join(", "))
                })
            }
        }
    };
}

words! {
    /// What carries a port's packets.
    Driver {
        /// A BPF program and AF_XDP sockets.
        #[default]
        AfXdp "af_xdp",
        /// Memory-mapped packet rings.
        AfPacket "af_packet",
        /// A device of DPDK.
        Dpdk "dpdk",
        /// A TAP device: Linux has its other end.
        Tap "tap",
        /// Another port: this one is a VLAN of it.
        Vlan "vlan",
    }
}

words! {
    /// How Linux sees a port.
    Host {
        /// As the interface that it is.
        #[default]
        Interface "interface",
        /// As a TAP interface with the port's link address, made for it.
        Tap "tap",
        /// Not at all: nothing goes up to Linux by this port.
        None "none",
    }
}

words! {
    /// Who finishes what the fast path does not: ARP, errors, packets to the router itself.
    SlowPath {
        /// Linux itself.
        #[default]
        Linux "linux",
        /// Elements of ours, on the slow thread.
        Native "native",
    }
}

words! {
    /// Which source addresses are believed (RFC 3704).
    ReversePath {
        /// For IPv4 those that Linux's `net.ipv4.conf.*.rp_filter` of the port lets it believe; for IPv6 all.
        #[default]
        Linux "linux",
        /// All.
        Off "off",
        /// Those to which there is a route by any port (2.4).
        Loose "loose",
        /// Those to which there is a route by the port that the packet came in (2.2).
        Strict "strict",
    }
}

words! {
    /// What Linux forwards between the ports while no router runs.
    Fail {
        /// All that it would forward without a router.
        #[default]
        Open "open",
        /// Nothing.
        Closed "closed",
    }
}

words! {
    /// What happens to packets that no rule decides.
    AclDefault {
        /// They are forwarded.
        #[default]
        Permit "permit",
        /// They are dropped.
        Deny "deny",
    }
}

words! {
    /// What Linux does to packets that it forwards, and does not do to those that the fast path forwards.
    Bypass {
        /// Filters: chains of nftables and iptables.
        #[default]
        Firewall "firewall",
        /// Address translation.
        Nat "nat",
        /// IPsec.
        Ipsec "ipsec",
    }
}

/// The server for FRR's forwarding plane manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FpmSettings {
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// Users of this host who may connect besides root; without any that of FRR.
    pub(crate) users: Option<Vec<String>>,
    /// Whether everybody who reaches the address may connect, from other hosts too.
    pub(crate) insecure: bool,
}

impl FpmSettings {
    /// Returns the settings for FRR's user, at this address.
    pub(crate) fn at(listen: SocketAddr) -> Self {
        Self { listen, users: None, insecure: false }
    }

    /// Returns what is wrong with the address, if anything is.
    fn problem(&self) -> Option<String> {
        (!self.insecure && !self.listen.ip().is_loopback())
            .then(|| format!("{} can be reached from other hosts, whose users nobody knows", self.listen))
    }

    /// Returns the options of the server.
    pub(crate) fn options(&self) -> control::fpm::ServerOptions {
        use control::fpm::{Peers, ServerOptions};
        let peers = match &self.users {
            _ if self.insecure => Peers::Anybody,
            Some(users) => Peers::Users(users.clone()),
            None => Peers::default(),
        };
        ServerOptions { peers, ..ServerOptions::new(self.listen) }
    }
}

/// What is right where [`FpmSettings::problem`] is not.
const RIGHT_LISTEN: &str =
    "expected is an address of this host alone, as 127.0.0.1, or insecure = true in [fpm]";

/// The threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerSettings {
    /// How many.
    pub(crate) count: usize,
    /// Packets taken from a port at a time.
    pub(crate) burst: usize,
    /// Whether queues and flows move from the busiest to the idlest.
    pub(crate) balance: bool,
    /// With `balance`: workers that stay at work when there is little to do; none: all.
    pub(crate) min: Option<usize>,
    /// Whether each is bound to a CPU.
    pub(crate) pin: bool,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self { count: 1, burst: 32, balance: true, min: None, pin: true }
    }
}

/// The access list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AclSettings {
    /// A file with rules, one a line, beside `rules`.
    pub(crate) file: Option<PathBuf>,
    /// Rules, as the element ACL takes them.
    pub(crate) rules: Vec<String>,
    pub(crate) default: AclDefault,
}

impl AclSettings {
    /// Whether there is an access list.
    pub(crate) fn filters(&self) -> bool {
        self.file.is_some() || !self.rules.is_empty() || self.default == AclDefault::Deny
    }
}

/// The control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ControlSettings {
    /// Its path; without one that of the network namespace.
    pub(crate) socket: Option<PathBuf>,
    /// The group that may show everything besides root, by name or number.
    pub(crate) read_group: Option<String>,
    /// The group that may show and change everything.
    pub(crate) write_group: Option<String>,
}

/// What is printed while the router runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LogSettings {
    /// Seconds between two lines of rates; 0 for none.
    pub(crate) stats_seconds: f64,
}

impl PortSettings {
    /// The interface of this name, in the usual way.
    pub(crate) fn new(name: &str) -> Self {
        let (driver, host) = (Driver::default(), Host::default());
        Self { name: name.to_owned(), driver, device: None, options: String::new(), host }
    }

    /// How Linux sees a port of this driver if nothing else is said.
    fn usual_host(driver: Driver) -> Host {
        match driver {
            Driver::AfXdp | Driver::AfPacket | Driver::Vlan => Host::Interface,
            Driver::Dpdk | Driver::Tap => Host::Tap,
        }
    }

    /// The spec that opens it: `af_xdp:eth1?steer=transit&ring=2048`. With Linux's own interface the driver
    /// leaves to Linux what is not transit.
    pub(crate) fn spec(&self) -> String {
        if self.driver == Driver::Vlan {
            return format!("vlan:{}", self.name);
        }
        let mut options = Vec::new();
        if self.host == Host::Interface && !self.options.split('&').any(|option| option.starts_with("steer="))
        {
            options.push("steer=transit");
        }
        options.extend(Some(self.options.as_str()).filter(|options| !options.is_empty()));
        let question = if options.is_empty() { "" } else { "?" };
        let device = self.device.as_deref().unwrap_or(&self.name);
        format!("{}:{device}{question}{}", self.driver.word(), options.join("&"))
    }

    /// What is wrong with it: the option to blame, what it is, and what would be right.
    fn problem(&self) -> Option<(&'static str, String, String)> {
        let is_interface = |name: &str| {
            (1..=15).contains(&name.len())
                && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
        };
        if !is_interface(&self.name) {
            let right = "an interface has 1 to 15 characters, no '/', ':' or blank among them";
            return Some((
                "name",
                format!("'{}' cannot be an interface's name", self.name),
                right.to_owned(),
            ));
        }
        if self.driver == Driver::Vlan {
            // What can be wrong with it depends on the other ports.
            return None;
        }
        if self.host == Host::Interface && matches!(self.driver, Driver::Dpdk | Driver::Tap) {
            let message = format!("a port of {} is no interface of Linux", self.driver.word());
            return Some(("host", message, "host is \"tap\" or \"none\"".to_owned()));
        }
        if self.driver == Driver::Tap && self.host == Host::Tap && self.device.is_none() {
            let message =
                format!("the TAP port '{0}' and the interface that stands for it are both '{0}'", self.name);
            return Some(("name", message, "give it another name than its device: lan=tap:vm0".to_owned()));
        }
        let key = if self.options.is_empty() { "device" } else { "options" };
        Spec::parse(&self.spec()).err().map(|error| (key, error.to_string(), String::new()))
    }
}

/// What the command line says above a file; `None` leaves what the file says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) workers: Option<usize>,
    pub(crate) burst: Option<usize>,
    pub(crate) balance: Option<bool>,
    pub(crate) min_workers: Option<usize>,
    pub(crate) pin: Option<bool>,
    pub(crate) slow_path: Option<SlowPath>,
    pub(crate) reverse_path: Option<ReversePath>,
    pub(crate) fpm: Option<SocketAddr>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) ignore: Vec<Bypass>,
    pub(crate) stats_seconds: Option<f64>,
}

impl Settings {
    /// Whether there is something that Linux must not forward past the router.
    pub(crate) fn filters(&self) -> bool {
        self.acl.filters()
            || matches!(self.reverse_path, ReversePath::Loose | ReversePath::Strict)
            || self.fail == Fail::Closed
    }

    /// Settings for ports as the command line names them: an interface (`eth1`), one with options
    /// (`eth1?queues=2`), a driver and what it opens (`af_packet:eth1`, `wan=dpdk:0000:03:00.0` with the
    /// name of the interface that Linux gets), or a VLAN of another of them (`eth1.100`). `driver` is for those that name
    /// none.
    ///
    /// # Errors
    /// Says which port is wrong, and what would be right.
    pub(crate) fn of_ports<'a>(
        names: impl IntoIterator<Item = &'a str>,
        driver: Driver,
    ) -> Result<Self, String> {
        let wrong = |(_, message, right): (_, String, String)| {
            let semicolon = if right.is_empty() { "" } else { "; " };
            Err(format!("{message}{semicolon}{right}"))
        };
        let mut settings = Self::default();
        let mut is_open = Vec::new();
        for text in names {
            let (target, options) = text.split_once('?').unwrap_or((text, ""));
            // What stands before the first `:` and `=` is a name; behind a `:` the `=` belongs to the device.
            let named = target.split_once('=').filter(|(name, _)| !name.contains(':'));
            let (name, target) = named.map_or((None, target), |(name, target)| (Some(name), target));
            let mut port = PortSettings { driver, ..PortSettings::new(target) };
            port.host = PortSettings::usual_host(driver);
            if let Some((driver, device)) = target.split_once(':') {
                let known = Driver::WORDS.iter().find(|(word, _)| *word == driver);
                port.driver = known.map(|(_, driver)| *driver).ok_or_else(|| {
                    let words: Vec<&str> = Driver::WORDS.iter().map(|(word, _)| *word).collect();
                    format!(
                        "port '{text}': there is no driver '{driver}' for it; the drivers are {}",
                        words.join(", ")
                    )
                })?;
                port.host = PortSettings::usual_host(port.driver);
                port.name = match port.driver {
                    _ if name.is_some() => name.unwrap_or_default().to_owned(),
                    // A PCI address is no name of an interface.
                    Driver::Dpdk => ports::twin_name(device),
                    _ => device.to_owned(),
                };
                port.device = (port.name != device).then(|| device.to_owned());
            }
            if let Some(name) = name.filter(|name| *name != port.name) {
                return Err(format!(
                    "port '{text}': the interface '{}' is Linux's, and goes by its own name, not '{name}'",
                    port.name
                ));
            }
            port.options = options.to_owned();
            is_open.push(target == port.name && options.is_empty());
            port.problem().map_or(Ok(()), wrong)?;
            if settings.ports.iter().any(|other| other.name == port.name) {
                return Err(format!("port '{}' is named twice; once is right", port.name));
            }
            settings.ports.push(port);
        }
        let ports = &mut settings.ports;
        vlan::find_vlans(ports, |at| is_open[at]);
        ports.iter().find_map(|port| vlan::problem(port, ports)).map_or(Ok(()), wrong)?;
        Ok(settings)
    }

    /// Puts what the command line says above these settings.
    ///
    /// # Errors
    /// Names the flag that is wrong, and says what would be right.
    pub(crate) fn apply(&mut self, overrides: &Overrides) -> Result<(), String> {
        let o = overrides.clone();
        let workers = &mut self.workers;
        if let Some(count) = o.workers {
            // Of a file that was written for another number of workers.
            workers.min = workers.min.map(|min| min.min(count));
            workers.count = count;
        }
        workers.burst = o.burst.unwrap_or(workers.burst);
        workers.balance = o.balance.unwrap_or(workers.balance);
        workers.min = o.min_workers.or(workers.min);
        workers.pin = o.pin.unwrap_or(workers.pin);
        self.slow_path = o.slow_path.unwrap_or(self.slow_path);
        self.reverse_path = o.reverse_path.unwrap_or(self.reverse_path);
        if let Some(listen) = o.fpm {
            self.fpm.get_or_insert_with(|| FpmSettings::at(listen)).listen = listen;
        }
        if let Some(problem) = self.fpm.as_ref().and_then(FpmSettings::problem) {
            return Err(format!("--fpm {problem}; {RIGHT_LISTEN}"));
        }
        self.control.socket = o.socket.or(self.control.socket.take());
        self.ignore.extend(o.ignore);
        self.log.stats_seconds = o.stats_seconds.unwrap_or(self.log.stats_seconds);
        for (flag, number, most) in [
            ("--workers", self.workers.count, MOST_WORKERS),
            ("--burst", self.workers.burst, packet::MAX_BATCH),
            ("--min-workers", self.workers.min.unwrap_or(1), self.workers.count),
        ] {
            if !(1..=most).contains(&number) {
                return Err(format!("{flag} {number} is out of range: 1 to {most}"));
            }
        }
        Ok(())
    }
}
