//! Any bytes as messages of rtnetlink and of IPsec, and as what FRR sends over FPM: changes or a named error,
//! never a panic; and it does not matter in how many pieces a stream comes.
#![no_main]

use control::change::Change;
use control::fpm::{EndReason, Stream};
use control::netlink::{decode, frames, xfrm};
use libfuzzer_sys::fuzz_target;

/// What the bytes say over FPM when they come in pieces of this size.
fn streamed(bytes: &[u8], piece: usize) -> (Vec<Change>, Result<(), EndReason>) {
    let (mut stream, mut changes) = (Stream::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        stream.room()[..piece.len()].copy_from_slice(piece);
        if let Err(reason) = stream.received(piece.len(), &mut |change| changes.push(change)) {
            return (changes, Err(reason));
        }
    }
    (changes, Ok(()))
}

fuzz_target!(|bytes: &[u8]| {
    let mut count = 0;
    for frame in frames(bytes) {
        if let Ok(frame) = frame
            && let Err(error) = xfrm::decode(&frame)
        {
            assert!(!error.reason().is_empty());
        }
        match frame.and_then(|frame| decode(&frame)) {
            Ok(_) => count += 1,
            Err(error) => assert!(!error.reason().is_empty()),
        }
    }
    assert!(count <= bytes.len() / 16);

    assert_eq!(streamed(bytes, bytes.len().max(1)), streamed(bytes, 7));
    // The same as the inside of one message of FPM.
    let length = (4 + bytes.len()).min(usize::from(u16::MAX)) as u16;
    let mut message = vec![1, 1];
    message.extend(length.to_be_bytes());
    message.extend(&bytes[..usize::from(length) - 4]);
    assert_eq!(streamed(&message, message.len()), streamed(&message, 100));
});
