//! Shapes as people write them: a name and its sizes in parentheses.

use std::fmt;
use std::str::FromStr;

use crate::NodeId;

/// How a cluster's nodes are wired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Everybody to everybody.
    Mesh {
        /// How many nodes.
        nodes: usize,
        /// How many cables between any two.
        parallel: u16,
    },
    /// Everybody to Ethernet switches.
    Star {
        /// How many nodes.
        nodes: usize,
        /// How many switches, each of which joins all nodes.
        switches: u16,
    },
    /// Neighbours in every dimension, and the last to the first.
    Torus {
        /// Nodes in each dimension.
        sides: Vec<u16>,
    },
    /// A k-ary n-fly: nodes with ports, and stages of nodes that only relay.
    Fly {
        /// k: how many ways lead on from a relay.
        arity: u16,
        /// n: how many relays are on every way.
        stages: u8,
    },
    /// A grid of as many rows as columns, each of which is a mesh.
    Compact {
        /// Nodes in a row.
        side: u16,
    },
    /// Groups of nodes, each a mesh, and one cable between any two groups.
    Groups {
        /// Nodes in a group; there is one group more.
        size: u16,
    },
    /// A hypercube: cables join nodes whose numbers differ in one bit.
    Cube {
        /// How many bits numbers have.
        dimensions: u8,
    },
    /// A de Bruijn graph: cables lead to nodes whose numbers are shifted by a digit.
    DeBruijn {
        /// How many values a digit has, and so many cables lead on.
        arity: u16,
        /// How many digits numbers have.
        digits: u8,
    },
}

/// Why a text is not a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Not written like one.
    #[error(
        "'{0}' is not a topology; expected mesh(NODES), mesh(NODES, CABLES), star(NODES), star(NODES, SWITCHES), torus(SIDE, ...), \
         fly(ARITY, STAGES), compact(SIDE), groups(SIZE), cube(DIMENSIONS) or debruijn(ARITY, DIGITS)"
    )]
    Text(String),
    /// With sizes that make no sense.
    #[error("topology {text}: {reason}")]
    Size {
        /// What was written.
        text: String,
        /// What would be possible.
        reason: String,
    },
}

impl Shape {
    /// How many nodes it has, relays included.
    pub fn nodes(&self) -> usize {
        match self {
            Shape::Mesh { nodes, .. } | Shape::Star { nodes, .. } => *nodes,
            Shape::Torus { sides } => sides.iter().map(|&side| usize::from(side)).product(),
            Shape::Fly { arity, stages } => {
                let rows = usize::from(*arity).saturating_pow(u32::from(*stages) - 1);
                rows.saturating_mul(usize::from(*arity) + usize::from(*stages))
            }
            Shape::Compact { side } => usize::from(*side).pow(2),
            Shape::Groups { size } => usize::from(*size) * (usize::from(*size) + 1),
            Shape::Cube { dimensions } => 1 << dimensions,
            Shape::DeBruijn { arity, digits } => usize::from(*arity).saturating_pow((*digits).into()),
        }
    }

    fn from_sizes(name: &str, sizes: &[u16]) -> Option<Result<Shape, String>> {
        let shape = match (name, sizes) {
            ("mesh", &[nodes]) => Shape::Mesh { nodes: nodes.into(), parallel: 1 },
            ("mesh", &[nodes, parallel]) => Shape::Mesh { nodes: nodes.into(), parallel },
            ("star", &[nodes]) => Shape::Star { nodes: nodes.into(), switches: 1 },
            ("star", &[nodes, switches]) => Shape::Star { nodes: nodes.into(), switches },
            ("torus", sides @ [_, ..]) => Shape::Torus { sides: sides.to_vec() },
            ("fly", &[arity, stages]) => {
                let is_sane = arity >= 2 && (1..=9).contains(&stages);
                if !is_sane {
                    return Some(Err("an arity of at least 2, and 1 to 9 stages".into()));
                }
                Shape::Fly { arity, stages: stages as u8 }
            }
            ("compact", &[side]) => Shape::Compact { side },
            ("groups", &[size]) => Shape::Groups { size },
            ("cube", &[dimensions]) => {
                if !(1..=9).contains(&dimensions) {
                    return Some(Err("1 to 9 dimensions".into()));
                }
                Shape::Cube { dimensions: dimensions as u8 }
            }
            ("debruijn", &[arity, digits]) => {
                if arity < 2 || !(1..=9).contains(&digits) {
                    return Some(Err("an arity of at least 2, and 1 to 9 digits".into()));
                }
                Shape::DeBruijn { arity, digits: digits as u8 }
            }
            _ => return None,
        };
        if sizes.contains(&0) {
            return Some(Err("no size can be 0".into()));
        }
        // Products of four sizes fit; more would be no torus that anyone has.
        if sizes.len() > 4 {
            return Some(Err("at most 4 dimensions".into()));
        }
        let nodes = shape.nodes();
        let at_most = NodeId::COUNT;
        Some(if nodes <= at_most { Ok(shape) } else { Err(format!("{nodes} nodes; at most {at_most}")) })
    }
}

impl FromStr for Shape {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Shape, TopologyError> {
        let parsed = || {
            let (name, rest) = text.split_once('(')?;
            let sizes = rest.trim_end().strip_suffix(')')?;
            let sizes: Vec<u16> =
                sizes.split(',').map(|size| size.trim().parse()).collect::<Result<_, _>>().ok()?;
            Shape::from_sizes(name.trim(), &sizes)
        };
        let shape = parsed().ok_or_else(|| TopologyError::Text(text.into()))?;
        shape.map_err(|reason| TopologyError::Size { text: text.into(), reason })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Mesh { nodes, parallel: 1 } => write!(f, "mesh({nodes})"),
            Shape::Mesh { nodes, parallel } => write!(f, "mesh({nodes}, {parallel})"),
            Shape::Star { nodes, switches: 1 } => write!(f, "star({nodes})"),
            Shape::Star { nodes, switches } => write!(f, "star({nodes}, {switches})"),
            Shape::Torus { sides } => {
                let sides: Vec<String> = sides.iter().map(u16::to_string).collect();
                write!(f, "torus({})", sides.join(", "))
            }
            Shape::Fly { arity, stages } => write!(f, "fly({arity}, {stages})"),
            Shape::Compact { side } => write!(f, "compact({side})"),
            Shape::Groups { size } => write!(f, "groups({size})"),
            Shape::Cube { dimensions } => write!(f, "cube({dimensions})"),
            Shape::DeBruijn { arity, digits } => write!(f, "debruijn({arity}, {digits})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in [
            "mesh(4)",
            "mesh(4, 2)",
            "star(3)",
            "star(3, 2)",
            "torus(4, 4)",
            "fly(2, 3)",
            "mesh(1023)",
            "compact(31)",
            "groups(31)",
            "cube(9)",
            "debruijn(2, 9)",
        ] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
        assert_eq!(" fly( 2,3 ) ".parse(), Ok(Shape::Fly { arity: 2, stages: 3 }));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<Shape>().unwrap_err().to_string();
        for text in
            ["", "mesh", "mesh()", "mesh(4", "mesh(a)", "ring(4)", "fly(2)", "mesh(4, 1, 1)", "mesh(-1)"]
        {
            assert!(error(text).contains("is not a topology; expected mesh(NODES)"), "{text}");
        }
        assert_eq!(error("mesh(2000)"), "topology mesh(2000): 2000 nodes; at most 1023");
        assert_eq!(error("torus(4, 0)"), "topology torus(4, 0): no size can be 0");
        assert_eq!(error("fly(1, 3)"), "topology fly(1, 3): an arity of at least 2, and 1 to 9 stages");
        assert_eq!(error("compact(32)"), "topology compact(32): 1024 nodes; at most 1023");
        assert_eq!(error("compact(0)"), "topology compact(0): no size can be 0");
        assert_eq!(error("cube(10)"), "topology cube(10): 1 to 9 dimensions");
        assert_eq!(
            error("debruijn(2, 10)"),
            "topology debruijn(2, 10): an arity of at least 2, and 1 to 9 digits"
        );
        for text in ["fly(60000, 9)", "compact(60000)", "groups(60000)", "debruijn(60000, 9)"] {
            assert!(error(text).ends_with("at most 1023"), "{text}");
        }
    }
}
