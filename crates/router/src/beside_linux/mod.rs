//! What Linux was configured to do to packets that it forwards. Packets of the fast path bypass it. So a router does not start beside
//! rules that filter, translate or encrypt, until the settings ignore them.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | [`look`]: all there is; [`refuse`], for a router that is about to start; [`Watcher`], for one that runs |
//! | `nftables` | chains of nftables, those of iptables-nft among them |
//! | `ipsec` | policies of IPsec |
//! | `marks` | what may set marks, by which policy rules select |
//! | `tc` | what tc has at an interface |
//! | `twice` | packets that both a configuration and Linux forward |
//! | `interface` | what is at one interface: queueing disciplines, programs, interfaces with MACs of their own |

pub(crate) mod interface;
mod ipsec;
pub(crate) mod marks;
mod nftables;
pub(crate) mod tc;
pub(crate) mod twice;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use packet::pulse::aside;

use crate::settings::{Bypass, Driver, PortSettings, Settings};

/// Something that Linux does to forwarded packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bypassed {
    /// The word by which it is ignored.
    pub(crate) word: Bypass,
    /// Who does it: `nftables`, `iptables-legacy`, `ipsec`.
    pub(crate) subject: &'static str,
    /// The chain or policy.
    pub(crate) what: String,
    /// The command that shows it.
    pub(crate) shown_by: String,
}

impl std::fmt::Display for Bypassed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} ({})", self.subject, self.what, self.word.word())
    }
}

/// What was found, and what could not be looked at.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) found: Vec<Bypassed>,
    /// Subjects with the reason.
    pub(crate) unknown: Vec<(&'static str, String)>,
}

/// Looks at the network namespace of this thread. Chains that belong to interfaces count for these only.
pub(crate) fn look(interfaces: &[&str]) -> Findings {
    let mut findings = Findings::default();
    for (subject, looked) in [
        ("nftables", nftables::chains(interfaces)),
        ("iptables-legacy", legacy_chains()),
        ("ipsec", ipsec::policies()),
    ] {
        match looked {
            Ok(found) => findings.found.extend(found),
            Err(error) => findings.unknown.push((subject, error.to_string())),
        }
    }
    findings
}

fn legacy_chains() -> std::io::Result<Vec<Bypassed>> {
    let chains = ports::legacy_chains()?.into_iter().map(|chain| Bypassed {
        word: if chain.table == "nat" { Bypass::Nat } else { Bypass::Firewall },
        subject: chain.program,
        what: format!("chain '{}' of table '{}'", chain.chain, chain.table),
        shown_by: format!("{} -t {} -S {}", chain.program, chain.table, chain.chain),
    });
    Ok(chains.collect())
}

/// Returns the names of these ports' interfaces, those that Linux has for them now among them.
fn interfaces(ports: &[PortSettings]) -> Vec<String> {
    let names = ports.iter().flat_map(|port| port.device.clone().into_iter().chain([port.name.clone()]));
    let mut names: Vec<String> = names.flat_map(|name| [ports::kernel_name(&name), name]).collect();
    names.dedup();
    names
}

/// Looks for what a router with these settings bypasses and does not ignore. The second value is how many policies of IPsec it ignores.
fn not_ignored(settings: &Settings) -> (Findings, usize) {
    let names = interfaces(&settings.ports);
    let mut findings = look(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let is_ipsec = |found: &Bypassed| found.word == Bypass::Ipsec;
    let is_ignored = |found: &Bypassed| settings.beside_linux.ignore.contains(&found.word);
    let policies = findings.found.iter().filter(|found| is_ipsec(found) && is_ignored(found)).count();
    let is_followed = |found: &Bypassed| settings.follows_ipsec && is_ipsec(found);
    findings.found.retain(|found| !is_followed(found) && !is_ignored(found));
    (findings, policies)
}

/// Warns of policies of IPsec that are ignored, if there are some.
fn unprotected(policies: usize) -> Option<String> {
    let policies = match policies {
        0 => return None,
        1 => "a policy".to_owned(),
        several => format!("{several} policies"),
    };
    Some(format!(
        "ipsec: the router ignores {policies} of Linux, and forwards packets unprotected; 'brickway run PORT...' without '--ignore ipsec' \
         protects them"
    ))
}

/// Refuses to start a router that would bypass what its settings do not ignore.
///
/// # Errors
///
/// Names each chain and policy, and what to do.
pub(crate) fn refuse(settings: &Settings) -> Result<()> {
    let (Findings { found, unknown }, policies) = not_ignored(settings);
    for (subject, error) in unknown {
        tracing::warn!("{subject}: rules for forwarded packets cannot be read: {error}");
    }
    unprotected(policies).iter().for_each(|warning| tracing::warn!("{warning}"));
    if found.is_empty() {
        return Ok(());
    }
    let mut words: Vec<&str> = Vec::new();
    for found in &found {
        if !words.contains(&found.word.word()) {
            words.push(found.word.word());
        }
    }
    let lines: Vec<String> =
        found.iter().map(|found| format!("  {found}\n    shown by: {}\n", found.shown_by)).collect();
    bail!(
        "Linux has rules for forwarded packets, which a router beside it bypasses:\n{}remove them, or give the router rules of its \
         own (--acl FILE) and ignore these: --ignore {}, or in the settings [beside_linux] ignore = [\"{}\"]",
        lines.concat(),
        words.join(","),
        words.join("\", \"")
    );
}

/// Returns what tc does at ports' interfaces, which the fast path passes by.
fn at_ports(settings: &Settings) -> Vec<String> {
    let usual = usual_discipline();
    let is_of_linux = |driver| !matches!(driver, Driver::Dpdk | Driver::Tap);
    let ports = settings.ports.iter().filter(|port| is_of_linux(port.driver));
    let found = ports.flat_map(|port| {
        let found = interface::look_at_tc(&ports::kernel_name(&port.name), &usual);
        found.into_iter().map(|found| format!("{}: {}: {}", port.name, found.what, found.why))
    });
    found.collect()
}

/// The queueing discipline that the administrator gave all interfaces.
pub(crate) fn usual_discipline() -> String {
    let text = std::fs::read_to_string("/proc/sys/net/core/default_qdisc").unwrap_or_default();
    text.trim().to_owned()
}

/// How often a router that runs looks again.
const PERIOD: Duration = Duration::from_secs(60);

/// Reports rules that came after the router started.
#[derive(Debug)]
pub(crate) struct Watcher {
    next: Instant,
    known: Vec<Bypassed>,
    known_at_ports: Vec<String>,
    /// Whether there were policies of IPsec that are ignored.
    ignores_ipsec: bool,
}

impl Watcher {
    /// Makes one for a router that starts now: [`refuse`] has warned of what is ignored. It reports the rest at its first look.
    pub(crate) fn new(settings: &Settings) -> Self {
        let (policies, known_at_ports) = aside(|| (not_ignored(settings).1, at_ports(settings)));
        let ignores_ipsec = policies != 0;
        Self { next: Instant::now() + PERIOD, known: Vec::new(), known_at_ports, ignores_ipsec }
    }

    /// Returns what is new since the last look, once a minute.
    pub(crate) fn look(&mut self, settings: &Settings) -> Vec<String> {
        if Instant::now() < self.next {
            return Vec::new();
        }
        self.next = Instant::now() + PERIOD;
        let ((Findings { found, .. }, policies), at_ports) =
            aside(|| (not_ignored(settings), at_ports(settings)));
        let mut new: Vec<String> =
            found.iter().filter(|found| !self.known.contains(found)).map(warning).collect();
        new.extend(unprotected(policies).filter(|_| !self.ignores_ipsec));
        new.extend(at_ports.iter().filter(|found| !self.known_at_ports.contains(found)).cloned());
        (self.known, self.known_at_ports, self.ignores_ipsec) = (found, at_ports, policies != 0);
        new
    }
}

/// Lists what a router that runs bypasses and does not ignore, and warns of policies of IPsec that it ignores.
pub(crate) fn problems(settings: &Settings) -> Vec<String> {
    let (Findings { found, .. }, policies) = not_ignored(settings);
    found.iter().map(warning).chain(unprotected(policies)).chain(at_ports(settings)).collect()
}

fn warning(found: &Bypassed) -> String {
    format!("{found} is bypassed by what the router forwards")
}
