//! Real threads: readers must never see half an edit.
//!
//! Bounded by publications and by a quarter of a second, whichever comes first: on a busy machine a reader that is
//! descheduled inside costs the writer a time slice.

use super::super::*;
use std::sync::atomic::AtomicBool;
use std::thread;

const ELEMENTS: usize = 512;
const PUBLICATIONS: u64 = 5_000;
const LONGEST: Duration = Duration::from_millis(250);

#[test]
fn no_reader_sees_a_mix_with_membarrier() {
    stress(pair(vec![0; ELEMENTS], vec![0; ELEMENTS]));
}

#[test]
fn no_reader_sees_a_mix_with_fences() {
    stress(pair_with_fences(vec![0; ELEMENTS], vec![0; ELEMENTS]));
}

fn stress((mut writer, readers): (Writer<Vec<u64>>, Readers<Vec<u64>>)) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (mut reader, stop) = (readers.register(), &stop);
            scope.spawn(move || {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    last = visit(&mut reader, last);
                }
                visit(&mut reader, last);
            });
        }
        // Readers that come, look once and go.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                visit(&mut readers.register(), 0);
            }
        });
        let start = Instant::now();
        while writer.generation() < PUBLICATIONS && start.elapsed() < LONGEST {
            let next = writer.generation() + 1;
            writer.both().0.fill(next);
            writer.publish();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(writer.generation() > 0);
    assert_eq!(readers.shared.slots().len(), 0);
}

/// The generation seen, no older than `last`.
fn visit(reader: &mut Reader<Vec<u64>>, last: u64) -> u64 {
    let state = reader.enter();
    let generation = state.generation();
    assert!(generation >= last, "generation {generation} after {last}");
    assert!(
        state.iter().all(|&element| element == generation),
        "a mix in generation {generation}: {:?}",
        *state
    );
    generation
}
