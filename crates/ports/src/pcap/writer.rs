//! Writing capture files: classic pcap, little endian, Ethernet. A header of 24 bytes, and 16 before each packet.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::PortError;
use crate::pcap::reader::ETHERNET;
use crate::recorder::{Record, Sink};

/// Unit of the time stamps in a written file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Nanoseconds (magic number 0xa1b23c4d).
    #[default]
    Nanoseconds,
    /// Microseconds (magic number 0xa1b2c3d4), for old readers.
    Microseconds,
}

/// The longest packet that the header announces, as tcpdump does.
const SNAP_LENGTH: u32 = 262_144;

/// A capture file being written. Buffered: [`PcapWriter::flush`] writes what waits, and so does the drop.
#[derive(Debug)]
pub struct PcapWriter<W: Write> {
    writer: BufWriter<W>,
    precision: Precision,
}

impl PcapWriter<File> {
    /// Makes the file, or empties the one there is, and writes the header.
    ///
    /// # Errors
    /// [`PortError::File`] when it cannot be written.
    pub fn create(path: impl AsRef<Path>, precision: Precision) -> Result<Self, PortError> {
        let path = path.as_ref();
        File::create(path)
            .and_then(|file| Self::new(file, precision))
            .map_err(|error| PortError::file(path, "write", error))
    }
}

impl<W: Write> PcapWriter<W> {
    /// Writes the header for packets of Ethernet.
    ///
    /// # Errors
    /// Those of `target`.
    pub fn new(target: W, precision: Precision) -> io::Result<Self> {
        Self::with_link_type(target, precision, ETHERNET)
    }

    /// Writes the header for packets of any link type.
    ///
    /// # Errors
    /// Those of `target`.
    pub fn with_link_type(target: W, precision: Precision, link_type: u32) -> io::Result<Self> {
        let magic: u32 = match precision {
            Precision::Nanoseconds => 0xa1b2_3c4d,
            Precision::Microseconds => 0xa1b2_c3d4,
        };
        let mut header = [0; 24];
        header[..4].copy_from_slice(&magic.to_le_bytes());
        header[4..6].copy_from_slice(&2_u16.to_le_bytes());
        header[6..8].copy_from_slice(&4_u16.to_le_bytes());
        header[16..20].copy_from_slice(&SNAP_LENGTH.to_le_bytes());
        header[20..].copy_from_slice(&link_type.to_le_bytes());
        let mut writer = BufWriter::with_capacity(1 << 16, target);
        writer.write_all(&header)?;
        Ok(Self { writer, precision })
    }

    /// Writes a packet of `original_length` bytes of which `data` was captured, seen at `timestamp_ns` since 1970
    /// (the format holds times up to the year 2106).
    ///
    /// # Errors
    /// Those of the target.
    pub fn write(&mut self, timestamp_ns: u64, original_length: u32, data: &[u8]) -> io::Result<()> {
        let nanoseconds = (timestamp_ns % 1_000_000_000) as u32;
        let fraction = match self.precision {
            Precision::Nanoseconds => nanoseconds,
            Precision::Microseconds => nanoseconds / 1_000,
        };
        let mut header = [0; 16];
        header[..4].copy_from_slice(&((timestamp_ns / 1_000_000_000) as u32).to_le_bytes());
        header[4..8].copy_from_slice(&fraction.to_le_bytes());
        header[8..12].copy_from_slice(&(data.len() as u32).to_le_bytes());
        header[12..].copy_from_slice(&original_length.to_le_bytes());
        self.writer.write_all(&header)?;
        self.writer.write_all(data)
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// Those of the target.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Sink for PcapWriter<File> {
    fn write(&mut self, record: &Record) -> io::Result<()> {
        let data = record.packet.data();
        self.write(record.timestamp_ns, data.len() as u32, data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_to_the_byte() {
        let mut file = Vec::new();
        let mut writer = PcapWriter::new(&mut file, Precision::Nanoseconds).unwrap();
        writer.write(0x0102_0304 * 1_000_000_000 + 5, 9, b"abc").unwrap();
        drop(writer);
        assert_eq!(
            file,
            [
                &[0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0][..],
                &[4, 3, 2, 1, 5, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, b'a', b'b', b'c'],
            ]
            .concat()
        );
    }

    #[test]
    fn microseconds_are_cut_not_rounded() {
        let mut file = Vec::new();
        let mut writer = PcapWriter::new(&mut file, Precision::Microseconds).unwrap();
        writer.write(1_999_999_999, 0, b"").unwrap();
        drop(writer);
        assert_eq!(file[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
        assert_eq!(file[24..32], [1, 0, 0, 0, 0x3f, 0x42, 0x0f, 0]);
    }
}
