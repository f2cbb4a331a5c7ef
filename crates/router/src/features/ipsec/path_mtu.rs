//! The longest packets that the ways to other gateways take, as Linux knows them. Linux is asked about a part of the ways at a time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::UdpSocket;
use std::os::fd::AsFd;

use ipsec::Endpoints;
use rustix::net::sockopt;

/// The longest outer packet where the way is not known: the shortest that IPv6 allows. Longer ones go to Linux.
const SHORTEST_MTU: u32 = 1_280;

/// Ways that Linux is asked about at one look.
const ASKED: usize = 100;

/// What Linux said of the ways between gateways.
#[derive(Default)]
pub(super) struct PathMtus {
    known: HashMap<Endpoints, u32>,
    /// Those that are known; the first one was asked about longest ago.
    turns: VecDeque<Endpoints>,
}

impl PathMtus {
    /// Returns that of a way, for which `ask` is called if it is new.
    pub(super) fn of(&mut self, way: &Endpoints, ask: &mut dyn FnMut(&Endpoints) -> u32) -> u32 {
        *self.known.entry(*way).or_insert_with(|| {
            self.turns.push_back(*way);
            ask(way)
        })
    }

    /// Asks about some of these ways, each in its turn, and forgets all others.
    pub(super) fn look(&mut self, ways: HashSet<Endpoints>, ask: &mut dyn FnMut(&Endpoints) -> u32) {
        self.known.retain(|way, _| ways.contains(way));
        self.turns.retain(|way| ways.contains(way));
        let asked = self.turns.len().min(ASKED);
        for way in self.turns.iter().take(asked) {
            self.known.insert(*way, ask(way));
        }
        self.turns.rotate_left(asked);
    }
}

/// Returns the longest packet that Linux knows the way between two gateways to take.
pub(super) fn path_mtu(endpoints: &Endpoints) -> u32 {
    let ask = || -> std::io::Result<u32> {
        let socket = UdpSocket::bind((endpoints.source(), 0))?;
        socket.connect((endpoints.destination(), 4_500))?;
        Ok(match endpoints {
            Endpoints::V4 { .. } => sockopt::ip_mtu(socket.as_fd())?,
            Endpoints::V6 { .. } => sockopt::ipv6_mtu(socket.as_fd())?,
        })
    };
    ask().unwrap_or(SHORTEST_MTU)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn way(number: u16) -> Endpoints {
        let [high, low] = number.to_be_bytes();
        Endpoints::V4 { source: Ipv4Addr::new(192, 0, 2, 1), destination: Ipv4Addr::new(198, 51, high, low) }
    }

    #[test]
    fn linux_is_asked_about_each_way_in_its_turn() {
        let mut mtus = PathMtus::default();
        let all = || (0..250).map(way).collect::<HashSet<_>>();
        let mut asked = 0;
        for number in (0..250).chain(0..250) {
            let mut ask = |_: &Endpoints| {
                asked += 1;
                1_500
            };
            assert_eq!(mtus.of(&way(number), &mut ask), 1_500);
        }
        assert_eq!(asked, 250);
        let mut told = Vec::new();
        for _ in 0..5 {
            let before = told.len();
            let mut ask = |way: &Endpoints| {
                told.push(*way);
                1_400
            };
            mtus.look(all(), &mut ask);
            assert_eq!(told.len() - before, ASKED);
        }
        assert!((0..250).all(|number| told.iter().filter(|told| **told == way(number)).count() == 2));
        let mut never = |_: &Endpoints| panic!("it is known");
        assert_eq!(mtus.of(&way(249), &mut never), 1_400);
        // Those that are gone are not asked about.
        let mut asked = 0;
        let mut count = |_: &Endpoints| {
            asked += 1;
            1_300
        };
        mtus.look([way(7)].into(), &mut count);
        assert_eq!((asked, mtus.known.len()), (1, 1));
    }
}
