//! What Linux was configured to do to packets that it forwards. Packets of the fast path bypass it. So a router does not start beside
//! rules that filter, translate or encrypt, until the settings ignore them.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | [`look`]: all there is; [`refuse`], for a router that is about to start; [`Watcher`], for one that runs |
//! | `nftables` | chains of nftables, those of iptables-nft among them |
//! | `ipsec` | policies of IPsec |
//! | `interface` | what is at one interface: queueing disciplines, programs, interfaces with MACs of their own |

pub(crate) mod interface;
mod ipsec;
mod nftables;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::settings::{Bypass, PortSettings, Settings};

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

/// Returns the names of these ports' interfaces.
fn interfaces(ports: &[PortSettings]) -> Vec<&str> {
    ports.iter().flat_map(|port| port.device.as_deref().into_iter().chain([port.name.as_str()])).collect()
}

/// Looks for what a router with these settings bypasses and does not ignore.
fn not_ignored(settings: &Settings) -> Findings {
    let mut findings = look(&interfaces(&settings.ports));
    findings.found.retain(|found| {
        let is_followed = settings.follows_ipsec && found.word == Bypass::Ipsec;
        !is_followed && !settings.beside_linux.ignore.contains(&found.word)
    });
    findings
}

/// Refuses to start a router that would bypass what its settings do not ignore.
///
/// # Errors
///
/// Names each chain and policy, and what to do.
pub(crate) fn refuse(settings: &Settings) -> Result<()> {
    let Findings { found, unknown } = not_ignored(settings);
    for (subject, error) in unknown {
        graph::note!("brickway: {subject}: rules for forwarded packets cannot be read: {error}");
    }
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

/// How often a router that runs looks again.
const PERIOD: Duration = Duration::from_secs(60);

/// Reports what Linux was told after the router started.
#[derive(Debug)]
pub(crate) struct Watcher {
    next: Instant,
    known: Vec<Bypassed>,
}

impl Watcher {
    /// Makes one that reports at its first look all there is.
    pub(crate) fn new() -> Self {
        Self { next: Instant::now() + PERIOD, known: Vec::new() }
    }

    /// Returns what is new since the last look, once a minute.
    pub(crate) fn look(&mut self, settings: &Settings) -> Vec<String> {
        if Instant::now() < self.next {
            return Vec::new();
        }
        self.next = Instant::now() + PERIOD;
        let found = not_ignored(settings).found;
        let new = found.iter().filter(|found| !self.known.contains(found)).map(warning).collect();
        self.known = found;
        new
    }
}

/// Lists what a router that runs bypasses and does not ignore.
pub(crate) fn problems(settings: &Settings) -> Vec<String> {
    not_ignored(settings).found.iter().map(warning).collect()
}

fn warning(found: &Bypassed) -> String {
    format!("{found} is bypassed by what the router forwards")
}
