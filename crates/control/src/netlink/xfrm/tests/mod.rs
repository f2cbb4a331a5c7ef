//! Messages as a kernel wrote them (`golden`), damaged ones and noise (`damage`), replay windows (`replay`), and real kernels (`live`).

mod damage;
mod golden;
mod live;
mod replay;

use super::message::decode_parts;
use super::*;

/// The test data: commands, and after each the messages that it made the kernel send, as type and payload.
const RECORDED: &str = include_str!("recorded.txt");

/// A command with its messages.
type Recorded = (&'static str, Vec<(u16, Vec<u8>)>);

/// The messages of `recorded.txt`, each command with its own.
fn recorded() -> Vec<Recorded> {
    let mut all: Vec<Recorded> = Vec::new();
    for line in RECORDED.lines().filter(|line| !line.starts_with('#')) {
        if let Some(command) = line.strip_prefix("$ ") {
            all.push((command, Vec::new()));
        } else if let Some((kind, hex)) = line.split_once(' ') {
            let digits = |text: &str| u16::from_str_radix(text, 16).unwrap();
            let bytes = (0..hex.len()).step_by(2).map(|at| digits(&hex[at..at + 2]) as u8).collect();
            all.last_mut().unwrap().1.push((digits(kind), bytes));
        }
    }
    all
}
