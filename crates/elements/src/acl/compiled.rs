//! The rules of one family, as batches of packets meet them.
//!
//! ```text
//!  source ------> intervals --.
//!  destination -> intervals --+                           known?
//!  source port -> intervals --+    pairs of classes     .---------.
//!  dest. port --> intervals --+--> [a * n + b] -> class + bit     +-> lowest bit -> rule
//!  kind --------> array ------+                         ' vectors '
//!  input -------> array ------'
//! ```
//!
//! Each field of a packet gets its class, and `first_match` finds the rule by these.
//!
//! All steps are loops over the batch, and short, so that the loads of its packets overlap.

use packet::{MAX_BATCH, Packet};
use ports::KernelRules;

use super::facts;
use super::family::AclFamily;
use super::intervals::Intervals;
use super::list::Count;
use crate::first_match::{COLUMNS, Columns, Decision, End, SearchRoom};

/// The columns of a packet's fields.
pub(super) const SOURCE: usize = 0;
pub(super) const DESTINATION: usize = 1;
pub(super) const SOURCE_PORT: usize = 2;
pub(super) const DESTINATION_PORT: usize = 3;
pub(super) const KIND: usize = 4;
pub(super) const INPUT: usize = 5;

const _: () = assert!(INPUT < COLUMNS);

/// What the list says of a packet: twice the number of the rule, and 1 if it permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer(u32);

impl Answer {
    /// No rule: a flaw of the packet decides.
    pub(crate) const FLAWED: Self = Self(u32::MAX - 1);

    pub(super) fn new(rule: usize, permits: bool) -> Self {
        Self((rule as u32) << 1 | u32::from(permits))
    }

    /// The number of the rule in the list, which for the default is that of its rules.
    #[inline(always)]
    pub(crate) fn rule(self) -> usize {
        (self.0 >> 1) as usize
    }

    #[inline(always)]
    pub(super) fn permits(self) -> bool {
        self.0 & 1 != 0
    }
}

/// An array by class or value, for the column of a field.
pub(super) struct Lookup {
    pub(super) column: usize,
    pub(super) classes: Box<[u16]>,
}

/// The rules of a family, compiled.
pub(super) struct Compiled<A: AclFamily> {
    /// Of source and destination, where rules ask for these.
    pub(super) prefixes: [Option<Intervals<A>>; 2],
    /// Of source and destination ports, or of the type and code in their place, where rules ask for these.
    pub(super) ports: [Option<fib::Intervals<u16>>; 2],
    pub(super) lookups: Vec<Lookup>,
    pub(super) decision: Decision,
    /// What the rules of this family answer, and behind them what the default does.
    pub(super) answers: Box<[Answer]>,
    /// Whether a rule asks for a protocol, and for a transport header.
    pub(super) needs_protocol: bool,
    pub(super) needs_transport: bool,
    /// Whether the fragments of a packet are judged alike: the first one without its transport header too.
    pub(super) fragments_alike: bool,
}

/// What became of a batch.
pub(super) struct Tally {
    /// Packets that were judged, those with a flaw among them.
    pub(super) judged: usize,
    pub(super) permitted: usize,
}

/// Room for one batch of a family.
pub(super) struct Room<A> {
    addresses: [[A; MAX_BATCH]; 2],
    ports: [[u16; MAX_BATCH]; 2],
    columns: Columns,
    found: [u16; MAX_BATCH],
    places: [u8; MAX_BATCH],
    lengths: [u16; MAX_BATCH],
    search: SearchRoom,
}

impl<A: AclFamily> Room<A> {
    pub(super) fn new() -> Self {
        Self {
            addresses: [[A::MIN; MAX_BATCH]; 2],
            ports: [[0; MAX_BATCH]; 2],
            columns: [[0; MAX_BATCH]; COLUMNS],
            found: [0; MAX_BATCH],
            places: [0; MAX_BATCH],
            lengths: [0; MAX_BATCH],
            search: SearchRoom::new(),
        }
    }
}

impl<A: AclFamily> Compiled<A> {
    /// Judges the packets of this family and counts them, and leaves the answers of the others alone. `copy` is
    /// the copy of the element that asks, and `counts` are its counts.
    pub(super) fn judge(
        &self,
        copy: usize,
        packets: &[Packet],
        counts: &[Count],
        room: &mut Room<A>,
        answers: &mut [Answer],
    ) -> Tally {
        let (count, flawed) = self.gather(packets, room, answers);
        let Room { addresses, ports, columns, found, places, lengths, search } = room;
        for (field, intervals) in self.prefixes.iter().enumerate() {
            if let Some(intervals) = intervals {
                intervals.lookup_batch(&addresses[field][..count], &mut columns[field][..count]);
            }
        }
        for ((column, ports), intervals) in
            [SOURCE_PORT, DESTINATION_PORT].into_iter().zip(&*ports).zip(&self.ports)
        {
            if let Some(intervals) = intervals {
                intervals.lookup_batch(&ports[..count], |port| *port, &mut columns[column][..count]);
            }
        }
        for Lookup { column, classes } in &self.lookups {
            for value in &mut columns[*column][..count] {
                *value = classes[usize::from(*value)];
            }
        }
        let found = &mut found[..count];
        self.decision.run(copy, columns, search, found);
        let mut permitted = 0;
        for ((&found, &place), &length) in found.iter().zip(&*places).zip(&*lengths) {
            let answer = self.answers[usize::from(found)];
            counts[answer.rule()].add(usize::from(length));
            permitted += usize::from(answer.permits());
            answers[usize::from(place)] = answer;
        }
        Tally { judged: count + flawed, permitted }
    }

    /// Reads the headers of this family. Returns how many can be looked up, and how many have a flaw.
    #[inline(always)]
    fn gather(&self, packets: &[Packet], room: &mut Room<A>, answers: &mut [Answer]) -> (usize, usize) {
        let mut count = 0;
        let mut flawed = 0;
        for (place, packet) in packets.iter().enumerate().take(MAX_BATCH) {
            if facts::version(packet) != Some(A::VERSION.number()) {
                continue;
            }
            let facts = A::facts(packet).map(|(source, destination, facts)| {
                let facts = if self.fragments_alike { facts.of_all_fragments() } else { facts };
                (source, destination, facts)
            });
            let facts = facts.filter(|(.., facts)| {
                let asked =
                    |flaw: facts::Flaw| self.needs_transport || self.needs_protocol && flaw.hides_protocol();
                !facts.flaw.is_some_and(asked)
            });
            let Some((source, destination, facts)) = facts else {
                answers[place] = Answer::FLAWED;
                flawed += 1;
                continue;
            };
            let at = count % MAX_BATCH;
            room.addresses[SOURCE][at] = source;
            room.addresses[DESTINATION][at] = destination;
            room.ports[0][at] = facts.source_port;
            room.ports[1][at] = facts.destination_port;
            room.columns[KIND][at] = facts.kind;
            room.columns[INPUT][at] = u16::from(packet.annotations().paint());
            room.places[at] = place as u8;
            room.lengths[at] = packet.network().map_or(0, <[u8]>::len) as u16;
            count += 1;
        }
        (count, flawed)
    }

    /// The same for the program in the kernel, which judges whole packets with a transport header and leaves others.
    pub(super) fn in_kernel(&self) -> KernelRules {
        let mut rules = KernelRules::default();
        for (column, intervals) in self.prefixes.iter().enumerate() {
            if let Some(intervals) = intervals {
                A::tell_intervals(&mut rules, column, intervals);
            }
        }
        for (column, intervals) in [SOURCE_PORT, DESTINATION_PORT].into_iter().zip(&self.ports) {
            if let Some(intervals) = intervals {
                rules.intervals(
                    column,
                    u16::BITS,
                    intervals.iter().map(|(last, class)| (last.into(), class)),
                );
            }
        }
        for Lookup { column, classes } in &self.lookups {
            rules.values(*column, classes);
        }
        for (columns, width, classes) in self.decision.steps() {
            rules.step(columns, width, classes);
        }
        match self.decision.end() {
            End::Direct { column, first } => {
                rules
                    .end_with_answers(*column, first.iter().map(|&found| self.answers[usize::from(found)].0));
            }
            End::Vectors(search) => {
                let answers: Vec<u32> = self.answers.iter().map(|answer| answer.0).collect();
                rules.end_with_vectors(search.vectors(), search.words(), &answers);
            }
        }
        rules
    }

    /// Bytes of memory that packets may touch.
    pub(super) fn memory_bytes(&self) -> usize {
        let prefixes: usize = self.prefixes.iter().flatten().map(Intervals::memory_bytes).sum();
        let lookups: usize = self.lookups.iter().map(|lookup| size_of_val(&*lookup.classes)).sum();
        let ports: usize = self.ports.iter().flatten().map(fib::Intervals::memory_bytes).sum();
        prefixes + ports + lookups + self.decision.memory_bytes() + size_of_val(&*self.answers)
    }
}
