//! Ports whose device receives what the router does not see: the driver loses it on the way, or somebody has taken the program off the
//! interface. They are opened anew, as before first and then by slower ways ([`ports::Port::open_anew`]).

use std::collections::BTreeMap;

use ports::PortError;

use super::meter::Counts;
use crate::table::thousands;

/// Looks, one a second, in which the device has to receive and the router to see nothing, and packets that have to come in them.
const LOOKS: u32 = 3;
const PACKETS: u64 = 100;
/// Looks within which that has to be.
const WINDOW: u32 = 10;
/// A port that was opened anew so many looks ago or less has to be silent twice as long.
const RECENT: u32 = 60;
/// How often it is twice as long at most.
const MOST_DOUBLINGS: u32 = 4;

/// What is known of each port.
#[derive(Debug, Default)]
pub(super) struct Deaf(BTreeMap<String, Watched>);

#[derive(Debug, Default)]
struct Watched {
    /// The last counts: of the device, and of the router.
    received: u64,
    seen: u64,
    silence: Silence,
    /// How often it was opened anew since the router saw a packet.
    tries: usize,
    /// How often it was opened anew of late, and how many looks ago that was last.
    repeats: u32,
    since: u32,
    /// What was found and done.
    problem: Option<String>,
}

/// What the device received while the router saw nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    /// Looks since it began, and those of them in which something was received.
    lasts: u32,
    looks: u32,
    packets: u64,
}

impl Deaf {
    /// Looks at the counts of a second. Returns a port that has to be opened anew, and how often that was done since the router saw a
    /// packet of it.
    pub(super) fn look(&mut self, counts: &Counts) -> Option<(String, usize)> {
        self.0.retain(|name, _| counts.get(name).is_some_and(|port| port.received.is_some()));
        let mut due = None;
        for (name, port) in counts {
            let Some(received) = port.received else { continue };
            let Some(port_state) = self.0.get_mut(name) else {
                self.0.insert(name.clone(), Watched { received, seen: port.seen, ..Watched::default() });
                continue;
            };
            if port_state.observe(name, received, port.seen) && due.is_none() {
                due = Some((name.clone(), port_state.tries));
            }
        }
        due
    }

    /// A port was opened anew, and goes by this now.
    pub(super) fn opened(&mut self, name: &str, opened: Result<&'static str, PortError>) {
        let Some(port_state) = self.0.get_mut(name) else { return };
        let has_other = !matches!(opened, Err(PortError::Unsupported { .. }));
        // An attempt that fails, such as beside another program, is made again.
        port_state.tries += usize::from(opened.is_ok());
        let outcome = opened.map_or_else(|error| format!("it cannot be opened anew: {error}"), str::to_owned);
        let silence = std::mem::take(&mut port_state.silence);
        (port_state.repeats, port_state.since) =
            (if has_other { port_state.repeats + 1 } else { MOST_DOUBLINGS }, 0);
        let found = format!(
            "{name}: its device received {} packets within {} s, of which the router saw none",
            thousands(silence.packets),
            silence.lasts
        );
        let is_told = port_state.problem.as_ref().is_some_and(|problem| problem.ends_with(&outcome));
        if !is_told {
            tracing::warn!(event = "port", port = %name, "{found}; {outcome}");
        }
        port_state.problem = Some(format!("{found}; {outcome}"));
    }

    /// Returns what is wrong now.
    pub(super) fn problems(&self) -> impl Iterator<Item = String> {
        self.0.values().filter_map(|port_state| port_state.problem.clone())
    }
}

impl Watched {
    /// Takes the counts of a look. Returns whether the port was silent for too long.
    fn observe(&mut self, name: &str, received: u64, seen: u64) -> bool {
        let grown = received.saturating_sub(self.received);
        // Counts of a graph that was made anew begin at 0.
        let has_seen = seen != self.seen;
        (self.received, self.seen) = (received, seen);
        self.since += 1;
        if self.since > RECENT {
            self.repeats = 0;
        }
        if has_seen {
            if self.problem.take().is_some() {
                tracing::info!(event = "port", port = %name, "{name}: the router sees packets again");
            }
            (self.silence, self.tries) = (Silence::default(), 0);
            return false;
        }
        let patience = 1 << self.repeats.min(MOST_DOUBLINGS);
        if self.silence.lasts >= WINDOW * patience {
            self.silence = Silence::default();
        }
        let silence = &mut self.silence;
        silence.lasts += u32::from(silence.looks > 0 || grown > 0);
        silence.looks += u32::from(grown > 0);
        silence.packets += grown;
        silence.looks >= LOOKS * patience && silence.packets >= PACKETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::meter::PortCounts;

    /// A port, and what was done to it.
    #[derive(Default)]
    struct Bench {
        deaf: Deaf,
        received: u64,
        seen: u64,
    }

    impl Bench {
        /// A second in which so many packets came, and so many were seen. Returns how often the port had been opened anew, if it is
        /// then.
        fn second(&mut self, packets: u64, of_which_seen: u64) -> Option<usize> {
            self.received += packets;
            self.seen += of_which_seen;
            let (received, seen) = (Some(self.received), self.seen);
            let port = PortCounts { received, seen, ..PortCounts::default() };
            let counts =
                Counts::from([("eth1".to_owned(), port), ("sends alone".to_owned(), PortCounts::default())]);
            let (name, tries) = self.deaf.look(&counts)?;
            assert_eq!(name, "eth1");
            Some(tries)
        }

        /// Seconds of which the router sees nothing, up to one in which the port is opened anew: how many.
        fn deaf_until_due(&mut self, tries: usize) -> usize {
            let seconds = (1..200).find(|_| {
                let due = self.second(5000, 0);
                assert!(due.is_none_or(|found| found == tries), "{due:?}");
                due.is_some()
            });
            seconds.unwrap()
        }
    }

    #[test]
    fn a_port_that_sees_nothing_of_what_its_device_receives_is_opened_anew() {
        let mut bench = Bench::default();
        bench.second(0, 0);
        // One of many is enough, and so is silence.
        for (packets, seen) in [(1000, 1), (1000, 0), (1000, 0), (1000, 1), (0, 0), (0, 0), (0, 0)] {
            assert_eq!(bench.second(packets, seen), None);
        }
        // Few packets in a long time may be what only the device counts.
        for _ in 0..100 {
            assert_eq!([bench.second(9, 0), bench.second(0, 0)], [None; 2]);
        }
        assert_eq!(bench.second(1, 1), None);
        assert_eq!(bench.deaf_until_due(0), 3);
        bench.deaf.opened("eth1", Ok("first"));
        assert!(bench.deaf.problems().next().unwrap().ends_with(
            "eth1: its device received 15,000 packets within 3 s, of which the router saw none; first"
        ));
        // It did not help.
        assert_eq!(bench.deaf_until_due(1), 6);
        bench.deaf.opened("eth1", Ok("second"));
        let moment = || PortError::InUse { port: "eth1".to_owned(), user: "another program".to_owned() };
        for seconds in [12, 24, 48, 48] {
            assert_eq!(bench.deaf_until_due(2), seconds);
            bench.deaf.opened("eth1", Err(moment()));
        }
        assert_eq!(bench.second(5000, 4999), None);
        assert_eq!(bench.deaf.problems().count(), 0);
        // Again so soon: as before, but not at once.
        assert_eq!(bench.deaf_until_due(0), 48);
        bench.deaf.opened("eth1", Ok("first"));
        for _ in 0..=RECENT {
            assert_eq!(bench.second(5000, 5000), None);
        }
        assert_eq!(bench.deaf_until_due(0), 3);
    }

    #[test]
    fn a_device_that_comes_anew_begins_anew() {
        let mut bench = Bench::default();
        bench.second(1_000_000, 0);
        assert_eq!([bench.second(5000, 0), bench.second(5000, 0)], [None; 2]);
        let away = PortCounts { received: None, ..PortCounts::default() };
        assert_eq!(bench.deaf.look(&Counts::from([("eth1".to_owned(), away)])), None);
        assert_eq!([bench.second(5000, 0), bench.second(5000, 0), bench.second(5000, 0)], [None; 3]);
        assert_eq!(bench.second(5000, 0), Some(0));
    }
}
