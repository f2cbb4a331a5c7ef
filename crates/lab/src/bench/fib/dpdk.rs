//! DPDK's tables under measurement, in processes of their own.
//!
//! The project does not link DPDK for the sake of a benchmark. The C side, dpdk_tables.c, is part of this program as
//! text; it is compiled when it is needed, with the DPDK that the machine has, into a temporary folder. Each table is a
//! process that obeys lines on its standard input (the protocol stands at the top of that file), so that ours and
//! theirs can take turns within one invocation, on the same core with the same clock and weather.
//!
//! Their fast options are on: the AVX-512 lookups, huge pages, `-O3 -march=native` for their inline functions. What
//! could not be had is in the description that they answer after loading.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Output, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use packet::{Family, IpVersion};

use super::super::children::{Reachable, stop_if_interrupted};
use super::engine::{Engine, Loaded, Loop};
use super::tables::{Checksum, Routes};
use crate::progress;

const SOURCE: &str = include_str!("dpdk_tables.c");
/// What one table and its list of a million routes takes at most, measured: rte_fib 0.5 GB, rte_fib6 0.4 GB.
pub(super) const MEGABYTES_PER_TABLE: u64 = 640;

/// What is missing on this machine.
pub(super) struct Missing(String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "DPDK's tables are left out, because {} is not installed; \
             'apt-get install libdpdk-dev pkg-config gcc' brings all it takes",
            self.0
        )
    }
}

/// The compiled C side.
#[derive(Clone)]
pub(super) struct Program {
    executable: PathBuf,
    folder: PathBuf,
    has_huge_pages: bool,
}

/// Runs a command to its end; `None` if there is no such command.
fn output(command: &mut Command) -> Result<Option<Output>> {
    match command.output() {
        Ok(output) => Ok(Some(output)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot run {:?}", command.get_program())),
    }
}

/// What pkg-config says of libdpdk, in words.
fn flags(option: &str) -> Result<Result<Vec<String>, Missing>> {
    let Some(output) = output(Command::new("pkg-config").args([option, "libdpdk"]))? else {
        return Ok(Err(Missing("pkg-config".into())));
    };
    if !output.status.success() {
        return Ok(Err(Missing("libdpdk".into())));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Ok(text.split_whitespace().map(str::to_owned).collect()))
}

impl Program {
    /// Compiles the C side into `folder`, where all files of its processes will be, too.
    pub(super) fn compile(folder: &Path) -> Result<Result<Self, Missing>> {
        let (compile_flags, link_flags) = match (flags("--cflags")?, flags("--libs")?) {
            (Ok(compile_flags), Ok(link_flags)) => (compile_flags, link_flags),
            (Err(missing), _) | (_, Err(missing)) => return Ok(Err(missing)),
        };
        let (source, executable) = (folder.join("dpdk_tables.c"), folder.join("dpdk_tables"));
        fs::write(&source, SOURCE).with_context(|| format!("cannot write '{}'", source.display()))?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(&compiler);
        // libdpdk asks for the oldest processor it runs on; the last -march counts.
        command.args(compile_flags).args(["-O3", "-march=native", "-o"]).arg(&executable).arg(&source);
        let Some(output) = output(command.args(link_flags))? else {
            return Ok(Err(Missing(format!("the C compiler '{}'", compiler.display()))));
        };
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!(
                "dpdk_tables.c does not compile with the libdpdk that is installed (22.11 is known to):\n{said}"
            );
        }
        Ok(Ok(Self { executable, folder: folder.to_owned(), has_huge_pages: false }))
    }

    /// The same with its tables on huge pages, of which enough are free.
    pub(super) fn on_huge_pages(self) -> Self {
        Self { has_huge_pages: true, ..self }
    }

    /// Starts a process for the table `name`; what its EAL says goes into `log`.
    fn start(&self, name: &'static str, log: &Path) -> Result<Process> {
        let log_file = File::create(log).with_context(|| format!("cannot make '{}'", log.display()))?;
        let mut command = Command::new(&self.executable);
        command.arg(name).args([
            "--no-pci",
            "--no-telemetry",
            "--no-shconf",
            "--force-max-simd-bitwidth=512",
        ]);
        command.arg(format!("--file-prefix=brickway-{}-{name}", std::process::id()));
        if self.has_huge_pages {
            command.args(["--in-memory", "--iova-mode=va"]);
        } else {
            command.args(["--no-huge", "-m", &MEGABYTES_PER_TABLE.to_string()]);
        }
        // Or else it leaves an empty folder in /run.
        command.env("RUNTIME_DIRECTORY", &self.folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log_file);
        let mut child =
            command.spawn().with_context(|| format!("cannot start '{}'", self.executable.display()))?;
        let (commands, answers) = (child.stdin.take(), child.stdout.take());
        let _child = Reachable::new(child);
        let commands = commands.context("its input is piped")?;
        let answers = BufReader::new(answers.context("its output is piped")?);
        let mut process = Process { name, commands, answers, log: log.to_owned(), _child };
        process.answer("ready")?;
        Ok(process)
    }
}

/// A running table; it ends when this is dropped.
struct Process {
    name: &'static str,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    log: PathBuf,
    _child: Reachable,
}

impl Process {
    /// Sends a command, and returns what follows the word `expected` in its answer.
    fn ask(&mut self, command: &str, expected: &str) -> Result<String> {
        // If it has ended, the missing answer tells so better.
        let _ = writeln!(self.commands, "{command}");
        self.answer(expected).with_context(|| format!("asked for '{command}'"))
    }

    fn answer(&mut self, expected: &str) -> Result<String> {
        loop {
            let mut line = String::new();
            let read = self.answers.read_line(&mut line).unwrap_or(0);
            stop_if_interrupted()?;
            if read == 0 {
                bail!("{} ended without an answer. It said:\n{}", self.name, self.last_words());
            }
            let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
            match word {
                "progress" => {
                    let (done, of) = rest.split_once(' ').unwrap_or((rest, "?"));
                    progress::tell(&format!("{} loads", self.name), &format!("{done} of {of} routes"));
                }
                "error" => bail!("{rest}. It said:\n{}", self.last_words()),
                word if word == expected => return Ok(rest.to_owned()),
                _ => bail!("{} answered '{}', not '{expected} ...'", self.name, line.trim_end()),
            }
        }
    }

    /// The end of what the EAL said.
    fn last_words(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

/// A DPDK table as an engine.
pub(super) struct DpdkTable {
    name: &'static str,
    program: Program,
    process: Option<Process>,
}

impl DpdkTable {
    /// The table of this name: `rte_fib`, `rte_lpm`, `rte_fib6` or `rte_lpm6`.
    pub(super) fn new(name: &'static str, program: Program) -> Self {
        Self { name, program, process: None }
    }

    fn ask(&mut self, command: &str, expected: &str) -> Result<String> {
        self.process.as_mut().context("the table is loaded first")?.ask(command, expected)
    }

    fn rate(&mut self, command: &str) -> Result<f64> {
        let text = self.ask(command, "rate")?;
        text.parse().map_err(|_| anyhow!("{} answered 'rate {text}', which is not a number", self.name))
    }

    /// Writes a file for the process to read.
    fn hand_over(&self, what: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.program.folder.join(format!("{}.{what}", self.name));
        fs::write(&path, bytes).with_context(|| format!("cannot write '{}'", path.display()))?;
        Ok(path)
    }
}

/// The bytes of an address, first byte first; IPv4 has 4 and then zeroes.
fn network_bytes<A: Family>(address: A) -> [u8; 16] {
    (address.to_u128() << (128 - A::BITS)).to_be_bytes()
}

/// Appends an address in the form that DPDK's lookup takes.
fn push_key<A: Family>(address: A, bytes: &mut Vec<u8>) {
    let address = address.to_u128();
    match A::VERSION {
        IpVersion::V4 => bytes.extend_from_slice(&(address as u32).to_ne_bytes()),
        IpVersion::V6 => bytes.extend_from_slice(&address.to_be_bytes()),
    }
}

impl<A: Family> Engine<A> for DpdkTable {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_ours(&self) -> bool {
        false
    }

    fn load(&mut self, routes: &Routes<A>) -> Result<Loaded> {
        let mut bytes = Vec::with_capacity(routes.routes.len() * 24);
        for route in &routes.routes {
            let (network, length) = A::parts(route.prefix);
            bytes.extend_from_slice(&network_bytes(network));
            bytes.extend_from_slice(&u32::from(length).to_ne_bytes());
            bytes.extend_from_slice(&u32::from(route.next_hop).to_ne_bytes());
        }
        let path = self.hand_over("routes", &bytes)?;
        let log = self.program.folder.join(format!("{}.log", self.name));
        self.process = Some(self.program.start(self.name, &log)?);
        let answer = self.ask(&format!("load {}", path.display()), "loaded")?;
        let mut words = answer.splitn(4, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<f64>().ok());
        let (Some(seconds), Some(table), Some(heap)) = (number(), number(), number()) else {
            bail!("{} answered 'loaded {answer}'", self.name);
        };
        let description = words.next().unwrap_or_default().to_owned();
        let (table_bytes, heap_bytes) = (table as u64, heap as u64);
        Ok(Loaded { seconds, table_bytes, both_bytes: None, heap_bytes, description })
    }

    fn set_addresses(&mut self, addresses: &[A]) -> Result<()> {
        let mut bytes = Vec::with_capacity(addresses.len() * 16);
        for &address in addresses {
            push_key(address, &mut bytes);
        }
        let path = self.hand_over("addresses", &bytes)?;
        self.ask(&format!("addresses {}", path.display()), "addresses")?;
        Ok(())
    }

    fn checksum(&mut self, way: Loop) -> Result<Checksum> {
        let text = self.ask(&format!("check {}", command(way)), "checksum")?;
        let number = text.parse().map_err(|_| anyhow!("{} answered 'checksum {text}'", self.name))?;
        Ok(Checksum(number))
    }

    fn lookup_rate(&mut self, way: Loop) -> Result<f64> {
        self.rate(command(way))
    }

    fn update_rate(&mut self, order: &[u32]) -> Result<f64> {
        let bytes: Vec<u8> = order.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let path = self.hand_over("updates", &bytes)?;
        self.rate(&format!("updates {}", path.display()))
    }
}

/// The word for a way in the protocol.
fn command(way: Loop) -> &'static str {
    match way {
        Loop::Batch => "batch",
        Loop::Single => "single",
    }
}
