//! Chains of legacy iptables, read as `iptables-legacy` reads them: by getsockopt (`linux/netfilter_ipv4/ip_tables.h`).
//!
//! What `iptables-nft` makes are chains of nftables, and are not here.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`; those of IPv6 have the same numbers.
const GET_INFO: libc::c_int = 64;
const GET_ENTRIES: libc::c_int = 65;

/// `struct ipt_getinfo`: name, valid hooks, first entry of each hook, policy of each hook, number and bytes of entries.
const INFO_BYTES: usize = 84;
const NAME_BYTES: usize = 32;
const HOOK_ENTRY: usize = 36;
const UNDERFLOW: usize = 56;
const SIZE: usize = 80;

/// `struct ipt_get_entries` up to its entries, which are aligned to eight bytes.
const ENTRIES: usize = 40;
/// `struct xt_entry_target`, behind which a verdict stands.
const TARGET_BYTES: usize = 32;
/// The verdict of policy DROP: `-NF_DROP - 1`.
const DROP: i32 = -1;

/// Hooks that forwarded packets pass, by their numbers (`enum nf_inet_hooks`).
const HOOKS: [(usize, &str); 3] = [(0, "PREROUTING"), (2, "FORWARD"), (4, "POSTROUTING")];

/// A family of tables.
struct Family {
    program: &'static str,
    /// The tables that this network namespace has; without any there may be no such file. Root alone may open it.
    names: &'static str,
    /// How the names of the modules with its tables begin.
    module: &'static str,
    domain: AddressFamily,
    level: libc::c_int,
    /// Where the offset of its target stands in an entry.
    target_offset: usize,
}

const FAMILIES: [Family; 2] = [
    Family {
        program: "iptables-legacy",
        names: "/proc/thread-self/net/ip_tables_names",
        module: "iptable_",
        domain: AddressFamily::INET,
        level: libc::SOL_IP,
        target_offset: 88,
    },
    Family {
        program: "ip6tables-legacy",
        names: "/proc/thread-self/net/ip6_tables_names",
        module: "ip6table_",
        domain: AddressFamily::INET6,
        level: libc::SOL_IPV6,
        target_offset: 140,
    },
];

/// A chain of legacy iptables that forwarded packets pass and that is not as the kernel made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyChain {
    /// The program that prints and changes it: `iptables-legacy` or `ip6tables-legacy`.
    pub program: &'static str,
    /// Its table: `filter`, `nat`, `mangle`, `raw` or `security`.
    pub table: String,
    /// `PREROUTING`, `FORWARD` or `POSTROUTING`.
    pub chain: &'static str,
}

/// The tables that there can be.
const TABLES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];

/// The lists of tables that were opened while the process was root's.
static KEPT: OnceLock<[Option<File>; FAMILIES.len()]> = OnceLock::new();

/// Opens the lists of this network namespace's tables, for a process that is about to become another user's.
pub fn keep_legacy_tables() {
    let _ = KEPT.get_or_init(|| FAMILIES.map(|family| File::open(family.names).ok()));
}

impl Family {
    /// Returns the tables that this network namespace may have.
    fn tables(&self, kept: Option<&File>) -> io::Result<Vec<String>> {
        let names = match kept {
            Some(file) => read_again(file),
            None => std::fs::read_to_string(self.names),
        };
        match names {
            Ok(names) => Ok(names.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            // The first table came after the process had become another user's.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let is_loaded =
                    |table: &&str| Path::new("/sys/module").join(format!("{}{table}", self.module)).exists();
                Ok(TABLES.into_iter().filter(is_loaded).map(str::to_owned).collect())
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads a file of the kernel from its beginning.
fn read_again(file: &File) -> io::Result<String> {
    let (mut bytes, mut part) = (Vec::new(), [0; 512]);
    loop {
        match file.read_at(&mut part, bytes.len() as u64)? {
            0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
}

/// Lists the chains of this thread's network namespace that have rules, or drop by policy. Needs `CAP_NET_ADMIN` where there are
/// tables.
///
/// # Errors
///
/// There are tables, and the kernel does not let us read them.
pub fn legacy_chains() -> io::Result<Vec<LegacyChain>> {
    let mut found = Vec::new();
    for (place, family) in FAMILIES.iter().enumerate() {
        let kept = KEPT.get().and_then(|kept| kept[place].as_ref());
        for table in family.tables(kept)? {
            let chains = match chains(family, &table) {
                // The table has gone, or its module is loaded without it.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other?,
            };
            let chains = chains.into_iter();
            found.extend(chains.map(|chain| LegacyChain {
                program: family.program,
                table: table.clone(),
                chain,
            }));
        }
    }
    Ok(found)
}

fn chains(family: &Family, table: &str) -> io::Result<Vec<&'static str>> {
    let socket = rustix::net::socket_with(family.domain, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // A table that changes between the two questions is asked again.
    for _ in 0..10 {
        let mut info = named(table, INFO_BYTES)?;
        get(&socket, family.level, GET_INFO, &mut info)?;
        let mut entries = named(table, ENTRIES + u32_at(&info, SIZE) as usize)?;
        entries[NAME_BYTES..NAME_BYTES + 4].copy_from_slice(&info[SIZE..SIZE + 4]);
        match get(&socket, family.level, GET_ENTRIES, &mut entries) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => continue,
            other => other?,
        }
        return Ok(changed(&info, &entries[ENTRIES..], family.target_offset));
    }
    Err(io::Error::other(format!("table '{table}' of {} changes all the time", family.program)))
}

/// The chains of a table that have rules or drop by policy.
fn changed(info: &[u8], entries: &[u8], target_offset: usize) -> Vec<&'static str> {
    let valid = u32_at(info, NAME_BYTES);
    let hooks = HOOKS.iter().filter(|(hook, _)| valid >> hook & 1 != 0);
    let changed = hooks.filter(|(hook, _)| {
        let first = u32_at(info, HOOK_ENTRY + 4 * hook);
        let policy = u32_at(info, UNDERFLOW + 4 * hook) as usize;
        // An empty chain begins with its policy.
        first as usize != policy || verdict(entries, policy, target_offset) == Some(DROP)
    });
    changed.map(|(_, name)| *name).collect()
}

/// The verdict of the entry at `at`.
fn verdict(entries: &[u8], at: usize, target_offset: usize) -> Option<i32> {
    let target = entries.get(at + target_offset..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))?;
    let verdict = entries.get(at + usize::from(target) + TARGET_BYTES..)?.first_chunk()?;
    Some(i32::from_ne_bytes(*verdict))
}

/// Room for an answer about a table, with its name in front.
fn named(table: &str, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    // The kernel wants a NUL behind it.
    let room = bytes[..NAME_BYTES - 1].get_mut(..table.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(table.as_bytes());
    Ok(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn get(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, buffer: &mut [u8]) -> io::Result<()> {
    let mut length = buffer.len() as libc::socklen_t;
    #[allow(unsafe_code, reason = "no crate has these options")]
    // SAFETY: the kernel reads and writes at most `length` bytes, which are all the buffer's, and any bytes are valid there.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, buffer.as_mut_ptr().cast(), &raw mut length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with hook FORWARD alone: its first entry and its policy at these places.
    fn info(first: u32, policy: u32) -> Vec<u8> {
        let mut info = vec![0; INFO_BYTES];
        info[NAME_BYTES] = 1 << 2;
        info[HOOK_ENTRY + 8..HOOK_ENTRY + 12].copy_from_slice(&first.to_ne_bytes());
        info[UNDERFLOW + 8..UNDERFLOW + 12].copy_from_slice(&policy.to_ne_bytes());
        info
    }

    /// An entry of IPv4 with a target behind it that has this verdict.
    fn entry(verdict: i32) -> Vec<u8> {
        let mut entry = vec![0; 152];
        entry[88..90].copy_from_slice(&112_u16.to_ne_bytes());
        entry[112 + TARGET_BYTES..112 + TARGET_BYTES + 4].copy_from_slice(&verdict.to_ne_bytes());
        entry
    }

    #[test]
    fn chains_with_rules_or_a_dropping_policy_are_found() {
        let empty: [&str; 0] = [];
        assert_eq!(changed(&info(0, 0), &entry(-2), 88), empty);
        assert_eq!(changed(&info(0, 0), &entry(DROP), 88), ["FORWARD"]);
        assert_eq!(changed(&info(0, 152), &[entry(-2), entry(-2)].concat(), 88), ["FORWARD"]);
        // Offsets that lead out of the table are nobody's verdict.
        assert_eq!(changed(&info(900, 900), &entry(DROP), 88), empty);
        assert!(named(&"x".repeat(32), INFO_BYTES).is_err());
    }
}
