//! The policies and associations of a router, shared by the elements of all workers.
//!
//! Who knows them (the mirror of the kernel's, a configuration) says with [`Database::replace`] what there is now. That makes new
//! tables and publishes them ([`fib::publish`]); a worker enters the tables for a batch. When `replace` returns, no worker looks at the
//! old ones.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fib::publish::{Reader, Readers, Writer, pair};
use graph::Setup;
use graph::setup::Shared;
use ipsec::association::{Age, Mode};
use ipsec::esp::NAT_TRAVERSAL_PORT;
use ipsec::{Association, Backend, Endpoints};
use packet::sync::lock;

use super::policy::{Direction, Policy, PolicyAction, Selector};
use crate::first_match::MAX_RULES;

use super::tables::{
    AssociationId, BySpi, Few, Inbound, Own, PeerId, Place, Policies, Step, Tables, list, no_list, plain_step,
};

/// An association that the fast path has.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Itself.
    pub association: Arc<Association>,
    /// The number that ties it to policies.
    pub request: u32,
    /// A hash of the text that it was made of: the association of the same text that is there already takes its place.
    pub(super) text: Option<u64>,
}

impl Entry {
    /// Makes one.
    pub fn new(association: Arc<Association>, request: u32) -> Self {
        Self { association, request, text: None }
    }
}

/// An association that Linux keeps: its packets are not opened here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    /// The security parameters index.
    pub spi: u32,
    /// The outer destination.
    pub destination: IpAddr,
}

/// All that there is.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Associations, those that were installed first first: of several that fit a policy the last one is used.
    pub associations: Vec<Entry>,
    /// Associations that Linux keeps.
    pub kept: Vec<Kept>,
    /// Whether ESP to this host may come of associations that are not known here: all of it counts as ESP to this host.
    pub takes_esp: bool,
    /// Policies, in the order in which they are asked: the first that matches a packet decides. Their selectors must be such that the
    /// fast path can match them ([`Selector::can_match`](super::Selector::can_match)); others are left out. Of more than 16,384 in a direction none is asked, and
    /// all packets of it are dropped.
    pub policies: Vec<Policy>,
    /// Whether packets that no policy of a direction matches are dropped: outbound, forwarded.
    pub discards: [bool; 2],
}

/// What a policy met.
#[derive(Clone, Debug)]
pub struct PolicyCount {
    /// The policy.
    pub policy: Policy,
    /// Packets.
    pub packets: u64,
    /// Bytes, from the IP header on.
    pub bytes: u64,
}

/// How long an association that is gone can still be found by packets that were chosen for it: longer than a worker takes for a batch,
/// or the slow thread for its queue.
const LEAVE: Duration = Duration::from_secs(1);

/// What templates tell apart: outer addresses, mode, request.
type Peer = (Endpoints, Mode, u32);

/// Associations by what a template names, the last installed last.
type Candidates = HashMap<(Endpoints, Mode), Vec<Candidate>>;

struct Candidate {
    request: u32,
    spi: u32,
    peer: PeerId,
    id: AssociationId,
    is_usable: bool,
}

struct Writing {
    writer: Writer<Arc<Tables>>,
    contents: Contents,
    /// Associations that are gone, and since when. Packets that were chosen for them may be under way.
    leaving: Vec<(Instant, Entry)>,
    tables: Arc<Tables>,
    own: Arc<Own>,
    /// How often each place was given away.
    generations: Vec<u16>,
    /// Numbers of those that templates tell apart.
    peers: HashMap<Peer, PeerId>,
    next_peer: PeerId,
    /// What policies met before the lists in use.
    carried: HashMap<(Direction, Selector), (u64, u64)>,
}

/// The policies and associations of a router.
pub struct Database {
    writing: Mutex<Writing>,
    readers: Readers<Arc<Tables>>,
    backend: Backend,
    copies: usize,
}

impl Database {
    /// Its name among what elements share: one that no element can have, so that it stays whatever becomes of elements.
    const KEY: &str = "ipsec!";

    /// Makes one without contents, for so many copies of the graph.
    fn new(copies: usize, backend: Backend) -> Self {
        let own = Arc::new(Own::default());
        let policies = || Policies {
            list: no_list(copies),
            few: None,
            asks_ports: false,
            steps: Box::new([Step::Pass]),
        };
        let tables = Arc::new(Tables {
            out: policies(),
            forward: policies(),
            inbound: BySpi::default(),
            takes_esp: false,
            places: Box::default(),
            own: own.clone(),
        });
        let (writer, readers) = pair(tables.clone(), tables.clone());
        let writing = Writing {
            writer,
            contents: Contents::default(),
            leaving: Vec::new(),
            tables,
            own,
            generations: Vec::new(),
            peers: HashMap::new(),
            next_peer: 0,
            carried: HashMap::new(),
        };
        Self { writing: Mutex::new(writing), readers, backend, copies }
    }

    /// Returns that of the router whose elements these are; `None` if no element asked for it.
    pub fn of(shared: &Shared) -> Option<Arc<Self>> {
        shared.get(Self::KEY)
    }

    /// Returns that of an element that is made.
    pub(super) fn of_element(setup: &Setup<'_>) -> Arc<Self> {
        let copies = setup.copy().count();
        let make = || Ok::<_, Infallible>(Self::new(copies, Backend::best()));
        let Ok(database) = setup.shared().get_or_make(Self::KEY, make);
        database
    }

    /// Returns which library does the work.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    pub(super) fn reader(&self) -> Reader<Arc<Tables>> {
        self.readers.register()
    }

    /// Says what there is now. Associations that were there go on: they are the same if they are the same [`Arc`]. From the first
    /// association on the process leaves no core dumps.
    pub fn replace(&self, mut contents: Contents) {
        if !contents.associations.is_empty() {
            graph::files::leave_no_core_dump();
        }
        let mut writing = lock(&self.writing);
        // Numbers and windows of an association that is the same go on.
        for entry in contents.associations.iter_mut().filter(|entry| entry.text.is_some()) {
            let known = writing.contents.associations.iter().find(|known| known.text == entry.text);
            known.into_iter().for_each(|known| entry.association = known.association.clone());
        }
        let now = Instant::now();
        let there = identities(&contents.associations);
        let old = std::mem::take(&mut writing.contents.associations);
        let gone = old.into_iter().filter(|old| !there.contains(&Arc::as_ptr(&old.association)));
        let gone: Vec<_> = gone.map(|entry| (now, entry)).collect();
        writing.leaving.retain(|(since, _)| since.elapsed() < LEAVE);
        writing.leaving.extend(gone);
        let tables = Arc::new(self.compile(&mut writing, &contents));
        writing.contents = contents;
        publish(&mut writing, tables);
    }

    /// Lets go of associations that have been gone for a while, and their keys. It is to be called now and then.
    pub fn forget_gone(&self) {
        let is_over = |(since, _): &(Instant, Entry)| since.elapsed() >= LEAVE;
        let contents = {
            let writing = lock(&self.writing);
            writing.leaving.iter().any(is_over).then(|| writing.contents.clone())
        };
        contents.into_iter().for_each(|contents| self.replace(contents));
    }

    /// Says which addresses are the host's: what was sent to them is opened by Linux.
    pub fn set_own(&self, addresses: Vec<IpAddr>) {
        let mut writing = lock(&self.writing);
        writing.own = Arc::new(Own::new(addresses));
        let contents = writing.contents.clone();
        let tables = Arc::new(self.compile(&mut writing, &contents));
        publish(&mut writing, tables);
    }

    /// Returns the policies with what they met.
    pub fn policies(&self) -> Vec<PolicyCount> {
        let writing = lock(&self.writing);
        let count = |policy: &Policy| {
            let (packets, bytes) = met(&writing, policy);
            PolicyCount { policy: policy.clone(), packets, bytes }
        };
        writing.contents.policies.iter().map(count).collect()
    }

    fn compile(&self, writing: &mut Writing, contents: &Contents) -> Tables {
        let leaving = writing.leaving.iter().map(|(_, entry)| entry.clone());
        let all: Vec<Entry> = contents.associations.iter().cloned().chain(leaving).collect();
        let places = places(writing, &all);
        let candidates = candidates(&contents.associations, &places);
        let mut inbound = BySpi::default();
        for kept in &contents.kept {
            inbound.insert((kept.spi, kept.destination), Inbound::Linux);
        }
        let named = |direction: Direction| -> HashSet<PeerId> {
            let of = contents.policies.iter().filter(|policy| policy.direction == direction);
            of.flat_map(|policy| fitting(policy, &candidates)).map(|candidate| candidate.peer).collect()
        };
        let (sends, receives) = (named(Direction::Out), named(Direction::Forward));
        // Whoever reflects what we sent must not have it opened here.
        let opens = |place: &&Place| receives.contains(&place.peer) || !sends.contains(&place.peer);
        let there = identities(&contents.associations);
        let is_there = |place: &&Place| there.contains(&Arc::as_ptr(&place.association));
        for place in places.iter().flatten().filter(opens).filter(is_there) {
            let settings = place.association.settings();
            // Nobody looks for ESP at other ports.
            let is_found = settings.udp.is_none_or(|ports| ports.destination == NAT_TRAVERSAL_PORT);
            let whose = if is_found { Inbound::Ours(place.id) } else { Inbound::Linux };
            inbound.insert((settings.spi, settings.endpoints.destination()), whose);
        }
        let same = writing.contents.policies == contents.policies;
        if !same {
            let old = std::mem::take(&mut writing.contents.policies);
            let of_old = old.iter().map(|policy| (key(policy), met_by(writing, &old, policy))).collect();
            writing.carried = of_old;
        }
        let policies = |direction: Direction, discards: bool, old: &Policies| {
            let mut rules = Vec::new();
            let mut selectors = Vec::new();
            let mut steps = Vec::new();
            for policy in contents.policies.iter().filter(|policy| policy.direction == direction) {
                let Some(rule) = policy.selector.rule(rules.len() as u32) else { continue };
                rules.push(rule);
                selectors.push(&policy.selector);
                steps.push(step(policy, &candidates));
            }
            // Rather none than those of some policies.
            let is_too_long = rules.len() > MAX_RULES;
            if is_too_long {
                rules.clear();
                selectors.clear();
                steps.clear();
            }
            steps.push(if discards || is_too_long { Step::Discard } else { Step::Pass });
            let asks_ports = selectors.iter().any(|selector| selector.asks_ports());
            let list = if same { old.list.clone() } else { list(&rules, self.copies) };
            Policies { list, few: Few::new(selectors.into_iter()), asks_ports, steps: steps.into() }
        };
        let [discards_out, discards_forwarded] = contents.discards;
        Tables {
            out: policies(Direction::Out, discards_out, &writing.tables.out),
            forward: policies(Direction::Forward, discards_forwarded, &writing.tables.forward),
            inbound,
            takes_esp: contents.takes_esp,
            places,
            own: writing.own.clone(),
        }
    }
}

fn publish(writing: &mut Writing, tables: Arc<Tables>) {
    *writing.writer.both().0 = tables.clone();
    writing.writer.publish();
    // The other copy too, so that nothing of the old tables stays.
    *writing.writer.both().0 = tables.clone();
    writing.tables = tables;
}

/// Returns what tells these associations from others.
fn identities(entries: &[Entry]) -> HashSet<*const Association> {
    entries.iter().map(|entry| Arc::as_ptr(&entry.association)).collect()
}

/// Gives every association a place: those that have one keep it.
fn places(writing: &mut Writing, entries: &[Entry]) -> Box<[Option<Place>]> {
    let old = writing.tables.clone();
    let known: HashMap<*const Association, AssociationId> =
        old.places.iter().flatten().map(|place| (Arc::as_ptr(&place.association), place.id)).collect();
    let mut places: Vec<Option<Place>> = Vec::new();
    places.resize_with(old.places.len().max(entries.len()).min(AssociationId::PLACES), || None);
    writing.generations.resize(places.len().max(writing.generations.len()), 0);
    let mut new = Vec::new();
    let mut peers = HashMap::new();
    for entry in entries {
        let settings = entry.association.settings();
        let key = (settings.endpoints, settings.mode, entry.request);
        let peer = *peers.entry(key).or_insert_with(|| {
            writing.peers.get(&key).copied().unwrap_or_else(|| {
                writing.next_peer += 1;
                writing.next_peer
            })
        });
        match known.get(&Arc::as_ptr(&entry.association)) {
            Some(id) => {
                let place = Place { id: *id, peer, association: entry.association.clone() };
                places[id.place()] = Some(place);
            }
            None => new.push((entry, peer)),
        }
    }
    writing.peers = peers;
    let mut free = 0;
    for (entry, peer) in new {
        while places.get(free).is_some_and(Option::is_some) {
            free += 1;
        }
        let Some(place) = places.get_mut(free) else { break };
        let generation = &mut writing.generations[free];
        *generation = generation.wrapping_add(1).max(1);
        let id = AssociationId::new(free, *generation);
        *place = Some(Place { id, peer, association: entry.association.clone() });
    }
    places.into()
}

/// The associations by what templates name.
fn candidates(entries: &[Entry], places: &[Option<Place>]) -> Candidates {
    let placed: HashMap<*const Association, &Place> =
        places.iter().flatten().map(|place| (Arc::as_ptr(&place.association), place)).collect();
    let mut candidates = Candidates::new();
    for entry in entries {
        let Some(place) = placed.get(&Arc::as_ptr(&entry.association)) else { continue };
        let settings = entry.association.settings();
        candidates.entry((settings.endpoints, settings.mode)).or_default().push(Candidate {
            request: entry.request,
            spi: settings.spi,
            peer: place.peer,
            id: place.id,
            is_usable: entry.association.age() != Age::Expired,
        });
    }
    candidates
}

/// The associations that fit a policy, the last installed last.
fn fitting<'a>(
    policy: &Policy,
    candidates: &'a Candidates,
) -> impl DoubleEndedIterator<Item = &'a Candidate> + use<'a> {
    let template = match &policy.action {
        PolicyAction::Protect(template) => Some(*template),
        _ => None,
    };
    let key = template.map(|template| (template.endpoints, template.mode));
    let alike = key.and_then(|key| candidates.get(&key)).map_or(&[][..], |alike| alike);
    alike.iter().filter(move |candidate| {
        let is_asked = |asked: u32, own: u32| asked == 0 || asked == own;
        template.is_some_and(|template| {
            is_asked(template.request, candidate.request) && is_asked(template.spi, candidate.spi)
        })
    })
}

/// What happens to packets of a policy.
fn step(policy: &Policy, candidates: &Candidates) -> Step {
    if let Some(step) = plain_step(&policy.action) {
        return step;
    }
    let PolicyAction::Protect(template) = &policy.action else { return Step::Linux };
    let fitting = fitting(policy, candidates);
    match policy.direction {
        // The last one that was installed, as long as it may be used.
        Direction::Out => {
            Step::Seal(fitting.rev().find(|candidate| candidate.is_usable).map(|candidate| candidate.id))
        }
        Direction::Forward => {
            let mut peers: Vec<PeerId> = fitting.map(|candidate| candidate.peer).collect();
            peers.sort_unstable();
            peers.dedup();
            Step::Opened { peers: peers.into(), is_optional: template.is_optional }
        }
    }
}

/// What a policy keeps while its associations change.
fn key(policy: &Policy) -> (Direction, Selector) {
    (policy.direction, policy.selector.clone())
}

/// What a policy met in all.
fn met(writing: &Writing, policy: &Policy) -> (u64, u64) {
    met_by(writing, &writing.contents.policies, policy)
}

/// The same, where these are the policies of the lists in use.
fn met_by(writing: &Writing, policies: &[Policy], policy: &Policy) -> (u64, u64) {
    let (packets, bytes) = writing.carried.get(&key(policy)).copied().unwrap_or_default();
    let same =
        policies.iter().filter(|other| other.direction == policy.direction && other.selector.can_match());
    let Some(number) = same.clone().position(|other| other == policy) else { return (packets, bytes) };
    let list = match policy.direction {
        Direction::Out => &writing.tables.out.list,
        Direction::Forward => &writing.tables.forward.list,
    };
    let (more_packets, more_bytes) = list.counted(number);
    (packets.wrapping_add(more_packets), bytes.wrapping_add(more_bytes))
}
