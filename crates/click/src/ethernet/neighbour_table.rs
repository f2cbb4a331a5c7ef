//! The neighbours of one network: the table that all copies of an `ARPQuerier` or an `IP6NDSolicitor` share, or several
//! `ARPQuerier`s with one `ARPTable`.
//!
//! It is behind a lock and used only where a copy's own table ([`super::next_hop_cache`]) does not know
//! better: for addresses that are not resolved yet, for answers, when an entry is about to expire. Every
//! change of what packets need to know raises [`NeighbourTable::generation`]; copies look at that number and
//! catch up with [`NeighbourTable::catch_up`], which tells them the last few changes one by one.

use packet::sync::lock;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use packet::wire::ethernet::MacAddr;

use super::address::Address;

/// Shortest time between two queries for an address. RFC 1122, 2.3.2.1: "The recommended maximum rate is 1
/// per second per destination." RFC 4861, 10: RETRANS_TIMER is 1,000 milliseconds.
pub(super) const QUERY_INTERVAL_NS: u64 = 1_000_000_000;

/// How long an address that does not answer is remembered after the last query for it.
const SILENT_NS: u64 = 4 * QUERY_INTERVAL_NS;

/// Changes that are passed on one by one; a copy that is further behind reads the whole table.
const MOST_CHANGES: usize = 256;

/// What the configuration says of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most entries, those without an answer included; 0: any number.
    pub(super) entries: usize,
    /// How long an entry lives after its last confirmation; 0: for ever.
    pub(super) timeout_ns: u64,
    /// After how long its neighbour is asked again; 0: never.
    pub(super) poll_timeout_ns: u64,
}

/// What is known of an address.
#[derive(Clone, Copy, Debug)]
struct Neighbour {
    mac: Option<MacAddr>,
    /// When it was made or last confirmed.
    live_at_ns: u64,
    /// When it was last asked for, if ever since it was confirmed.
    queried_at_ns: Option<u64>,
}

/// What a copy needs to know of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Its Ethernet address.
    pub(super) mac: MacAddr,
    /// Until when that may be used without asking again.
    pub(super) ask_at_ns: u64,
}

/// Answer of the table to a copy that has a packet for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Use this.
    Known(Known),
    /// Use this, and send the neighbour a query, since it was not heard of for long.
    Poll(Known),
    /// Send a query, and let the packet wait.
    Query,
    /// A query is under way; ask again at this time if nothing came.
    Wait(u64),
}

/// What a packet says of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim<A> {
    /// Whom it is about.
    pub(super) address: A,
    /// Where it is; `None` where it was.
    pub(super) mac: Option<MacAddr>,
    /// Whether that takes the place of what is known.
    pub(super) overrides: bool,
    /// Whether it shows that packets reach the neighbour.
    pub(super) confirms: bool,
}

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Learned {
    /// It is about a neighbour that was asked for or known.
    Yes,
    /// Nobody asked for that neighbour.
    Unsolicited,
    /// It does not say where the neighbour is, and nobody knows.
    NoAddress,
}

#[derive(Debug)]
struct State<A> {
    neighbours: HashMap<A, Neighbour>,
    /// Resolved or not, time of the last query or confirmation, address: the first goes first.
    by_age: BTreeSet<(bool, u64, A)>,
    /// The addresses of the last changes, the latest at the end.
    changes: VecDeque<A>,
}

/// The table. Counters are sums over all copies.
#[derive(Debug)]
pub(super) struct NeighbourTable<A> {
    limits: Limits,
    /// As in `limits`, unless a querier says otherwise.
    poll_timeout_ns: AtomicU64,
    state: Mutex<State<A>>,
    generation: Arc<AtomicU64>,
    /// Packets that wait in any copy.
    pub(super) waiting: AtomicUsize,
    /// Queries sent.
    pub(super) queries: AtomicU64,
    /// Answers received.
    pub(super) responses: AtomicU64,
    /// Packets dropped.
    pub(super) drops: AtomicU64,
}

impl Neighbour {
    fn place<A>(&self, address: A) -> (bool, u64, A) {
        match self.mac {
            Some(_) => (true, self.live_at_ns, address),
            None => (false, self.queried_at_ns.unwrap_or(self.live_at_ns), address),
        }
    }

    fn may_query(&self, now_ns: u64) -> bool {
        self.queried_at_ns.is_none_or(|at| now_ns >= at.saturating_add(QUERY_INTERVAL_NS))
    }

    fn expires_at_ns(&self, limits: &Limits) -> u64 {
        if limits.timeout_ns == 0 { u64::MAX } else { self.live_at_ns.saturating_add(limits.timeout_ns) }
    }

    fn known(&self, limits: &Limits) -> Option<Known> {
        let poll_at_ns = match (limits.poll_timeout_ns, self.queried_at_ns) {
            (0, _) => u64::MAX,
            (timeout, None) => self.live_at_ns.saturating_add(timeout),
            (_, Some(at)) => at.saturating_add(QUERY_INTERVAL_NS),
        };
        let ask_at_ns = poll_at_ns.min(self.expires_at_ns(limits)).max(1);
        Some(Known { mac: self.mac?, ask_at_ns })
    }
}

impl<A: Address> State<A> {
    fn edit(&mut self, address: A, neighbour: Neighbour) {
        if let Some(old) = self.neighbours.insert(address, neighbour) {
            self.by_age.remove(&old.place(address));
        }
        self.by_age.insert(neighbour.place(address));
    }

    fn remove(&mut self, address: A) -> Option<Neighbour> {
        let old = self.neighbours.remove(&address)?;
        self.by_age.remove(&old.place(address));
        Some(old)
    }

    /// Makes room for one more entry: what does not answer goes first, then what was not heard of for
    /// longest.
    fn make_room(&mut self, limits: &Limits, changed: &mut Vec<A>) {
        while limits.entries != 0
            && self.neighbours.len() >= limits.entries
            && let Some(&(resolved, _, address)) = self.by_age.first()
        {
            self.remove(address);
            if resolved {
                changed.push(address);
            }
        }
    }
}

impl<A: Address> NeighbourTable<A> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            poll_timeout_ns: limits.poll_timeout_ns.into(),
            state: Mutex::new(State {
                neighbours: HashMap::new(),
                by_age: BTreeSet::new(),
                changes: VecDeque::new(),
            }),
            generation: Arc::default(),
            waiting: AtomicUsize::new(0),
            queries: AtomicU64::new(0),
            responses: AtomicU64::new(0),
            drops: AtomicU64::new(0),
        }
    }

    fn limits(&self) -> Limits {
        Limits { poll_timeout_ns: self.poll_timeout_ns.load(Relaxed), ..self.limits }
    }

    /// Has neighbours that are in use asked again after another time.
    pub(super) fn set_poll_timeout(&self, poll_timeout_ns: u64) {
        self.poll_timeout_ns.store(poll_timeout_ns, Relaxed);
    }

    /// Raised by every change that copies have to hear of.
    #[inline(always)]
    pub(super) fn generation(&self) -> u64 {
        // What changed is read under the lock, so nothing has to be ordered by this load.
        self.generation.load(Relaxed)
    }

    /// Where [`NeighbourTable::generation`] is, for those who look at it often.
    pub(super) fn generation_cell(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.generation)
    }

    fn lock(&self) -> MutexGuard<'_, State<A>> {
        lock(&self.state)
    }

    fn note_changes(&self, state: &mut State<A>, addresses: &[A]) {
        for &address in addresses {
            if state.changes.len() == MOST_CHANGES {
                state.changes.pop_front();
            }
            state.changes.push_back(address);
        }
        self.generation.fetch_add(addresses.len() as u64, Relaxed);
    }

    /// What to do with a packet for `address`. An answer that asks for a query is given to one copy only.
    pub(super) fn ask(&self, address: A, now_ns: u64) -> Answer {
        let mut state = self.lock();
        let old = state.neighbours.get(&address).copied();
        if let Some(mut neighbour) = old.filter(|old| now_ns < old.expires_at_ns(&self.limits()))
            && let Some(known) = neighbour.known(&self.limits())
        {
            if now_ns < known.ask_at_ns {
                return Answer::Known(known);
            }
            neighbour.queried_at_ns = Some(now_ns);
            state.edit(address, neighbour);
            return match neighbour.known(&self.limits()) {
                Some(known) => Answer::Poll(known),
                None => Answer::Query,
            };
        }
        let mut neighbour = match old {
            Some(old) => Neighbour { mac: None, ..old },
            None => Neighbour { mac: None, live_at_ns: now_ns, queried_at_ns: None },
        };
        if !neighbour.may_query(now_ns) {
            let at = neighbour.queried_at_ns.unwrap_or(now_ns);
            state.edit(address, neighbour);
            return Answer::Wait(at.saturating_add(QUERY_INTERVAL_NS));
        }
        neighbour.queried_at_ns = Some(now_ns);
        let mut changed = Vec::new();
        if old.is_none() {
            state.make_room(&self.limits(), &mut changed);
        }
        state.edit(address, neighbour);
        self.note_changes(&mut state, &changed);
        Answer::Query
    }

    /// Takes in a claim about an address that somebody asked for or that is known.
    pub(super) fn learn(&self, claim: Claim<A>, now_ns: u64) -> Learned {
        let Claim { address, mac, overrides, confirms } = claim;
        let mut state = self.lock();
        // RFC 826, "Packet Reception": "If the pair <protocol type, sender protocol address> is already in my
        // translation table, update the sender hardware address field of the entry". RFC 4861, 7.2.5: "If no
        // entry exists, the advertisement SHOULD be silently discarded."
        let Some(old) = state.neighbours.get(&address).copied() else { return Learned::Unsolicited };
        let Some(said) = mac.or(old.mac) else { return Learned::NoAddress };
        let is_new = old.mac != Some(said);
        // RFC 4861, 7.2.5: if the override flag is clear and the address differs, it "MUST NOT update the
        // cache".
        if old.mac.is_some() && (is_new && !overrides || !is_new && !confirms) {
            return Learned::Yes;
        }
        let live_at_ns = if confirms || old.mac.is_none() { now_ns } else { old.live_at_ns };
        state.edit(address, Neighbour { mac: Some(said), live_at_ns, queried_at_ns: None });
        let expired = now_ns >= old.expires_at_ns(&self.limits());
        if is_new || expired {
            self.note_changes(&mut state, &[address]);
        }
        Learned::Yes
    }

    /// Takes in that `address` is at `mac`, on the user's word.
    pub(super) fn insert(&self, address: A, mac: MacAddr, now_ns: u64) {
        let mut state = self.lock();
        let mut changed = Vec::new();
        if !state.neighbours.contains_key(&address) {
            state.make_room(&self.limits(), &mut changed);
        }
        changed.push(address);
        state.edit(address, Neighbour { mac: Some(mac), live_at_ns: now_ns, queried_at_ns: None });
        self.note_changes(&mut state, &changed);
    }

    /// Takes in what another table knows and this one does not, and what it counted: it takes that one's place.
    pub(super) fn take_from(&self, other: &Self) {
        if std::ptr::eq(self, other) {
            return;
        }
        let known: Vec<(A, Neighbour)> = {
            let old = other.lock();
            // The oldest first, so that those go for which there is no room.
            let by_age = old.by_age.iter().map(|&(_, _, address)| address);
            by_age.filter_map(|address| Some((address, *old.neighbours.get(&address)?))).collect()
        };
        let mut state = self.lock();
        let mut changed = Vec::new();
        for (address, neighbour) in known {
            if !state.neighbours.contains_key(&address) {
                state.make_room(&self.limits(), &mut changed);
                state.edit(address, neighbour);
                changed.push(address);
            }
        }
        self.note_changes(&mut state, &changed);
        let counters = [
            (&self.queries, &other.queries),
            (&self.responses, &other.responses),
            (&self.drops, &other.drops),
        ];
        for (own, others) in counters {
            own.fetch_add(others.swap(0, Relaxed), Relaxed);
        }
    }

    /// Forgets `address`.
    pub(super) fn delete(&self, address: A) {
        let mut state = self.lock();
        if state.remove(address).is_some() {
            self.note_changes(&mut state, &[address]);
        }
    }

    /// Forgets everything and sets the counters to zero.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        let addresses: Vec<A> = state.neighbours.keys().copied().collect();
        state.neighbours.clear();
        state.by_age.clear();
        self.note_changes(&mut state, &addresses);
        for counter in [&self.queries, &self.responses, &self.drops] {
            counter.store(0, Relaxed);
        }
    }

    /// Takes out what expired or does not answer. Copies find out by themselves, as headers run out in their
    /// own tables at the same time.
    pub(super) fn expire(&self, now_ns: u64) {
        let mut state = self.lock();
        let limits = &self.limits();
        let first_resolved = (true, 0, A::NOBODY);
        while let Some(&(false, at_ns, address)) = state.by_age.first()
            && now_ns >= at_ns.saturating_add(SILENT_NS)
        {
            state.remove(address);
        }
        while limits.timeout_ns != 0
            && let Some(&(_, at_ns, address)) = state.by_age.range(first_resolved..).next()
            && now_ns >= at_ns.saturating_add(limits.timeout_ns)
        {
            state.remove(address);
        }
    }

    /// Tells all that changed since generation `seen`: `begin_anew` first if that is the whole table, then
    /// each address with what is known of it. Returns the generation that is reached.
    pub(super) fn catch_up<T>(
        &self,
        seen: u64,
        teller: &mut T,
        begin_anew: impl FnOnce(&mut T),
        mut tell: impl FnMut(&mut T, A, Option<Known>),
    ) -> u64 {
        let state = self.lock();
        let generation = self.generation();
        let behind = usize::try_from(generation.wrapping_sub(seen)).unwrap_or(usize::MAX);
        if behind > state.changes.len() {
            begin_anew(teller);
            for (&address, neighbour) in &state.neighbours {
                tell(teller, address, neighbour.known(&self.limits()));
            }
        } else {
            for address in state.changes.range(state.changes.len() - behind..) {
                let neighbour = state.neighbours.get(address);
                tell(teller, *address, neighbour.and_then(|neighbour| neighbour.known(&self.limits())));
            }
        }
        generation
    }

    /// Number of entries, those without an answer included.
    pub(super) fn count(&self) -> usize {
        self.lock().neighbours.len()
    }

    /// One line an entry, oldest first: address, whether it is resolved, Ethernet address, seconds since it
    /// was confirmed.
    pub(super) fn text(&self, now_ns: u64) -> String {
        let state = self.lock();
        let mut entries: Vec<_> = state.neighbours.iter().collect();
        entries.sort_by_key(|(address, neighbour)| (neighbour.live_at_ns, **address));
        let mut text = String::new();
        for (&address, neighbour) in entries {
            let known = neighbour.mac.is_some() && now_ns < neighbour.expires_at_ns(&self.limits());
            let mac = neighbour.mac.unwrap_or(MacAddr::BROADCAST);
            let age_us = now_ns.saturating_sub(neighbour.live_at_ns) / 1000;
            let (seconds, micros) = (age_us / 1_000_000, age_us % 1_000_000);
            // Writing into a string does not fail.
            let _ =
                writeln!(text, "{} {} {mac} {seconds}.{micros:06}", A::Ip::from(address), u8::from(known));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const LIMITS: Limits = Limits { entries: 3, timeout_ns: 300 * SECOND, poll_timeout_ns: 60 * SECOND };
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn from(address: u32, mac: MacAddr) -> Claim<u32> {
        Claim { address, mac: Some(mac), overrides: true, confirms: true }
    }

    #[test]
    fn one_query_a_second_then_known_then_polled_then_gone() {
        let table = NeighbourTable::<u32>::new(LIMITS);
        assert_eq!(table.ask(7, SECOND), Answer::Query);
        assert_eq!(table.ask(7, SECOND + 5), Answer::Wait(2 * SECOND));
        assert_eq!(table.ask(7, 2 * SECOND), Answer::Query);
        assert_eq!(table.learn(from(7, MAC), 3 * SECOND), Learned::Yes);
        let known = Known { mac: MAC, ask_at_ns: 63 * SECOND };
        assert_eq!(table.ask(7, 62 * SECOND), Answer::Known(known));
        let later = |seconds: u64| Known { mac: MAC, ask_at_ns: seconds * SECOND };
        assert_eq!(table.ask(7, 63 * SECOND), Answer::Poll(later(64)));
        assert_eq!(table.ask(7, 63 * SECOND + 1), Answer::Known(later(64)));
        assert_eq!(table.ask(7, 302 * SECOND), Answer::Poll(later(303)));
        // RFC 1122, 2.3.2.1: out of date entries have to go.
        assert_eq!(table.ask(7, 303 * SECOND), Answer::Query);
    }

    #[test]
    fn only_what_was_asked_for_is_learned() {
        let table = NeighbourTable::<u32>::new(LIMITS);
        assert_eq!(table.learn(from(7, MAC), 0), Learned::Unsolicited);
        assert_eq!(table.count(), 0);
    }

    #[test]
    fn silent_entries_make_room_first() {
        let table = NeighbourTable::<u32>::new(LIMITS);
        table.insert(1, MAC, 0);
        table.ask(2, 1);
        table.insert(3, MAC, 2);
        table.ask(4, 3);
        assert_eq!(table.count(), 3);
        assert_eq!(table.learn(from(2, MAC), 4), Learned::Unsolicited);
        table.insert(5, MAC, 5);
        table.ask(6, 6);
        // 4 went for 5, then 1 as the oldest for 6.
        let text = table.text(6);
        assert_eq!(
            text,
            "0.0.0.3 1 02-00-00-00-00-01 0.000000\n0.0.0.5 1 02-00-00-00-00-01 0.000000\n\
             0.0.0.6 0 FF-FF-FF-FF-FF-FF 0.000000\n"
        );
    }

    #[test]
    fn expiry() {
        let table = NeighbourTable::<u32>::new(LIMITS);
        table.insert(1, MAC, 0);
        table.ask(2, 0);
        table.expire(4 * SECOND - 1);
        assert_eq!(table.count(), 2);
        table.expire(4 * SECOND);
        assert_eq!(table.count(), 1);
        table.expire(300 * SECOND - 1);
        assert_eq!(table.count(), 1);
        table.expire(300 * SECOND);
        assert_eq!(table.count(), 0);
        assert!(table.lock().by_age.is_empty());
    }

    proptest! {
        /// A copy that catches up now and then knows what the table knows.
        #[test]
        fn copies_catch_up(acts in proptest::collection::vec((0u8..8, 1u32..400, any::<u8>()), 0..1500)) {
            let table = NeighbourTable::new(Limits { entries: 200, timeout_ns: 0, poll_timeout_ns: 0 });
            let mut copy: HashMap<u32, MacAddr> = HashMap::new();
            let mut seen = 0;
            for (number, (act, address, tag)) in acts.into_iter().enumerate() {
                let mac = MacAddr([2, 0, 0, 0, 0, tag % 4]);
                match act {
                    0 | 1 => { table.ask(address, number as u64); }
                    2 | 3 => { table.learn(from(address, mac), number as u64); }
                    4 | 5 => table.insert(address, mac, number as u64),
                    6 => table.delete(address),
                    _ if tag == 0 => table.clear(),
                    _ => {
                        let tell = |copy: &mut HashMap<u32, MacAddr>, address, known: Option<Known>| {
                            match known {
                                Some(known) => copy.insert(address, known.mac),
                                None => copy.remove(&address),
                            };
                        };
                        seen = table.catch_up(seen, &mut copy, HashMap::clear, tell);
                        prop_assert_eq!(seen, table.generation());
                        let state = table.lock();
                        let resolved: HashMap<u32, MacAddr> =
                            state.neighbours.iter().filter_map(|(a, n)| Some((*a, n.mac?))).collect();
                        prop_assert_eq!(&copy, &resolved);
                        prop_assert_eq!(state.by_age.len(), state.neighbours.len());
                        prop_assert!(state.neighbours.len() <= 200);
                    }
                }
            }
        }
    }
}
