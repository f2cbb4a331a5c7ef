//! dpdk-testpmd in its mode `io`, which hands each burst from a queue to a queue: what DPDK's drivers cost.
//!
//! The program is Debian's. It waits at its prompt, and forwards between `start` and `stop` on the CPU on which ours
//! forwards; its answer to `stop` says how many packets that were, and the kernel how much CPU time its thread took.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use packet::cycles;

use super::cases::{Case, Driver};
use super::dpdk_program::{DpdkProgram, with_cpus};
use super::ours::{Frames, MBUFS_ON_THEIR_WAY};
use super::{Available, Contestant, Figures, Missing, Setting, by_cpu_time};
use crate::bench::cpus;

/// Memory for its frames: 65,536 of the workload and those on their way, 2.3 KB each.
pub(super) const MEGABYTES: u64 = 384;
const PROGRAM: &str = "dpdk-testpmd";

/// Where the program is.
pub(super) fn find() -> Available<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|file| file.is_file());
    found.ok_or_else(|| Missing(format!("{PROGRAM} is not installed; 'apt-get install dpdk-dev' brings it")))
}

/// A running testpmd; it ends when this is dropped.
struct Testpmd {
    program: DpdkProgram,
    /// The folder of its forwarding thread in /proc.
    thread: PathBuf,
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
    let vdev = match case.driver {
        Driver::NetPcap => {
            format!("net_pcap0,rx_pcap={},infinite_rx=1", frames.capture(setting)?.display())
        }
        _ => format!("net_null0,size={}", setting.arguments.frames.size),
    };
    let mut arguments =
        ["-i", "--forward-mode=io", "--rxq=1", "--txq=1", "--nb-cores=1"].map(String::from).to_vec();
    arguments.push(format!("--burst={}", setting.arguments.run.burst));
    // One for each frame of the file, and a pool for those on their way.
    arguments.push(format!("--total-num-mbufs={}", frames.count() + MBUFS_ON_THEIR_WAY));
    let program = DpdkProgram::start(
        ("testpmd", &file),
        setting,
        &[apart.control(), apart.worker()],
        (MEGABYTES, &[vdev]),
        &arguments,
    )?;
    let mut testpmd = Testpmd { program, thread: PathBuf::new() };
    testpmd.program.wait_for("Done")?;
    testpmd.thread = testpmd.program.forwarding_thread(apart.worker())?;
    // Its first frames find cold caches and pages; ours have had theirs.
    testpmd.forward(setting.arguments.run.seconds.min(0.2))?;
    Ok(Ok(Box::new(testpmd)))
}

impl Testpmd {
    /// Forwards for so long: packets, and the CPU time of its thread.
    fn forward(&mut self, seconds: f64) -> Result<(u64, Duration)> {
        let before = cpus::ran(&self.thread);
        self.program.tell("start");
        self.program.wait_for("packets/burst=")?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        self.program.tell("stop");
        self.program.wait_for("Accumulated forward statistics")?;
        let line = self.program.wait_for("TX-packets:")?;
        self.program.wait_for("Done.")?;
        // The thread sleeps again, so what the kernel says of it is exact.
        Ok((packets(&line)?, cpus::ran(&self.thread).saturating_sub(before)))
    }
}

/// The number in `TX-packets: 205535872      TX-dropped: 0 ...`, if none was dropped.
fn packets(line: &str) -> Result<u64> {
    let number = |place| line.split_whitespace().nth(place).and_then(|word| word.parse::<u64>().ok());
    let numbers = number(1).zip(number(3));
    let (sent, dropped) = numbers
        .with_context(|| format!("{PROGRAM} said '{}', which has no number of packets", line.trim()))?;
    if dropped > 0 {
        bail!("{PROGRAM} sent {sent} packets and dropped {dropped}");
    }
    Ok(sent)
}

impl Contestant for Testpmd {
    fn run(&mut self, seconds: f64) -> Result<Figures> {
        let (packets, time) = self.forward(seconds)?;
        if packets == 0 || time.is_zero() {
            bail!("{PROGRAM} forwarded {packets} packets in {time:?} of CPU time");
        }
        Ok(by_cpu_time(packets, time.as_secs_f64() * cycles::per_second()))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        self.program.tell("quit");
        self.program.wait_for_end();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_it_says_of_packets() {
        let line = "  TX-packets: 205535872      TX-dropped: 0             TX-total: 205535872";
        assert_eq!(packets(line).unwrap(), 205_535_872);
        assert!(packets("  TX-packets: many").unwrap_err().to_string().contains("TX-packets: many"));
        let lost = packets("TX-packets: 12 TX-dropped: 3 TX-total: 15").unwrap_err().to_string();
        assert!(lost.contains("dropped 3"), "{lost}");
    }
}
