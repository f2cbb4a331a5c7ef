//! The system calls that the kernel refuses to a router, in all its threads.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

/// Refused to every router, and to the programs that it runs: other processes, modules, another kernel, clocks, the machine's name,
/// its log.
const ALWAYS: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_open_by_handle_at,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_syslog,
];

/// Requests of ioctl(2) that are refused to every router: to type into the terminal from which root has started it.
const TERMINAL: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Refused to a router that runs no programs: these, mounts, namespaces, users, capabilities, keys.
const WITHOUT_PROGRAMS: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
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
    libc::SYS_setns,
    libc::SYS_unshare,
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
];

/// Has the kernel refuse system calls to all threads, and to those and the programs to come.
pub(super) fn refuse(runs_programs: bool) -> Result<()> {
    let others: &[_] = if runs_programs { &[] } else { WITHOUT_PROGRAMS };
    let mut rules: BTreeMap<i64, _> = ALWAYS.iter().chain(others).map(|&call| (call, Vec::new())).collect();
    let typing = TERMINAL.map(|request| {
        let is_this = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request);
        is_this.and_then(|condition| SeccompRule::new(vec![condition]))
    });
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<Result<_, _>>()?);
    let refused = SeccompAction::Errno(Errno::PERM.raw_os_error() as u32);
    let architecture = std::env::consts::ARCH.try_into().context("system calls of this processor")?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    apply_filter_all_threads(&program).context("cannot refuse system calls")
}
