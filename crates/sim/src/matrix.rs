//! Traffic matrices: which share of R each input node brings for each output node.
//!
//! A matrix is *admissible* if no input is asked for more than R (a row) and no output gets more than R (a column): then a router
//! that blocks nowhere delivers all of it, and the share that a cluster delivers is its distance from that.

use std::fmt;
use std::str::FromStr;

use fabric::{NodeId, Shape};

use crate::ScenarioError;
use crate::random::Random;

/// Which traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Matrix {
    /// Everybody evenly to everybody, itself included: 1/N each.
    Uniform,
    /// Everybody evenly to everybody else: 1/(N-1) each, and nothing stays where it came in.
    Others,
    /// Everybody all to one other node, nobody to the same, drawn by the scenario's seed.
    Permutation,
    /// Everybody to node 0 only, as much as its port can send: 1/N each.
    HotSpot,
    /// Everybody all to the node with the next number: direct links alone carry 2/N of it at most.
    Next,
    /// What is hardest for the shape. Mesh and star: everybody evenly to the N/2 nodes behind it, which loads half of all
    /// links fully with direct traffic, first halves and second halves of ways at once. Torus: tornado, nearly half way
    /// round in every dimension. Fly, grid, cube and de Bruijn graph: the node's digits in reverse. (These: Dally and Towles,
    /// "Principles and Practices of Interconnection Networks", 3.2.) Groups: everybody to the next group, over one link.
    Adversarial,
    /// By input, by output: shares of R.
    Rows(Vec<Vec<f64>>),
}

impl Matrix {
    /// Those that have a name.
    pub const NAMES: [(&'static str, Matrix); 6] = [
        ("uniform", Matrix::Uniform),
        ("others", Matrix::Others),
        ("permutation", Matrix::Permutation),
        ("hot-spot", Matrix::HotSpot),
        ("next", Matrix::Next),
        ("adversarial", Matrix::Adversarial),
    ];

    /// What it asks for in a cluster of this shape, of which `ports` nodes have ports.
    pub(crate) fn rows(&self, shape: &Shape, ports: usize, seed: u64) -> Result<Rows, ScenarioError> {
        let all = 0..ports as u16;
        let to_one =
            |output: &dyn Fn(u16) -> u16| all.clone().map(|input| vec![(output(input), 1.0)]).collect();
        let count = ports as u16;
        let rows: Vec<Vec<(u16, f64)>> = match self {
            Matrix::Uniform => {
                let row: Vec<_> = all.clone().map(|output| (output, 1.0 / ports as f64)).collect();
                vec![row; ports]
            }
            Matrix::Others => {
                let share = 1.0 / (ports as f64 - 1.0);
                let row = |input| {
                    all.clone().filter(|&output| output != input).map(|output| (output, share)).collect()
                };
                all.clone().map(row).collect()
            }
            Matrix::Permutation => {
                let outputs = circle(ports, seed);
                to_one(&|input| outputs[usize::from(input)])
            }
            Matrix::HotSpot => vec![vec![(0, 1.0 / ports as f64)]; ports],
            Matrix::Next => to_one(&|input| (input + 1) % count),
            Matrix::Adversarial => match shape {
                Shape::Torus { sides } => to_one(&|input| tornado(sides, input)),
                Shape::Fly { arity, stages } => to_one(&|input| reversed(*arity, *stages, input)),
                Shape::Compact { side } => to_one(&|input| reversed(*side, 2, input)),
                Shape::Cube { dimensions } => to_one(&|input| reversed(2, *dimensions, input)),
                Shape::DeBruijn { arity, digits } => to_one(&|input| reversed(*arity, *digits, input)),
                Shape::Groups { size } => to_one(&|input| (input + size) % count),
                Shape::Mesh { .. } | Shape::Star { .. } => {
                    let behind = (count / 2).max(1);
                    let share = 1.0 / f64::from(behind);
                    let row = |input| (1..=behind).map(|step| ((input + step) % count, share)).collect();
                    all.map(row).collect()
                }
            },
            Matrix::Rows(rows) => {
                if rows.len() != ports {
                    return Err(ScenarioError::Rows { rows: rows.len(), ports });
                }
                let wrong = (0..).zip(rows).find(|(_, row)| row.len() != ports);
                if let Some((row, wrong)) = wrong {
                    return Err(ScenarioError::Width { row, columns: wrong.len(), ports });
                }
                let filled = |row: &Vec<f64>| {
                    (0..).zip(row.iter().copied()).filter(|&(_, share)| share != 0.0).collect()
                };
                rows.iter().map(filled).collect()
            }
        };
        Rows { rows }.checked()
    }
}

/// A permutation without fixed points: one circle (Sattolo, 1986).
fn circle(count: usize, seed: u64) -> Vec<u16> {
    let mut random = Random::new(seed, u64::MAX);
    let mut outputs: Vec<u16> = (0..count as u16).collect();
    for last in (1..count).rev() {
        outputs.swap(last, random.below(last as u32) as usize);
    }
    outputs
}

fn tornado(sides: &[u16], node: u16) -> u16 {
    let (mut rest, mut stride, mut target) = (node, 1, 0);
    for &side in sides.iter().rev() {
        target += (rest % side + (side - 1) / 2) % side * stride;
        (rest, stride) = (rest / side, stride * side);
    }
    target
}

fn reversed(arity: u16, stages: u8, node: u16) -> u16 {
    (0..stages).fold((node, 0), |(rest, target), _| (rest / arity, target * arity + rest % arity)).1
}

/// A matrix without its zeros.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    /// By input: outputs and shares.
    pub(crate) rows: Vec<Vec<(u16, f64)>>,
}

/// Sums of fractions that mean 1 may be a little more.
const ROUNDING: f64 = 1e-9;

impl Rows {
    pub(crate) fn row_sum(&self, input: usize) -> f64 {
        self.rows[input].iter().map(|(_, share)| share).sum()
    }

    pub(crate) fn column_sums(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.rows.len()];
        self.rows.iter().flatten().for_each(|&(output, share)| sums[usize::from(output)] += share);
        sums
    }

    fn checked(self) -> Result<Rows, ScenarioError> {
        let node = |index| NodeId::first(NodeId::COUNT).nth(index);
        for (row, shares) in self.rows.iter().enumerate() {
            for &(output, share) in shares {
                if !(0.0..=f64::MAX).contains(&share) {
                    return Err(ScenarioError::Share { row, column: output.into(), share });
                }
            }
        }
        let rows = (0..self.rows.len()).map(|row| (row, self.row_sum(row)));
        if let Some((row, sum)) = rows.into_iter().find(|&(_, sum)| sum > 1.0 + ROUNDING)
            && let Some(input) = node(row)
        {
            return Err(ScenarioError::Input { input, sum });
        }
        let mut columns = self.column_sums().into_iter().enumerate();
        if let Some((column, sum)) = columns.find(|&(_, sum)| sum > 1.0 + ROUNDING)
            && let Some(output) = node(column)
        {
            return Err(ScenarioError::Output { output, sum });
        }
        if self.rows.iter().flatten().all(|&(_, share)| share == 0.0) {
            return Err(ScenarioError::NoTraffic);
        }
        Ok(self)
    }
}

/// Why a text is not a matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// A word that is neither a name nor a number.
    #[error(
        "line {line}: '{word}' is not a number; expected a line of shares of R for each input node, a number for each \
         output node, or one of uniform, others, permutation, hot-spot, next and adversarial"
    )]
    Word {
        /// Counted from 1.
        line: usize,
        /// What stands there.
        word: String,
    },
    /// Nothing in it.
    #[error("a matrix without lines")]
    Empty,
}

impl FromStr for Matrix {
    type Err = MatrixError;

    /// A name, or lines of numbers with spaces or commas between them. What follows a `#` is a comment.
    fn from_str(text: &str) -> Result<Matrix, MatrixError> {
        if let Some((_, matrix)) = Matrix::NAMES.into_iter().find(|(name, _)| *name == text.trim()) {
            return Ok(matrix);
        }
        let mut rows = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let numbers = text.split('#').next().unwrap_or_default();
            let words = numbers.split([' ', '\t', ',', '\r']).filter(|word| !word.is_empty());
            let number = |word: &str| word.parse().map_err(|_| MatrixError::Word { line, word: word.into() });
            let row: Vec<f64> = words.map(number).collect::<Result<_, _>>()?;
            if !row.is_empty() {
                rows.push(row);
            }
        }
        if rows.is_empty() { Err(MatrixError::Empty) } else { Ok(Matrix::Rows(rows)) }
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Matrix::Rows(rows) = self {
            for row in rows {
                let numbers: Vec<String> = row.iter().map(f64::to_string).collect();
                writeln!(f, "{}", numbers.join(" "))?;
            }
            return Ok(());
        }
        let name = Matrix::NAMES.into_iter().find(|(_, matrix)| matrix == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(matrix: &Matrix, shape: &str, ports: usize) -> Result<Rows, ScenarioError> {
        matrix.rows(&shape.parse().unwrap(), ports, 1)
    }

    #[test]
    fn all_that_have_a_name_are_admissible_everywhere() {
        for (shape, ports) in [
            ("mesh(1)", 1),
            ("mesh(2)", 2),
            ("mesh(7)", 7),
            ("star(8)", 8),
            ("torus(4, 5)", 20),
            ("fly(3, 2)", 9),
            ("compact(3)", 9),
            ("groups(3)", 12),
            ("cube(4)", 16),
            ("debruijn(2, 4)", 16),
        ] {
            for (name, matrix) in Matrix::NAMES {
                if ports == 1 && matrix == Matrix::Others {
                    // There are none.
                    assert_eq!(rows(&matrix, shape, ports).unwrap_err(), ScenarioError::NoTraffic);
                    continue;
                }
                let rows = rows(&matrix, shape, ports).unwrap();
                let most = rows.column_sums().into_iter().fold(0.0, f64::max);
                assert!((most - 1.0).abs() < 1e-9, "{name} in {shape}: {most}");
                if ports > 2 && !matches!(matrix, Matrix::Uniform | Matrix::HotSpot | Matrix::Adversarial) {
                    let itself = (0..)
                        .zip(&rows.rows)
                        .any(|(input, row)| row.iter().any(|&(output, _)| output == input));
                    assert!(!itself, "{name} in {shape}");
                }
            }
        }
    }

    #[test]
    fn tornado_goes_nearly_half_round_and_flies_reverse_digits() {
        // Row 1, column 3 of 4 x 5: one row down, two columns on.
        assert_eq!(tornado(&[4, 5], 8), 2 * 5);
        assert_eq!(reversed(2, 3, 0b110), 0b011);
        assert_eq!(reversed(3, 2, 5), 7);
    }

    #[test]
    fn text_is_read_and_mistakes_have_their_line() {
        let matrix: Matrix = "# from the paper\n0 0.5\n\n0.25,0.5 # two\n".parse().unwrap();
        assert_eq!(matrix, Matrix::Rows(vec![vec![0.0, 0.5], vec![0.25, 0.5]]));
        assert_eq!(matrix.to_string().parse(), Ok(matrix));
        for (name, matrix) in Matrix::NAMES {
            assert_eq!((matrix.to_string().as_str(), name.parse()), (name, Ok(matrix)));
        }
        let error = "0 1\n1 x".parse::<Matrix>().unwrap_err();
        assert_eq!(error, MatrixError::Word { line: 2, word: "x".into() });
        assert_eq!("\n".parse::<Matrix>(), Err(MatrixError::Empty));
    }

    #[test]
    fn what_is_not_admissible_is_named() {
        let error = |text: &str| rows(&text.parse().unwrap(), "mesh(2)", 2).unwrap_err().to_string();
        assert_eq!(
            error("0 0.5\n0.75 0.5"),
            "the matrix asks input node 1 for 1.250 of R; a row's sum is at most 1"
        );
        assert_eq!(
            error("0.5 0.25\n0.75 0.25"),
            "the matrix asks output node 0 for 1.250 of R; a column's sum is at most 1"
        );
        assert_eq!(error("0 1"), "the matrix has 1 rows; 2 nodes have ports");
        assert_eq!(error("0 1\n1"), "row 1 of the matrix has 1 columns; 2 nodes have ports");
        assert_eq!(error("0 -1\n1 0"), "row 0, column 1 of the matrix is -1; a share is not below 0");
        assert_eq!(error("0 NaN\n1 0"), "row 0, column 1 of the matrix is NaN; a share is not below 0");
        assert_eq!(error("0 0\n0 0"), "the matrix asks for no traffic");
    }
}
