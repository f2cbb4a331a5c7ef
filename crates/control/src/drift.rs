//! Whether the forwarding tables have Linux's routes: all of them are asked for once more, and compared with the mirror.
//!
//! Memory for that is 100 bytes a route, for the seconds that it takes. The mirror's lock is held while digests are made, as
//! long as a page of a list or a little longer. Routes of FRR are not compared: zebra sends them once, and cannot be asked.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packet::IpVersion;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::api::DriftRow;
use crate::change::{Part, Source};
use crate::mirror::{Difference, Digest, DigestOf, Drift, Told};
use crate::netlink::{Event, Kernel, KernelOptions};
use crate::service::Service;

/// How long a comparison may take, and how long the mirror may take to read all routes again.
const LONGEST: Duration = Duration::from_secs(60);

/// How often routes are compared while they differ, and how long apart.
const LOOKS: usize = 4;
const TIME_BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// How long Linux is waited for at a time.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Differences that are listed.
const MOST: usize = 100;

/// What a comparison found.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// By table: Linux's routes, and ours.
    tables: BTreeMap<DigestOf, [Digest; 2]>,
    /// The routes that differ, some of them by name.
    pub drift: Drift,
}

/// What a check found, and what is left of it after all routes were read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Routes that differed.
    pub found: u64,
    /// One of them.
    pub example: Option<Difference>,
    /// Routes that differ now.
    pub left: u64,
}

/// Compares the mirror with Linux's routes of now. Routes may change meanwhile, so what differs is looked at again a moment later.
///
/// # Errors
///
/// Linux does not tell its routes, or `ends` was set.
pub fn compare(service: &Service, ends: &AtomicBool) -> io::Result<Comparison> {
    let mut looks = 0;
    loop {
        looks += 1;
        let told = everything(ends)?;
        let wanted = told.digests();
        let state = service.lock();
        let mut tables: BTreeMap<DigestOf, [Digest; 2]> = BTreeMap::new();
        for (of, theirs) in wanted {
            tables.entry(of).or_default()[0] = theirs;
        }
        for (of, ours) in state.mirror.digests().into_iter().filter(|(of, _)| of.source == Source::Netlink) {
            tables.entry(of).or_default()[1] = ours;
        }
        let is_same = told.unread() == 0 && tables.values().all(|[theirs, ours]| theirs == ours);
        if is_same || looks == LOOKS {
            let drift = state.mirror.drift(&[Part::Routes4, Part::Routes6], told, MOST);
            return Ok(Comparison { tables, drift });
        }
        drop(state);
        std::thread::sleep(TIME_BETWEEN_LOOKS);
    }
}

/// Compares the mirror with Linux's routes, and has it read all of them again where they differ.
///
/// # Errors
///
/// As of [`compare`].
pub fn check(service: &Service, ends: &AtomicBool) -> io::Result<Checked> {
    let Drift { differing: found, differences, .. } = compare(service, ends)?.drift;
    let example = differences.into_iter().next();
    if found == 0 {
        return Ok(Checked { found, example, left: 0 });
    }
    if let Some(kernel) = &mut service.lock().kernel {
        kernel.request_resync()?;
    }
    let begin = Instant::now();
    while !service.wait_synchronised(Duration::from_millis(100)) && begin.elapsed() < LONGEST {
        packet::pulse::beat();
        may_go_on(ends)?;
    }
    let left = compare(service, ends)?.drift.differing;
    Ok(Checked { found, example, left })
}

impl Comparison {
    /// Returns the rows of `brickway show drift`.
    pub fn rows(&self, service: &Service) -> Vec<DriftRow> {
        let state = service.lock();
        let (fib, kinds) = (state.mirror.fib(), state.mirror.fib().kinds());
        let is_of = |of: &DigestOf, difference: &Difference| {
            let key = difference.key();
            key.table == of.table && IpVersion::of(key.prefix.addr()) == of.version
        };
        let tables = self.tables.iter().map(|(of, [theirs, ours])| {
            let listed = self.drift.differences.iter().filter(|difference| is_of(of, difference)).count();
            let lookup = match of.version {
                IpVersion::V4 => kinds.ipv4.name(),
                IpVersion::V6 => kinds.ipv6.name(),
            };
            DriftRow::Table {
                lookup: fib.vrf_index(of.table).map(|_| lookup.to_owned()),
                source: of.source.to_string(),
                table: of.table,
                family: of.version,
                theirs: theirs.routes,
                ours: ours.routes,
                differences: (listed as u64).max(u64::from(theirs != ours)),
            }
        });
        let differences = self.drift.differences.iter().map(|difference| {
            let key = difference.key();
            let (theirs, ours) = difference.sides();
            DriftRow::Difference {
                table: key.table,
                prefix: key.prefix,
                theirs: theirs.map(str::to_owned),
                ours: ours.map(str::to_owned),
            }
        });
        tables.chain(differences).collect()
    }
}

fn may_go_on(ends: &AtomicBool) -> io::Result<()> {
    if ends.load(Ordering::Relaxed) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
}

/// Returns all routes that Linux has now.
fn everything(ends: &AtomicBool) -> io::Result<Told> {
    let mut kernel = Kernel::open(&KernelOptions::default())?;
    let mut told = Told::by(Source::Netlink);
    let begin = Instant::now();
    while !kernel.is_synchronised() {
        packet::pulse::beat();
        may_go_on(ends)?;
        if begin.elapsed() > LONGEST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // An interrupted wait is as good as one that is over.
        let _ = poll(&mut [PollFd::new(&kernel.fd(), PollFlags::IN)], Some(&WAIT));
        // What changes meanwhile is told too.
        kernel.receive(&mut |event| {
            if let Event::Change(change) = event {
                told.apply(change);
            }
        })?;
    }
    told.set_unread(kernel.counters().errors.total());
    Ok(told)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::change::{Change, Route, RouteKey};
    use crate::service::ServiceOptions;

    #[test]
    fn a_route_that_the_mirror_has_lost_or_kept_is_found_and_read_again() {
        testbed::in_namespace(|| {
            crate::netlink::testing::ip_batch(
                "link set lo up
                 addr add 192.0.2.1/24 dev lo
                 route add 198.51.100.0/24 via 192.0.2.7
                 route add 203.0.113.0/24 via 192.0.2.7",
            );
            let service = Service::start(&ServiceOptions::default()).unwrap();
            assert!(service.wait_synchronised(LONGEST));
            let ends = AtomicBool::new(false);
            let whole = Checked { found: 0, example: None, left: 0 };
            assert_eq!(check(&service, &ends).unwrap(), whole);

            let key = |prefix: &str| RouteKey {
                table: 254,
                prefix: prefix.parse().unwrap(),
                metric: 0,
                tos: 0,
                from: None,
            };
            let (lost, kept) = (key("198.51.100.0/24"), key("10.9.0.0/16"));
            let mut state = service.lock();
            let route = state.mirror.routes().find(|route| route.key == lost).unwrap();
            let hops = route.hops.clone();
            let (kind, protocol) = (route.kind, route.protocol);
            let (preference, only_linux) = (Route::MEDIUM, None);
            let kept = Route {
                key: kept,
                kind,
                protocol,
                preferred_source: None,
                mtu: None,
                preference,
                only_linux,
                hops,
            };
            state.mirror.apply(Source::Netlink, Change::RouteGone(lost));
            state.mirror.apply(Source::Netlink, Change::Route(kept));
            drop(state);
            let rows = compare(&service, &ends).unwrap().rows(&service);
            let differences = rows.iter().filter(|row| matches!(row, DriftRow::Difference { .. })).count();
            assert_eq!(differences, 2, "{rows:?}");
            let checked = check(&service, &ends).unwrap();
            assert_eq!((checked.found, checked.left), (2, 0));
            assert!(checked.example.is_some());
            assert!(service.lock().mirror.routes().any(|route| route.key == lost));
            assert_eq!(check(&service, &ends).unwrap(), whole);

            ends.store(true, Ordering::Relaxed);
            assert_eq!(check(&service, &ends).unwrap_err().kind(), io::ErrorKind::Interrupted);
        });
    }
}
