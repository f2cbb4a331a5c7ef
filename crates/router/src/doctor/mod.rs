//! `brickway doctor`: whether this machine and its interfaces let a router work, what is in its way, and what
//! to do about it.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | the command; findings, how they are printed and put right |
//! | `machine` | the kernel, permissions, memory, forwarding by Linux |
//! | `interface` | the interfaces of the ports |
//! | `bypassed` | what Linux was configured to do to forwarded packets, and is bypassed |
//! | `offloads` | what a card or veth does to packets that a router must not get so |
//! | `card_report` | what a maintainer needs to know of cards |
//! | `transit` | which way plain transit goes at each port, and what would make a better one |

mod bypassed;
mod card_report;
mod interface;
mod machine;
mod offloads;
mod transit;

pub(crate) use transit::lacks_queues;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use control::backstop;
use graph::messages::printable_lines;
use graph::setup::Shared;
use packet::{IpVersion, PoolOptions};
use serde_json::json;

use crate::drop_in::Graph;
use crate::open_files;
use crate::output::{print, say_line};
use crate::settings::{self, Bypass, Driver, Host, Settings};
use crate::table::{Align, Table};

/// Checks whether this machine can route well: the kernel, permissions, memory, sysctls, IPsec, and rules of Linux that the router
/// bypasses. Of each PORT it checks link, MTU, queues, offloads, and the way of its transit.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  brickway doctor eth1 eth2                problems that 'brickway run eth1 eth2' would have
  brickway doctor --config brickway.toml   of the ports of a settings file
  sudo brickway doctor eth1 eth2 --fix     apply the remedies that can be applied
  brickway doctor --report                 how cards work, for the project: no addresses are in it

A PORT is an interface, or DRIVER:INTERFACE. '--fix' changes sysctls and offloads, and brings interfaces up, until
the next boot. It lets Linux forward again between ports that a router left closed (fail = \"closed\"). It prints
each change.
Exit codes: 0 no problem, 1 a problem, 2 wrong usage.")]
pub(crate) struct DoctorArguments {
    /// The ports that the router is to have
    #[arg(value_name = "PORT", add = ArgValueCandidates::new(crate::completion::interfaces))]
    ports: Vec<String>,
    /// Take ports and workers from a settings file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ports", "workers"])]
    config: Option<PathBuf>,
    /// Worker threads that the router is to have
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Put right what can be put right
    #[arg(long)]
    fix: bool,
    /// Print one JSON object a finding
    #[arg(long)]
    json: bool,
    /// Print what cards are and how they work with Brickway, to report to the project; without a PORT, of all cards
    #[arg(long, conflicts_with_all = ["fix", "json"])]
    report: bool,
}

/// What a feature finds.
#[derive(Debug, Default)]
pub(crate) struct Diagnosis {
    /// What it looked at.
    pub(crate) findings: Vec<Finding>,
    /// Why the graph will have to see all transit, if so.
    pub(crate) sees_transit: Option<&'static str>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As it should be.
    Ok,
    /// The router works, but not as well as it could, or not in every case.
    Warn,
    /// Packets will be lost, or the router does not start.
    Bad,
}

impl Verdict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Bad => "bad",
        }
    }
}

/// How a finding is put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing to do, or nothing that helps.
    None,
    /// By somebody who knows what else depends on it.
    ByHand(String),
    /// By writing a sysctl: its name, as `net.ipv4.ip_forward`, and its value.
    Sysctl(String, &'static str),
    /// By a program: it and its arguments, separated by spaces.
    Run(String),
    /// By letting Linux forward again what comes in by a port that a router left closed.
    Open(String),
}

impl Remedy {
    /// What a person would do.
    fn text(&self) -> String {
        match self {
            Remedy::None => String::new(),
            Remedy::ByHand(text) | Remedy::Run(text) => text.clone(),
            Remedy::Sysctl(name, value) => format!("sysctl -w {name}={value}"),
            Remedy::Open(port) => format!("remove the table brickway-{port} of nftables"),
        }
    }

    fn is_automatic(&self) -> bool {
        matches!(self, Remedy::Sysctl(..) | Remedy::Run(_) | Remedy::Open(_))
    }

    /// Does it. The error says why it did not work.
    fn apply(&self) -> Result<(), String> {
        match self {
            Remedy::None | Remedy::ByHand(_) => Ok(()),
            Remedy::Sysctl(name, value) => {
                std::fs::write(machine::sysctl_path(name), value).map_err(|error| error.to_string())
            }
            Remedy::Open(port) => {
                backstop::remove(std::slice::from_ref(port)).map(drop).map_err(|error| error.to_string())
            }
            Remedy::Run(command) => run(command).map(drop).map_err(|failure| failure.to_string()),
        }
    }
}

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    /// What it is about: `kernel`, `memory`, the name of an interface.
    subject: String,
    /// How it is.
    pub(crate) what: String,
    /// Why it matters; empty if all is well.
    why: &'static str,
    remedy: Remedy,
    /// What came of `--fix`.
    fixed: Option<Result<(), String>>,
    /// Whether no router starts so.
    prevents_start: bool,
}

impl Finding {
    pub(crate) fn ok(subject: &str, what: impl Into<String>) -> Self {
        Self::new(Verdict::Ok, subject, what, "", Remedy::None)
    }

    pub(crate) fn warn(subject: &str, what: impl Into<String>, why: &'static str, remedy: Remedy) -> Self {
        Self::new(Verdict::Warn, subject, what, why, remedy)
    }

    pub(crate) fn bad(subject: &str, what: impl Into<String>, why: &'static str, remedy: Remedy) -> Self {
        Self::new(Verdict::Bad, subject, what, why, remedy)
    }

    fn new(
        verdict: Verdict,
        subject: &str,
        what: impl Into<String>,
        why: &'static str,
        remedy: Remedy,
    ) -> Self {
        let (subject, what) = (subject.to_owned(), what.into());
        Self { verdict, subject, what, why, remedy, fixed: None, prevents_start: false }
    }

    /// The same, so that no router starts.
    fn preventing(self) -> Self {
        Self { prevents_start: true, ..self }
    }

    /// Whether it still is a problem.
    fn is_bad(&self) -> bool {
        self.verdict == Verdict::Bad && self.fixed != Some(Ok(()))
    }

    fn fix(&mut self) {
        if self.verdict != Verdict::Ok && self.remedy.is_automatic() {
            self.fixed = Some(self.remedy.apply());
        }
    }

    /// Returns all of it in one line.
    fn line(&self) -> String {
        let whole = std::iter::once(format!("{}: {}", self.subject, self.what)).chain(self.details());
        whole.collect::<Vec<_>>().join("; ")
    }

    /// Why it matters and what to do; lines below the finding's own.
    pub(crate) fn details(&self) -> Vec<String> {
        let remedy = self.remedy.text();
        let mut lines = Vec::new();
        if !self.why.is_empty() {
            lines.push(self.why.to_owned());
        }
        match remedy.is_empty() {
            true => {}
            false if self.remedy.is_automatic() => lines.push(format!(
                "fix: {remedy} ('brickway doctor --fix' with the same ports or settings does it)"
            )),
            false => lines.push(format!("fix: {remedy}")),
        }
        lines
    }

    /// What came of `--fix`, if anything was done.
    fn done(&self) -> Option<String> {
        let remedy = self.remedy.text();
        Some(match self.fixed.as_ref()? {
            Ok(()) => format!("fixed: {remedy}"),
            Err(error) => format!("not fixed: {remedy}: {error}"),
        })
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "verdict": self.verdict.word(), "subject": self.subject, "what": self.what, "why": self.why,
            "fix": self.remedy.text(), "can_fix": self.remedy.is_automatic(),
            "fixed": self.fixed.as_ref().map(Result::is_ok),
            "error": self.fixed.as_ref().and_then(|fixed| fixed.as_ref().err()),
        })
    }
}

/// A router that is to run here.
#[derive(Clone, Debug)]
struct Patient {
    ports: Vec<PatientPort>,
    workers: usize,
    /// Files that it opens.
    files: u64,
    /// Whether it keeps packets from being forwarded.
    filters: bool,
    /// The frames of each worker, and of the slow thread.
    pools: [PoolOptions; 2],
    /// Whether Linux finishes what the fast path does not.
    linux_is_slow_path: bool,
    /// What it may bypass.
    ignore: Vec<Bypass>,
    /// Why its own graph has to see all transit, if so.
    sees_transit: Option<&'static str>,
}

/// A port of it.
#[derive(Clone, Debug)]
struct PatientPort {
    /// What the driver opens: for all but DPDK an interface.
    device: String,
    driver: Driver,
    host: Host,
    /// What is opened, with options.
    spec: String,
}

impl Patient {
    fn of(settings: &Settings) -> Self {
        let port = |port: &settings::PortSettings| {
            let mut port = port.clone();
            port.fit_kind();
            PatientPort {
                device: port.device.clone().unwrap_or_else(|| ports::kernel_name(&port.name)),
                driver: port.driver,
                host: port.host,
                spec: port.spec(),
            }
        };
        Self {
            ports: settings.ports.iter().map(port).collect(),
            workers: settings.workers.count,
            files: open_files::needed(&settings.ports, settings.workers.count),
            filters: Graph::Ours(settings).filters(),
            pools: settings.memory.pools(settings.memory.frame_bytes(&settings.ports)),
            linux_is_slow_path: settings.features.need_linux_to_forward(),
            ignore: settings.beside_linux.ignore.clone(),
            sees_transit: settings.features.sees_transit(&Shared::default()),
        }
    }

    fn uses_xdp(&self) -> bool {
        self.ports.iter().any(|port| port.driver.is_xdp())
    }

    fn uses(&self, driver: Driver) -> bool {
        self.ports.iter().any(|port| port.driver == driver)
    }

    /// Looks at everything.
    fn examine(&self) -> Vec<Finding> {
        let mut findings = machine::examine(self);
        findings.extend(machine::closed_ports(self));
        for port in &self.ports {
            match port.driver {
                Driver::Auto | Driver::Xdp | Driver::AfXdp | Driver::AfPacket => {
                    findings.extend(interface::examine(port, self))
                }
                Driver::Vlan => findings.extend(interface::examine_vlan(port, self)),
                Driver::Dpdk | Driver::Tap => {}
            }
        }
        findings
    }
}

pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<ExitCode> {
    let settings = match &arguments.config {
        Some(path) => match settings::load(path)? {
            Ok(settings) => settings,
            Err(mistakes) => return Ok(settings::print_mistakes(&mistakes)),
        },
        None => {
            let mut settings =
                Settings::of_ports(arguments.ports.iter().map(String::as_str), Driver::default())
                    .map_err(|error| anyhow!(error))?;
            settings.workers.count = arguments.workers;
            settings
        }
    };
    if arguments.report {
        print(&printable_lines(&card_report::make(&settings)));
        return Ok(ExitCode::SUCCESS);
    }
    let mut findings = examine(&settings, arguments.config.as_deref());
    if arguments.fix {
        findings.iter_mut().for_each(Finding::fix);
    }
    if arguments.json {
        findings.iter().for_each(|finding| say_line!("{}", finding.json()));
    } else {
        let done: Vec<String> = findings.iter().filter_map(Finding::done).collect();
        if !done.is_empty() {
            print(&printable_lines(&(done.join("\n") + "\n\n")));
            // How it is now.
            findings = examine(&settings, arguments.config.as_deref());
        }
        print(&printable_lines(&report(&findings)));
    }
    let bad = findings.iter().any(Finding::is_bad);
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// All that there is to find out for a router with these settings.
fn examine(settings: &Settings, config: Option<&Path>) -> Vec<Finding> {
    let mut patient = Patient::of(settings);
    let mut findings = patient.examine();
    for feature in settings.features.all() {
        let of_feature = feature.examine(&patient.ignore);
        findings.extend(of_feature.findings);
        patient.sees_transit = patient.sees_transit.or(of_feature.sees_transit);
    }
    if !settings.ports.is_empty() {
        findings.extend(machine::user(settings, config.map(Path::to_owned)));
    }
    findings.extend(transit::examine(&patient));
    findings.extend(bypassed::rules(&patient));
    findings.extend(bypassed::at_ports(&patient));
    findings
}

/// Reports on standard error what is bad for a router with these settings that is about to start, and what at its ports it bypasses.
///
/// # Errors
/// No router starts so; then nothing else is reported.
pub(crate) fn begin(settings: &Settings) -> Result<()> {
    let patient = Patient::of(settings);
    let (preventing, others): (Vec<Finding>, Vec<Finding>) =
        patient.examine().into_iter().filter(Finding::is_bad).partition(|finding| finding.prevents_start);
    if !preventing.is_empty() {
        bail!("{}", preventing.iter().map(Finding::line).collect::<Vec<_>>().join("\n"));
    }
    // This router opens its own ports again, or keeps them closed as it is to.
    let is_closed = |finding: &Finding| matches!(finding.remedy, Remedy::Open(_));
    let bad = others.into_iter().filter(|finding| !is_closed(finding));
    for finding in bad.chain(bypassed::at_ports(&patient)) {
        tracing::warn!("{}", finding.line());
    }
    Ok(())
}

/// Returns what is wrong with Linux's forwarding of the families that are used, where Linux gets what is punted.
pub(crate) fn not_forwarded(settings: &Settings, is_used: impl Fn(IpVersion) -> bool) -> Vec<String> {
    if !Patient::of(settings).linux_is_slow_path {
        return Vec::new();
    }
    let bad = machine::forwarding().filter(|(version, finding)| finding.is_bad() && is_used(*version));
    bad.map(|(_, finding)| finding.line()).collect()
}

/// The findings as a table, each with its details below it.
fn report(findings: &[Finding]) -> String {
    let mut table = Table::new(&[("", Align::Left), ("", Align::Left), ("", Align::Left)]);
    for finding in findings {
        table.row([finding.verdict.word().to_owned(), finding.subject.clone(), finding.what.clone()]);
    }
    let mut text = String::new();
    for (line, finding) in table.render().lines().zip(findings) {
        text += line;
        text.push('\n');
        for detail in finding.details() {
            text += &format!("        {detail}\n");
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    text + &match count(Verdict::Bad) {
        0 if count(Verdict::Warn) > 0 => "\nNothing is bad.\n".to_owned(),
        0 => "\nNothing is in the way.\n".to_owned(),
        1 => "\nOne thing is bad.\n".to_owned(),
        bad => format!("\n{bad} things are bad.\n"),
    }
}

/// Why a program gave no answer.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// It is not installed.
    Missing(String),
    /// What it said.
    Failed(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Missing(program) => write!(f, "the program {program} is not installed"),
            Failure::Failed(text) => f.write_str(text),
        }
    }
}

/// Runs a program, its words separated by spaces; what it printed.
fn run(command: &str) -> Result<String, Failure> {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::Missing(program.to_owned()),
        _ => Failure::Failed(format!("{program}: {error}")),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        return Err(Failure::Failed(said));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding() -> Finding {
        Finding::bad("eth1", "is down", "nothing comes in", Remedy::Run("true".into()))
    }

    #[test]
    fn a_report_says_what_why_and_what_to_do() {
        let findings = [
            Finding::ok("kernel", "Linux 6.6"),
            finding(),
            Finding::warn("memory", "is short", "it is slow", Remedy::ByHand("buy some".into())),
        ];
        let expected = "\
ok    kernel  Linux 6.6
bad   eth1    is down
        nothing comes in
        fix: true ('brickway doctor --fix' with the same ports or settings does it)
warn  memory  is short
        it is slow
        fix: buy some

One thing is bad.
";
        assert_eq!(report(&findings), expected);
        let expected = r#"{"can_fix":true,"error":null,"fix":"true","fixed":null,"subject":"eth1","verdict":"bad","what":"is down","why":"nothing comes in"}"#;
        assert_eq!(findings[1].json().to_string(), expected);
    }

    #[test]
    fn fixing_says_what_it_did() {
        let mut good = finding();
        good.fix();
        assert!(!good.is_bad());
        assert_eq!(good.done().unwrap(), "fixed: true");
        let mut hopeless = Finding { remedy: Remedy::Run("no-such-program x".into()), ..finding() };
        hopeless.fix();
        assert!(hopeless.is_bad());
        let expected = "not fixed: no-such-program x: the program no-such-program is not installed";
        assert_eq!(hopeless.done().unwrap(), expected);
        let mut by_hand = Finding { remedy: Remedy::ByHand("think".into()), ..finding() };
        by_hand.fix();
        assert_eq!((by_hand.done(), by_hand.details()[1].as_str()), (None, "fix: think"));
    }
}
