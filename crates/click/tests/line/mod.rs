//! A line between two ends: numbered packets of 64 flows go in at one, and the other sees whether all came, in order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use graph::lang::{FlatConfig, Options, Source, compile};
use graph::router::Router;

pub(crate) const FLOWS: u32 = 64;

/// Most packets between the two ends, so that no ring on the way can be full.
const MOST_ON_THE_WAY: u64 = 512;

/// What both ends of the line know.
#[derive(Default)]
pub(crate) struct Line {
    sent: AtomicU64,
    arrived: AtomicU64,
    limit: AtomicU64,
    expected: Mutex<Expected>,
}

/// What came out.
#[derive(Default)]
pub(crate) struct Expected {
    /// The number that each flow's next packet must have.
    next: Vec<u32>,
    /// How many had another number.
    pub(crate) out_of_order: u64,
    /// Packets by the queue that they left by.
    pub(crate) by_queue: Vec<u64>,
}

impl Line {
    /// Whether another packet may go in; it counts as sent then.
    pub(crate) fn may_send(&self) -> bool {
        let sent = self.sent.fetch_add(1, Ordering::SeqCst);
        let on_the_way = sent.saturating_sub(self.arrived.load(Ordering::SeqCst));
        if sent < self.limit.load(Ordering::SeqCst) && on_the_way < MOST_ON_THE_WAY {
            return true;
        }
        self.sent.fetch_sub(1, Ordering::SeqCst);
        false
    }

    /// Frames came out by `queue`.
    pub(crate) fn arrive<'a>(&self, queue: usize, frames: impl Iterator<Item = &'a [u8]>) {
        let mut expected = self.expected.lock().unwrap();
        expected.next.resize(FLOWS as usize, 0);
        if expected.by_queue.len() <= queue {
            expected.by_queue.resize(queue + 1, 0);
        }
        let mut count = 0;
        for frame in frames {
            let number = |at: usize| u32::from_be_bytes(*frame[at..].first_chunk().unwrap());
            let (flow, number) = (number(42) as usize, number(46));
            expected.out_of_order += u64::from(expected.next[flow] != number);
            expected.next[flow] = number + 1;
            count += 1;
        }
        expected.by_queue[queue] += count;
        self.arrived.fetch_add(count, Ordering::SeqCst);
    }
}

/// Packet `number` of a flow: UDP over IPv4.
pub(crate) fn frame(flow: u32, number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&46u16.to_be_bytes());
    bytes[23] = 17;
    bytes[26..30].copy_from_slice(&[192, 0, 2, 1]);
    bytes[30..34].copy_from_slice(&[10, flow as u8, 0, 1]);
    bytes[34..36].copy_from_slice(&(flow as u16).to_be_bytes());
    bytes[42..46].copy_from_slice(&flow.to_be_bytes());
    bytes[46..50].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// A configuration without mistakes.
pub(crate) fn compiled(config: &str) -> Arc<FlatConfig> {
    let source = Source { name: "test.click".into(), text: config.into() };
    let (flat, diagnostics) = compile(&source, &Options::default(), &click::registry());
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    Arc::new(flat.unwrap())
}

/// Lets `count` more packets through, meanwhile calling `meanwhile` again and again.
pub(crate) fn pass(
    line: &Line,
    router: &mut Router,
    count: u64,
    mut meanwhile: impl FnMut(&mut Router, u64),
) {
    let limit = line.limit.fetch_add(count, Ordering::SeqCst) + count;
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut step = 0;
    while line.arrived.load(Ordering::SeqCst) < limit {
        let arrived = line.arrived.load(Ordering::SeqCst);
        assert!(Instant::now() < deadline, "{arrived} of {limit}, {:?}", drops(router));
        meanwhile(router, step);
        step += 1;
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn drops(router: &mut Router) -> Vec<(&'static str, u64)> {
    let stats = router.stats();
    stats.iter().flat_map(|copy| copy.elements.iter().flat_map(|element| element.drops.clone())).collect()
}

/// Everything that `from` received came out at the other end, nothing twice, nothing late.
pub(crate) fn finish(line: &Line, mut router: Router) -> Expected {
    assert_eq!(drops(&mut router), []);
    let count = line.arrived.load(Ordering::SeqCst).to_string();
    assert_eq!(router.read("from.count").unwrap(), count);
    assert_eq!(router.read("from.packets").unwrap(), count);
    assert_eq!(router.stop(), Vec::<String>::new());
    let expected = std::mem::take(&mut *line.expected.lock().unwrap());
    assert_eq!(expected.out_of_order, 0);
    expected
}
