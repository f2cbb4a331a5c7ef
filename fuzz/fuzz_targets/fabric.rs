//! Any bytes as frames on a cluster's links: refused, or read and written back the same; and hellos of any neighbours, in any
//! order, leave a node that still knows its own links and sends nothing over those that are down.
#![no_main]

use std::sync::Arc;

use fabric::{Header, Hello, Lead, Links, NodeId, Shim, Timing, Topology, Words};
use libfuzzer_sys::fuzz_target;

/// A byte says how long a frame is, the next what is done with it.
fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[length, what], rest) = bytes.split_first_chunk()?;
        let (frame, rest) = rest.split_at(rest.len().min(length.into()));
        bytes = rest;
        Some((what, frame))
    })
}

fn headers(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<{ Header::LEN }>() {
        let words = Words::read(bytes);
        match Header::parse(bytes) {
            Ok(header) => {
                assert_eq!(&header.bytes(), bytes);
                assert!(words.are_of(header.cluster));
                assert_eq!(Lead::read(bytes).and_then(Lead::output), Some(header.output));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    for nodes in [1, 4, NodeId::COUNT] {
        if let Some(bytes) = bytes.first_chunk::<{ Shim::LEN }>()
            && let Ok(shim) = Shim::parse(bytes, nodes)
        {
            assert_eq!(shim.bytes(nodes).as_ref(), Some(bytes));
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    headers(bytes);
    let topologies = ["mesh(4)", "star(4, 2)", "fly(2, 2)"];
    let chosen = topologies[bytes.first().map_or(0, |&first| usize::from(first)) % topologies.len()];
    let topology = Arc::new(Topology::new(chosen.parse().expect("a topology")));
    let here = NodeId::new(1).expect("a node");
    let mut links = Links::new(Arc::clone(&topology), here, 7, 1, Timing::default());
    let mut now_ns = 0;
    for (what, frame) in frames(bytes) {
        now_ns += u64::from(what) << 18;
        let link = u16::from(what % 3);
        match Hello::from_frame(frame) {
            Some(Ok(hello)) => links.receive(link, &hello, now_ns),
            Some(Err(error)) => assert!(!error.to_string().is_empty()),
            // Not many bytes begin like a hello: what a neighbour would say, with these in it.
            None => {
                let mut hello = links.hello(link);
                hello.node = NodeId::new(u16::from(what % 5)).expect("a node");
                hello.incarnation = u64::from(what / 64);
                hello.link = u16::from(frame.first().map_or(0, |&byte| byte % 4));
                hello.heard = frame.iter().filter_map(|&byte| NodeId::new(byte.into())).collect();
                links.receive(link, &hello, now_ns);
            }
        }
        links.tick(now_ns);
        let paths = links.paths();
        let up: Vec<u16> = links.neighbours().filter(|(_, _, is_up)| *is_up).map(|(link, ..)| link).collect();
        for target in NodeId::first(topology.nodes()) {
            let link = paths.link_towards(target, what);
            assert!(link.is_none_or(|link| up.contains(&link)), "{target} over a link that is down");
            assert!(!paths.is_direct(target) || link.is_some());
        }
        assert!(links.hello(link).write().len() <= Hello::LONGEST);
    }
});
