//! Routes of an MRT dump (RFC 6396, TABLE_DUMP_V2), as route collectors publish their tables: for each prefix what each
//! peer of the collector knows of it. A table here has one origin for a prefix: that on which most peers agree, of
//! several the lowest.
//!
//! `bgpkit-parser` takes the records apart. It is made for measurements over all the dumps of the world and says little
//! about damage: entries that break off end a record without an error, a broken AS path is only not there. So this file
//! counts entries and paths itself. Errors name the record and where it begins (in the decompressed dump); a record
//! says how long it is, so that one bad record costs no other.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bgpkit_parser::models::{
    AsPath, AsPathSegment, AttrType, MrtMessage, RibAfiEntries, RibEntry, TableDumpV2Message, TableDumpV2Type,
};
use bgpkit_parser::{ParserError, RawMrtRecord, chunk_mrt_record};
use ipnet::IpNet;

/// Bytes of a record's header (RFC 6396, 2); its last four say how many follow.
const HEADER: usize = 12;

/// A record, or a part of one, that could not be used.
#[derive(Debug)]
pub(super) struct MrtError {
    /// The record's number, from 1.
    record: u64,
    /// Where it begins, in bytes.
    offset: u64,
    problem: String,
}

impl std::fmt::Display for MrtError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "record {} at byte {}: {}", self.record, self.offset, self.problem)
    }
}

/// Whether a file that begins like this is an MRT dump: no text has a zero as its fifth byte, and there is no record
/// type beyond 255.
pub(super) fn is_mrt(head: &[u8]) -> bool {
    head.len() >= HEADER && head[4] == 0 && head[5] != 0 && head[6] == 0
}

/// Counts what is read.
struct Counting<R> {
    input: R,
    bytes: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(buffer)?;
        self.bytes += length as u64;
        Ok(length)
    }
}

/// Yields the number of a record, its prefix and origin, or why there is none.
pub(super) struct MrtRoutes<R> {
    input: Counting<R>,
    record: u64,
    /// The autonomous systems of the collector's peers, by their number in the dump.
    peers: HashMap<u16, u32>,
    done: bool,
    ready: VecDeque<Result<(u64, IpNet, u32), MrtError>>,
}

impl<R: Read> MrtRoutes<R> {
    pub(super) fn new(input: R) -> Self {
        let input = Counting { input, bytes: 0 };
        Self { input, record: 0, peers: HashMap::new(), done: false, ready: VecDeque::new() }
    }

    /// Reads the next record.
    fn advance(&mut self) {
        let offset = self.input.bytes;
        self.record += 1;
        let record = self.record;
        match chunk_mrt_record(&mut self.input) {
            Ok(raw) => {
                let mut problems = Vec::new();
                let route = self.route(raw, &mut problems);
                self.ready.extend(route.map(|(prefix, origin)| Ok((record, prefix, origin))));
                self.ready
                    .extend(problems.into_iter().map(|problem| Err(MrtError { record, offset, problem })));
            }
            Err(error) if matches!(error.error, ParserError::EofExpected) => self.done = true,
            Err(error) => {
                let bytes = error.bytes.unwrap_or_default();
                let length = bytes.get(8..HEADER).and_then(|length| length.try_into().ok());
                let length = length.map_or(0, u32::from_be_bytes) as usize;
                // Only a header that says how long its record is, and all of the record, lead to the next one.
                self.done = bytes.len() < HEADER || bytes.len() < HEADER + length;
                let read = self.input.bytes - offset;
                let problem = if !self.done {
                    let kind = u16::from_be_bytes([bytes[4], bytes[5]]);
                    format!("it is of type {kind}; a routing table is of type 13, TABLE_DUMP_V2")
                } else if is_end(&error.error) {
                    let whole =
                        if bytes.len() < HEADER { HEADER.to_string() } else { (HEADER + length).to_string() };
                    format!("the file ends {read} bytes into it; it has {whole} or more")
                } else {
                    said(&error.error)
                };
                self.ready.push_back(Err(MrtError { record, offset, problem }));
            }
        }
    }

    /// The route of a record, if it is about one. Adds what is wrong with it to `problems`.
    fn route(&mut self, raw: RawMrtRecord, problems: &mut Vec<String>) -> Option<(IpNet, u32)> {
        let declared = declared_entries(&raw.message_bytes);
        let kind = raw.common_header.entry_type;
        // The parser reads what anybody may have written. Should it panic on some bytes, that is one bad record.
        let parsed = catch_unwind(AssertUnwindSafe(|| raw.parse()));
        let message = match parsed {
            Ok(Ok(record)) => record.message,
            Ok(Err(error)) => {
                problems.push(said(&error));
                return None;
            }
            Err(_) => {
                problems.push("the parser cannot take it apart".into());
                return None;
            }
        };
        match message {
            MrtMessage::TableDumpV2Message(TableDumpV2Message::PeerIndexTable(table)) => {
                self.peers = table
                    .id_peer_map
                    .into_iter()
                    .map(|(number, peer)| (number, peer.peer_asn.to_u32()))
                    .collect();
                None
            }
            MrtMessage::TableDumpV2Message(TableDumpV2Message::RibAfi(entries)) => {
                self.origin(&entries, declared, problems)
            }
            MrtMessage::TableDumpV2Message(_) => None,
            _ => {
                problems.push(format!("it is of type {kind:?}; a routing table is of type TABLE_DUMP_V2"));
                None
            }
        }
    }

    /// The prefix of a record and the origin on which most of its entries agree.
    fn origin(
        &self,
        entries: &RibAfiEntries,
        declared: Option<u16>,
        problems: &mut Vec<String>,
    ) -> Option<(IpNet, u32)> {
        use TableDumpV2Type::{RibIpv4Unicast, RibIpv4UnicastAddPath, RibIpv6Unicast, RibIpv6UnicastAddPath};
        let prefix = entries.prefix.prefix.trunc();
        let unicast = [RibIpv4Unicast, RibIpv6Unicast, RibIpv4UnicastAddPath, RibIpv6UnicastAddPath];
        if !unicast.contains(&entries.rib_type) {
            problems.push(format!("{prefix}: it is a multicast route; only unicast routes are read"));
            return None;
        }
        let found = entries.rib_entries.len();
        if let Some(declared) = declared.map(usize::from).filter(|&declared| declared != found) {
            problems.push(format!("{prefix}: it breaks off after {found} of {declared} entries"));
        } else if found == 0 {
            problems.push(format!("{prefix}: it has no entries"));
        }
        let mut votes: Vec<(u32, usize)> = Vec::new();
        for (index, entry) in entries.rib_entries.iter().enumerate() {
            match self.origin_of_entry(entry) {
                Ok(origin) => match votes.iter_mut().find(|(known, _)| *known == origin) {
                    Some((_, count)) => *count += 1,
                    None => votes.push((origin, 1)),
                },
                Err(problem) => problems.push(format!("{prefix}: entry {}: {problem}", index + 1)),
            }
        }
        votes.sort_unstable();
        let most = votes.iter().map(|&(_, count)| count).max()?;
        votes.iter().find(|&&(_, count)| count == most).map(|&(origin, _)| (prefix, origin))
    }

    fn origin_of_entry(&self, entry: &RibEntry) -> Result<u32, String> {
        let Some(path) = entry.attributes.as_path() else {
            let what = if entry.attributes.has_attr(AttrType::AS_PATH) { "damaged" } else { "not there" };
            return Err(format!("its AS path is {what}"));
        };
        // An empty path is that of a route which the peer itself announces (RFC 4271, 5.1.2).
        origin_of_path(path).or_else(|| self.peers.get(&entry.peer_index).copied()).ok_or_else(|| {
            format!("its AS path is empty and its peer {} is not in the peer table", entry.peer_index)
        })
    }
}

impl<R: Read> Iterator for MrtRoutes<R> {
    type Item = Result<(u64, IpNet, u32), MrtError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.done {
            self.advance();
        }
        self.ready.pop_front()
    }
}

/// The origin at the end of a path: of a set the lowest member. Segments of a confederation are inside one
/// autonomous system and say nothing (RFC 5065).
fn origin_of_path(path: &AsPath) -> Option<u32> {
    path.segments.iter().rev().find_map(|segment| match segment {
        AsPathSegment::AsSequence(path) => path.last().map(|number| number.to_u32()),
        AsPathSegment::AsSet(set) => set.iter().map(|number| number.to_u32()).min(),
        _ => None,
    })
}

/// How many entries a RIB record says that it has (RFC 6396, 4.3.2): behind the sequence number and the prefix.
fn declared_entries(message: &[u8]) -> Option<u16> {
    let length = usize::from(*message.get(4)?).div_ceil(8);
    let count = message.get(5 + length..7 + length)?;
    Some(u16::from_be_bytes([count[0], count[1]]))
}

/// Whether the file was over too soon.
fn is_end(error: &ParserError) -> bool {
    match error {
        ParserError::IoError(error) | ParserError::EofError(error) => {
            error.kind() == io::ErrorKind::UnexpectedEof
        }
        _ => false,
    }
}

/// What the parser says, without the word with which it begins.
fn said(error: &ParserError) -> String {
    let text = error.to_string();
    text.strip_prefix("Error: ").unwrap_or(&text).to_owned()
}

#[cfg(test)]
#[path = "mrt_tests.rs"]
mod tests;
