//! Nodes that follow a log in a real store: one that loses everything, one that forgets, and a leader that has only just begun.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::*;
use crate::cluster::member::{
    Cluster, Host, LeaderPort, MemberOptions, MemberShared, Membership, PortLink, Traffic,
};
use crate::service::Service;
use crate::store::Session;
use crate::store::testing::{Cable, Etcd};
use crate::supervisor::Supervisor;
use testbed::{in_namespace, ip, veth_pair};

const PREFIX: &str = "/test/";
/// How long to wait for what must come.
const PATIENCE: Duration = Duration::from_secs(30);
/// A grace that no test sees the end of.
const LONG: Duration = Duration::from_secs(3600);

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A node's Linux, where its ports lead nowhere.
#[derive(Default)]
struct Linux(Mutex<Vec<String>>);

impl Host for Linux {
    fn set_leader_ports(&self, ports: &[LeaderPort]) -> bool {
        let wanted: Vec<String> = ports.iter().map(|port| port.port.name.clone()).collect();
        let mut open = self.0.lock().unwrap();
        for name in open.iter().filter(|name| !wanted.contains(name)) {
            ip(&format!("link del {name}"));
        }
        for name in wanted.iter().filter(|name| !open.contains(name)) {
            veth_pair(name, &format!("{name}-far"), 1);
        }
        *open = wanted;
        true
    }

    fn leader_is(&self, _leader: Option<NodeId>) {}

    fn configured(&self, _text: &[u8]) -> Option<Membership> {
        None
    }

    fn leave(&self) {}

    fn reaches(&self, _node: NodeId) -> bool {
        false
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    fn message(&self, text: &str) {
        println!("{text}");
    }
}

/// A rest of a node that panics when it is asked for what this names.
struct Broken(&'static str);

impl Broken {
    fn is_asked(&self, what: &str) {
        assert_ne!(self.0, what, "a fault that the test injects");
    }
}

impl Host for Broken {
    fn set_leader_ports(&self, _ports: &[LeaderPort]) -> bool {
        self.is_asked("ports");
        true
    }
    fn leader_is(&self, _leader: Option<NodeId>) {}
    fn configured(&self, _text: &[u8]) -> Option<Membership> {
        None
    }
    fn leave(&self) {}
    fn reaches(&self, _node: NodeId) -> bool {
        false
    }
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
    fn message(&self, text: &str) {
        if text.starts_with("tables stay") {
            self.is_asked("tables");
        }
    }
}

/// Each of a node's threads that dies is a fault with its name; the others go on meanwhile.
#[test]
fn a_thread_of_a_node_that_dies_is_a_fault_that_names_it() {
    let address = ([127, 0, 0, 1], free_port()).into();
    let host = Store::open(&Place::Hosted { address, hosts: true, key_file: None }, PREFIX).unwrap();
    let put = |key: &str, value: &[u8]| {
        let put = Operation::Put { key: key.to_owned(), value: value.to_vec(), session: None };
        host.commit(None, vec![put]).unwrap();
    };
    for (asked, thread) in [("ports", "member"), ("tables", "control")] {
        // What no node can read.
        put("table/current", if asked == "tables" { b"nothing".as_slice() } else { b"" });
        let TestNode { mirror, tables } = TestNode::new(0);
        let supervisor = Supervisor::default();
        supervisor.begin(|_| ()).unwrap();
        let place = Place::Hosted { address, hosts: false, key_file: None };
        let options = MemberOptions {
            name: asked.to_owned(),
            number: node(0),
            store: Store::open(&place, PREFIX).unwrap(),
            ttl: Duration::from_secs(3),
            may_lead: thread == "member",
            restart_time: LONG,
            links: BTreeMap::from([(1, PortLink { mac: [2; 6], mtu: 1500 })]),
            host: Arc::new(Broken(asked)),
            shared: MemberShared::new(Membership { ports: ports(), nodes: vec![asked.to_owned()] }),
            supervisor: supervisor.clone(),
        };
        let service = Service::of_cluster(mirror, Cluster::new(tables), options).unwrap();
        wait_until("a fault", || supervisor.fault().is_some());
        assert_eq!(supervisor.fault().unwrap().to_string(), format!("the thread '{thread}' has ended"));
        drop(service);
    }
}

/// A node of the cluster, with its threads; it leads if there is a grace for what its Linux has not said.
struct LiveNode(Service);

impl LiveNode {
    fn start(place: &Place, number: u16, grace: Option<Duration>) -> LiveNode {
        let TestNode { mirror, tables } = TestNode::new(number);
        let link = |port| (port, PortLink { mac: [2, 0, 0, 0, 0, port], mtu: 1500 });
        let nodes = vec!["node0".to_owned(), "node1".to_owned()];
        let options = MemberOptions {
            name: nodes[usize::from(number)].clone(),
            number: node(number),
            store: Store::open(place, PREFIX).unwrap(),
            ttl: Duration::from_secs(3),
            may_lead: grace.is_some(),
            restart_time: grace.unwrap_or_default(),
            links: (1..=4).map(link).collect::<BTreeMap<u8, PortLink>>(),
            host: Arc::new(Linux::default()),
            shared: MemberShared::new(Membership { ports: ports(), nodes }),
            supervisor: Supervisor::default(),
        };
        LiveNode(Service::of_cluster(mirror, Cluster::new(tables), options).unwrap())
    }

    fn has(&self, address: [u8; 4]) -> bool {
        self.0.lock().mirror.route_for(MAIN, address.into()).is_some()
    }

    /// Which log it follows, and how far it has come.
    fn place(&self) -> (u64, u64) {
        let state = self.0.lock();
        let cluster = state.cluster.as_ref().unwrap();
        (cluster.log, cluster.sequence)
    }

    /// Where its tables were compared last, and how.
    fn digest(&self) -> (u64, u64, u64) {
        let digest = self.0.lock().cluster.as_ref().unwrap().tables.digest();
        (digest.sequence, digest.routes, digest.sum)
    }
}

/// Who writes the log in place of a leader.
struct Scribe {
    ledger: Ledger,
    writer: LogWriter,
    _session: Session,
}

impl Scribe {
    /// One whose Linux has all ports and a neighbour on each.
    fn begin(place: &Place) -> Scribe {
        let store = Store::open(place, PREFIX).unwrap();
        let session = store.session(Duration::from_secs(3)).unwrap();
        let guard = store.take(&session, "leader", "scribe").unwrap().expect("nobody leads");
        let stored = Stored::read(&store).unwrap();
        Scribe { ledger: begun(40), writer: LogWriter::new(store, guard, &stored), _session: session }
    }

    fn route(&mut self, prefix: &str) {
        self.ledger.apply(Change::Route(route(40, prefix, 3, 9)));
    }

    /// Writes one entry: what is new, and this.
    fn tell(&mut self, more: &[Record]) {
        let mut records = self.ledger.take_pending();
        records.extend_from_slice(more);
        self.writer.append(&mut records).unwrap();
        self.ledger.logged(self.writer.sequence());
    }

    /// The last place that it has written.
    fn place(&self) -> (u64, u64) {
        (self.writer.id(), self.writer.sequence())
    }
}

/// The node has what the first log says, then the store loses it, and gets another one of the same length: before the node reads it
/// again, or after.
fn a_store_that_lost_everything_empties_no_table(place: &Place, lose: impl FnOnce(), node_reads_first: bool) {
    let (through, cable) = Cable::to(place);
    let node = LiveNode::start(&through, 0, None);
    let mut first = Scribe::begin(place);
    first.route("192.0.2.0/24");
    first.tell(&[Record::Complete]);
    wait_until("the node reads the log", || node.has([192, 0, 2, 1]));
    wait_until("workers have it", || node.place() == first.place());

    cable.pull_out();
    lose();
    if node_reads_first {
        cable.plug_in();
        wait_until("the node sees that there is nothing", || node.place() == (0, 0));
        assert!(node.has([192, 0, 2, 1]), "nobody has said that it is gone");
    }
    let mut second = Scribe::begin(place);
    second.route("198.51.100.0/24");
    second.tell(&[]);
    cable.plug_in();
    assert_eq!((second.place().1, second.place().0 == first.place().0), (first.place().1, false));
    wait_until("the node reads the other log", || node.has([198, 51, 100, 1]));
    wait_until("workers have it", || node.place() == second.place());
    assert!(node.has([192, 0, 2, 1]), "the leader has not told all yet");
    second.tell(&[Record::Complete]);
    wait_until("what the leader has not told goes", || !node.has([192, 0, 2, 1]));
    assert!(node.has([198, 51, 100, 1]));
}

#[test]
fn a_hosted_store_that_lost_everything_empties_no_table() {
    for node_reads_first in [false, true] {
        let address = ([127, 0, 0, 1], free_port()).into();
        let open = || Store::open(&Place::Hosted { address, hosts: true, key_file: None }, "/host/").unwrap();
        let mut host = Some(open());
        let place = Place::Hosted { address, hosts: false, key_file: None };
        let lose = || {
            host = None;
            host = Some(open());
        };
        a_store_that_lost_everything_empties_no_table(&place, lose, node_reads_first);
    }
}

#[test]
fn an_etcd_that_lost_its_disk_empties_no_table() {
    let mut etcd = Etcd::start();
    let place = etcd.place();
    a_store_that_lost_everything_empties_no_table(&place, || etcd.restart_empty(), false);
}

#[test]
fn a_node_that_is_late_past_a_compaction_reads_the_table_and_goes_on() {
    let etcd = Etcd::start();
    let place = etcd.place();
    let (through, cable) = Cable::to(&place);
    let (late, other) = (LiveNode::start(&through, 0, None), LiveNode::start(&place, 1, None));
    let mut leader = Scribe::begin(&place);
    leader.route("192.0.2.0/24");
    leader.tell(&[Record::Complete]);
    wait_until("both read the log", || [&late, &other].iter().all(|node| node.has([192, 0, 2, 1])));
    cable.pull_out();
    leader.ledger.apply(Change::RouteGone(route(40, "192.0.2.0/24", 3, 9).key));
    leader.route("198.51.100.0/24");
    leader.tell(&[]);
    // It stands for both entries, and the store forgets how it came to be.
    leader.writer.write_table(leader.ledger.snapshot()).unwrap();
    leader.route("203.0.113.0/24");
    leader.tell(&[]);
    wait_until("the other one goes on", || other.place() == leader.place());
    assert!(late.has([192, 0, 2, 1]) && !late.has([203, 0, 113, 1]), "it has not heard of it");
    cable.plug_in();
    wait_until("the late one goes on", || late.has([203, 0, 113, 1]));
    assert!(late.has([198, 51, 100, 1]) && !late.has([192, 0, 2, 1]));
    wait_until("workers have it", || late.place() == leader.place());
    // With the log, as before.
    leader.route("192.0.2.0/24");
    leader.tell(&[Record::Compare]);
    wait_until("both compare", || [&late, &other].iter().all(|node| node.digest().0 == 4));
    assert_eq!((late.digest(), late.digest().1), (other.digest(), 3));
}

#[test]
fn what_a_new_leaders_linux_has_not_said_stays_for_its_grace() {
    in_namespace(|| {
        let address = ([127, 0, 0, 1], free_port()).into();
        let place = Place::Hosted { address, hosts: true, key_file: None };
        let store = Store::open(&place, PREFIX).unwrap();
        let place = Place::Hosted { address, hosts: false, key_file: None };
        let gone = Record::Change(Change::RouteGone(route(40, "192.0.2.0/24", 3, 9).key));
        let log = || Stored::read(&store).unwrap().log.into_iter().flat_map(|(_, records)| records);
        let completes = || log().filter(|record| *record == Record::Complete).count();
        let mut last = Scribe::begin(&place);
        last.route("192.0.2.0/24");
        last.tell(&[Record::Complete]);
        drop(last);

        let leader = LiveNode::start(&place, 0, Some(LONG));
        let route = ["route", "add", "198.51.100.0/24", "dev", "p4"];
        wait_until("it leads", || Command::new("ip").args(route).output().unwrap().status.success());
        // By then its Linux has said all that it knows.
        wait_until("the tables are compared", || leader.digest().0 > 0);
        assert!(leader.has([198, 51, 100, 1]) && leader.has([192, 0, 2, 1]));
        assert!(!log().any(|record| record == gone) && completes() == 1);
        drop(leader);

        let leader = LiveNode::start(&place, 1, Some(Duration::ZERO));
        wait_until("the next one has told all", || completes() == 2);
        assert!(log().any(|record| record == gone));
        wait_until("what its Linux does not know goes", || {
            leader.place().1 == Stored::read(&store).unwrap().sequence() && !leader.has([192, 0, 2, 1])
        });
    });
}
