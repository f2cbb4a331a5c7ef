//! Whatever stands between an element's parentheses, it is made or says what is wrong; it never panics.

use click::{marking, queues, shaping, sources, switching};
use graph::testing::configure;
use proptest::prelude::*;

/// Pieces that arguments are made of: keywords, numbers at the edges, units, quotes, things out of place.
const PIECES: &[&str] = &[
    "LIMIT ",
    "BURST ",
    "LENGTH ",
    "RATE ",
    "ACTIVE ",
    "CAPACITY ",
    "STOP ",
    "DATA ",
    "BANDWIDTH ",
    "QUEUES ",
    "ANNO ",
    "COLOR ",
    "INTERVAL ",
    "STABILITY ",
    "BURST_SIZE ",
    "BURST_BYTES ",
    "BURST_DURATION ",
    "CONTENTS ",
    "OFFSET ",
    "0",
    "1",
    "-1",
    "7",
    "48",
    "255",
    "256",
    "65535",
    "65536",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "0x",
    "0xff",
    "08",
    "1e9",
    "1e309",
    "nan",
    "0.5",
    ".",
    "10ms",
    "10Mbps",
    "1ns",
    "true",
    "false",
    "ASCII",
    "\"",
    "'",
    "\\<",
    "\\<0g 1>",
    ">",
    ",",
    ", ",
    ",,",
    " ",
    "é",
    "\u{0}",
    "/*",
    "//",
    "q",
    "a b",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn it_is_made_or_refused(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..9)) {
        let config = pieces.concat();
        let folders = [sources::CLASSES, queues::CLASSES, switching::CLASSES, marking::CLASSES, shaping::CLASSES];
        for class in folders.concat() {
            if let Err(messages) = configure(class, &config) {
                prop_assert!(!messages.is_empty() && messages.iter().all(|message| !message.is_empty()));
            }
        }
    }
}

#[test]
fn every_manual_has_its_parts() {
    let folders = [sources::CLASSES, queues::CLASSES, switching::CLASSES, marking::CLASSES, shaping::CLASSES];
    for class in folders.concat() {
        let manual = class.manual;
        assert!(manual.starts_with(&format!("=c\n{}", class.name)), "{}", class.name);
        for part in ["=s ", "=d\n", "=a "] {
            assert!(manual.contains(part), "{} has no {part}", class.name);
        }
    }
}
