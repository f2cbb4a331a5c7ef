//! Ports: how many an element has, whether packets are pushed or pulled through them, and whether they are all in use.
//!
//! An element class describes its ports by codes, see `port_codes`. Agnostic ports become push or pull by what they are connected with, directly or through elements
//! whose own flow code says that packets pass between two ports; what stays open is push.

use std::collections::HashSet;

use super::elaborate::{Class, Elaborated, Trust};
use super::expand::{FlatLink, FlatMember, Graph, port_range};
use super::lexer::{SourceFile, Span};
use super::port_codes::{clamp, flow_pairs, port_counts, processing};
use super::report::Report;
use super::{Connection, FlatConfig, FlatElement, PortKind};

/// Checks all ports and makes the final configuration.
pub(super) fn check(
    graph: Graph,
    elaborated: &Elaborated,
    files: &[SourceFile],
    report: &mut Report,
) -> FlatConfig {
    let mut checker = Checker::new(&graph, elaborated, report);
    checker.check_range();
    checker.resolve();
    checker.check_reuse();
    checker.check_unused();
    let ports = checker.ports;
    let offsets = checker.offsets;
    let location = |span: Span| files[usize::from(span.file)].location(span);
    let connections = graph
        .links
        .iter()
        .map(|l| Connection {
            from: (l.from.0, l.from.1 as usize),
            to: (l.to.0, l.to.1 as usize),
            location: location(l.span),
        })
        .collect();
    let elements = graph.members.into_iter().enumerate().map(|(number, member)| {
        let class = match &elaborated.classes[member.class] {
            Class::Builtin(spec) => spec.name.to_string(),
            Class::Unknown(name) => name.clone(),
            Class::Compound(template) => elaborated.templates[*template].name.clone(),
        };
        let capabilities = match &elaborated.classes[member.class] {
            Class::Builtin(spec) => spec.capabilities,
            Class::Unknown(_) | Class::Compound(_) => &[],
        };
        let side = |k: usize| &ports[k][offsets[k][number]..offsets[k][number + 1]];
        let kinds = |k: usize| side(k).iter().map(|p| p.kind.unwrap_or(PortKind::Push)).collect::<Vec<_>>();
        FlatElement {
            name: member.name,
            class,
            capabilities,
            config: member.config,
            location: location(member.span),
            inputs: side(0).len(),
            outputs: side(1).len(),
            input_kinds: kinds(0),
            output_kinds: kinds(1),
        }
    });
    FlatConfig { elements: elements.collect(), connections, requirements: elaborated.requirements.clone() }
}

#[derive(Debug, Clone, Copy)]
struct Port {
    kind: Option<PortKind>,
    /// The class leaves it open whether the port is push or pull.
    agnostic: bool,
    /// It belongs to an element of which nothing is known.
    unknown: bool,
    /// How many connections use it.
    used: u32,
    /// It has a connection which leads nowhere.
    excused: bool,
}

impl Port {
    fn is_unused(&self) -> bool {
        self.used == 0 && !self.unknown && !self.excused
    }
}

struct Checker<'a> {
    graph: &'a Graph,
    elaborated: &'a Elaborated,
    report: &'a mut Report,
    /// Inputs and outputs of all elements, one after the other.
    ports: [Vec<Port>; 2],
    /// Where the ports of an element begin.
    offsets: [Vec<usize>; 2],
    /// Links whose ports exist.
    links: Vec<FlatLink>,
    /// Elements and sides (0 for inputs) with a connection to a port that does not exist: it explains ports that look
    /// unused.
    misconnected: HashSet<(usize, usize)>,
    /// Complaints that were made for another instance of the same member.
    reported: HashSet<(Span, String)>,
}

impl<'a> Checker<'a> {
    fn new(graph: &'a Graph, elaborated: &'a Elaborated, report: &'a mut Report) -> Self {
        let mut used = [vec![0usize; graph.members.len()], vec![0usize; graph.members.len()]];
        for link in &graph.links {
            used[0][link.to.0] = used[0][link.to.0].max(link.to.1 as usize + 1);
            used[1][link.from.0] = used[1][link.from.0].max(link.from.1 as usize + 1);
        }
        let mut ports = [Vec::new(), Vec::new()];
        let mut offsets = [vec![0], vec![0]];
        for (number, member) in graph.members.iter().enumerate() {
            let used = [used[0][number], used[1][number]];
            let spec = match &elaborated.classes[member.class] {
                Class::Builtin(spec) => Some(spec),
                _ => None,
            };
            let counts = spec.and_then(|s| {
                let counts = port_counts(s.ports);
                if counts.is_none() {
                    report.error(member.span, format!("'{} :: {}': bad port count", member.name, s.name));
                }
                counts
            });
            let known = counts.is_some() && member.trust > Trust::Nothing;
            let counts = match counts {
                Some([inputs, outputs]) if known => {
                    let inputs = clamp(inputs, used[0], 0);
                    [inputs, clamp(outputs, used[1], inputs)]
                }
                _ => used,
            };
            for (k, count) in counts.into_iter().enumerate() {
                for port in 0..count {
                    let kind = spec.filter(|_| known).and_then(|s| processing(s.processing, k == 1, port));
                    ports[k].push(Port {
                        kind,
                        agnostic: known && kind.is_none(),
                        unknown: !known,
                        used: 0,
                        excused: false,
                    });
                }
                offsets[k].push(ports[k].len());
            }
        }
        let links = graph.links.clone();
        Checker {
            graph,
            elaborated,
            report,
            ports,
            offsets,
            links,
            misconnected: HashSet::new(),
            reported: HashSet::new(),
        }
    }

    fn count(&self, element: usize, side: usize) -> usize {
        self.offsets[side][element + 1] - self.offsets[side][element]
    }

    fn index(&self, (element, port): (usize, u32), side: usize) -> usize {
        self.offsets[side][element] + port as usize
    }

    fn member(&self, element: usize) -> &'a FlatMember {
        &self.graph.members[element]
    }

    /// `name :: Class`.
    fn declaration(&self, element: usize) -> String {
        let member = self.member(element);
        let class = match &self.elaborated.classes[member.class] {
            Class::Builtin(spec) => spec.name,
            Class::Unknown(name) => name.as_str(),
            Class::Compound(template) => self.elaborated.templates[*template].name.as_str(),
        };
        format!("{} :: {class}", member.name)
    }

    /// Reports an error about an element, unless it was reported for another instance of the same member.
    fn error(&mut self, element: usize, problem: &str, before: &str, after: &str, help: String) {
        let span = self.member(element).span;
        if !self.reported.insert((span, problem.to_string())) {
            return;
        }
        let message = format!("{before}'{}'{after}", self.declaration(element));
        let entered = self.report.error(span, message);
        self.report.help(entered, help);
    }

    /// Connections to ports that the element does not have.
    fn check_range(&mut self) {
        let links = std::mem::take(&mut self.links);
        let mut good = Vec::with_capacity(links.len());
        for link in links {
            let mut exists = true;
            for (side, (element, port)) in [(0, link.to), (1, link.from)] {
                let count = self.count(element, side);
                if (port as usize) < count {
                    continue;
                }
                exists = false;
                self.misconnected.insert((element, side));
                let what = ["input", "output"][side];
                let problem = format!(" has no {what} {port}");
                let verb = if side == 0 { "takes" } else { "has" };
                let help = format!("it {verb} {}", port_range(count, what));
                self.error(element, &problem, "", &problem, help);
            }
            if exists {
                good.push(link);
            } else {
                // The other end is in use all the same.
                for (side, at) in [(0, link.to), (1, link.from)] {
                    if (at.1 as usize) < self.count(at.0, side) {
                        let index = self.index(at, side);
                        self.ports[side][index].used += 1;
                    }
                }
            }
        }
        self.links = good;
        for &(element, side, port) in &self.graph.excused {
            if (port as usize) < self.count(element, side) {
                let index = self.index((element, port), side);
                self.ports[side][index].excused = true;
            }
        }
        for number in 0..self.links.len() {
            let link = self.links[number];
            for (side, at) in [(0, link.to), (1, link.from)] {
                let index = self.index(at, side);
                self.ports[side][index].used += 1;
            }
        }
    }

    /// Spreads push and pull along connections and through elements until nothing changes.
    fn resolve(&mut self) {
        let inner = self.inner_links();
        // Inputs are numbered first, then outputs.
        let inputs = self.ports[0].len();
        let total = inputs + self.ports[1].len();
        let mut edges: Vec<(usize, usize)> = Vec::with_capacity(self.links.len() + inner.len());
        for link in self.links.iter().chain(&inner) {
            edges.push((inputs + self.index(link.from, 1), self.index(link.to, 0)));
        }
        let mut starts = vec![0usize; total + 1];
        for &(a, b) in &edges {
            starts[a + 1] += 1;
            starts[b + 1] += 1;
        }
        for port in 0..total {
            starts[port + 1] += starts[port];
        }
        let mut neighbours = vec![0usize; edges.len() * 2];
        let mut filled = starts.clone();
        for &(a, b) in &edges {
            neighbours[filled[a]] = b;
            filled[a] += 1;
            neighbours[filled[b]] = a;
            filled[b] += 1;
        }
        let mut ports: Vec<Port> = self.ports[0].iter().chain(&self.ports[1]).copied().collect();
        let mut queue: std::collections::VecDeque<usize> =
            (0..total).filter(|p| ports[*p].kind.is_some()).collect();
        while let Some(port) = queue.pop_front() {
            for &other in &neighbours[starts[port]..starts[port + 1]] {
                if ports[other].kind.is_none() && !ports[other].unknown {
                    ports[other].kind = ports[port].kind;
                    queue.push_back(other);
                }
            }
        }
        self.ports[1] = ports.split_off(inputs);
        self.ports[0] = ports;
        for number in 0..self.links.len() {
            self.check_kinds(self.links[number], false);
        }
        for link in inner {
            self.check_kinds(link, true);
        }
    }

    /// Agnostic ports of one element between which packets pass, as links from output to input.
    fn inner_links(&self) -> Vec<FlatLink> {
        let mut links = Vec::new();
        for (element, member) in self.graph.members.iter().enumerate() {
            let Class::Builtin(spec) = &self.elaborated.classes[member.class] else { continue };
            let agnostic = |side: usize| -> Vec<usize> {
                let start = self.offsets[side][element];
                (0..self.count(element, side)).filter(|p| self.ports[side][start + p].agnostic).collect()
            };
            flow_pairs(spec.flow, &agnostic(0), &agnostic(1), |input, output| {
                let span = member.span;
                links.push(FlatLink { from: (element, output as u32), to: (element, input as u32), span });
            });
        }
        links
    }

    fn check_kinds(&mut self, link: FlatLink, inner: bool) {
        let from = self.ports[1][self.index(link.from, 1)].kind;
        let to = self.ports[0][self.index(link.to, 0)].kind;
        let (Some(from), Some(to)) = (from, to) else { return };
        if from == to {
            return;
        }
        if inner {
            let after = format!(" in mixed context: {to} input {}, {from} output {}", link.to.1, link.from.1);
            let help = "it takes over push or pull from its neighbours, and these differ".to_string();
            self.error(link.to.0, " in mixed context", "agnostic ", &after, help);
            return;
        }
        let (a, b) = (self.declaration(link.from.0), self.declaration(link.to.0));
        let problem = format!("{} {}", link.from.1, link.to.1);
        if !self.reported.insert((link.span, problem)) {
            return;
        }
        let message =
            format!("'{a}' {from} output {} connected to '{b}' {to} input {}", link.from.1, link.to.1);
        let entered = self.report.error(link.span, message);
        let help = match from {
            PortKind::Push => "put a Queue between them: it stores what is pushed until it is pulled",
            PortKind::Pull => "put an Unqueue between them: it pulls packets and pushes them on",
        };
        self.report.help(entered, help);
    }

    /// A push output or pull input decides where a packet goes or comes from, so it has one connection.
    fn check_reuse(&mut self) {
        let active = [PortKind::Pull, PortKind::Push];
        for element in 0..self.graph.members.len() {
            for side in 0..2 {
                for port in 0..self.count(element, side) {
                    let state = self.ports[side][self.offsets[side][element] + port];
                    if state.used < 2 || state.unknown || state.kind.unwrap_or(PortKind::Push) != active[side]
                    {
                        continue;
                    }
                    let what = format!(" {} {} {port}", active[side], ["input", "output"][side]);
                    let help = if side == 1 {
                        format!("{} connections leave it; a Tee sends copies to all of them", state.used)
                    } else {
                        format!(
                            "{} connections lead to it; a scheduler such as RoundRobinSched takes turns",
                            state.used
                        )
                    };
                    self.error(element, &what, "illegal reuse of ", &what, help);
                }
            }
        }
    }

    fn check_unused(&mut self) {
        for side in 0..2 {
            let what = ["input", "output"][side];
            for element in 0..self.graph.members.len() {
                let start = self.offsets[side][element];
                let count = self.count(element, side);
                if self.member(element).trust < Trust::Full || self.misconnected.contains(&(element, side)) {
                    continue;
                }
                let mut port = 0;
                while port < count {
                    let state = self.ports[side][start + port];
                    let first = port;
                    port += 1;
                    if !state.is_unused() {
                        continue;
                    }
                    while port < count && self.ports[side][start + port].is_unused() {
                        port += 1;
                    }
                    self.report_unused(element, what, first, port - 1);
                }
            }
        }
    }

    /// Reports the unused ports from `first` to `last`, one by one unless they are many.
    fn report_unused(&mut self, element: usize, what: &str, first: usize, last: usize) {
        const FEW: usize = 4;
        let name = self.member(element).name.clone();
        let help = |port: usize| match what {
            "input" => format!("connect something to it: ... -> {}{name}", shown_port(port)),
            _ => format!(
                "connect it, to a Discard for instance: {name}{} -> Discard",
                shown_port(port).trim_end()
            ),
        };
        if last - first >= FEW {
            let problem = format!(" {what}s {first}-{last} unused");
            self.error(element, &problem, "", &problem, help(first));
            return;
        }
        for port in first..=last {
            let problem = format!(" {what} {port} unused");
            self.error(element, &problem, "", &problem, help(port));
        }
    }
}

fn shown_port(port: usize) -> String {
    if port == 0 { String::new() } else { format!(" [{port}] ") }
}
