//! Replay windows.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::netlink::Attribute;
use crate::netlink::xfrm::message::Fields;

/// The state as the kernel would read it from a message and write it into one.
fn through_bytes(replay: &Replay) -> Replay {
    let value = replay.bytes();
    let fields = Fields::of_attribute(&Attribute { kind: 0, value: &value });
    match replay.form {
        ReplayForm::Short => Replay::short(fields, replay.window as u8).unwrap(),
        ReplayForm::Long => Replay::long(fields).unwrap(),
    }
}

proptest! {
    #[test]
    fn a_window_says_what_was_received(
        words in 0..5u32,
        received in prop_oneof![0..300u64, (1u64 << 32) - 200..(1u64 << 32) + 200],
        below in prop::collection::hash_set(0..200u64, 0..60),
        sent: u64,
    ) {
        let (start, sent) = match words {
            0 => (Replay::none(32), u64::from(sent as u32)),
            words => (Replay::long_for_test(words * 32), sent),
        };
        // A short window has no numbers above 32 bits.
        let received = if words == 0 { u64::from(received as u32) } else { received };
        let numbers: HashSet<u64> = below.iter().filter_map(|&below| received.checked_sub(below)).collect();
        let replay = through_bytes(&start.advanced(sent, received, |number| numbers.contains(&number)));
        prop_assert_eq!((replay.sent, replay.received, replay.window), (sent, received, start.window));
        for number in 1..received + 5 {
            let number = if received > 1000 { number + received - 300 } else { number };
            if number > received + 5 {
                break;
            }
            let is_old = number + u64::from(replay.window) <= received;
            let expected = number <= received && (is_old || numbers.contains(&number));
            prop_assert_eq!(replay.was_received(number), expected, "{}", number);
        }
    }
}

#[test]
fn places_are_the_kernels() {
    // The highest at the lowest bit.
    let short = Replay::none(32).advanced(0, 100, |number| number == 100 || number == 97);
    assert_eq!(short.bytes(), [0u32, 100, 0b1001].map(u32::to_ne_bytes).concat());
    // A ring: number 100 stands at bit 99 modulo 64, number 70 at bit 69 modulo 64.
    let long = Replay::long_for_test(64)
        .advanced(3 << 32 | 4, 1 << 32 | 100, |number| number == (1 << 32 | 100) || number == (1 << 32 | 70));
    let expected = [2, 4, 100, 3, 1, 64, 1 << 5, 1 << (99 - 64 - 32)];
    assert_eq!(long.bytes(), expected.map(u32::to_ne_bytes).concat());
}

#[test]
fn a_window_without_room_is_refused() {
    let value = [1u32, 0, 0, 0, 0, 33, 0].map(u32::to_ne_bytes).concat();
    let fields = Fields::of_attribute(&Attribute { kind: 0, value: &value });
    assert_eq!(Replay::long(fields), Err(crate::netlink::DecodeError::AttributeLength));
    let value = [2u32, 0, 0, 0, 0, 33, 0].map(u32::to_ne_bytes).concat();
    let fields = Fields::of_attribute(&Attribute { kind: 0, value: &value });
    assert_eq!(Replay::long(fields), Err(crate::netlink::DecodeError::AttributeLength));
}
