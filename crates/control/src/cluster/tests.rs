//! What the leader tells and what nodes make of it, without a store in between; `with_store` has one.

mod with_store;

use std::collections::HashMap;
use std::time::Duration;

use fabric::{Header, Kind, NodeId};
use fib::{MAIN, NextHop};
use proptest::prelude::*;

use super::ledger::Ledger;
use super::log::{LogWriter, Stored, entry_key, gathered};
use super::member::{ClusterPort, exits, mirror_port};
use super::protection::{Protection, ProtectionAction, ProtectionPolicy, Told};
use super::record::{Record, decode, encode};
use super::tables::{OwnPort, Tables};
use crate::change::*;
use crate::mirror::Mirror;
use crate::store::testing::free_port;
use crate::store::{Operation, Place, Store};

const CLUSTER: u16 = 7;

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

/// Ports 1 and 2 at node 0, ports 3 and 4 at node 1.
fn ports() -> Vec<ClusterPort> {
    let port = |number: u8| ClusterPort {
        number,
        name: format!("p{number}"),
        node: node(u16::from(number - 1) / 2),
        place: u16::from(number - 1) % 2,
    };
    (1..=4).map(port).collect()
}

fn ledger() -> Ledger {
    Ledger::new(ports().into_iter().map(|port| (port.name, port.number, port.node.number())))
}

/// The interface of a port, in the numbers of a leader; those of leaders differ.
fn link(leader: u32, port: u8) -> Change {
    Change::Link(Link {
        index: leader + u32::from(port),
        name: format!("p{port}"),
        mac: Some([2, 0, 0, 0, 0, port]),
        mtu: 1500,
        is_up: true,
        has_carrier: true,
        master: None,
        below: None,
        kind: "tun".into(),
        vlan: None,
        has_priorities: false,
        vrf_table: None,
    })
}

fn neighbour(leader: u32, port: u8, host: u8, mac: u8, state: NeighbourState) -> Change {
    Change::Neighbour(Neighbour {
        index: leader + u32::from(port),
        address: [10, 0, port, host].into(),
        mac: Some([2, 1, 0, 0, 0, mac]),
        state,
    })
}

fn route(leader: u32, prefix: &str, port: u8, host: u8) -> Route {
    let path = Path {
        index: leader + u32::from(port),
        gateway: Some([10, 0, port, host].into()),
        weight: 1,
        is_down: false,
        has_encapsulation: false,
    };
    Route {
        key: RouteKey { table: MAIN, prefix: prefix.parse().unwrap(), metric: 0, tos: 0, from: None },
        kind: RouteKind::Unicast,
        protocol: 186,
        preferred_source: None,
        mtu: None,
        preference: Route::MEDIUM,
        only_linux: None,
        hops: Hops::Paths(vec![path]),
    }
}

/// A node that takes in what the leader tells.
struct TestNode {
    mirror: Mirror,
    tables: Tables,
}

impl TestNode {
    fn new(number: u16) -> TestNode {
        let ports = ports();
        let mut mirror =
            Mirror::new(ports.iter().map(|port| (port.name.clone(), mirror_port(port.number)))).unwrap();
        mirror.set_exits(exits(node(number), CLUSTER, None, 2, &ports));
        let own = ports.iter().filter(|port| port.node == node(number));
        let own: HashMap<u8, OwnPort> = own
            .map(|port| (port.number, OwnPort { place: port.place, mac: [2, 0, 0, 0, 0, port.number] }))
            .collect();
        TestNode { mirror, tables: Tables::new(own) }
    }

    fn take(&mut self, records: Vec<Record>) {
        for record in records {
            // As the store has them.
            let read = decode("key", &encode(std::slice::from_ref(&record))).unwrap();
            assert_eq!(read, [record]);
            read.into_iter().for_each(|record| self.tables.apply(&mut self.mirror, record, 1));
        }
        self.tables.publish(&mut self.mirror);
    }

    fn take_table(&mut self, pieces: impl Iterator<Item = Vec<Record>>) {
        self.tables.table_begins(&mut self.mirror);
        pieces.flatten().for_each(|record| self.tables.apply(&mut self.mirror, record, 1));
        self.tables.table_ends(&mut self.mirror);
        self.tables.publish(&mut self.mirror);
    }

    /// What workers put before packets to an address, and the output by which these leave.
    fn way(&self, address: [u8; 4]) -> Option<(u16, Vec<u8>)> {
        let found = self.mirror.route_for(MAIN, address.into())?;
        match self.mirror.fib().next_hops().get(found.next_hop)? {
            NextHop::Forward(adjacency) => Some((adjacency.port(), adjacency.rewrite().to_vec())),
            _ => None,
        }
    }

    /// What this node's workers do with a label.
    fn of_label(&self, label: u32) -> Option<(u16, Vec<u8>)> {
        let mut reader = self.tables.readers().register();
        let known = reader.enter();
        let adjacency = (*known.get(label as usize)?)?;
        Some((adjacency.port(), adjacency.rewrite().to_vec()))
    }

    fn compare(&mut self) -> (u64, u64) {
        self.take(vec![Record::Compare]);
        let digest = self.tables.digest();
        (digest.routes, digest.sum)
    }
}

/// A ledger with all links and a neighbour 10.0.PORT.9 on each.
fn begun(leader: u32) -> Ledger {
    let mut ledger = ledger();
    for port in 1..=4 {
        ledger.apply(link(leader, port));
        ledger.apply(neighbour(leader, port, 9, port, NeighbourState::Reachable));
    }
    ledger
}

#[test]
fn a_route_leads_to_its_port_from_every_node() {
    let mut ledger = begun(40);
    ledger.apply(Change::Route(route(40, "192.0.2.0/24", 3, 9)));
    let records = ledger.take_pending();
    let mut nodes = [TestNode::new(0), TestNode::new(1)];
    nodes.iter_mut().for_each(|node| node.take(records.clone()));
    // Node 1 has the port, in the first place.
    let ethernet = [2, 1, 0, 0, 0, 3, 2, 0, 0, 0, 0, 3, 8, 0].to_vec();
    assert_eq!(nodes[1].way([192, 0, 2, 1]), Some((0, ethernet.clone())));
    // From node 0 it goes over the fabric, and node 1 knows what to do then.
    let (output, rewrite) = nodes[0].way([192, 0, 2, 1]).unwrap();
    let header = Header::parse(rewrite.first_chunk().unwrap()).unwrap();
    assert_eq!((output, header.kind, header.output, header.input), (2, Kind::Routed, node(1), node(0)));
    assert_eq!((header.cluster, &rewrite[12..]), (CLUSTER, &[8, 0][..]));
    assert_eq!(nodes[1].of_label(header.label.number()), Some((0, ethernet)));
    assert_eq!(nodes[1].of_label(header.label.number() + 1).unwrap().1[12..], [0x86, 0xdd]);
    assert_eq!(nodes[0].of_label(99), None);
    assert_eq!(nodes[0].compare(), nodes[1].compare());
    assert!(nodes[0].mirror.check().is_good());
}

#[test]
fn what_is_known_is_not_told_again() {
    let mut ledger = begun(40);
    ledger.apply(Change::Route(route(40, "192.0.2.0/24", 3, 9)));
    assert!(!ledger.take_pending().is_empty());
    ledger.apply(link(40, 1));
    // How lately Linux heard of a neighbour is nothing to others.
    ledger.apply(neighbour(40, 1, 9, 1, NeighbourState::Stale));
    ledger.apply(Change::Route(route(40, "192.0.2.0/24", 3, 9)));
    assert_eq!(ledger.take_pending(), []);
    assert_eq!(ledger.stale_neighbours().collect::<Vec<_>>(), [(41, [10, 0, 1, 9].into())]);
    // Nor that the Linux of a new leader has to ask for it first, unless there is no answer.
    ledger.apply(neighbour(40, 2, 9, 2, NeighbourState::Incomplete));
    assert_eq!(ledger.take_pending(), []);
    ledger.apply(neighbour(40, 2, 9, 2, NeighbourState::Failed));
    assert_eq!(ledger.take_pending().len(), 2);
    // Nor are neighbours on other interfaces.
    ledger.apply(neighbour(90, 1, 9, 1, NeighbourState::Reachable));
    assert_eq!(ledger.take_pending(), []);
    // A dump that does not name a route ends it.
    ledger.dump_begins(Part::Routes4);
    ledger.dump_ends(Part::Routes4);
    let gone = Change::RouteGone(route(40, "192.0.2.0/24", 3, 9).key);
    assert_eq!(ledger.take_pending(), [Record::Change(gone)]);
}

#[test]
fn a_label_is_not_used_again_before_all_nodes_know() {
    let mut ledger = begun(40);
    let label = |records: Vec<Record>, mac: u8| {
        records.into_iter().find_map(|record| match record {
            Record::Label { mac: of, label, .. } if of[5] == mac => Some(label),
            _ => None,
        })
    };
    let first = label(ledger.take_pending(), 4).unwrap();
    ledger.logged(1);
    // The neighbour has another address now: the old label is given up, after the new one is known.
    ledger.apply(neighbour(40, 4, 9, 50, NeighbourState::Reachable));
    let records = ledger.take_pending();
    assert!(matches!(records[0], Record::Label { .. }), "{records:?}");
    assert!(matches!(records[2], Record::LabelGone { .. }), "{records:?}");
    let second = label(records, 50).unwrap();
    assert_ne!(first, second);
    ledger.logged(2);
    ledger.acknowledged(2);
    ledger.apply(neighbour(40, 4, 10, 51, NeighbourState::Reachable));
    assert_ne!(label(ledger.take_pending(), 51), Some(first), "a node may still be at place 2");
    ledger.logged(3);
    ledger.acknowledged(3);
    ledger.apply(neighbour(40, 4, 11, 52, NeighbourState::Reachable));
    assert_eq!(label(ledger.take_pending(), 52), Some(first));
}

#[test]
fn a_node_that_was_late_sends_by_a_neighbours_new_label() {
    let mut leader = begun(40);
    leader.apply(Change::Route(route(40, "192.0.2.0/24", 3, 9)));
    let mut late = TestNode::new(0);
    late.take(leader.take_pending());
    let label = |node: &TestNode| {
        let (_, rewrite) = node.way([192, 0, 2, 1]).unwrap();
        Header::parse(rewrite.first_chunk().unwrap()).unwrap().label.number()
    };
    let first = label(&late);
    // The neighbour goes and comes while this node hears nothing; then it reads a whole table.
    leader.apply(neighbour(40, 3, 9, 3, NeighbourState::Failed));
    leader.apply(neighbour(40, 3, 9, 3, NeighbourState::Reachable));
    let mut there = TestNode::new(1);
    there.take_table(leader.snapshot());
    late.take_table(leader.snapshot());
    assert_ne!(label(&late), first);
    assert_eq!(there.of_label(label(&late)), there.way([192, 0, 2, 1]));
    assert_eq!(there.of_label(first), None);
}

#[test]
fn a_leader_that_reads_a_whole_table_does_not_give_the_highest_label_that_rests() {
    let mut old = begun(40);
    let given = |records: &[Record]| {
        let labels = records.iter().filter_map(|record| match record {
            Record::Label { node: 1, label, .. } => Some(*label),
            _ => None,
        });
        labels.max()
    };
    let highest = given(&old.take_pending()).unwrap();
    // Whoever has it: a node may not have read yet that it is nobody's.
    for port in [3, 4] {
        old.apply(neighbour(40, port, 9, port, NeighbourState::Failed));
    }
    let mut new = ledger();
    old.snapshot().flatten().for_each(|record| new.replay(record));
    new.apply(link(70, 4));
    new.apply(neighbour(70, 4, 10, 60, NeighbourState::Reachable));
    assert!(given(&new.take_pending()).unwrap() > highest);
    // Nor does one that begins after the store lost everything use what nodes know.
    let mut node = TestNode::new(0);
    node.take(begun(40).take_pending());
    let mut first = ledger();
    first.begin_labels_at(node.tables.labels_end());
    first.apply(link(70, 4));
    first.apply(neighbour(70, 4, 10, 60, NeighbourState::Reachable));
    assert!(given(&first.take_pending()).unwrap() > highest);
}

#[test]
fn a_port_that_moves_to_another_node_takes_no_label_along() {
    let mut leader = begun(40);
    leader.apply(Change::Route(route(40, "192.0.2.0/24", 4, 9)));
    let mut follower = TestNode::new(0);
    follower.take(leader.take_pending());
    let moved = || {
        ports().into_iter().map(|port| ClusterPort {
            node: node(if port.number == 4 { 2 } else { port.node.number() }),
            ..port
        })
    };
    // Who reads the configuration first sends nothing by the label of the node that had the port.
    let mut all = exits(node(0), CLUSTER, None, 2, &moved().collect::<Vec<_>>());
    follower.mirror.set_exit_ports(std::mem::take(&mut all.ports));
    follower.mirror.publish();
    assert_eq!(follower.way([192, 0, 2, 1]), None);
    leader.set_ports(moved().map(|port| (port.name, port.number, port.node.number())));
    let records = leader.take_pending();
    assert!(
        records.iter().any(|record| matches!(record, Record::Label { port: 4, node: 2, .. })),
        "{records:?}"
    );
    follower.take(records);
    let (_, rewrite) = follower.way([192, 0, 2, 1]).unwrap();
    assert_eq!(Header::parse(rewrite.first_chunk().unwrap()).unwrap().output, node(2));
}

#[test]
fn an_interface_that_is_a_port_no_more_is_gone() {
    let mut leader = begun(40);
    leader.take_pending();
    leader.set_ports(ports().into_iter().take(3).map(|port| (port.name, port.number, port.node.number())));
    // Linux says once more of an interface how it is before it says that it is gone.
    leader.apply(link(40, 4));
    leader.apply(Change::LinkGone(44));
    let records = leader.take_pending();
    let gone = |record: &Record| matches!(record, Record::Change(Change::LinkGone(4)));
    assert!(records.iter().any(gone), "{records:?}");
    assert!(records.iter().any(|record| matches!(record, Record::LabelGone { port: 4, .. })), "{records:?}");
}

#[test]
fn a_node_forgets_labels_that_a_whole_table_does_not_name() {
    let mut old = begun(40);
    let mut node = TestNode::new(1);
    node.take(old.take_pending());
    assert!(node.of_label(0).is_some());
    let new = ledger();
    node.take_table(new.snapshot());
    assert_eq!((node.of_label(0), node.tables.neighbours()), (None, (0, 0)));
}

#[test]
fn a_new_leader_goes_on_where_the_last_one_ended() {
    let mut old = begun(40);
    for number in 0..100 {
        old.apply(Change::Route(route(40, &format!("100.{number}.0.0/16"), number % 4 + 1, 9)));
    }
    let mut follower = TestNode::new(0);
    follower.take(old.take_pending());
    let before = follower.compare();
    let mut new = ledger();
    old.snapshot().flatten().for_each(|record| new.replay(record));
    new.hold();
    // Its own Linux says nothing of the routes at first, then some of them, and everything in other numbers.
    for part in [Part::Links, Part::Neighbours, Part::Routes4] {
        new.dump_begins(part);
    }
    for port in 1..=4 {
        new.apply(link(70, port));
        new.apply(neighbour(70, port, 9, port, NeighbourState::Reachable));
    }
    for number in 0..50 {
        new.apply(Change::Route(route(70, &format!("100.{number}.0.0/16"), number % 4 + 1, 9)));
    }
    for part in [Part::Links, Part::Neighbours, Part::Routes4] {
        new.dump_ends(part);
    }
    assert_eq!(new.take_pending(), [], "nothing happens for the nodes");
    new.let_go();
    let gone = new.take_pending();
    assert_eq!(gone.len(), 50);
    follower.take(gone);
    assert_eq!((before.0, follower.compare().0), (100, 50));
}

#[test]
fn neighbours_that_do_not_hear_the_leader_stay() {
    let known: Vec<Record> = begun(40).take_pending();
    let mut new = ledger();
    known.into_iter().for_each(|record| new.replay(record));
    // The node of ports 3 and 4 follows another leader.
    new.set_unheard([3, 4]);
    for port in [2, 3] {
        new.apply(link(70, port));
        new.apply(neighbour(70, port, 9, port, NeighbourState::Incomplete));
        new.apply(neighbour(70, port, 9, port, NeighbourState::Failed));
    }
    new.apply(link(70, 4));
    new.apply(Change::NeighbourGone(74, [10, 0, 4, 9].into()));
    for part in [Part::Links, Part::Neighbours] {
        new.dump_begins(part);
        (1..=4).for_each(|port| new.apply(link(70, port)));
        new.dump_ends(part);
    }
    let gone = |records: &[Record]| {
        let gone = records.iter().filter_map(|record| match record {
            Record::LabelGone { port, .. } => Some(*port),
            _ => None,
        });
        gone.collect::<Vec<_>>()
    };
    assert_eq!(gone(&new.take_pending()), [2, 1]);
    assert_eq!(new.stale_neighbours().count(), 0);
    // It hears this one now, whose Linux asks for what it has not heard of.
    new.set_unheard([]);
    let asked: Vec<_> = new.stale_neighbours().collect();
    assert_eq!(asked, [(73, [10, 0, 3, 9].into()), (74, [10, 0, 4, 9].into())]);
    assert_eq!(new.take_pending(), []);
    new.apply(neighbour(70, 3, 9, 3, NeighbourState::Reachable));
    assert_eq!((new.take_pending(), new.stale_neighbours().count()), (vec![], 1));
    new.apply(neighbour(70, 4, 9, 4, NeighbourState::Failed));
    assert_eq!(gone(&new.take_pending()), [4]);
}

#[test]
fn records_of_another_format_are_refused() {
    let mut bytes = encode(&[Record::Compare]);
    bytes[0] = 9;
    let error = decode("table/log/1", &bytes).unwrap_err().to_string();
    assert!(error.contains("'table/log/1'") && error.contains("format 9; this one reads 2"), "{error}");
    assert!(decode("k", &[]).is_err() && decode("k", &[2, 200, 200]).is_err());
}

#[test]
fn a_new_table_takes_the_place_of_all_that_lies_there_however_large() {
    let address = ([127, 0, 0, 1], free_port()).into();
    let store = Store::open(&Place::Hosted { address, hosts: true, key_file: None }, "/test/").unwrap();
    let session = store.session(Duration::from_secs(3)).unwrap();
    let guard = store.take(&session, "leader", "a").unwrap().unwrap();
    let mut writer = LogWriter::new(store.clone(), guard.clone(), &Stored::read(&store).unwrap());
    // Two megabytes: more than the store takes at a time.
    let many: Vec<Record> = (0..3000u32)
        .map(|number| {
            let mut route = route(40, &format!("100.{}.{}.0/24", number / 250, number % 250), 1, 9);
            let Hops::Paths(paths) = &mut route.hops else { unreachable!() };
            *paths = vec![paths[0]; 64];
            Record::Change(Change::Route(route))
        })
        .collect();
    writer.append(&mut many.clone()).unwrap();
    let stored = Stored::read(&store).unwrap();
    let log: Vec<&Record> = stored.log.iter().flat_map(|(_, records)| records).collect();
    assert_eq!((log.len(), log[0]), (3001, &Record::Log(writer.id())));
    assert!(stored.sequence() > 1 && stored.id == writer.id() && !stored.is_complete());
    // Leaders that died left a part of a table, and an entry that is in the table already.
    let left = |key: String| Operation::Put { key, value: vec![1, 0], session: None };
    let keys = [
        entry_key(0),
        format!("table/at/{:016x}/00000000", 0),
        format!("table/at/{:016x}/00000099", stored.sequence()),
    ];
    store.commit(None, keys.into_iter().map(left).collect()).unwrap();
    writer.write_table([many].into_iter()).unwrap();
    let (keys, _) = store.list("table/").unwrap();
    let pieces = format!("table/at/{:016x}/", writer.sequence());
    assert!(
        keys.iter().all(|entry| entry.key == "table/current" || entry.key.starts_with(&pieces)),
        "{keys:?}"
    );
    let stored = Stored::read(&store).unwrap();
    assert_eq!((stored.table.len(), stored.log.len(), stored.id), (3000, 0, writer.id()));
    assert!(stored.is_complete());
    // The next leader goes on with the same log.
    assert_eq!(LogWriter::new(store, guard, &stored).id(), writer.id());
}

/// Something that a leader's Linux says.
fn change() -> impl Strategy<Value = Change> {
    let prefix = prop::sample::select(vec![
        "0.0.0.0/0",
        "10.0.0.0/8",
        "192.0.2.0/24",
        "192.0.2.128/25",
        "198.51.100.0/24",
    ]);
    let state =
        prop::sample::select(vec![NeighbourState::Reachable, NeighbourState::Stale, NeighbourState::Failed]);
    prop_oneof![
        (1..=4u8).prop_map(|port| link(40, port)),
        (1..=4u32).prop_map(|port| Change::LinkGone(40 + port)),
        (1..=4u8, 9..12u8, 1..4u8, state)
            .prop_map(|(port, host, mac, state)| neighbour(40, port, host, mac, state)),
        (1..=4u32, 9..12u8)
            .prop_map(|(port, host)| Change::NeighbourGone(40 + port, [10, 0, port as u8, host].into())),
        (prefix.clone(), 1..=4u8, 9..12u8)
            .prop_map(|(prefix, port, host)| Change::Route(route(40, prefix, port, host))),
        prefix.prop_map(|prefix| Change::RouteGone(route(40, prefix, 1, 9).key)),
    ]
}

/// A leader that read the highest number that there is gives no label. A node has no such label, and none of port 0.
#[test]
fn labels_of_numbers_that_no_leader_gives_are_nobodys() {
    let mut ledger = ledger();
    (0..2).for_each(|node| ledger.replay(Record::LabelsGiven { node, below: u32::MAX }));
    for port in 1..=4 {
        ledger.apply(link(40, port));
        ledger.apply(neighbour(40, port, 9, port, NeighbourState::Reachable));
    }
    let pending = ledger.take_pending();
    assert!(!pending.iter().any(|record| matches!(record, Record::Label { .. })), "{pending:?}");
    let mut node = TestNode::new(0);
    for (port, label) in [(1, u32::MAX), (0, 0)] {
        node.take(vec![Record::Label { port, node: 0, mac: [2; 6], label }]);
    }
    assert_eq!(node.tables.neighbours(), (0, 0));
}

proptest! {
    // A mirror takes 30 MB, and each case has five.
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Who writes the store may write anything into the log.
    #[test]
    fn records_of_any_bytes_leave_a_node_and_a_leader_that_go_on(
        entries in prop::collection::vec((1..4u8, 0..8u8, prop::collection::vec(any::<u8>(), 0..60)), 300),
    ) {
        let (mut node, mut leader, mut taken) = (TestNode::new(0), ledger(), 0);
        for (count, kind, bytes) in entries {
            // Zeros behind, so that many are whole.
            let piece = [&[2, count, kind], &bytes[..], &[0; 200]].concat();
            let Ok(records) = decode("entry", &piece) else { continue };
            taken += records.len();
            for record in records {
                leader.replay(record.clone());
                node.tables.apply(&mut node.mirror, record, 1);
            }
            node.tables.publish(&mut node.mirror);
        }
        prop_assert!(taken > 0 && leader.snapshot().count() < taken + 10);
    }

    /// Whoever follows the log, joins late, or reads a whole table in between has the same; and every header that leads to
    /// another node finds the neighbour there that it means.
    #[test]
    fn all_nodes_have_the_same(entries in prop::collection::vec(prop::collection::vec(change(), 0..12), 1..8), at in 0..8usize) {
        let mut leader = ledger();
        let mut nodes = [TestNode::new(0), TestNode::new(1)];
        let mut again = TestNode::new(0);
        for (number, entry) in entries.into_iter().enumerate() {
            entry.into_iter().for_each(|change| leader.apply(change));
            let records = leader.take_pending();
            leader.logged(number as u64 + 1);
            nodes.iter_mut().for_each(|node| node.take(gathered(records.clone())));
            if number == at {
                again.take_table(leader.snapshot());
            } else if number > at {
                again.take(records);
            }
            leader.acknowledged(number as u64 + 1);
        }
        let mut late = TestNode::new(1);
        late.take_table(leader.snapshot());
        again.take_table(leader.snapshot());
        let all = [nodes[0].compare(), nodes[1].compare(), late.compare(), again.compare()];
        prop_assert!(all.iter().all(|digest| *digest == all[0]), "{all:?}");
        for address in [[10, 0, 3, 9], [192, 0, 2, 1], [192, 0, 2, 200], [198, 51, 100, 1], [8, 8, 8, 8]] {
            let (first, second) = (nodes[0].way(address), nodes[1].way(address));
            prop_assert_eq!(&second, &late.way(address));
            prop_assert_eq!(&first, &again.way(address));
            match (first, second) {
                (Some((2, header)), Some(there)) => {
                    let header = Header::parse(header.first_chunk().unwrap()).unwrap();
                    prop_assert_eq!(header.output, node(1));
                    prop_assert_eq!(nodes[1].of_label(header.label.number()), Some(there.clone()));
                    prop_assert_eq!(late.of_label(header.label.number()), Some(there));
                }
                (Some(here), Some((2, header))) => {
                    let header = Header::parse(header.first_chunk().unwrap()).unwrap();
                    prop_assert_eq!(nodes[0].of_label(header.label.number()), Some(here));
                }
                (first, second) => prop_assert!(first.is_none() && second.is_none(), "{first:?} {second:?}"),
            }
        }
    }
}

fn told(action: ProtectionAction) -> Told {
    let policy = ProtectionPolicy {
        is_forward: false,
        source: "10.0.1.0/24".parse().unwrap(),
        destination: "10.0.2.0/24".parse().unwrap(),
        protocol: None,
        source_ports: None,
        destination_ports: None,
        action,
    };
    Told::of(&Protection { policies: vec![policy], ..Protection::default() })
}

#[test]
fn what_ipsec_protects_reaches_all_nodes_and_outlives_the_leader() {
    let (mut ledger, mut early, mut late) = (ledger(), TestNode::new(0), TestNode::new(1));
    // Nodes of earlier versions do not know the record: without policies there is none.
    let nothing = Told::of(&Protection::default());
    ledger.set_protection(nothing.clone());
    assert!(!ledger.has_pending() && ledger.snapshot().next().is_none());
    assert_eq!(early.tables.protection(), None);
    let (first, second) = (told(ProtectionAction::Bypass), told(ProtectionAction::Discard));
    for told in [&first, &first, &second] {
        ledger.set_protection(told.clone());
    }
    let records = ledger.take_pending();
    assert_eq!(records.len(), 2, "what is known is not told again");
    ledger.apply(link(100, 1));
    let pieces: Vec<_> = ledger.snapshot().collect();
    assert_eq!(pieces[0], [Record::Protection(second.clone())], "before all routes");
    early.take(records);
    late.take_table(pieces.clone().into_iter());
    for node in [&mut early, &mut late] {
        assert_eq!(node.tables.protection(), Some(&second));
        node.take(vec![Record::Compare]);
    }
    late.take(vec![Record::Protection(first), Record::Compare]);
    assert_ne!(early.tables.digest().sum, late.tables.digest().sum);
    // The next leader knows it, and a table without it means that there is none.
    let mut next = self::ledger();
    pieces.into_iter().flatten().for_each(|record| next.replay(record));
    assert_eq!(next.protection(), Some(&second));
    next.set_protection(nothing.clone());
    early.take(next.take_pending());
    assert_eq!(early.tables.protection(), Some(&nothing));
    late.take_table(std::iter::empty());
    assert_eq!(late.tables.protection(), None);
}
