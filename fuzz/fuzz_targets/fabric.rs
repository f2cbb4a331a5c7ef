//! Any bytes as frames on a cluster's links: refused, or read and written back the same. No hello is believed without the key,
//! none that was said to a former incarnation confirms anybody; and hellos of any neighbours, in any order, leave a node that still
//! knows its own links, and neither sends over those that are down nor believes frames of who is not confirmed.
#![no_main]

use std::collections::HashSet;
use std::sync::Arc;

use fabric::{Echo, Header, Hello, Keys, Lead, Links, NodeId, Shim, Timing, Topology, Version, Words};
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
            assert_eq!(Shim::sender(bytes), Some(shim.sender));
        }
    }
}

/// What somebody without the key sends, and who has it and says anything.
fn hellos(bytes: &[u8], keys: &Keys) -> Option<Hello> {
    if let Some(heard) = Hello::from_frame(bytes, keys) {
        assert!(!heard.expect_err("nobody guesses a tag").to_string().is_empty());
    }
    let said = Hello::parse(bytes).ok()?;
    assert_eq!(Hello::parse(&said.write()).as_ref(), Ok(&said));
    let frame = said.frame(keys);
    assert_eq!(Hello::from_frame(&frame, keys), Some(Ok(said.clone())));
    Some(said)
}

fuzz_target!(|bytes: &[u8]| {
    headers(bytes);
    let topologies = ["mesh(4)", "star(4, 2)", "fly(2, 2)"];
    let chosen = topologies[bytes.first().map_or(0, |&first| usize::from(first)) % topologies.len()];
    let topology = Arc::new(Topology::new(chosen.parse().expect("a topology")));
    let here = NodeId::new(1).expect("a node");
    let keys = Keys::new(&[[7; 32]]);
    let incarnation = 1 << 40;
    let mut links = Links::new(Arc::clone(&topology), here, 7, incarnation, Timing::default());
    let mut now_ns = 0;
    let mut said_to_us = HashSet::new();
    for (what, frame) in frames(bytes) {
        now_ns += u64::from(what) << 18;
        let link = u16::from(what % 3);
        // Not many bytes are a hello: what a neighbour would say, with these in it.
        let hello = hellos(frame, &keys).unwrap_or_else(|| {
            let mut hello = links.hello(link);
            hello.node = NodeId::new(u16::from(what % 5)).expect("a node");
            hello.incarnation = u64::from(what / 64);
            hello.link = u16::from(frame.first().map_or(0, |&byte| byte % 4));
            hello.heard = frame.iter().filter_map(|&byte| NodeId::new(byte.into())).collect();
            if let Some(&ahead) = frame.get(1) {
                hello.sequence = u64::from(ahead);
                let incarnation = incarnation + u64::from(ahead / 128) - u64::from(ahead / 64 % 2);
                hello.echoes = vec![Echo { node: here, incarnation }];
            }
            for (report, &byte) in hello.reports.iter_mut().zip(frame) {
                report.node = NodeId::new(u16::from(byte % 4)).expect("a node");
                let version = Version { incarnation: u64::from(byte) << 56, counter: u32::from(byte) << 24 };
                report.version = version;
            }
            hello
        });
        if hello.echoes.iter().any(|echo| echo.node == here && echo.incarnation >= incarnation) {
            said_to_us.insert((link, hello.node));
        }
        // It is refused where it is wrong.
        let _ = links.receive(link, &hello, now_ns);
        links.tick(now_ns);
        let paths = links.paths();
        for (link, node, is_up) in links.neighbours() {
            let is_believed = links.believed(link).contains(node);
            assert!(!is_up || is_believed);
            assert!(!is_believed || said_to_us.contains(&(link, node)));
        }
        let up: Vec<u16> = links.neighbours().filter(|(_, _, is_up)| *is_up).map(|(link, ..)| link).collect();
        for target in NodeId::first(topology.nodes()) {
            let link = paths.link_towards(target, what);
            assert!(link.is_none_or(|link| up.contains(&link)), "{target} over a link that is down");
            assert!(!paths.is_direct(target) || link.is_some());
        }
        assert!(links.hello(link).frame(&keys).len() <= Hello::LONGEST + 14);
    }
});
