//! Vectors of the RFCs, and all backends against each other.

use proptest::prelude::*;

use super::{Backend, HEADER_BYTES, Job, Keys, Level};
use crate::suite::{Protection, Suite};

fn backends() -> Vec<Backend> {
    let all = [
        Backend::Reference,
        Backend::MultiBuffer(Level::All),
        Backend::MultiBuffer(Level::Avx2),
        Backend::MultiBuffer(Level::Sse),
    ];
    all.into_iter().filter(|backend| backend.engine().is_some()).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Seals and opens one packet with each backend.
fn check(suite: Suite, key: &[u8], auth: &[u8], clear: &[u8], sealed: &[u8], high: Option<u32>) {
    for backend in backends() {
        let keys = Keys::new(suite, key, auth, backend).unwrap();
        let mut engine = backend.engine().unwrap();
        let mut packet = clear.to_vec();
        packet.resize(clear.len() + suite.icv_bytes(), 0xaa);
        let mut jobs = [Job::new(&keys, &mut packet, high)];
        engine.seal(&mut jobs);
        assert!(jobs[0].is_right);
        assert_eq!(packet, sealed, "{} {suite}", engine.name());
        let mut jobs = [Job::new(&keys, &mut packet, high)];
        engine.open(&mut jobs);
        assert!(jobs[0].is_right);
        let payload = HEADER_BYTES + suite.iv_bytes()..clear.len();
        assert_eq!(packet[payload.clone()], clear[payload], "{} {suite}", engine.name());
    }
}

#[test]
fn chacha20_poly1305_as_in_rfc_7634_appendix_a() {
    let key: Vec<u8> = (0x80..0xa4).collect();
    let header = "01020304 00000005 1011121314151617";
    let clear = bytes(&format!(
        "{header} 45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec100007362708090a0b0c0d0e0f101112131415161718191a1b
         1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637 01020204"
    ));
    let sealed = bytes(&format!(
        "{header} 24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c614ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9
         befe2facc638e8f3cbec163fac469b502773f6fb94e664da9165b82829f641e0 76aaa8266b7fb0f7b11b369907e1ad43"
    ));
    check(Suite::new(Protection::ChaCha20Poly1305, 32).unwrap(), &key, &[], &clear, &sealed, None);
}

/// A packet of draft-mcgrew-gcm-test-01, with an extended sequence number.
#[test]
fn aes_gcm_with_an_extended_sequence_number() {
    let key = bytes("4c80cdefbb5d10da906ac73c3613a634 2e443b68");
    let header = "00004321 00000000 4956ed7e3b244cfe";
    let clear = bytes(&format!(
        "{header} 45000048699a000080114db7c0a80102c0a801010a9bf15638d3010000010000000000000 45f736970045f756470037369700963796265
         726369747902646b0000210001 01020201"
    ));
    let sealed = bytes(&format!(
        "{header} fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff62
         47aeabb786b93bce61bc17d768fd9732 459018148f6cbe722fd04796562dfdb4"
    ));
    check(Suite::new(Protection::AesGcm, 16).unwrap(), &key, &[], &clear, &sealed, Some(0x8765_4321));
}

#[test]
fn wrong_keys_are_refused() {
    for suite in Suite::ALL {
        let auth = vec![1; suite.auth_key_bytes()];
        let error = |key: &[u8], auth: &[u8]| {
            Keys::new(suite, key, auth, Backend::Reference).unwrap_err().to_string()
        };
        assert!(error(&[0; 15], &auth).contains("cipher key of 15 bytes; expected"));
        assert!(
            error(&vec![0; suite.key_material_bytes()], &[0; 129])
                .contains("authentication key of 129 bytes; expected")
        );
    }
}

/// Packets as they come: many suites in one batch, lengths and sequence numbers of all kinds.
#[derive(Clone, Debug)]
struct Plain {
    suite: Suite,
    key: u8,
    payload: Vec<u8>,
    high: Option<u32>,
    /// Which bit of the sealed packet is flipped.
    flip: Option<usize>,
}

fn plain() -> impl Strategy<Value = Plain> {
    let length = prop_oneof![1_usize..200, 1_usize..1500];
    (0..Suite::ALL.len(), any::<u8>(), length, any::<u8>(), any::<Option<u32>>(), any::<Option<usize>>())
        .prop_map(|(suite, key, length, byte, high, flip)| {
            let suite = Suite::ALL[suite];
            let length = length.next_multiple_of(suite.alignment());
            let payload = (0..length).map(|place| byte.wrapping_mul(31).wrapping_add(place as u8)).collect();
            Plain { suite, key, payload, high, flip }
        })
}

fn keys(plain: &Plain, backend: Backend) -> Keys {
    let suite = plain.suite;
    let key: Vec<u8> = (0..suite.key_material_bytes() as u8).map(|place| place ^ plain.key).collect();
    let auth = vec![plain.key; suite.auth_key_bytes()];
    Keys::new(suite, &key, &auth, backend).unwrap()
}

/// Whether the ICV was right, and the payload.
type Opened = (bool, Vec<u8>);

/// Seals with one backend and opens with another. Returns sealed packets, what was opened, and whether it was right.
fn there_and_back(plains: &[Plain], sealer: Backend, opener: Backend) -> (Vec<Vec<u8>>, Vec<Opened>) {
    let mut packets: Vec<Vec<u8>> = plains
        .iter()
        .enumerate()
        .map(|(number, plain)| {
            let mut packet = vec![0, 0, 1, 0, 0, 0, 0, number as u8];
            packet.resize(HEADER_BYTES + plain.suite.iv_bytes(), number as u8);
            packet.extend(&plain.payload);
            packet.resize(packet.len() + plain.suite.icv_bytes(), 0);
            packet
        })
        .collect();
    let of_sealer: Vec<Keys> = plains.iter().map(|plain| keys(plain, sealer)).collect();
    let of_opener: Vec<Keys> = plains.iter().map(|plain| keys(plain, opener)).collect();
    let mut sealing = jobs(&of_sealer, &mut packets, plains);
    sealer.engine().unwrap().seal(&mut sealing);
    assert!(sealing.iter().all(|job| job.is_right));
    let sealed = packets.clone();
    for (packet, plain) in packets.iter_mut().zip(plains) {
        if let Some(flip) = plain.flip {
            let place = flip % (packet.len() * 8);
            packet[place / 8] ^= 1 << (place % 8);
        }
    }
    let mut opening = jobs(&of_opener, &mut packets, plains);
    opener.engine().unwrap().open(&mut opening);
    let opened = opening.iter().zip(plains).map(|(job, plain)| {
        let start = HEADER_BYTES + plain.suite.iv_bytes();
        (job.is_right, job.esp[start..start + plain.payload.len()].to_vec())
    });
    (sealed, opened.collect())
}

fn jobs<'a>(keys: &'a [Keys], packets: &'a mut [Vec<u8>], plains: &[Plain]) -> Vec<Job<'a>> {
    let each = keys.iter().zip(packets).zip(plains);
    each.map(|((keys, packet), plain)| Job::new(keys, packet, plain.high)).collect()
}

proptest! {
    #[test]
    fn backends_agree_and_no_changed_bit_is_accepted(plains in prop::collection::vec(plain(), 1..60)) {
        let backends = backends();
        let mut first: Option<Vec<Vec<u8>>> = None;
        for sealer in &backends {
            for opener in &backends {
                let (sealed, opened) = there_and_back(&plains, *sealer, *opener);
                for (plain, (is_right, payload)) in plains.iter().zip(&opened) {
                    prop_assert_eq!(*is_right, plain.flip.is_none());
                    prop_assert!(!is_right || *payload == plain.payload);
                }
                prop_assert_eq!(first.get_or_insert_with(|| sealed.clone()), &sealed);
            }
        }
    }
}
