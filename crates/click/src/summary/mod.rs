//! Packets as lines of text: Click's IP summary dumps, read and written.
//!
//! A dump begins with a few lines that start with `!`, of which `!data` names the fields; every other line is a packet.
//! The fields stand in one table, `field::find`, made of the tables of these files:
//!
//! | file | fields |
//! | --- | --- |
//! | `annotations` | time, count, paint, aggregate, lengths on the wire |
//! | `link` | Ethernet addresses and type |
//! | `ip` | the IPv4 header |
//! | `ip_options`, `tcp_options` | options as text; what both have in common is in `options` |
//! | `transport` | ports, TCP and UDP headers |
//! | `icmp` | ICMP messages |
//! | `payload` | what is behind the headers |
//!
//! A field is printed from a `view::View` of a packet and read into a `draft::Draft` of one. `records` makes drafts of
//! the lines that `source` reads, `repeat` takes packets apart that stand for several, `text` holds what dumps are spelled
//! with.

mod annotations;
mod draft;
mod field;
mod from_ip_summary_dump;
#[cfg(test)]
mod from_tests;
mod icmp;
mod ip;
mod ip_options;
mod link;
mod options;
mod payload;
mod records;
mod repeat;
mod source;
mod tcp_options;
#[cfg(test)]
mod tests;
mod text;
mod to_ip_summary_dump;
mod transport;
mod view;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[&from_ip_summary_dump::CLASS, &to_ip_summary_dump::CLASS];

/// The version of the format that is written. Minor version 0 counts fragment offsets in units of 8 bytes, later ones in
/// bytes.
const MAJOR_VERSION: u32 = 1;
const MINOR_VERSION: u32 = 3;
