//! Rules to what packets meet: classes of each field, and which fields become one.

use super::compiled::{
    Answer, Compiled, DESTINATION, DESTINATION_PORT, INPUT, KIND, Lookup, SOURCE, SOURCE_PORT,
};
use super::facts::{ESTABLISHED, KINDS, LATER};
use super::family::AclFamily;
use super::intervals::Intervals;
use super::rule::{Action, Rule};
use crate::first_match::{BitVectors, Classes, Decision, Field, set_bit};

/// Values of a field with 16 bits.
const VALUES: usize = 1 << 16;

/// Compiles the rules that are for the family `A`, for so many copies of the element. `default` is what packets
/// get that no rule matches.
pub(super) fn compile<A: AclFamily>(rules: &[Rule], default: Action, copies: usize) -> Compiled<A> {
    let is_ours = |rule: &Rule| rule.version.is_none_or(|version| version == A::VERSION);
    let ours: Vec<(usize, &Rule)> = rules.iter().enumerate().filter(|(_, rule)| is_ours(rule)).collect();
    let mut answers: Vec<Answer> =
        ours.iter().map(|(number, rule)| Answer::new(*number, rule.action == Action::Permit)).collect();
    answers.push(Answer::new(rules.len(), default == Action::Permit));
    let ours: Vec<&Rule> = ours.into_iter().map(|(_, rule)| rule).collect();

    let mut fields = Vec::new();
    let mut lookups = Vec::new();
    let mut prefixes = [None, None];
    for (column, table) in [SOURCE, DESTINATION].into_iter().zip(&mut prefixes) {
        let net =
            |rule: &Rule| if column == SOURCE { rule.source } else { rule.destination }.and_then(A::from_net);
        if let Some((built, vectors)) = prefix_classes::<A>(ours.iter().map(|rule| net(rule))) {
            *table = Some(built);
            fields.push(Field::new(column, vectors));
        }
    }
    let mut ports = [None, None];
    let source_ports = ours.iter().map(|rule| rule.source_ports.map(|ports| (ports.first, ports.last)));
    let by_range =
        [range_classes(source_ports), range_classes(ours.iter().map(|rule| destination_range(rule)))];
    for ((column, table), (built, vectors)) in
        [SOURCE_PORT, DESTINATION_PORT].into_iter().zip(&mut ports).zip(by_range)
    {
        // A field that no rule asks for says nothing.
        if vectors.len() > 1 {
            *table = Some(built);
            fields.push(Field::new(column, vectors));
        }
    }
    let accepts_input = |rule: &Rule, paint| rule.input.is_none_or(|wanted| u16::from(wanted) == paint);
    let by_value = [
        (KIND, value_classes(&ours, KINDS, accepts_kind)),
        (INPUT, value_classes(&ours, 256, accepts_input)),
    ];
    for (column, (classes, vectors)) in by_value {
        // One field must be left to search by.
        if vectors.len() > 1 || column == INPUT && fields.is_empty() {
            lookups.push(Lookup { column, classes });
            fields.push(Field::new(column, vectors));
        }
    }
    Compiled {
        prefixes,
        ports,
        lookups,
        decision: Decision::new(fields, ours.len(), copies)
            .expect("a search takes as many fields as rules have"),
        answers: answers.into(),
        needs_protocol: ours.iter().any(|rule| rule.needs_protocol()),
        needs_transport: ours.iter().any(|rule| rule.needs_transport()),
        fragments_alike: false,
    }
}

/// Ports that a rule asks for, or type and code, which stand in their place.
fn destination_range(rule: &Rule) -> Option<(u16, u16)> {
    match rule.icmp_type {
        Some((kind, Some(code))) => {
            Some((u16::from_be_bytes([kind, code]), u16::from_be_bytes([kind, code])))
        }
        Some((kind, None)) => Some((u16::from_be_bytes([kind, 0]), u16::from_be_bytes([kind, u8::MAX]))),
        None => rule.destination_ports.map(|ports| (ports.first, ports.last)),
    }
}

/// Whether a rule accepts a packet of this kind.
fn accepts_kind(rule: &Rule, kind: u16) -> bool {
    let is_later = (LATER..ESTABLISHED).contains(&kind);
    let protocol = if kind == ESTABLISHED { 6 } else { kind % LATER };
    rule.protocol.is_none_or(|wanted| u16::from(wanted) == protocol)
        && (!rule.fragment || is_later)
        && (!rule.needs_transport() || !is_later)
        && (!rule.established || kind == ESTABLISHED)
}

/// The classes of the values below `values`, of which `accepts` says which rule accepts them.
fn value_classes(
    rules: &[&Rule],
    values: usize,
    accepts: impl Fn(&Rule, u16) -> bool,
) -> (Box<[u16]>, BitVectors) {
    let mut classes = Classes::new(rules.len());
    let mut vector = vec![0; BitVectors::new(rules.len()).words()];
    let by_value = (0..values as u16).map(|value| {
        for (number, rule) in rules.iter().enumerate() {
            set_bit(&mut vector, number, accepts(rule, value));
        }
        classes.of(&vector, VALUES).expect("there are no more classes than values")
    });
    (by_value.collect(), classes.into_vectors())
}

/// The classes of the values of 16 bits, of which each rule accepts one range, or all.
fn range_classes(
    ranges: impl ExactSizeIterator<Item = Option<(u16, u16)>>,
) -> (fib::Intervals<u16>, BitVectors) {
    let mut classes = Classes::new(ranges.len());
    let mut vector = vec![0; BitVectors::new(ranges.len()).words()];
    // Where rules begin to accept, and where they no longer do.
    let mut edges = Vec::new();
    for (number, range) in ranges.enumerate() {
        let (first, last) = range.unwrap_or((0, u16::MAX));
        edges.push((usize::from(first), number, true));
        edges.push((usize::from(last) + 1, number, false));
    }
    edges.sort_unstable();
    let mut starts = Vec::new();
    let mut edges = edges.into_iter().peekable();
    let mut start = 0;
    while start < VALUES {
        while let Some((_, number, accepts)) = edges.next_if(|&(at, ..)| at == start) {
            set_bit(&mut vector, number, accepts);
        }
        let end = edges.peek().map_or(VALUES, |&(at, ..)| at);
        let class = classes.of(&vector, VALUES).expect("a list has fewer rules than half the values");
        starts.push((start as u16, class));
        start = end;
    }
    (fib::Intervals::new(&starts), classes.into_vectors())
}

/// The classes of addresses; `None` when all rules accept all of them.
///
/// A class is the longest prefix around an address: its rules are those of that prefix and of all around it.
fn prefix_classes<A: AclFamily>(
    prefixes: impl ExactSizeIterator<Item = Option<A::Net>>,
) -> Option<(Intervals<A>, BitVectors)> {
    let mut vectors = BitVectors::new(prefixes.len());
    let mut everywhere = vec![0; vectors.words()];
    let mut by_network: Vec<(A, u8, usize)> = Vec::new();
    for (number, prefix) in prefixes.enumerate() {
        match prefix.map(A::parts) {
            None | Some((_, 0)) => set_bit(&mut everywhere, number, true),
            Some((network, length)) => by_network.push((network, length, number)),
        }
    }
    if by_network.is_empty() {
        return None;
    }
    // Each prefix stands behind those around it, of which the last is the nearest.
    by_network.sort_unstable();
    vectors.push(&everywhere);
    let mut classes = Vec::new();
    let mut around: Vec<(A, u8, u16)> = Vec::new();
    for group in by_network.chunk_by(|left, right| (left.0, left.1) == (right.0, right.1)) {
        let Some(&(network, length, _)) = group.first() else { continue };
        while around.pop_if(|(outer, its, _)| network & A::mask(*its) != *outer).is_some() {}
        let outer = around.last().map_or(0, |&(.., class)| usize::from(class));
        let mut vector = vectors.get(outer).to_vec();
        for &(.., number) in group {
            set_bit(&mut vector, number, true);
        }
        let class = u16::try_from(vectors.len()).expect("a list has fewer rules than there are numbers");
        vectors.push(&vector);
        around.push((network, length, class));
        classes.push((network, length, class));
    }
    Some((Intervals::of_prefixes(&classes), vectors))
}
