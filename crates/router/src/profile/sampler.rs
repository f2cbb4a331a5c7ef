//! Stacks of the threads of a process, from the kernel's perf events. The CPU clock's event needs no counters of the CPU, so it is
//! there in virtual machines too.

use std::collections::HashMap;
use std::io;

use anyhow::{Context, Result, anyhow, bail};
use framehop::UnwindRegsNative;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag};

use super::unwinder::Unwinding;

/// Samples a second of CPU time: not a divisor of what timers usually have.
const FREQUENCY: u64 = 997;

/// Bytes of a thread's stack that come with a sample, from the top: enough for all but deep recursion.
const STACK_BYTES: u32 = 16 << 10;

/// Bytes of a thread's ring: samples of more than 100 ms.
const RING_BYTES: usize = 2 << 20;

/// In a call chain, addresses from here on say what the next ones are.
const FIRST_MARK: u64 = -4095_i64 as u64;
/// They are of the kernel.
const KERNEL: u64 = -128_i64 as u64;

/// The registers that unwinding begins with, by their numbers in `asm/perf_regs.h`: frame pointer, stack pointer, address; on
/// ARM the link register too.
#[cfg(target_arch = "x86_64")]
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
#[cfg(target_arch = "aarch64")]
const REGISTERS: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// Returns them, and the address at which the thread is.
#[cfg(target_arch = "x86_64")]
fn registers(values: &[u64]) -> Option<(u64, u64, UnwindRegsNative)> {
    let &[bp, sp, ip] = values else { return None };
    Some((ip, sp, UnwindRegsNative::new(ip, sp, bp)))
}
#[cfg(target_arch = "aarch64")]
fn registers(values: &[u64]) -> Option<(u64, u64, UnwindRegsNative)> {
    let &[fp, lr, sp, pc] = values else { return None };
    Some((pc, sp, UnwindRegsNative::new(lr, sp, fp)))
}

/// Where a thread was: addresses, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Stack {
    /// Its number among the threads.
    pub(super) thread: usize,
    /// In the kernel.
    pub(super) kernel: Vec<u64>,
    /// In the program.
    pub(super) user: Vec<u64>,
}

pub(super) struct Sampler {
    threads: Vec<String>,
    rings: Vec<perf_event::Sampler>,
    unwinding: Unwinding,
    /// Samples read so far.
    pub(super) samples: u64,
    /// Samples for which a ring had no room.
    pub(super) lost: u64,
}

impl Sampler {
    /// Begins to sample all threads that a process has now.
    pub(super) fn open(process: i32) -> Result<Self> {
        let folder = format!("/proc/{process}/task");
        let (mut threads, mut rings) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&folder).with_context(|| format!("process {process}: no threads"))? {
            let entry = entry.with_context(|| folder.clone())?;
            let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // One that has ended meanwhile has no name.
            let Ok(name) = std::fs::read_to_string(entry.path().join("comm")) else { continue };
            match ring(thread) {
                Ok(ring) => {
                    threads.push(name.trim_end().to_owned());
                    rings.push(ring);
                }
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                Err(error) => bail!(why_not(process, &error)),
            }
        }
        let unwinding = Unwinding::of(process)?;
        rings
            .iter_mut()
            .try_for_each(|ring| ring.enable())
            .map_err(|error| anyhow!(why_not(process, &error)))?;
        Ok(Self { threads, rings, unwinding, samples: 0, lost: 0 })
    }

    /// The threads' names.
    pub(super) fn threads(&self) -> &[String] {
        &self.threads
    }

    /// Adds what was sampled since the last call.
    pub(super) fn read(&mut self, stacks: &mut HashMap<Stack, u64>) {
        for (thread, ring) in self.rings.iter_mut().enumerate() {
            while let Some(record) = ring.next_record() {
                let sample = match record.parse_record() {
                    Ok(Record::Sample(sample)) => sample,
                    Ok(Record::Lost(lost)) => {
                        self.lost += lost.lost;
                        continue;
                    }
                    _ => continue,
                };
                self.samples += 1;
                let mut stack = Stack {
                    thread,
                    kernel: kernel(sample.callchain().unwrap_or_default()),
                    user: Vec::new(),
                };
                let first = sample.regs_user().and_then(|user| registers(&user.regs));
                if let Some((address, stack_pointer, registers)) = first {
                    let copy = sample.stack_user().unwrap_or_default();
                    stack.user = self.unwinding.callers(address, registers, stack_pointer, copy);
                }
                *stacks.entry(stack).or_default() += 1;
            }
        }
    }
}

/// A ring for samples of a thread while it runs, once it is enabled.
fn ring(thread: i32) -> io::Result<perf_event::Sampler> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .observe_pid(thread)
        .any_cpu()
        .include_kernel()
        .sample_frequency(FREQUENCY)
        .sample(SampleFlag::CALLCHAIN | SampleFlag::REGS_USER | SampleFlag::STACK_USER)
        .sample_regs_user(REGISTERS)
        .sample_stack_user(STACK_BYTES)
        .exclude_callchain_user(true);
    builder.build()?.sampled(RING_BYTES)
}

/// The kernel's part of a call chain.
fn kernel(chain: &[u64]) -> Vec<u64> {
    let mut is_kernel = false;
    let of_kernel = chain.iter().filter(|&&address| {
        if address >= FIRST_MARK {
            is_kernel = address == KERNEL;
            return false;
        }
        is_kernel
    });
    of_kernel.copied().collect()
}

fn why_not(process: i32, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let paranoid =
                std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            format!(
                "process {process}: not permitted to sample it ({error}); run as root, or with CAP_PERFMON and CAP_SYS_PTRACE \
                 (kernel.perf_event_paranoid is {}, and a container may forbid it too)",
                paranoid.trim()
            )
        }
        _ => format!("process {process}: the kernel does not sample it ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_chain_the_kernels_part_is_taken() {
        let user = -512_i64 as u64;
        assert_eq!(kernel(&[KERNEL, 0xffff_ffff_8100_0000, 0xffff_ffff_8100_0010, user, 0x1000]).len(), 2);
        assert!(kernel(&[user, 0x1000]).is_empty());
    }

    #[test]
    fn a_refusal_says_what_would_be_permitted() {
        let refused = why_not(7, &io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(
            refused.starts_with("process 7: not permitted") && refused.contains("perf_event_paranoid is "),
            "{refused}"
        );
    }
}
