//! What each step of the packets' way costs, for `brickway show cost`.

use std::io;
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use control::api::{CostFilter, CostRow, Rows, Unanswered};
use graph::context::{CopyCost, ReadMisses};
use graph::lang::FlatConfig;
use perf_event::events::Hardware;
use perf_event::{Builder, Counter, Sampler};

use super::live::Live;
use crate::table::thousands;

/// Ends a measurement on all workers, however the one who asked fares.
struct Measuring<'a> {
    live: &'a Live,
    is_over: bool,
}

impl Measuring<'_> {
    fn end(mut self) -> Result<Vec<Option<CopyCost>>, String> {
        self.is_over = true;
        self.live.with_router(|router| router.on_each(|graph| graph.end_cost()))
    }
}

impl Drop for Measuring<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // A router that is ending measures nothing any more.
            let _ = self.live.with_router(|router| router.on_each(|graph| drop(graph.end_cost())));
        }
    }
}

impl Live {
    /// Measures for as long as the filter says, or until the client goes.
    pub(super) fn cost(&self, filter: &CostFilter, rows: &Rows<'_>) -> Result<Vec<CostRow>, Unanswered> {
        let &CostFilter { seconds, unfused } = filter;
        if !(1..=CostFilter::LONGEST).contains(&seconds) {
            let longest = CostFilter::LONGEST;
            return Err(format!("seconds {seconds}: cannot measure so long; expected 1 to {longest}").into());
        }
        let _turn = match self.measuring.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => PoisonError::into_inner(turn),
            Err(TryLockError::WouldBlock) => {
                return Err("show cost: another one is measuring; try again when it is done".into());
            }
        };
        let (config, workers, refused) = self.with_router(|router| {
            let begin = move |graph: &mut graph::graph::Graph| {
                let (misses, refused) =
                    misses().map_or_else(|error| (None, Some(error)), |read| (Some(read), None));
                graph.begin_cost(unfused, misses);
                refused
            };
            let refused = router.on_each(begin).into_iter().flatten().next();
            (router.config().clone(), router.workers(), refused)
        })?;
        let measuring = Measuring { live: self, is_over: false };
        let in_kernel = || self.paths().iter().map(|(_, path)| path.traffic.rx_packets).sum::<u64>();
        let before = in_kernel();
        rows.wait(Duration::from_secs(seconds.into()))?;
        let costs = measuring.end()?.into_iter().collect::<Option<Vec<_>>>();
        let costs = costs.ok_or("show cost: the configuration has changed meanwhile; try again")?;
        let mut notes: Vec<String> = refused.iter().map(why_no_misses).collect();
        let forwarded = in_kernel().saturating_sub(before);
        if forwarded > 0 {
            let forwarded = thousands(forwarded);
            notes.push(format!(
                "{forwarded} packets were forwarded in the kernel meanwhile, at no cost of the workers"
            ));
        }
        let note = notes.join("\n");
        Ok(costs.iter().flat_map(|cost| rows_of(cost, &config, workers, &note)).collect())
    }
}

/// A row a step, and one for what is left of the time.
fn rows_of(cost: &CopyCost, config: &FlatConfig, workers: usize, note: &str) -> Vec<CostRow> {
    let (worker, is_slow) = (cost.copy, cost.copy >= workers);
    let rest = CostRow { worker, is_slow, share: cost.rest(), note: note.to_owned(), ..CostRow::default() };
    let steps = cost.steps.iter().map(|step| {
        let of = |misses: Option<u64>| misses.and_then(|count| step.per_packet(count));
        let elements = || step.elements.iter().map(|&element| &config.elements[element]);
        CostRow {
            elements: elements().map(|element| element.name.clone()).collect(),
            classes: elements().map(|element| element.class.clone()).collect(),
            worker,
            is_slow,
            packets: step.packets,
            packets_per_batch: step.packets_per_batch(),
            cycles_per_packet: step.per_packet(step.cycles),
            share: cost.share(step.cycles),
            cache_misses_per_packet: of(step.misses.map(|[cache, _]| cache)),
            branch_misses_per_packet: of(step.misses.map(|[_, branches]| branches)),
            note: String::new(),
        }
    });
    steps.chain([rest]).collect()
}

/// Counts this thread's misses of the last-level cache and of branches, in the program itself: reading the counters takes no
/// system call where the CPU lets programs read them.
fn misses() -> io::Result<ReadMisses> {
    // A page for the counter itself and none for records: the smallest that the kernel maps is one of these.
    const BYTES: usize = 1;
    let open = |event: Hardware| -> io::Result<Sampler> {
        let mut counter: Counter =
            Builder::new(event).observe_self().any_cpu().exclude_kernel(true).build()?;
        counter.enable()?;
        counter.sampled(BYTES)
    };
    let mut counters = [open(Hardware::CACHE_MISSES)?, open(Hardware::BRANCH_MISSES)?];
    Ok(Box::new(move || {
        counters.each_mut().map(|counter| match counter.read_user().count() {
            Some(count) => count,
            None => counter.read().unwrap_or_default(),
        })
    }))
}

/// Why there are no columns for misses.
fn why_no_misses(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "cache and branch misses: not permitted ({error}); the router needs CAP_PERFMON, or kernel.perf_event_paranoid at 2 or less"
        ),
        _ => format!(
            "cache and branch misses: this CPU, or this virtual machine, does not count them ({error})"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_counters_a_line_says_why() {
        let unknown = why_no_misses(&io::Error::from(io::ErrorKind::NotFound));
        assert!(unknown.contains("this CPU, or this virtual machine, does not count them"), "{unknown}");
        let refused = why_no_misses(&io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(refused.contains("kernel.perf_event_paranoid"), "{refused}");
    }
}
