//! Any bytes as a frame in which several packets are merged, as a guest or a host may say: divided whole, or refused, never a panic.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use packet::division::{Headers, Transport, divide, divide_frame};
use packet::{Merged, Packet, Pool, PoolOptions};

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new({
        let mut pool = Pool::new(PoolOptions { frames: 4_096, ..PoolOptions::default() }).expect("memory");
        pool.add_large(2).expect("memory");
        pool
    });
}

fuzz_target!(|input: (u8, u8, bool, u16, &[u8])| {
    let (network, transport, is_tcp, piece_bytes, frame) = input;
    let (network, transport) = (usize::from(network), usize::from(transport));
    let protocol = if is_tcp { Transport::Tcp } else { Transport::Udp };
    let Ok(headers) = Headers::of(frame, network, transport, protocol) else { return };
    let piece_bytes = piece_bytes.max(1);
    POOL.with_borrow_mut(|pool| {
        let mut pieces: Vec<Packet> = Vec::new();
        let outcome = divide_frame(pool, frame, &headers, piece_bytes.into(), |piece| pieces.push(piece));
        let front = headers.payload();
        if outcome == Ok(0) {
            let together: Vec<u8> = pieces.iter().flat_map(|piece| piece.data()[front..].to_vec()).collect();
            assert_eq!(together, frame[front..]);
        }
        // A packet is divided as the frame is.
        let Some(mut packet) = pool.allocate_large() else { return };
        if let Some(data) = packet.reset_with_headroom(packet::pool::LARGE_HEADROOM, frame.len()) {
            data.copy_from_slice(frame);
            let at = |position: usize| (position + packet.data_offset()) as u16;
            let [network, transport, payload] = [network, transport, front].map(at);
            if network < transport && transport < payload {
                packet.set_merged(Merged { piece_bytes, network, transport, payload });
                let mut others: Vec<Packet> = Vec::new();
                if divide(pool, &packet, |piece| others.push(piece)) == Ok(0) && outcome == Ok(0) {
                    let data = |packets: &[Packet]| packets.iter().map(|packet| packet.data().to_vec()).collect::<Vec<_>>();
                    assert_eq!(data(&pieces), data(&others));
                }
                others.drain(..).for_each(|piece| pool.free_packet(piece));
            }
        }
        pool.free_packet(packet);
        pieces.drain(..).for_each(|piece| pool.free_packet(piece));
    });
});
