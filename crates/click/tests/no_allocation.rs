//! Nothing allocates per packet: the example routers forward from memory to memory under a counting allocator.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elements::devices::OpenPort;
use graph::graph::{Graph, GraphOptions};
use graph::lang::{Options, Source, compile};
use graph::router::Control;
use graph::setup::{CopyId, Shared};
use packet::checksum;
use ports::{MemoryLoop, OpenOptions, Port};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[allow(unsafe_code, reason = "an allocator is unsafe by nature; this one counts and passes on")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised us.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised us.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised us.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// An IPv4 frame from host 0 to `destination`.
fn frame(destination: [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![0u8; 64];
    bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    bytes[12..14].copy_from_slice(&[8, 0]);
    let header = &mut bytes[14..34];
    header[0] = 0x45;
    header[3] = 50;
    header[8] = 64;
    header[9] = 17;
    header[12..16].copy_from_slice(&[10, 0, 0, 2]);
    header[16..20].copy_from_slice(&destination);
    let sum = checksum::ipv4_header_compute(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// An IPv6 frame from host 0 to the host of port 1.
fn ipv6_frame() -> Vec<u8> {
    let mut bytes = vec![0u8; 64];
    bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    bytes[12..22].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 10, 17, 64]);
    for (at, port) in [(22, 0), (38, 1)] {
        let host = Ipv6Addr::new(0x2001, 0xdb8, 0, port, 0, 0, 0, 2);
        bytes[at..at + 16].copy_from_slice(&host.octets());
    }
    bytes
}

#[test]
fn the_fast_paths_of_the_example_routers_do_not_allocate() {
    // One after the other: the count is for all threads.
    let ipv4 = (0..96).map(|host| frame([10, 0, 1 + host % 3, 2])).collect();
    let neighbour = |port| (format!("out{port}/arp"), format!("10.0.{port}.2 02:00:00:00:0{port}:02"));
    let text = include_str!("../../../examples/ip-router.click");
    forward_without_allocating(text, 4, ipv4, &[1, 2, 3].map(neighbour));
    let text = include_str!("../../../examples/ip6-router.click");
    let neighbour = [("out1/nd".to_owned(), "2001:db8:0:1::2 02:00:00:00:01:02".to_owned())];
    forward_without_allocating(text, 2, vec![ipv6_frame(); 96], &neighbour);
    let text = access_list();
    for frames in [(0..96).map(|host| frame([10, 0, 1 + host % 4, host])).collect(), vec![ipv6_frame(); 96]] {
        forward_without_allocating(&text, 2, frames, &[]);
    }
}

/// A list that is long enough for bit vectors, with prefixes longer than half an address, and packets of
/// which it denies a few; those go on, too.
fn access_list() -> String {
    let rules: String = (0..200)
        .map(|number| {
            format!(
                "deny udp 10.0.{number}.0/24 port {number} 10.0.4.{number}, \
                 deny tcp 2001:db8::{number:x} 2001:db8:0:{number:x}::/64 port {number}, ",
            )
        })
        .collect();
    format!(
        "elementclass In {{ $port |
           FromDevice($port) -> Strip(14) -> MarkIPHeader
           -> acl :: ACL({rules} deny any any 10.0.4.64/26, DEFAULT permit)
           -> back :: Unstrip(14) -> output;
           acl[1] -> back
         }}
         in0 :: In($PORT0) -> ToDevice($PORT1);"
    )
}

/// Forwards `frames`, which come in by port 0 of an example; `neighbours` are written to queriers.
fn forward_without_allocating(text: &str, count: u8, frames: Vec<Vec<u8>>, neighbours: &[(String, String)]) {
    let registry = click::registry();
    let source = Source { name: "example.click".into(), text: text.into() };
    let parameters = (0..count).map(|port| (format!("PORT{port}"), format!("p{port}"))).collect();
    let (flat, diagnostics) = compile(&source, &Options { parameters, ..Options::default() }, &registry);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let shared = Shared::default();
    for number in 0..count {
        let port: Box<dyn Port> = if number == 0 {
            Box::new(MemoryLoop::new(frames.clone()))
        } else {
            ports::open("null:", &OpenOptions::default()).unwrap()
        };
        shared
            .get_or_make::<_, ()>(&OpenPort::key(&format!("p{number}")), || Ok(OpenPort::new(port)))
            .unwrap();
    }
    let copy = CopyId { index: 0, workers: 1, slow_thread: false };
    let control = Control::new(|_| {});
    let options = GraphOptions::default();
    let mut graph =
        Graph::build(&Arc::new(flat.unwrap()), &registry, &shared, copy, &options, &control).unwrap();
    for (querier, neighbour) in neighbours {
        let querier = graph.find(querier).unwrap();
        graph.write(querier, "insert", neighbour).unwrap().unwrap();
    }
    for _ in 0..2_000 {
        graph.context().turn();
    }
    let receiver = graph.find("in0/FromDevice@1").unwrap();
    let received = |graph: &mut Graph| graph.stats()[receiver].packets;
    let received_before = received(&mut graph);
    // Asking for statistics allocates: the count begins after it.
    let allocations_before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..20_000 {
        graph.context().turn();
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - allocations_before;
    let packets = received(&mut graph) - received_before;
    assert!(packets > 500_000, "the router forwards: {packets}");
    let sent: u64 = graph
        .config()
        .clone()
        .elements
        .iter()
        .zip(graph.stats())
        .filter(|(element, _)| element.class == "ToDevice")
        .map(|(_, stats)| stats.packets)
        .sum();
    assert!(sent + 1024 > received(&mut graph), "{sent} sent");
    assert_eq!(allocations, 0, "allocations for {packets} packets");
}
