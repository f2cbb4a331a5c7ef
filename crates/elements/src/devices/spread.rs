//! Which worker processes the packets of a receive queue, and how that changes while traffic flows.
//!
//! A receive queue is held by one worker, which alone polls it. Its packets fall into [`BUCKETS`] buckets by the hash of
//! their flow, and each bucket belongs to a worker; prefixes may be given to a worker before that. As long as all
//! buckets belong to the holder, which is so whenever the port has a queue for each worker, nothing is hashed.
//!
//! **Changes keep flows in order.** Whatever changes (the holder of a queue, the owner of a bucket, the hash), the
//! queue is not polled until all packets it gave out before have left their workers ([`Barrier`]). That takes some
//! microseconds; what comes meanwhile waits in the port's own ring. Packets that wait in a `Queue` element are not
//! waited for.

use packet::sync::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ipnet::Ipv4Net;
use packet::flow::{FlowFields, FlowHash, FlowKey};
use packet::wire::ethernet::{self, EtherType, Ethernet};
use packet::wire::ipv4::{self, Ipv4};
use ports::RxQueue;

use super::Losses;
use super::handover::Barrier;

/// Buckets of a queue; cards have 128 to 512.
pub(super) const BUCKETS: usize = 256;

/// Most prefixes that may be given to workers.
const MOST_PREFIXES: usize = 64;

/// A receive queue, and who gets its packets.
pub(super) struct Held {
    /// Its number on the port.
    pub(super) number: usize,
    pub(super) queue: Box<dyn RxQueue>,
    pub(super) losses: Losses,
    /// The worker of each bucket.
    owners: [u8; BUCKETS],
    /// Packets of each bucket, counted while packets are hashed.
    pub(super) counts: [u64; BUCKETS],
    /// What has to pass before the queue is polled again.
    pub(super) barriers: Vec<Barrier>,
    /// Whether all buckets belong to the holder.
    pub(super) aligned: bool,
}

impl Held {
    /// A queue that `worker` polls, its packets shared out evenly among `owners` (one or more).
    pub(super) fn new(number: usize, queue: Box<dyn RxQueue>, worker: usize, owners: &[usize]) -> Self {
        let mut held = Self {
            number,
            queue,
            losses: Losses::default(),
            owners: [0; BUCKETS],
            counts: [0; BUCKETS],
            barriers: Vec::new(),
            aligned: false,
        };
        for (place, &owner) in owners.iter().enumerate() {
            // In runs, which are easier to read and to move.
            held.assign(place * BUCKETS / owners.len(), (place + 1) * BUCKETS / owners.len() - 1, owner);
        }
        held.settle_at(worker, Vec::new());
        held
    }

    /// `worker` polls the queue, after a change and once `barriers` are passed.
    pub(super) fn settle_at(&mut self, worker: usize, barriers: Vec<Barrier>) {
        self.aligned = self.owners.iter().all(|&owner| usize::from(owner) == worker);
        self.barriers.extend(barriers);
    }

    /// The worker that gets a frame.
    #[inline]
    pub(super) fn owner(&mut self, rule: &Rule, frame: &[u8]) -> usize {
        let bucket = (rule.hash.of(frame) >> 24) as usize;
        self.counts[bucket] += 1;
        if !rule.prefixes.is_empty()
            && let Some(worker) = rule.of_prefix(frame)
        {
            return worker;
        }
        usize::from(self.owners[bucket])
    }

    /// Whether the queue may be polled.
    #[inline]
    pub(super) fn is_open(&mut self) -> bool {
        if self.barriers.is_empty() {
            return true;
        }
        self.barriers.retain(|barrier| !barrier.is_passed());
        self.barriers.is_empty()
    }

    /// Gives the buckets `first..=last` to `worker`.
    pub(super) fn assign(&mut self, first: usize, last: usize, worker: usize) {
        self.owners[first..=last].fill(worker as u8);
    }

    /// Gives what `from` had to `to`.
    pub(super) fn follow(&mut self, from: usize, to: usize) {
        for owner in &mut self.owners {
            if usize::from(*owner) == from {
                *owner = to as u8;
            }
        }
    }

    /// The queue's number, and the packets of each bucket.
    pub(super) fn counts_text(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(u64::to_string).collect();
        format!("{} {}\n", self.number, counts.join(" "))
    }

    /// A line for each run of buckets with one owner: queue, buckets, worker, packets.
    pub(super) fn buckets_text(&self) -> String {
        let mut text = String::new();
        let mut first = 0;
        while first < BUCKETS {
            let owner = self.owners[first];
            let last =
                (first..BUCKETS).take_while(|&bucket| self.owners[bucket] == owner).last().unwrap_or(first);
            let packets: u64 = self.counts[first..=last].iter().sum();
            text.push_str(&format!("{} {first}-{last} {owner} {packets}\n", self.number));
            first = last + 1;
        }
        text
    }
}

/// How the packets of all queues of a port are distinguished.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    hash: FlowHash,
    /// The number that the hash's key was made of; `None`: it is the router's.
    seed: Option<u64>,
    router_key: FlowKey,
    /// Longest first.
    prefixes: Vec<(Ipv4Net, usize)>,
}

impl Rule {
    /// By flows, with the router's key.
    pub(super) fn new(router_key: FlowKey) -> Self {
        let hash = FlowHash { fields: FlowFields::default(), key: router_key };
        Self { hash, seed: None, router_key, prefixes: Vec::new() }
    }

    /// Takes what the handler `hash` was written with: fields, and perhaps a number to make another key of.
    pub(super) fn set_hash(&mut self, text: &str) -> Result<(), String> {
        let (fields, seed) = match text.trim().split_once(char::is_whitespace) {
            Some((fields, seed)) => {
                let seed = seed.trim();
                let problem = |_| format!("expected a number as the key, got '{seed}'");
                (fields, Some(seed.parse().map_err(problem)?))
            }
            None => (text.trim(), None),
        };
        let key = seed.map_or(self.router_key, FlowKey::from_seed);
        self.hash = FlowHash { fields: fields.parse()?, key };
        self.seed = seed;
        Ok(())
    }

    /// What the handler `hash` returns. The router's key stays secret.
    pub(super) fn hash_text(&self) -> String {
        let fields = self.hash.fields;
        self.seed.map_or_else(|| fields.to_string(), |seed| format!("{fields} {seed}"))
    }

    /// Gives packets to `prefix` to `worker`, or to nobody in particular.
    pub(super) fn set_prefix(&mut self, prefix: Ipv4Net, worker: Option<usize>) -> Result<(), String> {
        let prefix = prefix.trunc();
        let known = self.prefixes.iter().position(|(known, _)| *known == prefix);
        match (known, worker) {
            (Some(known), Some(worker)) => self.prefixes[known].1 = worker,
            (Some(known), None) => drop(self.prefixes.remove(known)),
            (None, Some(_)) if self.prefixes.len() == MOST_PREFIXES => {
                return Err(format!("at most {MOST_PREFIXES} prefixes can be given to workers"));
            }
            (None, Some(worker)) => self.prefixes.push((prefix, worker)),
            (None, None) => return Err(format!("no worker has the prefix {prefix}")),
        }
        self.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.prefix_len()));
        Ok(())
    }

    /// Whether packets have to be looked at though their queue belongs to one worker.
    pub(super) fn has_prefixes(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// A line for each prefix: prefix, worker.
    pub(super) fn prefixes_text(&self) -> String {
        self.prefixes.iter().map(|(prefix, worker)| format!("{prefix} {worker}\n")).collect()
    }

    /// The worker that owns the destination of a frame.
    #[inline]
    fn of_prefix(&self, frame: &[u8]) -> Option<usize> {
        let (header, _) = frame.split_first_chunk::<{ ethernet::HEADER_LEN + ipv4::MIN_HEADER_LEN }>()?;
        if Ethernet::new_unchecked(header).ethertype() != EtherType::IPV4 {
            return None;
        }
        let address = Ipv4::new_unchecked(&header[ethernet::HEADER_LEN..]).destination();
        self.prefixes.iter().find(|(prefix, _)| prefix.contains(&address)).map(|&(_, worker)| worker)
    }
}

/// Queues on their way from one worker to another. The other takes them in its next turn, or when a handler is read or
/// written, so that the control plane finds each queue with one worker.
#[derive(Default)]
pub(super) struct Moving {
    count: AtomicUsize,
    queues: Mutex<Vec<(usize, Held)>>,
}

impl Moving {
    /// Leaves a queue for `worker`.
    pub(super) fn leave(&self, worker: usize, held: Held) {
        lock(&self.queues).push((worker, held));
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Returns whether somebody is moving a queue.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// Takes a queue that was left for `worker`.
    pub(super) fn take(&self, worker: usize) -> Option<Held> {
        let mut queues = lock(&self.queues);
        let place = queues.iter().position(|(to, _)| *to == worker)?;
        self.count.fetch_sub(1, Ordering::Release);
        Some(queues.swap_remove(place).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UDP packet from this port.
    fn frame(port: u16) -> [u8; 42] {
        let mut frame = [0; 42];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 17;
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame
    }

    fn bucket(rule: &Rule, port: u16) -> u32 {
        rule.hash.of(&frame(port)) >> 24
    }

    #[test]
    fn flows_aimed_at_one_worker_of_a_router_reach_all_workers_of_another() {
        let [known, other] = [1, 2].map(|seed| Rule::new(FlowKey::from_seed(seed)));
        let aimed: Vec<u16> = (0..u16::MAX).filter(|&port| bucket(&known, port) < 64).take(400).collect();
        assert_eq!(aimed.len(), 400);
        for worker in 0..4 {
            let its = aimed.iter().filter(|&&port| bucket(&other, port) / 64 == worker).count();
            assert!(its > 60, "worker {worker}: {its}");
        }
    }

    #[test]
    fn the_routers_key_stays_secret_and_comes_back() {
        let mut rule = Rule::new(FlowKey::from_seed(9));
        let hash = rule.hash;
        assert_eq!(rule.hash_text(), "flow");
        rule.set_hash("source 7").unwrap();
        assert_eq!(rule.hash, FlowHash { fields: FlowFields::Source, key: FlowKey::from_seed(7) });
        assert_eq!(rule.hash_text(), "source 7");
        rule.set_hash("flow").unwrap();
        assert_eq!((rule.hash, rule.hash_text()), (hash, "flow".to_owned()));
        assert!(rule.set_hash("flow red").unwrap_err().contains("number as the key, got 'red'"));
        assert!(rule.set_hash("colour").unwrap_err().contains("flow, addresses"));
    }
}
