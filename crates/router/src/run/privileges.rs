//! What a router gives up, so that who takes it over gets less than root: capabilities before its first thread, system calls when
//! all is open.
//!
//! It stays root's, because interfaces, files and sockets are. Under the unit of systemd less is left from the start.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};

use super::{RunArguments, subject};
use crate::settings::{Driver, Settings};

/// What a router of a list of ports needs. The unit has the same, but for low TCP ports of metrics and the page.
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// System calls that no thread of such a router makes: other programs, other processes, modules, mounts, namespaces, users, clocks
/// and keys of the machine.
const UNNEEDED: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_personality,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_mknodat,
    libc::SYS_open_by_handle_at,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_syslog,
];

/// Returns why a router keeps all that root has, if it does.
pub(super) fn reason_to_keep(arguments: &RunArguments, settings: &Settings) -> Option<&'static str> {
    let is_dpdk = settings.ports.iter().any(|port| port.driver == Driver::Dpdk);
    if arguments.script.is_some() {
        Some("scripts may run programs")
    } else if subject::is_file(arguments) {
        Some("elements of a configuration may run programs, and write files of other users")
    } else {
        is_dpdk.then_some("DPDK needs them")
    }
}

/// Gives up all capabilities but those that are needed, for threads and programs to come too. No other thread runs yet.
pub(super) fn keep_needed_capabilities() -> Result<()> {
    for (_, capability) in CapabilitySet::all().difference(NEEDED).iter_names() {
        match remove_capability_from_bounding_set(capability) {
            // A process that may not, or a kernel that does not know it. No program gets more by no_new_privs either.
            Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
            Err(error) => return Err(error).context("cannot give up capabilities"),
        }
    }
    let CapabilitySets { effective, permitted, inheritable } =
        capabilities(None).context("cannot read its capabilities")?;
    let kept = CapabilitySets {
        effective: effective & NEEDED,
        permitted: permitted & NEEDED,
        inheritable: inheritable & NEEDED,
    };
    set_capabilities(None, kept).context("cannot give up capabilities")?;
    set_no_new_privs(true).context("cannot give up new privileges")
}

/// Has the kernel refuse system calls that are not needed, to all threads and those to come.
pub(super) fn refuse_unneeded_calls() -> Result<()> {
    let refused = SeccompAction::Errno(Errno::PERM.raw_os_error() as u32);
    let architecture = std::env::consts::ARCH.try_into().context("system calls of this processor")?;
    let rules: BTreeMap<i64, _> = UNNEEDED.iter().map(|&call| (call, Vec::new())).collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    apply_filter_all_threads(&program).context("cannot refuse system calls")
}
