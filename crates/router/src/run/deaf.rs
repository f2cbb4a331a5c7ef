//! Ports whose device receives what the router does not see: the driver loses it on the way, or somebody has taken the program off the
//! interface. They are opened anew, as before first and then by slower ways.

use std::collections::BTreeMap;

use ports::PortError;

use super::meter::Counts;
use crate::table::thousands;

/// Looks in a row, one a second, that find a port deaf before something is done.
const LOOKS: u32 = 3;
/// Packets that have to come meanwhile.
const PACKETS: u64 = 100;

/// What is known of each port.
#[derive(Debug, Default)]
pub(super) struct Deaf(BTreeMap<String, Ear>);

#[derive(Debug, Default)]
struct Ear {
    /// The last counts: of the device, and of the router.
    received: u64,
    seen: u64,
    /// Looks since the router saw a packet, of those in which the device received some, and how many these were.
    looks: u32,
    missed: u64,
    /// How often it was opened anew since the router saw a packet.
    tries: usize,
    /// What was found and done.
    problem: Option<String>,
}

impl Deaf {
    /// Looks at the counts of a second. `open_anew` opens a port that was opened anew so often already, and returns what it goes by
    /// then ([`ports::Port::open_anew`]); `None` if there is no such port.
    pub(super) fn look(
        &mut self,
        counts: &Counts,
        mut open_anew: impl FnMut(&str, usize) -> Option<Result<&'static str, PortError>>,
    ) {
        self.0.retain(|name, _| counts.contains_key(name));
        for (name, port) in counts {
            let is_new = !self.0.contains_key(name);
            let ear = self.0.entry(name.clone()).or_default();
            let received = port.received.saturating_sub(ear.received);
            // Counts of a graph that was made anew begin at 0.
            let has_seen = is_new || port.seen != ear.seen;
            (ear.received, ear.seen) = (port.received, port.seen);
            if has_seen {
                if ear.problem.is_some() {
                    tracing::info!(event = "port", port = %name, "{name}: the router sees packets again");
                }
                *ear = Ear { received: port.received, seen: port.seen, ..Ear::default() };
                continue;
            }
            if received == 0 {
                continue;
            }
            ear.looks += 1;
            ear.missed += received;
            if ear.looks < LOOKS || ear.missed < PACKETS {
                continue;
            }
            let Some(opened) = open_anew(name, ear.tries) else { continue };
            let outcome =
                opened.map_or_else(|error| format!("it cannot be opened anew: {error}"), str::to_owned);
            let found = format!(
                "{name}: its device received {} packets within {} s, of which the router saw none",
                thousands(ear.missed),
                ear.looks
            );
            let is_told = ear.problem.as_ref().is_some_and(|problem| problem.ends_with(&outcome));
            if !is_told {
                tracing::warn!(event = "port", port = %name, "{found}; {outcome}");
            }
            ear.problem = Some(format!("{found}; {outcome}"));
            (ear.looks, ear.missed, ear.tries) = (0, 0, ear.tries + 1);
        }
    }

    /// Returns what is wrong now.
    pub(super) fn problems(&self) -> impl Iterator<Item = String> {
        self.0.values().filter_map(|ear| ear.problem.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::meter::PortCounts;

    #[test]
    fn a_port_that_sees_nothing_of_what_its_device_receives_is_opened_anew() {
        let (mut deaf, mut asked) = (Deaf::default(), Vec::new());
        let (mut received, mut seen) = (0, 0);
        let mut second = |deaf: &mut Deaf, packets: u64, of_which_seen: u64| {
            received += packets;
            seen += of_which_seen;
            let port = PortCounts { received, seen, ..PortCounts::default() };
            deaf.look(&Counts::from([("eth1".to_owned(), port)]), |port, tries| {
                asked.push((port.to_owned(), tries));
                match tries {
                    0 => Some(Ok("first")),
                    _ => Some(Ok("last")),
                }
            });
            std::mem::take(&mut asked).into_iter().map(|(_, tries)| tries).collect::<Vec<_>>()
        };
        let none: Vec<usize> = Vec::new();
        // One of many is enough, and so is silence.
        for (packets, of_which_seen) in [(1000, 1), (1000, 0), (1000, 0), (1000, 1), (0, 0), (0, 0), (0, 0)] {
            assert_eq!(second(&mut deaf, packets, of_which_seen), none);
        }
        // Few packets may be those of a moment.
        for _ in 0..9 {
            assert_eq!(second(&mut deaf, 10, 0), none);
        }
        assert_eq!(second(&mut deaf, 10, 0), [0]);
        assert!(deaf.problems().next().unwrap().ends_with("of which the router saw none; first"));
        assert_eq!(
            [5000, 5000, 5000, 5000].map(|packets| second(&mut deaf, packets, 0)),
            [vec![], vec![], vec![1], vec![]]
        );
        assert_eq!([0, 5000, 5000].map(|packets| second(&mut deaf, packets, 0)), [vec![], vec![], vec![2]]);
        assert!(deaf.problems().next().unwrap().contains("received 15,000 packets within 3 s"));
        assert_eq!(second(&mut deaf, 5000, 4999), none);
        assert_eq!(deaf.problems().count(), 0);
        assert_eq!(
            [5000, 5000, 5000].map(|packets| second(&mut deaf, packets, 0)),
            [vec![], vec![], vec![0]]
        );
    }
}
