//! Tests of changing a range tree: its depth, its room, every stage, every width of vector.

use super::*;
use crate::{LocalFib, NextHopIndex, Table};

fn to(number: u16) -> NextHopIndex {
    NextHopIndex::new(number).unwrap()
}

/// The levels of nodes that the most unlucky address passes, and the nodes in use.
fn depth_and_nodes(table: &RangeTree) -> (usize, usize) {
    fn below(table: &RangeTree, word: u32) -> (usize, usize) {
        if word & GO_ON == 0 {
            return (0, 0);
        }
        let words = table.nodes[(word & NUMBER) as usize].words;
        words
            .iter()
            .map(|&word| below(table, word))
            .fold((1, 1), |(depth, nodes), (of_child, more)| (depth.max(1 + of_child), nodes + more))
    }
    let mut deepest = (0, 0);
    for &top in table.top.iter().filter(|&&word| word & GO_ON != 0) {
        let block = (top & NUMBER) as usize;
        for &word in &table.middles[block * MIDDLE..(block + 1) * MIDDLE] {
            let (depth, nodes) = below(table, word);
            deepest = (deepest.0.max(depth), deepest.1 + nodes);
        }
    }
    deepest
}

#[test]
fn a_tree_grows_with_its_routes_and_goes_with_them() {
    let mut fib = LocalFib::<u128, RangeTree>::new().unwrap();
    let base: u128 = 0x2001_0db8 << 96;
    let scattered = |i: u32| i.wrapping_mul(40_503) % 65_536;
    let prefix = |i: u32| u128::net(base | u128::from(scattered(i)) << 80, 48);
    const COUNT: u32 = 6_000;
    for i in 0..COUNT {
        fib.insert(prefix(i), to(1 + (i % 5) as u16)).unwrap();
    }
    let (depth, nodes) = depth_and_nodes(fib.table());
    assert!(depth <= 5, "{depth} levels");
    assert_eq!(nodes + fib.compiler().nodes_free.len(), fib.table().nodes_used);
    let rebuilt = LocalFib::<u128, RangeTree>::build(fib.rib().clone()).unwrap();
    let (rebuilt_depth, rebuilt_nodes) = depth_and_nodes(rebuilt.table());
    assert!(depth <= rebuilt_depth + 1 && nodes <= rebuilt_nodes * 2, "{nodes} of {rebuilt_nodes}");
    for i in 0..COUNT {
        assert_eq!(fib.lookup(base | u128::from(scattered(i)) << 80 | 1).get(), 1 + (i % 5) as u16);
    }
    for i in 0..COUNT {
        fib.remove(prefix(i)).unwrap();
    }
    assert_eq!(depth_and_nodes(fib.table()), (0, 0));
    assert_eq!(fib.compiler().nodes_free.len(), fib.table().nodes_used);
    assert_eq!(fib.compiler().middles_free.len(), fib.table().middles_used);
}

/// What comes in the place of nodes is built before these are given back, and nodes may be filled sparsely.
#[test]
fn room_that_compiling_anew_would_make_is_no_reason_to_refuse_a_change() {
    let mut rib = Rib::new();
    for i in 0..100u128 {
        rib.insert(u128::net(0x2001_0db8 << 96 | i << 81, 48), to(1)).unwrap();
    }
    let mut fib = LocalFib::<u128, RangeTree>::build(rib).unwrap();
    fib.table_mut().nodes_used = NODES;
    fib.replace("::/0".parse().unwrap(), to(3)).unwrap();
    assert_eq!(fib.table().nodes_used, depth_and_nodes(fib.table()).1);
    assert_eq!(fib.lookup(0x2001_0db8 << 96).get(), 1);
    assert_eq!(fib.lookup(0x2001_0db8 << 96 | 1 << 80).get(), 3);
}

/// A tree of nodes with 16 words each, the smallest there can be, has a node for every 15 ranges.
#[test]
fn compiling_anew_takes_at_most_twice_the_nodes_of_the_smallest_tree() {
    let mut table = RangeTree::new().unwrap();
    let mut compiler = RangeTreeCompiler { most_nodes: NODES, ..RangeTreeCompiler::default() };
    for count in (2..6_000).chain([12_345, 27_648, 27_649, 100_000]) {
        let entries: Vec<Entry> = (1..=count).map(|end| (end, 0)).collect();
        table.nodes_used = 0;
        table.build(&mut compiler, &entries).unwrap();
        assert!(table.nodes_used <= 2 * (entries.len() - 1).div_ceil(FANOUT - 1), "{count} ranges");
    }
}

#[test]
fn every_stage_is_reached() {
    let mut fib = LocalFib::<u128, RangeTree>::new().unwrap();
    let address: u128 = 0x2001_0db8_0123_4567_89ab_cdef_0123_4567;
    for (i, length) in [8, 16, 20, 24, 32, 48, 56, 57, 64, 88, 89, 112, 120, 121, 127, 128].iter().enumerate()
    {
        let net = u128::net(address & u128::mask(*length), *length);
        fib.insert(net, to(i as u16 + 1)).unwrap();
        assert_eq!(fib.lookup(address).get(), i as u16 + 1);
        assert_eq!(fib.lookup(u128::bounds(net).1).get(), i as u16 + 1);
    }
    assert_eq!(fib.lookup(address ^ 1).get(), 15);
    assert_eq!(fib.lookup(address ^ 1 << 7).get(), 13);
    assert_eq!(fib.lookup(address ^ 1 << 71).get(), 7);
}

#[test]
fn vectors_of_every_width_answer_alike() {
    let mut fib = LocalFib::<u128, RangeTree>::new().unwrap();
    let base: u128 = 0x2001_0db8 << 96;
    for i in 0..500u32 {
        let address = base | u128::from(i.wrapping_mul(2_654_435_761)) << 50;
        let length = 33 + (i % 60) as u8;
        let _ = fib.replace(u128::net(address & u128::mask(length), length), to(i as u16));
    }
    let addresses: Vec<u128> = (0..5_000u32)
        .map(|i| base | u128::from(i.wrapping_mul(2_654_435_761)) << 49 | u128::from(i % 3))
        .collect();
    let mut table = fib;
    let mut answers = Vec::new();
    for width in packet::Vectors::all_here() {
        table.table_mut().vectors = width;
        let mut batch = vec![NextHopIndex::NONE; addresses.len()];
        table.table().lookup_batch(&addresses, &mut batch);
        for (&address, &batched) in addresses.iter().zip(&batch) {
            assert_eq!(table.lookup(address), batched, "{width:?}");
        }
        answers.push(batch);
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Ranges that begin and end between two keys take two places in a node for each end.
#[test]
fn routes_in_the_order_of_their_addresses_make_no_deeper_tree() {
    let mut fib = LocalFib::<u128, RangeTree>::new().unwrap();
    for i in 0..2_000u128 {
        let network = 0x2001_0db8 << 96 | i << 82 | 1 << 80;
        for (network, length) in [(network - (1 << 64), 64), (network, 48), (network + (1 << 80), 64)] {
            fib.insert(u128::net(network, length), to(1)).unwrap();
        }
    }
    let (depth, nodes) = depth_and_nodes(fib.table());
    let loaded = LocalFib::<u128, RangeTree>::build(fib.rib().clone()).unwrap();
    let (loaded_depth, loaded_nodes) = depth_and_nodes(loaded.table());
    assert!(depth <= loaded_depth, "{depth} levels instead of {loaded_depth}");
    assert!(nodes <= loaded_nodes * 5 / 4, "{nodes} nodes instead of {loaded_nodes}");
}
