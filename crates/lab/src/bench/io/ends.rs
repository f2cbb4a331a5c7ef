//! The programs at the ends of the veth links, as processes: `veth_ends.c` beside this file says what they do.
//!
//! The source is what the kernel itself offers for the purpose: a BPF program that runs on frames which the kernel
//! then really sends (`BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18), several million a second from one core.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{Available, Missing};
use crate::bench::children::{Reachable, stop_if_interrupted};

const SOURCE: &str = include_str!("veth_ends.c");

/// The compiled C side.
pub(super) struct Program(PathBuf);

impl Program {
    /// Compiles it into `folder`.
    pub(super) fn compile(folder: &Path) -> Result<Available<Self>> {
        let (source, executable) = (folder.join("veth_ends.c"), folder.join("veth_ends"));
        fs::write(&source, SOURCE).with_context(|| format!("cannot write '{}'", source.display()))?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(&compiler);
        command.args(["-O2", "-pthread", "-o"]).arg(&executable).arg(&source);
        match command.output() {
            Ok(output) if output.status.success() => Ok(Ok(Self(executable))),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                bail!("veth_ends.c does not compile with the kernel's headers that are installed:\n{said}")
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Err(Missing(format!(
                "the C compiler '{}' is not installed; 'apt-get install gcc libc6-dev' brings one",
                compiler.display()
            )))),
            Err(error) => Err(error).with_context(|| format!("cannot run '{}'", compiler.display())),
        }
    }

    /// Starts it in a role; see the top of the C file for the words.
    pub(super) fn start(&self, words: &[&str]) -> Result<End> {
        let mut command = Command::new(&self.0);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start '{}'", self.0.display()))?;
        let (commands, answers) = (child.stdin.take(), child.stdout.take());
        let _process = Reachable::new(child);
        let commands = commands.context("its input is piped")?;
        let answers = BufReader::new(answers.context("its output is piped")?);
        let mut end = End { role: words.join(" "), commands, answers, _process };
        end.answer("ready")?;
        Ok(end)
    }
}

/// A running program at an end; dropping it takes the program out of the kernel.
pub(super) struct End {
    role: String,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    _process: Reachable,
}

impl End {
    /// Frames that it has seen.
    pub(super) fn count(&mut self) -> Result<u64> {
        self.ask("")
    }

    /// Has the source send so many frames a second; as fast as it can without a number.
    pub(super) fn set_rate(&mut self, frames_per_second: Option<f64>) -> Result<()> {
        let interval_ns = frames_per_second.map_or(0.0, |rate| 1e9 / rate);
        self.ask(&format!("{interval_ns:.0}")).map(|_| ())
    }

    fn ask(&mut self, line: &str) -> Result<u64> {
        // If it has ended, the missing answer tells so better.
        let _ = writeln!(self.commands, "{line}");
        let text = self.answer("count")?;
        text.parse().with_context(|| format!("veth_ends {}: answered 'count {text}'", self.role))
    }

    /// What follows the word `expected` in its next line.
    fn answer(&mut self, expected: &str) -> Result<String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).unwrap_or(0);
        stop_if_interrupted()?;
        let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        if read == 0 || word != expected {
            bail!("veth_ends {}: {}", self.role, if word == "error" { rest } else { "ended" });
        }
        Ok(rest.to_owned())
    }
}
