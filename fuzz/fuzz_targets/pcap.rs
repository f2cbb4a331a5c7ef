//! Any bytes as a capture file: records or an error, never a panic, and no more than the file holds.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use ports::PcapReader;

fuzz_target!(|bytes: &[u8]| {
    let file = Cursor::new(bytes.to_vec());
    let mut reader = match PcapReader::new("fuzz.pcap", Box::new(file)) {
        Ok(reader) => reader,
        Err(error) => return assert!(error.to_string().contains("fuzz.pcap")),
    };
    let mut held = 0;
    while let Some(record) = reader.next() {
        match record {
            Ok(record) => held += record.data.len(),
            Err(error) => {
                assert!(error.to_string().contains("fuzz.pcap"));
                assert!(reader.next().is_none(), "the file is at its end after an error");
                break;
            }
        }
    }
    assert!(held <= bytes.len());
});
