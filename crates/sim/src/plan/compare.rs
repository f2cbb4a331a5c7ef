//! Interconnects side by side: what formulas say that Valiant load balancing asks of each, and what a simulation shows of those that
//! Brickway can wire.
//!
//! N ports of rate R; every packet takes two phases, each spread evenly over all servers. A server's work counts a packet once for each server
//! that receives it: from its port, over it, to its port.
//!
//! | interconnect | servers | links of each | worst load of a link, in R | worst work of a server, in R |
//! | --- | --- | --- | --- | --- |
//! | Valiant mesh | N | N - 1 | 2/N | 3 |
//! | compact(s): s ports on each server of a mesh | N/s | N/s - 1 | 2s²/N | 3s |
//! | butterfly of relays, k-ary, n = log N to base k | N + nN/k | 1 in, 1 out; a relay k | 2 | 3; a relay 2k |
//! | embedded butterfly: each server is a relay in every stage | N | k | 2n/k | 2n + 1 |
//! | de Bruijn, k links, diameter n = log N to base k | N | k | 2n/k | 2n + 1 |
//! | d-torus | N | 2d | 2h', h' the mean way round the busier side of the longest ring | 1 + 2 sum of h, h the mean way round a ring |
//!
//! In a de Bruijn graph some ways are shorter than n, so its two are bounds.

use fabric::{Mode, Shape};

use crate::plan::{busier_way, mean_way, sides};
use crate::{Flows, Matrix, Scenario, Sizes, simulate};

/// One way to join servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Wiring {
    /// What people call it.
    pub name: String,
    /// Servers, relays included.
    pub servers: u32,
    /// Links of a server with ports.
    pub links: u32,
    /// The most that a link carries each way, in R.
    pub link: f64,
    /// The most that a server works, in R.
    pub work: f64,
    /// How to simulate it: who is wired to whom, and how many ports each has.
    pub shape: Option<(Shape, u32)>,
}

/// All that there are for so many ports. Those whose number of servers does not come out even are left out.
pub fn wirings(ports: u32) -> Vec<Wiring> {
    let n = f64::from(ports);
    let mut wirings = Vec::new();
    for each in 1..=3 {
        if ports.is_multiple_of(each) && ports / each >= 2 {
            let servers = ports / each;
            let s = f64::from(each);
            let shape = (servers >= 3).then(|| format!("mesh({servers})").parse().ok()).flatten();
            wirings.push(Wiring {
                name: if each == 1 { "Valiant mesh".to_owned() } else { format!("compact({each})") },
                servers,
                links: servers - 1,
                link: 2.0 * s * s / n,
                work: 3.0 * s,
                shape: shape.map(|shape| (shape, each)),
            });
        }
    }
    for (k, stages) in [2_u32, 4, 8].into_iter().filter_map(|k| Some((k, stages(ports, k)?))) {
        let (of_k, of_n) = (f64::from(k), f64::from(stages));
        wirings.push(Wiring {
            name: format!("butterfly, {k}-ary"),
            servers: ports + stages * ports / k,
            links: 2,
            link: 2.0,
            work: (2.0 * of_k).max(3.0),
            shape: format!("fly({k}, {stages})").parse().ok().map(|shape| (shape, 1)),
        });
        for name in ["embedded butterfly", "de Bruijn"] {
            wirings.push(Wiring {
                name: format!("{name}, {k}-ary"),
                servers: ports,
                links: k,
                link: 2.0 * of_n / of_k,
                work: 2.0 * of_n + 1.0,
                shape: None,
            });
        }
    }
    for dimensions in [2, 3] {
        let Some(sides) = sides(ports, dimensions) else { continue };
        let text = sides.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        wirings.push(Wiring {
            name: format!("torus({text})"),
            servers: ports,
            links: sides.iter().map(|&side| if side == 2 { 1 } else { 2 }).sum(),
            link: 2.0 * sides.iter().map(|&side| busier_way(side)).fold(0.0, f64::max),
            work: 1.0 + 2.0 * sides.iter().map(|&side| mean_way(side)).sum::<f64>(),
            shape: format!("torus({text})").parse().ok().map(|shape| (shape, 1)),
        });
    }
    wirings
}

/// n, if the ports are k to the n.
fn stages(ports: u32, k: u32) -> Option<u32> {
    (1..32).find(|&stages| k.checked_pow(stages) == Some(ports))
}

/// R in the simulation, in bytes a second; results are in R.
const RATE: u64 = 1_250_000_000;
/// More servers than this take too long to wait for.
const MOST_SIMULATED: usize = 128;

impl Wiring {
    /// The busiest link and the busiest server of a simulation, in R, when every server's ports send all they can to the next server; each
    /// packet takes both phases. None where Brickway has no such topology, or it is too large.
    pub fn simulated(&self) -> Option<(f64, f64)> {
        let (shape, each) = self.shape.clone()?;
        if shape.nodes() > MOST_SIMULATED {
            return None;
        }
        let brings = RATE * u64::from(each);
        let scenario = Scenario {
            mode: Mode::ClassicVlb,
            matrix: Matrix::Next,
            // Each packet for itself, so that few flows are spread as evenly as many.
            delta_ns: 0,
            flows: Flows::Poisson { per_pair: 8, sizes: Sizes::Fixed(1000) },
            link_rate: brings * 4,
            warm_ns: 2_000_000,
            end_ns: 12_000_000,
            ..Scenario::new(shape, brings)
        };
        scenario.check().ok()?;
        let report = simulate(&scenario, |_| ());
        let link = report.links.max * scenario.link_rate as f64 / RATE as f64;
        Some((link, report.c().max * f64::from(each)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_hold_in_simulation() {
        let mut simulated = 0;
        for wiring in wirings(16) {
            let Some((link, work)) = wiring.simulated() else { continue };
            simulated += 1;
            // A way's ends are never its intermediate server, so that 14 of 16 servers share what the formula spreads over 16; and
            // the busiest of many links counts, in packets that come at random (the last digits of which differ between processors).
            let ends = wiring.servers as f64 / (wiring.servers as f64 - 2.0);
            let is_near = |value: f64, formula: f64| value > 0.6 * formula && value < 1.3 * ends * formula;
            assert!(is_near(link, wiring.link) && is_near(work, wiring.work), "{wiring:?}: {link}, {work}");
        }
        assert_eq!(simulated, 6);
    }

    #[test]
    fn only_what_comes_out_even_is_compared() {
        let names = |ports| wirings(ports).into_iter().map(|wiring| wiring.name).collect::<Vec<_>>();
        assert_eq!(names(7), ["Valiant mesh"]);
        assert!(
            names(12).contains(&"compact(3)".to_owned())
                && !names(12).iter().any(|name| name.contains("ary"))
        );
    }
}
