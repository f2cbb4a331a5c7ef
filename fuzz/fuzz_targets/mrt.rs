//! Any bytes as an MRT dump: routes or errors, each with its record and place, never a panic.
#![no_main]

#[path = "../../crates/lab/src/rib/mrt.rs"]
mod mrt;

use libfuzzer_sys::fuzz_target;

fn read(bytes: &[u8]) {
    let mut last = 0;
    for route in mrt::MrtRoutes::new(bytes) {
        match route {
            Ok((record, prefix, _)) => {
                assert!(record >= last);
                assert_eq!(prefix, prefix.trunc());
                last = record;
            }
            Err(error) => assert!(error.to_string().starts_with("record ")),
        }
    }
    // A record has a header of 12 bytes at least.
    assert!(last <= bytes.len() as u64 / 12 + 1);
}

fuzz_target!(|bytes: &[u8]| {
    let _ = mrt::is_mrt(bytes);
    read(bytes);
    // The same as the inside of RIB records (RFC 6396, 4.3), which few random bytes begin.
    for subtype in 1..=6_u8 {
        let mut record = vec![0, 0, 0, 0, 0, 13, 0, subtype];
        record.extend((bytes.len() as u32).to_be_bytes());
        record.extend(bytes);
        read(&record);
    }
});
