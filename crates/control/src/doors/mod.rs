//! The door of every server: who is at the other end of a connection ([`Peer`]), and how many connections each may have
//! ([`Door`]).
//!
//! A user, and another host, has a share of a door's places. One place is kept for root, and one for the user who started this
//! process, so that nobody keeps these out. A connection that says nothing gives its place to one that comes.

mod peer;

use packet::sync::lock;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peer::trusted;
pub use peer::{Peer, remember_starter};

/// How long a connection may be silent before it gives its place to another one.
const SILENCE: Duration = Duration::from_secs(10);

/// Closes a connection that is silent.
pub type Close = Box<dyn Fn() + Send>;

/// The places of a server.
#[derive(Clone)]
pub struct Door {
    most: usize,
    silence: Duration,
    places: Arc<Mutex<Places>>,
}

#[derive(Default)]
struct Places {
    /// The number of the next connection.
    next: u64,
    /// There are no more than places.
    taken: HashMap<u64, Taken>,
}

struct Taken {
    peer: Peer,
    /// When it said something last.
    active: Instant,
    /// Without it the connection keeps its place until it ends.
    close: Option<Close>,
}

/// The place of a connection, until it is dropped.
pub struct Place {
    door: Door,
    number: u64,
}

impl Door {
    /// Returns a door with so many places, eight at least.
    pub fn new(most: usize) -> Door {
        Door { most: most.max(8), silence: SILENCE, places: Arc::default() }
    }

    /// Returns how many places one peer may have.
    pub fn share(&self, peer: Peer) -> usize {
        match peer {
            Peer::User(_) if peer.is_trusted() => self.most / 2,
            Peer::User(_) => self.most / 4,
            Peer::Host(_) | Peer::Unknown => self.most / 8,
        }
    }

    /// Gives a connection a place, unless its peer has its share, or only places are left that are kept for others. Silent
    /// connections give their places to it. They are closed by `close`, which must not call the door.
    pub fn admit(&self, peer: Peer, close: Option<Close>) -> Option<Place> {
        let mut places = lock(&self.places);
        let of_peer = |taken: &Taken| taken.peer == peer;
        if places.count(of_peer) >= self.share(peer) {
            places.end_silent(self.silence, of_peer)?;
        }
        let kept = BTreeSet::from(trusted()).into_iter();
        let kept = kept
            .map(Peer::User)
            .filter(|&kept| kept != peer && places.count(|taken| taken.peer == kept) == 0);
        if places.taken.len() + kept.count() >= self.most {
            places.end_silent(self.silence, |taken| !taken.peer.is_trusted() || of_peer(taken))?;
        }
        let number = places.next;
        places.next += 1;
        places.taken.insert(number, Taken { peer, active: Instant::now(), close });
        Some(Place { door: self.clone(), number })
    }
}

impl Places {
    fn count(&self, which: impl Fn(&Taken) -> bool) -> usize {
        self.taken.values().filter(|&taken| which(taken)).count()
    }

    /// Ends the connection among some that has said nothing for longest, and for longer than this.
    fn end_silent(&mut self, silence: Duration, which: impl Fn(&Taken) -> bool) -> Option<()> {
        let silent = self
            .taken
            .iter()
            .filter(|(_, taken)| which(taken) && taken.close.is_some() && taken.active.elapsed() >= silence);
        let number = *silent.min_by_key(|(_, taken)| taken.active)?.0;
        let close = self.taken.remove(&number)?.close?;
        close();
        Some(())
    }
}

impl Place {
    /// Records that the connection sent something.
    pub fn note_activity(&self) {
        if let Some(taken) = lock(&self.door.places).taken.get_mut(&self.number) {
            taken.active = Instant::now();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.door.places).taken.remove(&self.number);
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("number", &self.number).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const NOBODY: Peer = Peer::User(65_534);
    const ROOT: Peer = Peer::User(0);

    fn fill(door: &Door, peer: Peer) -> Vec<Place> {
        std::iter::from_fn(|| door.admit(peer, None)).collect()
    }

    #[test]
    fn nobody_keeps_others_out_however_many_connections_he_makes() {
        let door = Door::new(64);
        let held = fill(&door, NOBODY);
        assert_eq!(held.len(), 16);
        let other = Peer::Host("192.0.2.1".parse().unwrap());
        assert_eq!((fill(&door, other).len(), fill(&door, Peer::Unknown).len()), (8, 8));
        assert_eq!(fill(&door, ROOT).len(), 32);
        drop(held);
        assert_eq!(fill(&door, NOBODY).len(), 16);
        // Many users together.
        let all: Vec<Vec<Place>> = (1_000..1_010).map(|user| fill(&door, Peer::User(user))).collect();
        let taken: usize = all.iter().map(Vec::len).sum();
        assert!((62..64).contains(&taken), "{taken}");
        assert!(door.admit(NOBODY, None).is_none());
        assert!(door.admit(ROOT, None).is_some());
        drop(all);
        assert!(lock(&door.places).taken.is_empty(), "what is gone is forgotten");
    }

    #[test]
    fn the_silent_give_their_places_away() {
        let door = Door { silence: Duration::ZERO, ..Door::new(64) };
        let closed = Arc::new(AtomicUsize::new(0));
        let close = || {
            let closed = closed.clone();
            Some(Box::new(move || {
                closed.fetch_add(1, Ordering::SeqCst);
            }) as Close)
        };
        let held: Vec<Place> = (0..16).map(|_| door.admit(NOBODY, close()).unwrap()).collect();
        let more = door.admit(NOBODY, close()).unwrap();
        assert_eq!(closed.load(Ordering::SeqCst), 1);
        assert_eq!(lock(&door.places).taken.len(), 16);
        drop((held, more));
        let door = Door::new(64);
        let _held: Vec<Place> = (0..16).map(|_| door.admit(NOBODY, close()).unwrap()).collect();
        assert!(door.admit(NOBODY, close()).is_none(), "these were heard a moment ago");
    }
}
