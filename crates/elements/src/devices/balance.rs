//! Sharing the load out among the workers while traffic flows.
//!
//! A [`Balancer`] looks at the router every now and then. When one worker has clearly more to do than another it moves a
//! receive queue, or some of a queue's buckets, from the one to the other; when all have little to do it lets workers
//! rest, and wakes them when there is more. What it moves loses no packet and keeps every flow in order (see `spread`).
//! It reads and writes the handlers of `FromDevice` that a person would, and decides in [`plan`], which is arithmetic.

use graph::router::Router;

use super::RECEIVER;
use super::spread::BUCKETS;

/// Workers are left alone while the busiest is less than this ahead of the idlest, in shares of a CPU.
const TOLERANCE: f64 = 0.15;

/// Workers rest while the others, with their load added, would be less busy than this.
const REST_BELOW: f64 = 0.5;

/// A worker is woken when those at work are busier than this.
const WAKE_ABOVE: f64 = 0.75;

/// A receive queue at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueShare {
    /// The element that receives.
    pub element: String,
    /// Number of the queue on its port.
    pub queue: usize,
    /// The worker that polls it.
    pub worker: usize,
    /// Packets received.
    pub packets: u64,
    /// The worker of each bucket.
    pub owners: Vec<usize>,
    /// Packets of each bucket; counted only while the queue is shared out.
    pub bucket_packets: Vec<u64>,
    /// Whether other workers may have the queue: a bound element's stays where it is.
    pub moves: bool,
}

/// All receive queues of a router, and who has them.
///
/// # Errors
/// A worker ended.
pub fn queue_shares(router: &mut Router) -> Result<Vec<QueueShare>, String> {
    let config = router.config().clone();
    let receivers = config.elements.iter().filter(|element| element.has(RECEIVER));
    let mut shares = Vec::new();
    for element in receivers {
        let name = &element.name;
        let moves = router.read(&format!("{name}.workers"))?.contains(' ');
        for line in router.read(&format!("{name}.queues"))?.lines() {
            let mut words = line.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
            let mut next = || words.next().unwrap_or(0);
            let (queue, worker, packets) = (next() as usize, next() as usize, next());
            shares.push(QueueShare {
                element: name.clone(),
                queue,
                worker,
                packets,
                owners: vec![worker; BUCKETS],
                bucket_packets: vec![0; BUCKETS],
                moves,
            });
        }
        for line in router.read(&format!("{name}.buckets"))?.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let range = words.get(1).and_then(|range| range.split_once('-'));
            if let (Some((first, last)), Some(owner)) = (range, words.get(2))
                && let (Ok(first), Ok(last), Ok(owner)) = (first.parse(), last.parse(), owner.parse())
                && let Some(share) = share_of(&mut shares, name, words.first().copied())
                && let Some(owners) = share.owners.get_mut::<std::ops::RangeInclusive<usize>>(first..=last)
            {
                owners.fill(owner);
            }
        }
        for line in router.read(&format!("{name}.bucket_packets"))?.lines() {
            let mut words = line.split(' ');
            if let Some(share) = share_of(&mut shares, name, words.next()) {
                let counts = words.map(|word| word.parse().unwrap_or(0));
                share.bucket_packets.iter_mut().zip(counts).for_each(|(count, read)| *count = read);
            }
        }
    }
    shares.sort_by(|a, b| (&a.element, a.queue).cmp(&(&b.element, b.queue)));
    Ok(shares)
}

fn share_of<'a>(
    shares: &'a mut [QueueShare],
    element: &str,
    queue: Option<&str>,
) -> Option<&'a mut QueueShare> {
    let queue = queue?.parse::<usize>().ok()?;
    shares.iter_mut().find(|share| share.element == element && share.queue == queue)
}

/// What to change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Move {
    /// A queue of an element gets another worker.
    Queue { element: String, queue: usize, to: usize },
    /// Buckets of a queue get another worker.
    Buckets { element: String, queue: usize, first: usize, last: usize, to: usize },
}

/// Moves load between workers and lets them rest.
#[derive(Debug)]
pub struct Balancer {
    least: usize,
    /// The workers that have something to do, in ascending order.
    active: Vec<usize>,
    workers: usize,
    last: Option<(std::time::Instant, Vec<u64>, Vec<QueueShare>)>,
}

impl Balancer {
    /// For a router of `workers` workers, of which at least `least` stay at work.
    pub fn new(workers: usize, least: usize) -> Self {
        Self { least: least.clamp(1, workers), active: (0..workers).collect(), workers, last: None }
    }

    /// Looks at what happened since the last call and makes the due changes. Returns a line for each.
    ///
    /// # Errors
    /// A worker ended, or refused.
    pub fn step(&mut self, router: &mut Router) -> Result<Vec<String>, String> {
        let shares = queue_shares(router)?;
        let busy_ns: Vec<u64> = router.stats().iter().take(self.workers).map(|copy| copy.busy_ns).collect();
        let now = std::time::Instant::now();
        let Some((then, busy_before, before)) = self.last.replace((now, busy_ns.clone(), shares.clone()))
        else {
            return Ok(Vec::new());
        };
        let elapsed = now.duration_since(then).as_nanos().max(1) as f64;
        let busy: Vec<f64> = busy_ns
            .iter()
            .zip(&busy_before)
            .map(|(now, before)| now.saturating_sub(*before) as f64 / elapsed)
            .collect();
        let moves = self.decide(&busy, &difference(&before, shares));
        let mut lines = Vec::new();
        for step in moves {
            let (handler, value) = match &step {
                Move::Queue { element, queue, to } => {
                    lines.push(format!("{element}: queue {queue} goes to worker {to}"));
                    (format!("{element}.move_queue"), format!("{queue} {to}"))
                }
                Move::Buckets { element, queue, first, last, to } => {
                    lines.push(format!(
                        "{element}: {} of {BUCKETS} buckets of queue {queue} go to worker {to}",
                        last + 1 - first
                    ));
                    (format!("{element}.move_buckets"), format!("{queue} {first}-{last} {to}"))
                }
            };
            router.write(&handler, &value)?;
        }
        Ok(lines)
    }

    /// The moves that the busy shares of the workers and the packets of the last period ask for.
    fn decide(&mut self, busy: &[f64], period: &[QueueShare]) -> Vec<Move> {
        let period: Vec<QueueShare> = period.iter().filter(|share| share.moves).cloned().collect();
        let at_work = self.active.len() as f64;
        let load: f64 = self.active.iter().filter_map(|&worker| busy.get(worker)).sum();
        if self.active.len() > self.least && load / (at_work - 1.0) < REST_BELOW {
            let resting = self.active.pop().expect("more than one are at work");
            return evacuate(resting, &self.active, &period);
        }
        if load / at_work > WAKE_ABOVE
            && let Some(woken) = (0..self.workers).find(|worker| !self.active.contains(worker))
        {
            self.active.push(woken);
            self.active.sort_unstable();
        }
        plan(&self.active, busy, &period)
    }
}

/// What came since `before`.
fn difference(before: &[QueueShare], mut now: Vec<QueueShare>) -> Vec<QueueShare> {
    for share in &mut now {
        let old = before.iter().find(|old| old.element == share.element && old.queue == share.queue);
        let Some(old) = old else { continue };
        share.packets = share.packets.saturating_sub(old.packets);
        for (count, old) in share.bucket_packets.iter_mut().zip(&old.bucket_packets) {
            *count = count.saturating_sub(*old);
        }
    }
    now
}

/// All that `worker` has, shared out among `others`.
fn evacuate(worker: usize, others: &[usize], period: &[QueueShare]) -> Vec<Move> {
    let mut moves = Vec::new();
    let concerned = period.iter().filter(|share| share.worker == worker || share.owners.contains(&worker));
    for (share, &to) in concerned.zip(others.iter().cycle()) {
        let (element, queue) = (share.element.clone(), share.queue);
        if share.worker == worker {
            // What the holder processes goes with the queue.
            moves.push(Move::Queue { element, queue, to });
        } else {
            let buckets: Vec<usize> = (0..BUCKETS).filter(|&bucket| share.owners[bucket] == worker).collect();
            moves.extend(runs(&buckets).map(|(first, last)| Move::Buckets {
                element: element.clone(),
                queue,
                first,
                last,
                to,
            }));
        }
    }
    moves
}

/// Ascending numbers as runs of neighbours.
fn runs(numbers: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    numbers.chunk_by(|a, b| a + 1 == *b).map(|run| (run[0], run[run.len() - 1]))
}

/// What to move from the busiest worker to the idlest, so that both have about the same to do: a whole queue if one
/// fits, else buckets.
fn plan(active: &[usize], busy: &[f64], period: &[QueueShare]) -> Vec<Move> {
    let share = |worker: &&usize| busy.get(**worker).copied().unwrap_or(0.0);
    let by_share = |a: &&usize, b: &&usize| share(a).total_cmp(&share(b));
    let (Some(&busiest), Some(&idlest)) = (active.iter().max_by(by_share), active.iter().min_by(by_share))
    else {
        return Vec::new();
    };
    let gap = busy.get(busiest).unwrap_or(&0.0) - busy.get(idlest).unwrap_or(&0.0);
    // Packets that the busiest worker processes, by queue.
    let processed = |share: &QueueShare| -> u64 {
        if share.worker == busiest && share.owners.iter().all(|&owner| owner == busiest) {
            return share.packets;
        }
        let of_bucket = share.owners.iter().zip(&share.bucket_packets);
        of_bucket.filter(|(owner, _)| **owner == busiest).map(|(_, count)| count).sum()
    };
    let in_all: u64 = period.iter().map(processed).sum();
    if gap < TOLERANCE || in_all == 0 {
        return Vec::new();
    }
    let wanted = (in_all as f64 * gap / 2.0 / busy[busiest]) as u64;
    let held = period.iter().filter(|share| share.worker == busiest);
    let whole = held.filter(|share| share.packets > wanted / 2 && share.packets <= wanted + wanted / 4);
    if let Some(share) = whole.max_by_key(|share| share.packets) {
        return vec![Move::Queue { element: share.element.clone(), queue: share.queue, to: idlest }];
    }
    let Some(share) = period.iter().max_by_key(|share| processed(share)) else { return Vec::new() };
    let mine: Vec<usize> = (0..BUCKETS).filter(|&bucket| share.owners[bucket] == busiest).collect();
    let counted: u64 = mine.iter().map(|&bucket| share.bucket_packets[bucket]).sum();
    let mut chosen: Vec<usize>;
    if counted == 0 {
        // Not shared out before, so all buckets count the same.
        let count = (mine.len() as u64 * wanted / processed(share).max(1)) as usize;
        chosen = mine[mine.len() - count.clamp(1, mine.len())..].to_vec();
    } else {
        // The largest that fit, so that few flows move; one larger than what is wanted would only move the problem.
        let mut by_size = mine;
        by_size.sort_by_key(|&bucket| std::cmp::Reverse(share.bucket_packets[bucket]));
        let mut left = wanted;
        chosen = Vec::new();
        for bucket in by_size {
            let count = share.bucket_packets[bucket];
            if count > 0 && count <= left {
                left -= count;
                chosen.push(bucket);
            }
        }
        chosen.sort_unstable();
    }
    let moves = runs(&chosen).map(|(first, last)| Move::Buckets {
        element: share.element.clone(),
        queue: share.queue,
        first,
        last,
        to: idlest,
    });
    moves.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(queue: usize, worker: usize, packets: u64) -> QueueShare {
        QueueShare {
            element: "in".into(),
            queue,
            worker,
            packets,
            owners: vec![worker; BUCKETS],
            bucket_packets: vec![0; BUCKETS],
            moves: true,
        }
    }

    fn buckets_of(moves: &[Move]) -> usize {
        let count = |step: &Move| match step {
            Move::Buckets { first, last, .. } => last + 1 - first,
            Move::Queue { .. } => 0,
        };
        moves.iter().map(count).sum()
    }

    #[test]
    fn equal_loads_are_left_alone() {
        assert_eq!(plan(&[0, 1], &[0.9, 0.8], &[share(0, 0, 900), share(1, 1, 800)]), []);
        assert_eq!(plan(&[0, 1], &[0.0, 0.0], &[share(0, 0, 0), share(1, 1, 0)]), []);
    }

    #[test]
    fn a_queue_moves_when_one_fits() {
        let period = [share(0, 0, 500), share(1, 0, 480), share(2, 1, 20)];
        let moves = plan(&[0, 1], &[0.98, 0.02], &period);
        assert_eq!(moves, [Move::Queue { element: "in".into(), queue: 0, to: 1 }]);
    }

    #[test]
    fn half_the_buckets_of_the_only_busy_queue_move() {
        let moves = plan(&[0, 1], &[1.0, 0.0], &[share(0, 0, 1000), share(1, 1, 0)]);
        let expected = Move::Buckets { element: "in".into(), queue: 0, first: 128, last: 255, to: 1 };
        assert_eq!(moves, [expected]);
    }

    #[test]
    fn an_elephant_stays_and_the_mice_move() {
        let mut busy_queue = share(0, 0, 1000);
        busy_queue.bucket_packets = vec![1; BUCKETS];
        busy_queue.bucket_packets[7] = 745;
        let moves = plan(&[0, 1], &[1.0, 0.0], &[busy_queue]);
        assert_eq!(buckets_of(&moves), BUCKETS - 1, "{moves:?}");
        assert!(
            moves.iter().all(
                |step| !matches!(step, Move::Buckets { first, last, .. } if (*first..=*last).contains(&7))
            )
        );
    }

    #[test]
    fn workers_rest_and_are_woken() {
        let mut balancer = Balancer::new(3, 1);
        let period = [share(0, 0, 100), share(1, 1, 100), share(2, 2, 100)];
        let moves = balancer.decide(&[0.1, 0.1, 0.1], &period);
        assert_eq!(moves, [Move::Queue { element: "in".into(), queue: 2, to: 0 }]);
        assert_eq!(balancer.active, [0, 1]);
        let period = [share(0, 0, 400), share(1, 1, 400), share(2, 1, 400)];
        let moves = balancer.decide(&[0.6, 0.99, 0.0], &period);
        assert_eq!(balancer.active, [0, 1, 2]);
        assert!(matches!(moves[..], [Move::Queue { queue: 1 | 2, to: 2, .. }]), "{moves:?}");
    }

    #[test]
    fn bound_queues_stay_where_they_are() {
        let period = [QueueShare { moves: false, ..share(0, 0, 1000) }, share(1, 1, 0)];
        assert_eq!(Balancer::new(2, 2).decide(&[1.0, 0.0], &period), []);
    }

    #[test]
    fn as_many_stay_at_work_as_were_asked_for() {
        let mut balancer = Balancer::new(2, 2);
        assert_eq!(balancer.decide(&[0.0, 0.0], &[share(0, 0, 0), share(1, 1, 0)]), []);
        assert_eq!(balancer.active, [0, 1]);
    }

    #[test]
    fn buckets_that_others_hold_leave_a_resting_worker_too() {
        let mut mixed = share(0, 0, 100);
        mixed.owners[100..200].fill(1);
        let moves = evacuate(1, &[0], &[mixed]);
        let expected = Move::Buckets { element: "in".into(), queue: 0, first: 100, last: 199, to: 0 };
        assert_eq!(moves, [expected]);
    }
}
