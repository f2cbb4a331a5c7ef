//! How many packets took each connection of a graph. Elements count what comes into them; the rest follows, mostly: what an
//! element with one way in got came by it, and what came into an element and was not dropped there left it.

use graph::lang::FlatConfig;

/// What an element did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Through {
    pub(super) packets: u64,
    pub(super) dropped: u64,
}

/// Returns the packets of each connection, as far as they follow from those of the elements. Of elements that copy packets
/// (Tee and its like) nothing is concluded.
pub(super) fn edges(config: &FlatConfig, elements: &[Through]) -> Vec<Option<u64>> {
    let count = config.elements.len();
    let (mut into, mut out_of) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for (number, connection) in config.connections.iter().enumerate() {
        out_of[connection.from.0].push(number);
        into[connection.to.0].push(number);
    }
    let mut known: Vec<Option<u64>> = vec![None; config.connections.len()];
    let mut open = usize::MAX;
    while open > known.iter().filter(|known| known.is_none()).count() {
        open = known.iter().filter(|known| known.is_none()).count();
        for (element, flat) in config.elements.iter().enumerate() {
            let Through { packets, dropped } = elements.get(element).copied().unwrap_or_default();
            solve(&mut known, &into[element], packets);
            if !flat.class.ends_with("Tee") {
                solve(&mut known, &out_of[element], packets.saturating_sub(dropped));
            }
        }
    }
    known
}

/// Finds the one connection of some that is not known, whose sum is; where the sum is 0 all of them.
fn solve(known: &mut [Option<u64>], numbers: &[usize], sum: u64) {
    let found: u64 = numbers.iter().filter_map(|&number| known[number]).sum();
    let mut open = numbers.iter().copied().filter(|&number| known[number].is_none());
    match (open.next(), open.next()) {
        (Some(single), None) => known[single] = sum.checked_sub(found),
        (Some(_), Some(_)) if sum == 0 => numbers.iter().for_each(|&number| known[number] = Some(0)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use graph::lang::{Options, Source};

    use super::*;
    use crate::load;

    fn flat(text: &str) -> FlatConfig {
        let source = Source { name: "test".to_owned(), text: text.to_owned() };
        let libraries = load::Libraries::new(None);
        load::compile_quietly(&source, &Options::default(), &crate::classes(), &libraries).unwrap().0
    }

    /// The packets of connections, by the names of their ends.
    fn known(config: &FlatConfig, packets: &[(&str, u64, u64)]) -> Vec<(String, Option<u64>)> {
        let through = |name: &str| {
            let found = packets.iter().find(|(known, ..)| *known == name);
            found.map_or(Through::default(), |&(_, packets, dropped)| Through { packets, dropped })
        };
        let all: Vec<Through> = config.elements.iter().map(|element| through(&element.name)).collect();
        let name = |element: usize| config.elements[element].name.as_str();
        let mut known: Vec<_> = (config.connections.iter().zip(edges(config, &all)))
            .map(|(connection, packets)| {
                (format!("{} {}", name(connection.from.0), name(connection.to.0)), packets)
            })
            .collect();
        known.sort();
        known
    }

    #[test]
    fn ways_that_meet_are_told_apart_by_what_is_known_of_the_others() {
        let config = flat(
            "i :: Idle -> c :: Classifier(12/0800, -); c[0] -> a :: Paint(1) -> d :: Discard; c[1] -> d;
             never :: Idle -> d",
        );
        let counts = [("i", 10, 0), ("c", 10, 0), ("a", 7, 2), ("d", 8, 8)];
        let expected = [("a d", 5), ("c a", 7), ("c d", 3), ("i c", 10), ("never d", 0)];
        let expected = expected.map(|(name, packets)| (name.to_owned(), Some(packets)));
        assert_eq!(known(&config, &counts), expected);
    }

    #[test]
    fn nothing_is_concluded_from_what_copies() {
        let config = flat("i :: Idle -> t :: Tee; t[0] -> a :: Discard; t[1] -> b :: Discard; t[2] -> b");
        let counts = [("i", 10, 0), ("t", 10, 0), ("a", 10, 10), ("b", 20, 20)];
        let expected = [("i t", Some(10)), ("t a", Some(10)), ("t b", None), ("t b", None)];
        assert_eq!(known(&config, &counts), expected.map(|(name, packets)| (name.to_owned(), packets)));
    }
}
