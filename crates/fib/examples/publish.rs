//! What publication costs on the machine at hand: a reader's entry and exit in time-stamp-counter cycles, a
//! publication in microseconds with no, one and two busy readers, and what each publication takes from a reader.
//!
//! ```text
//! cargo run --release -p brickway-fib --example publish
//! ```
//!
//! A busy reader enters, makes 32 dependent loads (some 150 cycles; a batch through a router takes longer), leaves and
//! begins again. With more readers than CPUs less one, publications wait for the scheduler too: see the last column.

use fib::publish::{self, Reader, Readers, Writer};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const STATE_WORDS: usize = 4096;
const BATCH: usize = 32;
const VISITS: u32 = 1 << 22;
const RUNS: usize = 9;
const PUBLICATIONS: usize = 20_000;
const WINDOW: Duration = Duration::from_millis(400);

type State = Vec<u64>;

fn main() {
    let kinds =
        [("membarrier", publish::pair::<State> as fn(_, _) -> _), ("fences", publish::pair_with_fences)];
    println!("{} CPUs", thread::available_parallelism().map_or(0, usize::from));
    for (name, pair) in kinds {
        let make = || -> (Writer<State>, Readers<State>) { pair(vec![1; STATE_WORDS], vec![1; STATE_WORDS]) };
        if make().0.uses_membarrier() != (name == "membarrier") {
            println!("{name}: refused by this system");
            continue;
        }
        let empty = median((0..RUNS).map(|_| visit_cycles(&mut make().1.register())).collect());
        println!("{name:10}  enter and leave {empty:5.1} cycles, median of {RUNS} runs");
        for readers in 0..=2 {
            publications(name, make(), readers);
        }
        let lost = median((0..RUNS).map(|_| time_lost(make())).collect());
        println!("{name:10}  a publication takes {lost:5.2} us from a reader, median of {RUNS} runs");
    }
}

/// Cycles to enter, read one word and leave, over many visits with nothing between them.
fn visit_cycles(reader: &mut Reader<State>) -> f64 {
    let begin = timestamp();
    for _ in 0..VISITS {
        black_box(reader.enter().len());
    }
    (timestamp() - begin) as f64 / f64::from(VISITS)
}

/// Times each of many publications while `count` readers are busy.
fn publications(name: &str, (mut writer, readers): (Writer<State>, Readers<State>), count: usize) {
    let stop = AtomicBool::new(false);
    let mut times = Vec::with_capacity(PUBLICATIONS);
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| read_until(&stop, readers.register()));
        }
        thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        while times.len() < PUBLICATIONS && start.elapsed() < 5 * WINDOW {
            let begin = Instant::now();
            writer.publish();
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        stop.store(true, Ordering::Relaxed);
    });
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "{name:10}  publish, {count} busy readers: median {:6.2} us, 99 % {:8.2} us, longest {:8.2} us of {}",
        at(0.5),
        at(0.99),
        at(1.0),
        times.len()
    );
}

/// Microseconds of reading that one reader loses for each publication: its visits in a window of time without any,
/// and in one full of them.
fn time_lost((mut writer, readers): (Writer<State>, Readers<State>)) -> f64 {
    let mut window = |publishing: bool| {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let reading = scope.spawn(|| read_until(&stop, readers.register()));
            let (start, before) = (Instant::now(), writer.generation());
            while start.elapsed() < WINDOW {
                if publishing {
                    writer.publish();
                } else {
                    std::hint::spin_loop();
                }
            }
            stop.store(true, Ordering::Relaxed);
            (reading.join().expect("readers do not panic") as f64, (writer.generation() - before) as f64)
        })
    };
    let ((quiet, _), (disturbed, publications)) = (window(false), window(true));
    (1.0 - disturbed / quiet) * WINDOW.as_secs_f64() * 1e6 / publications
}

/// A busy reader; returns its visits.
fn read_until(stop: &AtomicBool, mut reader: Reader<State>) -> u64 {
    let (mut visits, mut index) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let state = reader.enter();
        for _ in 0..BATCH {
            index = (index + state[index] as usize) % STATE_WORDS;
        }
        black_box(index);
        visits += 1;
    }
    visits
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The time-stamp counter; 0 where there is none.
#[allow(unsafe_code, reason = "the time-stamp counter is an intrinsic")]
fn timestamp() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC reads a counter and is part of x86-64.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}
