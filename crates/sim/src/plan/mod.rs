//! Before anyone buys: how many servers, wired how, how fast, in the worst case.
//!
//! All interconnects carry Valiant load balancing, so that any traffic that asks no port for more than its rate R passes. With s ports
//! on each of M servers:
//!
//! | interconnect | links of a server | worst load of a link, each way | worst work of a server |
//! | --- | --- | --- | --- |
//! | mesh | M - 1 | 2sR/M | 3sR: in, over, out |
//! | k-ary n-fly of relays | 1 in, 1 out | 2sR | 3sR; a relay 2ksR |
//! | butterfly of servers | k | 2sR/k | 3sR; a relay 2sR |
//! | torus | 2 a dimension | 2sR h', h' the mean way round one side of the longest ring | sR (1 + 2 sum of h), h that round either side |
//! | Clos network of switches | s | R | 2sR: in, out |
//!
//! Two phases make the 2: from the input to an intermediate server, and on to the output, and each phase is spread evenly. Where traffic is even
//! in itself, direct VLB needs no first phase, and servers of a mesh work 2sR.
//!
//! The butterfly is how RouteBricks counts (SOSP 2009, section 3.3): n stages of M relays each, fan-out k, n the least with k^n at least
//! M, a port's two directions being an in-link and an out-link. Its relays do no more than a server with ports. The fly is what
//! `topology = "fly(k, n)"` builds today, with relays of 2k thick links, so few servers can be its relays.
//!
//! Clos networks come in three kinds. A *rearrangeable* one has as many uplinks as downlinks and carries any traffic if its switches spread
//! each packet, or if all paths may change with each flow. A *strictly non-blocking* one (Clos 1953) always has a free path, whatever the
//! others take: a first switch with n inputs has 2n - 1 uplinks. *Folded*, a port's two directions belong to the same switch; *unfolded*, as
//! Clos drew it, each port is used one way, and first and last switches are different ones.

mod compare;
mod server;

use fabric::{Shape, Topology};

pub use compare::{Derived, Figures, Network, Simulated, networks};
pub use server::{Card, Rate, Server};

/// What is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// N: ports of the router.
    pub ports: u32,
    /// R: the rate of each.
    pub rate: Rate,
    /// What switches would cost instead.
    pub switch: Switch,
    /// What a server adds to a packet's way, in microseconds; RouteBricks measured 24.
    pub server_us: f64,
}

/// An Ethernet switch, for comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switch {
    /// Its ports, each of rate R.
    pub ports: u32,
    /// Price of a port.
    pub price: f64,
    /// Watts of a port.
    pub watts: f64,
}

impl Default for Switch {
    /// RouteBricks': 48 ports, 500 dollars each.
    fn default() -> Switch {
        Switch { ports: 48, price: 500.0, watts: 0.0 }
    }
}

/// How servers are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interconnect {
    /// There is one server.
    None,
    /// Everybody to everybody.
    Mesh,
    /// A k-ary n-fly of relays with thick links.
    Fly {
        /// k.
        arity: u32,
        /// n.
        stages: u32,
    },
    /// Stages of as many relays as there are servers, with thin links.
    Butterfly {
        /// k.
        fan_out: u32,
        /// n.
        stages: u32,
    },
    /// Rings in each dimension.
    Torus {
        /// Servers in each.
        sides: Vec<u32>,
    },
    /// A folded Clos network of Ethernet switches that is rearrangeable: without blocking where its switches balance packets.
    Clos {
        /// How many layers of switches.
        layers: u32,
    },
    /// A Clos network of Ethernet switches that is strictly non-blocking.
    StrictClos {
        /// How many switches a packet passes at most.
        stages: u32,
        /// Whether ports are used both ways.
        is_folded: bool,
    },
}

/// What it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How servers are joined.
    pub interconnect: Interconnect,
    /// For `topology =` of a cluster's file, if Brickway runs such a cluster.
    pub shape: Option<String>,
    /// Servers with ports.
    pub servers: u32,
    /// Servers that only relay.
    pub relays: u32,
    /// Links of a server with ports, not counting its ports.
    pub links: u32,
    /// Cables of a link, and the rate of each.
    pub cables: u32,
    /// Of a cable.
    pub cable_rate: Rate,
    /// The most that a link carries, each way.
    pub link_load: Rate,
    /// What a server with ports works when traffic is even.
    pub even_work: Rate,
    /// And in the worst case.
    pub worst_work: Rate,
    /// What a relay works.
    pub relay_work: Rate,
    /// Most servers that a packet passes.
    pub hops: u32,
    /// What they add to its way, in microseconds.
    pub latency_us: f64,
    /// Ports of switches.
    pub switch_ports: u32,
    /// All servers, cards and switches.
    pub price: f64,
    /// The same.
    pub watts: f64,
    /// Why it cannot be built.
    pub problem: Option<String>,
}

impl Plan {
    /// Relays for each port of the router.
    pub fn relays_per_port(&self, wish: &Wish) -> f64 {
        f64::from(self.relays) / f64::from(wish.ports)
    }

    /// Servers, and as many more as the ports of switches cost.
    pub fn as_servers(&self, wish: &Wish, server: &Server) -> f64 {
        let switches = f64::from(self.switch_ports) * wish.switch.price;
        f64::from(self.servers + self.relays) + switches / server.price
    }
}

/// Why there is no plan at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A number that makes no sense.
    #[error("{0}")]
    Senseless(String),
    /// No card is fast enough.
    #[error("server '{server}': no card has ports of {rate}; the fastest has {fastest}")]
    Slow {
        /// Which.
        server: String,
        /// What is wanted.
        rate: String,
        /// What there is.
        fastest: String,
    },
    /// The ports do not divide.
    #[error("{ports} ports, {each} on each server: possible {}", possible(*below, *above))]
    Indivisible {
        /// N.
        ports: u32,
        /// s.
        each: u32,
        /// The next smaller number.
        below: u32,
        /// The next larger one.
        above: u32,
    },
    /// There is nothing to join servers with.
    #[error(
        "server '{server}' has {slots} slots, {taken} of them for its ports: {left} links are left, and joining {servers} servers takes 2 at least"
    )]
    FanOut {
        /// Which.
        server: String,
        /// Its slots.
        slots: u32,
        /// Those for ports.
        taken: u32,
        /// Links that the rest has room for.
        left: u32,
        /// How many servers there are.
        servers: u32,
    },
}

fn possible(below: u32, above: u32) -> String {
    if below == 0 { format!("is {above}") } else { format!("are {below} and {above}") }
}

/// More routers than anyone has ports for.
const MOST_PORTS: u32 = 1 << 20;

/// All plans, the chosen one first: a single server, a mesh while that can be built, else the butterfly.
///
/// # Errors
/// [`PlanError`] if nothing could be built, with what would be possible.
pub fn plans(wish: &Wish, server: &Server) -> Result<Vec<Plan>, PlanError> {
    let planner = Planner::new(wish, server)?;
    if planner.servers == 1 {
        return Ok(vec![planner.alone()]);
    }
    let mut plans = vec![planner.mesh(), planner.butterfly(), planner.fly()];
    plans.extend([2, 3].map(|dimensions| planner.torus(dimensions)).into_iter().flatten());
    plans.push(planner.clos());
    plans.extend([true, false].map(|is_folded| planner.strict_clos(is_folded)).into_iter().flatten());
    let chosen = plans[..2].iter().position(|plan| plan.problem.is_none()).unwrap_or(0);
    plans[..=chosen].rotate_right(1);
    Ok(plans)
}

/// The largest number of ports, a power of two, for which a mesh can be built, or none.
pub fn largest_mesh(wish: &Wish, server: &Server) -> Option<u32> {
    let fits = |&ports: &u32| {
        let wish = Wish { ports, ..wish.clone() };
        Planner::new(&wish, server).is_ok_and(|planner| planner.mesh().problem.is_none())
    };
    (1..=20).map(|power| 1 << power).rfind(fits)
}

/// What servers at switches cost, in servers: at a rearrangeable Clos network, at a strictly non-blocking folded one, and at an unfolded one.
/// Where one switch is enough, all three are that.
///
/// # Errors
/// As [`plans`].
pub fn switches_as_servers(wish: &Wish, server: &Server) -> Result<[f64; 3], PlanError> {
    let all = plans(wish, server)?;
    let of = |is_kind: &dyn Fn(&Interconnect) -> bool| {
        all.iter().find(|plan| is_kind(&plan.interconnect)).map(|plan| plan.as_servers(wish, server))
    };
    let rearrangeable = of(&|kind| matches!(kind, Interconnect::Clos { .. })).unwrap_or(1.0);
    let strict = [true, false].map(|folded| {
        of(&|kind| matches!(kind, Interconnect::StrictClos { is_folded, .. } if *is_folded == folded))
    });
    let [folded, unfolded] = strict.map(|cost| cost.unwrap_or(rearrangeable));
    Ok([rearrangeable, folded, unfolded])
}

struct Planner<'a> {
    wish: &'a Wish,
    server: &'a Server,
    /// M.
    servers: u32,
    /// What the ports of a server bring in, in bits a second.
    brings: f64,
    /// The card of the ports, and how many.
    outer: &'a Card,
    outer_cards: u32,
}

/// What joins servers.
struct Cabling<'a> {
    card: &'a Card,
    cards: u32,
    cables: u32,
}

impl<'a> Planner<'a> {
    fn new(wish: &'a Wish, server: &'a Server) -> Result<Planner<'a>, PlanError> {
        let senseless = |text: String| Err(PlanError::Senseless(text));
        if !(1..=MOST_PORTS).contains(&wish.ports) {
            return senseless(format!("{} ports; 1 to {MOST_PORTS} can be planned", wish.ports));
        }
        if wish.rate.0 <= 0.0 {
            return senseless("ports of rate 0; 10G would do".to_owned());
        }
        if server.ports == 0
            || server.slots == 0
            || server.cards.iter().any(|card| card.ports == 0 || card.rate.0 <= 0.0)
        {
            return senseless(format!(
                "server '{}': ports, slots and a card's ports and rate are at least 1",
                server.name
            ));
        }
        if wish.switch.ports < 4 {
            return senseless(format!("switches of {} ports; at least 4", wish.switch.ports));
        }
        let each = server.ports;
        if !wish.ports.is_multiple_of(each) {
            let below = wish.ports / each * each;
            return Err(PlanError::Indivisible { ports: wish.ports, each, below, above: below + each });
        }
        let fits = server.cards.iter().filter(|card| card.rate >= wish.rate);
        let outer = fits.min_by(|a, b| {
            let cost = |card: &Card| (each.div_ceil(card.ports), card.rate.0);
            cost(a).partial_cmp(&cost(b)).unwrap_or(std::cmp::Ordering::Equal)
        });
        let Some(outer) = outer else {
            let fastest = server.cards.iter().map(|card| card.rate.0).fold(0.0, f64::max);
            let (rate, fastest) = (wish.rate.to_string(), Rate(fastest).to_string());
            return Err(PlanError::Slow { server: server.name.clone(), rate, fastest });
        };
        let outer_cards = each.div_ceil(outer.ports);
        let servers = wish.ports / each;
        let most = server.cards.iter().map(|card| card.ports).max().unwrap_or(0);
        let left = server.slots.saturating_sub(outer_cards) * most;
        if outer_cards > server.slots || (servers > 1 && left < 2) {
            let (slots, taken) = (server.slots, outer_cards);
            return Err(PlanError::FanOut { server: server.name.clone(), slots, taken, left, servers });
        }
        let brings = f64::from(each) * wish.rate.0;
        Ok(Planner { wish, server, servers, brings, outer, outer_cards })
    }

    /// The cheapest cards for so many links of a load, in so many slots. The error: with how many links it would fit.
    fn cabling(&self, slots: u32, links: u32, load: f64) -> Result<Cabling<'a>, u32> {
        let cables_of = |card: &Card| (load / card.rate.0 - 1e-9).ceil().max(1.0) as u32;
        let mut best: Option<Cabling<'a>> = None;
        for card in &self.server.cards {
            let cables = cables_of(card);
            let cards = links.saturating_mul(cables).div_ceil(card.ports);
            let cost = |cards: u32, card: &Card| f64::from(cards) * card.price;
            let is_better = best
                .as_ref()
                .is_none_or(|best| (cost(cards, card), cards) < (cost(best.cards, best.card), best.cards));
            if cards <= slots && is_better {
                best = Some(Cabling { card, cards, cables });
            }
        }
        best.ok_or_else(|| {
            let most = self.server.cards.iter().map(|card| slots * card.ports / cables_of(card));
            most.max().unwrap_or(0)
        })
    }

    fn inner_slots(&self) -> u32 {
        self.server.slots - self.outer_cards
    }

    fn plan(&self, interconnect: Interconnect, hops: u32) -> Plan {
        Plan {
            interconnect,
            shape: None,
            servers: self.servers,
            relays: 0,
            links: 0,
            cables: 0,
            cable_rate: Rate::default(),
            link_load: Rate::default(),
            even_work: Rate(2.0 * self.brings),
            worst_work: Rate(3.0 * self.brings),
            relay_work: Rate::default(),
            hops,
            latency_us: f64::from(hops) * self.wish.server_us,
            switch_ports: 0,
            price: 0.0,
            watts: 0.0,
            problem: None,
        }
    }

    /// Puts cables into `plan` and its price: `inner` cards join a server with ports, `relay` cards a relay.
    fn priced(&self, mut plan: Plan, inner: Option<&Cabling<'_>>, relay: Option<&Cabling<'_>>) -> Plan {
        if let Some(cabling) = inner {
            (plan.cables, plan.cable_rate) = (cabling.cables, cabling.card.rate);
        }
        let cards = |cabling: Option<&Cabling<'_>>, of: fn(&Card) -> f64| {
            cabling.map_or(0.0, |cabling| f64::from(cabling.cards) * of(cabling.card))
        };
        let (servers, relays) = (f64::from(plan.servers), f64::from(plan.relays));
        let switch_ports = f64::from(plan.switch_ports);
        let sum = |own: f64, of: fn(&Card) -> f64, port: f64| {
            let outer = f64::from(self.outer_cards) * of(self.outer);
            servers * (own + outer + cards(inner, of))
                + relays * (own + cards(relay, of))
                + switch_ports * port
        };
        plan.price = sum(self.server.price, |card| card.price, self.wish.switch.price);
        plan.watts = sum(self.server.watts, |card| card.watts, self.wish.switch.watts);
        let work = plan.worst_work.0.max(plan.relay_work.0);
        if plan.problem.is_none()
            && let Some(capacity) = self.server.capacity
            && work > capacity.0
        {
            plan.problem = Some(format!("a server works {} at worst and can {capacity}", Rate(work)));
        }
        plan
    }

    fn alone(&self) -> Plan {
        let mut plan = self.plan(Interconnect::None, 1);
        (plan.even_work, plan.worst_work) = (Rate(self.brings), Rate(self.brings));
        self.priced(plan, None, None)
    }

    fn mesh(&self) -> Plan {
        let mut plan = self.plan(Interconnect::Mesh, 3);
        plan.links = self.servers - 1;
        plan.link_load = Rate(2.0 * self.brings / f64::from(self.servers));
        if self.servers == 2 {
            // There is nobody to go over.
            (plan.worst_work, plan.hops) = (plan.even_work, 2);
            plan.link_load = Rate(self.brings);
            plan.latency_us = 2.0 * self.wish.server_us;
        }
        match self.cabling(self.inner_slots(), plan.links, plan.link_load.0) {
            Ok(cabling) => {
                let text = match cabling.cables {
                    1 => format!("mesh({})", self.servers),
                    cables => format!("mesh({}, {cables})", self.servers),
                };
                plan.shape = text.parse::<Shape>().is_ok().then_some(text);
                self.priced(plan, Some(&cabling), None)
            }
            Err(most) => {
                plan.problem = Some(format!("{} links a server, and {most} fit", plan.links));
                self.priced(plan, None, None)
            }
        }
    }

    fn butterfly(&self) -> Plan {
        let load_of = |fan_out: u32| 2.0 * self.brings / f64::from(fan_out);
        // The most links, thin as they are, that a server with ports has room for.
        let fan_out = (2..=self.servers.max(2))
            .rev()
            .find(|&fan_out| self.cabling(self.inner_slots(), fan_out, load_of(fan_out)).is_ok());
        let Some(fan_out) = fan_out else {
            let mut plan = self.plan(Interconnect::Butterfly { fan_out: 2, stages: 1 }, 0);
            plan.problem = Some("fewer than 2 links a server fit".to_owned());
            return self.priced(plan, None, None);
        };
        let mut stages = 1;
        while u64::from(fan_out).pow(stages) < u64::from(self.servers) {
            stages += 1;
        }
        let mut plan = self.plan(Interconnect::Butterfly { fan_out, stages }, 2 * stages + 3);
        plan.relays = stages * self.servers;
        plan.links = fan_out;
        plan.link_load = Rate(load_of(fan_out));
        plan.relay_work = Rate(2.0 * self.brings);
        let inner = self.cabling(self.inner_slots(), fan_out, plan.link_load.0).ok();
        self.priced(plan, inner.as_ref(), inner.as_ref())
    }

    fn fly(&self) -> Plan {
        let load = 2.0 * self.brings;
        let fitting = |arity: u32| self.cabling(self.server.slots, 2 * arity, load);
        let most = (2..=self.server.slots * 8).rev().find(|&arity| fitting(arity).is_ok());
        let arity = most.unwrap_or(2);
        let mut stages = 1;
        while u64::from(arity).pow(stages) < u64::from(self.servers) {
            stages += 1;
        }
        let mut plan = self.plan(Interconnect::Fly { arity, stages }, 2 * stages + 3);
        plan.relays = stages * arity.pow(stages - 1);
        plan.links = 2;
        plan.link_load = Rate(load);
        plan.relay_work = Rate(f64::from(arity) * load);
        let terminals = u64::from(arity).pow(stages);
        let text = format!("fly({arity}, {stages})");
        let inner = self.cabling(self.inner_slots(), 2, load);
        match (most.is_some(), &inner) {
            (false, _) => plan.problem = Some(format!("a relay has 4 links of {} at least", Rate(load))),
            (_, Err(_)) => plan.problem = Some(format!("a server has 2 links of {}", Rate(load))),
            _ if terminals == u64::from(self.servers) => {
                let is_thin = inner.as_ref().is_ok_and(|cabling| cabling.cables == 1);
                plan.shape = (is_thin && text.parse::<Shape>().is_ok()).then_some(text);
            }
            _ => {}
        }
        let relay = fitting(arity).ok();
        self.priced(plan, inner.ok().as_ref(), relay.as_ref())
    }

    /// None where that many dimensions make no torus.
    fn torus(&self, dimensions: u32) -> Option<Plan> {
        let sides = sides(self.servers, dimensions)?;
        let ways: Vec<f64> = sides.iter().map(|&side| mean_way(side)).collect();
        let load = 2.0 * self.brings * sides.iter().map(|&side| busier_way(side)).fold(0.0, f64::max);
        let longest: u32 = sides.iter().map(|side| side / 2).sum();
        let text = format!("torus({})", sides.iter().map(u32::to_string).collect::<Vec<_>>().join(", "));
        let links = sides.iter().map(|&side| if side == 2 { 1 } else { 2 }).sum();
        let mut plan = self.plan(Interconnect::Torus { sides }, 2 * longest + 1);
        (plan.links, plan.link_load) = (links, Rate(load));
        let all: f64 = ways.iter().sum();
        plan.even_work = Rate(self.brings * (1.0 + all));
        plan.worst_work = Rate(self.brings * (1.0 + 2.0 * all));
        Some(match self.cabling(self.inner_slots(), links, load) {
            Ok(cabling) => {
                plan.shape = (cabling.cables == 1 && text.parse::<Shape>().is_ok()).then_some(text);
                self.priced(plan, Some(&cabling), None)
            }
            Err(most) => {
                plan.problem = Some(format!("{links} links of {} a server, and {most} fit", Rate(load)));
                self.priced(plan, None, None)
            }
        })
    }

    fn clos(&self) -> Plan {
        let (ports, radix) = (u64::from(self.wish.ports), u64::from(self.wish.switch.ports));
        let mut layers = 1;
        // Half of a switch's ports lead up, but for those of the highest layer.
        while radix * (radix / 2).pow(layers - 1) < ports {
            layers += 1;
        }
        self.switched(Interconnect::Clos { layers }, self.wish.ports * (2 * layers - 1))
    }

    /// None where one switch is enough, or no number of switches is.
    fn strict_clos(&self, is_folded: bool) -> Option<Plan> {
        let (ports, radix) = (u64::from(self.wish.ports), u64::from(self.wish.switch.ports));
        if ports <= radix {
            return None;
        }
        let (stages, switch_ports) = strict_clos(ports, radix, is_folded)?;
        let switch_ports = u32::try_from(switch_ports).ok()?;
        Some(self.switched(Interconnect::StrictClos { stages, is_folded }, switch_ports))
    }

    /// Servers at a network of switches.
    fn switched(&self, interconnect: Interconnect, switch_ports: u32) -> Plan {
        let mut plan = self.plan(interconnect, 2);
        (plan.links, plan.link_load) = (self.server.ports, self.wish.rate);
        plan.worst_work = plan.even_work;
        plan.switch_ports = switch_ports;
        match self.cabling(self.inner_slots(), plan.links, plan.link_load.0) {
            Ok(cabling) => {
                let text = format!("star({})", self.servers);
                plan.shape =
                    (cabling.cables == 1 && plan.links == 1 && text.parse::<Shape>().is_ok()).then_some(text);
                self.priced(plan, Some(&cabling), None)
            }
            Err(most) => {
                plan.problem = Some(format!("{} links a server, and {most} fit", plan.links));
                self.priced(plan, None, None)
            }
        }
    }
}

/// Stages and ports of switches of the strictly non-blocking Clos network with so many inputs and outputs, made of switches of `radix`
/// ports: the first switches have as many inputs as they can, n, and 2n - 1 uplinks; each leads to a network of as many inputs as there are
/// first switches, which is one switch if that is large enough. None where switches are too small for that, or their ports too many to count.
fn strict_clos(ports: u64, radix: u64, is_folded: bool) -> Option<(u32, u64)> {
    // Unfolded, inputs and outputs take a port each.
    let sides = if is_folded { 1 } else { 2 };
    if sides * ports <= radix {
        return Some((1, sides * ports));
    }
    let inputs = (radix + 1) / 3;
    if inputs < 2 {
        return None;
    }
    let (uplinks, first) = (2 * inputs - 1, ports.div_ceil(inputs));
    let (stages, middle) = strict_clos(first, radix, is_folded)?;
    let all = (sides * (ports + first * uplinks)).checked_add(uplinks.checked_mul(middle)?)?;
    Some((stages + 2, all))
}

/// The most even sides of a torus of exactly so many nodes, none shorter than 2.
fn sides(nodes: u32, dimensions: u32) -> Option<Vec<u32>> {
    if dimensions == 1 {
        return (nodes >= 2).then(|| vec![nodes]);
    }
    let root = f64::from(nodes).powf(1.0 / f64::from(dimensions)).round() as u32 + 1;
    (2..=root).rev().filter(|side| nodes.is_multiple_of(*side)).find_map(|side| {
        let mut rest = sides(nodes / side, dimensions - 1)?;
        rest.push(side);
        rest.sort_unstable();
        Some(rest)
    })
}

/// Mean number of links on the shorter way round a ring between any two of its nodes, a node and itself included.
fn mean_way(side: u32) -> f64 {
    let side = f64::from(side);
    if side % 2.0 == 0.0 { side / 4.0 } else { (side * side - 1.0) / (4.0 * side) }
}

/// The part of [`mean_way`] that goes round the busier side: half of it, but in a ring of an even number that 4 does not divide. There
/// an odd number of nodes has its way to the opposite node over a link, and of those one more goes over one side than over the other.
fn busier_way(side: u32) -> f64 {
    let is_uneven = side % 4 == 2;
    mean_way(side) / 2.0 + if is_uneven { 0.5 / f64::from(side) } else { 0.0 }
}

/// How many cables the topology of a plan has that Brickway runs, or none.
pub fn cables(plan: &Plan) -> Option<usize> {
    let shape = plan.shape.as_ref()?.parse::<Shape>().ok()?;
    Some(Topology::new(shape).cables().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Server {
        Server::known().into_iter().find(|server| server.name == name).unwrap()
    }

    fn wish(ports: u32) -> Wish {
        Wish { ports, rate: Rate(10e9), switch: Switch::default(), server_us: 24.0 }
    }

    fn chosen(ports: u32, name: &str) -> Plan {
        plans(&wish(ports), &known(name)).unwrap().remove(0)
    }

    #[test]
    fn the_papers_figures() {
        // RouteBricks, section 3.3.
        assert_eq!(largest_mesh(&wish(1), &known("current")), Some(32));
        assert_eq!(largest_mesh(&wish(1), &known("more-nics")), Some(128));
        let large = chosen(1024, "current");
        assert_eq!(large.interconnect, Interconnect::Butterfly { fan_out: 32, stages: 2 });
        assert_eq!(large.relays_per_port(&wish(1024)), 2.0);
    }

    #[test]
    fn four_servers_are_a_mesh_of_half_rate() {
        let plan = chosen(4, "current");
        assert_eq!((plan.interconnect, plan.servers, plan.relays), (Interconnect::Mesh, 4, 0));
        assert_eq!((plan.links, plan.cables, plan.cable_rate), (3, 1, Rate(10e9)));
        assert_eq!((plan.link_load, plan.even_work, plan.worst_work), (Rate(5e9), Rate(20e9), Rate(30e9)));
        assert_eq!((plan.hops, plan.latency_us, plan.price), (3, 72.0, 8000.0));
        assert_eq!(plan.shape.as_deref(), Some("mesh(4)"));
        assert_eq!(cables(&chosen(4, "current")), Some(6));
    }

    #[test]
    fn links_of_several_cables_are_planned() {
        // 2R/16 is more than a port of 1G, and there are not enough of 10G.
        let plan = chosen(16, "current");
        assert_eq!((plan.links, plan.cables, plan.cable_rate), (15, 2, Rate(1e9)));
        assert_eq!(plan.shape.as_deref(), Some("mesh(16, 2)"));
    }

    #[test]
    fn two_ports_a_server_and_capacity() {
        let plan = chosen(64, "faster");
        assert_eq!((plan.servers, plan.worst_work), (32, Rate(60e9)));
        assert_eq!(plan.link_load, Rate(1.25e9));
        let weak = Server { capacity: Some(Rate(25e9)), ..known("current") };
        let plan = &plans(&wish(4), &weak).unwrap()[0];
        assert_eq!(plan.problem.as_deref(), Some("a server works 30G at worst and can 25G"));
    }

    #[test]
    fn one_server_needs_nothing_and_two_need_one_link() {
        let plan = chosen(1, "current");
        assert_eq!((plan.interconnect, plan.links, plan.hops), (Interconnect::None, 0, 1));
        let plan = chosen(2, "current");
        assert_eq!((plan.links, plan.link_load, plan.worst_work), (1, Rate(10e9), Rate(20e9)));
    }

    #[test]
    fn a_torus_has_even_sides_and_its_load() {
        assert_eq!(sides(16, 2), Some(vec![4, 4]));
        assert_eq!(sides(24, 3), Some(vec![2, 3, 4]));
        assert_eq!((sides(7, 2), sides(6, 3)), (None, None));
        // All pairs of a ring of five: 0, 1, 2, 2, 1.
        assert!((mean_way(5) - 6.0 / 5.0).abs() < 1e-12 && (mean_way(4) - 1.0).abs() < 1e-12);
        let all = plans(&wish(16), &known("current")).unwrap();
        let torus =
            all.iter().find(|plan| plan.interconnect == Interconnect::Torus { sides: vec![4, 4] }).unwrap();
        assert_eq!((torus.links, torus.link_load, torus.worst_work), (4, Rate(10e9), Rate(50e9)));
        assert_eq!((torus.cables, torus.shape.as_deref()), (1, Some("torus(4, 4)")));
    }

    #[test]
    fn the_load_of_a_torus_is_what_its_ways_carry() {
        // Every node sends 2R spread over all nodes, by the next nodes of the fabric itself.
        for text in ["torus(4, 4)", "torus(3, 5)", "torus(2, 3, 4)", "torus(6, 6)", "torus(8, 10)"] {
            let topology = Topology::new(text.parse().unwrap());
            let nodes = topology.nodes();
            let mut loads = std::collections::HashMap::new();
            for from in fabric::NodeId::first(nodes) {
                for to in fabric::NodeId::first(nodes) {
                    let mut at = from;
                    while let Some(next) = topology.next(at, to) {
                        *loads.entry((at, next)).or_insert(0.0) += 2.0 / nodes as f64;
                        at = next;
                    }
                }
            }
            let worst = loads.values().fold(0.0_f64, |worst, &load| worst.max(load));
            let server = known("more-nics");
            let all = plans(&wish(nodes as u32), &server).unwrap();
            let is_it = |plan: &&Plan| match (&plan.interconnect, topology.shape()) {
                (Interconnect::Torus { sides }, Shape::Torus { sides: built }) => {
                    sides.iter().copied().eq(built.iter().map(|&side| u32::from(side)))
                }
                _ => false,
            };
            let planned = all.iter().find(is_it).unwrap().link_load.0 / 10e9;
            assert!((planned - worst).abs() < 1e-9, "{text}: {planned} {worst}");
        }
    }

    #[test]
    fn switches_grow_by_layers() {
        let clos = |ports| {
            let all = plans(&wish(ports), &known("current")).unwrap();
            let plan =
                all.into_iter().find(|plan| matches!(plan.interconnect, Interconnect::Clos { .. })).unwrap();
            (plan.interconnect, plan.switch_ports)
        };
        assert_eq!(clos(48), (Interconnect::Clos { layers: 1 }, 48));
        assert_eq!(clos(1024), (Interconnect::Clos { layers: 2 }, 3072));
    }

    #[test]
    fn strict_clos_networks_have_twice_as_many_uplinks_as_inputs_but_one() {
        // 48 ports: 16 inputs and 31 uplinks; 64 inputs: 4 first switches, and 31 of 4 ports each.
        assert_eq!(strict_clos(64, 48, true), Some((3, 64 + 4 * 31 + 31 * 4)));
        // Unfolded: first and last switches, and middle ones of 4 inputs and 4 outputs.
        assert_eq!(strict_clos(64, 48, false), Some((3, 2 * (64 + 4 * 31) + 31 * (4 + 4))));
        // 1,024 inputs: 64 first switches; in the place of each middle switch stands a network of 64 inputs.
        assert_eq!(strict_clos(1024, 48, true), Some((5, 1024 + 64 * 31 + 31 * 312)));
        assert_eq!(strict_clos(1024, 48, false), Some((5, 2 * (1024 + 64 * 31) + 31 * 624)));
        assert_eq!((strict_clos(4, 4, true), strict_clos(5, 4, true)), (Some((1, 4)), None));
        let kinds = |ports| {
            let all = plans(&wish(ports), &known("current")).unwrap();
            all.into_iter()
                .filter(|plan| plan.switch_ports > 0)
                .map(|plan| plan.interconnect)
                .collect::<Vec<_>>()
        };
        let strict = |is_folded| Interconnect::StrictClos { stages: 3, is_folded };
        assert_eq!(kinds(48), [Interconnect::Clos { layers: 1 }]);
        assert_eq!(kinds(64), [Interconnect::Clos { layers: 2 }, strict(true), strict(false)]);
    }

    #[test]
    fn ports_of_switches_are_worth_a_quarter_of_a_server() {
        let as_servers = |ports| switches_as_servers(&wish(ports), &known("current")).unwrap();
        assert_eq!(as_servers(1), [1.0; 3]);
        assert_eq!(as_servers(48), [60.0; 3]);
        assert_eq!(as_servers(64), [112.0, 142.0, 220.0]);
        assert_eq!(as_servers(1024), [1792.0, 4194.0, 7364.0]);
    }

    #[test]
    fn what_is_impossible_says_what_would_be_possible() {
        let error = |ports, rate, server: &Server| {
            plans(&Wish { rate: Rate(rate), ..wish(ports) }, server).unwrap_err().to_string()
        };
        assert_eq!(error(0, 1e9, &known("current")), "0 ports; 1 to 1048576 can be planned");
        assert_eq!(error(4, 0.0, &known("current")), "ports of rate 0; 10G would do");
        assert_eq!(error(5, 1e9, &known("faster")), "5 ports, 2 on each server: possible are 4 and 6");
        assert_eq!(
            error(4, 40e9, &known("current")),
            "server 'current': no card has ports of 40G; the fastest has 10G"
        );
        let narrow = Server { slots: 1, ..known("current") };
        assert!(error(4, 10e9, &narrow).contains("joining 4 servers takes 2 at least"));
    }
}
