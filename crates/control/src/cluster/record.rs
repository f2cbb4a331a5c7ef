//! What the leader tells the nodes, and how it is written into the store.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::protection::Told;
use crate::bounded::at_most;
use crate::change::{Change, InterfaceIndex, Route};

/// One thing that the leader tells. Numbers of interfaces are the cluster's ([`interface_of_port`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// Something of Linux or of a routing daemon changed.
    Change(Change),
    /// Routes that differ in nothing but their destinations; that of the route itself means nothing.
    Routes(Route, Vec<IpNet>),
    /// The node of a port knows a neighbour by this label (for IPv4 packets; for IPv6 it is one higher). Comes before what leads packets
    /// there.
    Label {
        /// The number of the port.
        port: u8,
        /// The node that has the port: to another one the label means something else.
        node: u16,
        /// The neighbour's link address.
        mac: [u8; 6],
        /// The label.
        label: u32,
    },
    /// Nobody sends to this neighbour any more.
    LabelGone {
        /// The number of the port.
        port: u8,
        /// The neighbour's link address.
        mac: [u8; 6],
    },
    /// All nodes say of what they have here how its digest is, so that it can be compared.
    Compare,
    /// Labels of a node below this one have been given, if only to neighbours that are gone.
    LabelsGiven {
        /// The node.
        node: u16,
        /// The lowest label that nobody had.
        below: u32,
    },
    /// A log begins, which this number tells from others: the store may lose one, and places in another mean nothing.
    Log(u64),
    /// All that the leader's Linux knows so far. What nodes have of a log that is lost goes now.
    Complete,
    /// What IPsec protects from here on, in the place of the list before.
    Protection(Told),
}

/// The number of the interface of a cluster's port, the same on every leader.
pub fn interface_of_port(port: u8) -> InterfaceIndex {
    port.into()
}

/// Numbers of the leader's other interfaces begin here.
pub(super) const OTHER_INTERFACES: InterfaceIndex = 1 << 16;

/// Longest piece of a table or of the log, in bytes: the store takes a megabyte and a half at a time.
pub const LONGEST_PIECE: usize = 512 << 10;

/// Why records cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("'{key}' holds no records of this version of Brickway ({problem})")]
pub struct RecordError {
    /// The key in the store.
    pub key: String,
    problem: String,
}

/// Most records in one piece.
pub(super) const MOST_RECORDS: usize = 4_096;

/// Says which records these are: other versions of the format begin otherwise.
const FORMAT: u8 = 2;

/// The bytes of records.
pub fn encode(records: &[Record]) -> Vec<u8> {
    // Plain data has nothing that could not be written into memory.
    postcard::to_extend(records, vec![FORMAT]).unwrap_or_default()
}

/// A piece, as it is read.
#[derive(Deserialize)]
struct Records(#[serde(deserialize_with = "at_most::<_, _, MOST_RECORDS>")] Vec<Record>);

/// The records of these bytes, which the store has under `key`.
///
/// # Errors
///
/// [`RecordError`]: they are something else.
pub fn decode(key: &str, bytes: &[u8]) -> Result<Vec<Record>, RecordError> {
    let error = |problem: String| RecordError { key: key.to_owned(), problem };
    match bytes.split_first() {
        Some((&FORMAT, rest)) => match postcard::from_bytes(rest) {
            Ok(Records(records)) => Ok(records),
            Err(problem) => Err(error(problem.to_string())),
        },
        Some((format, _)) => Err(error(format!("format {format}; this one reads {FORMAT}"))),
        None => Err(error("nothing".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_with_more_records_than_a_leader_writes_is_refused() {
        let most = vec![Record::Compare; MOST_RECORDS];
        assert_eq!(decode("key", &encode(&most)).unwrap(), most);
        let more = vec![Record::Compare; MOST_RECORDS + 1];
        assert!(decode("key", &encode(&more)).is_err());
        // A length without what it announces, and bytes of any kind.
        assert!(decode("key", &[FORMAT, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
    }
}
