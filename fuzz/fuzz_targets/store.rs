//! Any bytes as what a client sends to a hosted store: messages or an end of the connection, never a panic, and memory for
//! what came only.
#![no_main]

use control::store::testing::hosted_store_hears;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert!(hosted_store_hears(bytes) <= bytes.len());
});
