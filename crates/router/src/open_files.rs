//! Open files: the limit is raised to what the process may have, and what a router of ports needs is counted before it
//! starts.

use anyhow::{Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::settings::{Driver, PortSettings};

/// Files of a router without ports: its threads, netlink, the control socket, the program that forwards in the kernel.
const OF_ROUTER: u64 = 64;

/// Raises the limit of open files as far as this process may.
pub(crate) fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // What is refused here stands in the error of a file that cannot be opened.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Returns how many files a router of these ports needs with so many workers.
pub(crate) fn needed(ports: &[PortSettings], workers: usize) -> u64 {
    let workers = workers as u64;
    let of_port = |port: &PortSettings| match port.driver {
        // Locks, programs, maps, sockets of the queues, and the way to Linux: counted behind a list, 26 and one for each worker. Ports in
        // tc have a socket more for each thread, and their TAP device: 32, and two for each worker.
        Driver::Auto => 33 + 3 * workers,
        Driver::Xdp | Driver::AfXdp => 27 + 3 * workers,
        Driver::AfPacket => 20 + 2 * workers,
        Driver::Tap | Driver::Dpdk => 8 + workers,
        Driver::Vlan => 4,
    };
    OF_ROUTER + workers + ports.iter().map(of_port).sum::<u64>()
}

/// The most files that this process may have open; `None` for any number.
pub(crate) fn most() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Refuses to start where files would lack.
///
/// # Errors
/// Says how many are needed.
pub(crate) fn refuse_too_few(ports: &[PortSettings], workers: usize) -> Result<()> {
    let needed = needed(ports, workers);
    match most().filter(|&most| most < needed) {
        Some(most) => bail!(
            "{} ports and {workers} worker{} need {needed} open files, and this process may have {most}; expected a higher limit: \
             run 'ulimit -n {needed}', or set LimitNOFILE={needed} in its unit",
            ports.len(),
            if workers == 1 { "" } else { "s" }
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ports_and_workers_need_more_files() {
        let ports = |count: usize| vec![PortSettings::new("eth1"); count];
        assert!(needed(&ports(60), 1) > 1_024 && needed(&ports(2), 1) < 256);
        assert!(needed(&ports(2), 8) > needed(&ports(2), 1));
        refuse_too_few(&ports(2), 1).unwrap();
        raise_limit();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }
}
