//! Where packets are captured: from what the operator names to connections of the configuration.

use elements::devices::{METER, RECEIVER, SENDER};
use graph::context::{Edge, Watched};
use graph::lang::{FlatConfig, FlatElement, first_name, split_arguments, unquote};

/// The class of the ways to the slow thread.
const PUNT: &str = "Punt";

/// A connection on which packets are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The port; else the element's name with its output, or `punts`.
    pub(crate) interface: String,
    /// `in` or `out` of a port; else empty.
    pub(crate) direction: &'static str,
    pub(crate) edge: Edge,
    /// Whether all packets there are Ethernet frames, whatever is known of each.
    pub(crate) is_ethernet: bool,
    /// Whether they have the tag of a VLAN that is the port itself.
    pub(crate) has_tag: bool,
}

/// The ports whose packets have to come to the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Packets that the kernel forwards are of no interest.
    #[default]
    Nothing,
    /// So are they, but not those that the kernel's program leaves.
    Rest,
    Port(String),
    All,
}

/// All places of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) spots: Vec<Spot>,
    pub(crate) drops: bool,
    pub(crate) needs: Needs,
}

/// The name of the interface of dropped packets.
pub(crate) const DROPS: &str = "drops";
/// The name of the interface of packets for the slow thread.
pub(crate) const PUNTS: &str = "punts";
/// What ToDevices of ways into Linux's stack have before the port.
pub(crate) const HOST: &str = "host:";
/// All ports.
const ALL: &str = "all";
/// What comes in by all ports.
pub(crate) const INPUTS: &str = "inputs";

impl Places {
    /// Returns the places that `what` names.
    ///
    /// # Errors
    /// There is none; lists what there is.
    pub(crate) fn of(config: &FlatConfig, what: Option<&str>) -> Result<Self, String> {
        let ports = ports(config);
        let what = what.unwrap_or(ALL);
        if what == DROPS {
            return Ok(Self { drops: true, needs: Needs::Rest, ..Self::default() });
        }
        if what == PUNTS {
            let into = edges(config).filter(|edge| config.elements[edge.to.0].class == PUNT);
            let spots = into.map(|edge| spot(config, PUNTS, edge)).collect();
            return Self::with(spots, Needs::Rest, "this configuration has no Punt");
        }
        if what == ALL {
            let spots = ports.iter().flat_map(|port| of_port(config, port)).collect();
            return Self::with(spots, Needs::All, "this configuration has no ports");
        }
        if what == INPUTS {
            // A VLAN's packets come in by the port below.
            let from = edges(config).filter(|edge| config.elements[edge.from.0].has(RECEIVER));
            let of_port = |edge: Edge| {
                let port = first_name(&config.elements[edge.from.0].config);
                Spot { direction: "in", ..spot(config, &port.unwrap_or_default(), edge) }
            };
            return Self::with(from.map(of_port).collect(), Needs::All, "this configuration has no ports");
        }
        if ports.iter().any(|port| port == what) {
            return Self::with(of_port(config, what), Needs::Port(what.to_owned()), "it has no element");
        }
        let (element, output) = match (config.find(what), what.rsplit_once('.')) {
            (Some(element), _) => (Some(element), None),
            (None, Some((name, output))) => (config.find(name), output.parse::<usize>().ok()),
            (None, None) => (None, None),
        };
        let Some(element) = element else {
            if let Some(port) = port_called(&ports, what) {
                return Self::of(config, Some(&port));
            }
            return Err(format!(
                "capture: no port and no element '{what}'; expected a port ({}), an element of `brickway show elements`, \
                 'all', 'inputs', 'drops' or 'punts'; a filter stands behind it: brickway capture all icmp",
                ports.join(", ")
            ));
        };
        let is_end = config.elements[element].outputs == 0;
        let is_there = |edge: &Edge| match output {
            Some(output) => edge.from == (element, output),
            None if is_end => edge.to.0 == element,
            None => edge.from.0 == element,
        };
        let named = |edge: Edge| {
            let name = &config.elements[element].name;
            let interface = if is_end { name.clone() } else { format!("{name}.{}", edge.from.1) };
            spot(config, &interface, edge)
        };
        let spots = edges(config).filter(is_there).map(named).collect();
        Self::with(spots, Needs::All, "nothing is connected there")
    }

    /// Returns all connections, to follow packets that come in by a port, or by any source.
    pub(crate) fn everywhere(config: &FlatConfig, from: Option<&str>) -> Result<Self, String> {
        let needs = match from {
            None => Needs::All,
            Some(port) if ports(config).iter().any(|known| known == port) => Needs::Port(port.to_owned()),
            Some(word) => {
                let all = ports(config);
                let port = port_called(&all, word);
                let problem = || format!("trace: no port '{word}'; expected one of {}", all.join(", "));
                Needs::Port(port.ok_or_else(problem)?)
            }
        };
        let mut at_ports: Vec<Spot> = ports(config).iter().flat_map(|port| of_port(config, port)).collect();
        at_ports.iter_mut().for_each(|spot| spot.has_tag = false);
        let elsewhere = |edge: Edge| {
            let to = &config.elements[edge.to.0];
            let device = first_name(&to.config).filter(|_| to.has(SENDER));
            spot(config, &device.unwrap_or_default(), edge)
        };
        let all = edges(config).map(|edge| {
            let at_port = at_ports.iter().find(|spot| spot.edge == edge);
            at_port.cloned().unwrap_or_else(|| elsewhere(edge))
        });
        Ok(Self { spots: all.collect(), drops: true, needs })
    }

    /// Returns whether all places are where packets come in and leave by ports.
    pub(crate) fn are_ports(&self) -> bool {
        !self.drops && self.spots.iter().all(|spot| !spot.direction.is_empty())
    }

    fn with(spots: Vec<Spot>, needs: Needs, otherwise: &str) -> Result<Self, String> {
        if spots.is_empty() {
            return Err(format!("capture: no packets pass there: {otherwise}"));
        }
        Ok(Self { spots, drops: false, needs })
    }

    /// What a copy of the graph has to watch.
    pub(crate) fn watched(&self) -> Watched {
        Watched { edges: self.spots.iter().map(|spot| spot.edge).collect(), drops: self.drops }
    }
}

fn edges(config: &FlatConfig) -> impl Iterator<Item = Edge> {
    config.connections.iter().map(|connection| Edge { from: connection.from, to: connection.to })
}

fn spot(config: &FlatConfig, interface: &str, edge: Edge) -> Spot {
    let is_ethernet = config.elements[edge.to.0].has(SENDER) || config.elements[edge.from.0].has(RECEIVER);
    Spot { interface: interface.to_owned(), direction: "", edge, is_ethernet, has_tag: false }
}

/// The names of all ports, in the order of the configuration.
pub(crate) fn ports(config: &FlatConfig) -> Vec<String> {
    let devices = config.elements.iter().filter(|element| element.has(RECEIVER) || element.has(SENDER));
    let devices = devices.filter_map(|element| first_name(&element.config));
    // What is given to Linux leaves by no port.
    let devices = devices.filter(|port| !port.starts_with(HOST));
    let vlans = config.elements.iter().filter_map(|element| Some(metered(element)?.0));
    let mut ports: Vec<String> = Vec::new();
    for port in devices.chain(vlans) {
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports
}

/// The port whose interface Linux calls so now, or by an alternative name.
fn port_called(ports: &[String], word: &str) -> Option<String> {
    let links = ::ports::Links::ask().ok()?;
    let name = &links.named(word)?.name;
    ports.iter().find(|port| ::ports::kernel_name(port) == *name).cloned()
}

/// The port that an element counts for, and whether it counts what that sends.
fn metered(element: &FlatElement) -> Option<(String, bool)> {
    let arguments = split_arguments(&element.config).into_iter().filter(|_| element.has(METER));
    let mut arguments = arguments.map(|argument| unquote(&argument));
    Some((arguments.next()?, arguments.next()? == "sent"))
}

/// What its FromDevices emit and what goes into its ToDevices; of a VLAN what leaves the elements that count for it.
fn of_port(config: &FlatConfig, port: &str) -> Vec<Spot> {
    let is_of_port =
        |element: usize| first_name(&config.elements[element].config).is_some_and(|name| name == port);
    let counts = |element: usize| {
        metered(&config.elements[element]).filter(|(name, _)| name == port).map(|(_, sends)| sends)
    };
    let at_port = |edge: Edge| {
        let Edge { from: (from, _), to: (to, _) } = edge;
        let (direction, has_tag) = if config.elements[from].has(RECEIVER) && is_of_port(from) {
            ("in", false)
        } else if config.elements[to].has(SENDER) && is_of_port(to) {
            ("out", false)
        } else {
            match counts(from)? {
                false => ("in", false),
                true => ("out", true),
            }
        };
        Some(Spot { direction, has_tag, is_ethernet: true, ..spot(config, port, edge) })
    };
    edges(config).filter_map(at_port).collect()
}

/// What becomes of packets on a connection.
pub(crate) fn verdict(config: &FlatConfig, edge: Edge) -> &'static str {
    let to = &config.elements[edge.to.0];
    if to.has(SENDER) {
        "sent"
    } else if to.class == PUNT {
        "punted"
    } else if to.outputs == 0 {
        "ended"
    } else {
        "passed"
    }
}

/// Whether packets begin their way there.
pub(crate) fn is_source(config: &FlatConfig, edge: Edge) -> bool {
    config.elements[edge.from.0].inputs == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::lang::{self, Options, Source};

    const TEXT: &str = "
        in1 :: FromDevice(eth1) -> s :: Switch(0);
        s[0] -> ttl :: DecIPTTL -> out2 :: ToDevice(eth2);
        s[1] -> p :: Punt -> out1 :: ToDevice(eth1);
        ttl[1] -> d :: Discard;
        in2 :: FromDevice(eth2) -> d;
    ";

    fn config() -> FlatConfig {
        let source = Source { name: "test.click".into(), text: TEXT.into() };
        lang::compile(&source, &Options::default(), &crate::classes()).0.unwrap()
    }

    fn seen(what: &str) -> Vec<(String, String)> {
        let config = config();
        let name = |(element, port): (usize, usize)| format!("{}[{port}]", config.elements[element].name);
        let mut all: Vec<_> = Places::of(&config, Some(what))
            .unwrap()
            .spots
            .iter()
            .map(|spot| {
                (format!("{}->{}", name(spot.edge.from), name(spot.edge.to)), spot.direction.to_owned())
            })
            .collect();
        all.sort();
        all
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(edge, direction)| ((*edge).to_owned(), (*direction).to_owned())).collect()
    }

    #[test]
    fn a_port_is_what_comes_in_and_what_leaves_by_it() {
        assert_eq!(seen("eth1"), pairs(&[("in1[0]->s[0]", "in"), ("p[0]->out1[0]", "out")]));
        assert_eq!(seen("all").len(), 4);
        assert_eq!(seen("inputs"), pairs(&[("in1[0]->s[0]", "in"), ("in2[0]->d[0]", "in")]));
        assert_eq!(Places::of(&config(), Some("eth2")).unwrap().needs, Needs::Port("eth2".to_owned()));
        assert_eq!(ports(&config()), ["eth1", "eth2"]);
    }

    #[test]
    fn an_element_is_what_leaves_it_and_one_without_outputs_what_comes_to_it() {
        assert_eq!(seen("ttl"), pairs(&[("ttl[0]->out2[0]", ""), ("ttl[1]->d[0]", "")]));
        assert_eq!(seen("ttl.1"), pairs(&[("ttl[1]->d[0]", "")]));
        assert_eq!(seen("d"), pairs(&[("in2[0]->d[0]", ""), ("ttl[1]->d[0]", "")]));
        assert_eq!(seen("punts"), pairs(&[("s[1]->p[0]", "")]));
    }

    #[test]
    fn what_is_not_there_is_an_error_that_lists_what_is() {
        let error = Places::of(&config(), Some("eth9")).unwrap_err();
        assert!(error.contains("'eth9'") && error.contains("eth1, eth2"), "{error}");
        let error = Places::of(&config(), Some("ttl.7")).unwrap_err();
        assert!(error.contains("nothing is connected there"), "{error}");
        assert!(Places::everywhere(&config(), Some("ttl")).unwrap_err().contains("no port 'ttl'"));
    }

    #[test]
    fn drops_take_no_packets_out_of_the_kernel_and_a_trace_sees_all_connections() {
        let places = Places::of(&config(), Some("drops")).unwrap();
        assert_eq!((places.drops, places.needs, places.spots.len()), (true, Needs::Rest, 0));
        let config = config();
        let all = Places::everywhere(&config, None).unwrap();
        assert_eq!(all.spots.len(), config.connections.len());
        let kinds: Vec<_> = all.spots.iter().map(|spot| verdict(&config, spot.edge)).collect();
        for kind in ["sent", "punted", "ended", "passed"] {
            assert!(kinds.contains(&kind), "{kind}");
        }
        assert_eq!(all.spots.iter().filter(|spot| is_source(&config, spot.edge)).count(), 2);
    }
}
