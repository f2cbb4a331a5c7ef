//! The backstop of a router's filters, in Linux's packet filter (nftables).
//!
//! What the router leaves to Linux has not been judged by its access list, and Linux may forward it. So while something
//! filters, Linux forwards only those packets from our ports that carry a mark, which the router puts on what its
//! filters have permitted. All others are dropped and counted. The rules of a port are a table of their own:
//!
//! ```text
//! table inet brickway-eth1 {
//!     chain forward {
//!         type filter hook forward priority -10; policy accept;
//!         iifname "eth1" meta mark & 0x10000000 == 0 counter drop
//!         iifname "eth1" fib saddr . iif oif 0 counter drop          # with a reverse-path check
//!     }
//! }
//! ```
//!
//! and both once more with `sdifname`, for a port in a VRF. The second rule judges packets of which only Linux knows
//! whether their source is believed.
//!
//! A table belongs to the socket that made it (`flags owner`, Linux 5.12): nobody else removes it, and it goes when the
//! process ends, however that ends. With [`BackstopPort::stays`] it stays (`flags owner,persist`, Linux 6.9; before that
//! without an owner). As no packet carries the mark then, nothing from the port is forwarded.

use std::io;

use crate::netfilter::{
    self, Draft, Hook, META_MARK, Netfilter, OWNER, REGISTER, expression, is_equal, keep_bits, load, number,
    removal, verdict,
};

/// A port to guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackstopPort {
    /// The name of its interface in Linux.
    pub name: String,
    /// Whether its table outlives the process.
    pub stays: bool,
}

/// Which route to the source a packet has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceRoute {
    /// One by any interface.
    Any,
    /// One by the interface that the packet came in by.
    Back,
}

/// What the backstop of a port dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackstopDrops {
    /// The port.
    pub port: String,
    /// Why.
    pub reason: &'static str,
    /// Packets.
    pub packets: u64,
}

/// Why there is no backstop.
#[derive(Debug, thiserror::Error)]
#[error(
    "the backstop of the filters, a table of nftables: {0}; expected CAP_NET_ADMIN, no other router on these ports, and a \
     kernel with nf_tables and its `fib` expression (modprobe nft_fib_inet)"
)]
pub struct BackstopError(io::Error);

/// The tables of a router's ports.
pub struct Backstop {
    netfilter: Netfilter,
    ports: Vec<String>,
}

const UNMARKED: &str = "not judged by the router";
const NO_ROUTE_BACK: &str = "no route back in Linux";

impl Backstop {
    /// Sets up the tables of these ports in one step, in the place of those that a router before us left. What comes in
    /// by them is forwarded with the bit `mark` in its mark, and, if that matters, with a route to its source.
    ///
    /// # Errors
    /// The kernel has no nf_tables, or we lack the right, or another router has one of the ports.
    pub fn raise(
        ports: &[BackstopPort],
        mark: u32,
        source: Option<SourceRoute>,
    ) -> Result<Self, BackstopError> {
        Self::set_up(ports, mark, source).map_err(BackstopError)
    }

    fn set_up(ports: &[BackstopPort], mark: u32, source: Option<SourceRoute>) -> io::Result<Self> {
        let mut netfilter = Netfilter::open()?;
        let known = netfilter.tables()?;
        let mut result = Ok(());
        for persist in [OWNER | PERSIST, 0] {
            let mut messages = Vec::new();
            for port in ports {
                messages.extend(removal(&table_of(&port.name), &known));
                messages.extend(table(port, if port.stays { persist } else { OWNER }, mark, source));
            }
            result = netfilter.change(messages);
            // Older kernels do not know that flag.
            let is_unknown = result.as_ref().err().and_then(io::Error::raw_os_error) == Some(EOPNOTSUPP);
            if !is_unknown {
                break;
            }
        }
        result?;
        Ok(Self { netfilter, ports: ports.iter().map(|port| port.name.clone()).collect() })
    }

    /// What was dropped so far.
    ///
    /// # Errors
    /// The tables cannot be read.
    pub fn drops(&mut self) -> io::Result<Vec<BackstopDrops>> {
        let mut drops = Vec::new();
        for port in &self.ports {
            let (mut unmarked, mut no_route) = (0, 0);
            for (number, packets) in self.netfilter.counts(&table_of(port))?.into_iter().enumerate() {
                // Both rules for the interface, and both for that of a VRF.
                *if number < 2 { &mut unmarked } else { &mut no_route } += packets;
            }
            for (reason, packets) in [(UNMARKED, unmarked), (NO_ROUTE_BACK, no_route)] {
                drops.push(BackstopDrops { port: port.clone(), reason, packets });
            }
        }
        Ok(drops)
    }
}

impl std::fmt::Debug for Backstop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backstop").field("ports", &self.ports).finish_non_exhaustive()
    }
}

/// The ports that have a table, of this process, another one, or one that has ended.
///
/// # Errors
/// The kernel does not say: it has no nf_tables, or we lack the right.
pub fn guarded_ports() -> io::Result<Vec<String>> {
    let tables = Netfilter::open()?.tables()?;
    Ok(tables.into_iter().filter_map(|(name, _)| name.strip_prefix(PREFIX).map(str::to_owned)).collect())
}

/// Removes the tables of these ports that no process has, where there are some.
///
/// # Errors
/// A process has one of them.
pub fn remove(ports: &[String]) -> io::Result<()> {
    let mut netfilter = Netfilter::open()?;
    let known = netfilter.tables()?;
    netfilter.change(ports.iter().flat_map(|port| removal(&table_of(port), &known)).collect())
}

/// What the names of the tables begin with; the port follows.
pub const PREFIX: &str = "brickway-";

fn table_of(port: &str) -> String {
    format!("{PREFIX}{port}")
}

/// The table outlives its owner.
const PERSIST: u32 = 4;
/// Before the filters of others, which then count only what passes.
const PRIORITY: i32 = -10;
const META_INPUT: u32 = 6;
/// The interface below a VRF's.
const META_BELOW_VRF: u32 = 34;
const INTERFACE_NAME_BYTES: usize = 16;
const EOPNOTSUPP: i32 = 95;

/// Loads the interface of the route to the source; 0: there is none.
fn load_source_route(route: SourceRoute) -> Vec<u8> {
    const TO_SOURCE: u32 = 1;
    const BY_INPUT: u32 = 8;
    const INTERFACE: u32 = 1;
    let flags = if route == SourceRoute::Back { TO_SOURCE | BY_INPUT } else { TO_SOURCE };
    expression("fib", &[number(1, REGISTER), number(2, INTERFACE), number(3, flags)])
}

/// Makes the messages that make the table of a port.
fn table(port: &BackstopPort, flags: u32, mark: u32, source: Option<SourceRoute>) -> Vec<Draft> {
    const CHAIN: &str = "forward";
    let table = table_of(&port.name);
    let mut drafts =
        vec![netfilter::table(&table, flags), netfilter::chain(&table, CHAIN, Hook::Forward, PRIORITY)];
    let mut name = port.name.clone().into_bytes();
    name.resize(INTERFACE_NAME_BYTES, 0);
    let unmarked = vec![load(META_MARK), keep_bits(mark), is_equal(&0_u32.to_ne_bytes())];
    let without_route = source.map(|route| vec![load_source_route(route), is_equal(&0_u32.to_ne_bytes())]);
    for condition in [Some(unmarked), without_route].into_iter().flatten() {
        for key in [META_INPUT, META_BELOW_VRF] {
            let comes_by = [load(key), is_equal(&name)];
            let count_and_drop = [expression("counter", &[]), verdict(netfilter::DROP)];
            drafts.push(netfilter::rule(
                &table,
                CHAIN,
                &[&comes_by[..], &condition, &count_and_drop].concat(),
            ));
        }
    }
    drafts
}

#[cfg(test)]
mod tests {
    use super::*;
    use testbed::{eventually, in_namespace};

    const MARK: u32 = 0x1000_0000;

    fn port(name: &str, stays: bool) -> BackstopPort {
        BackstopPort { name: name.into(), stays }
    }

    /// A socket that was closed is still there while a program that another test starts has it, so a table goes a little later.
    fn are_guarded(expected: &[&str]) -> bool {
        eventually(|| {
            let mut ports = guarded_ports().unwrap();
            ports.sort();
            ports == expected
        })
    }

    /// Raises one, as soon as the ones before are gone.
    fn raised(ports: &[BackstopPort], source: Option<SourceRoute>) -> Backstop {
        let mut backstop = None;
        assert!(eventually(|| {
            backstop = Backstop::raise(ports, MARK, source).ok();
            backstop.is_some()
        }));
        backstop.unwrap()
    }

    #[test]
    fn tables_go_with_their_process_unless_they_are_to_stay() {
        in_namespace(|| {
            let ports = [port("eth1", false), port("eth2", true)];
            let mut backstop = raised(&ports, Some(SourceRoute::Back));
            assert!(are_guarded(&["eth1", "eth2"]));
            let drops = backstop.drops().unwrap();
            let told: Vec<_> = drops.iter().map(|row| (row.port.as_str(), row.reason, row.packets)).collect();
            let expected = ["eth1", "eth2"].map(|port| [(port, UNMARKED, 0), (port, NO_ROUTE_BACK, 0)]);
            assert_eq!(told, expected.concat());
            // While the router is there nobody else has a say.
            assert!(remove(&["eth1".into()]).is_err());
            assert!(Backstop::raise(&ports[..1], MARK, None).is_err());
            drop(backstop);
            assert!(are_guarded(&["eth2"]));
            // The next router takes the place of the one before, without a moment in between.
            let backstop = raised(&ports, Some(SourceRoute::Any));
            assert!(are_guarded(&["eth1", "eth2"]));
            drop(backstop);
            drop(raised(&[port("eth2", false)], None));
            assert!(are_guarded(&[]));
            drop(raised(&ports, None));
            assert!(eventually(|| remove(&["eth1".into(), "eth2".into()]).is_ok()));
            assert!(are_guarded(&[]));
            assert!(Backstop::raise(&[], MARK, None).unwrap().drops().unwrap().is_empty());
        });
    }
}
