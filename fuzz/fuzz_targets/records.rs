//! Any bytes as entries of a cluster's log: refused, or written back as what is read again; and any records leave a node and a
//! new leader that go on.
#![no_main]

use control::cluster::ledger::Ledger;
use control::cluster::member::{ClusterPort, exits, mirror_port};
use control::cluster::protection::Told;
use control::cluster::record::{Record, decode, encode};
use control::cluster::tables::{OwnPort, Tables};
use control::mirror::Mirror;
use fabric::NodeId;
use libfuzzer_sys::fuzz_target;

/// A byte says how long an entry is.
fn entries(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (&length, rest) = bytes.split_first()?;
        let (entry, rest) = rest.split_at(rest.len().min(length.into()));
        bytes = rest;
        Some(entry)
    })
}

fuzz_target!(|bytes: &[u8]| {
    let node = |number| NodeId::new(number).expect("a node");
    let port = |number: u8| ClusterPort {
        number,
        name: format!("p{number}"),
        node: node(u16::from(number - 1) / 2),
        place: u16::from(number - 1) % 2,
    };
    let ports: Vec<ClusterPort> = (1..=4).map(port).collect();
    let named = ports.iter().map(|port| (port.name.clone(), mirror_port(port.number)));
    let mut mirror = Mirror::new(named).expect("a few ports");
    mirror.set_exits(exits(node(0), 7, None, 2, &ports));
    let own = |number: u8| (number, OwnPort { place: u16::from(number - 1), mac: [2, 0, 0, 0, 0, number] });
    let mut tables = Tables::new([own(1), own(2)].into());
    let mut ledger =
        Ledger::new(ports.iter().map(|port| (port.name.clone(), port.number, port.node.number())));
    tables.table_begins(&mut mirror);
    for (place, entry) in (1..).zip(entries(bytes)) {
        // The format's byte first, so that the fuzzer need not find it.
        let Ok(records) = decode("entry", &[&[1], entry].concat()) else { continue };
        assert_eq!(decode("again", &encode(&records)).expect("what was written"), records);
        for record in records {
            if let Record::Protection(told) = &record
                && let Ok(protection) = told.read()
            {
                let again = Told::of(&protection);
                assert!(again == Told::ALL_TO_LEADER || again.read() == Ok(protection));
            }
            ledger.replay(record.clone());
            tables.apply(&mut mirror, record, place);
        }
        tables.publish(&mut mirror);
    }
    tables.table_ends(&mut mirror);
    tables.publish(&mut mirror);
    let _ = ledger.snapshot().count();
});
