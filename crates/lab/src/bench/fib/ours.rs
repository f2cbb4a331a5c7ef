//! Our tables under measurement, in this process.
//!
//! The loops are those of dpdk_tables.c. What is looked up in is the published copy of a [`Router`], as an element does: in the
//! usual table at once, in one of another kind by a call for each burst, or for each address.

use std::any::Any;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fib::{Adjacency, AnyTable, BURST, Fib, FibFamily, Kind, MAIN, NextHopIndex, Region};
use packet::flow::FlowKey;
use ports::KernelForwarding;

use super::engine::{Engine, Loaded, Loop, RUN_SECONDS, UPDATE_SECONDS, WithWorker};
use super::published::{Router, number};
use super::report::{self, Metric};
use super::tables::{Checksum, Routes};
use super::{failover, under_load};

/// Others that read the tables, for as long as this lives.
type Readers = Box<dyn Any>;

/// An engine around a [`Router`].
pub(super) struct Ours<A: FibFamily> {
    name: &'static str,
    kind: Kind<A>,
    router: Option<Router<A>>,
    /// Prefix and next hop of each route, by its number.
    routes: Vec<(A::Net, u16)>,
    addresses: Vec<A>,
    /// Changes that are published together.
    batch: usize,
    /// Lets others read the tables too, before they are loaded.
    share: fn(&mut Fib<Adjacency>) -> Result<Readers>,
    readers: Option<Readers>,
}

impl<A: FibFamily> Ours<A> {
    pub(super) fn new(name: &'static str, kind: Kind<A>, batch: usize) -> Self {
        Self {
            name,
            kind,
            router: None,
            routes: Vec::new(),
            addresses: Vec::new(),
            batch,
            share: |_| Ok(Box::new(())),
            readers: None,
        }
    }

    fn router(&mut self) -> Result<&mut Router<A>> {
        self.router.as_mut().context("the table is loaded first")
    }

    /// Gives routes the next hop whose number is `step` above their own.
    fn change(&mut self, order: &[u32], step: u16) -> Result<()> {
        let router = self.router.as_mut().context("the table is loaded first")?;
        for &route in order {
            let (prefix, next_hop) = self.routes[route as usize];
            router.fib.replace(MAIN, prefix.into(), number(next_hop + step))?;
        }
        router.fib.publish();
        Ok(())
    }

    /// The table of routers that forward in the kernel: a map that the program there reads too.
    pub(super) fn in_kernel(name: &'static str, batch: usize) -> Self {
        Self { share: with_kernel, ..Self::new(name, Kind::default(), batch) }
    }
}

/// Lets a program in the kernel read the tables, with room for all that it can have.
fn with_kernel(fib: &mut Fib<Adjacency>) -> Result<Readers> {
    let bytes = KernelForwarding::most_bytes();
    let mut forwarding =
        KernelForwarding::load(bytes, FlowKey::from_seed(1), false).context("brickway-xdp")?;
    let region = Region::new(forwarding.take_tables().context("its tables are taken")?);
    fib.share(Some((&region, KernelForwarding::slots())), || ())?;
    ensure!(fib.is_shared_whole(), "the kernel's map has no room for the tables");
    Ok(Box::new((forwarding, region)))
}

/// A pass over all addresses. With `CHECK` it is the same and makes a checksum as well.
#[inline(never)]
fn batch_pass<A: FibFamily, const CHECK: bool>(table: &AnyTable<A>, addresses: &[A]) -> Checksum {
    let mut checksum = Checksum::default();
    let mut next_hops = [NextHopIndex::NONE; BURST];
    for burst in addresses.chunks_exact(BURST) {
        table.lookup_batch(burst, &mut next_hops);
        black_box(&next_hops);
        if CHECK {
            for next_hop in next_hops {
                checksum.add(next_hop.get());
            }
        }
    }
    checksum
}

/// As [`batch_pass`], one address after the other.
#[inline(never)]
fn single_pass<A: FibFamily, const CHECK: bool>(table: &AnyTable<A>, addresses: &[A]) -> Checksum {
    let mut checksum = Checksum::default();
    for &address in addresses {
        let next_hop = table.lookup(address);
        black_box(&next_hop);
        if CHECK {
            checksum.add(next_hop.get());
        }
    }
    checksum
}

/// CPU time of this thread in seconds.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

impl<A: FibFamily> Engine<A> for Ours<A> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_ours(&self) -> bool {
        true
    }

    fn load(&mut self, routes: &Routes<A>) -> Result<Loaded> {
        let start = Instant::now();
        let mut router = Router::new(self.kind)?;
        self.readers = Some((self.share)(&mut router.fib)?);
        router.load(routes.routes.iter().map(|route| (route.prefix, number(route.next_hop))))?;
        let seconds = start.elapsed().as_secs_f64();
        self.routes = routes.routes.iter().map(|route| (route.prefix, route.next_hop)).collect();
        let table_bytes = router.table().memory_bytes() as u64;
        // Equal contents, equal room: the second copy is made by copying.
        let both_bytes = 2 * table_bytes;
        let heap_bytes = both_bytes + router.rib().memory_bytes() as u64;
        self.router = Some(router);
        let description = self.kind.name().into();
        Ok(Loaded { seconds, table_bytes, both_bytes: Some(both_bytes), heap_bytes, description })
    }

    fn set_addresses(&mut self, addresses: &[A]) -> Result<()> {
        self.addresses = addresses.to_vec();
        Ok(())
    }

    fn checksum(&mut self, way: Loop) -> Result<Checksum> {
        let table = self.router.as_ref().context("the table is loaded first")?.table();
        Ok(match way {
            Loop::Batch => batch_pass::<A, true>(table, &self.addresses),
            Loop::Single => single_pass::<A, true>(table, &self.addresses),
        })
    }

    fn lookup_rate(&mut self, way: Loop) -> Result<f64> {
        let table = self.router.as_ref().context("the table is loaded first")?.table();
        let pass = || match way {
            Loop::Batch => batch_pass::<A, false>(table, &self.addresses),
            Loop::Single => single_pass::<A, false>(table, &self.addresses),
        };
        // Once to bring the table into the caches, as far as it goes.
        pass();
        let (start, mut lookups) = (cpu_seconds(), 0);
        loop {
            pass();
            lookups += self.addresses.len();
            let elapsed = cpu_seconds() - start;
            if elapsed >= RUN_SECONDS {
                return Ok(lookups as f64 / elapsed);
            }
        }
    }

    /// Both copies are changed, and every batch is published; nobody reads.
    fn update_rate(&mut self, order: &[u32]) -> Result<f64> {
        let start = cpu_seconds();
        let mut changed = 0;
        for batch in order.chunks(self.batch) {
            self.change(batch, 1)?;
            changed += batch.len();
            if cpu_seconds() - start > UPDATE_SECONDS {
                break;
            }
        }
        for batch in order[..changed].chunks(self.batch) {
            self.change(batch, 0)?;
        }
        Ok(2.0 * changed as f64 / (cpu_seconds() - start))
    }

    fn with_worker(&mut self, what: &WithWorker<'_, A>) -> Result<Vec<(Metric, f64)>> {
        let batch = self.batch;
        let router = self.router()?;
        let load = under_load::measure(router, what, batch)?;
        let direct = failover::of_next_hops(router, &what.traffic.addresses)?;
        let groups = failover::of_groups(self.kind, what.routes, &what.traffic.addresses)?;
        Ok(vec![
            (report::UPDATES, load.updates_per_s),
            (report::LOADED_MLPS, load.loaded / 1e6),
            (report::UNLOADED_MLPS, load.unloaded / 1e6),
            (report::LOADED_RATIO, load.ratio),
            (report::PACED_UPDATES, load.paced_updates_per_s),
            (report::PACED_RATIO, load.paced_ratio),
            (report::LOST, (load.lost + direct.lost + groups.lost) as f64),
            (report::FAILOVER, direct.seen_us),
            (report::FAILOVER_WORST, direct.seen_worst_us),
            (report::FAILOVER_PUBLISHED, direct.published_us),
            (report::FAILOVER_GROUPS, groups.seen_us),
            (report::FAILOVER_GROUPS_WORST, groups.seen_worst_us),
            (report::FAILOVER_GROUPS_PUBLISHED, groups.published_us),
        ])
    }
}
