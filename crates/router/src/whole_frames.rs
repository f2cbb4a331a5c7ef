//! Merged packets in configurations of one's own: which ports give them, and where they are divided.
//!
//! A port of packet sockets has frames of many packets whole ([`ports::gives_merged`]). From each such port on, elements get them
//! whole as long as their class takes them ([`graph::TAKES_MERGED`]); before the first that does not, and before ports that send
//! packets one by one, a `Divide` is put in.

use std::collections::BTreeSet;

use elements::devices::{MergedPorts, RECEIVER, SENDER};
use graph::lang::{Connection, FlatConfig, FlatElement, first_name, split_arguments};
use graph::setup::Shared;
use graph::{DIVIDES, TAKES_MERGED};

/// The class of what is put in.
const DIVIDE: &str = "Divide";

/// Large frames of each worker: 8 MB, of which queues may hold as many merged packets.
const FRAMES: usize = 128;

/// Returns how many large frames each worker needs.
pub(crate) fn frames(shared: &Shared) -> usize {
    let ports = shared.get::<MergedPorts>(MergedPorts::KEY);
    if ports.is_some_and(|ports| !ports.0.is_empty()) { FRAMES } else { 0 }
}

/// The names of elements before which merged packets are divided, each once.
pub(crate) fn divided_before(config: &FlatConfig, specs: &[(String, String)]) -> Vec<String> {
    let mut config = config.clone();
    let before = config.elements.len();
    allow(&mut config, specs);
    let behind = |connection: &&Connection| connection.from.0 >= before;
    let names = config.connections.iter().filter(behind).map(|connection| connection.to.0);
    let names: BTreeSet<usize> = names.collect();
    names.into_iter().map(|number| config.elements[number].name.clone()).collect()
}

/// Puts in what divides merged packets. Returns the ports that give them; `specs` are those of names that the command line defines.
pub(crate) fn allow(config: &mut FlatConfig, specs: &[(String, String)]) -> MergedPorts {
    let ports = ports_of(config, specs);
    allow_from(config, &ports);
    MergedPorts(ports)
}

/// Puts in what divides the merged packets that the ports of a running router give.
pub(crate) fn allow_again(config: &mut FlatConfig, shared: &Shared) {
    if let Some(ports) = shared.get::<MergedPorts>(MergedPorts::KEY) {
        allow_from(config, &ports.0);
    }
}

fn allow_from(config: &mut FlatConfig, ports: &BTreeSet<String>) {
    let is_whole_at = |config: &FlatConfig, element: usize| {
        let element = &config.elements[element];
        let takes = element.has(TAKES_MERGED);
        takes && (!element.has(SENDER) || port_of(element).is_some_and(|port| ports.contains(&port)))
    };
    let is_giver = |element: &FlatElement| {
        element.has(RECEIVER) && port_of(element).is_some_and(|port| ports.contains(&port))
    };
    let mut reached = vec![false; config.elements.len()];
    let mut next: Vec<usize> =
        (0..reached.len()).filter(|&number| is_giver(&config.elements[number])).collect();
    next.iter().for_each(|&number| reached[number] = true);
    let mut inputs = BTreeSet::new();
    while let Some(from) = next.pop() {
        if config.elements[from].has(DIVIDES) {
            continue;
        }
        for connection in config.connections.iter().filter(|connection| connection.from.0 == from) {
            let to = connection.to.0;
            if !is_whole_at(config, to) {
                inputs.insert(connection.to);
            } else if !std::mem::replace(&mut reached[to], true) {
                next.push(to);
            }
        }
    }
    inputs.into_iter().for_each(|input| divide_before(config, input, &reached));
}

/// The ports that give merged packets, by the names that elements use.
fn ports_of(config: &FlatConfig, specs: &[(String, String)]) -> BTreeSet<String> {
    let receivers = config.elements.iter().filter(|element| element.has(RECEIVER) && keeps_length(element));
    let names = receivers.filter_map(port_of);
    let spec =
        |name: &str| specs.iter().find(|(known, _)| known == name).map_or(name, |(_, spec)| spec).to_owned();
    // Another name of an interface is another port to those that name it otherwise.
    let is_own_name = |name: &String| matches!(elements::devices::interface_with(name), Ok(None));
    names.filter(is_own_name).filter(|name| ports::gives_merged(&spec(name))).collect()
}

/// The port's name.
fn port_of(element: &FlatElement) -> Option<String> {
    first_name(&element.config)
}

/// Whether it cuts no packets: no SNAPLEN is given.
fn keeps_length(element: &FlatElement) -> bool {
    let arguments = split_arguments(&element.config);
    let is_length = |(place, argument): (usize, &String)| {
        argument.starts_with("SNAPLEN") || place == 2 && argument.parse::<u64>().is_ok()
    };
    !arguments.iter().enumerate().any(is_length)
}

/// Puts a `Divide` before an input, for what comes from elements that merged packets reach.
fn divide_before(config: &mut FlatConfig, input: (usize, usize), reached: &[bool]) {
    let number = config.elements.len();
    let behind = &config.elements[input.0];
    let place = if input.1 == 0 { String::new() } else { input.1.to_string() };
    let name = format!("{}@divide{place}", behind.name);
    let Some(kind) = behind.input_kinds.get(input.1).copied() else { return };
    let location = behind.location.clone();
    for connection in &mut config.connections {
        if connection.to == input && reached.get(connection.from.0).copied().unwrap_or(false) {
            connection.to = (number, 0);
        }
    }
    config.connections.push(Connection { from: (number, 0), to: input, location: location.clone() });
    config.connections.sort_by_key(|connection| (connection.to, connection.from));
    config.elements.push(FlatElement {
        name,
        class: DIVIDE.to_owned(),
        capabilities: &[graph::KEEPS_ALL, TAKES_MERGED, DIVIDES],
        config: String::new(),
        location,
        inputs: 1,
        outputs: 1,
        input_kinds: vec![kind],
        output_kinds: vec![kind],
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::compile;
    use graph::lang::Source;

    /// What is put in, and before which input, in a configuration.
    fn divided(text: &str) -> Vec<String> {
        let source = Source { name: "test.click".into(), text: text.to_owned() };
        let mut flat = compile(&source, &graph::lang::Options::default(), &crate::classes()).unwrap();
        let specs = [("cut".to_owned(), "af_xdp:eth7".to_owned())];
        let ports = allow(&mut flat, &specs);
        let name = |element: usize| flat.elements[element].name.clone();
        let mut all: Vec<String> = flat
            .connections
            .iter()
            .filter(|connection| flat.elements[connection.from.0].class == DIVIDE)
            .map(|connection| format!("{}[{}]", name(connection.to.0), connection.to.1))
            .collect();
        all.extend(ports.0.iter().map(|port| format!("port {port}")));
        let again = Source { name: "again.click".into(), text: flat.flat_text() };
        assert!(compile(&again, &graph::lang::Options::default(), &crate::classes()).is_some());
        all
    }

    #[test]
    fn packets_are_divided_before_the_first_that_needs_them_single() {
        let is = |text: &str, expected: &[&str]| assert_eq!(divided(text), expected, "{text}");
        is("FromDevice(eth0) -> c :: Counter -> ToDevice(eth0)", &["port eth0"]);
        is("FromDevice(eth0) -> p :: Truncate(60) -> r :: Resize(1) -> Discard", &["p[0]", "port eth0"]);
        // A port that has none, one that cuts, one that sends them one by one.
        is("FromDevice(af_xdp:eth0) -> Truncate(60) -> Discard", &[]);
        is("FromDevice(cut) -> Truncate(60) -> ToDevice(cut)", &[]);
        is("FromDevice(eth0, SNAPLEN 90) -> Truncate(60) -> Discard", &[]);
        is("FromDevice(eth0) -> q :: Queue -> t :: ToDevice(cut)", &["t[0]", "port eth0"]);
        // As elements read their arguments.
        is(
            "FromDevice(/* out */ \"eth0\", PROMISC true) -> t :: Truncate(60) -> Discard",
            &["t[0]", "port eth0"],
        );
        // Only what merged packets reach.
        is(
            "FromDevice(eth0) -> c :: Classifier(12/0800, -); c[0] -> t :: Truncate(60) -> d :: Discard;
             c[1] -> d; FromDevice(pcap:x.pcap) -> t",
            &["t[0]", "port eth0"],
        );
        is("FromDevice(eth0) -> Divide -> t :: Truncate(60) -> Discard", &["t[0]", "port eth0"]);
    }
}
