//! How a frame for the host comes past the port that is on its interface.
//!
//! What a `host:` port gives to the kernel enters the stack by the interface again, where a port of ours may wait for
//! just such frames. AF_XDP ports in generic mode and AF_PACKET ports with `steer=transit` register here while they are
//! attached; those in native mode work before that place, and need nothing. The table is read once a batch.

use packet::sync::lock;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// What the frame needs (`bpf/passage.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// Nobody of ours would take it.
    Free,
    /// A mark on the packet.
    Marked,
    /// A seal in the frame.
    Sealed,
}

/// A port's entry, which goes with it.
#[derive(Debug)]
pub(crate) struct Entry {
    number: u64,
}

struct Row {
    number: u64,
    namespace: u64,
    index: u32,
    passage: Passage,
}

/// The number of the last entry, and the entries that are there.
static TABLE: Mutex<(u64, Vec<Row>)> = Mutex::new((0, Vec::new()));

fn table() -> MutexGuard<'static, (u64, Vec<Row>)> {
    lock(&TABLE)
}

/// Says what frames need to come past our port on an interface of a network namespace.
pub(crate) fn enter(namespace: u64, index: u32, passage: Passage) -> Entry {
    let (last, rows) = &mut *table();
    *last += 1;
    rows.push(Row { number: *last, namespace, index, passage });
    Entry { number: *last }
}

/// What a frame needs for this interface.
pub(super) fn of(namespace: u64, index: u32) -> Passage {
    let (_, rows) = &*table();
    // The newest: while a port moves to another mode its old entry is there still.
    let row = rows.iter().rev().find(|row| (row.namespace, row.index) == (namespace, index));
    row.map_or(Passage::Free, |row| row.passage)
}

impl Drop for Entry {
    fn drop(&mut self) {
        table().1.retain(|row| row.number != self.number);
    }
}

/// The bytes by which the programs of this process know its sealed frames: no other host can guess them.
pub(crate) fn seal() -> [u8; 6] {
    static SEAL: OnceLock<[u8; 6]> = OnceLock::new();
    *SEAL.get_or_init(|| {
        // The standard library keys its hashes at random.
        let [_, _, seal @ ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
        seal
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entry_counts_while_it_is_there() {
        let namespace = u64::MAX;
        assert_eq!(of(namespace, 3), Passage::Free);
        let old = enter(namespace, 3, Passage::Sealed);
        let new = enter(namespace, 3, Passage::Marked);
        let other = enter(namespace - 1, 3, Passage::Sealed);
        assert_eq!((of(namespace, 3), of(namespace, 4)), (Passage::Marked, Passage::Free));
        drop((old, other));
        assert_eq!(of(namespace, 3), Passage::Marked);
        drop(new);
        assert_eq!(of(namespace, 3), Passage::Free);
        assert_eq!(seal(), seal());
    }
}
