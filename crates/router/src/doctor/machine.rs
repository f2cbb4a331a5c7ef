//! The machine: the kernel, what this process may do, memory, and whether Linux forwards.

use std::fs::read_to_string;
use std::path::PathBuf;

use packet::IpVersion;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, getrlimit};

use super::{Driver, Finding, Host, Patient, Remedy};
use crate::drop_in;
use crate::open_files;
use crate::run::choose_user;
use crate::settings::Settings;

pub(super) fn examine(patient: &Patient) -> Vec<Finding> {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = Capabilities::of(&status);
    let mut findings = kernel(&release(), patient);
    findings.extend(permissions(capabilities, patient));
    findings.extend(locked_memory(capabilities, getrlimit(Resource::Memlock).current, patient));
    findings.push(files(patient.files, open_files::most()));
    if patient.uses(Driver::Dpdk) {
        let (memory, mounts) = (read_to_string("/proc/meminfo"), read_to_string("/proc/mounts"));
        findings.push(huge_pages(&memory.unwrap_or_default(), &mounts.unwrap_or_default()));
    }
    if patient.uses(Driver::Tap) || patient.ports.iter().any(|port| port.host == Host::Tap) {
        findings.push(tun());
    }
    if patient.linux_is_slow_path {
        findings.extend(forwarding().map(|(_, finding)| finding));
    }
    findings
}

/// Whether the process may open as many files as the ports need.
fn files(needed: u64, most: Option<u64>) -> Finding {
    const NAME: &str = "open files";
    match most.filter(|&most| most < needed) {
        None => {
            let most = most.map_or_else(|| "any number".to_owned(), |most| most.to_string());
            Finding::ok(NAME, format!("{needed} needed, {most} allowed"))
        }
        Some(most) => {
            let why =
                "each port has files for its queues and programs, and the router does not start without them";
            let remedy = Remedy::ByHand(format!("ulimit -n {needed}, or LimitNOFILE={needed} in the unit"));
            Finding::bad(NAME, format!("{needed} needed, {most} allowed"), why, remedy)
        }
    }
}

/// Whether Linux forwards each family.
pub(super) fn forwarding() -> impl Iterator<Item = (IpVersion, Finding)> {
    FORWARDING
        .into_iter()
        .filter_map(|(version, name)| Some((version, forwards(version, name, &sysctl(name)?))))
}

/// Ports from which nothing is forwarded, because a router with `fail = "closed"` has ended. Where the patient has ports, `--fix` opens
/// these alone.
pub(super) fn closed_ports(patient: &Patient) -> Vec<Finding> {
    let is_patients = |port: &str| {
        patient.ports.is_empty()
            || patient.ports.iter().any(|known| ports::kernel_name(&known.device) == port)
    };
    let finding = |port: String| {
        let why = "a router with fail = \"closed\" has ended or did not start, and none runs since";
        let what = "Linux forwards nothing that comes in by it";
        if is_patients(&port) {
            return Finding::bad(&port, what, why, Remedy::Open(port.clone()));
        }
        Finding::warn(
            &port,
            what,
            why,
            Remedy::ByHand(format!("if it is to be open: brickway doctor {port} --fix")),
        )
    };
    drop_in::closed_ports().into_iter().map(finding).collect()
}

/// The sysctls that make Linux forward.
const FORWARDING: [(IpVersion, &str); 2] =
    [(IpVersion::V4, "net.ipv4.ip_forward"), (IpVersion::V6, "net.ipv6.conf.all.forwarding")];

/// The file of a sysctl in this network namespace.
pub(super) fn sysctl_path(name: &str) -> String {
    // A dot within a name, as in that of eth1.5, is written as a slash; see sysctl(8).
    let path: String = name
        .chars()
        .map(|c| {
            if c == '.' {
                '/'
            } else if c == '/' {
                '.'
            } else {
                c
            }
        })
        .collect();
    format!("/proc/sys/{path}")
}

/// The value of a sysctl; `None` when the kernel has none of that name.
pub(super) fn sysctl(name: &str) -> Option<String> {
    Some(read_to_string(sysctl_path(name)).ok()?.trim().to_owned())
}

/// `6.18` of `6.18.4-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The version of the running kernel. What cannot be read is taken for new: the drivers say what fails.
pub(super) fn running_version() -> (u32, u32) {
    version(&release()).unwrap_or((u32::MAX, 0))
}

fn kernel(release: &str, patient: &Patient) -> Vec<Finding> {
    const NAME: &str = "kernel";
    let newer = |what: &str| Remedy::ByHand(format!("a kernel of {what} or newer"));
    // What cannot be read is taken for new: the drivers say what fails.
    let version = version(release).unwrap_or((u32::MAX, 0));
    let mut findings = vec![Finding::ok(NAME, format!("Linux {release}"))];
    if patient.uses_xdp() {
        if version < (5, 9) {
            let why = "AF_XDP ports need BPF links for XDP, which came with Linux 5.9";
            findings.push(Finding::bad(NAME, format!("Linux {release} is too old"), why, newer("Linux 5.9")));
        }
        findings.extend(af_xdp());
    }
    let beside_linux =
        |driver| patient.ports.iter().any(|port| port.driver == driver && port.host == Host::Interface);
    if beside_linux(Driver::AfPacket) && version < (6, 6) {
        let why =
            "AF_PACKET ports keep Linux from forwarding the same packets by tcx, which came with Linux 6.6";
        findings.push(Finding::bad(NAME, format!("Linux {release} is too old"), why, newer("Linux 6.6")));
    }
    if let Some("0") = sysctl("net.core.bpf_jit_enable").as_deref() {
        let why = "the steering program is interpreted, for every packet";
        let remedy = Remedy::Sysctl("net.core.bpf_jit_enable".to_owned(), "1");
        findings.push(Finding::warn(NAME, "BPF programs are not compiled", why, remedy));
    }
    findings
}

/// Whether the kernel has AF_XDP.
fn af_xdp() -> Option<Finding> {
    let socket = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None);
    (socket.err()? == Errno::AFNOSUPPORT).then(|| {
        let why = "AF_XDP ports cannot be opened";
        let remedy = Remedy::ByHand("a kernel with CONFIG_XDP_SOCKETS, or ports of af_packet:".to_owned());
        Finding::bad("kernel", "it was built without AF_XDP", why, remedy)
    })
}

/// Effective capabilities of this process, by bit (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Capabilities(u64);

const NET_ADMIN: (u32, &str) = (12, "CAP_NET_ADMIN");
const NET_RAW: (u32, &str) = (13, "CAP_NET_RAW");
const IPC_LOCK: u32 = 14;
/// Is as good as CAP_BPF.
const SYS_ADMIN: u32 = 21;
const BPF: (u32, &str) = (39, "CAP_BPF");

impl Capabilities {
    /// Of the text of `/proc/self/status`; all, if it does not say.
    fn of(status: &str) -> Self {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        Self(line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(u64::MAX))
    }

    fn has(self, bit: u32) -> bool {
        self.0 >> bit & 1 != 0
    }
}

fn permissions(capabilities: Capabilities, patient: &Patient) -> Option<Finding> {
    if patient.ports.is_empty() {
        return None;
    }
    let has = |bit| capabilities.has(bit) || bit == BPF.0 && capabilities.has(SYS_ADMIN);
    let missing = [NET_ADMIN, NET_RAW, BPF].iter().filter(|(bit, _)| !has(*bit));
    let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
    Some(if missing.is_empty() {
        Finding::ok("permissions", "this process may open ports and load BPF programs")
    } else {
        let why = "opening ports, loading the steering program and following routes need them";
        let remedy = Remedy::ByHand("run it as root, or as a service with these capabilities".to_owned());
        Finding::bad("permissions", format!("this process lacks {}", missing.join(", ")), why, remedy)
            .preventing()
    })
}

/// Returns whose process a router becomes that root starts with these settings of a file.
pub(super) fn user(settings: &Settings, file: Option<PathBuf>) -> Option<Finding> {
    const NAME: &str = "user";
    const WHY: &str = "a router that is root's reads and writes root's files if somebody takes it over";
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    Some(match choose_user(settings, file) {
        Ok(Ok(account)) => Finding::ok(NAME, format!("the router becomes user '{}'", account.name)),
        Ok(Err(_)) if settings.general.user.is_some() => {
            Finding::ok(NAME, "the router stays root's, as the settings have it")
        }
        Ok(Err(stays)) => {
            let remedy = stays.expected.map_or(Remedy::None, Remedy::ByHand);
            Finding::warn(NAME, format!("the router stays root's: {}", stays.reason), WHY, remedy)
        }
        Err(error) => Finding::bad(NAME, format!("{error:#}"), "the router does not start", Remedy::None),
    })
}

/// Bytes of the pools of all workers and of the slow thread.
pub(super) fn pool_bytes(patient: &Patient) -> u64 {
    let [of_worker, slow] = patient.pools.map(|pool| pool.memory_bytes() as u64);
    of_worker * patient.workers as u64 + slow
}

/// Bytes that AF_XDP sockets lock at the least: each, of which every port has one or more, all pools.
fn locked_bytes(patient: &Patient) -> u64 {
    patient.ports.iter().filter(|port| port.driver.is_xdp()).count() as u64 * pool_bytes(patient)
}

fn locked_memory(capabilities: Capabilities, limit: Option<u64>, patient: &Patient) -> Option<Finding> {
    if !patient.uses_xdp() {
        return None;
    }
    let (needed, mebibyte) = (locked_bytes(patient), 1 << 20);
    Some(match limit {
        // Linux asks the limit of those only that may not lock as they like (net/xdp/xdp_umem.c).
        _ if capabilities.has(IPC_LOCK) => Finding::ok("memory", "locking is not limited (CAP_IPC_LOCK)"),
        None => Finding::ok("memory", "locking is not limited"),
        Some(limit) if limit >= needed => {
            Finding::ok("memory", format!("{} MiB may be locked", limit / mebibyte))
        }
        Some(limit) => {
            let what = format!(
                "{} MiB may be locked, and {} MiB are needed",
                limit / mebibyte,
                needed.div_ceil(mebibyte)
            );
            let why = "every AF_XDP socket locks the frames of all workers in memory";
            let remedy = Remedy::ByHand("ulimit -l unlimited, LimitMEMLOCK=infinity in a service".to_owned());
            Finding::bad("memory", what, why, remedy)
        }
    })
}

/// Huge pages that are free, and the KiB of one, of the text of `/proc/meminfo`.
pub(super) fn free_huge_pages(memory: &str) -> (u64, u64) {
    let number = |name: &str| -> u64 {
        let line = memory.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    (number("HugePages_Free"), number("Hugepagesize"))
}

fn huge_pages(memory: &str, mounts: &str) -> Finding {
    let (free, kibibytes) = free_huge_pages(memory);
    let is_mounted = mounts.lines().any(|line| line.split(' ').nth(2) == Some("hugetlbfs"));
    let what = format!("{free} huge pages of {} MiB are free", kibibytes / 1024);
    let why =
        "DPDK works without, but cards that read memory by themselves need them, and lookups are slower";
    match (free, is_mounted) {
        (0, _) => {
            let remedy = Remedy::ByHand("sysctl -w vm.nr_hugepages=512, best at boot".to_owned());
            Finding::warn("memory", what, why, remedy)
        }
        (_, false) => {
            let remedy = Remedy::Run("mount -t hugetlbfs hugetlbfs /dev/hugepages".to_owned());
            Finding::warn("memory", format!("{what}, but not mounted"), why, remedy)
        }
        (_, true) => Finding::ok("memory", what),
    }
}

/// Whether an interface forwards IPv6 whatever the setting of all of them is (Linux 6.17).
fn is_forced() -> bool {
    let all = std::fs::read_dir("/proc/sys/net/ipv6/conf").into_iter().flatten().flatten();
    let mut settings = all.map(|folder| folder.path().join("force_forwarding"));
    settings.any(|path| std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0"))
}

fn tun() -> Finding {
    const PATH: &str = "/dev/net/tun";
    if std::path::Path::new(PATH).exists() {
        return Finding::ok("kernel", "it has TAP interfaces");
    }
    let why = "Linux gets a TAP interface for each port that it sees so";
    Finding::bad("kernel", format!("there is no {PATH}"), why, Remedy::Run("modprobe tun".to_owned()))
}

fn forwards(version: IpVersion, name: &str, value: &str) -> Finding {
    if value != "0" || version == IpVersion::V6 && is_forced() {
        return Finding::ok("forwarding", format!("Linux forwards {version}"));
    }
    let why = "the router obeys that, and forwards none of it";
    Finding::bad(
        "forwarding",
        format!("Linux does not forward {version}"),
        why,
        Remedy::Sysctl(name.to_owned(), "1"),
    )
}

#[cfg(test)]
mod tests {
    use packet::PoolOptions;

    use super::super::{PatientPort, Verdict};
    use super::*;

    fn patient(driver: Driver) -> Patient {
        let port = PatientPort { device: "eth1".into(), driver, host: Host::Interface, spec: String::new() };
        Patient {
            ports: vec![port],
            workers: 2,
            files: 100,
            filters: false,
            pools: [PoolOptions::default(); 2],
            linux_is_slow_path: true,
            ignore: Vec::new(),
            sees_transit: None,
        }
    }

    #[test]
    fn files_are_counted() {
        assert_eq!(files(100, Some(1_024)).verdict, Verdict::Ok);
        assert_eq!(files(100, None).what, "100 needed, any number allowed");
        let few = files(1_700, Some(1_024));
        assert_eq!((few.verdict, few.what.as_str()), (Verdict::Bad, "1700 needed, 1024 allowed"));
    }

    #[test]
    fn kernels() {
        assert_eq!(version("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!(version("unknown"), None);
        let bad = |release: &str, driver| {
            let findings = kernel(release, &patient(driver));
            findings.iter().any(|finding| finding.verdict == Verdict::Bad && finding.what.contains("too old"))
        };
        assert!(bad("5.8.18", Driver::AfXdp) && !bad("5.10.0-1", Driver::AfXdp));
        assert!(
            bad("6.5.0", Driver::AfPacket)
                && !bad("6.6.1", Driver::AfPacket)
                && !bad("6.18.0", Driver::AfPacket)
        );
    }

    #[test]
    fn what_a_process_may_do() {
        let root = Capabilities::of("Name:\tx\nCapEff:\t000001ffffffffff\n");
        assert_eq!(permissions(root, &patient(Driver::AfXdp)).unwrap().verdict, Verdict::Ok);
        let nobody = Capabilities::of("CapEff:\t0000000000001000\n");
        let finding = permissions(nobody, &patient(Driver::AfXdp)).unwrap();
        assert_eq!(finding.what, "this process lacks CAP_NET_RAW, CAP_BPF");
        assert!(finding.prevents_start);
        // CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN.
        let older = Capabilities::of("CapEff:\t0000000000203000\n");
        assert_eq!(permissions(older, &patient(Driver::AfXdp)).unwrap().verdict, Verdict::Ok);

        let memory =
            |capabilities, limit| locked_memory(capabilities, limit, &patient(Driver::AfXdp)).unwrap();
        assert_eq!(memory(root, Some(0)).verdict, Verdict::Ok);
        assert_eq!(memory(nobody, None).verdict, Verdict::Ok);
        assert_eq!(memory(nobody, Some(8 << 20)).what, "8 MiB may be locked, and 102 MiB are needed");
        assert_eq!(locked_memory(nobody, Some(0), &patient(Driver::AfPacket)), None);
    }

    #[test]
    fn huge_pages_are_counted_and_mounted() {
        let memory =
            |free| format!("HugePages_Total:  9\nHugePages_Free:  {free}\nHugepagesize:       2048 kB\n");
        let mounts = "proc /proc proc rw 0 0\nhugetlbfs /dev/hugepages hugetlbfs rw 0 0\n";
        assert_eq!(huge_pages(&memory(7), mounts), Finding::ok("memory", "7 huge pages of 2 MiB are free"));
        assert_eq!(huge_pages(&memory(0), mounts).verdict, Verdict::Warn);
        assert!(huge_pages(&memory(7), "").remedy.is_automatic());
    }

    #[test]
    fn sysctls_and_forwarding() {
        assert_eq!(sysctl_path("net.ipv4.conf.eth1/5.rp_filter"), "/proc/sys/net/ipv4/conf/eth1.5/rp_filter");
        assert_eq!(sysctl("net.no.such"), None);
        assert_eq!(forwards(IpVersion::V4, "net.ipv4.ip_forward", "1").verdict, Verdict::Ok);
        let off = forwards(IpVersion::V6, "net.ipv6.conf.all.forwarding", "0");
        assert_eq!(
            off.details()[1],
            "fix: sysctl -w net.ipv6.conf.all.forwarding=1 ('brickway doctor --fix' with the same ports or settings does it)"
        );
    }
}
