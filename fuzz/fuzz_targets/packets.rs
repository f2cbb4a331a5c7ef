//! Any bytes through the example routers: no panic, no leak, every packet comes out or is counted.
#![no_main]

use std::cell::RefCell;

use graph::testing::Bench;
use libfuzzer_sys::fuzz_target;

/// An example router with test inputs and outputs in place of its ports, and how many frames it has.
struct Router {
    bench: Bench,
    ports: usize,
    free: usize,
}

impl Router {
    fn new(example: &str, ports: usize) -> RefCell<Self> {
        let text = example
            .replace("FromDevice($port)", "from :: TestInput")
            .replace("ToDevice($port)", "TestOutput");
        let mut bench = Bench::new(&click::registry(), &text);
        let free = bench.graph().pool_stats().free;
        RefCell::new(Self { bench, ports, free })
    }

    fn push(&mut self, packets: &[&[u8]]) {
        let Self { bench, ports, free } = self;
        bench.push("in0/from", packets);
        // Longer than anything is kept: reassembly, packets that wait for ARP.
        bench.advance_ns(300_000_000_000);
        for port in 0..*ports {
            bench.taken(&format!("out{port}/to"));
        }
        bench.graph().context().pool().refill();
        let now = bench.graph().pool_stats().free;
        assert!(now + 64 >= *free, "frames leak: {now} of {free} free");
    }
}

thread_local! {
    static ROUTERS: [RefCell<Router>; 2] = [
        Router::new(include_str!("../../examples/ip-router.click"), 4),
        Router::new(include_str!("../../examples/ip6-router.click"), 2),
    ];
}

fuzz_target!(|data: &[u8]| {
    ROUTERS.with(|routers| {
        // The first byte of each packet says its length.
        let mut rest = data;
        let mut packets: Vec<Vec<u8>> = Vec::new();
        while let [length, tail @ ..] = rest {
            let (packet, tail) = tail.split_at(tail.len().min(usize::from(*length)));
            let mut bytes = packet.to_vec();
            // Most packets get past the filter of the port's address, as IPv4 or as IPv6, or as ICMPv6 that
            // no router forwarded.
            if length % 4 != 3 && bytes.len() >= 22 {
                bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
                bytes[12..14].copy_from_slice(if length % 4 == 0 { &[8, 0] } else { &[0x86, 0xdd] });
                if length % 4 == 2 {
                    bytes[20..22].copy_from_slice(&[58, 255]);
                }
            }
            packets.push(bytes);
            rest = tail;
        }
        let references: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        for router in routers {
            router.borrow_mut().push(&references);
        }
    });
});
