//! Minimal forwarding: what one receive queue gives goes to a transmit queue of the same port, on one core.
//!
//! `cargo run --release -p brickway-ports --features dpdk --example io -- SPEC [SECONDS [BURST]]` prints the rate of each
//! second, in million packets a second, and cycles a packet of the time stamp counter: all that passed, and those in
//! which this thread had its core.

use std::time::{Duration, Instant};

use packet::{Batch, Pool, PoolOptions, cycles};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let spec = words.next().ok_or("usage: io SPEC [SECONDS [BURST]]")?;
    let seconds: u64 = words.next().map_or(Ok(5), |word| word.parse())?;
    let burst: usize = words.next().map_or(Ok(32), |word| word.parse())?;
    let mut port = ports::open(&spec, &ports::OpenOptions::default())?;
    let (mut rx, mut tx) = (port.take_rx(0)?, port.take_tx(0)?);
    let mut pool = Pool::new(PoolOptions::default())?;
    rx.prepare(&mut pool)?;
    tx.prepare(&mut pool)?;
    let mut batch = Batch::new();
    for _ in 0..seconds {
        let (start, ticks, before) = (Instant::now(), cycles::now(), tx.stats().packets);
        let busy = busy_time();
        while start.elapsed() < Duration::from_secs(1) {
            for _ in 0..1_000 {
                rx.receive(&mut pool, &mut batch, burst);
                tx.send(&mut pool, &mut batch);
            }
        }
        let (time, ticks, busy) = (start.elapsed(), cycles::now() - ticks, busy_time() - busy);
        let packets = tx.stats().packets - before;
        println!(
            "{:.2} Mpps, {:.1} cycles a packet, {:.1} with the core",
            packets as f64 / time.as_secs_f64() / 1e6,
            ticks as f64 / packets as f64,
            busy.as_secs_f64() * cycles::per_second() / packets as f64
        );
    }
    Ok(())
}

/// How long this thread has been running.
fn busy_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
