//! The compiled configuration: elements and connections, and its two printed forms.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use super::arguments::quote;
use super::ast::Requirement;
use super::diagnostics::Location;
use crate::element::Capability;

/// Who moves a packet through a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortKind {
    /// The element before the connection hands packets on.
    Push,
    /// The element behind the connection asks for packets.
    Pull,
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortKind::Push => "push",
            PortKind::Pull => "pull",
        })
    }
}

/// A configuration without compound elements, groups and variables.
#[derive(Debug, Clone, Default)]
pub struct FlatConfig {
    /// The elements: those of the file itself, then the members of its compound elements.
    pub elements: Vec<FlatElement>,
    /// The connections, sorted by where they go to and then by where they come from; no two are equal.
    pub connections: Vec<Connection>,
    /// What `require` statements asked for, except libraries.
    pub requirements: Vec<Requirement>,
}

/// An element of a [`FlatConfig`].
#[derive(Debug, Clone)]
pub struct FlatElement {
    /// Its name: `a`, `Counter@3`, `compound/member`.
    pub name: String,
    /// Its class. It may be one that the program does not have, if there was an error.
    pub class: String,
    /// What its class is or does.
    pub capabilities: &'static [Capability],
    /// The configuration string, verbatim but for variables: comments and space are kept.
    pub config: String,
    /// Where it is declared.
    pub location: Location,
    /// Number of inputs.
    pub inputs: usize,
    /// Number of outputs.
    pub outputs: usize,
    /// Whether each input is push or pull.
    pub input_kinds: Vec<PortKind>,
    /// Whether each output is push or pull.
    pub output_kinds: Vec<PortKind>,
}

impl FlatElement {
    /// Returns whether its class is or does this.
    pub fn has(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }
}

/// A connection, by indices into [`FlatConfig::elements`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Element and output port.
    pub from: (usize, usize),
    /// Element and input port.
    pub to: (usize, usize),
    /// Where it is written.
    pub location: Location,
}

impl FlatConfig {
    /// The index of the element called `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.elements.iter().position(|e| e.name == name)
    }

    /// Adds an element without ports, which no text declares: what the program itself brings.
    pub fn add_alone(&mut self, name: &str, class: &str, config: &str, file: &str) {
        self.elements.push(FlatElement {
            name: name.to_owned(),
            class: class.to_owned(),
            capabilities: &[],
            config: config.to_owned(),
            location: Location { file: file.into(), line: 0, column: 1, length: 1 },
            inputs: 0,
            outputs: 0,
            input_kinds: Vec::new(),
            output_kinds: Vec::new(),
        });
    }

    /// The configuration as text, which compiles to the same configuration again: what `click -q -o` prints.
    pub fn flat_text(&self) -> String {
        let mut out = String::new();
        self.write_requirements(&mut out);
        for element in &self.elements {
            let _ = write!(out, "{} :: {}", element.name, element.class);
            if element.config.is_empty() {
                out.push_str(";\n");
            } else {
                let _ = writeln!(out, "({});", element.config);
            }
        }
        if !self.elements.is_empty() {
            out.push('\n');
        }
        self.write_connections(&mut out);
        out
    }

    fn write_requirements(&self, out: &mut String) {
        if self.requirements.is_empty() {
            return;
        }
        out.push_str("require(");
        for (number, requirement) in self.requirements.iter().enumerate() {
            out.push_str(if number > 0 { ", " } else { "" });
            out.push_str(&requirement.kind);
            if !requirement.value.is_empty() {
                out.push(' ');
                out.push_str(&quote(&requirement.value));
            }
        }
        out.push_str(");\n\n");
    }

    /// Connections as chains: each goes on from output 0 of an element that was entered through input 0.
    fn write_connections(&self, out: &mut String) {
        let count = self.connections.len();
        let mut leaving: HashMap<(usize, usize), Vec<usize>> = HashMap::new();
        for (number, connection) in self.connections.iter().enumerate() {
            leaving.entry(connection.from).or_default().push(number);
        }
        let mut next: Vec<Option<usize>> = vec![None; count];
        let mut starts = vec![true; count];
        for (number, connection) in self.connections.iter().enumerate() {
            if connection.to.1 != 0 {
                continue;
            }
            let others = leaving.get(&connection.to).map_or(&[][..], Vec::as_slice);
            let mut others = others.iter().copied().filter(|o| *o != number);
            let best = others.clone().find(|o| self.connections[*o].to.1 == 0).or_else(|| others.next_back());
            if let Some(best) = best {
                next[number] = Some(best);
                starts[best] = false;
            }
        }
        let mut written = vec![false; count];
        // What is left after the chains with a beginning goes round in circles.
        for only_starts in [true, false] {
            for first in 0..count {
                if !written[first] && (starts[first] || !only_starts) {
                    self.write_chain(out, first, &next, &mut written);
                }
            }
        }
    }

    fn write_chain(&self, out: &mut String, first: usize, next: &[Option<usize>], written: &mut [bool]) {
        let (element, port) = self.connections[first].from;
        out.push_str(&self.elements[element].name);
        if port > 0 {
            let _ = write!(out, " [{port}]");
        }
        let mut at = Some(first);
        while let Some(number) = at.filter(|n| !written[*n]) {
            out.push_str(if number == first { " -> " } else { "\n    -> " });
            let (element, port) = self.connections[number].to;
            if port > 0 {
                let _ = write!(out, "[{port}] ");
            }
            out.push_str(&self.elements[element].name);
            written[number] = true;
            at = next[number];
        }
        out.push_str(";\n");
    }

    /// The configuration as a Graphviz graph. Each element is a box with its name and class; a filled arrow head is a
    /// push connection, an empty one a pull connection. Ports are labelled where they are not 0.
    pub fn to_dot(&self) -> String {
        let mut out = String::from("digraph click {\n  node [shape=box];\n");
        for (number, element) in self.elements.iter().enumerate() {
            let (name, class) = (dot_text(&element.name), dot_text(&element.class));
            let _ = writeln!(out, "  e{number} [label=\"{name}\\n{class}\"];");
        }
        for connection in &self.connections {
            let (from, to) = (connection.from, connection.to);
            let kind = self.elements[from.0].output_kinds.get(from.1);
            let head = if kind == Some(&PortKind::Pull) { "empty" } else { "normal" };
            let _ = write!(out, "  e{} -> e{} [arrowhead={head}", from.0, to.0);
            if from.1 > 0 {
                let _ = write!(out, ", taillabel=\"{}\"", from.1);
            }
            if to.1 > 0 {
                let _ = write!(out, ", headlabel=\"{}\"", to.1);
            }
            out.push_str("];\n");
        }
        out.push_str("}\n");
        out
    }
}

fn dot_text(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use crate::lang::testing::compiled;

    #[test]
    fn chains_go_on_from_port_0() {
        let flat = compiled("i :: Idle; c :: Idle; i -> Null -> [1] c; i [1] -> c; c -> Print(a) -> c;");
        assert_eq!(
            flat.flat_text(),
            "i :: Idle;\nc :: Idle;\nNull@3 :: Null;\nPrint@4 :: Print(a);\n\n\
             i [1] -> c\n    -> Print@4\n    -> c;\ni -> Null@3\n    -> [1] c;\n"
        );
    }

    #[test]
    fn circles_are_printed() {
        let flat = compiled("a, b :: Idle; a -> b -> a;");
        assert_eq!(flat.flat_text(), "a :: Idle;\nb :: Idle;\n\nb -> a\n    -> b;\n");
    }

    #[test]
    fn requirements_are_printed() {
        let flat = compiled("require(package \"a b\", compact_config); require(c)");
        assert_eq!(flat.flat_text(), "require(package \"a b\", compact_config, package \"c\");\n\n");
    }

    #[test]
    fn graphviz() {
        let flat = compiled("i :: InfiniteSource -> q :: Queue -> Idle; Idle -> t :: Idle -> [1] t;");
        let dot = flat.to_dot();
        assert!(dot.contains("e0 [label=\"i\\nInfiniteSource\"];"), "{dot}");
        assert!(dot.contains("e0 -> e1 [arrowhead=normal];"), "{dot}");
        assert!(dot.contains("e1 -> e2 [arrowhead=empty];"), "{dot}");
        assert!(dot.contains("e4 -> e4 [arrowhead=normal, headlabel=\"1\"];"), "{dot}");
    }
}
