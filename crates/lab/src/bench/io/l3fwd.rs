//! DPDK's example l3fwd, the least that forwards by a routing table: it verifies no checksum. It
//! sends by three ports like our example router, over the same routes, which it has in `rte_fib` or in
//! `rte_lpm`.
//!
//! `make bench-peers` builds it (`peers/l3fwd` says what is changed of DPDK's). It forwards from its start on, so it is stopped
//! between its turns; a thread that is linked to it says what it forwarded and in how much CPU time.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use packet::cycles;
use rustix::process::{Pid, Signal, kill_process};

use super::cases::{Case, Engine};
use super::dpdk_program::{DpdkProgram, with_cpus};
use super::ours::Frames;
use super::{Available, Contestant, Figures, Missing, Setting, by_cpu_time};
use crate::bench::single_core::ROUTER_PORTS;

/// Memory: 200,000 mbufs of 2.3 KB, and tables for 1.3 million routes.
pub(super) const MEGABYTES: u64 = 2_304;
const PROGRAM: &str = "l3fwd";
/// Packets that may be on their way when it is asked: a burst received, and one waiting at each port.
const ON_THEIR_WAY: u64 = 32 * (ROUTER_PORTS as u64 + 1);

/// Where the program is: among the peers that were built beside this program, or in the PATH.
pub(super) fn find() -> Available<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| {
        let target = own.parent()?.parent()?;
        Some(target.join("peers").join(PROGRAM))
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    let found = beside.into_iter().chain(in_path).find(|file| file.is_file());
    found.ok_or_else(|| Missing(format!("{PROGRAM} is not built; 'make bench-peers' builds it")))
}

/// A running l3fwd, stopped between its turns; it ends when this is dropped.
struct L3fwd(DpdkProgram);

/// What it says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Report {
    received: u64,
    sent: u64,
    time: Duration,
}

pub(super) fn contestant<'a>(
    setting: &Setting<'_>,
    case: &Case,
    frames: &mut Frames,
) -> Result<Available<Box<dyn Contestant + 'a>>> {
    let (file, apart) = match with_cpus(PROGRAM, find(), setting) {
        Ok(found) => found,
        Err(missing) => return Ok(Err(missing)),
    };
    let routes = frames.rules(setting)?;
    let routes6 = setting.folder.path().join("l3fwd-6.cfg");
    let mut no_routes = std::fs::File::create(&routes6)?;
    // It does not start without.
    writeln!(no_routes, "R2001:db8::/32 1")?;
    let mut vdevs = vec![format!("net_pcap0,rx_pcap={},infinite_rx=1", frames.capture(setting)?.display())];
    vdevs.extend((0..ROUTER_PORTS - 1).map(|number| format!("net_null{number},no-rx=1")));
    let lookup = if case.engine == Engine::L3fwdLpm { "lpm" } else { "fib" };
    let arguments = [
        format!("-p{:#x}", (1 << ROUTER_PORTS) - 1),
        "-P".into(),
        "--parse-ptype".into(),
        format!("--lookup={lookup}"),
        format!("--config=(0,0,{})", apart.worker()),
        format!("--rule_ipv4={}", routes.display()),
        format!("--rule_ipv6={}", routes6.display()),
    ];
    let program = DpdkProgram::start(
        ("l3fwd", &file),
        setting,
        // Each of its CPUs would want a queue of each port, and these have one: its main thread forwards.
        &[apart.worker()],
        (MEGABYTES, &vdevs),
        &arguments,
    )?;
    let mut l3fwd = L3fwd(program);
    l3fwd.0.wait_for("entering main loop on lcore")?;
    l3fwd.report()?;
    // Its first frames find cold caches and pages; ours have had theirs.
    std::thread::sleep(Duration::from_secs_f64(setting.arguments.run.seconds.min(0.2)));
    l3fwd.signal(Signal::STOP)?;
    Ok(Ok(Box::new(l3fwd)))
}

impl L3fwd {
    fn signal(&self, signal: Signal) -> Result<()> {
        let process = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).context("it has a number")?;
        kill_process(process, signal).with_context(|| format!("cannot signal {PROGRAM}"))
    }

    fn report(&mut self) -> Result<Report> {
        self.0.tell("");
        let line = self.0.wait_for("forwarded ")?;
        Report::read(&line).with_context(|| {
            format!("{PROGRAM} printed '{line}'; expected 'forwarded RECEIVED SENT NANOSECONDS'")
        })
    }
}

impl Report {
    /// Reads `forwarded RECEIVED SENT NANOSECONDS`.
    fn read(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("forwarded ")?.split(' ').map(|word| word.parse().ok());
        let mut next = || words.next().flatten();
        let (received, sent, nanoseconds) = (next()?, next()?, next()?);
        Some(Self { received, sent, time: Duration::from_nanos(nanoseconds) })
    }
}

impl Contestant for L3fwd {
    fn run(&mut self, seconds: f64) -> Result<Figures> {
        self.signal(Signal::CONT)?;
        let before = self.report()?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let after = self.report()?;
        self.signal(Signal::STOP)?;
        let (packets, time) = (after.sent - before.sent, after.time.saturating_sub(before.time));
        if packets == 0 || time.is_zero() {
            bail!("{PROGRAM} forwarded {packets} packets in {time:?} of CPU time");
        }
        if after.received > after.sent + ON_THEIR_WAY {
            bail!("{PROGRAM} received {} packets and sent {}", after.received, after.sent);
        }
        Ok(by_cpu_time(packets, time.as_secs_f64() * cycles::per_second()))
    }
}

impl Drop for L3fwd {
    fn drop(&mut self) {
        // One that has ended cannot be told so.
        let _ = self.signal(Signal::INT);
        let _ = self.signal(Signal::CONT);
        self.0.wait_for_end();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_it_says_of_itself() {
        let report = Report { received: 12, sent: 10, time: Duration::from_nanos(700) };
        assert_eq!(Report::read("forwarded 12 10 700"), Some(report));
        assert_eq!(Report::read("forwarded 12 10"), None);
        assert_eq!(Report::read("forwarded 12 10 many"), None);
    }
}
