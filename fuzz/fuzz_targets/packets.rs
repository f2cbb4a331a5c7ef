//! Any bytes through the example router: no panic, no leak, every packet comes out or is counted.
#![no_main]

use std::cell::RefCell;

use graph::testing::Bench;
use libfuzzer_sys::fuzz_target;

/// The example router with test inputs and outputs in place of its ports.
fn router() -> Bench {
    let text = include_str!("../../examples/ip-router.click")
        .replace("FromDevice($port)", "from :: TestInput")
        .replace("ToDevice($port)", "TestOutput");
    Bench::new(&elements::registry(), &text)
}

thread_local! {
    static ROUTER: RefCell<(Bench, usize)> = RefCell::new({
        let mut bench = router();
        let free = bench.graph().pool_stats().free;
        (bench, free)
    });
}

fuzz_target!(|data: &[u8]| {
    ROUTER.with(|router| {
        let (bench, free) = &mut *router.borrow_mut();
        // The first byte of each packet says its length.
        let mut rest = data;
        let mut packets: Vec<Vec<u8>> = Vec::new();
        while let [length, tail @ ..] = rest {
            let (packet, tail) = tail.split_at(tail.len().min(usize::from(*length)));
            let mut bytes = packet.to_vec();
            // Half of the packets get past the filter of the port's address.
            if length % 2 == 0 && bytes.len() >= 14 {
                bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
                bytes[12..14].copy_from_slice(&[8, 0]);
            }
            packets.push(bytes);
            rest = tail;
        }
        let references: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        bench.push("in0/from", &references);
        // Longer than anything is kept: reassembly, packets that wait for ARP.
        bench.advance_ns(300_000_000_000);
        for port in 0..4 {
            bench.taken(&format!("out{port}/to"));
        }
        bench.graph().context().pool().refill();
        let now = bench.graph().pool_stats().free;
        assert!(now + 64 >= *free, "frames leak: {now} of {free} free");
    });
});
