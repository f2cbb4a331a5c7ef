//! DPDK's environment (EAL): started once, at the first port, and there as long as the process.
//!
//! It starts on a thread of its own, so that what it does to its caller (it pins it and makes it the main lcore) stays
//! with that thread. Workers register themselves, which gives them a mempool cache each.

use packet::sync::lock;
use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::PortError;
use crate::dpdk::shim;

/// The variable with more words for the EAL.
const VARIABLE: &str = "BRICKWAY_EAL";
/// Where DPDK looks for drivers; said when one is missing.
const PLUGINS: &str = "/usr/lib/*/dpdk/pmds-23.0";
/// Memory beside mbufs: DPDK's own tables and rings, in MiB.
const OWN_MIB: u64 = 32;
/// What is reserved (not used) without huge pages, at least, in MiB.
const LEAST_MIB: u64 = 1_024;

/// Whether to use huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Huge {
    /// When enough are free.
    Auto,
    Yes,
    No,
}

/// The running environment.
#[derive(Debug)]
pub(super) struct Eal {
    pub(super) huge: bool,
}

static EAL: OnceLock<Result<Eal, String>> = OnceLock::new();

/// Devices that are open. The holder of this lock is the only one to open or close: DPDK wants that.
pub(super) fn devices() -> MutexGuard<'static, BTreeSet<String>> {
    static DEVICES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    lock(&DEVICES)
}

/// Starts the environment unless it runs. `bytes` is what the first port needs for its mbufs.
pub(super) fn start(port: &str, bytes: u64, huge: Huge, warn: fn(&str)) -> Result<&'static Eal, PortError> {
    let started = EAL.get_or_init(|| {
        let line = command_line(port, bytes, huge, warn)?;
        let thread = std::thread::Builder::new().name("dpdk-start".to_owned());
        let thread = thread.spawn(move || init(line)).map_err(|error| error.to_string())?;
        thread.join().unwrap_or_else(|_| Err("it panicked".to_owned()))
    });
    match started {
        Ok(eal) => {
            if huge == Huge::Yes && !eal.huge {
                let problem = "`huge=yes` comes too late: DPDK runs without huge pages since an earlier port";
                return Err(unsupported(port, problem.to_owned()));
            }
            Ok(eal)
        }
        Err(problem) => Err(unsupported(port, format!("DPDK does not start: {problem}"))),
    }
}

pub(super) fn unsupported(port: &str, problem: String) -> PortError {
    PortError::Unsupported { port: port.to_owned(), problem }
}

/// How to start the EAL.
struct CommandLine {
    words: Vec<String>,
    huge: bool,
    /// Whether its log is kept for error messages; otherwise it goes where DPDK sends it.
    keep_log: bool,
}

fn command_line(port: &str, bytes: u64, huge: Huge, warn: fn(&str)) -> Result<CommandLine, String> {
    let more = std::env::var(VARIABLE).unwrap_or_default();
    let more: Vec<String> = more.split_whitespace().map(str::to_owned).collect();
    let given = |names: &[&str]| {
        more.iter().any(|word| {
            names.iter().any(|name| word == name || word.starts_with(&format!("{name}=")))
                // Short options may have their value in the same word.
                || names.iter().any(|name| name.len() == 2 && word.starts_with(name))
        })
    };
    let mut words = vec!["brickway".to_owned(), "--no-telemetry".to_owned()];
    if !given(&["-l", "-c", "--lcores"]) {
        // One lcore that runs wherever the process may: workers are threads of ours.
        words.push(format!("--lcores=0@({})", allowed_cpus()));
    }
    let keep_log = !given(&["--log-level"]);
    if keep_log {
        words.push("--log-level=warning".to_owned());
    }
    let needed = bytes.div_ceil(1 << 20) + OWN_MIB;
    let mut has_huge = !given(&["--no-huge"]) && huge != Huge::No;
    if has_huge && !given(&["--proc-type"]) {
        let free = free_huge_mib();
        if free < needed {
            let problem = format!(
                "{needed} MiB of huge pages are needed and {free} are free; reserve them with `sysctl vm.nr_hugepages={}`",
                needed.div_ceil(2) + reserved_in_use()
            );
            if huge == Huge::Yes {
                return Err(problem);
            }
            warn(&format!(
                "port {port}: {problem}. DPDK runs without them: slower, and only virtual devices work"
            ));
            has_huge = false;
        }
    }
    // Processes that work together need files; else there are none.
    if !given(&["--in-memory", "--no-shconf", "--file-prefix", "--proc-type", "--huge-dir"]) {
        words.push(if has_huge { "--in-memory" } else { "--no-shconf" }.to_owned());
    }
    if !has_huge {
        if !given(&["--no-huge"]) {
            words.push("--no-huge".to_owned());
        }
        if !given(&["-m", "--socket-mem"]) {
            words.push(format!("-m{}", (2 * needed).max(LEAST_MIB)));
        }
    }
    words.extend(more);
    Ok(CommandLine { words, huge: has_huge, keep_log })
}

/// Runs on its own thread.
fn init(line: CommandLine) -> Result<Eal, String> {
    // DPDK keeps pointers into its arguments.
    let words: &'static [CString] = line
        .words
        .iter()
        .map(|word| CString::new(word.as_str()).map_err(|_| format!("{VARIABLE} has a NUL character")))
        .collect::<Result<Vec<_>, _>>()?
        .leak();
    let mut pointers: Vec<*mut c_char> = words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let pointers = pointers.leak();
    #[allow(unsafe_code, reason = "the shim")]
    // SAFETY: `argv` as main would give it, terminated, and never freed. Only called once (`EAL`).
    let result = unsafe {
        shim::brickway_dpdk_init(words.len() as c_int, pointers.as_mut_ptr(), c_int::from(line.keep_log))
    };
    if result < 0 {
        return Err(format!("{} (its command line: {})", because(result), line.words.join(" ")));
    }
    forget_log();
    Ok(Eal { huge: line.huge })
}

/// What an error number says, and what DPDK's log said about it.
pub(super) fn because(code: c_int) -> String {
    let mut text = vec![0u8; 4096];
    #[allow(unsafe_code, reason = "the shim")]
    // SAFETY: the vector has so much room.
    let length = unsafe { shim::brickway_dpdk_take_log(text.as_mut_ptr(), text.len()) };
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let errno = io::Error::from_raw_os_error(-code);
    let last = &lines[lines.len().saturating_sub(3)..];
    if last.is_empty() { errno.to_string() } else { format!("{errno}; DPDK says: {}", last.join("; ")) }
}

/// Old lines of the log are not the reason of what fails next.
pub(super) fn forget_log() {
    #[allow(unsafe_code, reason = "the shim")]
    // SAFETY: no room, so nothing is written.
    unsafe {
        shim::brickway_dpdk_take_log(std::ptr::NonNull::dangling().as_ptr(), 0);
    }
}

/// What to say about a device that could not be probed.
pub(super) fn no_device(devargs: &str, name: &str, code: c_int) -> String {
    let reason = because(code);
    let driver = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let hint = if is_pci(name) {
        format!(
            "check that `{name}` is there (`lspci -D`) and bound to a driver that DPDK can use (`dpdk-devbind.py \
             --bind=vfio-pci {name}`), and that no other process uses it"
        )
    } else if code == -libc::EFAULT || code == -libc::ENODEV {
        format!(
            "no driver knows `{driver}`: its plug-in is missing in {PLUGINS} (on Debian `apt install librte-{}23`)",
            driver.replace('_', "-")
        )
    } else {
        format!(
            "check the arguments `{devargs}`: drivers are described at https://doc.dpdk.org/guides-22.11/nics"
        )
    };
    format!("DPDK cannot open `{name}`: {reason}; {hint}")
}

/// Whether a device's name is a PCI address: `0000:03:00.0`, `03:00.0`.
pub(super) fn is_pci(name: &str) -> bool {
    let Some((rest, function)) = name.rsplit_once('.') else { return false };
    let parts: Vec<&str> = rest.split(':').collect();
    let hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex(function) && matches!(parts.len(), 2 | 3) && parts.into_iter().all(hex)
}

/// The CPUs that this thread may run on, as the EAL writes them.
fn allowed_cpus() -> String {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let cpus: Vec<String> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .map(|cpu| cpu.to_string())
        .collect();
    if cpus.is_empty() { "0".to_owned() } else { cpus.join(",") }
}

/// Free huge pages of all sizes that DPDK uses, in MiB.
fn free_huge_mib() -> u64 {
    [(2, "2048kB"), (1_024, "1048576kB")]
        .iter()
        .map(|(mib, size)| {
            let folder = format!("/sys/kernel/mm/hugepages/hugepages-{size}");
            let free = count_in(&format!("{folder}/free_hugepages"));
            free.saturating_sub(count_in(&format!("{folder}/resv_hugepages"))) * mib
        })
        .sum()
}

/// Huge pages of 2 MiB that somebody has, or was promised.
fn reserved_in_use() -> u64 {
    let count = |name: &str| count_in(&format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"));
    count("nr_hugepages").saturating_sub(count("free_hugepages")) + count("resv_hugepages")
}

fn count_in(path: &str) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// A thread with a mempool cache; gives it back when it ends.
struct Registered;

impl Drop for Registered {
    fn drop(&mut self) {
        shim::brickway_dpdk_unregister_thread();
    }
}

/// Makes the calling thread one of DPDK's, once. False: DPDK has no place for more threads (128); this one works
/// without a cache.
pub(super) fn register_thread() -> bool {
    thread_local! {
        static REGISTERED: Option<Registered> =
            (shim::brickway_dpdk_register_thread() >= 0).then_some(Registered);
    }
    REGISTERED.with(Option::is_some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dpdk_pci_addresses_are_known() {
        assert!(["0000:03:00.0", "03:00.1", "0000:af:1f.7"].into_iter().all(is_pci));
        assert!(!["net_null0", "net.0", "1:2:3:4.0", "eth0.100", ":.", ""].into_iter().any(is_pci));
    }
}
