//! A node's life: it says that it is there, follows the leader's log, and leads when nobody else does.
//!
//! | thread | what it does |
//! | --- | --- |
//! | control | follows the table and the log |
//! | member | session, status, election, and what other nodes say |
//! | leader | while this node leads |
//!
//! The store may go away at any time: tables stay as they are, and the threads try again. All of them are supervised. A request to the
//! store has a time limit only as long as the store's own thread is at work, which is supervised by itself.

use packet::sync::lock;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use fabric::NodeId;
use serde::{Deserialize, Serialize};

use super::leader::lead;
use super::ledger::Ledger;
use super::log::{LOG, LogError, Stored, id_of_log, sequence_of};
use super::protection::{Protection, Told};
use super::record::{Record, decode};
use super::tables::{TableDigest, Tables};
use crate::api::MovedRow;
use crate::mirror::{ClusterExits, Exit};
use crate::service::Common;
use crate::store::{Event, Guard, Operation, Session, Store, StoreError};
use crate::supervisor::{Pulse, Supervisor};

/// How long changes may wait for each other before workers see them.
const LONGEST_GATHERING: Duration = Duration::from_millis(20);
/// Time between two looks of the member's thread at all that it does.
const STEP: Duration = Duration::from_millis(50);
/// Time between two statuses, while something changes, and while nothing does.
const STATUS_PERIOD: Duration = Duration::from_millis(250);
const IDLE_STATUS_PERIOD: Duration = Duration::from_secs(2);
/// Times that a whole table may be replaced while it is read.
const MOST_CHANGES: usize = 20;
/// Time between two tries to get interfaces that Linux does not have.
const PORTS_RETRY: Duration = Duration::from_secs(2);
/// How long tables wait until what IPsec protects counts.
const LONGEST_PROTECTING: Duration = Duration::from_secs(10);
/// Time between two tries to reach a store that is away.
const RETRY: Duration = Duration::from_millis(500);

/// Why a node is not a member for now.
#[derive(Debug, thiserror::Error)]
enum MemberError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Other(String),
}

/// A port of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPort {
    /// Its number, 1 to 255, the same for ever.
    pub number: u8,
    /// Its name, which is that of its interface at the leader.
    pub name: String,
    /// The node that has it.
    pub node: NodeId,
    /// Its place among that node's ports.
    pub place: u16,
}

/// Who and what belongs to the cluster, as its configuration says now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The ports.
    pub ports: Vec<ClusterPort>,
    /// The names of the nodes, whether they are there or not.
    pub nodes: Vec<String>,
}

/// What a port is like in hardware; kept in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortLink {
    /// Its link address.
    pub mac: [u8; 6],
    /// Largest packet, in bytes.
    pub mtu: u32,
}

/// A port for the leader's Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderPort {
    /// Which it is.
    pub port: ClusterPort,
    /// What it is like.
    pub link: PortLink,
    /// Whether its node is there: the store or the fabric hears of it.
    pub is_up: bool,
}

/// What the rest of a node does for its member's threads, and says of itself.
pub trait Host: Send + Sync {
    /// This node leads: these are the interfaces that its Linux is to have now. None when it does not lead any more.
    /// Errors are reported as messages.
    /// Whether all of them are there; if not, it is asked again.
    fn set_leader_ports(&self, ports: &[LeaderPort]) -> bool;

    /// Another node leads now.
    fn leader_is(&self, leader: Option<NodeId>);

    /// The cluster's configuration in the store is this now; what it says, if it can be read.
    fn configured(&self, text: &[u8]) -> Option<Membership>;

    /// This node has been asked to leave: it ends in a moment, when others go round it.
    fn leave(&self);

    /// Takes what the leader's log lists as protected by IPsec; `None` where nothing ever was. It must not wait.
    fn protect(&self, told: Option<&Told>) {
        let _ = told;
    }

    /// Whether what [`Host::protect`] heard last counts for the next packet.
    fn protects(&self) -> bool {
        true
    }

    /// Starts leading after a leader with this list of IPsec. What this node's own Linux has goes to
    /// [`MemberShared::set_protection`], now and whenever it changes.
    fn begins_to_lead(&self, told: Option<&Told>, shared: &Arc<MemberShared>) {
        let _ = told;
        shared.set_protection(Told::of(&Protection::default()));
    }

    /// Stops leading.
    fn ends_to_lead(&self) {}

    /// Whether the fabric has a way to this node now.
    fn reaches(&self, node: NodeId) -> bool;

    /// What the fabric's elements say, for `brickway cluster show`.
    fn traffic(&self) -> Traffic;

    /// Something happened that the operator should know.
    fn message(&self, text: &str);

    /// Something happened that is in the log already. The host keeps it for those who ask what happened.
    fn note(&self, _text: &str) {}
}

/// What a node's fabric does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// When it was counted, in seconds since the node began.
    #[serde(default)]
    pub at: f64,
    /// What came in by the node's ports.
    #[serde(default)]
    pub input: MovedRow,
    /// Packets that it looked up routes for.
    #[serde(default)]
    pub routed: u64,
    /// What it sent by its ports.
    #[serde(default)]
    pub output: MovedRow,
    /// Packets that this node sent directly to their output node.
    pub direct: u64,
    /// Their bytes.
    #[serde(default)]
    pub direct_bytes: u64,
    /// Packets that it sent over an intermediate node.
    pub balanced: u64,
    /// Their bytes.
    #[serde(default)]
    pub balanced_bytes: u64,
    /// Packets that left the path of the packet of the same flow before them: what may have changed their order.
    pub moved: u64,
    /// Packets that were sent although no link had room.
    pub link_full: u64,
    /// Its links.
    pub links: Vec<LinkStatus>,
    /// What a front has divided among routing nodes, by class.
    #[serde(default)]
    pub classes: Vec<ClassTraffic>,
}

/// The flows of a class at a front.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassTraffic {
    /// The rule of the class.
    pub rule: String,
    /// Packets that came in.
    pub packets: u64,
    /// The routing nodes' numbers, and the flows that each has now, in 1024th parts.
    pub shares: Vec<(u16, u16)>,
}

/// A link to a neighbouring node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its place among the node's links.
    pub link: u16,
    /// Its interface.
    pub interface: String,
    /// The node at the other end.
    pub node: u16,
    /// Whether both ends hear each other.
    pub is_up: bool,
    /// What is wrong with it.
    pub problem: String,
    /// How frames that are relayed from it travel, in words.
    #[serde(default)]
    pub path: String,
    /// Packets received and sent.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes that this node sent by it directly to their output node.
    #[serde(default)]
    pub direct_bytes: u64,
    /// Bytes that it sent by it over an intermediate node.
    #[serde(default)]
    pub balanced_bytes: u64,
    /// Bytes that it relayed by it for others.
    #[serde(default)]
    pub relayed_bytes: u64,
}

/// What a node says of itself, in the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its number.
    pub number: u16,
    /// Tells two processes of the same name apart.
    pub incarnation: u64,
    /// Which log it reads: places in another mean nothing.
    pub log: u64,
    /// The place in the log that its workers have reached.
    pub sequence: u64,
    /// A label above all that mean something to it.
    pub labels: u32,
    /// Where in the log its tables were compared last, and how: routes, sum.
    pub compared: (u64, u64, u64),
    /// Whether it asks others to relay nothing over it.
    pub is_leaving: bool,
    /// What its fabric does.
    pub traffic: Traffic,
}

/// How to be a member.
#[derive(Clone)]
pub struct MemberOptions {
    /// The node's name.
    pub name: String,
    /// Its number.
    pub number: NodeId,
    /// The cluster's store.
    pub store: Store,
    /// How long others wait for a node that says nothing.
    pub ttl: Duration,
    /// Whether it may lead.
    pub may_lead: bool,
    /// How long a new leader keeps routes that its routing daemon has not told yet.
    pub restart_time: Duration,
    /// This node's ports, by number.
    pub links: BTreeMap<u8, PortLink>,
    /// The rest of the node.
    pub host: Arc<dyn Host>,
    /// What members and leaders share.
    pub shared: Arc<MemberShared>,
    /// Who watches the threads.
    pub supervisor: Supervisor,
}

/// What the threads of a member share.
#[derive(Debug, Default)]
pub struct MemberShared {
    membership: Mutex<Membership>,
    /// Grows when `membership` changes, or who is a member.
    version: AtomicU64,
    leads: AtomicBool,
    is_leaving: AtomicBool,
    /// Counts the sessions that this node has had.
    sessions: AtomicU64,
    /// What this node told when it led last: for a store that has lost all.
    ledger: Mutex<Option<Ledger>>,
    /// What IPsec protects by this node's Linux, while it leads.
    protection: Mutex<Option<Told>>,
}

impl MemberShared {
    /// Of a cluster like this.
    pub fn new(membership: Membership) -> Arc<MemberShared> {
        Arc::new(MemberShared { membership: Mutex::new(membership), ..MemberShared::default() })
    }

    /// Who and what belongs to the cluster.
    pub fn membership(&self) -> Membership {
        lock(&self.membership).clone()
    }

    /// A number that changes when that does, or who is a member.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Whether this node leads.
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst)
    }

    /// Whether this node is about to leave: it asks others to relay nothing over it.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::SeqCst)
    }

    pub(super) fn keep_ledger(&self, ledger: Ledger) {
        *lock(&self.ledger) = Some(ledger);
    }

    pub(super) fn kept_ledger(&self) -> Option<Ledger> {
        lock(&self.ledger).take()
    }

    /// Sets what IPsec protects by this node's Linux.
    pub fn set_protection(&self, told: Told) {
        *lock(&self.protection) = Some(told);
    }

    /// Returns what was set since this node began to lead, if it was.
    pub fn protection(&self) -> Option<Told> {
        lock(&self.protection).clone()
    }

    /// Forgets what was set.
    pub(super) fn forget_protection(&self) {
        *lock(&self.protection) = None;
    }

    fn has_changed(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    fn set_belonging(&self, membership: Membership) {
        *lock(&self.membership) = membership;
        self.has_changed();
    }
}

impl MemberOptions {
    pub(super) fn ports_for_ledger(&self) -> Vec<(String, u8, u16)> {
        self.shared
            .membership()
            .ports
            .into_iter()
            .map(|port| (port.name, port.number, port.node.number()))
            .collect()
    }

    pub(super) fn still_leads(&self) -> bool {
        self.shared.leads()
    }
}

/// What a node of a cluster knows, beside its tables' content.
pub struct Cluster {
    /// Its tables.
    pub tables: Tables,
    /// Which log they are of; 0 while none has begun.
    pub log: u64,
    /// The place in the log that they have reached.
    pub sequence: u64,
    /// Who leads, as far as this node knows.
    pub leader: Option<String>,
    /// What nodes say of themselves, by name.
    pub nodes: BTreeMap<String, Status>,
    /// Why the store cannot be used now.
    pub store_problem: Option<String>,
    /// The store has lost everything: what the tables have stays until a leader has told all again.
    is_kept: bool,
}

impl Cluster {
    /// Of a node with these tables.
    pub fn new(tables: Tables) -> Cluster {
        Cluster {
            tables,
            log: 0,
            sequence: 0,
            leader: None,
            nodes: BTreeMap::new(),
            store_problem: None,
            is_kept: false,
        }
    }
}

impl Cluster {
    /// Whether anything was ever told.
    fn has_tables(&self) -> bool {
        self.is_kept || self.sequence > 0
    }
}

/// The exits of a node, for its mirror.
pub fn exits(
    here: NodeId,
    cluster: u16,
    switched: Option<usize>,
    fabric: u16,
    ports: &[ClusterPort],
) -> ClusterExits {
    let mut exits = ClusterExits::new(here, cluster, switched, fabric);
    exits.ports = exit_ports(here, ports);
    exits
}

fn exit_ports(here: NodeId, ports: &[ClusterPort]) -> HashMap<u16, Exit> {
    let exit =
        |port: &ClusterPort| if port.node == here { Exit::Own(port.place) } else { Exit::Of(port.node) };
    ports.iter().map(|port| (mirror_port(port.number), exit(port))).collect()
}

/// The number of a port in the mirror: what packets are painted with, less one.
pub fn mirror_port(number: u8) -> u16 {
    u16::from(number) - 1
}

/// Starts the threads.
pub(crate) fn start(common: &Arc<Common>, options: MemberOptions) -> io::Result<Vec<JoinHandle<()>>> {
    let (control, member) = (Arc::clone(common), Arc::clone(common));
    let (supervisor, following) = (options.supervisor.clone(), options.clone());
    options.store.supervise(&supervisor);
    Ok(vec![
        supervisor.spawn("control", move |pulse| follow(&control, &following, pulse))?,
        supervisor.spawn("member", move |pulse| Member::new(&member, options, pulse).live())?,
    ])
}

/// Follows the table and the log until the end.
fn follow(common: &Common, options: &MemberOptions, pulse: &Pulse) {
    let MemberOptions { store, host, .. } = options;
    let (mut told, mut changes) = (String::new(), 0);
    pulse.beat();
    while !common.lock().ends() {
        let problem = match Stored::read(store) {
            Err(LogError::Changed) if changes < MOST_CHANGES => {
                changes += 1;
                packet::pulse::sleep(STEP);
                continue;
            }
            Err(error) => error.to_string(),
            Ok(stored) => match follow_from(common, options, stored, pulse) {
                Ok(()) => return,
                Err(problem) => problem,
            },
        };
        changes = 0;
        if problem != told {
            host.message(&format!("tables stay as they are for now: {problem}"));
            told = problem;
        }
        packet::pulse::sleep(RETRY);
    }
}

/// Takes in what is stored, and then the log as it grows. Ends well when the node does.
fn follow_from(
    common: &Common,
    options: &MemberOptions,
    stored: Stored,
    pulse: &Pulse,
) -> Result<(), String> {
    let MemberOptions { store, shared, host, .. } = options;
    let mut sessions = shared.sessions.load(Ordering::SeqCst);
    let (events, log) = channel();
    let _watch = store.watch(LOG, stored.revision, events);
    take_in(common, host.as_ref(), stored, pulse);
    let mut unpublished: Option<Instant> = None;
    let mut applied = common.lock().cluster.as_ref().map_or(0, |cluster| cluster.sequence);
    loop {
        pulse.beat();
        let wait = if unpublished.is_some() { Duration::from_millis(1) } else { STEP };
        let event = log.recv_timeout(wait);
        // A store that has lost everything ends sessions, but its revisions may be where they were: the watch sees nothing of it.
        if sessions != shared.sessions.load(Ordering::SeqCst) {
            sessions = shared.sessions.load(Ordering::SeqCst);
            let id = id_of_log(store).map_err(|error| error.to_string())?;
            if common.lock().cluster.as_ref().is_some_and(|cluster| cluster.log != id) {
                return Err("the store has another log".into());
            }
        }
        let mut state = common.lock();
        if state.ends() {
            return Ok(());
        }
        let crate::service::State { mirror, cluster: Some(cluster), .. } = &mut *state else { return Ok(()) };
        let is_idle = matches!(event, Err(RecvTimeoutError::Timeout));
        mirror.set_time(SystemTime::now());
        match event {
            Ok(Event::Put(entry)) => {
                let sequence = sequence_of(&entry.key)
                    .ok_or_else(|| format!("'{}' is not an entry of the log", entry.key))?;
                if sequence > applied + 1 {
                    return Err(format!("the log jumps from {applied} to {sequence}"));
                }
                if sequence == applied + 1 {
                    for record in decode(&entry.key, &entry.value).map_err(|error| error.to_string())? {
                        match record {
                            Record::Complete if std::mem::take(&mut cluster.is_kept) => {
                                cluster.tables.table_ends(mirror);
                            }
                            Record::Log(id) => cluster.log = id,
                            _ => {}
                        }
                        cluster.tables.apply(mirror, record, sequence);
                    }
                    applied = sequence;
                    unpublished.get_or_insert_with(Instant::now);
                }
            }
            // Entries go when a whole table stands for them.
            Ok(Event::Removed { .. }) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Event::Lost(problem)) => return Err(problem),
            Err(RecvTimeoutError::Disconnected) => return Err("the store's watch ended".into()),
        }
        if unpublished.is_some_and(|since| is_idle || since.elapsed() >= LONGEST_GATHERING) {
            unpublished = None;
            host.protect(cluster.tables.protection());
            cluster.tables.publish(mirror);
            cluster.sequence = applied;
        }
    }
}

/// Brings the tables to what is stored, in steps that leave others to look at them.
fn take_in(common: &Common, host: &dyn Host, stored: Stored, pulse: &Pulse) {
    let with = |act: &mut dyn FnMut(&mut crate::mirror::Mirror, &mut Cluster)| {
        let mut state = common.lock();
        if let crate::service::State { mirror, cluster: Some(cluster), .. } = &mut *state {
            mirror.set_time(SystemTime::now());
            act(mirror, cluster);
        }
    };
    let last = stored.sequence();
    // A node that has only lost touch for a moment needs no whole table.
    let (mut known, mut log, mut has_tables) = (0, 0, false);
    with(&mut |_, cluster| (known, log, has_tables) = (cluster.sequence, cluster.log, cluster.has_tables()));
    let is_same = log == stored.id && log > 0;
    let has_all = is_same && known >= stored.current.sequence && known <= last && known > 0;
    // What another log said stays until this one has said all.
    let is_kept = has_tables && !is_same && !stored.is_complete();
    let id = stored.id;
    let is_completed =
        stored.log.iter().any(|(at, records)| *at > known && records.contains(&Record::Complete));
    if !has_all {
        with(&mut |mirror, cluster| cluster.tables.table_begins(mirror));
        let mut records = stored.table.into_iter();
        loop {
            pulse.beat();
            let piece: Vec<Record> = records.by_ref().take(64).collect();
            if piece.is_empty() {
                break;
            }
            let mut piece = piece.into_iter();
            with(&mut |mirror, cluster| {
                piece
                    .by_ref()
                    .for_each(|record| cluster.tables.apply(mirror, record, stored.current.sequence));
            });
        }
    }
    for (sequence, records) in stored.log {
        if has_all && sequence <= known {
            continue;
        }
        pulse.beat();
        let mut records = records.into_iter();
        with(&mut |mirror, cluster| {
            records.by_ref().for_each(|record| cluster.tables.apply(mirror, record, sequence));
        });
    }
    with(&mut |mirror, cluster| {
        let ends = if has_all { cluster.is_kept && is_completed } else { !is_kept };
        if ends {
            cluster.tables.table_ends(mirror);
        }
        cluster.is_kept = if has_all { cluster.is_kept && !is_completed } else { is_kept };
        host.protect(cluster.tables.protection());
    });
    // No packet is forwarded by routes before what has to be protected is known.
    let begin = Instant::now();
    while !host.protects() && begin.elapsed() < LONGEST_PROTECTING && !common.lock().ends() {
        pulse.beat();
        std::thread::sleep(Duration::from_millis(1));
    }
    with(&mut |mirror, cluster| {
        cluster.tables.publish(mirror);
        (cluster.log, cluster.sequence) = (id, last);
    });
}

/// The member's thread.
struct Member<'a> {
    common: &'a Arc<Common>,
    options: MemberOptions,
    incarnation: u64,
    links: HashMap<u8, PortLink>,
    told_ports: Vec<LeaderPort>,
    /// When Linux was last asked for interfaces and did not have all of them.
    missing_since: Option<Instant>,
    told_leader: Option<Option<NodeId>>,
    leading: Option<(JoinHandle<()>, Guard)>,
    /// By number: when a node was a member last. A time without the store does not count.
    seen: HashMap<u16, Instant>,
    pulse: &'a Pulse,
}

impl<'a> Member<'a> {
    fn new(common: &'a Arc<Common>, options: MemberOptions, pulse: &'a Pulse) -> Member<'a> {
        use std::hash::{BuildHasher, Hasher, RandomState};
        let incarnation = RandomState::new().build_hasher().finish();
        Member {
            common,
            options,
            incarnation,
            links: HashMap::new(),
            told_ports: Vec::new(),
            missing_since: None,
            told_leader: None,
            leading: None,
            seen: HashMap::new(),
            pulse,
        }
    }

    fn ends(&self) -> bool {
        self.common.lock().ends()
    }

    /// Until the node ends.
    fn live(mut self) {
        let mut told = String::new();
        while !self.ends() {
            self.pulse.beat();
            match self.attend() {
                Ok(()) => break,
                Err(error) => {
                    let problem = error.to_string();
                    if problem != told {
                        self.options.host.message(&format!("not a member for now: {problem}"));
                        told.clone_from(&problem);
                    }
                    if let Some(cluster) = &mut self.common.lock().cluster {
                        cluster.store_problem = Some(problem);
                    }
                }
            }
            // Who leads goes on: if another one does, it finds out when the store answers again.
            packet::pulse::sleep(RETRY);
        }
        self.stop_leading();
        packet::pulse::aside(|| self.options.host.set_leader_ports(&[]));
    }

    fn stop_leading(&mut self) {
        self.options.shared.leads.store(false, Ordering::SeqCst);
        if let Some((thread, _)) = self.leading.take() {
            // A panic has been printed; there is nobody left to tell. The leader may be writing a whole table.
            while !thread.is_finished() {
                self.pulse.beat();
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = thread.join();
        }
    }

    /// A session's life. Ends well when the node does.
    fn attend(&mut self) -> Result<(), MemberError> {
        let MemberOptions { store, name, ttl, links, .. } = self.options.clone();
        let session = store.session(ttl)?;
        let key = format!("nodes/{name}");
        let begin = Instant::now();
        loop {
            self.pulse.beat();
            let status = serde_json::to_vec(&self.status()).unwrap_or_default();
            if store.take(&session, &key, status)?.is_some() {
                break;
            }
            if begin.elapsed() > 2 * ttl {
                return Err(MemberError::Other(format!(
                    "another server is node '{name}' of this cluster already; each server has a name of its own"
                )));
            }
            if self.ends() {
                return Ok(());
            }
            // It may be what this node was before it was started anew.
            packet::pulse::sleep(STEP);
        }
        self.options.shared.sessions.fetch_add(1, Ordering::SeqCst);
        let puts = links.iter().map(|(number, link)| Operation::Put {
            key: format!("ports/{number}"),
            value: serde_json::to_vec(link).unwrap_or_default(),
            session: None,
        });
        let puts: Vec<_> = puts.collect();
        if !puts.is_empty() {
            store.commit(None, puts)?;
        }
        let (entries, revision) = store.list("nodes/")?;
        let (events, news) = channel();
        let _watch_nodes = store.watch("nodes/", revision, events.clone());
        if let Some(cluster) = &mut self.common.lock().cluster {
            // Others need a moment too until they are members again.
            self.seen.extend(cluster.nodes.values().map(|status| (status.number, Instant::now())));
            cluster.nodes.clear();
            cluster.store_problem = None;
        }
        entries.into_iter().for_each(|entry| self.note(Event::Put(entry)));
        let (entries, revision) = store.list("ports/")?;
        let mut watches = vec![store.watch("ports/", revision, events.clone())];
        entries.into_iter().for_each(|entry| self.note(Event::Put(entry)));
        for of in ["config", "rest/"] {
            let (entries, revision) = store.list(of)?;
            watches.push(store.watch(of, revision, events.clone()));
            entries.into_iter().for_each(|entry| self.note(Event::Put(entry)));
        }
        // What this node has led with was another session's.
        self.stop_leading();
        let leader = store.get("leader")?;
        let revision = leader.as_ref().map_or(revision, |entry| entry.revision.max(revision));
        self.set_leader(leader.map(|entry| String::from_utf8_lossy(&entry.value).into_owned()));
        let _watch_leader = store.watch("leader", revision, events);
        self.be_member(&store, &session, &key, &news)
    }

    fn be_member(
        &mut self,
        store: &Store,
        session: &Session,
        key: &str,
        news: &Receiver<Event>,
    ) -> Result<(), MemberError> {
        let mut told = (Instant::now(), self.status());
        let mut failed_leading: Option<Instant> = None;
        loop {
            self.pulse.beat();
            match news.recv_timeout(STEP) {
                Ok(Event::Lost(problem)) => return Err(MemberError::Other(problem)),
                Ok(event) => self.note(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(MemberError::Other("the store is gone".into()));
                }
            }
            news.try_iter().for_each(|event| self.note(event));
            if self.ends() {
                return Ok(());
            }
            if !session.is_alive() {
                return Err(MemberError::Other("the store has not heard of this node for too long".into()));
            }
            if let Some((_, guard)) = self.leading.take_if(|(thread, _)| thread.is_finished()) {
                self.options.shared.leads.store(false, Ordering::SeqCst);
                failed_leading = Some(Instant::now());
                // If it is another one's by now, all the better.
                let _ = store.commit(Some(&guard), vec![Operation::Remove("leader".into())]);
            }
            let nobody_leads =
                self.common.lock().cluster.as_ref().is_some_and(|cluster| cluster.leader.is_none());
            let is_leaving = self.options.shared.is_leaving();
            let may_lead = self.options.may_lead && !is_leaving;
            if nobody_leads && may_lead && failed_leading.is_none_or(|at| at.elapsed() > 4 * RETRY) {
                let name = self.options.name.clone();
                if let Some(guard) = store.take(session, "leader", name.into_bytes())? {
                    self.set_leader(Some(self.options.name.clone()));
                    self.begin_to_lead(guard);
                }
            }
            if is_leaving && let Some((_, guard)) = &self.leading {
                // Others begin to lead while this node still relays and forwards.
                let _ = store.commit(Some(guard), vec![Operation::Remove("leader".into())]);
                self.stop_leading();
            }
            self.tell_host();
            let status = self.status();
            let of = |status: &Status| (status.log, status.sequence, status.compared, status.is_leaving);
            let is_new = of(&status) != of(&told.1);
            let period = if is_new { STATUS_PERIOD } else { IDLE_STATUS_PERIOD };
            if told.0.elapsed() >= period {
                let value = serde_json::to_vec(&status).unwrap_or_default();
                store.commit(
                    None,
                    vec![Operation::Put { key: key.to_owned(), value, session: Some(session.id()) }],
                )?;
                told = (Instant::now(), status);
            }
        }
    }

    /// Takes in what the store says.
    fn note(&mut self, event: Event) {
        let (key, value) = match event {
            Event::Put(entry) => (entry.key, Some(entry.value)),
            Event::Removed { key, .. } => (key, None),
            Event::Lost(_) => return,
        };
        if key == "config" {
            if let Some(membership) = value.and_then(|value| self.options.host.configured(&value)) {
                self.set_belonging(membership);
            }
        } else if key == format!("rest/{}", self.options.name) {
            if value.is_some() && !self.options.shared.is_leaving.swap(true, Ordering::SeqCst) {
                self.options.host.message("leaving: others relay nothing over this node any more");
                self.options.host.leave();
            }
        } else if key == "leader" {
            self.set_leader(value.map(|value| String::from_utf8_lossy(&value).into_owned()));
        } else if let Some(number) = key.strip_prefix("ports/").and_then(|number| number.parse().ok()) {
            if let Some(link) = value.and_then(|value| serde_json::from_slice(&value).ok()) {
                self.links.insert(number, link);
            }
        } else if let Some(name) = key.strip_prefix("nodes/") {
            let status: Option<Status> = value.and_then(|value| serde_json::from_slice(&value).ok());
            let mut state = self.common.lock();
            let Some(cluster) = &mut state.cluster else { return };
            let is_leaving = |status: Option<&Status>| status.is_some_and(|status| status.is_leaving);
            let was_leaving = is_leaving(cluster.nodes.get(name));
            let (comes, is_news) = match status {
                Some(status) => (true, cluster.nodes.insert(name.to_owned(), status).is_none()),
                None => (false, cluster.nodes.remove(name).is_some()),
            };
            drop(state);
            if is_news {
                self.options.shared.has_changed();
            }
            match comes {
                _ if !is_news || name == self.options.name => {}
                true => {
                    let text = format!("node '{name}' is a member now");
                    tracing::info!(event = "node", node = name, state = "member", "cluster: {text}");
                    self.options.host.note(&text);
                }
                false => {
                    let reason = if was_leaving { "it left" } else { "its session in the store has ended" };
                    let text = format!("node '{name}' is not a member any more: {reason}");
                    tracing::warn!(event = "node", node = name, state = "gone", reason, "cluster: {text}");
                    self.options.host.note(&text);
                }
            }
        }
    }

    /// The cluster may have other ports and nodes than before.
    fn set_belonging(&mut self, membership: Membership) {
        let before = self.options.shared.membership();
        if before.ports != membership.ports {
            let ports = &membership.ports;
            let mut state = self.common.lock();
            state.mirror.set_ports(ports.iter().map(|port| (port.name.clone(), mirror_port(port.number))));
            state.mirror.set_exit_ports(exit_ports(self.options.number, ports));
            state.mirror.publish();
        }
        if before != membership {
            self.options.shared.set_belonging(membership);
        }
    }

    fn set_leader(&mut self, leader: Option<String>) {
        let mut state = self.common.lock();
        let Some(cluster) = &mut state.cluster else { return };
        if cluster.leader == leader {
            return;
        }
        cluster.leader.clone_from(&leader);
        drop(state);
        match leader {
            Some(name) => {
                let text = format!("node '{name}' leads");
                tracing::info!(event = "leader", node = name, "cluster: {text}");
                self.options.host.note(&text);
            }
            None => tracing::warn!(
                event = "leader",
                reason = "no node has the key 'leader'",
                "cluster: nobody leads"
            ),
        }
    }

    fn begin_to_lead(&mut self, guard: Guard) {
        self.options.shared.leads.store(true, Ordering::SeqCst);
        // Linux has the ports before it is asked what it knows.
        self.tell_host();
        let (common, options, of_thread) = (Arc::clone(self.common), self.options.clone(), guard.clone());
        let thread = self.options.supervisor.spawn("leader", move |pulse| {
            let store = options.store.clone();
            if let Err(error) = lead(&common, &store, of_thread, &options, pulse) {
                options.host.message(&format!("cannot lead: {error}"));
            }
        });
        match thread {
            Ok(thread) => self.leading = Some((thread, guard)),
            Err(error) => self.options.host.message(&format!("cannot lead: {error}")),
        }
    }

    /// Tells the rest of the node who leads, and which ports its Linux is to have.
    fn tell_host(&mut self) {
        let state = self.common.lock();
        let Some(cluster) = &state.cluster else { return };
        let number = |name: &String| cluster.nodes.get(name).and_then(|status| NodeId::new(status.number));
        let leader = match &cluster.leader {
            Some(name) if *name == self.options.name => Some(self.options.number),
            Some(name) => number(name),
            None => None,
        };
        let (here, is_leaving) = (self.options.number.number(), self.options.shared.is_leaving());
        self.seen.extend(cluster.nodes.values().map(|status| (status.number, Instant::now())));
        let is_there = |node: NodeId| {
            let seen = self.seen.get(&node.number());
            let is_member = node.number() == here || seen.is_some_and(|at| at.elapsed() <= self.options.ttl);
            // One that is cut off from the store forwards still.
            is_member || self.options.host.reaches(node)
        };
        if self.leading.is_none() && cluster.leader.as_ref().is_some_and(|name| *name != self.options.name) {
            // What this node told last is not what counts any more.
            drop(self.options.shared.kept_ledger());
        }
        // Until another one leads Linux keeps its interfaces, and the routing daemon its sessions.
        let is_ours = match &cluster.leader {
            Some(name) => *name == self.options.name,
            None => !self.told_ports.is_empty() && !is_leaving,
        };
        let mut ports = Vec::new();
        if is_ours {
            for port in self.options.shared.membership().ports {
                if let Some(&link) = self.links.get(&port.number).or(self.options.links.get(&port.number)) {
                    ports.push(LeaderPort { link, is_up: is_there(port.node), port });
                }
            }
        }
        drop(state);
        if self.told_leader != Some(leader) {
            self.told_leader = Some(leader);
            self.options.host.leader_is(leader);
        }
        let is_due = self.missing_since.is_some_and(|at| at.elapsed() >= PORTS_RETRY);
        if self.told_ports != ports || is_due {
            // Linux makes interfaces, and takes its time for it on a busy machine.
            let are_all_there = packet::pulse::aside(|| self.options.host.set_leader_ports(&ports));
            self.missing_since = (!are_all_there).then(Instant::now);
            self.told_ports = ports;
        }
    }

    fn status(&self) -> Status {
        let traffic = self.options.host.traffic();
        let state = self.common.lock();
        let (log, sequence, labels, digest) =
            state.cluster.as_ref().map_or((0, 0, 0, TableDigest::default()), |known| {
                (known.log, known.sequence, known.tables.labels_end(), known.tables.digest())
            });
        Status {
            number: self.options.number.number(),
            incarnation: self.incarnation,
            log,
            sequence,
            labels,
            compared: (digest.sequence, digest.routes, digest.sum),
            is_leaving: self.options.shared.is_leaving(),
            traffic,
        }
    }
}
