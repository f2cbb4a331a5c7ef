//! Damaged messages, and noise.

use proptest::prelude::*;

use super::*;
use crate::netlink::DecodeError;

/// All that the kernel may send.
const KINDS: std::ops::Range<u16> = 0x0e..0x2a;

proptest! {
    #[test]
    fn damaged_messages_are_a_value_or_an_error(
        which: prop::sample::Index,
        kind in prop::option::of(KINDS),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        length in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let messages: Vec<_> = recorded().into_iter().flat_map(|(_, messages)| messages).collect();
        let (its, mut bytes) = which.get(&messages).clone();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(length) = length {
            bytes.truncate(length.index(bytes.len()));
        }
        if let Err(error) = decode_parts(kind.unwrap_or(its), &bytes) {
            prop_assert!(!error.reason().is_empty());
        }
    }

    #[test]
    fn noise_is_a_value_or_an_error(kind in KINDS, payload in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = decode_parts(kind, &payload);
    }
}

#[test]
fn errors_have_names() {
    let messages = recorded();
    let (kind, sa) = &messages[0].1[0];
    let changed = |at: usize, value: u8| {
        let mut bytes = sa.clone();
        bytes[at] = value;
        decode_parts(*kind, &bytes)
    };
    assert_eq!(decode_parts(*kind, &sa[..223]), Err(DecodeError::ShortMessage));
    assert_eq!(decode_parts(*kind, &sa[..226]), Err(DecodeError::AttributeFraming));
    // The families of the SA and of its selector, and a prefix.
    assert_eq!(changed(212, 0), Err(DecodeError::Family));
    assert_eq!(changed(40, 7), Err(DecodeError::Family));
    assert_eq!(changed(42, 33), Err(DecodeError::PrefixLength));
    // The first attribute is the algorithm, with a key longer than it.
    assert_eq!(sa[226], super::super::message::attribute::ALG_AEAD as u8);
    assert_eq!(changed(228 + 64 + 1, 0xff), Err(DecodeError::AttributeLength));
    // An extension header of Mobile IPv6.
    assert_eq!(changed(76, 43), Ok(Decoded::NotForUs("an SA of another protocol")));
    assert_eq!(
        decode_parts(message::kind::DEL_POLICY, &[0; POLICY_ID_BYTES]),
        Err(DecodeError::AttributeMissing)
    );
}

#[test]
fn what_we_do_not_know_is_kept_by_its_number() {
    let messages = recorded();
    let (kind, sa) = &messages[0].1[0];
    // Attributes of IP-TFS, and a direction of which nobody has heard.
    let more =
        [&[8, 0, 36, 0, 1, 0, 0, 0][..], &[5, 0, 33, 0, 9, 0, 0, 0], &[8, 0, 35, 0, 3, 0, 0, 0]].concat();
    let Ok(Decoded::Sa(sa)) = decode_parts(*kind, &[sa.clone(), more].concat()) else { panic!("an SA") };
    assert_eq!((sa.unknown, sa.direction, sa.cpu), (vec![36, 33], None, Some(3)));
}

#[test]
fn keys_are_not_printed() {
    let messages = recorded();
    let (kind, sa) = &messages[0].1[0];
    let text = format!("{:?}", decode_parts(*kind, sa));
    assert!(text.contains("key: Key(20 bytes)"), "{text}");
    assert!(
        !Key::new(&[0, 1]).is_withheld() && Key::new(&[0, 0]).is_withheld() && !Key::new(&[]).is_withheld()
    );
}
