//! A program of DPDK's in a process of its own. It reads commands from its standard input and prints lines.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Available, Missing, Setting};
use crate::bench::children::{Reachable, stop_if_interrupted};
use crate::bench::cpus::Apart;

/// Longest time for an answer; a start takes about two seconds, and tables up to some ten more.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running program; it ends when this is dropped.
pub(super) struct DpdkProgram {
    name: &'static str,
    commands: ChildStdin,
    lines: Receiver<String>,
    /// What it said lately, for errors.
    said: Vec<String>,
    process: Reachable,
}

/// A program that was found, with CPUs for it; or what is missing for it.
pub(super) fn with_cpus(
    name: &str,
    found: Available<PathBuf>,
    setting: &Setting<'_>,
) -> Available<(PathBuf, Apart)> {
    let no_cpus = || Missing(format!("{name} needs two CPUs, and there is one"));
    Ok((found?, setting.apart.ok_or_else(no_cpus)?))
}

impl DpdkProgram {
    /// Starts the program `name` in the file `program`, its threads on `cpus`, of which the first is for the main thread. `vdevs`
    /// are its ports; `arguments` stand behind those of DPDK itself.
    pub(super) fn start(
        (name, program): (&'static str, &Path),
        setting: &Setting<'_>,
        cpus: &[usize],
        (megabytes, vdevs): (u64, &[String]),
        arguments: &[String],
    ) -> Result<Self> {
        let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
        let mut words: Vec<String> = vec![
            "-l".into(),
            cpus.join(","),
            format!("--main-lcore={}", cpus[0]),
            "--no-pci".into(),
            "--no-telemetry".into(),
            "--no-shconf".into(),
            format!("--file-prefix=brickway-{}-{name}", std::process::id()),
            "-m".into(),
            megabytes.to_string(),
        ];
        words.push(if setting.has_huge_pages { "--in-memory" } else { "--no-huge" }.into());
        words.extend(vdevs.iter().flat_map(|vdev| ["--vdev".into(), vdev.clone()]));
        words.push("--".into());
        words.extend_from_slice(arguments);

        // What it says is buffered unless a terminal reads it.
        let mut command = Command::new("stdbuf");
        command.arg("-oL").arg::<&OsStr>(program.as_ref()).args(words);
        // Or else it leaves an empty folder in /run.
        command.env("RUNTIME_DIRECTORY", setting.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
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
        Ok(Self { name, commands, lines, said: Vec::new(), process })
    }

    /// Reads lines until one contains `text`; that line.
    pub(super) fn wait_for(&mut self, text: &str) -> Result<String> {
        let name = self.name;
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
                    bail!("{name} {what} (waited for '{text}'). It said:\n{}", self.said[last..].join("\n"));
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

    /// Sends the program a line.
    pub(super) fn tell(&mut self, command: &str) {
        // If it has ended, the missing answer tells so better.
        let _ = writeln!(self.commands, "{command}");
    }

    /// Number of the process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The folder in /proc of its thread on a CPU. DPDK calls its threads after these: rte-worker-1, lcore-worker-1.
    pub(super) fn forwarding_thread(&self, cpu: usize) -> Result<PathBuf> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.process.id()));
        let threads =
            std::fs::read_dir(&tasks).with_context(|| format!("cannot read '{}'", tasks.display()))?;
        for thread in threads.flatten() {
            let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            if name.trim_end().ends_with(&format!("-worker-{cpu}")) {
                return Ok(thread.path());
            }
        }
        bail!("{} has no thread for CPU {cpu}", self.name)
    }

    /// Waits a few seconds until the program has ended, after a command to quit.
    pub(super) fn wait_for_end(&self) {
        let begin = std::time::Instant::now();
        while !self.process.has_ended() && begin.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
