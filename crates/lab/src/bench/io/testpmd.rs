//! dpdk-testpmd in its mode `io`, which hands each burst from a queue to a queue: what DPDK's drivers cost.
//!
//! The program is Debian's. It waits at its prompt, and forwards between `start` and `stop` on the CPU on which ours
//! forwards; its answer to `stop` says how many packets that were, and the kernel how much CPU time its thread took.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use packet::cycles;

use super::cases::{Case, Driver};
use super::ours::{Frames, MBUFS_ON_THEIR_WAY};
use super::{Available, Contestant, Figures, Missing, Setting, by_cpu_time};
use crate::bench::children::{Reachable, stop_if_interrupted};
use crate::bench::cpus;

/// Memory for its frames: 65,536 of the workload and those on their way, 2.3 KB each.
pub(super) const MEGABYTES: u64 = 384;
/// Longest time for an answer; its start takes about two seconds.
const PATIENCE: Duration = Duration::from_secs(60);
const PROGRAM: &str = "dpdk-testpmd";

/// Where the program is.
pub(super) fn find() -> Available<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|file| file.is_file());
    found.ok_or_else(|| Missing(format!("{PROGRAM} is not installed; 'apt-get install dpdk-dev' brings it")))
}

/// A running testpmd; it ends when this is dropped.
struct Testpmd {
    commands: ChildStdin,
    lines: Receiver<String>,
    /// What it said lately, for errors.
    said: Vec<String>,
    /// The folder of its forwarding thread in /proc.
    thread: PathBuf,
    _process: Reachable,
}

pub(super) fn contestant<'a>(
    setting: &Setting<'_>,
    case: &Case,
    frames: &mut Frames,
) -> Result<Available<Box<dyn Contestant + 'a>>> {
    let program = match find() {
        Ok(program) => program,
        Err(missing) => return Ok(Err(missing)),
    };
    let Some(apart) = setting.apart else {
        return Ok(Err(Missing(format!("{PROGRAM} needs two CPUs, and there is one"))));
    };
    let vdev = match case.driver {
        Driver::NetPcap => {
            format!("net_pcap0,rx_pcap={},infinite_rx=1", frames.capture(setting)?.display())
        }
        _ => format!("net_null0,size={}", setting.arguments.frames.size),
    };
    let mut words: Vec<String> = vec![
        "-l".into(),
        format!("{},{}", apart.control(), apart.worker()),
        format!("--main-lcore={}", apart.control()),
        "--no-pci".into(),
        "--no-telemetry".into(),
        "--no-shconf".into(),
        format!("--file-prefix=brickway-{}-testpmd", std::process::id()),
        "-m".into(),
        MEGABYTES.to_string(),
    ];
    words.push(if setting.has_huge_pages { "--in-memory" } else { "--no-huge" }.into());
    words.extend(["--vdev".into(), vdev, "--".into(), "-i".into(), "--forward-mode=io".into()]);
    words.push(format!("--burst={}", setting.arguments.run.burst));
    words.extend(["--rxq=1", "--txq=1", "--nb-cores=1"].map(String::from));
    // One for each frame of the file, and a pool for those on their way.
    words.push(format!("--total-num-mbufs={}", frames.count() + MBUFS_ON_THEIR_WAY));

    // Its statistics are buffered unless a terminal reads them.
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg::<&OsStr>(program.as_ref()).args(words);
    // Or else it leaves an empty folder in /run.
    command.env("RUNTIME_DIRECTORY", setting.folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {PROGRAM}"))?;
    let (commands, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let process = Reachable::new(child);
    let (sender, lines) = channel();
    let outputs: [Option<Box<dyn std::io::Read + Send>>; 2] =
        [out.map(|out| Box::new(out) as _), err.map(|err| Box::new(err) as _)];
    for output in outputs.into_iter().flatten() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                // Nobody listens any more once the bench is done with it.
                let _ = sender.send(line);
            }
        });
    }
    let commands = commands.context("its input is piped")?;
    let said = Vec::new();
    let mut testpmd = Testpmd { commands, lines, said, thread: PathBuf::new(), _process: process };
    testpmd.wait_for("Done")?;
    testpmd.thread = testpmd.forwarding_thread(apart.worker())?;
    // Its first frames find cold caches and pages; ours have had theirs.
    testpmd.forward(setting.arguments.run.seconds.min(0.2))?;
    Ok(Ok(Box::new(testpmd)))
}

impl Testpmd {
    /// Reads lines until one contains `text`; that line.
    fn wait_for(&mut self, text: &str) -> Result<String> {
        loop {
            let line = match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => line,
                Err(reason) => {
                    stop_if_interrupted()?;
                    let what = match reason {
                        RecvTimeoutError::Timeout => "does not answer",
                        RecvTimeoutError::Disconnected => "ended",
                    };
                    let last = self.said.len().saturating_sub(8);
                    bail!(
                        "{PROGRAM} {what} (waited for '{text}'). It said:\n{}",
                        self.said[last..].join("\n")
                    );
                }
            };
            let found = line.contains(text);
            self.said.push(line);
            if self.said.len() > 64 {
                self.said.remove(0);
            }
            if found {
                return Ok(self.said.last().cloned().unwrap_or_default());
            }
        }
    }

    fn tell(&mut self, command: &str) {
        // If it has ended, the missing answer tells so better.
        let _ = writeln!(self.commands, "{command}");
    }

    /// DPDK calls its threads after their CPUs: rte-worker-1, lcore-worker-1.
    fn forwarding_thread(&self, cpu: usize) -> Result<PathBuf> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self._process.id()));
        let threads =
            std::fs::read_dir(&tasks).with_context(|| format!("cannot read '{}'", tasks.display()))?;
        for thread in threads.flatten() {
            let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            if name.trim_end().ends_with(&format!("-worker-{cpu}")) {
                return Ok(thread.path());
            }
        }
        bail!("{PROGRAM} has no thread for CPU {cpu}")
    }

    /// Forwards for so long: packets, and the CPU time of its thread.
    fn forward(&mut self, seconds: f64) -> Result<(u64, Duration)> {
        let before = cpus::ran(&self.thread);
        self.tell("start");
        self.wait_for("packets/burst=")?;
        std::thread::sleep(Duration::from_secs_f64(seconds));
        self.tell("stop");
        self.wait_for("Accumulated forward statistics")?;
        let line = self.wait_for("TX-packets:")?;
        self.wait_for("Done.")?;
        // The thread sleeps again, so what the kernel says of it is exact.
        Ok((packets(&line)?, cpus::ran(&self.thread).saturating_sub(before)))
    }
}

/// The number in `TX-packets: 205535872      TX-dropped: ...`.
fn packets(line: &str) -> Result<u64> {
    let number = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    number.with_context(|| format!("{PROGRAM} said '{}', which has no number of packets", line.trim()))
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
        self.tell("quit");
        let begin = std::time::Instant::now();
        while !self._process.has_ended() && begin.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
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
    }
}
