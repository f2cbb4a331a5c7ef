//! Reading capture files: classic pcap (both byte orders, micro- and nanoseconds) and pcapng.
//!
//! The containers are read by the pcap-file library; of pcapng only the section and interface blocks are parsed
//! there, the packet blocks here: they come by the million, and their options say nothing that a router needs. Any
//! bytes give records or an error, never a panic; after an error the file is at its end.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::{Endianness, PcapError, TsResolution, pcap, pcapng};

use crate::PortError;

/// Link type of Ethernet (LINKTYPE_ETHERNET of the tcpdump group's list).
pub const ETHERNET: u32 = 1;

/// Numbers of pcapng blocks (the IETF's draft-ietf-opsawg-pcapng, section 4).
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// Bytes before the data in both kinds of packet block.
const PACKET_FIELDS: usize = 20;

/// One packet of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapRecord<'a> {
    /// Nanoseconds since 1970; 0 when the file does not say.
    pub timestamp_ns: u64,
    /// Length of the packet when it was captured; more than `data` when the capture cut it.
    pub original_length: u32,
    /// Link type of its interface, [`ETHERNET`] usually.
    pub link_type: u32,
    /// The bytes in the file.
    pub data: &'a [u8],
}

type Source = io::Chain<Cursor<Vec<u8>>, Box<dyn Read + Send>>;

enum Container {
    Classic(Box<pcap::PcapReader<Source>>),
    Ng { reader: Box<pcapng::PcapNgReader<Source>>, interfaces: Vec<Interface> },
}

/// What an interface block of pcapng says about the packets that follow.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u32,
    snap_length: u32,
    units_per_second: u128,
    offset_seconds: u64,
}

/// A capture file, read from start to end.
pub struct PcapReader {
    path: PathBuf,
    container: Container,
    data: Vec<u8>,
    finished: bool,
}

impl PcapReader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`PortError::File`] when it cannot be read or is not a capture file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, PortError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| PortError::file(path, "read", error))?;
        Self::new(path, Box::new(file))
    }

    /// Reads from an open source; `path` is its name in errors.
    ///
    /// # Errors
    /// [`PortError::File`] when it is not a capture file.
    pub fn new(path: impl Into<PathBuf>, mut source: Box<dyn Read + Send>) -> Result<Self, PortError> {
        let path = path.into();
        let mut magic = Vec::with_capacity(4);
        source
            .by_ref()
            .take(4)
            .read_to_end(&mut magic)
            .map_err(|error| PortError::file(&path, "read", error))?;
        let is_ng = magic == SECTION.to_be_bytes();
        let source = Cursor::new(magic).chain(source);
        let container = if is_ng {
            pcapng::PcapNgReader::new(source)
                .map(|reader| Container::Ng { reader: Box::new(reader), interfaces: Vec::new() })
        } else {
            pcap::PcapReader::new(source).map(|reader| Container::Classic(Box::new(reader)))
        };
        let container = container
            .map_err(|_| PortError::file(&path, "read", "it is neither a pcap nor a pcapng file"))?;
        Ok(Self { path, container, data: Vec::with_capacity(2_048), finished: false })
    }

    /// Link type of the whole file, for classic pcap; pcapng has one for each interface.
    pub fn link_type(&self) -> Option<u32> {
        match &self.container {
            Container::Classic(reader) => Some(u32::from(reader.header().datalink)),
            Container::Ng { .. } => None,
        }
    }

    /// The next packet; `None` at the end, and after an error.
    ///
    /// # Errors
    /// [`PortError::File`] when the rest of the file cannot be read: it is cut off or damaged.
    #[allow(
        clippy::should_implement_trait,
        reason = "records borrow from the reader, so this is not an iterator"
    )]
    pub fn next(&mut self) -> Option<Result<PcapRecord<'_>, PortError>> {
        if self.finished {
            return None;
        }
        let header = match &mut self.container {
            Container::Classic(reader) => next_classic(reader, &mut self.data),
            Container::Ng { reader, interfaces } => next_ng(reader, interfaces, &mut self.data),
        };
        match header {
            Ok(Some(Header { timestamp_ns, original_length, link_type })) => {
                Some(Ok(PcapRecord { timestamp_ns, original_length, link_type, data: &self.data }))
            }
            Ok(None) => {
                self.finished = true;
                None
            }
            Err(error) => {
                self.finished = true;
                Some(Err(PortError::file(&self.path, "read", describe(&error))))
            }
        }
    }
}

fn describe(error: &PcapError) -> String {
    match error {
        PcapError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it ends in the middle of a packet".to_owned()
        }
        PcapError::IoError(error) => error.to_string(),
        other => format!("it is damaged ({other})"),
    }
}

struct Header {
    timestamp_ns: u64,
    original_length: u32,
    link_type: u32,
}

fn next_classic(
    reader: &mut pcap::PcapReader<Source>,
    data: &mut Vec<u8>,
) -> Result<Option<Header>, PcapError> {
    let header = reader.header();
    let Some(packet) = reader.next_raw_packet().transpose()? else { return Ok(None) };
    let scale = match header.ts_resolution {
        TsResolution::MicroSecond => 1_000,
        TsResolution::NanoSecond => 1,
    };
    data.clear();
    data.extend_from_slice(&packet.data);
    Ok(Some(Header {
        timestamp_ns: u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_frac) * scale,
        original_length: packet.orig_len,
        link_type: u32::from(header.datalink),
    }))
}

fn next_ng(
    reader: &mut pcapng::PcapNgReader<Source>,
    interfaces: &mut Vec<Interface>,
    data: &mut Vec<u8>,
) -> Result<Option<Header>, PcapError> {
    loop {
        let endianness = reader.section().endianness;
        let Some(block) = reader.next_raw_block().transpose()? else { return Ok(None) };
        let body = &block.body;
        match block.type_ {
            SECTION => interfaces.clear(),
            INTERFACE => {
                if let Some(interface) = reader.interfaces().last() {
                    interfaces.push(parse_interface(interface));
                }
            }
            ENHANCED_PACKET | OLD_PACKET => {
                let Some((fields, rest)) = body.split_first_chunk::<PACKET_FIELDS>() else {
                    return Err(PcapError::InvalidField("packet block: too short"));
                };
                let number = field(endianness, fields, 0);
                let number = match (block.type_, endianness) {
                    (OLD_PACKET, Endianness::Big) => number >> 16,
                    (OLD_PACKET, Endianness::Little) => number & 0xffff,
                    _ => number,
                };
                let interface = interfaces
                    .get(number as usize)
                    .ok_or(PcapError::InvalidField("packet block: no such interface"))?;
                let captured = field(endianness, fields, 12) as usize;
                let captured = rest.get(..captured);
                let captured = captured.ok_or(PcapError::InvalidField("packet block: captured length"))?;
                data.clear();
                data.extend_from_slice(captured);
                let high = u64::from(field(endianness, fields, 4));
                let units = high << 32 | u64::from(field(endianness, fields, 8));
                return Ok(Some(Header {
                    timestamp_ns: interface.nanoseconds(units),
                    original_length: field(endianness, fields, 16),
                    link_type: interface.link_type,
                }));
            }
            SIMPLE_PACKET => {
                let (Some((fields, rest)), Some(interface)) =
                    (body.split_first_chunk::<4>(), interfaces.first())
                else {
                    return Err(PcapError::InvalidField("simple packet block: too short, or no interface"));
                };
                let original_length = field(endianness, fields, 0);
                // Section 4.4: the snap length of the first interface bounds the data; 0 means no bound.
                let bound = if interface.snap_length == 0 { u32::MAX } else { interface.snap_length };
                data.clear();
                data.extend_from_slice(&rest[..rest.len().min(original_length.min(bound) as usize)]);
                return Ok(Some(Header { timestamp_ns: 0, original_length, link_type: interface.link_type }));
            }
            _ => {}
        }
    }
}

fn field(endianness: Endianness, fields: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&fields[at..at + 4]);
    match endianness {
        Endianness::Big => u32::from_be_bytes(bytes),
        Endianness::Little => u32::from_le_bytes(bytes),
    }
}

fn parse_interface(
    block: &pcapng::blocks::interface_description::InterfaceDescriptionBlock<'_>,
) -> Interface {
    // Section 4.2: without if_tsresol the unit is a microsecond.
    let mut interface = Interface {
        link_type: u32::from(block.linktype),
        snap_length: block.snaplen,
        units_per_second: 1_000_000,
        offset_seconds: 0,
    };
    for option in &block.options {
        match option {
            InterfaceDescriptionOption::IfTsResol(resolution) => {
                let exponent = u32::from(resolution & 0x7f);
                let units = if resolution & 0x80 == 0 {
                    10_u128.checked_pow(exponent)
                } else {
                    1_u128.checked_shl(exponent)
                };
                interface.units_per_second = units.unwrap_or(u128::MAX);
            }
            InterfaceDescriptionOption::IfTsOffset(seconds) => interface.offset_seconds = *seconds,
            _ => {}
        }
    }
    interface
}

impl Interface {
    fn nanoseconds(&self, units: u64) -> u64 {
        // At most 2^64 * 10^9 < 2^94: no overflow. Times beyond the year 2554 make no sense and wrap.
        let nanoseconds = u128::from(units) * 1_000_000_000 / self.units_per_second;
        (nanoseconds as u64).wrapping_add(self.offset_seconds.wrapping_mul(1_000_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Owned = (u64, u32, u32, Vec<u8>);

    fn read_all(bytes: Vec<u8>) -> Result<(Vec<Owned>, Option<String>), String> {
        let mut reader =
            PcapReader::new("test.pcap", Box::new(Cursor::new(bytes))).map_err(|error| error.to_string())?;
        let mut records = Vec::new();
        let mut failure = None;
        while let Some(record) = reader.next() {
            match record {
                Ok(record) => records.push((
                    record.timestamp_ns,
                    record.original_length,
                    record.link_type,
                    record.data.to_vec(),
                )),
                Err(error) => failure = Some(error.to_string()),
            }
        }
        Ok((records, failure))
    }

    /// The file of tcpdump's documentation: header, then records; by hand, field by field.
    fn classic(magic: u32, big: bool, records: &[(u32, u32, u32, &[u8])]) -> Vec<u8> {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut file = word(magic).to_vec();
        file.extend([half(2), half(4)].concat());
        file.extend([word(0), word(0), word(65_535), word(ETHERNET)].concat());
        for (seconds, fraction, original, data) in records {
            file.extend([word(*seconds), word(*fraction), word(data.len() as u32), word(*original)].concat());
            file.extend_from_slice(data);
        }
        file
    }

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (body.len().next_multiple_of(4) + 12) as u32;
        let mut block = [kind.to_le_bytes(), length.to_le_bytes()].concat();
        block.extend_from_slice(body);
        block.resize(length as usize - 4, 0);
        block.extend(length.to_le_bytes());
        block
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn ng() -> Vec<u8> {
        let section = block(SECTION, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
        let default_units = block(INTERFACE, &words(&[1, 0]));
        // if_tsresol (option 9, one byte): 9, that is nanoseconds; then the end of options.
        let nanoseconds = block(INTERFACE, &words(&[1, 0, 9 | 1 << 16, 9, 0]));
        let packet = |interface: u32, high: u32, low: u32, data: &[u8]| {
            let mut body = words(&[interface, high, low, data.len() as u32, data.len() as u32]);
            body.extend_from_slice(data);
            block(ENHANCED_PACKET, &body)
        };
        let unknown = block(0x0bad, b"whatever");
        let mut simple = words(&[5]);
        simple.extend_from_slice(b"abcde");
        [
            section,
            default_units,
            nanoseconds,
            packet(0, 0, 3_000_001, b"micro"),
            unknown,
            packet(1, 1, 7, b"nanosec"),
            block(SIMPLE_PACKET, &simple),
        ]
        .concat()
    }

    #[test]
    fn classic_files_of_all_four_kinds() {
        for (magic, scale) in [(0xa1b2_c3d4, 1_000), (0xa1b2_3c4d, 1)] {
            for big in [false, true] {
                let file = classic(magic, big, &[(7, 5, 3, b"abc"), (8, 0, 90, b"cut")]);
                let expected = vec![
                    (7_000_000_000 + 5 * scale, 3, 1, b"abc".to_vec()),
                    (8_000_000_000, 90, 1, b"cut".to_vec()),
                ];
                assert_eq!(read_all(file), Ok((expected, None)), "{magic:x} {big}");
            }
        }
    }

    #[test]
    fn pcapng_with_two_resolutions() {
        let expected = vec![
            (3_000_001_000, 5, 1, b"micro".to_vec()),
            ((1 << 32) + 7, 7, 1, b"nanosec".to_vec()),
            (0, 5, 1, b"abcde".to_vec()),
        ];
        assert_eq!(read_all(ng()), Ok((expected, None)));
    }

    #[test]
    fn a_cut_file_gives_what_it_has_and_an_error() {
        let mut file = classic(0xa1b2_c3d4, false, &[(1, 0, 3, b"abc"), (2, 0, 3, b"def")]);
        file.pop();
        let (records, failure) = read_all(file).unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!(failure.unwrap(), "cannot read `test.pcap`: it ends in the middle of a packet");
        assert_eq!(
            read_all(b"hello".to_vec()).unwrap_err(),
            "cannot read `test.pcap`: it is neither a pcap nor a pcapng file"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn damaged_files_never_panic(
            is_ng in any::<bool>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            keep in any::<prop::sample::Index>(),
        ) {
            let mut file = if is_ng { ng() } else { classic(0xa1b2_c3d4, false, &[(1, 0, 3, b"abc"), (2, 0, 3, b"def")]) };
            for (at, value) in changes {
                let at = at.index(file.len());
                file[at] = value;
            }
            file.truncate(keep.index(file.len()) + 1);
            let _ = read_all(file);
        }

        #[test]
        fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_all(bytes.clone());
            let _ = read_all([SECTION.to_be_bytes().to_vec(), bytes].concat());
        }
    }
}
