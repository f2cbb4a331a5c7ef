//! What a router gives up, so that who takes it over gets less than root.
//!
//! Before its first thread it opens its doors (`doors`), becomes another user's process and drops
//! capabilities; system calls are refused when all is open. What root's files are needed for is done by then: a reload reads files
//! with the rights of the new user. Under the unit of systemd less is left from the start.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | [`Plan`]: what is given up; capabilities |
//! | `user` | whose process the router becomes |
//! | `calls` | the system calls that are refused |

mod calls;
mod user;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use control::accounts::Account;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::{RunArguments, subject};
use crate::settings::{Driver, Host, PortSettings, Settings};
pub(crate) use user::choose;

/// What a router needs that runs no programs: interfaces, sockets of packets, BPF programs and their verifier, memory that stays,
/// priority for hellos and timers.
const OF_PORTS: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE);

/// TCP ports below this one are for those who have `CAP_NET_BIND_SERVICE`.
const FIRST_FREE_PORT: u16 = 1024;

/// What nothing needs, routing daemons and other programs that a router may run included: modules, another kernel, clocks, terminals,
/// security modules, audits, the kernel's log, accounts of processes, devices, leases.
const OF_NOBODY: CapabilitySet = CapabilitySet::SYS_MODULE
    .union(CapabilitySet::SYS_BOOT)
    .union(CapabilitySet::SYS_TIME)
    .union(CapabilitySet::SYS_TTY_CONFIG)
    .union(CapabilitySet::SYS_PACCT)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::AUDIT_CONTROL)
    .union(CapabilitySet::AUDIT_READ)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::WAKE_ALARM)
    .union(CapabilitySet::BLOCK_SUSPEND)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::LEASE)
    .union(CapabilitySet::MKNOD);

/// What a router gives up.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    kept: CapabilitySet,
    /// Whose process it becomes.
    account: Option<Account>,
    /// Files for the interfaces that it makes: one for packets that go up to Linux, those for what programs in tc leave, and those of TAP
    /// ports.
    tun_files: usize,
    /// Whether it may run programs, and write files that are not its own.
    runs_programs: bool,
}

impl Plan {
    /// Returns what this router gives up. Why it stays root's is reported.
    ///
    /// # Errors
    ///
    /// The settings name a user whose process it cannot become.
    pub(super) fn of(arguments: &RunArguments, settings: &Settings) -> Result<Plan> {
        let is_root = rustix::process::geteuid().is_root();
        let wants_user = settings.general.user.is_some();
        let is_script = arguments.script.is_some();
        if subject::is_file(arguments) || is_script && !wants_user {
            return Ok(Plan::with_programs());
        }
        let script = arguments.script.as_ref().map(|script| PathBuf::from(&script.file));
        let own = arguments.config.clone().into_iter().chain(script);
        let chosen = is_root.then(|| user::choose(settings, own)).transpose()?;
        match &chosen {
            Some(Err(reason)) if !wants_user && user::is_made() => {
                tracing::warn!("the router stays root's: {reason}");
            }
            // `brickway doctor` reports it.
            Some(Err(reason)) => tracing::debug!("the router stays root's: {reason}"),
            _ => {}
        }
        let account = chosen.and_then(Result::ok);
        let has_dpdk = settings.ports.iter().any(|port| port.driver == Driver::Dpdk);
        if has_dpdk || is_script && account.is_none() {
            return Ok(Plan::with_programs());
        }
        let binds_low = settings.fpm.listen.is_some_and(|listen| listen.port() < FIRST_FREE_PORT);
        let bind = if binds_low { CapabilitySet::NET_BIND_SERVICE } else { CapabilitySet::empty() };
        let makes_interface = |port: &&PortSettings| {
            port.host != Host::Interface || matches!(port.driver, Driver::Tap | Driver::Vlan)
        };
        let may_be_in_tc = |port: &&PortSettings| port.driver.is_xdp() && port.host == Host::Interface;
        let (made, in_tc) =
            (settings.ports.iter().filter(makes_interface), settings.ports.iter().filter(may_be_in_tc));
        let workers = settings.workers.count;
        let tun_files = 1 + in_tc.count() * workers + made.count() * (workers + 1);
        Ok(Plan { kept: OF_PORTS | bind, account, tun_files, runs_programs: is_script })
    }

    /// Keeps what it takes to listen at an address later, which another program has now.
    pub(crate) fn keep_listening(&mut self, address: SocketAddr) {
        if address.port() < FIRST_FREE_PORT {
            self.kept |= CapabilitySet::NET_BIND_SERVICE;
        }
    }

    /// Returns what a router gives up that may run programs.
    pub(crate) fn with_programs() -> Plan {
        let kept = CapabilitySet::all().difference(OF_NOBODY);
        Plan { kept, account: None, tun_files: 0, runs_programs: true }
    }

    /// Gives up the user and capabilities, for threads and programs to come too. No other thread runs yet.
    pub(crate) fn give_up(&self) -> Result<()> {
        control::doors::remember_starter();
        for (_, capability) in CapabilitySet::all().difference(self.kept).iter_names() {
            match remove_capability_from_bounding_set(capability) {
                // A process that may not, or a kernel that does not know it. No program gets more by no_new_privs either.
                Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
                Err(error) => return Err(error).context("cannot give up capabilities"),
            }
        }
        let before = capabilities(None).context("cannot read its capabilities")?;
        if let Some(account) = &self.account {
            ports::keep_legacy_tables();
            ports::keep_tun_files(self.tun_files);
            user::become_user(account)?;
            // A capability that files and users of programs would get.
            clear_ambient_capability_set().context("cannot give up capabilities")?;
        }
        let kept = CapabilitySets {
            effective: before.effective & self.kept,
            permitted: before.permitted & self.kept,
            inheritable: before.inheritable & self.kept,
        };
        set_capabilities(None, kept).context("cannot give up capabilities")?;
        set_no_new_privs(true).context("cannot give up new privileges")
    }

    /// Has the kernel refuse system calls that are not needed, to all threads and those to come.
    pub(crate) fn refuse_unneeded_calls(&self) -> Result<()> {
        calls::refuse(self.runs_programs)
    }
}
